//! Files and folders that survive power loss: a new folder's entry is on disk before a file
//! goes into it, and a removal is on disk before anything relies on it.

use crate::error::Result;
use std::path::Path;

/// Creates a folder and those above it that are missing, and syncs each parent of a new one.
pub fn create_folder(path: &Path) -> Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    create_folder(parent)?;
    match fs_err::create_dir(path) {
        // Another process may make the same folder at the same time.
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {}
        other => other?,
    }
    sync_folder(parent)
}

/// Replaces a file so that after a crash it has either its old or its new contents.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    create_folder(path.parent().unwrap_or(Path::new("")))?;
    crate::hash::write_atomic(path, bytes)
}

/// Removes a file if it is there, durably.
pub fn remove(path: &Path) -> Result<()> {
    match fs_err::remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    sync_folder(path.parent().unwrap_or(Path::new("")))
}

/// Writes a folder's entries to disk. Where folders cannot be opened as files (not Unix) the
/// file system is trusted to do so by itself.
pub fn sync_folder(path: &Path) -> Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if cfg!(unix) {
        fs_err::File::open(path)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_on_the_way_and_removal_may_repeat() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c.txt");
        write(&path, b"x").unwrap();
        assert_eq!(fs_err::read(&path).unwrap(), b"x");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("a"), b"").unwrap();
        let error = write(&dir.path().join("a/b/c.txt"), b"x").unwrap_err().to_string();
        assert!(error.contains("a/b") || error.contains("/a"), "{error}");
    }
}
