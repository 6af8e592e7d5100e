//! What a training run is told (a plan's `[training]` table says it in its own words), defaults and limits,
//! and the learning rate of each step.

use crate::error::{Error, Result};
use crate::model::{Config, LoraConfig, Target};
use serde::{Deserialize, Serialize};

/// How the learning rate falls after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays at its peak.
    Constant,
    /// In a straight line, to 0 one step after the last.
    Linear,
    /// Along half a cosine, to 0 one step after the last.
    Cosine,
}

/// The recipe of a training run. The seed is not part of it: a plan trains one recipe under
/// several seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Rank of the adapter.
    pub r: usize,
    /// The adapter's product is scaled by `alpha / r`.
    pub alpha: f64,
    /// Names of the linear layers to adapt, such as `q_proj`; empty adapts all of them.
    pub targets: Vec<String>,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decay of AdamW's first and second moments.
    pub betas: [f64; 2],
    /// Added to the root of AdamW's second moment.
    pub eps: f64,
    /// Decoupled weight decay: each step shrinks the weights by `learning_rate × weight_decay`.
    pub weight_decay: f64,
    /// Passes over the examples.
    pub epochs: usize,
    /// Most examples in one optimiser step.
    pub batch_examples: usize,
    /// Most tokens in one optimiser step, if that should end a step earlier.
    pub batch_tokens: Option<usize>,
    /// Most tokens that go through the network at once; bounds memory.
    pub micro_batch_tokens: usize,
    /// Longer examples are skipped and counted, never cut. At most `micro_batch_tokens`.
    pub max_length: usize,
    /// Share of all steps over which the learning rate rises in a straight line, in [0, 1).
    pub warmup: f64,
    /// How the learning rate falls afterwards.
    pub schedule: Schedule,
    /// Scale gradients down to this global norm when they exceed it.
    pub clip: Option<f64>,
    /// Steps between checkpoints; 0 writes one only when the run is stopped or done.
    pub checkpoint_every: usize,
    /// Compute each layer again in the backward pass instead of keeping its intermediate
    /// results; left out, the size of a micro-batch decides. The adapter is the same either way.
    pub recompute: Option<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            r: 16,
            alpha: 32.0,
            targets: Vec::new(),
            learning_rate: 2e-4,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            epochs: 1,
            batch_examples: 16,
            batch_tokens: None,
            micro_batch_tokens: 1024,
            max_length: 1024,
            warmup: 0.0,
            schedule: Schedule::Constant,
            clip: Some(1.0),
            checkpoint_every: 20,
            recompute: None,
        }
    }
}

