//! Import on real logs, on tables, on every kind of bad input, and on logs that were changed at random:
//! what comes out, what is refused and where, and that nothing is half written.

use super::*;
use crate::episode::{ImportedRow, hashes, table as parquet};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/import").join(name)
}

fn options(files: &[PathBuf], arms: &[&str]) -> Options {
    Options {
        files: files.to_vec(),
        arm: arms.iter().map(ToString::to_string).collect(),
        ..Options::default()
    }
}

fn rows(root: &Path, name: &str, arm: &str) -> Vec<ImportedRow> {
    parquet::read_chain_checked(&root.join(format!("data/{name}/imported/{arm}.parquet"))).unwrap()
}

/// Every file of a folder with its bytes.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().map(Result::unwrap);
    entries
        .filter(|e| e.file_type().is_file())
        .map(|e| (e.path().into(), fs_err::read(e.path()).unwrap()))
        .collect()
}

/// Imports one file of this text as arm `base`; the message, if it is refused.
fn attempt(name: &str, bytes: &[u8], options: Options) -> Result<Written, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs_err::write(&path, bytes).unwrap();
    let options = Options { files: vec![path], ..options };
    let done = read(&options).and_then(|import| import.write(&dir.path().join("lab"))).map_err(|e| {
        assert_eq!(e.exit_code(), 2, "{e}");
        e.to_string()
    });
    if done.is_err() {
        assert!(!dir.path().join("lab").exists(), "nothing is written");
    }
    done
}

fn base() -> Options {
    Options { arm: vec!["base".into()], ..Options::default() }
}

#[test]
fn both_formats_of_an_inspect_log_give_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for file in ["treatment.eval", "treatment.json"] {
        let options = Options {
            metric: Some("match".into()),
            ..options(&[fixture("inspect").join(file)], &["treatment"])
        };
        let root = dir.path().join(file);
        read(&options).unwrap().write(&root).unwrap();
        let mut rows = rows(&root, "sums", "treatment");
        // They are two runs of one deterministic program: clocks and order differ.
        for row in &mut rows {
            (row.source, row.source_row, row.wall_ms, row.started_at, row.row_sha256) =
                (String::new(), 0, None, None, String::new());
        }
        rows.sort_by(|a, b| (&a.task_id, a.rollout).cmp(&(&b.task_id, b.rollout)));
        found.push(rows);
    }
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0].len(), 12);
}

#[test]
fn an_inspect_log_says_what_its_rows_say() {
    let dir = tempfile::tempdir().unwrap();
    let metric = |name: &str| Options {
        metric: Some(name.into()),
        ..options(&[fixture("inspect/base.eval"), fixture("inspect/treatment.eval")], &["base", "treatment"])
    };
    let written = read(&metric("match")).unwrap().write(dir.path()).unwrap();
    let rows = rows(dir.path(), "sums", "base");
    assert_eq!(rows.len(), 12);
    let broken: Vec<&ImportedRow> = rows.iter().filter(|row| row.error.is_some()).collect();
    assert_eq!(broken.len(), 1);
    assert_eq!(
        (broken[0].task_id.as_str(), broken[0].rollout, broken[0].reward),
        ("sums/sum-7-8", Some(1), None)
    );
    assert_eq!(broken[0].finish_reason.as_deref(), Some("infra_error"));
    assert!(broken[0].error.as_ref().unwrap().contains("the tool server went away"));
    let limited: Vec<&ImportedRow> =
        rows.iter().filter(|row| row.finish_reason.as_deref() == Some("token_limit")).collect();
    assert_eq!(limited.len(), 2);
    assert!(limited.iter().all(|row| row.reward.is_some() && row.task_id == "sums/sum-6-6"));
    for row in rows.iter().filter(|row| row.error.is_none()) {
        assert_eq!(row.solved, row.reward.map(|r| r == 1.0));
        assert_eq!(row.prompt_tokens, Some(9));
        assert_eq!(
            (row.seed, row.train_seed, row.split.as_deref(), row.think_tokens),
            (None, None, None, None)
        );
        assert_eq!(row.model.as_deref(), Some("mockllm/model"));
    }
    let origin = &written.arms[0].sources[0];
    assert_eq!(
        (origin.program.as_deref(), origin.program_version.as_deref()),
        (Some("inspect_ai"), Some("0.3.285"))
    );
    assert_eq!((origin.task.as_deref(), origin.status.as_deref()), (Some("sums"), Some("success")));
    assert_eq!((origin.counts.rows, origin.counts.errors, origin.counts.limits), (12, 1, 2));
    assert_eq!(origin.sha256, hash::sha256_file(&fixture("inspect/base.eval")).unwrap());
    // A graded scorer leaves an answer without a number unscored, which is no 0.
    let closeness = read(&metric("closeness")).unwrap().preview(&dir.path().join("other")).unwrap();
    assert!(closeness.arms[0].null_rewards > closeness.arms[1].null_rewards);
    assert!(!dir.path().join("other").exists());
    let said = read(&Options { metric: None, ..metric("") }).unwrap_err().to_string();
    assert!(said.contains("`closeness`, `match`") && said.contains("--metric"), "{said}");
}

