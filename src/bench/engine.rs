//! `bench engine`: how fast the local engine decodes, reads prompts, and keeps its slots full, how
//! long it takes to start, and how much memory it holds. The prompts are random ids without
//! common prefixes, so that nothing is gained by sharing, and completions have a set length.

use super::machine;
use crate::engine::local::{Engine, MOST_SLOTS, Options, main_memory_bytes};
use crate::engine::{Backend, Request, Sampling, Stream};
use crate::error::{Error, Result};
use crate::model::{Config, Model, Processor, Source, Target};
use crate::philox::Philox;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "engine", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// New tokens of calls that all run at once.
    Decode,
    /// One long prompt.
    Prefill,
    /// Calls of many lengths: slots filled again as they fall free, against groups that wait for their longest.
    Mixed,
}

/// What to measure, and how often.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name, folder or file of a model; or the config of one with random weights.
    pub model: ModelChoice,
    /// Where it computes.
    pub processor: Processor,
    /// What is measured.
    pub what: Vec<What>,
    /// Calls that run side by side, one measurement each.
    pub batch: Vec<usize>,
    /// Tokens of a prompt.
    pub prompt: usize,
    /// Tokens of a completion.
    pub new: usize,
    /// Tokens of the long prompt of `prefill`.
    pub long_prompt: usize,
    /// Timed runs of each, after one that warms up.
    pub runs: usize,
    /// Whether a card records its steps.
    pub record_steps: bool,
}

/// Whose speed is measured.
#[derive(Debug, Clone)]
pub enum ModelChoice {
    /// A model with its weights.
    Known(Source),
    /// A `config.json`, with random weights.
    Random(PathBuf),
}

/// Start-up, from the loading of the model to the first token.
#[derive(Debug, Clone, Serialize)]
pub struct Startup {
    /// Always `startup`.
    pub what: &'static str,
    /// Seconds until the weights were where they compute.
    pub load_s: f64,
    /// Seconds to make the engine.
    pub engine_s: f64,
    /// Seconds from submitting a prompt to its first token.
    pub first_token_s: f64,
    /// Seconds in all.
    pub total_s: f64,
}

/// One measurement; the fastest run speaks, all are kept.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// What was measured.
    pub what: What,
    /// Calls side by side.
    pub batch: usize,
    /// Tokens of a prompt (the mean, in `mixed`).
    pub prompt: usize,
    /// Tokens of a completion (the mean, in `mixed`).
    pub new: usize,
    /// Milliseconds of a decode step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_ms: Option<f64>,
    /// Tokens a second: of completions in `decode` and `mixed`, of the prompt in `prefill`.
    pub tokens_per_s: f64,
    /// Completion tokens a second with the reading of prompts counted in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens_per_s: Option<f64>,
    /// `mixed`: the same calls in groups that wait for their longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_tokens_per_s: Option<f64>,
    /// Seconds of each run: reading the prompts.
    pub prefill_s: Vec<f64>,
    /// Seconds of a decode step, in each run.
    pub step_s: Vec<f64>,
    /// `mixed`: seconds of each run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_s: Vec<f64>,
    /// Weights, pools and workspace of the engine, in bytes.
    pub planned_bytes: u64,
    /// Greatest resident memory of the process, in bytes.
    pub peak_resident_bytes: Option<u64>,
    /// Memory in use on the card, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_bytes: Option<u64>,
    /// The first ids of the first call, so that runs can be compared.
    pub first_ids: Vec<u32>,
}

/// What all rows of one command share.
#[derive(Debug, Clone, Serialize)]
pub struct Head {
    /// Always `rederive`.
    pub engine: &'static str,
    /// Version of this crate.
    pub version: &'static str,
    /// Model or config.
    pub model: String,
    /// Type of the weights in the source.
    pub stored: String,
    /// Arithmetic type.
    pub dtype: &'static str,
    /// Processor or card.
    pub machine: Option<String>,
    /// Threads.
    pub threads: usize,
    /// Load of the machine before.
    pub load_before: Option<f64>,
}

