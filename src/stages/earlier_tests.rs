//! Receipts that belong elsewhere: another experiment's, an edited one, a failed one, one of another
//! plan or build, one whose files changed since. Every later stage names it and stops.

use super::super::lab::Lab;
use super::super::testing::{Bench, THREE_WAY, babble, context, refused};
use super::super::{harvest, merge as merging, train as training};
use super::*;
use crate::episode::row::{HarvestRow, TrainingRow};
use crate::experiment::Purpose;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PLAN: &str = r#"
title = "A bench"
[model]
source = "no-such-model"
[harness]
evaluate = { answer_tokens = 40, slots = 4 }
[tasks]
environment = "gym"
train = ["caravan"]
held_out = ["kilnrite"]
levels = [1]
per_family = 4
[seeds]
harvest = [11001]
calibrate = [31001]
evaluate = [52004]
train = [1]
[[arms]]
name = "base"
[[arms]]
name = "tuned"
adapter = "receipt:train"
"#;

/// An experiment whose harvest, training and merge have left their receipts.
fn trained() -> Bench {
    let bench = Bench::of_plan(&format!("{PLAN}{THREE_WAY}"));
    let (root, plan) = (&bench.experiment.root, &bench.experiment.plan);
    let mut harvested = [HarvestRow {
        experiment: "bench".into(),
        family: "caravan".into(),
        level: 1,
        task_id: "caravan/L1/11001/0".into(),
        seed: 11001,
        rollout: 0,
        reward: Some(1.0),
        solved: Some(true),
        kept: true,
        reject: None,
        completion_tokens: 9,
        tokens_sha256: "t".into(),
        row_sha256: String::new(),
    }];
    harvest::write_rows(root, "harvest/11001.parquet", &mut harvested).unwrap();
    let files = |path: &str| super::super::lab::file_hashes(root, &[path.to_string()]).unwrap();
    let harvested = HarvestReceipt {
        passed: true,
        starved: None,
        plan_sha256: lock::lock(root, plan, Stage::Harvest).unwrap(),
        build: Some(BUILD.into()),
        model_sha256: "m".into(),
        families: BTreeMap::new(),
        samples: 1,
        kept: 1,
        contributing_families: 1,
        rejects: BTreeMap::new(),
        files: files("harvest/11001.parquet"),
    };
    receipts::write(root, "harvest", &harvested).unwrap();
    let mut curve = [TrainingRow {
        experiment: "bench".into(),
        train_seed: 1,
        step: 1,
        loss: 0.5,
        grad_norm: 1.0,
        learning_rate: 1e-4,
        loss_tokens: 4,
        tokens: 9,
        wall_ms: 3,
        row_sha256: String::new(),
    }];
    harvest::write_rows(root, "training/1.parquet", &mut curve).unwrap();
    let trained = TrainReceipt {
        passed: true,
        plan_sha256: lock::lock(root, plan, Stage::Train).unwrap(),
        harvest_sha256: receipts::sha256(root, "harvest").unwrap(),
        build: Some(BUILD.into()),
        model_sha256: "m".into(),
        train_seed: 1,
        rows: 1,
        skipped_too_long: 0,
        steps: 1,
        tokens: 9,
        first_loss: 0.5,
        last_loss: 0.5,
        adapter_sha256: "a".into(),
        files: files("training/1.parquet"),
    };
    receipts::write(root, "train", &trained).unwrap();
    let merged = MergeReceipt {
        passed: true,
        build: Some(BUILD.into()),
        model_sha256: "m".into(),
        adapter_sha256: "a".into(),
        merged_sha256: "x".into(),
        folder: "merged/1".into(),
        matched: 1,
        deltas: 1,
        delta_norm: 1.0,
        kept_share: 1.0,
        largest_logit_difference: 0.0,
        canaries_changed: 1,
        canaries: 2,
    };
    receipts::write(root, "merge", &merged).unwrap();
    bench
}

