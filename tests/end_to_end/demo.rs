//! The main job, end to end, on the tiny model: it finishes, resumes after SIGKILL in every
//! stage, leaves rows that do not depend on interruptions, and does nothing the second time.

use crate::common::{SLUG, copy, copy_of_demo, data, demo, expect, rederive, said, snapshot, text};
use rederive::episode::{CallRow, EpisodeRow, Row, same_rows, table};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn rows<R: Row>(workspace: &Path, kind: &str, arm: &str, seed: &str) -> Vec<R> {
    let path = data(workspace).join(kind).join(arm).join(format!("{seed}.parquet"));
    table::read_chain_checked(&path).unwrap()
}

fn same_as_demo(workspace: &Path) {
    let mut compared = 0;
    for kind in ["base", "treatment", "harvest"] {
        for entry in std::fs::read_dir(data(demo()).join("episodes").join(kind)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let seed = name.trim_end_matches(".parquet");
            let (a, b) =
                (rows::<EpisodeRow>(demo(), "episodes", kind, seed), rows(workspace, "episodes", kind, seed));
            same_rows(&a, &b).unwrap_or_else(|d| panic!("episodes/{kind}/{seed}: {d:?}"));
            let (a, b) = (rows::<CallRow>(demo(), "calls", kind, seed), rows(workspace, "calls", kind, seed));
            same_rows(&a, &b).unwrap_or_else(|d| panic!("calls/{kind}/{seed}: {d:?}"));
            compared += 1;
        }
    }
    assert!(compared >= 5, "{compared} units compared");
}

#[test]
fn the_last_line_is_the_path_of_the_site_alone() {
    let output = expect(0, &["demo", "--quick", "--dir", text(demo())]);
    let out = String::from_utf8(output.stdout).unwrap();
    let last = out.lines().last().unwrap();
    assert!(last.ends_with("index.html") && Path::new(last).is_file(), "{out}");
    assert!(out.contains("verdict "), "{out}");
    expect(0, &["audit", "--workspace", text(demo())]);
    expect(0, &["claims", "check", "--workspace", text(demo())]);
    expect(0, &["site", "check", "--workspace", text(demo())]);
}

#[test]
fn a_second_run_changes_no_data() {
    let (_folder, workspace) = copy_of_demo();
    let before = snapshot(&data(&workspace));
    expect(0, &["demo", "--quick", "--dir", text(&workspace)]);
    assert!(before == snapshot(&data(&workspace)), "data changed in a run with nothing to do");
}

#[test]
fn two_builds_of_the_site_are_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    for out in [&a, &b] {
        expect(0, &["site", "build", "--workspace", text(demo()), "--out", text(out)]);
    }
    let strip = |root: &Path| -> Vec<_> {
        snapshot(root)
            .into_iter()
            .map(|(p, bytes)| (p.strip_prefix(root).unwrap().to_path_buf(), bytes))
            .collect()
    };
    assert!(strip(&a) == strip(&b));
    assert!(strip(&a).len() > 20);
}

/// Kills the process as soon as its error stream shows `marker`, after a further `delay`.
fn kill_at(arguments: &[&str], marker: &str, delay: Duration) -> bool {
    let mut child = rederive().args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seen = false;
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        if line.unwrap().starts_with(marker) {
            seen = true;
            std::thread::sleep(delay);
            child.kill().unwrap();
            break;
        }
    }
    child.wait().unwrap();
    seen
}

/// Makes `to` what `from` is, which may be nothing at all.
fn mirror(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    if from.is_dir() {
        copy(from, to);
    }
}

/// A kill may come so late that the next stage is over as well, and then that stage cannot be
/// interrupted any more: the workspace goes back to where it was and the kill comes sooner.
#[test]
fn sigkill_in_each_stage_and_then_again_finishes_with_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("demo");
    let arguments = ["demo", "--quick", "--dir", text(&workspace)];
    let kept = |marker: &str| folder.path().join(format!("before {marker}"));
    let mut kills = [
        ("make model", 300),
        ("harvest", 400),
        ("train", 300),
        ("merge", 30),
        ("calibrate base", 50),
        ("evaluate base", 150),
        ("evaluate treatment", 150),
        ("audit", 5),
        ("site", 20),
    ];
    let (mut stage, mut tries) = (0, 0);
    while stage < kills.len() {
        let (marker, delay) = kills[stage];
        tries += 1;
        assert!(tries < 60, "no stage `{marker}` was seen");
        mirror(&workspace, &kept(marker));
        if kill_at(&arguments, marker, Duration::from_millis(delay)) {
            stage += 1;
            continue;
        }
        assert!(stage > 0, "no stage `{marker}` was seen");
        stage -= 1;
        kills[stage].1 /= 2;
        mirror(&kept(kills[stage].0), &workspace);
    }
    expect(0, &arguments);
    same_as_demo(&workspace);
    expect(0, &["audit", "--workspace", text(&workspace)]);
}

