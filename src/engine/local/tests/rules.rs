//! The engine's other rules: what ends a call, what is refused, what is counted, and that nothing is lost.

use super::*;

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
        assert_eq!(done[0].prompt_tokens, Some(length));
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
    for (slots, context) in [(0, 10), (MOST_SLOTS + 1, 10), (1, 1), (1, usize::MAX)] {
        assert!(Engine::new(model.clone(), Options::new(slots, context)).is_err());
    }
    assert!(engine.add_adapter("a0", adapter(&model, 3)).is_err(), "the name is taken");
    assert!(Engine::new(model.clone(), Options { kept: usize::MAX, ..Options::new(1, 10) }).is_err());
    let mut config = model.config.clone();
    config.layers = 1 << 30;
    let plan = MemoryPlan::on_the_processor(&config, &Options::new(64, 512));
    let refused = plan.check(&model).unwrap_err().to_string();
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
fn identity_names_what_can_change_an_answer() {
    let model = model();
    let a = engine(&model, 2, 0, true);
    assert_eq!(a.identity(), engine(&model, 2, 3, false).identity());
    let b = engine(&model, 3, 0, true);
    assert_ne!(a.identity().engine_sha256, b.identity().engine_sha256);
    assert_eq!((a.identity().slots, a.identity().dtype.as_deref()), (Some(2), Some("f32")));
    assert_eq!(a.identity().model_sha256, model.origin.sha256);
    let plan = b.memory_plan();
    // The context is a whole number of key blocks, so keys take as much as values.
    let lane = 2 * 4 * model.config.layers * model.config.kv_heads * model.config.head_dim * CONTEXT;
    assert_eq!(plan.cache_bytes, 3 * lane as u64);
    assert!(plan.total_bytes() > plan.weights_bytes + plan.cache_bytes);
}
