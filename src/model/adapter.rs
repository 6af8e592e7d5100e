//! Adapters on disk in PEFT's format. Loading honours every field of `adapter_config.json`
//! or refuses it by name, consumes every tensor, and demands every module: an adapter whose
//! names match nothing would otherwise be the base model in disguise.

use super::config::Config;
use super::lora::{Lora, LoraConfig, Pair, Target};
use super::safetensors;
use crate::error::{Error, Result};
use crate::hash;
use candle_core::safetensors::load_buffer;
use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
/// Name of the weights file in an adapter folder.
pub const WEIGHTS: &str = "adapter_model.safetensors";

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

/// Reads a PEFT LoRA adapter for a network of this shape.
pub fn load(folder: &Path, model: &Config) -> Result<Lora> {
    let path = folder.join(CONFIG);
    let place = path.display().to_string();
    let text = fs_err::read_to_string(&path)?;
    let value: Value =
        serde_json::from_str(&text).map_err(|e| Error::invalid(format!("is not JSON: {e}")).at(&place))?;
    let object = value.as_object().ok_or_else(|| Error::invalid("is not a JSON object").at(&place))?;
    let settings = Settings::parse(object, model).map_err(|e| e.at(&place))?;

    let path = folder.join(WEIGHTS);
    let bytes = fs_err::read(&path)?;
    let tensors = load_buffer(&bytes, &Device::Cpu)
        .map_err(|e| Error::invalid(format!("is not a valid safetensors file: {e}")).at(path.display()))?;
    let mut lora = settings.fill(tensors.into_iter().collect(), model).map_err(|e| e.at(path.display()))?;
    lora.sha256 = Some(hash::sha256_hex(&bytes));
    Ok(lora)
}

/// Writes an adapter so that PEFT and [`load`] read it back: returns the SHA-256 of its weights.
/// `base` is the name or path of the base model.
pub fn save(folder: &Path, lora: &Lora, base: &str) -> Result<String> {
    let mut ranks = BTreeMap::new();
    let mut alphas = BTreeMap::new();
    for (layer, target, pair) in lora.pairs() {
        let rank = pair.a.dim(0)?;
        let module = format!("layers.{layer}.{}", target.path());
        if rank != lora.config.rank {
            ranks.insert(module.clone(), rank);
        }
        let alpha = pair.scale * rank as f64;
        if (alpha - lora.config.alpha).abs() > 1e-9 * lora.config.alpha.abs() {
            alphas.insert(module, alpha);
        }
    }
    let targets: BTreeSet<&str> = lora.pairs().map(|(_, target, _)| target.name()).collect();
    let layers: BTreeSet<usize> = lora.pairs().map(|(layer, ..)| layer).collect();
    for layer in &layers {
        for name in &targets {
            if lora.pair(*layer, Target::from_name(name)?).is_none() {
                return Err(Error::invalid(format!(
                    "layer {layer} has no pair for {name}, other layers have one"
                ))
                .hint("PEFT's format has the same targets in every layer that is changed"));
            }
        }
    }
    let some_layers = layers.len() != lora.layer_count();
    let config = serde_json::json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base,
        "r": lora.config.rank, "lora_alpha": lora.config.alpha, "lora_dropout": 0.0, "bias": "none",
        "target_modules": targets, "rank_pattern": ranks, "alpha_pattern": alphas,
        "layers_to_transform": some_layers.then_some(layers), "use_rslora": false, "use_dora": false,
        "fan_in_fan_out": false, "modules_to_save": null, "init_lora_weights": true, "inference_mode": true,
    });
    let tensors: Vec<(String, Tensor)> = lora
        .tensors()
        .into_iter()
        .map(|(name, tensor)| (format!("base_model.model.{name}"), tensor.detach()))
        .collect();
    let bytes = safetensors::serialize(&tensors)?;
    hash::write_atomic(&folder.join(WEIGHTS), &bytes)?;
    let text = serde_json::to_string_pretty(&config).map_err(|e| Error::invalid(e.to_string()))?;
    hash::write_atomic(&folder.join(CONFIG), text.as_bytes())?;
    Ok(hash::sha256_hex(&bytes))
}

/// What `adapter_config.json` asks for.
struct Settings {
    config: LoraConfig,
    /// Rank and scale of every module that must be there.
    modules: BTreeMap<(usize, Target), (usize, f64)>,
}

