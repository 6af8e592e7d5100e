//! Episode rows against the plan that they say they ran under: the right tasks, each as often as
//! planned, by the arms whose events they are, with the arm's model and adapter, their calls beside them,
//! and both arms judged by one verifier. Hashes see none of this once somebody has sealed a changed file again.

use super::Finding;
use super::agreement;
use super::hashes::head;
use super::plan_rules::Case;
use super::rules::Gathered;
use crate::episode::columns::RowAt;
use crate::episode::row::Cell;
use crate::experiment::{Deploy, Purpose};
use std::collections::{BTreeMap, BTreeSet};

/// The name under which harvested episodes are kept; no arm of a plan has it.
const HARVEST: &str = "harvest";

/// All rules about the rows of one experiment's arms.
pub fn check(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> = planned(case).into_findings().collect();
    findings.extend(incomplete(case));
    findings.extend(verifiers(case).into_findings());
    findings.extend(servers(case).into_findings());
    findings.extend(agreement::ends(case.episodes, case.calls));
    findings.extend(calls(case).into_findings());
    findings.extend(unwritten(case).into_findings());
    findings
}

/// What a row is held against.
struct Planned<'a> {
    case: &'a Case<'a>,
    base: &'a str,
    purposes: BTreeMap<i64, Purpose>,
    /// The model that live arms run here, and who says so.
    model: Option<(String, &'static str)>,
}

/// The columns that the plan fixes for a row.
fn planned<'a>(case: &Case<'a>) -> Gathered<'a> {
    let sheet = case.episodes;
    let base = case.plan.arms.first().map_or("", |arm| arm.name.as_str());
    let seeds = case.plan.event_seeds().into_iter();
    let purposes = seeds.filter_map(|(purpose, seed)| Some((i64::try_from(seed).ok()?, purpose))).collect();
    let planned = Planned { case, base, purposes, model: live_model(case, base) };
    let mut wrong = Gathered::new("row_not_of_plan");
    for (file, at, row) in sheet.rows() {
        let mut say = |detail: String| wrong.add(file, at, || detail);
        planned.event(row, &mut say);
        planned.settings(row, &mut say);
        // Which model was harvested is a rule of its own.
        if sheet.text(row, "arm") != HARVEST {
            planned.arm(row, &mut say);
        }
    }
    wrong
}

/// Says where a column is not what the plan gives.
fn differs(what: &str, has: &str, wanted: &str, say: &mut dyn FnMut(String)) {
    if has != wanted {
        say(format!("{what} is `{has}`, the plan gives `{wanted}`"));
    }
}

