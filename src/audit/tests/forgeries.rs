//! A forger who knows the formats: rows are sealed again, hashes listed again and receipts signed
//! again after each change, so that only what the plan and the rows say of each other is left.

use super::attacks::{caught, found, run};
use super::workspace::{SEEDS, Workspace, episode};
use crate::audit::{Entry, Verdict};
use crate::episode::row::{CallRow, EpisodeRow};
use serde_json::{Value, json};

const TREATED: &str = "episodes/treatment/52004.parquet";
const REPORT: &str = "site/experiments/demo/report.md";
const PLAN: &str = "data/demo/experiment.toml";
const CLAIM: &str = "claims/C0001-commit.md";

/// Changes the rows of a file and seals them; the decision is signed anew over the new files.
fn reseal(workspace: &Workspace, file: &str, change: impl FnOnce(&mut Vec<EpisodeRow>)) {
    let mut rows: Vec<EpisodeRow> = workspace.rows(file);
    change(&mut rows);
    workspace.put(file, &mut rows);
    workspace.signed("decision", &workspace.decision());
}

/// The rule that names a change of the rows of the treatment under one seed.
fn rows_caught(rule: &str, row: Option<usize>, change: impl FnOnce(&mut Vec<EpisodeRow>)) {
    let workspace = Workspace::honest();
    reseal(&workspace, TREATED, change);
    caught(&run(&workspace), rule, TREATED, row);
}

/// Changes a signed receipt and signs it again.
fn receipt_caught(name: &str, rule: &str, words: &str, change: impl FnOnce(&mut Value)) {
    let workspace = Workspace::honest();
    workspace.edit_receipt(name, change);
    let report = run(&workspace);
    caught(&report, rule, &format!("receipts/{name}.json"), None);
    found(&report, rule, words);
}

#[test]
fn a_task_dropped_from_both_arms_leaves_the_unit_incomplete() {
    let workspace = Workspace::honest();
    for arm in ["base", "treatment"] {
        reseal(&workspace, &format!("episodes/{arm}/52004.parquet"), |rows| drop(rows.remove(5)));
    }
    let report = run(&workspace);
    caught(&report, "unit_incomplete", TREATED, None);
    assert!(report.findings.iter().any(|f| f.detail.contains("5 attempts at family `brinework`, level 1")));
    assert!(!report.findings.iter().any(|f| f.rule == "missing_pairs"));
}

#[test]
fn an_episode_copied_under_another_id_is_one_too_many() {
    let workspace = Workspace::honest();
    for arm in ["base", "treatment"] {
        reseal(&workspace, &format!("episodes/{arm}/52004.parquet"), |rows| {
            let copy = EpisodeRow { task_id: "brinework/L1/52004/99".into(), ..rows[0].clone() };
            rows.push(copy);
        });
    }
    caught(&run(&workspace), "unit_incomplete", TREATED, None);
}

#[test]
fn rows_of_an_invented_training_seed_are_named() {
    rows_caught("row_not_of_plan", Some(13), |rows| {
        let copies: Vec<EpisodeRow> =
            rows.iter().map(|row| EpisodeRow { train_seed: Some(2), ..row.clone() }).collect();
        rows.extend(copies);
    });
    rows_caught("row_not_of_plan", Some(3), |rows| rows[2].train_seed = None);
}

/// Changes both arms alike under one seed; the counts of attempts stay as planned.
fn both_caught(rule: &str, words: &str, change: fn(&mut Vec<EpisodeRow>)) {
    let workspace = Workspace::honest();
    for arm in ["base", "treatment"] {
        reseal(&workspace, &format!("episodes/{arm}/52004.parquet"), change);
    }
    let report = run(&workspace);
    caught(&report, rule, TREATED, None);
    let said = report.findings.iter().any(|f| f.rule == rule && f.detail.contains(words));
    assert!(said, "{words} is not among {:#?}", report.findings);
    assert!(report.findings.iter().all(|f| f.rule != "duplicate_row" && f.rule != "missing_pairs"));
}

