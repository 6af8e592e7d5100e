//! The merge: adapter and base become one checkpoint, which is then shown to be installed. Its
//! logits equal the live adapter's, and at least one canary prompt is answered differently than
//! by the base.

use super::earlier::{self, foreign};
use super::lab::{self, Lab};
use super::receipts::MergeReceipt;
use super::{Context, Experiment, train};
use crate::engine::local::Engine;
use crate::engine::{Backend, Request, Sampling, Stream};
use crate::error::{Error, Result};
use crate::experiment::receipts;
use crate::model::{Lora, Model};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Canary prompts of each training family.
const CANARIES_A_FAMILY: u32 = 2;
/// Most tokens of a canary's answer.
const CANARY_TOKENS: usize = 16;
/// Largest difference of a logit between merged and live weights, for a checkpoint in f32.
const LOGIT_TOLERANCE: f64 = 1e-3;

/// Where the merged checkpoint lies.
pub fn folder(experiment: &Experiment) -> Result<PathBuf> {
    let seed = experiment.plan.seeds.train.first().ok_or_else(|| {
        Error::invalid("the plan names no training seed").hint("add `train = [1]` under `[seeds]`")
    })?;
    Ok(experiment.root.join("merged").join(seed.to_string()))
}

/// Merges and checks, or returns the receipt when that is done. A receipt that did not pass, of an adapter
/// that changes no canary, ends the experiment.
pub fn merge(experiment: &Experiment, lab: &mut Lab, context: &Context) -> Result<MergeReceipt> {
    let trained = earlier::train(experiment, context)?;
    if let Some(receipt) = receipts::read::<MergeReceipt>(&experiment.root, "merge")? {
        if receipt.adapter_sha256 == trained.adapter_sha256 && receipt.model_sha256 == trained.model_sha256 {
            return Ok(receipt);
        }
        return Err(foreign(&experiment.root, "merge"));
    }
    let base = lab.base(experiment, context)?;
    let lora = base.load_adapter(&train::adapter_folder(experiment, trained.train_seed))?;
    if lora.sha256.as_deref() != Some(trained.adapter_sha256.as_str()) {
        return Err(Error::refused("the adapter is not the one that the train receipt signed")
            .at(train::adapter_folder(experiment, trained.train_seed).display())
            .hint("restore it from version control"));
    }
    context.observer.begin("merge", None, "");
    let folder = folder(experiment)?;
    let written = write_merged(&base, &lora, &folder)?;
    context.check()?;
    let merged = Arc::new(Model::load(&crate::model::Source::parse(&folder.to_string_lossy())?)?);
    let prompts = canary_prompts(experiment, &base)?;
    let largest_logit_difference = logit_difference(&base, &lora, &merged, &prompts)?;
    context.check()?;
    let before = answers(&base, experiment, &prompts, None)?;
    let after = answers(&merged, experiment, &prompts, None)?;
    let canaries_changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    let receipt = MergeReceipt {
        passed: canaries_changed > 0,
        build: Some(earlier::BUILD.to_string()),
        model_sha256: trained.model_sha256,
        adapter_sha256: trained.adapter_sha256,
        merged_sha256: written.merged_sha256,
        folder: format!("merged/{}", trained.train_seed),
        matched: written.matched,
        deltas: written.expected,
        delta_norm: written.frobenius,
        kept_share: written.kept,
        largest_logit_difference,
        canaries_changed,
        canaries: prompts.len(),
    };
    context.observer.end(&format!(
        "{}/{} deltas, norm {:.2}, {} of {} canaries changed",
        receipt.matched, receipt.deltas, receipt.delta_norm, receipt.canaries_changed, receipt.canaries
    ));
    if written.dtype == "F32" && largest_logit_difference > LOGIT_TOLERANCE {
        return Err(Error::refused(format!(
            "merged and live adapter disagree by {largest_logit_difference:e} in a logit, and {LOGIT_TOLERANCE:e} is allowed"
        ))
        .at(folder.display())
        .hint("the checkpoint on disk is not what was trained: remove it and merge again"));
    }
    receipts::write(&experiment.root, "merge", &receipt)?;
    Ok(receipt)
}

