//! The staged plan lock: a stage's canonical section is hashed when its first unit of work
//! starts. Changing a locked section afterwards is refused and the changed keys are named;
//! additions go into dated `[[amendments]]`, which no lock covers.

use super::plan::Plan;
use super::{endpoint, receipts};
use crate::error::{Error, Result};
use crate::hash;
use crate::regular;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The stages of a plan, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Drawing samples from the base model.
    Harvest,
    /// Training the adapter.
    Train,
    /// Running all arms and deciding.
    Evaluate,
}

impl Stage {
    /// As written in file names.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Harvest => "harvest",
            Stage::Train => "train",
            Stage::Evaluate => "evaluate",
        }
    }
}

/// A written lock: `receipts/plan-<stage>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// Which stage.
    pub stage: Stage,
    /// SHA-256 of the canonical JSON of `section`.
    pub sha256: String,
    /// When the first unit of work of the stage started, UTC.
    pub locked_at: String,
    /// The section as it was.
    pub section: serde_json::Value,
}

/// The canonical section of a stage: everything its outcome depends on, and no prose.
pub fn section(plan: &Plan, stage: Stage) -> Result<serde_json::Value> {
    let json = |v: serde_json::Result<serde_json::Value>| {
        v.map_err(|e| Error::invalid(format!("the plan cannot be written as JSON: {e}")))
    };
    let mut s = serde_json::Map::new();
    s.insert("model".into(), json(endpoint::locked(plan))?);
    let tasks = &plan.tasks;
    match stage {
        Stage::Harvest => {
            s.insert("harness".into(), json(serde_json::to_value(&plan.harness.harvest))?);
            s.insert("environment".into(), tasks.environment.clone().into());
            if let Some(sha256) = &tasks.file_sha256 {
                s.insert("environment_sha256".into(), sha256.clone().into());
            }
            s.insert("train_families".into(), json(serde_json::to_value(&tasks.train))?);
            s.insert("held_out_families".into(), json(serde_json::to_value(&tasks.held_out))?);
            s.insert("levels".into(), json(serde_json::to_value(&tasks.levels))?);
            s.insert("seeds".into(), json(serde_json::to_value(&plan.seeds.harvest))?);
            s.insert("harvest".into(), json(serde_json::to_value(&plan.harvest))?);
        }
        Stage::Train => {
            s.insert("training".into(), json(serde_json::to_value(&plan.training))?);
            s.insert("seeds".into(), json(serde_json::to_value(&plan.seeds.train))?);
        }
        Stage::Evaluate => {
            s.insert("harness".into(), json(serde_json::to_value(&plan.harness.evaluate))?);
            s.insert("tasks".into(), json(serde_json::to_value(tasks))?);
            let seeds = serde_json::json!({
                "evaluate": plan.seeds.evaluate, "calibrate": plan.seeds.calibrate, "null": plan.seeds.null,
            });
            s.insert("seeds".into(), seeds);
            s.insert("arms".into(), json(serde_json::to_value(&plan.arms))?);
            s.insert("gates".into(), json(serde_json::to_value(&plan.gates))?);
            s.insert("decision".into(), json(serde_json::to_value(&plan.decision))?);
        }
    }
    Ok(serde_json::Value::Object(s))
}

/// Where a stage's lock lies.
pub fn lock_path(experiment: &Path, stage: Stage) -> PathBuf {
    experiment.join("receipts").join(format!("plan-{}.json", stage.as_str()))
}

/// The plan as it was under another task file.
pub fn with_tasks(plan: &Plan, file_sha256: String) -> Plan {
    let mut plan = plan.clone();
    plan.tasks.file_sha256 = Some(file_sha256);
    plan
}

