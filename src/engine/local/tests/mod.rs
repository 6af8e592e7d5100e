//! What the engine's tests share: small networks, adapters, many kinds of calls, and their answers
//! by one call at a time, which is what every other way to run them must give to the bit.

pub(super) mod invariance;
mod rules;
mod thoughts;

pub(in crate::engine::local) use super::*;
use crate::engine::{Sampling, Stream};
use crate::model::{LoraConfig, Target, TinySpec};
use crate::philox::Philox;
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;

pub(in crate::engine::local) const CONTEXT: usize = 160;

pub(in crate::engine::local) fn model() -> Arc<Model> {
    let spec = TinySpec {
        seed: 7,
        hidden: 48,
        intermediate: 80,
        layers: 3,
        heads: 6,
        kv_heads: 2,
        max_positions: 512,
        ..TinySpec::default()
    };
    Arc::new(Model::tiny(&spec).unwrap())
}

/// The tiny Llama, and a small network of each other architecture.
pub(in crate::engine::local) fn networks() -> [(&'static str, Arc<Model>); 3] {
    let fixture = |name: &'static str| (name, Arc::new(crate::model::testing::model(name)));
    [("tiny llama", model()), fixture("qwen3_tied"), fixture("qwen3_5_tied")]
}

/// An adapter that changes something.
pub(in crate::engine::local) fn adapter(model: &Model, seed: u64) -> Lora {
    adapter_times(model, seed, 0.6)
}

pub(in crate::engine::local) fn adapter_times(model: &Model, seed: u64, scale: f32) -> Lora {
    let config = LoraConfig { rank: 4, alpha: 8.0, targets: Target::of_network(&model.config) };
    let (lora, vars) = Lora::init(&model.config, &config, seed).unwrap().trainable().unwrap();
    let mut noise = Philox::named(&format!("test adapter {seed}"));
    for (_, var) in vars.iter().filter(|(name, _)| name.contains("lora_B")) {
        let values: Vec<f32> = (0..var.elem_count()).map(|_| (noise.unit() as f32 - 0.5) * scale).collect();
        var.set(&Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap()).unwrap();
    }
    lora.snapshot().unwrap()
}

pub(in crate::engine::local) fn engine(
    model: &Arc<Model>,
    slots: usize,
    kept: usize,
    share_prefixes: bool,
) -> Engine {
    let mut engine =
        Engine::new(model.clone(), Options { kept, share_prefixes, ..Options::new(slots, CONTEXT) }).unwrap();
    for seed in 0..2 {
        assert_eq!(engine.add_adapter(format!("a{seed}"), adapter(model, seed)).unwrap(), seed as usize);
    }
    engine
}

/// Calls of many lengths; some share prefixes, some adapters, some are greedy, some drawn.
pub(in crate::engine::local) fn requests(count: u64, name: &str) -> Vec<Request> {
    let mut p = Philox::named(name);
    let mut draw = |n: usize| (0..n).map(|_| 10 + p.below(200) as u32).collect::<Vec<_>>();
    let stems = [draw(70), draw(33), Vec::new()];
    let mut p = Philox::named(&format!("{name} choices"));
    (0..count)
        .map(|id| {
            let mut tokens = stems[p.below(3)].clone();
            tokens.truncate(p.below(71));
            tokens.extend((0..1 + p.below(20)).map(|_| 10 + p.below(200) as u32));
            let mut sampling = Sampling { logprobs: true, ..Sampling::greedy(1 + p.below(24)) };
            if p.below(2) == 1 {
                sampling.temperature = 0.9;
                sampling.top_k = [0, 20][p.below(2)];
                sampling.top_p = [1.0, 0.9][p.below(2)];
                sampling.min_p = [0.0, 0.02][p.below(2)];
            }
            let stream =
                Stream { seed: 5, task_id: format!("task {}", id / 2), rollout: (id % 2) as u32, turn: 0 };
            Request { id, tokens, adapter: [None, Some(0), Some(1)][p.below(3)], sampling, stream }
        })
        .collect()
}

/// Tokens and log-probability bits of each call.
pub(in crate::engine::local) type Answers = BTreeMap<u64, (Vec<u32>, Vec<u32>)>;

pub(in crate::engine::local) fn note(answers: &mut Answers, done: Vec<Completion>) {
    for c in done {
        let bits = c.logprobs.unwrap_or_default().iter().map(|x| x.to_bits()).collect();
        assert!(answers.insert(c.id, (c.tokens, bits)).is_none());
    }
}

pub(in crate::engine::local) fn drain(engine: &mut Engine) -> Answers {
    let mut answers = Answers::new();
    for _ in 0..10_000 {
        if engine.in_flight() == 0 {
            return answers;
        }
        note(&mut answers, engine.step().unwrap());
    }
    panic!("the engine does not come to an end");
}

pub(in crate::engine::local) fn all_at_once(
    engine: &mut Engine,
    requests: impl IntoIterator<Item = Request>,
) -> Answers {
    for request in requests {
        engine.submit(request).unwrap();
    }
    drain(engine)
}

/// Each call alone in a fresh engine, without sharing.
pub(in crate::engine::local) fn one_by_one(model: &Arc<Model>, requests: &[Request]) -> Answers {
    let mut answers = Answers::new();
    for request in requests {
        answers.extend(all_at_once(&mut engine(model, 2, 0, false), [request.clone()]));
    }
    answers
}

pub(in crate::engine::local) fn check(got: &Answers, want: &Answers, what: &str) {
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{what}");
    for (id, answer) in got {
        assert_eq!(answer, &want[id], "{what}: call {id}");
    }
}
