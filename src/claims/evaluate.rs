//! From chosen rows to numbers: each estimator of a derivation, computed by `stats`.

use super::data::Table;
use super::declare::parts;
use super::derivation::{Cluster, Derivation, Estimator, Weight};
use super::select::{Chosen, same};
use super::value::{Evaluated, Number, Warning};
use crate::episode::row::Cell;
use crate::stats::at_k::{ArmCells, Kind};
use crate::stats::{self, Arm, Method, Observation, Options, Paired, Undefined, aggregate};
use std::collections::{BTreeMap, BTreeSet};

type Parts = BTreeMap<String, Number>;

/// Computes a derivation over a group of rows. `key_text` names the bootstrap's draws. What
/// cannot be had is an undefined part with its reason.
pub fn evaluate(derivation: &Derivation, table: &Table, rows: &[&Chosen<'_>], key_text: &str) -> Evaluated {
    let mut out = Evaluated {
        parts: Parts::new(),
        method: None,
        level: None,
        unit: "tasks".into(),
        warnings: Vec::new(),
    };
    let columns = Positions::new(table);
    match derivation.estimator {
        Estimator::PairedDelta => paired_delta(derivation, &columns, rows, key_text, &mut out),
        Estimator::PassAtK | Estimator::BestAtK => at_k(derivation, &columns, rows, &mut out),
        Estimator::Flips => flips(derivation, &columns, rows, &mut out),
        Estimator::Mean if derivation.data.holds_attempts() => arm_mean(derivation, &columns, rows, &mut out),
        _ => over_rows(derivation, rows, &mut out),
    }
    out
}

/// The result before there is any row: every part undefined, for the reason given.
pub fn undefined(derivation: &Derivation, reason: &str) -> Evaluated {
    let none = |part: &&str| (part.to_string(), Number::Undefined(reason.to_string()));
    Evaluated {
        parts: parts(derivation).iter().map(none).collect(),
        method: None,
        level: None,
        unit: "rows".into(),
        warnings: Vec::new(),
    }
}

/// Where the columns of an attempt stand within a row.
struct Positions {
    arm: Option<usize>,
    task: Option<usize>,
    family: Option<usize>,
    seed: Option<usize>,
    train_seed: Option<usize>,
    rollout: Option<usize>,
    tokens: Option<usize>,
}

impl Positions {
    fn new(table: &Table) -> Positions {
        Positions {
            arm: table.position("arm"),
            task: table.position("task_id"),
            family: table.position("family"),
            seed: table.position("seed"),
            train_seed: table.position("train_seed"),
            rollout: table.position("rollout"),
            tokens: table.position("tokens_sha256"),
        }
    }
}

fn text(row: &[Cell], position: Option<usize>) -> &str {
    match position.and_then(|at| row.get(at)) {
        Some(Cell::Text(text)) => text,
        _ => "",
    }
}

fn whole(row: &[Cell], position: Option<usize>) -> Option<i64> {
    match position.and_then(|at| row.get(at)) {
        Some(Cell::Int(whole)) => Some(*whole),
        _ => None,
    }
}

/// Rows as observations; with two arms the first is the base, else every row is of one arm.
fn observations<'a>(
    derivation: &Derivation,
    at: &Positions,
    rows: &[&'a Chosen<'a>],
) -> Vec<Observation<'a>> {
    let base = derivation.arms.first().filter(|_| derivation.arms.len() == 2);
    let observe = |chosen: &&'a Chosen<'a>| {
        let row = chosen.row;
        let family = text(row, at.family);
        Observation {
            arm: if base.is_some_and(|b| b == text(row, at.arm)) { Arm::Base } else { Arm::Treatment },
            task: text(row, at.task),
            family: Some(family),
            cluster: (derivation.cluster == Cluster::Family).then_some(family),
            seed: whole(row, at.seed).unwrap_or_default(),
            train_seed: whole(row, at.train_seed),
            rollout: whole(row, at.rollout).unwrap_or_default(),
            reward: chosen.of.number(),
            solved: chosen.of.number().map(|x| x != 0.0),
        }
    };
    rows.iter().map(observe).collect()
}

fn weight(derivation: &Derivation) -> stats::Weight {
    match derivation.weight {
        Weight::Task => stats::Weight::Task,
        Weight::Family => stats::Weight::Family,
    }
}