#[test]
fn an_unsolved_task_replaced_by_a_copy_of_a_solved_one_is_named() {
    both_caught("unit_incomplete", "5 different tasks of family `brinework`, level 1", |rows| {
        rows[5] = EpisodeRow { rollout: 1, ..rows[0].clone() };
    });
    for id in
        ["brinework/L1/52004/00", "brinework/L1/52004/+0", "brinework/L1/52004/6", "brinework/L1/52004/5/0"]
    {
        let workspace = Workspace::honest();
        for arm in ["base", "treatment"] {
            reseal(&workspace, &format!("episodes/{arm}/52004.parquet"), |rows| {
                rows[5] = EpisodeRow { task_id: id.into(), ..rows[0].clone() };
            });
        }
        let report = run(&workspace);
        caught(&report, "row_not_of_plan", TREATED, Some(6));
        assert!(report.findings.iter().any(|f| f.detail.contains("`brinework/L1/52004/0` to `…/5`")), "{id}");
    }
    // A level's task under another family's name, and attempts that start at one.
    both_caught("row_not_of_plan", "the plan gives `brinework/L1/52004/0`", |rows| {
        let (brine, sand) = (rows[5].task_id.clone(), rows[11].task_id.clone());
        (rows[5].task_id, rows[11].task_id) = (sand, brine);
    });
    both_caught("unit_incomplete", "the attempts at `brinework/L1/52004/2` (family", |rows| {
        rows[2].rollout = 1;
    });
}

#[test]
fn rows_that_were_calibrated_or_harvested_under_another_arm_are_named() {
    let workspace = Workspace::honest();
    for (event, seed) in [("calibrate", 31001), ("harvest", 11001)] {
        let mut rows: Vec<EpisodeRow> = (0..12).map(|i| episode("treatment", seed, i, true)).collect();
        rows.iter_mut().for_each(|row| row.event = Some(event.into()));
        workspace.unit("treatment", seed, &mut rows);
        let report = run(&workspace);
        caught(&report, "row_not_of_plan", &format!("episodes/treatment/{seed}.parquet"), Some(1));
    }
    // What the base evaluated, as harvested episodes.
    let workspace = Workspace::honest();
    let mut rows: Vec<EpisodeRow> = workspace.rows("episodes/base/52004.parquet");
    rows.iter_mut().for_each(|row| row.arm = "harvest".into());
    workspace.unit("harvest", 52004, &mut rows);
    caught(&run(&workspace), "row_not_of_plan", "episodes/harvest/52004.parquet", Some(1));
}

#[test]
fn a_unit_without_its_calls_is_named() {
    let workspace = Workspace::honest();
    let file = "calls/treatment/52004.parquet";
    workspace.forget(file);
    let report = run(&workspace);
    caught(&report, "unit_incomplete", file, None);
    assert!(report.findings.iter().all(|f| f.rule == "unit_incomplete"), "{:?}", report.findings);
    // Emptied, it says that nobody called.
    workspace.put::<CallRow>(file, &mut []);
    caught(&run(&workspace), "calls_differ", TREATED, Some(1));
    // The harvest's too.
    let workspace = Workspace::honest();
    workspace.forget("calls/harvest/11001.parquet");
    caught(&run(&workspace), "unit_incomplete", "calls/harvest/11001.parquet", None);
}

/// The treatment without a trace of its adapter, under one seed or all.
fn unadapted(seeds: &[i64]) -> Workspace {
    let workspace = Workspace::honest();
    for seed in seeds {
        reseal(&workspace, &format!("episodes/treatment/{seed}.parquet"), |rows| {
            for row in rows {
                row.adapter_sha256 = None;
                row.tokens_sha256 = row.tokens_sha256.take().map(|t| t.replace("treatment", "base"));
            }
        });
    }
    workspace
}

#[test]
fn rows_without_the_adapter_of_their_arm_are_named() {
    caught(&run(&unadapted(&[52004])), "row_not_of_plan", TREATED, Some(1));
    let workspace = unadapted(&SEEDS);
    workspace.delete("receipts/merge.json");
    let report = run(&workspace);
    caught(&report, "row_not_of_plan", TREATED, Some(1));
    caught(&report, "adapter_changed_nothing", TREATED, None);
    caught(&report, "receipt_missing", "receipts/merge.json", None);
}

