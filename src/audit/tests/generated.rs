//! Fifty data sets drawn at random, each with every estimator over them: both roads give the same numbers, what `fill` writes
//! passes, and nothing is found. Uneven cells, missing rewards, training seeds, ties and empty groups are all drawn.

use super::workspace::{Workspace, episode};
use crate::audit::{Options, Verdict, audit};
use crate::claims::{Book, Texts, fill};
use crate::episode::row::EpisodeRow;

/// Every estimator that reads attempts, with options that change what it does.
const DERIVATIONS: &[(&str, &str)] = &[
    ("base", "estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nnulls = \"omit\"\nby = \"family\""),
    (
        "zeroed",
        "estimator = \"mean\"\nof = \"reward\"\narms = [\"treatment\"]\nnulls = \"zero\"\nweight = \"family\"",
    ),
    (
        "capped",
        "estimator = \"mean\"\nof = \"finish_reason\"\nis = \"length\"\narms = [\"base\"]\ncluster = \"family\"",
    ),
    (
        "delta",
        "estimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nby = \"seed\"\nmargin = 0.05",
    ),
    (
        "macro",
        "estimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"zero\"\nweight = \"family\"\nby = \"level\"",
    ),
    (
        "clustered",
        "estimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\ncluster = \"family\"",
    ),
    (
        "training",
        "estimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\npopulation = \"tasks-x-train-seeds\"",
    ),
    (
        "quick",
        "estimator = \"paired_delta\"\nof = \"solved_ms\"\nis = { at_most = 103 }\nnulls = \"zero\"\narms = [\"base\", \"treatment\"]",
    ),
    ("at_two", "estimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nk = 2"),
    (
        "never",
        "estimator = \"mean\"\nof = \"finish_reason\"\nis = \"wall\"\narms = [\"base\"]\nby = \"family\"",
    ),
    ("always", "estimator = \"mean\"\nof = \"parse_ok\"\narms = [\"treatment\"]"),
    ("pass", "estimator = \"pass_at_k\"\nk = 2\narms = [\"treatment\"]\nby = \"family\""),
    ("best", "estimator = \"best_at_k\"\nk = 2\narms = [\"base\"]\nnulls = \"omit\""),
    ("picked", "estimator = \"selected_at_k\"\nk = 2\narms = [\"treatment\"]\nnulls = \"omit\""),
    ("flips", "estimator = \"flips\"\narms = [\"base\", \"treatment\"]\nby = \"family\""),
    (
        "band",
        "estimator = \"tasks_where\"\nband = { at_least = 0.25, below = 0.75 }\narms = [\"base\"]\nnulls = \"omit\"\nby = \"seed\"",
    ),
    ("middle", "estimator = \"iqm\"\narms = [\"treatment\"]\nnulls = \"omit\""),
    (
        "better",
        "estimator = \"probability_of_improvement\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nby = \"family\"",
    ),
    ("spread", "estimator = \"group_sd\"\narms = [\"treatment\"]\nnulls = \"omit\"\nby = \"seed\""),
    ("median", "estimator = \"median\"\nof = \"completion_tokens\"\nby = \"arm\""),
    (
        "total",
        "estimator = \"sum\"\nof = \"completion_tokens\"\nwhere = { finish_reason = { not = \"stop\" }, level = { at_least = 1 } }",
    ),
    ("kinds", "estimator = \"count_distinct\"\nof = \"task_id\"\nby = \"family\""),
];

