//! Adapters on disk in PEFT's format. Loading honours every field of `adapter_config.json`
//! or refuses it by name, consumes every tensor, and demands every module: an adapter whose
//! names match nothing would otherwise be the base model in disguise.

use super::config::Config;
use super::lora::{Lora, Pair, Target};
use super::peft::{Adapted, Settings};
use super::peft_match::{normalise, stem};
use super::{Model, safetensors};
use crate::error::{Error, Result};
use crate::hash;
use candle_core::Tensor;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
/// Name of the weights file in an adapter folder.
pub const WEIGHTS: &str = "adapter_model.safetensors";
/// What stands before `layers.` in the module paths of a text model, and of a multimodal one.
const TEXT_STEM: &str = "model.";
const MULTIMODAL_STEM: &str = "model.language_model.";

/// Reads a PEFT LoRA adapter for a network of this shape. One whose numbers are not finite, or whose
/// deltas are all zero, is refused: a fresh adapter is made by [`Lora::init`], never read.
pub fn load(folder: &Path, model: &Config) -> Result<Lora> {
    let path = folder.join(CONFIG);
    let place = path.display().to_string();
    let text = crate::regular::text(&path)?;
    let value: Value =
        serde_json::from_str(&text).map_err(|e| Error::invalid(format!("is not JSON: {e}")).at(&place))?;
    let object = value.as_object().ok_or_else(|| Error::invalid("is not a JSON object").at(&place))?;
    let settings = Settings::parse(object, model).map_err(|e| e.at(&place))?;

    let path = folder.join(WEIGHTS);
    let bytes = crate::regular::data(&path)?;
    let tensors = safetensors::read_finite(&bytes).map_err(|e| e.at(path.display()))?;
    // The modules' paths are those of the base that it was trained through; its keys tell which that was.
    let under = tensors.keys().find_map(|key| stem(key)).unwrap_or(TEXT_STEM).to_owned();
    let adapted = settings.modules(model, &under).map_err(|e| e.at(&place))?;
    let read = || -> Result<Lora> {
        let lora = fill(adapted, tensors, model)?;
        if lora.is_zero()? {
            let key = lora.tensors().into_iter().map(|(name, _)| name).find(|name| name.contains("lora_B"));
            return Err(Error::invalid(format!(
                "the adapter changes nothing: all {} deltas are zero (first: `{}`)",
                lora.pairs().count(),
                key.unwrap_or_default()
            ))
            .hint("it was not trained, or its B matrices were not saved"));
        }
        Ok(lora)
    };
    let mut lora = read().map_err(|e| e.at(path.display()))?;
    lora.sha256 = Some(hash::sha256_hex(&bytes));
    Ok(lora)
}

