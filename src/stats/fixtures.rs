//! Test helpers: the reference values computed with other people's software, and the data
//! sets they were computed from.

use super::{Arm, Observation};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("the reference file is JSON")
}

/// Reference statistics of five data sets, with tables.
pub fn golden() -> Value {
    json(include_str!("../../tests/fixtures/stats/golden.json"))
}

/// Reference values of the normative bootstrap.
pub fn normative() -> Value {
    json(include_str!("../../tests/fixtures/stats/normative_bootstrap.json"))
}

/// A list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a list of numbers");
    list.iter().map(|v| v.as_f64().expect("a number")).collect()
}

/// Asserts that two numbers agree within `tolerance`.
#[track_caller]
pub fn near(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance, "{a} is not {b} within {tolerance}");
}

/// Names of the five reference data sets.
pub const DATA_SETS: [&str; 5] =
    ["binary_basic", "partial_credit", "degenerate_all_equal", "tiny_n5", "unbalanced_missing"];

/// The text of a reference CSV file, for [`observations`].
pub fn csv(name: &str) -> String {
    let text = match name {
        "binary_basic" => include_str!("../../tests/fixtures/stats/binary_basic.csv"),
        "partial_credit" => include_str!("../../tests/fixtures/stats/partial_credit.csv"),
        "degenerate_all_equal" => include_str!("../../tests/fixtures/stats/degenerate_all_equal.csv"),
        "tiny_n5" => include_str!("../../tests/fixtures/stats/tiny_n5.csv"),
        "unbalanced_missing" => include_str!("../../tests/fixtures/stats/unbalanced_missing.csv"),
        other => panic!("there is no reference data set `{other}`"),
    };
    text.to_owned()
}

/// The observations of a reference CSV file (dataset, arm, task, seed, rollout, reward, solved).
pub fn observations(text: &str) -> Vec<Observation<'_>> {
    let mut out = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let &[_, arm, task, seed, rollout, reward, solved] = fields.as_slice() else {
            panic!("a line of a reference file has seven fields");
        };
        out.push(Observation {
            arm: if arm == "base" { Arm::Base } else { Arm::Treatment },
            task,
            family: None,
            cluster: None,
            seed: seed.parse().expect("a seed"),
            train_seed: None,
            rollout: rollout.parse().expect("a rollout"),
            reward: Some(reward.parse().expect("a reward")),
            solved: Some(solved == "1"),
        });
    }
    out
}

/// One made-up observation.
pub fn made(arm: Arm, task: &'static str, seed: i64, rollout: i64, reward: f64) -> Observation<'static> {
    Observation {
        arm,
        task,
        family: None,
        cluster: None,
        seed,
        train_seed: None,
        rollout,
        reward: Some(reward),
        solved: Some(reward >= 1.0),
    }
}
