//! Teaches a tiny model from scratch, for a demonstration that needs no download: an adapter of
//! full rank on every linear layer, merged into the weights. Embedding, norms and head stay as
//! the seed made them.

use super::batch::Example;
use super::settings::{Schedule, Settings};
use super::sft::{Step, sft};
use crate::error::Result;
use crate::model::merge::merge;
use crate::model::{Model, Source};
use std::ops::ControlFlow;
use std::path::Path;

/// Trains all linear layers of `model` on `examples`, writes the result into `folder` (new or
/// empty) and returns it as loaded from there. The steps are small and the rate is high: a
/// model of this size sees a few hundred examples in seconds and learns the form of an answer,
/// not how to find it.
///
/// # Errors
/// As [`sft`]; and when `folder` cannot be written.
pub fn teach(
    model: &Model,
    examples: &[Example],
    epochs: usize,
    train_seed: u64,
    folder: &Path,
    on_step: &mut dyn FnMut(&Step, usize) -> ControlFlow<()>,
) -> Result<Model> {
    let settings = Settings {
        r: model.config.hidden,
        alpha: model.config.hidden as f64,
        learning_rate: 5e-3,
        epochs,
        batch_examples: 4,
        micro_batch_tokens: model.config.max_positions,
        max_length: model.config.max_positions,
        warmup: 0.05,
        schedule: Schedule::Linear,
        ..Settings::default()
    };
    let trained = sft(model, examples, &settings, train_seed, None, on_step)?;
    merge(model, &trained.lora, folder)?;
    Model::load(&Source::Folder(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Message;
    use crate::model::TinySpec;

    #[test]
    fn a_tiny_model_learns_an_answer_and_keeps_it_in_its_weights() {
        let spec = TinySpec { hidden: 32, intermediate: 48, heads: 2, kv_heads: 1, ..TinySpec::default() };
        let model = Model::tiny(&spec).unwrap();
        let prompt = |i: usize| model.render(&[Message::user(format!("Question {i}?"))], true).unwrap();
        let answer = model.encode("ANSWER: 7").unwrap();
        let examples: Vec<Example> = (0..40)
            .map(|i| {
                let prompt = prompt(i);
                let tokens: Vec<u32> =
                    prompt.iter().chain(&answer).chain(model.end_tokens()).copied().collect();
                let weights = (0..tokens.len()).map(|t| if t >= prompt.len() { 1.0 } else { 0.0 }).collect();
                Example { tokens, weights }
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let mut losses = Vec::new();
        let taught = teach(&model, &examples, 4, 1, &folder.path().join("taught"), &mut |step, _| {
            losses.push(step.loss);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(losses[losses.len() - 1] < 0.1 * losses[0], "{losses:?}");

        let mut tokens = prompt(99);
        let start = tokens.len();
        while tokens.len() < start + 20 && !taught.end_tokens().contains(&tokens[tokens.len() - 1]) {
            let logits = taught.logits(&tokens, None).unwrap().get(tokens.len() - 1).unwrap();
            tokens.push(logits.argmax(0).unwrap().to_scalar::<u32>().unwrap());
        }
        assert_eq!(taught.decode(&tokens[start..], true).unwrap(), "ANSWER: 7");
    }
}
