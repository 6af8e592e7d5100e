//! The decision, a second time: from the rows of the evaluation events and the plan alone, by the
//! audit's own estimators, held against what `decision.json` says. Outcome, change, interval and
//! every leg must agree.

use super::Finding;
use super::cells;
use super::estimators::{self, Part};
use super::looks;
use super::margins::{self, Margin};
use super::paired::{self, Change, SAME};
use super::plan_rules::Case;
use super::walk::{Attempt, number, walk};
use crate::claims::derivation::{Accepts, Cluster, DataSet, Derivation, Estimator, Population};
use crate::episode::row::Cell;
use crate::experiment::Rule;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How far a recorded number may lie from the recomputed one.
const TOLERANCE: f64 = 1e-9;

/// How the question of the leg ends that makes a decision negative.
pub(super) const ALONE: &str = ", which alone makes it negative";

/// One condition of the rule.
pub(super) struct Leg {
    /// The question, as a page prints it.
    pub asks: String,
    /// The number that is compared.
    pub value: Option<f64>,
    /// What it is compared with.
    pub bar: f64,
    /// Whether it holds.
    pub holds: Option<bool>,
    /// p value of the same question, for rules that have one.
    pub p: Option<f64>,
}

/// What a rule asks for, and the leg that alone makes it negative.
pub(super) struct Judged {
    /// All of these make it positive.
    pub asked: Vec<Leg>,
    /// It stands last unless they do.
    pub negative: Leg,
}

/// Recomputes the decision and compares it with the receipt, where there is one.
pub fn check(case: &Case, ledger: &str) -> Vec<Finding> {
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
    let parts = pooled.as_ref().ok();
    let all = change(&attempts, &arms, &derivation);
    let delta = settle(all.delta, recorded("delta"));
    let ends = margins::ends(parts, [recorded("low"), recorded("high")]);
    let [low, high] = ends;

    let bar = case.plan.decision.bar();
    let spread = settle(null_spread(case, &arms[0]), receipt.get("null_spread").and_then(Value::as_f64));
    let of_event = |(at, seed): (usize, &u64)| {
        let of_seed: Vec<&Attempt> =
            attempts.iter().copied().filter(|a| u64::try_from(a.seed) == Ok(*seed)).collect();
        (*seed, settle(change(&of_seed, &arms, &derivation).delta, leg_value(at)))
    };
    let of_events: Vec<(u64, Option<f64>)> =
        case.plan.seeds.evaluate.iter().enumerate().map(of_event).collect();
    if spread.is_none() && wants_spread(case) {
        wrong.push(
            "fewer than two null seeds have scored episodes, and the plan asks for their spread".into(),
        );
    }
    let margin = Margin { bar, ends, parts };
    let judged = match case.plan.decision.rule {
        Rule::ThreeWay => three_way(bar, &of_events, ends, spread),
        Rule::NonInferiority => margin.non_inferiority(),
        Rule::Equivalence => margin.equivalence(leg_value),
    };
    let Judged { asked: mut expected, negative } = judged;
    let outcome = if expected.iter().all(|leg| leg.holds == Some(true)) {
        "positive"
    } else if negative.holds == Some(true) {
        "negative"
    } else {
        "inconclusive"
    };
    if outcome != "positive" {
        expected.push(negative);
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
        if leg.get("asks").and_then(Value::as_str) != Some(&own.asks) {
            let says = shown(leg.get("asks"));
            wrong.push(format!("leg {}: asks {says}, the rule asks whether {}", at + 1, own.asks));
        }
        wrong.extend(differs(&format!("leg {}: value", at + 1), leg.get("value"), own.value));
        wrong.extend(differs(&format!("leg {}: bar", at + 1), leg.get("bar"), Some(own.bar)));
        // A rule without a test, or a test without a spread, leaves the key out.
        if leg.get("p").is_some() || own.p.is_some() {
            wrong.extend(differs(&format!("leg {}: p", at + 1), leg.get("p"), own.p));
        }
        let holds = own.holds.map_or(Value::Null, Value::Bool);
        if leg.get("holds") != Some(&holds) {
            wrong.push(format!("leg {}: `holds` is {}, not {holds}", at + 1, shown(leg.get("holds"))));
        }
    }
    let looks = looks::looks(case, ledger).map(|looks| looks as f64);
    if receipt.get("looks").is_some() || looks.is_some() {
        wrong.extend(differs("looks", receipt.get("looks"), looks));
    }
    wrong.into_iter().map(|detail| Finding::new("decision", &file, None, detail)).collect()
}

