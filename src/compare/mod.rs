//! `compare`: two arms in rows made anywhere (Parquet, CSV, JSON lines), compared task by task
//! with an interval, a test and everything that limits what they say. Files are read here;
//! every number comes from `stats`.

mod arms;
pub(crate) mod columns;
mod csv;
mod json_lines;
mod judgement;
mod notes;
mod parquet;
mod plot;
mod render;
mod repeats;
mod result;
pub(crate) mod rows;
pub(crate) mod table;
mod wrap;

#[cfg(test)]
pub(crate) mod tests;

pub use result::{ArmSummary, Comparison, Ends, Headline, McNemar, PerArm, TInterval};

use crate::error::{Error, Result};
use crate::stats::aggregate::{count_distinct, flips};
use crate::stats::at_k::{ArmCells, Kind};
use crate::stats::missing::{Coverage, Planned};
use crate::stats::proportion::{mcnemar_exact, wilson};
use crate::stats::{self, Arm, Estimate, LEVEL, Observation, Paired, Undefined, Warning};
use clap::ValueEnum;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What counts the same in the mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Weight {
    /// Each task the same
    #[default]
    Task,
    /// Each family the same, whatever the number of its tasks
    Family,
}

/// What is resampled as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Cluster {
    /// Single tasks
    #[default]
    Task,
    /// Whole families, where tasks of a family rise and fall together
    Family,
}

/// What the interval speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Population {
    /// More tasks like these, with the arms as they are
    #[default]
    Tasks,
    /// More tasks and more training runs like these
    #[value(name = "tasks-x-train-seeds")]
    TasksXTrainSeeds,
}

/// Compare two arms, task by task, in rows of your own
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_long_help = "\
Columns: `task` (or `task_id`) and `reward` in [0, 1] are needed. `arm` is needed unless two files
are given, one an arm, base first. `seed`, `rollout`, `solved` (0/1 or true/false), `family` and
`train_seed` are used where they are there; all others are ignored. A family is the part of the
task before `/` where there is no `family` column. An empty reward is missing: it is left out and counted,
and so is an empty `solved`. In Parquet, whole numbers, decimals, floats, booleans, text and categories are read.

The difference is the mean over the tasks that both arms have; its interval resamples whole
tasks, both arms together, so that repeated attempts at one task never count as new evidence.

Examples:
  rederive compare rows.csv
  rederive compare before.jsonl after.jsonl --map reward=score,task=id
  rederive compare runs.parquet --base plain --treatment tuned --cluster family --json")]
