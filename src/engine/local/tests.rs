//! Invariant 8, tested on a small network: an answer's tokens and log-probabilities have the
//! same bits whatever else the engine does at the time.

use super::*;
use crate::engine::{Sampling, Stream};
use crate::model::{LoraConfig, Target, TinySpec};
use crate::philox::Philox;
use std::collections::BTreeMap;

const CONTEXT: usize = 160;

fn model() -> Arc<Model> {
    let spec = TinySpec {
        seed: 7,
        hidden: 48,
        intermediate: 80,
        layers: 3,
        heads: 6,
        kv_heads: 2,
        max_positions: 512,
        merges: Vec::new(),
    };
    Arc::new(Model::tiny(&spec).unwrap())
}

/// The tiny Llama, and a small network of each other architecture.
fn networks() -> [(&'static str, Arc<Model>); 3] {
    let fixture = |name: &'static str| (name, Arc::new(crate::model::testing::model(name)));
    [("tiny llama", model()), fixture("qwen3_tied"), fixture("qwen3_5_tied")]
}

/// An adapter that changes something.
fn adapter(model: &Model, seed: u64) -> Lora {
    adapter_times(model, seed, 0.6)
}

fn adapter_times(model: &Model, seed: u64, scale: f32) -> Lora {
    let config = LoraConfig { rank: 4, alpha: 8.0, targets: Target::of_network(&model.config) };
    let (lora, vars) = Lora::init(&model.config, &config, seed).unwrap().trainable().unwrap();
    let mut noise = Philox::named(&format!("test adapter {seed}"));
    for (_, var) in vars.iter().filter(|(name, _)| name.contains("lora_B")) {
        let values: Vec<f32> = (0..var.elem_count()).map(|_| (noise.unit() as f32 - 0.5) * scale).collect();
        var.set(&Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap()).unwrap();
    }
    lora.snapshot().unwrap()
}

fn engine(model: &Arc<Model>, slots: usize, kept: usize, share_prefixes: bool) -> Engine {
    let mut engine =
        Engine::new(model.clone(), Options { slots, context: CONTEXT, kept, share_prefixes }).unwrap();
    for seed in 0..2 {
        assert_eq!(engine.add_adapter(format!("a{seed}"), adapter(model, seed)).unwrap(), seed as usize);
    }
    engine
}

/// Calls of many lengths; some share prefixes, some adapters, some are greedy, some drawn.
fn requests(count: u64, name: &str) -> Vec<Request> {
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
type Answers = BTreeMap<u64, (Vec<u32>, Vec<u32>)>;

fn note(answers: &mut Answers, done: Vec<Completion>) {
    for c in done {
        let bits = c.logprobs.unwrap_or_default().iter().map(|x| x.to_bits()).collect();
        assert!(answers.insert(c.id, (c.tokens, bits)).is_none());
    }
}

fn drain(engine: &mut Engine) -> Answers {
    let mut answers = Answers::new();
    for _ in 0..10_000 {
        if engine.in_flight() == 0 {
            return answers;
        }
        note(&mut answers, engine.step().unwrap());
    }
    panic!("the engine does not come to an end");
}

fn all_at_once(engine: &mut Engine, requests: impl IntoIterator<Item = Request>) -> Answers {
    for request in requests {
        engine.submit(request).unwrap();
    }
    drain(engine)
}

/// Each call alone in a fresh engine, without sharing.
fn one_by_one(model: &Arc<Model>, requests: &[Request]) -> Answers {
    let mut answers = Answers::new();
    for request in requests {
        answers.extend(all_at_once(&mut engine(model, 2, 0, false), [request.clone()]));
    }
    answers
}

fn check(got: &Answers, want: &Answers, what: &str) {
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{what}");
    for (id, answer) in got {
        assert_eq!(answer, &want[id], "{what}: call {id}");
    }
}

#[test]
fn answers_do_not_depend_on_slots_order_sharing_or_neighbours() {
    networks().iter().for_each(|(name, model)| same_answers_anywhere(name, model));
}

fn same_answers_anywhere(name: &str, model: &Arc<Model>) {
    let requests = requests(40, "mixed");
    let want = one_by_one(model, &requests);
    assert!(want.values().any(|(tokens, _)| tokens.len() > 10));
    for slots in [2, 3, 8, 32] {
        for share in [false, true] {
            let mut engine = engine(model, slots, slots / 2, share);
            let got = all_at_once(&mut engine, requests.clone());
            check(&got, &want, &format!("{name}, {slots} slots, sharing {share}"));
            let shared = engine.counters().shared_tokens > 0;
            // A memory is shared as a whole only, which few of these prompts allow.
            assert!(shared == share || share && model.config.delta.is_some());
            let mut shuffled = requests.clone();
            Philox::named(&format!("order {slots}")).shuffle(&mut shuffled);
            // The same engine again, with whatever the lanes now hold.
            let got = all_at_once(&mut engine, shuffled);
            check(&got, &want, &format!("{name}, {slots} slots, sharing {share}, another order"));
        }
    }
}

#[test]
fn answers_do_not_depend_on_when_calls_arrive_or_are_given_up() {
    networks().iter().for_each(|(name, model)| same_answers_at_any_time(name, model));
}

fn same_answers_at_any_time(name: &str, model: &Arc<Model>) {
    let requests = requests(60, "staggered");
    let want = one_by_one(model, &requests);
    for (round, slots) in [(0, 2), (1, 3), (2, 8), (3, 32)] {
        let mut chance = Philox::named(&format!("arrivals {round}"));
        let mut engine = engine(model, slots, 2, round % 2 == 0);
        let mut waiting = requests.clone();
        chance.shuffle(&mut waiting);
        let mut given_up = Vec::new();
        let mut got = Answers::new();
        while engine.in_flight() > 0 || !waiting.is_empty() {
            for _ in 0..chance.below(4).min(waiting.len()) {
                engine.submit(waiting.pop().unwrap()).unwrap();
            }
            if chance.below(5) == 0 {
                let id = chance.below(60) as u64;
                if engine.cancel(id) {
                    given_up.push(id);
                }
            }
            note(&mut got, engine.step().unwrap());
        }
        assert!(!given_up.is_empty() && given_up.len() < 40);
        let left: Answers =
            want.iter().filter(|(id, _)| !given_up.contains(id)).map(|(k, v)| (*k, v.clone())).collect();
        check(&got, &left, &format!("{name}, {slots} slots, staggered"));
    }
}

#[test]
fn greedy_answers_are_the_references_with_and_without_adapters_in_one_batch() {
    use crate::model::testing::{fixtures, ids, json};
    for name in ["llama_tied", "qwen3_tied", "qwen3_untied", "qwen3_5_tied", "qwen3_5_tied_vl_layout"] {
        let model = Arc::new(crate::model::testing::model(name));
        let expected = json(&format!("{}/expected.json", name.trim_end_matches("_vl_layout")));
        for slots in [1, 3] {
            let mut engine = Engine::new(model.clone(), Options::new(slots, 128)).unwrap();
            let adapter = model.load_adapter(&fixtures().join(name).join("adapter")).unwrap();
            let adapter = Some(engine.add_adapter("fixture", adapter).unwrap());
            for (i, prompt) in expected["prompts"].as_array().unwrap().iter().enumerate() {
                for (id, adapter) in [(2 * i, None), (2 * i + 1, adapter)] {
                    let stream = Stream { seed: 0, task_id: "t".into(), rollout: 0, turn: 0 };
                    let sampling = Sampling::greedy(16);
                    let request = Request { id: id as u64, tokens: ids(prompt), adapter, sampling, stream };
                    engine.submit(request).unwrap();
                }
            }
            for (id, (tokens, _)) in drain(&mut engine) {
                let key = ["greedy", "adapter_greedy"][id as usize % 2];
                assert_eq!(tokens, ids(&expected[key][id as usize / 2]), "{name}, {slots} slots, {key} {id}");
            }
        }
    }
}

#[test]
fn a_call_whose_draw_fails_and_is_given_up_leaves_its_neighbours_alone() {
    for (name, model) in networks() {
        let calls: Vec<Request> =
            requests(6, "neighbours").into_iter().map(|r| Request { adapter: None, ..r }).collect();
        let want = one_by_one(&model, &calls);
        let mut engine = engine(&model, 4, 0, false);
        let broken = engine.add_adapter("broken", adapter_times(&model, 9, 1e30)).unwrap();
        for (i, call) in calls.iter().enumerate() {
            engine.submit(call.clone()).unwrap();
            if i == 1 {
                let tokens = vec![20, 21, 22];
                engine.submit(Request { id: 99, adapter: Some(broken), tokens, ..call.clone() }).unwrap();
            }
        }
        let (mut got, mut failed) = (Answers::new(), 0);
        while engine.in_flight() > 0 {
            match engine.step() {
                Ok(done) => note(&mut got, done),
                Err(_) => {
                    failed += 1;
                    assert!(failed < 3, "{name}");
                    engine.cancel(99);
                }
            }
        }
        assert_eq!(failed, 1, "{name}: the broken adapter's logits are not finite");
        check(&got, &want, name);
    }
}

#[test]
fn rollouts_of_one_task_share_its_prompt_where_layers_have_a_memory() {
    let (_, model) = &networks()[2];
    let prompt: Vec<u32> = (0..60).map(|i| 10 + i * 3).collect();
    let rollout = |id: u64, tail: u32| {
        let mut request = requests(1, "rollouts").remove(0);
        (request.id, request.stream.rollout, request.adapter) = (id, id as u32, None);
        request.tokens = [prompt.clone(), vec![tail]].concat();
        request.sampling = Sampling { temperature: 1.0, ..Sampling::greedy(6) };
        request
    };
    // More rollouts than slots: the later ones start when the first have long gone on.
    let mut engine = engine(model, 2, 2, true);
    all_at_once(&mut engine, (0..8).map(|id| rollout(id, 9)));
    assert_eq!(engine.counters().prefill_tokens, 60 + 8, "the prompt was computed once");
    assert_eq!(engine.counters().shared_tokens, 7 * 60);
}

#[test]
fn prefill_in_any_chunks_equals_the_models_own_logits_closely_and_itself_exactly() {
    let model = model();
    let mut p = Philox::named("long prompt");
    let tokens: Vec<u32> = (0..150).map(|_| 10 + p.below(200) as u32).collect();
    let mut request = requests(1, "x").remove(0);
    request.tokens = tokens.clone();
    request.adapter = None;
    request.sampling = Sampling { logprobs: true, ..Sampling::greedy(5) };
    let mut lone = engine(&model, 2, 0, false);
    lone.submit(request.clone()).unwrap();
    let done = loop {
        if let Some(c) = lone.step().unwrap().pop() {
            break c;
        }
    };
    assert_eq!(lone.counters().prefill_tokens, 150);
    assert_eq!(lone.counters().steps as usize, 150usize.div_ceil(ROW_BUDGET) + done.tokens.len() - 1);
    let whole = [tokens, done.tokens.clone()].concat();
    let logits: Vec<Vec<f32>> = model.logits(&whole, None).unwrap().to_vec2().unwrap();
    for (i, (token, logprob)) in done.tokens.iter().zip(done.logprobs.unwrap()).enumerate() {
        let row = &logits[149 + i];
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        assert!((f64::from(row[*token as usize]) - sum.ln() - f64::from(logprob)).abs() < 1e-4);
    }
}

#[test]
fn adapters_answer_differently_and_base_calls_beside_them_stay_the_same() {
    let model = model();
    let base: Vec<Request> =
        requests(12, "base").into_iter().map(|r| Request { adapter: None, ..r }).collect();
    let want = one_by_one(&model, &base);
    let adapted: Vec<Request> = base
        .iter()
        .map(|r| Request { id: r.id + 100, adapter: Some(r.id as usize % 2), ..r.clone() })
        .collect();
    let mixed = all_at_once(&mut engine(&model, 8, 2, true), base.iter().cloned().chain(adapted.clone()));
    let changed = adapted.iter().filter(|r| mixed[&r.id].1 != want[&(r.id - 100)].1).count();
    assert_eq!(changed, adapted.len(), "log-probabilities of an adapter are its own");
    check(&mixed.into_iter().filter(|(id, _)| *id < 100).collect(), &want, "base beside adapters");
}

#[test]
fn samples_of_one_prompt_share_its_prefill() {
    let model = model();
    let prompt = requests(1, "prompt").remove(0);
    let tokens: Vec<u32> = (20..140).collect();
    let samples: Vec<Request> = (0..8)
        .map(|k| Request {
            id: k,
            tokens: tokens.clone(),
            stream: Stream { rollout: k as u32, ..prompt.stream.clone() },
            sampling: Sampling { temperature: 1.0, logprobs: true, ..Sampling::greedy(12) },
            adapter: None,
        })
        .collect();
    let want = one_by_one(&model, &samples);
    let mut engine = engine(&model, 4, 1, true);
    check(&all_at_once(&mut engine, samples), &want, "samples of one prompt");
    let counters = engine.counters();
    assert_eq!(counters.prefill_tokens, tokens.len() as u64 + 7);
    assert_eq!(counters.shared_tokens, 7 * (tokens.len() as u64 - 1));
    assert_eq!(counters.decode_tokens, want.values().map(|(t, _)| t.len() as u64).sum::<u64>());
    assert!(want.values().any(|a| a.0 != want[&0].0), "rollouts differ");
}

#[test]
fn a_later_turn_continues_its_cache_with_the_bits_of_a_fresh_prefill() {
    let model = model();
    let mut engine = engine(&model, 2, 2, true);
    let mut context = requests(1, "turns").remove(0).tokens;
    for turn in 0..4u32 {
        let request = Request {
            id: u64::from(turn),
            tokens: context.clone(),
            adapter: Some(1),
            sampling: Sampling { logprobs: true, ..Sampling::greedy(6) },
            stream: Stream { seed: 1, task_id: "turns".into(), rollout: 0, turn },
        };
        let before = engine.counters();
        let got = all_at_once(&mut engine, [request.clone()]);
        check(&got, &one_by_one(&model, &[request]), &format!("turn {turn}"));
        if turn > 0 {
            // All but the last sampled token and the new words was there already.
            assert_eq!(engine.counters().prefill_tokens - before.prefill_tokens, 4);
        }
        context.extend(&got[&u64::from(turn)].0);
        context.extend([30 + turn, 40, 50]);
    }
}

#[test]
fn the_context_length_ends_a_call() {
    let model = model();
    let mut engine = engine(&model, 2, 0, true);
    let template = requests(1, "length").remove(0);
    for length in [CONTEXT - 1, CONTEXT - 5] {
        let tokens = (0..length).map(|i| 10 + (i % 90) as u32).collect();
        let request = Request { tokens, sampling: Sampling::greedy(1000), adapter: None, ..template.clone() };
        engine.submit(request).unwrap();
        let mut done = Vec::new();
        while engine.in_flight() > 0 {
            done.extend(engine.step().unwrap());
        }
        let ended = done[0].tokens.last().is_some_and(|t| model.end_tokens().contains(t));
        assert!(done[0].tokens.len() + length == CONTEXT && done[0].finish == Finish::Length || ended);
        assert_eq!(done[0].prompt_tokens, length);
        assert_eq!(done[0].logprobs, None);
    }
    let tokens = vec![10; CONTEXT];
    let refused = engine.submit(Request { tokens, ..template }).unwrap_err().to_string();
    assert!(refused.contains("160") && refused.contains("hint"), "{refused}");
}

#[test]
fn end_tokens_and_max_tokens_end_a_call() {
    let model = model();
    let want = one_by_one(&model, &requests(20, "ends"));
    for request in requests(20, "ends") {
        let (tokens, bits) = &want[&request.id];
        assert_eq!(tokens.len(), bits.len());
        let ends = |t: &u32| model.end_tokens().contains(t);
        assert!(tokens[..tokens.len() - 1].iter().all(|t| !ends(t)));
        assert!(tokens.len() == request.sampling.max_tokens || tokens.last().is_some_and(ends));
    }
}

#[test]
fn a_stop_string_ends_a_call_and_is_cut_from_its_text() {
    let model = model();
    let mut checked = 0;
    for request in requests(12, "stops") {
        let sampling = Sampling { temperature: 1.2, ..Sampling::greedy(60) };
        let request = Request { sampling, adapter: None, ..request };
        let mut engine = engine(&model, 2, 0, true);
        let mut run = |stop: Vec<String>, id: u64| {
            let sampling = Sampling { stop, ..request.sampling.clone() };
            engine.submit(Request { id, sampling, ..request.clone() }).unwrap();
            let mut done = Vec::new();
            while engine.in_flight() > 0 {
                done.extend(engine.step().unwrap());
            }
            done.remove(0)
        };
        let free = run(vec![], 0);
        let readable: Vec<char> = free.text.chars().filter(|c| c.is_ascii_graphic()).collect();
        let Some(stop) = readable.get(readable.len() / 2).map(char::to_string) else { continue };
        let stopped = run(vec!["never said by anyone".into(), stop.clone()], 1);
        assert_eq!(stopped.finish, Finish::Stop);
        assert_eq!(stopped.text, free.text[..free.text.find(&stop).unwrap()]);
        assert_eq!(stopped.tokens, free.tokens[..stopped.tokens.len()]);
        assert!(model.decode(&stopped.tokens, true).unwrap().ends_with(&stop), "not one token late");
        checked += 1;
    }
    assert!(checked > 6);
}

#[test]
fn extending_keeps_sampled_ids_and_equals_rendering_the_conversation() {
    let model = model();
    let engine = engine(&model, 2, 0, true);
    let (first, next) = (Message::user("Is 7 prime?"), Message::user("And 9?"));
    let context = engine.render(std::slice::from_ref(&first)).unwrap();
    let said = model.encode("Yes, it is.").unwrap();
    let want = engine.render(&[first, Message::assistant("Yes, it is."), next.clone()]).unwrap();
    let end = model.end_tokens()[0];
    assert_eq!(engine.extend(&context, &said, &next).unwrap(), want);
    assert_eq!(engine.extend(&context, &[&said[..], &[end]].concat(), &next).unwrap(), want);
    // Ids that no text would be tokenised to stay as they were sampled.
    let odd = engine.extend(&context, &[200, 201, end], &next).unwrap();
    assert_eq!(odd[..context.len() + 3], [&context[..], &[200, 201, end]].concat());
}

#[test]
fn what_can_never_run_is_refused_with_its_place() {
    let model = model();
    let mut engine = engine(&model, 2, 0, true);
    let good = requests(1, "refused").remove(0);
    let refuse = |engine: &mut Engine, request: Request| {
        let message = engine.submit(request).unwrap_err().to_string();
        assert!(message.starts_with("request 0: "), "{message}");
    };
    refuse(&mut engine, Request { tokens: vec![], ..good.clone() });
    refuse(&mut engine, Request { tokens: vec![u32::MAX], ..good.clone() });
    refuse(&mut engine, Request { adapter: Some(2), ..good.clone() });
    refuse(&mut engine, Request { sampling: Sampling::greedy(0), ..good.clone() });
    engine.submit(good.clone()).unwrap();
    refuse(&mut engine, good);
    assert_eq!(engine.in_flight(), 1);
    for (slots, context) in [(0, 10), (ROW_BUDGET + 1, 10), (1, 1), (1, usize::MAX)] {
        assert!(Engine::new(model.clone(), Options::new(slots, context)).is_err());
    }
    assert!(engine.add_adapter("a0", adapter(&model, 3)).is_err(), "the name is taken");
    assert!(Engine::new(model.clone(), Options { kept: usize::MAX, ..Options::new(1, 10) }).is_err());
    let mut config = model.config.clone();
    config.layers = 1 << 30;
    let refused = MemoryPlan::new(&config, &Options::new(64, 512)).check().unwrap_err().to_string();
    assert!(refused.contains("MiB") && refused.contains("fewer slots"), "{refused}");
}

#[test]
fn no_slot_is_lost_over_many_calls() {
    let model = model();
    let mut engine = engine(&model, 5, 1, true);
    let mut chance = Philox::named("leak");
    let mut answered = 0;
    let mut cancelled = 0;
    for batch in 0..10 {
        for request in requests(20, &format!("leak {batch}")) {
            engine.submit(request).unwrap();
        }
        while engine.in_flight() > 0 {
            answered += engine.step().unwrap().len();
            cancelled += usize::from(chance.below(20) == 0 && engine.cancel(chance.below(20) as u64));
        }
    }
    assert_eq!(answered + cancelled, 200);
    assert!(cancelled > 0);
    assert_eq!((engine.lanes.running(), engine.lanes.lanes.len()), (0, 6));
    assert!(engine.step().unwrap().is_empty());
}

#[test]
fn one_and_two_threads_give_the_same_bits() {
    let model = model();
    let requests = requests(16, "threads");
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| all_at_once(&mut engine(&model, 8, 0, true), requests.clone()))
    };
    check(&run(1), &run(3), "threads");
}

#[test]
fn identity_names_what_can_change_an_answer() {
    let model = model();
    let a = engine(&model, 2, 0, true);
    assert_eq!(a.identity(), engine(&model, 2, 3, false).identity());
    let b = engine(&model, 3, 0, true);
    assert_ne!(a.identity().engine_sha256, b.identity().engine_sha256);
    assert_eq!((a.identity().slots, a.identity().dtype.as_str()), (2, "f32"));
    assert_eq!(a.identity().model_sha256, model.origin.sha256);
    let plan = b.memory_plan();
    // The context is a whole number of key blocks, so keys take as much as values.
    let lane = 2 * 4 * model.config.layers * model.config.kv_heads * model.config.head_dim * CONTEXT;
    assert_eq!(plan.cache_bytes, 3 * lane as u64);
    assert!(plan.total_bytes() > plan.weights_bytes + plan.cache_bytes);
}
