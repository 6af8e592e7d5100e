//! Structural rules over raw rows that no recomputation can see: rows that stand twice or in
//! the wrong file, missing pairs, adapters without effect, held-out tasks in the harvest, and
//! seeds spent twice.

use super::looks::{self, LEDGER, Spent};
use super::sheet::Sheet;
use super::{Finding, agreement};
use crate::episode::columns::RowAt;
use crate::episode::row::Cell;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// What the rules look at, for one experiment.
pub struct Experiment<'a> {
    /// Its folder name under `data/`.
    pub slug: &'a str,
    /// `experiment.toml` as values; `Null` where there is none.
    pub plan: &'a Value,
    /// Whether every planned arm should have rows: the report says finished, and not starved.
    pub complete: bool,
    /// Episode rows.
    pub episodes: &'a Sheet,
    /// Call rows.
    pub calls: &'a Sheet,
    /// Harvest rows.
    pub harvest: &'a Sheet,
    /// Training rows.
    pub training: &'a Sheet,
}

/// Gathers rows that break one rule in one file into a single finding.
pub struct Gathered<'a> {
    rule: &'static str,
    found: BTreeMap<&'a str, (usize, usize, String)>,
}

impl<'a> Gathered<'a> {
    /// Nothing found yet.
    pub fn new(rule: &'static str) -> Self {
        Gathered { rule, found: BTreeMap::new() }
    }

    /// Adds a row; the first one of a file says what is wrong.
    pub fn add(&mut self, file: &'a str, row: usize, detail: impl FnOnce() -> String) {
        self.found.entry(file).and_modify(|(_, count, _)| *count += 1).or_insert_with(|| (row, 1, detail()));
    }

    /// One finding a file.
    pub fn into_findings(self) -> impl Iterator<Item = Finding> {
        let rule = self.rule;
        self.found.into_iter().map(move |(file, (row, count, detail))| {
            let more = if count > 1 {
                format!(" (and {} more rows of this file)", count - 1)
            } else {
                String::new()
            };
            Finding::new(rule, file, Some(row), format!("{detail}{more}"))
        })
    }
}

/// All rules that need one experiment only.
pub fn check(experiment: &Experiment) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sheet in [experiment.episodes, experiment.calls, experiment.harvest, experiment.training] {
        findings.extend(file_names(sheet, experiment.slug));
    }
    findings.extend(duplicates(experiment.episodes, &["arm", "task_id", "seed", "train_seed", "rollout"]));
    findings.extend(duplicates(experiment.calls, &["arm", "task_id", "seed", "rollout", "turn"]));
    findings.extend(duplicates(experiment.harvest, &["task_id", "seed", "rollout"]));
    findings.extend(duplicates(experiment.training, &["train_seed", "step"]));
    findings.extend(rewards(experiment.episodes));
    findings.extend(rewards(experiment.harvest));
    findings.extend([experiment.episodes, experiment.calls].into_iter().flat_map(negative));
    findings.extend(agreement::calls(experiment.episodes, experiment.calls));
    findings.extend(agreement::prompts(experiment.calls));
    findings.extend(agreement::harvest(experiment.episodes, experiment.harvest));
    findings.extend(missing_pairs(experiment));
    findings.extend(idle_adapters(experiment));
    findings.extend(held_out_in_harvest(experiment));
    findings.extend(unplanned_seeds(experiment));
    findings
}

/// Arm, seed and experiment of a row against the file it stands in:
/// `data/<slug>/episodes/<arm>/<seed>.parquet`, `data/<slug>/harvest/<seed>.parquet`.
fn file_names(sheet: &Sheet, slug: &str) -> Vec<Finding> {
    let mut wrong_experiment = Gathered::new("experiment_differs_from_folder");
    let mut wrong_arm = Gathered::new("arm_differs_from_file");
    let mut wrong_seed = Gathered::new("seed_differs_from_file");
    let seed_column = if sheet.columns.contains_key("seed") { "seed" } else { "train_seed" };
    for (file, number, row) in sheet.rows() {
        let parts: Vec<&str> = file.split('/').collect();
        let stem = parts.last().and_then(|name| name.strip_suffix(".parquet")).unwrap_or("");
        let folder = parts.len().checked_sub(2).and_then(|at| parts.get(at)).copied().unwrap_or("");
        let named = sheet.text(row, "experiment");
        if named != slug {
            wrong_experiment.add(file, number, || format!("the row is of experiment `{named}`"));
        }
        if sheet.columns.contains_key("arm") && sheet.text(row, "arm") != folder {
            wrong_arm.add(file, number, || format!("the row is of arm `{}`", sheet.text(row, "arm")));
        }
        let seed = sheet.whole(row, seed_column).map(|seed| seed.to_string()).unwrap_or_default();
        if seed != stem {
            wrong_seed.add(file, number, || format!("the row is of seed {seed}"));
        }
    }
    wrong_experiment
        .into_findings()
        .chain(wrong_arm.into_findings())
        .chain(wrong_seed.into_findings())
        .collect()
}

