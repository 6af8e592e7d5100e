//! Attacks on the statistic: a number that another way of counting gives, printed where the declared one belongs. The right
//! number passes and the wrong one is a mismatch, named by file and line.

use super::workspace::{Workspace, episode};
use crate::audit::{AuditReport, Options, Verdict, audit};
use crate::claims::{Book, Texts, fill};
use crate::episode::row::EpisodeRow;

const REPORT: &str = "site/experiments/demo/report.md";
const PAIRED: &str = "estimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\n";

/// A workspace without a plan, with these rows of both arms under one seed.
fn workspace(rows: &[EpisodeRow], derivations: &[(&str, &str)], body: &str) -> Workspace {
    let workspace = Workspace::honest();
    for folder in ["data/demo", "claims", "site/experiments/demo"] {
        fs_err::remove_dir_all(workspace.root().join(folder)).unwrap();
    }
    for arm in ["base", "treatment"] {
        let seeds: std::collections::BTreeSet<i64> = rows.iter().map(|row| row.seed).collect();
        for seed in seeds {
            let mut of_unit: Vec<EpisodeRow> =
                rows.iter().filter(|row| row.arm == arm && row.seed == seed).cloned().collect();
            workspace.put(&format!("episodes/{arm}/{seed}.parquet"), &mut of_unit);
        }
    }
    let declared: String = derivations
        .iter()
        .map(|(id, of)| {
            let data = if of.contains("data =") { "" } else { "data = \"episodes\"\n" };
            format!("[derivations.{id}]\n{data}{of}\n")
        })
        .collect();
    workspace
        .text(REPORT, &format!("+++\ntitle = \"T\"\nlifecycle = \"in-progress\"\n{declared}+++\n{body}\n"));
    workspace
}

fn row(arm: &str, task: usize, rollout: usize, reward: f64) -> EpisodeRow {
    EpisodeRow {
        task_id: format!("t{task:02}"),
        family: ["a", "b", "c", "d"][task % 4].into(),
        rollout: rollout as i64,
        reward: Some(reward),
        solved: Some(reward == 1.0),
        train_seed: None,
        plan_sha256: String::new(),
        ..episode(arm, 1, task as i64, false)
    }
}

fn run(workspace: &Workspace) -> AuditReport {
    audit(workspace.root(), Options::default()).unwrap()
}

/// The number of `wrong` printed at the address of `right`, beside the right one at its own.
fn exchanged(rows: &[EpisodeRow], derivations: &[(&str, &str)], right: &str, wrong: &str) {
    let made = workspace(rows, derivations, &format!("First.\n\nIt is [](derive:demo.{right})."));
    fill::fill(made.root(), fill::Options::default()).unwrap();
    let report = run(&made);
    assert!(report.passed() && report.summary.matches == 1, "{}", report.render(120));
    let book = Book::build(made.root(), &Texts::load(made.root()).unwrap()).unwrap();
    let number = book.numbers()[&format!("derive:demo.{wrong}")].unwrap();
    let text = fs_err::read_to_string(made.root().join(REPORT)).unwrap();
    let (before, after) = text.split_once("It is [").unwrap();
    let printed = &after[..after.find(']').unwrap()];
    let decimals = printed.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let shown = format!("{number:.decimals$}");
    assert_ne!(shown.trim_start_matches('+'), printed.trim_start_matches('+'), "the attack changes nothing");
    let line = before.lines().count() + usize::from(before.ends_with('\n'));
    made.text(REPORT, &format!("{before}It is [{shown}{}", &after[printed.len()..]));
    caught(&run(&made), line);
}

fn caught(report: &AuditReport, line: usize) {
    let wrong: Vec<_> = report.verdicts.iter().filter(|entry| entry.verdict == Verdict::Mismatch).collect();
    assert_eq!(wrong.len(), 1, "{}", report.render(120));
    assert_eq!(wrong[0].place, format!("{REPORT}:{line}"));
}

/// Twelve tasks of ten attempts: tasks differ much, attempts at one task little.
fn repeated() -> Vec<EpisodeRow> {
    let mut rows = Vec::new();
    for task in 0..12 {
        for rollout in 0..10 {
            let solved = |chance: usize| f64::from(u8::from(rollout < chance));
            rows.push(row("base", task, rollout, solved([1, 9, 5][task % 3])));
            rows.push(row("treatment", task, rollout, solved([7, 6, 5][task % 3])));
        }
    }
    rows
}

#[test]
fn episodes_taken_as_n() {
    // The wrong way gives every attempt a name of its own.
    let mut rows = repeated();
    let apart: Vec<EpisodeRow> = rows
        .iter()
        .map(|r| EpisodeRow { task_id: format!("x{}/{}", r.task_id, r.rollout), level: 2, ..r.clone() })
        .collect();
    rows.extend(apart);
    let right = format!("{PAIRED}where = {{ level = 1 }}");
    let wrong = format!("{PAIRED}where = {{ level = 2 }}");
    for part in ["se", "p", "low"] {
        exchanged(
            &rows,
            &[("right", &right), ("wrong", &wrong)],
            &format!("right.{part}"),
            &format!("wrong.{part}"),
        );
    }
}

