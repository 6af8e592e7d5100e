//! Tables that tell of the same attempts must tell the same: an episode and its generation calls,
//! a harvested sample and its episode. What was changed in one of them shows in the other.

use super::Finding;
use super::rules::Gathered;
use super::sheet::Sheet;
use super::walk::same;
use crate::episode::columns::RowAt;
use crate::episode::row::Cell;
use std::collections::{BTreeSet, HashMap};

/// An attempt: arm, seed, task, rollout.
type Attempt<'a> = (&'a str, i64, &'a str, i64);

fn attempt<'a>(sheet: &Sheet, row: RowAt<'a>, arm: &'a str) -> Attempt<'a> {
    let task = sheet.text(row, "task_id");
    (arm, sheet.whole(row, "seed").unwrap_or(-1), task, sheet.whole(row, "rollout").unwrap_or(-1))
}

/// Arm and seed of a unit's file, `…/<arm>/<seed>.parquet`.
fn unit(path: &str) -> Option<(&str, i64)> {
    let mut parts = path.rsplit('/');
    let seed = parts.next()?.strip_suffix(".parquet")?.parse().ok()?;
    Some((parts.next()?, seed))
}

/// Turns and tokens of every episode against its calls, in units whose calls are there.
pub fn calls<'a>(episodes: &'a Sheet, calls: &'a Sheet) -> Vec<Finding> {
    // A sum of which a part is unknown is unknown. Sums have room for all that rows may state.
    let mut sums: HashMap<Attempt, [Option<i128>; 3]> = HashMap::new();
    // A file without a row says that no episode of its unit made a call.
    let mut units: BTreeSet<(&str, i64)> = calls.files.iter().filter_map(|file| unit(&file.path)).collect();
    for (_, _, row) in calls.rows() {
        let key = attempt(calls, row, calls.text(row, "arm"));
        units.insert((key.0, key.1));
        let sum = sums.entry(key).or_insert([Some(0); 3]);
        let tokens = |column: &str| calls.whole(row, column).map(i128::from);
        for (sum, more) in sum.iter_mut().zip([Some(1), tokens("prompt_tokens"), tokens("completion_tokens")])
        {
            *sum = sum.zip(more).map(|(sum, more)| sum + more);
        }
    }
    let mut wrong = Gathered::new("calls_differ");
    for (file, at, row) in episodes.rows() {
        let key = attempt(episodes, row, episodes.text(row, "arm"));
        if !units.contains(&(key.0, key.1)) {
            continue;
        }
        let of_calls = sums.remove(&key).unwrap_or([Some(0); 3]);
        let shown = |n: Option<i128>| n.map_or("null".to_string(), |n| n.to_string());
        for (column, sum) in ["turns", "prompt_tokens", "completion_tokens"].into_iter().zip(of_calls) {
            let own = episodes.whole(row, column).map(i128::from);
            if own != sum {
                wrong.add(file, at, || {
                    format!("`{column}` is {}, the calls of this episode give {}", shown(own), shown(sum))
                });
            }
        }
    }
    let mut findings: Vec<Finding> = wrong.into_findings().collect();
    let mut orphans = Gathered::new("calls_differ");
    for (file, at, row) in calls.rows() {
        let key = attempt(calls, row, calls.text(row, "arm"));
        if sums.contains_key(&key) {
            orphans.add(file, at, || format!("there is no episode of `{}`, rollout {}", key.2, key.3));
        }
    }
    findings.extend(orphans.into_findings());
    findings
}

/// The first prompt of a task under a seed is the same for every arm and attempt: pairs differ by the arm alone.
pub fn prompts(calls: &Sheet) -> Vec<Finding> {
    let mut first: HashMap<(i64, &str), (&str, &str)> = HashMap::new();
    let mut wrong = Gathered::new("prompts_differ");
    for (file, at, row) in calls.rows().filter(|(_, _, row)| calls.whole(*row, "turn") == Some(0)) {
        let (arm, task, sealed) =
            (calls.text(row, "arm"), calls.text(row, "task_id"), calls.text(row, "prompt_sha256"));
        if sealed.is_empty() {
            continue;
        }
        let (of, prompt) =
            *first.entry((calls.whole(row, "seed").unwrap_or(-1), task)).or_insert((arm, sealed));
        if prompt != sealed {
            wrong.add(file, at, || format!("`{task}` opens with another prompt than it did for `{of}`"));
        }
    }
    wrong.into_findings().collect()
}

