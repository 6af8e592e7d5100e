//! Transcripts judged again by the binary: the demo's rewards come out the same, and a task file whose
//! verifiers were repaired leads to a new rows version that the whole line accepts.

use crate::common::{SLUG, copy_of_demo, data, demo, expect, said, snapshot, text};
use crate::tasks::{episodes, workspace};
use rederive::environment::{Environment, gym::Gym};
use rederive::episode::{EpisodeRow, chain, hashes, table, transcript};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Families of the only experiment as (name, harvest, episodes, rescored, differing, same verifier).
fn families(report: &Value) -> Vec<(String, bool, u64, u64, u64, bool)> {
    let families = report["rescore"]["experiments"][0]["families"].as_array().unwrap();
    families
        .iter()
        .map(|f| {
            let count = |key: &str| f[key].as_u64().unwrap();
            (
                f["family"].as_str().unwrap().to_owned(),
                f["harvest"].as_bool().unwrap(),
                count("episodes"),
                count("rescored"),
                count("differing"),
                f["same_verifier"].as_bool().unwrap(),
            )
        })
        .collect()
}

#[test]
fn every_episode_of_the_demo_is_judged_as_in_the_run() {
    let before = snapshot(&demo().join("data"));
    let output = expect(0, &["audit", "--rescore", "--workspace", text(demo()), "--json"]);
    let families = families(&json(&output.stdout));
    assert_eq!(families.iter().filter(|family| !family.1).count(), 4);
    assert_eq!(families.iter().filter(|family| family.1).count(), 3);
    for (name, _, episodes, rescored, differing, same) in &families {
        assert!(*episodes > 0 && episodes == rescored && *differing == 0 && *same, "{name}: {families:?}");
    }
    assert!(json(&output.stdout)["rescore"]["experiments"][0]["words_not_compared"].is_null());
    let output = expect(0, &["rescore", SLUG, "--workspace", text(demo())]);
    assert!(said(&output).contains("nothing to do"), "{}", said(&output));
    assert!(snapshot(&demo().join("data")) == before, "looking changes nothing");
}

/// Writes a unit's rows and transcripts after `change` as a forger would: sealed, and listed.
fn forge(
    workspace: &Path,
    arm: &str,
    seed: u64,
    change: impl FnOnce(&mut [EpisodeRow], &mut [transcript::Transcript]),
) {
    let root = data(workspace);
    let path = |folder: &str, ending: &str| format!("{folder}/{arm}/{seed}.{ending}");
    let (rows_at, said_at) = (path("episodes", "parquet"), path("transcripts", "jsonl.zst"));
    let mut rows: Vec<EpisodeRow> = table::read(&root.join(&rows_at)).unwrap();
    let mut said = transcript::read(&root.join(&said_at)).unwrap();
    change(&mut rows, &mut said);
    chain::seal(&mut rows).unwrap();
    for (path, bytes, last) in [
        (rows_at, table::encode(&rows).unwrap(), chain::last(&rows)),
        (said_at, transcript::encode(&said).unwrap(), None),
    ] {
        std::fs::write(root.join(&path), &bytes).unwrap();
        let entry = hashes::FileHash::of(&bytes, rows.len(), last);
        hashes::update(&root, [(path, entry)]).unwrap();
    }
}

