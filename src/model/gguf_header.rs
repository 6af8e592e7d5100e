//! The header of a GGUF file: metadata and the place of every tensor. The file is a stranger's, so
//! that no length in it is believed before the file is seen to hold as much: nothing is allocated
//! beyond a small multiple of the file's size, and no count, offset or alignment can overflow.
//!
//! candle's own reader divides by an alignment of 0, lets one name stand for two tensors, and wraps
//! sizes that overflow; its types and its blocks' arithmetic are used all the same.

use crate::error::{Error, Result};
use candle_core::Shape;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value, VersionedMagic};
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::Path;

/// Values that the metadata may have in all, a list's items counted one by one: sixteen times what the
/// largest vocabularies need.
const MOST_VALUES: u64 = 1 << 23;
const MOST_TENSORS: u64 = 1 << 20;
const MOST_DIMENSIONS: u32 = 4;
const LARGEST_ALIGNMENT: u64 = 1 << 20;
const DEFAULT_ALIGNMENT: u64 = 32;

/// Type numbers of the format.
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Reads and checks the header of a file.
pub(super) fn read(path: &Path) -> Result<Content> {
    crate::regular::check(path)?;
    let file = fs_err::File::open(path)?;
    let size = file.metadata()?.len();
    let mut reader = Reader { inner: BufReader::with_capacity(1 << 16, file), position: 0, size, values: 0 };
    reader
        .content()
        .map_err(|e| e.at(path.display()).hint("the file is damaged or not a GGUF file: fetch it again"))
}

struct Reader<R> {
    inner: R,
    position: u64,
    /// Bytes of the whole file.
    size: u64,
    /// Metadata values read so far.
    values: u64,
}

impl<R: Read> Reader<R> {
    fn content(&mut self) -> Result<Content> {
        if &self.bytes::<4>()? != b"GGUF" {
            return Err(Error::invalid("does not begin with GGUF"));
        }
        let magic = match self.u32()? {
            2 => VersionedMagic::GgufV2,
            3 => VersionedMagic::GgufV3,
            other => {
                return Err(Error::invalid(format!("GGUF version {other} is not supported (2 and 3 are)")));
            }
        };
        let (tensors, entries) = (self.u64()?, self.u64()?);
        let mut metadata = HashMap::new();
        for _ in 0..entries {
            let key = self.text("the name of a metadata entry")?;
            let kind = self.u32()?;
            let value = self.value(kind, &key, true)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(Error::invalid(format!("metadata `{key}` is there twice")));
            }
        }
        if tensors > MOST_TENSORS {
            return Err(Error::invalid(format!("{tensors} tensors are more than any model has")));
        }
        let mut infos = HashMap::new();
        for _ in 0..tensors {
            let name = self.text("the name of a tensor")?;
            let info = self.tensor(&name)?;
            if infos.insert(name.clone(), info).is_some() {
                return Err(Error::invalid(format!("tensor `{name}` is there twice")));
            }
        }
        let data = self.position.next_multiple_of(alignment(&metadata)?);
        check_places(&infos, data, self.size)?;
        Ok(Content { magic, metadata, tensor_infos: infos, tensor_data_offset: data })
    }

    fn tensor(&mut self, name: &str) -> Result<TensorInfo> {
        let count = self.u32()?;
        if count > MOST_DIMENSIONS {
            return Err(Error::invalid(format!("tensor `{name}` has {count} dimensions")));
        }
        let mut dimensions = Vec::new();
        for _ in 0..count {
            dimensions.push(self.u64()?);
        }
        dimensions.reverse();
        let kind = self.u32()?;
        let ggml_dtype = block_type(kind).ok_or_else(|| {
            Error::invalid(format!("tensor `{name}` has type number {kind}, which is not supported"))
                .hint("supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q2_K to Q6_K")
        })?;
        let too_large = || Error::invalid(format!("tensor `{name}` has the impossible shape {dimensions:?}"));
        dimensions.iter().try_fold(1u64, |product, d| product.checked_mul(*d)).ok_or_else(too_large)?;
        let shape: Option<Vec<usize>> = dimensions.iter().map(|d| usize::try_from(*d).ok()).collect();
        let shape = Shape::from(shape.ok_or_else(too_large)?);
        Ok(TensorInfo { ggml_dtype, shape, offset: self.u64()? })
    }

    /// A metadata value; a list's items must be plain, as those of every published model are.
    fn value(&mut self, kind: u32, key: &str, lists: bool) -> Result<Value> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(Error::invalid(format!(
                "metadata `{key}`: there are more than {MOST_VALUES} values"
            )));
        }
        Ok(match kind {
            0 => Value::U8(self.bytes::<1>()?[0]),
            1 => Value::I8(i8::from_le_bytes(self.bytes()?)),
            2 => Value::U16(u16::from_le_bytes(self.bytes()?)),
            3 => Value::I16(i16::from_le_bytes(self.bytes()?)),
            4 => Value::U32(self.u32()?),
            5 => Value::I32(i32::from_le_bytes(self.bytes()?)),
            6 => Value::F32(f32::from_le_bytes(self.bytes()?)),
            7 => match self.bytes::<1>()?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => return Err(Error::invalid(format!("metadata `{key}` has the truth value {other}"))),
            },
            STRING => Value::String(self.text(&format!("metadata `{key}`"))?),
            ARRAY if lists => {
                let (kind, count) = (self.u32()?, self.u64()?);
                self.room(count, &format!("the list `{key}`"))?;
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(self.value(kind, key, false)?);
                }
                Value::Array(items)
            }
            10 => Value::U64(self.u64()?),
            11 => Value::I64(i64::from_le_bytes(self.bytes()?)),
            12 => Value::F64(f64::from_le_bytes(self.bytes()?)),
            other => {
                return Err(Error::invalid(format!(
                    "metadata `{key}` has a value of the unsupported type {other}"
                )));
            }
        })
    }

    /// A text after its length; converters that end texts with zero bytes exist.
    fn text(&mut self, what: &str) -> Result<String> {
        let length = self.u64()?;
        self.room(length, what)?;
        let length = usize::try_from(length).map_err(|_| Error::invalid(format!("{what} is too long")))?;
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Refuses a length beyond the end of the file, before anything is allocated for it.
    fn room(&self, bytes: u64, what: &str) -> Result<()> {
        let left = self.size.saturating_sub(self.position);
        if bytes > left {
            return Err(Error::invalid(format!(
                "{what} says that it has {bytes} bytes or items; the file has {left} more"
            )));
        }
        Ok(())
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_exact(bytes).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::invalid(format!("ends in the middle of its header, at byte {}", self.size))
            }
            _ => Error::from(e),
        })?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}

