//! A new rows version under a repaired verifier: the old files go to `superseded/<n>/`, the new ones
//! take their place. All new bytes are on disk before the first file is touched, and a journal says what
//! goes where, so that a call that was cut off is finished by the next one.

use super::moved::{self, Instead, Movement};
use super::receipt::{self, Receipt};
use super::unit::{Difference, Replacement};
use super::{Family, Rescored, judge_again};
use crate::episode::hashes::{self, FileHash};
use crate::episode::{CallRow, EpisodeRow, UnitFiles, durable, table};
use crate::error::{Error, Result};
use crate::experiment::receipts;
use crate::hash::sha256_hex;
use crate::stages::{Context, DecisionReceipt, Experiment, HeadroomReceipt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The journal's name within its folder.
const JOURNAL: &str = "journal.json";

/// A new rows version that stands.
#[derive(Debug, Clone, Serialize)]
pub struct Done {
    /// The experiment.
    pub experiment: String,
    /// Whether this call finished what an earlier one had begun.
    pub resumed: bool,
    /// What was put on record.
    pub receipt: Receipt,
    /// What moves: to be printed anew and explained.
    pub moved: Movement,
    /// The decision before and after, where there is one.
    pub decision: Option<[String; 2]>,
    /// Whether the headroom gate, which passed, would not pass on the new rows.
    pub headroom_gone: bool,
    /// Harvested samples that are judged otherwise; what was trained on them stays what it is.
    pub harvest: Vec<Family>,
}

/// A step that is done and durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All new bytes are beside the data.
    Staged,
    /// The journal is written: from here on the next call finishes.
    Journal,
    /// One file is kept under `superseded/`.
    Kept,
    /// One file has its new contents.
    Replaced,
    /// `hashes.json` lists the new and the kept files.
    Hashes,
    /// The receipt is written.
    Receipt,
}

/// What a call that was cut off had begun.
#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    number: u64,
    receipt: Receipt,
    hashes: BTreeMap<String, FileHash>,
}

/// Writes the next rows version of an experiment; `None` where every row names the verifier of today.
/// `was` is the task file as it was locked, where its verifiers were repaired since.
///
/// Refused when an unchanged verifier judges otherwise, when an episode cannot be judged again (rows of one
/// family must all be judged by one verifier), when a unit is unfinished, and when files or plan are not what
/// hashes and lock say.
pub fn rescore(experiment: &Experiment, was: Option<&Path>, context: &Context) -> Result<Option<Done>> {
    rescore_with(experiment, was, context, &mut |_| Ok(()))
}

/// As [`rescore`]; `after` is called when a step is durable, and its error stops there.
pub fn rescore_with(
    experiment: &Experiment,
    was: Option<&Path>,
    context: &Context,
    after: &mut dyn FnMut(Step) -> Result<()>,
) -> Result<Option<Done>> {
    let root = &experiment.root;
    if let Some(journal) = begun(root)? {
        finish(root, &journal, after)?;
        return done(experiment, journal.receipt, true, Vec::new()).map(Some);
    }
    let tasks = super::tasks::repaired(experiment, was)?;
    hashes::verify(root)?;
    let rescored = judge_again(experiment, context)?;
    let mut files = receipt::next_files(experiment, &rescored)?;
    if files.is_empty() && tasks.is_none() {
        return Ok(None);
    }
    refuse(experiment, &rescored)?;
    let kept: Instead = tasks.iter().map(|tasks| (tasks.file.path.clone(), tasks.was.clone())).collect();
    files.extend(tasks.map(|tasks| tasks.file));
    let number = next_number(root)?;
    let record = Receipt::of(number, &rescored, &files);
    let journal = stage(root, record, &files, &kept, after)?;
    finish(root, &journal, after)?;
    let harvest = rescored.families.iter().filter(|f| f.harvest && f.tally.differing > 0).cloned();
    done(experiment, journal.receipt, false, harvest.collect()).map(Some)
}

