//! One unit judged again: its rows and transcripts in, the differences and, where another verifier
//! judges today, the files of the next rows version out. Nothing is written here.

use super::replay::{Judgement, Unjudged, judge};
use super::words::{self, Reader};
use crate::environment::Environment;
use crate::episode::hashes::{self, FileHash};
use crate::episode::transcript::{self, Transcript};
use crate::episode::{CallRow, EpisodeRow, Row, UnitFiles, chain, table};
use crate::error::Result;
use crate::hash::sha256_hex;
use crate::regular;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How the episodes of one family fared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Rows.
    pub episodes: usize,
    /// Those that could be judged again.
    pub rescored: usize,
    /// Those of them that are judged as the row says.
    pub equal: usize,
    /// Those that are judged otherwise.
    pub differing: usize,
    /// Those that could not be judged again, by reason: `no_transcript`, `no_task`, `other_conversation`,
    /// `other_words`.
    pub without: BTreeMap<String, usize>,
    /// Solved episodes, as the rows say, of those judged again.
    pub solved_before: usize,
    /// Solved episodes, as the verifier of today says.
    pub solved_after: usize,
    /// Verifiers that the rows name.
    pub verifiers: BTreeSet<String>,
    /// The verifier of today; null where the environment does not know the family.
    pub verifier_today: Option<String>,
}

impl Tally {
    /// Whether every row was judged by the verifier of today.
    pub fn same_verifier(&self) -> bool {
        self.verifiers.iter().all(|on_row| Some(on_row) == self.verifier_today.as_ref())
    }

    /// Adds the counts of another unit.
    pub fn add(&mut self, of: &Tally) {
        self.episodes += of.episodes;
        self.rescored += of.rescored;
        self.equal += of.equal;
        self.differing += of.differing;
        self.solved_before += of.solved_before;
        self.solved_after += of.solved_after;
        for (reason, n) in &of.without {
            *self.without.entry(reason.clone()).or_default() += n;
        }
        self.verifiers.extend(of.verifiers.iter().cloned());
        self.verifier_today = self.verifier_today.take().or_else(|| of.verifier_today.clone());
    }
}

/// An episode that today's verifier judges otherwise, or could not judge.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The file, relative to the experiment folder.
    pub file: String,
    /// The row in it, from 1.
    pub row: usize,
    /// The family.
    #[serde(skip)]
    pub family: String,
    /// The task.
    pub task_id: String,
    /// The rollout.
    pub rollout: i64,
    /// Whether the row names the verifier of today.
    pub same_verifier: bool,
    /// What the row says.
    pub before: Judgement,
    /// What today's verifier says; null where it could not judge.
    pub after: Option<Judgement>,
    /// Why not, where it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The same as a value.
    #[serde(skip)]
    pub unjudged: Option<Unjudged>,
}

/// A file and what is to stand in its place.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Path relative to the experiment folder.
    pub path: String,
    /// SHA-256 of what is there.
    pub old: String,
    /// What comes instead.
    pub bytes: Vec<u8>,
    /// Its entry of `hashes.json`.
    pub entry: FileHash,
}

/// A unit that was judged again.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The arm, or `harvest`.
    pub arm: String,
    /// The event seed.
    pub seed: u64,
    /// Counts by family.
    pub families: BTreeMap<String, Tally>,
    /// What is wrong with its transcripts as a whole: line, where it is one, and what.
    pub odd: Vec<(Option<usize>, String)>,
    /// What differs, in the order of the rows.
    pub differences: Vec<Difference>,
    /// The episodes of the next version, where a row names another verifier than today's.
    pub rows: Vec<EpisodeRow>,
    /// Files of the next version.
    pub next: Vec<Replacement>,
}

