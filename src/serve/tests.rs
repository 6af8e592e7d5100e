//! The server as its clients see it, over real connections to a server in this process: answers,
//! refusals, and a thousand requests of which many are broken off.

use super::*;
use crate::engine::{Backend, Request, Sampling, Stream, tokens_sha256};
use crate::model::lora::LoraConfig;
use crate::model::tokenizer::{Bpe, Tokenizer};
use crate::model::{ChatTemplate, Lora, Model, Target, TinySpec};
use crate::philox::Philox;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

#[path = "load_tests.rs"]
mod load;
#[path = "thinking_tests.rs"]
mod thinking;

const TEMPLATE: &str = "{% if tools %}T{% for t in tools %}{{ t.function.name }}{% endfor %}{% endif %}\
    {% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}{% if open_thought %}<think>{% endif %}";

/// A model that knows nothing, with single tokens for the markers of a thought.
fn model() -> Arc<Model> {
    let merges = vec!["q q".to_owned(), "z z".to_owned()];
    let mut model = Model::tiny(&TinySpec { max_positions: 512, merges, ..TinySpec::default() }).unwrap();
    let plain = model.tokenizer().unwrap();
    let mut tokens: Vec<String> = (0..261).map(|id| plain.token(id).unwrap()).collect();
    (tokens[259], tokens[260]) = ("<think>".into(), "</think>".into());
    let bpe = Bpe { tokens: &tokens, special: &[0, 1, 2], added: &[259, 260], merges: &[], pre: "smollm" };
    model.tokenizer = Some(Tokenizer::from_bpe(&bpe, "test").unwrap());
    model.template = Some(ChatTemplate::new(TEMPLATE.into(), "", "", "test").unwrap());
    Arc::new(model)
}

/// An adapter whose B is not zero.
fn adapter(model: &Model, seed: u64) -> Lora {
    let config = LoraConfig { rank: 4, alpha: 8.0, targets: Target::of_network(&model.config) };
    let (lora, vars) = Lora::init(&model.config, &config, seed).unwrap().trainable().unwrap();
    let mut noise = Philox::named(&format!("test adapter {seed}"));
    for (_, var) in vars.iter().filter(|(name, _)| name.contains("lora_B")) {
        let values: Vec<f32> = (0..var.elem_count()).map(|_| noise.unit() as f32 - 0.5).collect();
        var.set(&Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap()).unwrap();
    }
    lora.snapshot().unwrap()
}

fn engine(model: Arc<Model>, slots: usize) -> Result<Engine> {
    let mut engine = Engine::new(model.clone(), crate::engine::local::Options::new(slots, 256))?;
    for (seed, name) in [(1, "red"), (2, "blue")] {
        engine.add_adapter(name, adapter(&model, seed))?;
    }
    Ok(engine)
}

fn options(address: std::net::SocketAddr) -> Options {
    Options { listen: Listen::Tcp(address), name: "tiny".into(), api_key: None, limits: Limits::default() }
}

fn server_with(slots: usize, api_key: Option<&str>, limits: Limits) -> Server {
    let options =
        Options { api_key: api_key.map(str::to_owned), limits, ..options(([127, 0, 0, 1], 0).into()) };
    Server::start(move || engine(model(), slots), options).unwrap()
}

fn server() -> Server {
    server_with(4, None, Limits::default())
}

/// A connection on which a request was sent; HTTP/1.0, so that the answer ends with the connection.
fn send(server: &Server, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
    let Listen::Tcp(address) = server.listen() else { panic!("on TCP") };
    let mut stream = TcpStream::connect(address).unwrap();
    let head =
        format!("{method} {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    stream
}

/// Status, head and body of an answer.
fn read(mut stream: TcpStream) -> (u16, String, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
}

fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let (status, _, body) = read(send(server, "POST", path, "", body.to_string().as_bytes()));
    (status, serde_json::from_str(&body).unwrap())
}