/// What stands in the way of a new version, before anything is written.
fn refuse(experiment: &Experiment, rescored: &Rescored) -> Result<()> {
    let root = &experiment.root;
    if let Some(first) = rescored.findings().first() {
        let row = first.row.map(|row| format!(", row {row}")).unwrap_or_default();
        let what = match first.rule {
            "transcript_differs" => "the transcripts are not those of the run",
            "unreadable_file" => "a file of the run cannot be read",
            "model_differs" => "the model is not that of the run",
            _ => "an unchanged verifier judges otherwise than in the run",
        };
        return Err(Error::refused(format!("{what}: {}", first.detail))
        .at(format!("{}{row}", first.file))
        .hint("the rows, the transcripts or this build are not those of the run; `rederive audit --rescore` lists all"));
    }
    for family in rescored.families.iter().filter(|family| !family.harvest && !family.same_verifier) {
        if let Some((reason, n)) = family.tally.without.iter().next() {
            let of_family = |d: &&Difference| {
                d.family == family.family && d.unjudged.as_ref().is_some_and(|why| why.word() == reason)
            };
            let first = rescored.differences.iter().find(of_family);
            let why = first.and_then(|d| d.why.as_deref()).unwrap_or(reason);
            return Err(Error::refused(format!(
                "{n} of {} episodes of family `{}` cannot be judged again ({reason}): {why}",
                family.tally.episodes, family.family
            ))
            .at(root.display())
            .hint(
                "rows of one family must all be judged by one verifier: restore the transcripts and tasks",
            ));
        }
    }
    for unit in rescored.units.iter().filter(|unit| !unit.next.is_empty()) {
        let files = UnitFiles::new(root, &unit.arm, unit.seed)?;
        if !files.complete() {
            return Err(Error::refused("the unit is unfinished")
                .at(files.path(&files.write_ahead()).display())
                .hint(format!("run `rederive run {}` first", experiment.slug)));
        }
        table::read_chain_checked::<EpisodeRow>(&files.path(&files.episodes()))?;
        if files.path(&files.calls()).is_file() {
            table::read_chain_checked::<CallRow>(&files.path(&files.calls()))?;
        }
    }
    Ok(())
}

/// One more than any number that a receipt or a kept version has.
fn next_number(root: &Path) -> Result<u64> {
    let numbered = |folder: &str, number: fn(&str) -> Option<u64>| -> Result<Vec<u64>> {
        let folder = root.join(folder);
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let names =
            fs_err::read_dir(&folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: Vec<String> = names.collect::<Result<_>>()?;
        Ok(names.iter().filter_map(|name| number(name)).collect())
    };
    let of_receipt = |name: &str| name.strip_prefix("rescore-")?.strip_suffix(".json")?.parse().ok();
    let mut numbers = numbered("receipts", of_receipt)?;
    numbers.extend(numbered("superseded", |name| name.parse().ok())?);
    Ok(numbers.into_iter().max().unwrap_or(0) + 1)
}

/// The folder of a rescore that is not finished.
fn staging(root: &Path, number: u64) -> PathBuf {
    root.join("wal").join(receipt::name(number))
}

/// The journal of a call that was cut off; what one left that had not come to its journal is removed.
fn begun(root: &Path) -> Result<Option<Journal>> {
    let wal = root.join("wal");
    if !wal.is_dir() {
        return Ok(None);
    }
    for entry in fs_err::read_dir(&wal)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("rescore-") || !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path().join(JOURNAL);
        if !path.is_file() {
            fs_err::remove_dir_all(entry.path())?;
            continue;
        }
        let journal: Journal = serde_json::from_slice(&fs_err::read(&path)?).map_err(|e| {
            Error::invalid(format!("is no journal of a rescore: {e}"))
                .at(path.display())
                .hint("restore the experiment folder from version control, without `wal/`")
        })?;
        return Ok(Some(journal));
    }
    Ok(None)
}