/// Hashes that the plan's task file had before its verifiers were repaired, the latest first: each has a rescore
/// receipt that says which file followed it.
pub fn earlier_tasks(experiment: &Path, plan: &Plan) -> Result<Vec<String>> {
    let Some(mut now) = plan.tasks.file_sha256.clone() else { return Ok(Vec::new()) };
    let mut repairs = Vec::new();
    let mut number = 1;
    while let Some(receipt) = receipts::read::<serde_json::Value>(experiment, &format!("rescore-{number}"))? {
        repairs.push(receipt["replaced"][plan.tasks.environment.as_str()].clone());
        number += 1;
    }
    let mut earlier = Vec::new();
    for repair in repairs.into_iter().rev() {
        if let (Some(old), true) = (repair["old"].as_str(), repair["new"] == now.as_str()) {
            now = old.to_owned();
            earlier.push(now.clone());
        }
    }
    Ok(earlier)
}

/// The hash of a stage's section; refuses a plan that no longer says what was locked, save that a task file whose
/// verifiers were repaired counts as the one that was locked (the locked hash is then returned). Locks nothing.
pub fn check(experiment: &Path, plan: &Plan, stage: Stage) -> Result<String> {
    let section = section(plan, stage)?;
    let sha256 = hash::sha256_json(&section)?;
    if let Some(lock) = read(experiment, stage)? {
        if lock.sha256 == sha256 {
            return Ok(sha256);
        }
        for earlier in earlier_tasks(experiment, plan)? {
            if hash::sha256_json(&self::section(&with_tasks(plan, earlier), stage)?)? == lock.sha256 {
                return Ok(lock.sha256);
            }
        }
        let changed = changed_paths(&lock.section, &section).join(", ");
        return Err(Error::refused(format!(
            "the {} section was locked on {} and has changed: {changed}",
            stage.as_str(),
            lock.locked_at
        ))
        .at(experiment.join("experiment.toml").display())
        .hint("restore it, or start a new experiment; remarks go into a dated `[[amendments]]`"));
    }
    Ok(sha256)
}

/// Locks a stage, or checks that the plan still says what was locked. Returns the hash. To be called
/// when all else that the stage needs is there: what is locked cannot be mended.
pub fn lock(experiment: &Path, plan: &Plan, stage: Stage) -> Result<String> {
    let sha256 = check(experiment, plan, stage)?;
    if lock_path(experiment, stage).exists() {
        return Ok(sha256);
    }
    let section = section(plan, stage)?;
    let lock = Lock { stage, sha256: sha256.clone(), locked_at: crate::clock::now(), section };
    let text = serde_json::to_string_pretty(&lock).map_err(|e| Error::invalid(e.to_string()))?;
    hash::write_atomic(&lock_path(experiment, stage), text.as_bytes())?;
    Ok(sha256)
}

/// A stage's lock, if it was written; its own hash is checked.
pub fn read(experiment: &Path, stage: Stage) -> Result<Option<Lock>> {
    let path = lock_path(experiment, stage);
    if !path.exists() {
        return Ok(None);
    }
    let text = regular::text(&path)?;
    let lock: Lock = serde_json::from_str(&text).map_err(|e| {
        Error::invalid(format!("not a plan lock: {e}"))
            .at(path.display())
            .hint("restore the file from version control")
    })?;
    if hash::sha256_json(&lock.section)? != lock.sha256 {
        return Err(Error::refused("the locked section does not match its own hash")
            .at(path.display())
            .hint("restore the file from version control"));
    }
    Ok(Some(lock))
}