#[test]
fn an_import_again_changes_nothing_and_other_rows_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("s.csv");
    fs_err::write(&csv, "task,reward\na,1\nb,0\n").unwrap();
    let lab = dir.path().join("lab");
    let again =
        |arm: &str| read(&options(std::slice::from_ref(&csv), &[arm])).and_then(|import| import.write(&lab));
    assert_eq!(again("base").unwrap().written.len(), 2);
    let before = snapshot(&lab);
    assert_eq!(again("base").unwrap().unchanged, ["data/s/imported/base.parquet"]);
    assert_eq!(snapshot(&lab), before);
    fs_err::write(&csv, "task,reward\na,1\nb,1\n").unwrap();
    let said = again("base").unwrap_err().to_string();
    assert!(said.contains("imported already") && said.contains("--name"), "{said}");
    assert_eq!(snapshot(&lab), before);
    again("treatment").unwrap();
    assert_eq!(hashes::verify(&lab.join("data/s")).unwrap().len(), 4);
    // A file that was left by a killed import is not listed, and so is replaced.
    fs_err::write(lab.join("data/s/imported/third.parquet"), "half").unwrap();
    again("third").unwrap();
    assert_eq!(rows(&lab, "s", "third").len(), 2);
    // Rows that somebody changed are named, not built upon.
    fs_err::write(lab.join("data/s/imported/base.parquet"), "x").unwrap();
    assert!(again("base").unwrap_err().to_string().contains("base.parquet"));
}

#[test]
fn tables_keep_what_they_say_and_name_what_is_left() {
    let text = "id,grade,arm,seed,rollout,finish_reason,prompt_tokens,extra\n\
        q1,5,base,7,0,stop,12,x\nq1,,base,7,1,error,,x\nq1,3,tuned,7,0,length,9,x\n";
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("Judged rows.csv");
    fs_err::write(&csv, text).unwrap();
    let options = Options {
        map: vec!["task=id".into()],
        metric: Some("grade".into()),
        scale: Some("1,5".into()),
        solved_from: Some(1.0),
        ..options(&[csv], &[])
    };
    let written = read(&options).unwrap().write(dir.path()).unwrap();
    assert_eq!(written.experiment, "judged-rows");
    let base = rows(dir.path(), "judged-rows", "base");
    assert_eq!(
        (base[0].reward, base[0].solved, base[0].seed, base[0].prompt_tokens),
        (Some(1.0), Some(true), Some(7), Some(12))
    );
    assert_eq!(
        (base[1].reward, base[1].solved, base[1].prompt_tokens, base[1].source_row),
        (None, None, None, 3)
    );
    let tuned = rows(dir.path(), "judged-rows", "tuned");
    assert_eq!((tuned[0].reward, tuned[0].solved), (Some(0.5), Some(false)));
    let origin = &written.arms[0].sources[0];
    assert_eq!(origin.ignored, ["extra"]);
    assert_eq!(
        origin.mapping["reward"],
        "column `grade`, numbers scaled from [1, 5] to [0, 1]; null where it is empty"
    );
}

