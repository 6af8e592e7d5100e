//! The settings of a PEFT adapter, `adapter_config.json`: every field is honoured, or refused by
//! name with its value.

use super::config::Config;
use super::lora::{LoraConfig, Target, names};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that describe an adapter, or how it was trained, without changing what it computes.
const SAYS_NOTHING: [&str; 12] = [
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "inference_mode",
    "lora_dropout",
    "megatron_core",
    "megatron_config",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// Fields that are read below.
const READ: [&str; 9] = [
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "layers_to_transform",
    "layers_pattern",
];

/// What `adapter_config.json` asks for.
pub(super) struct Settings {
    /// Its defaults.
    pub(super) config: LoraConfig,
    /// Rank and scale of every module that must be there.
    pub(super) modules: BTreeMap<(usize, Target), (usize, f64)>,
}

impl Settings {
    /// Reads the fields of an `adapter_config.json` for a network of this shape.
    pub(super) fn parse(o: &Map<String, Value>, model: &Config) -> Result<Settings> {
        if o.get("peft_type").and_then(Value::as_str) != Some("LORA") {
            let found = o.get("peft_type").unwrap_or(&Value::Null);
            return Err(Error::invalid(format!("peft_type {found} is not supported")).hint("only LORA is"));
        }
        refuse_unsupported(o)?;
        let rank = whole(o, "r")?;
        let alpha = positive("`lora_alpha`", o.get("lora_alpha").unwrap_or(&Value::Null))?;
        let root = match o.get("use_rslora") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(root)) => *root,
            Some(other) => {
                return Err(Error::invalid(format!("`use_rslora` must be a boolean, found {other}")));
            }
        };
        let targets = targets(o, model)?;
        let layers = layers(o, model.layers)?;
        let ranks = pattern(o, "rank_pattern")?;
        let alphas = pattern(o, "alpha_pattern")?;
        let mut modules = BTreeMap::new();
        for layer in layers {
            for &target in targets.iter().filter(|t| t.is_in(model, layer)) {
                let module = format!("model.layers.{layer}.{}", target.path());
                let of = |patterns: &[(String, f64)]| {
                    patterns.iter().find(|(key, _)| is_suffix(&module, key)).map(|(_, value)| *value)
                };
                let rank = match of(&ranks) {
                    None => rank,
                    Some(r) if r >= 1.0 && r.fract() == 0.0 && r < 1e6 => r as usize,
                    Some(r) => return Err(Error::invalid(format!("`rank_pattern` has rank {r}"))),
                };
                let divisor = if root { (rank as f64).sqrt() } else { rank as f64 };
                modules.insert((layer, target), (rank, of(&alphas).unwrap_or(alpha) / divisor));
            }
        }
        Ok(Settings { config: LoraConfig { rank, alpha, targets }, modules })
    }
}

/// The part of a tensor's name from `layers.` on, whichever wrapper it was trained through.
pub(super) fn normalise(key: &str) -> &str {
    let mut rest = key.strip_prefix("base_model.model.").unwrap_or(key);
    for prefix in ["model.", "language_model.", "model."] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    rest
}

