//! Means over tasks and paired differences, a second time: cells in maps, task means
//! over joined cells, resampling units, their standard error, interval and sign-flip test.

use super::bootstrap::{self, Unit};
use super::distributions::{normal_quantile, t_quantile_975};
use super::estimators::{Part, Parts, number_of, plain_mean};
use super::signflip::{self, PValue};
use super::walk::Attempt;
use crate::claims::derivation::{Cluster, Derivation, Weight};
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

/// (seed, train_seed).
type Seeds = (i64, Option<i64>);

/// (seed, train_seed, arm) of a cell.
type CellKey<'a> = (i64, Option<i64>, &'a str);

/// Task → family and the means of its cells.
type TaskCells<'a> = BTreeMap<&'a str, (&'a str, BTreeMap<CellKey<'a>, f64>)>;

/// The mean of every cell, walking attempt by attempt.
fn cells<'a>(attempts: &[&'a Attempt]) -> Result<TaskCells<'a>, String> {
    let mut values: HashMap<(&str, CellKey), Vec<(i64, f64)>> = HashMap::new();
    let mut family_of: HashMap<&str, &str> = HashMap::new();
    for attempt in attempts {
        family_of.entry(&attempt.task).or_insert(&attempt.family);
        let key = (attempt.seed, attempt.train_seed, attempt.arm.as_str());
        values.entry((&attempt.task, key)).or_default().push((attempt.rollout, number_of(attempt)?));
    }
    let mut tasks: TaskCells = BTreeMap::new();
    for ((task, key), mut rollouts) in values {
        rollouts.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let rewards: Vec<f64> = rollouts.into_iter().map(|(_, reward)| reward).collect();
        let family = family_of.get(task).copied().unwrap_or("");
        tasks.entry(task).or_insert((family, BTreeMap::new())).1.insert(key, plain_mean(&rewards));
    }
    Ok(tasks)
}

