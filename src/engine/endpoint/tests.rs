//! An endpoint against a server that misbehaves: what passes is tried again, what does not stops the
//! run with its place, and neither is ever an answer.

use super::test_server::{Asked, Reply, TestServer, good};
use super::*;
use crate::engine::{Finish, Sampling, Stream};
use crate::environment::Role;
use serde_json::{Value, json};
use std::sync::atomic::AtomicUsize;

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

/// The connection is closed without a word.
fn dropped() -> Reply {
    Reply { bytes: Vec::new(), delay: Duration::ZERO }
}

/// Half of an answer.
fn cut() -> Reply {
    let mut reply = Reply::status(200, "", "{\"choices\": [{\"message\": {}}]}");
    reply.bytes.truncate(reply.bytes.len() - 12);
    reply
}

/// No answer for longer than anybody waits here.
fn hanging() -> Reply {
    Reply { delay: Duration::from_secs(3), ..dropped() }
}

/// One call, whose n-th attempt gets what `reply` says; the probe before it is answered well.
fn one(reply: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> (Result<Completion>, usize) {
    let times = Arc::new(AtomicUsize::new(0));
    let counted = times.clone();
    let server = TestServer::start(move |n, asked| match n {
        0 => Reply::json(&good(asked, "ready")),
        n => {
            counted.fetch_max(n, Ordering::SeqCst);
            reply(n - 1, asked)
        }
    });
    let mut backend = Endpoint::connect(options(&server)).unwrap();
    backend.submit(request(&backend, 3, "two words")).unwrap();
    let done = drain(&mut backend).map(|mut done| done.remove(0));
    (done, times.load(Ordering::SeqCst))
}

fn refusal(reply: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> (String, usize) {
    let (done, times) = one(reply);
    let error = done.unwrap_err();
    assert_eq!(error.exit_code(), 1);
    (error.to_string(), times)
}

#[test]
fn calls_carry_conversation_seed_and_sampling_and_answers_come_back() {
    let kept: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let keep = kept.clone();
    let server = TestServer::start(move |_, asked| {
        keep.lock().unwrap().push((asked.head.to_ascii_lowercase(), asked.body.clone()));
        let messages = asked.body["messages"].as_array().unwrap();
        let last = messages.last().unwrap()["content"].as_str().unwrap();
        Reply::json(&good(asked, &format!("{last} of {}", messages.len())))
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

    let kept = kept.lock().unwrap();
    let (_, body) = kept.iter().find(|(_, body)| body["messages"][0]["content"] == "ask 0").unwrap();
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
        kept.iter().map(|(_, body)| body["seed"].as_u64().unwrap()).collect();
    assert!(seeds.len() >= 9 && seeds.iter().all(|seed| *seed < 1 << 31));
    let (head, two) = kept.last().unwrap();
    let roles: Vec<&str> =
        two["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert!(head.contains("authorization: bearer hush"), "{head}");
}

#[test]
fn what_passes_is_tried_again() {
    for (name, fault) in [
        ("500", (|| Reply::status(500, "", "oops")) as fn() -> Reply),
        ("503", || Reply::status(503, "", "")),
        ("dropped", dropped),
        ("cut", cut),
        ("garbage", || Reply::status(200, "", "<html>")),
        ("empty", || Reply::status(200, "", "")),
        ("error", || Reply::json(&json!({"error": {"message": "busy"}}))),
    ] {
        let (done, times) =
            one(move |n, asked| if n < 2 { fault() } else { Reply::json(&good(asked, "ANSWER: 7")) });
        assert_eq!((done.unwrap().text.as_str(), times), ("ANSWER: 7", 3), "{name}");
    }
}

#[test]
fn a_server_that_asks_for_time_gets_it() {
    let began = Instant::now();
    let (done, times) = one(|n, asked| match n {
        0 => Reply::status(429, "Retry-After: 0.4", "slow down"),
        _ => Reply::json(&good(asked, "x")),
    });
    assert!(done.is_ok() && times == 2 && began.elapsed() >= Duration::from_millis(400));
}

#[test]
fn what_lasts_stops_the_run_with_its_place() {
    let (error, times) = refusal(|_, _| Reply::status(500, "", "the disk\u{1b}[31m is gone"));
    assert_eq!(times, 3);
    assert!(error.starts_with("task t3, rollout 0, turn 0: the server answered 500: the disk"), "{error}");
    assert!(
        error.contains("tried 3 times") && error.contains("goes on") && !error.contains('\u{1b}'),
        "{error}"
    );
    for (reply, words) in [
        ((|| Reply::status(400, "", "context too long")) as fn() -> Reply, "answered 400: context too long"),
        (|| Reply::status(401, "", ""), "api_key_env"),
        (|| Reply::status(404, "", ""), "answered 404"),
        (|| Reply::status(301, "Location: http://127.0.0.1:1/", ""), "answered 301"),
        (|| Reply::json(&json!([])), "no chat completion"),
        (|| Reply::json(&json!({"choices": [{"message": {"content": 3}}]})), "is not text"),
        (
            || {
                Reply::json(
                    &json!({"choices": [{"message": {"content": "x"}, "finish_reason": "content_filter"}]}),
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
    let server = TestServer::start(|n, asked| match n {
        0 => Reply::json(&good(asked, "ready")),
        _ => hanging(),
    });
    let policy = Policy { retries: 1, timeout: Duration::from_millis(200), ..policy() };
    let mut backend = Endpoint::connect(Options { policy, ..options(&server) }).unwrap();
    backend.submit(request(&backend, 1, "x")).unwrap();
    let began = Instant::now();
    let error = drain(&mut backend).unwrap_err().to_string();
    assert!(error.contains("did not answer in time (tried 2 times)"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(2));
    let gone = { TestServer::start(|_, _| dropped()).url.clone() };
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
fn a_conversation_too_long_for_the_server_fails_alone() {
    for said in [
        r#"{"error": {"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}}"#,
        r#"{"error": {"code": 400, "message": "no", "type": "exceed_context_size_error", "n_ctx": 512}}"#,
        r#"{"object": "error", "message": "This model's maximum context length is 512 tokens.", "code": 400}"#,
        r#"{"error": {"message": "The prompt (length 600) is longer than the maximum model length of 512."}}"#,
    ] {
        let server = TestServer::start(move |_, asked| match asked.body["messages"][0]["content"].as_str() {
            Some("long") => Reply::status(400, "", said),
            _ => Reply::json(&good(asked, "fine")),
        });
        let mut backend = Endpoint::connect(options(&server)).unwrap();
        for (id, text) in [(1, "a"), (2, "long"), (3, "b")] {
            backend.submit(request(&backend, id, text)).unwrap();
        }
        assert_eq!(drain(&mut backend).unwrap().iter().map(|c| c.id).collect::<Vec<_>>(), [1, 3]);
        let (id, error) = backend.turned_down().remove(0);
        assert!(id == 2 && matches!(error, Error::Invalid(_)) && backend.turned_down().is_empty());
        let error = error.to_string();
        assert!(error.starts_with("task t2, rollout 0, turn 0: the server answered 400"), "{error}");
        assert!(error.contains("hint: give the server a longer context"), "{error}");
    }
}

#[test]
fn answers_that_came_before_a_failure_are_kept() {
    let server = TestServer::start(|_, asked| match asked.body["messages"][0]["content"].as_str() {
        Some("bad") => {
            std::thread::sleep(Duration::from_millis(300));
            Reply::status(400, "", "no")
        }
        _ => Reply::json(&good(asked, "fine")),
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
    let server = TestServer::start(|_, asked| Reply::json(&good(asked, "x")));
    let error =
        Endpoint::connect(Options { model: "smal".into(), ..options(&server) }).err().unwrap().to_string();
    assert!(error.contains("does not serve `smal`") && error.contains("did you mean `small`"), "{error}");
    let changed = |key: &'static str, value: Value| {
        refusal(move |_, asked| {
            let mut answer = good(asked, "x");
            answer[key] = value.clone();
            Reply::json(&answer)
        })
    };
    let (error, times) = changed("model", json!("large"));
    assert!(times == 1 && error.contains("another model answers: `small` at first, `large` now"), "{error}");
    let (error, _) = changed("system_fingerprint", json!("build-2"));
    assert!(error.contains("was `build-1`, now `build-2`"), "{error}");

    let server = TestServer::start(|n, asked| {
        let mut answer = good(asked, "x");
        answer["system_fingerprint"] = json!(format!("build-{n}"));
        Reply::json(&answer)
    });
    let mut backend = Endpoint::connect(Options { fingerprint: false, ..options(&server) }).unwrap();
    backend.submit(request(&backend, 1, "x")).unwrap();
    assert!(drain(&mut backend).is_ok());
}

#[test]
fn the_identity_is_the_servers_and_not_its_address() {
    let start = || TestServer::start(|_, asked| Reply::json(&good(asked, "x")));
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
    let server = TestServer::start(|_, asked| {
        let mut answer = good(asked, "x");
        // A context that cuts what is long.
        let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        answer["usage"]["prompt_tokens"] = tokens.min(6).into();
        Reply::json(&answer)
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

    let silent = TestServer::start(|_, asked| {
        let mut answer = good(asked, "x");
        answer["usage"] = Value::Null;
        answer["choices"][0]["finish_reason"] = json!("length");
        Reply::json(&answer)
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
    let server = TestServer::start(|_, asked| Reply::json(&good(asked, "x")));
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
