//! The model of `demo --quick`: a tiny Llama, seeded and made on the spot, then taught for a few
//! seconds on oracle answers of seeds that no event can use. It learns the form of an answer and
//! little else, which is enough for a harvest that is not empty and for every gate to be real.

use crate::environment::Message;
use crate::environment::gym::{self, FAMILIES};
use crate::error::{Error, Result};
use crate::model::tiny::learn_merges;
use crate::model::{Model, TinySpec, merge};
use crate::stages::Context;
use crate::train::{Example, Schedule, Settings, sft};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Where it lies within the workspace: the `source` of the quick plan.
pub const FOLDER: &str = "models/tiny";
/// Lessons of each family.
const LESSONS: u32 = 160;
/// Merges of its tokenizer: enough to make most words of the lessons one token.
const MERGES: usize = 500;

/// Makes and teaches the model unless it is there.
pub fn make(workspace: &Path, context: &Context) -> Result<()> {
    let folder = workspace.join(FOLDER);
    if folder.exists() {
        return Ok(());
    }
    let conversations = conversations()?;
    let texts: Vec<String> = conversations.iter().flatten().map(|m| m.content.clone()).collect();
    let merges = learn_merges(&texts, MERGES)?;
    let model =
        Model::tiny(&TinySpec { hidden: 96, intermediate: 192, layers: 2, merges, ..TinySpec::default() })?;
    let lessons = lessons(&model, &conversations)?;
    let settings = Settings {
        r: 64,
        alpha: 64.0,
        learning_rate: 5e-3,
        epochs: 3,
        batch_examples: 16,
        micro_batch_tokens: 4096,
        max_length: 1024,
        warmup: 0.05,
        schedule: Schedule::Linear,
        checkpoint_every: 25,
        ..Settings::default()
    };
    let mut begun = false;
    let checkpoints = workspace.join("models").join("tiny.lessons");
    let taught = sft(&model, &lessons, &settings, 1, Some(&checkpoints), &mut |step, total| {
        if !begun {
            context.observer.begin("make model", Some(total as u64), "steps");
            begun = true;
        }
        context.observer.advance(step.step as u64, &format!("loss {:.3}", step.loss));
        if context.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let partial = workspace.join("models").join("tiny.partial");
    if partial.exists() {
        fs_err::remove_dir_all(&partial)?;
    }
    // The adapter of the lessons becomes part of the weights: what follows starts from one checkpoint.
    let written = workspace.join("models").join("untaught.partial");
    if written.exists() {
        fs_err::remove_dir_all(&written)?;
    }
    model.save(&written)?;
    let saved = Model::load(&crate::model::Source::Folder(written.clone()))?;
    merge::merge(&saved, &taught.lora, &partial)?;
    fs_err::rename(&partial, &folder)?;
    fs_err::remove_dir_all(&written)?;
    fs_err::remove_dir_all(&checkpoints)?;
    context.observer.end(&format!("taught on {} lessons", lessons.len()));
    Ok(())
}

/// Reserved tasks of every family, solved by the oracle.
fn conversations() -> Result<Vec<Vec<Message>>> {
    let mut out = Vec::new();
    for family in FAMILIES {
        for index in 0..LESSONS {
            out.push(gym::lesson(family.name, 1, index)?);
        }
    }
    Ok(out)
}

/// Each turn as a training row: what came before with weight 0, the oracle's answer with weight 1.
fn lessons(model: &Model, conversations: &[Vec<Message>]) -> Result<Vec<Example>> {
    let end = *model.end_tokens().last().ok_or_else(|| Error::invalid("the tiny model has no end token"))?;
    let mut out = Vec::new();
    for messages in conversations {
        for turn in (1..messages.len()).step_by(2) {
            let mut tokens = model.render(&messages[..turn], true)?;
            let mut weights = vec![0.0; tokens.len()];
            tokens.extend(model.encode(&messages[turn].content)?);
            tokens.push(end);
            weights.resize(tokens.len(), 1.0);
            out.push(Example { tokens, weights });
        }
    }
    Ok(out)
}
