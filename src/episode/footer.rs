//! Checks a Parquet footer before polars sees it: walks the Thrift compact structure and
//! refuses any string, list or nesting that could not fit into the bytes that are there.
//! Without this a few flipped bits make the reader reserve terabytes, which ends the process.
//!
//! Source: Thrift compact protocol specification, apache/thrift.

use std::collections::BTreeMap;

const MAX_DEPTH: usize = 32;

/// Whether the footer's structure fits its own length. `bytes` is the whole file, 12 bytes or more.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let broken = || "its footer is damaged (cut off, or changed)".to_string();
    let body = bytes.get(..bytes.len().saturating_sub(8)).ok_or_else(broken)?;
    let length = bytes.get(body.len()..body.len() + 4).and_then(|b| b.try_into().ok()).ok_or_else(broken)?;
    let length = u32::from_le_bytes(length) as usize;
    let start = body.len().checked_sub(length).ok_or_else(broken)?;
    let mut walk = Walk { rest: body.get(start..).ok_or_else(broken)? };
    walk.structure(0).ok_or_else(broken)
}

/// A walk over Thrift compact bytes.
pub(super) struct Walk<'a> {
    /// What was not walked over yet.
    pub rest: &'a [u8],
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.rest = self.rest.get(count..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The whole numbers of the structure that comes next, by (0, field), and of the structures directly
    /// in it, by (field of the structure, field).
    pub fn numbers(&mut self) -> Option<BTreeMap<(i64, i64), i64>> {
        let mut found = BTreeMap::new();
        self.numbers_of(0, &mut found)?;
        Some(found)
    }

    fn numbers_of(&mut self, structure: i64, found: &mut BTreeMap<(i64, i64), i64>) -> Option<()> {
        let mut field = 0i64;
        loop {
            let header = self.byte()?;
            let kind = header & 0x0f;
            if kind == 0 {
                return Some(());
            }
            field = match header >> 4 {
                0 => self.signed()?,
                step => field.checked_add(i64::from(step))?,
            };
            match kind {
                1 | 2 => {}
                4..=6 => drop(found.insert((structure, field), self.signed()?)),
                12 if structure == 0 && field != 0 => self.numbers_of(field, found)?,
                _ => self.value(kind, 0)?,
            }
        }
    }

    /// A whole number with a sign (zigzag).
    fn signed(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A structure: fields of (id delta, type) until a stop byte.
    fn structure(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        loop {
            let header = self.byte()?;
            let kind = header & 0x0f;
            if kind == 0 {
                return Some(());
            }
            if header >> 4 == 0 {
                self.varint()?; // the field's id in full
            }
            if kind > 2 {
                self.value(kind, depth)?; // 1 and 2 are the booleans themselves
            }
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            1..=3 => self.skip(1), // booleans inside lists, and bytes
            4..=6 => self.varint().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(usize::try_from(length).ok()?)
            }
            9 | 10 => {
                let header = self.byte()?;
                let size = if header >> 4 == 15 { self.varint()? } else { u64::from(header >> 4) };
                // Each element takes at least one byte.
                if size > self.rest.len() as u64 {
                    return None;
                }
                (0..size).try_for_each(|_| self.value(header & 0x0f, depth + 1))
            }
            12 => self.structure(depth + 1),
            _ => None, // maps and unknown types do not occur in a Parquet footer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(footer: &[u8]) -> Vec<u8> {
        [b"PAR1", footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
    }

    #[test]
    fn a_list_larger_than_the_file_is_refused() {
        // Field 4: a list of structures that claims 2^31 - 1 elements.
        assert!(check(&file(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00, 0x00])).is_err());
        // The same list with one (empty) element.
        assert!(check(&file(&[0x49, 0x1c, 0x00, 0x00])).is_ok());
    }

    #[test]
    fn endless_nesting_and_long_strings_are_refused() {
        assert!(check(&file(&[0x1c; 200])).is_err());
        assert!(check(&file(&[0x18, 0x7f, b'x', 0x00])).is_err());
        assert!(check(&file(&[0x18, 0x01, b'x', 0x00])).is_ok());
    }

    #[test]
    fn a_footer_longer_than_the_file_is_refused() {
        assert!(check(b"PAR1\xff\xff\xff\xffPAR1").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 12..200)) {
            let _ = check(&bytes);
        }
    }
}
