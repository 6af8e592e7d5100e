//! How far an experiment is, read from its files alone.

use super::receipts::{DecisionReceipt, HarvestReceipt, HeadroomReceipt, MergeReceipt, TrainReceipt};
use super::{Experiment, draft::Ending};
use crate::episode::{UnitFiles, wal};
use crate::error::Result;
use crate::experiment::receipts;
use serde::Serialize;
use std::path::Path;

/// One stage or unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What.
    pub what: String,
    /// `done`, `running`, `missing` or `refused`.
    pub state: &'static str,
    /// A remark, such as a count.
    pub note: String,
}

/// The whole experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its name.
    pub experiment: String,
    /// `planned`, or how it ended.
    pub ending: String,
    /// Stages and units, in order.
    pub entries: Vec<Entry>,
}

/// Reads the state of every stage and unit.
pub fn status(experiment: &Experiment) -> Result<Status> {
    let root = &experiment.root;
    let plan = &experiment.plan;
    let mut entries = Vec::new();
    let mut add = |what: &str, state: &'static str, note: String| {
        entries.push(Entry { what: what.into(), state, note })
    };
    match receipts::read::<HarvestReceipt>(root, "harvest")? {
        Some(r) => add(
            "harvest",
            if r.passed { "done" } else { "refused" },
            format!("{} of {} samples kept", r.kept, r.samples),
        ),
        None => match plan
            .seeds
            .harvest
            .iter()
            .map(|seed| unfinished(root, "harvest", *seed))
            .collect::<Result<Vec<_>>>()?
        {
            counts if counts.iter().any(Option::is_some) => {
                let done: usize = counts.iter().flatten().sum();
                add(
                    "harvest",
                    "running",
                    format!("{done} episodes finished; rederive harvest {} continues", experiment.slug),
                );
            }
            _ => add("harvest", "missing", format!("rederive harvest {}", experiment.slug)),
        },
    }
    match receipts::read::<TrainReceipt>(root, "train")? {
        Some(r) => add("train", "done", format!("{} steps on {} rows", r.steps, r.rows)),
        None => add("train", "missing", format!("rederive train {}", experiment.slug)),
    }
    match receipts::read::<MergeReceipt>(root, "merge")? {
        Some(r) => add(
            "merge",
            if r.passed { "done" } else { "refused" },
            format!("{}/{} deltas", r.matched, r.deltas),
        ),
        None => add("merge", "missing", format!("rederive merge {}", experiment.slug)),
    }
    if let Some(r) = receipts::read::<HeadroomReceipt>(root, "headroom")? {
        add(
            "headroom",
            if r.passed { "done" } else { "refused" },
            format!("ceiling {}, gain {}", r.ceiling, r.minimum_delta),
        );
    }
    for arm in &plan.arms {
        for seed in &plan.seeds.evaluate {
            let unit = format!("{} {seed}", arm.name);
            if root.join("episodes").join(&arm.name).join(format!("{seed}.parquet")).exists() {
                add(&unit, "done", String::new());
                continue;
            }
            match unfinished(root, &arm.name, *seed)? {
                Some(done) => add(&unit, "running", format!("{done} episodes finished")),
                None => add(&unit, "missing", format!("rederive run {}", experiment.slug)),
            }
        }
    }
    match receipts::read::<DecisionReceipt>(root, "decision")? {
        Some(r) => add("decision", "done", r.decision.outcome.as_str().into()),
        None => add("decision", "missing", format!("rederive run {}", experiment.slug)),
    }
    Ok(Status { experiment: experiment.slug.clone(), ending: Ending::of(experiment)?.words(), entries })
}

/// Episodes in a unit's write-ahead file; `None` when it was not begun or is finished.
fn unfinished(root: &Path, arm: &str, seed: u64) -> Result<Option<usize>> {
    let files = UnitFiles::new(root, arm, seed)?;
    let path = files.path(&files.write_ahead());
    if !path.exists() || files.path(&files.episodes()).exists() {
        return Ok(None);
    }
    Ok(Some(wal::decode(&path, &fs_err::read(&path)?)?.records.len()))
}