#[test]
fn bad_tables_are_refused_by_line() {
    for (text, place, wanted) in [
        ("task,reward\na,1\nb,NaN\n", "line 3", "NaN"),
        ("task,reward\na,inf\n", "line 2", "inf"),
        ("task,reward\na,7\n", "line 2", "--scale"),
        ("task,reward\na,x\n", "line 2", "not a number"),
        ("task,reward\n,1\n", "line 2", "missing"),
        ("task,reward\na,1\na,0\n", "line 3", "was there before, at"),
        ("task,seed,rollout,reward\na,1,0,1\na,1,0,1\n", "line 3", "seed 1, rollout 0"),
        ("task,seed,reward\na,1,1\nb,,1\n", "line 3", "the seed is missing"),
        ("task,reward,prompt_tokens\na,1,-3\n", "line 2", "not negative"),
        ("{\"task\": \"a\", \"reward\": 1}\n{\"task\": \"b\", \"rew", "line 2", "JSON"),
        ("task,score\na,1\n", "x.csv", "--map reward="),
        ("", "x.csv", "empty"),
    ] {
        let said = attempt("x.csv", text.as_bytes(), base()).unwrap_err();
        assert!(said.contains(place) && said.contains(wanted) && said.contains("hint:"), "{text}: {said}");
    }
}

#[test]
fn one_bad_row_among_many_is_found_and_nothing_is_written() {
    let mut text = String::from("task,reward\n");
    for i in 0..200_000 {
        text.push_str(&format!("t{i},{}\n", if i == 123_456 { "1.5" } else { "1" }));
    }
    let said = attempt("x.csv", text.as_bytes(), base()).unwrap_err();
    assert!(said.contains("x.csv: line 123458: ") && said.contains("1.5"), "{said}");
}

#[test]
fn arms_names_and_options_are_checked() {
    let good = b"task,reward\na,1\n";
    for (options, wanted) in [
        (Options::default(), "--arm base --arm treatment"),
        (Options { arm: vec!["Base".into()], ..base() }, "not an arm name"),
        (Options { arm: vec!["a".into(), "b".into()], ..base() }, "2 arms are named for 1 files"),
        (Options { name: Some("No".into()), ..base() }, "not a name"),
        (Options { scale: Some("1,1".into()), ..base() }, "no scale"),
        (Options { scale: Some("0,inf".into()), ..base() }, "no scale"),
        (Options { solved_from: Some(f64::NAN), ..base() }, "--solved-from"),
        (Options { metric: Some("rewardd".into()), ..base() }, "did you mean"),
        (Options { format: Some(Format::Inspect), ..base() }, "no whole Inspect log"),
        (Options { format: Some(Format::LmEval), ..base() }, "line 1"),
    ] {
        let said = attempt("x.csv", good, options).unwrap_err();
        assert!(said.contains(wanted) && said.contains("hint:"), "{said}");
    }
    let missing = read(&options(&[PathBuf::from("/nowhere/x.eval")], &["base"])).unwrap_err().to_string();
    assert!(missing.contains("no such file"), "{missing}");
    let twice = fixture("inspect/base.eval");
    let said =
        read(&Options { metric: Some("match".into()), ..options(&[twice.clone(), twice], &["a", "b"]) });
    assert!(said.unwrap_err().to_string().contains("the same file"));
}

#[test]
fn two_arms_may_have_the_same_samples_and_one_arm_several_files() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, text).unwrap();
        path
    };
    let (a, b) = (put("a/x.csv", "task,reward\nt,1\n"), put("b/x.csv", "task,reward\nt,1\n"));
    let written =
        read(&options(&[a.clone(), b.clone()], &["tuned", "base"])).unwrap().write(dir.path()).unwrap();
    assert_eq!(written.arms.iter().map(|arm| arm.arm.as_str()).collect::<Vec<_>>(), ["tuned", "base"]);
    let said = read(&options(&[a.clone(), b], &["base"])).unwrap_err().to_string();
    assert!(said.contains("same name"), "{said}");
    let said =
        read(&options(&[a.clone(), dir.path().join("a/../a/x.csv")], &["a", "b"])).unwrap_err().to_string();
    assert!(said.contains("the same file"), "{said}");
    let c = put("c.csv", "task,reward\nu,0\n");
    let both = Options { name: Some("both".into()), ..options(&[a, c], &["base"]) };
    let written = read(&both).unwrap().write(dir.path()).unwrap();
    assert_eq!((written.arms.len(), written.arms[0].rows, written.arms[0].sources.len()), (1, 2, 2));
    assert!(written.render(dir.path(), false).contains("fields             as in x.csv"));
}

