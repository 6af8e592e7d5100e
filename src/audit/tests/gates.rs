//! Rules with a margin, cores of the headroom gate, the kill gate and the count of looks: honest
//! receipts pass, and each number that is edited in a receipt signed anew is named.

use super::attacks::{caught, found, run};
use super::workspace::{Workspace, calls};
use crate::episode::row::{CallRow, EpisodeRow};
use serde_json::{Value, json};

const REPORT: &str = "site/experiments/demo/report.md";
const DECIDED: &str = "rule = \"three-way\"\nmetric = { estimator = \"paired_delta\", of = \"reward\" }\nminimum_delta = 0.03\n";

/// The headroom receipt under a plan.
fn headroom(workspace: &Workspace, plan_sha256: &str) {
    let mut receipt = workspace.headroom();
    receipt["plan_sha256"] = json!(plan_sha256);
    workspace.signed("headroom", &receipt);
}

/// The honest workspace decided by another rule; the numbers are another program's (mpmath).
fn ruled(rule: &str) -> (Workspace, Value) {
    let workspace = Workspace::honest();
    let decided = format!(
        "rule = \"{rule}\"\nmetric = {{ estimator = \"paired_delta\", of = \"reward\" }}\nmargin = 0.03\n"
    );
    let plan_sha256 = workspace.replan(&[(DECIDED, &decided)]);
    workspace.replace(REPORT, "decision.minimum_delta", "decision.margin");
    headroom(&workspace, &plan_sha256);
    let mut receipt = workspace.decision();
    receipt["plan_sha256"] = json!(plan_sha256);
    let above = 0.002_516_987_915_772_631;
    let leg = |asks: &str, value: f64, bar: f64, holds: bool| json!({"asks": asks, "value": value, "bar": bar, "holds": holds});
    let tested = |mut leg: Value, p: f64| {
        leg["p"] = json!(p);
        leg
    };
    match rule {
        "non-inferiority" => {
            let asks = [
                "the lower end of the pooled interval lies above minus the margin: not worse by as much as that",
            ];
            receipt["decision"]["legs"] = json!([tested(leg(asks[0], 2.0 / 24.0, -0.03, true), above)]);
        }
        _ => {
            let asks = [
                "the lower end of the 90% t interval lies above minus the margin",
                "the upper end of the 90% t interval lies below the margin",
                "the smallest change, up or down, in the pooled interval is larger than the margin, which alone makes it negative",
            ];
            receipt["decision"]["outcome"] = json!("negative");
            receipt["decision"]["legs"] = json!([
                tested(leg(asks[0], 0.095_255_585_539_570_8, -0.03, true), above),
                tested(leg(asks[1], 0.404_744_414_460_429_2, 0.03, false), 0.988_510_704_866_344_3),
                leg(asks[2], 2.0 / 24.0, 0.03, true),
            ]);
            workspace.replace(REPORT, "verdict = \"positive\"", "verdict = \"negative\"");
        }
    }
    workspace.signed("decision", &receipt);
    (workspace, receipt)
}

#[test]
fn both_rules_with_a_margin_are_recomputed() {
    for rule in ["non-inferiority", "equivalence"] {
        let (workspace, _) = ruled(rule);
        let report = run(&workspace);
        assert!(report.passed(), "{rule}: {}", report.render(100));
    }
}