/// Writes an adapter so that PEFT and [`load`] read it back: returns the SHA-256 of its weights.
/// `base` is the name or path of the base model. The keys are those that PEFT writes for that base: of a
/// multimodal checkpoint, under `model.language_model`.
pub fn save(folder: &Path, lora: &Lora, model: &Model, base: &str) -> Result<String> {
    let stem = if model.origin.multimodal { MULTIMODAL_STEM } else { TEXT_STEM };
    let mut ranks = BTreeMap::new();
    let mut alphas = BTreeMap::new();
    let mut paths = Vec::new();
    let mut tensors = Vec::new();
    for (layer, target, pair) in lora.pairs() {
        let rank = pair.a.dim(0)?;
        let module = format!("layers.{layer}.{}", target.path());
        if rank != lora.config.rank {
            ranks.insert(module.clone(), rank);
        }
        let alpha = pair.scale * rank as f64;
        if (alpha - lora.config.alpha).abs() > 1e-9 * lora.config.alpha.abs() {
            alphas.insert(module.clone(), alpha);
        }
        for (part, tensor) in [("lora_A", &pair.a), ("lora_B", &pair.b)] {
            tensors.push((format!("base_model.model.{stem}{module}.{part}.weight"), tensor.detach()));
        }
        paths.push(format!("{stem}{module}"));
    }
    let targets: BTreeSet<Target> = lora.pairs().map(|(_, target, _)| target).collect();
    let layers: BTreeSet<usize> = lora.pairs().map(|(layer, ..)| layer).collect();
    let is_regular = layers.iter().all(|layer| {
        let mut in_layer = targets.iter().filter(|target| target.is_in(&model.config, *layer));
        in_layer.all(|target| lora.pair(*layer, *target).is_some())
    });
    // Where the layers differ in their targets, each module is named in full.
    let names: Vec<String> = match is_regular {
        true => targets
            .iter()
            .map(|target| target.name().to_owned())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        false => paths,
    };
    let some_layers = is_regular && layers.len() != lora.layer_count();
    let config = serde_json::json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base,
        "r": lora.config.rank, "lora_alpha": lora.config.alpha, "lora_dropout": 0.0, "bias": "none",
        "target_modules": names, "rank_pattern": ranks, "alpha_pattern": alphas,
        "layers_to_transform": some_layers.then_some(layers), "use_rslora": false, "use_dora": false,
        "fan_in_fan_out": false, "modules_to_save": null, "init_lora_weights": true, "inference_mode": true,
    });
    let bytes = safetensors::serialize(&tensors)?;
    hash::write_atomic(&folder.join(WEIGHTS), &bytes)?;
    let text = serde_json::to_string_pretty(&config).map_err(|e| Error::invalid(e.to_string()))?;
    hash::write_atomic(&folder.join(CONFIG), text.as_bytes())?;
    Ok(hash::sha256_hex(&bytes))
}

