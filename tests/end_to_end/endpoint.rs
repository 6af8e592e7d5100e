//! Another server as the backend: an experiment on one that fails and comes back, and an event each
//! on the local engine and on llama.cpp's server.

// The unit tests use the rest of it.
#[allow(dead_code)]
#[path = "../../src/engine/endpoint/test_server.rs"]
mod test_server;

use crate::common::{expect, said, text};
use rederive::episode::{CallRow, EpisodeRow, table};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use test_server::{Reply, TestServer, good};

/// Knows the sums, as model `small` half of them.
fn answer(body: &Value) -> Value {
    let prompt = body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    let number: i64 = prompt.split(' ').nth(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let off = i64::from(body["model"] == "small" && number % 2 == 0);
    good(body, &format!("It is\nANSWER: {}", number + 1 + off))
}

fn plan(url: &str) -> String {
    format!(
        r#"title = "Does the tuned model add better?"
[model.endpoint]
url = "{url}"
model = "small"
retries = 0
timeout_s = 20
[harness]
evaluate = {{ answer_tokens = 16, slots = 4 }}
[tasks]
environment = "sums.jsonl"
train = []
held_out = ["sums"]
levels = [1]
per_family = 30
[seeds]
evaluate = [52004, 52005]
[harvest]
minimum_rows = 1
minimum_families = 1
[[arms]]
name = "base"
[[arms]]
name = "tuned"
served = "small-tuned"
[decision]
rule = "three-way"
metric = {{ estimator = "paired_delta", of = "reward", weight = "task" }}
minimum_delta = 0.03
"#
    )
}

fn workspace(url: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let lab = folder.path().join("lab");
    expect(0, &["new", "sums", "--workspace", text(&lab)]);
    let tasks: String = (0..80)
        .map(|n| format!("{{\"id\": \"sum-{n}\", \"prompt\": \"What is {n} + 1?\", \"answer\": {}, \"verifier\": \"number\", \"family\": \"sums\"}}\n", n + 1))
        .collect();
    std::fs::write(lab.join("data/sums/sums.jsonl"), tasks).unwrap();
    write_plan(&lab, url);
    (folder, lab)
}

fn write_plan(lab: &Path, url: &str) {
    std::fs::write(lab.join("data/sums/experiment.toml"), plan(url)).unwrap();
}

fn rows(lab: &Path, slug: &str, arm: &str, seed: u64) -> Vec<EpisodeRow> {
    table::read(&lab.join(format!("data/{slug}/episodes/{arm}/{seed}.parquet"))).unwrap()
}

#[test]
fn a_server_that_breaks_down_stops_the_run_and_the_next_one_goes_on() {
    // 60 calls of the base arm and two probes pass; then every second call fails.
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let breaking = TestServer::start(move |n, body| {
        count.fetch_max(n, Ordering::SeqCst);
        if n > 70 && n % 2 == 0 { Reply::Status(500, "", "out of memory") } else { Reply::Json(answer(body)) }
    });
    let (_folder, lab) = workspace(&breaking.url);
    let at = ["--workspace", text(&lab)];
    let run = [&["run", "sums"], &at[..]].concat();
    let output = expect(1, &run);
    for words in ["the server answered 500: out of memory", "task sum-", "hint: "] {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    let wal = std::fs::read_to_string(lab.join("data/sums/wal/tuned/52004.jsonl")).unwrap();
    assert!(wal.lines().count() > 1, "finished episodes stay");
    drop(breaking);

    // Another address is the same server; another build of it is not, and no flag mixes them.
    let rebuilt = TestServer::start(|_, body| {
        let mut value = answer(body);
        value["system_fingerprint"] = "build-2".into();
        Reply::Json(value)
    });
    write_plan(&lab, &rebuilt.url);
    let output = expect(1, &[&run[..], &["--accept-engine"]].concat());
    assert!(said(&output).contains("not the one that answered for arm `base`"), "{}", said(&output));
    drop(rebuilt);

    let well = TestServer::start(|_, body| Reply::Json(answer(body)));
    write_plan(&lab, &well.url);
    expect(0, &run);
    assert_eq!(rows(&lab, "sums", "base", 52004).len(), 30);
    let all = [rows(&lab, "sums", "tuned", 52004), rows(&lab, "sums", "base", 52005)].concat();
    assert!(all.iter().all(|r| (&r.dtype, r.slots, &r.tokens_sha256) == (&None, None, &None)));
    assert!(
        all.iter().all(|r| r.reward.is_some() && r.prompt_tokens == Some(5)),
        "a failure is never an answer"
    );
    assert!(rows(&lab, "sums", "tuned", 52004).iter().all(|r| r.solved == Some(true)));
    let calls: Vec<CallRow> = table::read(&lab.join("data/sums/calls/tuned/52004.parquet")).unwrap();
    assert!(calls.iter().all(|c| c.prompt_sha256.is_none() && c.completion_tokens.is_some()));

    // An undisturbed run gives the same rows, but for clocks.
    let (_other, calm) = workspace(&well.url);
    expect(0, &["run", "sums", "--workspace", text(&calm)]);
    let plain = |lab: &Path| -> Vec<EpisodeRow> {
        let mut rows = rows(lab, "sums", "tuned", 52004);
        rows.iter_mut().for_each(|r| {
            (r.wall_ms, r.started_at, r.row_sha256) = (0, String::new(), String::new());
        });
        rows
    };
    assert_eq!(plain(&lab), plain(&calm));

    let decision = std::fs::read_to_string(lab.join("data/sums/receipts/decision.json")).unwrap();
    assert!(decision.contains("\"positive\""), "{decision}");
    expect(0, &[&["fill"], &at[..]].concat());
    expect(0, &[&["audit"], &at[..]].concat());
    expect(0, &[&["site", "build"], &at[..]].concat());

    // Rows of two servers in one event are found by the audit too.
    let path = lab.join("data/sums/episodes/tuned/52005.parquet");
    let mut forged: Vec<EpisodeRow> = table::read(&path).unwrap();
    forged.iter_mut().for_each(|r| r.engine_sha256 = "0".repeat(64));
    table::write(&path, &forged).unwrap();
    let output = expect(1, &[&["audit"], &at[..]].concat());
    assert!(said(&output).contains("backend_mixed"), "{}", said(&output));
}

#[test]
fn what_a_server_lacks_is_said_before_anything_is_locked() {
    let server = TestServer::start(|_, body| Reply::Json(answer(body)));
    let (_folder, lab) = workspace(&server.url);
    let at = ["--workspace", text(&lab)];
    let path = lab.join("data/sums/experiment.toml");
    for (from, to, words) in [
        ("model = \"small\"", "model = \"smoll\"", "does not serve `smoll`"),
        (
            "retries = 0",
            "retries = 0\napi_key_env = \"REDERIVE_NO_SUCH_KEY\"",
            "`REDERIVE_NO_SUCH_KEY` is not set",
        ),
    ] {
        std::fs::write(&path, plan(&server.url).replacen(from, to, 1)).unwrap();
        let output = crate::common::run(&[&["run", "sums"], &at[..]].concat());
        assert!(output.status.code() != Some(0) && said(&output).contains(words), "{}", said(&output));
        assert!(!lab.join("data/sums/receipts").exists() && !lab.join("data/seeds.jsonl").exists());
    }
}

/// What two arms said and earned: by arm and task.
fn said_and_earned(lab: &Path) -> Vec<(String, String, Option<f64>, Vec<String>)> {
    let mut out = Vec::new();
    for arm in ["base", "tuned"] {
        let said = rederive::episode::transcript::read(
            &lab.join(format!("data/own/transcripts/{arm}/52014.jsonl.zst")),
        );
        for (row, t) in rows(lab, "own", arm, 52014).iter().zip(said.unwrap()) {
            assert_eq!(row.task_id, t.task_id);
            let texts = t.messages.into_iter().map(|m| m.content).collect();
            out.push((arm.to_string(), row.task_id.clone(), row.reward, texts));
        }
    }
    out
}

#[test]
fn a_model_and_its_adapter_say_the_same_here_and_behind_our_own_server() {
    let demo = crate::common::demo();
    let adapter = crate::common::data(demo).join("adapters/1");
    let mut child = crate::common::rederive()
        .args(["serve", text(&demo.join("models/tiny")), "--name", "tiny", "--slots", "4", "--port", "0"])
        .arg("--adapter")
        .arg(format!("mine={}", adapter.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.find("http://").unwrap_or_else(|| panic!("no address in `{line}`"));
    let url = line[at..].split_whitespace().next().unwrap().trim_end_matches('/').to_owned();
    let url = if url.ends_with("/v1") { url } else { format!("{url}/v1") };
    let server = Server { child, url };

    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, endpoint: &str, served: &str| {
        let lab = folder.path().join(name);
        expect(0, &["new", "own", "--workspace", text(&lab)]);
        crate::common::copy(&demo.join("models/tiny"), &lab.join("models/tiny"));
        crate::common::copy(&adapter, &lab.join("mine"));
        let plan = format!(
            r#"title = "The same, there?"
[model]
source = "models/tiny"
{endpoint}
[harness]
evaluate = {{ answer_tokens = 24, slots = 4 }}
[tasks]
environment = "gym"
train = []
held_out = ["caravan", "kilnrite"]
levels = [1]
per_family = 6
[seeds]
evaluate = [52014]
[harvest]
minimum_rows = 1
minimum_families = 1
[[arms]]
name = "base"
[[arms]]
name = "tuned"
adapter = "mine"
{served}
[decision]
rule = "three-way"
metric = {{ estimator = "paired_delta", of = "reward", weight = "task" }}
minimum_delta = 0.03
"#
        );
        std::fs::write(lab.join("data/own/experiment.toml"), plan).unwrap();
        expect(0, &["run", "own", "--workspace", text(&lab)]);
        expect(0, &["fill", "--workspace", text(&lab)]);
        expect(0, &["audit", "--workspace", text(&lab)]);
        said_and_earned(&lab)
    };
    let endpoint = format!("endpoint = {{ url = \"{}\", model = \"tiny\" }}", server.url);
    let (there, here) = (run("there", &endpoint, "served = \"mine\""), run("here", "", ""));
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

struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The user's cache, as `rederive models fetch` has it.
fn cache() -> Option<PathBuf> {
    let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    Some(home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?.join("rederive"))
}

/// A Python that has llama.cpp's server: a virtual environment, made once.
fn python() -> Result<PathBuf, String> {
    let folder = cache().ok_or("there is no home folder")?.join("xllamacpp");
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

fn llama_server(model: &Path) -> Result<Server, String> {
    let mut child = Command::new(python()?)
        .args(["-c", SCRIPT])
        .arg(model)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or("no output")?;
    BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
    let url = format!("{}/v1", line.trim());
    let server = Server { child, url };
    if line.starts_with("http") { Ok(server) } else { Err("llama.cpp's server did not start".into()) }
}

#[test]
fn an_event_on_the_local_engine_and_one_on_llama_cpp() {
    let model = cache()
        .map(|cache| cache.join("models/SmolLM2-135M-Instruct.Q4_1.gguf"))
        .filter(|path| path.is_file());
    let Some(model) = model else {
        eprintln!("skipped: run `rederive models fetch` first");
        return;
    };
    let server = match llama_server(&model) {
        Ok(server) => server,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let lab = folder.path().join("lab");
    let at = ["--workspace", text(&lab)];
    expect(0, &["new", "two", "--workspace", text(&lab)]);
    let plan = format!(
        r#"title = "Do two backends agree on a base against itself?"
[model]
source = "smollm2-135m-instruct"
endpoint = {{ url = "{}", model = "{}", seeds = [52005], extra = {{ top_k = 0, min_p = 0.0 }} }}
[harness]
evaluate = {{ answer_tokens = 12, slots = 2 }}
[tasks]
environment = "gym"
train = []
held_out = ["caravan", "kilnrite"]
levels = [1]
per_family = 2
[seeds]
evaluate = [52004, 52005]
[[arms]]
name = "base"
[[arms]]
name = "again"
[decision]
rule = "three-way"
metric = {{ estimator = "paired_delta", of = "reward", weight = "task" }}
minimum_delta = 0.03
"#,
        server.url,
        model.display()
    );
    std::fs::write(lab.join("data/two/experiment.toml"), plan).unwrap();
    expect(0, &[&["run", "two"], &at[..]].concat());
    for arm in ["base", "again"] {
        let (here, there) = (rows(&lab, "two", arm, 52004), rows(&lab, "two", arm, 52005));
        assert!(
            here.iter().all(|r| r.dtype.as_deref() == Some("f32")
                && r.slots == Some(2)
                && r.tokens_sha256.is_some())
        );
        assert!(there.iter().all(|r| r.dtype.is_none() && r.slots.is_none() && r.tokens_sha256.is_none()));
        assert!(there.iter().all(|r| r.reward.is_some() && r.completion_tokens > Some(0)));
        assert!(there.iter().any(|r| r.turns > 1), "several turns run on an endpoint too");
        assert_ne!(here[0].engine_sha256, there[0].engine_sha256);
    }
    assert_eq!(
        rows(&lab, "two", "base", 52005)[0].engine_sha256,
        rows(&lab, "two", "again", 52005)[0].engine_sha256
    );
    expect(0, &[&["fill"], &at[..]].concat());
    expect(0, &[&["audit"], &at[..]].concat());

    // Another template counts otherwise, and is named before anything is locked.
    let other = lab.join("data/other");
    std::fs::create_dir_all(&other).unwrap();
    let plan = std::fs::read_to_string(lab.join("data/two/experiment.toml")).unwrap();
    let plan = plan
        .replace("[52004, 52005]", "[52014]")
        .replace("seeds = [52005], ", "")
        .replace("smollm2-135m-instruct", "models/tiny");
    std::fs::write(other.join("experiment.toml"), plan).unwrap();
    let tiny = rederive::model::Model::tiny(&rederive::model::TinySpec::default()).unwrap();
    tiny.save(&lab.join("models/tiny")).unwrap();
    let output = expect(1, &[&["run", "other"], &at[..]].concat());
    assert!(
        said(&output).contains("our rendering has") && !other.join("receipts").exists(),
        "{}",
        said(&output)
    );
}
