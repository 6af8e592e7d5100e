//! Parquet through polars, behind the guard of `episode`: a file that carries our seal must still have
//! the bytes that were sealed, and a file that makes the reader fail or panic is an error with its
//! name. Only the columns that are wanted are decoded, so that others may hold any type.

use super::table::{Field, Table};
use crate::episode::parquet::{check, first_line, quietly};
use crate::error::{Error, Result};
use polars::prelude::*;
use std::collections::HashMap;
use std::io::Cursor;

/// A Parquet file with its schema read.
pub struct Parquet {
    /// The file, as given.
    pub path: String,
    /// Column names, in file order.
    pub names: Vec<String>,
    bytes: Vec<u8>,
}

impl Parquet {
    /// Checks the seal, where there is one, and the footer, and reads the schema.
    pub fn open(path: String, bytes: Vec<u8>) -> Result<Parquet> {
        check(&bytes).map_err(|why| unreadable(&path, &why))?;
        let schema = guarded(&path, || ParquetReader::new(Cursor::new(&bytes)).schema().map_err(shorter))?;
        let names = schema.iter_names().map(|n| n.to_string()).collect();
        Ok(Parquet { path, names, bytes })
    }

    /// Decodes the named columns.
    pub fn read(&self, wanted: &[&str]) -> Result<Table> {
        let names: Vec<String> = wanted.iter().map(|n| (*n).to_owned()).collect();
        let frame = guarded(&self.path, || {
            let mut reader =
                ParquetReader::new(Cursor::new(&self.bytes)).read_parallel(ParallelStrategy::None);
            // A damaged count would make the reader reserve memory for rows that are not there.
            let metadata = reader.get_metadata().map_err(shorter)?;
            let groups = &metadata.row_groups;
            let rows = groups.iter().map(|g| g.num_rows()).fold(0, usize::saturating_add);
            let agree = groups.iter().all(|g| {
                g.parquet_columns().iter().all(|c| match c.descriptor().path_in_schema.as_slice() {
                    [name] if wanted.contains(&name.as_str()) => {
                        usize::try_from(c.num_values()) == Ok(g.num_rows())
                    }
                    _ => true,
                })
            });
            if rows != metadata.num_rows || !agree {
                return Err(format!("its footer contradicts itself ({} rows claimed)", metadata.num_rows));
            }
            reader.with_columns(Some(names)).finish().map_err(shorter)
        })?;
        let mut columns = HashMap::new();
        for name in wanted {
            let column = frame.column(name).map_err(|e| unreadable(&self.path, &e.to_string()))?;
            let fields = fields(column).map_err(|kind| {
                Error::invalid(format!("the column holds `{kind}`, which cannot be used"))
                    .at(format!("{}: column `{name}`", self.path))
                    .hint("write it as text, a 64-bit number or a boolean")
            })?;
            columns.insert((*name).to_owned(), fields);
        }
        Ok(Table { path: self.path.clone(), rows: frame.height(), columns, lines: None })
    }
}

/// The values of a column, or the name of a type that has no plain values.
fn fields(column: &Column) -> std::result::Result<Vec<Field>, String> {
    let fail = |e: PolarsError| e.to_string();
    let list =
        |values: Vec<Option<Field>>| Ok(values.into_iter().map(|v| v.unwrap_or(Field::Null)).collect());
    match column.dtype() {
        DataType::String => {
            list(column.str().map_err(fail)?.iter().map(|v| v.map(|t| Field::Text(t.to_owned()))).collect())
        }
        DataType::Boolean => list(column.bool().map_err(fail)?.iter().map(|v| v.map(Field::Flag)).collect()),
        DataType::Null => Ok(vec![Field::Null; column.len()]),
        DataType::Float32 | DataType::Float64 | DataType::UInt64 => {
            let reals = column.cast(&DataType::Float64).map_err(fail)?;
            list(reals.f64().map_err(fail)?.iter().map(|v| v.map(Field::Real)).collect())
        }
        kind if kind.is_integer() => {
            let whole = column.cast(&DataType::Int64).map_err(fail)?;
            list(whole.i64().map_err(fail)?.iter().map(|v| v.map(Field::Int)).collect())
        }
        other => Err(other.to_string()),
    }
}

