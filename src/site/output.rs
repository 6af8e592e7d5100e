//! The site's files in memory, and how they reach the disk: into a folder beside the old site, whole,
//! then swapped with it in one step. A failed or killed build leaves the old site as it was.

use crate::error::{Error, Result};
use crate::hash::{sha256_file, sha256_hex};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Name of the list of all files with their hashes.
pub const MANIFEST: &str = "site-manifest.json";

/// Where a file's bytes come from.
enum Content {
    Bytes(Vec<u8>),
    /// A data file, copied and compared with the hash it must have.
    Copy {
        source: PathBuf,
        sha256: String,
    },
}

/// All files of a site by their address from its root.
#[derive(Default)]
pub struct Files {
    files: BTreeMap<String, Content>,
}

impl Files {
    /// Adds a file. Two files at one address, or an address outside the site, are errors.
    pub fn add(&mut self, address: &str, bytes: impl Into<Vec<u8>>) -> Result<()> {
        self.insert(address, Content::Bytes(bytes.into()))
    }

    /// Adds a copy of `source`, which must have the hash `sha256`.
    pub fn copy(&mut self, address: &str, source: &Path, sha256: &str) -> Result<()> {
        self.insert(address, Content::Copy { source: source.to_path_buf(), sha256: sha256.to_string() })
    }

    fn insert(&mut self, address: &str, content: Content) -> Result<()> {
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if address.is_empty() || address.contains('\\') || !Path::new(address).components().all(plain) {
            return Err(Error::invalid(format!("`{address}` is no address within the site")).hint(
                "names of experiments, claims, derivations and files must not contain `..` or start with `/`",
            ));
        }
        match self.files.insert(address.to_string(), content) {
            None => Ok(()),
            Some(_) => Err(Error::invalid(format!("two pages want the address `{address}`"))
                .hint("rename one of the two files, derivations or experiments")),
        }
    }

    /// How many files there are, the manifest included.
    pub fn len(&self) -> usize {
        self.files.len() + 1
    }

    /// How many of them are pages.
    pub fn pages(&self) -> usize {
        self.files.keys().filter(|address| address.ends_with(".html")).count()
    }

    /// Writes everything below `folder` and, last, the manifest.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut manifest = serde_json::Map::new();
        for (address, content) in &self.files {
            let path = folder.join(address);
            if let Some(parent) = path.parent() {
                fs_err::create_dir_all(parent)?;
            }
            let hash = match content {
                Content::Bytes(bytes) => {
                    fs_err::write(&path, bytes)?;
                    sha256_hex(bytes)
                }
                Content::Copy { source, sha256 } => {
                    fs_err::copy(source, &path)?;
                    let hash = sha256_file(&path)?;
                    if &hash != sha256 {
                        return Err(Error::refused(format!(
                            "the file has SHA-256 {hash}, but {sha256} is on record"
                        ))
                        .at(source.display())
                        .hint("restore the file from the record; rows are never edited by hand"));
                    }
                    hash
                }
            };
            manifest.insert(address.clone(), hash.into());
        }
        let text = format!("{:#}\n", serde_json::Value::Object(manifest));
        fs_err::write(folder.join(MANIFEST), text)?;
        Ok(())
    }
}

/// A folder beside `out` in which a site is put together; removed again unless it takes `out`'s place.
pub struct Staging {
    /// The folder.
    pub folder: PathBuf,
    old: PathBuf,
    out: PathBuf,
}

impl Staging {
    /// Makes the folder, after clearing away what a killed build may have left. A folder at `out` that
    /// holds something else than a site is refused.
    pub fn beside(out: &Path) -> Result<Staging> {
        let Some(name) = out.file_name() else {
            return Err(Error::invalid("the output needs a folder name of its own")
                .at(out.display())
                .hint("write `--out public`"));
        };
        let sibling = |what: &str| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(what);
            out.with_file_name(hidden)
        };
        let (folder, old) = (sibling(".building"), sibling(".previous"));
        if old.exists() {
            // A build was killed between its two renames: the previous site is the one to keep.
            if out.exists() { fs_err::remove_dir_all(&old)? } else { fs_err::rename(&old, out)? }
        }
        if out.exists() && !out.join(MANIFEST).is_file() {
            let empty = out.is_dir() && fs_err::read_dir(out)?.next().is_none();
            if !empty {
                return Err(Error::refused("the output exists and is not a site")
                    .at(out.display())
                    .hint("choose another `--out`, or remove that folder yourself"));
            }
        }
        if folder.exists() {
            fs_err::remove_dir_all(&folder)?;
        }
        fs_err::create_dir_all(&folder)?;
        Ok(Staging { folder, old, out: out.to_path_buf() })
    }

    /// Puts the folder in the place of `out`.
    pub fn swap(self) -> Result<()> {
        if !self.out.exists() {
            fs_err::rename(&self.folder, &self.out)?;
            return Ok(());
        }
        if exchange(&self.folder, &self.out) {
            // The old site now stands where the new one was; dropping `self` removes it.
            return Ok(());
        }
        fs_err::rename(&self.out, &self.old)?;
        if let Err(error) = fs_err::rename(&self.folder, &self.out) {
            fs_err::rename(&self.old, &self.out)?;
            return Err(error.into());
        }
        fs_err::remove_dir_all(&self.old)?;
        Ok(())
    }
}

/// Exchanges two folders in one step; `false` where the system or the file system cannot.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn exchange(one: &Path, other: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let name = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (Ok(one), Ok(other)) = (name(one), name(other)) else {
        return false;
    };
    // SAFETY: both names are NUL-terminated and outlive the call, which keeps no pointer.
    let result = unsafe {
        libc::renameat2(libc::AT_FDCWD, one.as_ptr(), libc::AT_FDCWD, other.as_ptr(), libc::RENAME_EXCHANGE)
    };
    result == 0
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn exchange(_: &Path, _: &Path) -> bool {
    false
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.folder.exists() {
            // Nothing to be done about a failure here: the next build clears the folder.
            let _ = fs_err::remove_dir_all(&self.folder);
        }
    }
}
