//! Earlier versions of rows: what lies under `superseded/` is accounted for by a rescore receipt, file
//! by file, from each version to the next one and to what stands there now; and a version differs from
//! the one before in its judging only.

use super::Finding;
use super::hashes::{Listing, check_chains, head, inside, json, sha256 as text_sha256, sorted};
use super::sheet::{self, files_under};
use crate::claims::day::Day;
use crate::claims::derivation::DataSet;
use crate::clock;
use crate::environment::taskset;
use crate::episode::row::{CallRow, Cell, EpisodeRow, Row};
use crate::episode::table;
use crate::error::Result;
use crate::experiment::Plan;
use crate::hash::sha256_file;
use crate::regular;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Columns of an episode that another verifier may fill otherwise.
const JUDGED: [&str; 6] = ["reward", "solved", "parse_ok", "engaged", "verifier_sha256", "row_sha256"];
/// The same of a call.
const READ: [&str; 3] = ["parse_ok", "action_ok", "row_sha256"];
/// Fields of a task's line that say how it is judged, or nothing at all.
const JUDGING: [&str; 11] = [
    "answer",
    "verifier",
    "ignore_case",
    "tolerance",
    "relative_tolerance",
    "match",
    "example",
    "options",
    "compare",
    "paths",
    "note",
];
/// Differences reported of a file.
const SHOWN: usize = 5;

/// A rescore receipt.
struct Rescore {
    number: u64,
    /// Relative to the workspace.
    file: String,
    receipt: Value,
}

impl Rescore {
    fn replaced(&self) -> impl Iterator<Item = (&String, &str, &str)> {
        let replaced = self.receipt.get("replaced").and_then(Value::as_object).into_iter().flatten();
        replaced.map(|(path, change)| {
            let hash = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or_default();
            (path, hash("old"), hash("new"))
        })
    }
}

/// The number of a rescore receipt's file name, `rescore-<n>.json`.
pub fn number(name: &str) -> Option<u64> {
    name.strip_prefix("rescore-")?.strip_suffix(".json")?.parse().ok()
}

/// The rescore receipts of an experiment, the first one first. What is no JSON is found elsewhere.
fn receipts(workspace: &Path, slug: &str) -> Vec<Rescore> {
    let mut out: Vec<Rescore> = files_under(workspace, &format!("data/{slug}/receipts"))
        .into_iter()
        .filter_map(|file| {
            let number = number(file.rsplit('/').next()?)?;
            let value = json(&workspace.join(&file)).ok()?;
            let receipt = value.get("receipt").cloned().unwrap_or(value);
            Some(Rescore { number, file, receipt })
        })
        .collect();
    out.sort_by_key(|rescore| rescore.number);
    out
}

/// Hashes that the plan's task file had before its verifiers were repaired, the latest first.
pub fn earlier_tasks(workspace: &Path, slug: &str, plan: &Plan) -> Vec<String> {
    let mut now = plan.tasks.file_sha256.clone().unwrap_or_default();
    let mut earlier = Vec::new();
    for rescore in receipts(workspace, slug).iter().rev() {
        for (path, old, new) in rescore.replaced() {
            if *path == plan.tasks.environment && new == now {
                now = old.to_string();
                earlier.push(now.clone());
            }
        }
    }
    earlier
}

/// Whether a gate's receipt that a rescore replaced said that it passed.
pub fn passed_before(workspace: &Path, slug: &str, gate: &str) -> bool {
    receipts(workspace, slug).iter().any(|rescore| {
        let path = format!("receipts/{gate}.json");
        let kept = workspace.join(kept(slug, rescore.number, &path));
        rescore.replaced().any(|(replaced, ..)| *replaced == path)
            && json(&kept).is_ok_and(|value| value["receipt"]["passed"] == Value::Bool(true))
    })
}

/// Numbers of the rescores of an experiment, rising.
pub fn numbers(workspace: &Path, slug: &str) -> Vec<u64> {
    receipts(workspace, slug).into_iter().map(|rescore| rescore.number).collect()
}

/// The outcome of a decision that a rescore replaced.
pub struct Earlier {
    /// `positive`, `negative` or `inconclusive`.
    pub outcome: String,
    /// The first day (UTC) on which it may have stood, where another one stood before.
    pub from: Option<Day>,
    /// The last day on which it stood.
    pub until: Day,
}