/// Judges every episode of a unit again whose transcript is what was sampled. `verifiers` has today's verifier of
/// each family. A harvest has no next version: what was trained on it stays what it was.
pub fn rescore(
    environment: &dyn Environment,
    verifiers: &BTreeMap<String, String>,
    reader: Option<&Reader>,
    examples: usize,
    files: &UnitFiles,
    (arm, seed): (&str, u64),
) -> Result<Unit> {
    let path = files.episodes();
    let bytes = regular::data(&files.path(&path))?;
    let rows: Vec<EpisodeRow> = table::decode(&files.path(&path), &bytes)?;
    let kept = files.path(&files.transcripts());
    let transcripts = if kept.is_file() { transcript::read(&kept)? } else { Vec::new() };
    let mut odd = Vec::new();
    let known: BTreeSet<(&str, i64)> = rows.iter().map(|row| (row.task_id.as_str(), row.rollout)).collect();
    let mut of_row: HashMap<(&str, i64), &Transcript> = HashMap::new();
    for (at, transcript) in transcripts.iter().enumerate() {
        let key = (transcript.task_id.as_str(), transcript.rollout);
        let what = match (known.contains(&key), of_row.insert(key, transcript)) {
            (false, _) => "is of an episode that has no row",
            (true, Some(_)) => "is a second one of its episode",
            (true, None) => continue,
        };
        let (task, rollout) = key;
        odd.push((Some(at + 1), format!("task `{task}`, rollout {rollout}: the transcript {what}")));
    }
    // Where transcripts were kept at all, each episode that replied has one.
    let silent = |row: &&EpisodeRow| {
        kept.is_file() && row.turns > 0 && !of_row.contains_key(&(row.task_id.as_str(), row.rollout))
    };
    for row in rows.iter().filter(silent) {
        let EpisodeRow { task_id, rollout, .. } = row;
        odd.push((None, format!("task `{task_id}`, rollout {rollout}: the episode has no transcript")));
    }
    let spoke = rows.iter().any(|row| row.turns > 0);
    if spoke && !kept.is_file() && environment.publishes_transcripts() && !listed(files)? {
        let what =
            "the unit has no transcripts, and hashes.json lists none: nothing says what the model replied";
        odd.push((None, what.into()));
    }
    let called = called(files)?;
    let calls = called.as_ref().map_or(&[][..], |(_, calls)| calls);
    let mut of_episode: HashMap<(&str, i64), Vec<&CallRow>> = HashMap::new();
    for call in calls {
        of_episode.entry((&call.task_id, call.rollout)).or_default().push(call);
    }
    of_episode.values_mut().for_each(|calls| calls.sort_by_key(|call| call.turn));
    let judged: Vec<Result<Judgement, Unjudged>> = rows
        .par_iter()
        .map(|row| {
            let key = (row.task_id.as_str(), row.rollout);
            let transcript = of_row.get(&key).copied();
            let calls = of_episode.get(&key).map_or(&[][..], Vec::as_slice);
            match transcript.and_then(|transcript| words::differs(row, calls, transcript, reader)) {
                Some(what) => Err(Unjudged::OtherWords(what)),
                None => judge(environment, row, transcript, examples),
            }
        })
        .collect();

    let mut unit = Unit {
        arm: arm.to_string(),
        seed,
        families: BTreeMap::new(),
        odd,
        differences: Vec::new(),
        rows: Vec::new(),
        next: Vec::new(),
    };
    for (at, (row, judged)) in rows.iter().zip(&judged).enumerate() {
        let today = verifiers.get(&row.family);
        count(unit.families.entry(row.family.clone()).or_default(), row, judged, today);
        let counted_only = matches!(judged, Err(Unjudged::NoTranscript));
        if !counted_only && !judged.as_ref().is_ok_and(|judged| judged.agrees(row)) {
            unit.differences.push(Difference {
                file: path.clone(),
                row: at + 1,
                family: row.family.clone(),
                task_id: row.task_id.clone(),
                rollout: row.rollout,
                same_verifier: today == Some(&row.verifier_sha256),
                before: Judgement::on_row(row),
                after: judged.as_ref().ok().cloned(),
                why: judged.as_ref().err().map(ToString::to_string),
                unjudged: judged.as_ref().err().cloned(),
            });
        }
    }
    if arm != super::HARVEST && unit.families.values().any(|tally| !tally.same_verifier()) {
        let next = rows.iter().zip(&judged).map(|(row, judged)| match (judged, verifiers.get(&row.family)) {
            (Ok(judged), Some(verifier)) => judged.put(row, verifier),
            _ => row.clone(),
        });
        unit.rows = next.collect();
        unit.next.push(replacement(path, &bytes, &mut unit.rows)?);
        if let Some((bytes, calls)) = &called {
            unit.next.extend(reread(files, (bytes, calls.clone()), &rows, &judged)?);
        }
    }
    Ok(unit)
}

/// The unit's calls, with their file's bytes; `None` where there is no such file.
fn called(files: &UnitFiles) -> Result<Option<(Vec<u8>, Vec<CallRow>)>> {
    let full = files.path(&files.calls());
    if !full.is_file() {
        return Ok(None);
    }
    let bytes = regular::data(&full)?;
    let calls = table::decode(&full, &bytes)?;
    Ok(Some((bytes, calls)))
}

/// Whether `hashes.json` lists the unit's transcripts: they may be kept elsewhere.
fn listed(files: &UnitFiles) -> Result<bool> {
    Ok(hashes::read(files.root())?.contains_key(&files.transcripts()))
}

fn count(tally: &mut Tally, row: &EpisodeRow, judged: &Result<Judgement, Unjudged>, today: Option<&String>) {
    tally.episodes += 1;
    tally.verifiers.insert(row.verifier_sha256.clone());
    tally.verifier_today = today.cloned();
    match judged {
        Ok(judged) => {
            tally.rescored += 1;
            let equal = judged.agrees(row);
            tally.equal += usize::from(equal);
            tally.differing += usize::from(!equal);
            tally.solved_before += usize::from(row.solved == Some(true));
            tally.solved_after += usize::from(judged.solved == Some(true));
        }
        Err(why) => *tally.without.entry(why.word().to_string()).or_default() += 1,
    }
}

/// Rows sealed anew, as the file that follows another.
fn replacement<R: Row>(path: String, old: &[u8], rows: &mut [R]) -> Result<Replacement> {
    chain::seal(rows)?;
    let bytes = table::encode(rows)?;
    let entry = FileHash::of(&bytes, rows.len(), chain::last(rows));
    Ok(Replacement { path, old: sha256_hex(old), bytes, entry })
}

/// The calls file with what today's environment reads in each reply, where that differs.
fn reread(
    files: &UnitFiles,
    (bytes, mut calls): (&[u8], Vec<CallRow>),
    rows: &[EpisodeRow],
    judged: &[Result<Judgement, Unjudged>],
) -> Result<Option<Replacement>> {
    let turns: HashMap<(&str, i64), &[(bool, bool)]> = rows
        .iter()
        .zip(judged)
        .filter_map(|(row, judged)| {
            Some(((row.task_id.as_str(), row.rollout), judged.as_ref().ok()?.turns.as_slice()))
        })
        .collect();
    let mut changed = false;
    for call in &mut calls {
        let turns = turns.get(&(call.task_id.as_str(), call.rollout));
        let turn = turns.and_then(|turns| turns.get(usize::try_from(call.turn).ok()?));
        let Some((parse_ok, action_ok)) = turn.copied() else { continue };
        let reads = (Some(parse_ok), Some(action_ok));
        changed |= reads != (call.parse_ok, call.action_ok);
        (call.parse_ok, call.action_ok) = reads;
    }
    if changed { replacement(files.calls(), bytes, &mut calls).map(Some) } else { Ok(None) }
}