#[test]
fn words_that_nobody_sampled_and_a_verifier_that_never_was_are_found() {
    let (_folder, lab) = copy_of_demo();
    let seed = event_seed(&lab);
    let mut at = 0;
    forge(&lab, "base", seed, |rows, said| {
        let row = rows.iter_mut().enumerate().find(|(_, row)| row.solved == Some(false) && row.turns == 1);
        let (index, row) = row.unwrap();
        at = index + 1;
        let task = Gym.by_id(&row.task_id).unwrap();
        let right = Gym.begin(&task).unwrap().oracle();
        let transcript = said.iter_mut().find(|t| t.task_id == row.task_id).unwrap();
        transcript.messages.last_mut().unwrap().content = right;
        (row.reward, row.solved, row.parse_ok, row.engaged) = (Some(1.0), Some(true), Some(true), Some(true));
    });
    let output = expect(1, &["audit", "--rescore", "--workspace", text(&lab), "--json"]);
    let report = json(&output.stdout);
    let findings = report["findings"].as_array().unwrap();
    let hit = findings.iter().find(|f| f["rule"] == "transcript_differs").unwrap();
    assert_eq!(hit["row"], at as u64, "{hit}");
    assert!(hit["file"].as_str().unwrap().ends_with(&format!("episodes/base/{seed}.parquet")), "{hit}");
    assert!(hit["detail"].as_str().unwrap().contains("the words of reply 1"), "{hit}");
    assert!(findings.iter().all(|f| f["rule"] != "rescore_differs"), "{findings:#?}");

    // A reward whose transcript is gone.
    let (_folder, lab) = copy_of_demo();
    let path = data(&lab).join(format!("transcripts/base/{seed}.jsonl.zst"));
    let mut said = transcript::read(&path).unwrap();
    said.remove(0);
    let bytes = transcript::encode(&said).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let entry = hashes::FileHash::of(&bytes, said.len(), None);
    hashes::update(&data(&lab), [(format!("transcripts/base/{seed}.jsonl.zst"), entry)]).unwrap();
    let output = expect(1, &["audit", "--rescore", "--workspace", text(&lab), "--json"]);
    let findings = json(&output.stdout)["findings"].to_string();
    assert!(findings.contains("transcript_differs") && findings.contains("has no transcript"), "{findings}");

    let (_folder, lab) = copy_of_demo();
    forge(&lab, "base", seed, |rows, _| {
        let family = rows[0].family.clone();
        for row in rows.iter_mut().filter(|row| row.family == family) {
            row.verifier_sha256 = "0".repeat(64);
            (row.reward, row.solved) = (Some(0.0), Some(false));
        }
    });
    let output = expect(1, &["audit", "--rescore", "--workspace", text(&lab), "--json"]);
    let report = json(&output.stdout);
    let findings = report["findings"].as_array().unwrap();
    let hit = findings.iter().find(|f| f["rule"] == "verifier_outdated");
    assert!(hit.is_some_and(|f| f["detail"].as_str().unwrap().contains("rederive rescore")), "{findings:#?}");
}

/// The only plan of a lab.
fn plan(lab: &Path) -> toml::Table {
    std::fs::read_to_string(data(lab).join("experiment.toml")).unwrap().parse().unwrap()
}

