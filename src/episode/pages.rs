//! Checks the page headers of a Parquet column before polars sees them. A damaged header can claim any
//! number of values or bytes, and the reader would reserve room for them, which ends the process.
//!
//! Source: Apache Parquet format, `PageHeader` in parquet.thrift.

use super::footer::Walk;

/// Bytes that a page may always unpack to, whatever its column's entry in the footer says.
const ROOM: i64 = 1 << 26;

/// Whether the pages in `chunk` hold `values` values, in no more than `unpacked` bytes, and lie within it.
pub fn check(chunk: &[u8], values: i64, unpacked: i64) -> Result<(), String> {
    walk(chunk, values, unpacked).ok_or_else(|| "the header of one of its pages is damaged".to_string())
}

fn walk(chunk: &[u8], values: i64, unpacked: i64) -> Option<()> {
    let mut rest = chunk;
    let mut seen = 0i64;
    while seen < values {
        let mut walk = Walk { rest };
        let header = walk.numbers()?;
        let number = |structure: i64, field: i64| header.get(&(structure, field)).copied();
        let (large, small) = (number(0, 2)?, number(0, 3)?);
        if !(0..=unpacked.max(ROOM)).contains(&large) {
            return None;
        }
        rest = walk.rest.get(usize::try_from(small).ok()?..)?;
        let here = match number(0, 1)? {
            0 => number(5, 1)?,
            // An entry of a dictionary takes a byte at least.
            2 => (0..=large).contains(&number(7, 1)?).then_some(0)?,
            3 => {
                let (count, nulls, rows) = (number(8, 1)?, number(8, 2)?, number(8, 3)?);
                let (definition, repetition) = (number(8, 5)?, number(8, 6)?);
                let fits = (0..=count).contains(&nulls)
                    && (0..=count).contains(&rows)
                    && (0..=small).contains(&definition)
                    && (0..=small - definition).contains(&repetition);
                fits.then_some(count)?
            }
            _ => 0,
        };
        if here < 0 {
            return None;
        }
        seen = seen.checked_add(here)?;
    }
    (seen == values).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn varint(number: i64) -> Vec<u8> {
        let mut rest = ((number << 1) ^ (number >> 63)) as u64;
        let mut bytes = Vec::new();
        while rest >= 128 {
            bytes.push(rest as u8 | 128);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    /// A data page: type 0, sizes, and a header with its number of values, before `size` bytes.
    fn page(large: i64, small: i64, values: i64, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [0, large, small] {
            bytes.push(0x15);
            bytes.extend(varint(number));
        }
        bytes.extend([0x2c, 0x15]);
        bytes.extend(varint(values));
        bytes.extend([0, 0]);
        bytes.extend(vec![7; size]);
        bytes
    }

    #[test]
    fn pages_hold_what_the_footer_says() {
        let two = [page(9, 4, 3, 4), page(9, 5, 2, 5)].concat();
        assert!(check(&two, 5, 18).is_ok());
        assert!(check(&two, 4, 18).is_err() && check(&two, 6, 18).is_err());
        assert!(check(&[], 0, 0).is_ok());
    }

    #[test]
    fn claims_beyond_the_chunk_are_refused() {
        for bad in [page(9, 5, 3, 4), page(-1, 4, 3, 4), page(9, -4, 3, 4), page(1 << 40, 4, 3, 4)] {
            assert!(check(&bad, 3, 9).is_err());
        }
        assert!(check(&[page(9, 4, -2, 4), page(9, 4, 5, 4)].concat(), 3, 18).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), values in 0i64..9) {
            let _ = check(&bytes, values, i64::MAX);
        }
    }
}
