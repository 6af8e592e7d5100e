//! One writer a workspace: a lock that every command takes before it writes there. The system lets go of
//! it when the process ends, however it ends, so a killed command never stands in the way of the next.

use crate::error::{Error, Result};
use std::fs::TryLockError;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// The lock's file in the root of a workspace. It stays there; while the lock is held it names the process.
pub const FILE: &str = ".rederive-lock";

/// The right to write in a workspace, held until it is dropped.
#[derive(Debug)]
pub struct WriteLock {
    file: Option<fs_err::File>,
}

impl WriteLock {
    /// Takes the lock of a workspace that exists. An error when another process holds it.
    ///
    /// Where this process must not write or the file system knows no locks, there is none to hold.
    pub fn take(workspace: &Path) -> Result<WriteLock> {
        crate::workspace::require(workspace)?;
        WriteLock::lock(workspace)
    }

    /// Takes the lock of a workspace that may be about to begin: its folder is made.
    pub fn start(workspace: &Path) -> Result<WriteLock> {
        fs_err::create_dir_all(workspace).map_err(|e| {
            Error::invalid(format!("the workspace cannot be made here: {e}"))
                .at(workspace.display())
                .hint("name a folder in a place where you may write")
        })?;
        WriteLock::lock(workspace)
    }

    fn lock(workspace: &Path) -> Result<WriteLock> {
        let path = workspace.join(FILE);
        if std::fs::symlink_metadata(&path).is_ok_and(|there| !there.is_file()) {
            return Err(Error::invalid("is no plain file, and writing to it could change another one")
                .at(path.display())
                .hint("remove it: the lock is made anew"));
        }
        let opened =
            fs_err::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = match opened {
            Ok(file) => file,
            // Somebody else's file can be locked without being written to.
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                match fs_err::File::open(&path) {
                    Ok(file) => file,
                    Err(_) => return Ok(WriteLock { file: None }),
                }
            }
            Err(e) => return Err(e.into()),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(workspace, &mut file)),
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {
                return Ok(WriteLock { file: None });
            }
            Err(TryLockError::Error(e)) => return Err(e.into()),
        }
        // The number is for the message of whoever comes second; the lock holds without it.
        let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        Ok(WriteLock { file: Some(file) })
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // A number that stays behind misleads nobody: it is read only while the lock is held.
            let _ = file.set_len(0);
        }
    }
}

fn taken(workspace: &Path, file: &mut fs_err::File) -> Error {
    let mut text = String::new();
    let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
    let (who, how) = match process {
        Some(id) => (format!(" (process {id})"), format!(" with `kill {id}`")),
        None => (String::new(), String::new()),
    };
    Error::invalid(format!("another command{who} is writing in this workspace"))
        .at(workspace.display())
        .hint(format!("wait for it, or end it{how}; what it has finished is kept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_lock_that_is_a_link_is_refused_and_its_target_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (root, keep) = (dir.path().join("lab"), dir.path().join("keep.txt"));
        fs_err::create_dir_all(root.join("data")).unwrap();
        fs_err::write(&keep, "precious").unwrap();
        fs_err::os::unix::fs::symlink(&keep, root.join(FILE)).unwrap();
        for lock in [WriteLock::start(&root), WriteLock::take(&root)] {
            assert!(lock.map(|_| ()).unwrap_err().to_string().contains("no plain file"));
        }
        assert_eq!(fs_err::read_to_string(&keep).unwrap(), "precious");
    }

    #[test]
    fn there_is_one_writer_at_a_time_and_the_second_is_told_who() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("new");
        let first = WriteLock::start(&root).unwrap();
        let e = WriteLock::start(&root).unwrap_err();
        assert_eq!(e.exit_code(), 2);
        let said = e.to_string();
        assert!(said.starts_with(root.to_str().unwrap()) && said.contains("hint: wait"), "{said}");
        assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
        drop(first);
        assert_eq!(fs_err::read(root.join(FILE)).unwrap(), b"");
        drop(WriteLock::start(&root).unwrap());
    }

    #[test]
    fn a_folder_that_is_no_workspace_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        assert!(WriteLock::take(dir.path()).unwrap_err().to_string().contains("not a workspace"));
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 0);
        fs_err::create_dir(dir.path().join("data")).unwrap();
        WriteLock::take(dir.path()).unwrap();
        assert!(WriteLock::take(&dir.path().join("nowhere")).unwrap_err().to_string().contains("hint:"));
    }
}
