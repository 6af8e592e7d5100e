//! The first rows of any Parquet file of ours as plain values, for the page of a data file.

use super::row::Cell;
use super::{parquet, table};
use crate::error::{Error, Result};
use std::path::Path;

/// The head of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// Column names, in file order.
    pub columns: Vec<String>,
    /// The first rows; each has one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// Rows in the whole file.
    pub total_rows: usize,
}

/// The first `n` rows of a Parquet file. Errors as [`table::read`] does on damaged files, and on a column
/// whose type no contract has; does not check the row contract otherwise.
pub fn preview(path: &Path, n: usize) -> Result<Preview> {
    of_bytes(path, &crate::regular::data(path)?, n)
}

/// As [`preview`], of the bytes of a file; `path` is only named in errors.
pub(super) fn of_bytes(path: &Path, bytes: &[u8], n: usize) -> Result<Preview> {
    let (frame, total_rows) = parquet::decode(bytes, Some(n)).map_err(|why| table::unreadable(path, &why))?;
    let columns: Vec<String> = frame.get_column_names().into_iter().map(|name| name.to_string()).collect();
    let mut rows = vec![Vec::with_capacity(columns.len()); frame.height()];
    for (name, series) in columns.iter().zip(frame.columns()) {
        let cells = table::to_cells(series).ok_or_else(|| {
            Error::invalid(format!("holds `{}`, which no row contract has", series.dtype()))
                .at(format!("{}: column `{name}`", path.display()))
                .hint("preview files that this program wrote")
        })?;
        for (row, cell) in rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }
    Ok(Preview { columns, rows, total_rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::row::{EpisodeRow, Row};
    use crate::episode::testing;

    #[test]
    fn the_head_is_the_head() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.parquet");
        let rows = testing::episode_rows(7);
        table::write(&path, &rows).unwrap();
        for n in [0, 3, 7, 100] {
            let head = preview(&path, n).unwrap();
            assert_eq!(head.total_rows, 7);
            assert_eq!(
                head.columns,
                EpisodeRow::COLUMNS.iter().map(|c| c.name.to_string()).collect::<Vec<_>>()
            );
            assert_eq!(head.rows, rows.iter().take(n).map(Row::cells).collect::<Vec<_>>());
        }
        table::write::<EpisodeRow>(&path, &[]).unwrap();
        assert_eq!(preview(&path, 5).unwrap().total_rows, 0);
    }

    #[test]
    fn what_is_not_parquet_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        fs_err::write(&path, "not a table").unwrap();
        assert!(preview(&path, 5).unwrap_err().to_string().contains("x.parquet"));
        assert!(preview(&dir.path().join("none"), 5).unwrap_err().to_string().contains("none"));
    }
}
