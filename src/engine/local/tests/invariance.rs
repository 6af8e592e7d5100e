//! Invariant 8, tested on small networks: an answer's tokens and log-probabilities have the
//! same bits whatever else the engine does at the time.

use super::*;

#[test]
fn answers_do_not_depend_on_slots_order_sharing_or_neighbours() {
    let sizes = [2, 3, 8, 32, 256];
    networks().iter().for_each(|(name, model)| same_answers_anywhere(name, model, &sizes));
}

pub(in crate::engine::local) fn same_answers_anywhere(name: &str, model: &Arc<Model>, sizes: &[usize]) {
    let requests = requests(40, "mixed");
    let want = one_by_one(model, &requests);
    assert!(want.values().any(|(tokens, _)| tokens.len() > 10));
    for &slots in sizes {
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
    let sizes = [2, 3, 8, 32, 256];
    networks().iter().for_each(|(name, model)| same_answers_at_any_time(name, model, &sizes));
}

pub(in crate::engine::local) fn same_answers_at_any_time(name: &str, model: &Arc<Model>, sizes: &[usize]) {
    let requests = requests(60, "staggered");
    let want = one_by_one(model, &requests);
    let mut cancelled = 0;
    for (round, &slots) in sizes.iter().enumerate() {
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
        assert!(given_up.len() < 40);
        cancelled += given_up.len();
        let left: Answers =
            want.iter().filter(|(id, _)| !given_up.contains(id)).map(|(k, v)| (*k, v.clone())).collect();
        check(&got, &left, &format!("{name}, {slots} slots, staggered"));
    }
    assert!(cancelled > 0);
}

#[test]
fn answers_do_not_depend_on_an_engine_that_died() {
    networks().iter().for_each(|(name, model)| same_answers_when_killed(name, model, &[3, 32, 256]));
}

/// An engine goes with all that its lanes held; another takes over what was not answered.
pub(in crate::engine::local) fn same_answers_when_killed(name: &str, model: &Arc<Model>, sizes: &[usize]) {
    let requests = requests(60, "killed");
    let want = one_by_one(model, &requests);
    for &slots in sizes {
        let mut got = Answers::new();
        for life in 0.. {
            let mut engine = engine(model, slots, 2, life % 2 == 0);
            for request in requests.iter().filter(|r| !got.contains_key(&r.id)) {
                engine.submit(request.clone()).unwrap();
            }
            // The first two lives end in the middle of their calls.
            let (before, most) = (got.len(), if life < 2 { 15 } else { requests.len() });
            while engine.in_flight() > 0 && got.len() < before + most {
                note(&mut got, engine.step().unwrap());
            }
            if engine.in_flight() == 0 {
                assert!(life >= 2 || slots == 256, "{name}, {slots} slots: {life} lives");
                break;
            }
        }
        check(&got, &want, &format!("{name}, {slots} slots, killed and resumed"));
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
    assert_eq!(lone.counters().steps as usize, 150usize.div_ceil(CPU_ROWS) + done.tokens.len() - 1);
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
fn one_and_two_threads_give_the_same_bits() {
    let model = model();
    let requests = requests(16, "threads");
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| all_at_once(&mut engine(&model, 8, 0, true), requests.clone()))
    };
    check(&run(1), &run(3), "threads");
}
