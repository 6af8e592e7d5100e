//! The verbs for a user's own tasks: check a file, try a reply.

use super::{print, print_json};
use crate::environment::taskset::{self, TaskSet};
use crate::error::{Error, Result};
use std::io::Read;
use std::path::PathBuf;

/// Most bytes of a reply on standard input.
const MOST_REPLY: u64 = 16 << 20;

/// Your own tasks.
#[derive(Debug, clap::Subcommand)]
pub enum TasksCommand {
    /// Test a task set: every line, the oracle, constant and random replies
    #[command(after_long_help = "Examples:
  rederive tasks check data/my-try/tasks.jsonl
  rederive tasks check tasks.jsonl --json

One JSON object on each line: {\"prompt\": \"…\", \"answer\": \"…\"}, with verifier, family, level and split where the
defaults do not fit (docs/FORMATS.md). Exit code 2 when a line cannot be used; each is named with its number.")]
    Check {
        /// The task set
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a verifier reads in a reply, and whether it is right
    #[command(after_long_help = "Examples:
  rederive tasks try tasks.jsonl capital-7 --reply 'ANSWER: Rome'
  rederive tasks try tasks.jsonl capital-7 < reply.txt")]
    Try {
        /// The task set
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The task
        id: String,
        /// The reply; standard input when left out
        #[arg(long)]
        reply: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// `rederive tasks`
pub fn tasks(command: &TasksCommand) -> Result<u8> {
    match command {
        TasksCommand::Check { file, json } => check(file.clone(), *json),
        TasksCommand::Try { file, id, reply, json } => {
            let set = TaskSet::open(&file.to_string_lossy(), file)?;
            let reply = match reply {
                Some(text) => text.clone(),
                None => read_reply()?,
            };
            let judged = set.judge(id, &reply)?;
            if *json {
                print_json(&serde_json::json!({
                    "task": id, "right": judged.right, "evidence": judged.parsed, "oracle": set.oracle(id)?,
                }))?;
            } else {
                let read = judged.parsed.map_or("nothing".into(), |text| format!("`{text}`"));
                let verdict = if judged.right { "right" } else { "wrong" };
                print(&format!("{verdict}: read {read}; a right reply is `{}`\n", set.oracle(id)?))?;
            }
            Ok(u8::from(!judged.right))
        }
    }
}

fn read_reply() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().take(MOST_REPLY).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| {
        Error::invalid("the reply is not UTF-8 text").at("standard input").hint("give it with --reply")
    })
}

fn check(file: PathBuf, json: bool) -> Result<u8> {
    let report = taskset::check(&file)?;
    let code = if report.passed { 0 } else { 2 };
    if json {
        print_json(&report)?;
        return Ok(code);
    }
    let mut out = String::new();
    if !report.cells.is_empty() {
        let width = report.cells.iter().map(|c| c.family.len()).max().unwrap_or(0).max(6);
        out.push_str(&format!(
            "{:<width$} {:>5} {:<8} {:>6} {:>7} {:>7} {:>9}  verifiers\n",
            "family", "level", "split", "tasks", "oracle", "random", "constant"
        ));
        for c in &report.cells {
            let verifiers: Vec<String> = c.verifiers.iter().map(|(name, n)| format!("{name} {n}")).collect();
            out.push_str(&format!(
                "{:<width$} {:>5} {:<8} {:>6} {:>7.3} {:>7.3} {:>9.3}  {}\n",
                c.family,
                c.level,
                c.split,
                c.tasks,
                c.oracle,
                c.random,
                c.constant,
                verifiers.join(", ")
            ));
        }
    }
    for remark in &report.remarks {
        out.push_str(&format!("remark: {remark}\n"));
    }
    for problem in &report.problems {
        out.push_str(&format!("{}:{}: {}\n", report.file, problem.line, problem.what));
        if let Some(remedy) = &problem.remedy {
            out.push_str(&format!("  hint: {remedy}\n"));
        }
    }
    let problems = report.problems.len();
    out.push_str(&match (problems, report.stopped) {
        (0, _) if report.tasks == 0 => "no task: write one JSON object on each line\n".to_owned(),
        (0, _) => format!("{} tasks, every oracle is right\n", report.tasks),
        (n, false) => {
            format!("{n} {} cannot be used, {} can\n", if n == 1 { "line" } else { "lines" }, report.tasks)
        }
        (n, true) => format!("stopped after {n} lines that cannot be used\n"),
    });
    print(&out)?;
    Ok(code)
}
