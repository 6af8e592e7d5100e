//! The decision, a second time: from the rows of the evaluation events and the plan alone, by the
//! audit's own estimators, held against what `decision.json` says. Outcome, change, interval and
//! every leg must agree.

use super::Finding;
use super::estimators::{self, Part};
use super::paired::{self, Change, SAME};
use super::plan_rules::Case;
use super::walk::{Attempt, walk};
use crate::claims::derivation::{Accepts, Cluster, DataSet, Derivation, Estimator, Population};
use crate::episode::row::Cell;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How far a recorded number may lie from the recomputed one.
const TOLERANCE: f64 = 1e-9;

/// One condition of the rule.
struct Leg {
    value: Option<f64>,
    bar: f64,
    holds: Option<bool>,
}

/// Recomputes the decision and compares it with the receipt, where there is one.
pub fn check(case: &Case) -> Vec<Finding> {
    let Some(receipt) = case.receipt("decision") else { return Vec::new() };
    let file = case.receipt_path("decision");
    let mut wrong = Vec::new();
    let [base, treatment, ..] = case.plan.arms.as_slice() else { return Vec::new() };
    let arms = [base.name.clone(), treatment.name.clone()];
    if receipt.get("arms") != Some(&Value::from(arms.to_vec())) {
        wrong.push(format!("the plan compares `{}` with `{}`", arms[0], arms[1]));
    }
    wrong.extend(bound_files(case, &receipt, &arms));
    let decision = receipt.get("decision").unwrap_or(&Value::Null);
    let legs = match decision.get("legs").and_then(Value::as_array) {
        Some(legs) => legs.as_slice(),
        None => &[],
    };
    let recorded = |key: &str| decision.get(key).and_then(Value::as_f64);
    let leg_value = |at: usize| legs.get(at).and_then(|leg| leg.get("value")).and_then(Value::as_f64);

    let derivation = derivation(case, &arms);
    let attempts = walk(case.episodes, &derivation);
    let attempts: Vec<&Attempt> = attempts.iter().flatten().collect();
    let pooled = estimators::compute(&derivation, &attempts, &format!("{}/decision", case.slug));
    let part = |name: &str| pooled.as_ref().ok().and_then(|parts| parts.get(name));
    let all = change(&attempts, &arms, &derivation);
    let delta = settle(all.delta, recorded("delta"));
    let low = settle_part(part("low"), recorded("low"));
    let high = settle_part(part("high"), recorded("high"));

    let bar = case.plan.decision.minimum_delta;
    let mut expected: Vec<Leg> = Vec::new();
    for (at, seed) in case.plan.seeds.evaluate.iter().enumerate() {
        let of_seed: Vec<&Attempt> =
            attempts.iter().copied().filter(|a| u64::try_from(a.seed) == Ok(*seed)).collect();
        let value = settle(change(&of_seed, &arms, &derivation).delta, leg_value(at));
        expected.push(Leg { value, bar, holds: value.map(|value| value >= bar - SAME) });
    }
    expected.push(Leg { value: low, bar: 0.0, holds: low.map(|low| low > SAME) });
    let spread = settle(null_spread(case, &arms[0]), receipt.get("null_spread").and_then(Value::as_f64));
    if let Some(spread) = spread {
        expected.push(Leg { value: Some(spread), bar, holds: Some(spread < bar - SAME) });
    }
    let below = high.map(|high| high < bar - SAME);
    let outcome = if expected.iter().all(|leg| leg.holds == Some(true)) {
        "positive"
    } else if below == Some(true) {
        "negative"
    } else {
        "inconclusive"
    };
    if outcome != "positive" {
        expected.push(Leg { value: high, bar, holds: below });
    }

    let said = decision.get("outcome").and_then(Value::as_str).unwrap_or("nothing");
    if said != outcome {
        wrong.push(format!("the outcome says `{said}`, the rows give `{outcome}`"));
    }
    wrong.extend(differs("delta", decision.get("delta"), delta));
    wrong.extend(differs("low", decision.get("low"), low));
    wrong.extend(differs("high", decision.get("high"), high));
    wrong.extend(differs("null_spread", receipt.get("null_spread"), spread));
    wrong.extend(differs("tasks", decision.get("tasks"), Some(all.tasks as f64)));
    wrong.extend(differs("moved", decision.get("moved"), Some(all.moved as f64)));
    if legs.len() != expected.len() {
        wrong.push(format!("{} legs are recorded, the rule has {}", legs.len(), expected.len()));
    }
    for (at, (leg, own)) in legs.iter().zip(&expected).enumerate() {
        wrong.extend(differs(&format!("leg {}: value", at + 1), leg.get("value"), own.value));
        wrong.extend(differs(&format!("leg {}: bar", at + 1), leg.get("bar"), Some(own.bar)));
        let holds = own.holds.map_or(Value::Null, Value::Bool);
        if leg.get("holds") != Some(&holds) {
            wrong.push(format!("leg {}: `holds` is {}, not {holds}", at + 1, shown(leg.get("holds"))));
        }
    }
    wrong.into_iter().map(|detail| Finding::new("decision", &file, None, detail)).collect()
}

