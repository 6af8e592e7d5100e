//! Attacks on locks, receipts, the decision, the verdict, weights and the seed ledger: each is
//! planted with every other hash made right again.

use super::attacks::{caught, found, run};
use super::workspace::{Workspace, plan, plan_sha256};
use crate::audit::AuditReport;
use crate::episode::row::{EpisodeRow, HarvestRow, TrainingRow};
use crate::experiment::{Stage, lock};
use serde_json::{Value, json};

const REPORT: &str = "site/experiments/demo/report.md";

/// Changes the decision receipt, which is signed anew.
fn decided(change: impl FnOnce(&mut Value)) -> AuditReport {
    let workspace = Workspace::honest();
    workspace.edit_receipt("decision", change);
    let report = run(&workspace);
    caught(&report, "decision", "receipts/decision.json", None);
    report
}

#[test]
fn rows_and_receipts_without_their_plan_are_named() {
    let workspace = Workspace::honest();
    workspace.delete("experiment.toml");
    caught(&run(&workspace), "plan_lock", "data/demo/experiment.toml", None);
    workspace.text("data/other/receipts/train.json", "{}");
    caught(&run(&workspace), "plan_lock", "data/other/experiment.toml", None);
}

#[test]
fn a_lock_edited_or_of_another_plan_is_named() {
    let workspace = Workspace::honest();
    workspace.replace("data/demo/receipts/plan-evaluate.json", "0.03", "0.02");
    let report = run(&workspace);
    caught(&report, "plan_lock", "receipts/plan-evaluate.json", None);
    found(&report, "plan_lock", "its own hash");

    let workspace = Workspace::honest();
    workspace.replace("data/demo/experiment.toml", "minimum_delta = 0.03", "minimum_delta = 0.01");
    let report = run(&workspace);
    caught(&report, "plan_lock", "receipts/plan-evaluate.json", None);
    found(&report, "plan_lock", "`decision.minimum_delta` was 0.03, now 0.01");
    found(&report, "decision", "leg 1: bar");
}

#[test]
fn a_bar_lowered_in_plan_and_lock_does_not_fit_the_rows() {
    let workspace = Workspace::honest();
    workspace.replace("data/demo/experiment.toml", "minimum_delta = 0.03", "minimum_delta = 0.01");
    let path = workspace.root().join("data/demo");
    fs_err::remove_file(lock::lock_path(&path, Stage::Evaluate)).unwrap();
    let mut lowered = plan().clone();
    lowered.decision.minimum_delta = Some(0.01);
    lowered.gates.clear();
    workspace.text("data/demo/experiment.toml", &toml::to_string(&lowered).unwrap());
    lock::lock(&path, &lowered, Stage::Evaluate).unwrap();
    let report = run(&workspace);
    caught(&report, "plan_lock", "episodes/base/52004.parquet", Some(1));
    caught(&report, "plan_lock", "receipts/decision.json", None);
}

#[test]
fn a_missing_lock_is_named_for_each_stage() {
    for stage in ["harvest", "train", "evaluate"] {
        let workspace = Workspace::honest();
        let lock = format!("receipts/plan-{stage}.json");
        workspace.delete(&lock);
        caught(&run(&workspace), "plan_lock", &lock, None);
    }
}

#[test]
fn a_row_of_another_plan_is_named() {
    let workspace = Workspace::honest();
    let file = "episodes/treatment/52005.parquet";
    let mut rows: Vec<EpisodeRow> = workspace.rows(file);
    rows[4].plan_sha256 = plan_sha256(Stage::Train);
    workspace.put(file, &mut rows);
    caught(&run(&workspace), "plan_lock", file, Some(5));
}

#[test]
fn a_plan_that_cannot_be_read_is_named_once_something_ran() {
    let workspace = Workspace::honest();
    workspace.replace("data/demo/experiment.toml", "per_family", "per_famly");
    caught(&run(&workspace), "plan_lock", "experiment.toml", None);
}

#[test]
fn each_missing_receipt_is_named() {
    for name in ["harvest", "train", "merge", "headroom", "decision"] {
        let workspace = Workspace::honest();
        let file = format!("receipts/{name}.json");
        workspace.delete(&file);
        caught(&run(&workspace), "receipt_missing", &file, None);
    }
    // Without the plan nothing else can be asked, and that is what is found.
    let workspace = Workspace::honest();
    for file in ["experiment.toml", "receipts/decision.json", "receipts/plan-evaluate.json"] {
        workspace.delete(file);
    }
    let rules: Vec<&str> = run(&workspace).findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["plan_lock", "verdict"]);
}

