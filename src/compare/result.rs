//! The result of a comparison: the JSON object that `--json` prints, field by field. The same
//! shape is written down in `docs/schemas/compare.schema.json`; null means undefined.

use crate::stats::sign_flip::Road;
use crate::stats::{Design, Method, Population, Warning, Weight};
use serde::Serialize;
use std::collections::BTreeMap;

/// Two arms, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Rows of the two arms, with and without a reward.
    pub n_rows: usize,
    /// Tasks that both arms have.
    pub paired_tasks: usize,
    /// Whether tasks come back under several seeds.
    pub design: Design,
    /// Event seeds in the paired cells.
    pub n_seeds: usize,
    /// Training seeds in the paired cells.
    pub n_training_seeds: usize,
    /// What counts the same in the mean.
    pub weight: Weight,
    /// What is resampled as a whole: `task` or `family`.
    pub cluster: &'static str,
    /// Number of resampling units.
    pub units: usize,
    /// What the interval speaks about.
    pub population: Population,
    /// Key text of the bootstrap.
    pub bootstrap_key: String,
    /// The arm compared against.
    pub base: ArmSummary,
    /// The arm under test.
    pub treatment: ArmSummary,
    /// Mean over paired tasks of treatment minus base.
    pub delta: f64,
    /// Standard error of the delta.
    pub se: Option<f64>,
    /// The interval to read first.
    pub ci: Headline,
    /// The t interval.
    pub ci_t: TInterval,
    /// Two-sided p value of the t test.
    pub t_p: Option<f64>,
    /// Two-sided p value of the sign-flip test.
    pub sign_flip_p: Option<f64>,
    /// How the sign-flip p value was had.
    pub sign_flip_method: Option<Road>,
    /// McNemar's exact test, where each task gives one pair.
    pub mcnemar: Option<McNemar>,
    /// Smallest effect found with 80% power at level .05.
    pub mde: Option<f64>,
    /// Share of the squared standard error that the drawing of attempts gives; null where a cell has a single attempt.
    pub rollout_share: Option<f64>,
    /// pass@k from `solved`, over all tasks of each arm.
    pub pass_at_k: PerArm<BTreeMap<usize, Option<f64>>>,
    /// Expected best of k rewards, over all tasks of each arm.
    pub best_at_k: PerArm<BTreeMap<usize, Option<f64>>>,
    /// Wilson's 95% interval of the solve rate over the paired tasks, where each gives one pair.
    pub wilson: Option<PerArm<[f64; 2]>>,
    /// Paired tasks whose means differ.
    pub nonzero_differences: usize,
    /// Scored over planned episodes, where planned is what either arm shows.
    pub coverage: PerArm<f64>,
    /// The delta if everything missing had gone against the treatment, or for it.
    pub worst_case: Option<Ends>,
    /// What must be known beside the numbers.
    pub warnings: Vec<Warning>,
    /// Why a field above is null.
    pub undefined: BTreeMap<&'static str, String>,
    /// The task differences in rising order of the task, for the plot.
    #[serde(skip)]
    pub differences: Vec<f64>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmSummary {
    /// Its name in the rows.
    pub name: String,
    /// Mean of its task means over the paired tasks.
    pub mean: f64,
    /// Tasks with a scored episode.
    pub tasks: usize,
    /// Episodes with a reward.
    pub n_scored: usize,
    /// Episodes there should be: its own rows, and those that only the other arm has.
    pub n_planned: usize,
    /// Rows without a reward.
    pub n_unscored: usize,
    /// Rows with a reward whose `solved` is missing: pass@k leaves them out.
    pub n_unjudged: usize,
}

/// The interval to read first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Headline {
    /// How it was had.
    pub method: Option<Method>,
    /// Lower end.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Confidence level.
    pub level: f64,
}

/// The t interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TInterval {
    /// Lower end.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Degrees of freedom.
    pub df: Option<f64>,
}

/// Two ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ends {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The fourfold table of solved tasks, with its exact p value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct McNemar {
    /// Solved by both arms.
    pub both: usize,
    /// Solved by the base arm only.
    pub base_only: usize,
    /// Solved by the treatment arm only.
    pub treatment_only: usize,
    /// Solved by neither.
    pub neither: usize,
    /// Two-sided exact p value.
    pub p: f64,
}

/// One value an arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PerArm<T> {
    /// The arm compared against.
    pub base: T,
    /// The arm under test.
    pub treatment: T,
}

impl<T> PerArm<T> {
    /// Both values by reference.
    pub fn as_ref(&self) -> PerArm<&T> {
        PerArm { base: &self.base, treatment: &self.treatment }
    }

    /// Both values through `f`.
    pub fn map<U>(self, f: impl Fn(T) -> U) -> PerArm<U> {
        PerArm { base: f(self.base), treatment: f(self.treatment) }
    }
}
