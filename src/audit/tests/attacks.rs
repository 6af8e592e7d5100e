//! Attacks planted in a copy of an honest workspace: each is named by rule, file and row, and
//! nothing is said of the untouched copy.

use super::workspace::{Workspace, episode, sample};
use crate::audit::{AuditReport, Options, Verdict, audit};
use crate::episode::row::{EpisodeRow, HarvestRow};
use std::collections::BTreeMap;

const TREATED: &str = "episodes/treatment/52004.parquet";

pub fn run(workspace: &Workspace) -> AuditReport {
    audit(workspace.root(), Options::default()).unwrap()
}

/// Asserts that a rule fired on a file of the experiment, at a row where one is given.
pub fn caught(report: &AuditReport, rule: &str, file: &str, row: Option<usize>) {
    let hit = report.findings.iter().any(|f| {
        f.rule == rule
            && (f.file == file || f.file == format!("data/demo/{file}"))
            && (row.is_none() || f.row == row)
    });
    assert!(hit, "{rule} on {file} {row:?} is not among {:#?}", report.findings);
    assert!(!report.passed());
}

/// Asserts that a rule fired with these words in what it says.
pub fn found(report: &AuditReport, rule: &str, words: &str) {
    let hit = report.findings.iter().any(|f| f.rule == rule && f.detail.contains(words));
    assert!(hit, "{rule}: {words} is not among {:#?}", report.findings);
}

fn mismatched(report: &AuditReport) -> Vec<&str> {
    let wrong = report.verdicts.iter().filter(|entry| entry.verdict == Verdict::Mismatch);
    wrong.map(|entry| entry.reference.as_str()).collect()
}

#[test]
fn the_untouched_copy_passes() {
    let report = run(&Workspace::honest());
    assert!(report.passed(), "{}", report.render(100));
    assert_eq!(report.summary.matches, 21, "{}", report.render(100));
    assert_eq!((report.summary.cited, report.summary.unverifiable), (1, 0));
    assert_eq!((report.files_checked, report.rows_checked), (27, 134));
    assert_eq!(report.verdict_of("derive:demo.human"), Some(Verdict::Cited));
}

#[test]
fn a_flipped_reward_breaks_file_hash_chain_and_number() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[7].reward = Some(1.0);
    workspace.overwrite(TREATED, &rows);
    let report = run(&workspace);
    caught(&report, "file_hash", TREATED, None);
    caught(&report, "row_chain", TREATED, Some(8));
    assert_eq!(report.findings.iter().filter(|f| f.rule == "row_chain").count(), 1);
    assert!(mismatched(&report).contains(&"derive:demo.delta"));
}

#[test]
fn a_change_below_printed_precision_is_seen_by_the_chain() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[7].reward = Some(1e-9);
    workspace.overwrite(TREATED, &rows);
    workspace.fix_file_hash::<EpisodeRow>(TREATED);
    let report = run(&workspace);
    caught(&report, "row_chain", TREATED, Some(8));
    // Nothing but the hashes gives it away.
    assert!(
        report
            .findings
            .iter()
            .all(|f| ["row_chain", "receipt_file"].contains(&f.rule) || f.detail.starts_with("moved"))
    );
    assert!(mismatched(&report).is_empty());
}

#[test]
fn a_chain_sealed_anew_ends_in_another_hash() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[7].wall_ms += 1;
    crate::episode::chain::seal(&mut rows).unwrap();
    workspace.overwrite(TREATED, &rows);
    workspace.fix_file_hash::<EpisodeRow>(TREATED);
    caught(&run(&workspace), "last_row", TREATED, Some(12));
}

#[test]
fn a_dropped_row_breaks_chain_and_pairs() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows.remove(4);
    workspace.overwrite(TREATED, &rows);
    let report = run(&workspace);
    caught(&report, "row_chain", TREATED, Some(5));
    caught(&report, "row_count", TREATED, None);
    // Even when everything is sealed again, the pair is missing.
    workspace.put(TREATED, &mut rows);
    let report = run(&workspace);
    caught(&report, "missing_pairs", TREATED, None);
    assert!(report.findings.iter().any(|f| f.detail.contains("brinework/L1/52004/4")));
}

