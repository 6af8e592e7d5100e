//! Parquet bytes to and from a polars frame, guarded. polars' reader can panic on damaged bytes,
//! and can ask for absurd amounts of memory, which ends the process. So files of ours carry a seal
//! over all their bytes, checked before polars sees them; of other writers' files, footer and page headers are.

use super::column_type::{self, Plain};
use super::pages;
use crate::hash::sha256_hex;
use polars::prelude::*;
use polars_parquet::parquet::metadata::{FileMetadata, SchemaDescriptor};
use polars_parquet::parquet::schema::types::ParquetType;
use polars_parquet::read::read_metadata;
use std::cell::Cell as Flag;
use std::io::Cursor;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Key of the footer's key-value metadata under which the seal stands: SHA-256 of the file with 64 zero
/// digits in the seal's place.
const SEAL: &str = "rederive.sha256";
const UNSEALED: &str = crate::episode::chain::START;
/// What stands between key and value in a footer: field 2, text, 64 bytes long (Thrift compact protocol).
const BEFORE_VALUE: [u8; 2] = [0x18, 64];

/// The frame as Parquet (zstd pages), sealed: the same bytes for the same frame.
pub(crate) fn encode(frame: &mut DataFrame) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes)
        .with_compression(ParquetCompression::Zstd(None))
        .with_key_value_metadata(Some(KeyValueMetadata::from_static(vec![(SEAL.into(), UNSEALED.into())])))
        .finish(frame)
        .map_err(|e| first_line(&e.to_string()))?;
    let place = seal_place(&bytes).ok_or("the writer left no place for the seal")?;
    let seal = sha256_hex(&bytes);
    bytes[place].copy_from_slice(seal.as_bytes());
    Ok(bytes)
}

/// The first `limit` rows of a Parquet file and the number of rows in all of it; the error says in one
/// line why the bytes cannot be read.
pub(crate) fn decode(bytes: &[u8], limit: Option<usize>) -> Result<(DataFrame, usize), String> {
    let metadata = metadata(bytes)?;
    let total = metadata.num_rows;
    let fields = metadata.schema().fields().iter().map(|field| match column_type::plain(field) {
        Ok(Plain { field, scale: None }) => Ok(field),
        Ok(_) => Err(format!("its column `{}` holds decimals, which are not read here", field.name())),
        Err(kind) => Err(format!("its column `{}` holds `{kind}`, which is not read here", field.name())),
    });
    let fields = fields.collect::<Result<Vec<_>, String>>()?;
    Ok((columns(bytes, metadata, fields, limit)?, total))
}

/// What the footer says, after [`check`]. Schemas that other programs keep beside Parquet's own are dropped.
pub(crate) fn metadata(bytes: &[u8]) -> Result<FileMetadata, String> {
    check(bytes)?;
    quietly(|| {
        let mut metadata = read_metadata(&mut Cursor::new(bytes)).map_err(|e| first_line(&e.to_string()))?;
        metadata.key_value_metadata = None;
        Ok(metadata)
    })
}

/// The first `limit` rows of some columns, each under the type of its field here.
pub(crate) fn columns(
    bytes: &[u8],
    mut metadata: FileMetadata,
    fields: Vec<ParquetType>,
    limit: Option<usize>,
) -> Result<DataFrame, String> {
    quietly(|| {
        sizes_agree(bytes, &metadata, &fields)?;
        let total = metadata.num_rows;
        metadata.schema_descr = SchemaDescriptor::new(metadata.schema_descr.name().into(), fields);
        // One thread only: the panic hook is silenced for this thread alone.
        let mut reader = ParquetReader::new(Cursor::new(bytes)).read_parallel(ParallelStrategy::None);
        reader.set_metadata(metadata.into());
        reader
            .with_slice(limit.map(|limit| (0, limit.min(total))))
            .finish()
            .map_err(|e| first_line(&e.to_string()))
    })
}

