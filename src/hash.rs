//! SHA-256 as lower-case hex, of bytes, files and canonical JSON, and atomic file writes.

use crate::error::{Error, Result};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::path::Path;

/// SHA-256 of `bytes` as 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of a regular file's contents, streamed.
pub fn sha256_file(path: &Path) -> Result<String> {
    crate::regular::check(path)?;
    let mut file = fs_err::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..n]);
    }
}

/// Canonical JSON: object keys in byte order, no white space, numbers as `serde_json` prints them.
pub fn canonical_json(value: &impl Serialize) -> Result<String> {
    fn sort(value: serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(map) => {
                let mut entries: Vec<_> = map.into_iter().map(|(k, v)| (k, sort(v))).collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                serde_json::Value::Object(entries.into_iter().collect())
            }
            serde_json::Value::Array(items) => {
                serde_json::Value::Array(items.into_iter().map(sort).collect())
            }
            other => other,
        }
    }
    let value =
        serde_json::to_value(value).map_err(|e| Error::invalid(format!("cannot be written as JSON: {e}")))?;
    Ok(sort(value).to_string())
}

/// SHA-256 of the canonical JSON of `value`.
pub fn sha256_json(value: &impl Serialize) -> Result<String> {
    Ok(sha256_hex(canonical_json(value)?.as_bytes()))
}

/// Writes a file so that a crash leaves either the old or the new contents: temporary
/// file in the same folder, `fsync`, rename, `fsync` of the folder.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    // A linked text stays a link, and a file keeps who may read it.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let path = target.as_path();
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs_err::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".partial-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let known = std::fs::metadata(path).map(|m| m.permissions());
        file.as_file().set_permissions(known.unwrap_or(std::fs::Permissions::from_mode(0o644)))?;
    }
    file.persist(path).map_err(|e| {
        std::io::Error::new(e.error.kind(), format!("cannot replace `{}`: {}", path.display(), e.error))
    })?;
    if let Ok(dir) = std::fs::File::open(folder) {
        dir.sync_all()?;
    }
    Ok(())
}

/// Lower-case hex digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[(b >> 4) as usize] as char, DIGITS[(b & 15) as usize] as char])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_published_vectors() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn canonical_json_sorts_at_every_depth() {
        let v = serde_json::json!({"b": [{"z": 1, "a": null}], "a": 0.5});
        assert_eq!(canonical_json(&v).unwrap(), r#"{"a":0.5,"b":[{"a":null,"z":1}]}"#);
    }

    #[test]
    fn write_atomic_replaces_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.txt");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs_err::read(&path).unwrap(), b"two");
        assert_eq!(fs_err::read_dir(dir.path().join("a")).unwrap().count(), 1);
    }
}