/// A copy of the demo in which nothing was evaluated yet.
fn before_evaluation() -> (tempfile::TempDir, std::path::PathBuf) {
    let (folder, workspace) = copy_of_demo();
    let root = data(&workspace);
    for kind in ["episodes", "calls", "transcripts"] {
        for arm in ["base", "treatment"] {
            let _ = std::fs::remove_dir_all(root.join(kind).join(arm));
        }
    }
    for receipt in ["decision", "headroom", "plan-evaluate"] {
        let _ = std::fs::remove_file(root.join("receipts").join(format!("{receipt}.json")));
    }
    let path = root.join("hashes.json");
    let mut hashes: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    hashes.retain(|name, _| !name.contains("/base/") && !name.contains("/treatment/"));
    std::fs::write(&path, serde_json::to_vec_pretty(&hashes).unwrap()).unwrap();
    (folder, workspace)
}

/// A unit becomes three files, a list of hashes and the end of its write-ahead file. Whatever
/// stops between two of them, the next run starts from the write-ahead file.
#[test]
fn a_unit_that_was_half_written_is_finished_by_the_next_run() {
    let (_folder, workspace) = before_evaluation();
    let arguments = ["run", SLUG, "--workspace", text(&workspace)];
    for half in [
        "calls/base/31001.parquet",
        "transcripts/base/52005.jsonl.zst",
        "calls/treatment/52004.parquet",
        "transcripts/treatment/52005.jsonl.zst",
    ] {
        let obstacle = data(&workspace).join(half);
        std::fs::create_dir_all(obstacle.join("in the way")).unwrap();
        let said = String::from_utf8(expect(2, &arguments).stderr).unwrap();
        assert!(said.contains(half), "{said}");
        std::fs::remove_dir_all(&obstacle).unwrap();
    }
    expect(0, &arguments);
    same_as_demo(&workspace);
    expect(0, &["audit", "--workspace", text(&workspace)]);
}

#[test]
fn run_killed_at_twenty_random_moments_ends_with_the_rows_of_an_undisturbed_run() {
    let (_undisturbed, workspace) = before_evaluation();
    let started = Instant::now();
    expect(0, &["run", SLUG, "--workspace", text(&workspace)]);
    let whole = started.elapsed();
    same_as_demo(&workspace);

    let (mut folder, mut workspace) = before_evaluation();
    let mut random = rederive::philox::Philox::named("moments of the kill test");
    let (mut killed, mut started) = (0, 0);
    while killed < 20 {
        started += 1;
        assert!(started < 200, "{killed} of {started} runs were killed before they ended");
        let mut child = rederive()
            .args(["run", SLUG, "--workspace", text(&workspace)])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(whole.mul_f64(0.02 + 0.6 * random.unit()));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
            killed += 1;
        } else {
            // It finished in spite of the kills before: its rows count, and another one begins.
            let ended = child.wait_with_output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            same_as_demo(&workspace);
            (folder, workspace) = before_evaluation();
        }
    }
    expect(0, &["run", SLUG, "--workspace", text(&workspace)]);
    same_as_demo(&workspace);
    drop(folder);
}

#[test]
fn stages_run_one_by_one_give_the_rows_of_the_demo() {
    let (_folder, workspace) = before_evaluation();
    let output = expect(0, &["status", SLUG, "--workspace", text(&workspace), "--json"]);
    assert!(said(&output).contains("\"missing\""));
    for stage in ["harvest", "train", "merge", "run"] {
        let output = expect(0, &[stage, SLUG, "--workspace", text(&workspace), "--json"]);
        let receipt: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(receipt.is_object());
    }
    same_as_demo(&workspace);
}
