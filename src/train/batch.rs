//! Examples, and the order in which a run sees them: a shuffled pass an epoch, cut into
//! optimiser steps, each packed into micro-batches of flat rows. The order depends on the
//! examples, the settings and the training seed alone, so a step's number says where a run stands.

use super::settings::Settings;
use crate::error::{Error, Result};
use crate::philox::Philox;

/// One training sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// Token ids, prompt and reply.
    pub tokens: Vec<u32>,
    /// One weight a token: how much predicting it from all tokens before it counts. The
    /// first is never used. 0 for a prompt, 1 for an answer.
    pub weights: Vec<f32>,
}

impl Example {
    /// Refuses an example that cannot be trained on, naming it by its `index`.
    fn check(&self, index: usize, vocab: usize) -> Result<()> {
        let problem = if self.tokens.len() != self.weights.len() {
            format!("has {} tokens but {} weights", self.tokens.len(), self.weights.len())
        } else if let Some(id) = self.tokens.iter().find(|id| **id as usize >= vocab) {
            format!("holds token {id}, beyond the vocabulary of {vocab}")
        } else if let Some(weight) = self.weights.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
            format!("has a weight of {weight}; weights are finite and not negative")
        } else if self.rows() == 0 {
            "has no token to learn: all weights after the first are 0".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("training example {index} {problem}")))
    }

    /// Rows that go through the network: all tokens before the last one with a weight.
    fn rows(&self) -> usize {
        self.weights.iter().rposition(|w| *w > 0.0).unwrap_or(0)
    }

    fn total_weight(&self) -> f64 {
        self.weights.iter().skip(1).map(|w| f64::from(*w)).sum()
    }
}

/// One optimiser step: which examples go together through the network.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepPlan {
    /// Indices of examples, one list a micro-batch.
    pub micro_batches: Vec<Vec<usize>>,
    /// Sum of all weights of the step, which its loss is divided by.
    pub total_weight: f64,
    /// Tokens of its examples.
    pub tokens: usize,
    /// Tokens with a weight.
    pub loss_tokens: usize,
}

/// All steps of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub steps: Vec<StepPlan>,
    /// Indices of the examples longer than `max_length`, in ascending order.
    pub skipped_too_long: Vec<usize>,
}

impl Plan {
    /// The order of `examples` under `settings` and `train_seed`. Within a step, examples are
    /// packed longest first into the first micro-batch with room: no row is padding.
    ///
    /// # Errors
    /// When an example is malformed for a vocabulary of `vocab` ids, or none can be used.
    pub fn new(examples: &[Example], vocab: usize, settings: &Settings, train_seed: u64) -> Result<Self> {
        for (index, example) in examples.iter().enumerate() {
            example.check(index, vocab)?;
        }
        let (mut order, skipped): (Vec<usize>, Vec<usize>) =
            (0..examples.len()).partition(|i| examples[*i].tokens.len() <= settings.max_length);
        if order.is_empty() {
            return Err(Error::invalid(format!(
                "none of {} training examples can be used: {} are longer than {} tokens",
                examples.len(),
                skipped.len(),
                settings.max_length
            ))
            .hint("raise that length (`max_tokens` in a plan's [training]) in a new experiment, or harvest shorter rows"));
        }
        let batch_tokens = settings.batch_tokens.unwrap_or(usize::MAX);
        let mut steps = Vec::new();
        for epoch in 0..settings.epochs {
            order.sort_unstable();
            Philox::named(&format!("train/{train_seed}/order/{epoch}")).shuffle(&mut order);
            let mut step: Vec<usize> = Vec::new();
            let mut tokens = 0;
            for &index in &order {
                let length = examples[index].tokens.len();
                if step.len() == settings.batch_examples
                    || (!step.is_empty() && tokens + length > batch_tokens)
                {
                    steps.push(StepPlan::pack(
                        std::mem::take(&mut step),
                        examples,
                        settings.micro_batch_tokens,
                    ));
                    tokens = 0;
                }
                step.push(index);
                tokens += length;
            }
            steps.push(StepPlan::pack(step, examples, settings.micro_batch_tokens));
        }
        Ok(Plan { steps, skipped_too_long: skipped })
    }
}

impl StepPlan {
    fn pack(mut indices: Vec<usize>, examples: &[Example], micro_batch_tokens: usize) -> Self {
        let of = |f: fn(&Example) -> usize| indices.iter().map(|i| f(&examples[*i])).sum();
        let tokens = of(|e| e.tokens.len());
        let loss_tokens = of(|e| e.weights.iter().skip(1).filter(|w| **w > 0.0).count());
        let total_weight = indices.iter().map(|i| examples[*i].total_weight()).sum();
        indices.sort_by_key(|i| (std::cmp::Reverse(examples[*i].tokens.len()), *i));
        let mut micro_batches: Vec<(usize, Vec<usize>)> = Vec::new();
        for index in indices {
            let length = examples[index].tokens.len();
            match micro_batches.iter_mut().find(|(used, _)| used + length <= micro_batch_tokens) {
                Some((used, members)) => {
                    *used += length;
                    members.push(index);
                }
                None => micro_batches.push((length, vec![index])),
            }
        }
        let micro_batches = micro_batches.into_iter().map(|(_, members)| members).collect();
        StepPlan { micro_batches, total_weight, tokens, loss_tokens }
    }
}

/// Sequences end to end as flat rows, with what their loss needs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Packed {
    /// Token id of each row.
    pub tokens: Vec<u32>,
    /// Position of each row in its sequence.
    pub positions: Vec<u32>,
    /// Rows of each sequence, in order.
    pub lengths: Vec<usize>,
    /// Rows whose next token has a weight, ascending.
    pub loss_rows: Vec<u32>,
    /// The next token of each of them.
    pub targets: Vec<u32>,
    /// Its weight, divided by the step's total.
    pub weights: Vec<f32>,
}

