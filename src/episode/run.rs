//! Runs a unit: all its episodes at once through the engine, each finished one to disk at
//! once, the rest again after a crash. When every episode has a row, the unit becomes Parquet.

use super::compact::compact;
use super::live::{Live, Next, Shared};
use super::row::EpisodeRow;
use super::unit::{UnitFiles, UnitSpec};
use super::wal::{Contents, Record, Wal};
use super::{hashes, table};
use crate::engine::Backend;
use crate::environment::{Environment, Message, Task};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Episodes kept open for each slot of the engine: enough that a slot never waits for a prompt.
const OPEN_PER_SLOT: usize = 4;

/// How far a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Episodes with a row, those of earlier runs included.
    pub done: usize,
    /// Episodes of the unit.
    pub total: usize,
    /// Episodes taken over from an earlier, interrupted run.
    pub reused: usize,
    /// Context tokens of the episodes that this run finished, as far as they are counted.
    pub prompt_tokens: u64,
    /// Tokens that this run's finished episodes sampled, as far as they are counted.
    pub completion_tokens: u64,
}

/// The caller's hold on a running unit.
pub struct Control<'a> {
    /// Set to stop: finished episodes stay, running ones are dropped.
    pub stop: &'a AtomicBool,
    /// Called at the start and whenever episodes have finished.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitReport {
    /// Its counts.
    pub progress: Progress,
    /// Whether its Parquet files are written. `false`: episodes failed outside the model and are
    /// tried again by the next run.
    pub complete: bool,
    /// Episodes that failed outside the model, and what the first of them says.
    pub failures: Option<(usize, String)>,
    /// The engines that made its rows, by hash: more than one only where that was accepted.
    pub engines: BTreeSet<String>,
}

/// Runs what is missing of a unit and, once nothing is, writes its files under `root` (`data/<experiment>`).
/// A finished unit is only checked against its hashes and plan. Errors: [`Error::Interrupted`] after `stop`;
/// refused when plan, model, adapter or settings differ from those the unit was started with, or the engine
/// without `accept_engine`.
pub fn run_unit(
    spec: &UnitSpec,
    environment: &dyn Environment,
    backend: &mut dyn Backend,
    root: &Path,
    control: &mut Control,
) -> Result<UnitReport> {
    spec.check()?;
    let files = UnitFiles::new(root, &spec.arm, spec.seed)?;
    if let Some(report) = finished(spec, root)? {
        (control.progress)(report.progress);
        return Ok(report);
    }
    if backend.in_flight() > 0 {
        return Err(Error::invalid("the engine still has calls of another run")
            .at(spec.place())
            .hint("use a fresh engine"));
    }
    let shared = Shared {
        spec,
        environment,
        identity: backend.identity().clone(),
        token_ids: backend.gives_token_ids(),
    };
    let header = spec.header(environment, &shared.identity)?;
    let tasks = spec.tasks(environment)?;
    let (mut wal, contents) = Wal::open(&files.path(&files.write_ahead()), &header, spec.accept_engine)?;
    if contents.records.is_empty() && files.path(&files.episodes()).exists() {
        // Another process finished the unit between the first look and the lock.
        let report = checked(spec, &files)?;
        wal.remove()?;
        (control.progress)(report.progress);
        return Ok(report);
    }
    let progress = work(&shared, backend, &tasks, &mut wal, contents, control)?;

    // From disk, not from memory: an undisturbed run and a resumed one go the same way.
    let records = wal.reread()?.records;
    let engines = records.values().map(|r| r.episode.engine_sha256.clone()).collect();
    let failed: Vec<&Record> = records.values().filter(|r| r.failed()).collect();
    let failures = failed.first().map(|first| {
        (
            failed.len(),
            format!("{}: {}", first.episode.task_id, first.episode.error.as_deref().unwrap_or("no reason")),
        )
    });
    let complete = failures.is_none() || spec.accept_failures;
    if complete {
        compact(&files, records, wal, environment.publishes_transcripts(), &mut |_| Ok(()))?;
    }
    Ok(UnitReport { progress, complete, failures, engines })
}

/// The report of a unit that is finished, after checking its files, hash chain and plan; `None` when there is
/// something left to run. Needs no engine. Refused when the files belong to another plan or were changed.
pub fn finished(spec: &UnitSpec, root: &Path) -> Result<Option<UnitReport>> {
    let files = UnitFiles::new(root, &spec.arm, spec.seed)?;
    if files.complete() { checked(spec, &files).map(Some) } else { Ok(None) }
}

