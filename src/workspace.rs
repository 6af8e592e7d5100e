//! The folders of a workspace: `data/`, `claims/` and `site/`.

use crate::error::{Error, Result};
use std::path::Path;

/// Refuses a folder that is no workspace, so that a wrong path is not taken for an empty one.
pub fn require(root: &Path) -> Result<()> {
    if ["data", "claims", "site"].iter().any(|folder| root.join(folder).is_dir()) {
        return Ok(());
    }
    Err(Error::invalid("is not a workspace: it has no `data/`, `claims/` or `site/`")
        .at(root.display())
        .hint("name the workspace with `--workspace DIR`"))
}

/// Names of the folders under `data/`, one for each experiment or import, sorted by bytes; hidden ones are left out.
/// Empty if there is no `data/`.
pub fn data_folders(root: &Path) -> Result<Vec<String>> {
    names(&root.join("data"), true)
}

/// Names in a folder, sorted by bytes: sub-folders or files; hidden ones are left out. Empty if there is no folder.
pub fn names(folder: &Path, folders: bool) -> Result<Vec<String>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // A link that leads nowhere is no folder; who reads it says so.
        let is_folder = fs_err::metadata(entry.path()).is_ok_and(|of| of.is_dir());
        let name = entry.file_name().into_string().map_err(|name| {
            Error::invalid(format!("file name {name:?} is not UTF-8")).at(folder.display()).hint("rename it")
        })?;
        if is_folder == folders {
            out.push(name);
        }
    }
    out.sort();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_listed_in_order_without_hidden_ones() {
        let root = tempfile::tempdir().unwrap();
        assert!(require(root.path()).unwrap_err().to_string().contains("is not a workspace"));
        assert_eq!(data_folders(root.path()).unwrap(), Vec::<String>::new());
        for folder in ["b", "a", ".cache"] {
            fs_err::create_dir_all(root.path().join("data").join(folder)).unwrap();
        }
        fs_err::write(root.path().join("data/seeds.jsonl"), "").unwrap();
        require(root.path()).unwrap();
        assert_eq!(data_folders(root.path()).unwrap(), ["a", "b"]);
        assert_eq!(names(&root.path().join("data"), false).unwrap(), ["seeds.jsonl"]);
    }
}
