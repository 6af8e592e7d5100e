//! The verbs that need no engine: compare, new, status, fill, claims, site, gym.

use super::progress::Terminal;
use super::{Workspace, print, print_json};
use crate::error::Result;
use crate::stages::{Experiment, draft, status as stage_status};
use crate::write_lock::WriteLock;
use std::io::IsTerminal;

/// Width of the terminal, else what `COLUMNS` says, else a readable default.
pub(super) fn width() -> usize {
    let columns = match std::io::stdout().is_terminal() {
        true => Some(console::Term::stdout().size().1 as usize),
        false => std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()),
    };
    columns.unwrap_or(100).clamp(60, 140)
}

/// A count with its noun, in the plural unless it is one.
pub(super) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Colour only on a terminal, and never against `NO_COLOR`.
fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `rederive compare`
pub fn compare(options: crate::compare::Options, terminal: &Terminal) -> Result<u8> {
    let json = options.json;
    let comparison = super::until_stopped("compare", terminal, move || crate::compare::run(&options))?;
    if json {
        print_json(&comparison)?;
    } else {
        print(&comparison.render(width(), colour()))?;
    }
    Ok(0)
}

/// Options of `new`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Example:
  rederive new commit-an-answer
  $EDITOR data/commit-an-answer/experiment.toml")]
pub struct NewArgs {
    /// Name of the experiment: a-z, 0-9 and `-`
    name: String,
    #[command(flatten)]
    workspace: Workspace,
}

/// `rederive new`
pub fn new(args: &NewArgs) -> Result<u8> {
    let workspace = &args.workspace.workspace;
    let written = draft::new_experiment(workspace, &args.name, &draft::fresh_plan(workspace)?)?;
    for path in written {
        print(&format!("{}\n", path.display()))?;
    }
    Ok(0)
}