#[test]
fn a_whole_missing_unit_is_seen() {
    let workspace = Workspace::honest();
    workspace.delete(TREATED);
    let report = run(&workspace);
    caught(&report, "missing_file", TREATED, None);
    caught(&report, "missing_pairs", TREATED, None);
}

#[test]
fn a_duplicated_row_is_named() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows.insert(3, rows[2].clone());
    workspace.put(TREATED, &mut rows);
    caught(&run(&workspace), "duplicate_row", TREATED, Some(4));
}

#[test]
fn a_swapped_arm_label_is_named() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[2].arm = "base".into();
    rows[2].train_seed = None;
    workspace.put(TREATED, &mut rows);
    let report = run(&workspace);
    caught(&report, "arm_differs_from_file", TREATED, Some(3));
    caught(&report, "duplicate_row", TREATED, Some(3));
}

#[test]
fn a_row_from_another_seed_is_named() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[11] = episode("treatment", 60001, 11, true);
    workspace.put(TREATED, &mut rows);
    let report = run(&workspace);
    caught(&report, "seed_differs_from_file", TREATED, Some(12));
    caught(&report, "seed_not_planned", TREATED, Some(12));
}

#[test]
fn a_row_of_another_experiment_is_named() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[0].experiment = "other".into();
    workspace.put(TREATED, &mut rows);
    caught(&run(&workspace), "experiment_differs_from_folder", TREATED, Some(1));
}

#[test]
fn a_rerounded_number_is_named_with_its_line() {
    let workspace = Workspace::honest();
    workspace.replace(
        "site/experiments/demo/report.md",
        "[0.090](derive:demo.delta.se)",
        "[0.091](derive:demo.delta.se)",
    );
    let report = run(&workspace);
    let entry = report.verdicts.iter().find(|entry| entry.verdict == Verdict::Mismatch).unwrap();
    assert_eq!((entry.printed.as_str(), entry.reference.as_str()), ("0.091", "derive:demo.delta.se"));
    assert!(entry.place.starts_with("site/experiments/demo/report.md:"));
    assert_eq!(report.summary.mismatches, 1);
    assert!(report.render(80).contains("mismatch") && !report.passed());
}

#[test]
fn numbers_in_cards_plain_text_log_and_claims_are_seen() {
    for (file, from, to) in [
        ("site/experiments/demo/report.md", "[25%](derive:demo.base)", "[26%](derive:demo.base)"),
        ("site/experiments/demo/report.md", "[0.25](derive:demo.base)", "[0.26](derive:demo.base)"),
        ("site/experiments/demo/log.md", "[+0.25](derive:demo.delta)", "[+0.24](derive:demo.delta)"),
        ("claims/C0001-commit.md", "[+0.25](derive:demo.delta)", "[-0.25](derive:demo.delta)"),
        ("claims/C0001-commit.md", "[0.5](derive:C0001.pass)", "[0.5](derive:C0001.passed)"),
        ("site/experiments/demo/report.md", "[0.93](derive:demo.human)", "[0.94](derive:demo.human)"),
    ] {
        let workspace = Workspace::honest();
        workspace.replace(file, from, to);
        assert_eq!(run(&workspace).summary.mismatches, 1, "{to}");
    }
}

#[test]
fn stale_extra_and_damaged_files_are_named() {
    let workspace = Workspace::honest();
    workspace.replace("data/demo/hashes.json", &workspace.sha256(TREATED), &"0".repeat(64));
    caught(&run(&workspace), "file_hash", TREATED, None);

    let workspace = Workspace::honest();
    workspace.overwrite("episodes/treatment/52006.parquet", &[episode("treatment", 52006, 0, true)]);
    caught(&run(&workspace), "extra_file", "episodes/treatment/52006.parquet", None);

    let workspace = Workspace::honest();
    workspace.truncate(TREATED, 100);
    let report = run(&workspace);
    caught(&report, "unreadable_file", TREATED, None);
    assert_eq!(report.verdict_of("derive:demo.delta"), Some(Verdict::Unverifiable));

    let workspace = Workspace::honest();
    fs_err::remove_file(workspace.root().join("data/demo/hashes.json")).unwrap();
    caught(&run(&workspace), "no_hashes", "hashes.json", None);
}

