//! An endpoint against a server that misbehaves: what passes is tried again, what does not stops the
//! run with its place, and neither is ever an answer.

use super::test_server::{Reply, TestServer, good};
use super::*;
use crate::engine::{Finish, Sampling, Stream};
use crate::environment::Role;
use serde_json::{Value, json};

fn policy() -> Policy {
    Policy { retries: 2, pause: Duration::from_millis(10), timeout: Duration::from_secs(10) }
}

fn options(server: &TestServer) -> Options {
    Options {
        url: server.url.clone(),
        model: "small".into(),
        api_key: None,
        width: 4,
        extra: serde_json::Map::new(),
        fingerprint: true,
        policy: policy(),
        count: None,
    }
}

fn request(backend: &Endpoint, id: u64, text: &str) -> Request {
    let stream = Stream { seed: 7, task_id: format!("t{id}"), rollout: 0, turn: 0 };
    let tokens = backend.render(&[Message::user(text)]).unwrap();
    Request { id, tokens, adapter: None, sampling: Sampling::greedy(5), stream }
}

fn drain(backend: &mut Endpoint) -> Result<Vec<Completion>> {
    let mut done = Vec::new();
    while backend.in_flight() > 0 {
        done.extend(backend.step()?);
    }
    backend.step()?;
    done.sort_by_key(|c: &Completion| c.id);
    Ok(done)
}

/// One call, whose n-th attempt gets what `reply` says; the probe before it is answered well.
fn one(reply: impl Fn(usize, &Value) -> Reply + Send + Sync + 'static) -> (Result<Completion>, usize) {
    let server = TestServer::start(move |n, body| match n {
        0 => Reply::Json(good(body, "ready")),
        n => reply(n - 1, body),
    });
    let mut backend = Endpoint::connect(options(&server)).unwrap();
    backend.submit(request(&backend, 3, "two words")).unwrap();
    let done = drain(&mut backend).map(|mut done| done.remove(0));
    (done, server.count() - 1)
}

fn refusal(reply: impl Fn(usize, &Value) -> Reply + Send + Sync + 'static) -> (String, usize) {
    let (done, times) = one(reply);
    let error = done.unwrap_err();
    assert_eq!(error.exit_code(), 1);
    (error.to_string(), times)
}

#[test]
fn calls_carry_conversation_seed_and_sampling_and_answers_come_back() {
    let server = TestServer::start(|_, body| {
        let messages = body["messages"].as_array().unwrap();
        Reply::Json(good(
            body,
            &format!("{} of {}", messages.last().unwrap()["content"].as_str().unwrap(), messages.len()),
        ))
    });
    let mut extra = serde_json::Map::new();
    extra.insert("top_k".into(), 0.into());
    extra.insert("temperature".into(), 9.into());
    let key = Some("hush".to_owned());
    let mut backend = Endpoint::connect(Options { extra, api_key: key, ..options(&server) }).unwrap();
    assert!(!backend.gives_token_ids() && backend.width() == 4);
    assert_eq!((&backend.identity().dtype, backend.identity().slots), (&None, None));
    let sampling =
        Sampling { temperature: 0.7, top_p: 0.9, stop: vec!["END".into()], ..Sampling::greedy(33) };
    for id in 0..9 {
        let request = Request { sampling: sampling.clone(), ..request(&backend, id, &format!("ask {id}")) };
        backend.submit(request).unwrap();
    }
    assert!(backend.submit(request(&backend, 4, "again")).is_err());
    let done = drain(&mut backend).unwrap();
    assert_eq!(done.len(), 9);
    let first = &done[0];
    assert_eq!((first.text.as_str(), first.finish), ("ask 0 of 1", Finish::Stop));
    assert_eq!((first.prompt_tokens, first.completion_tokens, &first.logprobs), (Some(2), Some(10), &None));

    let context = backend.render(&[Message::user("ask 0")]).unwrap();
    let next = backend.extend(&context, &first.tokens, &Message::user("more")).unwrap();
    backend.submit(Request { tokens: next, ..request(&backend, 20, "") }).unwrap();
    assert_eq!(drain(&mut backend).unwrap()[0].text, "more of 3");

    let asked = server.asked.lock().unwrap();
    let body = &asked.iter().find(|a| a.body["messages"][0]["content"] == "ask 0").unwrap().body;
    assert_eq!(
        (
            &body["model"],
            &body["temperature"],
            &body["top_p"],
            &body["max_tokens"],
            &body["stop"],
            &body["top_k"]
        ),
        (&json!("small"), &json!(0.7), &json!(0.9), &json!(33), &json!(["END"]), &json!(0))
    );
    let seeds: std::collections::BTreeSet<u64> =
        asked.iter().map(|a| a.body["seed"].as_u64().unwrap()).collect();
    assert!(seeds.len() >= 9 && seeds.iter().all(|seed| *seed < 1 << 31));
    let two = asked.last().unwrap();
    let roles: Vec<&str> =
        two.body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert!(two.head.to_ascii_lowercase().contains("authorization: bearer hush"), "{}", two.head);
}