impl Packed {
    /// Packs `members`; a sequence ends before its last weighted token, which is only predicted.
    pub fn new(examples: &[Example], members: &[usize], total_weight: f64) -> Self {
        let mut packed = Packed {
            tokens: Vec::new(),
            positions: Vec::new(),
            lengths: Vec::new(),
            loss_rows: Vec::new(),
            targets: Vec::new(),
            weights: Vec::new(),
        };
        for example in members.iter().map(|i| &examples[*i]) {
            let first = packed.tokens.len();
            let rows = example.rows();
            packed.tokens.extend(&example.tokens[..rows]);
            packed.positions.extend(0..rows as u32);
            packed.lengths.push(rows);
            for t in (1..=rows).filter(|t| example.weights[*t] > 0.0) {
                packed.loss_rows.push((first + t - 1) as u32);
                packed.targets.push(example.tokens[t]);
                packed.weights.push((f64::from(example.weights[t]) / total_weight) as f32);
            }
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(length: usize) -> Example {
        let mut weights = vec![0.0; length];
        weights[length - 1] = 1.0;
        Example { tokens: (0..length as u32).collect(), weights }
    }

    fn settings() -> Settings {
        Settings {
            batch_examples: 4,
            micro_batch_tokens: 20,
            max_length: 20,
            epochs: 2,
            ..Settings::default()
        }
    }

    #[test]
    fn malformed_examples_are_named() {
        let good = example(3);
        for (bad, text) in [
            (Example { weights: vec![1.0], ..good.clone() }, "3 tokens but 1 weights"),
            (Example { tokens: vec![1, 2, 99], ..good.clone() }, "token 99"),
            (Example { weights: vec![0.0, f32::NAN, 1.0], ..good.clone() }, "NaN"),
            (Example { weights: vec![0.0, -1.0, 1.0], ..good.clone() }, "-1"),
            (Example { weights: vec![1.0, 0.0, 0.0], ..good.clone() }, "no token to learn"),
            (Example { tokens: vec![], weights: vec![] }, "no token to learn"),
        ] {
            let error = Plan::new(&[good.clone(), bad], 50, &settings(), 1).unwrap_err().to_string();
            assert!(error.contains("example 1") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn too_long_examples_are_skipped_and_named() {
        let examples = [example(21), example(20), example(30), example(5)];
        let plan = Plan::new(&examples, 50, &settings(), 1).unwrap();
        assert_eq!(plan.skipped_too_long, [0, 2]);
        assert!(
            Plan::new(&examples[..1], 50, &settings(), 1)
                .unwrap_err()
                .to_string()
                .contains("longer than 20 tokens")
        );
        assert!(Plan::new(&[], 50, &settings(), 1).is_err());
    }

    #[test]
    fn the_order_is_a_function_of_the_seed() {
        let examples: Vec<Example> = (0..30).map(|i| example(2 + i % 9)).collect();
        let plan = |seed| Plan::new(&examples, 50, &settings(), seed).unwrap();
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
        let half = plan(1).steps.len() / 2;
        assert_ne!(plan(1).steps[..half], plan(1).steps[half..], "epochs differ in order");
    }

    #[test]
    fn packing_keeps_positions_targets_and_weights() {
        let a = Example { tokens: vec![5, 6, 7, 8, 9], weights: vec![9.0, 0.0, 1.0, 0.5, 0.0] };
        let b = Example { tokens: vec![1, 2], weights: vec![0.0, 0.5] };
        let packed = Packed::new(&[a, b], &[0, 1], 2.0);
        assert_eq!(packed.tokens, [5, 6, 7, 1]);
        assert_eq!(packed.positions, [0, 1, 2, 0]);
        assert_eq!(packed.lengths, [3, 1]);
        assert_eq!(packed.loss_rows, [1, 2, 3]);
        assert_eq!(packed.targets, [7, 8, 2]);
        assert_eq!(packed.weights, [0.5, 0.25, 0.25]);
    }

    proptest! {
        #[test]
        fn every_usable_example_is_seen_once_an_epoch(
            lengths in prop::collection::vec(2usize..30, 1..60),
            batch_examples in 1usize..9,
            batch_tokens in prop::option::of(1usize..80),
            seed in any::<u64>(),
        ) {
            let examples: Vec<Example> = lengths.iter().map(|n| example(*n)).collect();
            let settings = Settings { batch_examples, batch_tokens, ..settings() };
            let Ok(plan) = Plan::new(&examples, 50, &settings, seed) else {
                prop_assert!(lengths.iter().all(|n| *n > 20));
                return Ok(());
            };
            let mut seen = vec![0; examples.len()];
            for step in &plan.steps {
                let members: Vec<usize> = step.micro_batches.concat();
                prop_assert!(members.len() <= batch_examples);
                prop_assert!(members.len() == 1 || step.tokens <= batch_tokens.unwrap_or(usize::MAX));
                prop_assert_eq!(step.loss_tokens, members.len());
                prop_assert_eq!(step.total_weight, members.len() as f64);
                for micro in &step.micro_batches {
                    prop_assert!(micro.iter().map(|i| lengths[*i]).sum::<usize>() <= settings.micro_batch_tokens);
                }
                members.iter().for_each(|i| seen[*i] += 1);
            }
            for (index, times) in seen.iter().enumerate() {
                prop_assert_eq!(*times, if plan.skipped_too_long.contains(&index) { 0 } else { settings.epochs });
            }
        }
    }
}
