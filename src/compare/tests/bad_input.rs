//! Input that cannot be compared: each error names the file, the row or line, the field and a
//! way out, and nothing panics.

#![cfg(test)]

use super::{Cluster, Options, Population, Weight, compare_files, defaults, run};
use proptest::prelude::*;

const HEADER: &str = "arm,task,seed,rollout,reward,solved\n";

/// The message for one CSV file with the usual header and these rows.
fn message(rows: &str) -> String {
    compare_files(&[("rows.csv", &format!("{HEADER}{rows}"))], defaults()).unwrap_err().to_string()
}

fn message_of(files: &[(&str, &str)], options: Options) -> String {
    compare_files(files, options).unwrap_err().to_string()
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
    assert!(message.contains("hint: "), "no way out in: {message}");
}

#[test]
fn bad_fields_are_named_with_their_line() {
    let good = "base,a,1,0,0.5,0\n";
    for (row, part) in [
        ("treatment,a,1,0,nan,0", "`reward` is `nan`"),
        ("treatment,a,1,0,inf,0", "`reward` is `inf`"),
        ("treatment,a,1,0,1.5,0", "`reward` is `1.5`, not a number in [0, 1]"),
        ("treatment,a,1,0,-0.5,0", "`reward` is `-0.5`"),
        ("treatment,a,1,0,high,0", "`reward` is `high`"),
        ("treatment,a,1,0,1,2", "`solved` is `2`, not 0, 1, true or false"),
        ("treatment,a,x,0,1,1", "`seed` is `x`, not a whole number"),
        ("treatment,a,,0,1,1", "`seed` is missing"),
        ("treatment,a,1,0.5,1,1", "`rollout` is `0.5`"),
        ("treatment,,1,0,1,1", "`task` is missing"),
        (",a,1,0,1,1", "`arm` is missing"),
    ] {
        says(&message(&format!("{good}{row}\n")), &["rows.csv: line 3", part]);
    }
}

#[test]
fn one_bad_row_in_a_million_is_named() {
    use std::fmt::Write;
    let mut rows = String::new();
    for task in 0..500_000 {
        let reward = if task == 388_888 { "inf" } else { "0.5" };
        let _ = writeln!(rows, "base,t{task},1,0,{reward},0\ntreatment,t{task},1,0,1,1");
    }
    // Two rows a task, after the head.
    says(&message(&rows), &["rows.csv: line 777778", "`reward` is `inf`"]);
}

#[test]
fn repeated_rows_name_both_places() {
    let text = "base,a,1,0,0.5,0\ntreatment,a,1,0,1,1\nbase,a,1,0,0.5,0\n";
    says(
        &message(text),
        &["line 4", "arm `base`, task `a`, seed 1, rollout 0", "line 2", "--map rollout=COLUMN"],
    );
}

#[test]
fn rows_repeated_across_files_are_refused() {
    let both = "arm,task,seed,rollout,reward\nbase,a,1,0,0\ntreatment,a,1,0,1\n";
    let again = "arm,task,seed,rollout,reward\nbase,b,1,0,0\ntreatment,b,1,0,1\nbase,a,1,0,0\n";
    let more = "arm,task,seed,rollout,reward\nbase,a,1,1,0\ntreatment,a,1,1,1\n";
    says(&message_of(&[("x.csv", both), ("y.csv", again)], defaults()), &["y.csv: line 4", "x.csv: line 2"]);
    says(&message_of(&[("x.csv", both), ("y.csv", both)], defaults()), &["y.csv", "copy of", "x.csv"]);
    assert!(compare_files(&[("x.csv", both), ("y.csv", more)], defaults()).is_ok());
    // Without a rollout column nothing tells further attempts from the same ones.
    let bare = "arm,task,reward\nbase,a,0\ntreatment,a,1\n";
    let reordered = "arm,task,reward\ntreatment,a,1\nbase,a,0\n";
    let others = "arm,task,reward\nbase,b,0\ntreatment,b,1\n";
    says(&message_of(&[("x.csv", bare), ("y.csv", bare)], defaults()), &["y.csv", "copy of", "x.csv"]);
    says(
        &message_of(&[("x.csv", bare), ("y.csv", reordered)], defaults()),
        &["y.csv: line 2", "x.csv: line 3", "rollout"],
    );
    let numbered = "arm,task,rollout,reward\nbase,a,7,0\ntreatment,a,7,1\n";
    says(
        &message_of(&[("x.csv", numbered), ("y.csv", bare)], defaults()),
        &["y.csv: line 2", "x.csv: line 2"],
    );
    assert_eq!(compare_files(&[("x.csv", bare), ("y.csv", others)], defaults()).unwrap().paired_tasks, 2);
}