/// Refuses a plan that cannot be measured, before a model is loaded.
pub fn check(plan: &Plan) -> Result<()> {
    let bad = |field: &str, what: String, hint: &str| Err(Error::invalid(what).at(field).hint(hint));
    for (field, value, least) in [
        ("--runs", plan.runs, 1),
        ("--new", plan.new, 2),
        ("--prompt", plan.prompt, 1),
        ("--long-prompt", plan.long_prompt, 1),
    ] {
        if !(least..=MOST_TOKENS).contains(&value) {
            return bad(
                field,
                format!("{value} is not in {least}..={MOST_TOKENS}"),
                "leave it out to take the default",
            );
        }
    }
    match plan.batch.iter().find(|batch| !(1..=MOST_SLOTS).contains(*batch)) {
        Some(batch) => bad("--batch", format!("{batch} is not in 1..={MOST_SLOTS}"), "such as 1,16,256"),
        None => Ok(()),
    }
}

/// Longest prompt or completion that is measured.
const MOST_TOKENS: usize = 1 << 20;

/// Refuses a config whose weights main memory does not hold.
fn check_size(path: &Path, processor: Processor) -> Result<()> {
    let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let config = Config::parse(&fs_err::read_to_string(&path)?, &path.display().to_string())?;
    let matrices = (0..config.layers).flat_map(|layer| Target::of(&config, layer)).map(|t| t.shape(&config));
    let table = (config.vocab, config.hidden);
    let numbers: u128 = matrices.chain([table, table]).map(|(out, inner)| out as u128 * inner as u128).sum();
    let needed = numbers * size_of::<f32>() as u128;
    match (processor, main_memory_bytes()) {
        (Processor::Cpu, Some(memory)) if needed > u128::from(memory) => Err(Error::invalid(format!(
            "the weights take {} GiB, and this machine has {} GiB",
            needed >> 30,
            memory >> 30
        ))
        .at(path.display())
        .hint("take a smaller shape, or a machine with more memory")),
        _ => Ok(()),
    }
}

/// A model, loaded.
pub fn load(plan: &Plan) -> Result<Arc<Model>> {
    if let ModelChoice::Random(path) = &plan.model {
        check_size(path, plan.processor)?;
    }
    Ok(Arc::new(match &plan.model {
        ModelChoice::Known(source) => Model::load_on(source, plan.processor)?,
        ModelChoice::Random(path) => Model::random(path, plan.processor, 1)?,
    }))
}

/// What the rows of a plan share.
pub fn head(model: &Model) -> Head {
    let machine = match &model.compute {
        crate::model::Compute::Cpu(_) => machine::processor_name(),
        #[cfg(feature = "cuda")]
        crate::model::Compute::Cuda(network) => Some(network.gpu().name.clone()),
    };
    Head {
        engine: "rederive",
        version: env!("CARGO_PKG_VERSION"),
        model: model.origin.name.clone(),
        stored: model.origin.stored.clone(),
        dtype: model.origin.dtype,
        machine,
        threads: rayon::current_num_threads(),
        load_before: machine::load(),
    }
}

/// Loads the model, makes an engine for one call, and waits for its first token.
pub fn startup(plan: &Plan) -> Result<(Arc<Model>, Startup)> {
    let start = Instant::now();
    let model = load(plan)?;
    let load_s = start.elapsed().as_secs_f64();
    let mut engine = engine(&model, 1, plan.prompt + 2, plan)?;
    let engine_s = start.elapsed().as_secs_f64() - load_s;
    submit(&mut engine, 0, plan.prompt, 1)?;
    finish(&mut engine)?;
    let total_s = start.elapsed().as_secs_f64();
    let first_token_s = total_s - load_s - engine_s;
    Ok((model, Startup { what: "startup", load_s, engine_s, first_token_s, total_s }))
}

/// One measurement of `what` with `batch` calls side by side.
pub fn measure(model: &Arc<Model>, plan: &Plan, what: What, batch: usize) -> Result<Measurement> {
    check(plan)?;
    match what {
        What::Decode => fixed(model, plan, what, batch, plan.prompt, plan.new),
        What::Prefill => fixed(model, plan, what, 1, plan.long_prompt, 2),
        What::Mixed => mixed(model, plan, batch),
    }
}

