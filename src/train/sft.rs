//! Supervised fine-tuning of a LoRA adapter: the loop over optimiser steps, with checkpoints.
//! A step's loss is `Σ weight · −ln p(token) / Σ weight` over its whole batch, however the
//! batch is cut into micro-batches.

use super::backward::{Gradients, forward_backward, should_recompute};
use super::batch::{Example, Packed, Plan};
use super::checkpoint::Checkpoint;
use super::optimizer::{AdamW, clip, global_norm};
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::hash::{sha256_hex, sha256_json};
use crate::model::{Lora, Model};
use candle_core::Var;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// What one optimiser step did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Number of the step, from 1.
    pub step: usize,
    /// Weighted mean loss in nats a token, before the step.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate used.
    pub learning_rate: f64,
    /// Tokens with a weight in this step.
    pub loss_tokens: usize,
    /// All tokens in this step.
    pub tokens: usize,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
}

/// A finished run.
#[derive(Debug, Clone)]
pub struct Trained {
    /// The adapter; save it with `model::adapter::save`.
    pub lora: Lora,
    /// The curve, one entry an optimiser step.
    pub steps: Vec<Step>,
    /// Indices of the examples that were longer than `max_length` and took no part.
    pub skipped_too_long: Vec<usize>,
}

/// Trains a fresh adapter (A random by `train_seed`, B zero) for `model` on `examples`.
///
/// With a `checkpoint_dir`, progress is kept there every `checkpoint_every` steps and when the
/// run stops; the same call continues from it and ends with the same adapter, bit for bit. The
/// folder may be removed once the adapter is saved. `on_step` is called after each step with the
/// step and the number of steps of the whole run (not for steps restored from a checkpoint).
///
/// # Errors
/// [`Error::Interrupted`] when `on_step` breaks; a setting or example that cannot be used; a
/// checkpoint of another run; a loss that is no longer a finite number.
pub fn sft(
    model: &Model,
    examples: &[Example],
    settings: &Settings,
    train_seed: u64,
    checkpoint_dir: Option<&Path>,
    on_step: &mut dyn FnMut(&Step, usize) -> ControlFlow<()>,
) -> Result<Trained> {
    settings.check()?;
    let plan = Plan::new(examples, model.config.vocab, settings, train_seed)?;
    for (index, example) in examples.iter().enumerate() {
        if example.tokens.len() <= settings.max_length {
            model.config.check_length(example.tokens.len()).map_err(|e| e.at(format!("example {index}")))?;
        }
    }
    let start = Lora::init(&model.config, &settings.lora(&model.config)?, train_seed)?;
    let mut run = Run::new(model, examples, settings, plan, &start)?;
    let checkpoint = match checkpoint_dir {
        Some(folder) => Some(Checkpoint::new(folder, run_sha256(model, examples, settings, train_seed)?)),
        None => None,
    };
    if let Some(checkpoint) = &checkpoint {
        run.steps = checkpoint.restore(&run.names, &run.parameters, &mut run.optimizer)?;
    }
    let total = run.plan.steps.len();
    while run.steps.len() < total {
        let step = run.step()?;
        let stopped = on_step(&step, total).is_break();
        let done = step.step;
        run.steps.push(step);
        let due = settings.checkpoint_every > 0 && done % settings.checkpoint_every == 0;
        if let Some(checkpoint) = checkpoint.as_ref().filter(|_| due || stopped || done == total) {
            checkpoint.save(&run.names, &run.parameters, &run.optimizer, &run.steps)?;
        }
        if stopped {
            return Err(Error::Interrupted);
        }
    }
    Ok(Trained { lora: run.lora.snapshot()?, steps: run.steps, skipped_too_long: run.plan.skipped_too_long })
}

/// Hash of everything that decides the outcome of a run.
fn run_sha256(model: &Model, examples: &[Example], settings: &Settings, train_seed: u64) -> Result<String> {
    let mut bytes = Vec::new();
    for example in examples {
        bytes.extend((example.tokens.len() as u64).to_le_bytes());
        bytes.extend(example.tokens.iter().flat_map(|t| t.to_le_bytes()));
        bytes.extend(example.weights.iter().flat_map(|w| w.to_le_bytes()));
    }
    sha256_json(&serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "revision": env!("REDERIVE_REVISION"),
        "instruction_set": crate::model::kernel::instruction_set(),
        "config": format!("{:?}", model.config),
        "model_sha256": model.origin.sha256,
        "examples_sha256": sha256_hex(&bytes),
        "settings": settings,
        "train_seed": train_seed,
    }))
}

/// A run between two steps.
pub(super) struct Run<'a> {
    model: &'a Model,
    examples: &'a [Example],
    settings: &'a Settings,
    plan: Plan,
    lora: Lora,
    pub names: Vec<String>,
    pub parameters: Vec<Var>,
    optimizer: AdamW,
    pub steps: Vec<Step>,
}

impl<'a> Run<'a> {
    pub fn new(
        model: &'a Model,
        examples: &'a [Example],
        settings: &'a Settings,
        plan: Plan,
        start: &Lora,
    ) -> Result<Self> {
        let (lora, variables) = start.trainable()?;
        let (names, parameters): (Vec<String>, Vec<Var>) = variables.into_iter().unzip();
        let optimizer = AdamW::new(&parameters, settings)?;
        Ok(Run { model, examples, settings, plan, lora, names, parameters, optimizer, steps: Vec::new() })
    }

    /// Loss and gradients of step `index` (from 0) at the current parameters.
    pub fn gradients(&self, index: usize) -> Result<(f64, Vec<candle_core::Tensor>)> {
        let plan = &self.plan.steps[index];
        let mut gradients = Gradients::new(&self.parameters);
        let mut loss = 0.0;
        for members in &plan.micro_batches {
            let packed = Packed::new(self.examples, members, plan.total_weight);
            let network = self.model.network()?;
            let recompute = self
                .settings
                .recompute
                .unwrap_or_else(|| should_recompute(&self.model.config, packed.tokens.len()));
            loss += forward_backward(network, &self.lora, &packed, recompute, &mut gradients)?;
        }
        Ok((loss, gradients.finish(&self.names)?))
    }

    /// Does the next optimiser step.
    pub fn step(&mut self) -> Result<Step> {
        let started = Instant::now();
        let index = self.steps.len();
        let (loss, mut gradients) = self.gradients(index)?;
        let grad_norm = global_norm(&gradients)?;
        if !(loss.is_finite() && grad_norm.is_finite()) {
            return Err(Error::refused(format!(
                "training diverged: at step {} the loss is {loss}, the gradient norm {grad_norm}",
                index + 1
            ))
            .hint("lower `learning_rate`, or set a clip (`clip_norm` in a plan)"));
        }
        if let Some(limit) = self.settings.clip {
            clip(&mut gradients, grad_norm, limit)?;
        }
        let learning_rate = self.settings.learning_rate_at(index + 1, self.plan.steps.len());
        self.optimizer.step(&self.parameters, &gradients, learning_rate)?;
        let plan = &self.plan.steps[index];
        Ok(Step {
            step: index + 1,
            loss,
            grad_norm,
            learning_rate,
            loss_tokens: plan.loss_tokens,
            tokens: plan.tokens,
            wall_ms: started.elapsed().as_millis() as u64,
        })
    }
}
