//! A task file whose verifiers were repaired after the plan was locked: the file as it was is asked
//! for, has to be the locked one, and may differ in its judging only.

use super::unit::Replacement;
use crate::environment::taskset::TaskSet;
use crate::episode::hashes::FileHash;
use crate::error::{Error, Result};
use crate::experiment::{Stage, lock, receipts};
use crate::hash::sha256_hex;
use crate::stages::Experiment;
use std::path::{Component, Path};

/// A task file that takes the place of another.
pub struct Repaired {
    /// The file as it is now.
    pub file: Replacement,
    /// The bytes of the one before.
    pub was: Vec<u8>,
}

/// The repaired task file of an experiment; `None` where its plan is still the locked one, or a receipt already
/// says that this file followed the one given. Refused when the plan has changed in anything else, when the file
/// given is not the one that the last rescore left, and when tasks were changed and not only their judging.
pub fn repaired(experiment: &Experiment, was: Option<&Path>) -> Result<Option<Repaired>> {
    let (root, plan) = (&experiment.root, &experiment.plan);
    let place = || root.join(&plan.tasks.environment);
    let left = left(root, &plan.tasks.environment)?;
    let Some(was) = was else {
        return match locked(experiment, None) {
            Err(Error::Refused(problem)) if plan.tasks.file_sha256.is_some() => {
                Err(Error::refused(problem.what).at(place().display()).hint(format!(
                    "restore what changed; where only verifiers of the task file were repaired: `rederive rescore {} --was FILE`, with the file as it was locked",
                    experiment.slug
                )))
            }
            Ok(()) => match left.filter(|(_, left)| Some(left) != plan.tasks.file_sha256.as_ref()) {
                Some((number, left)) => Err(not_left(number, &left)
                    .at(place().display())
                    .hint(format!("restore that file, or say that it was repaired once more: `rederive rescore {} --was FILE`, with that file", experiment.slug))),
                None => Ok(None),
            },
            Err(other) => Err(other),
        };
    };
    let Some(now_sha256) = &plan.tasks.file_sha256 else {
        return Err(Error::invalid("the plan's tasks come from no file")
            .at(root.join("experiment.toml").display())
            .hint("leave `--was` out: verifiers of the gym are part of the program"));
    };
    let old = crate::regular::data(was)?;
    let old_sha256 = sha256_hex(&old);
    if old_sha256 == *now_sha256 {
        return Err(Error::invalid("is the task file that stands there")
            .at(was.display())
            .hint("`--was` names the file before the repair; without one, leave it out"));
    }
    if let Some((number, left)) = left {
        if left == *now_sha256 {
            locked(experiment, None)?;
            if lock::earlier_tasks(root, plan)?.contains(&old_sha256) {
                return Ok(None);
            }
        }
        if left != old_sha256 {
            return Err(not_left(number, &left)
                .at(was.display())
                .hint("`--was` names the task file that the last rescore left"));
        }
    }
    locked(experiment, Some(&old_sha256)).map_err(|error| match error {
        Error::Refused(problem) => Error::refused(problem.what)
            .at(was.display())
            .hint("`--was` names the task file that the plan was locked with, or that the last rescore left"),
        other => other,
    })?;
    let path = plan.tasks.environment.clone();
    if !Path::new(&path).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(Error::refused("the task file lies outside the experiment's folder")
            .at(place().display())
            .hint("only what lies there is kept and accounted for"));
    }
    let now = TaskSet::open(&path, &place())?;
    now.asks_the_same(&TaskSet::open(&path, was)?)?;
    let bytes = crate::regular::data(&place())?;
    let entry = FileHash::of(&bytes, now.len(), None);
    Ok(Some(Repaired { file: Replacement { path, old: old_sha256, bytes, entry }, was: old }))
}

/// The task file that the last of the rescores left, with that rescore's number: the head of their chain.
fn left(root: &Path, path: &str) -> Result<Option<(u64, String)>> {
    let mut left = None;
    let mut number = 1;
    while let Some(receipt) = receipts::read::<serde_json::Value>(root, &super::receipt::name(number))? {
        if let Some(new) = receipt["replaced"][path]["new"].as_str() {
            left = Some((number, new.to_owned()));
        }
        number += 1;
    }
    Ok(left)
}

fn not_left(number: u64, left: &str) -> Error {
    Error::refused(format!("is not the task file that rescore {number} left (SHA-256 {left})"))
}

/// Holds every lock that there is against the plan, with that task file in the place of its own.
fn locked(experiment: &Experiment, tasks: Option<&str>) -> Result<()> {
    let plan = match tasks {
        Some(sha256) => lock::with_tasks(&experiment.plan, sha256.to_owned()),
        None => experiment.plan.clone(),
    };
    for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
        lock::check(&experiment.root, &plan, stage)?;
    }
    Ok(())
}