#[test]
fn a_live_arm_on_another_model_is_named_where_no_receipt_says_which() {
    let workspace = Workspace::honest();
    workspace.replan(&[("deploy = \"merged\"", "deploy = \"live\"")]);
    for name in ["harvest", "train"] {
        workspace.delete(&format!("receipts/{name}.json"));
    }
    let on = |model: &str| {
        for seed in SEEDS {
            let file = format!("episodes/treatment/{seed}.parquet");
            reseal(&workspace, &file, |rows| {
                rows.iter_mut().for_each(|row| row.model_sha256 = model.repeat(64));
            });
        }
        run(&workspace)
    };
    assert!(on("m").findings.iter().all(|f| f.rule != "row_not_of_plan"));
    let report = on("w");
    caught(&report, "row_not_of_plan", TREATED, Some(1));
    assert!(report.findings.iter().any(|f| f.detail.contains("the base arm ran mmmmmmmmmmmm…")));
}

#[test]
fn a_file_that_a_receipt_is_bound_to_is_there_or_named_among_what_is_kept_elsewhere() {
    let (file, list) = ("training/1.parquet", "data/demo/artifacts.toml");
    let sha256 = Workspace::honest().sha256(file);
    let bound_to = |hash: &str, kept: &str| {
        let workspace = Workspace::honest();
        workspace.forget(file);
        workspace.edit_receipt("train", |receipt| receipt["files"][file] = json!(hash));
        workspace.text(list, kept);
        let report = run(&workspace);
        report.findings.iter().map(|f| (f.rule, f.file.clone())).collect::<Vec<_>>()
    };
    let missing = ("missing_file", "data/demo/receipts/train.json".to_string());
    let named = |path: &str, hash: &str| format!("[\"{path}\"]\nsha256 = \"{hash}\"\n");
    assert!(!bound_to(&sha256, &named(file, &sha256)).contains(&missing));
    for (hash, kept) in [
        ("", named(file, "")),
        ("", String::new()),
        ("0", named(file, "0")),
        (sha256.as_str(), String::new()),
        (sha256.as_str(), format!("# {sha256}\n")),
        (sha256.as_str(), named("training/2.parquet", &sha256)),
        (sha256.as_str(), named(file, &"0".repeat(64))),
    ] {
        assert!(bound_to(hash, &kept).contains(&missing), "{hash} {kept}");
    }
    let found = bound_to(&sha256, "[");
    assert!(found.contains(&missing) && found.contains(&("unreadable_file", list.to_string())), "{found:?}");
}

#[test]
fn a_line_of_the_ledger_that_says_nothing_is_named() {
    let ledger = "data/seeds.jsonl";
    for line in [
        "{\"seed\": 52004, \"purpose\": \"evaluate\"",
        "",
        "[]",
        "{\"seed\": \"52004\", \"purpose\": \"evaluate\", \"experiment\": \"gone\", \"at\": \"\"}",
        "{\"seed\": -1, \"purpose\": \"evaluate\", \"experiment\": \"gone\", \"at\": \"\"}",
        "{\"seed\": 7, \"purpose\": \"look\", \"experiment\": \"gone\", \"at\": \"\"}",
        "{\"seed\": 7, \"purpose\": \"null\", \"experiment\": \"gone\"}",
        "{\"seed\": 7, \"purpose\": \"null\", \"experiment\": \"gone\", \"at\": \"\", \"note\": 1}",
        "{\"seed\": 52004, \"seed\": 7, \"purpose\": \"null\", \"experiment\": \"gone\", \"at\": \"\"}",
    ] {
        let workspace = Workspace::honest();
        let own = fs_err::read_to_string(workspace.root().join(ledger)).unwrap();
        workspace.text(ledger, &format!("{own}{line}\n{line}\n"));
        let report = run(&workspace);
        caught(&report, "unreadable_file", ledger, Some(5));
        let said =
            report.findings.iter().any(|f| f.detail.starts_with("line 5 ") && f.detail.contains("1 more"));
        assert!(said && report.findings.len() == 1, "{line}: {:?}", report.findings);
        // What a crash cut off at the end is put away when the next seed is spent.
        workspace.text(ledger, &format!("{own}{{\"seed\": 52"));
        assert!(run(&workspace).passed());
    }
}

#[test]
fn what_rows_say_moves_no_cursor() {
    let workspace = Workspace::honest();
    reseal(&workspace, TREATED, |rows| {
        rows[5].task_id = "\u{1b}[2K\u{202e}\u{9b}31m\u{8}".into();
        rows[6].family = "cara\u{1b}]0;van\u{7}".into();
    });
    let mut report = run(&workspace);
    caught(&report, "row_not_of_plan", TREATED, Some(6));
    let printed = "24\u{1b}[8m".to_string();
    let verdict = Verdict::Mismatch;
    let (place, reference) = ("a\u{7}b:1".to_string(), "derive:demo.\u{1b}c".to_string());
    report.verdicts.push(Entry { place, reference, printed, recomputed: None, verdict, reason: None });
    let shown = report.render(80);
    let steers = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
    assert_eq!(shown.chars().find(steers), None, "{shown:?}");
    assert!(shown.contains("[2K") && shown.contains("24 [8m"), "{shown}");
}