#[test]
fn every_number_of_a_rule_with_a_margin_is_named() {
    let edited = |rule: &str, words: &str, change: &dyn Fn(&mut Value)| {
        let (workspace, mut receipt) = ruled(rule);
        change(&mut receipt["decision"]);
        workspace.signed("decision", &receipt);
        let report = run(&workspace);
        caught(&report, "decision", "receipts/decision.json", None);
        found(&report, "decision", words);
    };
    for (rule, legs) in [("non-inferiority", 1), ("equivalence", 3)] {
        for at in 0..legs {
            let name = format!("leg {}: ", at + 1);
            edited(rule, &format!("{name}asks"), &|d| d["legs"][at]["asks"] = json!("nothing was lost"));
            edited(rule, &format!("{name}value"), &|d| d["legs"][at]["value"] = json!(0.5));
            edited(rule, &format!("{name}bar"), &|d| d["legs"][at]["bar"] = json!(0.5));
            edited(rule, &format!("{name}`holds`"), &|d| d["legs"][at]["holds"] = json!(null));
            edited(rule, &format!("{name}p is"), &|d| d["legs"][at]["p"] = json!(0.04));
        }
        edited(rule, "leg 1: p is missing", &|d| drop(d["legs"][0].as_object_mut().unwrap().remove("p")));
        edited(rule, "the outcome says `inconclusive`", &|d| d["outcome"] = json!("inconclusive"));
        edited(rule, "legs are recorded", &|d| drop(d["legs"].as_array_mut().unwrap().pop()));
    }
    // The legs of the other rule do not fit, nor does a p value where the rule has no test.
    let (workspace, _) = ruled("non-inferiority");
    let (_, other) = ruled("equivalence");
    workspace.signed("decision", &other);
    found(&run(&workspace), "decision", "3 legs are recorded, the rule has 1");
    let workspace = Workspace::honest();
    let mut receipt = workspace.decision();
    receipt["decision"]["legs"][2]["p"] = json!(0.01);
    workspace.signed("decision", &receipt);
    found(&run(&workspace), "decision", "leg 3: p is 0.01, the rows give no such number");
}

/// A gate over two cores; the rest of the honest workspace follows.
fn cored() -> (Workspace, Value) {
    let workspace = Workspace::honest();
    let gate = "minimum_delta = 0.03\n[decision]";
    let cores = "minimum_delta = 0.03\nbaseline_ceiling = 0.6\ncores = { all = [\"caravan\", \"brinework\"] }\n[decision]";
    let plan_sha256 = workspace.replan(&[(gate, cores)]);
    let mut receipt = workspace.headroom();
    receipt["plan_sha256"] = json!(plan_sha256);
    receipt["cores"] = json!({"all": {
        "families": ["caravan", "brinework"], "baseline": 0.25, "required": 0.28, "possible_gain": 0.75, "feasible": true,
    }});
    receipt["baseline"] = json!(0.25);
    receipt["baseline_ceiling"] = json!(0.6);
    receipt["files"] = workspace.bound(&["episodes/base/31001.parquet"]);
    workspace.signed("headroom", &receipt);
    let mut decision = workspace.decision();
    decision["plan_sha256"] = json!(plan_sha256);
    workspace.signed("decision", &decision);
    (workspace, receipt)
}

#[test]
fn every_core_is_recomputed() {
    let (workspace, _) = cored();
    let report = run(&workspace);
    assert!(report.passed(), "{}", report.render(100));
    let edited = |words: &str, change: fn(&mut Value)| {
        let (workspace, mut receipt) = cored();
        change(&mut receipt);
        workspace.signed("headroom", &receipt);
        let report = run(&workspace);
        caught(&report, "headroom", "receipts/headroom.json", None);
        found(&report, "headroom", words);
    };
    edited("`cores.all.baseline` is 0.2, the rows and the plan give 0.25", |r| {
        r["cores"]["all"]["baseline"] = json!(0.2)
    });
    edited("`cores.all.required`", |r| r["cores"]["all"]["required"] = json!(0.27));
    edited("`cores.all.possible_gain`", |r| r["cores"]["all"]["possible_gain"] = json!(0.76));
    edited("`cores.all.feasible` is false", |r| r["cores"]["all"]["feasible"] = json!(false));
    edited("`cores.all.families`", |r| r["cores"]["all"]["families"] = json!(["caravan"]));
    edited("`cores.all.baseline` is missing", |r| drop(r.as_object_mut().unwrap().remove("cores")));
    edited("`cores.more` is stated", |r| r["cores"]["more"] = r["cores"]["all"].clone());
    edited("`baseline` is 0.2, the rows give 0.25", |r| r["baseline"] = json!(0.2));
    edited("`baseline_ceiling` is 0.7, the plan says 0.6", |r| r["baseline_ceiling"] = json!(0.7));
    edited("`passed` is false", |r| r["passed"] = json!(false));
    edited("is not bound to `episodes/base/31001.parquet`", |r| r["files"] = json!({}));
}

