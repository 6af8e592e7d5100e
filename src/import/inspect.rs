//! Inspect AI's logs, both of its formats: `.eval`, a zip of JSON files, and `.json`. Epochs are
//! rollouts, an error or a missing score is a null reward, and a limit is a finish reason.

use super::archive::Archive;
use super::json::Python;
use super::score::{self, Found};
use super::source::{self, Choices, Origin, Source, choose};
use crate::episode::ImportedRow;
use crate::error::{Error, Result};
use crate::hash;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::Path;

#[derive(Deserialize)]
struct Log {
    status: Option<String>,
    eval: Eval,
    samples: Option<Vec<Sample>>,
}

/// What a log says of its run.
#[derive(Deserialize)]
struct Eval {
    task: Option<String>,
    task_version: Option<Value>,
    model: Option<String>,
    created: Option<String>,
    packages: Option<BTreeMap<String, Value>>,
    config: Option<Map<String, Value>>,
    model_generate_config: Option<Map<String, Value>>,
    dataset: Option<DataSet>,
}

#[derive(Deserialize)]
struct DataSet {
    name: Option<String>,
    samples: Option<u64>,
}

/// What a log says of one attempt, in any of its shapes; all else in it is passed over.
#[derive(Deserialize)]
struct Sample {
    id: Value,
    epoch: Option<i64>,
    input: Option<Value>,
    scores: Option<BTreeMap<String, Score>>,
    error: Option<Broken>,
    limit: Option<Limit>,
    output: Option<Output>,
    model_usage: Option<BTreeMap<String, Usage>>,
    started_at: Option<String>,
    total_time: Option<f64>,
    invalidation: Option<Value>,
}

#[derive(Deserialize)]
struct Score {
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct Broken {
    message: Option<String>,
}

#[derive(Deserialize)]
struct Limit {
    r#type: Option<String>,
}

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    input_tokens_cache_write: Option<i64>,
    input_tokens_cache_read: Option<i64>,
    reasoning_tokens: Option<i64>,
}

/// Reads a `.json` log.
pub fn read_json(path: &Path, origin: Origin, choices: &Choices) -> Result<Source> {
    let shown = path.display().to_string();
    let stream = Python::new(BufReader::with_capacity(1 << 20, fs_err::File::open(path)?));
    let log: Log = serde_json::from_reader(stream).map_err(|e| {
        Error::invalid(format!("this is no whole Inspect log: {e}"))
            .at(&shown)
            .hint("it may be cut off or changed: copy it again, or let Inspect write it again")
    })?;
    let samples = log.samples.ok_or_else(|| {
        Error::invalid("the log holds no samples")
            .at(&shown)
            .hint("run Inspect with `--log-samples`, its default")
    })?;
    source_of(shown, origin, log.eval, log.status, samples, choices)
}

/// Reads an `.eval` log.
pub fn read_eval(path: &Path, origin: Origin, choices: &Choices) -> Result<Source> {
    let shown = path.display().to_string();
    let mut archive = Archive::open(path)?;
    // A run that was cut short has only what it wrote at its start.
    let header = ["header.json", "_journal/start.json"].into_iter().find(|name| archive.has(name));
    let Some(header) = header else {
        return Err(Error::invalid("this zip file is no Inspect log: it has no `header.json`")
            .at(&shown)
            .hint("give an `.eval` file as Inspect writes it"));
    };
    let log: Log = archive.json(header)?;
    let mut samples = Vec::new();
    for name in archive.names()?.into_iter().filter(|name| is_sample(name)) {
        samples.push(archive.json(&name)?);
    }
    source_of(shown, origin, log.eval, log.status, samples, choices)
}

/// `samples/<id>_epoch_<n>.json`, or the `sample.json` of a sample that is kept in pieces.
fn is_sample(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("samples/") else { return false };
    let stem = rest.strip_suffix("/sample.json").or_else(|| rest.strip_suffix(".json"));
    let epoch = stem.and_then(|stem| stem.rsplit_once("_epoch_")).map(|(_, epoch)| epoch);
    epoch.is_some_and(|epoch| !epoch.is_empty() && epoch.bytes().all(|b| b.is_ascii_digit()))
}

