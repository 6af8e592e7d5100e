//! Training: one LoRA adapter on the harvest, under the plan's training seed. The entry point
//! itself refuses rows of held-out families.

use super::earlier::{self, foreign};
use super::harvest::{self, write_rows};
use super::lab::{self, Lab};
use super::receipts::{HarvestReceipt, TrainReceipt};
use super::{Context, Experiment, examples};
use crate::episode::{HarvestRow, TrainingRow, hashes, table};
use crate::error::{Error, Result};
use crate::experiment::{Stage, lock, plan, receipts};
use crate::model::adapter;
use crate::train::{Schedule, Settings, sft};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// The settings of `[training]` as the trainer takes them.
pub fn settings(training: &plan::Training, steps: usize) -> Settings {
    let max_length = training.max_tokens;
    Settings {
        r: training.rank,
        alpha: training.alpha,
        learning_rate: training.learning_rate,
        weight_decay: training.weight_decay,
        epochs: training.epochs,
        batch_examples: training.batch_rows,
        max_length,
        micro_batch_tokens: max_length.max(MICRO_BATCH_TOKENS),
        warmup: (training.warmup_steps as f64 / steps.max(1) as f64).min(0.5),
        schedule: Schedule::Linear,
        clip: training.clip_norm,
        checkpoint_every: training.checkpoint_steps,
        ..Settings::default()
    }
}

/// Tokens that go through the network at once: bounds memory.
const MICRO_BATCH_TOKENS: usize = 512;

/// Where the adapter of a training seed lies.
pub fn adapter_folder(experiment: &Experiment, train_seed: u64) -> PathBuf {
    experiment.root.join("adapters").join(train_seed.to_string())
}

