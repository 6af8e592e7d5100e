//! `compare` on the reference data sets: every named number, every format, any order of rows,
//! the warnings and the text. Bad input and the schema have files of their own.

mod bad_input;
mod parquet_types;
mod random_tables;
pub(crate) mod schema;
mod text;

use super::*;
use crate::stats::fixtures::{DATA_SETS, csv, golden, near, normative, numbers};
use std::path::Path;
use tempfile::TempDir;

pub(super) fn compare_files(files: &[(&str, &str)], options: Options) -> Result<Comparison> {
    let dir = TempDir::new().unwrap();
    let mut rows = Vec::new();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs_err::write(&path, text).unwrap();
        rows.push(path);
    }
    run(&Options { rows, ..options })
}

pub(super) fn defaults() -> Options {
    Options { bootstrap_key: "0".into(), ..Options::default() }
}

pub(super) fn codes(c: &Comparison) -> Vec<&'static str> {
    c.warnings.iter().map(|w| w.code).collect()
}

fn reference(name: &str, key: &str) -> Comparison {
    compare_files(&[("rows.csv", &csv(name))], Options { bootstrap_key: key.into(), ..Options::default() })
        .unwrap()
}

/// A number at a path of the JSON output; null and missing are `None`.
fn at(value: &serde_json::Value, path: &[&str]) -> Option<f64> {
    path.iter().fold(value, |v, key| &v[*key]).as_f64()
}

#[test]
fn every_named_number_matches_the_reference() {
    let golden = golden();
    for name in DATA_SETS {
        let ours = serde_json::to_value(reference(name, "0")).unwrap();
        let theirs = &golden["datasets"][name];
        assert_eq!(ours["n_rows"], theirs["n_rows"]);
        assert_eq!(ours["paired_tasks"], theirs["design"]["paired_tasks"]);
        assert_eq!(ours["design"], "crossed");
        for (our, their, tolerance) in [
            (vec!["delta"], vec!["paired", "delta_task_macro"], 1e-12),
            (vec!["se"], vec!["paired", "se_task_paired"], 1e-12),
            (vec!["base", "mean"], vec!["arm", "base", "mean_reward_task_macro_paired_tasks"], 1e-12),
            (
                vec!["treatment", "mean"],
                vec!["arm", "treatment", "mean_reward_task_macro_paired_tasks"],
                1e-12,
            ),
            (vec!["ci_t", "df"], vec!["paired", "t_df"], 0.0),
            (vec!["t_p"], vec!["paired", "p_t_task_two_sided"], 1e-9),
            (vec!["sign_flip_p"], vec!["permutation_signflip_task", "p_exact"], 1e-9),
            (vec!["mde"], vec!["mde_80pct_power_alpha05", "value"], 1e-9),
        ] {
            match (at(&ours, &our), at(theirs, &their)) {
                (Some(a), Some(b)) => near(a, b, tolerance),
                (a, b) => assert_eq!(a, b, "{name} {our:?}"),
            }
        }
        let t = numbers(&theirs["paired"]["ci95_t_task"]);
        near(at(&ours, &["ci_t", "low"]).unwrap(), t[0], 1e-9);
        near(at(&ours, &["ci_t", "high"]).unwrap(), t[1], 1e-9);
        for arm in ["base", "treatment"] {
            for (our, their) in
                [("pass_at_k", "pass_at_k_per_seed"), ("best_at_k", "best_at_k_reward_per_seed")]
            {
                for (k, value) in theirs["arm"][arm][their].as_object().unwrap() {
                    match (at(&ours, &[our, arm, k]), value.as_f64()) {
                        (Some(a), Some(b)) => near(a, b, 1e-12),
                        (a, b) => assert_eq!(a, b, "{name} {our} {arm} {k}"),
                    }
                }
            }
        }
    }
}