/// Runs the stage after that of a receipt.
fn next(bench: &Bench, receipt: &str) -> Result<()> {
    let experiment = &bench.experiment;
    match receipt {
        "harvest" => training::train(experiment, &mut Lab::default(), &context()).map(drop),
        "train" => merging::merge(experiment, &mut Lab::default(), &context()).map(drop),
        _ => bench.evaluate().map(drop),
    }
}

#[test]
fn receipts_that_belong_here_are_taken() {
    let bench = trained();
    harvest(&bench.experiment, &context()).unwrap();
    let own = train(&bench.experiment, &context()).unwrap();
    merge(&bench.experiment, &context(), &own).unwrap();
    // Nothing but the model is missing then.
    let error = bench.evaluate().unwrap_err().to_string();
    assert!(error.contains("no-such-model"), "{error}");
}

#[test]
fn a_missing_receipt_names_the_stage_that_makes_it() {
    for (name, command) in [
        ("harvest", "rederive harvest bench"),
        ("train", "rederive train bench"),
        ("merge", "rederive merge bench"),
    ] {
        let bench = trained();
        fs_err::remove_file(receipts::path(&bench.experiment.root, name)).unwrap();
        refused(next(&bench, name), 2, name, command);
    }
}

#[test]
fn an_edited_receipt_is_named() {
    for (name, from, to) in [
        ("harvest", "\"kept\": 1", "\"kept\": 2"),
        ("train", "0.5", "0.4"),
        ("merge", "\"matched\": 1", "\"matched\": 2"),
    ] {
        let bench = trained();
        bench.edit(name, from, to);
        refused(next(&bench, name), 1, name, "does not match its own hash");
    }
}

#[test]
fn a_failed_receipt_is_named() {
    for (name, words) in [
        ("harvest", "the harvest was starved"),
        ("train", "the training did not pass"),
        ("merge", "is not installed"),
    ] {
        let bench = trained();
        bench.resign(name, |receipt| receipt["passed"] = json!(false));
        refused(next(&bench, name), 1, name, words);
    }
    let bench = trained();
    bench.resign("harvest", |receipt| receipt["starved"] = json!("1 row was kept"));
    refused(next(&bench, "harvest"), 1, "harvest", "1 row was kept");
}

#[test]
fn a_receipt_of_another_plan_adapter_or_harvest_is_named() {
    let change: [(&str, fn(&mut Value), &str); 5] = [
        ("harvest", |r| r["plan_sha256"] = json!("0".repeat(64)), "belongs to another plan"),
        ("train", |r| r["plan_sha256"] = json!("0".repeat(64)), "belongs to another plan"),
        ("train", |r| r["harvest_sha256"] = json!("0".repeat(64)), "another harvest"),
        ("merge", |r| r["adapter_sha256"] = json!("b"), "belongs to another plan"),
        ("merge", |r| r["model_sha256"] = json!("n"), "belongs to another plan"),
    ];
    for (name, change, words) in change {
        let bench = trained();
        bench.resign(name, change);
        refused(next(&bench, name), 1, name, words);
    }
    // Evaluation looks at the training's receipt too, whatever the merge says.
    let bench = trained();
    bench.resign("train", |r| r["plan_sha256"] = json!("0".repeat(64)));
    refused(bench.evaluate(), 1, "train", "belongs to another plan");
}

#[test]
fn another_experiments_receipt_is_refused_for_its_files() {
    let (here, there) = (trained(), trained());
    // The same plan of training, and other rows.
    let mut rows = [TrainingRow {
        experiment: "there".into(),
        train_seed: 1,
        step: 1,
        loss: 0.7,
        grad_norm: 1.0,
        learning_rate: 1e-4,
        loss_tokens: 4,
        tokens: 9,
        wall_ms: 3,
        row_sha256: String::new(),
    }];
    harvest::write_rows(&there.experiment.root, "training/1.parquet", &mut rows).unwrap();
    let files =
        super::super::lab::file_hashes(&there.experiment.root, &["training/1.parquet".into()]).unwrap();
    there.resign("train", |receipt| receipt["files"] = json!(files));
    let copy = |name: &str| {
        let from = receipts::path(&there.experiment.root, name);
        fs_err::copy(from, receipts::path(&here.experiment.root, name)).unwrap();
    };
    copy("train");
    refused(
        next(&here, "train"),
        1,
        "train",
        "names `training/1.parquet`, which is not the one that it signed",
    );
}