/// The adapter of these tensors: each is consumed, and each module of the settings has its pair.
fn fill(adapted: Adapted, tensors: BTreeMap<String, Tensor>, model: &Config) -> Result<Lora> {
    let total = 2 * adapted.modules.len();
    let mut named = BTreeMap::new();
    for (key, tensor) in tensors {
        let name = normalise(&key).to_owned();
        if named.insert(name, (key.clone(), tensor)).is_some() {
            return Err(Error::invalid(format!("tensor `{key}` is there twice, under two prefixes")));
        }
    }
    let found = named.len();
    let mut lora = Lora::empty(adapted.config, model.layers);
    for ((layer, target), (rank, scale)) in adapted.modules {
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
                return Err(Error::invalid(format!("`{key}` has shape {:?}, not {shape:?}", tensor.dims()))
                    .hint("the adapter was made for another model"));
            }
            Ok(tensor)
        };
        let (a, b) = (take("lora_A", [rank, input])?, take("lora_B", [out, rank])?);
        lora.set(layer, target, Pair { a, b, scale });
    }
    if let Some((key, _)) = named.values().next() {
        return Err(Error::invalid(format!(
            "`{key}` matches no adapted module ({} such tensors)",
            named.len()
        ))
        .hint("the adapter was made for another model, or its adapter_config.json does not belong to it"));
    }
    Ok(lora)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LoraConfig;
    use crate::model::testing::{fixtures, model, normal, numbers};
    use crate::model::{Model, TinySpec};
    use candle_core::{DType, Device};
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
        let sha256 = save(dir.path(), &lora, &model, "llama_tied").unwrap();
        let again = model.load_adapter(dir.path()).unwrap();
        assert_eq!(again.sha256, Some(sha256));
        let logits = |l: &Lora| numbers(&model.logits(&[9, 8, 7], Some(l)).unwrap());
        assert!(logits(&lora) == logits(&again));
        assert_eq!(save(dir.path(), &again, &model, "llama_tied").unwrap(), again.sha256.unwrap());
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
        save(dir.path(), &lora, &model, "tiny").unwrap();
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

    /// Keys of the tensors of an adapter's folder.
    fn keys(folder: &Path) -> Vec<String> {
        let bytes = fs_err::read(folder.join(WEIGHTS)).unwrap();
        safetensors::read_finite(&bytes).unwrap().into_keys().collect()
    }

    #[test]
    fn what_is_saved_has_the_keys_that_peft_writes_for_that_base() {
        for name in ["qwen3_5_tied", "qwen3_5_tied_vl_layout", "qwen3_tied", "llama_tied"] {
            let (model, source) = (model(name), fixtures().join(name).join("adapter"));
            let lora = model.load_adapter(&source).unwrap();
            let dir = tempfile::tempdir().unwrap();
            save(dir.path(), &lora, &model, name).unwrap();
            assert_eq!(keys(dir.path()), keys(&source), "{name}");
            let again = model.load_adapter(dir.path()).unwrap();
            let logits = |l: &Lora| numbers(&model.logits(&[9, 8, 7], Some(l)).unwrap());
            assert!(logits(&lora) == logits(&again), "{name}");
        }
        // An adapter of one layout fits the base in the other, and is saved as that base names its modules.
        let (text, nested) = (model("qwen3_5_tied"), model("qwen3_5_tied_vl_layout"));
        let folder = |name: &str| fixtures().join(name).join("adapter");
        let lora = nested.load_adapter(&folder("qwen3_5_tied")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), &lora, &nested, "nested").unwrap();
        assert_eq!(keys(dir.path()), keys(&folder("qwen3_5_tied_vl_layout")));
        assert!(text.load_adapter(dir.path()).is_ok());
    }

    /// Keeps the pairs of the modules that `keep` names.
    fn only(keep: impl Fn(&str) -> bool) -> impl FnOnce(&mut BTreeMap<String, Tensor>) {
        move |all| all.retain(|key, _| keep(key))
    }

    #[test]
    fn modules_are_named_by_patterns_exclusions_and_layers() {
        let modules =
            |lora: &Lora| -> Vec<(usize, Target)> { lora.pairs().map(|(l, t, _)| (l, t)).collect() };
        let two = [(0, Target::Q), (0, Target::K), (2, Target::Q), (2, Target::K)];
        let kept = |key: &str| {
            ["0.self_attn.q", "0.self_attn.k", "2.self_attn.q", "2.self_attn.k"]
                .iter()
                .any(|k| key.contains(k))
        };
        let pattern = r"model\.layers\.[02]\.self_attn\.(?!v|o).*";
        let found = changed(|c| c["target_modules"] = pattern.into(), only(kept)).unwrap();
        assert_eq!((modules(&found), found.config.targets), (two.to_vec(), vec![Target::Q, Target::K]));
        let by_layer = |c: &mut Value| {
            c["exclude_modules"] =
                serde_json::json!(["v_proj", "o_proj", "mlp.up_proj", "gate_proj", "down_proj"]);
            c["layers_to_transform"] = serde_json::json!([0, 2]);
            c["layers_pattern"] = "layers".into();
        };
        assert_eq!(modules(&changed(by_layer, only(kept)).unwrap()), two);
        let full = |c: &mut Value| {
            c["target_modules"] = serde_json::json!(["model.layers.0.mlp.up_proj", "self_attn.k_proj"]);
            c["rank_pattern"] = serde_json::json!({r".*\.self_attn\..*": 4});
            c["alpha_pattern"] = serde_json::json!({r"layers\.[13]\.self_attn\.k_proj": 2, "k_proj": 16});
        };
        let lora =
            changed(full, only(|key| key.contains("k_proj") || key.contains("0.mlp.up_proj"))).unwrap();
        let mut wanted: Vec<_> = (0..4).map(|layer| (layer, Target::K)).collect();
        wanted.insert(1, (0, Target::Up));
        assert_eq!(modules(&lora), wanted);
        let scales: Vec<f64> = lora.pairs().map(|(.., pair)| pair.scale).collect();
        assert_eq!(scales, [4.0, 2.0, 0.5, 4.0, 0.5]);
        // Layers that differ in their targets are saved and read back, module by module.
        let (model, dir) = (model("llama_tied"), tempfile::tempdir().unwrap());
        save(dir.path(), &lora, &model, "llama_tied").unwrap();
        let again = model.load_adapter(dir.path()).unwrap();
        assert_eq!(modules(&again), wanted);
        assert_eq!(again.pairs().map(|(.., pair)| pair.scale).collect::<Vec<_>>(), scales);
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
            ("exclude_modules", serde_json::json!([3])),
            ("exclude_modules", ".*".into()),
            ("megatron_config", serde_json::json!({"hidden_size": 8})),
            ("init_lora_weights", "olora".into()),
            ("init_lora_weights", "pissa_niter_16".into()),
            ("init_lora_weights", "loftq".into()),
            ("layer_replication", serde_json::json!([[0, 2]])),
            ("target_parameters", serde_json::json!(["mlp.experts"])),
            ("use_qalora", true.into()),
            ("alora_invocation_tokens", serde_json::json!([1])),
            ("a_field_of_tomorrow", 3.into()),
            ("target_modules", "q.*".into()),
            ("target_modules", ".*(q_proj".into()),
            ("target_modules", serde_json::json!([])),
            ("layers_pattern", "layers".into()),
            ("target_modules", serde_json::json!(["q_proj", "lm_head"])),
            ("layers_to_transform", serde_json::json!([99])),
            ("rank_pattern", serde_json::json!({"^q.*": 3})),
            ("alpha_pattern", serde_json::json!({"no_such": 3})),
            ("r", 0.into()),
            ("r", 2.5.into()),
            ("lora_alpha", Value::Null),
            ("lora_alpha", 0.into()),
            ("lora_alpha", (-8.0).into()),
            ("lora_alpha", "8".into()),
            ("alpha_pattern", serde_json::json!({"q_proj": 0})),
            ("rank_pattern", serde_json::json!({"q_proj": -4})),
        ] {
            let error = refusal(key, value);
            assert!(error.contains(key) && error.contains("hint: "), "{key}: {error}");
        }
    }

    #[test]
    fn numbers_that_no_training_leaves_are_refused() {
        let key = "base_model.model.model.layers.2.mlp.up_proj.lora_B.weight";
        for bad in [f32::NAN, f32::INFINITY] {
            let error = changed(
                |_| (),
                |all| {
                    let mut values = numbers(&all[key]);
                    values[3] = bad;
                    let shape = all[key].shape().clone();
                    all.insert(key.into(), Tensor::from_vec(values, shape, &Device::Cpu).unwrap());
                },
            );
            let error = error.unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}` has {bad} at number 3")), "{error}");
            assert!(error.contains(WEIGHTS) && error.contains("hint: "), "{error}");
        }
        let zero = changed(
            |_| (),
            |all| {
                for (_, tensor) in all.iter_mut().filter(|(key, _)| key.contains("lora_B")) {
                    *tensor = tensor.zeros_like().unwrap();
                }
            },
        );
        let zero = zero.unwrap_err();
        assert!(zero.to_string().contains("all 28 deltas are zero") && zero.exit_code() == 2, "{zero}");
        // Integers cannot be written by `serialize`, so the file is made by the format's own crate.
        let dir = tempfile::tempdir().unwrap();
        fs_err::copy(source().join(CONFIG), dir.path().join(CONFIG)).unwrap();
        let all = candle_core::safetensors::load(source().join(WEIGHTS), &Device::Cpu).unwrap();
        let whole: Vec<_> = all.iter().map(|(k, t)| (k.as_str(), t.to_dtype(DType::I64).unwrap())).collect();
        let bytes = ::safetensors::serialize(whole.iter().map(|(k, t)| (*k, t)), None).unwrap();
        fs_err::write(dir.path().join(WEIGHTS), bytes).unwrap();
        let error = load(dir.path(), &model("llama_tied").config).unwrap_err().to_string();
        assert!(error.contains("has type I64") && error.contains("lora_"), "{error}");
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