/// `general.alignment`, or the format's default.
fn alignment(metadata: &HashMap<String, Value>) -> Result<u64> {
    const KEY: &str = "general.alignment";
    match metadata.get(KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::U32(n)) if n.is_power_of_two() && u64::from(*n) <= LARGEST_ALIGNMENT => Ok(u64::from(*n)),
        Some(other) => Err(Error::invalid(format!("metadata `{KEY}` = {other:?} is not a power of two"))),
    }
}

/// Refuses tensors outside the file, and two that share bytes.
fn check_places(infos: &HashMap<String, TensorInfo>, data: u64, size: u64) -> Result<()> {
    let mut places = Vec::new();
    for (name, info) in infos {
        let (elements, block) = (info.shape.elem_count(), info.ggml_dtype.block_size());
        if !elements.is_multiple_of(block) {
            return Err(Error::invalid(format!(
                "tensor `{name}` has {elements} numbers, which are no whole blocks of {block}"
            )));
        }
        let end = ((elements / block) as u64)
            .checked_mul(info.ggml_dtype.type_size() as u64)
            .and_then(|bytes| bytes.checked_add(info.offset))
            .and_then(|end| end.checked_add(data))
            .filter(|end| *end <= size)
            .ok_or_else(|| {
                Error::invalid(format!(
                    "tensor `{name}` ({:?}, {:?}, at offset {}) ends beyond the file",
                    info.shape.dims(),
                    info.ggml_dtype,
                    info.offset
                ))
            })?;
        places.push((data + info.offset, end, name));
    }
    places.sort();
    for pair in places.windows(2) {
        if let [(_, end, one), (start, _, other)] = pair
            && start < end
        {
            return Err(Error::invalid(format!("tensors `{one}` and `{other}` overlap")));
        }
    }
    Ok(())
}

fn block_type(kind: u32) -> Option<GgmlDType> {
    Some(match kind {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        _ => return None,
    })
}
