//! `gym calibrate`: what a model solves in each family and level, in a stated harness. Sets how
//! hard level 1 is; spends no seed of any experiment.

use super::lab;
use super::{Context, Observer};
use crate::engine::local::Engine;
use crate::environment::Environment;
use crate::episode::{Control, EpisodeRow, Item, Progress, UnitSpec, run_unit, table};
use crate::error::{Error, Result};
use crate::experiment::Harness;
use crate::model::Model;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was measured in one family and level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Kind of task.
    pub family: String,
    /// Difficulty.
    pub level: i64,
    /// Episodes with a score.
    pub episodes: usize,
    /// Episodes that failed outside the model; they count nowhere else.
    pub failed: usize,
    /// Share solved.
    pub solve_rate: f64,
    /// Mean reward.
    pub mean_reward: f64,
    /// Share whose final reply could not be read.
    pub unreadable: f64,
    /// Mean tokens of context an episode, over all its turns.
    pub prompt_tokens: f64,
    /// Mean tokens written an episode.
    pub completion_tokens: f64,
}

/// Which tasks to measure on.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Kinds of task.
    pub families: &'a [String],
    /// Difficulties.
    pub levels: &'a [u8],
    /// Tasks of each.
    pub tasks: u32,
    /// The event seed that makes them.
    pub seed: u64,
}

/// Measures a model in a harness, in a temporary folder.
pub fn calibrate(
    environment: &dyn Environment,
    model: &Arc<Model>,
    harness: &Harness,
    request: &Request,
    context: &Context,
) -> Result<Vec<Cell>> {
    let Request { families, levels, tasks, seed } = *request;
    let folder = tempfile::tempdir()?;
    let context_tokens = lab::context_tokens(environment, model, harness, families, levels)?;
    let mut engine = Engine::new(model.clone(), lab::options(harness, context_tokens))?;
    let items: Vec<Item> = families
        .iter()
        .flat_map(|family| {
            levels.iter().map(move |level| Item { family: family.clone(), level: *level, count: tasks })
        })
        .collect();
    let spec = UnitSpec {
        experiment: "calibrate".into(),
        event: None,
        arm: "model".into(),
        plan_sha256: crate::hash::sha256_json(harness)?,
        adapter_sha256: None,
        train_seed: None,
        seed,
        items,
        split: families.iter().map(|f| (f.clone(), "train".to_string())).collect(),
        rollouts: harness.rollouts,
        sampling: lab::sampling(harness),
        examples: harness.examples,
        adapter: None,
        scaffold: "native".into(),
        evidence: "deployable".into(),
        accept_engine: false,
        accept_failures: true,
    };
    let observer: &dyn Observer = context.observer;
    let mut begun = false;
    let mut progress = |p: Progress| {
        if !begun {
            observer.begin("calibrate", Some(p.total as u64), "episodes");
            begun = true;
        }
        observer.advance(p.done as u64, &format!("{} tokens", p.completion_tokens));
    };
    run_unit(
        &spec,
        environment,
        &mut engine,
        folder.path(),
        &mut Control { stop: context.stop, progress: &mut progress },
    )?;
    let counters = engine.counters();
    observer.end(&format!(
        "{} tokens read, {} shared, {} written",
        counters.prefill_tokens, counters.shared_tokens, counters.decode_tokens
    ));
    let rows: Vec<EpisodeRow> = table::read_chain_checked(
        &folder.path().join("episodes").join("model").join(format!("{seed}.parquet")),
    )?;
    let mut cells: BTreeMap<(String, i64), Vec<EpisodeRow>> = BTreeMap::new();
    for row in rows {
        cells.entry((row.family.clone(), row.level)).or_default().push(row);
    }
    let mut out = Vec::with_capacity(cells.len());
    for ((family, level), rows) in cells {
        let why = rows.iter().find_map(|row| row.error.clone()).unwrap_or_default();
        let place = format!("{family}, level {level}");
        out.push(cell(family, level, &rows).ok_or_else(|| {
            Error::refused(format!("no episode could be scored: {why}"))
                .at(place)
                .hint("fewer worked examples or answer tokens may fit the model's context")
        })?);
    }
    Ok(out)
}

fn cell(family: String, level: i64, all: &[EpisodeRow]) -> Option<Cell> {
    let rows: Vec<&EpisodeRow> = all.iter().filter(|row| row.reward.is_some()).collect();
    let mean =
        |of: &dyn Fn(&EpisodeRow) -> f64| rows.iter().map(|row| of(row)).sum::<f64>() / rows.len() as f64;
    let flag = |f: Option<bool>, is: bool| f64::from(u8::from(f == Some(is)));
    (!rows.is_empty()).then(|| Cell {
        family,
        level,
        episodes: rows.len(),
        failed: all.len() - rows.len(),
        solve_rate: mean(&|r| flag(r.solved, true)),
        mean_reward: mean(&|r| r.reward.unwrap_or_default()),
        unreadable: mean(&|r| flag(r.parse_ok, false)),
        prompt_tokens: mean(&|r| r.prompt_tokens.unwrap_or_default() as f64),
        completion_tokens: mean(&|r| r.completion_tokens.unwrap_or_default() as f64),
    })
}
