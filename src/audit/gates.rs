//! The receipts of the gates, a second time: base scores, cores and room from the calibration rows;
//! the shapes of episodes from the calls; and whether each gate stops the plan.

use super::Finding;
use super::estimators::plain_mean;
use super::paired::SAME;
use super::plan_rules::Case;
use super::shapes::{self, Call};
use super::stated::{Stated, TOLERANCE};
use super::walk::number;
use crate::experiment::{Headroom, Kill};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// All comparisons for one experiment with a plan.
pub fn check(case: &Case) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(receipt) = case.receipt("headroom") {
        let mut stated = Stated::new(case, "headroom", "headroom", &receipt);
        match case.plan.headroom() {
            Some(gate) => headroom(case, gate, &mut stated),
            None => stated.add("the plan has no headroom gate".into()),
        }
        findings.extend(stated.wrong);
    }
    if let Some(receipt) = case.receipt("kill") {
        let mut stated = Stated::new(case, "kill", "kill", &receipt);
        match case.plan.kill() {
            Some(gate) => kill(case, gate, &mut stated),
            None => stated.add("the plan has no kill gate".into()),
        }
        findings.extend(stated.wrong);
    }
    findings
}

/// The base arm's mean score by family and core on the calibration seeds, the gate's bars, and its verdict.
fn headroom(case: &Case, gate: &Headroom, stated: &mut Stated) {
    stated.holds("ceiling", &json!(gate.ceiling), "the plan says");
    stated.holds("minimum_delta", &json!(gate.minimum_delta), "the plan says");
    if !case.episodes.unreadable.is_empty() {
        return;
    }
    let scores = base_scores(case);
    let receipt = stated.receipt;
    let named = receipt.get("base").and_then(Value::as_object);
    for family in named.into_iter().flat_map(Map::keys).filter(|family| !scores.contains_key(*family)) {
        stated.add(format!("`base.{family}` is stated, and no calibration row is of that family"));
    }
    let mut judged: BTreeMap<&str, f64> = BTreeMap::new();
    for (family, own) in &scores {
        stated.holds_at(&["base", family], &json!(own), "the rows give");
        judged.insert(family, near(receipt.get("base").and_then(|base| base.get(family)), *own));
    }
    let passed = cores(case, gate, &judged, stated);
    stated.holds("passed", &json!(passed), "the rows give");
}

/// Every core of the plan, the mean of their baselines, and whether there is room.
fn cores(case: &Case, gate: &Headroom, scores: &BTreeMap<&str, f64>, stated: &mut Stated) -> bool {
    let receipt = stated.receipt;
    let groups: BTreeMap<String, Vec<String>> = match &gate.cores {
        Some(cores) => cores.clone(),
        None => case.plan.families().map(|family| (family.clone(), vec![family.clone()])).collect(),
    };
    let named = receipt.get("cores").and_then(Value::as_object);
    for core in named.into_iter().flat_map(Map::keys).filter(|core| !groups.contains_key(*core)) {
        stated.add(format!("`cores.{core}` is stated, and the plan has no such core"));
    }
    let mut room = true;
    let mut baselines = Vec::new();
    for (core, families) in &groups {
        let own: Vec<f64> = families.iter().filter_map(|f| scores.get(f.as_str()).copied()).collect();
        if own.len() < families.len() {
            stated.add(format!("core `{core}` has a family without a calibration row"));
            room = false;
            continue;
        }
        let own = plain_mean(&own);
        let told = |field: &str| receipt.get("cores")?.get(core)?.get(field);
        let baseline = near(told("baseline"), own);
        let gain = near(told("possible_gain"), gate.ceiling - baseline);
        let feasible = gain > gate.minimum_delta + SAME;
        for (field, value) in [
            ("families", json!(families)),
            ("baseline", json!(own)),
            ("required", json!(own + gate.minimum_delta)),
            ("possible_gain", json!(gate.ceiling - own)),
            ("feasible", json!(feasible)),
        ] {
            stated.holds_at(&["cores", core, field], &value, "the rows and the plan give");
        }
        room &= feasible;
        baselines.push(baseline);
    }
    let own = (!baselines.is_empty()).then(|| plain_mean(&baselines));
    stated.holds("baseline", &json!(own), "the rows give");
    stated.holds("baseline_ceiling", &json!(gate.baseline_ceiling), "the plan says");
    stated.bound(files(case, &["episodes"]).into_iter());
    match (own, gate.baseline_ceiling) {
        (Some(own), Some(most)) => room && near(receipt.get("baseline"), own) < most - SAME,
        _ => room,
    }
}

/// The stated number where it is right, so that a border is judged on one number only.
fn near(stated: Option<&Value>, own: f64) -> f64 {
    stated.and_then(Value::as_f64).filter(|said| (said - own).abs() <= TOLERANCE).unwrap_or(own)
}

