//! Estimators against tables computed by hand and against the reference values.

use super::*;
use crate::claims::select::select;
use crate::claims::testing;
use crate::episode::row::EpisodeRow;
use crate::stats::fixtures::{DATA_SETS, csv, golden, near, normative, numbers};

fn run_keyed(rows: &[EpisodeRow], text: &str, key: &str) -> Evaluated {
    let derivation: Derivation = toml::from_str(&format!("data = \"episodes\"\n{text}")).unwrap();
    crate::claims::declare::check(&derivation).unwrap();
    let table = testing::table(rows);
    let selection = select(&table, &derivation).unwrap();
    let rows: Vec<&Chosen<'_>> = selection.rows.iter().collect();
    evaluate(&derivation, &table, &rows, key)
}

fn run(rows: &[EpisodeRow], text: &str) -> Evaluated {
    run_keyed(rows, text, "demo/x")
}

fn part(e: &Evaluated, name: &str) -> f64 {
    match e.parts.get(name) {
        Some(Number::Defined(x)) => *x,
        other => panic!("{name} is {other:?}"),
    }
}

/// The episodes of a reference CSV file.
fn reference_rows(name: &str) -> Vec<EpisodeRow> {
    let text = csv(name);
    let rows = text.lines().skip(1).map(|line| {
        let f: Vec<&str> = line.split(',').collect();
        let reward: f64 = f[5].parse().unwrap();
        let mut row =
            testing::episode(f[1], f[2], f[3].parse().unwrap(), f[4].parse().unwrap(), Some(reward));
        row.solved = Some(f[6] == "1");
        row
    });
    rows.collect()
}

const PAIRED: &str = "estimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]";

#[test]
fn paired_delta_meets_the_reference_values() {
    let golden = golden();
    for name in DATA_SETS {
        let e = run(&reference_rows(name), PAIRED);
        let paired = &golden["datasets"][name]["paired"];
        near(part(&e, "value"), paired["delta_task_macro"].as_f64().unwrap(), 1e-12);
        near(part(&e, "se"), paired["se_task_paired"].as_f64().unwrap(), 1e-12);
        near(part(&e, "df"), paired["t_df"].as_f64().unwrap(), 0.0);
        if part(&e, "n") < 10.0 && part(&e, "se") > 0.0 {
            let ends = numbers(&paired["ci95_t_task"]);
            near(part(&e, "low"), ends[0], 1e-9);
            near(part(&e, "high"), ends[1], 1e-9);
        }
    }
}

#[test]
fn headline_intervals_meet_the_normative_bootstrap() {
    for (name, by_key) in normative()["datasets"].as_object().unwrap() {
        for (key, expected) in by_key.as_object().unwrap() {
            let e = run_keyed(&reference_rows(name), PAIRED, key);
            if part(&e, "n") < 10.0 {
                continue;
            }
            let ends = numbers(&expected["expanded_percentile"]);
            near(part(&e, "low"), ends[0], 1e-12);
            near(part(&e, "high"), ends[1], 1e-12);
        }
    }
}

#[test]
fn arm_means_meet_the_reference_values() {
    let golden = golden();
    let e = run(&reference_rows("binary_basic"), "estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]");
    let base = &golden["datasets"]["binary_basic"]["arm"]["base"];
    near(part(&e, "value"), base["mean_reward_task_macro_paired_tasks"].as_f64().unwrap(), 1e-12);
    assert!(part(&e, "low") < part(&e, "value") && part(&e, "value") < part(&e, "high"));
}

#[test]
fn hand_computed_tables() {
    let rows = testing::two_arms();
    let e = run(&rows, PAIRED);
    near(part(&e, "value"), 8.0 / 12.0 - 2.0 / 12.0, 1e-12);
    assert_eq!(part(&e, "n"), 12.0);
    assert_eq!(e.method.as_deref(), Some("expanded percentile bootstrap of whole tasks"));
    assert_eq!(e.level, Some(0.95));
    let other = run_keyed(&rows, PAIRED, "demo/y");
    assert_eq!(e, run(&rows, PAIRED));
    assert_eq!(e.parts["value"], other.parts["value"]);
    let mean = run(&rows, "estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]");
    near(part(&mean, "value"), 2.0 / 12.0, 1e-12);
    let sd = (2.0f64 / 12.0 * (10.0 / 12.0) * 12.0 / 11.0).sqrt();
    near(part(&mean, "se"), sd / 12f64.sqrt(), 1e-12);
    assert_eq!(part(&mean, "df"), 11.0);
    let flips = run(&rows, "estimator = \"flips\"\narms = [\"base\", \"treatment\"]");
    let counts: Vec<f64> =
        ["gained", "lost", "both", "neither", "n", "value"].iter().map(|p| part(&flips, p)).collect();
    assert_eq!(counts, [6.0, 0.0, 2.0, 4.0, 12.0, 6.0]);
}