/// Outcomes of the decisions that rescores replaced, the first one first.
pub fn earlier_outcomes(workspace: &Path, slug: &str) -> Vec<Earlier> {
    let path = "receipts/decision.json";
    let replaced = |rescore: &&Rescore| rescore.replaced().any(|(replaced, ..)| replaced == path);
    let outcome = |rescore: &Rescore| {
        let value = json(&workspace.join(kept(slug, rescore.number, path))).ok()?;
        let outcome = value.pointer("/receipt/decision/outcome")?.as_str()?.to_string();
        let at = rescore.receipt.get("at")?.as_str()?;
        Some((outcome, at.get(..10)?.parse::<Day>().ok()?))
    };
    let mut from = None;
    let replaced: Vec<(String, Day)> =
        receipts(workspace, slug).iter().filter(replaced).filter_map(outcome).collect();
    let of = |(outcome, until)| Earlier { outcome, from: from.replace(until), until };
    replaced.into_iter().map(of).collect()
}

/// Where a rescore keeps the earlier version of a file.
pub fn kept(slug: &str, number: u64, path: &str) -> String {
    format!("data/{slug}/superseded/{number}/{path}")
}

/// Both rules for one experiment; `listing` is what its `hashes.json` says.
pub fn check(workspace: &Path, slug: &str, listing: &Listing) -> Result<Vec<Finding>> {
    let receipts = receipts(workspace, slug);
    let mut findings = readable(workspace, slug, listing);
    let mut unaccounted = |file: &str, detail: String| {
        findings.push(Finding::new("superseded_unaccounted", file, None, detail));
    };
    for file in files_under(workspace, &format!("data/{slug}/wal")) {
        let cut_off = file.ends_with("/journal.json") && file.contains("/wal/rescore-");
        if cut_off {
            unaccounted(&file, format!("a rescore was cut off: `rederive rescore {slug}` finishes it"));
        }
    }
    let mut before = String::new();
    let tomorrow = clock::today().parse::<Day>().map(Day::next);
    for rescore in &receipts {
        let at = rescore.receipt.get("at").and_then(Value::as_str).unwrap_or_default();
        let day = at.get(..10).and_then(|day| day.parse::<Day>().ok());
        let later = day.zip(tomorrow.as_ref().ok()).is_some_and(|(day, tomorrow)| day > *tomorrow);
        if day.is_none() || later || at < before.as_str() {
            unaccounted(
                &rescore.file,
                format!("`at` is `{at}`: no time, or none after the rescore before it and before today"),
            );
        }
        before = at.to_owned();
    }
    let mut named: BTreeSet<String> = BTreeSet::new();
    // What each file was made by the last rescore so far.
    let mut last: BTreeMap<&str, (&str, &Rescore)> = BTreeMap::new();
    for (at, rescore) in receipts.iter().enumerate() {
        let own = rescore.receipt.get("number").and_then(Value::as_u64);
        if rescore.number != at as u64 + 1 || own != Some(rescore.number) {
            unaccounted(&rescore.file, format!("is the rescore number {}, and says otherwise", at + 1));
        }
        let replaces = |folder: &str| rescore.replaced().any(|(path, ..)| path.starts_with(folder));
        if replaces("receipts/") && !replaces("episodes/") {
            unaccounted(&rescore.file, "replaces receipts, and no episode that they rest on".into());
        }
        for (path, old, new) in rescore.replaced() {
            if !inside(path) {
                unaccounted(&rescore.file, format!("`{path}` leaves the experiment's folder"));
                continue;
            }
            let file = kept(slug, rescore.number, path);
            if let Some((before, _)) = last.insert(path, (new, rescore)).filter(|(before, _)| *before != old)
            {
                let detail = format!(
                    "`{path}` was {}… before, and the rescore in front of it left {}…",
                    head(old),
                    head(before)
                );
                unaccounted(&rescore.file, detail);
            }
            let full = workspace.join(&file);
            if !full.is_file() {
                unaccounted(&file, format!("{} replaced it, and it is not there", rescore.file));
            } else {
                let own = |value: &Value| {
                    Some(value.get("sha256")?.as_str()? == text_sha256(&sorted(value.get("receipt")?)))
                };
                let signed = || json(&full).ok().as_ref().and_then(own) == Some(true);
                if path.starts_with("receipts/") && !signed() {
                    unaccounted(
                        &file,
                        "is kept as an earlier receipt, and does not match its own hash".into(),
                    );
                }
                let sha256 = sha256_file(&full)?;
                if sha256 != old {
                    let detail =
                        format!("SHA-256 is {}…, {} replaced {}…", head(&sha256), rescore.file, head(old));
                    unaccounted(&file, detail);
                }
            }
            named.insert(file);
        }
    }
    for (path, (new, rescore)) in &last {
        let file = format!("data/{slug}/{path}");
        let full = workspace.join(&file);
        // What is missing is found elsewhere.
        if full.is_file() && sha256_file(&full)? != *new {
            unaccounted(&file, format!("is not the file that {} put there", rescore.file));
        }
    }
    for file in files_under(workspace, &format!("data/{slug}/superseded")) {
        if !named.contains(&file) {
            unaccounted(
                &file,
                "is kept as an earlier version, and no rescore receipt accounts for it".into(),
            );
        }
    }
    findings.extend(changes(workspace, slug, &receipts));
    Ok(findings)
}

