//! How a site takes the place of an earlier one: put together in a folder beside it, whole, then exchanged
//! with it in one step. A failed or killed build leaves the earlier site as it was. Only files that the
//! earlier site's manifest lists are replaced or removed; whatever else lies there is taken along.

use super::output::{Files, MANIFEST, manifest};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A folder beside `out` in which a site is put together; removed again unless it takes `out`'s place.
pub struct Staging {
    /// The folder.
    pub folder: PathBuf,
    previous: PathBuf,
    out: PathBuf,
    /// Files in `out` that are not the earlier site's own, and empty folders, relative to it.
    foreign: Vec<PathBuf>,
}

impl Staging {
    /// Makes the folder, after clearing away what a killed build may have left. A link at `out` is followed.
    /// Refused when `out` is no folder, when it holds files but no earlier site, or when a file that is not
    /// the earlier site's stands where `files` want to be.
    pub fn beside(out: &Path, files: &Files) -> Result<Staging> {
        let target = follow(out)?;
        let Some(name) = target.file_name() else {
            return Err(Error::invalid("the output needs a folder name of its own")
                .at(out.display())
                .hint("write `--out public`"));
        };
        let sibling = |what: &str| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(what);
            target.with_file_name(hidden)
        };
        let (folder, previous) = (sibling(".building"), sibling(".previous"));
        let unwritable = |e: io::Error| unwritable(out, &e);
        if previous.exists() {
            // A build was killed between its two renames: the previous site is the one to keep.
            if target.exists() {
                fs_err::remove_dir_all(&previous).map_err(unwritable)?;
            } else {
                fs_err::rename(&previous, &target).map_err(unwritable)?;
            }
        }
        let foreign = if target.exists() { foreign(out, &target)? } else { Vec::new() };
        collision(out, &foreign, files)?;
        if folder.exists() {
            fs_err::remove_dir_all(&folder).map_err(unwritable)?;
        }
        fs_err::create_dir_all(&folder).map_err(unwritable)?;
        Ok(Staging { folder, previous, out: target, foreign })
    }

    /// Puts the folder in the place of `out`, with the foreign files that lie there.
    pub fn swap(self) -> Result<()> {
        self.place().map_err(|e| unwritable(&self.out, &e))
    }

    fn place(&self) -> io::Result<()> {
        if !self.out.exists() {
            return fs_err::rename(&self.folder, &self.out);
        }
        for path in &self.foreign {
            take_along(&self.out, &self.folder, path)?;
        }
        fs_err::set_permissions(&self.folder, fs_err::metadata(&self.out)?.permissions())?;
        if exchange(&self.folder, &self.out) {
            // The old site now stands where the new one was; dropping `self` removes it.
            return Ok(());
        }
        fs_err::rename(&self.out, &self.previous)?;
        if let Err(error) = fs_err::rename(&self.folder, &self.out) {
            fs_err::rename(&self.previous, &self.out)?;
            return Err(error);
        }
        fs_err::remove_dir_all(&self.previous)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.folder.exists() {
            // Nothing to be done about a failure here: the next build clears the folder.
            let _ = fs_err::remove_dir_all(&self.folder);
        }
    }
}

fn unwritable(out: &Path, e: &io::Error) -> Error {
    Error::invalid(format!("the site cannot be written here: {e}"))
        .at(out.display())
        .hint("name a folder with `--out` in a place where you may write")
}

