//! How far an experiment is, read from its files alone.

use super::receipts::{
    DecisionReceipt, HarvestReceipt, HeadroomReceipt, KillReceipt, MergeReceipt, TrainReceipt,
};
use super::{Experiment, draft::Ending};
use crate::episode::{UnitFiles, wal};
use crate::error::{Error, Result};
use crate::experiment::{Purpose, Stage, lock, receipts};
use crate::regular;
use serde::Serialize;

/// One stage or unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What.
    pub what: String,
    /// `done`, `running`, `missing`, `refused`, `closed` after what was refused, or `changed`: a lock that the plan, or
    /// its task file, no longer fits.
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
    /// Whether no stage is left to run.
    pub ended: bool,
    /// Stages and units, in order.
    pub entries: Vec<Entry>,
    /// Evaluation events of the workspace that drew tasks from the same file, up to this experiment's own; null
    /// where tasks are made from seeds.
    pub looks: Option<usize>,
}

/// Reads the state of every stage and unit. After a stage that ended the experiment the ones still
/// missing are closed: they cannot run any more.
pub fn status(experiment: &Experiment) -> Result<Status> {
    let root = &experiment.root;
    let plan = &experiment.plan;
    let mut list = List { experiment, entries: Vec::new(), ended_by: None };
    for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
        match lock::check(root, plan, stage) {
            Err(Error::Refused(problem)) => list.add("plan", "changed", problem.what),
            other => drop(other?),
        }
    }
    // A plan may have nothing to train: its adapters come from elsewhere, or a server has them.
    let trains = plan.arms.iter().any(|arm| arm.adapter.as_deref() == Some("receipt:train"));
    match receipts::read::<HarvestReceipt>(root, "harvest")? {
        Some(r) => list.over("harvest", r.passed, format!("{} of {} samples kept", r.kept, r.samples)),
        None if plan.seeds.harvest.is_empty() && !trains => {}
        None => list.open(
            "harvest",
            begun(experiment, Purpose::Harvest.as_str(), &plan.seeds.harvest)?,
            "harvest",
        ),
    }
    match receipts::read::<TrainReceipt>(root, "train")? {
        Some(r) => list.over("train", true, format!("{} steps on {} rows", r.steps, r.rows)),
        None if !trains => {}
        None => list.open("train", None, "train"),
    }
    match receipts::read::<MergeReceipt>(root, "merge")? {
        Some(r) => list.over("merge", r.passed, format!("{}/{} deltas", r.matched, r.deltas)),
        None if !trains => {}
        None => list.open("merge", None, "merge"),
    }
    if plan.headroom().is_some() {
        match receipts::read::<HeadroomReceipt>(root, "headroom")? {
            Some(r) => {
                list.over("headroom", r.passed, format!("ceiling {}, gain {}", r.ceiling, r.minimum_delta));
            }
            None => list.open("headroom", None, "run"),
        }
    }
    if plan.kill().is_some() {
        match receipts::read::<KillReceipt>(root, "kill")? {
            Some(r) => {
                let counted = format!("{} of {} episodes are {}", r.of_shape, r.among, r.shape.as_str());
                list.over("kill", r.passed, r.why.unwrap_or(counted));
            }
            None => list.open("kill", None, "run"),
        }
    }
    for arm in &plan.arms {
        for seed in &plan.seeds.evaluate {
            let unit = format!("{} {seed}", arm.name);
            match UnitFiles::new(root, &arm.name, *seed)?.complete() {
                true => list.over(&unit, true, String::new()),
                false => list.open(&unit, begun(experiment, &arm.name, &[*seed])?, "run"),
            }
        }
    }
    match receipts::read::<DecisionReceipt>(root, "decision")? {
        Some(r) => list.over("decision", true, r.decision.outcome.as_str().into()),
        None => list.open("decision", None, "run"),
    }
    let entries = list.entries;
    let ending = Ending::of(experiment)?;
    let looks = super::looks(experiment)?;
    let experiment = experiment.slug.clone();
    Ok(Status { experiment, ending: ending.words(), ended: !ending.is_open(), entries, looks })
}

struct List<'a> {
    experiment: &'a Experiment,
    entries: Vec<Entry>,
    ended_by: Option<String>,
}

impl List<'_> {
    fn add(&mut self, what: &str, state: &'static str, note: String) {
        self.entries.push(Entry { what: what.into(), state, note });
    }

    /// A stage that has its receipt, or a unit that has its rows.
    fn over(&mut self, what: &str, passed: bool, note: String) {
        self.add(what, if passed { "done" } else { "refused" }, note);
        if !passed {
            self.ended_by.get_or_insert(what.to_string());
        }
    }

    /// What has not ended: how many of its episodes are finished, and the command that does the rest.
    fn open(&mut self, what: &str, finished: Option<usize>, command: &str) {
        let command = format!("rederive {command} {}", self.experiment.slug);
        match (&self.ended_by, finished) {
            (Some(by), _) => self.add(what, "closed", format!("{by} ended the experiment")),
            (None, Some(n)) => self.add(what, "running", format!("{n} episodes finished; {command} goes on")),
            (None, None) => self.add(what, "missing", command),
        }
    }
}

/// Episodes in the write-ahead files of an arm's units; `None` where there is no such file.
fn begun(experiment: &Experiment, arm: &str, seeds: &[u64]) -> Result<Option<usize>> {
    let mut finished = None;
    for seed in seeds {
        let files = UnitFiles::new(&experiment.root, arm, *seed)?;
        let path = files.path(&files.write_ahead());
        if path.exists() {
            *finished.get_or_insert(0) += wal::decode(&path, &regular::data(&path)?)?.records.len();
        }
    }
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::draft;

    #[test]
    fn a_plan_that_no_longer_fits_its_lock_is_told() {
        let dir = tempfile::tempdir().unwrap();
        draft::new_experiment(dir.path(), "a", &draft::fresh_plan(dir.path()).unwrap()).unwrap();
        let open = || Experiment::open(dir.path(), "a").unwrap();
        let experiment = open();
        lock::lock(&experiment.root, &experiment.plan, Stage::Evaluate).unwrap();
        let changed = |status: Status| status.entries.into_iter().find(|entry| entry.state == "changed");
        assert_eq!(changed(status(&experiment).unwrap()), None);
        let plan = experiment.root.join("experiment.toml");
        let text = fs_err::read_to_string(&plan).unwrap();
        let other = text.replacen("per_family = ", "per_family = 1", 1);
        assert_ne!(text, other);
        fs_err::write(&plan, other).unwrap();
        let entry = changed(status(&open()).unwrap()).unwrap();
        assert!(entry.note.contains("the evaluate section was locked on"), "{}", entry.note);
        assert!(entry.note.contains("has changed: ") && entry.note.contains("per_family"), "{}", entry.note);
    }

    #[test]
    fn what_is_no_file_is_not_read_as_one() {
        let dir = tempfile::tempdir().unwrap();
        draft::new_experiment(dir.path(), "a", &draft::fresh_plan(dir.path()).unwrap()).unwrap();
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        assert_eq!(begun(&experiment, "base", &[52004]).unwrap(), None);
        let files = UnitFiles::new(&experiment.root, "base", 52004).unwrap();
        fs_err::create_dir_all(files.path(&files.write_ahead())).unwrap();
        let error = begun(&experiment, "base", &[52004]).unwrap_err().to_string();
        assert!(error.contains("no regular file") && error.contains("52004"), "{error}");
    }
}