/// Earlier versions that cannot be read, or whose rows are no chain.
fn readable(workspace: &Path, slug: &str, listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = files_under(workspace, &format!("data/{slug}/superseded"));
    for data in [DataSet::Episodes, DataSet::Calls] {
        let folder = sheet::folder(data).unwrap_or_default();
        let of = |path: &&String| {
            let own = path.splitn(5, '/').nth(4).and_then(|own| own.strip_prefix(folder));
            path.ends_with(".parquet") && own.is_some_and(|own| own.starts_with('/'))
        };
        let loaded = sheet::read(workspace, data, files.iter().filter(of).cloned().collect());
        findings.extend(loaded.findings);
        findings.extend(check_chains(loaded.chains, slug, listing).1);
    }
    findings
}

/// What each rescore changed, file by file, against what it may.
fn changes(workspace: &Path, slug: &str, receipts: &[Rescore]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, rescore) in receipts.iter().enumerate() {
        let mut counts: BTreeMap<String, [u64; 4]> = BTreeMap::new();
        for (path, ..) in rescore.replaced().filter(|(path, ..)| inside(path)) {
            let later = receipts[at + 1..].iter().find(|later| later.replaced().any(|(p, ..)| p == path));
            let now =
                later.map_or_else(|| format!("data/{slug}/{path}"), |later| kept(slug, later.number, path));
            let before = workspace.join(kept(slug, rescore.number, path));
            let after = workspace.join(&now);
            if !before.is_file() || !after.is_file() {
                continue;
            }
            if path.ends_with(".jsonl") {
                findings.extend(tasks(&now, &before, &after));
            } else if path.starts_with("episodes/") {
                let pair = (table::read::<EpisodeRow>(&before), table::read::<EpisodeRow>(&after));
                // A file that cannot be read, or whose rows are no chain, is found by `readable`.
                if let (Ok(before), Ok(after)) = pair {
                    findings.extend(more(&now, &before, &after, &JUDGED));
                    findings.extend(verifiers(&now, &after, &rescore.receipt));
                    findings.extend(unjustified(&now, &before, &after, &rescore.receipt));
                    tally(&before, &after, &mut counts);
                }
            } else if path.starts_with("calls/") {
                let pair = (table::read::<CallRow>(&before), table::read::<CallRow>(&after));
                if let (Ok(before), Ok(after)) = pair {
                    findings.extend(more(&now, &before, &after, &READ));
                }
            } else if !path.starts_with("receipts/") {
                let detail = format!("{} replaced it: no rows, no receipt and no tasks", rescore.file);
                findings.push(Finding::new("rescore_changed_more", &now, None, detail));
            }
        }
        findings.extend(stated(rescore, &counts));
    }
    findings
}

/// Rows of two versions that differ in more than the columns of a judgement.
fn more<R: Row>(file: &str, before: &[R], after: &[R], free: &[&str]) -> Vec<Finding> {
    let wrong = |row, detail| Finding::new("rescore_changed_more", file, row, detail);
    if before.len() != after.len() {
        return vec![wrong(None, format!("has {} rows, the version before {}", after.len(), before.len()))];
    }
    let fixed: Vec<usize> =
        (0..R::COLUMNS.len()).filter(|at| !free.contains(&R::COLUMNS[*at].name)).collect();
    let mut findings = Vec::new();
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        let (before, after) = (before.cells(), after.cells());
        if let Some(at) = fixed.iter().copied().find(|at| before.get(*at) != after.get(*at)) {
            let cell = |cells: &[Cell]| cells.get(at).map_or_else(String::new, Cell::to_string);
            let detail = format!(
                "`{}` is `{}`, in the version before `{}`: a rescore changes judgements only",
                R::COLUMNS[at].name,
                cell(&after),
                cell(&before)
            );
            findings.push(wrong(Some(number + 1), detail));
        }
    }
    if findings.len() > SHOWN {
        let rest = findings.len() - SHOWN;
        findings.truncate(SHOWN);
        findings.push(wrong(None, format!("{rest} more rows differ in more than their judgement")));
    }
    findings
}

