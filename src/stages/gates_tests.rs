//! Gates on rows that a scripted engine made: what is counted, what stops a plan before any other arm
//! runs, and receipts that are not what the rows give.

use super::super::testing::{Bench, THREE_WAY, babble, half_right, refused};
use crate::experiment::{Purpose, receipts};
use serde_json::json;

fn killing(among: &str, shape: &str, at_least: f64) -> Bench {
    Bench::new(&format!(
        "[[gates]]\nkind = \"kill\"\namong = {among}\nshape = \"{shape}\"\nat_least = {at_least}\n{THREE_WAY}"
    ))
}

#[test]
fn a_kill_gate_stops_before_the_other_arm_runs() {
    let bench = killing("\"stop\"", "many-under-cap", 0.8);
    bench.calibrate(babble);
    for _ in 0..2 {
        // The same again when it is asked twice: no receipt is taken for passed.
        refused(bench.evaluate(), 1, "kill", "4 of 4 episodes that ended by `stop` are `many-under-cap`");
    }
    let receipt = bench.receipt("kill");
    for (field, value) in [
        ("passed", json!(false)),
        ("episodes", json!(8)),
        ("among", json!(4)),
        ("of_shape", json!(4)),
        ("share", json!(1.0)),
        ("cap", json!(40)),
        ("why", json!(null)),
        ("shapes", json!({"many-under-cap": 4, "one-runaway": 0, "one-under-cap": 0, "other": 0})),
    ] {
        assert_eq!(receipt[field], value, "{field}");
    }
    assert_eq!(receipt["files"].as_object().unwrap().len(), 2);
    for file in ["episodes/other", "episodes/base/52004.parquet", "wal/other", "receipts/decision.json"] {
        assert!(!bench.path(file).exists(), "{file}");
    }
    let ending = crate::stages::draft::Ending::of(&bench.experiment).unwrap();
    assert_eq!((ending.words().as_str(), ending.is_open()), ("design-negative", false));
}

#[test]
fn a_gate_that_does_not_fire_lets_the_arms_run() {
    // Half of the chosen episodes have the shape; the share that stops is more.
    let bench = killing("[\"stop\", \"length\"]", "one-runaway", 0.51);
    bench.calibrate(babble);
    let error = bench.evaluate().unwrap_err().to_string();
    assert!(error.contains("no-such-model"), "{error}");
    let receipt = bench.receipt("kill");
    assert_eq!((&receipt["share"], &receipt["passed"]), (&json!(0.5), &json!(true)));
    // At the share itself it stops.
    let bench = killing("[\"stop\", \"length\"]", "one-runaway", 0.5);
    bench.calibrate(babble);
    refused(bench.evaluate(), 1, "kill", "4 of 8 episodes that ended by `stop` or `length`");
}

#[test]
fn without_an_episode_among_them_there_is_no_share() {
    let bench = killing("\"wall\"", "many-under-cap", 0.8);
    bench.calibrate(babble);
    let error = bench.evaluate().unwrap_err().to_string();
    assert!(error.contains("no-such-model"), "{error}");
    let receipt = bench.receipt("kill");
    assert_eq!(
        (&receipt["share"], &receipt["among"], &receipt["passed"]),
        (&json!(null), &json!(0), &json!(true))
    );
    let why = receipt["why"].as_str().unwrap();
    assert!(why.contains("none of the 8 calibration episodes ended by `wall`"), "{why}");
}

#[test]
fn a_kill_receipt_that_is_not_what_the_rows_give_is_refused() {
    let bench = || {
        let bench = killing("\"stop\"", "many-under-cap", 0.8);
        bench.calibrate(babble);
        assert!(bench.evaluate().is_err());
        bench
    };
    let other = bench();
    other.resign("kill", |receipt| receipt["passed"] = json!(true));
    refused(other.evaluate(), 1, "kill", "does not say what the calibration rows give");
    let other = bench();
    other.resign("kill", |receipt| receipt["plan_sha256"] = json!("0".repeat(64)));
    refused(other.evaluate(), 1, "kill", "belongs to another plan");
    let other = bench();
    other.edit("kill", "false", "true");
    refused(other.evaluate(), 1, "kill", "does not match its own hash");
}

const HEADROOM: &str = "[[gates]]\nkind = \"headroom\"\nceiling = 1.0\nminimum_delta = 0.1\n";

fn near(value: &serde_json::Value, wanted: f64) {
    assert!(value.as_f64().is_some_and(|value| (value - wanted).abs() < 1e-12), "{value} {wanted}");
}

#[test]
fn headroom_states_every_core() {
    let bench = Bench::new(&format!("{HEADROOM}{THREE_WAY}"));
    bench.calibrate(babble);
    assert!(bench.evaluate().unwrap_err().to_string().contains("no-such-model"));
    let receipt = bench.receipt("headroom");
    assert_eq!(receipt["passed"], json!(true));
    assert_eq!(receipt["cores"]["caravan"]["families"], json!(["caravan"]));
    assert_eq!(receipt["baseline_ceiling"], json!(null));
    for family in ["caravan", "kilnrite"] {
        let base = receipt["base"][family].as_f64().unwrap();
        let core = &receipt["cores"][family];
        near(&core["baseline"], base);
        near(&core["required"], base + 0.1);
        near(&core["possible_gain"], 1.0 - base);
        assert_eq!(core["feasible"], json!(true));
    }
    assert!(receipt["files"].get("episodes/base/31001.parquet").is_some());
}