/// Whether PEFT's `key` names `module`: the whole of it, or its end after a dot.
fn is_suffix(module: &str, key: &str) -> bool {
    module.strip_suffix(key).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Refuses every field that is set and not honoured, known or unknown.
fn refuse_unsupported(o: &Map<String, Value>) -> Result<()> {
    for (key, value) in o {
        if READ.contains(&key.as_str()) {
            continue;
        }
        let off = match value {
            Value::Null => true,
            Value::Bool(on) => !on,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::String(text) if key == "bias" => text == "none",
            Value::String(text) if key == "init_lora_weights" => {
                // The others subtract something from the base weights, which this base has not had.
                ["gaussian", "eva", "orthogonal"].contains(&text.as_str())
            }
            _ => false,
        };
        let harmless =
            SAYS_NOTHING.contains(&key.as_str()) || key == "init_lora_weights" && value.is_boolean();
        if !off && !harmless {
            return Err(Error::invalid(format!("`{key}` = {value} is not supported")).hint(
                "plain LoRA is: r, lora_alpha, use_rslora, rank and alpha patterns, target modules, layers",
            ));
        }
    }
    Ok(())
}

fn whole(o: &Map<String, Value>, key: &str) -> Result<usize> {
    let found = o.get(key).unwrap_or(&Value::Null);
    match found.as_u64() {
        Some(n) if (1..=1 << 20).contains(&n) => Ok(n as usize),
        _ => Err(Error::invalid(format!("`{key}` must be a positive integer, found {found}"))
            .hint("take adapter_config.json from the adapter's original publication")),
    }
}

/// A scale: zero would switch the adapter off in silence, a negative one would turn it round.
fn positive(what: &str, found: &Value) -> Result<f64> {
    found.as_f64().filter(|x| *x > 0.0 && x.is_finite()).ok_or_else(|| {
        Error::invalid(format!("{what} must be a positive number, found {found}"))
            .hint("take adapter_config.json from the adapter's original publication")
    })
}

fn targets(o: &Map<String, Value>, model: &Config) -> Result<Vec<Target>> {
    let known = Target::of_network(model);
    let listed: Vec<&str> = match o.get("target_modules") {
        Some(Value::String(all)) if all == "all-linear" => return Ok(known),
        Some(Value::Array(items)) => items
            .iter()
            .map(|v| {
                v.as_str().ok_or_else(|| Error::invalid(format!("`target_modules` has {v}, not a name")))
            })
            .collect::<Result<_>>()?,
        Some(other) => {
            return Err(Error::invalid(format!("`target_modules` = {other} is not supported"))
                .hint("write the module names as a list, or \"all-linear\""));
        }
        None => return Err(Error::invalid("`target_modules` is missing")),
    };
    let mut targets = BTreeSet::new();
    for name in listed {
        let matching: Vec<Target> = known.iter().copied().filter(|t| is_suffix(t.path(), name)).collect();
        if matching.is_empty() {
            return Err(Error::invalid(format!(
                "`target_modules` has `{name}`, which is not in this network"
            ))
            .hint(format!("its modules are {}", names(&known))));
        }
        targets.extend(matching);
    }
    if targets.is_empty() {
        return Err(Error::invalid("`target_modules` is empty"));
    }
    Ok(targets.into_iter().collect())
}

fn layers(o: &Map<String, Value>, count: usize) -> Result<Vec<usize>> {
    let bad =
        |v: &Value| Error::invalid(format!("`layers_to_transform` has {v}; the model has {count} layers"));
    let index = |v: &Value| v.as_u64().map(|n| n as usize).filter(|n| *n < count).ok_or_else(|| bad(v));
    let layers = match o.get("layers_to_transform") {
        None | Some(Value::Null) => return Ok((0..count).collect()),
        Some(Value::Array(items)) => items.iter().map(index).collect::<Result<Vec<_>>>()?,
        Some(one) => vec![index(one)?],
    };
    match o.get("layers_pattern") {
        None | Some(Value::Null) => Ok(layers),
        Some(Value::String(name)) if name == "layers" => Ok(layers),
        Some(Value::Array(names)) if names.iter().all(|n| n == "layers") => Ok(layers),
        Some(other) => Err(Error::invalid(format!("`layers_pattern` = {other} is not supported"))),
    }
}

/// `rank_pattern` or `alpha_pattern`. Keys may be regular expressions in PEFT; only plain names are read.
fn pattern(o: &Map<String, Value>, field: &str) -> Result<Vec<(String, f64)>> {
    let fields = match o.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(Error::invalid(format!("`{field}` must be an object, found {other}"))),
    };
    let mut patterns = Vec::new();
    for (key, value) in fields {
        let name = normalise(key);
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            return Err(Error::invalid(format!("`{field}` key `{key}` is a pattern, not a module name"))
                .hint("write one entry for each module"));
        }
        let value = positive(&format!("`{field}` of `{key}`"), value)?;
        patterns.push((name.to_owned(), value));
    }
    Ok(patterns)
}
