//! Whether two runs gave the same rows, clocks and chain left out.

use super::row::{Cell, NOT_COMPARED, Row};

/// The first thing in which two sets of rows differ.
#[derive(Debug, Clone, PartialEq)]
pub enum Difference {
    /// The numbers of rows.
    Count {
        /// Rows on the left.
        left: usize,
        /// Rows on the right.
        right: usize,
    },
    /// One value.
    Value {
        /// The row, from 0.
        row: usize,
        /// The column.
        column: &'static str,
        /// The value on the left.
        left: Cell,
        /// The value on the right.
        right: Cell,
    },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Count { left, right } => write!(f, "{left} rows against {right}"),
            Difference::Value { row, column, left, right } => {
                write!(f, "row {}, column `{column}`: `{left}` against `{right}`", row + 1)
            }
        }
    }
}

/// Compares rows position by position (files are in canonical order), all columns but those of
/// [`NOT_COMPARED`]. Reals are compared bit by bit, so that 0 and −0 differ.
pub fn same_rows<R: Row>(left: &[R], right: &[R]) -> Result<(), Difference> {
    for (row, (a, b)) in left.iter().zip(right).enumerate() {
        for ((a, b), column) in a.cells().into_iter().zip(b.cells()).zip(R::COLUMNS) {
            let same = match (&a, &b) {
                (Cell::Real(x), Cell::Real(y)) => x.to_bits() == y.to_bits(),
                _ => a == b,
            };
            if !same && !NOT_COMPARED.contains(&column.name) {
                return Err(Difference::Value { row, column: column.name, left: a, right: b });
            }
        }
    }
    if left.len() == right.len() {
        Ok(())
    } else {
        Err(Difference::Count { left: left.len(), right: right.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::row::EpisodeRow;
    use crate::episode::testing;

    #[test]
    fn clocks_and_chain_do_not_count_and_everything_else_does() {
        let rows = testing::episode_rows(3);
        for column in EpisodeRow::COLUMNS {
            let mut cells = rows[1].cells();
            let at = EpisodeRow::COLUMNS.iter().position(|c| c.name == column.name).unwrap();
            cells[at] = match &cells[at] {
                Cell::Text(t) => Cell::Text(format!("{t}!")),
                Cell::Int(i) => Cell::Int(i + 1),
                Cell::Real(r) => Cell::Real(r + 0.25),
                Cell::Flag(b) => Cell::Flag(!b),
                Cell::Null => continue,
            };
            let mut changed = rows.clone();
            changed[1] = EpisodeRow::from_cells(cells).unwrap();
            let found = same_rows(&rows, &changed);
            if NOT_COMPARED.contains(&column.name) {
                assert_eq!(found, Ok(()));
            } else {
                assert!(
                    matches!(found, Err(Difference::Value { row: 1, column: c, .. }) if c == column.name)
                );
            }
        }
        assert_eq!(same_rows(&rows, &rows[..2]), Err(Difference::Count { left: 3, right: 2 }));
    }

    #[test]
    fn a_difference_reads_as_a_sentence() {
        let mut rows = testing::episode_rows(2);
        let before = rows.clone();
        rows[1].turns = 9;
        let text = same_rows(&before, &rows).unwrap_err().to_string();
        assert_eq!(text, format!("row 2, column `turns`: `{}` against `9`", before[1].turns));
    }
}