#[test]
fn one_task_id_stands_for_one_question() {
    let log = |question: &str, id: &str| {
        format!(
            r#"{{"version": 2, "status": "success", "eval": {{"task": "t", "model": "m"}},
            "samples": [{{"id": "{id}", "epoch": 1, "input": "{question}", "scores": {{"s": {{"value": "C"}}}}}}]}}"#
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: String| {
        let path = dir.path().join(name);
        fs_err::write(&path, text).unwrap();
        path
    };
    let (a, b) = (put("a.json", log("2 + 2?", "1")), put("b.json", log("3 + 3?", "1")));
    let said = read(&options(&[a.clone(), b.clone()], &["base", "treatment"])).unwrap_err().to_string();
    assert!(said.contains("b.json: sample 1: ") && said.contains("asks something else"), "{said}");
    let lab = dir.path().join("lab");
    read(&options(&[a], &["base"])).unwrap().write(&lab).unwrap();
    let said = read(&options(&[b], &["treatment"])).unwrap().write(&lab).unwrap_err().to_string();
    assert!(said.contains("asks something else"), "{said}");
    let c = put("c.json", log("3 + 3?", "2"));
    read(&options(&[c], &["treatment"])).unwrap().write(&lab).unwrap();
}

#[test]
fn scores_of_inspect_that_are_no_reward_are_refused_by_sample() {
    for (value, wanted) in
        [("Infinity", "inf"), ("7", "--scale"), ("\"great\"", "`great`"), ("[1]", "a list")]
    {
        let text = format!(
            r#"{{"eval": {{"task": "t"}}, "samples": [{{"id": 1, "epoch": 1, "scores": {{"s": {{"value": {value}}}}}}}]}}"#
        );
        let said = attempt("x.json", text.as_bytes(), base()).unwrap_err();
        assert!(said.contains("x.json: sample 1 (`1`, epoch 1): ") && said.contains(wanted), "{said}");
    }
    let none =
        r#"{"eval": {"task": "t"}, "samples": [{"id": 1, "epoch": 1, "scores": {"s": {"value": NaN}}}]}"#;
    assert_eq!(attempt("x.json", none.as_bytes(), base()).unwrap().arms[0].null_rewards, 1);
    for text in [
        r#"{"eval": {}, "samples": []}"#,
        r#"{"eval": {}}"#,
        r#"{"eval": {}, "samples": [{"epoch": 1}]}"#,
        r#"{"eval": {}, "samples": ["#,
    ] {
        assert!(attempt("x.json", text.as_bytes(), base()).unwrap_err().contains("x.json"), "{text}");
    }
}

#[test]
fn logs_of_lm_eval_are_read_with_their_results() {
    let folder = |arm: &str| fixture("lm-eval").join(arm);
    let sample = |arm: &str, task: &str| {
        let files = fs_err::read_dir(folder(arm)).unwrap().map(|e| e.unwrap().path());
        files
            .into_iter()
            .find(|p| p.file_name().unwrap().to_string_lossy().starts_with(&format!("samples_{task}_")))
            .unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let pick = Options {
        metric: Some("acc".into()),
        ..options(&[sample("base", "pick"), sample("treatment", "pick")], &["base", "treatment"])
    };
    let written = read(&pick).unwrap().write(dir.path()).unwrap();
    let origin = &written.arms[0].sources[0];
    assert_eq!((origin.task.as_deref(), origin.program_version.as_deref()), (Some("pick"), Some("0.4.13")));
    assert!(origin.beside.is_some() && origin.model.is_some() && origin.date.is_some());
    let (base, treatment) = (rows(dir.path(), "pick", "base"), rows(dir.path(), "pick", "treatment"));
    let ids = |rows: &[ImportedRow]| rows.iter().map(|r| r.task_id.clone()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&base), ids(&treatment));
    assert_eq!(base.len(), ids(&base).len());
    assert!(base.iter().all(|r| r.reward.is_some()
        && r.solved.is_none()
        && r.rollout.is_none()
        && r.finish_reason.is_none()));
    let arith = options(&[sample("base", "arith")], &["base"]);
    let said = read(&arith).unwrap_err().to_string();
    assert!(said.contains("`flexible`, `strict`"), "{said}");
    let one = read(&Options { filter: Some("strict".into()), ..arith }).unwrap().preview(dir.path()).unwrap();
    let counts = &one.arms[0].sources[0].counts;
    assert_eq!(counts.read, 2 * counts.rows);
    assert_eq!(counts.dropped["another filter"], counts.rows);
}