#[test]
fn what_passes_is_tried_again() {
    for (name, fault) in [
        ("500", (|| Reply::Status(500, "", "oops")) as fn() -> Reply),
        ("503", || Reply::Status(503, "", "")),
        ("dropped", || Reply::Drop),
        ("cut", || Reply::Cut),
        ("garbage", || Reply::Status(200, "", "<html>")),
        ("empty", || Reply::Status(200, "", "")),
        ("error", || Reply::Json(json!({"error": {"message": "busy"}}))),
    ] {
        let (done, times) =
            one(move |n, body| if n < 2 { fault() } else { Reply::Json(good(body, "ANSWER: 7")) });
        assert_eq!((done.unwrap().text.as_str(), times), ("ANSWER: 7", 3), "{name}");
    }
}

#[test]
fn a_server_that_asks_for_time_gets_it() {
    let began = Instant::now();
    let (done, times) = one(|n, body| match n {
        0 => Reply::Status(429, "Retry-After: 0.4", "slow down"),
        _ => Reply::Json(good(body, "x")),
    });
    assert!(done.is_ok() && times == 2 && began.elapsed() >= Duration::from_millis(400));
}

#[test]
fn what_lasts_stops_the_run_with_its_place() {
    let (error, times) = refusal(|_, _| Reply::Status(500, "", "the disk\u{1b}[31m is gone"));
    assert_eq!(times, 3);
    assert!(error.starts_with("task t3, rollout 0, turn 0: the server answered 500: the disk"), "{error}");
    assert!(
        error.contains("tried 3 times") && error.contains("goes on") && !error.contains('\u{1b}'),
        "{error}"
    );
    for (reply, words) in [
        ((|| Reply::Status(400, "", "context too long")) as fn() -> Reply, "answered 400: context too long"),
        (|| Reply::Status(401, "", ""), "api_key_env"),
        (|| Reply::Status(404, "", ""), "answered 404"),
        (|| Reply::Status(301, "Location: http://127.0.0.1:1/", ""), "answered 301"),
        (|| Reply::Json(json!([])), "no chat completion"),
        (|| Reply::Json(json!({"choices": [{"message": {"content": 3}}]})), "is not text"),
        (
            || {
                Reply::Json(
                    json!({"choices": [{"message": {"content": "x"}, "finish_reason": "content_filter"}]}),
                )
            },
            "content_filter",
        ),
    ] {
        let (error, times) = refusal(move |_, _| reply());
        assert!(times == 1 && error.contains(words) && error.contains("hint: "), "{times} {error}");
    }
}

#[test]
fn a_server_that_hangs_or_is_not_there_is_given_up() {
    let server = TestServer::start(|n, body| match n {
        0 => Reply::Json(good(body, "ready")),
        _ => Reply::Hang(Duration::from_secs(3)),
    });
    let policy = Policy { retries: 1, timeout: Duration::from_millis(200), ..policy() };
    let mut backend = Endpoint::connect(Options { policy, ..options(&server) }).unwrap();
    backend.submit(request(&backend, 1, "x")).unwrap();
    let began = Instant::now();
    let error = drain(&mut backend).unwrap_err().to_string();
    assert!(error.contains("did not answer in time (tried 2 times)"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(2));
    let gone = { TestServer::start(|_, _| Reply::Drop).url.clone() };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("http://{port}/v1"), gone] {
        let dead =
            Endpoint::connect(Options { url: url.clone(), ..options(&server) }).err().unwrap().to_string();
        assert!(dead.contains("the connection failed") && dead.contains(&url), "{dead}");
    }
    for url in ["127.0.0.1:8080/v1", "ftp://x", ""] {
        let error = Endpoint::connect(Options { url: url.into(), ..options(&server) }).err().unwrap();
        assert!(error.to_string().contains("no address of a server"), "{error}");
    }
}

#[test]
fn answers_that_came_before_a_failure_are_kept() {
    let server = TestServer::start(|_, body| match body["messages"][0]["content"].as_str() {
        Some("bad") => {
            std::thread::sleep(Duration::from_millis(300));
            Reply::Status(400, "", "no")
        }
        _ => Reply::Json(good(body, "fine")),
    });
    let mut backend = Endpoint::connect(options(&server)).unwrap();
    for (id, text) in [(1, "a"), (2, "bad"), (3, "b")] {
        backend.submit(request(&backend, id, text)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(600));
    let done = backend.step().unwrap();
    assert_eq!(done.iter().map(|c| c.id).collect::<std::collections::BTreeSet<_>>(), [1, 3].into());
    assert!(backend.step().unwrap_err().to_string().contains("task t2"));
}

#[test]
fn another_model_or_build_is_refused() {
    let server = TestServer::start(|_, body| Reply::Json(good(body, "x")));
    let error =
        Endpoint::connect(Options { model: "smal".into(), ..options(&server) }).err().unwrap().to_string();
    assert!(error.contains("does not serve `smal`") && error.contains("did you mean `small`"), "{error}");
    let changed = |key: &'static str, value: Value| {
        refusal(move |_, body| {
            let mut answer = good(body, "x");
            answer[key] = value.clone();
            Reply::Json(answer)
        })
    };
    let (error, times) = changed("model", json!("large"));
    assert!(times == 1 && error.contains("another model answers: `small` at first, `large` now"), "{error}");
    let (error, _) = changed("system_fingerprint", json!("build-2"));
    assert!(error.contains("was `build-1`, now `build-2`"), "{error}");

    let server = TestServer::start(|n, body| {
        let mut answer = good(body, "x");
        answer["system_fingerprint"] = json!(format!("build-{n}"));
        Reply::Json(answer)
    });
    let mut backend = Endpoint::connect(Options { fingerprint: false, ..options(&server) }).unwrap();
    backend.submit(request(&backend, 1, "x")).unwrap();
    assert!(drain(&mut backend).is_ok());
}

