//! The paired delta with everything that must stand beside it: standard error, t interval,
//! bootstrap interval, the rule that picks the headline, sign-flip p, the smallest effect the
//! design can detect, and warnings.

use super::bootstrap::Resamples;
use super::distribution::{normal_quantile, t_cdf, t_quantile, t_two_sided};
use super::sign_flip::{Road, SignFlip, sign_flip};
use super::units::{Units, Weight};
use super::{FEW_NONZERO, FEW_UNITS, Interval, LEVEL, Paired, RESAMPLES, Undefined, Value, Warning, counted};
use super::{fault, training_seeds};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the interval speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Population {
    /// More tasks like these, with the arms as they are.
    #[default]
    #[serde(rename = "tasks")]
    Tasks,
    /// More tasks and more training runs like these.
    #[serde(rename = "tasks-x-train-seeds")]
    TasksTimesTrainSeeds,
}

/// What is estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options<'a> {
    /// What counts the same in the mean.
    pub weight: Weight,
    /// What the interval speaks about.
    pub population: Population,
    /// Key text of the bootstrap, and of random sign flips.
    pub bootstrap_key: &'a str,
    /// Whether both arms wrote the very same tokens, so that a delta of 0 is exact.
    pub identical_streams: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            weight: Weight::Task,
            population: Population::Tasks,
            bootstrap_key: "0",
            identical_streams: false,
        }
    }
}

/// How the headline interval was had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Expanded percentile bootstrap over whole units, normative.
    ExpandedPercentile,
    /// The same by multinomial counts: equal in distribution, not in digits.
    ExpandedPercentileMultinomial,
    /// Student's t.
    T,
    /// Both arms wrote the same tokens: nothing differed, and [0, 0] is exact.
    Identical,
}

/// The interval to print first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Headline {
    /// How it was had.
    pub method: Method,
    /// Its ends.
    pub interval: Interval,
}

/// A paired delta and what belongs beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Number of tasks that both arms have.
    pub tasks: usize,
    /// Number of resampling units: tasks, clusters, or (for claims about training) the smaller
    /// of tasks and training seeds.
    pub units: usize,
    /// Weighted mean of the base arm's task means.
    pub base: f64,
    /// Weighted mean of the treatment arm's task means.
    pub treatment: f64,
    /// Weighted mean of the task differences, treatment minus base.
    pub delta: f64,
    /// Standard error of the delta.
    pub se: Value,
    /// Degrees of freedom of the t interval.
    pub df: Value,
    /// delta ± t(.975, df) · se.
    pub t: Result<Interval, Undefined>,
    /// Two-sided p value of the t test; undefined at zero variance.
    pub t_p: Value,
    /// The interval to print first.
    pub headline: Result<Headline, Undefined>,
    /// Sign-flip test over the units, or over training seeds for claims about training.
    pub sign_flip: Result<SignFlip, Undefined>,
    /// The smallest effect found with 80% power at level .05, (z.975 + z.80) · se; undefined at
    /// zero variance.
    pub mde: Value,
    /// Share of the squared standard error that the drawing of attempts gives: where it is large, more attempts at each task
    /// narrow the interval, where it is small, only more tasks do. Undefined where a cell has a single attempt.
    pub rollout_share: Value,
    /// Number of tasks whose means differ.
    pub nonzero_differences: usize,
    /// What the reader must know.
    pub warnings: Vec<Warning>,
}

