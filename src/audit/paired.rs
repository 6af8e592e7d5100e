//! Means over tasks and paired differences, a second time: cells in maps, task means
//! over joined cells, resampling units, their standard error, interval and sign-flip test.

use super::bootstrap::{self, Unit};
use super::cells::{Facing, TaskCells, cells, facing, of_arm, sampling, trained, training_cells};
use super::distributions::{normal_quantile, t_quantile_975};
use super::estimators::{Part, Parts, part_names, plain_mean};
use super::margins;
use super::signflip::{self, PValue};
use super::training;
use super::walk::{Attempt, within};
use crate::claims::derivation::{Cluster, Derivation, Estimator, Population, Weight};
use crate::episode::row::{self, EpisodeRow, Row};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Below this many resampling units the interval is t's.
const FEW_UNITS: usize = 10;
/// From more units than this on, the other road may draw in another way.
const ONE_BY_ONE: usize = 4_096;
/// …when the units take at most this many different values.
const FEW_VALUES: usize = 256;

/// Task means this close do not differ.
pub(super) const SAME: f64 = 1e-12;

/// One number for one task.
#[derive(Debug, Clone, PartialEq)]
struct TaskNumber<'a> {
    family: &'a str,
    value: f64,
}

/// Task → its number, in rising order of task.
type TaskNumbers<'a> = BTreeMap<&'a str, TaskNumber<'a>>;

/// The resampling units of task numbers: one list, or one a family where families are strata.
fn strata(tasks: &TaskNumbers, weight: Weight, cluster: Cluster) -> Vec<Vec<Unit>> {
    let single = |value: f64| Unit { sum: value, tasks: 1.0 };
    if (cluster, weight) == (Cluster::Task, Weight::Task) {
        return vec![tasks.values().map(|task| single(task.value)).collect()];
    }
    let mut families: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for task in tasks.values() {
        families.entry(task.family).or_default().push(task.value);
    }
    if cluster == Cluster::Task {
        return families.into_values().map(|values| values.into_iter().map(single).collect()).collect();
    }
    let of_family = |values: Vec<f64>| {
        let share = if weight == Weight::Family { values.len() as f64 } else { 1.0 };
        let mut unit = Unit { sum: 0.0, tasks: 0.0 };
        for value in values {
            unit.sum += value / share;
            unit.tasks += 1.0 / share;
        }
        unit
    };
    vec![families.into_values().map(of_family).collect()]
}

fn ratio(units: &[Unit]) -> f64 {
    let (mut sum, mut tasks) = (0.0, 0.0);
    for unit in units {
        sum += unit.sum;
        tasks += unit.tasks;
    }
    sum / tasks
}

/// Mean, standard error (or why there is none), degrees of freedom, and whether nothing varies.
pub(super) struct Spread {
    pub mean: f64,
    pub error: Result<f64, String>,
    pub df: usize,
    pub units: usize,
    pub nothing_varies: bool,
}

fn spread(strata: &[Vec<Unit>]) -> Spread {
    let means: Vec<f64> = strata.iter().map(|units| ratio(units)).collect();
    let units: usize = strata.iter().map(Vec::len).sum();
    let mut nothing_varies = true;
    let mut variance = 0.0;
    let mut alone = false;
    for (stratum, mean) in strata.iter().zip(&means) {
        let g = stratum.len() as f64;
        let mut squares = 0.0;
        let mut size = 0.0;
        for unit in stratum {
            let residual = unit.sum - unit.tasks * mean;
            nothing_varies &= residual.abs() <= 1e-12 * unit.tasks.max(1.0);
            squares += residual * residual;
            size += unit.tasks;
        }
        alone |= stratum.len() < 2;
        variance += g / (g - 1.0) * squares / (size * size);
    }
    let error = if alone {
        Err("a single unit has no spread".into())
    } else if nothing_varies {
        Ok(0.0)
    } else {
        Ok(variance.sqrt() / strata.len() as f64)
    };
    Spread { mean: plain_mean(&means), error, df: units - strata.len(), units, nothing_varies }
}

fn or_undefined(value: Result<f64, String>) -> Part {
    value.map_or_else(Part::Undefined, Part::Number)
}

