//! Typed rows as Parquet files: one column for each field of the row contract. Reading checks
//! everything the contract says and names file, row and column of what does not fit.

use super::row::{Cell, Column, Kind, Row};
use super::{chain, durable, parquet};
use crate::error::{Error, Result, nearest};
use polars::prelude::{Column as Series, DataFrame, DataType, NamedFrom, Series as Values};
use std::path::Path;

/// Writes rows so that a crash leaves the old file or the new one. The same rows give the
/// same bytes. Errors when a real number is not finite.
pub fn write<R: Row>(path: &Path, rows: &[R]) -> Result<()> {
    durable::write(path, &encode(rows).map_err(|e| e.at(path.display()))?)
}

/// Rows as the bytes of a Parquet file.
pub fn encode<R: Row>(rows: &[R]) -> Result<Vec<u8>> {
    let mut columns: Vec<Vec<Cell>> = R::COLUMNS.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for (i, row) in rows.iter().enumerate() {
        for ((cell, column), cells) in row.cells().into_iter().zip(R::COLUMNS).zip(&mut columns) {
            if matches!(cell, Cell::Real(r) if !r.is_finite()) {
                return Err(Error::invalid(format!(
                    "row {}, column `{}` is not a finite number",
                    i + 1,
                    column.name
                )));
            }
            cells.push(cell);
        }
    }
    let series = R::COLUMNS.iter().zip(columns).map(|(column, cells)| to_series(column, cells)).collect();
    let encoded = DataFrame::new(rows.len(), series)
        .map_err(|e| e.to_string())
        .and_then(|mut frame| parquet::encode(&mut frame));
    encoded.map_err(|why| Error::invalid(format!("rows cannot be written as Parquet: {why}")))
}

/// Reads rows and checks them against the contract: every column there and no other, the right types, no
/// null where none is allowed, no number that is not finite. Does not check the hash chain.
pub fn read<R: Row>(path: &Path) -> Result<Vec<R>> {
    decode(path, &crate::regular::data(path)?)
}

/// As [`read`], and verifies the hash chain.
pub fn read_chain_checked<R: Row>(path: &Path) -> Result<Vec<R>> {
    let rows = read(path)?;
    check_chain(path, &rows)?;
    Ok(rows)
}

/// Fails with the first row whose hash does not follow from the rows before it.
pub fn check_chain<R: Row>(path: &Path, rows: &[R]) -> Result<()> {
    chain::verify(rows).map_err(|i| {
        Error::refused(format!(
            "row {} does not carry the hash that follows from it and the rows before it",
            i + 1
        ))
        .at(path.display())
        .hint("the file was changed after it was written: restore it, or run the unit again")
    })
}

/// Reads rows from the bytes of a file; `path` is only named in errors.
pub fn decode<R: Row>(path: &Path, bytes: &[u8]) -> Result<Vec<R>> {
    let (frame, _) = parquet::decode(bytes, None).map_err(|why| unreadable(path, &why))?;
    let columns = contract_columns::<R>(path, &frame)?;
    let columns: Vec<Vec<Cell>> = columns.into_iter().map(|c| to_cells(c).unwrap_or_default()).collect();
    let mut rows = Vec::with_capacity(frame.height());
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    for i in 0..frame.height() {
        let cells = columns.iter_mut().map(|c| c.next().unwrap_or(Cell::Null)).collect();
        let row = R::from_cells(cells).map_err(|(column, why)| {
            Error::invalid(why).at(format!("{}: row {}, column `{column}`", path.display(), i + 1))
        })?;
        rows.push(row);
    }
    Ok(rows)
}

pub(super) fn unreadable(path: &Path, why: &str) -> Error {
    Error::invalid(format!("cannot be read as Parquet: {why}"))
        .at(path.display())
        .hint("restore the file, or delete it and run its unit again")
}

/// The frame's columns in the contract's order, after checking names and types.
pub(super) fn contract_columns<'f, R: Row>(path: &Path, frame: &'f DataFrame) -> Result<Vec<&'f Series>> {
    let present: Vec<&str> = frame.get_column_names().into_iter().map(|n| n.as_str()).collect();
    let surplus: Vec<&str> =
        present.iter().copied().filter(|n| R::COLUMNS.iter().all(|c| c.name != *n)).collect();
    let mut columns = Vec::with_capacity(R::COLUMNS.len());
    for column in R::COLUMNS {
        let Ok(series) = frame.column(column.name) else {
            let error =
                Error::invalid(format!("has no column `{}` of the {} rows", column.name, R::DATA_SET));
            let hint = match nearest(column.name, surplus.iter().copied()) {
                Some(near) => format!("`{near}` is there and not expected: rename it to `{}`", column.name),
                None => format!("its columns are not those of {} rows: is it another file?", R::DATA_SET),
            };
            return Err(error.at(path.display()).hint(hint));
        };
        if kind_of(series) != Some(column.kind) {
            return Err(Error::invalid(format!("holds `{}`, not {}", series.dtype(), words(column.kind)))
                .at(format!("{}: column `{}`", path.display(), column.name))
                .hint("write the file again with the column's type"));
        }
        columns.push(series);
    }
    if let Some(name) = surplus.first() {
        return Err(Error::invalid(format!("has a column `{name}`, which {} rows do not have", R::DATA_SET))
            .at(path.display())
            .hint("drop the column: what is not in the contract is not read"));
    }
    Ok(columns)
}

fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Int => "64-bit integers",
        Kind::Real => "64-bit floats",
        Kind::Flag => "booleans",
    }
}

fn kind_of(series: &Series) -> Option<Kind> {
    match series.dtype() {
        DataType::String => Some(Kind::Text),
        DataType::Int64 => Some(Kind::Int),
        DataType::Float64 => Some(Kind::Real),
        DataType::Boolean => Some(Kind::Flag),
        _ => None,
    }
}

/// A polars column as cells; `None` when its type is not one of the four of the contract.
pub(super) fn to_cells(series: &Series) -> Option<Vec<Cell>> {
    fn all<T>(values: impl Iterator<Item = Option<T>>, wrap: impl Fn(T) -> Cell) -> Vec<Cell> {
        values.map(|v| v.map_or(Cell::Null, &wrap)).collect()
    }
    Some(match kind_of(series)? {
        Kind::Text => all(series.str().ok()?.iter(), |t: &str| Cell::Text(t.to_string())),
        Kind::Int => all(series.i64().ok()?.iter(), Cell::Int),
        Kind::Real => all(series.f64().ok()?.iter(), Cell::Real),
        Kind::Flag => all(series.bool().ok()?.iter(), Cell::Flag),
    })
}

fn to_series(column: &Column, cells: Vec<Cell>) -> Series {
    let name = column.name.into();
    let values = match column.kind {
        Kind::Text => {
            let texts: Vec<Option<String>> =
                cells.into_iter().map(|c| if let Cell::Text(t) = c { Some(t) } else { None }).collect();
            Values::new(name, texts)
        }
        Kind::Int => {
            let integers: Vec<Option<i64>> =
                cells.into_iter().map(|c| if let Cell::Int(i) = c { Some(i) } else { None }).collect();
            Values::new(name, integers)
        }
        Kind::Real => {
            let reals: Vec<Option<f64>> =
                cells.into_iter().map(|c| if let Cell::Real(r) = c { Some(r) } else { None }).collect();
            Values::new(name, reals)
        }
        Kind::Flag => {
            let flags: Vec<Option<bool>> =
                cells.into_iter().map(|c| if let Cell::Flag(b) = c { Some(b) } else { None }).collect();
            Values::new(name, flags)
        }
    };
    values.into()
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