#[test]
fn a_file_given_twice_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.csv");
    for text in ["arm,task,reward\nbase,a,0\ntreatment,a,1\n", "task,reward\na,0\n"] {
        fs_err::write(&path, text).unwrap();
        let around = dir.path().join(".").join("own.csv");
        for second in [path.clone(), around] {
            let rows = vec![path.clone(), second];
            says(&run(&Options { rows, ..defaults() }).unwrap_err().to_string(), &["given twice", "own.csv"]);
        }
    }
    // Two arms may well score the same.
    let arm = "task,reward\na,0\nb,1\n";
    let c = compare_files(&[("b.csv", arm), ("t.csv", arm)], defaults()).unwrap();
    assert_eq!((c.delta, c.paired_tasks), (0.0, 2));
}

#[test]
fn a_changed_file_of_ours_is_refused() {
    use polars::prelude::*;
    let mut frame = df!(
        "arm" => ["base", "treatment"],
        "task_id" => ["a", "a"],
        "reward" => [0.0f64, 1.0],
    )
    .unwrap();
    let mut bytes = crate::episode::parquet::encode(&mut frame).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.parquet");
    let compared = |bytes: &[u8]| {
        fs_err::write(&path, bytes).unwrap();
        run(&Options { rows: vec![path.clone()], ..defaults() })
    };
    assert_eq!(compared(&bytes).unwrap().delta, 1.0);
    bytes[20] ^= 1;
    says(&compared(&bytes).unwrap_err().to_string(), &["own.parquet", "seal"]);
}

#[test]
fn columns_in_other_letters_are_taken_where_one_fits() {
    let rows = "base,a,0\ntreatment,a,1\n";
    let c = compare_files(&[("r.csv", &format!("Arm,Task,REWARD\n{rows}"))], defaults()).unwrap();
    assert_eq!((c.paired_tasks, c.delta), (1, 1.0));
    let exact =
        compare_files(&[("r.csv", "arm,task,Task,reward\nbase,a,x,0\ntreatment,a,y,1\n")], defaults());
    assert_eq!(exact.unwrap().paired_tasks, 1);
    says(
        &message_of(&[("r.csv", "arm,Task,TASK,reward\nbase,a,x,0\n")], defaults()),
        &["which column is `task` is open: `Task` or `TASK`", "--map task=Task"],
    );
}

#[test]
fn all_missing_columns_are_listed_at_once() {
    says(
        &message_of(&[("r.csv", "id,score,who\na,1,base\n")], defaults()),
        &[
            "no columns `task`, `reward`, `arm`",
            "--map task=COLUMN,reward=COLUMN,arm=COLUMN",
            "id, score, who",
        ],
    );
    says(
        &message_of(&[("r.csv", "tsk,rewrd,arm\na,1,base\n")], defaults()),
        &["no columns `task`, `reward`", "--map task=tsk,reward=rewrd"],
    );
}

#[test]
fn a_file_that_is_not_there_has_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::write(dir.path().join("rows.csv"), "x").unwrap();
    let with = |name: &str| {
        run(&Options { rows: vec![dir.path().join(name)], ..defaults() }).unwrap_err().to_string()
    };
    says(&with("row.csv"), &["row.csv", "no such file", "did you mean", "rows.csv`?"]);
    says(&with("another-name.jsonl"), &["check the name"]);
    says(&with("nowhere/rows.csv"), &["no folder"]);
}

#[test]
fn arms_that_cannot_be_compared() {
    says(&message("base,a,1,0,0.5,0\n"), &["rows.csv", "single arm, `base`"]);
    says(&message("x,a,1,0,0.5,0\ny,a,1,0,1,1\n"), &["`x`, `y`", "--base"]);
    says(
        &message("base,a,1,0,0.5,0\ntreatment,b,1,0,1,1\n"),
        &["rows.csv", "share no task", "base has `a` under seed 1, treatment `b`"],
    );
    says(&message("base,a,1,0,0.5,0\ntreatment,a,2,0,1,1\n"), &["share no task under a common seed"]);
    says(&message("base,a,1,0,,\ntreatment,a,1,0,1,1\n"), &["base arm has no scored episode"]);
    let no_arm = "task,reward\na,1\n";
    says(&message_of(&[("one.csv", no_arm)], defaults()), &["one.csv", "no column `arm`", "two files"]);
    let mixed = [("one.csv", no_arm), ("two.csv", "arm,task,reward\nbase,a,1\n")];
    says(&message_of(&mixed, defaults()), &["one.csv", "which another file has"]);
}

