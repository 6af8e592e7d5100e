//! `rederive serve`, driven by the official Python client: two adapters at once, streams, tools,
//! refusals, a Unix socket, a full server, and an orderly end. The adapters are taught on the spot
//! to say what the client then expects to hear.

use crate::common::{expect, rederive, said, text};
use rederive::model::tiny::learn_merges;
use rederive::model::tokenizer::{Bpe, Tokenizer};
use rederive::model::{ChatTemplate, Model, Source, TinySpec, adapter};
use rederive::train::{Example, Schedule, Settings, sft};
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The client that is tested with.
const CLIENT: &str = "openai==3.57.0";

const SAY: &str = "Say it.";
const SAID: &str = "Naïve 🦀 and — END of it";
const ASK: &str = "Rain in Tromsø?";
const THOUGHT: &str = "I need\nthe weather";
const BEFORE: &str = "I look.";
const RESULT: &str = "rain";
const LAST: &str = "It rains.";
const TELL: &str = "Tell me!";

const TEMPLATE: &str = "{% if tools %}<|im_start|>tools\n{% for tool in tools %}{{ tool.function | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}\
{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls or [] %}\n<tool_call>\n\
{{ call.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\n{% if open_thought %}<think>\n{% endif %}{% endif %}";

/// The client's Python, in a virtual environment that is made once and kept in the cache.
/// `None`, with the reason, where there is no Python or nothing can be installed.
fn python() -> Result<PathBuf, String> {
    let models = rederive::model::fetch::cache_folder().map_err(|e| e.to_string())?;
    let folder =
        models.parent().ok_or("the cache has no parent")?.join(format!("venv-{}", CLIENT.replace("==", "-")));
    let (program, complete) = (folder.join("bin/python"), folder.join("complete"));
    if complete.exists() {
        return Ok(program);
    }
    let run = |command: &mut Command| match command.stdin(Stdio::null()).output() {
        Err(e) => Err(format!("{command:?} cannot be started: {e}")),
        Ok(output) if !output.status.success() => Err(format!("{command:?}: {}", said(&output))),
        Ok(_) => Ok(()),
    };
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| e.to_string())?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    run(Command::new(&program).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        CLIENT,
    ]))?;
    std::fs::write(&complete, CLIENT).map_err(|e| e.to_string())?;
    Ok(program)
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "weather", "description": "Weather of a place",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])
}

fn arguments() -> Value {
    json!({"city": "Tromsø"})
}

/// Teaches an adapter to answer conversations with texts, and writes it.
fn teach(model: &Model, lessons: &[(Value, Value, String)], folder: &Path) {
    let end = *model.end_tokens().last().unwrap();
    let examples: Vec<Example> = lessons
        .iter()
        .map(|(messages, tools, answer)| {
            let tools = tools.as_array().cloned().unwrap_or_default();
            let template = model.template().unwrap();
            let prompt =
                template.render_with(messages.as_array().unwrap(), true, &tools, &Map::new()).unwrap();
            let mut tokens = model.encode(&prompt).unwrap();
            let mut weights = vec![0.0; tokens.len()];
            tokens.extend(model.encode(answer).unwrap());
            tokens.push(end);
            weights.resize(tokens.len(), 1.0);
            Example { tokens, weights }
        })
        .collect();
    let settings = Settings {
        r: 32,
        alpha: 32.0,
        learning_rate: 5e-3,
        epochs: 120,
        warmup: 0.05,
        schedule: Schedule::Linear,
        ..Settings::default()
    };
    let taught = sft(model, &examples, &settings, 1, None, &mut |_, _| ControlFlow::Continue(())).unwrap();
    let loss = taught.steps.last().unwrap().loss;
    assert!(loss < 0.05, "the adapter did not learn its lessons: loss {loss}");
    adapter::save(folder, &taught.lora, model, "tiny").unwrap();
}

