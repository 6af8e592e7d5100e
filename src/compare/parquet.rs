//! Parquet through polars, behind the guard of `episode`: a file that carries our seal must still have
//! the bytes that were sealed, and a file that makes the reader fail or panic is an error with its
//! name. Only the columns that are wanted are decoded, so that others may hold any type.

use super::table::{Field, Table};
use crate::episode::{column_type, parquet};
use crate::error::{Error, Result};
use polars::prelude::*;
use polars_parquet::parquet::metadata::FileMetadata;
use std::collections::HashMap;

/// A Parquet file with its footer read.
pub struct Parquet {
    /// The file, as given.
    pub path: String,
    /// Column names, in file order.
    pub names: Vec<String>,
    metadata: FileMetadata,
    bytes: Vec<u8>,
}

impl Parquet {
    /// Checks the seal, where there is one, and the footer, and reads it.
    pub fn open(path: String, bytes: Vec<u8>) -> Result<Parquet> {
        let metadata = parquet::metadata(&bytes).map_err(|why| unreadable(&path, &why))?;
        let names = metadata.schema().fields().iter().map(|f| f.name().to_owned()).collect();
        Ok(Parquet { path, names, metadata, bytes })
    }

    /// Decodes the named columns.
    pub fn read(&self, wanted: &[&str]) -> Result<Table> {
        let mut plain = Vec::new();
        for name in wanted {
            let place = || format!("{}: column `{name}`", self.path);
            let mut found = self.metadata.schema().fields().iter().filter(|f| f.name() == *name);
            let (Some(field), None) = (found.next(), found.next()) else {
                return Err(Error::invalid("the file has this column twice")
                    .at(place())
                    .hint("rename one of them"));
            };
            plain.push(column_type::plain(field).map_err(|kind| {
                Error::invalid(format!("the column holds `{kind}`, which cannot be used"))
                    .at(place())
                    .hint("write it as text, a number of at most 64 bits or a boolean")
            })?);
        }
        let types = plain.iter().map(|p| p.field.clone()).collect();
        let frame = parquet::columns(&self.bytes, self.metadata.clone(), types, None)
            .map_err(|why| unreadable(&self.path, &why))?;
        let mut columns = HashMap::new();
        for (name, plain) in wanted.iter().zip(&plain) {
            let column = frame.column(name).map_err(|e| unreadable(&self.path, &e.to_string()))?;
            let fields = fields(column, plain.scale).map_err(|why| {
                unreadable(&self.path, &format!("column `{name}`: {}", parquet::first_line(&why.to_string())))
            })?;
            columns.insert((*name).to_owned(), fields);
        }
        Ok(Table { path: self.path.clone(), rows: frame.height(), columns, lines: None })
    }
}

/// The values of a column; with a `scale`, of decimals, as exact text.
fn fields(column: &Column, scale: Option<usize>) -> PolarsResult<Vec<Field>> {
    fn list<T>(values: impl Iterator<Item = Option<T>>, field: impl Fn(T) -> Field) -> Vec<Field> {
        values.map(|v| v.map_or(Field::Null, &field)).collect()
    }
    let whole = |i: i128| match scale {
        Some(scale) => Field::Text(column_type::decimal(i, scale)),
        None => Field::Int(i),
    };
    Ok(match column.dtype() {
        DataType::String => list(column.str()?.iter(), |t| Field::Text(t.to_owned())),
        DataType::Boolean => list(column.bool()?.iter(), Field::Flag),
        DataType::Null => vec![Field::Null; column.len()],
        DataType::Float32 => list(column.f32()?.iter(), |r| Field::Real(r.into())),
        DataType::Float64 => list(column.f64()?.iter(), Field::Real),
        DataType::UInt64 => list(column.u64()?.iter(), |i| whole(i.into())),
        DataType::Binary => list(column.binary()?.iter(), |b| whole(column_type::units(b))),
        _ => list(column.cast(&DataType::Int64)?.i64()?.iter(), |i| whole(i.into())),
    })
}

fn unreadable(path: &str, why: &str) -> Error {
    Error::invalid(format!("this Parquet file cannot be read: {why}"))
        .at(path)
        .hint("it may be damaged, cut off or changed: restore it")
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
        assert_eq!(t.columns["big"][1].integer(), Ok(u64::MAX.into()));
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
}
