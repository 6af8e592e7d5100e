//! `hashes.json` of an experiment: for each data file its SHA-256, length, number of rows and
//! last row hash. What is not listed there, or differs from it, is not data.

use super::durable;
use crate::error::{Error, Result};
use crate::hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The file's name within the experiment folder.
pub const FILE: &str = "hashes.json";

/// What is known of one data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileHash {
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// Its rows (Parquet) or lines (transcripts).
    pub rows: u64,
    /// `row_sha256` of its last row; null where there is no chain, or no row.
    pub last_row_sha256: Option<String>,
}

impl FileHash {
    /// The entry of a file with these bytes.
    pub fn of(bytes: &[u8], rows: usize, last_row_sha256: Option<String>) -> Self {
        FileHash {
            sha256: hash::sha256_hex(bytes),
            bytes: bytes.len() as u64,
            rows: rows as u64,
            last_row_sha256,
        }
    }
}

/// Entries by path relative to the experiment folder, with `/` between its parts.
pub type Hashes = BTreeMap<String, FileHash>;

/// Reads `hashes.json` of an experiment folder; no file is an empty list.
pub fn read(root: &Path) -> Result<Hashes> {
    let path = root.join(FILE);
    if !crate::regular::there(&path)? {
        return Ok(Hashes::new());
    }
    let text = crate::regular::text(&path)?;
    serde_json::from_str(&text).map_err(|e| {
        Error::invalid(format!("is not a list of file hashes: {e}"))
            .at(path.display())
            .hint("restore it from version control")
    })
}

/// Adds or replaces entries, atomically and one process at a time.
pub fn update(root: &Path, entries: impl IntoIterator<Item = (String, FileHash)>) -> Result<()> {
    let folder = root.join("wal");
    durable::create_folder(&folder)?;
    // Units of one experiment may finish in several processes at once; the lock goes with its holder.
    let lock = fs_err::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join("hashes.lock"))?;
    lock.lock()?;
    let mut hashes = read(root)?;
    hashes.extend(entries);
    let mut text = serde_json::to_string_pretty(&hashes)
        .map_err(|e| Error::invalid(format!("file hashes cannot be written: {e}")))?;
    text.push('\n');
    durable::write(&root.join(FILE), text.as_bytes())
}

/// Checks every listed file and returns the list. The first file that is missing or differs is an error.
pub fn verify(root: &Path) -> Result<Hashes> {
    let hashes = read(root)?;
    for (relative, expected) in &hashes {
        check(root, relative, expected)?;
    }
    Ok(hashes)
}

/// Checks one file and returns its entry. A file that is not listed is an error.
pub fn verify_file(root: &Path, relative: &str) -> Result<FileHash> {
    let expected = read(root)?.remove(relative).ok_or_else(|| {
        Error::refused(format!("is not listed in {FILE}"))
            .at(root.join(relative).display())
            .hint("delete the file and run its unit again: only listed files are data")
    })?;
    check(root, relative, &expected)?;
    Ok(expected)
}

fn check(root: &Path, relative: &str, expected: &FileHash) -> Result<()> {
    let path = inside(root, relative)?;
    let differs = |what: String| {
        Error::refused(what)
            .at(path.display())
            .hint("restore the file from version control, or delete it and run its unit again")
    };
    let bytes = match fs_err::metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(differs(format!("is listed in {FILE} and missing")));
        }
        other => other?.len(),
    };
    if bytes != expected.bytes {
        return Err(differs(format!("has {bytes} bytes, and {FILE} says {}", expected.bytes)));
    }
    let sha256 = hash::sha256_file(&path)?;
    if sha256 != expected.sha256 {
        return Err(differs(format!("has SHA-256 {sha256}, and {FILE} says {}", expected.sha256)));
    }
    Ok(())
}

/// The path of an entry, which must stay inside the experiment folder.
fn inside(root: &Path, relative: &str) -> Result<PathBuf> {
    let plain =
        !relative.is_empty() && Path::new(relative).components().all(|c| matches!(c, Component::Normal(_)));
    if plain {
        Ok(root.join(relative))
    } else {
        Err(Error::invalid(format!("lists `{relative}`, which is not a path inside the experiment folder"))
            .at(root.join(FILE).display())
            .hint("restore it from version control"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            durable::write(&dir.path().join(name), text.as_bytes()).unwrap();
            update(dir.path(), [(name.to_string(), FileHash::of(text.as_bytes(), 1, None))]).unwrap();
        }
        dir
    }

    #[test]
    fn what_was_written_verifies_and_keys_are_sorted() {
        let dir = listed(&[("z/b", "two"), ("a", "one")]);
        assert_eq!(verify(dir.path()).unwrap().len(), 2);
        let text = fs_err::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(text.find("\"a\"").unwrap() < text.find("\"z/b\"").unwrap());
        assert_eq!(verify_file(dir.path(), "a").unwrap().bytes, 3);
    }

    #[test]
    fn a_changed_cut_missing_or_unlisted_file_is_named() {
        let dir = listed(&[("a", "one")]);
        let path = dir.path().join("a");
        for (text, word) in [("onf", "SHA-256"), ("on", "2 bytes")] {
            fs_err::write(&path, text).unwrap();
            let error = verify(dir.path()).unwrap_err();
            assert!(error.to_string().contains(word) && error.to_string().contains("/a:"), "{error}");
            assert_eq!(error.exit_code(), 1);
        }
        fs_err::remove_file(&path).unwrap();
        assert!(verify(dir.path()).unwrap_err().to_string().contains("missing"));
        assert!(verify_file(dir.path(), "b").unwrap_err().to_string().contains("not listed"));
    }

    #[test]
    fn a_listed_path_cannot_leave_the_folder() {
        for path in ["../x", "/etc/passwd", "", "a/../../x"] {
            let dir = tempfile::tempdir().unwrap();
            update(dir.path(), [(path.to_string(), FileHash::of(b"", 0, None))]).unwrap();
            assert!(verify(dir.path()).unwrap_err().to_string().contains("not a path inside"));
        }
    }

    #[test]
    fn processes_that_finish_together_lose_no_entry() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for i in 0..8 {
                let root = dir.path();
                scope.spawn(move || update(root, [(format!("f{i}"), FileHash::of(b"", 0, None))]).unwrap());
            }
        });
        assert_eq!(read(dir.path()).unwrap().len(), 8);
    }

    #[test]
    fn a_damaged_list_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join(FILE), "{").unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("hashes.json"));
    }
}