/// The mean has room, and one mandatory core has none.
#[test]
fn one_core_without_room_stops_the_plan() {
    let cores = "cores = { tools = [\"caravan\"], control = [\"kilnrite\"] }\n";
    let bench = Bench::new(&format!("{HEADROOM}{cores}{THREE_WAY}"));
    bench.calibrate(half_right);
    refused(
        bench.evaluate(),
        1,
        "headroom",
        "no room for a gain of 0.1 below the ceiling of 1: `tools` already scores 1.0000",
    );
    let receipt = bench.receipt("headroom");
    let tools = &receipt["cores"]["tools"];
    assert_eq!((&tools["feasible"], &receipt["cores"]["control"]["feasible"]), (&json!(false), &json!(true)));
    near(&tools["required"], 1.1);
    near(&tools["possible_gain"], 0.0);
    near(&receipt["baseline"], 0.5);
    assert_eq!(receipt["base"]["caravan"], json!(1.0));
    assert!(!bench.path("episodes/other").exists());
    // The table of the page, from the receipt.
    let texts =
        crate::stages::draft::texts(&bench.experiment, &crate::stages::draft::Ending::NoHeadroom).unwrap();
    let report = texts.written.iter().find(|path| path.ends_with("report.md")).unwrap();
    let report = fs_err::read_to_string(report).unwrap();
    assert!(report.contains("of = \"headroom.cores.tools.possible_gain\""), "{report}");
    assert!(report.contains("in at least one core the base arm"), "{report}");
}

#[test]
fn a_core_is_judged_by_the_mean_of_its_families() {
    let bench = |rest: &str| {
        let cores = "cores = { all = [\"kilnrite\", \"caravan\"] }\n";
        let bench = Bench::new(&format!("{HEADROOM}{cores}{rest}{THREE_WAY}"));
        bench.calibrate(half_right);
        bench
    };
    let one = bench("");
    assert!(one.evaluate().unwrap_err().to_string().contains("no-such-model"));
    near(&one.receipt("headroom")["cores"]["all"]["baseline"], 0.5);
    // The ceiling of the mean is exclusive.
    refused(
        bench("baseline_ceiling = 0.5\n").evaluate(),
        1,
        "headroom",
        "the mean of the cores does not lie below 0.5",
    );
    let below = bench("baseline_ceiling = 0.51\n");
    assert!(below.evaluate().unwrap_err().to_string().contains("no-such-model"));
    assert_eq!(below.receipt("headroom")["baseline_ceiling"], json!(0.51));
}

#[test]
fn a_headroom_receipt_of_another_plan_or_other_rows_is_refused() {
    let bench = || {
        let bench = Bench::new(&format!("{HEADROOM}{THREE_WAY}"));
        bench.calibrate(babble);
        assert!(bench.evaluate().is_err());
        bench
    };
    for (change, words) in [
        ((|r| r["plan_sha256"] = json!("0".repeat(64))) as fn(&mut serde_json::Value), "another plan"),
        (|r| r["base"]["caravan"] = json!(0.5), "does not say what the calibration rows give"),
        (|r| r["cores"]["caravan"]["feasible"] = json!(false), "does not say"),
        (|r| r["passed"] = json!(false), "does not say"),
    ] {
        let other = bench();
        other.resign("headroom", change);
        refused(other.evaluate(), 1, "headroom", words);
    }
    // A receipt from before cores were stated is kept, where what it says holds.
    let older = bench();
    older.resign("headroom", |r| {
        for later in ["cores", "baseline", "baseline_ceiling", "files"] {
            r.as_object_mut().unwrap().remove(later);
        }
    });
    let before = fs_err::read(receipts::path(&older.experiment.root, "headroom")).unwrap();
    assert!(older.evaluate().unwrap_err().to_string().contains("no-such-model"));
    assert_eq!(before, fs_err::read(receipts::path(&older.experiment.root, "headroom")).unwrap());
}

#[test]
fn all_three_rules_decide_on_played_rows() {
    let metric = "metric = { estimator = \"paired_delta\", of = \"reward\" }\n";
    for (rule, number, legs, outcome) in [
        ("three-way", "minimum_delta = 0.03", 3, "negative"),
        // Both arms say the same: nothing differs, exactly.
        ("non-inferiority", "margin = 0.02", 1, "positive"),
        ("equivalence", "margin = 0.02", 2, "positive"),
    ] {
        let bench = Bench::new(&format!("[decision]\nrule = \"{rule}\"\n{metric}{number}\n"));
        bench.calibrate(babble);
        for arm in ["base", "other"] {
            bench.play(arm, Purpose::Evaluate, 52004, babble);
        }
        let receipt = bench.evaluate().unwrap();
        assert_eq!(
            (receipt.decision.outcome.as_str(), receipt.decision.legs.len()),
            (outcome, legs),
            "{rule}"
        );
        assert_eq!((receipt.decision.low, receipt.decision.high), (Some(0.0), Some(0.0)));
        assert!(receipt.decision.legs.iter().all(|leg| leg.p.is_none()) && receipt.looks.is_none());
        let text = fs_err::read_to_string(receipts::path(&bench.experiment.root, "decision")).unwrap();
        assert!(!text.contains("\"p\"") && !text.contains("looks"), "{text}");
    }
}