#[test]
fn the_report_fits_its_schema() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../docs/schemas/import.schema.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("s.csv");
    fs_err::write(&csv, "task,reward,other\na,1,x\n").unwrap();
    let inspect =
        Options { metric: Some("match".into()), ..options(&[fixture("inspect/base.eval")], &["base"]) };
    let table = Options { scale: Some("0,2".into()), solved_from: Some(0.5), ..options(&[csv], &["base"]) };
    for asked in [inspect, table] {
        let written = read(&asked).unwrap().preview(dir.path()).unwrap();
        let value = serde_json::to_value(&written).unwrap();
        assert_eq!(compare::tests::schema::complaints(&schema, &schema, &value, "x"), Vec::<String>::new());
        assert!(written.render(dir.path(), true).contains("would write"));
    }
}

/// A log with some of its bytes changed, removed or doubled.
fn mutated(bytes: &[u8], edits: &[(u32, u8, u8)]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for (at, kind, byte) in edits {
        if out.is_empty() {
            break;
        }
        let at = *at as usize % out.len();
        match kind % 4 {
            0 => out[at] = *byte,
            1 => drop(out.remove(at)),
            2 => out.truncate(at),
            _ => {
                let piece = out[at..(at + *byte as usize).min(out.len())].to_vec();
                out.splice(at..at, piece);
            }
        }
    }
    out
}

const SMALL_LOG: &str = r#"{"version": 2, "status": "success", "eval": {"task": "t", "model": "m", "dataset": {"samples": 2}},
 "samples": [{"id": 1, "epoch": 1, "input": "q", "scores": {"s": {"value": "C"}}, "total_time": 1.5, "model_usage": {"m": {"input_tokens": 3}}},
 {"id": "b", "epoch": 2, "input": "r", "scores": {"s": {"value": NaN}}, "limit": {"type": "token"}, "error": {"message": "x"}}]}"#;

proptest! {
    #[test]
    fn no_change_of_a_log_makes_it_panic(
        edits in prop::collection::vec((any::<u32>(), any::<u8>(), any::<u8>()), 1..4),
        which in 0usize..4,
    ) {
        let real = [fs_err::read(fixture("inspect/base.eval")).unwrap(), SMALL_LOG.into()];
        let lines = "{\"doc_id\": 0, \"filter\": \"none\", \"metrics\": [\"acc\"], \"doc_hash\": \"ab\", \"acc\": 1.0}\n".repeat(2).replacen("0,", "1,", 1);
        let table = "task,reward,seed\na,1,1\nb,0,1\n".to_string();
        let bytes = [real[0].as_slice(), real[1].as_slice(), lines.as_bytes(), table.as_bytes()][which];
        let result = attempt("x.json", &mutated(bytes, &edits), Options { metric: (which == 0).then(|| "match".into()), ..base() });
        if let Err(said) = result {
            prop_assert!(said.contains("hint:"), "{said}");
        }
    }
}

#[test]
fn a_table_gives_the_family_of_its_tasks_and_arms_that_share_none_say_so() {
    let text = b"arm,task,reward\nbase,a/0,1\nbase,plain,0\ntuned,b/0,1\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    fs_err::write(&path, text).unwrap();
    let written = read(&options(&[path], &[])).unwrap().write(&dir.path().join("lab")).unwrap();
    let families: Vec<Option<String>> =
        rows(&dir.path().join("lab"), "t", "base").into_iter().map(|row| row.family).collect();
    assert_eq!(families, [Some("a".to_owned()), None]);
    let mapped = &written.arms[0].sources[0].mapping["family"];
    assert!(mapped.contains("before `/`"), "{mapped}");
    assert_eq!(written.notes.len(), 1);
    let said = written.render(dir.path(), false);
    assert!(said.contains("note: no task is in all of these arms"), "{said}");
    // A column of families is the one that counts, where it is empty too.
    let written = attempt("t.csv", b"task,family,reward\na/0,,1\n", base()).unwrap();
    assert!(written.notes.is_empty() && written.arms[0].sources[0].mapping["family"].contains("column"));
}

#[test]
fn a_task_of_two_families_or_two_questions_is_refused() {
    let two = attempt("t.csv", b"arm,task,family,reward\nbase,a,x,1\ntuned,a,y,0\n", Options::default());
    let two = two.unwrap_err();
    assert!(two.contains("is of family `y` here, and of `x` before"), "{two}");
    let asked = b"arm,task,task_sha256,reward\nbase,a,1111,1\ntuned,a,2222,0\n";
    let asked = attempt("t.csv", asked, Options::default()).unwrap_err();
    assert!(asked.contains("asks something else"), "{asked}");
}