#[test]
fn a_mean_on_its_ceiling_is_no_room() {
    let workspace = Workspace::honest();
    let plan_sha256 = workspace.replan(&[(
        "minimum_delta = 0.03\n[decision]",
        "minimum_delta = 0.03\nbaseline_ceiling = 0.25\n[decision]",
    )]);
    headroom(&workspace, &plan_sha256);
    let report = run(&workspace);
    found(&report, "headroom", "`passed` is true, the rows give false");
    found(&report, "headroom", "`baseline_ceiling` is null, the plan says 0.25");
}

/// A gate on the shapes of the calibration episodes, with a call for each; two of an episode in the middle.
fn killing(among: &str, shape: &str, at_least: f64) -> (Workspace, Value) {
    let workspace = Workspace::honest();
    let gate = format!(
        "minimum_delta = 0.03\n[[gates]]\nkind = \"kill\"\namong = {among}\nshape = \"{shape}\"\nat_least = {at_least}\n[decision]"
    );
    let plan_sha256 = workspace.replan(&[("minimum_delta = 0.03\n[decision]", &gate)]);
    let file = "episodes/base/31001.parquet";
    let mut rows: Vec<EpisodeRow> = workspace.rows(file);
    rows[4].turns = 2;
    workspace.put(file, &mut rows);
    let mut calls: Vec<CallRow> = rows.iter().flat_map(calls).collect();
    workspace.put("calls/base/31001.parquet", &mut calls);
    headroom(&workspace, &plan_sha256);
    let mut decision = workspace.decision();
    decision["plan_sha256"] = json!(plan_sha256);
    workspace.signed("decision", &decision);
    let receipt = json!({
        "passed": true, "plan_sha256": plan_sha256, "reasons": ["stop", "length"], "shape": shape, "at_least": at_least,
        "cap": 120, "episodes": 12, "among": 12, "of_shape": 1, "share": 1.0 / 12.0, "why": null,
        "shapes": {"many-under-cap": 1, "one-runaway": 8, "one-under-cap": 3, "other": 0},
        "files": workspace.bound(&[file, "calls/base/31001.parquet"]),
    });
    workspace.signed("kill", &receipt);
    (workspace, receipt)
}

const BOTH: &str = "[\"stop\", \"length\"]";

#[test]
fn the_shapes_of_the_kill_gate_are_recomputed() {
    let (workspace, _) = killing(BOTH, "many-under-cap", 0.8);
    let report = run(&workspace);
    assert!(report.passed(), "{}", report.render(100));
    let edited = |words: &str, change: fn(&mut Value)| {
        let (workspace, mut receipt) = killing(BOTH, "many-under-cap", 0.8);
        change(&mut receipt);
        workspace.signed("kill", &receipt);
        let report = run(&workspace);
        caught(&report, "kill", "receipts/kill.json", None);
        found(&report, "kill", words);
    };
    edited("`among` is 11, the rows give 12", |r| r["among"] = json!(11));
    edited("`episodes` is 13", |r| r["episodes"] = json!(13));
    edited("`of_shape` is 0, the rows give 1", |r| r["of_shape"] = json!(0));
    edited("`share` is 0.5", |r| r["share"] = json!(0.5));
    edited("`share` is null", |r| r["share"] = json!(null));
    edited("`shapes.one-runaway` is 9, the rows give 8", |r| r["shapes"]["one-runaway"] = json!(9));
    edited("`shapes.else` is stated", |r| r["shapes"]["else"] = json!(0));
    edited("`passed` is false", |r| r["passed"] = json!(false));
    edited("`cap` is 40, the plan says 120", |r| r["cap"] = json!(40));
    edited("`at_least` is 0.9, the plan says 0.8", |r| r["at_least"] = json!(0.9));
    edited("`shape` is \"other\"", |r| r["shape"] = json!("other"));
    edited("`reasons` is [\"stop\"]", |r| r["reasons"] = json!(["stop"]));
    edited("`why` says why there is no share", |r| r["why"] = json!("nobody looked"));
    edited("is not bound to `calls/base/31001.parquet`", |r| r["files"] = json!({}));
}