#[test]
fn a_model_that_is_there_and_cannot_read_its_rows_is_named() {
    let audit = |lab: &Path, code: i32| {
        let output = expect(code, &["audit", "--rescore", "--workspace", text(lab), "--json"]);
        json(&output.stdout)
    };
    let named = |report: &Value, words: &str| {
        let findings = report["findings"].as_array().unwrap();
        let hit = findings.iter().find(|f| f["rule"] == "model_differs");
        assert!(hit.is_some_and(|f| f["detail"].as_str().unwrap().contains(words)), "{findings:#?}");
    };
    let (_folder, lab) = copy_of_demo();
    let model = lab.join(plan(&lab)["model"]["source"].as_str().unwrap());
    let tokenizer = std::fs::read(model.join("tokenizer.json")).unwrap();
    std::fs::write(model.join("tokenizer.json"), "{}").unwrap();
    named(&audit(&lab, 1), "tokenizer");
    std::fs::write(model.join("tokenizer.json"), tokenizer).unwrap();
    let weights = model.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(weights, bytes).unwrap();
    named(&audit(&lab, 1), "is not the model of the rows");
    // A model that is kept elsewhere is no fault of the rows.
    std::fs::remove_dir_all(&model).unwrap();
    let report = audit(&lab, 0);
    assert!(report["rescore"]["experiments"][0]["words_not_compared"].is_string(), "{report}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_finding_among_the_others() {
    let (_folder, lab) = copy_of_demo();
    let seed = event_seed(&lab);
    let file = format!("transcripts/base/{seed}.jsonl.zst");
    std::fs::write(data(&lab).join(&file), "no transcripts").unwrap();
    let output = expect(1, &["audit", "--rescore", "--workspace", text(&lab), "--json"]);
    let report = json(&output.stdout);
    let findings = report["findings"].as_array().unwrap();
    let rules: BTreeSet<&str> = findings.iter().map(|f| f["rule"].as_str().unwrap()).collect();
    assert!(rules.contains("file_hash") && rules.contains("unreadable_file"), "{findings:#?}");
    assert!(findings.iter().any(|f| f["detail"].as_str().unwrap().contains(&file)), "{findings:#?}");
    assert!(!report["rescore"]["experiments"][0]["families"].as_array().unwrap().is_empty());
    let output = expect(1, &["rescore", SLUG, "--workspace", text(&lab)]);
    assert!(said(&output).contains(&file), "{}", said(&output));
}

/// An evaluation seed of the demo.
fn event_seed(lab: &Path) -> u64 {
    plan(lab)["seeds"]["evaluate"][0].as_integer().unwrap() as u64
}

/// The task file with what the base answered to some tasks accepted too.
fn repair(old: &str, wrong: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for line in old.lines() {
        let mut task: Value = serde_json::from_str(line).unwrap();
        if let Some(said) = wrong.get(task["id"].as_str().unwrap()) {
            task["answer"] = serde_json::json!([task["answer"], said]);
            task["verifier"] = "exact".into();
        }
        out.push_str(&format!("{task}\n"));
    }
    out
}

/// What the base answered to tasks of a family that it did not solve, by task.
fn wrong_answers(lab: &Path, rows: &[EpisodeRow]) -> BTreeMap<String, String> {
    let unsolved: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row.arm == "base" && row.family == "vats" && row.solved == Some(false))
        .map(|row| row.task_id.as_str())
        .collect();
    let mut wrong = BTreeMap::new();
    for entry in std::fs::read_dir(lab.join("data/own/transcripts/base")).unwrap() {
        for line in transcript::read(&entry.unwrap().path()).unwrap() {
            let reply = &line.messages.last().unwrap().content;
            let said = reply.lines().rev().find_map(|l| l.trim().strip_prefix("ANSWER:")).map(str::trim);
            if let Some(said) = said.filter(|said| unsolved.contains(&*line.task_id) && !said.is_empty()) {
                wrong.insert(line.task_id, said.to_owned());
            }
        }
    }
    wrong
}