fn source_of(
    path: String,
    origin: Origin,
    eval: Eval,
    status: Option<String>,
    samples: Vec<Sample>,
    choices: &Choices,
) -> Result<Source> {
    if samples.is_empty() {
        return Err(Error::invalid("the log holds no samples")
            .at(path)
            .hint("give a log of a run that finished at least one sample"));
    }
    let offered: BTreeSet<String> = samples.iter().flat_map(|sample| score::names(scores(sample))).collect();
    let metric = choose("metric", choices.metric.as_deref(), &offered, &path)?;
    let mut source =
        Source { path, unit: "sample", origin: described(origin, &eval, status, choices), rows: Vec::new() };
    source.origin.metric = metric.clone();
    source.origin.mapping = mapping(metric.as_deref(), choices);
    source.origin.counts.read = samples.len();
    if let Some(planned) = eval.dataset.as_ref().and_then(|d| d.samples) {
        source.origin.settings.insert("dataset_samples".into(), planned.into());
    }
    for (i, sample) in samples.into_iter().enumerate() {
        let row = row(&source, &eval, sample, i + 1, metric.as_deref(), choices)?;
        source.rows.push(row);
    }
    Ok(source)
}

fn scores(sample: &Sample) -> impl Iterator<Item = (&str, &Value)> {
    sample.scores.iter().flatten().map(|(name, score)| (name.as_str(), &score.value))
}

fn described(origin: Origin, eval: &Eval, status: Option<String>, choices: &Choices) -> Origin {
    let version = eval.packages.as_ref().and_then(|p| p.get("inspect_ai")).and_then(Value::as_str);
    let mut settings = Map::new();
    let config =
        |from: &Option<Map<String, Value>>, key: &str| from.as_ref().and_then(|c| c.get(key)).cloned();
    for (name, value) in [
        ("dataset", eval.dataset.as_ref().and_then(|d| d.name.clone()).map(Value::from)),
        ("epochs", config(&eval.config, "epochs")),
        ("sample_shuffle", config(&eval.config, "sample_shuffle")),
        ("model_seed", config(&eval.model_generate_config, "seed")),
        ("temperature", config(&eval.model_generate_config, "temperature")),
        ("max_tokens", config(&eval.model_generate_config, "max_tokens")),
    ] {
        if let Some(value) = value.filter(|v| !v.is_null()) {
            settings.insert(name.into(), value);
        }
    }
    Origin {
        format: "inspect",
        program: Some("inspect_ai".into()),
        program_version: version.map(String::from),
        model: eval.model.clone(),
        task: eval.task.clone(),
        task_version: eval.task_version.as_ref().filter(|v| !v.is_null()).map(plain),
        date: eval.created.clone(),
        status: Some(status.unwrap_or_else(|| "started".into())),
        settings,
        scale: choices.scale,
        solved_from: choices.solved_from,
        ..origin
    }
}

/// A value as text: a text without its quotation marks.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

fn mapping(metric: Option<&str>, choices: &Choices) -> BTreeMap<&'static str, String> {
    let reward = match metric {
        Some(name) => format!(
            "score `{name}` as Inspect's `value_to_float` has it: C, yes, true = 1, P = 0.5, I, N, no, false = 0, numbers as they are{}; null for an error, an invalidated sample, NaN (unscored), or no score",
            choices.scaled()
        ),
        None => "null: no sample has a score".into(),
    };
    BTreeMap::from([
        ("task_id", "eval.task / sample.id".into()),
        ("task_sha256", "sample.input, as canonical JSON".into()),
        ("family", "eval.task".into()),
        ("model", "eval.model".into()),
        ("rollout", "sample.epoch - 1".into()),
        ("reward", reward),
        ("solved", choices.judged(Some("true for C, yes and true, false for P, I, N, no and false"))),
        ("finish_reason", "`infra_error` for an error, else `<limit>_limit` for a limit, else output.choices[0].stop_reason".into()),
        ("prompt_tokens", "model_usage of eval.model: input tokens, cached ones included".into()),
        ("completion_tokens", "model_usage of eval.model: output_tokens".into()),
        ("think_tokens", "model_usage of eval.model: reasoning_tokens".into()),
        ("wall_ms", "sample.total_time × 1000".into()),
        ("started_at", "sample.started_at".into()),
        ("error", "sample.error.message".into()),
    ])
}

