//! `bench engine`: measurements as a table or as JSON rows.

use super::device::DeviceArgs;
use super::print;
use crate::bench::engine::{self, ModelChoice, Plan, What};
use crate::error::Result;
use crate::model::{Source, registry};
use serde::Serialize;
use std::path::PathBuf;

/// Measurements of this machine.
#[derive(Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Speed and memory of the local engine
    #[command(after_long_help = "Examples:
  rederive bench engine --batch 1,16                        the default model on the processor
  rederive bench engine --device cuda --batch 1,32,256 --json >> rows.jsonl
  rederive bench engine --config config.json --device cuda  a shape alone, with random weights
  rederive bench engine --startup                           from nothing to the first token")]
    Engine(EngineArgs),
}

/// Options of `bench engine`.
#[derive(Debug, clap::Args)]
pub struct EngineArgs {
    /// A name, a folder of safetensors, or a .gguf file
    #[arg(default_value = registry::DEFAULT)]
    model: String,
    /// Random weights of this `config.json`'s shape instead
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    config: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["decode", "prefill", "mixed"])]
    what: Vec<What>,
    /// Calls side by side, one measurement each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    batch: Vec<usize>,
    /// Tokens of a prompt
    #[arg(long, default_value_t = 128)]
    prompt: usize,
    /// Tokens of a completion
    #[arg(long, default_value_t = 128)]
    new: usize,
    /// Tokens of the prompt of `prefill`
    #[arg(long, default_value_t = 2048)]
    long_prompt: usize,
    /// Timed runs of each, after one that warms up
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Measure the start alone: loading, the engine, the first token
    #[arg(long)]
    startup: bool,
    /// Start every kernel by itself instead of recording steps (on a card)
    #[arg(long)]
    no_graphs: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// A row with what all rows share.
#[derive(Serialize)]
struct Row<'a, T: Serialize> {
    #[serde(flatten)]
    head: &'a engine::Head,
    #[serde(flatten)]
    row: T,
}

/// Dispatches.
pub fn bench(command: &BenchCommand) -> Result<u8> {
    let BenchCommand::Engine(args) = command;
    let plan = Plan {
        model: match &args.config {
            Some(path) => ModelChoice::Random(path.clone()),
            None => ModelChoice::Known(Source::parse(&args.model)?),
        },
        processor: args.device.processor()?,
        what: args.what.clone(),
        batch: args.batch.clone(),
        prompt: args.prompt,
        new: args.new,
        long_prompt: args.long_prompt,
        runs: args.runs,
        record_steps: !args.no_graphs,
    };
    let (model, startup) = engine::startup(&plan)?;
    let head = engine::head(&model);
    if args.json {
        line(&Row { head: &head, row: &startup })?;
    } else {
        let machine = head.machine.as_deref().unwrap_or("an unnamed machine");
        print(&format!(
            "{} in {} on {machine}, {} threads\nstart: model {:.2} s, engine {:.2} s, first token {:.3} s, in all {:.2} s\n",
            head.model,
            head.dtype,
            head.threads,
            startup.load_s,
            startup.engine_s,
            startup.first_token_s,
            startup.total_s
        ))?;
    }
    if args.startup {
        return Ok(0);
    }
    if !args.json {
        print("what     batch  prompt  new  step ms  tokens/s  with prompts  in groups  planned MiB\n")?;
    }
    for what in &plan.what {
        let once = [1];
        let batches = if *what == What::Prefill { &once[..] } else { &plan.batch };
        for batch in batches {
            let row = engine::measure(&model, &plan, *what, *batch)?;
            if args.json {
                line(&Row { head: &head, row: &row })?;
                continue;
            }
            let number =
                |x: Option<f64>, places: usize| x.map_or("–".to_owned(), |x| format!("{x:.places$}"));
            let name = match what {
                What::Decode => "decode",
                What::Prefill => "prefill",
                What::Mixed => "mixed",
            };
            print(&format!(
                "{name:<7} {:>6} {:>7} {:>4} {:>8} {:>9} {:>13} {:>10} {:>12}\n",
                row.batch,
                row.prompt,
                row.new,
                number(row.step_ms, 3),
                number(Some(row.tokens_per_s), 1),
                number(row.total_tokens_per_s, 1),
                number(row.static_tokens_per_s, 1),
                row.planned_bytes >> 20
            ))?;
        }
    }
    Ok(0)
}

fn line(row: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(row)
        .map_err(|e| crate::error::Error::invalid(format!("a row is not JSON: {e}")))?;
    print(&format!("{text}\n"))
}