impl Planned<'_> {
    /// What the seed was spent on, by which arm, and the task that it makes.
    fn event(&self, row: RowAt<'_>, say: &mut dyn FnMut(String)) {
        let (plan, sheet) = (self.case.plan, self.case.episodes);
        let arm = sheet.text(row, "arm");
        let seed = sheet.whole(row, "seed").unwrap_or(-1);
        if let Some(purpose) = self.purposes.get(&seed) {
            differs("`event`", sheet.text(row, "event"), purpose.as_str(), say);
            let runs = match purpose {
                Purpose::Harvest => arm == HARVEST,
                Purpose::Calibrate | Purpose::Null => arm == self.base,
                Purpose::Evaluate => arm != HARVEST,
            };
            if !runs {
                let purpose = purpose.as_str();
                say(format!("seed {seed} is spent on `{purpose}`, in which arm `{arm}` has no part"));
            }
        }
        let count = if arm == HARVEST { plan.harvest.per_family } else { plan.tasks.per_family };
        let (family, task) = (sheet.text(row, "family"), sheet.text(row, "task_id"));
        let level = sheet.whole(row, "level").unwrap_or(0);
        if plan.tasks.environment == "gym" && !is_canonical(task, family, level, seed, count) {
            let last = count.saturating_sub(1);
            say(format!(
                "the task's id is `{task}`, the plan gives `{family}/L{level}/{seed}/0` to `…/{last}`"
            ));
        }
    }

    /// Environment and engine.
    fn settings(&self, row: RowAt<'_>, say: &mut dyn FnMut(String)) {
        let (plan, sheet) = (self.case.plan, self.case.episodes);
        let served = self.case.is_served(row);
        let harvests = sheet.text(row, "arm") == HARVEST;
        let harness = if harvests { &plan.harness.harvest } else { &plan.harness.evaluate };
        differs("`environment`", sheet.text(row, "environment"), &plan.tasks.environment, say);
        differs("`split`", sheet.text(row, "split"), plan.split(sheet.text(row, "family")), say);
        let slots = if served { Cell::Null } else { Cell::Int(harness.slots as i64) };
        differs("`slots`", &sheet.cell(row, "slots").to_string(), &slots.to_string(), say);
        for column in ["dtype", "tokens_sha256"] {
            let has = sheet.cell(row, column);
            if has.is_null() != served {
                let wanted = if served { "on an endpoint, which promises none" } else { "here" };
                let seed = sheet.cell(row, "seed");
                say(format!("`{column}` is `{has}`, and the plan runs seed {seed} {wanted}"));
            }
        }
    }

    /// Training seed, adapter and model of the row's arm.
    fn arm(&self, row: RowAt<'_>, say: &mut dyn FnMut(String)) {
        let (case, plan, sheet) = (self.case, self.case.plan, self.case.episodes);
        let Some(arm) = plan.arms.iter().find(|arm| arm.name == sheet.text(row, "arm")) else {
            return say("no arm of the plan has this name".into());
        };
        let (trained, served) = (case.is_trained(&arm.name), case.is_served(row));
        let known = |seed: i64| trained && plan.seeds.train.iter().any(|own| i64::try_from(*own) == Ok(seed));
        if !sheet.whole(row, "train_seed").map_or(!trained, known) {
            let shown = sheet.cell(row, "train_seed");
            say(format!("`train_seed` is `{shown}`, which arm `{}` was not trained with", arm.name));
        }
        // A merged arm names the adapter that its weights come from, as a live one does.
        match (arm.adapter.is_some() && !served, sheet.cell(row, "adapter_sha256").is_null()) {
            (true, true) => say(format!("arm `{}` runs with an adapter, and the row names none", arm.name)),
            (false, false) => {
                say(format!("arm `{}` has no adapter of ours there, and the row names one", arm.name));
            }
            _ => {}
        }
        let ran = sheet.text(row, "model_sha256");
        if let Some((wanted, whose)) = self.model.as_ref().filter(|(wanted, _)| wanted != ran)
            && arm.deploy == Deploy::Live
            && !served
        {
            say(format!("ran model {}…, {whose} {}…", head(ran), head(wanted)));
        }
    }
}

/// Whether a gym task's id is the one that its family, level, seed and an index below `count` give: the index without
/// a sign or leading zeros, so that no task has two ids.
fn is_canonical(task: &str, family: &str, level: i64, seed: i64, count: u32) -> bool {
    let index = task.rsplit('/').next().and_then(|index| index.parse::<u32>().ok());
    index.is_some_and(|index| index < count && task == format!("{family}/L{level}/{seed}/{index}"))
}

/// The model that every live arm runs here, and who says so: a receipt, or the base arm where nothing was trained.
fn live_model(case: &Case, base: &str) -> Option<(String, &'static str)> {
    if let Some(signed) = signed_model(case) {
        return Some((signed, "the receipts are of"));
    }
    let sheet = case.episodes;
    let mut rows = sheet.rows().map(|(_, _, row)| row);
    let first = rows.find(|row| sheet.text(*row, "arm") == base && !case.is_served(*row))?;
    Some((sheet.text(first, "model_sha256").to_string(), "the base arm ran"))
}

/// The model that the harvest or the training signed.
fn signed_model(case: &Case) -> Option<String> {
    ["train", "harvest"]
        .iter()
        .find_map(|name| Some(case.receipt(name)?.get("model_sha256")?.as_str()?.to_string()))
}

/// Units of the base on calibration and null seeds, and of the harvest, that a signed receipt must have read.
fn missing_units(case: &Case) -> Vec<Finding> {
    let (plan, sheet) = (case.plan, case.episodes);
    let base = plan.arms.first().map_or("", |arm| arm.name.as_str());
    let unit = |row| Some((sheet.text(row, "arm"), sheet.whole(row, "seed")?));
    let there: BTreeSet<(&str, i64)> = sheet.rows().filter_map(|(_, _, row)| unit(row)).collect();
    let needed = [
        ("harvest", HARVEST, &plan.seeds.harvest),
        ("headroom", base, &plan.seeds.calibrate),
        ("kill", base, &plan.seeds.calibrate),
        ("decision", base, &plan.seeds.calibrate),
        ("decision", base, &plan.seeds.null),
    ];
    let signed = needed.into_iter().filter(|(receipt, ..)| case.receipt(receipt).is_some());
    let missing: BTreeSet<(u64, &str, &str)> = signed
        .flat_map(|(receipt, arm, seeds)| seeds.iter().map(move |seed| (*seed, receipt, arm)))
        .filter(|(seed, _, arm)| !i64::try_from(*seed).is_ok_and(|seed| there.contains(&(*arm, seed))))
        .collect();
    let finding = |(seed, receipt, arm): (u64, &str, &str)| {
        let detail = format!("is signed, and there is no episode of `{arm}` under the planned seed {seed}");
        Finding::new("unit_incomplete", &case.receipt_path(receipt), None, detail)
    };
    missing.into_iter().map(finding).collect()
}

