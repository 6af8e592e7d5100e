//! The network against an implementation by other people: the Llama of candle-transformers, on the
//! same seeded weights, at every position of a sequence.
#![cfg(test)]

use super::testing::numbers;
use super::{Config, Model, TinySpec, save};
use crate::model::config::Llama3Scaling;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama as reference;

/// Their settings for our network.
fn settings(config: &Config) -> reference::Config {
    reference::Config {
        hidden_size: config.hidden,
        intermediate_size: config.intermediate,
        vocab_size: config.vocab,
        num_hidden_layers: config.layers,
        num_attention_heads: config.heads,
        num_key_value_heads: config.kv_heads,
        use_flash_attn: false,
        rms_norm_eps: config.norm_eps,
        rope_theta: config.rope_theta as f32,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: config.rope_scaling.map(|s| reference::Llama3RopeConfig {
            factor: s.factor as f32,
            low_freq_factor: s.low_freq_factor as f32,
            high_freq_factor: s.high_freq_factor as f32,
            original_max_position_embeddings: s.original_max_positions,
            rope_type: reference::Llama3RopeType::Llama3,
        }),
        max_position_embeddings: config.max_positions,
        tie_word_embeddings: config.tied,
    }
}

/// Logits at every position by the other implementation: one token at a time through its cache.
fn theirs(model: &Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let weights = save::tensors(model).unwrap().into_iter().collect();
    let settings = settings(&model.config);
    let weights = VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu);
    let network = reference::Llama::load(weights, &settings).unwrap();
    let mut cache = reference::Cache::new(true, DType::F32, &settings, &Device::Cpu).unwrap();
    let step = |(position, token): (usize, &u32)| {
        let token = Tensor::from_slice(&[*token], (1, 1), &Device::Cpu).unwrap();
        numbers(&network.forward(&token, position, &mut cache).unwrap())
    };
    tokens.iter().enumerate().map(step).collect()
}

fn check(model: &Model, length: usize) {
    let tokens: Vec<u32> = (0..length as u32).map(|i| (i * 71 + 13) % model.config.vocab as u32).collect();
    let ours: Vec<Vec<f32>> = model.logits(&tokens, None).unwrap().to_vec2().unwrap();
    let theirs = theirs(model, &tokens);
    assert_eq!(ours.len(), theirs.len());
    let spread = ours.iter().flatten().fold(0f32, |m, x| m.max(x.abs()));
    assert!(spread > 0.1, "logits that are all alike would agree with anything: {spread}");
    for (position, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(a.len(), b.len());
        let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(worst < 1e-4, "position {position}: {worst}");
    }
}

#[test]
fn grouped_heads_and_rope_agree_at_every_position() {
    let spec =
        TinySpec { layers: 3, hidden: 96, intermediate: 160, heads: 6, kv_heads: 2, ..TinySpec::default() };
    check(&Model::tiny(&spec).unwrap(), 70);
    check(&Model::tiny(&TinySpec { seed: 9, kv_heads: 1, ..spec }).unwrap(), 9);
    check(&super::testing::model("llama_tied"), 40);
}

#[test]
fn stretched_rope_agrees_at_every_position() {
    let mut model = Model::tiny(&TinySpec { layers: 2, ..TinySpec::default() }).unwrap();
    let scaling = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_positions: 64,
    };
    let tokens: Vec<u32> = (5..45).collect();
    let plain = model.logits(&tokens, None).unwrap();
    model.config.rope_scaling = Some(scaling);
    let frequencies = model.config.inverse_frequencies().into();
    match &mut model.compute {
        crate::model::Compute::Cpu(network) => network.inverse_frequencies = frequencies,
        #[cfg(feature = "cuda")]
        crate::model::Compute::Cuda(_) => unreachable!("it was made in main memory"),
    }
    assert!(super::testing::distance(&plain, &model.logits(&tokens, None).unwrap()) > 1e-3);
    check(&model, 70);
}
