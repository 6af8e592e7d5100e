//! How often a fixed set of tasks has been looked at: the more often, the less a result on it says
//! of other tasks. Counted from the seed ledger and the plan locks of the workspace.

use super::Experiment;
use crate::error::Result;
use crate::experiment::{Purpose, Stage, ledger, lock};
use std::collections::BTreeMap;
use std::path::Path;

/// Evaluation events (an experiment under a seed) that drew tasks from the file that this experiment draws from,
/// in the order of the ledger up to this experiment's last one; all there are while it has spent none. `None`
/// where tasks are made from seeds. A file is known by its hash, wherever a copy of it lies.
pub fn looks(experiment: &Experiment) -> Result<Option<usize>> {
    let Some(named) = experiment.plan.tasks.file_sha256.clone() else { return Ok(None) };
    // A file whose verifiers were repaired is known by what was locked.
    let own = drew_from(&experiment.root)?.unwrap_or(named);
    let mut events = ledger::read(&experiment.workspace)?;
    events.retain(|spent| spent.purpose == Purpose::Evaluate);
    if let Some(last) = events.iter().rposition(|spent| spent.experiment == experiment.slug) {
        events.truncate(last + 1);
    }
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    let mut count = 0;
    for spent in events {
        let same = match known.get(&spent.experiment) {
            Some(same) => *same,
            None => {
                let folder = experiment.workspace.join("data").join(&spent.experiment);
                let same = drew_from(&folder)?.as_deref() == Some(&own);
                known.insert(spent.experiment, same);
                same
            }
        };
        count += usize::from(same);
    }
    Ok(Some(count))
}

/// The hash of the file of tasks that an experiment was locked on.
fn drew_from(folder: &Path) -> Result<Option<String>> {
    let lock = lock::read(folder, Stage::Evaluate)?;
    Ok(lock.and_then(|lock| Some(lock.section.get("tasks")?.get("file_sha256")?.as_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Plan;
    use crate::experiment::plan::plan_path;

    /// An experiment on a set of tasks, locked, with its events spent.
    fn made(workspace: &Path, slug: &str, tasks: &str, seeds: &[u64]) -> Experiment {
        let path = plan_path(workspace, slug);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path.with_file_name("mine.jsonl"), tasks).unwrap();
        let plan = format!(
            "title = \"T\"\n[model]\nsource = \"m\"\n[tasks]\nenvironment = \"mine.jsonl\"\nheld_out = [\"tasks\"]\nlevels = [1]\nper_family = 1\n\
             [seeds]\nevaluate = {seeds:?}\n[[arms]]\nname = \"base\"\n[[arms]]\nname = \"other\"\nadapter = \"a\"\n\
             [decision]\nrule = \"equivalence\"\nmetric = {{ estimator = \"paired_delta\", of = \"reward\" }}\nmargin = 0.1\n"
        );
        fs_err::write(&path, &plan).unwrap();
        lock::lock(path.parent().unwrap(), &Plan::load(&path).unwrap(), Stage::Evaluate).unwrap();
        ledger::spend(workspace, slug, Purpose::Evaluate, seeds).unwrap();
        Experiment::open(workspace, slug).unwrap()
    }

    fn tasks(city: &str) -> String {
        (0..6).map(|i| format!("{{\"prompt\": \"{i} of {city}?\", \"answer\": \"{city}\"}}\n")).collect()
    }

    #[test]
    fn events_on_the_same_file_are_counted_in_the_order_of_the_ledger() {
        let dir = tempfile::tempdir().unwrap();
        let first = made(dir.path(), "first", &tasks("Rome"), &[1, 2]);
        let other = made(dir.path(), "other", &tasks("Oslo"), &[3]);
        let second = made(dir.path(), "second", &tasks("Rome"), &[4]);
        ledger::spend(dir.path(), "second", Purpose::Calibrate, &[9]).unwrap();
        let counts = [&first, &other, &second].map(|e| looks(e).unwrap());
        assert_eq!(counts, [Some(2), Some(1), Some(3)]);
        // What is spent later changes no earlier count.
        made(dir.path(), "third", &tasks("Rome"), &[5, 6]);
        assert_eq!(looks(&second).unwrap(), Some(3));
        // Before it has spent any, an experiment sees all that were.
        fs_err::write(
            ledger::path(dir.path()),
            fs_err::read_to_string(ledger::path(dir.path())).unwrap().replace("\"first\"", "\"gone\""),
        )
        .unwrap();
        assert_eq!(looks(&first).unwrap(), Some(3));
    }
}
