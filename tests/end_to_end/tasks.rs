//! A user's own tasks: a file is checked, an experiment runs on it from harvest to website, and what it
//! drew and scored is what the file says.

use crate::common::{copy, data, demo, expect, said, text};
use rederive::environment::{Environment, gym::Gym};
use rederive::episode::{EpisodeRow, table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes a task set of questions that the tiny model knows the kind of, under families of our own.
fn write_tasks(path: &Path) {
    let mut out = String::new();
    for (source, family, split, count) in [
        ("caravan", "stock", "train", 70),
        ("gatepost", "gates", "train", 70),
        ("caravan", "stock", "held_out", 30),
        ("gatepost", "gates", "held_out", 30),
        ("brinework", "vats", "held_out", 30),
    ] {
        let seed = if split == "train" { 777 } else { 778 };
        for index in 0..count {
            let session = Gym.begin(&Gym.task(source, 1, seed, index).unwrap()).unwrap();
            let answer = session.oracle().rsplit(':').next().unwrap().trim().to_owned();
            let verifier = if answer.parse::<f64>().is_ok() { "number" } else { "exact" };
            let line = serde_json::json!({
                "id": format!("{family}-{split}-{index}"), "prompt": session.prompt(), "answer": answer, "verifier": verifier,
                "family": family, "split": split,
            });
            out.push_str(&format!("{line}\n"));
        }
    }
    std::fs::write(path, out).unwrap();
}

/// A workspace with the demo's tiny model and an experiment on a task set.
pub fn workspace() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let lab = folder.path().join("lab");
    expect(0, &["new", "own", "--workspace", text(&lab)]);
    copy(&demo().join("models/tiny"), &lab.join("models/tiny"));
    let plan = std::fs::read_to_string(data(demo()).join("experiment.toml")).unwrap();
    let plan = plan
        .replace("environment = \"gym\"", "environment = \"tasks.jsonl\"")
        .replace("train = [\"caravan\", \"gatepost\", \"kilnrite\"]", "train = [\"stock\", \"gates\"]")
        .replace("held_out = [\"brinework\"]", "held_out = [\"vats\"]")
        .replace("per_family = 12", "per_family = 10")
        .replace("learning_rate = 5e-3", "learning_rate = 2e-2");
    std::fs::write(lab.join("data/own/experiment.toml"), plan).unwrap();
    write_tasks(&lab.join("data/own/tasks.jsonl"));
    (folder, lab)
}

pub fn episodes(lab: &Path) -> Vec<EpisodeRow> {
    let mut rows = Vec::new();
    for entry in walkdir::WalkDir::new(lab.join("data/own/episodes")).sort_by_file_name() {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            rows.extend(table::read::<EpisodeRow>(entry.path()).unwrap());
        }
    }
    rows
}