fn row(
    source: &Source,
    eval: &Eval,
    sample: Sample,
    number: usize,
    metric: Option<&str>,
    choices: &Choices,
) -> Result<ImportedRow> {
    let place = || {
        format!(
            "{}: sample {number} (`{}`, epoch {})",
            source.path,
            plain(&sample.id),
            sample.epoch.unwrap_or(1)
        )
    };
    let bad = |what: String| Error::invalid(what).at(place()).hint("let Inspect write the log again");
    let id = match &sample.id {
        Value::String(text) if !text.is_empty() => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(bad("the sample has no id".into())),
    };
    let task = eval.task.as_deref().map_or_else(|| id.clone(), |task| format!("{task}/{id}"));
    let rollout = match sample.epoch {
        Some(epoch) if epoch >= 1 => Some(epoch - 1),
        Some(epoch) => return Err(bad(format!("the epoch is {epoch}, and they count from 1"))),
        None => None,
    };
    let broken = sample.error.is_some() || sample.invalidation.as_ref().is_some_and(|v| !v.is_null());
    let found = match metric.map(|name| (name, score::find(scores(&sample), name))) {
        Some((name, Some(value))) if !broken => {
            let found = score::found(value).map_err(|why| {
                Error::invalid(format!("score `{name}` {why}"))
                    .at(place())
                    .hint("choose another --metric, or let the scorer give C, P, I, N or a number")
            })?;
            match found {
                Found::Missing => None,
                Found::Judged { reward, solved } => Some((reward, Some(solved))),
                Found::Number(number) => Some((choices.reward(name, number, place)?, None)),
            }
        }
        _ => None,
    };
    let usage =
        sample.model_usage.as_ref().zip(eval.model.as_ref()).and_then(|(usage, model)| usage.get(model));
    let prompt = usage.and_then(|u| {
        [u.input_tokens_cache_read, u.input_tokens_cache_write]
            .into_iter()
            .flatten()
            .try_fold(u.input_tokens?, i64::checked_add)
    });
    let error = match (&sample.error, broken) {
        (Some(error), _) => {
            Some(error.message.clone().unwrap_or_else(|| "an error without a message".into()))
        }
        (None, true) => Some("the sample was invalidated".into()),
        (None, false) => None,
    };
    let finish_reason = match (&sample.error, &sample.limit) {
        (Some(_), _) => Some("infra_error".into()),
        (None, Some(limit)) => Some(format!("{}_limit", limit.r#type.as_deref().unwrap_or("unnamed"))),
        (None, None) => sample.output.as_ref().and_then(|o| o.choices.first()?.stop_reason.clone()),
    };
    let milliseconds = sample.total_time.map(|s| (s * 1000.0).round()).filter(|ms| (0.0..9e15).contains(ms));
    let reward = found.map(|(reward, _)| reward);
    Ok(ImportedRow {
        model: eval.model.clone(),
        family: eval.task.clone(),
        task_sha256: sample.input.as_ref().map(hash::sha256_json).transpose()?,
        rollout,
        reward,
        solved: choices.solved(found.and_then(|(_, solved)| solved), reward),
        finish_reason,
        prompt_tokens: prompt,
        completion_tokens: usage.and_then(|u| u.output_tokens),
        think_tokens: usage.and_then(|u| u.reasoning_tokens),
        wall_ms: milliseconds.map(|ms| ms as i64),
        started_at: sample.started_at.clone(),
        error,
        ..source::blank(&source.origin.file, number, task)
    })
}