/// Every key that differs between two sections, with both values.
pub(crate) fn changed_paths(old: &serde_json::Value, new: &serde_json::Value) -> Vec<String> {
    fn walk(path: &str, old: &serde_json::Value, new: &serde_json::Value, out: &mut Vec<String>) {
        match (old, new) {
            (serde_json::Value::Object(a), serde_json::Value::Object(b)) => {
                let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for key in keys {
                    let null = serde_json::Value::Null;
                    let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    walk(&inner, a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null), out);
                }
            }
            (a, b) if a != b => out.push(format!("`{path}` was {a}, now {b}")),
            _ => {}
        }
    }
    let mut out = Vec::new();
    walk("", old, new, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::tests::GOOD;

    fn plan(text: &str) -> Plan {
        Plan::parse(text, Path::new("experiment.toml")).unwrap()
    }

    #[test]
    fn a_locked_section_cannot_change_but_others_can() {
        let dir = tempfile::tempdir().unwrap();
        let hash = lock(dir.path(), &plan(GOOD), Stage::Evaluate).unwrap();
        assert_eq!(lock(dir.path(), &plan(GOOD), Stage::Evaluate).unwrap(), hash);
        let bar = GOOD.replace("minimum_delta = 0.03\n\"#", "").replacen(
            "[decision]\nrule",
            "[decision]\nminimum_delta = 0.01\nrule",
            1,
        );
        let bar = bar.trim_end().strip_suffix("minimum_delta = 0.03").unwrap().to_string();
        let e = lock(dir.path(), &plan(&bar), Stage::Evaluate).unwrap_err();
        assert_eq!(e.exit_code(), 1);
        assert!(e.to_string().contains("`decision.minimum_delta` was 0.03, now 0.01"), "{e}");
        let harvest_change = GOOD.replace("harvest = [11001]", "harvest = [11002]");
        assert_eq!(lock(dir.path(), &plan(&harvest_change), Stage::Evaluate).unwrap(), hash);
        let amended = format!("{GOOD}\n[[amendments]]\ndate = 2026-12-02\ntext = \"A remark.\"\n");
        assert_eq!(lock(dir.path(), &plan(&amended), Stage::Evaluate).unwrap(), hash);
    }

    /// A plan that was locked by an earlier version keeps its hashes.
    #[test]
    fn the_published_experiment_is_still_what_was_locked() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/commit-an-answer");
        let plan = Plan::load(&root.join("experiment.toml")).unwrap();
        for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
            let locked = read(&root, stage).unwrap().unwrap();
            assert_eq!(check(&root, &plan, stage).unwrap(), locked.sha256, "{}", stage.as_str());
        }
    }

    #[test]
    fn a_lock_edited_by_hand_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        lock(dir.path(), &plan(GOOD), Stage::Train).unwrap();
        let path = lock_path(dir.path(), Stage::Train);
        let text = fs_err::read_to_string(&path).unwrap().replace("\"rank\": 16", "\"rank\": 8");
        fs_err::write(&path, text).unwrap();
        assert!(read(dir.path(), Stage::Train).unwrap_err().to_string().contains("own hash"));
    }

    #[test]
    fn a_task_file_counts_as_the_locked_one_where_rescores_lead_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut drawn = plan(GOOD);
        drawn.tasks.environment = "tasks.jsonl".into();
        let under = |file: &str| with_tasks(&drawn, file.into());
        let hash = lock(dir.path(), &under("a"), Stage::Evaluate).unwrap();
        let repair = |number: u64, old: &str, new: &str| {
            let change = serde_json::json!({"old": old, "new": new});
            let receipt = serde_json::json!({"number": number, "replaced": {"tasks.jsonl": change}});
            receipts::write(dir.path(), &format!("rescore-{number}"), &receipt).unwrap();
        };
        assert!(check(dir.path(), &under("b"), Stage::Evaluate).is_err());
        repair(1, "a", "b");
        repair(2, "b", "c");
        for file in ["a", "b", "c"] {
            assert_eq!(check(dir.path(), &under(file), Stage::Evaluate).unwrap(), hash, "{file}");
        }
        assert!(check(dir.path(), &under("d"), Stage::Evaluate).is_err());
        let mut other = under("c");
        other.decision.minimum_delta = Some(0.5);
        let error = check(dir.path(), &other, Stage::Evaluate).unwrap_err().to_string();
        assert!(error.contains("decision.minimum_delta"), "{error}");
    }
}
