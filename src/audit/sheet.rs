//! The raw rows of one data set of one experiment, as the audit holds them: files in order of
//! their path, rows in file order, values by column name. Nothing is cached or summed.

use super::Finding;
use super::hashes::{self, Chain};
use crate::claims::derivation::DataSet;
use crate::episode::columns::{self, Columns, RowAt, Values};
use crate::episode::row::{CallRow, Cell, EpisodeRow, HarvestRow, ImportedRow, Row, TrainingRow};
use crate::hash::sha256_hex;
use rayon::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// One file's rows.
#[derive(Debug, Clone)]
pub struct SheetFile {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// Its rows, in file order.
    pub columns: Columns,
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
    pub fn cell(&self, row: RowAt<'_>, column: &str) -> Cell {
        self.columns.get(column).map_or(Cell::Null, |at| row.cell(*at))
    }

    /// The text of a column, or `""`.
    pub fn text<'a>(&self, row: RowAt<'a>, column: &str) -> &'a str {
        self.columns.get(column).and_then(|at| row.text(*at)).unwrap_or("")
    }

    /// The whole number in a column.
    pub fn whole(&self, row: RowAt<'_>, column: &str) -> Option<i64> {
        row.whole(*self.columns.get(column)?)
    }

    /// The different texts of a column.
    pub fn texts(&self, column: &str) -> BTreeSet<&str> {
        let Some(at) = self.columns.get(column) else { return BTreeSet::new() };
        self.files
            .iter()
            .filter(|file| !file.columns.is_empty())
            .filter_map(|file| file.columns.values(*at))
            .flat_map(Values::different_texts)
            .collect()
    }

    /// Whether a row has this text in a column.
    pub fn holds_text(&self, column: &str, text: &str) -> bool {
        let at = self.columns.get(column).copied().unwrap_or(usize::MAX);
        let mut values = self.files.iter().filter_map(|file| file.columns.values(at));
        values.any(|values| values.different_texts().any(|there| there == text))
    }

    /// Every row with its file's path and its number in the file, from 1.
    pub fn rows(&self) -> impl Iterator<Item = (&str, usize, RowAt<'_>)> {
        self.files
            .iter()
            .flat_map(|file| file.columns.iter().enumerate().map(|(i, row)| (file.path.as_str(), i + 1, row)))
    }
}

/// A sheet, and what was seen while its files were read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The rows. Their hashes, which nothing needs once the chain was followed, are left out.
    pub sheet: Sheet,
    /// Files that cannot be read.
    pub findings: Vec<Finding>,
    /// The chain of row hashes of each file of the sheet.
    pub chains: Vec<Chain>,
    /// SHA-256 of each file that was read, by its path.
    pub hashes: HashMap<String, String>,
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

/// Reads every Parquet file of a data set, each once. A file that cannot be read becomes a finding.
pub fn load(workspace: &Path, slug: &str, data: DataSet) -> Loaded {
    read(workspace, data, paths(workspace, slug, data))
}

/// Paths of the Parquet files of a data set, relative to the workspace, rising.
pub fn paths(workspace: &Path, slug: &str, data: DataSet) -> Vec<String> {
    let Some(folder) = folder(data) else { return Vec::new() };
    let mut paths = files_under(workspace, &format!("data/{slug}/{folder}"));
    paths.retain(|path| path.ends_with(".parquet"));
    paths
}

/// Reads these files of a data set, as [`load`] does.
pub fn read(workspace: &Path, data: DataSet, paths: Vec<String>) -> Loaded {
    match data {
        DataSet::Episodes => read_rows::<EpisodeRow>(workspace, paths),
        DataSet::Calls => read_rows::<CallRow>(workspace, paths),
        DataSet::Harvest => read_rows::<HarvestRow>(workspace, paths),
        DataSet::Training => read_rows::<TrainingRow>(workspace, paths),
        DataSet::Imported => read_rows::<ImportedRow>(workspace, paths),
        DataSet::Receipts | DataSet::Plan | DataSet::Facts | DataSet::Derivations => Loaded::default(),
    }
}

fn read_rows<R: Row>(workspace: &Path, paths: Vec<String>) -> Loaded {
    let names: Vec<&'static str> = R::COLUMNS.iter().map(|column| column.name).collect();
    let read = |path: &String| {
        let full = workspace.join(path);
        let bytes = crate::regular::data(&full).map_err(|error| error.to_string())?;
        let mut columns = columns::decode::<R>(&full, &bytes).map_err(|error| error.to_string())?;
        let chain = hashes::chain(path, &columns, &names);
        if let Some(at) = names.iter().position(|name| *name == hashes::CHAIN) {
            columns.forget(at);
        }
        Ok((columns, chain, sha256_hex(&bytes)))
    };
    let files: Vec<Result<(Columns, Chain, String), String>> = paths.par_iter().map(read).collect();
    let mut loaded = Loaded::default();
    loaded.sheet.columns = names.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    for (path, file) in paths.into_iter().zip(files) {
        match file {
            Ok((columns, chain, sha256)) => {
                loaded.hashes.insert(path.clone(), sha256);
                loaded.chains.push(chain);
                loaded.sheet.files.push(SheetFile { path, columns });
            }
            Err(why) => {
                loaded.findings.push(Finding::new("unreadable_file", &path, None, why));
                loaded.sheet.unreadable.push(path);
            }
        }
    }
    loaded
}

/// Every file under a folder of the workspace, as rising paths relative to the workspace. What a killed
/// write left (`.partial-…`) is nobody's data.
pub fn files_under(workspace: &Path, folder: &str) -> Vec<String> {
    let mut paths: Vec<String> = walkdir::WalkDir::new(workspace.join(folder))
        .into_iter()
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.path().is_file())
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