/// The resampling units of task numbers: one list, or one a family where families are strata.
fn strata(tasks: &TaskNumbers, weight: Weight, cluster: Cluster) -> Vec<Vec<Unit>> {
    let mut family_size: BTreeMap<&str, f64> = BTreeMap::new();
    for task in tasks.values() {
        *family_size.entry(task.family).or_insert(0.0) += 1.0;
    }
    let single = |task: &TaskNumber| Unit { sum: task.value, tasks: 1.0 };
    match (cluster, weight) {
        (Cluster::Task, Weight::Task) => vec![tasks.values().map(single).collect()],
        (Cluster::Task, Weight::Family) => family_size
            .keys()
            .map(|family| tasks.values().filter(|task| task.family == *family).map(single).collect())
            .collect(),
        (Cluster::Family, _) => {
            let of_family = |(family, size): (&&str, &f64)| {
                let share = if weight == Weight::Family { *size } else { 1.0 };
                let mut unit = Unit { sum: 0.0, tasks: 0.0 };
                for task in tasks.values().filter(|task| task.family == *family) {
                    unit.sum += task.value / share;
                    unit.tasks += 1.0 / share;
                }
                unit
            };
            vec![family_size.iter().map(of_family).collect()]
        }
    }
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
struct Spread {
    mean: f64,
    error: Result<f64, String>,
    df: usize,
    units: usize,
    nothing_varies: bool,
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
    let mut tasks = TaskNumbers::new();
    for (task, (family, cells)) in cells(attempts)? {
        let means: Vec<f64> = cells.into_values().collect();
        tasks.insert(task, TaskNumber { family, value: plain_mean(&means) });
    }
    if tasks.is_empty() {
        return Ok(nothing("no row passes the filter", &["value", "low", "high", "se", "df"]));
    }
    let spread = spread(&strata(&tasks, derivation.weight, derivation.cluster));
    let interval = if spread.nothing_varies && spread.error.is_ok() {
        Err("nothing varies between tasks".into())
    } else {
        t_interval(&spread)
    };
    let mut parts = common(&spread, tasks.len());
    parts.insert("low", or_undefined(interval.clone().map(|i| i.0)));
    parts.insert("high", or_undefined(interval.map(|i| i.1)));
    Ok(parts)
}

fn t_interval(spread: &Spread) -> Result<(f64, f64), String> {
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
    let of = |arm: &String| -> Vec<&Attempt> { attempts.iter().copied().filter(|a| a.arm == *arm).collect() };
    let (base, treatment) = (of(base), of(treatment));
    let parts = ["value", "low", "high", "p", "se", "df", "mde"];
    let mut family_of: HashMap<&str, &str> = HashMap::new();
    for attempt in attempts {
        if *family_of.entry(&attempt.task).or_insert(&attempt.family) != attempt.family {
            return Ok(nothing(&format!("task `{}` stands in two families", attempt.task), &parts));
        }
    }
    let tasks = differences(&base, &treatment)?;
    if tasks.is_empty() {
        return Ok(nothing("the arms share no task under a common seed", &parts));
    }
    let strata = strata(&tasks, derivation.weight, derivation.cluster);
    let spread = spread(&strata);
    let mut parts = common(&spread, tasks.len());
    let minimum = if spread.nothing_varies {
        Err("nothing varies between tasks".into())
    } else {
        spread.error.clone().map(|error| (normal_quantile(0.975) + normal_quantile(0.8)) * error)
    };
    parts.insert("mde", or_undefined(minimum));
    parts.insert("p", sign_flip(&strata));
    let (low, high) = headline(&strata, &spread, &base, &treatment, key_text);
    parts.insert("low", low);
    parts.insert("high", high);
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
    let tasks = differences(base, treatment)?;
    let delta = (!tasks.is_empty()).then(|| spread(&strata(&tasks, weight, Cluster::Task)).mean);
    let moved = tasks.values().filter(|task| task.value.abs() > SAME).count();
    Ok(Change { delta, tasks: tasks.len(), moved })
}

/// Whether an arm carries a training seed at all.
pub fn trained(arm: &[&Attempt]) -> bool {
    arm.iter().any(|attempt| attempt.train_seed.is_some())
}

/// One difference a task over the cells that both arms have. An arm without any training seed
/// stands against every training seed of the other.
fn differences<'a>(base: &[&'a Attempt], treatment: &[&'a Attempt]) -> Result<TaskNumbers<'a>, String> {
    let exact = trained(base) == trained(treatment);
    let before = cells(base)?;
    let mut tasks = TaskNumbers::new();
    for (task, (family, after)) in cells(treatment)? {
        let Some((_, before)) = before.get(task) else { continue };
        let mut pairs: Vec<(Seeds, f64, f64)> = Vec::new();
        for ((seed, train_seed, _), reward) in &after {
            for ((base_seed, base_train_seed, _), base_reward) in before {
                if seed == base_seed && (!exact || train_seed == base_train_seed) {
                    pairs.push(((*seed, train_seed.or(*base_train_seed)), *base_reward, *reward));
                }
            }
        }
        if pairs.is_empty() {
            continue;
        }
        pairs.sort_by_key(|pair| pair.0);
        let base_mean = plain_mean(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
        let treatment_mean = plain_mean(&pairs.iter().map(|pair| pair.2).collect::<Vec<_>>());
        tasks.insert(task, TaskNumber { family, value: treatment_mean - base_mean });
    }
    Ok(tasks)
}

fn sign_flip(strata: &[Vec<Unit>]) -> Part {
    let mut contributions = Vec::new();
    for stratum in strata {
        let share = if strata.len() > 1 { stratum.len() as f64 } else { 1.0 };
        contributions.extend(stratum.iter().map(|unit| unit.sum / share));
    }
    match signflip::p_value(&contributions) {
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
    let streams = |arm: &[&Attempt]| -> BTreeSet<(String, i64, i64, String)> {
        arm.iter().map(|a| (a.task.clone(), a.seed, a.rollout, a.tokens.clone())).collect()
    };
    let (left, right) = (streams(base), streams(treatment));
    !left.is_empty() && left == right && left.iter().all(|stream| !stream.3.is_empty())
}
