//! The gated delta rule against reference values, and what must not change its bits.

use super::delta_rule::*;
use crate::model::testing::fixtures;
use std::collections::HashMap;

const QUERY_SCALE: f32 = 0.353_553_4;
const SHAPE: DeltaShape = DeltaShape { key_heads: 2, value_heads: 4, key_dim: 8, value_dim: 8 };

/// One over the length of a head, as the reference computes it.
fn inverse_length(head: &[f32]) -> f32 {
    1.0 / (head.iter().map(|x| x * x).sum::<f32>() + 1e-6).sqrt()
}

/// Heads of unit length, times a factor.
fn normalised(x: &[f32], scale: f32) -> Vec<f32> {
    x.chunks_exact(8).flat_map(|h| h.iter().map(move |x| x * inverse_length(h) * scale)).collect()
}

/// The gradient of `x` from that of `normalised(x, scale)`.
fn through_norm(x: &[f32], d: &[f32], scale: f32) -> Vec<f32> {
    let one = |(head, d): (&[f32], &[f32])| -> Vec<f32> {
        let inverse = inverse_length(head);
        let along: f32 = head.iter().zip(d).map(|(x, d)| x * d).sum::<f32>() * inverse * inverse;
        head.iter().zip(d).map(|(x, d)| scale * inverse * (d - x * along)).collect()
    };
    x.chunks_exact(8).zip(d.chunks_exact(8)).flat_map(one).collect()
}

/// The reference takes queries and keys as they are and normalises them itself: `raw_q` and `raw_k`.
fn truth() -> HashMap<String, Vec<f32>> {
    let path = fixtures().join("units/gated_delta_rule.safetensors");
    let mut truth: HashMap<String, Vec<f32>> =
        candle_core::safetensors::load(path, &candle_core::Device::Cpu)
            .unwrap()
            .into_iter()
            .map(|(name, t)| (name, t.flatten_all().unwrap().to_vec1().unwrap()))
            .collect();
    for (name, scale) in [("q", QUERY_SCALE), ("k", 1.0)] {
        let raw = truth[name].clone();
        truth.insert(name.into(), normalised(&raw, scale));
        truth.insert(format!("raw_{name}"), raw);
    }
    truth
}

fn inputs(t: &HashMap<String, Vec<f32>>) -> Inputs<'_> {
    Inputs { q: &t["q"], k: &t["k"], v: &t["v"], g: &t["g"], beta: &t["beta"] }
}

fn close(found: &[f32], truth: &[f32], what: &str) {
    assert_eq!(found.len(), truth.len(), "{what}");
    let scale = truth.iter().fold(1.0f32, |m, x| m.max(x.abs()));
    for (i, (a, b)) in found.iter().zip(truth).enumerate() {
        assert!((a - b).abs() <= 2e-5 * scale, "{what}[{i}]: {a} for {b}");
    }
}

#[test]
fn both_forms_agree_with_the_reference() {
    let t = truth();
    type Form = fn(DeltaShape, Inputs, &mut [f32], &mut [f32]);
    for (name, form) in [("recurrent", recurrent as Form), ("chunked", chunked as Form)] {
        let mut state = t["initial_state"].clone();
        let mut out = vec![0.0; t["out"].len()];
        form(SHAPE, inputs(&t), &mut state, &mut out);
        close(&out, &t["out"], name);
        close(&state, &t["final_state"], name);
    }
}

#[test]
fn gradients_agree_with_the_reference() {
    let t = truth();
    let found = backward(SHAPE, inputs(&t), &t["initial_state"], &t["d_out"], &t["d_final_state"]);
    close(&through_norm(&t["raw_q"], &found.q, QUERY_SCALE), &t["grad_q"], "q");
    close(&through_norm(&t["raw_k"], &found.k, 1.0), &t["grad_k"], "k");
    close(&found.v, &t["grad_v"], "v");
    close(&found.g, &t["grad_g"], "g");
    close(&found.beta, &t["grad_beta"], "beta");
    close(&found.state, &t["grad_initial_state"], "state");
}

/// The part of the inputs from one token to another.
fn part<'a>(t: &'a HashMap<String, Vec<f32>>, tokens: std::ops::Range<usize>) -> Inputs<'a> {
    let cut = |name: &str| {
        let width = t[name].len() / 70;
        &t[name][tokens.start * width..tokens.end * width]
    };
    Inputs { q: cut("q"), k: cut("k"), v: cut("v"), g: cut("g"), beta: cut("beta") }
}

#[test]
fn cutting_a_sequence_changes_no_bit() {
    let t = truth();
    let mut whole = (t["initial_state"].clone(), vec![0.0; t["out"].len()]);
    recurrent(SHAPE, inputs(&t), &mut whole.0, &mut whole.1);
    for cuts in [vec![0, 1, 70], vec![0, 33, 34, 64, 70], (0..=70).collect()] {
        let (mut state, mut out) = (t["initial_state"].clone(), Vec::new());
        for range in cuts.windows(2).map(|w| w[0]..w[1]) {
            let mut part_out = vec![0.0; range.len() * 32];
            recurrent(SHAPE, part(&t, range), &mut state, &mut part_out);
            out.extend(part_out);
        }
        assert_eq!((state, out), whole);
    }
}

#[test]
fn nearly_equal_keys_without_decay_stay_finite_by_chunks() {
    let tokens = 200;
    let shape = DeltaShape { key_heads: 1, value_heads: 1, key_dim: 4, value_dim: 2 };
    let key = |i: usize| [0.5, 0.5, 0.5, 0.5 + 1e-4 * (i % 7) as f32];
    let k: Vec<f32> = (0..tokens).flat_map(key).collect();
    let v: Vec<f32> = (0..2 * tokens).map(|i| (i % 5) as f32 - 2.0).collect();
    let (g, beta) = (vec![0.0; tokens], vec![0.95; tokens]);
    let inputs = Inputs { q: &k, k: &k, v: &v, g: &g, beta: &beta };
    let mut results = Vec::new();
    for form in [recurrent, chunked] {
        let (mut state, mut out) = (vec![0.0; 8], vec![0.0; 2 * tokens]);
        form(shape, inputs, &mut state, &mut out);
        results.push(out);
    }
    close(&results[1], &results[0], "chunked");
}