#[test]
fn every_number_of_the_decision_is_recomputed() {
    let report = decided(|receipt| receipt["decision"]["outcome"] = json!("negative"));
    found(&report, "decision", "the outcome says `negative`, the rows give `positive`");
    caught(&report, "verdict", REPORT, None);
    for (key, value) in [
        ("delta", json!(0.26)),
        ("low", json!(0.1)),
        ("high", Value::Null),
        ("tasks", json!(25)),
        ("moved", json!(7)),
    ] {
        found(&decided(|receipt| receipt["decision"][key] = value), "decision", &format!("{key} is"));
    }
    for (leg, key, value) in [
        (0, "value", json!(0.3)),
        (1, "bar", json!(0.01)),
        (2, "holds", json!(false)),
        (2, "value", json!(0.09)),
    ] {
        let report = decided(|receipt| receipt["decision"]["legs"][leg][key] = value);
        found(&report, "decision", &format!("leg {}: ", leg + 1));
    }
    found(&decided(|receipt| receipt["null_spread"] = json!(0.0)), "decision", "null_spread is 0.0");
    let dropped = |receipt: &mut Value| {
        receipt["decision"]["legs"].as_array_mut().unwrap().pop();
    };
    found(&decided(dropped), "decision", "2 legs are recorded, the rule has 3");
    let freed = |receipt: &mut Value| receipt["files"] = json!({});
    found(&decided(freed), "decision", "`episodes/treatment/52005.parquet`");
    found(
        &decided(|receipt| receipt["arms"] = json!(["treatment", "base"])),
        "decision",
        "the plan compares",
    );
}

#[test]
fn rows_that_were_swapped_and_sealed_anew_give_another_decision() {
    let workspace = Workspace::honest();
    let file = "episodes/treatment/52005.parquet";
    let mut rows: Vec<EpisodeRow> = workspace.rows(file);
    rows.iter_mut().for_each(|row| row.reward = Some(0.0));
    workspace.put(file, &mut rows);
    workspace.signed("decision", &workspace.decision());
    let report = run(&workspace);
    found(&report, "decision", "the rows give `inconclusive`");
    found(&report, "decision", "leg 2: value is 0.25, the rows give -0.25");
    found(&report, "decision", "3 legs are recorded, the rule has 4");
}

#[test]
fn a_verdict_needs_the_receipt_that_gives_it() {
    for verdict in ["negative", "inconclusive", "design-negative", "instrument-only"] {
        let workspace = Workspace::honest();
        workspace.replace(REPORT, "verdict = \"positive\"", &format!("verdict = \"{verdict}\""));
        caught(&run(&workspace), "verdict", REPORT, None);
    }
    let workspace = Workspace::honest();
    workspace.replace(REPORT, "verdict = \"positive\"\n", "");
    caught(&run(&workspace), "verdict", REPORT, None);

    let undecided = |verdict: &str| {
        let workspace = Workspace::honest();
        workspace.delete("receipts/decision.json");
        workspace.replace(REPORT, "lifecycle = \"finished\"", "lifecycle = \"stopped\"");
        workspace.replace(REPORT, "verdict = \"positive\"", verdict);
        workspace
    };
    for verdict in [
        "verdict = \"positive\"",
        "verdict = \"design-negative\"",
        "verdict = \"inconclusive\"\nstarved = true",
    ] {
        caught(&run(&undecided(verdict)), "verdict", REPORT, None);
    }
    let refused = undecided("verdict = \"design-negative\"");
    refused.calibrate(|i| i < 6);
    refused.signed("headroom", &refused.headroom_of(6.0, 0.0));
    let report = run(&refused);
    assert!(report.findings.iter().all(|finding| finding.rule == "gate_bypassed"), "{:?}", report.findings);
    caught(&report, "gate_bypassed", "receipts/headroom.json", None);
}

#[test]
fn a_report_does_not_lag_behind_its_receipts() {
    let said = |lifecycle: &str, verdict: &str| {
        let workspace = Workspace::honest();
        workspace.replace(REPORT, "lifecycle = \"finished\"", &format!("lifecycle = \"{lifecycle}\""));
        workspace.replace(REPORT, "verdict = \"positive\"\n", verdict);
        workspace
    };
    for lifecycle in ["planned", "in-progress"] {
        caught(&run(&said(lifecycle, "")), "lifecycle", REPORT, None);
    }
    let begun = said("planned", "");
    begun.delete("receipts/decision.json");
    let report = run(&begun);
    caught(&report, "lifecycle", REPORT, None);
    found(&report, "lifecycle", "say `in-progress`");
    let underway = said("in-progress", "");
    underway.delete("receipts/decision.json");
    assert!(run(&underway).findings.iter().all(|finding| finding.rule != "lifecycle"));

    // An adapter that changes nothing ends it as inconclusive, and the merge receipt must say so.
    let unchanged = said("stopped", "verdict = \"inconclusive\"\n");
    unchanged.delete("receipts/decision.json");
    caught(&run(&unchanged), "verdict", REPORT, None);
    let mut receipt = unchanged.merge();
    receipt["passed"] = json!(false);
    receipt["canaries_changed"] = json!(0);
    unchanged.signed("merge", &receipt);
    assert!(run(&unchanged).findings.iter().all(|finding| finding.rule != "verdict"));
    unchanged.replace(REPORT, "lifecycle = \"stopped\"", "lifecycle = \"in-progress\"");
    let report = run(&unchanged);
    found(&report, "lifecycle", "receipts/merge.json ended the experiment");
    found(&report, "gate_bypassed", "episodes of the trained adapter exist");
}

