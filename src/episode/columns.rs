//! The rows of a file as columns, for readers of millions of rows: a column that holds one value holds it once, a text
//! stands in a dictionary of its file. Read and checked against the row contract as typed rows are.

use super::row::{Cell, Column, Kind, Row};
use super::{parquet, table};
use crate::error::{Error, Result};
use polars::prelude::Column as Series;
use std::collections::HashMap;
use std::path::Path;

/// The code of a missing text.
const MISSING: u32 = u32::MAX;

/// All rows of a file, by column, in the contract's order.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    rows: usize,
    columns: Vec<Values>,
}

/// The values of one column.
#[derive(Debug, Clone)]
pub enum Values {
    /// The same in every row.
    Same(Cell),
    /// Different texts, and which of them each row has. A missing text has a code beyond the dictionary;
    /// [`Values::text`] gives `None` for it.
    Text {
        /// The texts, in the order in which they first occur.
        dictionary: Vec<Box<str>>,
        /// One code a row.
        codes: Vec<u32>,
    },
    /// Whole numbers.
    Int {
        /// One a row; anything where it is missing.
        values: Vec<i64>,
        /// Which rows have none; empty where all have one.
        missing: Vec<bool>,
    },
    /// Finite numbers; NaN stands for a missing one.
    Real(Vec<f64>),
    /// 0, 1, or 2 for a missing one.
    Flag(Vec<u8>),
}

/// One row of a file, by its position.
#[derive(Debug, Clone, Copy)]
pub struct RowAt<'a> {
    columns: &'a Columns,
    at: usize,
}

impl<'a> RowAt<'a> {
    /// The value at a position of the contract; null beyond it.
    pub fn cell(self, position: usize) -> Cell {
        self.columns.columns.get(position).map_or(Cell::Null, |values| values.cell(self.at))
    }

    /// The text at a position; `None` where there is none.
    pub fn text(self, position: usize) -> Option<&'a str> {
        self.columns.columns.get(position)?.text(self.at)
    }

    /// The whole number at a position.
    pub fn whole(self, position: usize) -> Option<i64> {
        self.columns.columns.get(position)?.whole(self.at)
    }
}

impl Columns {
    /// Columns of rows that are at hand; a row that is too short ends in nulls.
    pub fn of(width: usize, rows: &[Vec<Cell>]) -> Columns {
        let column = |at: usize| rows.iter().map(move |row| row.get(at).unwrap_or(&Cell::Null));
        let columns = (0..width).map(|at| {
            let kind = column(at).find_map(|cell| match cell {
                Cell::Null => None,
                Cell::Text(_) => Some(Kind::Text),
                Cell::Int(_) => Some(Kind::Int),
                Cell::Real(_) => Some(Kind::Real),
                Cell::Flag(_) => Some(Kind::Flag),
            });
            let texts =
                column(at).map(|cell| if let Cell::Text(text) = cell { Some(text.as_str()) } else { None });
            let wholes = column(at).map(|cell| if let Cell::Int(whole) = cell { Some(*whole) } else { None });
            let flags = column(at).map(|cell| if let Cell::Flag(flag) = cell { Some(*flag) } else { None });
            match kind {
                None => Values::Same(Cell::Null),
                Some(Kind::Text) => Values::texts(texts),
                Some(Kind::Int) => Values::wholes(wholes),
                Some(Kind::Real) => Values::reals(column(at).map(Cell::number)),
                Some(Kind::Flag) => Values::flags(flags),
            }
        });
        Columns { rows: rows.len(), columns: columns.collect() }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// One row.
    pub fn row(&self, at: usize) -> RowAt<'_> {
        RowAt { columns: self, at }
    }

    /// Every row, in file order.
    pub fn iter(&self) -> impl Iterator<Item = RowAt<'_>> {
        (0..self.rows).map(|at| self.row(at))
    }

    /// A column by its position in the contract.
    pub fn values(&self, position: usize) -> Option<&Values> {
        self.columns.get(position)
    }

    /// Whether a column has no value in any row.
    pub fn is_missing(&self, position: usize) -> bool {
        matches!(self.columns.get(position), None | Some(Values::Same(Cell::Null)))
    }

    /// Lets go of a column that nobody asks for again, such as the row hashes once they were checked.
    pub fn forget(&mut self, position: usize) {
        if let Some(values) = self.columns.get_mut(position) {
            *values = Values::Same(Cell::Null);
        }
    }
}