/// Checks the files of a unit that has its episodes.
fn checked(spec: &UnitSpec, files: &UnitFiles) -> Result<UnitReport> {
    let path = files.path(&files.episodes());
    hashes::verify_file(files.root(), &files.episodes())?;
    hashes::verify_file(files.root(), &files.calls())?;
    if hashes::read(files.root())?.contains_key(&files.transcripts()) {
        hashes::verify_file(files.root(), &files.transcripts())?;
    }
    let rows: Vec<EpisodeRow> = table::read_chain_checked(&path)?;
    let total = spec.items.iter().map(|i| i.count as usize).sum::<usize>() * spec.rollouts as usize;
    let other =
        rows.iter().find(|r| r.plan_sha256 != spec.plan_sha256 || r.adapter_sha256 != spec.adapter_sha256);
    if other.is_some() || rows.len() != total {
        let what = match other {
            Some(row) if row.plan_sha256 != spec.plan_sha256 => {
                format!("was run under plan {}, and the plan is now {}", row.plan_sha256, spec.plan_sha256)
            }
            Some(_) => "was run with another adapter".to_string(),
            None => format!("has {} episodes, and the plan asks for {total}", rows.len()),
        };
        return Err(Error::refused(what)
            .at(path.display())
            .hint("rows of different plans never mix: restore what changed, or start a new experiment"));
    }
    let failed: Vec<&EpisodeRow> = rows.iter().filter(|r| r.finish_reason == "infra_error").collect();
    Ok(UnitReport {
        progress: Progress { done: total, total, reused: total, ..Progress::default() },
        complete: true,
        failures: failed
            .first()
            .map(|r| (failed.len(), format!("{}: {}", r.task_id, r.error.as_deref().unwrap_or("no reason")))),
        engines: rows.iter().map(|r| r.engine_sha256.clone()).collect(),
    })
}

/// Runs every episode that has no row yet; returns when all have one.
fn work(
    shared: &Shared,
    backend: &mut dyn Backend,
    tasks: &[Task],
    wal: &mut Wal,
    contents: Contents,
    control: &mut Control,
) -> Result<Progress> {
    let spec = shared.spec;
    let mut examples: BTreeMap<(&str, u8), Vec<Message>> = BTreeMap::new();
    for item in &spec.items {
        let turns = match spec.examples {
            0 => Vec::new(),
            count => shared.environment.examples(&item.family, item.level, count)?,
        };
        examples.insert((&item.family, item.level), turns);
    }
    let done = |task: &Task, rollout: u32| {
        contents.records.get(&(task.id.clone(), i64::from(rollout))).is_some_and(|r| !r.failed())
    };
    let total = tasks.len() * spec.rollouts as usize;
    let mut missing = tasks
        .iter()
        .flat_map(|task| (0..spec.rollouts).map(move |rollout| (task, rollout)))
        .filter(|(task, rollout)| !done(task, *rollout))
        .collect::<Vec<_>>()
        .into_iter()
        .enumerate()
        .map(|(id, (task, rollout))| (task, rollout, id as u64))
        .peekable();
    let reused = total - missing.len();
    let mut progress = Progress { done: reused, total, reused, ..Progress::default() };
    (control.progress)(progress);

    let most_open = OPEN_PER_SLOT * backend.width().max(1);
    let mut open: HashMap<u64, Live> = HashMap::new();
    loop {
        if control.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let mut over: Vec<Live> = Vec::new();
        while open.len() < most_open {
            let Some((task, rollout, id)) = missing.next() else { break };
            let shots = examples.get(&(task.family.as_str(), task.level)).map_or(&[][..], Vec::as_slice);
            let (live, next) = Live::begin(shared, backend, task, rollout, shots, id);
            proceed(backend, id, live, next, &mut open, &mut over);
        }
        if !open.is_empty() {
            let completions = backend.step().map_err(|e| e.at(spec.place()))?;
            let turned_down = backend.turned_down();
            if completions.is_empty() && turned_down.is_empty() && backend.in_flight() == 0 {
                return Err(Error::invalid("the engine lost calls that it had taken")
                    .at(spec.place())
                    .hint("run again"));
            }
            let nobodys = |id: u64| {
                Error::invalid(format!("the engine answered call {id}, which nobody waits for"))
                    .at(spec.place())
            };
            for (id, error) in turned_down {
                let mut live = open.remove(&id).ok_or_else(|| nobodys(id))?;
                live.refused(&error);
                over.push(live);
            }
            for completion in completions {
                let id = completion.id;
                let mut live = open.remove(&id).ok_or_else(|| nobodys(id))?;
                let next = live.take(shared, backend, completion);
                proceed(backend, id, live, next, &mut open, &mut over);
            }
        }
        if !over.is_empty() {
            let records = over.into_iter().map(|live| live.record(shared)).collect::<Result<Vec<_>>>()?;
            for record in &records {
                progress.done += 1;
                progress.prompt_tokens += record.episode.prompt_tokens.map_or(0, |n| n as u64);
                progress.completion_tokens += record.episode.completion_tokens.map_or(0, |n| n as u64);
            }
            wal.append(records)?;
            (control.progress)(progress);
        }
        if open.is_empty() && missing.peek().is_none() {
            return Ok(progress);
        }
    }
}

/// Submits an episode's next call and keeps it open, or puts it among those that are over.
fn proceed<'a>(
    backend: &mut dyn Backend,
    id: u64,
    mut live: Live<'a>,
    next: Next,
    open: &mut HashMap<u64, Live<'a>>,
    over: &mut Vec<Live<'a>>,
) {
    match next {
        Next::Over => over.push(live),
        Next::Call(request) => match backend.submit(request) {
            Ok(()) => {
                open.insert(id, live);
            }
            Err(error) => {
                live.refused(&error);
                over.push(live);
            }
        },
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