/// Trains, or returns the receipt when that is done.
pub fn train(experiment: &Experiment, lab: &mut Lab, context: &Context) -> Result<TrainReceipt> {
    let plan = &experiment.plan;
    let harvest = earlier::harvest(experiment, context)?;
    let train_seed = *plan.seeds.train.first().ok_or_else(|| {
        Error::invalid("the plan names no training seed")
            .at(format!("{}: [seeds] train", experiment.root.join("experiment.toml").display()))
            .hint("add `train = [1]` under `[seeds]`")
    })?;
    let plan_sha256 = lock::check(&experiment.root, plan, Stage::Train)?;
    if let Some(receipt) = receipts::read::<TrainReceipt>(&experiment.root, "train")? {
        if receipt.plan_sha256 == plan_sha256 && receipt.model_sha256 == harvest.model_sha256 {
            return earlier::train(experiment, context);
        }
        return Err(foreign(&experiment.root, "train"));
    }
    check_harvest(experiment, &harvest)?;

    let model = lab.base(experiment, context)?;
    let (engine, _) = lab::engine(experiment, &model, &plan.harness.evaluate, None)?;
    let rows = examples::build(experiment, &engine)?;
    if rows.len() != harvest.kept {
        return Err(Error::refused(format!(
            "{} of the {} kept samples have a transcript",
            rows.len(),
            harvest.kept
        ))
        .at(experiment.root.join("transcripts").display())
        .hint("restore the transcripts from version control"));
    }
    drop(engine);
    if rows.iter().all(|row| row.tokens.len() > plan.training.max_tokens) {
        return Err(Error::invalid("no training row fits the length cap, so no step could be made")
            .at(format!("{}: [training] max_tokens", experiment.root.join("experiment.toml").display()))
            .hint("raise `max_tokens`; nothing was locked"));
    }
    let steps = rows.len().div_ceil(plan.training.batch_rows) * plan.training.epochs;
    let settings = settings(&plan.training, steps);
    settings.check().map_err(|e| {
        e.at(format!("{}: [training]", experiment.root.join("experiment.toml").display()))
            .hint("mend it in the plan; nothing was locked")
    })?;
    lock::lock(&experiment.root, plan, Stage::Train)?;
    let checkpoints = experiment.root.join("wal").join(format!("train-{train_seed}"));
    context.observer.begin("train", Some(steps as u64), "steps");
    let mut tokens = 0;
    let trained = sft(&model, &rows, &settings, train_seed, Some(&checkpoints), &mut |step, _total| {
        tokens += step.tokens;
        context.observer.advance(step.step as u64, &format!("loss {:.3}, {tokens} tokens", step.loss));
        if context.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    context.observer.end(&format!(
        "{} steps on {} rows",
        trained.steps.len(),
        rows.len() - trained.skipped_too_long.len()
    ));

    let (Some(first), Some(last)) = (trained.steps.first(), trained.steps.last()) else {
        return Err(Error::refused("training made no step").at(checkpoints.display()).hint("train again"));
    };
    if trained.lora.is_zero()? {
        return Err(Error::refused("training ended with an adapter that is all zero")
            .at(checkpoints.display())
            .hint("it changes nothing; look at the learning rate and the row weights"));
    }
    let folder = adapter_folder(experiment, train_seed);
    let adapter_sha256 = adapter::save(&folder, &trained.lora, &model, plan.source()?)?;
    let mut curve: Vec<TrainingRow> = trained
        .steps
        .iter()
        .map(|step| TrainingRow {
            experiment: experiment.slug.clone(),
            train_seed: train_seed as i64,
            step: step.step as i64,
            loss: step.loss,
            grad_norm: step.grad_norm,
            learning_rate: step.learning_rate,
            loss_tokens: step.loss_tokens as i64,
            tokens: step.tokens as i64,
            wall_ms: step.wall_ms as i64,
            row_sha256: String::new(),
        })
        .collect();
    let path = format!("training/{train_seed}.parquet");
    write_rows(&experiment.root, &path, &mut curve)?;
    let receipt = TrainReceipt {
        passed: true,
        plan_sha256,
        harvest_sha256: receipts::sha256(&experiment.root, "harvest")?,
        build: Some(earlier::BUILD.to_string()),
        model_sha256: model.origin.sha256.clone(),
        train_seed,
        rows: rows.len() - trained.skipped_too_long.len(),
        skipped_too_long: trained.skipped_too_long.len(),
        steps: trained.steps.len(),
        tokens: trained.steps.iter().map(|s| s.tokens).sum(),
        first_loss: first.loss,
        last_loss: last.loss,
        adapter_sha256,
        files: lab::file_hashes(&experiment.root, &[path])?,
    };
    receipts::write(&experiment.root, "train", &receipt)?;
    if checkpoints.exists() {
        fs_err::remove_dir_all(&checkpoints)?;
    }
    Ok(receipt)
}

/// The harvest's transcripts are as listed, and its rows hold no held-out family.
fn check_harvest(experiment: &Experiment, receipt: &HarvestReceipt) -> Result<()> {
    for seed in &experiment.plan.seeds.harvest {
        // What is trained on are the conversations, whose hash the rows do not carry.
        hashes::verify_file(&experiment.root, &format!("transcripts/{}/{seed}.jsonl.zst", harvest::ARM))?;
    }
    for path in receipt.files.keys().filter(|path| path.starts_with("harvest/")) {
        let file = experiment.root.join(path);
        for (i, row) in table::read_chain_checked::<HarvestRow>(&file)?.iter().enumerate() {
            if row.kept && experiment.plan.split(&row.family) != "train" {
                return Err(Error::refused(format!(
                    "family `{}` is held out and must not be trained on",
                    row.family
                ))
                .at(format!("{}: row {}", file.display(), i + 1))
                .hint("harvest training families only"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trainer_takes_what_a_plan_leaves_out_and_no_clip_of_nothing() {
        let usual = plan::Training::default();
        settings(&usual, 10).check().unwrap();
        settings(&plan::Training { clip_norm: None, ..usual.clone() }, 10).check().unwrap();
        for clip in [0.0, -1.0, f64::INFINITY] {
            let training = plan::Training { clip_norm: Some(clip), ..usual.clone() };
            assert!(settings(&training, 10).check().unwrap_err().to_string().contains("`clip`"), "{clip}");
        }
    }
}
