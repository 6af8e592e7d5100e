//! The settings of a PEFT adapter, `adapter_config.json`: every field is honoured, or refused by
//! name with its value and a remedy.

use super::config::Config;
use super::lora::{LoraConfig, Target, names};
use super::peft_match::{Layers, Modules, Pattern, is_end};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that describe an adapter, or how it was trained, without changing what it computes.
const SAYS_NOTHING: [&str; 13] = [
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "eva_config",
    "inference_mode",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// Fields that are read below.
const READ: [&str; 10] = [
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
];

/// What to do about a field that is not honoured.
const REMEDIES: [(&str, &str); 17] = [
    (
        "use_dora",
        "DoRA scales whole columns: merge it with PEFT's `merge_and_unload` and use the result as a model",
    ),
    ("bias", "trained biases are not supported: merge the adapter with PEFT, or train with `bias=\"none\"`"),
    ("lora_bias", "trained biases are not supported: merge the adapter with PEFT, or train without"),
    (
        "modules_to_save",
        "whole trained modules are not supported: merge the adapter with PEFT's `merge_and_unload`",
    ),
    (
        "trainable_token_indices",
        "trained embeddings are not supported: merge the adapter with PEFT's `merge_and_unload`",
    ),
    (
        "fan_in_fan_out",
        "it is for transposed weights, which no network here has: set it to false if the adapter is for one of these",
    ),
    (
        "megatron_config",
        "Megatron's parallel layers are not supported: convert the adapter to one of a transformers model",
    ),
    ("layer_replication", "repeated layers are not supported: build that model first, and train on it"),
    ("target_parameters", "adapters on bare parameters are not supported: name modules in `target_modules`"),
    ("alora_invocation_tokens", "an adapter that waits for tokens is not supported: train a plain LoRA"),
    ("arrow_config", "routing between adapters is not supported: choose one of them"),
    ("use_qalora", "QA-LoRA pools its inputs: merge the adapter with PEFT, or train a plain LoRA"),
    (
        "use_bdlora",
        "block-diagonal factors are not supported: merge the adapter with PEFT, or train a plain LoRA",
    ),
    (
        "corda_config",
        "save it again with PEFT's `save_pretrained(…, path_initial_model_for_weight_conversion=…)`, as a plain LoRA",
    ),
    ("loftq_config", "LoftQ changes the base as well: use that base as the model, and remove the field"),
    ("kasa_config", "merge the adapter with PEFT's `merge_and_unload`, or train a plain LoRA"),
    (
        "init_lora_weights",
        "this start changes the base weights: save the adapter with PEFT's `save_pretrained(…, path_initial_model_for_weight_conversion=…)`, which makes it a plain LoRA",
    ),
];

/// What `adapter_config.json` asks for, before it is known which modules the base has.
pub(super) struct Settings {
    rank: usize,
    alpha: f64,
    root: bool,
    targets: Modules,
    excluded: Option<Modules>,
    layers: Option<Layers>,
    ranks: Vec<(Pattern, f64)>,
    alphas: Vec<(Pattern, f64)>,
}

/// The modules that an adapter changes.
pub(super) struct Adapted {
    /// Rank, alpha and targets that the file names as its defaults.
    pub(super) config: LoraConfig,
    /// Rank and scale of every module that must be there.
    pub(super) modules: BTreeMap<(usize, Target), (usize, f64)>,
}

impl Settings {
    /// Reads the fields of an `adapter_config.json` for a network of this shape.
    pub(super) fn parse(o: &Map<String, Value>, model: &Config) -> Result<Settings> {
        if o.get("peft_type").and_then(Value::as_str) != Some("LORA") {
            let found = o.get("peft_type").unwrap_or(&Value::Null);
            return Err(Error::invalid(format!("peft_type {found} is not supported"))
                .hint("only LORA is: merge the adapter with PEFT, and use the result as a model"));
        }
        refuse_unsupported(o)?;
        let root = match o.get("use_rslora") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(root)) => *root,
            Some(other) => {
                return Err(Error::invalid(format!("`use_rslora` must be a boolean, found {other}")));
            }
        };
        let targets = Modules::parse("target_modules", o.get("target_modules"))?.ok_or_else(|| {
            Error::invalid("`target_modules` is missing or empty")
                .hint("take adapter_config.json from the adapter's original publication")
        })?;
        let layers =
            Layers::parse(o.get("layers_to_transform"), o.get("layers_pattern"), &targets, model.layers)?;
        let excluded = Modules::parse("exclude_modules", o.get("exclude_modules"))?;
        Ok(Settings {
            rank: whole(o, "r")?,
            alpha: positive("`lora_alpha`", o.get("lora_alpha").unwrap_or(&Value::Null))?,
            root,
            targets,
            excluded,
            layers,
            ranks: patterns(o, "rank_pattern")?,
            alphas: patterns(o, "alpha_pattern")?,
        })
    }

    /// The modules that these settings mean in a network whose decoder layers stand under `stem`.
    pub(super) fn modules(&self, model: &Config, stem: &str) -> Result<Adapted> {
        let paths: Vec<(usize, Target, String)> = (0..model.layers)
            .flat_map(|layer| {
                Target::of(model, layer)
                    .map(move |target| (layer, target, format!("{stem}layers.{layer}.{}", target.path())))
            })
            .collect();
        self.each_name_is_known(model, &paths)?;
        let mut modules = BTreeMap::new();
        for (layer, target, path) in &paths {
            let meant = self.targets.fits(path)?
                && !self.excluded.as_ref().map_or(Ok(false), |e| e.fits(path))?
                && self.layers.as_ref().map_or(Ok(true), |l| l.fits(path, *layer))?;
            if !meant {
                continue;
            }
            let rank = match first(&self.ranks, path)? {
                None => self.rank,
                Some(r) if r >= 1.0 && r.fract() == 0.0 && r < 1e6 => r as usize,
                Some(r) => return Err(Error::invalid(format!("`rank_pattern` has rank {r}"))),
            };
            let divisor = if self.root { (rank as f64).sqrt() } else { rank as f64 };
            let alpha = first(&self.alphas, path)?.unwrap_or(self.alpha);
            modules.insert((*layer, *target), (rank, alpha / divisor));
        }
        let targets: BTreeSet<Target> = modules.keys().map(|(_, target)| *target).collect();
        if targets.is_empty() {
            return Err(Error::invalid(
                "`target_modules`, `exclude_modules`, `layers_to_transform` and `layers_pattern` leave no module of this network",
            )
            .hint(format!("its modules are {}, such as `{}`", names(&Target::of_network(model)), paths[0].2)));
        }
        let config =
            LoraConfig { rank: self.rank, alpha: self.alpha, targets: targets.into_iter().collect() };
        Ok(Adapted { config, modules })
    }

    /// A name that means nothing here would leave out what the adapter was trained on.
    fn each_name_is_known(&self, model: &Config, paths: &[(usize, Target, String)]) -> Result<()> {
        let known = || names(&Target::of_network(model));
        if let Modules::Names(listed) = &self.targets
            && let Some(name) = listed.iter().find(|name| !paths.iter().any(|(.., path)| is_end(path, name)))
        {
            return Err(Error::invalid(format!(
                "`target_modules` has `{name}`, which is not in this network"
            ))
            .hint(format!("its modules are {}", known())));
        }
        for (field, patterns) in [("rank_pattern", &self.ranks), ("alpha_pattern", &self.alphas)] {
            for (pattern, _) in patterns {
                let mut found = false;
                for (.., path) in paths {
                    found |= fits(pattern, path)?;
                }
                if !found {
                    return Err(Error::invalid(format!(
                        "`{field}` has `{}`, which is not in this network",
                        pattern.text
                    ))
                    .hint(format!(
                        "its modules are {}, such as `{}`",
                        known(),
                        paths[0].2
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Whether a key of `rank_pattern` or `alpha_pattern` means the module of this path. Plain names from another
/// wrapper of the same network count.
fn fits(pattern: &Pattern, path: &str) -> Result<bool> {
    Ok(pattern.fits(path)? || is_end(path, &pattern.text))
}

/// The value of the first pattern that means this module.
fn first(patterns: &[(Pattern, f64)], path: &str) -> Result<Option<f64>> {
    for (pattern, value) in patterns {
        if fits(pattern, path)? {
            return Ok(Some(*value));
        }
    }
    Ok(None)
}

/// Refuses every field that is set and not honoured, known or unknown.
fn refuse_unsupported(o: &Map<String, Value>) -> Result<()> {
    for (key, value) in o {
        if READ.contains(&key.as_str()) {
            continue;
        }
        let off = match value {
            Value::Null => true,
            Value::Bool(on) => !on || key == "init_lora_weights",
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::String(text) if key == "bias" => text == "none",
            // The others take something away from the base weights, which this base still has.
            Value::String(text) if key == "init_lora_weights" => {
                ["gaussian", "eva", "orthogonal"].contains(&text.as_str())
            }
            _ => false,
        };
        if off || SAYS_NOTHING.contains(&key.as_str()) {
            continue;
        }
        let remedy = REMEDIES.iter().find(|(field, _)| field == key).map_or(
            "plain LoRA is: r, lora_alpha, use_rslora, rank and alpha patterns, modules, layers; merge the adapter with PEFT",
            |(_, remedy)| remedy,
        );
        return Err(Error::invalid(format!("`{key}` = {value} is not supported")).hint(remedy));
    }
    Ok(())
}

fn whole(o: &Map<String, Value>, key: &str) -> Result<usize> {
    let found = o.get(key).unwrap_or(&Value::Null);
    match found.as_u64() {
        Some(n) if (1..=1 << 20).contains(&n) => Ok(n as usize),
        _ => Err(Error::invalid(format!("`{key}` must be an integer from 1 to 1048576, found {found}"))
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

/// `rank_pattern` or `alpha_pattern`, in the order of the file: the first that fits counts.
fn patterns(o: &Map<String, Value>, field: &'static str) -> Result<Vec<(Pattern, f64)>> {
    match o.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(fields)) => fields
            .iter()
            .map(|(key, value)| {
                Ok((Pattern::end(field, key)?, positive(&format!("`{field}` of `{key}`"), value)?))
            })
            .collect(),
        Some(other) => Err(Error::invalid(format!("`{field}` must be an object, found {other}"))
            .hint("write module names with their values, such as {\"q_proj\": 8}")),
    }
}
