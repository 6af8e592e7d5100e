//! Parquet through polars, guarded: a damaged or unusual file is an error with its name, never
//! a panic. Only the columns that are wanted are decoded, so that others may hold any type.

use super::table::{Field, Table};
use crate::error::{Error, Result};
use polars::prelude::*;
use std::collections::HashMap;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A Parquet file with its schema read.
pub struct Parquet {
    /// The file, as given.
    pub path: String,
    /// Column names, in file order.
    pub names: Vec<String>,
    bytes: Vec<u8>,
}

impl Parquet {
    /// Reads the schema.
    pub fn open(path: String, bytes: Vec<u8>) -> Result<Parquet> {
        if bytes.len() < 12 || !bytes.starts_with(b"PAR1") || !bytes.ends_with(b"PAR1") {
            return Err(Error::invalid("the file does not begin and end as Parquet does")
                .at(path)
                .hint("it may be cut off: copy or write it again"));
        }
        let schema = guarded(&path, || ParquetReader::new(Cursor::new(&bytes)).schema())?;
        let names = schema.iter_names().map(|n| n.to_string()).collect();
        Ok(Parquet { path, names, bytes })
    }

    /// Decodes the named columns.
    pub fn read(&self, wanted: &[&str]) -> Result<Table> {
        let names: Vec<String> = wanted.iter().map(|n| (*n).to_owned()).collect();
        let frame = guarded(&self.path, || {
            let reader = ParquetReader::new(Cursor::new(&self.bytes));
            reader.read_parallel(ParallelStrategy::None).with_columns(Some(names)).finish()
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
fn guarded<T>(path: &str, f: impl FnOnce() -> PolarsResult<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(unreadable(path, e.to_string().lines().next().unwrap_or_default())),
        Err(_) => Err(unreadable(path, "the reader gave up")),
    }
}

fn unreadable(path: &str, why: &str) -> Error {
    Error::invalid(format!("this Parquet file cannot be read: {why}"))
        .at(path)
        .hint("it may be damaged, or use a column type that is not supported: text, 64-bit numbers and booleans are")
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
}
