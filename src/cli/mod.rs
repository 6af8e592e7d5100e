//! The command line: arguments in, library calls, results on standard output, progress on
//! standard error, exit codes. Holds no logic of its own.

mod audit;
#[cfg(feature = "engine")]
mod bench;
#[cfg(feature = "engine")]
mod device;
mod drafts;
mod evidence;
mod import;
#[cfg(feature = "engine")]
mod lab;
#[cfg(feature = "engine")]
mod models;
pub mod progress;
pub mod reference;
mod rescore;
#[cfg(feature = "serve")]
mod serve;
mod tasks;

use crate::error::{Error, Result};
use clap::{CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Set by Ctrl-C or SIGTERM; long-running stages look at it between steps.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// An embedded evaluation lab for small language models: paired runs of a base and a treated
/// model, statistics recomputed from raw episodes, and a website on which every number is checked.
#[derive(Debug, Parser)]
#[command(name = "rederive", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_long_help = "Examples:
  rederive demo                        the whole line on a small real model, then a website
  rederive compare rows.csv            paired comparison of two arms in your own rows
  rederive audit --workspace demo      recompute every printed number by a second road

Exit codes: 0 good, 1 a check did not hold, 2 bad usage or input, 130 stopped (the same command continues).
Colour and bars are extras: NO_COLOR is respected, and nothing is drawn where there is no terminal.")]
pub struct Cli {
    /// Print no progress
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

/// A folder with `data/`, `claims/` and `site/`.
#[derive(Debug, clap::Args)]
pub struct Workspace {
    /// Folder that holds data/, claims/ and site/
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole line on a small model: fetch, harvest, train, merge, run, audit, website
    #[cfg(all(feature = "engine", feature = "site"))]
    Demo(lab::DemoArgs),
    /// Compare two arms in rows of your own (Parquet, CSV or JSON lines)
    Compare(crate::compare::Options),
    /// Take in rows that other programs made: lm-evaluation-harness, Inspect AI, tables
    Import(import::ImportArgs),
    /// Draft an experiment: plan, report and log, ready to edit
    New(evidence::NewArgs),
    /// Draw samples from the base model on training seeds and keep the verified ones
    #[cfg(feature = "engine")]
    Harvest(lab::ComputeArgs),
    /// Train the adapter of an experiment on its harvest
    #[cfg(feature = "engine")]
    Train(lab::StageArgs),
    /// Merge the adapter into a full checkpoint and check that it is installed
    #[cfg(feature = "engine")]
    Merge(lab::StageArgs),
    /// Run all arms on the evaluation seeds and decide by the plan's rule; resumes by default
    #[cfg(feature = "engine")]
    Run(lab::ComputeArgs),
    /// Show how far an experiment is
    Status(evidence::StatusArgs),
    /// Write current values into empty number links
    Fill(evidence::FillArgs),
    /// The claim ledger
    #[command(subcommand, after_long_help = "Example:\n  rederive claims check --workspace demo")]
    Claims(evidence::ClaimsCommand),
    /// Recompute every printed number from the raw rows by a second, independent road
    Audit(audit::AuditArgs),
    /// Judge kept transcripts again with a repaired verifier, and write a new version of the rows
    Rescore(rescore::RescoreArgs),
    /// The website
    #[cfg(feature = "site")]
    #[command(
        subcommand,
        after_long_help = "Example:\n  rederive site build --workspace demo && rederive site check --workspace demo"
    )]
    Site(evidence::SiteCommand),
    /// The built-in task families
    #[command(
        subcommand,
        after_long_help = "Example:\n  rederive gym selftest && rederive gym calibrate --families caravan"
    )]
    Gym(evidence::GymCommand),
    /// Your own tasks, in a file
    #[command(subcommand, after_long_help = "Example:\n  rederive tasks check data/my-try/tasks.jsonl")]
    Tasks(tasks::TasksCommand),
    /// Model files
    #[cfg(feature = "engine")]
    #[command(subcommand, after_long_help = "Example:\n  rederive models fetch && rederive models list")]
    Models(models::ModelsCommand),
    /// Measure this machine
    #[cfg(feature = "engine")]
    #[command(subcommand, after_long_help = "Example:\n  rederive bench engine --batch 1,16")]
    Bench(bench::BenchCommand),
    /// Serve a model and its adapters over the OpenAI API
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    /// Print a completion script for your shell
    #[command(
        after_long_help = "Example:\n  rederive completions bash > ~/.local/share/bash-completion/completions/rederive"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print docs/cli.md
    #[command(hide = true)]
    Reference,
}