/// Puts all new bytes beside the data and writes the journal last.
fn stage(
    root: &Path,
    record: Receipt,
    files: &[Replacement],
    kept: &Instead,
    after: &mut dyn FnMut(Step) -> Result<()>,
) -> Result<Journal> {
    let number = record.number;
    let folder = staging(root, number);
    let mut listed = BTreeMap::new();
    for file in files {
        durable::write(&folder.join("new").join(&file.path), &file.bytes)?;
        let old = match kept.get(&file.path) {
            Some(bytes) => {
                durable::write(&folder.join("old").join(&file.path), bytes)?;
                FileHash::of(bytes, file.entry.rows as usize, None)
            }
            None => match hashes::read(root)?.remove(&file.path) {
                Some(entry) => entry,
                // A receipt is no data file; the kept one is listed all the same.
                None => FileHash::of(&fs_err::read(root.join(&file.path))?, 0, None),
            },
        };
        if old.sha256 != file.old {
            return Err(changed(&root.join(&file.path)));
        }
        listed.insert(superseded(number, &file.path), old);
        if is_data(&file.path) {
            listed.insert(file.path.clone(), file.entry.clone());
        }
    }
    after(Step::Staged)?;
    let journal = Journal { number, receipt: record, hashes: listed };
    let text = serde_json::to_vec_pretty(&journal).map_err(|e| Error::invalid(e.to_string()))?;
    durable::write(&folder.join(JOURNAL), &text)?;
    after(Step::Journal)?;
    Ok(journal)
}

/// Whether a path is one that `hashes.json` lists.
fn is_data(path: &str) -> bool {
    path.starts_with("episodes/") || path.starts_with("calls/")
}

/// Where the earlier version of a file is kept, relative to the experiment folder.
fn superseded(number: u64, path: &str) -> String {
    format!("superseded/{number}/{path}")
}

fn changed(path: &Path) -> Error {
    Error::refused("is neither the earlier nor the later version of the file")
        .at(path.display())
        .hint("restore it from version control and run the same command again")
}

/// Does what the journal says, whatever of it is done already.
fn finish(root: &Path, journal: &Journal, after: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
    let number = journal.number;
    let folder = staging(root, number);
    for (path, change) in &journal.receipt.replaced {
        if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(Error::invalid(format!("`{path}` leaves the experiment folder"))
                .at(folder.join(JOURNAL).display())
                .hint("restore the experiment folder from version control, without `wal/`"));
        }
        let (current, kept) = (root.join(path), root.join(superseded(number, path)));
        if !kept.is_file() {
            let aside = folder.join("old").join(path);
            let bytes = fs_err::read(if aside.is_file() { &aside } else { &current })?;
            if sha256_hex(&bytes) != change.old {
                return Err(changed(&current));
            }
            durable::write(&kept, &bytes)?;
            after(Step::Kept)?;
        }
        let there = sha256_hex(&fs_err::read(&current)?);
        if there == change.new {
            continue;
        }
        let bytes = fs_err::read(folder.join("new").join(path))?;
        if there != change.old || sha256_hex(&bytes) != change.new {
            return Err(changed(&current));
        }
        durable::write(&current, &bytes)?;
        after(Step::Replaced)?;
    }
    hashes::update(root, journal.hashes.clone())?;
    after(Step::Hashes)?;
    receipts::write(root, &receipt::name(number), &journal.receipt)?;
    after(Step::Receipt)?;
    durable::remove(&folder.join(JOURNAL))?;
    Ok(fs_err::remove_dir_all(&folder)?)
}

/// What there is to say of a version that stands.
fn done(experiment: &Experiment, receipt: Receipt, resumed: bool, harvest: Vec<Family>) -> Result<Done> {
    let root = &experiment.root;
    let mut before = Instead::new();
    for path in receipt.replaced.keys() {
        let bytes = fs_err::read(root.join(superseded(receipt.number, path)))?;
        before.insert(format!("data/{}/{path}", experiment.slug), bytes);
    }
    let moved = moved::between(&experiment.workspace, &before, &Instead::new())?;
    let earlier = root.join("superseded").join(receipt.number.to_string());
    let outcome = |folder: &Path| -> Result<Option<String>> {
        let receipt = receipts::read::<DecisionReceipt>(folder, "decision")?;
        Ok(receipt.map(|receipt| receipt.decision.outcome.as_str().to_string()))
    };
    let now = outcome(root)?;
    let was = outcome(&earlier)?.or_else(|| now.clone());
    let passed = |folder: &Path| -> Result<Option<bool>> {
        Ok(receipts::read::<HeadroomReceipt>(folder, "headroom")?.map(|receipt| receipt.passed))
    };
    Ok(Done {
        experiment: experiment.slug.clone(),
        resumed,
        moved,
        decision: was.zip(now).map(|(was, now)| [was, now]),
        headroom_gone: passed(&earlier)? == Some(true) && passed(root)? == Some(false),
        harvest,
        receipt,
    })
}