impl Settings {
    /// Refuses values that no run could use, naming the field.
    pub fn check(&self) -> Result<()> {
        let positive = |name: &str, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(Error::invalid(format!("`{name}` is {value}, it must be a positive number"))),
        };
        let share = |name: &str, value: f64| match (0.0..1.0).contains(&value) {
            true => Ok(()),
            false => Err(Error::invalid(format!("`{name}` is {value}, it must be at least 0 and below 1"))),
        };
        for (name, value) in [
            ("r", self.r),
            ("epochs", self.epochs),
            ("batch_examples", self.batch_examples),
            ("batch_tokens", self.batch_tokens.unwrap_or(1)),
            ("micro_batch_tokens", self.micro_batch_tokens),
            ("max_length", self.max_length),
        ] {
            if value == 0 {
                return Err(Error::invalid(format!("`{name}` is 0, it must be at least 1")));
            }
        }
        positive("alpha", self.alpha)?;
        positive("learning_rate", self.learning_rate)?;
        positive("eps", self.eps)?;
        positive("clip", self.clip.unwrap_or(1.0))?;
        share("betas", self.betas[0])?;
        share("betas", self.betas[1])?;
        share("warmup", self.warmup)?;
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            return Err(Error::invalid(format!(
                "`weight_decay` is {}, it must not be negative",
                self.weight_decay
            )));
        }
        if self.max_length > self.micro_batch_tokens {
            return Err(Error::invalid(format!(
                "`max_length` is {}, more than the {} of `micro_batch_tokens`",
                self.max_length, self.micro_batch_tokens
            ))
            .hint("an example goes through the network in one piece: lower `max_length` or raise `micro_batch_tokens`"));
        }
        self.named_targets().map(|_| ())
    }

    fn named_targets(&self) -> Result<Vec<Target>> {
        self.targets.iter().map(|name| Target::from_name(name)).collect()
    }

    /// Shape of the adapter that is trained; without named targets, every matrix that the network's
    /// layers have. Errors when a target does not exist.
    pub fn lora(&self, model: &Config) -> Result<LoraConfig> {
        let targets = match self.targets.is_empty() {
            true => Target::of_network(model),
            false => self.named_targets()?,
        };
        Ok(LoraConfig { rank: self.r, alpha: self.alpha, targets })
    }

    /// Learning rate of step `step` (from 1) of `total`.
    pub fn learning_rate_at(&self, step: usize, total: usize) -> f64 {
        let done = step.saturating_sub(1);
        let warmup = (self.warmup * total as f64).ceil() as usize;
        if done < warmup {
            return self.learning_rate * step as f64 / warmup as f64;
        }
        let share_done = (done - warmup) as f64 / total.saturating_sub(warmup).max(1) as f64;
        self.learning_rate
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Linear => 1.0 - share_done,
                Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * share_done).cos()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_toml() {
        let settings = Settings::default();
        settings.check().unwrap();
        let text = toml::to_string(&settings).unwrap();
        assert_eq!(toml::from_str::<Settings>(&text).unwrap(), settings);
        assert_eq!(toml::from_str::<Settings>("").unwrap(), settings);
        assert_eq!(toml::from_str::<Settings>("alpha = 8\nschedule = \"cosine\"").unwrap().alpha, 8.0);
    }

    #[test]
    fn unknown_keys_and_impossible_values_are_refused() {
        assert!(toml::from_str::<Settings>("learning_rat = 1.0").is_err());
        for (text, field) in [
            ("r = 0", "`r`"),
            ("learning_rate = 0.0", "`learning_rate`"),
            ("learning_rate = nan", "`learning_rate`"),
            ("warmup = 1.0", "`warmup`"),
            ("betas = [0.9, 1.0]", "`betas`"),
            ("weight_decay = -0.1", "`weight_decay`"),
            ("clip = 0.0", "`clip`"),
            ("max_length = 4096", "`max_length`"),
            ("targets = [\"q_prj\"]", "`q_prj`"),
        ] {
            let error = toml::from_str::<Settings>(text).unwrap().check().unwrap_err().to_string();
            assert!(error.contains(field), "{text}: {error}");
        }
    }

    fn rates(schedule: Schedule, warmup: f64, total: usize) -> Vec<f64> {
        let settings = Settings { learning_rate: 1.0, schedule, warmup, ..Settings::default() };
        (1..=total).map(|step| settings.learning_rate_at(step, total)).collect()
    }

    #[test]
    fn schedules_rise_then_fall_as_described() {
        assert_eq!(rates(Schedule::Constant, 0.0, 3), [1.0, 1.0, 1.0]);
        assert_eq!(rates(Schedule::Linear, 0.0, 4), [1.0, 0.75, 0.5, 0.25]);
        assert_eq!(rates(Schedule::Linear, 0.5, 4), [0.5, 1.0, 1.0, 0.5]);
        let cosine = rates(Schedule::Cosine, 0.0, 4);
        assert_eq!(cosine[0], 1.0);
        assert!((cosine[2] - 0.5).abs() < 1e-12);
        assert!(cosine.windows(2).all(|w| w[1] < w[0]) && cosine[3] > 0.0);
        assert_eq!(rates(Schedule::Linear, 0.9, 1), [1.0]);
    }
}
