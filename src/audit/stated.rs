//! What a receipt states against what was recomputed: one finding for each field that differs.

use super::Finding;
use super::plan_rules::Case;
use serde_json::Value;

/// How far a stated number may lie from the recomputed one.
pub const TOLERANCE: f64 = 1e-9;

/// What a receipt's fields state against what they should.
pub struct Stated<'a> {
    /// The rule that does not hold.
    pub rule: &'static str,
    /// The receipt's file.
    pub file: String,
    /// What it says.
    pub receipt: &'a Value,
    /// What is wrong with it.
    pub wrong: Vec<Finding>,
}

impl<'a> Stated<'a> {
    /// A receipt by name, of a rule.
    pub fn new(case: &Case, rule: &'static str, name: &str, receipt: &'a Value) -> Self {
        Stated { rule, file: case.receipt_path(name), receipt, wrong: Vec::new() }
    }

    /// Holds a field against the recomputed value.
    pub fn holds(&mut self, field: &str, own: &Value, from: &str) {
        self.holds_at(&[field], own, from);
    }

    /// Holds the value at a path against the recomputed one.
    pub fn holds_at(&mut self, path: &[&str], own: &Value, from: &str) {
        let stated = path.iter().try_fold(self.receipt, |here, key| here.get(key));
        let path = path.join(".");
        let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE;
        let agrees = match (stated.and_then(Value::as_f64), own.as_f64()) {
            (Some(stated), Some(own)) => near(stated, own),
            _ => stated == Some(own),
        };
        if !agrees {
            let stated = stated.map_or("missing".into(), Value::to_string);
            self.add(format!("`{path}` is {stated}, {from} {own}"));
        }
    }

    /// Adds a finding.
    pub fn add(&mut self, detail: String) {
        self.wrong.push(Finding::new(self.rule, &self.file, None, detail));
    }

    /// The receipt must name each of `files` among those it is bound to.
    pub fn bound(&mut self, files: impl Iterator<Item = String>) {
        for file in files {
            let named = self.receipt.get("files").is_some_and(|named| named.get(&file).is_some());
            if !named {
                self.add(format!("is not bound to `{file}`"));
            }
        }
    }
}
