//! An experiment that is planned and has not run: every check passes, says what is pending, and
//! the site shows the plan. A changed plan or a number in passing is still named.

use crate::common::{expect, said, snapshot, text};
use std::path::Path;

const REPORT: &str = "site/experiments/my-try/report.md";

fn planned() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("lab");
    expect(0, &["new", "my-try", "--workspace", text(&workspace)]);
    (folder, workspace)
}

fn edit(workspace: &Path, file: &str, from: &str, to: &str) {
    let path = workspace.join(file);
    let old = std::fs::read_to_string(&path).unwrap();
    assert!(old.contains(from), "`{from}` is not in {file}");
    std::fs::write(path, old.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_new_experiment_passes_every_check_before_anything_has_run() {
    let (_folder, workspace) = planned();
    let at = ["--workspace", text(&workspace)];
    let before = snapshot(&workspace);
    expect(0, &[&["claims", "check"], &at[..]].concat());
    let output = expect(0, &[&["audit", "--json"], &at[..]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["summary"]["mismatches"], &report["summary"]["findings"]), (&0.into(), &0.into()));
    assert_eq!(report["summary"]["matches"], 1, "the bar is known beforehand");
    let pending = report["verdicts"].as_array().unwrap().iter().filter(|v| v["verdict"] == "unverifiable");
    assert!(pending.clone().count() > 5);
    pending.for_each(|v| assert!(v["reason"].as_str().unwrap().starts_with("pending"), "{v}"));

    let output = expect(0, &[&["fill", "--update"], &at[..]].concat());
    assert!(said(&output).contains("0 numbers written"), "{}", said(&output));
    let output = expect(0, &[&["status"], &at[..]].concat());
    for words in ["my-try: planned", "rederive harvest my-try"] {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    assert!(before == snapshot(&workspace), "none of these writes anything");

    let output = expect(0, &[&["site", "build"], &at[..]].concat());
    let page = std::fs::read_to_string(workspace.join("public/experiments/my-try/index.html")).unwrap();
    assert!(said(&output).contains("index.html") && page.contains("Planned; nothing has run yet"));
    expect(0, &[&["site", "check"], &at[..]].concat());
}

#[test]
fn a_plan_edited_before_it_is_locked_needs_its_bar_filled_again() {
    let (_folder, workspace) = planned();
    let at = ["--workspace", text(&workspace)];
    let plan = "data/my-try/experiment.toml";
    let old = std::fs::read_to_string(workspace.join(plan)).unwrap();
    std::fs::write(workspace.join(plan), old.replace("minimum_delta = 0.03", "minimum_delta = 0.05"))
        .unwrap();
    let output = expect(1, &[&["claims", "check"], &at[..]].concat());
    assert!(said(&output).contains("prints `+0.03`") && said(&output).contains("fill --update"));
    expect(0, &[&["fill", "--update"], &at[..]].concat());
    expect(0, &[&["claims", "check"], &at[..]].concat());
    expect(0, &[&["audit"], &at[..]].concat());
}

#[test]
fn what_stands_beside_a_number_is_named_by_check_audit_and_build() {
    let (_folder, workspace) = planned();
    let at = ["--workspace", text(&workspace)];
    edit(&workspace, REPORT, "(derive:my-try.bar)", "(derive:my-try.bar) million");
    let line = std::fs::read_to_string(workspace.join(REPORT)).unwrap();
    let line = line.lines().position(|line| line.contains("million")).unwrap() + 1;
    for verb in [&["claims", "check"][..], &["audit"], &["site", "build"]] {
        let output = expect(1, &[verb, &at].concat());
        let wanted = format!("{REPORT}:{line}");
        assert!(said(&output).contains("`million`") && said(&output).contains(&wanted), "{}", said(&output));
    }
}

#[test]
fn a_bare_number_in_a_headline_is_named_by_check_audit_and_build() {
    let (_folder, workspace) = planned();
    let at = ["--workspace", text(&workspace)];
    edit(&workspace, REPORT, "tagline = \"", "tagline = \"98 percent solved. ");
    for verb in [&["claims", "check"][..], &["audit"], &["site", "build"]] {
        let output = expect(1, &[verb, &at].concat());
        assert!(said(&output).contains("`98` in `tagline`"), "{}", said(&output));
    }
}

#[test]
fn files_of_other_editors_are_read_alike() {
    let (_folder, workspace) = planned();
    let at = ["--workspace", text(&workspace)];
    for file in [REPORT, "site/experiments/my-try/log.md"] {
        let old = std::fs::read_to_string(workspace.join(file)).unwrap();
        std::fs::write(workspace.join(file), format!("\u{feff}{}", old.replace('\n', "\r\n"))).unwrap();
    }
    expect(0, &[&["claims", "check"], &at[..]].concat());
    expect(0, &[&["audit"], &at[..]].concat());
    expect(0, &[&["site", "build"], &at[..]].concat());
    edit(&workspace, REPORT, "lifecycle", "\r lifecycle");
    let output = expect(2, &[&["claims", "check"], &at[..]].concat());
    assert!(said(&output).contains("report.md:5") && said(&output).contains("hint:"), "{}", said(&output));
}

#[test]
fn a_second_experiment_gets_seeds_of_its_own_and_both_pass() {
    let (_folder, workspace) = planned();
    let at = ["--workspace", text(&workspace)];
    expect(0, &[&["new", "another"], &at[..]].concat());
    let plan = std::fs::read_to_string(workspace.join("data/another/experiment.toml")).unwrap();
    assert!(plan.contains("[11011]") && plan.contains("[52014, 52015]"), "{plan}");
    expect(0, &[&["audit"], &at[..]].concat());
    expect(0, &[&["site", "build"], &at[..]].concat());
}

#[test]
fn a_stage_that_cannot_start_locks_nothing_and_spends_no_seed() {
    let (_folder, workspace) = planned();
    let at = ["--workspace", text(&workspace)];
    let plan = "data/my-try/experiment.toml";
    edit(&workspace, plan, "smollm2-135m-instruct", "models/not-here");
    let output = expect(2, &[&["harvest", "my-try"], &at[..]].concat());
    assert!(said(&output).contains("models/not-here"), "{}", said(&output));
    assert!(!workspace.join("data/my-try/receipts/plan-harvest.json").exists());
    assert!(!workspace.join("data/seeds.jsonl").exists());
    // The plan may still be mended: the next failure is about the new source, not about a lock.
    edit(&workspace, plan, "models/not-here", "models/nor-here");
    let output = expect(2, &[&["harvest", "my-try"], &at[..]].concat());
    assert!(said(&output).contains("models/nor-here"), "{}", said(&output));
}