/// Rows that share their key with an earlier one.
pub fn duplicates(sheet: &Sheet, key: &[&str]) -> Vec<Finding> {
    // Only the hash of a key is kept of each row; rows with the same one are looked at again.
    let state = RandomState::new();
    let hash_of = |row: RowAt<'_>| {
        let mut hasher = state.build_hasher();
        for column in key {
            match sheet.columns.get(column).and_then(|at| row.text(*at)) {
                Some(text) => text.hash(&mut hasher),
                None => sheet.cell(row, column).to_string().hash(&mut hasher),
            }
        }
        hasher.finish()
    };
    let mut hashes: Vec<(u64, u32, u32)> = Vec::new();
    for (at, file) in sheet.files.iter().enumerate() {
        hashes.extend(file.columns.iter().zip(0..).map(|(row, number)| (hash_of(row), at as u32, number)));
    }
    hashes.sort_unstable();
    let mut repeated: Vec<(u32, u32)> = Vec::new();
    for same in hashes.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        repeated.extend(same.iter().map(|(_, file, row)| (*file, *row)));
    }
    repeated.sort_unstable();
    let mut seen: HashMap<String, (&str, usize)> = HashMap::new();
    let mut twice = Gathered::new("duplicate_row");
    for (file, row) in repeated {
        let Some(file) = sheet.files.get(file as usize) else { continue };
        let (number, row) = (row as usize + 1, file.columns.row(row as usize));
        let name: Vec<String> = key.iter().map(|column| sheet.cell(row, column).to_string()).collect();
        let name = name.join(" / ");
        match seen.get(&name) {
            Some((first_file, first)) => {
                twice.add(&file.path, number, || {
                    format!("{name} already stands in row {first} of {first_file}")
                });
            }
            None => {
                seen.insert(name, (&file.path, number));
            }
        }
    }
    twice.into_findings().collect()
}

/// Scores outside [0, 1].
pub fn rewards(sheet: &Sheet) -> Vec<Finding> {
    let mut outside = Gathered::new("reward_outside_range");
    for (file, number, row) in sheet.rows() {
        for column in ["reward", "partial"] {
            if let Cell::Real(score) = sheet.cell(row, column)
                && !(0.0..=1.0).contains(&score)
            {
                outside.add(file, number, || format!("`{column}` is {score}"));
            }
        }
    }
    outside.into_findings().collect()
}

/// Counts and times below zero.
fn negative(sheet: &Sheet) -> Vec<Finding> {
    const COUNTED: [&str; 6] =
        ["turns", "prompt_tokens", "completion_tokens", "think_tokens", "wall_ms", "solved_ms"];
    let there = COUNTED.into_iter().filter(|column| sheet.columns.contains_key(column));
    let counted: Vec<&str> = there.collect();
    let mut below = Gathered::new("negative_count");
    for (file, number, row) in sheet.rows() {
        for column in &counted {
            if let Some(count) = sheet.whole(row, column).filter(|count| *count < 0) {
                below.add(file, number, || format!("`{column}` is {count}"));
            }
        }
    }
    below.into_findings().collect()
}

/// Whether an episode row belongs to the evaluation, not to a calibration of the base arm.
pub fn evaluates(sheet: &Sheet, row: RowAt<'_>) -> bool {
    !matches!(sheet.text(row, "event"), "calibrate" | "null" | "harvest")
}

/// Attempts of one arm under one seed: (task, rollout).
type Attempted<'a> = BTreeSet<(&'a str, i64)>;