/// The files that a gate must be bound to.
fn files(case: &Case, data: &[&str]) -> Vec<String> {
    let base = case.plan.arms.first().map_or("", |arm| arm.name.as_str());
    let of = |data: &&str| -> Vec<String> {
        case.plan.seeds.calibrate.iter().map(|seed| format!("{data}/{base}/{seed}.parquet")).collect()
    };
    data.iter().flat_map(of).collect()
}

fn base_scores(case: &Case) -> BTreeMap<String, f64> {
    let sheet = case.episodes;
    let Some(base) = case.plan.arms.first() else { return BTreeMap::new() };
    let mut scores: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (_, _, row) in sheet.rows() {
        let calibrates = calibrates(case, sheet.whole(row, "seed"));
        let score = number(&sheet.cell(row, &case.plan.decision.metric.of));
        if let (true, Some(score)) = (calibrates && sheet.text(row, "arm") == base.name, score) {
            scores.entry(sheet.text(row, "family").to_string()).or_default().push(score);
        }
    }
    scores.into_iter().map(|(family, scores)| (family, plain_mean(&scores))).collect()
}

fn calibrates(case: &Case, seed: Option<i64>) -> bool {
    let seed = seed.and_then(|seed| u64::try_from(seed).ok());
    seed.is_some_and(|seed| case.plan.seeds.calibrate.contains(&seed))
}

/// (seed, task, rollout).
type Attempt<'a> = (i64, &'a str, i64);

/// Which calibration episodes ended for the plan's reasons, their shapes, and the share that stops the plan.
fn kill(case: &Case, gate: &Kill, stated: &mut Stated) {
    let reasons = gate.among.list();
    let harness = &case.plan.harness.evaluate;
    let cap = harness.answer_tokens as u64 + harness.think_tokens.map_or(0, |tokens| tokens as u64);
    for (field, planned) in [
        ("reasons", json!(reasons)),
        ("shape", json!(gate.shape.as_str())),
        ("at_least", json!(gate.at_least)),
        ("cap", json!(cap)),
    ] {
        stated.holds(field, &planned, "the plan says");
    }
    stated.bound(files(case, &["episodes", "calls"]).into_iter());
    if !case.episodes.unreadable.is_empty() || !case.calls.unreadable.is_empty() {
        return;
    }
    let base = case.plan.arms.first().map_or("", |arm| arm.name.as_str());
    let (mut episodes, mut chosen) = (0_u64, BTreeSet::<Attempt>::new());
    let sheet = case.episodes;
    for (_, _, row) in sheet.rows() {
        let seed = sheet.whole(row, "seed");
        if sheet.text(row, "arm") != base || !calibrates(case, seed) {
            continue;
        }
        episodes += 1;
        let reason = sheet.text(row, "finish_reason");
        if reasons.iter().any(|wanted| wanted == reason) {
            let rollout = sheet.whole(row, "rollout").unwrap_or(0);
            chosen.insert((seed.unwrap_or(0), sheet.text(row, "task_id"), rollout));
        }
    }
    let mut calls: BTreeMap<Attempt, Vec<Call>> = chosen.iter().map(|at| (*at, Vec::new())).collect();
    let sheet = case.calls;
    for (_, _, row) in sheet.rows() {
        let whole = |column: &str| sheet.whole(row, column);
        let key = (whole("seed").unwrap_or(-1), sheet.text(row, "task_id"), whole("rollout").unwrap_or(0));
        if sheet.text(row, "arm") != base {
            continue;
        }
        if let Some(calls) = calls.get_mut(&key) {
            calls.push(Call {
                turn: whole("turn").unwrap_or(0),
                met_limit: sheet.text(row, "finish_reason") == "length",
                tokens: whole("completion_tokens"),
            });
        }
    }
    let mut counts: BTreeMap<&str, u64> =
        ["many-under-cap", "one-runaway", "one-under-cap", "other"].map(|shape| (shape, 0)).into();
    for calls in calls.into_values() {
        *counts.entry(shapes::shape(calls, cap)).or_default() += 1;
    }
    let among = chosen.len() as u64;
    let of_shape = counts.get(gate.shape.as_str()).copied().unwrap_or(0);
    let share = (among > 0).then(|| of_shape as f64 / among as f64);
    for (field, own) in [
        ("episodes", json!(episodes)),
        ("among", json!(among)),
        ("of_shape", json!(of_shape)),
        ("share", json!(share)),
        ("passed", json!(!share.is_some_and(|share| share >= gate.at_least - SAME))),
    ] {
        stated.holds(field, &own, "the rows give");
    }
    for (shape, count) in &counts {
        stated.holds_at(&["shapes", shape], &json!(count), "the rows give");
    }
    let receipt = stated.receipt;
    for shape in receipt.get("shapes").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        if !counts.contains_key(shape.as_str()) {
            stated.add(format!("`shapes.{shape}` is stated, and there is no such shape"));
        }
    }
    let explained = receipt.get("why").is_some_and(|why| !why.is_null());
    if explained != share.is_none() {
        stated
            .add(format!("`why` {} why there is no share", if explained { "says" } else { "does not say" }));
    }
}
