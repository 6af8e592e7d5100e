//! Events behind real servers: our own, which answers like the local engine, and llama.cpp's, on
//! which an experiment runs in part.

use super::{Lab, plan};
use crate::common::{copy, data, demo, rederive, said, text};
use rederive::engine::endpoint::{Endpoint, Options, Policy};
use rederive::engine::{Backend, Request, Sampling, Stream};
use rederive::environment::Message;
use rederive::episode::transcript;
use rederive::model::{Model, TinySpec, fetch};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server of another process, ended with the test.
struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone where it failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server that prints its address on its first line.
fn start(command: &mut Command) -> Result<Server, String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or("no output")?;
    let read = BufReader::new(out).read_line(&mut line);
    let at = line.find("http://").map(|at| line[at..].split_whitespace().next().unwrap_or_default());
    let url = at.unwrap_or_default().trim_end_matches('/').trim_end_matches("/v1").to_owned() + "/v1";
    let server = Server { child, url };
    read.map_err(|e| e.to_string())?;
    if at.is_some() { Ok(server) } else { Err(format!("no address in `{}`", line.trim())) }
}

/// What two arms said and earned: by arm and task.
fn said_and_earned(lab: &Lab) -> Vec<(String, String, Option<f64>, Vec<String>)> {
    let mut out = Vec::new();
    for arm in ["base", "tuned"] {
        let said = transcript::read(&lab.data().join(format!("transcripts/{arm}/52014.jsonl.zst"))).unwrap();
        for (row, t) in lab.rows(arm, 52014).iter().zip(said) {
            assert_eq!(row.task_id, t.task_id);
            let texts = t.messages.into_iter().map(|m| m.content).collect();
            out.push((arm.to_string(), row.task_id.clone(), row.reward, texts));
        }
    }
    out
}

#[test]
fn a_model_and_its_adapter_say_the_same_here_and_behind_our_own_server() {
    let (model, adapter) = (demo().join("models/tiny"), data(demo()).join("adapters/1"));
    let server = start(
        rederive()
            .args(["serve", text(&model), "--name", "tiny", "--slots", "4", "--port", "0"])
            .arg("--adapter")
            .arg(format!("mine={}", adapter.display())),
    )
    .unwrap();
    let run = |endpoint: &str, served: &str| {
        let plan = plan(&format!(
            r#"
[model]
source = "models/tiny"
{endpoint}
[harness]
evaluate = {{ answer_tokens = 24, slots = 4 }}
[tasks]
environment = "gym"
held_out = ["caravan", "kilnrite"]
per_family = 6
[seeds]
evaluate = [52014]
[[arms]]
name = "base"
[[arms]]
name = "tuned"
adapter = "mine"
{served}
"#
        ));
        let lab = Lab::new("own", &plan);
        copy(&model, &lab.path.join("models/tiny"));
        copy(&adapter, &lab.path.join("mine"));
        lab.finish();
        said_and_earned(&lab)
    };
    let endpoint = format!("endpoint = {{ url = \"{}\", model = \"tiny\" }}", server.url);
    let (there, here) = (run(&endpoint, "served = \"mine\""), run("", ""));
    assert_eq!(there.len(), 24);
    assert_eq!(there, here);
    assert!(
        there[..12].iter().zip(&there[12..]).any(|(base, tuned)| base.3 != tuned.3),
        "the adapter answers there"
    );
}

/// Serves a GGUF file until its standard input closes.
const SCRIPT: &str = r#"
import sys, xllamacpp as X
p = X.CommonParams()
p.model.path = sys.argv[1]
p.n_parallel, p.n_ctx, p.n_gpu_layers, p.use_jinja = 2, 4096, 0, True
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
server = X.Server(p)
print(server.listening_address, flush=True)
sys.stdin.read()
"#;

