//! The gates that a plan may set before any evaluation compute is spent, measured on the base arm's
//! calibration rows: room for the gain (`headroom`), and a mechanism to work on (`kill`). A gate
//! that stops the plan ends the experiment as design-negative; no flag gets around it.

use super::receipts::{HeadroomReceipt, KillReceipt};
use super::{Experiment, decide, earlier, headroom, shapes};
use crate::episode::{CallRow, hashes, table};
use crate::error::{Error, Result};
use crate::experiment::{Headroom, Kill, Purpose, Shape, receipts};
use crate::stats::SAME;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Applies the plan's gates in order and leaves their receipts.
pub(super) fn check(experiment: &Experiment, plan_sha256: &str) -> Result<()> {
    if let Some(gate) = experiment.plan.headroom() {
        room(experiment, gate, plan_sha256)?;
    }
    if let Some(gate) = experiment.plan.kill() {
        kill(experiment, gate, plan_sha256)?;
    }
    Ok(())
}

/// In every core the ceiling minus the baseline must exceed the required gain; the mean of all baselines must lie
/// below a ceiling of its own where the plan has one.
fn room(experiment: &Experiment, gate: &Headroom, plan_sha256: &str) -> Result<()> {
    let receipt = headroom::measure(experiment, gate, plan_sha256, &decide::on_disk(experiment))?;
    let told = receipts::read::<HeadroomReceipt>(&experiment.root, "headroom")?;
    if let Some(told) = &told {
        earlier::of_plan(&experiment.root, "headroom", &told.plan_sha256, plan_sha256)?;
    }
    let as_told = told.map(|told| {
        // A receipt from before cores were stated says less, and what it says must hold.
        let less = HeadroomReceipt {
            cores: BTreeMap::new(),
            baseline: None,
            files: BTreeMap::new(),
            ..receipt.clone()
        };
        told == if told.cores.is_empty() { less } else { receipt.clone() }
    });
    leave(&experiment.root, "headroom", &receipt, as_told)?;
    if receipt.passed {
        return Ok(());
    }
    let tight = receipt.cores.iter().filter(|(_, core)| !core.feasible);
    let mut why: Vec<String> =
        tight.map(|(name, core)| format!("`{name}` already scores {:.4}", core.baseline)).collect();
    let what = match (why.is_empty(), receipt.baseline, receipt.baseline_ceiling) {
        (true, Some(mean), Some(most)) => {
            why.push(format!("it is {mean:.4}"));
            format!("the mean of the cores does not lie below {most}")
        }
        _ => format!("no room for a gain of {} below the ceiling of {}", gate.minimum_delta, gate.ceiling),
    };
    Err(stopped(experiment, "headroom", format!("{what}: {}", why.join(", "))))
}

/// Stops the experiment where enough of the episodes that ended for a chosen reason have the shape that the
/// treatment could not help.
fn kill(experiment: &Experiment, gate: &Kill, plan_sha256: &str) -> Result<()> {
    let receipt = measured_kill(experiment, gate, plan_sha256)?;
    let told = receipts::read::<KillReceipt>(&experiment.root, "kill")?;
    if let Some(told) = &told {
        earlier::of_plan(&experiment.root, "kill", &told.plan_sha256, plan_sha256)?;
    }
    leave(&experiment.root, "kill", &receipt, told.map(|told| told == receipt))?;
    match receipt.share {
        Some(share) if !receipt.passed => {
            let what = format!(
                "{} of {} episodes that ended by {} are `{}`, a share of {share:.3} where {} stops the plan",
                receipt.of_shape,
                receipt.among,
                named(&receipt.reasons),
                gate.shape.as_str(),
                gate.at_least
            );
            Err(stopped(experiment, "kill", what))
        }
        _ => Ok(()),
    }
}