#[test]
fn a_repaired_task_file_makes_a_new_rows_version_that_the_whole_line_accepts() {
    let (folder, lab) = workspace();
    let at = ["--workspace", text(&lab)];
    let go = |code: i32, arguments: &[&str]| expect(code, &[arguments, &at[..]].concat());
    for verb in ["harvest", "train", "merge", "run"] {
        go(0, &[verb, "own"]);
    }
    go(0, &["fill"]);
    let output = go(0, &["audit", "--rescore", "--json"]);
    for (name, _, episodes, rescored, differing, same) in families(&json(&output.stdout)) {
        assert!(episodes == rescored && differing == 0 && same, "{name}");
    }

    let rows = episodes(&lab);
    let solved = |rows: &[EpisodeRow]| {
        rows.iter()
            .filter(|row| row.arm == "base" && row.family == "vats" && row.solved == Some(true))
            .count()
    };
    let wrong = wrong_answers(&lab, &rows);
    assert!(wrong.len() > 3, "the tiny model gets some wrong: {wrong:?}");
    let file = lab.join("data/own/tasks.jsonl");
    let locked = std::fs::read_to_string(&file).unwrap();
    let was = folder.path().join("as-it-was.jsonl");
    std::fs::write(&was, &locked).unwrap();

    // Another question is another plan, whatever is said of the file before.
    std::fs::write(&file, repair(&locked, &wrong).replacen("How", "And how", 1)).unwrap();
    let before = snapshot(&lab.join("data"));
    let output = go(1, &["rescore", "own", "--was", text(&was)]);
    assert!(said(&output).contains("another question"), "{}", said(&output));
    assert!(snapshot(&lab.join("data")) == before);

    std::fs::write(&file, repair(&locked, &wrong)).unwrap();
    let output = go(1, &["run", "own"]);
    assert!(said(&output).contains("`tasks.file_sha256` was"), "{}", said(&output));
    let output = go(1, &["rescore", "own"]);
    assert!(said(&output).contains("--was FILE"), "{}", said(&output));
    let output = go(1, &["audit", "--rescore"]);
    for words in ["plan_lock", "another today", "a repaired verifier changes", "numbers would move"] {
        assert!(said(&output).contains(words), "{words}: {}", said(&output));
    }
    let output = go(2, &["rescore", "own", "--was", text(&file)]);
    assert!(said(&output).contains("the task file that stands there"), "{}", said(&output));

    let output = go(0, &["rescore", "own", "--was", text(&was), "--json"]);
    let done = json(&output.stdout);
    let replaced = done["receipt"]["replaced"].as_object().unwrap();
    assert!(
        replaced.contains_key("tasks.jsonl") && replaced.contains_key("receipts/decision.json"),
        "{replaced:?}"
    );
    let vats = &done["receipt"]["families"]["vats"];
    assert!(vats["changed"].as_u64().unwrap() >= wrong.len() as u64, "{vats}");
    assert!(done["moved"]["numbers"].as_array().unwrap().len() > 3);
    let now = episodes(&lab);
    assert_eq!(solved(&now), solved(&rows) + wrong.len());
    assert_eq!(std::fs::read_to_string(lab.join("data/own/superseded/1/tasks.jsonl")).unwrap(), locked);

    // Said once more, there is nothing to do, and nothing is written.
    let before = ["data", "site", "claims"].map(|folder| snapshot(&lab.join(folder)));
    let output = go(0, &["rescore", "own", "--was", text(&was)]);
    assert!(said(&output).contains("nothing to do"), "{}", said(&output));
    assert!(["data", "site", "claims"].map(|folder| snapshot(&lab.join(folder))) == before);

    // A person says what became of the outcome; the log's dated entry stays.
    let [was_decided, decided] = [0, 1].map(|at| done["decision"][at].as_str().unwrap().to_owned());
    let report = lab.join("site/experiments/own/report.md");
    let states = ["verdict = ".to_owned(), "utcome is".to_owned(), format!("**{was_decided}**")];
    let mend = |line: &str| match states.iter().any(|words| line.contains(words)) {
        true => line.replace(&was_decided, &decided),
        false => line.to_owned(),
    };
    let old = std::fs::read_to_string(&report).unwrap();
    let mended: Vec<String> = old.lines().map(mend).collect();
    std::fs::write(&report, mended.join("\n") + "\n").unwrap();

    // Stages, audit and website go on from there.
    go(0, &["run", "own"]);
    let output = go(0, &["rescore", "own"]);
    assert!(said(&output).contains("nothing to do"), "{}", said(&output));
    go(0, &["fill", "--update"]);
    let output = go(0, &["audit", "--rescore", "--json"]);
    for (name, harvest, episodes, rescored, differing, same) in families(&json(&output.stdout)) {
        assert!(episodes == rescored && differing == 0, "{name}");
        assert!(same || harvest, "{name}: only what was harvested names the verifier of before");
    }
    go(0, &["site", "build"]);
    go(0, &["site", "check"]);

    // The lock follows the rescore, and nothing else.
    std::fs::write(&file, repair(&locked, &wrong) + "\n").unwrap();
    let output = go(1, &["audit"]);
    assert!(said(&output).contains("plan_lock"), "{}", said(&output));
    assert!(said(&output).contains("superseded_unaccounted"), "{}", said(&output));

    // A further repair starts from what the last one left, and the file of before comes back by a repair only.
    let output = go(1, &["rescore", "own", "--was", text(&was)]);
    assert!(said(&output).contains("that rescore 1 left"), "{}", said(&output));
    std::fs::write(&file, &locked).unwrap();
    let output = go(1, &["rescore", "own"]);
    assert!(said(&output).contains("that rescore 1 left"), "{}", said(&output));
}