/// The plan's metric over the evaluation rows of both arms.
fn derivation(case: &Case, arms: &[String; 2]) -> Derivation {
    let metric = &case.plan.decision.metric;
    Derivation {
        data: DataSet::Episodes,
        experiment: None,
        filter: BTreeMap::from([("event".to_string(), Accepts::One(Cell::Text("evaluate".into())))]),
        estimator: Estimator::PairedDelta,
        of: Some(metric.of.clone()),
        is: None,
        arms: arms.to_vec(),
        weight: metric.weight,
        cluster: Cluster::Task,
        band: None,
        population: Population::Tasks,
        margin: None,
        k: None,
        by: None,
        nulls: None,
        format: None,
    }
}

/// Rows that cannot be compared give no change, as on the other road.
fn change(attempts: &[&Attempt], arms: &[String; 2], derivation: &Derivation) -> Change {
    let [base, treatment] = arms;
    paired::change(&paired::of_arm(attempts, base), &paired::of_arm(attempts, treatment), derivation.weight)
        .unwrap_or(Change { delta: None, tasks: 0, moved: 0 })
}

/// Largest difference between the base arm's mean rewards on two null seeds.
fn null_spread(case: &Case, base: &str) -> Option<f64> {
    if case.plan.seeds.null.len() < 2 {
        return None;
    }
    let mut by_seed: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (_, _, row) in case.episodes.rows() {
        if case.episodes.text(row, "event") != "null" || case.episodes.text(row, "arm") != base {
            continue;
        }
        if let (Some(seed), Cell::Real(reward)) =
            (case.episodes.whole(row, "seed"), case.episodes.cell(row, "reward"))
        {
            by_seed.entry(seed).or_default().push(reward);
        }
    }
    let mut means: Vec<f64> = by_seed.values().map(|rewards| estimators::plain_mean(rewards)).collect();
    means.sort_by(f64::total_cmp);
    match means.as_slice() {
        [least, .., most] => Some(most - least),
        _ => None,
    }
}

/// The receipt must be bound to every file it decided on. (The hashes themselves are compared
/// where all receipts are.)
fn bound_files(case: &Case, receipt: &Value, arms: &[String; 2]) -> Vec<String> {
    let mut lacking: BTreeSet<String> = BTreeSet::new();
    for arm in arms {
        for seed in &case.plan.seeds.evaluate {
            lacking.insert(format!("episodes/{arm}/{seed}.parquet"));
        }
    }
    for path in receipt.get("files").and_then(Value::as_object).into_iter().flat_map(|files| files.keys()) {
        lacking.remove(path);
    }
    lacking.into_iter().map(|path| format!("is not bound to `{path}`")).collect()
}

/// The recorded number where it agrees with this road's, so that a border is judged on one
/// number only; else this road's.
fn settle(own: Option<f64>, recorded: Option<f64>) -> Option<f64> {
    match (own, recorded) {
        (Some(own), Some(recorded)) if (own - recorded).abs() <= TOLERANCE => Some(recorded),
        _ => own,
    }
}

fn settle_part(part: Option<&Part>, recorded: Option<f64>) -> Option<f64> {
    match (part, recorded) {
        (Some(Part::Within { low, high, .. }), Some(recorded)) if (*low..=*high).contains(&recorded) => {
            Some(recorded)
        }
        _ => settle(part.and_then(Part::get), recorded),
    }
}

/// What is wrong with a recorded number; a missing key is not a null.
fn differs(what: &str, recorded: Option<&Value>, own: Option<f64>) -> Option<String> {
    let agrees = match (recorded, own) {
        (Some(Value::Null), None) => true,
        (Some(value), Some(own)) => value.as_f64().is_some_and(|value| (value - own).abs() <= TOLERANCE),
        _ => false,
    };
    let own = own.map_or("no such number".to_string(), |own| own.to_string());
    (!agrees).then(|| format!("{what} is {}, the rows give {own}", shown(recorded)))
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("missing".into(), Value::to_string)
}