#[test]
fn a_gate_that_fires_and_was_passed_is_named() {
    // Eight of twelve: under this plan the very rows stop the experiment.
    let (workspace, mut receipt) = killing(BOTH, "one-runaway", 0.6);
    receipt["of_shape"] = json!(8);
    receipt["share"] = json!(8.0 / 12.0);
    workspace.signed("kill", &receipt);
    found(&run(&workspace), "kill", "`passed` is true, the rows give false");
    receipt["passed"] = json!(false);
    workspace.signed("kill", &receipt);
    let report = run(&workspace);
    assert!(report.findings.iter().all(|f| f.rule != "kill"), "{:?}", report.findings);
    caught(&report, "gate_bypassed", "receipts/kill.json", None);
    // Where nothing was evaluated, that receipt carries the verdict.
    workspace.delete("receipts/decision.json");
    workspace.replace(REPORT, "verdict = \"positive\"", "verdict = \"design-negative\"");
    workspace.replace(REPORT, "lifecycle = \"finished\"", "lifecycle = \"in-progress\"");
    let report = run(&workspace);
    assert!(report.findings.iter().all(|f| f.rule != "verdict"), "{:?}", report.findings);
    found(&report, "lifecycle", "receipts/kill.json ended the experiment");
}

#[test]
fn a_planned_gate_leaves_a_receipt_of_its_plan() {
    let (workspace, mut receipt) = killing(BOTH, "many-under-cap", 0.8);
    receipt["plan_sha256"] = json!("0".repeat(64));
    workspace.signed("kill", &receipt);
    caught(&run(&workspace), "plan_lock", "receipts/kill.json", None);
    workspace.delete("receipts/kill.json");
    caught(&run(&workspace), "receipt_missing", "receipts/kill.json", None);
    // A receipt of a gate that nobody planned.
    let workspace = Workspace::honest();
    workspace.signed("kill", &receipt);
    found(&run(&workspace), "kill", "the plan has no kill gate");
}

#[test]
fn without_an_episode_among_them_the_receipt_says_why() {
    let (workspace, mut receipt) = killing("\"wall\"", "many-under-cap", 0.8);
    receipt["reasons"] = json!(["wall"]);
    for count in ["among", "of_shape"] {
        receipt[count] = json!(0);
    }
    receipt["share"] = json!(null);
    receipt["shapes"] = json!({"many-under-cap": 0, "one-runaway": 0, "one-under-cap": 0, "other": 0});
    workspace.signed("kill", &receipt);
    found(&run(&workspace), "kill", "`why` does not say why there is no share");
    receipt["why"] = json!("none of the 12 calibration episodes ended by `wall`");
    workspace.signed("kill", &receipt);
    assert!(run(&workspace).passed());
}

#[test]
fn a_count_of_looks_is_for_fixed_sets_alone() {
    let workspace = Workspace::honest();
    let mut receipt = workspace.decision();
    receipt["looks"] = json!(1);
    workspace.signed("decision", &receipt);
    found(&run(&workspace), "decision", "looks is 1, the rows give no such number");
}