/// Parses the arguments, runs the command, and returns the process's exit code.
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() { 2 } else { 0 };
            let _ = e.print();
            return code;
        }
    };
    if let Err(e) = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        progress::line("\nstopping after the current step (again to stop at once)");
    }) {
        progress::line(&format!("warning: Ctrl-C will not stop cleanly: {e}"));
    }
    match run(cli) {
        Ok(code) => code,
        Err(e @ Error::Interrupted) => {
            progress::line(&tame(&e.to_string()));
            e.exit_code()
        }
        Err(e) => {
            progress::line(&tame(&format!("error: {e}")));
            e.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<u8> {
    let terminal = progress::Terminal::new(cli.quiet);
    match cli.command {
        #[cfg(all(feature = "engine", feature = "site"))]
        Command::Demo(args) => lab::demo(&args, &terminal),
        Command::Compare(options) => evidence::compare(options, &terminal),
        Command::Import(args) => import::import(args, &terminal),
        Command::New(args) => evidence::new(&args),
        #[cfg(feature = "engine")]
        Command::Harvest(args) => lab::harvest(&args, &terminal),
        #[cfg(feature = "engine")]
        Command::Train(args) => lab::train(&args, &terminal),
        #[cfg(feature = "engine")]
        Command::Merge(args) => lab::merge(&args, &terminal),
        #[cfg(feature = "engine")]
        Command::Run(args) => lab::run(&args, &terminal),
        Command::Status(args) => evidence::status(&args),
        Command::Fill(args) => evidence::fill(&args, &terminal),
        Command::Claims(command) => evidence::claims(&command, &terminal),
        Command::Audit(args) => audit::audit(&args, &terminal),
        Command::Rescore(args) => rescore::rescore(&args, &terminal),
        #[cfg(feature = "site")]
        Command::Site(command) => evidence::site(&command, &terminal),
        Command::Gym(command) => evidence::gym(&command, &terminal),
        Command::Tasks(command) => tasks::tasks(&command),
        #[cfg(feature = "engine")]
        Command::Models(command) => models::models(command, &terminal),
        #[cfg(feature = "engine")]
        Command::Bench(command) => bench::bench(command, &terminal),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::serve(&args, &terminal),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "rederive", &mut script);
            print(&String::from_utf8_lossy(&script))?;
            Ok(0)
        }
        Command::Reference => {
            print(&reference::markdown(&Cli::command()))?;
            Ok(0)
        }
    }
}

/// Runs work that writes nothing, and leaves it where it stands once the user asks to stop: it may be in the
/// middle of a file or of a computation that does not look at [`STOP`]. After two seconds a terminal shows
/// that it goes on.
fn until_stopped<T: Send + 'static>(
    what: &'static str,
    terminal: &progress::Terminal,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        // Nobody listens any more only when the process is about to end.
        let _ = sender.send(work());
    });
    let began = Instant::now();
    let mut waiting = None;
    loop {
        match receiver.recv_timeout(Duration::from_millis(20)) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if STOP.load(Ordering::Relaxed) => return Err(Error::Interrupted),
            Err(RecvTimeoutError::Timeout) if began.elapsed() > Duration::from_secs(2) => {
                waiting.get_or_insert_with(|| terminal.waiting(what));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return Err(Error::Interrupted),
            },
        }
    }
}

/// A text whose lines steer no terminal: a blank in the place of each control character but line ends and tabs, and of
/// each character that sets the direction of writing. What files say is data.
fn tame(text: &str) -> String {
    let lines = text
        .split('\n')
        .map(|line| line.split('\t').map(crate::audit::AuditReport::clean).collect::<Vec<_>>().join("\t"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes to standard output; a closed pipe is not an error of ours.
fn print(text: &str) -> Result<()> {
    use std::io::Write;
    match std::io::stdout().write_all(tame(text).as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::invalid(format!("the result cannot be written: {e}"))
                .at("standard output")
                .hint("free some space, or write elsewhere"))
        }
        _ => Ok(()),
    }
}

/// Prints a value as one JSON document.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::invalid(e.to_string()))?;
    print(&(text + "\n"))
}