#[test]
fn missing_columns_have_a_near_name() {
    says(
        &message_of(&[("r.csv", "arm,tsk,reward\nbase,a,1\n")], defaults()),
        &["no column `task`", "--map task=tsk"],
    );
    says(
        &message_of(&[("r.csv", "arm,task,score\nbase,a,1\n")], defaults()),
        &["no column `reward`", "score"],
    );
    let mapped = |map: &str| Options { map: vec![map.into()], ..defaults() };
    let csv = [("r.csv", "arm,task,score\nbase,a,1\n")];
    says(&message_of(&csv, mapped("reward=scor")), &["no column `scor`", "did you mean `score`?"]);
    says(&message_of(&csv, mapped("rewrd=score")), &["--map", "did you mean reward=score?"]);
    says(&message_of(&csv, mapped("reward")), &["no mapping"]);
    let seed =
        Options { training_seed: Some("nowhere".into()), map: vec!["reward=score".into()], ..defaults() };
    says(&message_of(&csv, seed), &["no column `nowhere`"]);
}

#[test]
fn files_that_hold_no_rows() {
    says(&message_of(&[("r.csv", "")], defaults()), &["r.csv", "empty"]);
    says(&message_of(&[("r.csv", "\n \n")], defaults()), &["r.csv", "empty"]);
    says(&message_of(&[("r.csv", HEADER)], defaults()), &["r.csv", "no rows"]);
    says(&message_of(&[("r.jsonl", "[{\"task\": 1}]")], defaults()), &["jq"]);
    says(
        &message_of(
            &[("r.jsonl", "{\"task\": \"a\", \"reward\": 1, \"arm\": \"x\"}\n{\"task\": ")],
            defaults(),
        ),
        &["line 2"],
    );
    says(&message_of(&[("r.parquet", "PAR1 cut off here")], defaults()), &["r.parquet", "cut off"]);
    says(&message("base,a,1,0,0.5,0\ntreatment,a,1,0"), &["line 3", "4 fields"]);
    let dir = tempfile::tempdir().unwrap();
    let with =
        |path: std::path::PathBuf| run(&Options { rows: vec![path], ..defaults() }).unwrap_err().to_string();
    says(&with(dir.path().to_owned()), &["folder"]);
    assert!(with(dir.path().join("none.csv")).contains("none.csv"));
}

#[test]
fn options_that_do_not_fit_the_rows() {
    let rows = [("r.csv", "arm,task,reward\nbase,f/a,0\nbase,b,0\ntreatment,f/a,1\ntreatment,b,1\n")];
    let family = Options { weight: Weight::Family, ..defaults() };
    says(&message_of(&rows, family.clone()), &["line 3", "task `b` has no family"]);
    let training = Options { population: Population::TasksXTrainSeeds, ..defaults() };
    says(&message_of(&rows, training.clone()), &["training seed", "--training-seed"]);
    let both = [("r.csv", "arm,task,reward,train_seed\nbase,f/a,0,\ntreatment,f/a,1,1\n")];
    says(&message_of(&both, Options { cluster: Cluster::Family, ..training }), &["--cluster"]);
    let gaps = [("r.csv", "arm,task,reward,train_seed\nbase,a,0,\ntreatment,a,1,1\ntreatment,b,1,\n")];
    says(&message_of(&gaps, defaults()), &["line 4", "training seed is missing"]);
    let two = [("r.csv", "arm,task,reward,family\nbase,a,0,x\ntreatment,a,1,y\n")];
    says(&message_of(&two, family), &["two families"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0usize..4) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(["r.csv", "r.jsonl", "r.parquet", "r"][kind]);
        fs_err::write(&path, &bytes).unwrap();
        let _ = run(&Options { rows: vec![path], ..defaults() });
    }

    #[test]
    fn no_fields_make_it_panic(cells in proptest::collection::vec("[a-b01./ -]{0,3}", 24)) {
        let rows: Vec<String> = cells.chunks(6).map(|c| c.join(",")).collect();
        if let Ok(c) = compare_files(&[("r.csv", &format!("{HEADER}{}\n", rows.join("\n")))], defaults()) {
            prop_assert!(c.delta.is_finite() && !c.render(80, false).is_empty());
        }
    }
}
