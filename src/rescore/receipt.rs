//! What a rescore leaves on record, and the receipts that are made again from the new rows under
//! the same plan: the gates' and the decision.

use super::Rescored;
use super::unit::{Replacement, Tally, Unit};
use crate::episode::EpisodeRow;
use crate::episode::hashes::FileHash;
use crate::error::{Error, Result};
use crate::experiment::receipts;
use crate::hash::sha256_hex;
use crate::stages::{DecisionReceipt, Experiment, HeadroomReceipt, KillReceipt, decide, headroom};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A file before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// SHA-256 of the file that went to `superseded/<n>/`.
    pub old: String,
    /// SHA-256 of the file that took its place.
    pub new: String,
}

/// Verifiers of a family before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verifiers {
    /// Those that the earlier rows name, beside the one of today.
    pub old: BTreeSet<String>,
    /// The one that the later rows name.
    pub new: String,
}

/// Evaluated episodes of a family before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows.
    pub episodes: usize,
    /// Rows whose judgement changed.
    pub changed: usize,
    /// Solved in the earlier rows.
    pub solved_before: usize,
    /// Solved in the later rows.
    pub solved_after: usize,
}

/// `receipts/rescore-<n>.json`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Its number, from 1.
    pub number: u64,
    /// When, UTC.
    pub at: String,
    /// Why: verifiers by family.
    pub verifiers: BTreeMap<String, Verifiers>,
    /// What came of it, by family.
    pub families: BTreeMap<String, Counts>,
    /// Files that were replaced, by path relative to the experiment folder.
    pub replaced: BTreeMap<String, Change>,
}

/// The name of a rescore's receipt.
pub fn name(number: u64) -> String {
    format!("rescore-{number}")
}

impl Receipt {
    /// The record of a rescore that replaces these files.
    pub fn of(number: u64, rescored: &Rescored, files: &[Replacement]) -> Receipt {
        let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
        for unit in rescored.units.iter().filter(|unit| !unit.next.is_empty()) {
            for (family, tally) in &unit.families {
                tallies.entry(family).or_default().add(tally);
            }
        }
        let mut verifiers = BTreeMap::new();
        let mut families = BTreeMap::new();
        for (family, tally) in tallies.into_iter().filter(|(_, tally)| !tally.same_verifier()) {
            let counts = Counts {
                episodes: tally.episodes,
                changed: tally.differing,
                solved_before: tally.solved_before,
                solved_after: tally.solved_after,
            };
            families.insert(family.to_string(), counts);
            let new = tally.verifier_today.unwrap_or_default();
            let mut old = tally.verifiers;
            old.remove(&new);
            verifiers.insert(family.to_string(), Verifiers { old, new });
        }
        let replaced = files.iter().map(|file| {
            let change = Change { old: file.old.clone(), new: file.entry.sha256.clone() };
            (file.path.clone(), change)
        });
        Receipt { number, at: crate::clock::now(), verifiers, families, replaced: replaced.collect() }
    }
}

/// Every file of the next rows version: episodes, calls, and the receipts that follow from them.
pub fn next_files(experiment: &Experiment, rescored: &Rescored) -> Result<Vec<Replacement>> {
    let mut files: Vec<Replacement> = rescored.replacements().cloned().collect();
    if files.is_empty() {
        return Ok(files);
    }
    let next: BTreeMap<String, &Unit> = rescored
        .units
        .iter()
        .filter(|unit| !unit.next.is_empty())
        .map(|unit| (format!("episodes/{}/{}.parquet", unit.arm, unit.seed), unit))
        .collect();
    let on_disk = decide::on_disk(experiment);
    let units = |path: &str| -> Result<(String, Vec<EpisodeRow>)> {
        match next.get(path) {
            Some(unit) => {
                let file = unit.next.iter().find(|file| file.path == path);
                Ok((file.map(|file| file.entry.sha256.clone()).unwrap_or_default(), unit.rows.clone()))
            }
            None => on_disk(path),
        }
    };
    let root = &experiment.root;
    let told = receipts::read::<HeadroomReceipt>(root, "headroom")?;
    if let Some((old, gate)) = told.zip(experiment.plan.headroom()) {
        let receipt = headroom::measure(experiment, gate, &old.plan_sha256, &units)?;
        files.extend(replaced(experiment, "headroom", &receipt)?);
    }
    if let Some(mut receipt) = receipts::read::<KillReceipt>(root, "kill")? {
        // How episodes ended and how long they were is no judgement: only the files are others.
        for file in &files {
            receipt.files.entry(file.path.clone()).and_modify(|sha256| *sha256 = file.entry.sha256.clone());
        }
        files.extend(replaced(experiment, "kill", &receipt)?);
    }
    if let Some(old) = receipts::read::<DecisionReceipt>(root, "decision")? {
        let receipt = decide::decision(experiment, &old.plan_sha256, &units)?;
        files.extend(replaced(experiment, "decision", &receipt)?);
    }
    Ok(files)
}

/// A receipt that takes the place of another; `None` where it says the same.
fn replaced(experiment: &Experiment, name: &str, receipt: &impl Serialize) -> Result<Option<Replacement>> {
    let old = crate::regular::data(&receipts::path(&experiment.root, name))?;
    let bytes = receipts::encode(receipt)?;
    let (before, after): (serde_json::Value, serde_json::Value) = (json(&old)?, json(&bytes)?);
    if before == after {
        return Ok(None);
    }
    let entry = FileHash::of(&bytes, 0, None);
    Ok(Some(Replacement { path: format!("receipts/{name}.json"), old: sha256_hex(&old), bytes, entry }))
}

fn json(bytes: &[u8]) -> Result<serde_json::Value> {
    serde_json::from_slice(bytes).map_err(|e| Error::invalid(format!("is not JSON: {e}")))
}