/// Mean over tasks (or families) of the mean over cells, with a t interval over tasks.
pub fn episode_mean(derivation: &Derivation, attempts: &[&Attempt]) -> Result<Parts, String> {
    if derivation.arms.len() > 1 {
        return Err("a mean is of one arm".into());
    }
    let tasks = task_means(attempts)?;
    if tasks.is_empty() {
        return Ok(nothing("no row passes the filter", &["value", "low", "high", "se", "df"]));
    }
    Ok(with_t_interval(&tasks, derivation))
}

/// The mean of each task over its cells.
fn task_means<'a>(attempts: &[&Attempt<'a>]) -> Result<TaskNumbers<'a>, String> {
    let mean = |of: TaskCells<'a>| {
        let means: Vec<f64> = of.means().map(|(_, mean)| mean).collect();
        TaskNumber { family: of.family, value: plain_mean(&means) }
    };
    Ok(cells(attempts)?.into_iter().map(|(task, of)| (task, mean(of))).collect())
}

/// How many tasks have a mean within the band.
pub fn tasks_where(derivation: &Derivation, attempts: &[&Attempt]) -> Result<Parts, String> {
    let Some(band) = &derivation.band else { return Err("the derivation names no `band`".into()) };
    let tasks = task_means(attempts)?;
    let n = tasks.len() as f64;
    let inside = tasks.values().filter(|task| within(task.value, band, SAME)).count() as f64;
    let some = |x: f64| {
        if tasks.is_empty() { Part::Undefined("no row passes the filter".into()) } else { Part::Number(x) }
    };
    Ok(BTreeMap::from([("value", some(inside)), ("share", some(inside / n)), ("n", Part::Number(n))]))
}

/// Mean over shared tasks of the share of pairs of attempts, under common seeds, in which the treatment's is the better,
/// an equal pair counting half.
pub fn probability_of_improvement(derivation: &Derivation, attempts: &[&Attempt]) -> Result<Parts, String> {
    let [base, treatment] = derivation.arms.as_slice() else {
        return Err("two arms are compared".into());
    };
    let (base, treatment) = (of_arm(attempts, base), of_arm(attempts, treatment));
    let exact = trained(&base) == trained(&treatment);
    let before = cells(&base)?;
    let mut tasks = TaskNumbers::new();
    for (task, after) in cells(&treatment)? {
        let Some(before) = before.get(task) else { continue };
        let (mut better, mut pairs) = (0.0, 0.0);
        for (seed, train_seed, _, now) in &after.cells {
            let facing = before.cells.iter().filter(|b| b.0 == *seed && (!exact || b.1 == *train_seed));
            for (x, y) in facing.flat_map(|b| &b.3).flat_map(|y| now.iter().map(move |x| (x, y))) {
                better += if (x - y).abs() <= SAME { 0.5 } else { f64::from(u8::from(x > y)) };
                pairs += 1.0;
            }
        }
        if pairs > 0.0 {
            tasks.insert(task, TaskNumber { family: after.family, value: better / pairs });
        }
    }
    if tasks.is_empty() {
        return Ok(nothing(
            "the arms share no task under a common seed",
            &["value", "low", "high", "se", "df"],
        ));
    }
    Ok(with_t_interval(&tasks, derivation))
}

/// The weighted mean of task numbers with a t interval over resampling units.
fn with_t_interval(tasks: &TaskNumbers, derivation: &Derivation) -> Parts {
    let spread = spread(&strata(tasks, derivation.weight, derivation.cluster));
    let mut parts = common(&spread, tasks.len());
    let rate = derivation.estimator == Estimator::Mean
        && (derivation.is.is_some()
            || row::is_rate(EpisodeRow::COLUMNS, derivation.of.as_deref().unwrap_or("")))
        && derivation.weight == Weight::Task
        && derivation.cluster == Cluster::Task;
    let interval = match t_interval(&spread) {
        Ok(_) | Err(_) if rate && (spread.mean == 0.0 || spread.mean == 1.0) => {
            Ok(all_alike(spread.mean, tasks.len()))
        }
        Ok(_) if spread.nothing_varies => Err("nothing varies between tasks".into()),
        other => other,
    };
    parts.insert("low", or_undefined(interval.clone().map(|i| i.0)));
    parts.insert("high", or_undefined(interval.map(|i| i.1)));
    parts
}

