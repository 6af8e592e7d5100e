//! Reading files that somebody else may have put there. A pipe or a device in the place of a text would be read for ever, so
//! only regular files are opened, and no text that is absurdly large.

use crate::error::{Error, Result};
use std::path::Path;

/// Most bytes of a text, receipt or plan.
const MOST: u64 = 256 << 20;

/// The text of a file: UTF-8, at most 256 MiB. Errors name the path.
pub fn text(path: &Path) -> Result<String> {
    small(path)?;
    String::from_utf8(fs_err::read(path)?).map_err(|_| {
        Error::invalid("is not UTF-8")
            .at(path.display())
            .hint("write it as UTF-8, with or without a byte order mark")
    })
}

/// The bytes of a file of at most 256 MiB. Errors name the path.
pub fn bytes(path: &Path) -> Result<Vec<u8>> {
    small(path)?;
    Ok(fs_err::read(path)?)
}

/// The bytes of a data file, however large. Errors name the path.
pub fn data(path: &Path) -> Result<Vec<u8>> {
    check(path)?;
    Ok(fs_err::read(path)?)
}

/// Whether a file is there. Refuses what stands in its place and is none.
pub fn there(path: &Path) -> Result<bool> {
    if fs_err::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(false);
    }
    check(path).map(|()| true)
}

/// Refuses what is no regular file.
pub fn check(path: &Path) -> Result<()> {
    if !fs_err::metadata(path)?.is_file() {
        return Err(Error::invalid("is no regular file (a folder, a pipe or a device)")
            .at(path.display())
            .hint("put the file itself there"));
    }
    Ok(())
}

fn small(path: &Path) -> Result<()> {
    check(path)?;
    let metadata = fs_err::metadata(path)?;
    if metadata.len() > MOST {
        return Err(Error::invalid(format!("is {} bytes long, and at most {MOST} are read", metadata.len()))
            .at(path.display())
            .hint("a text, receipt or plan of that size is none"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        fs_err::write(&path, "x").unwrap();
        assert_eq!((text(&path).unwrap(), bytes(&path).unwrap()), ("x".to_string(), b"x".to_vec()));
        fs_err::write(&path, [0xff]).unwrap();
        assert!(text(&path).unwrap_err().to_string().contains("UTF-8"));
        assert!(text(dir.path()).unwrap_err().to_string().contains("no regular file"));
        assert!(text(&dir.path().join("none")).is_err());
        #[cfg(unix)]
        assert!(text(Path::new("/dev/zero")).unwrap_err().to_string().contains("/dev/zero"));
        fs_err::File::create(&path).unwrap().set_len(MOST + 1).unwrap();
        assert!(bytes(&path).unwrap_err().to_string().contains("at most"));
    }
}