/// Options of `status`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Example:\n  rederive status commit-an-answer")]
pub struct StatusArgs {
    /// The experiment; all of them when left out
    experiment: Option<String>,
    #[command(flatten)]
    workspace: Workspace,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// `rederive status`
pub fn status(args: &StatusArgs) -> Result<u8> {
    let root = &args.workspace.workspace;
    let names = match &args.experiment {
        Some(name) => vec![name.clone()],
        None => crate::stages::list(root)?,
    };
    let mut all = Vec::new();
    for name in names {
        all.push(stage_status::status(&Experiment::open(root, &name)?)?);
    }
    if args.json {
        print_json(&all)?;
        return Ok(0);
    }
    if all.is_empty() {
        print("no experiments here; `rederive new <name>` drafts one\n")?;
        for slug in crate::import::imported(root)? {
            print(&format!(
                "imported rows: {slug} (a claim derives from them with `data = \"imported\"`)\n"
            ))?;
        }
    }
    for status in all {
        print(&format!("{}: {}\n", status.experiment, status.ending))?;
        for entry in status.entries {
            print(&format!("  {:<22} {:<8} {}\n", entry.what, entry.state, entry.note))?;
        }
        if let Some(looks) = status.looks {
            let events = if looks == 1 { "event" } else { "events" };
            print(&format!(
                "  {:<22} {:<8} {looks} evaluation {events} drew from this file\n",
                "task set", "looks"
            ))?;
        }
        if status.ended {
            print("  next: rederive fill, then claims check, audit and site build\n")?;
        }
    }
    Ok(0)
}

/// Options of `fill`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  rederive fill --dry-run     show what would be written
  rederive fill               write values into empty links `[](derive:…)`
  rederive fill --update      also rewrite links whose value has changed

Exit code 1 when a link leads nowhere.")]
pub struct FillArgs {
    #[command(flatten)]
    workspace: Workspace,
    /// Also rewrite numbers that no longer agree with their rows
    #[arg(long)]
    update: bool,
    /// Change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
}

/// `rederive fill`
pub fn fill(args: &FillArgs, terminal: &Terminal) -> Result<u8> {
    let _lock = match args.dry_run {
        true => None,
        false => Some(WriteLock::take(&args.workspace.workspace)?),
    };
    let options = crate::claims::fill::Options { update: args.update, dry_run: args.dry_run };
    let waiting = terminal.waiting("fill");
    let filled = crate::claims::fill::fill(&args.workspace.workspace, options)?;
    drop(waiting);
    // A link that leads nowhere stays empty whatever is run.
    let lost = filled.empty.iter().any(|empty| !empty.waits);
    if args.json {
        print_json(&filled)?;
        return Ok(u8::from(lost));
    }
    for change in &filled.changes {
        print(&format!("{change}\n"))?;
    }
    let verb = if args.dry_run { "would be written" } else { "written" };
    print(&format!("{} {verb}\n", counted(filled.changes.len(), "number")))?;
    for empty in filled.empty.iter().filter(|empty| !empty.waits) {
        print(&format!("{}:{}: stays empty: {}\n", empty.file, empty.line, empty.why))?;
    }
    let waiting = filled.empty.iter().filter(|empty| empty.waits).count();
    if waiting > 0 {
        let verb = if waiting == 1 { "stays empty and waits" } else { "stay empty and wait" };
        print(&format!("{} {verb} for rows that do not exist yet\n", counted(waiting, "link")))?;
    }
    for change in &filled.stale {
        print(&format!("not the current value: {change}\n"))?;
    }
    if !filled.stale.is_empty() {
        print("`rederive fill --update` rewrites what is printed; read the sentences again\n")?;
    }
    Ok(u8::from(lost))
}

/// The claim ledger.
#[derive(Debug, clap::Subcommand)]
pub enum ClaimsCommand {
    /// Check every printed number, every status and every citation
    #[command(after_long_help = "Examples:
  rederive claims check --workspace demo
  rederive claims check --json | jq '.findings'

Checks texts against each other and against rows. Verdicts, lifecycles, seeds, receipts and hashes are the
audit's: `rederive audit` before you publish. Exit code 1 when something does not hold.")]
    Check {
        #[command(flatten)]
        workspace: Workspace,
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
    },
}

/// `rederive claims check`
pub fn claims(command: &ClaimsCommand, terminal: &Terminal) -> Result<u8> {
    let ClaimsCommand::Check { workspace, json } = command;
    let root = workspace.workspace.clone();
    let (texts, outcome) = super::until_stopped("claims check", terminal, move || {
        let texts = crate::claims::Texts::load(&root)?;
        let book = crate::claims::Book::build(&root, &texts)?;
        let outcome = crate::claims::check::check(&texts, &book);
        Ok((texts, outcome))
    })?;
    if *json {
        print_json(&outcome)?;
    } else {
        for finding in &outcome.findings {
            print(&format!("{finding}\n"))?;
        }
        print(&format!(
            "{}, {}, {}, {} in prose without a link, {}\n",
            counted(texts.claims.len(), "claim"),
            counted(texts.experiments.len(), "experiment"),
            counted(outcome.links, "bound number"),
            counted(outcome.unbound.values().sum(), "number"),
            counted(outcome.findings.len(), "finding")
        ))?;
    }
    Ok(u8::from(!outcome.findings.is_empty()))
}

/// The website.
#[cfg(feature = "site")]
#[derive(Debug, clap::Subcommand)]
pub enum SiteCommand {
    /// Recompute, audit and build; refuses when a number does not hold
    #[command(after_long_help = "Example:\n  rederive site build --workspace demo --out public")]
    Build {
        #[command(flatten)]
        workspace: Workspace,
        /// Where to write it: an empty or a new folder, or the site to renew (files that are not its
        /// own are kept); default: public/ in the workspace
        #[arg(long, value_name = "DIR")]
        out: Option<std::path::PathBuf>,
    },
    /// Check every link, anchor and file hash of a built site
    #[command(after_long_help = "Example:\n  rederive site check --out public")]
    Check {
        #[command(flatten)]
        workspace: Workspace,
        /// The built site; default: public/ in the workspace
        #[arg(long, value_name = "DIR")]
        out: Option<std::path::PathBuf>,
    },
}

/// `rederive site`
#[cfg(feature = "site")]
pub fn site(command: &SiteCommand, terminal: &Terminal) -> Result<u8> {
    match command {
        SiteCommand::Build { workspace, out } => {
            let root = &workspace.workspace;
            let out = out.clone().unwrap_or_else(|| root.join("public"));
            let _lock = WriteLock::take(root)?;
            let context =
                crate::stages::Context { observer: terminal, stop: &super::STOP, accept_engine: false };
            let built = crate::publish::build(root, &out, &context)?;
            print(&format!("{} pages, {} files\n{}\n", built.pages, built.files, built.index.display()))?;
            Ok(0)
        }
        SiteCommand::Check { workspace, out } => {
            let out = out.clone().unwrap_or_else(|| workspace.workspace.join("public"));
            let problems = crate::site::check(&out)?;
            for problem in &problems {
                print(&format!("{problem}\n"))?;
            }
            let strays = crate::site::strays(&out)?;
            let beside = match strays.as_slice() {
                [] => String::new(),
                [first, ..] => {
                    format!(
                        "; {} of others were not looked at, such as {first}",
                        counted(strays.len(), "file")
                    )
                }
            };
            print(&format!("{}{beside}\n", counted(problems.len(), "problem")))?;
            Ok(u8::from(!problems.is_empty()))
        }
    }
}

/// The built-in task families.
#[derive(Debug, clap::Subcommand)]
pub enum GymCommand {
    /// Test the families themselves: oracle, random and constant policies, determinism, fresh seeds
    #[command(after_long_help = "Example:\n  rederive gym selftest --tasks 200")]
    Selftest {
        /// Tasks a family and level; the floors are meant for 200 or more
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..))]
        tasks: u32,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what a model solves in each family and level
    #[cfg(feature = "engine")]
    #[command(after_long_help = "Example:
  rederive gym calibrate --model smollm2-135m-instruct --examples 3 --temperature 0.8