/// Runs `f`; an error or a panic of the reader becomes an error that names the file.
fn guarded<T>(path: &str, f: impl FnOnce() -> std::result::Result<T, String>) -> Result<T> {
    quietly(f).map_err(|why| unreadable(path, &why))
}

fn shorter(e: PolarsError) -> String {
    first_line(&e.to_string())
}

fn unreadable(path: &str, why: &str) -> Error {
    Error::invalid(format!("this Parquet file cannot be read: {why}"))
        .at(path)
        .hint("it may be damaged, cut off or changed: restore it; column types that are read are text, 64-bit numbers and booleans")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut frame = df!(
            "task" => ["a", "b"],
            "reward" => [Some(0.5f64), None],
            "seed" => [1i32, 2],
            "solved" => [Some(true), None],
            "big" => [1u64, u64::MAX],
        )
        .unwrap();
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
        bytes
    }

    #[test]
    fn columns_come_back() {
        let source = Parquet::open("r.parquet".into(), file()).unwrap();
        assert_eq!(source.names, ["task", "reward", "seed", "solved", "big"]);
        let t = source.read(&["reward", "task", "seed", "solved", "big"]).unwrap();
        assert_eq!(t.columns["task"], [Field::Text("a".into()), Field::Text("b".into())]);
        assert_eq!(t.columns["reward"], [Field::Real(0.5), Field::Null]);
        assert_eq!(t.columns["seed"], [Field::Int(1), Field::Int(2)]);
        assert_eq!(t.columns["solved"], [Field::Flag(true), Field::Null]);
        assert!(t.columns["big"][1].integer().is_err());
        assert_eq!(t.place(1), "r.parquet: row 2");
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_that_names_it() {
        let bytes = file();
        for length in (0..bytes.len()).step_by(7) {
            let message =
                Parquet::open("r.parquet".into(), bytes[..length].to_vec()).err().unwrap().to_string();
            assert!(message.contains("r.parquet"), "{message}");
        }
    }

    #[test]
    fn a_sealed_file_is_read_as_written_or_not_at_all() {
        let mut frame = df!("task" => ["a", "b"], "reward" => [0.5f64, 1.0]).unwrap();
        let bytes = crate::episode::parquet::encode(&mut frame).unwrap();
        let read =
            |bytes: &[u8]| Parquet::open("own.parquet".into(), bytes.to_vec())?.read(&["task", "reward"]);
        assert_eq!(read(&bytes).unwrap().columns["reward"], [Field::Real(0.5), Field::Real(1.0)]);
        // The pages come first: a change there leaves the footer and its seal in place.
        for at in 4..60 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let message = read(&changed).unwrap_err().to_string();
            assert!(message.contains("own.parquet") && message.contains("seal"), "{at}: {message}");
        }
    }

    #[test]
    fn a_footer_that_claims_more_than_the_file_is_an_error() {
        // A list of 2^31 - 1 structures, and a text of 2^21 bytes, in a footer of a few.
        for footer in
            [&[0x49u8, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0][..], &[0x18, 0x80, 0x80, 0x80, 1, 0]]
        {
            let size = (footer.len() as u32).to_le_bytes();
            let bytes = [b"PAR1", footer, &size, b"PAR1"].concat();
            let message = Parquet::open("r.parquet".into(), bytes).err().unwrap().to_string();
            assert!(message.contains("r.parquet") && message.contains("damaged"), "{message}");
        }
    }

    #[test]
    fn a_panic_of_the_reader_is_an_error_with_the_name() {
        let message = guarded::<()>("r.parquet", || panic!("not printed")).unwrap_err().to_string();
        assert!(message.contains("r.parquet") && message.contains("gave up"), "{message}");
    }
}
