//! An experiment on a server that breaks down, is rebuilt, moves and comes back: failures stop the
//! run and never become answers, and the rows are those of an undisturbed run.

use super::test_server::{Asked, Reply, TestServer, good};
use super::{Lab, plan};
use crate::common::said;
use rederive::episode::{CallRow, EpisodeRow, table};
use serde_json::Value;

/// Knows the sums, as model `small` half of them.
fn answer(asked: &Asked) -> Value {
    let body = &asked.body;
    let prompt = body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    let number: i64 = prompt.split(' ').nth(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let off = i64::from(body["model"] == "small" && number % 2 == 0);
    good(asked, &format!("It is\nANSWER: {}", number + 1 + off))
}

fn sums(url: &str) -> String {
    plan(&format!(
        r#"
[model.endpoint]
url = "{url}"
model = "small"
retries = 0
timeout_s = 20
[harness]
evaluate = {{ answer_tokens = 16, slots = 4 }}
[tasks]
environment = "sums.jsonl"
held_out = ["sums"]
per_family = 30
[seeds]
evaluate = [52004, 52005]
[[arms]]
name = "base"
[[arms]]
name = "tuned"
served = "small-tuned"
"#
    ))
}

fn workspace(url: &str) -> Lab {
    let lab = Lab::new("sums", &sums(url));
    let tasks: String = (0..80)
        .map(|n| format!("{{\"id\": \"sum-{n}\", \"prompt\": \"What is {n} + 1?\", \"answer\": {}, \"verifier\": \"number\", \"family\": \"sums\"}}\n", n + 1))
        .collect();
    std::fs::write(lab.data().join("sums.jsonl"), tasks).unwrap();
    lab
}

#[test]
fn a_server_that_breaks_down_stops_the_run_and_the_next_one_goes_on() {
    // 60 calls of the base arm and two probes pass; then every second call fails.
    let breaking = TestServer::start(|n, asked| match n > 70 && n % 2 == 0 {
        true => Reply::status(500, "", "out of memory"),
        false => Reply::json(&answer(asked)),
    });
    let lab = workspace(&breaking.url);
    let output = lab.expect(1, &["run", "sums"]);
    for words in ["the server answered 500: out of memory", "task sum-", "hint: "] {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    let wal = std::fs::read_to_string(lab.data().join("wal/tuned/52004.jsonl")).unwrap();
    assert!(wal.lines().count() > 1, "finished episodes stay");
    drop(breaking);

    // Another address is the same server; another build of it is not, and no flag mixes them.
    let rebuilt = TestServer::start(|_, asked| {
        let mut value = answer(asked);
        value["system_fingerprint"] = "build-2".into();
        Reply::json(&value)
    });
    lab.write_plan(&sums(&rebuilt.url));
    let output = lab.expect(1, &["run", "sums", "--accept-engine"]);
    assert!(said(&output).contains("not the one that answered for arm `base`"), "{}", said(&output));
    drop(rebuilt);

    let well = TestServer::start(|_, asked| Reply::json(&answer(asked)));
    lab.write_plan(&sums(&well.url));
    lab.finish();
    assert_eq!(lab.rows("base", 52004).len(), 30);
    let all = [lab.rows("tuned", 52004), lab.rows("base", 52005)].concat();
    assert!(all.iter().all(|r| (&r.dtype, r.slots, &r.tokens_sha256) == (&None, None, &None)));
    assert!(
        all.iter().all(|r| r.reward.is_some() && r.prompt_tokens == Some(5)),
        "a failure is never an answer"
    );
    assert!(lab.rows("tuned", 52004).iter().all(|r| r.solved == Some(true)));
    let calls: Vec<CallRow> = table::read(&lab.data().join("calls/tuned/52004.parquet")).unwrap();
    assert!(calls.iter().all(|c| c.prompt_sha256.is_none() && c.completion_tokens.is_some()));

    // An undisturbed run gives the same rows, but for clocks.
    let calm = workspace(&well.url);
    calm.expect(0, &["run", "sums"]);
    let plain = |lab: &Lab| -> Vec<EpisodeRow> {
        let mut rows = lab.rows("tuned", 52004);
        rows.iter_mut().for_each(|r| {
            (r.wall_ms, r.started_at, r.row_sha256) = (0, String::new(), String::new());
        });
        rows
    };
    assert_eq!(plain(&lab), plain(&calm));

    let decision = std::fs::read_to_string(lab.data().join("receipts/decision.json")).unwrap();
    assert!(decision.contains("\"positive\""), "{decision}");
    lab.expect(0, &["site", "build"]);

    // Rows of two servers in one event are found by the audit too.
    let path = lab.data().join("episodes/tuned/52005.parquet");
    let mut forged: Vec<EpisodeRow> = table::read(&path).unwrap();
    forged.iter_mut().for_each(|r| r.engine_sha256 = "0".repeat(64));
    table::write(&path, &forged).unwrap();
    let output = lab.expect(1, &["audit"]);
    assert!(said(&output).contains("backend_mixed"), "{}", said(&output));
}

#[test]
fn conversations_that_outgrow_the_servers_context_are_scored_as_they_stand() {
    const TOO_LONG: &str = r#"{"error": {"code": 400, "message": "the request exceeds the available context size",
        "type": "exceed_context_size_error", "n_prompt_tokens": 300, "n_ctx": 256}}"#;
    let walks = |url: &str| {
        plan(&format!(
            r#"
[model.endpoint]
url = "{url}"
model = "small"
[harness]
evaluate = {{ answer_tokens = 16, slots = 4 }}
[tasks]
environment = "gym"
held_out = ["kilnrite"]
per_family = 4
[seeds]
evaluate = [52004]
[[arms]]
name = "base"
[[arms]]
name = "tuned"
served = "small-tuned"
"#
        ))
    };
    let server = TestServer::start(|_, asked| match asked.body["messages"].as_array().unwrap().len() {
        1 => Reply::json(&good(asked, "I look.")),
        _ => Reply::status(400, "", TOO_LONG),
    });
    let lab = Lab::new("walks", &walks(&server.url));
    lab.finish();
    for row in [lab.rows("base", 52004), lab.rows("tuned", 52004)].concat() {
        assert_eq!((row.finish_reason.as_str(), row.turns, row.error), ("length", 1, None));
        assert!(row.reward.is_some() && row.completion_tokens.is_some());
    }

    // A first prompt that is too long is nobody's answer: the unit stays unfinished.
    let narrow = TestServer::start(|_, asked| match good(asked, "ready") {
        short if short["usage"]["prompt_tokens"].as_u64() < Some(10) => Reply::json(&short),
        _ => Reply::status(400, "", TOO_LONG),
    });
    let lab = Lab::new("walks", &walks(&narrow.url));
    let output = lab.expect(1, &["run", "walks"]);
    assert!(said(&output).contains("exceed_context_size_error"), "{}", said(&output));
    assert!(!lab.data().join("episodes/base/52004.parquet").exists());
}

#[test]
fn what_a_server_lacks_is_said_before_anything_is_locked() {
    let server = TestServer::start(|_, asked| Reply::json(&answer(asked)));
    let lab = workspace(&server.url);
    for (from, to, code, words) in [
        ("model = \"small\"", "model = \"smoll\"", 1, "does not serve `smoll`"),
        (
            "retries = 0",
            "retries = 0\napi_key_env = \"REDERIVE_NO_SUCH_KEY\"",
            2,
            "`REDERIVE_NO_SUCH_KEY` is not set",
        ),
    ] {
        lab.write_plan(&sums(&server.url).replacen(from, to, 1));
        let output = lab.expect(code, &["run", "sums"]);
        assert!(said(&output).contains(words), "{}", said(&output));
        assert!(!lab.data().join("receipts").exists() && !lab.path.join("data/seeds.jsonl").exists());
    }
}