/// Later rows that name another verifier than the receipt.
fn verifiers(file: &str, after: &[EpisodeRow], receipt: &Value) -> Option<Finding> {
    let wanted = |row: &EpisodeRow| receipt.get("verifiers")?.get(&row.family)?.get("new")?.as_str();
    let mut rows = after.iter().enumerate();
    let (at, row) = rows.find(|(_, row)| wanted(row).is_some_and(|new| new != row.verifier_sha256))?;
    let detail = format!(
        "was judged by {}…, and the rescore's verifier of `{}` is {}…",
        head(&row.verifier_sha256),
        row.family,
        head(wanted(row).unwrap_or_default())
    );
    Some(Finding::new("superseded_unaccounted", file, Some(at + 1), detail))
}

/// Rows whose judgement changed though their verifier did not, or whose verifiers the receipt does not name as they are.
fn unjustified(file: &str, before: &[EpisodeRow], after: &[EpisodeRow], receipt: &Value) -> Option<Finding> {
    let judged = |row: &EpisodeRow| (row.reward, row.solved, row.parse_ok, row.engaged);
    before.iter().zip(after).enumerate().find_map(|(at, (before, after))| {
        let same = before.verifier_sha256 == after.verifier_sha256;
        let named = receipt.get("verifiers").and_then(|verifiers| verifiers.get(&after.family));
        let was = named.and_then(|named| named.get("old")).and_then(Value::as_array);
        let was = |hash: &str| was.is_some_and(|was| was.iter().any(|old| old.as_str() == Some(hash)));
        let (rule, detail) = if same && judged(before) != judged(after) {
            ("rescore_changed_more", "was judged by the same verifier as before, and otherwise".to_string())
        } else if !same && (!was(&before.verifier_sha256) || was(&after.verifier_sha256)) {
            let (old, new) = (head(&before.verifier_sha256), head(&after.verifier_sha256));
            let family = &after.family;
            (
                "superseded_unaccounted",
                format!("verifier {old}… became {new}…, which the rescore does not say of `{family}`"),
            )
        } else {
            return None;
        };
        Some(Finding::new(rule, file, Some(at + 1), detail))
    })
}

/// Adds the rows of a file to the counts by family: episodes, changed, solved before, solved after.
fn tally(before: &[EpisodeRow], after: &[EpisodeRow], counts: &mut BTreeMap<String, [u64; 4]>) {
    for (before, after) in before.iter().zip(after) {
        let count = counts.entry(after.family.clone()).or_default();
        let judged = |row: &EpisodeRow| (row.reward, row.solved, row.parse_ok, row.engaged);
        count[0] += 1;
        count[1] += u64::from(judged(before) != judged(after));
        count[2] += u64::from(before.solved == Some(true));
        count[3] += u64::from(after.solved == Some(true));
    }
}

/// The receipt's counts against those of the rows.
fn stated(rescore: &Rescore, counts: &BTreeMap<String, [u64; 4]>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let none = Map::new();
    let families = rescore.receipt.get("families").and_then(Value::as_object).unwrap_or(&none);
    let unnamed = counts.iter().filter(|(family, counted)| counted[1] > 0 && !families.contains_key(*family));
    for (family, _) in unnamed {
        let detail = format!("counts no episode of `{family}`, whose judgements it changed");
        findings.push(Finding::new("superseded_unaccounted", &rescore.file, None, detail));
    }
    for (family, said) in families {
        let names = ["episodes", "changed", "solved_before", "solved_after"];
        let Some(own) = counts.get(family) else { continue };
        for (name, own) in names.iter().zip(own) {
            if said.get(name).and_then(Value::as_u64) != Some(*own) {
                let said = said.get(name).map_or("missing".into(), Value::to_string);
                let detail = format!("`families.{family}.{name}` is {said}, the rows give {own}");
                findings.push(Finding::new("superseded_unaccounted", &rescore.file, None, detail));
            }
        }
    }
    findings
}

