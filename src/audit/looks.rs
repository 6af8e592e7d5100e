//! How often a set of tasks has been looked at, a second time: from the lines of the seed ledger and
//! the locks as they stand on disk.

use super::hashes::json;
use super::plan_rules::Case;
use serde_json::Value;

/// Evaluation events up to this experiment's last one whose experiment was locked on the same file of tasks;
/// `None` where the plan names no file.
pub fn looks(case: &Case, ledger: &str) -> Option<usize> {
    let named = case.plan.tasks.file_sha256.clone()?;
    // A file whose verifiers were repaired is known by what was locked.
    let own = drew_from(case, case.slug).unwrap_or(named);
    let entries: Vec<Value> = ledger.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let events: Vec<&str> = entries
        .iter()
        .filter(|entry| entry.get("purpose").and_then(Value::as_str) == Some("evaluate"))
        .filter_map(|entry| entry.get("experiment").and_then(Value::as_str))
        .collect();
    let reach = events.iter().rposition(|slug| *slug == case.slug).map_or(events.len(), |last| last + 1);
    Some(events[..reach].iter().filter(|slug| drew_from(case, slug).as_deref() == Some(&own)).count())
}

/// The hash of the file of tasks that an experiment was locked on.
fn drew_from(case: &Case, slug: &str) -> Option<String> {
    let lock = json(&case.workspace.join(format!("data/{slug}/receipts/plan-evaluate.json"))).ok()?;
    Some(lock.pointer("/section/tasks/file_sha256")?.as_str()?.to_string())
}
