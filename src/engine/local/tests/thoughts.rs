//! Thoughts under a budget: what closes them, what is counted, and that neighbours change nothing.

use super::*;
use crate::engine::{Close, Thought};

fn thinker() -> Arc<Model> {
    Arc::new(Model::tiny(&TinySpec { seed: 3, thoughts: true, ..TinySpec::default() }).unwrap())
}

/// Completions of all requests, by id.
fn complete(model: &Arc<Model>, slots: usize, requests: Vec<Request>) -> BTreeMap<u64, Completion> {
    let options = Options { thinking: true, ..Options::new(slots, 400) };
    let mut engine = Engine::new(model.clone(), options).unwrap();
    for request in requests {
        engine.submit(request).unwrap();
    }
    let mut done = BTreeMap::new();
    while engine.in_flight() > 0 {
        done.extend(engine.step().unwrap().into_iter().map(|c| (c.id, c)));
    }
    done
}

fn ask(model: &Model, id: u64, budget: Option<usize>, thinking: bool) -> Request {
    let sampling = Sampling { temperature: 1.0, thinking: budget, logprobs: true, ..Sampling::greedy(7) };
    Request {
        id,
        tokens: model.prompt(&[Message::user(format!("Count to {id}."))], thinking).unwrap(),
        adapter: None,
        sampling,
        stream: Stream { seed: 1, task_id: format!("t{id}"), rollout: 0, turn: 0 },
    }
}

#[test]
fn a_spent_budget_closes_the_thought_and_an_answer_follows() {
    let model = thinker();
    let requests: Vec<Request> =
        (0..40).map(|id| ask(&model, id, Some(1 + id as usize % 23), true)).collect();
    let ends = |t: &u32| model.end_tokens().contains(t);
    let closing = model.encode("\n</think>\n\n").unwrap();
    let want = complete(&model, 1, requests.clone());
    let (mut forced, mut never) = (0, 0);
    for (id, done) in &want {
        let budget = 1 + *id as usize % 23;
        let thought = done.thought.expect("the prompt opens one");
        assert!(thought.opened_before && thought.tokens <= budget, "{thought:?}");
        let nan = done.logprobs.as_ref().unwrap().iter().filter(|p| p.is_nan()).count();
        match thought.close {
            Close::Forced => {
                forced += 1;
                assert_eq!((thought.tokens, nan), (budget, closing.len()));
                assert_eq!(done.tokens[budget..budget + closing.len()], closing);
                let answer = &done.tokens[budget + closing.len()..];
                assert!(answer.len() == 7 || (answer.len() < 7 && answer.last().is_some_and(ends)));
                assert!(done.said().starts_with("<think>") && done.text.contains("</think>"));
            }
            // The turn ended inside its thought: nothing was put behind it.
            Close::Never => {
                never += 1;
                assert!(done.tokens.last().is_some_and(ends) && nan == 0, "{done:?}");
            }
            Close::Natural => assert!(done.text.contains("</think>") && nan == 0),
        }
        assert_eq!(done.logprobs.as_ref().unwrap().len(), done.tokens.len());
    }
    assert!(forced > 30, "{forced} forced, {never} never closed");
    let mut order = requests;
    order.reverse();
    for slots in [3, 16] {
        let got = complete(&model, slots, order.clone());
        assert!(
            want.iter().all(|(id, done)| got[id].tokens == done.tokens && got[id].thought == done.thought)
        );
    }
}

#[test]
fn without_a_thought_the_budget_changes_nothing() {
    let model = thinker();
    let with = complete(&model, 2, (0..8).map(|id| ask(&model, id, Some(5), false)).collect());
    let without = complete(&model, 2, (0..8).map(|id| ask(&model, id, None, false)).collect());
    for (id, done) in &with {
        let opened = matches!(done.thought, Some(Thought { opened_before: false, .. }));
        assert!(opened || (done.thought.is_none() && done.tokens == without[id].tokens));
    }
    assert!(with.values().filter(|done| done.thought.is_none()).count() > 4);
}

#[test]
fn a_model_without_markers_has_no_budget() {
    let model = model();
    let mut engine = engine(&model, 1, 0, true);
    let error = engine.submit(ask(&model, 0, Some(5), true)).unwrap_err().to_string();
    assert!(error.contains("<think>") && error.contains("hint"), "{error}");
}