#[test]
fn one_pair_a_task_gives_mcnemar_and_wilson() {
    let golden = golden();
    let c = reference("tiny_n5", "0");
    let theirs = &golden["datasets"]["tiny_n5"];
    let table = &theirs["mcnemar_episode_pairs"];
    let m = c.mcnemar.unwrap();
    let counts = [m.both, m.base_only, m.treatment_only, m.neither].map(|n| n as f64);
    assert_eq!(
        counts.to_vec(),
        ["both_solved", "base_only", "treatment_only", "neither"].map(|k| table[k].as_f64().unwrap())
    );
    near(m.p, table["p_exact"].as_f64().unwrap(), 1e-9);
    let wilson = c.wilson.unwrap();
    for (ours, arm) in [(wilson.base, "base"), (wilson.treatment, "treatment")] {
        let reference = numbers(&theirs["arm"][arm]["wilson95_solved_episodes"]);
        near(ours[0], reference[0], 1e-12);
        near(ours[1], reference[1], 1e-12);
    }
    assert_eq!(c.ci.method, Some(stats::Method::T));
    assert_eq!(codes(&c), ["few_tasks", "few_nonzero", "beyond_range", "test_without_power"]);
    assert!(reference("binary_basic", "0").mcnemar.is_none());
}

#[test]
fn headlines_match_the_normative_bootstrap() {
    let normative = normative();
    for (name, by_key) in normative["datasets"].as_object().unwrap() {
        for (key, case) in by_key.as_object().unwrap() {
            let c = reference(name, key);
            if c.ci.method == Some(stats::Method::ExpandedPercentile) {
                let ends = numbers(&case["expanded_percentile"]);
                near(c.ci.low.unwrap(), ends[0], 1e-12);
                near(c.ci.high.unwrap(), ends[1], 1e-12);
            } else {
                assert_eq!((name.as_str(), c.ci.low), ("tiny_n5", c.ci_t.low));
            }
        }
    }
}

#[test]
fn each_data_set_carries_its_warnings() {
    assert_eq!(codes(&reference("binary_basic", "0")), ["several_pairs"]);
    assert_eq!(
        codes(&reference("degenerate_all_equal", "0")),
        ["several_pairs", "zero_variance", "few_nonzero"]
    );
    let c = reference("unbalanced_missing", "0");
    let warned = ["missing_rows", "unpaired_tasks", "incomplete_crossing", "unpaired_rows", "several_pairs"];
    assert_eq!(codes(&c), warned);
    near(c.coverage.base, 142.0 / 156.0, 1e-15);
    near(c.coverage.treatment, 131.0 / 156.0, 1e-15);
    let worst = c.worst_case.unwrap();
    assert!(worst.low < c.delta && c.delta < worst.high);
    let degenerate = reference("degenerate_all_equal", "0");
    assert!(
        degenerate.ci.low.is_none() && degenerate.mde.is_none() && degenerate.undefined.contains_key("ci")
    );
    assert_eq!((degenerate.ci_t.low, degenerate.ci_t.high), (Some(0.0), Some(0.0)));
}

#[test]
fn formats_and_row_orders_agree() {
    let csv = csv("partial_credit");
    let want = reference("partial_credit", "0");
    let mut lines: Vec<&str> = csv.lines().skip(1).collect();
    lines.reverse();
    let turned = format!("dataset,arm,task,seed,rollout,reward,solved\n{}\n", lines.join("\n"));
    assert_eq!(compare_files(&[("turned.csv", &turned)], defaults()).unwrap(), want);
    let mut json = String::new();
    let mut arms = [String::new(), String::new()];
    for line in &lines {
        let f: Vec<&str> = line.split(',').collect();
        let object = format!(
            "\"id\": \"{}\", \"seed\": {}, \"rollout\": {}, \"score\": {}, \"solved\": {}}}\n",
            f[2],
            f[3],
            f[4],
            f[5],
            f[6] == "1"
        );
        json.push_str(&format!("{{\"arm\": \"{}\", {object}", f[1]));
        arms[usize::from(f[1] == "treatment")].push_str(&format!("{{{object}"));
    }
    let mapped = || Options { map: vec!["reward=score".into(), "task=id".into()], ..defaults() };
    assert_eq!(compare_files(&[("rows.jsonl", &json)], mapped()).unwrap(), want);
    assert_eq!(compare_files(&[("b.jsonl", &arms[0]), ("t.jsonl", &arms[1])], mapped()).unwrap(), want);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("rows.parquet");
    write_parquet(&path, &lines);
    assert_eq!(run(&Options { rows: vec![path], ..defaults() }).unwrap(), want);
}