#[test]
fn an_experiment_runs_on_a_file_of_tasks_from_harvest_to_website() {
    let (_folder, lab) = workspace();
    let at = ["--workspace", text(&lab)];
    let file = lab.join("data/own/tasks.jsonl");
    let output = expect(0, &["tasks", "check", text(&file), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["tasks"], &report["passed"]), (&230.into(), &true.into()));

    // Too few lines: refused by the numbers, before anything is locked or spent.
    let plan = lab.join("data/own/experiment.toml");
    let good = std::fs::read_to_string(&plan).unwrap();
    std::fs::write(&plan, good.replace("per_family = 64", "per_family = 71")).unwrap();
    let output = expect(2, &[&["harvest", "own"], &at[..]].concat());
    assert!(
        said(&output).contains("70 train lines are left for seed 11001")
            && said(&output).contains("71 are needed"),
        "{}",
        said(&output)
    );
    assert!(!lab.join("data/own/receipts").exists() && !lab.join("data/seeds.jsonl").exists());
    std::fs::write(&plan, &good).unwrap();

    for verb in ["harvest", "train", "merge", "run"] {
        expect(0, &[&[verb, "own"], &at[..]].concat());
    }
    let rows = episodes(&lab);
    let mut drawn: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in &rows {
        assert_eq!(row.environment, "tasks.jsonl");
        let side = if row.arm == "harvest" { "train" } else { "held_out" };
        assert!(
            row.task_id.starts_with(&format!("{}-{side}-", row.family)),
            "{} in {}",
            row.task_id,
            row.arm
        );
        drawn
            .entry(if row.arm == "harvest" { "harvest" } else { "evaluated" })
            .or_default()
            .insert(&row.task_id);
    }
    assert_eq!(
        (drawn["harvest"].len(), drawn["evaluated"].len()),
        (128, 90),
        "no task is drawn by two seeds"
    );
    assert!(rows.iter().any(|row| row.solved == Some(true)), "the tiny model solves some");

    // The same reply gets the same verdict outside the run.
    let path =
        std::fs::read_dir(lab.join("data/own/transcripts/base")).unwrap().next().unwrap().unwrap().path();
    for line in rederive::episode::transcript::read(&path).unwrap().iter().take(6) {
        let reply = &line.messages.last().unwrap().content;
        let row = rows.iter().find(|row| row.task_id == line.task_id && row.arm == "base").unwrap();
        let code = i32::from(row.solved == Some(false));
        let output = expect(code, &["tasks", "try", text(&file), &line.task_id, "--json", "--reply", reply]);
        let judged: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(judged["right"].as_bool(), row.solved, "{}: {reply}", line.task_id);
        assert_eq!(judged["evidence"].is_string(), row.parse_ok.unwrap(), "{reply}");
    }

    expect(0, &[&["fill"], &at[..]].concat());
    expect(0, &[&["audit"], &at[..]].concat());
    expect(0, &[&["site", "build"], &at[..]].concat());

    // How often the file was looked at is counted, shown and audited.
    let output = expect(0, &[&["status", "own"], &at[..]].concat());
    assert!(said(&output).contains("2 evaluation events drew from this file"), "{}", said(&output));
    let page = std::fs::read_to_string(lab.join("public/experiments/own/index.html")).unwrap();
    assert!(page.contains("This task set has been looked at 2 times"), "{page}");
    let receipt = lab.join("data/own/receipts/decision.json");
    let signed = std::fs::read_to_string(&receipt).unwrap();
    let mut forged: serde_json::Value = serde_json::from_str(&signed).unwrap();
    forged["receipt"]["looks"] = 1.into();
    forged["sha256"] = rederive::hash::sha256_json(&forged["receipt"]).unwrap().into();
    std::fs::write(&receipt, forged.to_string()).unwrap();
    let output = expect(1, &[&["audit"], &at[..]].concat());
    assert!(said(&output).contains("looks is 1, the rows give 2"), "{}", said(&output));
    std::fs::write(&receipt, signed).unwrap();

    // A file that changed is another plan, for the stages and for the audit.
    let old = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, old.replacen("stock-train-0\"", "stock-train-zero\"", 1)).unwrap();
    let output = expect(1, &[&["run", "own"], &at[..]].concat());
    assert!(said(&output).contains("`tasks.file_sha256` was"), "{}", said(&output));
    let output = expect(1, &[&["audit"], &at[..]].concat());
    assert!(said(&output).contains("plan_lock"), "{}", said(&output));
}

#[test]
fn bad_lines_are_listed_with_number_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    std::fs::write(&file, "{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"b\"}\n\n{\"prompt\": \"c\", \"answer\": 1, \"level\": 9, \"verifier\": \"number\"}\n").unwrap();
    let output = expect(2, &["tasks", "check", text(&file)]);
    for words in [
        "t.jsonl:2: `answer` is missing",
        "t.jsonl:4: `level` is 9",
        "hint: ",
        "2 lines cannot be used, 1 can",
    ] {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    let output = expect(2, &["tasks", "check", text(&file), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["problems"][1]["line"], 4);
    expect(2, &["tasks", "check", text(&folder.path().join("none.jsonl"))]);
    std::fs::write(&file, "").unwrap();
    expect(2, &["tasks", "check", text(&file)]);
}