/// A workspace without a plan, whose rows are drawn from a stream.
fn drawn(number: u64) -> Workspace {
    // An xorshift stream: any will do, as long as it is the same tomorrow.
    let mut state = 0x9E37_79B9_7F4A_7C15u64 ^ (number + 1).wrapping_mul(0x2545_F491_4F6C_DD1D);
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) % n) as i64
    };
    let workspace = Workspace::honest();
    for folder in ["data/demo", "claims", "site/experiments/demo"] {
        fs_err::remove_dir_all(workspace.root().join(folder)).unwrap();
    }
    let (tasks, rollouts, seeds) = (1 + below(16), 1 + below(3), 1 + below(3));
    let trainings = below(4);
    let coarse = below(2) == 0;
    for seed in 1..=seeds {
        for arm in ["base", "treatment"] {
            let mut rows: Vec<EpisodeRow> = Vec::new();
            for index in 0..tasks {
                let of_arm = if arm == "base" { 0..1 } else { 0..trainings.max(1) };
                for (training, rollout) in of_arm.flat_map(|t| (0..rollouts).map(move |r| (t, r))) {
                    let mut row = episode(arm, seed, index, false);
                    row.plan_sha256 = String::new();
                    // Tasks come back under every seed in half of the sets.
                    row.task_id = if number.is_multiple_of(2) {
                        format!("t{index:02}")
                    } else {
                        format!("t{seed}/{index:02}")
                    };
                    row.family = ["a", "b", "c"][(index % 3) as usize].into();
                    row.level = 1 + index % 2;
                    row.rollout = rollout;
                    row.train_seed = (arm != "base" && trainings > 0).then_some(training);
                    let score = if coarse { below(2) as f64 } else { below(9) as f64 / 8.0 };
                    row.reward = (below(12) > 0).then_some(score);
                    row.solved = Some(row.reward == Some(1.0));
                    row.select_score = (below(40) > 0).then_some(below(3) as f64);
                    row.solved_ms = (below(2) == 0).then(|| 100 + below(8));
                    row.finish_reason = ["stop", "length"][below(2) as usize].into();
                    row.completion_tokens = Some(below(30));
                    row.tokens_sha256 = Some(format!("{}", below(1 << 30)));
                    rows.push(row);
                }
            }
            workspace.put(&format!("episodes/{arm}/{seed}.parquet"), &mut rows);
        }
    }
    let declared: String = DERIVATIONS
        .iter()
        .map(|(id, of)| format!("[derivations.{id}]\ndata = \"episodes\"\n{of}\n"))
        .collect();
    let family = "[derivations.family]\ndata = \"derivations\"\nestimator = \"holm\"\nof = \"delta, macro, clustered\"\n";
    let table =
        "[derivations.table]\ndata = \"derivations\"\nestimator = \"benjamini_hochberg\"\nof = \"delta\"\n";
    let ratio = "[derivations.ratio]\ndata = \"derivations\"\nestimator = \"value\"\nof = \"band / band.n + range(delta)\"\n";
    let printed: String =
        DERIVATIONS.iter().map(|(id, _)| format!("Of {id}: [](derive:demo.{id}).\n")).collect();
    workspace.text(
        "site/experiments/demo/report.md",
        &format!(
            "+++\ntitle = \"Drawn\"\ntagline = \"At random\"\nlifecycle = \"in-progress\"\nstarted = 2026-12-01\n\
             plain = {{ idea = \"i\", question = \"q\", found = \"f\", matters = \"m\" }}\n{declared}{family}{table}{ratio}+++\n\
             {printed}In all [](derive:demo.family), [](derive:demo.table) and [](derive:demo.ratio).\n"
        ),
    );
    workspace
}

#[test]
fn nothing_is_found_in_fifty_generated_data_sets() {
    let (mut numbers, mut defined, mut rows) = (0, 0, 0);
    for number in 0..50 {
        let workspace = drawn(number);
        fill::fill(workspace.root(), fill::Options::default()).unwrap();
        let book = Book::build(workspace.root(), &Texts::load(workspace.root()).unwrap()).unwrap();
        let refused: Vec<String> =
            book.refused().map(|(e, problem)| format!("{}: {problem}", e.id)).collect();
        assert!(refused.is_empty(), "{number}: {refused:?}");
        let all = book.numbers();
        let report = audit(workspace.root(), Options { book: Some(&all) }).unwrap();
        assert_eq!(report.findings, [], "{number}");
        for verdict in &report.verdicts {
            assert_eq!(verdict.verdict, Verdict::Match, "{number}: {verdict:?}");
        }
        numbers += all.len();
        defined += all.values().flatten().count();
        rows += report.rows_checked;
    }
    assert!(numbers > 10_000 && defined > numbers / 2 && rows > 4_000, "{numbers} {defined} {rows}");
}
