//! `compare --json` on the five reference data sets, driven through the binary.

use crate::common::{expect, run, said};
use serde_json::Value;

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/stats/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn compare(set: &str) -> Value {
    let output = expect(0, &["compare", &fixture(&format!("{set}.csv")), "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Both null, or both numbers within 1e-9.
fn close(what: &str, ours: &Value, theirs: &Value) {
    match (ours.as_f64(), theirs.as_f64()) {
        (Some(a), Some(b)) => assert!((a - b).abs() <= 1e-9, "{what}: {a} is not {b}"),
        (None, None) if ours.is_null() && theirs.is_null() => {}
        _ => panic!("{what}: {ours} is not {theirs}"),
    }
}

#[test]
fn the_five_reference_sets_agree() {
    let golden = json(&fixture("golden.json"));
    for (set, expected) in golden["datasets"].as_object().unwrap() {
        let ours = compare(set);
        let paired = &expected["paired"];
        close(&format!("{set}: delta"), &ours["delta"], &paired["delta_task_macro"]);
        close(&format!("{set}: se"), &ours["se"], &paired["se_task_paired"]);
        for (i, end) in ["low", "high"].into_iter().enumerate() {
            let theirs = &paired["ci95_t_task"];
            let theirs = if theirs.is_null() { theirs } else { &theirs[i] };
            close(&format!("{set}: ci_t.{end}"), &ours["ci_t"][end], theirs);
        }
        close(&format!("{set}: p"), &ours["sign_flip_p"], &expected["permutation_signflip_task"]["p_exact"]);
        close(&format!("{set}: mde"), &ours["mde"], &expected["mde_80pct_power_alpha05"]["value"]);
        for arm in ["base", "treatment"] {
            close(
                &format!("{set}: {arm}.mean"),
                &ours[arm]["mean"],
                &expected["arm"][arm]["mean_reward_task_macro_paired_tasks"],
            );
            for k in ["1", "2", "4"] {
                let of = &expected["arm"][arm];
                close(
                    &format!("{set}: pass@{k} {arm}"),
                    &ours["pass_at_k"][arm][k],
                    &of["pass_at_k_per_seed"][k],
                );
                close(
                    &format!("{set}: best@{k} {arm}"),
                    &ours["best_at_k"][arm][k],
                    &of["best_at_k_reward_per_seed"][k],
                );
            }
        }
    }
}

#[test]
fn the_normative_bootstrap_agrees_under_both_keys() {
    let normative = json(&fixture("normative_bootstrap.json"));
    for (set, keys) in normative["datasets"].as_object().unwrap() {
        for (key, expected) in keys.as_object().unwrap() {
            if expected["n"].as_u64().unwrap() < 10 {
                continue;
            }
            let path = fixture(&format!("{set}.csv"));
            let output = expect(0, &["compare", &path, "--json", "--bootstrap-key", key]);
            let ours: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(ours["ci"]["method"], "expanded_percentile", "{set}");
            close(&format!("{set}/{key}: low"), &ours["ci"]["low"], &expected["expanded_percentile"][0]);
            close(&format!("{set}/{key}: high"), &ours["ci"]["high"], &expected["expanded_percentile"][1]);
        }
    }
}

#[test]
fn a_person_gets_a_sentence_first() {
    let output = expect(0, &["compare", &fixture("binary_basic.csv")]);
    let text = String::from_utf8(output.stdout).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.contains("0.083") && first.len() > 40, "{first}");
}

#[test]
fn bad_rows_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content, words) in [
        ("nan.csv", "arm,task,reward\nbase,a,NaN\ntreatment,a,1\n", "reward"),
        ("range.csv", "arm,task,reward\nbase,a,1.5\ntreatment,a,1\n", "reward"),
        (
            "twice.csv",
            "arm,task,seed,rollout,reward\nbase,a,0,0,1\nbase,a,0,0,1\ntreatment,a,0,0,1\n",
            "twice.csv",
        ),
        ("one.csv", "arm,task,reward\nbase,a,1\n", "single arm"),
        ("apart.csv", "arm,task,reward\nbase,a,1\ntreatment,b,1\n", "task"),
        ("column.csv", "arm,task,rewrd\nbase,a,1\n", "reward"),
        ("empty.csv", "", "empty.csv"),
        ("line.jsonl", "{\"arm\":\"base\",\"task\":\"a\",\"reward\":1}\n{oops\n", "line.jsonl"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let output = run(&["compare", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{name}\n{}", said(&output));
        assert!(said(&output).contains(words) && said(&output).contains(name), "{name}\n{}", said(&output));
    }
}

/// Starts `compare` on a pipe, feeds it, and sends SIGTERM; the exit code, within ten seconds.
#[cfg(unix)]
fn stopped_after(text: &str, and_close: bool) -> Option<i32> {
    use std::io::Write;
    use std::time::{Duration, Instant};
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("rows.csv");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name is a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let mut child = crate::common::rederive()
        .args(["compare", pipe.to_str().unwrap()])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Opening waits for the reader: from here on `compare` is at work.
    let mut rows = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    rows.write_all(text.as_bytes()).unwrap();
    let kept = (!and_close).then_some(rows);
    std::thread::sleep(Duration::from_millis(400));
    // SAFETY: the process is our own child and was not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    let sent = Instant::now();
    while sent.elapsed() < Duration::from_secs(10) {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something was left behind");
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(kept);
    None
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_while_it_reads_and_while_it_computes() {
    let mut rows = String::from("arm,task,reward\n");
    assert_eq!(stopped_after(&rows, false), Some(130), "while it reads");
    // As many values as tasks: the bootstrap draws one by one, which takes far longer than we wait.
    for task in 0..300_000 {
        let reward = f64::from(task) * 0.618_033_988_749_894_9 % 1.0;
        rows.push_str(&format!("base,{task},0\ntreatment,{task},{reward}\n"));
    }
    assert_eq!(stopped_after(&rows, true), Some(130), "while it computes");
}