/// A Python that has llama.cpp's server: a virtual environment, made once beside the fetched models.
fn python() -> Result<PathBuf, String> {
    let models = fetch::cache_folder().map_err(|e| e.to_string())?;
    let folder = models.parent().ok_or("the cache has no parent")?.join("xllamacpp");
    let python = folder.join("bin/python");
    let works = |python: &Path| {
        let tried = Command::new(python).args(["-c", "import xllamacpp"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    if works(&python) {
        return Ok(python);
    }
    let run = |command: &mut Command| match command.stdout(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(e) => Err(e.to_string()),
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        .map_err(|e| format!("no virtual environment: {e}"))?;
    run(Command::new(&python).args(["-m", "pip", "install", "-q", "--only-binary", ":all:", "xllamacpp"]))
        .map_err(|e| format!("pip cannot install xllamacpp: {e}"))?;
    if works(&python) { Ok(python) } else { Err("xllamacpp was installed and does not load".into()) }
}

/// llama.cpp's server with a small model, and the model's file. `None`, with a word on why, where there is no model or
/// no server.
fn llama_server() -> Option<(Server, PathBuf)> {
    let model = fetch::cache_folder().ok()?.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let server = match model.is_file() {
        true => python().and_then(|python| start(Command::new(python).args(["-c", SCRIPT]).arg(&model))),
        false => Err("run `rederive models fetch` first".into()),
    };
    match server {
        Ok(server) => Some((server, model)),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

#[test]
fn an_event_on_the_local_engine_and_one_on_llama_cpp() {
    let Some((server, model)) = llama_server() else { return };
    let event = |there: &str, tasks: &str, evaluate: &str| {
        plan(&format!(
            r#"
[model]
source = "smollm2-135m-instruct"
endpoint = {{ url = "{}", model = "{}", {there} extra = {{ top_k = 0, min_p = 0.0 }} }}
[harness]
evaluate = {{ answer_tokens = 12, slots = 2 }}
[tasks]
per_family = 1
{tasks}
[seeds]
evaluate = {evaluate}
[[arms]]
name = "base"
[[arms]]
name = "again"
"#,
            server.url,
            model.display()
        ))
    };
    // Short prompts: what takes time is the local engine of a build without optimisation.
    let sums = "environment = \"sums.jsonl\"\nheld_out = [\"sums\"]";
    let lab = Lab::new("two", &event("seeds = [52005],", sums, "[52004, 52005]"));
    let task = |n: u32| {
        let answer = n + 1;
        format!(
            "{{\"id\": \"sum-{n}\", \"prompt\": \"{n} + 1?\", \"answer\": {answer}, \"verifier\": \"number\", \"family\": \"sums\"}}\n"
        )
    };
    std::fs::write(lab.data().join("sums.jsonl"), task(1) + &task(2)).unwrap();
    lab.finish();
    for arm in ["base", "again"] {
        let (here, there) = (lab.rows(arm, 52004), lab.rows(arm, 52005));
        assert!(
            here.iter().all(|r| r.dtype.as_deref() == Some("f32")
                && r.slots == Some(2)
                && r.tokens_sha256.is_some())
        );
        assert!(there.iter().all(|r| r.dtype.is_none() && r.slots.is_none() && r.tokens_sha256.is_none()));
        assert!(there.iter().all(|r| r.reward.is_some() && r.completion_tokens > Some(0)));
        assert_ne!(here[0].engine_sha256, there[0].engine_sha256);
    }
    assert_eq!(lab.rows("base", 52005)[0].engine_sha256, lab.rows("again", 52005)[0].engine_sha256);

    // Several turns, each counted by both sides.
    let walks = event("", "environment = \"gym\"\nheld_out = [\"kilnrite\"]", "[52014]");
    let lab = Lab::new("walks", &walks);
    lab.finish();
    assert!(lab.rows("base", 52014)[0].turns > 1 && lab.rows("again", 52014)[0].turns > 1);

    // A conversation that its context cannot hold is one call's failure.
    let mut backend = Endpoint::connect(Options {
        url: server.url.clone(),
        model: model.display().to_string(),
        api_key: None,
        width: 1,
        extra: serde_json::Map::new(),
        fingerprint: true,
        policy: Policy { retries: 0, pause: Duration::ZERO, timeout: Duration::from_secs(60) },
        count: None,
    })
    .unwrap();
    let tokens = backend.render(&[Message::user("one two three ".repeat(2000))]).unwrap();
    let stream = Stream { seed: 1, task_id: "long".into(), rollout: 0, turn: 1 };
    let request = Request { id: 1, tokens, adapter: None, sampling: Sampling::greedy(1), stream };
    backend.submit(request).unwrap();
    while backend.in_flight() > 0 {
        assert!(backend.step().unwrap().is_empty());
    }
    let (_, error) = backend.turned_down().remove(0);
    assert!(error.to_string().contains("exceed_context_size_error"), "{error}");

    // Another template counts otherwise, and is named before anything is locked.
    let other = Lab::new("other", &walks.replace("smollm2-135m-instruct", "models/tiny"));
    let tiny = Model::tiny(&TinySpec::default()).unwrap();
    tiny.save(&other.path.join("models/tiny")).unwrap();
    let output = other.expect(1, &["run", "other"]);
    assert!(
        said(&output).contains("our rendering has") && !other.data().join("receipts").exists(),
        "{}",
        said(&output)
    );
}
