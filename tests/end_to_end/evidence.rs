//! Attacks on a finished workspace, and bad input: each is named by file, row or key, and
//! nothing on disk changes.

use crate::common::{SLUG, copy_of_demo, data, demo, expect, run, said, snapshot, text};
use rederive::claims::fill;
use rederive::episode::{EpisodeRow, table};
use rederive::stats::fault;
use std::path::Path;

fn episodes(workspace: &Path, arm: &str) -> std::path::PathBuf {
    let folder = data(workspace).join("episodes").join(arm);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.pop().unwrap()
}

#[test]
fn one_changed_reward_is_named_by_file_and_row_and_the_site_does_not_build() {
    let (_folder, workspace) = copy_of_demo();
    let path = episodes(&workspace, "treatment");
    let mut rows: Vec<EpisodeRow> = table::read(&path).unwrap();
    let victim = rows.len() / 2;
    rows[victim].reward = Some(1.0 - rows[victim].reward.unwrap());
    table::write(&path, &rows).unwrap();

    let output = expect(1, &["audit", "--workspace", text(&workspace), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = format!("data/{SLUG}/episodes/treatment/{}", path.file_name().unwrap().to_str().unwrap());
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|f| f["file"] == file.as_str() && f["row"] == victim + 1), "{findings:#?}");

    let site = snapshot(&workspace.join("public"));
    let output = expect(1, &["site", "build", "--workspace", text(&workspace)]);
    assert!(said(&output).contains(&file), "{}", said(&output));
    assert!(site == snapshot(&workspace.join("public")), "a refused build left the earlier site untouched");
}

#[test]
fn a_fault_planted_in_an_estimator_is_found_by_the_second_road() {
    let (_folder, workspace) = copy_of_demo();
    let before = rederive::audit::audit(&workspace, rederive::audit::Options::default()).unwrap();
    assert!(before.passed());
    fault::PAIRED_DELTA.plant(0.05);
    let changes = fill::fill(&workspace, fill::Options { update: true, dry_run: false });
    fault::PAIRED_DELTA.plant(0.0);
    assert!(!changes.unwrap().changes.is_empty(), "the fault shows at printed precision");
    let after = rederive::audit::audit(&workspace, rederive::audit::Options::default()).unwrap();
    assert!(!after.passed());
    assert!(
        after
            .verdicts
            .iter()
            .any(|e| e.reference == format!("derive:{SLUG}.delta") && e.verdict.word() == "mismatch")
    );
}

#[test]
fn a_retyped_number_is_a_mismatch_for_check_audit_and_build() {
    let (_folder, workspace) = copy_of_demo();
    let report = workspace.join("site/experiments").join(SLUG).join("report.md");
    let old = std::fs::read_to_string(&report).unwrap();
    let at = old.find(&format!("](derive:{SLUG}.kept)")).unwrap();
    let start = old[..at].rfind('[').unwrap();
    let new = format!("{}[987{}", &old[..start], &old[at..]);
    std::fs::write(&report, new).unwrap();
    for arguments in [["claims", "check", "--workspace"], ["site", "build", "--workspace"]] {
        let output = run(&[&arguments[..], &[text(&workspace)]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("987"), "{}", said(&output));
    }
    expect(1, &["audit", "--workspace", text(&workspace)]);
}

/// Changes one file of a copy, runs a command, and requires exit 2, the words, and an unchanged disk.
fn refused(change: impl FnOnce(&Path), arguments: &[&str], words: &[&str]) {
    let (_folder, workspace) = copy_of_demo();
    change(&workspace);
    let before = snapshot(&workspace);
    let arguments: Vec<&str> =
        arguments.iter().map(|a| if *a == "WORKSPACE" { text(&workspace) } else { *a }).collect();
    let output = run(&arguments);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}\n{said}");
    for word in words.iter().chain(&["hint:"]) {
        assert!(said.contains(word), "`{word}` is not in\n{said}");
    }
    assert!(before == snapshot(&workspace), "{arguments:?} changed the disk");
}

fn edit(workspace: &Path, file: &str, from: &str, to: &str) {
    let path = workspace.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "`{from}` is not in {file}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn bad_plans_are_refused_by_file_key_and_remedy() {
    let plan = format!("data/{SLUG}/experiment.toml");
    for (from, to, words) in [
        ("per_family", "per_famly", ["experiment.toml", "per_famly", "per_family"]),
        ("name = \"treatment\"", "name = \"base\"", ["experiment.toml", "duplicate arm", "`base`"]),
    ] {
        refused(|w| edit(w, &plan, from, to), &["run", SLUG, "--workspace", "WORKSPACE"], &words);
    }
}

