//! Tests of whole training runs against reference values from another implementation
//! (`fixtures/model`), and of what must not change a run's outcome.

use super::backward::{Gradients, forward_backward};
use super::batch::{Example, Packed, Plan};
use super::sft::Run;
use super::{Settings, Trained, sft};
use crate::Error;
use crate::model::{Lora, Model, Source, adapter};
use candle_core::{Device, Tensor};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;

fn fixture(path: &str) -> PathBuf {
    let root = std::env::var_os("REDERIVE_FIXTURES")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")), PathBuf::from);
    root.join("model").join(path)
}

fn model() -> Model {
    Model::load(&Source::Folder(fixture("llama_tied"))).unwrap()
}

fn reference(name: &str) -> Value {
    serde_json::from_slice(&fs_err::read(fixture(&format!("{name}/sft.json"))).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
}

fn examples(reference: &Value) -> Vec<Example> {
    let rows = |key: &str| reference[key].as_array().unwrap().iter().map(numbers).collect::<Vec<_>>();
    rows("batch")
        .into_iter()
        .zip(rows("token_weights"))
        .map(|(tokens, weights)| Example {
            tokens: tokens.into_iter().map(|t| t as u32).collect(),
            weights: weights.into_iter().map(|w| w as f32).collect(),
        })
        .collect()
}

/// The settings of the reference: one step an epoch over both sequences.
fn reference_settings(reference: &Value) -> Settings {
    let betas = numbers(&reference["betas"]);
    Settings {
        r: 4,
        alpha: 8.0,
        learning_rate: reference["lr"].as_f64().unwrap(),
        betas: [betas[0], betas[1]],
        eps: reference["eps"].as_f64().unwrap(),
        weight_decay: reference["weight_decay"].as_f64().unwrap(),
        epochs: 4,
        clip: None,
        ..Settings::default()
    }
}

fn tensors(path: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(fixture(path), &Device::Cpu).unwrap()
}

fn norm(t: &Tensor) -> f64 {
    f64::from(t.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()).sqrt()
}

/// The value under the name that PEFT writes for ours.
fn peft<'a>(tensors: &'a HashMap<String, Tensor>, name: &str) -> &'a Tensor {
    &tensors[&format!("base_model.model.{name}")]
}

#[test]
fn three_steps_match_the_reference() {
    three_steps("llama_tied", [1e-3, 1e-4, 1e-5]);
    three_steps("qwen3_tied", [1e-3, 1e-4, 1e-5]);
}

/// The delta rule by chunks and backwards token by token, where f32 itself is good to a few 1e-4.
#[test]
fn three_steps_match_the_reference_with_delta_layers() {
    three_steps("qwen3_5_tied", [5e-3, 1e-3, 2e-4]);
}

/// Relative tolerances of single gradients, of their norm and of losses.
fn three_steps(name: &str, [tolerance, norm_tolerance, loss_tolerance]: [f64; 3]) {
    let model = Model::load(&Source::Folder(fixture(name))).unwrap();
    let reference = reference(name);
    let (examples, settings) = (examples(&reference), reference_settings(&reference));
    let start = model.load_adapter(&fixture(&format!("{name}/adapter"))).unwrap();
    let plan = Plan::new(&examples, model.config.vocab, &settings, 1).unwrap();
    assert_eq!(plan.steps.len(), 4);
    let mut run = Run::new(&model, &examples, &settings, plan, &start).unwrap();

    let (_, gradients) = run.gradients(0).unwrap();
    let expected = tensors(&format!("{name}/sft_grads_step0.safetensors"));
    assert_eq!(gradients.len(), expected.len());
    for (name, gradient) in run.names.iter().zip(&gradients) {
        let expected = peft(&expected, name);
        let off = norm(&(gradient - expected).unwrap()) / norm(expected);
        assert!(off < tolerance, "{name}: gradient off by {off}");
        assert!(norm(gradient) > 0.0, "{name}: gradient is zero");
    }

    for (loss, grad_norm) in
        numbers(&reference["losses"]).into_iter().zip(numbers(&reference["global_grad_norms"]))
    {
        let step = run.step().unwrap();
        let off = (step.loss - loss).abs() / loss;
        assert!(off < loss_tolerance, "step {}: {} is not {loss}", step.step, step.loss);
        assert!(
            (step.grad_norm - grad_norm).abs() < norm_tolerance * grad_norm,
            "{} is not {grad_norm}",
            step.grad_norm
        );
        run.steps.push(step);
    }
    let after = tensors(&format!("{name}/sft_params_after3.safetensors"));
    let before: HashMap<String, Tensor> = start.tensors().into_iter().collect();
    for (name, value) in run.names.iter().zip(&run.parameters) {
        let update = (peft(&after, name) - &before[name]).unwrap();
        let off = norm(&(value.as_tensor() - peft(&after, name)).unwrap()) / norm(&update);
        assert!(off < 10.0 * tolerance, "{name}: update off by {off}");
    }
    let (loss, _) = run.gradients(3).unwrap();
    let expected = reference["loss_after_3"].as_f64().unwrap();
    assert!((loss - expected).abs() < loss_tolerance * expected, "{loss} is not {expected}");
}