/// The folder that `out` names: where it leads to, if it is a link.
fn follow(out: &Path) -> Result<PathBuf> {
    match fs_err::symlink_metadata(out) {
        Ok(about) if about.is_symlink() => fs_err::canonicalize(out).map_err(|_| {
            Error::invalid("the output is a link that leads nowhere")
                .at(out.display())
                .hint("make the folder that it names, or remove the link")
        }),
        Ok(_) => Ok(out.to_path_buf()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(out.to_path_buf()),
        Err(e) => Err(unwritable(out, &e)),
    }
}

/// What lies in `target` beside the site that was built there.
fn foreign(out: &Path, target: &Path) -> Result<Vec<PathBuf>> {
    let refuse = |what: &str| {
        Error::invalid(what.to_string()).at(out.display()).hint("name an empty or a new folder with `--out`")
    };
    if !target.is_dir() {
        return Err(refuse("the output exists and is no folder"));
    }
    let Some(listed) = manifest(target)? else {
        return match fs_err::read_dir(target)?.next() {
            None => Ok(Vec::new()),
            Some(_) => Err(refuse("the folder is not empty and is not a site")),
        };
    };
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(target).min_depth(1).sort_by_file_name() {
        let entry = entry.map_err(|e| Error::invalid(format!("cannot be read: {e}")).at(out.display()))?;
        let path = entry.path().strip_prefix(target).unwrap_or(entry.path());
        let address = address(path);
        let kept = match entry.file_type().is_dir() {
            true => fs_err::read_dir(entry.path())?.next().is_none(),
            false => address != MANIFEST && !listed.contains_key(&address),
        };
        if kept {
            found.push(path.to_path_buf());
        }
    }
    Ok(found)
}

fn address(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// Refuses to write a page over, into or around a file that is not the site's own.
fn collision(out: &Path, foreign: &[PathBuf], files: &Files) -> Result<()> {
    let wanted = files.addresses();
    let folders: BTreeSet<&str> =
        wanted.iter().flat_map(|a| a.match_indices('/').map(|(at, _)| &a[..at])).collect();
    for path in foreign {
        let whole = address(path);
        let empty_folder = out.join(path).is_dir() && !out.join(path).is_symlink();
        let above = whole.match_indices('/').map(|(at, _)| &whole[..at]).any(|a| wanted.contains(a));
        if wanted.contains(whole.as_str()) || above || folders.contains(whole.as_str()) && !empty_folder {
            return Err(Error::invalid("the site needs this place, and what lies here is not its own")
                .at(out.join(path).display())
                .hint("move it away, or name an empty or a new folder with `--out`"));
        }
    }
    Ok(())
}

/// Makes `path` of the folder `from` stand in the folder `to` as well: the same file under a second name
/// where the file system can, else a copy.
fn take_along(from: &Path, to: &Path, path: &Path) -> io::Result<()> {
    let (source, target) = (from.join(path), to.join(path));
    let about = match fs_err::symlink_metadata(&source) {
        // It was removed while the site was put together.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut folder = PathBuf::new();
    let folders = if about.is_dir() { Some(path) } else { path.parent() };
    for part in folders.into_iter().flat_map(Path::iter) {
        folder.push(part);
        if !to.join(&folder).exists() {
            fs_err::create_dir(to.join(&folder))?;
            fs_err::set_permissions(to.join(&folder), fs_err::metadata(from.join(&folder))?.permissions())?;
        }
    }
    if about.is_dir() || fs_err::hard_link(&source, &target).is_ok() {
        return Ok(());
    }
    #[cfg(unix)]
    if about.is_symlink() {
        return fs_err::os::unix::fs::symlink(fs_err::read_link(&source)?, &target);
    }
    fs_err::copy(&source, &target).map(|_| ())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn files(addresses: &[&str]) -> Files {
        let mut files = Files::default();
        for address in addresses {
            files.add(address, *address).unwrap();
        }
        files
    }

    fn build(out: &Path, addresses: &[&str]) -> Result<()> {
        let files = files(addresses);
        let staging = Staging::beside(out, &files)?;
        files.write(&staging.folder)?;
        staging.swap()
    }

    fn put(out: &Path, address: &str, text: &str) {
        fs_err::create_dir_all(out.join(address).parent().unwrap()).unwrap();
        fs_err::write(out.join(address), text).unwrap();
    }

    /// Every file below a folder with its text; a link's text is where it leads to.
    fn texts(out: &Path) -> BTreeMap<String, String> {
        let files = walkdir::WalkDir::new(out).into_iter().map(|e| e.unwrap());
        files
            .filter(|e| !e.file_type().is_dir())
            .map(|e| {
                let text = match e.path_is_symlink() {
                    true => format!("-> {}", fs_err::read_link(e.path()).unwrap().display()),
                    false => fs_err::read_to_string(e.path()).unwrap(),
                };
                (address(e.path().strip_prefix(out).unwrap()), text)
            })
            .collect()
    }

    #[test]
    fn only_what_the_manifest_lists_is_replaced_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("public");
        build(&out, &["index.html", "old/page.html", "kept/page.html"]).unwrap();
        put(&out, "CNAME", "log.example");
        put(&out, ".git/objects/ab", "object");
        put(&out, "old/notes.txt", "mine");
        put(&out, "index.html", "edited by hand");
        fs_err::create_dir(out.join("empty")).unwrap();
        build(&out, &["index.html", "kept/page.html", "new/page.html"]).unwrap();
        let mut now = texts(&out);
        assert!(now.remove(MANIFEST).unwrap().contains("new/page.html"));
        let expected = [
            (".git/objects/ab", "object"),
            ("CNAME", "log.example"),
            ("index.html", "index.html"),
            ("kept/page.html", "kept/page.html"),
            ("new/page.html", "new/page.html"),
            ("old/notes.txt", "mine"),
        ];
        assert_eq!(now, expected.map(|(a, t)| (a.to_string(), t.to_string())).into());
        assert!(out.join("empty").is_dir());
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn folders_without_a_site_and_places_that_are_taken_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |out: &Path, place: &str| {
            let before = texts(dir.path());
            let e = build(out, &["index.html", "claims/index.html"]).unwrap_err();
            let said = e.to_string();
            assert_eq!(e.exit_code(), 2, "{said}");
            assert!(said.starts_with(place) && said.contains("hint:"), "{said}");
            assert_eq!(before, texts(dir.path()), "{said}");
        };
        let thesis = dir.path().join("thesis");
        put(&thesis, "thesis.tex", "x");
        refused(&thesis, thesis.to_str().unwrap());
        refused(&thesis.join("thesis.tex"), thesis.join("thesis.tex").to_str().unwrap());
        refused(&thesis.join("thesis.tex/site"), thesis.join("thesis.tex/site").to_str().unwrap());

        let list = dir.path().join("list");
        put(&list, MANIFEST, "[1, 2]");
        refused(&list, list.join(MANIFEST).to_str().unwrap());

        for taken in ["claims/index.html", "claims", "claims/index.html/deep"] {
            let out = dir.path().join(taken.replace('/', "-"));
            build(&out, &["index.html"]).unwrap();
            put(&out, taken, "mine");
            refused(&out, out.join(taken).to_str().unwrap());
        }
    }

    #[test]
    fn a_site_grows_into_empty_folders() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("public");
        build(&out, &["index.html"]).unwrap();
        fs_err::create_dir_all(out.join("claims/C0001")).unwrap();
        build(&out, &["index.html", "claims/C0001/index.html"]).unwrap();
        assert!(out.join("claims/C0001/index.html").is_file());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (out, target) = (dir.path().join("public"), dir.path().join("elsewhere/site"));
        fs_err::create_dir_all(&target).unwrap();
        fs_err::os::unix::fs::symlink("elsewhere/site", &out).unwrap();
        for addresses in [&["index.html", "a.html"][..], &["index.html", "b.html"]] {
            build(&out, addresses).unwrap();
            assert_eq!(fs_err::read_link(&out).unwrap(), Path::new("elsewhere/site"));
            assert!(target.join(addresses[1]).is_file());
            assert_eq!(crate::site::check(&out).unwrap(), Vec::new());
        }
        assert!(!target.join("a.html").exists());
        fs_err::os::unix::fs::symlink("../nowhere", target.join("link")).unwrap();
        build(&out, &["index.html"]).unwrap();
        assert_eq!(texts(&target)["link"], "-> ../nowhere");

        fs_err::remove_dir_all(&target).unwrap();
        let e = build(&out, &["index.html"]).unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains("leads nowhere"), "{e}");
        assert!(out.is_symlink());
    }
}