#[test]
fn rows_of_another_seed_under_a_new_label_are_named() {
    let workspace = Workspace::honest();
    for arm in ["base", "treatment"] {
        let other: Vec<EpisodeRow> = workspace.rows(&format!("episodes/{arm}/52005.parquet"));
        reseal(&workspace, &format!("episodes/{arm}/52004.parquet"), |rows| {
            *rows = other.into_iter().map(|row| EpisodeRow { seed: 52004, ..row }).collect();
        });
    }
    caught(&run(&workspace), "row_not_of_plan", TREATED, Some(1));
}

#[test]
fn what_the_plan_fixes_cannot_be_relabelled() {
    rows_caught("row_not_of_plan", Some(2), |rows| rows[1].event = Some("evaluation".into()));
    rows_caught("row_not_of_plan", Some(2), |rows| rows[1].split = "train".into());
    rows_caught("row_not_of_plan", Some(2), |rows| rows[1].slots = Some(1));
    rows_caught("row_not_of_plan", Some(2), |rows| rows[1].environment = "other".into());
    rows_caught("unit_incomplete", None, |rows| rows[1].level = 2);
    rows_caught("unit_incomplete", None, |rows| rows[1].family = "caravan".into());
}

#[test]
fn another_verifier_for_one_arm_is_named() {
    rows_caught("verifier_differs", Some(1), |rows| {
        rows.iter_mut().for_each(|row| row.verifier_sha256 = "w".repeat(64));
    });
    rows_caught("verifier_differs", Some(4), |rows| rows[3].dtype = Some("bf16".into()));
}

#[test]
fn a_base_arm_of_another_model_or_with_the_adapter_is_named() {
    for change in [(|row: &mut EpisodeRow| row.model_sha256 = "w".repeat(64)) as fn(&mut EpisodeRow), |row| {
        row.adapter_sha256 = Some("a".repeat(64))
    }] {
        let workspace = Workspace::honest();
        for seed in SEEDS {
            let file = format!("episodes/base/{seed}.parquet");
            reseal(&workspace, &file, |rows| rows.iter_mut().for_each(change));
        }
        caught(&run(&workspace), "row_not_of_plan", "episodes/base/52004.parquet", Some(1));
    }
}

#[test]
fn every_number_of_the_headroom_receipt_is_recomputed() {
    let caught = |words: &str, change: fn(&mut Value)| receipt_caught("headroom", "headroom", words, change);
    caught("`base.caravan` is 0.25, the rows give 0.1666", |r| r["base"]["caravan"] = json!(0.25));
    caught("`base.caravan` is missing, the rows give", |r| {
        r["base"].as_object_mut().unwrap().remove("caravan");
    });
    caught("`base.kilnrite` is stated", |r| r["base"]["kilnrite"] = json!(0.0));
    caught("`ceiling` is 2.0, the plan says 1.0", |r| r["ceiling"] = json!(2.0));
    caught("`minimum_delta` is 0.01", |r| r["minimum_delta"] = json!(0.01));
    caught("`passed` is false, the rows give true", |r| r["passed"] = json!(false));
    // Calibration rows that leave no room, under the receipt that says there was some.
    let workspace = Workspace::honest();
    workspace.calibrate(|_| true);
    super::attacks::caught(&run(&workspace), "headroom", "receipts/headroom.json", None);
}

