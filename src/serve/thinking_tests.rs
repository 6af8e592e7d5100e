//! Thoughts over the API: told apart from the answer, counted, and held to a budget.

use super::*;

#[test]
fn a_thought_that_the_prompt_opened_is_told_apart() {
    let server = server();
    let body = ask("x", json!({"chat_template_kwargs": {"open_thought": true}}));
    let (_, answer) = post(&server, CHAT, &body);
    let message = &answer["choices"][0]["message"];
    assert!(message["reasoning_content"].is_string() && message["content"] == "", "{answer}");
    assert_eq!(
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
        answer["usage"]["completion_tokens"]
    );
}

#[test]
fn a_thinking_budget_closes_the_thought_and_the_answer_follows() {
    let server = server();
    let opened = |more: Value| {
        let mut body = ask(
            "x",
            json!({"chat_template_kwargs": {"open_thought": true}, "temperature": 0, "logprobs": true, "return_token_ids": true}),
        );
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let model = model();
    let closing = model.encode("\n</think>\n\n").unwrap();
    let (status, whole) = post(&server, CHAT, &opened(json!({"thinking_budget": 3})));
    assert_eq!(status, 200, "{whole}");
    let (choice, usage) = (&whole["choices"][0], &whole["usage"]);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 3);
    // `max_tokens` counts what follows the thought.
    assert_eq!(
        (&usage["completion_tokens"], &choice["finish_reason"]),
        (&json!(3 + closing.len() + 12), &json!("length"))
    );
    let ids: Vec<u32> = serde_json::from_value(choice["token_ids"].clone()).unwrap();
    assert_eq!(ids[3..3 + closing.len()], closing);
    let (thought, said) =
        (model.decode(&ids[..3], true).unwrap(), model.decode(&ids[3 + closing.len()..], true).unwrap());
    assert_eq!(choice["message"]["reasoning_content"], thought.trim());
    assert_eq!(choice["message"]["content"], said.trim_start());
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    let forced: Vec<usize> = (0..entries.len()).filter(|at| entries[*at]["logprob"].is_null()).collect();
    assert_eq!(forced, (3..3 + closing.len()).collect::<Vec<_>>(), "what was put in has no probability");

    let streamed = opened(
        json!({"thinking_token_budget": 3, "stream": true, "stream_options": {"include_usage": true}}),
    );
    let events = events(&server, CHAT, &streamed);
    let joined = |key: &str| -> String {
        events.iter().filter_map(|e| e["choices"][0]["delta"][key].as_str()).collect()
    };
    assert_eq!(choice["message"]["reasoning_content"], joined("reasoning_content"));
    assert_eq!(choice["message"]["content"], joined("content"));
    assert_eq!(
        events.last().unwrap()["usage"]["completion_tokens_details"],
        usage["completion_tokens_details"]
    );

    // A budget beyond the context ends with it, and the sum stays inside.
    let (_, long) = post(&server, CHAT, &opened(json!({"thinking_budget": 100_000, "max_tokens": 100_000})));
    assert!(long["usage"]["total_tokens"].as_u64().unwrap() <= 256, "{}", long["usage"]);

    let plain = options(([127, 0, 0, 1], 0).into());
    let plain = Server::start(
        || {
            Engine::new(
                Arc::new(Model::tiny(&TinySpec::default())?),
                crate::engine::local::Options::new(1, 256),
            )
        },
        plain,
    )
    .unwrap();
    for field in ["thinking_budget", "thinking_token_budget"] {
        let (status, answer) = post(&plain, CHAT, &ask("x", json!({field: 3})));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(field)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("<think>"), "{answer}");
    }
}