/// Refuses a live adapter that changes no canary when it is switched on.
pub(super) fn probe_live(experiment: &Experiment, model: &Arc<Model>, lora: &Lora, arm: &str) -> Result<()> {
    let prompts = canary_prompts(experiment, model)?;
    if answers(model, experiment, &prompts, None)? == answers(model, experiment, &prompts, Some(lora))? {
        return Err(Error::refused(
            "the adapter changes nothing: every canary prompt is answered with the same tokens",
        )
        .at(format!("arm `{arm}`"))
        .hint("train longer or with a higher learning rate, in a new experiment"));
    }
    Ok(())
}

/// Merges into a folder beside the final one and moves it into place, so that a crash leaves
/// either nothing or a whole checkpoint under the final name.
fn write_merged(
    base: &Model,
    lora: &Lora,
    folder: &std::path::Path,
) -> Result<crate::model::merge::MergeReceipt> {
    let partial = folder.with_extension("partial");
    for stale in [partial.as_path(), folder] {
        if stale.exists() {
            fs_err::remove_dir_all(stale)?;
        }
    }
    let receipt = crate::model::merge::merge(base, lora, &partial)?;
    fs_err::rename(&partial, folder)?;
    if let Some(parent) = folder.parent() {
        crate::episode::durable::sync_folder(parent)?;
    }
    Ok(receipt)
}

/// Prompts of the training families, on the harvest's seed: no fresh seed is spent on a probe.
fn canary_prompts(experiment: &Experiment, model: &Model) -> Result<Vec<Vec<u32>>> {
    let plan = &experiment.plan;
    let seed = plan.seeds.harvest.first().copied().unwrap_or(0);
    // A task set gives a seed no more than the plan asks for.
    let most = if plan.seeds.harvest.is_empty() { u32::MAX } else { plan.harvest.per_family };
    let mut prompts = Vec::new();
    // Where nothing is trained here, an adapter from elsewhere is probed on what is evaluated.
    let none = plan.tasks.train.is_empty();
    for family in plan.families().filter(|family| none || plan.tasks.train.contains(family)) {
        for index in 0..CANARIES_A_FAMILY.min(most) {
            let task = experiment.environment.task(family, plan.tasks.levels[0], seed, index)?;
            let opening = experiment.environment.begin(&task)?.opening();
            prompts.push(model.prompt(&opening, plan.harness.evaluate.think_tokens.is_some())?);
        }
    }
    Ok(prompts)
}

/// Largest absolute difference of any logit at any position of the prompts.
fn logit_difference(base: &Model, lora: &Lora, merged: &Model, prompts: &[Vec<u32>]) -> Result<f64> {
    let mut largest = 0f32;
    for prompt in prompts {
        let live = base.logits(prompt, Some(lora))?;
        let written = merged.logits(prompt, None)?;
        largest = largest.max((live - written)?.abs()?.max_all()?.to_scalar::<f32>()?);
    }
    Ok(f64::from(largest))
}

/// Greedy answers to the prompts, in order.
fn answers(
    model: &Arc<Model>,
    experiment: &Experiment,
    prompts: &[Vec<u32>],
    lora: Option<&Lora>,
) -> Result<Vec<Vec<u32>>> {
    let snapshot = lora.map(Lora::snapshot).transpose()?;
    let harness =
        crate::experiment::Harness { slots: prompts.len(), ..experiment.plan.harness.evaluate.clone() };
    let (mut engine, adapter): (Engine, _) = lab::engine(experiment, model, &harness, snapshot)?;
    for (id, prompt) in prompts.iter().enumerate() {
        engine.submit(Request {
            id: id as u64,
            tokens: prompt.clone(),
            adapter,
            sampling: Sampling::greedy(CANARY_TOKENS),
            stream: Stream { seed: 0, task_id: "canary".into(), rollout: 0, turn: 0 },
        })?;
    }
    let mut done = BTreeMap::new();
    while engine.in_flight() > 0 {
        done.extend(engine.step()?.into_iter().map(|c| (c.id, c.tokens)));
    }
    Ok(done.into_values().collect())
}
