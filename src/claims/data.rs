//! The data sets of a workspace as derivations read them: every file once, rows as plain cells,
//! files in rising order of path.

use super::derivation::DataSet;
use super::value::Source;
use crate::episode::columns::{self, Columns};
use crate::episode::row::{CallRow, Column, EpisodeRow, HarvestRow, ImportedRow, Row, TrainingRow};
use crate::error::{Error, Result};
use crate::hash;
use crate::regular;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One Parquet file.
#[derive(Debug, Clone)]
pub struct File {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Its rows, in file order.
    pub rows: Columns,
}

/// One data set of one experiment.
#[derive(Debug, Clone)]
pub struct Table {
    /// The row contract.
    pub columns: &'static [Column],
    /// The files, rising by path.
    pub files: Vec<File>,
}

impl Table {
    /// Position of a column within a row.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == column)
    }
}

/// The row contract of a data set; `None` for plan, receipts and facts, which have no rows.
pub fn columns(data: DataSet) -> Option<&'static [Column]> {
    match data {
        DataSet::Episodes => Some(EpisodeRow::COLUMNS),
        DataSet::Calls => Some(CallRow::COLUMNS),
        DataSet::Harvest => Some(HarvestRow::COLUMNS),
        DataSet::Training => Some(TrainingRow::COLUMNS),
        DataSet::Imported => Some(ImportedRow::COLUMNS),
        DataSet::Receipts | DataSet::Plan | DataSet::Facts | DataSet::Derivations => None,
    }
}

/// Reads data files of a workspace, keeping what was read.
pub struct Store {
    root: PathBuf,
    tables: Mutex<BTreeMap<(String, DataSet), Arc<Table>>>,
    objects: Mutex<BTreeMap<String, Arc<Object>>>,
    instead: BTreeMap<String, Vec<u8>>,
}

/// A file that holds values by name: a receipt, a plan, facts.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its contents; TOML dates as text.
    pub value: serde_json::Value,
    /// Where it was read.
    pub source: Source,
}

impl Store {
    /// A store over the workspace at `root`; nothing is read yet.
    pub fn new(root: &Path) -> Store {
        Store::with(root, &BTreeMap::new())
    }

    /// As [`Store::new`], but some files, by path relative to the workspace, are read as these bytes.
    pub fn with(root: &Path, instead: &BTreeMap<String, Vec<u8>>) -> Store {
        Store {
            root: root.to_path_buf(),
            tables: Mutex::default(),
            objects: Mutex::default(),
            instead: instead.clone(),
        }
    }