/// Wilson's interval where none, or all, of n tasks are solved: n/(n + z²) is as far as the other end goes.
fn all_alike(rate: f64, n: usize) -> (f64, f64) {
    let z = normal_quantile(0.975);
    let reach = z * z / (n as f64 + z * z);
    if rate == 0.0 { (0.0, reach) } else { (1.0 - reach, 1.0) }
}

pub(super) fn t_interval(spread: &Spread) -> Result<(f64, f64), String> {
    let half = t_quantile_975(spread.df.max(1) as u64) * spread.error.clone()?;
    Ok((spread.mean - half, spread.mean + half))
}

fn common(spread: &Spread, tasks: usize) -> Parts {
    let df =
        if spread.error.is_ok() { Ok(spread.df as f64) } else { Err("a single unit has no spread".into()) };
    BTreeMap::from([
        ("value", Part::Number(spread.mean)),
        ("n", Part::Number(tasks as f64)),
        ("se", or_undefined(spread.error.clone())),
        ("df", or_undefined(df)),
    ])
}

fn nothing(why: &str, parts: &[&'static str]) -> Parts {
    let mut all: Parts = parts.iter().map(|part| (*part, Part::Undefined(why.into()))).collect();
    all.insert("n", Part::Number(0.0));
    all
}

/// Mean over shared tasks of treatment minus base, with the headline interval and the test.
pub fn paired_delta(derivation: &Derivation, attempts: &[&Attempt], key_text: &str) -> Result<Parts, String> {
    let [base, treatment] = derivation.arms.as_slice() else {
        return Err("a paired difference compares two arms".into());
    };
    let (base, treatment) = (of_arm(attempts, base), of_arm(attempts, treatment));
    let parts: Vec<&str> = part_names(derivation).iter().copied().filter(|part| *part != "n").collect();
    let mut family_of: HashMap<&str, &str> = HashMap::new();
    for attempt in attempts {
        if *family_of.entry(attempt.task).or_insert(attempt.family) != attempt.family {
            return Ok(nothing(&format!("task `{}` stands in two families", attempt.task), &parts));
        }
    }
    let tasks = differences(&base, &treatment, derivation.k)?;
    if tasks.is_empty() {
        return Ok(nothing("the arms share no task under a common seed", &parts));
    }
    let strata = strata(&tasks, derivation.weight, derivation.cluster);
    let mut spread = spread(&strata);
    let of_seeds = match derivation.population {
        Population::Tasks => None,
        Population::TasksXTrainSeeds => {
            if derivation.weight != Weight::Task || derivation.cluster != Cluster::Task {
                let why = "training is spoken of with single tasks that weigh the same";
                return Ok(nothing(why, &parts));
            }
            let cells = training_cells(&base, &treatment, derivation.k)?;
            spread = training::spread(&cells, spread.mean, tasks.len());
            Some(training::contributions(&cells))
        }
    };
    let mut parts = common(&spread, tasks.len());
    let minimum = if spread.nothing_varies {
        Err("nothing varies between tasks".into())
    } else {
        spread.error.clone().map(|error| (normal_quantile(0.975) + normal_quantile(0.8)) * error)
    };
    parts.insert("mde", or_undefined(minimum));
    let of_attempts = match (&spread.error, spread.nothing_varies) {
        _ if derivation.k.is_some() => Err("a cell is one number".into()),
        (Ok(error), false) => {
            sampling(&base, &treatment, derivation.weight)?.map(|v| (v / (error * error)).min(1.0))
        }
        (Ok(_), true) => Err("nothing varies between tasks".into()),
        (Err(why), _) => Err(why.clone()),
    };
    parts.insert("rollout_share", or_undefined(of_attempts));
    let (p, (low, high)) = match of_seeds {
        None => (sign_flip(&strata), headline(&strata, &spread, &base, &treatment, key_text)),
        Some(sums) => (
            sums.map_or_else(Part::Undefined, |sums| flipped(&sums)),
            training::interval(&spread, same_tokens(&base, &treatment)),
        ),
    };
    parts.insert("p", p);
    parts.insert("low", low);
    parts.insert("high", high);
    if let Some(margin) = derivation.margin {
        let within_margin = margins::within_margin(&spread, margin);
        parts.insert("non_inferiority_p", or_undefined(within_margin.clone().map(|p| p.0)));
        parts.insert("equivalence_p", or_undefined(within_margin.map(|p| p.1)));
    }
    Ok(parts)
}

/// The change between two arms without interval or test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Mean over shared tasks of treatment minus base; `None` when no task is shared.
    pub delta: Option<f64>,
    /// Shared tasks.
    pub tasks: usize,
    /// Shared tasks whose means differ.
    pub moved: usize,
}

