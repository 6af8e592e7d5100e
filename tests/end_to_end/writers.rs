//! One writer a workspace: while one process writes there, a second is told who it is, readers go on, and
//! a killed one leaves nothing in the way.

use crate::common::{SLUG, copy_of_demo, expect, rederive, run, said, snapshot, text};
use rederive::write_lock::WriteLock;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn a_second_demo_is_refused_until_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("demo");
    let demo = ["demo", "--quick", "--dir", text(&workspace)];
    let mut first = rederive().args(demo).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("make model")), "the first demo began");
    for second in [&demo[..], &["new", "second", "--workspace", text(&workspace)]] {
        let output = expect(2, second);
        let said = said(&output);
        assert!(said.contains(&format!("process {}", first.id())) && said.contains("hint: wait"), "{said}");
        assert!(said.contains(text(&workspace)), "{said}");
    }
    first.kill().unwrap();
    first.wait().unwrap();
    expect(0, &["new", "second", "--workspace", text(&workspace)]);
}

#[test]
fn verbs_that_write_wait_their_turn_and_readers_do_not() {
    let (_folder, workspace) = copy_of_demo();
    let at = ["--workspace", text(&workspace)];
    let held = WriteLock::take(&workspace).unwrap();
    let before = snapshot(&workspace);
    let writers: [&[&str]; 7] = [
        &["harvest", SLUG],
        &["train", SLUG],
        &["merge", SLUG],
        &["run", SLUG],
        &["fill"],
        &["site", "build"],
        &["new", "second"],
    ];
    for verb in writers {
        let output = run(&[verb, &at].concat());
        assert_eq!(output.status.code(), Some(2), "{verb:?}\n{}", said(&output));
        let who = format!("process {}", std::process::id());
        assert!(said(&output).contains(&who), "{verb:?}\n{}", said(&output));
    }
    let readers: [&[&str]; 5] =
        [&["status"], &["audit"], &["claims", "check"], &["fill", "--dry-run"], &["site", "check"]];
    for verb in readers {
        expect(0, &[verb, &at].concat());
    }
    assert!(before == snapshot(&workspace), "what was refused or only read changed the disk");
    drop(held);
    expect(0, &["site", "build", "--workspace", text(&workspace)]);
}
