//! The generated command-line reference is current, and every verb explains itself.

use crate::common::{expect, run};

#[test]
#[cfg(all(feature = "engine", feature = "serve", feature = "site"))]
fn docs_cli_md_is_current() {
    let output = expect(0, &["reference"]);
    let generated = String::from_utf8(output.stdout).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(generated == committed, "docs/cli.md is stale: `cargo run --release -- reference > docs/cli.md`");
}

#[test]
fn no_arguments_and_unknown_verbs_exit_with_2() {
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["auditt"]).status.code(), Some(2));
    assert_eq!(run(&["--help"]).status.code(), Some(0));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(expect(0, &["completions", shell]).stdout.len() > 500);
    }
}