fn write_parquet(path: &Path, lines: &[&str]) {
    use polars::prelude::*;
    let field = |i: usize| lines.iter().map(|l| l.split(',').nth(i).unwrap()).collect::<Vec<&str>>();
    let whole = |i: usize| field(i).iter().map(|v| v.parse().unwrap()).collect::<Vec<i32>>();
    let mut frame = df!(
        "arm" => field(1),
        "task_id" => field(2),
        "seed" => whole(3),
        "rollout" => whole(4),
        "reward" => field(5).iter().map(|v| v.parse().unwrap()).collect::<Vec<f64>>(),
        "solved" => field(6).iter().map(|v| *v == "1").collect::<Vec<bool>>(),
    )
    .unwrap();
    ParquetWriter::new(fs_err::File::create(path).unwrap()).finish(&mut frame).unwrap();
}

#[test]
fn swapped_arms_mirror_the_result() {
    let swapped = Options { base: Some("treatment".into()), treatment: Some("base".into()), ..defaults() };
    let (a, b) = (
        reference("partial_credit", "0"),
        compare_files(&[("rows.csv", &csv("partial_credit"))], swapped).unwrap(),
    );
    near(a.delta, -b.delta, 1e-15);
    near(a.ci_t.low.unwrap(), -b.ci_t.high.unwrap(), 1e-12);
    near(a.sign_flip_p.unwrap(), b.sign_flip_p.unwrap(), 1e-15);
}

#[test]
fn seeds_of_64_bits_are_told_apart_in_every_format() {
    // Two seeds that one float cannot tell apart, and two beyond 63 bits.
    for (a, b) in [(1u64 << 53, (1 << 53) + 1), (u64::MAX - 1, u64::MAX), (7, u64::MAX)] {
        let rows = [("base", a, 0), ("base", b, 1), ("treatment", a, 1), ("treatment", b, 1)];
        let csv = rows.map(|(arm, seed, reward)| format!("{arm},t,{seed},{reward}\n")).concat();
        let json = rows.map(|(arm, seed, reward)| {
            format!("{{\"arm\": \"{arm}\", \"task\": \"t\", \"seed\": {seed}, \"reward\": {reward}}}\n")
        });
        let from_csv =
            compare_files(&[("r.csv", &format!("arm,task,seed,reward\n{csv}"))], defaults()).unwrap();
        let from_json = compare_files(&[("r.jsonl", &json.concat())], defaults()).unwrap();
        assert_eq!((from_csv.n_seeds, from_csv.delta), (2, 0.5));
        assert_eq!(from_json, from_csv);
        let again = format!("{csv}base,t,{a},1\n").replace('\n', ",0\n");
        let twice =
            compare_files(&[("r.csv", &format!("arm,task,seed,reward,rollout\n{again}"))], defaults());
        let message = twice.unwrap_err().to_string();
        assert!(message.contains(&format!("seed {a}, rollout 0 was there before")), "{message}");
        let float = json.concat().replace(&b.to_string(), &format!("{b}.0"));
        let message = compare_files(&[("r.jsonl", &float)], defaults()).unwrap_err().to_string();
        assert!(
            message.contains("r.jsonl: line 2: `seed` is the float") && message.contains("2^53"),
            "{message}"
        );
    }
}

/// Eight tasks in two families, two training seeds.
fn trained() -> String {
    let mut text = String::from("arm,task,reward,adapter_seed\n");
    for i in 0..8 {
        let task = format!("{}/{i}", if i < 3 { "a" } else { "b" });
        text.push_str(&format!("base,{task},0.25,\n"));
        for s in 1..=2 {
            text.push_str(&format!("treatment,{task},{},{s}\n", f64::from((i * 3 + s * 2) % 5) / 4.0));
        }
    }
    text
}

#[test]
fn families_weigh_and_cluster() {
    let text = trained();
    let with = |weight, cluster| {
        let training_seed = Some("adapter_seed".into());
        compare_files(&[("r.csv", &text)], Options { weight, cluster, training_seed, ..defaults() }).unwrap()
    };
    let (plain, by_family) = (with(Weight::Task, Cluster::Task), with(Weight::Family, Cluster::Task));
    let d = &plain.differences;
    near(plain.delta, d.iter().sum::<f64>() / 8.0, 1e-15);
    near(by_family.delta, (d[..3].iter().sum::<f64>() / 3.0 + d[3..].iter().sum::<f64>() / 5.0) / 2.0, 1e-15);
    let clustered = with(Weight::Task, Cluster::Family);
    let residual = |part: &[f64]| part.iter().map(|x| x - plain.delta).sum::<f64>();
    let squares = residual(&d[..3]).powi(2) + residual(&d[3..]).powi(2);
    near(clustered.se.unwrap(), (2.0 * squares).sqrt() / 8.0, 1e-15);
    assert_eq!((clustered.units, clustered.ci_t.df), (2, Some(1.0)));
    assert!(codes(&plain).contains(&"training_seeds_averaged") && codes(&plain).contains(&"default_seed"));
}