/// How every native episode ended, against its last call and its own score: a run that failed outside the model has
/// no score and says why, every other one has a score and ends as its last call did, or at a limit.
pub fn ends<'a>(episodes: &'a Sheet, calls: &'a Sheet) -> Vec<Finding> {
    /// What the calls of an attempt say: how many there are, their first and last turn, how the last one ended and was
    /// read, and whether any acted.
    struct Calls<'a> {
        count: i64,
        first: i64,
        last: i64,
        reason: &'a str,
        read: Cell,
        acted: bool,
    }
    let mut made: HashMap<Attempt, Calls> = HashMap::new();
    for (_, _, row) in calls.rows() {
        let turn = calls.whole(row, "turn").unwrap_or(-1);
        let key = attempt(calls, row, calls.text(row, "arm"));
        let none =
            Calls { count: 0, first: turn, last: i64::MIN, reason: "", read: Cell::Null, acted: false };
        let of = made.entry(key).or_insert(none);
        of.count += 1;
        of.first = of.first.min(turn);
        if of.last < turn {
            of.last = turn;
            (of.reason, of.read) = (calls.text(row, "finish_reason"), calls.cell(row, "parse_ok"));
        }
        of.acted |= calls.cell(row, "action_ok") == Cell::Flag(true);
    }
    let mut wrong = Gathered::new("episode_end");
    for (file, at, row) in episodes.rows().filter(|(_, _, row)| episodes.text(*row, "scaffold") == "native") {
        let mut say = |detail: String| wrong.add(file, at, || detail);
        let reason = episodes.text(row, "finish_reason");
        let failed = reason == "infra_error";
        for (column, empty) in
            [("reward", failed), ("solved", failed), ("engaged", failed), ("error", !failed)]
        {
            let has = episodes.cell(row, column);
            if has.is_null() != empty {
                say(format!("`{column}` is `{has}`, and the episode ended by `{reason}`"));
            }
        }
        let Some(of) = made.get(&attempt(episodes, row, episodes.text(row, "arm"))) else { continue };
        // A turn that is there twice is named as a duplicate as well.
        if (of.first, of.last) != (0, of.count - 1) {
            say("its calls are not numbered from 0, each turn once".into());
        }
        if !failed && reason != of.reason && reason != "length" {
            say(format!("`finish_reason` is `{reason}`, its last call ended by `{}`", of.reason));
        }
        if !["stop", "length"].contains(&of.reason) {
            say(format!("its last call ended by `{}`, which no call does", of.reason));
        }
        let parsed = episodes.cell(row, "parse_ok");
        if parsed != of.read {
            say(format!("`parse_ok` is `{parsed}`, its last call says `{}`", of.read));
        }
        if !failed && episodes.cell(row, "engaged") != Cell::Flag(of.acted) {
            let has = episodes.cell(row, "engaged");
            say(format!("`engaged` is `{has}`, and by its calls it is `{}`", of.acted));
        }
    }
    wrong.into_findings().collect()
}

/// Every harvested sample against its episode and the other way round, for seeds whose harvested episodes are kept.
pub fn harvest<'a>(episodes: &'a Sheet, harvest: &'a Sheet) -> Vec<Finding> {
    const ARM: &str = "harvest";
    let mut played: HashMap<Attempt, (&str, usize, RowAt)> = HashMap::new();
    let mut seeds: BTreeSet<i64> = BTreeSet::new();
    for (file, at, row) in episodes.rows().filter(|(_, _, row)| episodes.text(*row, "arm") == ARM) {
        let key = attempt(episodes, row, ARM);
        seeds.insert(key.1);
        played.insert(key, (file, at, row));
    }
    let judged: BTreeSet<i64> = harvest.rows().filter_map(|(_, _, row)| harvest.whole(row, "seed")).collect();
    let mut wrong = Gathered::new("harvest_differs");
    for (file, at, row) in harvest.rows() {
        let key = attempt(harvest, row, ARM);
        if !seeds.contains(&key.1) {
            continue;
        }
        let Some((_, _, episode)) = played.remove(&key) else {
            wrong.add(file, at, || format!("there is no episode of `{}`, rollout {}", key.2, key.3));
            continue;
        };
        for column in ["family", "level", "reward", "solved", "completion_tokens", "tokens_sha256"] {
            let (has, played) = (harvest.cell(row, column), episodes.cell(episode, column));
            if has != played && !same(&has, &played) {
                wrong.add(file, at, || format!("`{column}` is `{has}`, the episode says `{played}`"));
            }
        }
    }
    let mut unjudged: Vec<_> = played.into_iter().filter(|(key, _)| judged.contains(&key.1)).collect();
    unjudged.sort_unstable_by_key(|(key, _)| *key);
    for ((_, seed, task, rollout), (file, at, _)) in unjudged {
        wrong.add(file, at, || format!("harvest/{seed}.parquet has no row of `{task}`, rollout {rollout}"));
    }
    wrong.into_findings().collect()
}