/// A model that knows nothing, and two adapters that know what to say.
fn lab(folder: &Path) -> Value {
    let call = format!("<tool_call>\n{}\n</tool_call>", json!({"name": "weather", "arguments": arguments()}));
    let answer = format!("<think>\n{THOUGHT}\n</think>\n\n{BEFORE}\n{call}");
    let texts = vec![answer.clone(), tools().to_string(), "<|im_start|>assistant user tools".to_owned()];
    let learned = learn_merges(&texts, 80).unwrap();
    // The last two tokens are the markers of a thought.
    let merges = [&learned[..], &["q q".to_owned(), "z z".to_owned()]].concat();
    let mut model = Model::tiny(&TinySpec { max_positions: 2048, merges, ..TinySpec::default() }).unwrap();
    let plain = model.tokenizer().unwrap();
    let count = plain.reach() as u32;
    let mut tokens: Vec<String> = (0..count - 2).map(|id| plain.token(id).unwrap()).collect();
    tokens.extend(["<think>".to_owned(), "</think>".to_owned()]);
    let added = [count - 2, count - 1];
    let bpe = Bpe { tokens: &tokens, special: &[0, 1, 2], added: &added, merges: &learned, pre: "smollm" };
    model.tokenizer = Some(Tokenizer::from_bpe(&bpe, "test").unwrap());
    model.template = Some(ChatTemplate::new(TEMPLATE.into(), "<|im_start|>", "<|im_end|>", "test").unwrap());
    let base = folder.join("base");
    model.save(&base).unwrap();
    let model = Model::load(&Source::Folder(base)).unwrap();
    let user = |text: &str| json!({"role": "user", "content": text});
    teach(&model, &[(json!([user(SAY)]), Value::Null, SAID.into())], &folder.join("writer"));
    let called = json!({"role": "assistant", "content": BEFORE, "reasoning_content": THOUGHT, "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": arguments()}}]});
    let result = json!({"role": "tool", "content": RESULT});
    let called_for =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Tromsø\"}}\n</tool_call>";
    let lessons = [
        (json!([user(ASK)]), tools(), answer),
        (json!([user(ASK), called, result]), tools(), LAST.to_owned()),
        (json!([user(ASK)]), Value::Null, "I cannot know.".to_owned()),
        (json!([user(TELL)]), tools(), called_for.to_owned()),
    ];
    teach(&model, &lessons, &folder.join("caller"));
    json!({"random": "base", "say": SAY, "said": SAID, "ask": ASK, "thought": THOUGHT, "before": BEFORE, "stop": " END",
        "result": RESULT, "last": LAST, "tell": TELL, "tools": tools(), "arguments": arguments(), "key": "a key"})
}

struct Serving {
    child: Child,
    ready: Value,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Already gone after an orderly end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(folder: &Path, more: &[&str]) -> Serving {
    let named = |name: &str| format!("{name}={}", folder.join(name).display());
    let mut child = rederive()
        .args(["serve", text(&folder.join("base")), "--json", "--context", "2000"])
        .args(["--adapter", &named("caller"), "--adapter", &named("writer")])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
    Serving { child, ready }
}

impl Serving {
    /// Runs the client against the server.
    fn drive(&self, python: &Path, mode: &str, lab: &Value, folder: &Path) {
        let mut lab = lab.clone();
        match self.ready["address"].as_str().unwrap() {
            http if http.starts_with("http") => lab["url"] = http.into(),
            unix => {
                lab["unix"] = unix.strip_prefix("unix:").unwrap().into();
                lab["url"] = "http://server/v1".into();
            }
        }
        let path = folder.join(format!("{mode}.json"));
        std::fs::write(&path, lab.to_string()).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/openai_client.py");
        let output = Command::new(python).arg(script).arg(mode).arg(&path).output().unwrap();
        assert!(output.status.success(), "{mode}: {}", said(&output));
        println!("{mode}: {}", String::from_utf8_lossy(&output.stdout).trim());
    }

    /// Asks the server to stop; what it said on standard error.
    fn stop(mut self) -> String {
        // SAFETY: the child is ours and was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) }, 0);
        let status = self.child.wait().unwrap();
        let mut words = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut words).unwrap();
        assert_eq!(status.code(), Some(0), "{words}");
        words
    }
}

#[test]
fn the_official_client_is_served() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            eprintln!(
                "SKIPPED: the server was not driven by the official client, because there is none: {why}"
            );
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let lab = lab(folder.path());
    let key = folder.path().join("key");
    std::fs::write(&key, "a key\n").unwrap();

    let server = serve(folder.path(), &["--port", "0", "--slots", "4", "--api-key-file", text(&key)]);
    assert_eq!(server.ready["models"], json!(["base", "caller", "writer"]));
    server.drive(&python, "chat", &lab, folder.path());
    let words = server.stop();
    assert!(words.contains(" calls answered") && words.contains(" 0 failed, 0 cut off"), "{words}");
    for secret in [SAY, "Naïve", ASK, THOUGHT, "a key"] {
        assert!(!words.contains(secret), "the log tells what was said: {words}");
    }

    let server = serve(folder.path(), &["--port", "0", "--slots", "1", "--queue", "0"]);
    server.drive(&python, "busy", &lab, folder.path());
    server.stop();

    let socket = folder.path().join("socket");
    let server = serve(folder.path(), &["--unix", text(&socket)]);
    server.drive(&python, "unix", &lab, folder.path());
    server.stop();
    assert!(!socket.exists(), "the socket is removed at the end");
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_is_loaded() {
    for (arguments, wanted) in [
        (&["serve", "no-such-model", "--host", "0.0.0.0"][..], "no API key is set"),
        (&["serve", "no-such-model"], "no-such-model"),
        (&["serve", "m", "--adapter", "x"], "NAME=DIR"),
        (&["serve", "m", "--unix", "s", "--port", "1"], "--unix"),
        (&["serve", "m", "--api-key-file", "no-such-file"], "no-such-file"),
    ] {
        let output = expect(2, arguments);
        assert!(said(&output).contains(wanted), "{arguments:?}: {}", said(&output));
    }
}