#[test]
fn an_edited_receipt_is_named() {
    let workspace = Workspace::honest();
    workspace.replace("data/demo/receipts/harvest.json", "\"samples\": 4", "\"samples\": 5, \"samples\": 4");
    caught(&run(&workspace), "unreadable_file", "receipts/harvest.json", None);

    let workspace = Workspace::honest();
    workspace.replace("data/demo/receipts/harvest.json", "\"samples\": 4", "\"samples\": 5");
    caught(&run(&workspace), "receipt_edited", "receipts/harvest.json", None);

    let workspace = Workspace::honest();
    workspace.receipt(&serde_json::json!({"samples": 4, "files": {"harvest/11001.parquet": "0".repeat(64)}}));
    caught(&run(&workspace), "receipt_file", "receipts/harvest.json", None);
}

#[test]
fn a_hand_edited_summary_is_seen() {
    let workspace = Workspace::honest();
    let honest = BTreeMap::from([
        ("derive:demo.delta".to_string(), Some(0.25)),
        ("demo.by_family/caravan.n".to_string(), Some(12.0)),
    ]);
    let report = audit(workspace.root(), Options { book: Some(&honest) }).unwrap();
    assert!(report.passed() && report.summary.matches == 23, "{}", report.render(100));
    for wrong in [Some(0.25 + 1e-8), None] {
        let edited = BTreeMap::from([("derive:demo.delta".to_string(), wrong)]);
        let report = audit(workspace.root(), Options { book: Some(&edited) }).unwrap();
        assert_eq!(mismatched(&report), ["derive:demo.delta"], "{wrong:?}");
    }
}

#[test]
fn a_field_that_was_never_written_has_no_mean() {
    let workspace = Workspace::honest();
    workspace.replace(
        "claims/C0001-commit.md",
        "Reward rose",
        "Thought for [0.00](derive:demo.unwritten) tokens. Reward rose",
    );
    let report = run(&workspace);
    assert_eq!(report.verdict_of("derive:demo.unwritten"), Some(Verdict::Unverifiable));
    workspace.replace(
        "site/experiments/demo/report.md",
        "of = \"think_tokens\"",
        "of = \"think_tokens\"\nnulls = \"omit\"",
    );
    assert_eq!(run(&workspace).verdict_of("derive:demo.unwritten"), Some(Verdict::Mismatch));
}

#[test]
fn pass_at_k_beyond_the_rollouts_has_no_value() {
    let workspace = Workspace::honest();
    workspace.replace("claims/C0001-commit.md", "k = 1", "k = 2");
    assert_eq!(run(&workspace).verdict_of("derive:C0001.pass"), Some(Verdict::Mismatch));
    workspace.replace("claims/C0001-commit.md", "[0.5](derive:C0001.pass)", "[—](derive:C0001.pass)");
    assert_eq!(run(&workspace).verdict_of("derive:C0001.pass"), Some(Verdict::Match));
}

#[test]
fn a_reward_outside_its_range_is_named() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[0].reward = Some(1.5);
    workspace.put(TREATED, &mut rows);
    caught(&run(&workspace), "reward_outside_range", TREATED, Some(1));
}

#[test]
fn an_adapter_that_changed_nothing_is_named() {
    let workspace = Workspace::honest();
    for seed in super::workspace::SEEDS {
        let file = format!("episodes/treatment/{seed}.parquet");
        let mut rows: Vec<EpisodeRow> = workspace.rows(&file);
        rows.iter_mut().for_each(|row| {
            row.tokens_sha256 = row.tokens_sha256.take().map(|t| t.replace("treatment", "base"))
        });
        workspace.put(&file, &mut rows);
    }
    caught(&run(&workspace), "adapter_changed_nothing", TREATED, None);
}

