//! The engine alone: several prompts in one batch, each answered as if it were alone. Takes a model
//! (a name of `rederive models list`, a GGUF file or a folder of safetensors), then prompts:
//!
//! `cargo run --release --example generate -- MODEL "Name a prime." "And a colour."`

use rederive::engine::local::{Engine, Options};
use rederive::engine::{Backend, Request, Sampling, Stream};
use rederive::environment::Message;
use rederive::model::{Model, Source};
use std::sync::Arc;

fn main() -> rederive::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(source) = arguments.next() else {
        eprintln!("usage: generate MODEL PROMPT ...");
        std::process::exit(2);
    };
    let prompts: Vec<String> = arguments.collect();
    let model = Arc::new(Model::load(&Source::parse(&source)?)?);
    let mut engine = Engine::new(model, Options::new(prompts.len().max(2), 512))?;
    for (id, prompt) in prompts.iter().enumerate() {
        let tokens = engine.render(&[Message::user(prompt.as_str())])?;
        let stream = Stream { seed: 0, task_id: prompt.clone(), rollout: 0, turn: 0 };
        engine.submit(Request {
            id: id as u64,
            tokens,
            adapter: None,
            sampling: Sampling::greedy(48),
            stream,
        })?;
    }
    while engine.in_flight() > 0 {
        for done in engine.step()? {
            println!("{}\n  {} ({} tokens)", prompts[done.id as usize], done.text, done.tokens.len());
        }
    }
    Ok(())
}