#[test]
fn starved_is_said_only_where_the_harvest_was() {
    let workspace = Workspace::honest();
    workspace.replace(REPORT, "lifecycle = ", "starved = true\nlifecycle = ");
    found(&run(&workspace), "verdict", "no harvest receipt does");
}

/// A report that is no longer current, or says nothing, states no other outcome either.
#[test]
fn an_outcome_in_prose_is_held_against_the_decision_in_every_state() {
    for (lifecycle, text) in
        [("superseded", "The outcome is negative."), ("retracted", "The outcome\u{a0}is\nnega\u{ad}tive.")]
    {
        let workspace = Workspace::honest();
        workspace.replace(REPORT, "lifecycle = \"finished\"", &format!("lifecycle = \"{lifecycle}\""));
        workspace.replace(REPORT, "verdict = \"positive\"\n", "");
        let path = workspace.root().join(REPORT);
        let report = fs_err::read_to_string(&path).unwrap();
        fs_err::write(&path, format!("{report}\n\n{text}\n")).unwrap();
        found(&run(&workspace), "verdict", "says the outcome is negative, and it is positive");
    }
}

#[test]
fn a_foreign_plan_or_receipt_is_no_source() {
    let workspace = Workspace::honest();
    workspace.text("data/notes/experiment.toml", "score = 0.97\n");
    caught(&run(&workspace), "plan_lock", "data/notes/experiment.toml", None);
    let workspace = Workspace::honest();
    workspace.text("data/demo/receipts/plan-x.json", "{\"score\": 0.97}");
    caught(&run(&workspace), "receipt_file", "receipts/plan-x.json", None);
}

#[test]
fn weights_are_held_against_their_receipts() {
    for file in ["adapters/1/adapter_model.safetensors", "merged/1/model.safetensors"] {
        let workspace = Workspace::honest();
        workspace.text(&format!("data/demo/{file}"), "other weights");
        caught(&run(&workspace), "weights", file, None);
        // Weights may be kept elsewhere.
        workspace.delete(file);
        assert!(run(&workspace).passed());
    }
    let workspace = Workspace::honest();
    workspace.text("data/demo/merged/1/extra.safetensors", "a second shard");
    caught(&run(&workspace), "weights", "merged/1", None);

    let file = "episodes/treatment/52004.parquet";
    for change in
        [(|row: &mut EpisodeRow| row.adapter_sha256 = Some("b".repeat(64))) as fn(&mut EpisodeRow), |row| {
            row.model_sha256 = "b".repeat(64)
        }]
    {
        let workspace = Workspace::honest();
        let mut rows: Vec<EpisodeRow> = workspace.rows(file);
        change(&mut rows[6]);
        workspace.put(file, &mut rows);
        caught(&run(&workspace), "weights", file, Some(7));
    }
}

#[test]
fn harvest_counts_are_held_against_the_rows() {
    let workspace = Workspace::honest();
    let mut rows: Vec<HarvestRow> = workspace.rows("harvest/11001.parquet");
    rows[3].kept = true;
    rows[3].reject = None;
    workspace.put("harvest/11001.parquet", &mut rows);
    let report = run(&workspace);
    caught(&report, "weights", "receipts/harvest.json", None);
    for key in ["`kept` is 3", "`families` is", "`rejects` is"] {
        found(&report, "weights", key);
    }
}

#[test]
fn a_seed_that_the_ledger_does_not_hold_is_named() {
    let workspace = Workspace::honest();
    workspace.replace("data/seeds.jsonl", "\"seed\":52005", "\"seed\":52006");
    let report = run(&workspace);
    caught(&report, "seed_ledger", "episodes/base/52005.parquet", Some(1));
    caught(&report, "seed_ledger", "episodes/treatment/52005.parquet", Some(1));

    let workspace = Workspace::honest();
    workspace.replace("data/seeds.jsonl", "\"purpose\":\"harvest\"", "\"purpose\":\"null\"");
    caught(&run(&workspace), "seed_ledger", "harvest/11001.parquet", Some(1));
}

#[test]
fn a_hidden_address_is_a_finding() {
    for text in ["See <derive:demo.delta>.", "See [0.9][x].\n\n[x]: derive:demo.delta\n"] {
        let workspace = Workspace::honest();
        workspace.text("site/pages/about.md", text);
        caught(&run(&workspace), "link", "site/pages/about.md", None);
    }
}

#[test]
fn training_without_its_harvest_is_named() {
    let workspace = Workspace::honest();
    assert_eq!(workspace.rows::<TrainingRow>("training/1.parquet").len(), 2);
    workspace.delete("receipts/harvest.json");
    workspace.delete("harvest/11001.parquet");
    caught(&run(&workspace), "receipt_missing", "receipts/harvest.json", None);
}
