//! A zip file that may be anybody's: only names that are asked for are unpacked, as streams, and each of
//! them, and all together, up to a bound.

use super::json::{Bounded, Python};
use crate::compare::rows::shown;
use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use std::io::{BufReader, Read};
use std::path::Path;
use zip::ZipArchive;

/// Bytes that one entry may unpack to.
const ENTRY: u64 = 512 << 20;
/// Bytes that all entries of a file may unpack to.
const ALL: u64 = 16 << 30;

/// An open zip file.
pub struct Archive {
    path: String,
    zip: ZipArchive<BufReader<fs_err::File>>,
    /// Bytes that one entry may still unpack to.
    entry: u64,
    /// Bytes that all further entries may unpack to.
    left: u64,
}

impl Archive {
    /// Reads the list of entries.
    pub fn open(path: &Path) -> Result<Archive> {
        let shown = path.display().to_string();
        let file = BufReader::new(fs_err::File::open(path)?);
        let zip = ZipArchive::new(file).map_err(|e| {
            Error::invalid(format!("this zip file cannot be read: {e}"))
                .at(&shown)
                .hint("it may be cut off or damaged: copy it again")
        })?;
        Ok(Archive { path: shown, zip, entry: ENTRY, left: ALL })
    }

    /// Whether there is an entry of this name.
    pub fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(name).is_some()
    }

    /// Names of all entries, in the order in which they were written.
    pub fn names(&self) -> Result<Vec<String>> {
        let names = (0..self.zip.len()).filter_map(|i| self.zip.name_for_index(i));
        names.map(|name| name.map(String::from)).collect::<Result<_, _>>().map_err(|e| {
            Error::invalid(format!("an entry of this zip file has no readable name: {e}"))
                .at(&self.path)
                .hint("let Inspect write the log again")
        })
    }

    /// One entry, as JSON.
    pub fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
        let place = format!("{}: {}", self.path, shown(name));
        let damaged = |why: String| {
            Error::invalid(why)
                .at(&place)
                .hint("the file may be cut off or damaged: copy it again, or let Inspect write it again")
        };
        let entry =
            self.zip.by_name(name).map_err(|e| damaged(format!("this entry cannot be unpacked: {e}")))?;
        if self.left == 0 {
            return Err(damaged(
                "the entries before this one unpack to more than may be read of one file".into(),
            ));
        }
        let limit = self.entry.min(self.left);
        let mut stream = Bounded::new(entry, limit);
        let read = serde_json::from_reader(Python::new(BufReader::with_capacity(1 << 16, stream.by_ref())));
        self.left -= stream.given();
        read.map_err(|e| match e.classify() {
            serde_json::error::Category::Io => damaged(format!("this entry cannot be unpacked: {e}")),
            _ => damaged(format!("this entry is not the JSON of an Inspect log: {e}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IgnoredAny;
    use std::io::Write;
    use zip::CompressionMethod;
    use zip::write::{SimpleFileOptions, ZipWriter};

    fn file(folder: &Path, method: CompressionMethod, entries: &[(&str, &[u8])]) -> std::path::PathBuf {
        let path = folder.join("x.eval");
        let mut zip = ZipWriter::new(fs_err::File::create(&path).unwrap());
        for (name, bytes) in entries {
            zip.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    #[test]
    fn entries_are_read_however_they_are_packed() {
        let dir = tempfile::tempdir().unwrap();
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated, CompressionMethod::Zstd] {
            let mut archive =
                Archive::open(&file(dir.path(), method, &[("b", b"[NaN]"), ("a", b"2")])).unwrap();
            assert_eq!(archive.names().unwrap(), ["b", "a"]);
            assert_eq!(archive.json::<Vec<String>>("b").unwrap(), ["NaN"]);
            assert_eq!(archive.json::<u8>("a").unwrap(), 2);
            assert!(archive.json::<u8>("b").unwrap_err().to_string().contains("x.eval: b: "));
            assert!(archive.json::<u8>("c").is_err());
        }
    }

    #[test]
    fn what_unpacks_to_too_much_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let bomb = [&b"{\"x\":\""[..], &vec![b'0'; 4 << 20], b"\"}"].concat();
        let path = file(dir.path(), CompressionMethod::Deflated, &[("a", &bomb), ("b", &bomb), ("c", b"1")]);
        assert!(fs_err::metadata(&path).unwrap().len() < 20_000);
        let mut archive = Archive { entry: 3 << 20, ..Archive::open(&path).unwrap() };
        let said = archive.json::<IgnoredAny>("a").unwrap_err().to_string();
        assert!(said.contains("x.eval: a: ") && said.contains("more than 3 MiB"), "{said}");
        // Each may be small enough, and all of them together too much.
        let mut archive = Archive { left: 6 << 20, ..Archive::open(&path).unwrap() };
        archive.json::<IgnoredAny>("a").unwrap();
        assert!(archive.json::<IgnoredAny>("b").unwrap_err().to_string().contains("MiB"));
        assert!(archive.json::<IgnoredAny>("c").is_err());
    }

    #[test]
    fn a_file_cut_anywhere_or_changed_inside_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let text = serde_json::to_vec(&(0..300).collect::<Vec<u32>>()).unwrap();
        let whole = fs_err::read(file(dir.path(), CompressionMethod::Deflated, &[("a", &text)])).unwrap();
        let path = dir.path().join("cut.eval");
        for length in (0..whole.len()).step_by(11) {
            fs_err::write(&path, &whole[..length]).unwrap();
            let said = Archive::open(&path).err().unwrap().to_string();
            assert!(said.contains("cut.eval") && said.contains("hint:"), "{length}: {said}");
        }
        let mut wrong = 0;
        for at in 31..31 + 200 {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            fs_err::write(&path, &changed).unwrap();
            let read = Archive::open(&path).and_then(|mut archive| archive.json::<Vec<u32>>("a"));
            wrong += usize::from(read.is_err());
        }
        assert_eq!(wrong, 200, "a check sum stands behind every entry");
    }
}
