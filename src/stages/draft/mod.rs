//! First drafts of an experiment's texts: report, log and claim, with every number an empty
//! link that `fill` writes. A file that exists is never overwritten.

mod documents;
mod ending;
mod wording;

pub use ending::Ending;

use super::{Experiment, list};
use crate::error::{Error, Result};
use crate::experiment::{Plan, ledger};
use crate::hash::write_atomic;
use crate::write_lock::WriteLock;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// File in the root of a demo's workspace: `quick` or `full`.
pub const DEMO_MARKER: &str = ".rederive-demo";
/// The plan that `new` starts from.
const PLAN: &str = include_str!("../../../templates/new/experiment.toml");

/// Starts an experiment: writes the plan under `data/<slug>` and the first texts. Refuses a name
/// that is taken or not made of `a-z`, `0-9` and `-`.
pub fn new_experiment(workspace: &Path, slug: &str, plan: &str) -> Result<Vec<PathBuf>> {
    let word = !slug.is_empty()
        && !slug.starts_with('-')
        && slug.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !word {
        return Err(Error::invalid(format!("`{slug}` is not a name for an experiment"))
            .hint("use a-z, 0-9 and `-`, such as `commit-an-answer`"));
    }
    let _lock = WriteLock::start(workspace)?;
    if list(workspace)?.iter().any(|known| known == slug) {
        return Err(Error::invalid(format!("experiment `{slug}` exists already"))
            .at(workspace.join("data").join(slug).display())
            .hint("choose another name"));
    }
    let path = crate::experiment::plan::plan_path(workspace, slug);
    Plan::parse(plan, &path)?;
    write_atomic(&path, plan.as_bytes())?;
    let experiment = Experiment::open(workspace, slug)?;
    let mut written = vec![path];
    written.extend(texts(&experiment, &Ending::Planned)?);
    Ok(written)
}

/// The plan that `new` starts from, with seeds that no plan and no run of the workspace has taken.
pub fn fresh_plan(workspace: &Path) -> Result<String> {
    let mut taken: BTreeSet<u64> = ledger::read(workspace)?.iter().map(|spent| spent.seed).collect();
    let known = if workspace.is_dir() { list(workspace)? } else { Vec::new() };
    for slug in known {
        // A plan that cannot be read is somebody's to mend, not a reason to start no other.
        if let Ok(other) = Experiment::open(workspace, &slug) {
            taken.extend(other.plan.event_seeds().into_iter().map(|(_, seed)| seed));
        }
    }
    let drafted = Plan::parse(PLAN, Path::new("experiment.toml"))?;
    let seeds: BTreeSet<u64> = drafted.event_seeds().into_iter().map(|(_, seed)| seed).collect();
    let step = (0u64..).step_by(10).find(|step| seeds.iter().all(|seed| !taken.contains(&(seed + step))));
    let step = step.expect("finitely many seeds are taken");
    // From the largest down, so that no new number is taken for an old one.
    let renumber = |text: String, seed: &u64| text.replace(&seed.to_string(), &(seed + step).to_string());
    Ok(seeds.iter().rev().fold(PLAN.to_owned(), renumber))
}

/// Writes the texts that do not exist yet; returns what was written.
pub fn texts(experiment: &Experiment, ending: &Ending) -> Result<Vec<PathBuf>> {
    let pages = experiment.workspace.join("site").join("experiments").join(&experiment.slug);
    let mut files = vec![
        (experiment.workspace.join("site").join("site.toml"), SITE.to_string()),
        (pages.join("report.md"), documents::report(experiment, ending)),
        (pages.join("log.md"), wording::log(ending)),
    ];
    if let Ending::Decided { outcome, few } = ending {
        let id = next_claim(&experiment.workspace)?;
        if !claimed(experiment)? {
            let name = format!("{id}-{}.md", experiment.slug);
            files.push((
                experiment.workspace.join("claims").join(name),
                documents::claim(experiment, &id, *outcome, *few),
            ));
        }
    }
    let mut written = Vec::new();
    for (path, text) in files {
        if !path.exists() {
            write_atomic(&path, text.as_bytes())?;
            written.push(path);
        }
    }
    Ok(written)
}

const SITE: &str = "title = \"Research log\"\ndescription = \"Experiments whose every number is recomputed from raw episodes.\"\n";

fn claim_files(workspace: &Path) -> Result<Vec<PathBuf>> {
    let folder = workspace.join("claims");
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs_err::read_dir(&folder)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

fn next_claim(workspace: &Path) -> Result<String> {
    let last = claim_files(workspace)?
        .iter()
        .filter_map(|p| p.file_name()?.to_str()?.strip_prefix('C')?.split('-').next()?.parse::<u32>().ok())
        .max()
        .unwrap_or(0);
    Ok(format!("C{:04}", last + 1))
}

fn claimed(experiment: &Experiment) -> Result<bool> {
    let suffix = format!("-{}.md", experiment.slug);
    Ok(claim_files(&experiment.workspace)?.iter().any(|p| p.to_string_lossy().ends_with(&suffix)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::decision::Outcome;

    #[test]
    fn a_new_experiment_is_drafted_once() {
        let dir = tempfile::tempdir().unwrap();
        let written = new_experiment(dir.path(), "my-try", PLAN).unwrap();
        assert!(written.iter().all(|p| p.exists()) && written.len() == 4);
        assert!(
            new_experiment(dir.path(), "my-try", PLAN).unwrap_err().to_string().contains("exists already")
        );
        assert!(new_experiment(dir.path(), "My Try", PLAN).is_err());
    }

    #[test]
    fn texts_never_overwrite() {
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", PLAN).unwrap();
        let report = dir.path().join("site/experiments/a/report.md");
        fs_err::write(&report, "mine").unwrap();
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        let written =
            texts(&experiment, &Ending::Decided { outcome: Outcome::Positive, few: false }).unwrap();
        assert_eq!(fs_err::read_to_string(&report).unwrap(), "mine");
        assert!(written.iter().any(|p| p.ends_with("claims/C0001-a.md")));
        assert!(
            texts(&experiment, &Ending::Decided { outcome: Outcome::Positive, few: false })
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn every_ending_drafts_front_matter_that_parses() {
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", PLAN).unwrap();
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        let endings = [Ending::Planned, Ending::Starved("59 rows were kept".into()), Ending::NoHeadroom]
            .into_iter()
            .chain(
                [Outcome::Positive, Outcome::Negative, Outcome::Inconclusive]
                    .map(|outcome| Ending::Decided { outcome, few: outcome == Outcome::Negative }),
            );
        for ending in endings {
            let text = documents::report(&experiment, &ending);
            let front = text.trim_start_matches("+++\n").split("\n+++\n").next().unwrap();
            let value: toml::Table = toml::from_str(front).unwrap_or_else(|e| panic!("{ending:?}: {e}"));
            let known = value["derivations"].as_table().unwrap();
            for used in text.split("(derive:a.").skip(1) {
                let id = used.split([')', '.', '/']).next().unwrap();
                assert!(known.contains_key(id), "{ending:?} uses `{id}`");
            }
        }
    }
}
