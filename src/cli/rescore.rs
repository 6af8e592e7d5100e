//! `rescore`: a new rows version under a repaired verifier. (`audit --rescore`, which only looks, is
//! beside the audit.)

use super::progress::Terminal;
use super::{STOP, Workspace, print, print_json};
use crate::error::Result;
use crate::stages::draft::{self, Ending};
use crate::stages::{Context, Experiment};
use crate::write_lock::WriteLock;
use std::path::PathBuf;

/// Options of `rescore`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  rederive audit --rescore            first: what a repaired verifier would change, and which numbers move
  rederive rescore my-try             write the new rows; the old ones stay in data/my-try/superseded/
  rederive rescore my-try --was old-tasks.jsonl     where verifiers in the plan's task file were repaired

Runs no model: the replies are those of the kept transcripts. Nothing is written when every row names the
verifier of today. An interrupted call is finished by the next one. Afterwards: `rederive fill --update`, a
dated `[[corrections]]` in the report, and a `[[history]]` entry where a claim's status changes.")]
pub struct RescoreArgs {
    /// The experiment: a folder under data/
    experiment: String,
    #[command(flatten)]
    workspace: Workspace,
    /// The task file as it was when the plan was locked, or as the last rescore left it; only judging may differ
    #[arg(long, value_name = "FILE")]
    was: Option<PathBuf>,
    /// Print what was done as JSON (null where there was nothing to do)
    #[arg(long)]
    json: bool,
}

/// `rederive rescore`
pub fn rescore(args: &RescoreArgs, terminal: &Terminal) -> Result<u8> {
    let experiment = Experiment::open(&args.workspace.workspace, &args.experiment)?;
    let _lock = WriteLock::take(&experiment.workspace)?;
    let context = Context { observer: terminal, stop: &STOP, accept_engine: false };
    let done = crate::rescore::rescore(&experiment, args.was.as_deref(), &context)?;
    if done.is_some() {
        let followed = Ending::of(&experiment).and_then(|ending| draft::texts(&experiment, &ending));
        super::drafts::say(followed, terminal);
    }
    if args.json {
        print_json(&done)?;
        return Ok(0);
    }
    print(&match &done {
        Some(done) => crate::rescore::render_written(done),
        None => "nothing to do: every row was judged by the verifier of today\n".to_string(),
    })?;
    Ok(0)
}
