//! What the harvest kept, a second time: every sample's verdict from its outcome, the lengths of its replies, the
//! answers that a guesser had to choose from, and the plan's caps.

use super::Finding;
use super::plan_rules::Case;
use super::rules::Gathered;
use super::superseded;
use crate::environment::Environment;
use crate::episode::columns::RowAt;
use crate::episode::row::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Up to this many answers a guesser is right often enough to need several correct samples.
const FEW_ANSWERS: u32 = 8;

/// A harvested sample.
struct Sample<'a> {
    file: &'a str,
    at: usize,
    row: RowAt<'a>,
    task: &'a str,
    rollout: i64,
    solved: bool,
}

/// The samples of each family that only caps can reject: level, task, rollout, and the sample's place.
type Left<'a> = BTreeMap<&'a str, Vec<(i64, &'a str, i64, usize)>>;

/// Every harvest row against what the plan's rules make of it; nothing is said where rows could not be read.
pub fn check(case: &Case) -> Vec<Finding> {
    let sheet = case.harvest;
    if !sheet.unreadable.is_empty() || !case.calls.unreadable.is_empty() {
        return Vec::new();
    }
    let sample = |(file, at, row)| Sample {
        file,
        at,
        row,
        task: sheet.text(row, "task_id"),
        rollout: sheet.whole(row, "rollout").unwrap_or(0),
        solved: sheet.cell(row, "solved") == Cell::Flag(true),
    };
    let samples: Vec<Sample> = sheet.rows().map(sample).collect();
    if samples.is_empty() {
        return Vec::new();
    }
    let verdicts = verdicts(case, &samples);
    let mut wrong = Gathered::new("harvest_kept");
    for (sample, verdict) in samples.iter().zip(verdicts) {
        let kept = sheet.cell(sample.row, "kept") == Cell::Flag(true);
        let reject = sheet.text(sample.row, "reject");
        if kept == verdict.is_none() && reject == verdict.unwrap_or("") {
            continue;
        }
        let says = if kept { "kept".to_string() } else { format!("rejected as `{reject}`") };
        let own = verdict.map_or("kept".to_string(), |why| format!("rejected as `{why}`"));
        wrong.add(sample.file, sample.at, || {
            format!("`{}`, rollout {}, is {says}; by the plan it is {own}", sample.task, sample.rollout)
        });
    }
    wrong.into_findings().collect()
}

/// Why each sample is not used, or `None` if it is.
fn verdicts(case: &Case, samples: &[Sample]) -> Vec<Option<&'static str>> {
    let (rules, sheet) = (&case.plan.harvest, case.harvest);
    let longest = longest_replies(case);
    let answers = Answers::of(case);
    let mut correct: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.solved) {
        *correct.entry(sample.task).or_default() += 1;
    }
    let mut verdicts = vec![None; samples.len()];
    let mut left: Left = BTreeMap::new();
    for (place, sample) in samples.iter().enumerate() {
        let seed = sheet.whole(sample.row, "seed").unwrap_or(-1);
        // Where no call says how long the replies were, all of them together are.
        let most = longest.get(&(seed, sample.task, sample.rollout)).copied();
        let most = most.or(sheet.whole(sample.row, "completion_tokens")).unwrap_or(0);
        let guessed = correct.get(sample.task).is_some_and(|count| *count < rules.lucky_minimum);
        verdicts[place] = if !sample.solved {
            Some("unsolved")
        } else if most > rules.terse_tokens as i64 {
            Some("not_terse")
        } else if guessed
            && answers.are_few(
                sheet.text(sample.row, "family"),
                sample.task,
                sheet.text(sample.row, "reject"),
            )
        {
            Some("lucky")
        } else {
            let level = sheet.whole(sample.row, "level").unwrap_or(0);
            let of_family = left.entry(sheet.text(sample.row, "family")).or_default();
            of_family.push((level, sample.task, sample.rollout, place));
            None
        };
    }
    for mut of_family in left.into_values() {
        of_family.sort_unstable();
        let mut of_task: BTreeMap<&str, usize> = BTreeMap::new();
        let mut of_level: BTreeMap<i64, usize> = BTreeMap::new();
        // Levels take turns: all firsts come before all seconds.
        let mut turns: Vec<(usize, i64, usize)> = Vec::new();
        for (level, task, _, place) in of_family {
            let taken = of_task.entry(task).or_default();
            *taken += 1;
            if *taken > rules.item_cap {
                verdicts[place] = Some("item_cap");
                continue;
            }
            let turn = of_level.entry(level).or_default();
            turns.push((*turn, level, place));
            *turn += 1;
        }
        turns.sort_unstable();
        turns.iter().skip(rules.family_cap).for_each(|(.., place)| verdicts[*place] = Some("family_cap"));
    }
    verdicts
}

/// Tokens of the longest reply of each harvested attempt (seed, task, rollout), from its calls.
fn longest_replies<'a>(case: &Case<'a>) -> BTreeMap<(i64, &'a str, i64), i64> {
    let sheet = case.calls;
    let mut longest = BTreeMap::new();
    for (_, _, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "arm") == "harvest") {
        let whole = |column: &str| sheet.whole(row, column);
        let key = (whole("seed").unwrap_or(-1), sheet.text(row, "task_id"), whole("rollout").unwrap_or(0));
        let tokens = longest.entry(key).or_insert(0);
        *tokens = (*tokens).max(whole("completion_tokens").unwrap_or(0));
    }
    longest
}

/// How many answers the plan's tasks have, by the environment of today where it still judges a family as it did in the harvest.
struct Answers<'a> {
    environment: Option<Box<dyn Environment>>,
    judged_otherwise: BTreeSet<&'a str>,
}

impl<'a> Answers<'a> {
    fn of(case: &Case<'a>) -> Answers<'a> {
        // A task file that was repaired since may have changed it.
        let repaired = !superseded::earlier_tasks(case.workspace, case.slug, case.plan).is_empty();
        let plan = case.workspace.join("data").join(case.slug).join("experiment.toml");
        let environment = if repaired { None } else { case.plan.environment(&plan).ok() };
        let sheet = case.episodes;
        let mut verifiers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (_, _, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "arm") == "harvest") {
            verifiers
                .entry(sheet.text(row, "family"))
                .or_default()
                .insert(sheet.text(row, "verifier_sha256"));
        }
        let today = |family: &str| environment.as_ref()?.verifier_sha256(family).ok();
        let other = |family: &str, then: &BTreeSet<&str>| {
            today(family).is_some_and(|now| !then.contains(now.as_str()))
        };
        let judged_otherwise =
            verifiers.iter().filter(|(family, then)| other(family, then)).map(|(family, _)| *family);
        Answers { judged_otherwise: judged_otherwise.collect(), environment }
    }

    /// Whether a guesser has few answers to choose from; where nobody knows, the row is believed.
    fn are_few(&self, family: &str, task: &str, said: &str) -> bool {
        let knows = self.environment.as_ref().filter(|_| !self.judged_otherwise.contains(family));
        match knows.and_then(|environment| environment.by_id(task).ok()) {
            Some(task) => task.answer_domain.is_some_and(|answers| answers <= FEW_ANSWERS),
            None => said == "lucky",
        }
    }
}