/// Arms that ran the same seed but not the same attempts.
fn missing_pairs(experiment: &Experiment) -> Vec<Finding> {
    let sheet = experiment.episodes;
    let mut attempts: BTreeMap<i64, BTreeMap<&str, Attempted>> = BTreeMap::new();
    for (_, _, row) in sheet.rows().filter(|(_, _, row)| evaluates(sheet, *row)) {
        let Some(seed) = sheet.whole(row, "seed") else { continue };
        let attempt = (sheet.text(row, "task_id"), sheet.whole(row, "rollout").unwrap_or(0));
        attempts.entry(seed).or_default().entry(sheet.text(row, "arm")).or_default().insert(attempt);
    }
    let planned: Vec<&str> =
        list(experiment.plan, "arms").iter().filter_map(|arm| arm.get("name")?.as_str()).collect();
    let mut findings = Vec::new();
    for (seed, arms) in &mut attempts {
        if experiment.complete {
            for arm in &planned {
                arms.entry(arm).or_default();
            }
        }
        let all: Attempted = arms.values().flatten().copied().collect();
        for (arm, has) in arms.iter() {
            let lacking: Vec<String> =
                all.difference(has).map(|(task, rollout)| format!("`{task}` rollout {rollout}")).collect();
            if let Some(first) = lacking.first() {
                let file = format!("data/{}/episodes/{arm}/{seed}.parquet", experiment.slug);
                let detail = format!(
                    "{} of {} attempts that another arm ran are missing, the first {first}",
                    lacking.len(),
                    all.len()
                );
                findings.push(Finding::new("missing_pairs", &file, None, detail));
            }
        }
    }
    findings
}

/// Arms with an adapter whose every attempt sampled the tokens of the plan's first arm without one.
fn idle_adapters(experiment: &Experiment) -> Vec<Finding> {
    let sheet = experiment.episodes;
    let without = list(experiment.plan, "arms").iter().find(|arm| arm.get("adapter").is_none());
    let base = without.and_then(|arm| arm.get("name")?.as_str()).unwrap_or("base");
    let mut plain: HashMap<(&str, i64, i64), &str> = HashMap::new();
    let key = |row| {
        (
            sheet.text(row, "task_id"),
            sheet.whole(row, "seed").unwrap_or(0),
            sheet.whole(row, "rollout").unwrap_or(0),
        )
    };
    for (_, _, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "arm") == base) {
        plain.insert(key(row), sheet.text(row, "tokens_sha256"));
    }
    let planned: BTreeSet<&str> = list(experiment.plan, "arms")
        .iter()
        .filter(|arm| arm.get("adapter").is_some())
        .filter_map(|arm| arm.get("name")?.as_str())
        .collect();
    let mut compared: BTreeMap<&str, (usize, bool, &str)> = BTreeMap::new();
    for (file, _, row) in sheet.rows() {
        // A row that names no adapter is of the arm all the same.
        if sheet.cell(row, "adapter_sha256") == Cell::Null && !planned.contains(sheet.text(row, "arm")) {
            continue;
        }
        // Without token ids nobody can say that they are the same.
        let Some(tokens) = plain.get(&key(row)).filter(|tokens| !tokens.is_empty()) else { continue };
        let arm = compared.entry(sheet.text(row, "arm")).or_insert((0, false, file));
        arm.0 += 1;
        arm.1 |= *tokens != sheet.text(row, "tokens_sha256");
    }
    compared
        .into_iter()
        .filter(|(_, (_, differs, _))| !differs)
        .map(|(arm, (count, _, file))| {
            let detail = format!(
                "arm `{arm}` has an adapter, and all its {count} attempts sampled the tokens of `{base}`"
            );
            Finding::new("adapter_changed_nothing", file, None, detail)
        })
        .collect()
}

fn held_out_in_harvest(experiment: &Experiment) -> Vec<Finding> {
    let tasks = experiment.plan.get("tasks").unwrap_or(&Value::Null);
    let mut held_out: BTreeSet<&str> = list(tasks, "held_out").iter().filter_map(Value::as_str).collect();
    let mut evaluated: BTreeSet<&str> = BTreeSet::new();
    for (_, _, row) in experiment.episodes.rows() {
        // Harvested samples are stored as episodes too, of a purpose of their own.
        if experiment.episodes.text(row, "event") == "harvest" {
            continue;
        }
        evaluated.insert(experiment.episodes.text(row, "task_id"));
        if experiment.episodes.text(row, "split") == "held_out" {
            held_out.insert(experiment.episodes.text(row, "family"));
        }
    }
    let mut leaks = Gathered::new("held_out_in_harvest");
    let mut seen = Gathered::new("evaluated_task_in_harvest");
    for (file, number, row) in experiment.harvest.rows() {
        let (family, task) =
            (experiment.harvest.text(row, "family"), experiment.harvest.text(row, "task_id"));
        if held_out.contains(family) {
            leaks.add(file, number, || format!("family `{family}` is held out"));
        } else if evaluated.contains(task) {
            seen.add(file, number, || format!("task `{task}` is also evaluated"));
        }
    }
    leaks.into_findings().chain(seen.into_findings()).collect()
}