/// Attempts at one family and level: how many rows, and the rollouts of each task.
#[derive(Default)]
struct Attempts<'a> {
    rows: usize,
    tasks: BTreeMap<&'a str, BTreeSet<i64>>,
}

impl Attempts<'_> {
    /// What differs from so many tasks, each attempted so many times; `kind` names family and level.
    fn differ(&self, kind: &str, tasks: usize, rollouts: usize) -> Option<String> {
        let wanted = tasks * rollouts;
        if self.rows != wanted {
            return Some(format!("{} attempts at {kind}, where the plan gives {wanted}", self.rows));
        }
        if self.tasks.len() != tasks {
            let has = self.tasks.len();
            return Some(format!("{has} different tasks of {kind}, where the plan gives {tasks}"));
        }
        let planned = |has: &BTreeSet<i64>| has.iter().copied().eq(0..rollouts as i64);
        let (task, _) = self.tasks.iter().find(|(_, has)| !planned(has))?;
        let last = rollouts.saturating_sub(1);
        Some(format!("the attempts at `{task}` ({kind}) are not numbered from 0 to {last}, each once"))
    }
}

/// Units whose families, levels, tasks and attempts are not those of the plan, or whose calls are not there.
fn incomplete(case: &Case) -> Vec<Finding> {
    let (plan, sheet) = (case.plan, case.episodes);
    let every = |families: Vec<&String>| -> BTreeSet<(String, i64)> {
        let levels = || plan.tasks.levels.iter().map(|level| i64::from(*level));
        families.into_iter().flat_map(|family| levels().map(move |level| (family.clone(), level))).collect()
    };
    // (families and levels, tasks of each, attempts at each task)
    let evaluated = (every(plan.families().collect()), plan.tasks.per_family, plan.harness.evaluate.rollouts);
    let trained = plan.tasks.train.iter().collect();
    let harvested = (every(trained), plan.harvest.per_family, plan.harness.harvest.rollouts);
    let mut findings = missing_units(case);
    findings.extend(without_calls(case));
    for file in &sheet.files {
        let of_harvest = file.path.starts_with(&format!("data/{}/episodes/{HARVEST}/", case.slug));
        let (kinds, tasks, rollouts) = if of_harvest { &harvested } else { &evaluated };
        let mut units: BTreeMap<(&str, i64), Attempts> =
            kinds.iter().map(|(family, level)| ((family.as_str(), *level), Attempts::default())).collect();
        for row in file.columns.iter() {
            let kind = (sheet.text(row, "family"), sheet.whole(row, "level").unwrap_or(0));
            let unit = units.entry(kind).or_default();
            unit.rows += 1;
            let rollout = sheet.whole(row, "rollout").unwrap_or(-1);
            unit.tasks.entry(sheet.text(row, "task_id")).or_default().insert(rollout);
        }
        for ((family, level), has) in units {
            let is_planned = kinds.contains(&(family.to_string(), level));
            let planned = if is_planned { *tasks as usize } else { 0 };
            let kind = format!("family `{family}`, level {level}");
            let detail = has.differ(&kind, planned, *rollouts as usize);
            findings.extend(detail.map(|detail| Finding::new("unit_incomplete", &file.path, None, detail)));
        }
    }
    findings
}

/// Units, those of the harvest too, whose generation calls are not there: nothing else says how an episode came about.
fn without_calls(case: &Case) -> Vec<Finding> {
    let [episodes, calls] = ["episodes", "calls"].map(|folder| format!("data/{}/{folder}/", case.slug));
    let mut there: BTreeSet<&str> = case.calls.files.iter().map(|file| file.path.as_str()).collect();
    there.extend(case.calls.unreadable.iter().map(String::as_str));
    let units = case.episodes.files.iter().filter_map(|file| file.path.strip_prefix(&episodes));
    let lacking = units.filter(|unit| !there.contains(format!("{calls}{unit}").as_str()));
    let finding = |unit: &str| {
        let detail = format!("is not there, and the unit's episodes are, in {episodes}{unit}");
        Finding::new("unit_incomplete", &format!("{calls}{unit}"), None, detail)
    };
    lacking.map(finding).collect()
}

