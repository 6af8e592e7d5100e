//! Episode rows against the plan that they say they ran under: the right tasks, as many as
//! planned, of the arm's kind, and both arms judged by one verifier. Hashes see none of this once
//! somebody has sealed a changed file again.

use super::Finding;
use super::hashes::head;
use super::plan_rules::Case;
use super::rules::Gathered;
use crate::episode::row::Cell;
use crate::experiment::{Deploy, Purpose};
use std::collections::{BTreeMap, BTreeSet};

/// All rules about the rows of one experiment's arms. Harvested episodes have rules of their own.
pub fn check(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> = planned(case).into_findings().collect();
    findings.extend(incomplete(case));
    findings.extend(verifiers(case).into_findings());
    findings.extend(servers(case).into_findings());
    findings
}

/// The columns that the plan fixes for a row.
fn planned<'a>(case: &Case<'a>) -> Gathered<'a> {
    let (plan, sheet) = (case.plan, case.episodes);
    let trained_model = signed_model(case);
    let purposes: BTreeMap<i64, Purpose> = plan
        .event_seeds()
        .into_iter()
        .filter_map(|(purpose, seed)| Some((i64::try_from(seed).ok()?, purpose)))
        .collect();
    let mut wrong = Gathered::new("row_not_of_plan");
    for (file, at, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "arm") != "harvest") {
        let (family, task) = (sheet.text(row, "family"), sheet.text(row, "task_id"));
        let seed = sheet.whole(row, "seed").unwrap_or(-1);
        let mut differs = |what: &str, has: String, wanted: String| {
            if has != wanted {
                wrong.add(file, at, || format!("{what} is `{has}`, the plan gives `{wanted}`"));
            }
        };
        if let Some(purpose) = purposes.get(&seed) {
            differs("`event`", sheet.text(row, "event").into(), purpose.as_str().into());
        }
        differs("`environment`", sheet.text(row, "environment").into(), plan.tasks.environment.clone());
        differs("`split`", sheet.text(row, "split").into(), plan.split(family).into());
        let served = case.is_served(row);
        let slots = if served { Cell::Null } else { Cell::Int(plan.harness.evaluate.slots as i64) };
        differs("`slots`", sheet.cell(row, "slots").to_string(), slots.to_string());
        // A gym task is made by its event seed, which stands in its id.
        if plan.tasks.environment == "gym" && !task.split('/').any(|part| part == seed.to_string()) {
            differs("the task's id", task.into(), format!("…/{seed}/…"));
        }
        for column in ["dtype", "tokens_sha256"] {
            if sheet.cell(row, column).is_null() != served {
                let wanted = if served { "on an endpoint, which promises none" } else { "here" };
                let has = sheet.cell(row, column).to_string();
                wrong.add(file, at, || {
                    format!("`{column}` is `{has}`, and the plan runs seed {seed} {wanted}")
                });
            }
        }
        let Some(arm) = plan.arms.iter().find(|arm| arm.name == sheet.text(row, "arm")) else {
            wrong.add(file, at, || "no arm of the plan has this name".into());
            continue;
        };
        let train_seed = sheet.whole(row, "train_seed");
        let seeds = &plan.seeds.train;
        let known = |seed: i64| seeds.iter().any(|planned| i64::try_from(*planned) == Ok(seed));
        let trained = case.is_trained(&arm.name);
        if train_seed.is_some_and(|seed| !trained || !known(seed)) || (trained && train_seed.is_none()) {
            let shown = sheet.cell(row, "train_seed").to_string();
            wrong.add(file, at, || {
                format!("`train_seed` is `{shown}`, which arm `{}` was not trained with", arm.name)
            });
        }
        if (arm.adapter.is_none() || served) && sheet.cell(row, "adapter_sha256") != Cell::Null {
            wrong.add(file, at, || {
                format!("arm `{}` has no adapter of ours there, and the row names one", arm.name)
            });
        }
        let model = sheet.text(row, "model_sha256");
        if let Some(signed) = trained_model.as_deref().filter(|signed| *signed != model)
            && arm.deploy == Deploy::Live
            && !served
        {
            wrong.add(file, at, || {
                format!("ran model {}…, the receipts are of {}…", head(model), head(signed))
            });
        }
    }
    wrong
}