#[cfg(test)]
mod tests {
    use super::super::sheet::SheetFile;
    use super::*;
    use crate::episode::columns::Columns;
    use crate::episode::row::Cell;

    fn sheet(path: &str, columns: &[&'static str], rows: &[&[Cell]]) -> Sheet {
        let rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.to_vec()).collect();
        let file = SheetFile { path: path.into(), columns: Columns::of(columns.len(), &rows) };
        Sheet {
            columns: columns.iter().enumerate().map(|(at, column)| (*column, at)).collect(),
            files: vec![file],
            unreadable: Vec::new(),
        }
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.into())
    }

    fn int(n: i64) -> Cell {
        Cell::Int(n)
    }

    #[test]
    fn an_episode_that_its_calls_do_not_give_is_named() {
        let head = ["arm", "seed", "task_id", "rollout", "turns", "prompt_tokens", "completion_tokens"];
        let row = |task: &str, turns: i64, tokens: i64| {
            [text("base"), int(1), text(task), int(0), int(turns), int(9), int(tokens)]
        };
        let (a, b) = (row("a", 1, 5), row("b", 1, 7));
        let made = sheet("calls", &head, &[&a, &b]);
        assert_eq!(calls(&sheet("episodes", &head, &[&a, &b]), &made), []);
        let found = calls(&sheet("episodes", &head, &[&row("a", 1, 6), &row("b", 2, 7)]), &made);
        assert_eq!((found.len(), found[0].rule, found[0].row), (1, "calls_differ", Some(1)));
        assert!(found[0].detail.contains("`completion_tokens` is 6, the calls of this episode give 5"));
        // A dropped episode leaves its calls behind; one under a new id has none.
        let found = calls(&sheet("episodes", &head, &[&a, &row("c", 1, 7)]), &made);
        let places: Vec<_> = found.iter().map(|f| (f.file.as_str(), f.row)).collect();
        assert_eq!(places, [("episodes", Some(2)), ("calls", Some(2))]);
        // Units without calls are not judged; a file of them that was emptied is.
        assert_eq!(calls(&sheet("episodes", &head, &[&a]), &Sheet::default()), []);
        let found = calls(&sheet("episodes", &head, &[&a]), &sheet("calls/base/1.parquet", &head, &[]));
        assert!(found[0].detail.contains("`turns` is 1, the calls of this episode give 0"), "{found:?}");
        assert_eq!(calls(&sheet("episodes", &head, &[&b]), &sheet("calls/base/2.parquet", &head, &[])), []);
    }

    #[test]
    fn sums_beyond_64_bits_are_reported() {
        let head = ["arm", "seed", "task_id", "rollout", "turns", "prompt_tokens", "completion_tokens"];
        let row =
            |turns: i64, tokens: Cell| [text("base"), int(1), text("a"), int(0), int(turns), int(18), tokens];
        let calls_of = |tokens: i64| {
            let call = [text("base"), int(1), text("a"), int(0), int(1), int(9), int(tokens)];
            sheet("calls", &head, &[&call, &call])
        };
        for own in [Cell::Null, int(-2), int(i64::MAX)] {
            let found = calls(&sheet("episodes", &head, &[&row(2, own)]), &calls_of(i64::MAX));
            assert!(found[0].detail.contains("give 18446744073709551614"), "{found:?}");
        }
    }

    #[test]
    fn a_sample_that_its_episode_contradicts_is_named() {
        let head = ["arm", "seed", "task_id", "rollout", "reward", "solved"];
        let row = |task: &str, solved: bool| {
            [text("harvest"), int(1), text(task), int(0), Cell::Real(1.0), Cell::Flag(solved)]
        };
        let played = sheet("episodes", &head, &[&row("a", true), &row("b", false)]);
        assert_eq!(harvest(&played, &sheet("harvest", &head, &[&row("a", true), &row("b", false)])), []);
        let found = harvest(&played, &sheet("harvest", &head, &[&row("a", true), &row("b", true)]));
        assert_eq!((found[0].rule, found[0].row), ("harvest_differs", Some(2)));
        let found = harvest(&played, &sheet("harvest", &head, &[&row("x", true)]));
        assert!(found.iter().any(|f| f.detail.contains("no episode of `x`")));
        // A sample that was left out leaves its episode behind.
        let found = harvest(&played, &sheet("harvest", &head, &[&row("a", true)]));
        assert_eq!((found.len(), found[0].file.as_str(), found[0].row), (1, "episodes", Some(2)));
        assert!(found[0].detail.contains("harvest/1.parquet has no row of `b`"));
        assert_eq!(harvest(&Sheet::default(), &sheet("harvest", &head, &[&row("x", true)])), []);
    }
}