impl Values {
    fn texts<'t>(values: impl Iterator<Item = Option<&'t str>>) -> Values {
        let mut known: HashMap<&str, u32> = HashMap::new();
        let mut codes = Vec::with_capacity(values.size_hint().0);
        for value in values {
            codes.push(match value {
                None => MISSING,
                Some(text) => {
                    let next = known.len() as u32;
                    *known.entry(text).or_insert(next)
                }
            });
        }
        let mut dictionary: Vec<Box<str>> = vec![Box::from(""); known.len()];
        for (text, code) in known {
            if let Some(place) = dictionary.get_mut(code as usize) {
                *place = Box::from(text);
            }
        }
        match codes.first() {
            None => Values::Same(Cell::Null),
            Some(first) if codes.iter().all(|code| code == first) => Values::Same(
                dictionary
                    .first()
                    .filter(|_| *first != MISSING)
                    .map_or(Cell::Null, |text| Cell::Text(text.to_string())),
            ),
            _ => Values::Text { dictionary, codes },
        }
    }

    fn wholes(given: impl Iterator<Item = Option<i64>>) -> Values {
        let (mut values, mut missing, mut some_missing) = (Vec::new(), Vec::new(), false);
        for value in given {
            values.push(value.unwrap_or_default());
            missing.push(value.is_none());
            some_missing |= value.is_none();
        }
        let one =
            values.windows(2).all(|pair| pair[0] == pair[1]) && missing.windows(2).all(|p| p[0] == p[1]);
        match (one, values.first(), missing.first()) {
            (true, Some(_), Some(true)) => Values::Same(Cell::Null),
            (true, Some(whole), _) => Values::Same(Cell::Int(*whole)),
            (_, None, _) => Values::Same(Cell::Null),
            _ => Values::Int { values, missing: if some_missing { missing } else { Vec::new() } },
        }
    }

    fn reals(given: impl Iterator<Item = Option<f64>>) -> Values {
        let values: Vec<f64> = given.map(|value| value.unwrap_or(f64::NAN)).collect();
        match values.first() {
            None => Values::Same(Cell::Null),
            Some(first) if values.iter().all(|value| value.to_bits() == first.to_bits()) => {
                Values::Same(if first.is_nan() { Cell::Null } else { Cell::Real(*first) })
            }
            _ => Values::Real(values),
        }
    }

    fn flags(given: impl Iterator<Item = Option<bool>>) -> Values {
        let values: Vec<u8> = given.map(|value| value.map_or(2, u8::from)).collect();
        match values.first() {
            None => Values::Same(Cell::Null),
            Some(first) if values.iter().all(|value| value == first) => {
                Values::Same(if *first == 2 { Cell::Null } else { Cell::Flag(*first == 1) })
            }
            _ => Values::Flag(values),
        }
    }

    /// The value of a row.
    pub fn cell(&self, at: usize) -> Cell {
        match self {
            Values::Same(cell) => cell.clone(),
            Values::Text { .. } => self.text(at).map_or(Cell::Null, |text| Cell::Text(text.to_owned())),
            Values::Int { .. } => self.whole(at).map_or(Cell::Null, Cell::Int),
            Values::Real(values) => {
                values.get(at).filter(|value| !value.is_nan()).map_or(Cell::Null, |value| Cell::Real(*value))
            }
            Values::Flag(values) => match values.get(at) {
                Some(0) => Cell::Flag(false),
                Some(1) => Cell::Flag(true),
                _ => Cell::Null,
            },
        }
    }

    /// The text of a row.
    pub fn text(&self, at: usize) -> Option<&str> {
        match self {
            Values::Same(Cell::Text(text)) => Some(text),
            Values::Text { dictionary, codes } => {
                dictionary.get(*codes.get(at)? as usize).map(|text| &**text)
            }
            _ => None,
        }
    }

    /// The different texts that occur.
    pub fn different_texts(&self) -> impl Iterator<Item = &str> {
        let (same, dictionary) = match self {
            Values::Same(Cell::Text(text)) => (Some(text.as_str()), &[][..]),
            Values::Text { dictionary, .. } => (None, dictionary.as_slice()),
            _ => (None, &[][..]),
        };
        same.into_iter().chain(dictionary.iter().map(|text| &**text))
    }

    /// The whole number of a row.
    pub fn whole(&self, at: usize) -> Option<i64> {
        match self {
            Values::Same(Cell::Int(whole)) => Some(*whole),
            Values::Int { values, missing } if !missing.get(at).copied().unwrap_or(false) => {
                values.get(at).copied()
            }
            _ => None,
        }
    }
}

/// Reads the rows of a file as columns; as [`table::read`] it checks everything that the contract says, and not the
/// hash chain.
pub fn read<R: Row>(path: &Path) -> Result<Columns> {
    decode::<R>(path, &crate::regular::data(path)?)
}

/// As [`read`], of bytes; `path` is only named in errors.
pub fn decode<R: Row>(path: &Path, bytes: &[u8]) -> Result<Columns> {
    let (frame, _) = parquet::decode(bytes, None).map_err(|why| table::unreadable(path, &why))?;
    let series = table::contract_columns::<R>(path, &frame)?;
    let columns = R::COLUMNS
        .iter()
        .zip(series)
        .map(|(column, series)| {
            checked(column, series).map_err(|(row, why)| {
                Error::invalid(why).at(format!(
                    "{}: row {}, column `{}`",
                    path.display(),
                    row + 1,
                    column.name
                ))
            })
        })
        .collect::<Result<Vec<Values>>>()?;
    Ok(Columns { rows: frame.height(), columns })
}