    fn bytes(&self, path: &str) -> Result<Cow<'_, [u8]>> {
        match self.instead.get(path) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => Ok(Cow::Owned(regular::data(&self.root.join(path))?)),
        }
    }

    /// Folder names under `data/`, sorted.
    pub fn slugs(&self) -> Result<Vec<String>> {
        crate::workspace::data_folders(&self.root)
    }

    /// Whether an experiment has imported rows.
    pub fn has_imports(&self, slug: &str) -> Result<bool> {
        Ok(!self.table(slug, DataSet::Imported)?.files.is_empty())
    }

    /// A data set of an experiment; without files while nothing has run. Errors name file, row and column.
    pub fn table(&self, slug: &str, data: DataSet) -> Result<Arc<Table>> {
        let key = (slug.to_string(), data);
        if let Some(table) = kept(&self.tables).get(&key) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(match data {
            DataSet::Episodes => self.read::<EpisodeRow>(slug)?,
            DataSet::Calls => self.read::<CallRow>(slug)?,
            DataSet::Harvest => self.read::<HarvestRow>(slug)?,
            DataSet::Training => self.read::<TrainingRow>(slug)?,
            DataSet::Imported => self.read::<ImportedRow>(slug)?,
            DataSet::Receipts | DataSet::Plan | DataSet::Facts | DataSet::Derivations => {
                return Err(Error::invalid("plan, receipts, facts and derivations have no rows"));
            }
        });
        kept(&self.tables).insert(key, Arc::clone(&table));
        Ok(table)
    }

    fn read<R: Row>(&self, slug: &str) -> Result<Table> {
        let folder = format!("data/{slug}/{}", R::DATA_SET);
        let mut paths = Vec::new();
        let there = self.root.join(&folder).is_dir();
        for entry in there.then(|| walkdir::WalkDir::new(self.root.join(&folder))).into_iter().flatten() {
            let entry = entry.map_err(|e| Error::invalid(format!("cannot be listed: {e}")).at(&folder))?;
            let inside = entry.path().strip_prefix(&self.root).unwrap_or(entry.path());
            let path = inside.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if entry.file_type().is_file() && path.ends_with(".parquet") && !hidden {
                paths.push(path);
            }
        }
        paths.sort();
        let read = |path: String| {
            let bytes = self.bytes(&path)?;
            let rows = columns::decode::<R>(Path::new(&path), &bytes)?;
            Ok(File { path, sha256: hash::sha256_hex(&bytes), rows })
        };
        let files = paths.into_par_iter().map(read).collect::<Result<Vec<File>>>()?;
        Ok(Table { columns: R::COLUMNS, files })
    }

    /// A JSON or TOML file relative to the workspace, by its ending; `None` if there is none.
    pub fn object(&self, path: &str) -> Result<Option<Arc<Object>>> {
        if let Some(object) = kept(&self.objects).get(path) {
            return Ok(Some(Arc::clone(object)));
        }
        let full = self.root.join(path);
        if !full.is_file() {
            return Ok(None);
        }
        let bytes = self.bytes(path)?;
        let bad = |why: String| {
            Error::invalid(format!("cannot be read: {why}"))
                .at(path)
                .hint("restore the file, or write it again")
        };
        let value = if path.ends_with(".json") {
            serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?
        } else {
            let text = std::str::from_utf8(&bytes).map_err(|e| bad(e.to_string()))?;
            let table: toml::Table = toml::from_str(text).map_err(|e| bad(e.message().to_string()))?;
            serde_json::to_value(table).map_err(|e| bad(e.to_string()))?
        };
        let source =
            Source { path: path.to_string(), sha256: hash::sha256_hex(&bytes), rows_used: 1, rows_total: 1 };
        let object = Arc::new(Object { value, source });
        kept(&self.objects).insert(path.to_string(), Arc::clone(&object));
        Ok(Some(object))
    }
}

/// What is kept; nothing is left half done while it is held.
fn kept<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::testing;
    use crate::episode::table;

    #[test]
    fn files_are_read_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for (arm, seed) in [("treatment", 1), ("base", 10), ("base", 9)] {
            let rows = [testing::episode(arm, "f/1", seed, 0, Some(0.5))];
            let path = dir.path().join(format!("data/demo/episodes/{arm}/{seed}.parquet"));
            table::write(&path, &rows).unwrap();
        }
        fs_err::write(dir.path().join("data/demo/episodes/base/notes.txt"), "x").unwrap();
        let store = Store::new(dir.path());
        let read = store.table("demo", DataSet::Episodes).unwrap();
        let paths: Vec<&str> = read.files.iter().map(|f| f.path.as_str()).collect();
        let folder = "data/demo/episodes";
        assert_eq!(
            paths,
            [
                format!("{folder}/base/10.parquet"),
                format!("{folder}/base/9.parquet"),
                format!("{folder}/treatment/1.parquet")
            ]
        );
        assert_eq!(read.files[0].sha256, hash::sha256_file(&dir.path().join(paths[0])).unwrap());
        fs_err::remove_dir_all(dir.path().join("data/demo/episodes")).unwrap();
        assert_eq!(store.table("demo", DataSet::Episodes).unwrap().files.len(), 3);
        assert!(store.table("demo", DataSet::Calls).unwrap().files.is_empty());
        assert!(store.table("demo", DataSet::Plan).is_err());
    }

    #[test]
    fn a_broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/demo/calls/base/1.parquet");
        hash::write_atomic(&path, b"not parquet").unwrap();
        let e = Store::new(dir.path()).table("demo", DataSet::Calls).unwrap_err().to_string();
        assert!(e.contains("data/demo/calls/base/1.parquet"), "{e}");
        hash::write_atomic(&dir.path().join("data/demo/facts.toml"), b"= 3").unwrap();
        let e = Store::new(dir.path()).object("data/demo/facts.toml").unwrap_err().to_string();
        assert!(e.contains("data/demo/facts.toml") && e.contains("hint:"), "{e}");
        assert!(Store::new(dir.path()).object("data/demo/none.json").unwrap().is_none());
    }
}
