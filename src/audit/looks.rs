//! The seed ledger, a second time: what its lines say, which of them say nothing, and how often a set of
//! tasks has been looked at by its lines and the locks as they stand on disk.

use super::Finding;
use super::hashes::{json, parsed};
use super::plan_rules::Case;
use super::rules::{Gathered, PURPOSES};

/// The seed ledger's path in the workspace.
pub const LEDGER: &str = "data/seeds.jsonl";

/// What a line of it has.
const FIELDS: [&str; 4] = ["seed", "purpose", "experiment", "at"];

/// A line of the seed ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// The event seed.
    pub seed: i64,
    /// What for.
    pub purpose: String,
    /// By which experiment.
    pub experiment: String,
    /// When, as it is written.
    pub at: String,
}

/// The lines of the ledger's text, each from 1 with what it says, or why it says nothing. A last line that was cut off
/// while it was appended is none: the next seed that is spent puts it away.
fn lines(ledger: &str) -> impl Iterator<Item = (usize, Result<Spent, String>)> {
    ledger.split_inclusive('\n').enumerate().filter_map(|(at, line)| {
        let entry = entry(line);
        (line.ends_with('\n') || entry.is_ok()).then_some((at + 1, entry))
    })
}

fn entry(line: &str) -> Result<Spent, String> {
    let value = parsed(line.trim_end())?;
    let fields = value.as_object().ok_or("is no object")?;
    if let Some(other) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(format!("has the unknown field `{other}`"));
    }
    let text = |key: &str| {
        let text = fields.get(key).and_then(|value| value.as_str());
        text.map(String::from).ok_or_else(|| format!("has no text `{key}`"))
    };
    let seed = fields.get("seed").and_then(|seed| seed.as_i64()).filter(|seed| *seed >= 0);
    let entry = Spent {
        seed: seed.ok_or("has no whole number `seed`")?,
        purpose: text("purpose")?,
        experiment: text("experiment")?,
        at: text("at")?,
    };
    match PURPOSES.contains(&entry.purpose.as_str()) {
        true => Ok(entry),
        false => Err(format!("has the unknown purpose `{}`", entry.purpose)),
    }
}

/// What the ledger says, oldest line first.
pub fn spent(ledger: &str) -> Vec<Spent> {
    lines(ledger).filter_map(|(_, entry)| entry.ok()).collect()
}

/// Lines of the ledger that say nothing.
pub fn unreadable(ledger: &str) -> Vec<Finding> {
    let mut wrong = Gathered::new("unreadable_file");
    for (at, entry) in lines(ledger) {
        if let Err(why) = entry {
            wrong.add(LEDGER, at, || format!("line {at} {why}"));
        }
    }
    wrong.into_findings().collect()
}

/// Evaluation events up to this experiment's last one whose experiment was locked on the same file of tasks;
/// `None` where the plan names no file.
pub fn looks(case: &Case, ledger: &str) -> Option<usize> {
    let named = case.plan.tasks.file_sha256.clone()?;
    // A file whose verifiers were repaired is known by what was locked.
    let own = drew_from(case, case.slug).unwrap_or(named);
    let mut events = spent(ledger);
    events.retain(|entry| entry.purpose == "evaluate");
    let reach =
        events.iter().rposition(|entry| entry.experiment == case.slug).map_or(events.len(), |last| last + 1);
    let drawn = |entry: &&Spent| drew_from(case, &entry.experiment).as_deref() == Some(&own);
    Some(events.iter().take(reach).filter(drawn).count())
}

/// The hash of the file of tasks that an experiment was locked on.
fn drew_from(case: &Case, slug: &str) -> Option<String> {
    let lock = json(&case.workspace.join(format!("data/{slug}/receipts/plan-evaluate.json"))).ok()?;
    Some(lock.pointer("/section/tasks/file_sha256")?.as_str()?.to_string())
}