/// Estimates the paired delta of a joined design.
///
/// Undefined where the units cannot be formed (a family or cluster missing), or for a claim
/// about training with other weights or units than single tasks.
pub fn estimate(paired: &Paired<'_>, options: &Options<'_>) -> Result<Estimate, Undefined> {
    let units = Units::new(&paired.values(|t| t.difference()), options.weight)?;
    let of_arm = |of: fn(&super::paired::PairedTask<'_>) -> f64| -> Result<f64, Undefined> {
        Ok(Units::new(&paired.values(of), options.weight)?.mean())
    };
    let delta = fault::PAIRED_DELTA.apply(units.mean());
    let mut warnings = Vec::new();
    let spread = match options.population {
        Population::Tasks => of_tasks(paired, &units, &mut warnings),
        Population::TasksTimesTrainSeeds => of_training(paired, &units, options, &mut warnings)?,
    };
    let t = both(&spread.se, &spread.df, |se, df| {
        let half = t_quantile(0.5 + 0.5 * LEVEL, df) * se;
        Interval { low: delta - half, high: delta + half }
    });
    let varied = |se: &Value| match se {
        Ok(_) if spread.zero_variance => Err(Undefined::new("no task difference varies")),
        other => other.clone(),
    };
    let headline = headline(&units, &spread, options, &t, delta);
    if let Ok(Headline { method: Method::ExpandedPercentileMultinomial, .. }) = headline {
        warnings.push(Warning::new(
            "monte_carlo",
            "with this many tasks the bootstrap draws counts: another program agrees within Monte-Carlo error, not to the last digit",
        ));
    }
    // What is exact needs no word on intervals that cannot be estimated.
    let exact = headline.as_ref().is_ok_and(|headline| headline.method == Method::Identical);
    if exact {
        warnings.retain(|warning| warning.code != "zero_variance");
    }
    let contributions = match options.population {
        Population::Tasks => Ok(units.contributions()),
        Population::TasksTimesTrainSeeds => training_seeds::contributions(paired),
    };
    let sign_flip = contributions.map(|c| sign_flip(&c, options.bootstrap_key));
    if let Ok(SignFlip { road: Road::Random, .. }) = sign_flip {
        warnings.push(Warning::new(
            "sign_flip_random",
            format!("the sign-flip p value comes from {RESAMPLES} random flips: no exact test was possible"),
        ));
    }
    let nonzero_differences = paired.nonzero_differences();
    if nonzero_differences < FEW_NONZERO && !exact {
        warnings.push(Warning::new("few_nonzero", few_differ(nonzero_differences, paired.tasks.len())));
    }
    Ok(Estimate {
        tasks: paired.tasks.len(),
        units: spread.units,
        base: of_arm(|t| t.base)?,
        treatment: of_arm(|t| t.treatment)?,
        delta,
        t_p: both(&varied(&spread.se), &spread.df, |se, df| t_two_sided(delta / se, df)),
        mde: varied(&spread.se).map(detectable),
        rollout_share: varied(&spread.se)
            .and_then(|se| Ok((sampling(paired, options.weight)? / (se * se)).min(1.0))),
        se: spread.se,
        df: spread.df,
        t,
        headline,
        sign_flip,
        nonzero_differences,
        warnings,
    })
}

/// Variance of the delta over fresh attempts at the same tasks: Σ weight² · the variance of each task's difference.
fn sampling(paired: &Paired<'_>, weight: Weight) -> Value {
    let mut families: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for t in &paired.tasks {
        *families.entry(t.family).or_default() += 1;
    }
    let share = |t: &super::paired::PairedTask<'_>| match weight {
        Weight::Task => 1.0 / paired.tasks.len() as f64,
        Weight::Family => 1.0 / (families.len() * families.get(&t.family).copied().unwrap_or(1)) as f64,
    };
    let one = |t: &super::paired::PairedTask<'_>| {
        let variance = t
            .sampling
            .ok_or_else(|| Undefined::new(format!("a cell of task `{}` has a single attempt", t.task)))?;
        Ok(share(t).powi(2) * variance)
    };
    paired.tasks.iter().map(one).sum()
}

/// The smallest effect that a standard error lets a test at .05 find with 80% power.
pub fn detectable(se: f64) -> f64 {
    (normal_quantile(0.5 + 0.5 * LEVEL) + normal_quantile(0.80)) * se
}

/// One-sided p value that the delta is above −`margin`: t test of no worse than the margin.
pub fn non_inferiority_p(estimate: &Estimate, margin: f64) -> Value {
    both(&positive(&estimate.se), &estimate.df, |se, df| t_cdf(-(estimate.delta + margin) / se, df))
}

/// One-sided p value that the delta is below +`margin`.
pub fn non_superiority_p(estimate: &Estimate, margin: f64) -> Value {
    both(&positive(&estimate.se), &estimate.df, |se, df| t_cdf((estimate.delta - margin) / se, df))
}

/// Two one-sided t tests that the delta lies within ±`margin`: the larger p value.
/// Source: Schuirmann (1987).
pub fn equivalence_p(estimate: &Estimate, margin: f64) -> Value {
    Ok(non_inferiority_p(estimate, margin)?.max(non_superiority_p(estimate, margin)?))
}

/// delta ± t · se at another level, such as .90. Exactly [0, 0] where both arms wrote the same tokens, and
/// undefined where the headline is.
pub fn t_interval(estimate: &Estimate, level: f64) -> Result<Interval, Undefined> {
    let headline = estimate.headline.as_ref().map_err(Clone::clone)?;
    if headline.method == Method::Identical {
        return Ok(headline.interval);
    }
    both(&positive(&estimate.se), &estimate.df, |se, df| {
        let half = t_quantile(0.5 + 0.5 * level, df) * se;
        Interval { low: estimate.delta - half, high: estimate.delta + half }
    })
}

fn positive(se: &Value) -> Value {
    match se {
        Ok(se) if *se == 0.0 => Err(Undefined::new("no task difference varies")),
        other => other.clone(),
    }
}