impl Settings {
    fn parse(o: &Map<String, Value>, model: &Config) -> Result<Settings> {
        if o.get("peft_type").and_then(Value::as_str) != Some("LORA") {
            let found = o.get("peft_type").unwrap_or(&Value::Null);
            return Err(Error::invalid(format!("peft_type {found} is not supported")).hint("only LORA is"));
        }
        refuse_unsupported(o)?;
        let rank = whole(o, "r")?;
        let alpha = o
            .get("lora_alpha")
            .and_then(Value::as_f64)
            .ok_or_else(|| Error::invalid("`lora_alpha` is missing or not a number"))?;
        let root = o.get("use_rslora") == Some(&Value::Bool(true));
        let targets = targets(o)?;
        let layers = layers(o, model.layers)?;
        let ranks = pattern(o, "rank_pattern")?;
        let alphas = pattern(o, "alpha_pattern")?;
        let mut modules = BTreeMap::new();
        for layer in layers {
            for &target in &targets {
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

    fn fill(self, tensors: BTreeMap<String, Tensor>, model: &Config) -> Result<Lora> {
        let total = 2 * self.modules.len();
        let mut named = BTreeMap::new();
        for (key, tensor) in tensors {
            let name = normalise(&key).to_owned();
            if named.insert(name, (key.clone(), tensor)).is_some() {
                return Err(Error::invalid(format!("tensor `{key}` is there twice, under two prefixes")));
            }
        }
        let found = named.len();
        let mut lora = Lora::empty(self.config, model.layers);
        for ((layer, target), (rank, scale)) in self.modules {
            let (out, input) = target.shape(model);
            let mut take = |part: &str, shape: [usize; 2]| -> Result<Tensor> {
                let stem = format!("layers.{layer}.{}.{part}", target.path());
                let entry = named
                    .remove(&format!("{stem}.weight"))
                    .or_else(|| named.remove(&format!("{stem}.default.weight")));
                let (key, tensor) = entry.ok_or_else(|| {
                    Error::invalid(format!(
                        "`{stem}.weight` is missing ({found} tensors found, {total} expected)"
                    ))
                    .hint("the adapter was made for another model, or for other target modules")
                })?;
                if tensor.dims() != shape {
                    return Err(Error::invalid(format!(
                        "`{key}` has shape {:?}, not {shape:?}",
                        tensor.dims()
                    ))
                    .hint("the adapter was made for another model"));
                }
                Ok(tensor.to_dtype(DType::F32)?)
            };
            let (a, b) = (take("lora_A", [rank, input])?, take("lora_B", [out, rank])?);
            lora.set(layer, target, Pair { a, b, scale });
        }
        if let Some((key, _)) = named.values().next() {
            return Err(Error::invalid(format!(
                "`{key}` matches no adapted module ({} such tensors)",
                named.len()
            ))
            .hint(
                "the adapter was made for another model, or its adapter_config.json does not belong to it",
            ));
        }
        Ok(lora)
    }
}

/// The part of a tensor's name from `layers.` on, whichever wrapper it was trained through.
fn normalise(key: &str) -> &str {
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
    match o.get(key).and_then(Value::as_u64) {
        Some(n) if (1..=1 << 20).contains(&n) => Ok(n as usize),
        _ => Err(Error::invalid(format!("`{key}` is missing or not a positive integer"))),
    }
}

fn targets(o: &Map<String, Value>) -> Result<Vec<Target>> {
    let names: Vec<&str> = match o.get("target_modules") {
        Some(Value::String(all)) if all == "all-linear" => return Ok(Target::ALL.to_vec()),
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
    for name in names {
        let matching: Vec<Target> = Target::ALL.into_iter().filter(|t| is_suffix(t.path(), name)).collect();
        if matching.is_empty() {
            return Err(Error::invalid(format!(
                "`target_modules` has `{name}`, which is not in this network"
            ))
            .hint(format!("its modules are {}", Target::ALL.map(Target::name).join(", "))));
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
        let value =
            value.as_f64().ok_or_else(|| Error::invalid(format!("`{field}` of `{key}` is not a number")))?;
        patterns.push((name.to_owned(), value));
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{fixtures, model, normal, numbers};
    use crate::model::{Model, TinySpec};
    use std::path::PathBuf;

    fn source() -> PathBuf {
        fixtures().join("llama_tied/adapter")
    }

    /// A copy of the fixture's adapter with changed settings and tensors.
    fn changed(
        settings: impl FnOnce(&mut Value),
        tensors: impl FnOnce(&mut BTreeMap<String, Tensor>),
    ) -> Result<Lora> {
        let dir = tempfile::tempdir().unwrap();
        let mut config: Value =
            serde_json::from_slice(&fs_err::read(source().join(CONFIG)).unwrap()).unwrap();
        settings(&mut config);
        fs_err::write(dir.path().join(CONFIG), config.to_string()).unwrap();
        let mut all: BTreeMap<_, _> = candle_core::safetensors::load(source().join(WEIGHTS), &Device::Cpu)
            .unwrap()
            .into_iter()
            .collect();
        tensors(&mut all);
        let all: Vec<_> = all.into_iter().collect();
        fs_err::write(dir.path().join(WEIGHTS), safetensors::serialize(&all).unwrap()).unwrap();
        load(dir.path(), &model("llama_tied").config)
    }

    fn refusal(key: &str, value: Value) -> String {
        changed(|c| c[key] = value, |_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_saved_loads_as_the_same_adapter() {
        let model = model("llama_tied");
        let lora = model.load_adapter(&source()).unwrap();
        assert_eq!((lora.config.rank, lora.config.alpha, lora.pairs().count()), (4, 8.0, 28));
        let dir = tempfile::tempdir().unwrap();
        let sha256 = save(dir.path(), &lora, "llama_tied").unwrap();
        let again = model.load_adapter(dir.path()).unwrap();
        assert_eq!(again.sha256, Some(sha256));
        let logits = |l: &Lora| numbers(&model.logits(&[9, 8, 7], Some(l)).unwrap());
        assert!(logits(&lora) == logits(&again));
        assert_eq!(save(dir.path(), &again, "llama_tied").unwrap(), again.sha256.unwrap());
    }

    #[test]
    fn exceptions_of_rank_scale_and_layers_survive() {
        let model = Model::tiny(&TinySpec::default()).unwrap();
        let config = LoraConfig { rank: 2, alpha: 4.0, targets: vec![Target::V, Target::Down] };
        let mut lora = Lora::empty(config, 2);
        for (target, rank, scale) in [(Target::V, 2, 2.0), (Target::Down, 5, 0.3)] {
            let (out, input) = target.shape(&model.config);
            lora.set(1, target, Pair { a: normal("a", rank, input), b: normal("b", out, rank), scale });
        }
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), &lora, "tiny").unwrap();
        let again = model.load_adapter(dir.path()).unwrap();
        let shape: Vec<_> =
            again.pairs().map(|(l, t, p)| (l, t, p.a.dim(0).unwrap(), (p.scale * 1e9).round())).collect();
        assert_eq!(shape, [(1, Target::V, 2, 2e9), (1, Target::Down, 5, 3e8)]);
    }

    #[test]
    fn every_naming_of_the_same_modules_is_understood() {
        for (from, to) in [
            ("base_model.model.model.", "base_model.model.model.language_model."),
            ("base_model.model.", ""),
            (".weight", ".default.weight"),
        ] {
            let rename = |all: &mut BTreeMap<String, Tensor>| {
                *all = std::mem::take(all).into_iter().map(|(k, v)| (k.replace(from, to), v)).collect();
            };
            assert_eq!(changed(|_| (), rename).unwrap().pairs().count(), 28, "{from} to {to}");
        }
    }

    #[test]
    fn settings_that_change_the_product_are_honoured() {
        let scale = |lora: &Lora, layer, target| lora.pair(layer, target).unwrap().scale;
        let root = changed(|c| c["use_rslora"] = true.into(), |_| ()).unwrap();
        assert_eq!(scale(&root, 0, Target::Q), 4.0);
        let patterns = serde_json::json!({"layers.1.self_attn.q_proj": 2, "down_proj": 1.0});
        let patterned = changed(|c| c["alpha_pattern"] = patterns, |_| ()).unwrap();
        let found = [(0, Target::Q), (1, Target::Q), (3, Target::Down)].map(|(l, t)| scale(&patterned, l, t));
        assert_eq!(found, [2.0, 0.5, 0.25]);
    }

    #[test]
    fn settings_that_are_not_supported_are_refused_by_name() {
        for (key, value) in [
            ("peft_type", "IA3".into()),
            ("use_dora", true.into()),
            ("bias", "all".into()),
            ("fan_in_fan_out", true.into()),
            ("modules_to_save", serde_json::json!(["lm_head"])),
            ("lora_bias", true.into()),
            ("init_lora_weights", "pissa".into()),
            ("trainable_token_indices", serde_json::json!([1])),
            ("exclude_modules", serde_json::json!(["q_proj"])),
            ("alora_invocation_tokens", serde_json::json!([1])),
            ("a_field_of_tomorrow", 3.into()),
            ("target_modules", "q.*".into()),
            ("target_modules", serde_json::json!(["q_proj", "lm_head"])),
            ("layers_to_transform", serde_json::json!([99])),
            ("rank_pattern", serde_json::json!({"^q.*": 3})),
            ("r", 0.into()),
            ("lora_alpha", Value::Null),
        ] {
            let error = refusal(key, value);
            assert!(error.contains(key), "{key}: {error}");
        }
    }

    #[test]
    fn every_tensor_is_consumed_and_every_module_present() {
        let key = "base_model.model.model.layers.2.mlp.up_proj.lora_B.weight";
        let missing = changed(|_| (), |all| drop(all.remove(key))).unwrap_err().to_string();
        assert!(
            missing.contains("layers.2.mlp.up_proj.lora_B") && missing.contains("56 expected"),
            "{missing}"
        );
        let vision = "base_model.model.model.visual.blocks.0.attn.qkv.lora_A.weight";
        let surplus = changed(|_| (), |all| drop(all.insert(vision.into(), normal("x", 4, 4))));
        assert!(surplus.unwrap_err().to_string().contains(vision));
        let twice = changed(
            |_| (),
            |all| {
                let tensor = all[key].clone();
                all.insert(key.replace("base_model.model.model.", "base_model.model."), tensor);
            },
        );
        assert!(twice.unwrap_err().to_string().contains("twice"));
        let shape = changed(|c| c["r"] = 8.into(), |_| ()).unwrap_err().to_string();
        assert!(shape.contains("lora_A") && shape.contains("[8, "), "{shape}");
    }
}