/// The three-way rule: every event's change, the pooled interval's lower end, and the spread of base against base.
fn three_way(
    bar: f64,
    of_events: &[(u64, Option<f64>)],
    [low, high]: [Option<f64>; 2],
    spread: Option<f64>,
) -> Judged {
    let leg = |asks: &str, value: Option<f64>, bar: f64, holds: Option<bool>| Leg {
        asks: asks.into(),
        value,
        bar,
        holds,
        p: None,
    };
    let reaches = |(seed, value): &(u64, Option<f64>)| {
        let asks = format!("the change on event {seed} is at least the smallest gain that counts");
        leg(&asks, *value, bar, value.map(|value| value >= bar - SAME))
    };
    let mut asked: Vec<Leg> = of_events.iter().map(reaches).collect();
    let above = "the lower end of the pooled interval lies above zero";
    asked.push(leg(above, low, 0.0, low.map(|low| low > SAME)));
    if let Some(spread) = spread {
        let small = "the spread of base against base stays below the smallest gain that counts";
        asked.push(leg(small, Some(spread), bar, Some(spread < bar - SAME)));
    }
    let below =
        format!("the upper end of the pooled interval lies below the smallest gain that counts{ALONE}");
    Judged { asked, negative: leg(&below, high, bar, high.map(|high| high < bar - SAME)) }
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
    paired::change(&cells::of_arm(attempts, base), &cells::of_arm(attempts, treatment), derivation.weight)
        .unwrap_or(Change { delta: None, tasks: 0, moved: 0 })
}

/// Whether the plan asks for the spread of the base against itself.
fn wants_spread(case: &Case) -> bool {
    case.plan.seeds.null.len() >= 2
}

/// Largest difference between the base arm's mean scores on two null seeds.
fn null_spread(case: &Case, base: &str) -> Option<f64> {
    if !wants_spread(case) {
        return None;
    }
    let of = &case.plan.decision.metric.of;
    let mut by_seed: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (_, _, row) in case.episodes.rows() {
        if case.episodes.text(row, "event") != "null" || case.episodes.text(row, "arm") != base {
            continue;
        }
        if let (Some(seed), Some(score)) =
            (case.episodes.whole(row, "seed"), number(&case.episodes.cell(row, of)))
        {
            by_seed.entry(seed).or_default().push(score);
        }
    }
    let mut means: Vec<f64> = by_seed.values().map(|scores| estimators::plain_mean(scores)).collect();
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
    let nulls = case.plan.seeds.null.iter().filter(|_| wants_spread(case));
    lacking.extend(nulls.map(|seed| format!("episodes/{}/{seed}.parquet", arms[0])));
    for path in receipt.get("files").and_then(Value::as_object).into_iter().flat_map(|files| files.keys()) {
        lacking.remove(path);
    }
    lacking.into_iter().map(|path| format!("is not bound to `{path}`")).collect()
}

/// The recorded number where it agrees with this road's, so that a border is judged on one
/// number only; else this road's.
pub(super) fn settle(own: Option<f64>, recorded: Option<f64>) -> Option<f64> {
    match (own, recorded) {
        (Some(own), Some(recorded)) if (own - recorded).abs() <= TOLERANCE => Some(recorded),
        _ => own,
    }
}

pub(super) fn settle_part(part: Option<&Part>, recorded: Option<f64>) -> Option<f64> {
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
