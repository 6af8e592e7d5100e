//! Test helper: reads the reference fixtures (CSV rows and JSON values made with other
//! people's software) for the audit's own tests.

use crate::audit::walk::Attempt;
use crate::episode::row::Cell;
use serde_json::Value;
use std::path::PathBuf;

/// The folder with the fixtures.
pub fn folder() -> PathBuf {
    std::env::var_os("REDERIVE_FIXTURES")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"), PathBuf::from)
}

/// A fixture as JSON.
pub fn json(name: &str) -> Value {
    serde_json::from_str(&fs_err::read_to_string(folder().join(name)).unwrap()).unwrap()
}

/// The rows of a fixture's CSV file, with `of` the reward or `solved`.
pub fn attempts(name: &str, of: &str) -> Vec<Attempt<'static>> {
    let text: &str = fs_err::read_to_string(folder().join("stats").join(name)).unwrap().leak();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let fields: Vec<&'static str> = line.split(',').collect();
            let field = |column: &str| fields[header.iter().position(|h| *h == column).unwrap()];
            Attempt {
                label: None,
                arm: field("arm"),
                task: field("task"),
                family: "f",
                seed: field("seed").parse().unwrap(),
                train_seed: None,
                rollout: field("rollout").parse().unwrap(),
                of: Cell::Real(field(of).parse().unwrap()),
                select_score: None,
                tokens: "",
            }
        })
        .collect()
}

/// Asserts that a value is the reference value; a reference of null asks for NaN here.
pub fn near(value: f64, reference: &Value, tolerance: f64, what: &str) {
    match reference.as_f64() {
        Some(want) => assert!((value - want).abs() <= tolerance, "{what}: {value} against {want}"),
        None => assert!(value.is_nan(), "{what}: {value} where the reference is undefined"),
    }
}