/// `batch` calls of equal lengths, all at once: first their prompts, then steps in which all of them decode.
fn fixed(
    model: &Arc<Model>,
    plan: &Plan,
    what: What,
    batch: usize,
    prompt: usize,
    new: usize,
) -> Result<Measurement> {
    // Calls whose prompts are read first draw tokens until the last prompt is read; none may end by then.
    let ahead = (batch * prompt).div_ceil(Engine::rows_of_a_step(model, batch)) + 2;
    let mut engine = engine(model, batch, prompt + new + ahead, plan)?;
    let (mut prefill_s, mut step_s, mut first_ids) = (Vec::new(), Vec::new(), Vec::new());
    let steps = new - 1;
    for run in 0..=plan.runs {
        let first = (run * batch) as u64;
        for call in 0..batch {
            submit(&mut engine, first + call as u64, prompt, new + ahead)?;
        }
        let read = engine.counters().prefill_tokens + (batch * prompt) as u64;
        let start = Instant::now();
        while engine.counters().prefill_tokens < read {
            engine.step()?;
        }
        let prefill = start.elapsed().as_secs_f64();
        for _ in 0..steps {
            engine.step()?;
        }
        let decode = start.elapsed().as_secs_f64() - prefill;
        if run > 0 {
            prefill_s.push(prefill);
            step_s.push(decode / steps as f64);
        }
        first_ids = engine.sampled(first).map(|so_far| so_far.tokens.to_vec()).unwrap_or_default();
        for call in 0..batch {
            engine.cancel(first + call as u64);
        }
    }
    first_ids.truncate(8);
    let best = |s: &[f64]| s.iter().copied().fold(f64::INFINITY, f64::min);
    let total = best(&prefill_s) + best(&step_s) * steps as f64;
    let decoding = batch as f64 / best(&step_s);
    Ok(Measurement {
        what,
        batch,
        prompt,
        new,
        step_ms: (what == What::Decode).then(|| best(&step_s) * 1e3),
        tokens_per_s: if what == What::Prefill { prompt as f64 / best(&prefill_s) } else { decoding },
        total_tokens_per_s: (what == What::Decode).then(|| (batch * new) as f64 / total),
        static_tokens_per_s: None,
        prefill_s,
        step_s,
        run_s: Vec::new(),
        planned_bytes: engine.memory_plan().total_bytes(),
        peak_resident_bytes: machine::peak_memory(),
        card_bytes: card_bytes(model)?,
        first_ids,
    })
}

/// Eight times as many calls as slots, prompts and completions of a quarter to twice the plan's lengths.
fn mixed(model: &Arc<Model>, plan: &Plan, batch: usize) -> Result<Measurement> {
    let mut lengths = Philox::named("bench/mixed");
    let mut between = |mean: usize| (mean / 4).max(2) + lengths.below((mean * 7 / 4).max(1));
    let calls: Vec<(usize, usize)> =
        (0..8 * batch).map(|_| (between(plan.prompt), between(plan.new))).collect();
    let longest = calls.iter().map(|(p, n)| p + n).max().unwrap_or(0);
    let tokens: usize = calls.iter().map(|(_, n)| n).sum();
    let mut engine = engine(model, batch, longest, plan)?;
    let mut id = 0;
    let mut seconds = [Vec::new(), Vec::new()];
    for run in 0..=plan.runs {
        for (grouped, seconds) in seconds.iter_mut().enumerate() {
            let start = Instant::now();
            for group in calls.chunks(if grouped == 1 { batch } else { calls.len() }) {
                for (prompt, new) in group {
                    submit(&mut engine, id, *prompt, *new)?;
                    id += 1;
                }
                finish(&mut engine)?;
            }
            if run > 0 {
                seconds.push(start.elapsed().as_secs_f64());
            }
        }
    }
    let [continuous, grouped] = seconds;
    let rate = |s: &[f64]| tokens as f64 / s.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Measurement {
        what: What::Mixed,
        batch,
        prompt: calls.iter().map(|(p, _)| p).sum::<usize>() / calls.len(),
        new: tokens / calls.len(),
        step_ms: None,
        tokens_per_s: rate(&continuous),
        total_tokens_per_s: None,
        static_tokens_per_s: Some(rate(&grouped)),
        prefill_s: Vec::new(),
        step_s: Vec::new(),
        run_s: continuous,
        planned_bytes: engine.memory_plan().total_bytes(),
        peak_resident_bytes: machine::peak_memory(),
        card_bytes: card_bytes(model)?,
        first_ids: Vec::new(),
    })
}

