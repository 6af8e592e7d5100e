//! What a derivation evaluated to, as plain data that pages can print and audits can check.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number, or the reason why there is none. Never NaN, never 0 for "missing".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Number {
    /// A finite number.
    Defined(f64),
    /// Undefined, and why, in a short phrase.
    Undefined(String),
}

impl Number {
    /// The number, if there is one.
    pub fn get(&self) -> Option<f64> {
        match self {
            Number::Defined(x) => Some(*x),
            Number::Undefined(_) => None,
        }
    }
}

/// A warning that travels with a value, such as `few_tasks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Short code.
    pub code: String,
    /// One sentence.
    pub text: String,
}

/// How a printed number fared in the audit, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// What is printed is not what the rows give.
    Mismatch,
    /// The rows do not let the audit compute it.
    Unverifiable,
    /// A fact from elsewhere, printed as it is recorded.
    Cited,
    /// The rows give what is printed, at the printed precision.
    Match,
}

impl Verdict {
    /// The word on badges and in tables.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Mismatch => "mismatch",
            Verdict::Unverifiable => "unverifiable",
            Verdict::Cited => "cited",
            Verdict::Match => "match",
        }
    }
}

/// One evaluated result: its parts by name (`value`, `low`, `high`, `n`, …) and how it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Part → number.
    pub parts: BTreeMap<String, Number>,
    /// The interval's method in words, where there is one.
    pub method: Option<String>,
    /// Confidence level of the interval.
    pub level: Option<f64>,
    /// What `n` counts: `tasks`, `rows`, ….
    pub unit: String,
    /// Flags to print beside the value.
    pub warnings: Vec<Warning>,
}

/// A file that was read, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Path relative to the workspace.
    pub path: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Rows that passed the filter.
    pub rows_used: usize,
    /// Rows in the file.
    pub rows_total: usize,
}

/// A whole derivation: one result, or one a row label for a `by` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// The result over all rows (absent for a pure table only if it could not be defined).
    pub total: Evaluated,
    /// Row label → result, in rising order of label, for `by`.
    pub rows: BTreeMap<String, Evaluated>,
    /// What was read.
    pub sources: Vec<Source>,
}

impl Derived {
    /// The number at a row label (or in all) and part.
    pub fn number(&self, row: Option<&str>, part: &str) -> Option<&Number> {
        let evaluated = match row {
            Some(label) => self.rows.get(label)?,
            None => &self.total,
        };
        evaluated.parts.get(part)
    }
}