/// Where the uncertainty comes from.
struct Spread {
    units: usize,
    se: Value,
    df: Value,
    zero_variance: bool,
    few: bool,
}

fn of_tasks(paired: &Paired<'_>, units: &Units, warnings: &mut Vec<Warning>) -> Spread {
    let few = units.len() < FEW_UNITS;
    if few && units.clustered && paired.tasks.len() >= FEW_UNITS {
        warnings.push(Warning::new("few_clusters", t_first(units.len(), "cluster")));
    } else if few {
        warnings.push(Warning::new("few_tasks", t_first(paired.tasks.len(), "paired task")));
    }
    let se = units.standard_error();
    let zero_variance = se.is_ok() && units.zero_variance();
    if zero_variance {
        warnings.push(no_variance());
    }
    if paired.train_seeds.len() > 1 {
        warnings.push(Warning::new(
            "training_seeds_averaged",
            format!("{} training seeds are averaged: the interval speaks of more tasks, not of more training runs", paired.train_seeds.len()),
        ));
    }
    let df = se.clone().map(|_| units.df());
    Spread { units: units.len(), se, df, zero_variance, few }
}

fn of_training(
    paired: &Paired<'_>,
    units: &Units,
    options: &Options<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Spread, Undefined> {
    if units.clustered || options.weight != Weight::Task {
        return Err(Undefined::new(
            "a claim about training is defined with single tasks that weigh the same",
        ));
    }
    let seeds = paired.train_seeds.len();
    if seeds == 1 {
        warnings
            .push(Warning::new("one_training_seed", "one training seed supports no claim about training"));
    } else if seeds < training_seeds::FEWEST_FOR_A_TEST {
        warnings.push(Warning::new(
            "few_training_seeds",
            format!(
                "with {seeds} training seeds no sign-flip test can reach .05; it takes {}",
                training_seeds::FEWEST_FOR_A_TEST
            ),
        ));
    }
    let two_way = training_seeds::two_way(paired);
    if two_way.as_ref().is_ok_and(|w| w.zero_variance) {
        warnings.push(no_variance());
    }
    if two_way.as_ref().is_ok_and(|w| !w.balanced) {
        warnings.push(Warning::new(
            "unbalanced_cells",
            "not every task is there under every training seed: the error is that of the mean over cells",
        ));
    }
    if paired.tasks.len() < FEW_UNITS {
        let text = format!("only {}", counted(paired.tasks.len(), "paired task"));
        warnings.push(Warning::new("few_tasks", text));
    }
    Ok(Spread {
        units: paired.tasks.len().min(seeds),
        se: two_way.as_ref().map(|w| w.se).map_err(Clone::clone),
        df: two_way.as_ref().map(|w| w.df).map_err(Clone::clone),
        zero_variance: two_way.is_ok_and(|w| w.zero_variance),
        few: true,
    })
}

fn t_first(count: usize, unit: &str) -> String {
    format!("only {}: with fewer than {FEW_UNITS} the t interval is shown first", counted(count, unit))
}

fn few_differ(differ: usize, tasks: usize) -> String {
    let (subject, that) = match differ {
        0 => ("no task differs".to_owned(), " that do,"),
        1 => (format!("only 1 of {} differs", counted(tasks, "task")), ""),
        _ => (format!("only {differ} of {} differ", counted(tasks, "task")), ""),
    };
    format!("{subject} between the arms; with fewer than {FEW_NONZERO}{that} no interval keeps its level")
}

fn no_variance() -> Warning {
    Warning::new(
        "zero_variance",
        "all task differences are the same: their spread, and so an interval, cannot be estimated",
    )
}

fn headline(
    units: &Units,
    spread: &Spread,
    options: &Options<'_>,
    t: &Result<Interval, Undefined>,
    delta: f64,
) -> Result<Headline, Undefined> {
    if options.identical_streams && delta == 0.0 {
        return Ok(Headline { method: Method::Identical, interval: Interval { low: 0.0, high: 0.0 } });
    }
    let t = t.clone()?;
    if spread.zero_variance {
        return Err(Undefined::new("no task difference varies"));
    }
    if spread.few {
        return Ok(Headline { method: Method::T, interval: t });
    }
    let drawn = Resamples::draw(units, options.bootstrap_key, RESAMPLES);
    let method =
        if drawn.normative { Method::ExpandedPercentile } else { Method::ExpandedPercentileMultinomial };
    Ok(Headline { method, interval: drawn.expanded_percentile(units.len())? })
}

fn both<T>(a: &Value, b: &Value, f: impl Fn(f64, f64) -> T) -> Result<T, Undefined> {
    Ok(f(a.clone()?, b.clone()?))
}

#[cfg(test)]
mod tests;