/// Lines of two versions of a task file that differ in more than how they are judged.
fn tasks(file: &str, before: &Path, after: &Path) -> Vec<Finding> {
    let wrong = |row, detail| Finding::new("rescore_changed_more", file, row, detail);
    type Lines = Vec<(String, Map<String, Value>)>;
    let lines = |path: &Path| -> Option<Lines> {
        let text = regular::text(path).ok()?;
        let text = text.trim_start_matches('\u{feff}');
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| Some((line.to_owned(), serde_json::from_str(line).ok()?))).collect()
    };
    let (Some(before), Some(after)) = (lines(before), lines(after)) else {
        return vec![wrong(None, "the two versions of the task file cannot be compared".into())];
    };
    if before.len() != after.len() {
        return vec![wrong(None, format!("has {} tasks, the version before {}", after.len(), before.len()))];
    }
    let mut findings = Vec::new();
    for (number, ((line, before), (_, after))) in before.iter().zip(&after).enumerate() {
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        // An id that a line had without writing it may be written out: that one.
        let written_out = || after.get("id").and_then(Value::as_str) == taskset::id_of(line).as_deref();
        let own_id = |key: &str| key == "id" && !before.contains_key("id") && written_out();
        let free = |key: &str| JUDGING.contains(&key) || own_id(key);
        if let Some(key) = keys.into_iter().find(|key| !free(key) && before.get(*key) != after.get(*key)) {
            let detail = format!("`{key}` of the task differs from the version before: that is another task");
            findings.push(wrong(Some(number + 1), detail));
        }
    }
    findings.truncate(SHOWN);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{sha256_hex, sha256_json, write_atomic};
    use serde_json::json;

    const WAS: &str = "{\"prompt\": \"a?\", \"answer\": \"1\"}\n{\"id\": \"b\", \"prompt\": \"b?\", \"answer\": \"2\", \"level\": 2}\n";

    /// Findings on an experiment whose task file became `now` by a rescore that names both.
    fn findings(now: &str) -> Vec<(&'static str, Option<usize>, String)> {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            write_atomic(&dir.path().join("data/x").join(path), text.as_bytes()).unwrap()
        };
        let change = json!({"old": sha256_hex(WAS.as_bytes()), "new": sha256_hex(now.as_bytes())});
        let receipt = json!({"number": 1, "at": "2026-01-02T03:04:05Z", "replaced": {"tasks.jsonl": change}});
        let signed = json!({"sha256": sha256_json(&receipt).unwrap(), "receipt": receipt});
        put("receipts/rescore-1.json", &signed.to_string());
        put("superseded/1/tasks.jsonl", WAS);
        put("tasks.jsonl", now);
        let findings = check(dir.path(), "x", &Listing::default()).unwrap();
        findings.into_iter().map(|f| (f.rule, f.row, f.detail)).collect()
    }

    #[test]
    fn a_task_file_may_be_repaired_in_its_judging_only() {
        assert_eq!(findings(WAS), []);
        let repaired = WAS
            .replace("\"1\"", "[\"1\", \"one\"], \"ignore_case\": true, \"id\": \"ID\"")
            .replace("ID", &taskset::id_of(WAS.lines().next().unwrap()).unwrap());
        assert_eq!(findings(&repaired), []);
        let cases = [
            (repaired.replace("\"id\": \"t-", "\"id\": \"t-0"), Some(1), "`id`"),
            (WAS.replace("b?", "c?"), Some(2), "`prompt`"),
            (WAS.replace("\"b\", ", "\"c\", "), Some(2), "`id`"),
            (WAS.replace("\"level\": 2", "\"level\": 3"), Some(2), "`level`"),
            (WAS.replace("\"1\"", "\"1\", \"split\": \"train\""), Some(1), "`split`"),
            (WAS.replace("\"1\"", "\"1\", \"family\": \"f\""), Some(1), "`family`"),
            (WAS.lines().take(1).collect(), None, "has 1 tasks"),
            (WAS.replacen('{', "", 1), None, "cannot be compared"),
        ];
        for (now, row, words) in cases {
            let found = findings(&now);
            let hit =
                found.iter().any(|f| f.0 == "rescore_changed_more" && f.1 == row && f.2.contains(words));
            assert!(hit, "{words}: {found:?}");
        }
    }

    #[test]
    fn the_number_of_a_receipt_is_in_its_name() {
        assert_eq!(number("rescore-12.json"), Some(12));
        for name in ["rescore-.json", "rescore-x.json", "rescore-1", "train.json"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
