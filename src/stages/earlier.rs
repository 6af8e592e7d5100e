//! The receipts of the stages before: a later stage refuses one that is missing, did not pass, or
//! is foreign, which is to say of another plan, of other data, or left by another build.

use super::receipts::{HarvestReceipt, MergeReceipt, TrainReceipt};
use super::{Context, Experiment};
use crate::error::{Error, Result};
use crate::experiment::{Stage, lock, receipts};
use crate::hash;
use std::collections::BTreeMap;
use std::path::Path;

/// This build of the engine and of training, as receipts name it.
pub(super) const BUILD: &str = env!("REDERIVE_REVISION");

/// The harvest's receipt: of this plan, with enough kept, and its files as it signed them.
pub(super) fn harvest(experiment: &Experiment, context: &Context) -> Result<HarvestReceipt> {
    let root = &experiment.root;
    let receipt: HarvestReceipt =
        receipts::require(root, "harvest", &format!("rederive harvest {}", experiment.slug))?;
    of_plan(root, "harvest", &receipt.plan_sha256, &lock::check(root, &experiment.plan, Stage::Harvest)?)?;
    if !receipt.passed || receipt.starved.is_some() {
        let why = receipt.starved.as_deref().unwrap_or("it did not pass");
        return Err(Error::refused(format!("the harvest was starved: {why}"))
            .at(receipts::path(root, "harvest").display())
            .hint(
                "the experiment ends as inconclusive: starved; a new one may harvest more or easier tasks",
            ));
    }
    of_build(root, "harvest", receipt.build.as_deref(), context)?;
    of_files(root, "harvest", &receipt.files)?;
    Ok(receipt)
}

/// The training's receipt: of this plan and this harvest, and its files as it signed them.
pub(super) fn train(experiment: &Experiment, context: &Context) -> Result<TrainReceipt> {
    let root = &experiment.root;
    let receipt: TrainReceipt =
        receipts::require(root, "train", &format!("rederive train {}", experiment.slug))?;
    of_plan(root, "train", &receipt.plan_sha256, &lock::check(root, &experiment.plan, Stage::Train)?)?;
    if !receipt.passed {
        return Err(Error::refused("the training did not pass")
            .at(receipts::path(root, "train").display())
            .hint("nothing is merged or evaluated after it: start a new experiment"));
    }
    if receipt.harvest_sha256 != receipts::sha256(root, "harvest")? {
        return Err(Error::refused("the receipt is of a training on another harvest")
            .at(receipts::path(root, "train").display())
            .hint("restore this experiment's receipts of harvest and training from version control"));
    }
    of_build(root, "train", receipt.build.as_deref(), context)?;
    of_files(root, "train", &receipt.files)?;
    Ok(receipt)
}

/// The merge's receipt: of this adapter and base, and installed.
pub(super) fn merge(
    experiment: &Experiment,
    context: &Context,
    trained: &TrainReceipt,
) -> Result<MergeReceipt> {
    let root = &experiment.root;
    let receipt: MergeReceipt =
        receipts::require(root, "merge", &format!("rederive merge {}", experiment.slug))?;
    if receipt.adapter_sha256 != trained.adapter_sha256 || receipt.model_sha256 != trained.model_sha256 {
        return Err(foreign(root, "merge"));
    }
    if !receipt.passed {
        return Err(Error::refused("the trained adapter is not installed")
            .at(receipts::path(root, "merge").display())
            .hint("an adapter must change at least one canary; see the receipt"));
    }
    of_build(root, "merge", receipt.build.as_deref(), context)?;
    Ok(receipt)
}

/// A receipt that belongs to another locked section, or to another adapter.
pub(super) fn foreign(root: &Path, stage: &str) -> Error {
    Error::refused(format!("the receipt of the `{stage}` stage belongs to another plan"))
        .at(receipts::path(root, stage).display())
        .hint("restore this experiment's own from version control; a stage runs once under a locked section")
}

/// Refuses a receipt that was left under another locked section.
pub(super) fn of_plan(root: &Path, stage: &str, left_under: &str, plan_sha256: &str) -> Result<()> {
    if left_under == plan_sha256 { Ok(()) } else { Err(foreign(root, stage)) }
}

/// Refuses a receipt over files that have changed since, or are gone.
pub(super) fn of_files(root: &Path, stage: &str, files: &BTreeMap<String, String>) -> Result<()> {
    for (path, signed) in files {
        let file = root.join(path);
        let now = if file.is_file() { Some(hash::sha256_file(&file)?) } else { None };
        if now.as_deref() != Some(signed) {
            let what = if now.is_some() { "is not the one that it signed" } else { "is not there" };
            return Err(Error::refused(format!(
                "the receipt of the `{stage}` stage names `{path}`, which {what}"
            ))
            .at(receipts::path(root, stage).display())
            .hint("restore both from version control: a stage goes on only from what was signed"));
        }
    }
    Ok(())
}

/// Refuses a receipt of another build, unless the run accepts it as it accepts rows of one.
fn of_build(root: &Path, stage: &str, build: Option<&str>, context: &Context) -> Result<()> {
    match build {
        Some(build) if build != BUILD && !context.accept_engine => Err(Error::refused(format!(
            "the receipt of the `{stage}` stage was left by another build: {build} then, {BUILD} now"
        ))
        .at(receipts::path(root, stage).display())
        .hint("go on with the build that made it, or take it over with `--accept-engine`")),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;