#[test]
fn plain_aggregates() {
    let mut rows = testing::two_arms();
    rows[0].completion_tokens = Some(13);
    rows[1].finish_reason = "length".into();
    for (text, value) in [
        ("estimator = \"count\"\nwhere = { arm = \"base\" }", 12.0),
        ("estimator = \"count_distinct\"\nof = \"task_id\"", 12.0),
        ("estimator = \"sum\"\nof = \"completion_tokens\"", 82.0),
        ("estimator = \"max\"\nof = \"completion_tokens\"", 13.0),
        ("estimator = \"min\"\nof = \"completion_tokens\"", 3.0),
        ("estimator = \"last\"\nof = \"completion_tokens\"", 3.0),
        ("estimator = \"share\"\nof = \"solved\"", 10.0 / 24.0),
        ("estimator = \"share\"\nof = \"finish_reason\"\nis = \"length\"", 1.0 / 24.0),
        ("estimator = \"pass_at_k\"\nk = 1\narms = [\"treatment\"]", 8.0 / 12.0),
        ("estimator = \"best_at_k\"\nk = 1\narms = [\"treatment\"]", 8.0 / 12.0),
    ] {
        near(part(&run(&rows, text), "value"), value, 1e-12);
    }
}

#[test]
fn pass_at_k_over_three_rollouts() {
    let rows: Vec<EpisodeRow> =
        (0..3).map(|k| testing::episode("base", "a/1", 1, k, Some(if k == 0 { 1.0 } else { 0.0 }))).collect();
    let at = |k: u32| run(&rows, &format!("estimator = \"pass_at_k\"\nk = {k}\narms = [\"base\"]"));
    near(part(&at(2), "value"), 2.0 / 3.0, 1e-12);
    assert!(matches!(&at(4).parts["value"], Number::Undefined(why) if why.contains("4")));
    assert_eq!(part(&at(4), "n"), 0.0);
}

#[test]
fn undefined_is_a_value_with_a_reason() {
    let none = |text: &str, name: &str| {
        let e = run(&testing::two_arms(), text);
        assert!(matches!(&e.parts[name], Number::Undefined(why) if !why.is_empty()), "{text}: {:?}", e.parts);
    };
    none("estimator = \"mean\"\nof = \"reward\"\nwhere = { seed = 9 }", "value");
    none("estimator = \"sum\"\nof = \"reward\"\nwhere = { seed = 9 }", "value");
    none("estimator = \"share\"\nof = \"solved\"\nwhere = { seed = 9 }", "value");
    none(&format!("{PAIRED}\nwhere = {{ seed = 9 }}"), "low");
    none("estimator = \"mean\"\nof = \"turns\"\narms = [\"base\"]", "low");
    none("estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nwhere = { task_id = \"b/0\" }", "se");
    let count = run(&testing::two_arms(), "estimator = \"count\"\nwhere = { seed = 9 }");
    assert_eq!(part(&count, "value"), 0.0);
}

#[test]
fn identical_streams_give_an_exact_zero() {
    let mut rows = testing::two_arms();
    for row in &mut rows {
        row.reward = Some(0.0);
        row.tokens_sha256 = Some(row.task_id.clone());
    }
    let e = run(&rows, PAIRED);
    assert_eq!((part(&e, "low"), part(&e, "high")), (0.0, 0.0));
    rows[0].tokens_sha256 = Some("other".into());
    assert!(matches!(run(&rows, PAIRED).parts["low"], Number::Undefined(_)));
}

#[test]
fn arms_in_one_mean_keep_their_cells() {
    let rows = [
        testing::episode("base", "a/1", 1, 0, Some(0.0)),
        testing::episode("base", "a/1", 1, 1, Some(0.0)),
        testing::episode("treatment", "a/1", 1, 0, Some(1.0)),
    ];
    let e = run(&rows, "estimator = \"mean\"\nof = \"reward\"");
    near(part(&e, "value"), 0.5, 1e-12);
    assert_eq!(e.warnings[0].code, "mixed_arms");
}

#[test]
fn declared_parts_are_the_parts_that_come_out() {
    for text in [
        PAIRED,
        "estimator = \"mean\"\nof = \"reward\"",
        "estimator = \"count\"",
        "estimator = \"flips\"\narms = [\"base\", \"treatment\"]",
        "estimator = \"pass_at_k\"\nk = 1\narms = [\"base\"]",
    ] {
        for filter in ["", "\nwhere = { seed = 9 }"] {
            let text = format!("{text}{filter}");
            let derivation: Derivation = toml::from_str(&format!("data = \"episodes\"\n{text}")).unwrap();
            let e = run(&testing::two_arms(), &text);
            let mut declared = parts(&derivation).to_vec();
            declared.sort_unstable();
            assert_eq!(e.parts.keys().map(String::as_str).collect::<Vec<_>>(), declared, "{text}");
            assert_eq!(undefined(&derivation, "x").parts.len(), declared.len());
        }
    }
}
