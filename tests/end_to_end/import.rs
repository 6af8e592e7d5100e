//! Rows that other programs made, from their own logs to a comparison, a claim and an audit; numbers are
//! held against what the raw logs give by hand.

use crate::common::{expect, run, said, snapshot, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/import").join(name)
}

/// Task → rewards of its epochs in a raw `.eval` file, by a scorer of letters; null for a sample that has none.
fn letters(path: &Path, scorer: &str) -> BTreeMap<String, Vec<Option<f64>>> {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).expect("a file")).expect("a zip file");
    let names: Vec<String> = (0..zip.len())
        .map(|i| zip.by_index(i).expect("an entry").name().expect("UTF-8").to_string())
        .collect();
    let mut tasks: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    for name in names.iter().filter(|name| name.starts_with("samples/")) {
        let mut text = String::new();
        zip.by_name(name).expect("an entry").read_to_string(&mut text).expect("UTF-8");
        let sample: Value = serde_json::from_str(&text.replace(":NaN", ":null")).expect("JSON");
        let score = match sample["scores"][scorer]["value"].as_str() {
            Some("C") => Some(1.0),
            Some("I") => Some(0.0),
            None => None,
            Some(other) => panic!("{other}"),
        };
        tasks.entry(sample["id"].as_str().expect("an id").into()).or_default().push(score);
    }
    tasks
}

fn mean(values: &[Option<f64>]) -> Option<f64> {
    let there: Vec<f64> = values.iter().flatten().copied().collect();
    (!there.is_empty()).then(|| there.iter().sum::<f64>() / there.len() as f64)
}