The harness matters: with the bare prompt a small model may never write an answer line.")]
    Calibrate(CalibrateArgs),
}

/// Options of `gym calibrate`.
#[cfg(feature = "engine")]
#[derive(Debug, clap::Args)]
pub struct CalibrateArgs {
    /// A name, a folder of safetensors, or a .gguf file
    #[arg(long, default_value = crate::model::registry::DEFAULT)]
    model: String,
    /// Families; all when left out
    #[arg(long, value_delimiter = ',')]
    families: Vec<String>,
    /// Levels
    #[arg(long, value_delimiter = ',', default_value = "1")]
    levels: Vec<u8>,
    /// Tasks a family and level
    #[arg(long, default_value_t = 200)]
    tasks: u32,
    /// Event seed of the tasks
    #[arg(long, default_value_t = 31_001)]
    seed: u64,
    /// Worked examples in front, as chat turns
    #[arg(long, default_value_t = 3)]
    examples: usize,
    /// 0 is greedy
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Most tokens a turn
    #[arg(long, default_value_t = 32)]
    answer_tokens: usize,
    /// Most tokens of a thought in front of an answer; without it the model is asked not to think
    #[arg(long)]
    think_tokens: Option<usize>,
    /// Sequences side by side
    #[arg(long, default_value_t = 24)]
    slots: usize,
    #[command(flatten)]
    device: super::device::DeviceArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// `rederive gym`
pub fn gym(command: &GymCommand, terminal: &Terminal) -> Result<u8> {
    use crate::environment::gym;
    match command {
        GymCommand::Selftest { tasks, json } => {
            let _ = terminal;
            let report = gym::selftest(&gym::Gym, &gym::FAMILIES, *tasks)?;
            if *json {
                print_json(&report)?;
            } else {
                let mut out = format!(
                    "{:<11} {:>5} {:>7} {:>7} {:>9} {:>6}  \n",
                    "family", "level", "oracle", "random", "constant", "floor"
                );
                for f in &report.families {
                    let mark = if f.passed { "ok" } else { "FAILED" };
                    out.push_str(&format!(
                        "{:<11} {:>5} {:>7.3} {:>7.3} {:>9.3} {:>6.2}  {mark}\n",
                        f.family, f.level, f.oracle_mean, f.random_mean, f.constant_mean, f.floor
                    ));
                    for failure in &f.failures {
                        out.push_str(&format!("    {failure}\n"));
                    }
                }
                print(&out)?;
            }
            Ok(u8::from(!report.passed))
        }
        #[cfg(feature = "engine")]
        GymCommand::Calibrate(args) => calibrate(args, terminal),
    }
}

#[cfg(feature = "engine")]
fn calibrate(args: &CalibrateArgs, terminal: &Terminal) -> Result<u8> {
    use crate::environment::{Environment, gym};
    for family in &args.families {
        for level in &args.levels {
            gym::Gym.task(family, *level, args.seed, 0)?;
        }
    }
    let context = crate::stages::Context { observer: terminal, stop: &super::STOP, accept_engine: false };
    let source = crate::model::Source::parse(&args.model)?;
    let model = std::sync::Arc::new(crate::stages::lab::load(&source, args.device.processor()?, &context)?);
    let harness = crate::experiment::Harness {
        examples: args.examples,
        answer_tokens: args.answer_tokens,
        think_tokens: args.think_tokens,
        temperature: args.temperature,
        slots: args.slots,
        ..crate::experiment::Harness::default()
    };
    let families: Vec<String> = if args.families.is_empty() {
        gym::Gym.families().iter().map(|f| f.to_string()).collect()
    } else {
        args.families.clone()
    };
    let request = crate::stages::calibrate::Request {
        families: &families,
        levels: &args.levels,
        tasks: args.tasks,
        seed: args.seed,
    };
    let cells = crate::stages::calibrate::calibrate(&gym::Gym, &model, &harness, &request, &context)?;
    if args.json {
        print_json(
            &serde_json::json!({ "model": model.origin.name, "model_sha256": model.origin.sha256, "harness": harness, "seed": args.seed, "cells": cells }),
        )?;
        return Ok(0);
    }
    let mut out = format!(
        "{:<11} {:>5} {:>8} {:>7} {:>7} {:>10} {:>8} {:>8}\n",
        "family", "level", "episodes", "solved", "reward", "unreadable", "context", "written"
    );
    for c in &cells {
        out.push_str(&format!(
            "{:<11} {:>5} {:>8} {:>7.3} {:>7.3} {:>10.3} {:>8.0} {:>8.1}\n",
            c.family,
            c.level,
            c.episodes,
            c.solve_rate,
            c.mean_reward,
            c.unreadable,
            c.prompt_tokens,
            c.completion_tokens
        ));
    }
    let failed: usize = cells.iter().map(|c| c.failed).sum();
    if failed > 0 {
        out.push_str(&format!("{} failed outside the model and count nowhere\n", counted(failed, "episode")));
    }
    print(&out)?;
    Ok(0)
}
