//! What the tests of this module share: where the fixtures are, and comparisons.
#![cfg(test)]

use super::{Model, Source};
use candle_core::{Device, Tensor};
use std::collections::HashMap;
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
