//! Shared by the end-to-end tests: the binary, a finished quick demo, and copies of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The experiment of the demo.
pub const SLUG: &str = "commit-an-answer";

/// The binary under test, without colour.
pub fn rederive() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rederive"));
    command.env("NO_COLOR", "1");
    command
}

/// Runs the binary and returns what it did.
pub fn run(arguments: &[&str]) -> Output {
    rederive().args(arguments).output().expect("the binary starts")
}

/// Standard output and error, for messages.
pub fn said(output: &Output) -> String {
    format!(
        "status {:?}\n--- stdout\n{}\n--- stderr\n{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs and requires an exit code.
pub fn expect(code: i32, arguments: &[&str]) -> Output {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "rederive {arguments:?}\n{}", said(&output));
    output
}

/// A finished `demo --quick`, made once a test run.
pub fn demo() -> &'static Path {
    static DEMO: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = DEMO.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("demo");
        expect(0, &["demo", "--quick", "--dir", path.to_str().expect("UTF-8")]);
        (folder, path)
    });
    path
}

/// A copy of the finished demo.
pub fn copy_of_demo() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("demo");
    copy(demo(), &path);
    (folder, path)
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.expect("readable");
        let target = to.join(entry.path().strip_prefix(from).expect("below"));
        if entry.file_type().is_dir() {
            std::fs::create_dir_all(&target).expect("made");
        } else {
            std::fs::copy(entry.path(), &target).expect("copied");
        }
    }
}

/// Every file of a folder with its bytes: to show that nothing changed.
pub fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = walkdir::WalkDir::new(folder)
        .into_iter()
        .filter_map(|e| e.ok())
        .filter(|e| e.file_type().is_file())
        .map(|e| (e.path().to_path_buf(), std::fs::read(e.path()).expect("readable")))
        .collect();
    files.sort();
    files
}

/// The data folder of the demo's experiment.
pub fn data(workspace: &Path) -> PathBuf {
    workspace.join("data").join(SLUG)
}

/// UTF-8 path.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