/// Purposes a seed can be spent on; `train` seeds make no tasks.
pub const PURPOSES: [&str; 4] = ["harvest", "evaluate", "calibrate", "null"];

fn planned_seeds<'a>(plan: &'a Value, purpose: &str) -> impl Iterator<Item = i64> + 'a {
    let seeds = plan.get("seeds").unwrap_or(&Value::Null);
    list(seeds, purpose).iter().filter_map(Value::as_i64)
}

/// What an episode's seed was spent on.
pub fn purpose<'a>(episodes: &Sheet, row: RowAt<'a>) -> &'a str {
    match episodes.text(row, "event") {
        event if PURPOSES.contains(&event) => event,
        _ => "evaluate",
    }
}

/// The seed and purpose of every row that spends one, with its file and number.
pub fn spending<'a>(episodes: &'a Sheet, harvest: &'a Sheet) -> Vec<(i64, &'a str, &'a str, usize)> {
    let mut spent = Vec::new();
    for (file, number, row) in episodes.rows() {
        let purpose = purpose(episodes, row);
        spent.extend(episodes.whole(row, "seed").map(|seed| (seed, purpose, file, number)));
    }
    for (file, number, row) in harvest.rows() {
        spent.extend(harvest.whole(row, "seed").map(|seed| (seed, "harvest", file, number)));
    }
    spent
}

/// Rows of a seed that the plan does not name for that purpose.
fn unplanned_seeds(experiment: &Experiment) -> Vec<Finding> {
    let mut unplanned = Gathered::new("seed_not_planned");
    if experiment.plan.get("seeds").is_some() {
        let planned: BTreeMap<&str, BTreeSet<i64>> = PURPOSES
            .iter()
            .map(|purpose| (*purpose, planned_seeds(experiment.plan, purpose).collect()))
            .collect();
        for (seed, purpose, file, number) in spending(experiment.episodes, experiment.harvest) {
            if !planned.get(purpose).is_some_and(|seeds| seeds.contains(&seed)) {
                unplanned.add(file, number, || format!("seed {seed} is not planned for `{purpose}`"));
            }
        }
    }
    unplanned.into_findings().collect()
}

/// Seeds that two experiments, or two purposes of one, have spent, by plans, rows and the text of the
/// ledger; and lines of the ledger that say nothing.
pub fn seeds_spent_twice(experiments: &[Experiment], ledger: &str) -> Vec<Finding> {
    let mut spent: BTreeMap<i64, BTreeMap<(String, String), String>> = BTreeMap::new();
    let mut spend = |seed: i64, slug: &str, purpose: &str, file: &str| {
        let uses = spent.entry(seed).or_default();
        uses.entry((slug.to_string(), purpose.to_string())).or_insert_with(|| file.to_string());
    };
    for experiment in experiments {
        let plan = format!("data/{}/experiment.toml", experiment.slug);
        for purpose in PURPOSES {
            planned_seeds(experiment.plan, purpose)
                .for_each(|seed| spend(seed, experiment.slug, purpose, &plan));
        }
        for (seed, purpose, file, _) in spending(experiment.episodes, experiment.harvest) {
            spend(seed, experiment.slug, purpose, file);
        }
    }
    let mut ledgered: BTreeSet<(i64, String, String)> = BTreeSet::new();
    for Spent { seed, purpose, experiment, .. } in looks::spent(ledger) {
        spend(seed, &experiment, &purpose, LEDGER);
        ledgered.insert((seed, experiment, purpose));
    }
    let mut findings = looks::unreadable(ledger);
    for (seed, uses) in spent {
        // Named is who came second: the one that the ledger does not know.
        let late = uses
            .iter()
            .find(|((slug, purpose), _)| !ledgered.contains(&(seed, slug.clone(), purpose.clone())));
        if let (true, Some((_, file))) = (uses.len() > 1, late.or(uses.iter().next_back())) {
            let all: Vec<String> =
                uses.keys().map(|(slug, purpose)| format!("`{slug}` ({purpose})")).collect();
            findings.push(Finding::new(
                "seed_spent_twice",
                file,
                None,
                format!(
                    "seed {seed} is taken by {}; a seed serves one experiment and one purpose",
                    all.join(" and ")
                ),
            ));
        }
    }
    findings
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