#[test]
fn training_is_its_own_population() {
    let options = Options {
        population: Population::TasksXTrainSeeds,
        training_seed: Some("adapter_seed".into()),
        ..defaults()
    };
    let c = compare_files(&[("r.csv", &trained())], options).unwrap();
    assert_eq!((c.ci.method, c.ci_t.df, c.n_training_seeds), (Some(stats::Method::T), Some(1.0), 2));
    assert!(c.sign_flip_p.is_none() && c.undefined["sign_flip_p"].contains("six"));
    assert!(codes(&c).contains(&"few_training_seeds"));
}

#[test]
fn missing_rewards_are_left_out_and_counted() {
    let text = "arm,task,seed,rollout,reward,solved\nbase,a,1,0,0.5,0\nbase,b,1,0,,\ntreatment,a,1,0,1,1\ntreatment,b,1,0,1,1\n";
    let c = compare_files(&[("r.csv", text)], defaults()).unwrap();
    assert_eq!((c.n_rows, c.paired_tasks, c.base.n_unscored), (4, 1, 1));
    near(c.delta, 0.5, 0.0);
    near(c.coverage.base, 0.5, 0.0);
    assert_eq!(c.worst_case, Some(Ends { low: 0.25, high: 0.75 }));
    assert!(codes(&c).contains(&"missing_rows") && c.ci.low.is_none() && c.ci_t.low.is_none());
}

#[test]
fn a_column_of_empty_rewards_is_not_called_missing() {
    let text = "arm,task,score\nbase,a,0\ntuned,a,\ntuned,b,\n";
    let options = Options { map: vec!["reward=score".into()], ..defaults() };
    let message = compare_files(&[("r.csv", text)], options).unwrap_err().to_string();
    assert!(
        message.contains("r.csv: line 3: the treatment arm (`tuned`) has no scored episode"),
        "{message}"
    );
    assert!(message.contains("`score` is empty in all of its 2 rows"), "{message}");
    assert!(message.contains("hint: fill in the rewards") && !message.contains("family"), "{message}");
}

#[test]
fn without_solved_the_rest_stands() {
    let c = compare_files(
        &[("r.csv", "arm,task,reward\nbase,a,0\nbase,b,1\ntreatment,a,1\ntreatment,b,1\n")],
        defaults(),
    )
    .unwrap();
    assert!(c.mcnemar.is_none() && c.wilson.is_none() && c.pass_at_k.base[&1].is_none());
    assert_eq!(c.best_at_k.treatment[&1], Some(1.0));
    assert!(codes(&c).starts_with(&["default_seed", "default_rollout", "no_solved"]));
    let mapped = Options { map: vec!["solved=reward".into()], ..defaults() };
    let c = compare_files(
        &[("r.csv", "arm,task,reward\nbase,a,0\nbase,b,1\ntreatment,a,1\ntreatment,b,1\n")],
        mapped,
    )
    .unwrap();
    assert_eq!(c.mcnemar.unwrap().treatment_only, 1);
}

#[test]
fn rows_written_twice_raise_a_warning() {
    let once = "base,a,0\nbase,b,1\ntreatment,a,1\ntreatment,b,1\n";
    let with =
        |rows: &str| compare_files(&[("r.csv", &format!("arm,task,reward\n{rows}"))], defaults()).unwrap();
    assert!(codes(&with(&once.repeat(2))).contains(&"identical_attempts"));
    assert!(!codes(&with(once)).contains(&"identical_attempts"));
    assert!(!codes(&with(&format!("{}base,a,1\n", once.repeat(2)))).contains(&"identical_attempts"));
}

#[test]
fn an_interval_beyond_what_rewards_can_differ_by_is_remarked() {
    let c = compare_files(
        &[(
            "r.csv",
            "arm,task,reward\nbase,a,0\nbase,b,1\nbase,c,0\ntreatment,a,1\ntreatment,b,0\ntreatment,c,1\n",
        )],
        defaults(),
    )
    .unwrap();
    assert!(c.ci.high.unwrap() > 1.0 && codes(&c).contains(&"beyond_range"), "{:?}", c.ci);
}