fn number(value: Result<f64, Undefined>) -> Number {
    match value {
        Ok(x) if x.is_finite() => Number::Defined(x),
        Ok(_) => Number::Undefined("too large to be a number".into()),
        Err(why) => Number::Undefined(why.to_string()),
    }
}

impl Evaluated {
    fn put(&mut self, part: &str, value: Result<f64, Undefined>) {
        self.parts.insert(part.to_string(), number(value));
    }

    fn count(&mut self, part: &str, n: usize) {
        self.put(part, Ok(n as f64));
    }
}

fn paired_delta(
    derivation: &Derivation,
    at: &Positions,
    rows: &[&Chosen<'_>],
    key_text: &str,
    out: &mut Evaluated,
) {
    let seen = observations(derivation, at, rows);
    let options = Options {
        weight: weight(derivation),
        bootstrap_key: key_text,
        identical_streams: identical_streams(derivation, at, rows),
        ..Options::default()
    };
    let paired = Paired::new(&seen);
    let estimate = paired.as_ref().map_err(Clone::clone).and_then(|paired| stats::estimate(paired, &options));
    let e = match estimate {
        Ok(estimate) => estimate,
        Err(why) => {
            for part in parts(derivation) {
                out.put(part, Err(why.clone()));
            }
            return out.count("n", paired.map_or(0, |paired| paired.tasks.len()));
        }
    };
    out.put("value", Ok(e.delta));
    out.put("low", e.headline.clone().map(|h| h.interval.low));
    out.put("high", e.headline.clone().map(|h| h.interval.high));
    out.put("p", e.sign_flip.map(|flip| flip.p));
    out.put("se", e.se);
    out.put("df", e.df);
    out.put("mde", e.mde);
    out.count("n", e.tasks);
    if let Ok(headline) = e.headline {
        out.level = Some(stats::LEVEL);
        out.method = Some(method(headline.method, derivation.cluster).to_string());
    }
    out.warnings.extend(e.warnings.into_iter().map(|w| Warning { code: w.code.to_string(), text: w.text }));
}

fn method(method: Method, cluster: Cluster) -> &'static str {
    match (method, cluster) {
        (Method::ExpandedPercentile, Cluster::Task) => "expanded percentile bootstrap of whole tasks",
        (Method::ExpandedPercentile, Cluster::Family) => "expanded percentile bootstrap of whole families",
        (Method::ExpandedPercentileMultinomial, _) => "expanded percentile bootstrap by multinomial counts",
        (Method::T, Cluster::Task) => "t interval over tasks",
        (Method::T, Cluster::Family) => "t interval over families",
        (Method::Identical, _) => "exact: both arms wrote the same tokens",
    }
}

