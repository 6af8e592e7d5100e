//! On a card, and therefore run by hand: `cargo test --release --features cuda -- --ignored card`. The network on
//! the processor, whose own tests hold it to the reference values, is what the card is compared with.

use super::super::Options;
use super::super::tests::invariance::{
    same_answers_anywhere, same_answers_at_any_time, same_answers_when_killed,
};
use super::super::tests::{Engine, drain};
use super::*;
use crate::engine::{Backend, Request, Sampling, Stream};
use crate::model::cuda::Gpu;
use crate::model::load::Numbers;
use crate::model::processor::Precision;
use crate::model::testing::{fixtures, ids, json, numbers, smollm2, tensors};
use crate::model::{Compute, Model, Processor, Source};

const FIXTURES: [&str; 7] = [
    "llama_tied",
    "llama_untied",
    "qwen3_tied",
    "qwen3_untied",
    "qwen3_5_tied",
    "qwen3_5_untied",
    "qwen3_5_tied_vl_layout",
];

fn on_card(name: &str, precision: Precision) -> Arc<Model> {
    let source = Source::Folder(fixtures().join(name));
    Arc::new(Model::load_on(&source, Processor::Cuda { card: 0, precision }).unwrap())
}

fn largest(found: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(found.len(), wanted.len());
    found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Largest difference between the card's logits and the reference's over all prompts: base, adapter.
fn differences(name: &str, precision: Precision) -> [f32; 2] {
    let model = on_card(name, precision);
    let stem = name.trim_end_matches("_vl_layout");
    let expected = json(&format!("{stem}/expected.json"));
    let values = tensors(&format!("{stem}/expected.safetensors"));
    let adapter = model.load_adapter(&fixtures().join(name).join("adapter")).unwrap();
    let mut worst = [0f32; 2];
    for (i, prompt) in expected["prompts"].as_array().unwrap().iter().enumerate() {
        let kinds = [("logits", None), ("adapter_logits", Some(&adapter))];
        for (which, (key, adapter)) in kinds.into_iter().enumerate() {
            let found = numbers(&model.logits(&ids(prompt), adapter).unwrap());
            worst[which] = worst[which].max(largest(&found, &numbers(&values[&format!("{key}.{i}")])));
        }
    }
    worst
}

#[test]
#[ignore = "needs a GPU"]
fn logits_on_a_card_are_the_references() {
    for name in FIXTURES.iter().filter(|name| fixtures().join(name).exists()) {
        let (single, half) = (differences(name, Precision::F32), differences(name, Precision::Bf16));
        println!("{name}: f32 {single:?}, bf16 {half:?}");
        // The logits' standard deviation is 3.3; bf16 keeps eight bits of a number, and these networks are 32 wide.
        let tolerance = if name.starts_with("qwen3_5") { 2e-3 } else { 1e-4 };
        assert!(single.iter().all(|d| *d < tolerance), "{name}, f32: {single:?}");
        // Rounding the weights of the delta fixtures alone moves their logits by more than their own spread.
        assert!(name.starts_with("qwen3_5") || half.iter().all(|d| *d < 0.6), "{name}, bf16: {half:?}");
    }
}

/// A network of a fixture's dimensions with small weights, the same wherever it computes.
fn mild(name: &str, processor: Processor) -> Compute {
    let config = crate::model::testing::model(name).config;
    let offset = config.norm_offset();
    let mut numbers = |name: &str, count: usize| {
        let mut stream = crate::philox::Philox::named(name);
        let mut draw =
            |scale: f32| (0..count).map(|_| (stream.unit() as f32 - 0.5) * scale).collect::<Vec<_>>();
        Ok(Numbers::Given(match name {
            _ if name.contains("linear_attn.norm") => vec![1.0; count],
            _ if name.ends_with("norm.weight") => vec![1.0 - offset; count],
            _ if name.contains("embed") => draw(2.0),
            _ => draw(0.5),
        }))
    };
    Compute::new(processor, &config, &mut numbers).unwrap()
}

#[test]
#[ignore = "needs a GPU"]
fn bf16_on_a_card_is_close_to_f32_on_the_processor() {
    for name in ["llama_tied", "qwen3_untied", "qwen3_5_tied"] {
        let mut model = crate::model::testing::model(name);
        let tokens: Vec<u32> = (0..150).map(|i| (i * 37 + 11) % 256).collect();
        let mut logits = |processor| {
            model.compute = mild(name, processor);
            numbers(&model.logits(&tokens, None).unwrap())
        };
        let wanted = logits(Processor::Cpu);
        let spread = (wanted.iter().map(|x| x * x).sum::<f32>() / wanted.len() as f32).sqrt();
        let rounded = if name == "qwen3_5_tied" { 0.3 } else { 0.06 };
        for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Bf16, rounded)] {
            let found = logits(Processor::Cuda { card: 0, precision });
            let share = largest(&found, &wanted) / spread;
            println!("{name} in {}: largest difference {share} of the spread", precision.name());
            assert!(share < tolerance, "{name} in {}: {share}", precision.name());
        }
    }
}

