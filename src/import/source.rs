//! What every kind of source gives: rows with the words for where each stands, what the log says of
//! itself, and how fields became columns; and the choices that a person may have to make.

use crate::compare::rows::shown;
use crate::episode::ImportedRow;
use crate::error::{Error, Result, nearest};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What was chosen for all sources of one import.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// The metric or scorer.
    pub metric: Option<String>,
    /// The filter of lm-evaluation-harness.
    pub filter: Option<String>,
    /// The scores that become 0 and 1; they are taken as they are without it.
    pub scale: Option<[f64; 2]>,
    /// The reward from which an attempt counts as solved, where the source does not say so.
    pub solved_from: Option<f64>,
}

impl Choices {
    /// A score as a reward in [0, 1]. `name` is the metric and `place` the row, for the error.
    pub fn reward(&self, name: &str, score: f64, place: impl Fn() -> String) -> Result<f64> {
        let name = shown(name);
        if !score.is_finite() {
            return Err(Error::invalid(format!("`{name}` is {score}, which is no score"))
                .at(place())
                .hint("write a missing score as null or leave it empty, or leave the row out"));
        }
        let reward = match self.scale {
            Some([low, high]) => (score - low) / (high - low),
            None => score,
        };
        if (0.0..=1.0).contains(&reward) {
            // A zero with a sign would be another row than a zero without.
            return Ok(if reward == 0.0 { 0.0 } else { reward });
        }
        let (what, hint) = match self.scale {
            Some([low, high]) => (
                format!("`{name}` is {score}, outside the scale from {low} to {high}"),
                "give the two scores that become 0 and 1, such as --scale 0,100",
            ),
            None => (
                format!("`{name}` is {score}, and rewards lie in [0, 1]"),
                "give the two scores that become 0 and 1, such as --scale 0,100, or choose another --metric",
            ),
        };
        Err(Error::invalid(what).at(place()).hint(hint))
    }

    /// Whether an attempt counts as solved: what the source says, else by `solved_from`.
    pub fn solved(&self, said: Option<bool>, reward: Option<f64>) -> Option<bool> {
        said.or_else(|| Some(reward? >= self.solved_from?)).filter(|_| reward.is_some())
    }

    /// How scores became rewards, in words that go behind the name of the score.
    pub fn scaled(&self) -> String {
        self.scale.map_or_else(String::new, |[low, high]| {
            format!(", numbers scaled from [{low}, {high}] to [0, 1]")
        })
    }

    /// How `solved` came about, where the source says what `from` names.
    pub fn judged(&self, from: Option<&str>) -> String {
        let rule = self.solved_from.map(|least| format!("reward of at least {least}"));
        let parts: Vec<String> = from.map(String::from).into_iter().chain(rule).collect();
        if parts.is_empty() { "null: the source does not say".into() } else { parts.join(", else ") }
    }
}

/// One of several names that a source offers: the one asked for, or the only one.
pub fn choose(
    flag: &str,
    asked: Option<&str>,
    offered: &BTreeSet<String>,
    place: &str,
) -> Result<Option<String>> {
    let list = || offered.iter().map(|name| format!("`{}`", shown(name))).collect::<Vec<_>>().join(", ");
    match (asked, offered.len()) {
        (Some(name), _) if offered.contains(name) => Ok(Some(name.to_string())),
        (Some(name), 0) => {
            Err(Error::invalid(format!("there is no {flag} `{}`, nor any other", shown(name)))
                .at(place)
                .hint(format!("leave out --{flag}")))
        }
        (Some(name), _) => {
            let hint = match nearest(name, offered.iter().map(String::as_str)) {
                Some(near) => format!("did you mean --{flag} {}? There are {}", shown(near), list()),
                None => format!("there are {}", list()),
            };
            Err(Error::invalid(format!("there is no {flag} `{}`", shown(name))).at(place).hint(hint))
        }
        (None, 0 | 1) => Ok(offered.first().cloned()),
        (None, _) => Err(Error::invalid(format!("there are several {flag}s: {}", list()))
            .at(place)
            .hint(format!("choose one, such as --{flag} {}", offered.first().map_or("", String::as_str)))),
    }
}

/// A file beside the rows that says more about them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beside {
    /// Its name.
    pub file: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// What became of the rows of a source.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Lines, samples or rows that were read.
    pub read: usize,
    /// Rows that came of them.
    pub rows: usize,
    /// Rows without a reward.
    pub null_rewards: usize,
    /// Rows whose attempt broke.
    pub errors: usize,
    /// Rows whose attempt ran into a limit.
    pub limits: usize,
    /// What was left out, by reason.
    pub dropped: BTreeMap<String, usize>,
}

