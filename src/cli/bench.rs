//! `bench`: measurements as a table or as JSON rows.

use super::device::DeviceArgs;
use super::progress::Terminal;
use super::{STOP, print, until_stopped};
use crate::bench::engine::{self, ModelChoice, Plan, What};
use crate::bench::{audit, bootstrap, coverage};
use crate::error::{Error, Result};
use crate::model::{Source, registry};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Measurements of this machine.
#[derive(Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Speed and memory of the local engine
    #[command(
        after_long_help = "A row is one measurement: milliseconds a step in which every call decodes, new tokens a second in such
steps, the same with the time for prompts counted in, for `mixed` the same where groups wait for their
longest call, and the memory that was planned. A dash stands where a number has no meaning.

Examples:
  rederive bench engine --batch 1,16 --what decode          the default model on the processor, no prompts of 2048
  rederive bench engine --device cuda --batch 1,32,256 --json >> rows.jsonl
  rederive bench engine --config config.json --device cuda  a shape alone, with random weights
  rederive bench engine --startup                           from nothing to the first token"
    )]
    Engine(EngineArgs),
    /// Speed and memory of the paired bootstrap
    #[command(after_long_help = "Example:
  rederive bench bootstrap --tasks 1000,100000 --json >> rows.jsonl")]
    Bootstrap(BootstrapArgs),
    /// Time and memory of an audit: many derivations over many rows
    #[command(
        after_long_help = "The folder is made where there is none, with rows of two arms over many seeds and families and a report that prints
every derivation; it takes about 60 bytes a row. The audit runs in a process of its own.

Example:
  rederive bench audit /tmp/large --rows 1000000 --derivations 1000 --json >> rows.jsonl"
    )]
    Audit(AuditArgs),
    /// How often intervals hold the truth, by simulation
    #[command(after_long_help = "Examples:
  rederive bench coverage --data-sets 200                   a first look
  rederive bench coverage --json > benches/coverage.jsonl  the table that sites show under Method")]
    Coverage(CoverageArgs),
}

/// Options of `bench bootstrap`.
#[derive(Debug, clap::Args)]
pub struct BootstrapArgs {
    /// Task differences, one measurement of each kind and number
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000])]
    tasks: Vec<usize>,
    /// How many values they take
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["few", "many"])]
    values: Vec<bootstrap::Values>,
    /// Resamples
    #[arg(long, default_value_t = crate::stats::RESAMPLES)]
    resamples: usize,
    /// Timed runs of each
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Options of `bench audit`.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    /// A workspace that this command made, or a new folder for one
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Rows, of a workspace that is made
    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,
    /// Derivations, each printed once
    #[arg(long, default_value_t = 1_000)]
    derivations: usize,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Options of `bench coverage`.
#[derive(Debug, clap::Args)]
pub struct CoverageArgs {
    /// Simulated data sets of each scenario
    #[arg(long, default_value_t = 4_000)]
    data_sets: usize,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
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
pub fn bench(command: BenchCommand, terminal: &Terminal) -> Result<u8> {
    match command {
        BenchCommand::Engine(args) => until_stopped("bench engine", terminal, move || bench_engine(&args)),
        BenchCommand::Bootstrap(args) => {
            until_stopped("bench bootstrap", terminal, move || bench_bootstrap(&args))
        }
        BenchCommand::Coverage(args) => bench_coverage(&args, terminal),
        BenchCommand::Audit(args) => bench_audit(&args, terminal),
    }
}

fn bench_audit(args: &AuditArgs, terminal: &Terminal) -> Result<u8> {
    use crate::stages::Observer;
    if !audit::is_made(&args.folder)? {
        terminal.begin("rows", Some(args.rows as u64), "rows");
        let written = std::sync::atomic::AtomicUsize::new(0);
        let filled = std::thread::scope(|scope| {
            let count = |done: usize| {
                written.fetch_max(done, Ordering::Relaxed);
            };
            let make = move || audit::make(&args.folder, args.rows, args.derivations, &count);
            let making = scope.spawn(make);
            while !making.is_finished() {
                let done = written.load(Ordering::Relaxed);
                let what = if done < args.rows { "" } else { "filling in numbers" };
                terminal.advance(done as u64, what);
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            making.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        terminal.end(&format!("numbers filled in within {filled:.1} s"));
        // What making it took of the memory does not count: the audit runs in a process of its own.
        let own = std::env::current_exe()?;
        let mut again = std::process::Command::new(own);
        again.args(["bench", "audit"]).arg(&args.folder).args(args.json.then_some("--json"));
        return Ok(if again.status()?.success() { 0 } else { 1 });
    }
    let folder = args.folder.clone();
    let row = until_stopped("bench audit", terminal, move || audit::measure(&folder))?;
    if args.json {
        line(&row)?;
        return Ok(0);
    }
    let peak = row.peak_resident_bytes.map_or("–".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    print(&format!(
        "{} derivations over {} rows ({} MiB): {:.1} s, {:.0} rows/s, peak {peak}\n",
        row.derivations,
        row.rows,
        row.bytes >> 20,
        row.wall_s,
        row.rows as f64 / row.wall_s
    ))?;
    Ok(0)
}

fn bench_bootstrap(args: &BootstrapArgs) -> Result<u8> {
    if !args.json {
        print("   tasks  values  draws   best s  peak MiB\n")?;
    }
    for &tasks in &args.tasks {
        for &values in &args.values {
            let row = bootstrap::measure(tasks, values, args.resamples, args.runs)?;
            if args.json {
                line(&row)?;
                continue;
            }
            let best = row.wall_s.iter().copied().fold(f64::INFINITY, f64::min);
            let name = if values == bootstrap::Values::Few { "few" } else { "many" };
            let peak = row.peak_resident_bytes.map_or("–".to_owned(), |bytes| (bytes >> 20).to_string());
            print(&format!("{tasks:>8}  {name:<6}  {:<6} {best:>7.3} {peak:>9}\n", row.draws))?;
        }
    }
    Ok(0)
}

fn bench_coverage(args: &CoverageArgs, terminal: &Terminal) -> Result<u8> {
    use crate::stages::Observer;
    if args.data_sets == 0 {
        return Err(Error::invalid("no data set is to be simulated")
            .at("--data-sets")
            .hint("4000 are usual"));
    }
    let mut scenarios = 0;
    terminal.begin("coverage", Some(coverage::count() as u64), "scenarios");
    if !args.json {
        print(
            "scenario                  tasks  each  seeds  interval                          coverage  defined  width  flagged  of misses\n",
        )?;
    }
    coverage::measure(args.data_sets, &mut |rows| {
        if STOP.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        for row in &rows {
            if args.json {
                line(row)?;
            } else {
                let number = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{x:.3}"));
                let seeds = row.training_seeds.map_or("–".to_owned(), |n| n.to_string());
                print(&format!(
                    "{:<25} {:>5} {:>5} {seeds:>6}  {:<33} {:>8} {:>8.3} {:>6} {:>8.3} {:>10}\n",
                    row.scenario,
                    row.tasks,
                    row.attempts,
                    row.interval,
                    number(row.coverage),
                    row.defined,
                    number(row.width),
                    row.flagged,
                    number(row.flagged_of_missed)
                ))?;
            }
        }
        scenarios += 1;
        terminal.advance(scenarios, rows.first().map_or("", |row| row.scenario));
        Ok(())
    })?;
    terminal.end(&format!("{} data sets of each", args.data_sets));
    Ok(0)
}

fn bench_engine(args: &EngineArgs) -> Result<u8> {
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
    engine::check(&plan)?;
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
