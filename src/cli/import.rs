//! `rederive import`: rows made elsewhere become a data set.

use super::progress::Terminal;
use super::{Workspace, print, print_json};
use crate::error::Result;
use crate::import::{self, Options};
use crate::write_lock::WriteLock;

/// Options of `import`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Rows go to data/<NAME>/imported/<ARM>.parquet, and <ARM>.json beside them says where they come from, by
which mapping, and what was left out. `compare` reads them, derivations name them (`data = \"imported\"`), and the
audit holds them against their hashes. What a source does not say is null: an attempt that broke, or has
no score, has no reward; one that ran into a limit has its score, and the limit as its finish reason.

Of lm-evaluation-harness: `samples_<task>_<date>.jsonl`, with `results_<date>.json` read from the same folder. Of
Inspect AI: `.eval` and `.json` logs; epochs are rollouts, and scores C, P, I and N are 1, 0.5, 0 and 0.

Examples:
  rederive import base.eval tuned.eval --arm base --arm treatment
  rederive import out/*/samples_gsm8k_*.jsonl --arm base --arm treatment --filter strict-match
  rederive import judged.csv --arm base --map task=id --metric grade --scale 1,5
  rederive import base.eval --arm base --metric match --dry-run --json")]
pub struct ImportArgs {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    workspace: Workspace,
    /// Read and check, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the provenance as JSON
    #[arg(long)]
    json: bool,
}

/// `rederive import`
pub fn import(args: ImportArgs, terminal: &Terminal) -> Result<u8> {
    let root = args.workspace.workspace;
    let options = args.options;
    let read = super::until_stopped("import", terminal, move || import::read(&options))?;
    let written = if args.dry_run {
        read.preview(&root)?
    } else {
        let _lock = WriteLock::start(&root)?;
        let _waiting = terminal.waiting("import");
        read.write(&root)?
    };
    if args.json {
        print_json(&written)?;
    } else {
        print(&written.render(&root, args.dry_run))?;
    }
    Ok(0)
}
