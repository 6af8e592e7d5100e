//! Estimates with intervals and tests, from episode values held in memory. Pure: this module
//! opens no file and knows nothing of claims, pages or the engine. A statistic that cannot
//! be had is a value of its own, [`Undefined`], with the reason; never 0 and never NaN.

pub mod aggregate;
pub mod at_k;
pub mod bootstrap;
pub mod decision;
pub mod distribution;
pub mod estimate;
#[doc(hidden)]
pub mod fault;
pub mod missing;
pub mod multinomial;
pub mod multiple;
pub mod paired;
pub mod proportion;
pub mod registry;
pub mod repeats;
pub mod rounding;
pub mod sign_flip;
pub mod training_seeds;
pub mod units;

#[cfg(test)]
pub mod fixtures;

pub use estimate::{Estimate, Headline, Method, Options, Population, estimate};
pub use paired::{Design, Paired};
pub use units::{TaskValue, Units, Weight};

use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// Confidence level of every interval.
pub const LEVEL: f64 = 0.95;
/// Bootstrap resamples, and random sign flips where no exact test is possible.
pub const RESAMPLES: usize = 10_000;
/// Below this many resampling units the t interval is the headline.
pub const FEW_UNITS: usize = 10;
/// Below this many tasks with a difference no interval is to be trusted.
pub const FEW_NONZERO: usize = 8;
/// Two values nearer than this are the same number: sums of rewards carry rounding noise.
pub const SAME: f64 = 1e-12;

/// Why a statistic has no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Undefined(pub Cow<'static, str>);

impl Undefined {
    /// The reason, as a clause in lower case without a full stop.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Undefined(reason.into())
    }
}

impl fmt::Display for Undefined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A statistic: a finite number, or why there is none.
pub type Value = Result<f64, Undefined>;

/// Which side of a comparison an episode belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The arm compared against.
    Base,
    /// The arm under test.
    Treatment,
}

/// One episode, as far as statistics are concerned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation<'a> {
    /// Which arm ran it.
    pub arm: Arm,
    /// The task; the same text is the same task in both arms.
    pub task: &'a str,
    /// The kind of task, for `weight = family`.
    pub family: Option<&'a str>,
    /// The resampling unit that the task belongs to; `None` where the task itself is the unit.
    pub cluster: Option<&'a str>,
    /// The event seed.
    pub seed: i64,
    /// The seed the arm was trained with.
    pub train_seed: Option<i64>,
    /// Index of the attempt within its cell.
    pub rollout: i64,
    /// The quantity averaged, finite; `None` is missing and left out, never 0.
    pub reward: Option<f64>,
    /// Whether the task was solved; `None` is missing.
    pub solved: Option<bool>,
}

/// An interval at [`LEVEL`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Something the reader must know beside a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// A stable name, such as `few_tasks`.
    pub code: &'static str,
    /// One sentence in plain words.
    pub text: String,
}

impl Warning {
    /// A warning from its code and text.
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Warning { code, text: text.into() }
    }
}

/// `1 task`, `2 tasks`; `thing` takes a plain `s`.
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