#[test]
fn held_out_tasks_in_the_harvest_are_named() {
    let workspace = Workspace::honest();
    let mut rows: Vec<HarvestRow> = (0..4).map(sample).collect();
    rows[1].family = "brinework".into();
    rows[2].task_id = "caravan/L1/52004/1".into();
    workspace.put("harvest/11001.parquet", &mut rows);
    let report = run(&workspace);
    caught(&report, "held_out_in_harvest", "harvest/11001.parquet", Some(2));
    caught(&report, "evaluated_task_in_harvest", "harvest/11001.parquet", Some(3));
}

#[test]
fn a_seed_spent_twice_is_named() {
    let workspace = Workspace::honest();
    workspace.text("data/later/experiment.toml", "[seeds]\nevaluate = [52005]\n");
    let report = run(&workspace);
    caught(&report, "seed_spent_twice", "data/later/experiment.toml", None);

    let workspace = Workspace::honest();
    workspace.replace("data/demo/experiment.toml", "train = [1]", "train = [1]\nnull = [52004]");
    caught(&run(&workspace), "seed_spent_twice", "experiment.toml", None);

    let workspace = Workspace::honest();
    let line = "{\"seed\": 52004, \"purpose\": \"evaluate\", \"experiment\": \"gone\", \"at\": \"\"}\n";
    workspace.text("data/seeds.jsonl", line);
    assert!(run(&workspace).findings.iter().any(|f| f.rule == "seed_spent_twice"));
}

#[test]
fn the_report_is_plain_text_within_its_width_and_json() {
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows(TREATED);
    rows[7].reward = Some(1.0);
    workspace.overwrite(TREATED, &rows);
    let report = run(&workspace);
    let text = report.render(80);
    let lines: Vec<&str> = text.lines().collect();
    let first_match = lines.iter().position(|line| line.ends_with("  match")).unwrap();
    let last_mismatch = lines.iter().rposition(|line| line.ends_with("  mismatch")).unwrap();
    assert!(last_mismatch < first_match);
    assert!(text.lines().last().unwrap().ends_with("rows checked"));
    for line in text.lines() {
        assert!(line.chars().count() <= 80 || !line.contains("  match"), "{line}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["summary"]["findings"], report.findings.len());
    assert_eq!(json["verdicts"][0]["verdict"].as_str().map(str::is_empty), Some(false));
}

#[test]
fn one_flip_in_ten_thousand_rows_is_named_though_no_printed_digit_moves() {
    let workspace = Workspace::honest();
    let file = "calls/base/52004.parquet";
    let call = |i: i64| {
        let mut call = crate::episode::testing::call_rows(1).remove(0);
        (call.experiment, call.arm, call.seed) = ("demo".into(), "base".into(), 52004);
        (call.task_id, call.rollout, call.turn) = (format!("filler/{i}"), 0, 0);
        call.completion_tokens = Some(100 + i % 7);
        call
    };
    // Calls of twelve episodes, and of ten thousand that another file keeps.
    let mut calls: Vec<crate::episode::row::CallRow> = (0..10_000).map(call).collect();
    workspace.put(file, &mut calls);
    workspace.replace(
        "site/experiments/demo/report.md",
        "[derivations.flips]",
        "[derivations.tokens]\ndata = \"calls\"\nestimator = \"mean\"\nof = \"completion_tokens\"\nwhere = { arm = \"base\", seed = 52004 }\n[derivations.flips]",
    );
    workspace.replace(
        "site/experiments/demo/report.md",
        "The change is",
        "Calls took [103.0](derive:demo.tokens). The change is",
    );
    let honest = run(&workspace);
    assert!(honest.verdicts.iter().all(|entry| entry.verdict != Verdict::Mismatch));
    assert!(honest.findings.iter().all(|finding| finding.rule == "calls_differ"), "{:?}", honest.findings);
    calls[6_789].completion_tokens = Some(100);
    workspace.overwrite(file, &calls);
    workspace.fix_file_hash::<crate::episode::row::CallRow>(file);
    let report = run(&workspace);
    assert!(report.verdicts.iter().all(|entry| entry.verdict != Verdict::Mismatch), "no printed digit moves");
    caught(&report, "row_chain", file, Some(6_790));
}
