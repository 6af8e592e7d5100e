//! What the tests of this module share: where the fixtures are, and comparisons.
#![cfg(test)]

use super::tokenizer::byte_characters;
use super::{Lora, Model, Source};
use candle_core::quantized::gguf_file::{self, Value as GgufValue};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The folder of the model fixtures.
pub fn fixtures() -> PathBuf {
    let root = std::env::var_os("REDERIVE_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"), PathBuf::from);
    root.join("model")
}

/// A model of the fixtures.
pub fn model(name: &str) -> Model {
    Model::load(&Source::Folder(fixtures().join(name))).unwrap()
}

/// A JSON file of the fixtures.
pub fn json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&fs_err::read(fixtures().join(path)).unwrap()).unwrap()
}

/// A safetensors file of the fixtures.
pub fn tensors(path: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(fixtures().join(path), &Device::Cpu).unwrap()
}

/// SmolLM2, where its file is at hand; a note and nothing otherwise.
pub fn smollm2() -> Option<Model> {
    let named = std::env::var_os("REDERIVE_SMOLLM2").map(PathBuf::from);
    let known = super::registry::get(super::registry::DEFAULT).unwrap();
    match named.or_else(|| super::fetch::cached(known).ok()) {
        Some(path) => Some(Model::load(&Source::Gguf(path)).unwrap()),
        None => {
            eprintln!("skipped: set REDERIVE_SMOLLM2 to the GGUF file, or run `rederive models fetch`");
            None
        }
    }
}

/// Numbers of a tensor.
pub fn numbers(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}

/// Largest absolute difference.
pub fn distance(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!(a.dims(), b.dims());
    numbers(a).iter().zip(numbers(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Standard normal numbers, `[rows, columns]`.
pub fn normal(name: &str, rows: usize, columns: usize) -> Tensor {
    let mut stream = crate::philox::Philox::named(name);
    let values: Vec<f32> = (0..rows * columns)
        .map(|_| {
            let radius = (-2.0 * (1.0 - stream.unit()).ln()).sqrt();
            (radius * (std::f64::consts::TAU * stream.unit()).cos()) as f32
        })
        .collect();
    Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap()
}

/// Token ids of a JSON list.
pub fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

/// Rows of each head from two halves to interleaved pairs: what converters to GGUF do.
fn interleaved(weight: &Tensor, head_dim: usize) -> Tensor {
    let (rows, width) = weight.dims2().unwrap();
    let split = weight.reshape((rows / head_dim, 2, head_dim / 2, width)).unwrap();
    split.transpose(1, 2).unwrap().contiguous().unwrap().reshape((rows, width)).unwrap()
}

/// The fixture model as a GGUF file, with some metadata changed or left out.
pub fn write_gguf(path: &Path, change: &[(&str, Option<GgufValue>)]) {
    let mut metadata: BTreeMap<String, GgufValue> = [
        ("general.architecture", GgufValue::String("llama".into())),
        ("llama.block_count", GgufValue::U32(4)),
        ("llama.context_length", GgufValue::U32(256)),
        ("llama.embedding_length", GgufValue::U32(32)),
        ("llama.feed_forward_length", GgufValue::U32(48)),
        ("llama.attention.head_count", GgufValue::U32(4)),
        ("llama.attention.head_count_kv", GgufValue::U32(2)),
        ("llama.rope.freq_base", GgufValue::F32(10_000.0)),
        ("llama.rope.dimension_count", GgufValue::U32(8)),
        ("llama.attention.layer_norm_rms_epsilon", GgufValue::F32(1e-5)),
        ("tokenizer.ggml.model", GgufValue::String("gpt2".into())),
        ("tokenizer.ggml.pre", GgufValue::String("gpt-2".into())),
        (
            "tokenizer.ggml.tokens",
            GgufValue::Array(byte_characters().map(|c| GgufValue::String(c.into())).to_vec()),
        ),
        ("tokenizer.ggml.merges", GgufValue::Array(vec![])),
        ("tokenizer.ggml.eos_token_id", GgufValue::U32(7)),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    for (key, value) in change {
        match value {
            Some(value) => drop(metadata.insert((*key).to_owned(), value.clone())),
            None => drop(metadata.remove(*key)),
        }
    }
    let mut stored: Vec<(String, QTensor)> = tensors("llama_tied/model.safetensors")
        .into_iter()
        .map(|(name, tensor)| {
            let turned = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
            let tensor = if turned { interleaved(&tensor, 8) } else { tensor };
            (super::gguf::stored_name(&name), QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
        })
        .collect();
    stored.sort_by(|a, b| a.0.cmp(&b.0));
    let metadata: Vec<(&str, &GgufValue)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let stored: Vec<(&str, &QTensor)> = stored.iter().map(|(k, v)| (k.as_str(), v)).collect();
    gguf_file::write(&mut fs_err::File::create(path).unwrap(), &metadata, &stored).unwrap();
}

/// Greedy continuation by whole-sequence logits, ties to the lowest id.
pub fn greedy(model: &Model, prompt: &[u32], adapter: Option<&Lora>, count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let hidden = model.hidden(&tokens, adapter).unwrap();
        let last = hidden.narrow(0, tokens.len() - 1, 1).unwrap();
        let logits = numbers(&model.network().unwrap().logits(&last).unwrap());
        let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        tokens.push(best as u32);
    }
    tokens.split_off(prompt.len())
}
