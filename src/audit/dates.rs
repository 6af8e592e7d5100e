//! When things are said to have been done: a plan was locked, and a seed spent, before the rows were made, and
//! nothing was done tomorrow.

use super::Finding;
use super::looks::{self, LEDGER};
use super::plan_rules::Case;
use super::rules::{Gathered, purpose};
use crate::clock;
use crate::experiment::Stage;
use serde_json::Value;
use std::collections::BTreeMap;

/// How far a clock may be set back between two things, in seconds.
const STEP: u64 = 600;
/// How far ahead another machine's clock may be, in seconds.
const AHEAD: u64 = 86_400;

/// All rules about the times of one experiment with a plan.
pub fn check(case: &Case, ledger: &str) -> Vec<Finding> {
    let now = clock::seconds(&clock::now()).unwrap_or(u64::MAX - AHEAD);
    let mut findings = Vec::new();
    let mut wrong = |file: &str, field: &str, said: &str, why: &str| {
        findings.push(Finding::new("dates", file, None, format!("`{field}` is `{said}`, which {why}")));
    };
    let mut locked: BTreeMap<&str, u64> = BTreeMap::new();
    for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
        let name = format!("plan-{}", stage.as_str());
        let Some(lock) = case.receipt(&name) else { continue };
        let said = lock.get("locked_at").and_then(Value::as_str).unwrap_or_default();
        match instant(said, now) {
            Ok(at) => {
                locked.insert(stage.as_str(), at);
            }
            Err(why) => wrong(&case.receipt_path(&name), "locked_at", said, why),
        }
    }
    let events = looks::spent(ledger);
    let mut spent: BTreeMap<(i64, &str), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event.experiment == case.slug) {
        match instant(&event.at, now) {
            // A seed that stands there twice is named elsewhere, and was spent the first time.
            Ok(at) => {
                spent
                    .entry((event.seed, &event.purpose))
                    .and_modify(|first| *first = at.min(*first))
                    .or_insert(at);
            }
            Err(why) => wrong(LEDGER, "at", &event.at, why),
        }
    }
    let sheet = case.episodes;
    let mut early = Gathered::new("dates");
    // Rows that began in the same second say so in the same words.
    let mut last: Option<(&str, Result<u64, &'static str>)> = None;
    for (file, at, row) in sheet.rows() {
        let said = sheet.text(row, "started_at");
        let read = match last {
            Some((text, read)) if text == said => read,
            _ => instant(said, now),
        };
        last = Some((said, read));
        let began = match read {
            Ok(began) => began,
            Err(why) => {
                early.add(file, at, || format!("`started_at` is `{said}`, which {why}"));
                continue;
            }
        };
        let before = |earlier: Option<&u64>| earlier.copied().filter(|earlier| began + STEP < *earlier);
        let stage = if sheet.text(row, "arm") == "harvest" { "harvest" } else { "evaluate" };
        if let Some(lock) = before(locked.get(stage)) {
            let lock = clock::rfc3339(lock);
            early.add(file, at, || format!("began at {said}, before the {stage} stage was locked at {lock}"));
        }
        let seed = sheet.whole(row, "seed").unwrap_or(-1);
        if let Some(spent) = before(spent.get(&(seed, purpose(sheet, row)))) {
            let spent = clock::rfc3339(spent);
            early.add(file, at, || format!("began at {said}, before seed {seed} was spent at {spent}"));
        }
    }
    findings.extend(early.into_findings());
    findings
}

/// The seconds of a time that may have been, or what is wrong with it.
fn instant(said: &str, now: u64) -> Result<u64, &'static str> {
    match clock::seconds(said) {
        None => Err("is no time such as `2026-12-01T09:30:00Z`"),
        Some(at) if at > now + AHEAD => Err("is yet to come"),
        Some(at) => Ok(at),
    }
}