#[test]
fn training_and_harvest_receipts_state_what_the_rows_give() {
    let train = |words: &str, change: fn(&mut Value)| receipt_caught("train", "training", words, change);
    train("`last_loss` is 0.1, the rows give 0.5", |r| r["last_loss"] = json!(0.1));
    train("`first_loss` is 0.9", |r| r["first_loss"] = json!(0.9));
    train("`steps` is 3, the rows give 2", |r| r["steps"] = json!(3));
    train("`tokens` is missing", |r| drop(r.as_object_mut().unwrap().remove("tokens")));
    train("`train_seed` is 2, which the plan does not name", |r| r["train_seed"] = json!(2));
    train("are 6 together, the harvest kept 3", |r| r["rows"] = json!(5));
    train("is not bound to `training/1.parquet`", |r| r["files"] = json!({}));
    let harvest = |words: &str, change: fn(&mut Value)| receipt_caught("harvest", "harvest", words, change);
    harvest("`passed` is false", |r| r["passed"] = json!(false));
    harvest("says that the harvest was starved", |r| r["starved"] = json!("too little"));
    harvest("is not bound to `harvest/11001.parquet`", |r| r["files"] = json!({}));
}

#[test]
fn a_receipt_without_a_hash_is_named() {
    let workspace = Workspace::honest();
    workspace.text("data/demo/receipts/headroom.json", &workspace.headroom().to_string());
    caught(&run(&workspace), "receipt_edited", "receipts/headroom.json", None);
}

#[test]
fn a_transcript_that_nobody_listed_is_named() {
    let workspace = Workspace::honest();
    let file = "data/demo/transcripts/treatment/52004.jsonl.zst";
    workspace.text(file, "made up");
    caught(&run(&workspace), "extra_file", file, None);
}

#[test]
fn another_verdict_in_words_is_named() {
    for (file, from, to) in [
        (REPORT, "The bar is", "Every leg fails: **negative**. The bar is"),
        (REPORT, "\"From [0.25]", "\"The verdict is negative. From [0.25]"),
        ("site/experiments/demo/log.md", "It gained", "By the rule the outcome is inconclusive. It gained"),
        (CLAIM, "Reward rose", "The outcome is clearly negative. Reward rose"),
        (CLAIM, "\"It commits an answer\"", "\"The verdict is negative\""),
        (
            PLAN,
            "[decision]",
            "[[amendments]]\ndate = 2026-12-01\ntext = \"The outcome is inconclusive.\"\n[decision]",
        ),
    ] {
        let workspace = Workspace::honest();
        workspace.replace(file, from, to);
        caught(&run(&workspace), "verdict", file, None);
    }
    // What the report says, a claim and a remark may say too.
    let workspace = Workspace::honest();
    workspace.replace(CLAIM, "Reward rose", "The outcome is positive: reward rose");
    let remark = "[[amendments]]\ndate = 2026-12-01\ntext = \"The outcome is positive.\"\n[decision]";
    workspace.replace(PLAN, "[decision]", remark);
    assert!(run(&workspace).passed());
}

#[test]
fn a_status_raised_on_old_evidence_is_named() {
    let workspace = Workspace::honest();
    let later = "evidence = [\"derive:demo.delta\"]\n[[history]]\ndate = 2026-12-02\nstatus = \"confirmed\"\nevidence = [\"derive:demo.delta\"]";
    workspace.replace(CLAIM, "evidence = [\"derive:demo.delta\"]", later);
    workspace.replace(CLAIM, "status = \"promising\"\npopulation", "status = \"confirmed\"\npopulation");
    caught(&run(&workspace), "status_without_evidence", CLAIM, None);
}

#[test]
fn a_number_that_its_neighbours_change_is_a_mismatch() {
    for (file, from, to) in [
        (REPORT, "[24](derive:demo.delta.n) tasks", "[24](derive:demo.delta.n)0 tasks"),
        (REPORT, "[24](derive:demo.delta.n) tasks", "[24](derive:demo.delta.n) **thousand** tasks"),
        (REPORT, "over [24](derive:demo.delta.n)", "over [24 dozen](derive:demo.delta.n)"),
        (REPORT, "over [24](derive:demo.delta.n)", "over 1[24](derive:demo.delta.n)"),
        (REPORT, "\"[25%](derive:demo.base)", "\"−[25%](derive:demo.base)"),
        (CLAIM, "[0.5](derive:C0001.pass) of", "[0.5](derive:C0001.pass) per cent of"),
    ] {
        let workspace = Workspace::honest();
        workspace.replace(file, from, to);
        let report = run(&workspace);
        let wrong: Vec<_> = report.verdicts.iter().filter(|e| e.verdict == Verdict::Mismatch).collect();
        assert_eq!(wrong.len(), 1, "{to}");
        assert!(wrong[0].place.starts_with(file) && wrong[0].reason.is_some(), "{:?}", wrong[0]);
    }
}