#[test]
fn unpaired_instead_of_paired() {
    // The error of two independent means, from the errors of both arms; squares are written as products.
    let rows = repeated();
    let mean = |arm: &str| format!("estimator = \"mean\"\nof = \"reward\"\narms = [\"{arm}\"]");
    let of = "data = \"derivations\"\nestimator = \"value\"\nof = \"base.se * base.se + treatment.se * treatment.se\"";
    let own =
        "data = \"derivations\"\nestimator = \"value\"\nof = \"paired.se * paired.se\"\nformat = \"0.0000\"";
    let (base, treatment) = (mean("base"), mean("treatment"));
    let all = [
        ("base", base.as_str()),
        ("treatment", treatment.as_str()),
        ("paired", PAIRED),
        ("wrong", of),
        ("right", own),
    ];
    exchanged(&rows, &all, "right", "wrong");
}

#[test]
fn tasks_where_families_drive_the_variance() {
    let mut rows = Vec::new();
    for task in 0..16 {
        rows.push(row("base", task, 0, 0.25 + 0.01 * (task / 4) as f64));
        rows.push(row("treatment", task, 0, [0.9, 0.1, 0.5, 0.3][task % 4]));
    }
    let right = format!("{PAIRED}cluster = \"family\"");
    for part in ["se", "df", "low"] {
        exchanged(
            &rows,
            &[("right", &right), ("wrong", PAIRED)],
            &format!("right.{part}"),
            &format!("wrong.{part}"),
        );
    }
}

#[test]
fn training_seeds_ignored() {
    let mut rows = Vec::new();
    for task in 0..12 {
        rows.push(row("base", task, 0, 0.25));
        for seed in 1..4 {
            let gain = [0.1, 0.5, 0.2][seed as usize - 1] + 0.01 * task as f64;
            rows.push(EpisodeRow { train_seed: Some(seed), ..row("treatment", task, 0, gain) });
        }
    }
    let right = format!("{PAIRED}population = \"tasks-x-train-seeds\"");
    for part in ["se", "df", "high"] {
        exchanged(
            &rows,
            &[("right", &right), ("wrong", PAIRED)],
            &format!("right.{part}"),
            &format!("wrong.{part}"),
        );
    }
}

#[test]
fn pooled_instead_of_macro_under_missing_data() {
    let mut rows = repeated();
    rows.retain(|r| r.rollout < 2 || !r.task_id.ends_with('1'));
    let right = "estimator = \"mean\"\nof = \"reward\"\narms = [\"treatment\"]";
    let sum = "estimator = \"sum\"\nof = \"reward\"\narms = [\"treatment\"]";
    let pooled = "data = \"derivations\"\nestimator = \"value\"\nof = \"sum / sum.n\"";
    exchanged(&rows, &[("right", right), ("sum", sum), ("wrong", pooled)], "right", "wrong");
}

#[test]
fn the_best_seed_shown_as_the_mean() {
    let mut rows = repeated();
    let again: Vec<EpisodeRow> =
        rows.iter().map(|r| EpisodeRow { seed: 2, reward: r.reward.map(|x| 1.0 - x), ..r.clone() }).collect();
    rows.extend(again);
    let by = "estimator = \"mean\"\nof = \"reward\"\narms = [\"treatment\"]\nby = \"seed\"";
    let best = "data = \"derivations\"\nestimator = \"value\"\nof = \"greatest(right)\"";
    exchanged(&rows, &[("right", by), ("wrong", best)], "right", "wrong");
}

#[test]
fn an_interval_of_no_width_is_undefined_and_not_precise() {
    let rows: Vec<EpisodeRow> =
        (0..12).flat_map(|task| [row("base", task, 0, 0.25), row("treatment", task, 0, 0.75)]).collect();
    let body = "[0.50](derive:demo.right), from [+0.50](derive:demo.right.low).";
    caught(&run(&workspace(&rows, &[("right", PAIRED)], body)), 10);
    let honest = "[0.50](derive:demo.right), from [—](derive:demo.right.low).";
    assert!(run(&workspace(&rows, &[("right", PAIRED)], honest)).passed());
}

#[test]
fn a_best_of_k_selected_by_what_scores_it_is_the_oracle() {
    let scored = |own: bool| -> Vec<EpisodeRow> {
        let score = |r: &EpisodeRow| if own { r.reward } else { Some(r.rollout as f64) };
        repeated().into_iter().map(|r| EpisodeRow { select_score: score(&r), ..r }).collect()
    };
    let of = "estimator = \"selected_at_k\"\nk = 3\narms = [\"treatment\"]";
    for (own, words, passes) in [
        (true, "Selected best of three", false),
        (true, "The oracle's best of three", true),
        (false, "Selected best of three", true),
    ] {
        let made = workspace(&scored(own), &[("picked", of)], &format!("{words}: [](derive:demo.picked)."));
        fill::fill(made.root(), fill::Options::default()).unwrap();
        let report = run(&made);
        assert_eq!(report.passed(), passes, "{words} {own}: {}", report.render(120));
        assert!(passes || report.findings[0].rule == "oracle_selection" && report.findings[0].file == REPORT);
    }
}