/// Whether both arms sampled the very same tokens in the very same attempts.
fn identical_streams(derivation: &Derivation, at: &Positions, rows: &[&Chosen<'_>]) -> bool {
    let streams = |arm: Option<&String>| -> BTreeSet<(&str, i64, i64, &str)> {
        rows.iter()
            .map(|chosen| chosen.row)
            .filter(|row| arm.is_some_and(|arm| arm == text(row, at.arm)))
            .map(|row| {
                let (seed, rollout) = (whole(row, at.seed), whole(row, at.rollout));
                (
                    text(row, at.task),
                    seed.unwrap_or_default(),
                    rollout.unwrap_or_default(),
                    text(row, at.tokens),
                )
            })
            .collect()
    };
    let (base, treatment) = (streams(derivation.arms.first()), streams(derivation.arms.get(1)));
    !base.is_empty() && base == treatment && base.iter().all(|stream| !stream.3.is_empty())
}

fn arm_mean(derivation: &Derivation, at: &Positions, rows: &[&Chosen<'_>], out: &mut Evaluated) {
    let mut seen = observations(derivation, at, rows);
    let arms: BTreeSet<&str> = rows.iter().map(|chosen| text(chosen.row, at.arm)).collect();
    if arms.len() > 1 {
        keep_arms_apart(&mut seen, at, rows);
        let text = format!("rows of {} arms are averaged together: name one in `arms`", arms.len());
        out.warnings.push(Warning { code: "mixed_arms".into(), text });
    }
    let mean = match aggregate::arm_mean(&seen, Arm::Treatment, weight(derivation)) {
        Ok(mean) => mean,
        Err(why) => {
            for part in parts(derivation) {
                out.put(part, Err(why.clone()));
            }
            return out.count("n", 0);
        }
    };
    let interval = match (mean.t, &mean.se) {
        (Ok(_), Ok(se)) if *se == 0.0 => Err(Undefined::new("no task mean varies")),
        (t, _) => t,
    };
    out.put("value", Ok(mean.mean));
    out.put("low", interval.clone().map(|i| i.low));
    out.put("high", interval.clone().map(|i| i.high));
    out.put("df", mean.se.clone().map(|_| mean.df));
    out.put("se", mean.se);
    out.count("n", mean.tasks);
    if interval.is_ok() {
        out.level = Some(stats::LEVEL);
        out.method = Some(method(Method::T, derivation.cluster).to_string());
    }
}

/// A cell belongs to one arm: where a mean is over several, their cells get seeds of their own, in
/// rising order of (seed, train_seed, arm).
fn keep_arms_apart(seen: &mut [Observation<'_>], at: &Positions, rows: &[&Chosen<'_>]) {
    let keys: Vec<(i64, Option<i64>, &str)> =
        seen.iter().zip(rows).map(|(o, chosen)| (o.seed, o.train_seed, text(chosen.row, at.arm))).collect();
    let rank: BTreeMap<_, i64> = keys.iter().copied().collect::<BTreeSet<_>>().into_iter().zip(0..).collect();
    for (observation, key) in seen.iter_mut().zip(&keys) {
        observation.seed = rank.get(key).copied().unwrap_or_default();
        observation.train_seed = None;
    }
}

fn at_k(derivation: &Derivation, at: &Positions, rows: &[&Chosen<'_>], out: &mut Evaluated) {
    let seen = observations(derivation, at, rows);
    let kind = if derivation.estimator == Estimator::PassAtK { Kind::Pass } else { Kind::Best };
    let result = ArmCells::new(&seen, Arm::Treatment).at(kind, derivation.k.unwrap_or_default() as usize);
    out.put("value", result.value);
    out.count("n", result.tasks);
}

fn flips(derivation: &Derivation, at: &Positions, rows: &[&Chosen<'_>], out: &mut Evaluated) {
    let flips = aggregate::flips(&observations(derivation, at, rows));
    let pairs = flips.pairs();
    out.unit = "paired attempts".into();
    out.count("gained", flips.treatment_only);
    out.count("lost", flips.base_only);
    out.count("both", flips.both);
    out.count("neither", flips.neither);
    out.count("n", pairs);
    out.put(
        "value",
        match pairs {
            0 => Err(Undefined::new("the arms share no attempt")),
            _ => Ok(flips.treatment_only as f64 - flips.base_only as f64),
        },
    );
}

fn over_rows(derivation: &Derivation, rows: &[&Chosen<'_>], out: &mut Evaluated) {
    out.unit = "rows".into();
    out.count("n", rows.len());
    let numbers: Vec<f64> = rows.iter().filter_map(|chosen| chosen.of.number()).collect();
    let some =
        |value: f64| if rows.is_empty() { Err(Undefined::new("there are no rows")) } else { Ok(value) };
    out.put(
        "value",
        match derivation.estimator {
            Estimator::Count => Ok(rows.len() as f64),
            Estimator::CountDistinct => {
                Ok(aggregate::count_distinct(rows.iter().map(|c| distinct(&c.of))) as f64)
            }
            Estimator::Share => {
                let counts = |chosen: &&Chosen<'_>| match &derivation.is {
                    Some(wanted) => same(&chosen.of, wanted),
                    None => chosen.of.number() == Some(1.0),
                };
                aggregate::share(&rows.iter().map(counts).collect::<Vec<bool>>())
            }
            Estimator::Sum => some(aggregate::sum(&numbers)),
            Estimator::Min => aggregate::min(&numbers),
            Estimator::Max => aggregate::max(&numbers),
            Estimator::Last => some(numbers.last().copied().unwrap_or_default()),
            _ => aggregate::mean(&numbers),
        },
    );
}

/// What tells values apart: their kind and text.
fn distinct(cell: &Cell) -> (bool, String) {
    (matches!(cell, Cell::Text(_)), cell.to_string())
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