fn get(server: &Server, path: &str) -> (u16, Value) {
    let (status, _, body) = read(send(server, "GET", path, "", b""));
    (status, serde_json::from_str(&body).unwrap())
}

const CHAT: &str = "/v1/chat/completions";

fn ask(content: &str, more: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 12, "seed": 5});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The events of a stream.
fn events(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let (status, head, body) = read(send(server, "POST", path, "", body.to_string().as_bytes()));
    assert!(status == 200 && head.contains("text/event-stream"), "{head}\n{body}");
    let lines: Vec<&str> = body.split("\n\n").filter(|e| !e.is_empty() && !e.starts_with(':')).collect();
    assert_eq!(lines.last(), Some(&"data: [DONE]"), "{body}");
    let events = lines[..lines.len() - 1].iter();
    events.map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

/// Waits until nothing is in flight.
fn idle(server: &Server) -> Snapshot {
    let places = server.app.about.options.slots + server.app.limits.queue;
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let counts = server.counts();
        let free = server.app.permits.available_permits();
        if counts.running + counts.queued == 0 && free == places {
            return counts;
        }
        assert!(Instant::now() < until, "{counts:?}, {free} of {places} places are free");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn answers_are_the_engines_own_and_streams_say_the_same() {
    let server = server();
    let model = model();
    let mut alone = engine(model.clone(), 4).unwrap();
    for (name, handle) in [("tiny", None), ("red", Some(0)), ("blue", Some(1))] {
        let body = ask(
            "hé",
            json!({"model": name, "n": 3, "logprobs": true, "top_logprobs": 2, "return_token_ids": true, "temperature": 1.5}),
        );
        let (status, whole) = post(&server, CHAT, &body);
        assert_eq!(status, 200, "{whole}");
        let tokens = model.encode("user:hé|").unwrap();
        for rollout in 0..3 {
            let stream =
                Stream { seed: 5, task_id: format!("serve {}", tokens_sha256(&tokens)), rollout, turn: 0 };
            let sampling =
                Sampling { temperature: 1.5, logprobs: true, top_logprobs: 2, ..Sampling::greedy(12) };
            let request =
                Request { id: u64::from(rollout), tokens: tokens.clone(), adapter: handle, sampling, stream };
            alone.submit(request).unwrap();
        }
        let mut done = Vec::new();
        while alone.in_flight() > 0 {
            done.extend(alone.step().unwrap());
        }
        done.sort_by_key(|c| c.id);
        let mut completion = 0;
        for (index, wanted) in done.iter().enumerate() {
            let choice = &whole["choices"][index];
            assert_eq!(choice["index"], index);
            assert_eq!(choice["message"]["content"], wanted.text.as_str());
            assert_eq!(choice["token_ids"], json!(wanted.tokens));
            let entries = choice["logprobs"]["content"].as_array().unwrap();
            let numbers: Vec<f32> = entries.iter().map(|e| e["logprob"].as_f64().unwrap() as f32).collect();
            assert_eq!(&numbers, wanted.logprobs.as_ref().unwrap());
            let top = |e: &Value| -> Vec<f32> {
                e["top_logprobs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|t| t["logprob"].as_f64().unwrap() as f32)
                    .collect()
            };
            let wanted_top = wanted.top_logprobs.as_ref().unwrap().iter();
            assert!(
                entries
                    .iter()
                    .map(top)
                    .eq(wanted_top.map(|top| top.iter().map(|(_, x)| *x).collect::<Vec<_>>()))
            );
            assert!(entries.iter().all(|e| e["bytes"].is_array() && e["token"].is_string()));
            completion += wanted.tokens.len();
        }
        assert_eq!(
            whole["usage"],
            json!({"prompt_tokens": tokens.len(), "completion_tokens": completion,
                "total_tokens": tokens.len() + completion, "prompt_tokens_details": {"cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0}})
        );
        assert_eq!((&whole["seed"], &whole["model"]), (&json!(5), &json!(name)));

        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        streamed["stream_options"] = json!({"include_usage": true});
        let events = events(&server, CHAT, &streamed);
        let last = events.last().unwrap();
        let mut usage = whole["usage"].clone();
        // All but the last token of the prompt, whose logits are needed.
        usage["prompt_tokens_details"]["cached_tokens"] = (tokens.len() - 1).into();
        assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &usage));
        for index in 0..3 {
            let pieces: Vec<&Value> =
                events.iter().filter_map(|e| e["choices"].get(0)).filter(|c| c["index"] == index).collect();
            assert_eq!(pieces[0]["delta"], json!({"role": "assistant", "content": ""}));
            let text: String = pieces.iter().filter_map(|p| p["delta"]["content"].as_str()).collect();
            assert_eq!(whole["choices"][index]["message"]["content"], text.as_str());
            let joined = |field: fn(&Value) -> Option<&Vec<Value>>| -> Value {
                pieces.iter().filter_map(|p| field(p)).flatten().cloned().collect()
            };
            assert_eq!(
                joined(|p| p["logprobs"]["content"].as_array()),
                whole["choices"][index]["logprobs"]["content"]
            );
            assert_eq!(joined(|p| p["token_ids"].as_array()), whole["choices"][index]["token_ids"]);
            let reasons: Vec<&Value> =
                pieces.iter().map(|p| &p["finish_reason"]).filter(|r| !r.is_null()).collect();
            assert_eq!(reasons, [&whole["choices"][index]["finish_reason"]]);
        }
    }
    assert_eq!(idle(&server).failed, 0);
}

#[test]
fn a_fresh_seed_is_told_and_repeats_the_answer() {
    let server = server();
    let mut body = ask("x", json!({"temperature": 2.0, "seed": null}));
    let (_, head, text) = read(send(&server, "POST", CHAT, "", body.to_string().as_bytes()));
    let first: Value = serde_json::from_str(&text).unwrap();
    assert!(head.contains(&format!("x-rederive-seed: {}", first["seed"])), "{head}");
    body["seed"] = first["seed"].clone();
    let (_, again) = post(&server, CHAT, &body);
    assert_eq!(again["choices"], first["choices"]);
    body["seed"] = Value::Null;
    assert_ne!(post(&server, CHAT, &body).1["seed"], first["seed"]);
}

#[test]
fn raw_completions_take_texts_and_token_ids() {
    let server = server();
    let model = model();
    let body = |prompt: Value| json!({"prompt": prompt, "max_tokens": 6, "seed": 1, "temperature": 0, "logprobs": 1});
    let (status, text) = post(&server, "/v1/completions", &body(json!("hello")));
    assert_eq!(status, 200, "{text}");
    let (_, ids) = post(&server, "/v1/completions", &body(json!(model.encode("hello").unwrap())));
    assert_eq!(text["choices"], ids["choices"]);
    assert_eq!(text["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().len(), 6);
    assert_eq!(text["choices"][0]["logprobs"]["top_logprobs"].as_array().unwrap().len(), 6);
    let (_, both) = post(&server, "/v1/completions", &body(json!(["hello", [5, 6]])));
    assert_eq!(both["choices"].as_array().unwrap().len(), 2);
    assert_eq!(both["choices"][0]["text"], text["choices"][0]["text"]);
    let mut streamed = body(json!("hello"));
    streamed["stream"] = true.into();
    let pieces = events(&server, "/v1/completions", &streamed);
    let said: String = pieces.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
    assert_eq!(text["choices"][0]["text"], said.as_str());
    let offsets: Vec<&Value> = pieces
        .iter()
        .filter_map(|e| e["choices"][0]["logprobs"]["text_offset"].as_array())
        .flatten()
        .collect();
    assert_eq!(json!(offsets), text["choices"][0]["logprobs"]["text_offset"]);
    for wrong in [json!([]), json!([[]]), json!(5), json!([99999]), json!(["a", 5]), json!("")] {
        let (status, answer) = post(&server, "/v1/completions", &body(wrong.clone()));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("prompt")), "{wrong}");
    }
}

#[test]
fn refusals_have_the_status_and_code_that_clients_know() {
    let limits = Limits { body_bytes: 4096, choices: 4, ..Limits::default() };
    let server = server_with(2, None, limits);
    let code = |body: Value| {
        let (status, answer) = post(&server, CHAT, &body);
        (status, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(code(ask("x", json!({"model": "gpt"}))), (404, "model_not_found".into()));
    assert_eq!(code(ask(&"x".repeat(300), json!({}))), (400, "context_length_exceeded".into()));
    assert_eq!(code(ask("x", json!({"logit_bias": {"5": 1}}))), (400, "unsupported_parameter".into()));
    assert_eq!(code(ask("x", json!({"temprature": 1}))), (400, "unknown_parameter".into()));
    // The template shows no form of a call that could be opened.
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let must = json!({"tools": tools, "tool_choice": "required"});
    assert_eq!(code(ask("x", must)), (400, "unsupported_parameter".into()));
    assert_eq!(code(ask(&"x".repeat(5000), json!({}))).0, 413);
    let raw = |method: &str, path: &str, headers: &str, body: &str| {
        read(send(&server, method, path, headers, body.as_bytes()))
    };
    assert_eq!(raw("POST", CHAT, "", "{").0, 400);
    assert_eq!(raw("POST", CHAT, "Origin: http://example.org\r\n", "{}").0, 403);
    assert_eq!(raw("GET", CHAT, "", "").0, 405);
    assert_eq!(raw("GET", "/nowhere", "", "").0, 404);
    let (status, models) = get(&server, "/v1/models");
    let names: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert_eq!((status, json!(names)), (200, json!(["tiny", "red", "blue"])));
    assert_eq!(get(&server, "/v1/models/red").1["parent"], "tiny");
    assert_eq!(get(&server, "/v1/models/green").0, 404);
    idle(&server);
}

#[test]
fn a_key_keeps_others_out_and_health_is_open() {
    let server = server_with(2, Some("secret"), Limits::default());
    let body = ask("x", json!({})).to_string();
    let status = |headers: &str| read(send(&server, "POST", CHAT, headers, body.as_bytes())).0;
    assert_eq!((status(""), status("Authorization: Bearer wrong\r\n")), (401, 401));
    assert_eq!(status("Authorization: Bearer secret\r\nOrigin: http://example.org\r\n"), 200);
    let (code, health) = get(&server, "/health");
    assert_eq!((code, &health["status"], &health["slots"]), (200, &json!("ok"), &json!(2)));
    assert!(Server::start(|| engine(model(), 2), options(([0, 0, 0, 0], 0).into())).is_err());
}

#[test]
fn a_text_that_cannot_fit_is_refused_by_its_length() {
    let server = server_with(1, None, Limits::default());
    for (path, body) in [
        (CHAT, ask(&"é".repeat(1 << 20), json!({}))),
        ("/v1/completions", json!({"prompt": "é".repeat(1 << 20)})),
    ] {
        let (status, answer) = post(&server, path, &body);
        assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("context_length_exceeded")));
        assert!(answer["error"]["message"].as_str().unwrap().contains("bytes"), "{answer}");
    }
    // A body that says it is larger than allowed is not waited for.
    let head = format!("Content-Length: {}\r\n", 1u64 << 40);
    let Listen::Tcp(address) = server.listen() else { panic!("on TCP") };
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{head}\r\n")
        .unwrap();
    let mut first = [0; 64];
    let read = stream.read(&mut first).unwrap();
    assert!(String::from_utf8_lossy(&first[..read]).contains("413"));
    assert_eq!(get(&server, "/v1/models/%00%ff").0, 400);
}