/// A column of a frame, or the first row that the contract does not allow, and why.
fn checked(column: &Column, series: &Series) -> Result<Values, (usize, String)> {
    let damaged = |_| (0, "cannot be read".to_string());
    if let (false, true) = (column.nullable, series.null_count() > 0) {
        let row = series.is_null().iter().position(|null| null == Some(true)).unwrap_or(0);
        return Err((row, "is null, and this column must not be".into()));
    }
    Ok(match column.kind {
        Kind::Text => Values::texts(series.str().map_err(damaged)?.iter()),
        Kind::Int => Values::wholes(series.i64().map_err(damaged)?.iter()),
        Kind::Flag => Values::flags(series.bool().map_err(damaged)?.iter()),
        Kind::Real => {
            let reals = series.f64().map_err(damaged)?;
            if let Some(row) = reals.iter().position(|real| real.is_some_and(|real| !real.is_finite())) {
                let shown = reals.get(row).map_or(Cell::Null, Cell::Real);
                return Err((row, format!("is `{shown}`, not a finite number")));
            }
            Values::reals(reals.iter())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::row::{CallRow, EpisodeRow, TrainingRow};
    use crate::episode::testing;
    use proptest::prelude::*;

    fn agree<R: Row>(rows: &[R]) {
        let bytes = table::encode(rows).unwrap();
        let columns = decode::<R>(Path::new("t.parquet"), &bytes).unwrap();
        assert_eq!(columns.rows(), rows.len());
        let cells: Vec<Vec<Cell>> = rows.iter().map(Row::cells).collect();
        for (row, at) in cells.iter().zip(columns.iter()) {
            for (position, cell) in row.iter().enumerate() {
                assert_eq!(at.cell(position), *cell);
                assert_eq!(
                    at.text(position),
                    if let Cell::Text(text) = cell { Some(text.as_str()) } else { None }
                );
                assert_eq!(at.whole(position), if let Cell::Int(whole) = cell { Some(*whole) } else { None });
            }
        }
        let again = Columns::of(R::COLUMNS.len(), &cells);
        let all = |columns: &Columns, at: usize| {
            (0..R::COLUMNS.len()).map(|p| columns.row(at).cell(p)).collect::<Vec<_>>()
        };
        assert!((0..rows.len()).all(|at| all(&again, at) == all(&columns, at)));
    }

    #[test]
    fn columns_hold_what_the_rows_hold() {
        for n in [0, 1, 2, 60] {
            agree(&testing::episode_rows(n));
            agree(&testing::call_rows(n));
        }
    }

    #[test]
    fn what_the_contract_does_not_allow_is_named_as_for_rows() {
        use polars::prelude::{NamedFrom, ParquetWriter, Series as One};
        let rows = testing::call_rows(3);
        let (good, _) = parquet::decode(&table::encode(&rows).unwrap(), None).unwrap();
        let with = |column: One| {
            let mut frame = good.clone();
            frame.with_column(column.into()).unwrap();
            let mut bytes = Vec::new();
            ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
            let path = Path::new("t.parquet");
            let of_rows = table::decode::<CallRow>(path, &bytes).unwrap_err().to_string();
            assert_eq!(decode::<CallRow>(path, &bytes).unwrap_err().to_string(), of_rows);
            of_rows
        };
        let text = with(One::new("turn".into(), [Some(1i64), None, Some(3)]));
        assert!(text.contains("row 2, column `turn`") && text.contains("is null"), "{text}");
        with(One::new("turn".into(), ["a", "b", "c"]));
        with(One::new("surplus".into(), ["a", "b", "c"]));
        let rows: Vec<TrainingRow> = Vec::new();
        let (mut frame, _) = parquet::decode(&table::encode(&rows).unwrap(), None).unwrap();
        frame.drop_in_place("loss").unwrap();
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
        assert!(decode::<TrainingRow>(Path::new("t"), &bytes).unwrap_err().to_string().contains("`loss`"));
        assert!(decode::<EpisodeRow>(Path::new("t"), b"PAR1").is_err());
    }

    fn cells(kind: u8) -> BoxedStrategy<Cell> {
        let some = match kind {
            0 => "[ab]{0,2}".prop_map(Cell::Text).boxed(),
            1 => prop_oneof![Just(i64::MIN), -1i64..2].prop_map(Cell::Int).boxed(),
            2 => prop_oneof![Just(-0.0), Just(0.0), -1.0..1.0f64].prop_map(Cell::Real).boxed(),
            _ => any::<bool>().prop_map(Cell::Flag).boxed(),
        };
        prop_oneof![Just(Cell::Null), some].boxed()
    }

    proptest! {
        #[test]
        fn every_cell_comes_back(rows in (0u8..4).prop_flat_map(|kind| prop::collection::vec(cells(kind), 0..9))) {
            let rows: Vec<Vec<Cell>> = rows.into_iter().map(|cell| vec![cell]).collect();
            let columns = Columns::of(1, &rows);
            let back: Vec<Vec<Cell>> = columns.iter().map(|row| vec![row.cell(0)]).collect();
            prop_assert_eq!(back, rows);
        }
    }
}
