//! The raw rows of one data set of one experiment, as the audit holds them: files in order of
//! their path, rows in file order, values by column name. Nothing is typed, cached or summed.

use super::Finding;
use crate::claims::derivation::DataSet;
use crate::episode::row::{CallRow, Cell, EpisodeRow, HarvestRow, ImportedRow, Row, TrainingRow};
use crate::episode::table;
use crate::error::Result;
use std::collections::HashMap;
use std::path::Path;

/// One file's rows.
#[derive(Debug, Clone)]
pub struct SheetFile {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// Rows in file order; each has one cell a column.
    pub rows: Vec<Vec<Cell>>,
}

/// All rows of one data set of one experiment.
#[derive(Debug, Clone, Default)]
pub struct Sheet {
    /// Column name → position in a row.
    pub columns: HashMap<&'static str, usize>,
    /// The files, in rising order of path.
    pub files: Vec<SheetFile>,
    /// Files that could not be read: no derivation over this sheet can be verified.
    pub unreadable: Vec<String>,
}

impl Sheet {
    /// The value of a column in a row; `Null` also where the sheet has no such column.
    pub fn cell<'a>(&self, row: &'a [Cell], column: &str) -> &'a Cell {
        self.columns.get(column).and_then(|at| row.get(*at)).unwrap_or(&Cell::Null)
    }

    /// The text of a column, or `""`.
    pub fn text<'a>(&self, row: &'a [Cell], column: &str) -> &'a str {
        match self.cell(row, column) {
            Cell::Text(text) => text,
            _ => "",
        }
    }

    /// The whole number in a column.
    pub fn whole(&self, row: &[Cell], column: &str) -> Option<i64> {
        match self.cell(row, column) {
            Cell::Int(whole) => Some(*whole),
            _ => None,
        }
    }

    /// Every row with its file's path and its number in the file, from 1.
    pub fn rows(&self) -> impl Iterator<Item = (&str, usize, &[Cell])> {
        self.files.iter().flat_map(|file| {
            file.rows.iter().enumerate().map(|(i, row)| (file.path.as_str(), i + 1, row.as_slice()))
        })
    }
}

/// The folder of a data set that is kept as rows, relative to the experiment's folder.
pub fn folder(data: DataSet) -> Option<&'static str> {
    match data {
        DataSet::Episodes => Some("episodes"),
        DataSet::Calls => Some("calls"),
        DataSet::Harvest => Some("harvest"),
        DataSet::Training => Some("training"),
        DataSet::Imported => Some("imported"),
        DataSet::Receipts | DataSet::Plan | DataSet::Facts | DataSet::Derivations => None,
    }
}

/// Reads every Parquet file of a data set. A file that cannot be read becomes a finding.
pub fn load(workspace: &Path, slug: &str, data: DataSet) -> Result<(Sheet, Vec<Finding>)> {
    match data {
        DataSet::Episodes => read_all::<EpisodeRow>(workspace, slug, "episodes"),
        DataSet::Calls => read_all::<CallRow>(workspace, slug, "calls"),
        DataSet::Harvest => read_all::<HarvestRow>(workspace, slug, "harvest"),
        DataSet::Training => read_all::<TrainingRow>(workspace, slug, "training"),
        DataSet::Imported => read_all::<ImportedRow>(workspace, slug, "imported"),
        DataSet::Receipts | DataSet::Plan | DataSet::Facts | DataSet::Derivations => {
            Ok((Sheet::default(), Vec::new()))
        }
    }
}

fn read_all<R: Row>(workspace: &Path, slug: &str, folder: &str) -> Result<(Sheet, Vec<Finding>)> {
    let columns = R::COLUMNS.iter().enumerate().map(|(at, column)| (column.name, at)).collect();
    let mut sheet = Sheet { columns, ..Sheet::default() };
    let mut findings = Vec::new();
    for path in files_under(workspace, &format!("data/{slug}/{folder}")) {
        if !path.ends_with(".parquet") {
            continue;
        }
        match table::read::<R>(&workspace.join(&path)) {
            Ok(rows) => {
                let rows = rows.iter().map(Row::cells).collect();
                sheet.files.push(SheetFile { path, rows });
            }
            Err(error) => {
                findings.push(Finding::new("unreadable_file", &path, None, error.to_string()));
                sheet.unreadable.push(path);
            }
        }
    }
    Ok((sheet, findings))
}

/// Every file under a folder of the workspace, as rising paths relative to the workspace. What a killed
/// write left (`.partial-…`) is nobody's data.
pub fn files_under(workspace: &Path, folder: &str) -> Vec<String> {
    let mut paths: Vec<String> = walkdir::WalkDir::new(workspace.join(folder))
        .into_iter()
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.file_type().is_file())
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with(".partial-"))
        .filter_map(|entry| entry.path().strip_prefix(workspace).ok().map(slashed))
        .collect();
    paths.sort();
    paths
}

/// A relative path with `/` between its parts.
fn slashed(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}