/// Calls made here that do not seal both prompt and reply, or are longer than the plan lets them be. What a server takes is its
/// own affair, and so is where a thought was closed.
fn calls<'a>(case: &Case<'a>) -> Gathered<'a> {
    let sheet = case.calls;
    let harness = &case.plan.harness;
    let mut wrong = Gathered::new("row_not_of_plan");
    for (file, at, row) in sheet.rows() {
        let arm = sheet.text(row, "arm");
        let harness = if arm == HARVEST { &harness.harvest } else { &harness.evaluate };
        let served = case.serves(arm, sheet.whole(row, "seed"));
        for column in ["prompt_sha256", "tokens_sha256"] {
            if !served && sheet.text(row, column).is_empty() {
                wrong.add(file, at, || format!("`{column}` is missing, and the call was made here"));
            }
        }
        let tokens = sheet.whole(row, "completion_tokens").unwrap_or(0);
        if !served && harness.think_tokens.is_none() && tokens > harness.answer_tokens as i64 {
            let most = harness.answer_tokens;
            wrong.add(file, at, || {
                format!("`completion_tokens` is {tokens}, the plan gives a turn at most {most}")
            });
        }
    }
    wrong
}

/// Columns of a native episode that nothing here writes, and those about thoughts where the plan has no budget for any.
fn unwritten<'a>(case: &Case<'a>) -> Gathered<'a> {
    const NEVER: [&str; 11] = [
        "tier",
        "stratum",
        "partial",
        "select_score",
        "scaffold_version",
        "tool_calls",
        "tool_failures",
        "repaired_calls",
        "solved_ms",
        "exit_code",
        "enforced",
    ];
    const OF_THOUGHTS: [&str; 3] = ["think_tokens", "forced_close", "naturally_closed"];
    let sheet = case.episodes;
    let mut wrong = Gathered::new("row_not_of_plan");
    for (file, at, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "scaffold") == "native") {
        let harness = &case.plan.harness;
        let harness = if sheet.text(row, "arm") == HARVEST { &harness.harvest } else { &harness.evaluate };
        let thoughts = OF_THOUGHTS.iter().filter(|_| harness.think_tokens.is_none());
        for column in NEVER.iter().chain(thoughts) {
            let has = sheet.cell(row, column);
            if !has.is_null() {
                wrong.add(file, at, || format!("`{column}` is `{has}`, and no episode of this plan has one"));
            }
        }
        let evidence = sheet.text(row, "evidence");
        if evidence != "deployable" {
            wrong.add(file, at, || {
                format!("`evidence` is `{evidence}`, and native episodes are `deployable`")
            });
        }
    }
    wrong
}

/// Rows of one family that were judged by different verifiers.
fn verifiers<'a>(case: &Case<'a>) -> Gathered<'a> {
    let sheet = case.episodes;
    let mut first: BTreeMap<(&str, &str, bool), (&str, &str)> = BTreeMap::new();
    let mut wrong = Gathered::new("verifier_differs");
    for (file, at, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "arm") != HARVEST) {
        let family = sheet.text(row, "family");
        for column in ["verifier_sha256", "scaffold", "scaffold_version", "dtype"] {
            let has = sheet.text(row, column);
            let (before, place) = *first.entry((family, column, case.is_served(row))).or_insert((has, file));
            if before != has {
                wrong.add(file, at, || {
                    format!(
                        "`{column}` is `{}`, in {place} it is `{}`: the rows cannot be compared",
                        head(has),
                        head(before)
                    )
                });
            }
        }
    }
    wrong
}

/// Rows of one event that several servers, or several states of one, have answered: a pair compares two arms
/// on one backend, or nothing.
fn servers<'a>(case: &Case<'a>) -> Gathered<'a> {
    let sheet = case.episodes;
    let mut first: BTreeMap<i64, (&str, &str)> = BTreeMap::new();
    let mut wrong = Gathered::new("backend_mixed");
    for (file, at, row) in sheet.rows().filter(|(_, _, row)| case.is_served(*row)) {
        let Some(seed) = sheet.whole(row, "seed") else { continue };
        let has = sheet.text(row, "engine_sha256");
        let (before, place) = *first.entry(seed).or_insert((has, file));
        if before != has {
            wrong.add(file, at, || {
                format!(
                    "server {}… answered, in {place} it was {}…: the arms cannot be compared",
                    head(has),
                    head(before)
                )
            });
        }
    }
    wrong
}
