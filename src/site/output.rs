//! The site's files in memory, how they are written to a folder, and the list of them that the folder
//! carries: a later build takes away what that list names, and nothing else.

use crate::error::{Error, Result};
use crate::hash::{sha256_file, sha256_hex};
use std::collections::{BTreeMap, BTreeSet};
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

    /// The addresses of all files, the manifest included.
    pub fn addresses(&self) -> BTreeSet<&str> {
        self.files.keys().map(String::as_str).chain([MANIFEST]).collect()
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

/// The files of a site with their SHA-256, as the manifest in `folder` lists them; `None` without one.
pub fn manifest(folder: &Path) -> Result<Option<BTreeMap<String, String>>> {
    let path = folder.join(MANIFEST);
    if !path.is_file() {
        return Ok(None);
    }
    serde_json::from_slice(&crate::regular::bytes(&path)?).map(Some).map_err(|e| {
        Error::invalid(format!("is not a list of files and hashes: {e}"))
            .at(path.display())
            .hint("build the site into an empty or new folder")
    })
}
