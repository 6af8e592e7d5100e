//! From chosen rows to numbers: each estimator of a derivation, computed by `stats`.

use super::data::{self, Table};
use super::declare::{column, parts};
use super::derivation::{Bounds, Cluster, Derivation, Estimator, Population, Weight};
use super::select::{Chosen, in_band};
use super::value::{Evaluated, Number, Warning};
use crate::episode::columns::RowAt;
use crate::episode::row::{self, Cell};
use crate::stats::at_k::{self, ArmCells, Kind};
use crate::stats::paired::task_means;
use crate::stats::proportion::wilson;
use crate::stats::{self, Arm, Design, Method, Observation, Options, Paired, Undefined, aggregate, repeats};
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
        Estimator::PassAtK | Estimator::BestAtK | Estimator::SelectedAtK => {
            repeated(derivation, &columns, rows, &mut out);
        }
        Estimator::TasksWhere => tasks_where(derivation, &columns, rows, &mut out),
        Estimator::Iqm => {
            let (value, cells) = repeats::interquartile_mean(&observations(derivation, &columns, rows));
            out.unit = "cells".into();
            out.put("value", value);
            out.count("n", cells);
        }
        Estimator::GroupSd => {
            let spread = repeats::group_spread(&observations(derivation, &columns, rows));
            out.unit = "cells".into();
            out.put("value", spread.sd);
            out.put("zero_share", spread.zero_share);
            out.count("n", spread.cells);
        }
        Estimator::ProbabilityOfImprovement => {
            let values = repeats::probability_of_improvement(&observations(derivation, &columns, rows));
            mean_of_tasks(
                derivation,
                values.and_then(|v| aggregate::mean_of_tasks(&v, weight(derivation))),
                &mut out,
            );
        }
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
    select: Option<usize>,
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
            select: table.position("select_score"),
            tokens: table.position("tokens_sha256"),
        }
    }
}

fn text<'a>(row: RowAt<'a>, position: Option<usize>) -> &'a str {
    position.and_then(|at| row.text(at)).unwrap_or("")
}

fn whole(row: RowAt<'_>, position: Option<usize>) -> Option<i64> {
    row.whole(position?)
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
    let mut seen = observations(derivation, at, rows);
    if let Some(k) = derivation.k {
        seen = at_k::one_a_cell(&seen, k as usize);
    }
    let options = Options {
        weight: weight(derivation),
        population: match derivation.population {
            Population::Tasks => stats::Population::Tasks,
            Population::TasksXTrainSeeds => stats::Population::TasksTimesTrainSeeds,
        },
        bootstrap_key: key_text,
        identical_streams: identical_streams(derivation, at, rows),
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
    if let Some(margin) = derivation.margin {
        out.put("non_inferiority_p", stats::estimate::non_inferiority_p(&e, margin));
        out.put("equivalence_p", stats::estimate::equivalence_p(&e, margin));
    }
    out.put("value", Ok(e.delta));
    out.put("low", e.headline.clone().map(|h| h.interval.low));
    out.put("high", e.headline.clone().map(|h| h.interval.high));
    out.put("p", e.sign_flip.map(|flip| flip.p));
    out.put("se", e.se);
    out.put("df", e.df);
    out.put("mde", e.mde);
    out.put("rollout_share", e.rollout_share);
    out.count("n", e.tasks);
    if let Ok(headline) = e.headline {
        out.level = Some(stats::LEVEL);
        let how = match derivation.population {
            Population::TasksXTrainSeeds if headline.method == Method::T => TRAINING,
            _ => method(headline.method, derivation.cluster),
        };
        let design = match paired.as_ref().map(|paired| (paired.seeds, paired.design)) {
            _ if headline.method == Method::Identical => String::new(),
            Ok((seeds @ 2.., Design::Crossed)) => format!("; tasks come back under {seeds} seeds"),
            Ok((seeds @ 2.., Design::Nested)) => format!("; each task belongs to one of {seeds} seeds"),
            _ => String::new(),
        };
        out.method = Some(format!("{how}{design}"));
    }
    out.warnings.extend(e.warnings.into_iter().map(|w| Warning { code: w.code.to_string(), text: w.text }));
}

const TRAINING: &str = "t interval over tasks and training seeds";
/// What stands for a method where both arms wrote the same tokens.
pub(super) const IDENTICAL: &str = "exact: both arms wrote the same tokens";

fn method(method: Method, cluster: Cluster) -> &'static str {
    match (method, cluster) {
        (Method::ExpandedPercentile, Cluster::Task) => "expanded percentile bootstrap of whole tasks",
        (Method::ExpandedPercentile, Cluster::Family) => "expanded percentile bootstrap of whole families",
        (Method::ExpandedPercentileMultinomial, _) => "expanded percentile bootstrap by multinomial counts",
        (Method::T, Cluster::Task) => "t interval over tasks",
        (Method::T, Cluster::Family) => "t interval over families",
        (Method::Identical, _) => IDENTICAL,
    }
}