fn engine(model: &Arc<Model>, slots: usize, context: usize, plan: &Plan) -> Result<Engine> {
    let options = Options {
        kept: 0,
        share_prefixes: false,
        stop_at_ends: false,
        record_steps: plan.record_steps,
        ..Options::new(slots, context)
    };
    Engine::new(model.clone(), options)
}

fn submit(engine: &mut Engine, id: u64, prompt: usize, new: usize) -> Result<()> {
    let vocab = engine.model().config.vocab;
    let mut ids = Philox::named(&format!("bench/{id}"));
    let tokens = (0..prompt).map(|_| ids.below(vocab) as u32).collect();
    let stream = Stream { seed: 0, task_id: String::new(), rollout: 0, turn: 0 };
    engine.submit(Request { id, tokens, adapter: None, sampling: Sampling::greedy(new), stream })
}

/// Runs all calls to their ends: id and sampled ids of each.
fn finish(engine: &mut Engine) -> Result<Vec<(u64, Vec<u32>)>> {
    let mut done = Vec::new();
    while engine.in_flight() > 0 {
        done.extend(engine.step()?.into_iter().map(|c| (c.id, c.tokens)));
    }
    Ok(done)
}

#[cfg_attr(not(feature = "cuda"), allow(clippy::unnecessary_wraps))]
fn card_bytes(model: &Model) -> Result<Option<u64>> {
    match &model.compute {
        crate::model::Compute::Cpu(_) => Ok(None),
        #[cfg(feature = "cuda")]
        crate::model::Compute::Cuda(network) => {
            let (free, total) = network.gpu().memory()?;
            Ok(Some(total - free))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_of_a_small_network_has_its_numbers() {
        let config = crate::model::testing::fixtures().join("qwen3_5_tied");
        let plan = Plan {
            model: ModelChoice::Random(config),
            processor: Processor::Cpu,
            what: vec![What::Decode, What::Prefill, What::Mixed],
            batch: vec![1, 3],
            prompt: 8,
            new: 6,
            long_prompt: 40,
            runs: 2,
            record_steps: true,
        };
        let (model, startup) = startup(&plan).unwrap();
        assert!(startup.total_s >= startup.load_s && startup.first_token_s > 0.0);
        for what in plan.what.clone() {
            for batch in plan.batch.clone() {
                let row = measure(&model, &plan, what, batch).unwrap();
                assert!(row.tokens_per_s > 0.0 && row.planned_bytes > 0, "{row:?}");
                assert_eq!(if what == What::Mixed { row.run_s.len() } else { row.step_s.len() }, 2);
                assert_eq!(row.step_ms.is_some(), what == What::Decode);
                assert_eq!(row.static_tokens_per_s.is_some(), what == What::Mixed);
                assert!(
                    what == What::Mixed || row.first_ids.len() == if what == What::Decode { 6 } else { 2 }
                );
            }
        }
        for (wrong, field) in [
            (Plan { runs: 0, ..plan.clone() }, "--runs"),
            (Plan { new: 1, ..plan.clone() }, "--new"),
            (Plan { prompt: usize::MAX, ..plan.clone() }, "--prompt"),
            (Plan { long_prompt: 0, ..plan.clone() }, "--long-prompt"),
            (Plan { batch: vec![1, 0], ..plan.clone() }, "--batch"),
        ] {
            let error = measure(&model, &wrong, What::Decode, 1).unwrap_err().to_string();
            assert!(error.starts_with(field) && error.contains("hint"), "{error}");
        }
    }

    #[test]
    fn a_shape_that_no_memory_holds_is_refused_before_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let config = fs_err::read_to_string(crate::model::testing::fixtures().join("llama_tied/config.json"));
        let mut config: serde_json::Value = serde_json::from_str(&config.unwrap()).unwrap();
        for (field, value) in
            [("hidden_size", 1u64 << 24), ("intermediate_size", 1 << 28), ("vocab_size", 1 << 30)]
        {
            config[field] = value.into();
        }
        config["head_dim"] = 64.into();
        fs_err::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let error = check_size(folder.path(), Processor::Cpu).unwrap_err().to_string();
        assert!(error.contains("GiB") && error.contains("smaller shape"), "{error}");
    }
}
