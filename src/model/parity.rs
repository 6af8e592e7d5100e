//! Parity with the reference implementation: small networks of every architecture, with and
//! without adapters, merged, layer by layer, and in both layouts of a multimodal checkpoint.
#![cfg(test)]

use super::testing::{distance, fixtures, greedy, ids, json, model, numbers, tensors};
use super::{Causal, Lora, Model, RowAdapters, Source, merge};
use std::path::Path;

/// Name and largest difference of a logit: in f32 the delta rule itself is only good to some 1e-4.
const NETWORKS: [(&str, f32); 4] =
    [("llama_tied", 1e-4), ("qwen3_tied", 1e-4), ("qwen3_untied", 1e-4), ("qwen3_5_tied", 2e-3)];

fn adapter(name: &str, model: &Model) -> Lora {
    model.load_adapter(&fixtures().join(name).join("adapter")).unwrap()
}

fn prompts(name: &str) -> Vec<Vec<u32>> {
    json(&format!("{name}/expected.json"))["prompts"].as_array().unwrap().iter().map(ids).collect()
}

#[test]
fn logits_agree_at_every_position() {
    for (name, tolerance) in NETWORKS {
        let (model, truth) = (model(name), tensors(&format!("{name}/expected.safetensors")));
        let adapter = adapter(name, &model);
        for (i, prompt) in prompts(name).iter().enumerate() {
            let base = distance(&model.logits(prompt, None).unwrap(), &truth[&format!("logits.{i}")]);
            let adapted = model.logits(prompt, Some(&adapter)).unwrap();
            let adapted = distance(&adapted, &truth[&format!("adapter_logits.{i}")]);
            assert!(base < tolerance && adapted < tolerance, "{name} {i}: {base}, adapter {adapted}");
        }
    }
}

#[test]
fn hidden_states_agree_layer_by_layer() {
    for (name, _) in NETWORKS {
        let (model, truth) = (model(name), tensors(&format!("{name}/expected.safetensors")));
        let prompt = &prompts(name)[1];
        let positions: Vec<u32> = (0..prompt.len() as u32).collect();
        let mut mix = Causal::one(&model.config, prompt.len());
        let mut x = model.network().unwrap().embed(prompt).unwrap();
        for layer in 0..model.config.layers {
            let Some(wanted) = truth.get(&format!("hidden.1.{layer}")) else { continue };
            assert!(distance(&x, wanted) < 2e-4, "{name}: before layer {layer}");
            x = model
                .network()
                .unwrap()
                .layer(layer, &x, &positions, &RowAdapters::base(), &mut mix)
                .unwrap();
        }
        if let Some(wanted) = truth.get(&format!("hidden.1.{}", model.config.layers)) {
            assert!(
                distance(&model.network().unwrap().final_norm(&x).unwrap(), wanted) < 2e-4,
                "{name}: final norm"
            );
        }
    }
}

#[test]
fn greedy_tokens_agree() {
    for (name, _) in NETWORKS {
        let (model, expected) = (model(name), json(&format!("{name}/expected.json")));
        let adapter = adapter(name, &model);
        for (i, prompt) in prompts(name).iter().enumerate() {
            assert_eq!(greedy(&model, prompt, None, 16), ids(&expected["greedy"][i]), "{name} {i}");
            let adapted = greedy(&model, prompt, Some(&adapter), 16);
            assert_eq!(adapted, ids(&expected["adapter_greedy"][i]), "{name} {i} with its adapter");
        }
    }
}

#[test]
fn merged_weights_and_logits_agree() {
    for (name, tolerance) in NETWORKS {
        let (base, truth) = (model(name), tensors(&format!("{name}/expected.safetensors")));
        let folder = tempfile::tempdir().unwrap();
        let receipt = merge::merge(&base, &adapter(name, &base), folder.path()).unwrap();
        assert_eq!(receipt.matched, receipt.expected);
        let written = folder.path().join("model.safetensors");
        let written = candle_core::safetensors::load(written, &candle_core::Device::Cpu).unwrap();
        for (key, wanted) in truth.iter().filter_map(|(n, t)| Some((n.strip_prefix("merged_weight.")?, t))) {
            assert!(distance(&written[key], wanted) < 1e-6, "{name}: {key}");
        }
        let merged = Model::load(&Source::Folder(folder.path().to_owned())).unwrap();
        for (i, prompt) in prompts(name).iter().enumerate() {
            let logits = merged.logits(prompt, None).unwrap().narrow(0, prompt.len() - 1, 1).unwrap();
            let wanted = truth[&format!("merged_last_logits.{i}")].reshape((1, 256)).unwrap();
            assert!(distance(&logits, &wanted) < tolerance, "{name} {i}");
        }
    }
}

#[test]
fn the_layout_of_a_multimodal_checkpoint_gives_the_same_bits() {
    let (text, multimodal) = (model("qwen3_5_tied"), model("qwen3_5_tied_vl_layout"));
    let adapters = (adapter("qwen3_5_tied", &text), adapter("qwen3_5_tied_vl_layout", &multimodal));
    for prompt in prompts("qwen3_5_tied") {
        let plain = |model: &Model| numbers(&model.logits(&prompt, None).unwrap());
        assert!(plain(&text) == plain(&multimodal));
        let adapted = |model: &Model, lora: &Lora| numbers(&model.logits(&prompt, Some(lora)).unwrap());
        assert!(adapted(&text, &adapters.0) == adapted(&multimodal, &adapters.1));
    }
}

/// Names of the files of a folder with their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn merging_a_multimodal_checkpoint_changes_its_matrices_and_not_one_other_byte() {
    let name = "qwen3_5_tied_vl_layout";
    let base = model(name);
    let folder = tempfile::tempdir().unwrap();
    let lora = adapter(name, &base);
    merge::merge(&base, &lora, folder.path()).unwrap();
    let (before, after) = (files(&fixtures().join(name)), files(folder.path()));
    assert_eq!(
        before.iter().map(|(n, _)| n).collect::<Vec<_>>(),
        after.iter().map(|(n, _)| n).collect::<Vec<_>>()
    );
    let adapted: Vec<String> = lora
        .pairs()
        .map(|(l, t, _)| format!("model.language_model.layers.{l}.{}.weight", t.path()))
        .collect();
    for ((file, old), (_, new)) in before.iter().zip(&after) {
        if !file.ends_with(".safetensors") {
            assert_eq!(old, new, "{file}");
            continue;
        }
        let header = 8 + u64::from_le_bytes(old[..8].try_into().unwrap()) as usize;
        assert_eq!(old[..header], new[..header], "{file}");
        let parse = |bytes| safetensors::SafeTensors::deserialize(bytes).unwrap();
        let (old, new) = (parse(old), parse(new));
        for (tensor, view) in old.tensors() {
            let changed = view.data() != new.tensor(&tensor).unwrap().data();
            assert_eq!(changed, adapted.contains(&tensor), "{tensor}");
        }
    }
    let merged = Model::load(&Source::Folder(folder.path().to_owned())).unwrap();
    let prompt = &prompts("qwen3_5_tied")[1];
    let wanted = base.logits(prompt, Some(&lora)).unwrap();
    assert!(distance(&merged.logits(prompt, None).unwrap(), &wanted) < 2e-3);
}