#[test]
fn a_training_on_another_harvest_is_named() {
    let workspace = Workspace::honest();
    let trained_on = &workspace.read_receipt("train")["receipt"]["harvest_sha256"];
    assert!(*trained_on == workspace.read_receipt("harvest")["sha256"] && run(&workspace).passed());
    workspace.edit_receipt("train", |receipt| receipt["harvest_sha256"] = json!("0".repeat(64)));
    found(&run(&workspace), "training", "`harvest_sha256` is");
    let remove = |receipt: &mut Value| drop(receipt.as_object_mut().unwrap().remove("harvest_sha256"));
    workspace.edit_receipt("train", remove);
    found(&run(&workspace), "training", "`harvest_sha256` is missing");
}

/// Two experiments on copies of one file and one on another; the ledger holds their events in order.
#[test]
fn looks_are_counted_from_ledger_and_locks() {
    use crate::audit::{looks, plan_rules::Case, sheet::Sheet};
    use crate::experiment::{Plan, Stage, lock};
    let folder = tempfile::tempdir().unwrap();
    let plan = |slug: &str, city: &str| -> Plan {
        let home = folder.path().join("data").join(slug);
        fs_err::create_dir_all(&home).unwrap();
        let tasks: String =
            (0..6).map(|i| format!("{{\"prompt\": \"{i} of {city}?\", \"answer\": \"{city}\"}}\n")).collect();
        fs_err::write(home.join("mine.jsonl"), tasks).unwrap();
        let text = "title = \"T\"\n[model]\nsource = \"m\"\n[tasks]\nenvironment = \"mine.jsonl\"\nheld_out = [\"tasks\"]\nlevels = [1]\n\
             per_family = 1\n[seeds]\nevaluate = [1, 2]\n[[arms]]\nname = \"base\"\n[[arms]]\nname = \"other\"\n\
             [decision]\nrule = \"equivalence\"\nmetric = { estimator = \"paired_delta\", of = \"reward\" }\nmargin = 0.1\n";
        let plan = Plan::parse(text, &home.join("experiment.toml")).unwrap();
        lock::lock(&home, &plan, Stage::Evaluate).unwrap();
        plan
    };
    let plans = [
        ("first", plan("first", "Rome")),
        ("apart", plan("apart", "Oslo")),
        ("second", plan("second", "Rome")),
    ];
    let event = |slug: &str, seed: u64, purpose: &str| {
        json!({"seed": seed, "purpose": purpose, "experiment": slug, "at": "2026-12-01T00:00:00Z"})
            .to_string()
            + "\n"
    };
    let ledger: String = [
        event("first", 1, "evaluate"),
        event("first", 2, "evaluate"),
        event("apart", 3, "evaluate"),
        event("second", 4, "calibrate"),
        event("second", 5, "evaluate"),
        event("first", 6, "harvest"),
    ]
    .concat();
    let none = Sheet::default();
    let count = |slug: &str, plan: &Plan, ledger: &str| {
        let case = Case {
            workspace: folder.path(),
            slug,
            plan,
            front: None,
            report: None,
            log: None,
            before: None,
            episodes: &none,
            calls: &none,
            harvest: &none,
            training: &none,
        };
        looks::looks(&case, ledger)
    };
    let counts: Vec<_> = plans.iter().map(|(slug, plan)| count(slug, plan, &ledger)).collect();
    assert_eq!(counts, [Some(2), Some(1), Some(3)]);
    // What comes later changes no earlier count; an event that is gone from the ledger does.
    let later = ledger.clone() + &event("third", 7, "evaluate");
    assert_eq!(count("first", &plans[0].1, &later), Some(2));
    assert_eq!(
        count(
            "second",
            &plans[2].1,
            &ledger.replace("\"seed\":1,\"purpose\":\"evaluate\"", "\"seed\":1,\"purpose\":\"null\"")
        ),
        Some(2)
    );
    assert_eq!(count("gym", super::workspace::plan(), &ledger), None);
}