#[test]
fn the_identity_is_the_servers_and_not_its_address() {
    let start = || TestServer::start(|_, body| Reply::Json(good(body, "x")));
    let identity = |server: &TestServer, model: &str| {
        Endpoint::connect(Options { model: model.into(), ..options(server) }).unwrap().identity().clone()
    };
    let (here, there) = (start(), start());
    assert_eq!(identity(&here, "small"), identity(&there, "small"));
    let tuned = identity(&here, "small-tuned");
    assert_eq!(tuned.engine_sha256, identity(&here, "small").engine_sha256);
    assert_ne!(tuned.model_sha256, identity(&here, "small").model_sha256);
    let extra = json!({"top_k": 0}).as_object().unwrap().clone();
    let other = Endpoint::connect(Options { extra, ..options(&here) }).unwrap();
    assert_ne!(other.identity().engine_sha256, tuned.engine_sha256);
    assert_eq!(
        other.description()["model"]["listed"],
        json!({"id": "small", "owned_by": "test", "meta": {"n_params": 7}})
    );
}

#[test]
fn counts_are_compared_where_there_are_two() {
    let words = || -> Option<Count> {
        Some(Box::new(|m: &[Message]| Ok(m.iter().map(|m| m.content.split_whitespace().count()).sum())))
    };
    let server = TestServer::start(|_, body| {
        let mut answer = good(body, "x");
        // A context that cuts what is long.
        let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        answer["usage"]["prompt_tokens"] = tokens.min(6).into();
        Reply::Json(answer)
    });
    let mut backend = Endpoint::connect(Options { count: words(), ..options(&server) }).unwrap();
    backend.submit(request(&backend, 1, "one two three")).unwrap();
    assert_eq!(drain(&mut backend).unwrap()[0].prompt_tokens, Some(3));
    backend.submit(request(&backend, 2, "one two three four five six seven")).unwrap();
    let error = drain(&mut backend).unwrap_err().to_string();
    assert!(error.contains("counts 6 tokens of context, and our rendering has 7"), "{error}");

    let other: Option<Count> = Some(Box::new(|_: &[Message]| Ok(99)));
    let error = Endpoint::connect(Options { count: other, ..options(&server) }).err().unwrap().to_string();
    assert!(error.contains("our rendering has 99") && error.contains("count_tokens"), "{error}");

    let silent = TestServer::start(|_, body| {
        let mut answer = good(body, "x");
        answer["usage"] = Value::Null;
        answer["choices"][0]["finish_reason"] = json!("length");
        Reply::Json(answer)
    });
    let mut backend = Endpoint::connect(options(&silent)).unwrap();
    backend.submit(request(&backend, 1, "x")).unwrap();
    let done = drain(&mut backend).unwrap();
    assert_eq!(
        (done[0].prompt_tokens, done[0].completion_tokens, done[0].finish),
        (None, None, Finish::Length)
    );
    let error = Endpoint::connect(Options { count: words(), ..options(&silent) }).err().unwrap().to_string();
    assert!(error.contains("does not count"), "{error}");
}

#[test]
fn contexts_of_other_engines_are_refused() {
    let server = TestServer::start(|_, body| Reply::Json(good(body, "x")));
    let mut backend = Endpoint::connect(options(&server)).unwrap();
    for tokens in [vec![], vec![70_000], vec![255, 254], vec![65, 66]] {
        assert!(backend.submit(Request { tokens, ..request(&backend, 1, "x") }).is_err());
    }
    assert!(backend.submit(Request { adapter: Some(0), ..request(&backend, 1, "x") }).is_err());
    let sampling = Sampling { logprobs: true, ..Sampling::greedy(1) };
    assert!(backend.submit(Request { sampling, ..request(&backend, 1, "x") }).is_err());
    assert_eq!(backend.in_flight(), 0);
    let odd = [Message { role: Role::System, content: "ünï \u{1F600}\n\"".into() }, Message::user("\\")];
    assert_eq!(wire::unpack(&backend.render(&odd).unwrap()).unwrap(), odd);
}