/// Damaged counts would make the reader reserve memory for rows or bytes that are not there.
fn sizes_agree(bytes: &[u8], metadata: &FileMetadata, fields: &[ParquetType]) -> Result<(), String> {
    let total = metadata.num_rows;
    let contradiction = || format!("its footer contradicts itself (rows claimed: {total})");
    let groups = &metadata.row_groups;
    if groups.iter().map(|g| g.num_rows()).fold(0, usize::saturating_add) != total {
        return Err(contradiction());
    }
    for (group, field) in groups.iter().flat_map(|g| fields.iter().map(move |f| (g, f))) {
        let mut chunks = group.parquet_columns().iter().filter(
            |c| matches!(c.descriptor().path_in_schema.as_slice(), [name] if name.as_str() == field.name()),
        );
        let (Some(chunk), None) = (chunks.next(), chunks.next()) else {
            return Err(contradiction());
        };
        if usize::try_from(chunk.num_values()) != Ok(group.num_rows()) {
            return Err(contradiction());
        }
        let range = chunk.byte_range();
        let within = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let pages = within.and_then(|(start, end)| bytes.get(start..end)).ok_or_else(contradiction)?;
        pages::check(pages, chunk.num_values(), chunk.uncompressed_size())?;
    }
    Ok(())
}

/// What can be known before a reader sees the bytes: they begin and end as Parquet, carry the seal's own hash
/// where there is a seal, and have a footer that fits the file. The error says in one line what does not hold.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    if bytes.len() < 12 || !bytes.starts_with(b"PAR1") || !bytes.ends_with(b"PAR1") {
        return Err("it does not start and end as a Parquet file does (cut off, or of another kind)".into());
    }
    if let Some(place) = seal_place(bytes) {
        let mut unsealed = bytes.to_vec();
        unsealed[place.clone()].copy_from_slice(UNSEALED.as_bytes());
        if sha256_hex(&unsealed).as_bytes() != &bytes[place] {
            return Err("its bytes are not those that were written (the seal in its footer says so)".into());
        }
    }
    super::footer::check(bytes)
}

/// Where the seal's 64 digits are; `None` in a file that has none.
fn seal_place(bytes: &[u8]) -> Option<Range<usize>> {
    let key = [SEAL.as_bytes(), &BEFORE_VALUE].concat();
    let start = bytes.windows(key.len()).rposition(|window| window == key)? + key.len();
    (start + 64 <= bytes.len()).then_some(start..start + 64)
}

thread_local! {
    static QUIET: Flag<bool> = const { Flag::new(false) };
}

/// Runs `f`, which keeps to one thread; a panic becomes an error and prints nothing.
pub(crate) fn quietly<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.try_with(Flag::get).unwrap_or(false) {
                previous(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    result.unwrap_or_else(|_| Err("its contents are damaged (the Parquet reader gave up)".into()))
}

pub(crate) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> DataFrame {
        let column = Series::new("a".into(), [1i64, 2, 3]).into_column();
        DataFrame::new(3, vec![column]).unwrap()
    }

    #[test]
    fn any_changed_bit_breaks_the_seal() {
        let bytes = encode(&mut frame()).unwrap();
        assert_eq!(decode(&bytes, None).unwrap().1, 3);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // A bit of the seal's own key makes it a file without a seal, whose other bytes are good.
            if seal_place(&changed).is_some() {
                assert!(decode(&changed, None).is_err(), "bit {bit}");
            } else {
                let _ = decode(&changed, None);
            }
        }
    }

    #[test]
    fn a_file_of_another_writer_needs_no_seal() {
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut frame()).unwrap();
        assert!(seal_place(&bytes).is_none());
        assert_eq!(decode(&bytes, Some(2)).unwrap().0.height(), 2);
    }

    #[test]
    fn a_panic_of_the_reader_is_an_error() {
        assert!(quietly::<()>(|| panic!("not printed")).unwrap_err().contains("damaged"));
        assert_eq!(quietly(|| Ok(1)), Ok(1));
    }
}