/// Whether both arms sampled the very same tokens in the very same attempts.
fn identical_streams(derivation: &Derivation, at: &Positions, rows: &[&Chosen<'_>]) -> bool {
    let streams = |arm: Option<&String>| -> BTreeSet<(&str, i64, i64, &str)> {
        rows.iter()
            .map(|chosen| chosen.row)
            .filter(|row| arm.is_some_and(|arm| arm == text(*row, at.arm)))
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
    mean_of_tasks(derivation, aggregate::arm_mean(&seen, Arm::Treatment, weight(derivation)), out);
}

/// A mean over tasks, with its t interval.
fn mean_of_tasks(derivation: &Derivation, mean: Result<aggregate::ArmMean, Undefined>, out: &mut Evaluated) {
    let mean = match mean {
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
    // Where all of it is 0, or all 1, a t interval has nothing to go by.
    let all_alike = if mean.mean == 0.0 { Some(0) } else { (mean.mean == 1.0).then_some(mean.tasks) };
    if let (Some(solved), Err(_), true) = (all_alike, &interval, is_rate(derivation)) {
        let wilson = wilson(solved, mean.tasks);
        out.put("value", Ok(mean.mean));
        out.put("low", wilson.clone().map(|i| i.low));
        out.put("high", wilson.map(|i| i.high));
        out.put("df", mean.se.clone().map(|_| mean.df));
        out.put("se", mean.se);
        out.level = Some(stats::LEVEL);
        out.method = Some("Wilson interval over tasks, since all are alike".to_string());
        return out.count("n", mean.tasks);
    }
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

/// Whether a mean is a rate: of flags or scores, over single tasks that weigh the same.
fn is_rate(derivation: &Derivation) -> bool {
    let flag = derivation.is.is_some()
        || column(derivation)
            .is_some_and(|of| row::is_rate(data::columns(derivation.data).unwrap_or_default(), of));
    flag && derivation.estimator == Estimator::Mean
        && derivation.weight == Weight::Task
        && derivation.cluster == Cluster::Task
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

fn tasks_where(derivation: &Derivation, at: &Positions, rows: &[&Chosen<'_>], out: &mut Evaluated) {
    let means = task_means(&observations(derivation, at, rows), Arm::Treatment);
    let everything = Bounds::default();
    let band = derivation.band.as_ref().unwrap_or(&everything);
    let inside = means.iter().filter(|task| in_band(task.value, band)).count();
    let of = |x: f64| if means.is_empty() { Err(Undefined::new("there are no rows")) } else { Ok(x) };
    out.put("value", of(inside as f64));
    out.put("share", of(inside as f64 / means.len() as f64));
    out.count("n", means.len());
}

fn repeated(derivation: &Derivation, at: &Positions, rows: &[&Chosen<'_>], out: &mut Evaluated) {
    let seen = observations(derivation, at, rows);
    let k = derivation.k.unwrap_or_default() as usize;
    if derivation.estimator == Estimator::SelectedAtK {
        let score = |chosen: &&Chosen<'_>| chosen.row.cell(at.select?).number();
        let scores: Vec<Option<f64>> = rows.iter().map(score).collect();
        let result = repeats::selected_at_k(&seen, &scores, k);
        let own = |(o, score): (&Observation<'_>, &Option<f64>)| o.reward == *score;
        if result.value.is_ok() && seen.iter().zip(&scores).all(own) {
            out.warnings.push(Warning {
                code: "oracle_selection".into(),
                text: "every attempt was selected by the very score that it is judged by: this is the oracle's best of k"
                    .into(),
            });
        }
        out.put("value", result.value);
        return out.count("n", result.tasks);
    }
    let kind = if derivation.estimator == Estimator::PassAtK { Kind::Pass } else { Kind::Best };
    let result = ArmCells::new(&seen, Arm::Treatment).at(kind, k);
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
                let counts = |chosen: &&Chosen<'_>| chosen.of.number() == Some(1.0);
                aggregate::share(&rows.iter().map(counts).collect::<Vec<bool>>())
            }
            Estimator::Sum => some(aggregate::sum(&numbers)),
            Estimator::Min => aggregate::min(&numbers),
            Estimator::Max => aggregate::max(&numbers),
            Estimator::Median => aggregate::median(&numbers),
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