pub struct Options {
    /// Parquet, CSV or JSON lines; one file with an `arm` column, or two files, base first
    #[arg(required = true, value_name = "ROWS")]
    pub rows: Vec<PathBuf>,
    /// The arm to compare against [default: base]
    #[arg(long, value_name = "ARM")]
    pub base: Option<String>,
    /// The arm under test [default: treatment]
    #[arg(long, value_name = "ARM")]
    pub treatment: Option<String>,
    /// Your names for our columns, such as `reward=score,task=id`
    #[arg(long, value_name = "OURS=YOURS", value_delimiter = ',')]
    pub map: Vec<String>,
    /// What counts the same in the mean
    #[arg(long, value_enum, default_value_t)]
    pub weight: Weight,
    /// What is resampled as a whole
    #[arg(long, value_enum, default_value_t)]
    pub cluster: Cluster,
    /// What the interval speaks about
    #[arg(long, value_enum, default_value_t)]
    pub population: Population,
    /// Column that holds the seed an arm was trained with [default: train_seed, where it is there]
    #[arg(long, value_name = "COLUMN")]
    pub training_seed: Option<String>,
    /// Key of the bootstrap's random numbers: the same key gives the same interval, to the last digit
    #[arg(long, value_name = "KEY", default_value = "0")]
    pub bootstrap_key: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Reads the files and compares the two arms.
///
/// # Errors
/// Bad input names the file, the row, the field and a remedy: no such column, a reward that is
/// no number in [0, 1], a repeated episode, arms that cannot be told or share no task.
pub fn run(options: &Options) -> Result<Comparison> {
    let rows = rows::load(options)?;
    let families = options.weight == Weight::Family || options.cluster == Cluster::Family;
    if let Some(e) = rows.episodes.iter().find(|e| families && e.family.is_none()) {
        return Err(Error::invalid(format!("task `{}` has no family", rows::shown(&e.task)))
            .at(rows.place(e))
            .hint("add a `family` column, or name tasks `family/task`"));
    }
    let training = options.population == Population::TasksXTrainSeeds;
    if training && families {
        return Err(Error::invalid("a claim about training takes single tasks that weigh the same")
            .hint("leave out --weight and --cluster, or use --population tasks"));
    }
    if training && rows.episodes.iter().all(|e| e.train_seed.is_none()) {
        return Err(Error::invalid(
            "no arm has a training seed, so nothing can be said about more training runs",
        )
        .hint("name the column with --training-seed, or use --population tasks"));
    }
    let observations = rows.observations(options.cluster);
    compare(&observations, &rows, options).map_err(|why| {
        let remedy = if why.0.contains("two families") {
            "give all rows of a task the same family"
        } else {
            "a task counts where both arms have a row of it with a reward, under the same seed (and training seed, where both are trained)"
        };
        let apart = why.0.contains("share no task").then(|| apart(&observations)).flatten();
        Error::invalid(format!("{why}{}", apart.unwrap_or_default())).at(rows.paths()).hint(remedy)
    })
}

/// A scored task of each arm, where the arms have none in common.
fn apart(observations: &[Observation<'_>]) -> Option<String> {
    let first = |arm: Arm| observations.iter().find(|o| o.arm == arm && o.reward.is_some());
    let shown = |o: &Observation| format!("`{}` under seed {}", rows::shown(o.task), o.seed);
    let (base, treatment) = (first(Arm::Base)?, first(Arm::Treatment)?);
    Some(format!(" (base has {}, treatment {}, for example)", shown(base), shown(treatment)))
}

fn compare(
    observations: &[Observation<'_>],
    rows: &rows::Rows,
    options: &Options,
) -> std::result::Result<Comparison, Undefined> {
    let paired = Paired::new(observations)?;
    let weight = match options.weight {
        Weight::Task => stats::Weight::Task,
        Weight::Family => stats::Weight::Family,
    };
    let population = match options.population {
        Population::Tasks => stats::Population::Tasks,
        Population::TasksXTrainSeeds => stats::Population::TasksTimesTrainSeeds,
    };
    let estimate = stats::estimate(
        &paired,
        &stats::Options {
            weight,
            population,
            bootstrap_key: &options.bootstrap_key,
            identical_streams: false,
        },
    )?;
    let planned = Planned::new(observations);
    let mut warnings = rows.warnings.clone();
    warnings.extend(about_rows(&paired, &planned, count_distinct(observations.iter().map(|o| o.task))));
    warnings.extend(unpaired_rows(observations, &paired));
    warnings.extend(repeats::identical(rows));
    let mut undefined = reasons(&estimate);

    let judged = observations.iter().any(|o| o.solved.is_some());
    warnings.extend(judgement::warnings(rows));
    let once = paired.one_pair_a_task();
    if judged && !once {
        warnings.push(Warning::new(
            "several_pairs",
            "some tasks give several pairs, which are not independent: McNemar's test and Wilson's interval are left out",
        ));
    }
    let on_pairs = if judged && once { pairs_once(observations, &paired) } else { None };
    if on_pairs.is_none() {
        let why = if !rows.judged {
            "there is no `solved` column"
        } else if !judged {
            "`solved` is empty in every row"
        } else if once {
            "`solved` is missing in some rows"
        } else {
            "tasks give several pairs"
        };
        undefined.insert("mcnemar", why.into());
        undefined.insert("wilson", why.into());
    }
    let (mcnemar, wilson) = on_pairs.unzip();
    let cells = PerArm {
        base: ArmCells::new(observations, Arm::Base),
        treatment: ArmCells::new(observations, Arm::Treatment),
    };
    let largest = cells.base.largest().max(cells.treatment.largest());
    let at_k = |kind: Kind| cells.as_ref().map(|c| by_k(c, kind, largest));
    let worst_case = planned.worst_case(weight).transpose()?.map(|(low, high)| Ends { low, high });
    if worst_case.is_none() {
        undefined.insert("worst_case", "nothing is missing".into());
    }
    warnings.extend(estimate.warnings.iter().map(|w| notes::plain(w, &estimate)));
    warnings.extend(beyond_range(&estimate));
    warnings.extend(about_the_test(&estimate, options));
    let arm = |which: Arm, name: &str, mean: f64, coverage: Coverage| ArmSummary {
        name: name.to_owned(),
        mean,
        tasks: count_distinct(
            observations.iter().filter(|o| o.arm == which && o.reward.is_some()).map(|o| o.task),
        ),
        n_scored: coverage.scored,
        n_planned: coverage.planned,
        n_unscored: coverage.unscored,
        n_unjudged: judgement::unjudged(rows, which).0,
    };
    Ok(Comparison {
        n_rows: observations.len(),
        paired_tasks: estimate.tasks,
        design: paired.design,
        n_seeds: paired.seeds,
        n_training_seeds: paired.train_seeds.len(),
        weight,
        cluster: if options.cluster == Cluster::Family { "family" } else { "task" },
        units: estimate.units,
        population,
        bootstrap_key: options.bootstrap_key.clone(),
        base: arm(Arm::Base, &rows.base, estimate.base, planned.base),
        treatment: arm(Arm::Treatment, &rows.treatment, estimate.treatment, planned.treatment),
        delta: estimate.delta,
        se: estimate.se.clone().ok(),
        ci: Headline {
            method: estimate.headline.as_ref().ok().map(|h| h.method),
            low: estimate.headline.as_ref().ok().map(|h| h.interval.low),
            high: estimate.headline.as_ref().ok().map(|h| h.interval.high),
            level: LEVEL,
        },
        ci_t: TInterval {
            low: estimate.t.as_ref().ok().map(|t| t.low),
            high: estimate.t.as_ref().ok().map(|t| t.high),
            df: estimate.df.clone().ok(),
        },
        t_p: estimate.t_p.clone().ok(),
        sign_flip_p: estimate.sign_flip.as_ref().ok().map(|s| s.p),
        sign_flip_method: estimate.sign_flip.as_ref().ok().map(|s| s.road),
        mcnemar,
        mde: estimate.mde.clone().ok(),
        rollout_share: estimate.rollout_share.clone().ok(),
        pass_at_k: at_k(Kind::Pass),
        best_at_k: at_k(Kind::Best),
        wilson,
        nonzero_differences: estimate.nonzero_differences,
        coverage: PerArm { base: planned.base.share(), treatment: planned.treatment.share() },
        worst_case,
        warnings,
        undefined,
        differences: paired.tasks.iter().map(|t| t.difference()).collect(),
    })
}

/// What is missing from `tasks` tasks in all, and how far the crossing of tasks and seeds is complete.
fn about_rows(paired: &Paired<'_>, planned: &Planned<'_, '_>, tasks: usize) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if planned.base.missing() + planned.treatment.missing() > 0 {
        let of = |c: Coverage| {
            format!(
                "{} without a reward and {} absent of {}",
                c.unscored,
                c.missing() - c.unscored,
                c.planned
            )
        };
        let mut text = format!(
            "episodes are missing: in the base arm {}, in the treatment arm {}; see the worst case",
            of(planned.base),
            of(planned.treatment)
        );
        // The two have other denominators, so one need not lie within the other's reach.
        if tasks != paired.tasks.len() {
            text.push_str(&format!(
                ", which fills them in and so is a mean over all {tasks} tasks, the difference over the {} that both arms have",
                if paired.tasks.len() == 1 { "one".to_owned() } else { paired.tasks.len().to_string() }
            ));
        }
        warnings.push(Warning::new("missing_rows", text));
    }
    if paired.unpaired_tasks > 0 {
        let text =
            format!("tasks left out because only one arm has them under a seed: {}", paired.unpaired_tasks);
        warnings.push(Warning::new("unpaired_tasks", text));
    }
    if paired.design == stats::Design::Crossed && paired.crossing < 1.0 {
        let share = stats::rounding::fixed(100.0 * paired.crossing, 1, false);
        let text = format!("not every task is there under every seed: {share}% of the (task, seed) cells");
        warnings.push(Warning::new("incomplete_crossing", text));
    }
    warnings
}

/// Scored rows of paired tasks under seeds that the other arm has no row of: they are in no mean.
fn unpaired_rows(observations: &[Observation<'_>], paired: &Paired<'_>) -> Option<Warning> {
    let joined: BTreeMap<&str, BTreeSet<i64>> =
        paired.tasks.iter().map(|t| (t.task, t.pairs.iter().map(|pair| pair.seed).collect())).collect();
    let mut left: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    for o in observations.iter().filter(|o| o.reward.is_some()) {
        if joined.get(o.task).is_some_and(|seeds| !seeds.contains(&o.seed)) {
            let arm = if o.arm == Arm::Base { "base" } else { "treatment" };
            *left.entry((arm, o.seed)).or_default() += 1;
        }
    }
    let listed: Vec<String> =
        left.iter().take(4).map(|((arm, seed), n)| format!("{n} of {arm} under seed {seed}")).collect();
    (!left.is_empty()).then(|| {
        let more = if left.len() > listed.len() { ", …" } else { "" };
        let text = format!(
            "scored rows left out because the other arm has none under their seed: {}{more}",
            listed.join(", ")
        );
        Warning::new("unpaired_rows", text)
    })
}

/// A t interval knows nothing of the scale: on few tasks it may promise more than rewards can give.
fn beyond_range(estimate: &Estimate) -> Option<Warning> {
    let interval = estimate.headline.as_ref().ok()?.interval;
    (interval.low < -1.0 || interval.high > 1.0).then(|| {
        let text = "the interval reaches beyond -1 or 1, the most that rewards can differ: the tasks are too few to say much";
        Warning::new("beyond_range", text)
    })
}

/// What the test cannot show on so few units, and intervals that do not agree about zero.
fn about_the_test(estimate: &Estimate, options: &Options) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let (units, what) = match options.cluster {
        Cluster::Family => (estimate.units, ["cluster", "clusters"]),
        Cluster::Task => (estimate.nonzero_differences, ["task that differs", "tasks that differ"]),
    };
    let least = 2.0 * 0.5f64.powi(units.min(64) as i32);
    if estimate.sign_flip.is_ok() && options.population == Population::Tasks && units > 0 && least > 0.05 {
        let what = what[usize::from(units != 1)];
        let least = stats::rounding::fixed(least.min(1.0), 4, false);
        let text = format!(
            "with {units} {what} the sign-flip test cannot come below {least}, whatever the rewards are"
        );
        warnings.push(Warning::new("test_without_power", text));
    }
    if let (Ok(headline), Ok(t)) = (&estimate.headline, &estimate.t) {
        let holds_zero = |low: f64, high: f64| low <= 0.0 && high >= 0.0;
        if holds_zero(headline.interval.low, headline.interval.high) != holds_zero(t.low, t.high) {
            let text = "one of the two intervals includes zero and the other does not: too close to call";
            warnings.push(Warning::new("intervals_disagree", text));
        }
    }
    warnings
}

/// Why the statistics that are null have no value.
fn reasons(estimate: &Estimate) -> BTreeMap<&'static str, String> {
    let mut undefined = BTreeMap::new();
    let mut note = |key, reason: Option<&Undefined>| {
        if let Some(reason) = reason {
            undefined.insert(key, notes::reason(reason, estimate));
        }
    };
    note("se", estimate.se.as_ref().err());
    note("ci", estimate.headline.as_ref().err());
    note("ci_t", estimate.t.as_ref().err());
    note("t_p", estimate.t_p.as_ref().err());
    note("sign_flip_p", estimate.sign_flip.as_ref().err());
    note("mde", estimate.mde.as_ref().err());
    note("rollout_share", estimate.rollout_share.as_ref().err());
    undefined
}

/// McNemar's test and Wilson's intervals over the paired tasks, each of which gives one pair;
/// `None` where `solved` is missing in one of them.
fn pairs_once(observations: &[Observation<'_>], paired: &Paired<'_>) -> Option<(McNemar, PerArm<[f64; 2]>)> {
    let seed_of: BTreeMap<&str, i64> =
        paired.tasks.iter().filter_map(|t| Some((t.task, t.pairs.first()?.seed))).collect();
    // Rollout indices may differ between the arms: the pair is what the task has.
    let scored = observations.iter().filter(|o| o.reward.is_some() && seed_of.get(o.task) == Some(&o.seed));
    let pairs: Vec<Observation<'_>> = scored.map(|o| Observation { rollout: 0, ..*o }).collect();
    let f = flips(&pairs);
    if f.pairs() != paired.tasks.len() {
        return None;
    }
    let interval = |solved: usize| wilson(solved, f.pairs()).ok().map(|w| [w.low, w.high]);
    let mcnemar = McNemar {
        both: f.both,
        base_only: f.base_only,
        treatment_only: f.treatment_only,
        neither: f.neither,
        p: mcnemar_exact(f.base_only, f.treatment_only).ok()?,
    };
    let wilson =
        PerArm { base: interval(f.both + f.base_only)?, treatment: interval(f.both + f.treatment_only)? };
    Some((mcnemar, wilson))
}

/// One arm's value at every k up to the largest cell, and at 1, 2 and 4 always.
fn by_k(cells: &ArmCells<'_>, kind: Kind, largest: usize) -> BTreeMap<usize, Option<f64>> {
    let values = cells.at_every_k(kind);
    let ks = (1..=largest).chain([1, 2, 4]);
    ks.map(|k| (k, values.get(k - 1).copied())).collect()
}