#[test]
fn a_spent_seed_is_refused() {
    let (_folder, workspace) = copy_of_demo();
    expect(0, &["new", "second", "--workspace", text(&workspace)]);
    let plan = std::fs::read_to_string(data(&workspace).join("experiment.toml")).unwrap();
    std::fs::write(workspace.join("data/second/experiment.toml"), plan).unwrap();
    let before = snapshot(&workspace.join("data/seeds.jsonl"));
    let output = run(&["harvest", "second", "--workspace", text(&workspace)]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("was already spent") && said(&output).contains("hint:"),
        "{}",
        said(&output)
    );
    assert!(before == snapshot(&workspace.join("data/seeds.jsonl")));
}

#[test]
fn truncated_parquet_is_refused_wherever_it_is_read() {
    let cut = |w: &Path| {
        let path = episodes(w, "base");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    };
    for verb in [&["claims", "check"][..], &["fill"], &["site", "build"]] {
        refused(cut, &[verb, &["--workspace", "WORKSPACE"]].concat(), &[".parquet"]);
    }
    let (_folder, workspace) = copy_of_demo();
    cut(&workspace);
    let output = run(&["compare", text(&episodes(&workspace, "base"))]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn a_claim_that_cites_nothing_is_refused() {
    let (_folder, workspace) = copy_of_demo();
    let path = workspace.join("claims").join(format!("C0001-{SLUG}.md"));
    let claim = std::fs::read_to_string(&path).unwrap();
    let end = claim.rfind("+++\n").unwrap() + 4;
    std::fs::write(&path, format!("{}Nothing is cited.\n", &claim[..end])).unwrap();
    let output = run(&["claims", "check", "--workspace", text(&workspace)]);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{}", said(&output));
    assert!(said(&output).contains("C0001") && said(&output).contains("hint:"), "{}", said(&output));
    // What a text says steers no terminal.
    std::fs::write(
        &path,
        format!("{}By [\u{1b}[31m9\u{1b}]0;x\u{7}](derive:{SLUG}.delta).\n", &claim[..end]),
    )
    .unwrap();
    for verb in [&["claims", "check"][..], &["audit"]] {
        let output = run(&[verb, &["--workspace", text(&workspace)]].concat());
        let said = said(&output);
        assert!(said.contains("[31m9") && !said.contains(['\u{1b}', '\u{7}']), "{said:?}");
    }
}

#[test]
fn broken_and_foreign_model_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &[u8]); 4] = [
        ("empty.gguf", b""),
        ("noise.gguf", &[7u8; 4096]),
        ("cut.gguf", b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\x01\0\0\0"),
        ("text.gguf", b"not a model at all"),
    ];
    for (name, bytes) in cases {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = run(&["models", "logits", text(&path), "--tokens", "1,2,3"]);
        assert_eq!(output.status.code(), Some(2), "{name}\n{}", said(&output));
        assert!(said(&output).contains(name), "{}", said(&output));
    }
    let output = run(&["models", "logits", "smollm2-135m-instruc", "--tokens", "1"]);
    assert!(said(&output).contains("did you mean"), "{}", said(&output));
}

#[test]
fn a_fetch_that_cannot_work_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.gguf");
    std::fs::write(&wrong, b"GGUF but not the right one").unwrap();
    let cache = folder.path().join("cache");
    let output = crate::common::rederive()
        .args(["models", "fetch", "--from", text(&wrong)])
        .env("REDERIVE_CACHE", &cache)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("wrong.gguf"), "{}", said(&output));
    assert!(snapshot(&cache).iter().all(|(_, bytes)| bytes.is_empty()), "no part of a file is left");

    let output = crate::common::rederive()
        .args(["models", "fetch"])
        .env("REDERIVE_CACHE", &cache)
        .env("PATH", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("pip"), "{}", said(&output));
    assert!(snapshot(&cache).iter().all(|(_, bytes)| bytes.is_empty()), "no part of a file is left");
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let output = run(&["run", "commit-an-anser", "--workspace", text(demo())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains(&format!("did you mean `{SLUG}`")), "{}", said(&output));
}

#[test]
fn the_experiment_kept_in_the_repository_holds() {
    for verb in [&["claims", "check"][..], &["audit"]] {
        expect(0, &[verb, &["--workspace", env!("CARGO_MANIFEST_DIR")]].concat());
    }
}