fn greedy(id: usize, tokens: Vec<u32>, adapter: Option<usize>, most: usize) -> Request {
    let stream = Stream { seed: 0, task_id: "t".into(), rollout: 0, turn: 0 };
    Request { id: id as u64, tokens, adapter, sampling: Sampling::greedy(most), stream }
}

#[test]
#[ignore = "needs a GPU"]
fn greedy_answers_on_a_card_are_the_references() {
    for name in ["llama_tied", "qwen3_tied", "qwen3_untied", "qwen3_5_tied", "qwen3_5_tied_vl_layout"] {
        let model = on_card(name, Precision::F32);
        let expected = json(&format!("{}/expected.json", name.trim_end_matches("_vl_layout")));
        for (slots, record_steps) in [(1, true), (3, true), (3, false)] {
            let options = Options { record_steps, ..Options::new(slots, 128) };
            let mut engine = Engine::new(model.clone(), options).unwrap();
            let adapter = model.load_adapter(&fixtures().join(name).join("adapter")).unwrap();
            let adapter = Some(engine.add_adapter("fixture", adapter).unwrap());
            for (i, prompt) in expected["prompts"].as_array().unwrap().iter().enumerate() {
                engine.submit(greedy(2 * i, ids(prompt), None, 16)).unwrap();
                engine.submit(greedy(2 * i + 1, ids(prompt), adapter, 16)).unwrap();
            }
            for (id, (tokens, _)) in drain(&mut engine) {
                let key = ["greedy", "adapter_greedy"][id as usize % 2];
                assert_eq!(tokens, ids(&expected[key][id as usize / 2]), "{name}, {slots} slots, {key} {id}");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn answers_on_a_card_do_not_depend_on_slots_order_sharing_neighbours_or_time() {
    for name in ["llama_tied", "qwen3_tied", "qwen3_5_tied"] {
        for precision in [Precision::Bf16, Precision::F32] {
            let model = on_card(name, precision);
            let what = format!("{name} in {}", precision.name());
            same_answers_anywhere(&what, &model, &[2, 32, 256]);
            same_answers_at_any_time(&what, &model, &[3, 32, 256]);
            same_answers_when_killed(&what, &model, &[32, 256]);
            println!("{what}: the same");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn smollm2_on_a_card_answers_as_the_reference_does() {
    let Some(reference) = smollm2() else { return };
    let path = reference.origin.path.clone().unwrap();
    let golden = json("smollm2/smollm2_q4_1.json");
    for precision in [Precision::F32, Precision::Bf16] {
        let processor = Processor::Cuda { card: 0, precision };
        let model = Arc::new(Model::load_on(&Source::Gguf(path.clone()), processor).unwrap());
        // The reference went on behind the end of its answer.
        let options = Options { stop_at_ends: false, ..Options::new(3, 256) };
        let mut engine = Engine::new(model.clone(), options).unwrap();
        for (id, case) in golden["cases"].as_array().unwrap().iter().enumerate() {
            let tokens = ids(&case["prompt_tokens"]);
            let found = numbers(&model.logits(&tokens, None).unwrap());
            let difference = largest(&found, &numbers(&reference.logits(&tokens, None).unwrap()));
            println!("case {id} in {}: largest difference of a logit {difference}", precision.name());
            assert!(difference < if precision == Precision::F32 { 5e-3 } else { 1.5 });
            engine.submit(greedy(id, tokens, None, 32)).unwrap();
        }
        for (id, (tokens, _)) in drain(&mut engine) {
            let wanted = ids(&golden["cases"][id as usize]["greedy_32"]);
            let same = tokens.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
            println!("case {id} in {}: {same} of {} greedy tokens", precision.name(), wanted.len());
            assert!(precision == Precision::Bf16 || same == wanted.len());
        }
    }
}

/// What the kernel draws from one row of logits.
fn drawn(gpu: &Gpu, logits: &[f32], allowed: usize, draws: &[Draw]) -> Vec<Answer> {
    let source = [COMMON, include_str!("draw.cu")].concat();
    let kernel = Kernels::new(gpu, &source, &[]).unwrap().get("draw").unwrap();
    let rows = gpu.upload(&logits.repeat(draws.len())).unwrap();
    let (asked, answers) = (gpu.upload(draws).unwrap(), gpu.zeros(size_of_val(draws)).unwrap());
    let vocab = logits.len();
    let args: [Arg; 6] =
        [(&rows).into(), (&asked).into(), (&answers).into(), vocab.into(), allowed.into(), vocab.into()];
    gpu.launch(&kernel, [draws.len(), 1, 1], [1024, 1], 0, &args).unwrap();
    gpu.read(&answers, 0, draws.len()).unwrap()
}

/// The filters in plain f64: weight and id of what is kept, falling, ties by id.
fn kept(logits: &[f32], ask: &Draw) -> Vec<(f64, usize)> {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    let weight = |x: &f32| (f64::from(x - top) / f64::from(ask.temperature)).exp();
    let mut kept: Vec<(f64, usize)> = logits.iter().enumerate().map(|(i, x)| (weight(x), i)).collect();
    kept.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    if ask.top_k > 0 {
        kept.truncate(ask.top_k as usize);
    }
    if ask.top_p < 1.0 {
        let enough = kept.iter().map(|k| k.0).sum::<f64>() * f64::from(ask.top_p) * (1.0 - 1e-9);
        let mut reached = 0.0;
        let last = kept.iter().position(|k| {
            reached += k.0;
            reached >= enough
        });
        kept.truncate(last.map_or(kept.len(), |l| l + 1));
    }
    kept.retain(|k| k.0 >= f64::from(ask.min_p) * (1.0 - 1e-6));
    kept
}

#[test]
#[ignore = "needs a GPU"]
fn draws_on_a_card_follow_the_filtered_distribution() {
    const COUNT: usize = 2000;
    let gpu = Gpu::open(0).unwrap();
    let mut chance = crate::philox::Philox::named("draws");
    let filters = [
        (0, 1.0, 0.0, 1.0),
        (5, 1.0, 0.0, 0.7),
        (0, 0.6, 0.0, 1.3),
        (0, 1.0, 0.3, 1.0),
        (9, 0.8, 0.05, 1.0),
        (1, 1.0, 0.0, 1.0),
    ];
    for vocab in [40, 300, 5000] {
        // Coarse steps, so that many logits are equal.
        let logits: Vec<f32> = (0..vocab).map(|_| (chance.below(40) as f32 - 20.0) / 4.0).collect();
        let allowed = vocab - 7;
        let log_sum = logits.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
        for (top_k, top_p, min_p, temperature) in filters {
            let ask = Draw { row: 0, top_k, temperature, top_p, min_p, logprob: 1, unit: 0.0 };
            let draws: Vec<Draw> =
                (0..COUNT).map(|i| Draw { unit: (i as f64 + 0.5) / COUNT as f64, ..ask }).collect();
            let answers = drawn(&gpu, &logits, allowed, &draws);
            let kept = kept(&logits[..allowed], &ask);
            let total: f64 = kept.iter().map(|k| k.0).sum();
            for answer in &answers {
                let id = answer.token as usize;
                assert!(kept.iter().any(|k| k.1 == id), "{ask:?}: {id} of {vocab} was filtered out");
                assert!((f64::from(logits[id]) - log_sum - f64::from(answer.logprob)).abs() < 1e-4);
            }
            for (weight, id) in &kept {
                let found = answers.iter().filter(|a| a.token as usize == *id).count() as f64;
                assert!((found - weight / total * COUNT as f64).abs() <= 1.5, "{ask:?}: id {id} of {vocab}");
            }
            let greedy = drawn(&gpu, &logits, allowed, &[Draw { temperature: 0.0, ..ask }]);
            assert_eq!(greedy[0].token as usize, kept_first(&logits[..allowed]));
        }
    }
    let broken = Draw { temperature: 1.0, top_p: 1.0, ..Draw::default() };
    assert_eq!(drawn(&gpu, &[1.0, f32::NAN, 2.0], 3, &[broken])[0].token, -1);
}

fn kept_first(logits: &[f32]) -> usize {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    logits.iter().position(|x| *x == top).unwrap()
}