/// The change from one arm's attempts to the other's.
pub fn change(base: &[&Attempt], treatment: &[&Attempt], weight: Weight) -> Result<Change, String> {
    let tasks = differences(base, treatment, None)?;
    let delta = (!tasks.is_empty()).then(|| spread(&strata(&tasks, weight, Cluster::Task)).mean);
    let moved = tasks.values().filter(|task| task.value.abs() > SAME).count();
    Ok(Change { delta, tasks: tasks.len(), moved })
}

/// One difference a task over the cells that both arms have. An arm without any training seed
/// stands against every training seed of the other.
fn differences<'a>(
    base: &[&Attempt<'a>],
    treatment: &[&Attempt<'a>],
    k: Option<u32>,
) -> Result<TaskNumbers<'a>, String> {
    let of_task = |(task, family, pairs): (&'a str, &'a str, Vec<Facing>)| {
        let base_mean = plain_mean(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
        let treatment_mean = plain_mean(&pairs.iter().map(|pair| pair.2).collect::<Vec<_>>());
        (task, TaskNumber { family, value: treatment_mean - base_mean })
    };
    Ok(facing(base, treatment, k)?.into_iter().map(of_task).collect())
}

fn sign_flip(strata: &[Vec<Unit>]) -> Part {
    let mut contributions = Vec::new();
    for stratum in strata {
        let share = if strata.len() > 1 { stratum.len() as f64 } else { 1.0 };
        contributions.extend(stratum.iter().map(|unit| unit.sum / share));
    }
    flipped(&contributions)
}

fn flipped(contributions: &[f64]) -> Part {
    match signflip::p_value(contributions) {
        PValue::Exact(p) => Part::Number(p),
        PValue::Simulated { p, low, high } => Part::Within { value: p, low, high },
    }
}

/// The interval that is printed: expanded percentile from ten units on, else t.
fn headline(
    strata: &[Vec<Unit>],
    spread: &Spread,
    base: &[&Attempt],
    treatment: &[&Attempt],
    key_text: &str,
) -> (Part, Part) {
    let undefined = |why: &str| (Part::Undefined(why.into()), Part::Undefined(why.into()));
    if spread.mean == 0.0 && same_tokens(base, treatment) {
        return (Part::Number(0.0), Part::Number(0.0));
    }
    if spread.nothing_varies {
        return undefined("nothing varies between tasks");
    }
    let (low, high) = match t_interval(spread) {
        Ok(interval) => interval,
        Err(why) => return undefined(&why),
    };
    if spread.units < FEW_UNITS {
        return (Part::Number(low), Part::Number(high));
    }
    let sorted = bootstrap::resample(strata, key_text);
    let tail = bootstrap::expanded_tail(spread.units);
    let other_draws = strata.iter().all(|s| s.iter().all(|u| u.tasks == 1.0))
        && spread.units > ONE_BY_ONE
        && distinct_values(strata) <= FEW_VALUES;
    let end = |p: f64| {
        let Some(value) = bootstrap::quantile(&sorted, p) else {
            return Part::Undefined("no resamples".into());
        };
        match bootstrap::monte_carlo_range(&sorted, p) {
            Some((low, high)) if other_draws => Part::Within { value, low, high },
            _ => Part::Number(value),
        }
    };
    (end(tail), end(1.0 - tail))
}

fn distinct_values(strata: &[Vec<Unit>]) -> usize {
    let rounded = |unit: &Unit| (unit.sum * 1e11).round() as i64;
    strata.iter().map(|units| units.iter().map(rounded).collect::<BTreeSet<_>>().len()).sum()
}

/// Whether every attempt of either arm has a counterpart that sampled the very same tokens.
fn same_tokens(base: &[&Attempt], treatment: &[&Attempt]) -> bool {
    fn streams<'a>(arm: &[&Attempt<'a>]) -> BTreeSet<(&'a str, i64, i64, &'a str)> {
        arm.iter().map(|a| (a.task, a.seed, a.rollout, a.tokens)).collect()
    }
    let (left, right) = (streams(base), streams(treatment));
    !left.is_empty() && left == right && left.iter().all(|stream| !stream.3.is_empty())
}