fn compared(root: &Path, name: &str) -> Value {
    let arm = |arm: &str| root.join(format!("data/{name}/imported/{arm}.parquet"));
    let output = expect(0, &["compare", text(&arm("base")), text(&arm("treatment")), "--json"]);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn two_inspect_logs_become_two_arms_whose_difference_is_the_one_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let (base, treatment) = (fixture("inspect/base.eval"), fixture("inspect/treatment.eval"));
    let import = ["import", text(&base), text(&treatment), "--arm", "base", "--arm", "treatment"];
    let refused = run(&[&import[..], &["--workspace", text(root)]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("`closeness`, `match`"), "{}", said(&refused));
    assert!(!root.join("data").exists());
    let chosen = [&import[..], &["--metric", "match", "--workspace", text(root)]].concat();
    let output = expect(0, &[&chosen[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");

    let (b, t) = (letters(&base, "match"), letters(&treatment, "match"));
    let differences: Vec<f64> =
        b.iter().filter_map(|(task, of_base)| Some(mean(t.get(task)?)? - mean(of_base)?)).collect();
    let delta = differences.iter().sum::<f64>() / differences.len() as f64;
    let nulls =
        |tasks: &BTreeMap<String, Vec<Option<f64>>>| tasks.values().flatten().filter(|r| r.is_none()).count();
    let comparison = compared(root, "sums");
    assert!((comparison["delta"].as_f64().expect("a number") - delta).abs() < 1e-12, "{comparison}");
    assert!(delta > 0.0, "the fixtures differ");
    assert_eq!(comparison["paired_tasks"], differences.len());
    assert_eq!(comparison["n_rows"], 24);
    for (at, arm, tasks) in [(0, "base", &b), (1, "treatment", &t)] {
        assert_eq!(comparison[arm]["n_unscored"], nulls(tasks));
        assert_eq!(report["arms"][at]["null_rewards"], nulls(tasks));
        let means: Vec<f64> = tasks.values().filter_map(|rewards| mean(rewards)).collect();
        let by_hand = means.iter().sum::<f64>() / means.len() as f64;
        assert!((comparison[arm]["mean"].as_f64().expect("a number") - by_hand).abs() < 1e-12);
    }

    // A claim over the rows: filled, checked and audited, by files, chain, provenance and numbers.
    let claim = "+++\nid = \"C0001\"\ntitle = \"The treatment adds better\"\nstatus = \"proposed\"\npopulation = \"tasks\"\n\
        [derivations.delta]\ndata = \"imported\"\nexperiment = \"sums\"\nestimator = \"paired_delta\"\nof = \"reward\"\n\
        arms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nformat = \"+0.0000\"\n\
        [[history]]\ndate = 2026-12-01\nstatus = \"proposed\"\nevidence = [\"derive:C0001.delta\"]\n+++\n\
        It gains [](derive:C0001.delta) on [](derive:C0001.delta.n) tasks.\n";
    std::fs::create_dir_all(root.join("claims")).expect("a folder");
    std::fs::write(root.join("claims/C0001-adds.md"), claim).expect("written");
    expect(0, &["fill", "--workspace", text(root)]);
    let filled = std::fs::read_to_string(root.join("claims/C0001-adds.md")).expect("readable");
    assert!(filled.contains(&format!("[{delta:+.4}](derive:C0001.delta)")), "{filled}");
    expect(0, &["claims", "check", "--workspace", text(root)]);
    let audit = expect(0, &["audit", "--workspace", text(root), "--json"]);
    let audit: Value = serde_json::from_slice(&audit.stdout).expect("JSON");
    assert_eq!((&audit["rows_checked"], &audit["files_checked"]), (&Value::from(24), &Value::from(4)));
    assert_eq!(audit["summary"]["matches"], 2);

    // The website shows the rows, where they come from, and a query that reads them there.
    expect(0, &["site", "build", "--workspace", text(root)]);
    let page = |address: &str| std::fs::read_to_string(root.join("public").join(address)).expect("a page");
    assert!(page("claims/C0001/index.html").contains("1 import"));
    let data = page("imports/sums/data/imported--base.parquet/index.html");
    assert!(data.contains("base.eval") && data.contains("Where they come from"), "{data}");
    let derivation = page("derivations/C0001/delta/index.html");
    for link in ["imports/sums/files/imported/base.parquet", "imports/sums/data/imported--base.parquet"] {
        assert!(derivation.contains(link), "{link}: {derivation}");
    }
    expect(0, &["site", "check", "--workspace", text(root)]);
    std::fs::remove_dir_all(root.join("public")).expect("removed");

    // The same import again changes nothing; a provenance that was touched up does not hold.
    let before = snapshot(root);
    expect(0, &chosen);
    assert_eq!(snapshot(root), before);
    let path = root.join("data/sums/imported/base.json");
    let record = std::fs::read_to_string(&path).expect("readable");
    std::fs::write(&path, record.replace("\"rows\": 12", "\"rows\": 13")).expect("written");
    let output = expect(1, &["audit", "--workspace", text(root)]);
    assert!(said(&output).contains("provenance") && said(&output).contains("file_hash"), "{}", said(&output));
}

#[test]
fn samples_of_lm_eval_are_compared_as_their_own_lines_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let sample = |arm: &str| {
        let files = std::fs::read_dir(fixture("lm-eval").join(arm))
            .expect("a folder")
            .map(|e| e.expect("an entry").path());
        files.into_iter().find(|p| text(p).contains("samples_pick_")).expect("a log")
    };
    let (base, treatment) = (sample("base"), sample("treatment"));
    let import =
        ["import", text(&base), text(&treatment), "--arm", "base", "--arm", "treatment", "--metric", "acc"];
    let output = expect(0, &[&import[..], &["--workspace", text(root)]].concat());
    assert!(
        said(&output).contains("lm-evaluation-harness") && said(&output).contains("doc_hash"),
        "{}",
        said(&output)
    );
    let scores = |path: &Path| -> BTreeMap<i64, f64> {
        let lines = std::fs::read_to_string(path).expect("readable");
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.map(|l| (l["doc_id"].as_i64().expect("an id"), l["acc"].as_f64().expect("a number"))).collect()
    };
    let (b, t) = (scores(&base), scores(&treatment));
    let delta = b.iter().map(|(id, score)| t[id] - score).sum::<f64>() / b.len() as f64;
    let comparison = compared(root, "pick");
    assert!((comparison["delta"].as_f64().expect("a number") - delta).abs() < 1e-12, "{comparison}");
    assert_eq!(comparison["paired_tasks"], b.len());
    assert_eq!(comparison["base"]["n_unscored"], 0);
    expect(0, &["audit", "--workspace", text(root)]);
}

#[test]
fn a_bad_file_is_named_and_earlier_results_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let good = root.join("good.csv");
    std::fs::write(&good, "task,reward\na,1\nb,0\n").expect("written");
    let import = |path: &Path, arm: &str| {
        run(&["import", text(path), "--arm", arm, "--name", "mine", "--workspace", text(root)])
    };
    assert_eq!(import(&good, "base").status.code(), Some(0));
    let before = snapshot(&root.join("data"));
    let whole = std::fs::read(fixture("inspect/base.eval")).expect("readable");
    let bad = root.join("bad.eval");
    std::fs::write(&bad, &whole[..whole.len() / 2]).expect("written");
    let worse = root.join("worse.jsonl");
    std::fs::write(&worse, "{\"task\": \"a\", \"reward\": 1}\n{\"task\": \"b\", \"rew").expect("written");
    for (path, place) in [(&bad, "bad.eval"), (&worse, "worse.jsonl: line 2")] {
        let output = import(path, "treatment");
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(place) && said(&output).contains("hint:"), "{}", said(&output));
    }
    assert_eq!(snapshot(&root.join("data")), before);
}