/// Sequences of many lengths with the last third weighted, from a fixed pattern.
fn pattern(count: usize) -> Vec<Example> {
    (0..count)
        .map(|i| {
            let length = 4 + (i * 7) % 23;
            Example {
                tokens: (0..length).map(|t| ((i * 31 + t * 17) % 256) as u32).collect(),
                weights: (0..length)
                    .map(|t| if 3 * t > 2 * length { 0.5 + (t % 3) as f32 } else { 0.0 })
                    .collect(),
            }
        })
        .collect()
}

fn gradients_of(
    model: &Model,
    lora: &Lora,
    examples: &[Example],
    cut: &[&[usize]],
    recompute: bool,
) -> (f64, Vec<Tensor>) {
    let (lora, variables) = lora.trainable().unwrap();
    let (names, parameters): (Vec<_>, Vec<_>) = variables.into_iter().unzip();
    let total: f64 = examples.iter().flat_map(|e| &e.weights[1..]).map(|w| f64::from(*w)).sum();
    let mut gradients = Gradients::new(&parameters);
    let mut loss = 0.0;
    for members in cut {
        let packed = Packed::new(examples, members, total);
        loss +=
            forward_backward(model.network().unwrap(), &lora, &packed, recompute, &mut gradients).unwrap();
    }
    (loss, gradients.finish(&names).unwrap())
}

fn flat(tensors: &[Tensor]) -> Vec<f32> {
    tensors.iter().flat_map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap()).collect()
}

#[test]
fn accumulation_equals_one_batch_and_recomputing_equals_keeping() {
    let model = model();
    let lora = model.load_adapter(&fixture("llama_tied/adapter")).unwrap();
    let examples = pattern(6);
    let (loss, whole) = gradients_of(&model, &lora, &examples, &[&[0, 1, 2, 3, 4, 5]], false);
    let (loss_cut, cut) = gradients_of(&model, &lora, &examples, &[&[4, 0], &[5], &[1, 2, 3]], false);
    assert!((loss - loss_cut).abs() < 1e-6 * loss, "{loss} {loss_cut}");
    for (a, b) in whole.iter().zip(&cut) {
        assert!(norm(&(a - b).unwrap()) <= 1e-4 * norm(a));
    }
    let (loss_again, again) = gradients_of(&model, &lora, &examples, &[&[0, 1, 2, 3, 4, 5]], true);
    assert_eq!(loss, loss_again);
    assert_eq!(flat(&whole), flat(&again));
}

#[test]
fn gradients_agree_with_finite_differences() {
    let model = model();
    let lora = model.load_adapter(&fixture("llama_tied/adapter")).unwrap();
    let examples = pattern(3);
    let (_, gradients) = gradients_of(&model, &lora, &examples, &[&[0, 1, 2]], true);
    let (live, variables) = lora.trainable().unwrap();
    let total: f64 = examples.iter().flat_map(|e| &e.weights[1..]).map(|w| f64::from(*w)).sum();
    // The loss the long way round: all logits of each sequence alone.
    let loss = || -> f64 {
        let mut sum = 0.0;
        for example in &examples {
            let logits = model.logits(&example.tokens, Some(&live)).unwrap().to_vec2::<f32>().unwrap();
            for t in 1..example.tokens.len() {
                let row: Vec<f64> = logits[t - 1].iter().map(|l| f64::from(*l)).collect();
                let log_total = row.iter().map(|l| l.exp()).sum::<f64>().ln();
                sum += f64::from(example.weights[t]) * (log_total - row[example.tokens[t] as usize]);
            }
        }
        sum / total
    };
    // Along its own gradient a tensor's loss changes at the rate of the gradient's norm.
    for ((name, variable), gradient) in variables.iter().zip(&gradients) {
        let size = norm(gradient);
        let original = variable.copy().unwrap();
        let step = 2e-3;
        let at = |sign: f64| {
            let moved = (&original + gradient.affine(sign * step / size, 0.0).unwrap()).unwrap();
            variable.set(&moved).unwrap();
            loss()
        };
        let numeric = (at(1.0) - at(-1.0)) / (2.0 * step);
        variable.set(&original).unwrap();
        assert!((numeric - size).abs() < 0.02 * size + 1e-3, "{name}: {numeric} is not {size}");
    }
}