/// Where the rows of one file come from, and how. What the log does not say is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Origin {
    /// The file's name.
    pub file: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// `lm-eval`, `inspect` or `table`.
    pub format: &'static str,
    /// A second file that was read for it.
    pub beside: Option<Beside>,
    /// The program that wrote it.
    pub program: Option<String>,
    /// That program's version.
    pub program_version: Option<String>,
    /// The model under test.
    pub model: Option<String>,
    /// The task.
    pub task: Option<String>,
    /// The task's version.
    pub task_version: Option<String>,
    /// When it was run, as the log writes it.
    pub date: Option<String>,
    /// How the run ended.
    pub status: Option<String>,
    /// Seeds and sampling of the run; they chose no task and stand in no row.
    pub settings: Map<String, Value>,
    /// The metric or scorer that gave the rewards.
    pub metric: Option<String>,
    /// The filter that its answers went through.
    pub filter: Option<String>,
    /// The scores that became 0 and 1.
    pub scale: Option<[f64; 2]>,
    /// The reward from which an attempt counts as solved.
    pub solved_from: Option<f64>,
    /// Our column → what it was made from.
    pub mapping: BTreeMap<&'static str, String>,
    /// Columns of a table that stand nowhere.
    pub ignored: Vec<String>,
    /// What became of its rows.
    pub counts: Counts,
}

/// One source, read and checked by itself.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file, as given.
    pub path: String,
    /// What its `source_row` counts: `line`, `sample` or `row`.
    pub unit: &'static str,
    /// Where its rows come from.
    pub origin: Origin,
    /// The rows; `experiment` and the chain are still empty, and so is `arm` unless the file names it.
    pub rows: Vec<ImportedRow>,
}

impl Source {
    /// Where a row stands: `A.eval: sample 3`.
    pub fn place(&self, row: &ImportedRow) -> String {
        format!("{}: {} {}", self.path, self.unit, row.source_row)
    }
}

/// A row that says nothing yet but where it stands.
pub fn blank(source: &str, source_row: usize, task_id: String) -> ImportedRow {
    ImportedRow {
        experiment: String::new(),
        arm: String::new(),
        source: source.into(),
        source_row: i64::try_from(source_row).unwrap_or(i64::MAX),
        model: None,
        family: None,
        level: None,
        task_id,
        task_sha256: None,
        split: None,
        stratum: None,
        seed: None,
        train_seed: None,
        rollout: None,
        reward: None,
        solved: None,
        finish_reason: None,
        prompt_tokens: None,
        completion_tokens: None,
        think_tokens: None,
        wall_ms: None,
        solved_ms: None,
        select_score: None,
        started_at: None,
        error: None,
        row_sha256: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_only_name_is_taken_and_several_are_asked_for() {
        assert_eq!(choose("metric", None, &set(&[]), "x").unwrap(), None);
        assert_eq!(choose("metric", None, &set(&["acc"]), "x").unwrap().as_deref(), Some("acc"));
        assert_eq!(choose("metric", Some("f1"), &set(&["acc", "f1"]), "x").unwrap().as_deref(), Some("f1"));
        let said = choose("metric", None, &set(&["acc", "f1"]), "x").unwrap_err().to_string();
        assert!(
            said.contains("x: ") && said.contains("`acc`, `f1`") && said.contains("--metric acc"),
            "{said}"
        );
        let said = choose("metric", Some("ac"), &set(&["acc", "f1"]), "x").unwrap_err().to_string();
        assert!(said.contains("did you mean --metric acc"), "{said}");
    }

    #[test]
    fn scores_become_rewards_in_the_unit_interval_or_are_refused() {
        let plain = Choices::default();
        let scaled = Choices { scale: Some([1.0, 5.0]), ..Choices::default() };
        let down = Choices { scale: Some([10.0, 0.0]), ..Choices::default() };
        let of = |c: &Choices, x: f64| c.reward("s", x, || "f: line 7".into());
        assert_eq!(of(&plain, 0.25).unwrap(), 0.25);
        assert_eq!(of(&scaled, 5.0).unwrap(), 1.0);
        assert_eq!(of(&down, 2.5).unwrap(), 0.75);
        assert!(of(&down, 10.0).unwrap().is_sign_positive());
        for (choices, x, word) in [
            (&plain, 1.5, "--scale"),
            (&plain, f64::NAN, "no score"),
            (&scaled, 0.5, "from 1 to 5"),
            (&plain, f64::INFINITY, "inf"),
        ] {
            let said = of(choices, x).unwrap_err().to_string();
            assert!(
                said.starts_with("f: line 7: ") && said.contains(word) && said.contains("hint:"),
                "{said}"
            );
        }
    }

    #[test]
    fn nothing_is_solved_without_a_reward_or_a_rule() {
        let rule = Choices { solved_from: Some(0.5), ..Choices::default() };
        assert_eq!(rule.solved(None, Some(0.5)), Some(true));
        assert_eq!(rule.solved(Some(false), Some(0.5)), Some(false));
        assert_eq!(rule.solved(None, None), None);
        assert_eq!(Choices::default().solved(None, Some(1.0)), None);
    }
}