fn measured_kill(experiment: &Experiment, gate: &Kill, plan_sha256: &str) -> Result<KillReceipt> {
    let plan = &experiment.plan;
    let harness = &plan.harness.evaluate;
    let cap = harness.answer_tokens + harness.think_tokens.unwrap_or(0);
    let episodes =
        decide::base_rows(experiment, Purpose::Calibrate, plan_sha256, &decide::on_disk(experiment))?;
    let calls = calls(experiment)?;
    let mut of: BTreeMap<(i64, &str, i64), Vec<&CallRow>> = BTreeMap::new();
    for call in &calls {
        of.entry((call.seed, &call.task_id, call.rollout)).or_default().push(call);
    }
    let all = [Shape::OneRunaway, Shape::ManyUnderCap, Shape::OneUnderCap, Shape::Other];
    let mut shapes: BTreeMap<String, usize> = all.map(|shape| (shape.as_str().to_string(), 0)).into();
    let mut among = 0;
    for row in episodes.iter().filter(|row| gate.among.list().contains(&row.finish_reason)) {
        let key = (row.seed, row.task_id.as_str(), row.rollout);
        let mut calls = of.get(&key).cloned().unwrap_or_default();
        calls.sort_by_key(|call| call.turn);
        *shapes.entry(shapes::shape(&calls, cap).as_str().to_string()).or_default() += 1;
        among += 1;
    }
    let of_shape = shapes.get(gate.shape.as_str()).copied().unwrap_or(0);
    let share = (among > 0).then(|| of_shape as f64 / among as f64);
    let reasons = gate.among.list().to_vec();
    let why = share.is_none().then(|| {
        format!(
            "none of the {} calibration episodes ended by {}, so there is no share, and the gate does not stop the plan",
            episodes.len(),
            named(&reasons)
        )
    });
    Ok(KillReceipt {
        passed: share.is_none_or(|share| share < gate.at_least - SAME),
        plan_sha256: plan_sha256.to_string(),
        reasons,
        shape: gate.shape,
        at_least: gate.at_least,
        cap,
        episodes: episodes.len(),
        among,
        of_shape,
        share,
        why,
        shapes,
        files: files(experiment, &["episodes", "calls"])?,
    })
}

/// The base arm's calls on the calibration seeds.
fn calls(experiment: &Experiment) -> Result<Vec<CallRow>> {
    let mut rows = Vec::new();
    for path in paths(experiment, "calls") {
        hashes::verify_file(&experiment.root, &path)?;
        rows.extend(table::read_chain_checked::<CallRow>(&experiment.root.join(&path))?);
    }
    Ok(rows)
}

/// The base arm's files of a data set on the calibration seeds.
fn paths(experiment: &Experiment, data: &str) -> Vec<String> {
    let plan = &experiment.plan;
    let path = |seed| format!("{data}/{}/{seed}.parquet", plan.base().name);
    plan.seeds.calibrate.iter().map(path).collect()
}

/// What a gate has read, with hashes.
fn files(experiment: &Experiment, data: &[&str]) -> Result<BTreeMap<String, String>> {
    let paths: Vec<String> = data.iter().flat_map(|data| paths(experiment, data)).collect();
    super::lab::file_hashes(&experiment.root, &paths)
}

/// Writes a gate's receipt, unless it is there. `as_told`: whether the one that is there says what the rows give.
fn leave(root: &Path, stage: &str, receipt: &impl Serialize, as_told: Option<bool>) -> Result<()> {
    match as_told {
        Some(false) => Err(Error::refused("the receipt does not say what the calibration rows give")
            .at(receipts::path(root, stage).display())
            .hint("its rows have changed, or it was made elsewhere: restore both from version control")),
        Some(true) => Ok(()),
        None => receipts::write(root, stage, receipt),
    }
}

fn stopped(experiment: &Experiment, gate: &str, what: String) -> Error {
    Error::refused(what)
        .at(receipts::path(&experiment.root, gate).display())
        .hint("the plan cannot show what it asks as it stands: another one is a new experiment")
}

fn named(reasons: &[String]) -> String {
    reasons.iter().map(|reason| format!("`{reason}`")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
#[path = "gates_tests.rs"]
mod tests;