fn small_settings() -> Settings {
    Settings {
        r: 3,
        alpha: 6.0,
        learning_rate: 1e-2,
        epochs: 3,
        batch_examples: 4,
        micro_batch_tokens: 40,
        max_length: 20,
        schedule: super::Schedule::Cosine,
        warmup: 0.2,
        checkpoint_every: 2,
        ..Settings::default()
    }
}

/// Everything of a run that must repeat, the hash of the saved adapter first; times do not.
fn outcome(trained: &Trained) -> (String, Vec<(usize, f64, f64, f64)>) {
    let folder = tempfile::tempdir().unwrap();
    let sha256 = adapter::save(folder.path(), &trained.lora, &model(), "llama_tied").unwrap();
    (sha256, trained.steps.iter().map(|s| (s.step, s.loss, s.grad_norm, s.learning_rate)).collect())
}

#[test]
fn an_interrupted_run_ends_like_an_undisturbed_one() {
    let (model, examples, settings) = (model(), pattern(10), small_settings());
    let undisturbed =
        sft(&model, &examples, &settings, 7, None, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert!(!undisturbed.skipped_too_long.is_empty());
    assert!(undisturbed.skipped_too_long.iter().all(|i| examples[*i].tokens.len() > 20));
    let expected = outcome(&undisturbed);
    let last = undisturbed.steps.len();
    assert!(undisturbed.steps[last - 1].loss < undisturbed.steps[0].loss);

    let folder = tempfile::tempdir().unwrap();
    let run = |stop_at: usize| {
        sft(&model, &examples, &settings, 7, Some(folder.path()), &mut |step, total| {
            assert_eq!(total, last);
            if step.step == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    };
    assert!(matches!(run(1), Err(Error::Interrupted)));
    assert!(matches!(run(3), Err(Error::Interrupted)));
    // A crash after step 5 falls back on the checkpoint of step 4.
    let crash = std::panic::catch_unwind(AssertUnwindSafe(|| {
        sft(&model, &examples, &settings, 7, Some(folder.path()), &mut |step, _| {
            assert!(step.step < 5, "crash");
            ControlFlow::Continue(())
        })
    }));
    assert!(crash.is_err());
    let mut first = None;
    let resumed = sft(&model, &examples, &settings, 7, Some(folder.path()), &mut |step, _| {
        first.get_or_insert(step.step);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(first, Some(5));
    assert_eq!(outcome(&resumed), expected);
    let again = run(0).unwrap();
    assert_eq!(outcome(&again), expected);

    let other =
        sft(&model, &examples, &settings, 8, Some(folder.path()), &mut |_, _| ControlFlow::Continue(()));
    assert!(other.unwrap_err().to_string().contains("another run"));
}

#[test]
fn a_run_that_diverges_is_refused() {
    let settings = Settings { learning_rate: 1e30, clip: None, ..small_settings() };
    let result = sft(&model(), &pattern(8), &settings, 1, None, &mut |_, _| ControlFlow::Continue(()));
    assert!(matches!(result, Err(Error::Refused(p)) if p.what.contains("diverged")));
}

#[test]
fn only_the_named_targets_are_trained() {
    let settings = Settings { targets: vec!["q_proj".into(), "down_proj".into()], ..small_settings() };
    let trained =
        sft(&model(), &pattern(8), &settings, 1, None, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(trained.lora.pairs().count(), 2 * 4);
    assert!(!trained.lora.is_zero().unwrap());
}