#[test]
fn a_receipt_whose_files_changed_since_is_named() {
    for (name, file) in [("harvest", "harvest/11001.parquet"), ("train", "training/1.parquet")] {
        let bench = trained();
        let mut bytes = fs_err::read(bench.path(file)).unwrap();
        bytes.push(0);
        fs_err::write(bench.path(file), bytes).unwrap();
        refused(next(&bench, name), 1, name, file);
        fs_err::remove_file(bench.path(file)).unwrap();
        refused(next(&bench, name), 1, name, "is not there");
    }
}

#[test]
fn a_receipt_of_another_build_is_taken_only_when_it_is_accepted() {
    for name in ["harvest", "train", "merge"] {
        let bench = trained();
        bench.resign(name, |receipt| receipt["build"] = json!("another"));
        if name == "harvest" {
            // The training names the harvest that it was on.
            let harvested = receipts::sha256(&bench.experiment.root, "harvest").unwrap();
            bench.resign("train", |receipt| receipt["harvest_sha256"] = json!(harvested));
        }
        refused(next(&bench, name), 1, name, "left by another build");
        let accepting = Context { accept_engine: true, ..context() };
        let own = train(&bench.experiment, &accepting).unwrap();
        harvest(&bench.experiment, &accepting).unwrap();
        merge(&bench.experiment, &accepting, &own).unwrap();
    }
    // Receipts from before builds were noted are taken.
    let bench = trained();
    bench.resign("train", |receipt| drop(receipt.as_object_mut().unwrap().remove("build")));
    train(&bench.experiment, &context()).unwrap();
}

fn decided() -> Bench {
    let bench = Bench::new(THREE_WAY);
    for (arm, purpose, seed) in [
        ("base", Purpose::Calibrate, 31001),
        ("base", Purpose::Evaluate, 52004),
        ("other", Purpose::Evaluate, 52004),
    ] {
        bench.play(arm, purpose, seed, babble);
    }
    bench.evaluate().unwrap();
    bench
}

#[test]
fn a_decision_is_given_again_only_over_its_own_files_and_plan() {
    let bench = decided();
    bench.evaluate().unwrap();
    bench.resign("decision", |receipt| receipt["plan_sha256"] = json!("0".repeat(64)));
    refused(bench.evaluate(), 1, "decision", "belongs to another plan");
    let bench = decided();
    bench.edit("decision", "\"moved\": 0", "\"moved\": 9");
    refused(bench.evaluate(), 1, "decision", "does not match its own hash");
    // The files of another run of the same plan, listed as they should be.
    let (here, there) = (decided(), decided());
    let unit = "episodes/other/52004.parquet";
    let mut rows: Vec<crate::episode::EpisodeRow> =
        crate::episode::table::read_chain_checked(&there.path(unit)).unwrap();
    rows[0].reward = Some(1.0);
    harvest::write_rows(&here.experiment.root, unit, &mut rows).unwrap();
    refused(here.evaluate(), 1, "decision", unit);
}

#[test]
fn rows_from_elsewhere_decide_nothing() {
    let change: [fn(&mut crate::episode::EpisodeRow); 4] = [
        |row| row.experiment = "there".into(),
        |row| row.plan_sha256 = "0".repeat(64),
        |row| row.arm = "base".into(),
        |row| row.seed = 52005,
    ];
    for change in change {
        let bench = decided();
        fs_err::remove_file(receipts::path(&bench.experiment.root, "decision")).unwrap();
        let unit = "episodes/other/52004.parquet";
        let mut rows: Vec<crate::episode::EpisodeRow> =
            crate::episode::table::read_chain_checked(&bench.path(unit)).unwrap();
        change(&mut rows[2]);
        harvest::write_rows(&bench.experiment.root, unit, &mut rows).unwrap();
        let error = bench.evaluate().unwrap_err();
        assert!(error.to_string().contains("52004.parquet: row 3"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
}