/// The model that the harvest or the training signed.
fn signed_model(case: &Case) -> Option<String> {
    ["train", "harvest"]
        .iter()
        .find_map(|name| Some(case.receipt(name)?.get("model_sha256")?.as_str()?.to_string()))
}

/// Base units on calibration and null seeds that a signed gate or decision must have read.
fn missing_units(case: &Case) -> Vec<Finding> {
    let (plan, sheet) = (case.plan, case.episodes);
    let base = plan.arms.first().map_or("", |arm| arm.name.as_str());
    let there: BTreeSet<i64> = sheet
        .rows()
        .filter(|(_, _, row)| sheet.text(*row, "arm") == base)
        .filter_map(|(_, _, row)| sheet.whole(row, "seed"))
        .collect();
    let needed = [
        ("headroom", &plan.seeds.calibrate),
        ("kill", &plan.seeds.calibrate),
        ("decision", &plan.seeds.calibrate),
        ("decision", &plan.seeds.null),
    ];
    let signed = needed.into_iter().filter(|(receipt, _)| case.receipt(receipt).is_some());
    let missing: BTreeSet<(u64, &str)> = signed
        .flat_map(|(receipt, seeds)| seeds.iter().map(move |seed| (*seed, receipt)))
        .filter(|(seed, _)| !i64::try_from(*seed).is_ok_and(|seed| there.contains(&seed)))
        .collect();
    let finding = |(seed, receipt): (u64, &str)| {
        let detail = format!("is signed, and there is no episode of `{base}` under the planned seed {seed}");
        Finding::new("unit_incomplete", &case.receipt_path(receipt), None, detail)
    };
    missing.into_iter().map(finding).collect()
}

/// Units whose families, levels and numbers of attempts are not those of the plan.
fn incomplete(case: &Case) -> Vec<Finding> {
    let (plan, sheet) = (case.plan, case.episodes);
    let mut units: BTreeMap<&str, BTreeMap<(String, i64), usize>> = BTreeMap::new();
    for (file, _, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "arm") != "harvest") {
        let kind = (sheet.text(row, "family").to_string(), sheet.whole(row, "level").unwrap_or(0));
        *units.entry(file).or_default().entry(kind).or_default() += 1;
    }
    let kinds = plan
        .families()
        .flat_map(|family| plan.tasks.levels.iter().map(|level| (family.clone(), i64::from(*level))));
    let kinds: BTreeSet<(String, i64)> = kinds.collect();
    let wanted = plan.tasks.per_family as usize * plan.harness.evaluate.rollouts as usize;
    let mut findings = missing_units(case);
    for (file, has) in units {
        for kind in has.keys().chain(&kinds).collect::<BTreeSet<_>>() {
            let count = has.get(kind).copied().unwrap_or(0);
            let planned = if kinds.contains(kind) { wanted } else { 0 };
            if count != planned {
                let detail = format!(
                    "{count} attempts at family `{}`, level {}, where the plan gives {planned}",
                    kind.0, kind.1
                );
                findings.push(Finding::new("unit_incomplete", file, None, detail));
            }
        }
    }
    findings
}

/// Rows of one family that were judged by different verifiers.
fn verifiers<'a>(case: &Case<'a>) -> Gathered<'a> {
    let sheet = case.episodes;
    let mut first: BTreeMap<(&str, &str, bool), (&str, &str)> = BTreeMap::new();
    let mut wrong = Gathered::new("verifier_differs");
    for (file, at, row) in sheet.rows().filter(|(_, _, row)| sheet.text(*row, "arm") != "harvest") {
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
