//! A publication made by hand for tests and for looking at pages: a finished experiment, a planned
//! one, a starved one with a very long title, two claims, and numbers of every verdict.

use super::input::*;
use crate::claims::value::{Number, Warning};
use crate::episode::row::Cell;
use crate::hash::sha256_hex;
use std::path::Path;

fn defined(value: f64) -> Number {
    Number::Defined(value)
}

fn undefined(why: &str) -> Number {
    Number::Undefined(why.to_string())
}

/// A match in the demo's scope.
fn number(id: &str, part: &str, value: f64, text: &str) -> NumberInput {
    let reference =
        if part == "value" { format!("derive:demo.{id}") } else { format!("derive:demo.{id}.{part}") };
    NumberInput {
        reference,
        scope: "demo".into(),
        id: id.into(),
        row: None,
        part: part.into(),
        value: defined(value),
        text: text.into(),
        interval: None,
        n: Some("160 tasks".into()),
        method: None,
        warnings: Vec::new(),
        verdict: Verdict::Match,
        reason: None,
    }
}

fn with_interval(number: NumberInput, interval: &str) -> NumberInput {
    NumberInput {
        interval: Some(interval.into()),
        method: Some("expanded percentile paired bootstrap over tasks, 10,000 resamples".into()),
        ..number
    }
}

const FAMILIES: [(&str, &str, f64, f64); 4] = [
    ("caravan", "", 0.375, 0.12),
    ("gatepost", "", 0.425, 0.14),
    ("kilnrite", "", 0.3, 0.11),
    ("brinework", "held out", 0.1375, 0.075),
];

fn numbers() -> Vec<NumberInput> {
    let mut numbers = vec![
        with_interval(number("base", "value", 0.021875, "0.02"), "[0.00, 0.04]"),
        with_interval(number("treatment", "value", 0.33125, "0.33"), "[0.26, 0.40]"),
        with_interval(number("delta", "value", 0.309375, "+0.309"), "[+0.237, +0.381]"),
        number("delta", "low", 0.2369, "+0.24"),
        number("delta", "high", 0.3812, "+0.38"),
        number("delta", "p", 0.0001, "0.0001"),
        NumberInput { n: Some("2,560 samples".into()), ..number("kept", "value", 412.0, "412") },
        NumberInput { n: Some("2 receipts".into()), ..number("bar", "value", 0.03, "+0.03") },
        NumberInput {
            verdict: Verdict::Unverifiable,
            reason: Some("the rows of the first harvest were lost with the disk they were on".into()),
            ..number("first_harvest", "value", 849.0, "849")
        },
        NumberInput {
            verdict: Verdict::Cited,
            reason: Some("from the model's own card, revision of 2 July 2026".into()),
            n: None,
            ..number("card_score", "value", 0.31, "0.31")
        },
        NumberInput {
            value: undefined("all differences are equal, so there is no spread"),
            text: "—".into(),
            warnings: vec![Warning {
                code: "few_tasks".into(),
                text: "Only 4 tasks are behind this value.".into(),
            }],
            n: Some("4 tasks".into()),
            ..number("spread", "value", 0.0, "—")
        },
    ];
    for (family, _, delta, half) in FAMILIES {
        let text = format!("+{delta:.3}");
        numbers.push(NumberInput {
            reference: format!("derive:demo.by_family/{family}"),
            row: Some(family.into()),
            n: Some("40 tasks".into()),
            interval: Some(format!("[{:+.3}, {:+.3}]", delta - half, delta + half)),
            ..number("by_family", "value", delta, &text)
        });
    }
    numbers
}

pub(super) fn estimate(label: &str, note: &str, value: f64, half: f64, n: f64) -> EstimateInput {
    EstimateInput {
        label: label.into(),
        note: note.into(),
        value: defined(value),
        low: defined(value - half),
        high: defined(value + half),
        n: Some(n),
    }
}

/// The forest of the demo: trained families, the held-out one, and two rows that lack something.
pub fn forest() -> ChartInput {
    let trained = FAMILIES[..3].iter().map(|(l, n, v, h)| estimate(l, n, *v, *h, 40.0)).collect();
    let (l, n, v, h) = FAMILIES[3];
    let mut held_out = vec![estimate(l, n, v, h, 40.0)];
    held_out.push(EstimateInput {
        low: undefined("fewer than two tasks"),
        high: undefined("fewer than two tasks"),
        ..estimate("lockstep", "held out", -0.05, 0.0, 1.0)
    });
    held_out.push(EstimateInput {
        value: undefined("no task was run by both arms"),
        low: undefined("no value"),
        high: undefined("no value"),
        ..estimate("quarrel", "held out", 0.0, 0.0, 0.0)
    });
    ChartInput::Forest {
        groups: vec![("Trained families".into(), trained), ("Held-out families".into(), held_out)],
        pooled: Some(estimate("All tasks", "", 0.309375, 0.072, 160.0)),
        bar: Some(0.03),
    }
}

/// 160 tasks in four families with discrete rewards.
pub fn slopes() -> ChartInput {
    let mut tasks = Vec::new();
    let mut state = 12_345u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    for (family, _, delta, _) in FAMILIES {
        for i in 0..40 {
            let left = if draw() < 0.03 { 1.0 } else { 0.0 };
            let gained = draw() < delta;
            let partial = draw() < 0.18;
            let right = match (left > 0.0, gained, partial) {
                (_, true, _) => 1.0,
                (false, false, true) => 0.5,
                (true, false, true) => 0.0,
                (_, false, false) => left,
            };
            tasks.push(TaskInput { task: format!("{family}/L1/{i:04}"), group: family.into(), left, right });
        }
    }
    ChartInput::Slope { left: "base".into(), right: "treatment".into(), tasks }
}

pub(super) fn file(folder: &Path, path: &str, rows: usize) -> FileInput {
    let bytes = format!("rows of {path}\n").repeat(rows).into_bytes();
    let source = folder.join(path);
    fs_err::create_dir_all(source.parent().unwrap()).unwrap();
    fs_err::write(&source, &bytes).unwrap();
    let column = |name: &str, kind: &str, doc: &str| (name.to_string(), kind.to_string(), doc.to_string());
    FileInput {
        path: path.into(),
        source,
        sha256: sha256_hex(&bytes),
        bytes: bytes.len() as u64,
        rows,
        columns: vec![
            column("arm", "text", " The arm (policy under test)."),
            column("task_id", "text", " The task: the same id is the same task in every arm."),
            column("seed", "whole number", " The event seed, which made or chose the task."),
            column(
                "reward",
                "number, may be missing",
                " The score in [0, 1]; null only when the infrastructure failed.",
            ),
            column("finish_reason", "text", " Why the last generation ended."),
            column("error", "text, may be missing", " What went wrong, for `infra_error`."),
            column("tokens_sha256", "text", " SHA-256 of the sampled token ids."),
        ],
        preview: (0..6)
            .map(|i| {
                vec![
                    Cell::Text("base".into()),
                    Cell::Text(format!("caravan/L1/{i:04}")),
                    Cell::Int(52_004),
                    if i == 3 { Cell::Null } else { Cell::Real(0.5 * f64::from(i % 3)) },
                    Cell::Text(if i == 3 { "infra_error" } else { "stop" }.into()),
                    if i == 3 {
                        Cell::Text("<script>alert(1)</script> written by a model".into())
                    } else {
                        Cell::Null
                    },
                    Cell::Text(sha256_hex(path.as_bytes())),
                ]
            })
            .collect(),
        provenance: None,
    }
}

const REPORT: &str = include_str!("fixtures.md");

/// The finished experiment.
fn demo(folder: &Path) -> ExperimentInput {
    let figure = |id: &str, title: &str, chart| {
        FigureInput {
        id: id.into(),
        title: title.into(),
        how_to_read: "One row is one family. The dot is treatment minus base over its tasks, the line its interval. \
                      Right of the dashed line the gain is large enough to count; the diamond takes all tasks together."
            .into(),
        takeaway: "Every trained family clears the bar, and so does the held-out family with a rise of \
                   [+0.138](derive:demo.by_family/brinework)."
            .into(),
        technical: "Both arms run in `f32` with 16 slots, greedy decoding, on the same two fresh seeds.".into(),
        chart,
        derivations: vec!["demo.by_family".into(), "demo.delta".into()],
        sources: vec![
            ("data/demo/episodes/base/52004.parquet".into(), sha256_hex(b"a"), 80, 80),
            ("data/demo/episodes/treatment/52004.parquet".into(), sha256_hex(b"b"), 80, 92),
        ],
        verdict: Verdict::Match,
        numbers: 15,
        caption: "n = 160 tasks in four families, two seeds, 320 episodes. Intervals: expanded percentile paired \
                  bootstrap over tasks, 10,000 resamples."
            .into(),
    }
    };
    ExperimentInput {
        rescores: Vec::new(),
        slug: "demo".into(),
        title: "Does a self-harvested adapter teach SmolLM2 to commit an answer?".into(),
        tagline: "Sound working, and at last a line that a checker can read".into(),
        lifecycle: "finished".into(),
        verdict: Some("positive".into()),
        started: Some("2026-11-30".into()),
        ended: Some("2026-12-01".into()),
        tags: vec!["lora".into(), "greedy".into(), "cpu".into()],
        programs: vec!["answer-seam".into(), "self-harvest".into()],
        plain: Some([
            "A small model may know an answer and still fail to write it where a checker looks. Those are two different lacks, and only one of them is cheap to mend.".into(),
            "If the model is trained on its own few correct and tidy answers, does it hand in more of them on tasks it has never seen?".into(),
            "Yes. The share of points rose from [0.02](derive:demo.base) to [0.33](derive:demo.treatment), and a family that training never touched rose as well.".into(),
            "Before buying a larger model it is worth asking whether this one merely fails to hand in its work. [412](derive:demo.kept) samples of its own were enough to find out.".into(),
        ]),
        cards: vec![
            CardInput {
                label: "Share of points, base to treatment".into(),
                value: "[0.02](derive:demo.base) → [0.33](derive:demo.treatment)".into(),
                note: "Two fresh seeds, four families.".into(),
            },
            CardInput {
                label: "Paired change".into(),
                value: "[+0.309](derive:demo.delta)".into(),
                note: "The bar, set beforehand, was [+0.03](derive:demo.bar).".into(),
            },
            CardInput {
                label: "Held-out family".into(),
                value: "[+0.138](derive:demo.by_family/brinework)".into(),
                note: "brinework was never harvested.".into(),
            },
            CardInput {
                label: "Samples kept, against the first harvest".into(),
                value: "[412](derive:demo.kept) against [849](derive:demo.first_harvest)".into(),
                note: "Spread of the last family: [—](derive:demo.spread).".into(),
            },
        ],
        figures: vec![
            figure("families", "Every trained family clears the bar that was set before the run", forest()),
            FigureInput {
                how_to_read: "One line is one task, from its score under base to its score under treatment. Tasks with \
                              the same two scores share a line, which is as wide as there are many of them; the count \
                              stands on it."
                    .into(),
                takeaway: "Most tasks that moved went from nothing to everything; few went back.".into(),
                ..figure("tasks", "Tasks move from nothing to a full score, and hardly ever back", slopes())
            },
        ],
        report: REPORT.into(),
        report_path: "site/experiments/demo/report.md".into(),
        unbound: 2,
        log: vec![
            LogInput { date: "2026-11-30".into(), title: "Headroom measured".into(), body: "The base arm solves [0.02](derive:demo.base) of the calibration tasks, so there is room.\n".into() },
            LogInput { date: "2026-12-01".into(), title: "Decided".into(), body: "All legs hold.\n\n- harvest kept [412](derive:demo.kept)\n".into() },
        ],
        corrections: vec![("2026-12-01".into(), "correction".into(), "The first draft gave the interval for one seed only; it now covers both: [+0.309](derive:demo.delta).".into())],
        reproduce: vec![
            ("Smoke test, CPU, under a minute".into(), "rederive demo --workspace demo".into()),
            ("Full run".into(), "rederive run demo\nrederive audit\nrederive site build".into()),
        ],
        locks: vec![
            LockInput { stage: "harvest".into(), sha256: sha256_hex(b"h"), locked_at: "2026-11-30T08:12:44Z".into(), section: "{\n  \"examples\": 3,\n  \"seeds\": [11001]\n}".into() },
            LockInput { stage: "evaluate".into(), sha256: sha256_hex(b"e"), locked_at: "2026-11-30T09:40:02Z".into(), section: "{\n  \"seeds\": [52004, 52005],\n  \"temperature\": 0.0\n}".into() },
        ],
        amendments: vec![("2026-11-30".into(), "The answer budget is 48 tokens in both arms, as the plan says; the first draft of the text said 64.".into())],
        decision: Some(DecisionInput {
            outcome: "positive".into(),
            legs: vec![
                ("Is the lower end of the interval above the smallest gain that counts?".into(), "+0.237".into(), "+0.030".into(), Some(true)),
                ("Is the sign-flip p below 0.05?".into(), "0.0001".into(), "0.05".into(), Some(true)),
                ("Do the null runs agree within the bar?".into(), "—".into(), "0.030".into(), None),
            ],
            for_positive: (2, 3),
            looks: Some(3),
        }),
        arms: vec![
            ("base".into(), "SmolLM2-135M-Instruct, no examples, greedy, 48 answer tokens".into()),
            ("treatment".into(), "the same weights with the adapter from seed 1, same prompt and decoding".into()),
        ],
        coverage: vec![("base".into(), 160, 160), ("treatment".into(), 156, 160)],
        files: vec![
            file(folder, "episodes/base/52004.parquet", 80),
            file(folder, "episodes/treatment/52004.parquet", 92),
            file(folder, "harvest/11001.parquet", 2_560),
            FileInput { columns: Vec::new(), preview: Vec::new(), ..file(folder, "receipts/decide.json", 1) },
        ],
        cited_by: vec!["C0001".into()],
        evidence: "deployable".into(),
        starved: false,
    }
}

fn derivation(
    id: &str,
    estimator: &str,
    verdict: Verdict,
    results: Vec<(Option<String>, Vec<(String, String)>)>,
    audit: Vec<AuditEntry>,
) -> DerivationInput {
    DerivationInput {
        scope: "demo".into(),
        id: id.into(),
        recipe: vec![
            "take the episodes of both arms on the two evaluation seeds".into(),
            "average the reward over seeds within each arm and task".into(),
            "keep the tasks that both arms have, and subtract base from treatment".into(),
            "average the differences, every task with the same weight".into(),
        ],
        toml: format!("[derivations.{id}]\ndata = \"episodes\"\nestimator = \"{estimator}\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\nformat = \"+0.00\"\n"),
        estimator: estimator.into(),
        formula: "mean over tasks i of (treatment_i − base_i)".into(),
        method_source: "Sign-flip test and bootstrap after Davison and Hinkley, Bootstrap Methods, 1997, chapter 5.".into(),
        sql: Some("with cell as (\n  select task_id, arm, avg(reward) as r\n  from 'episodes/*/*.parquet'\n  where event = 'evaluate'\n  group by all\n)\nselect avg(t.r - b.r) as value\nfrom cell t join cell b using (task_id)\nwhere t.arm = 'treatment' and b.arm = 'base';".into()),
        results,
        warnings: Vec::new(),
        sources: vec![("data/demo/episodes/base/52004.parquet".into(), sha256_hex(b"a"), 80, 80), ("data/demo/episodes/treatment/52004.parquet".into(), sha256_hex(b"b"), 80, 92)],
        audit,
        verdict,
    }
}

fn entry(line: usize, reference: &str, printed: &str, recomputed: &str, verdict: Verdict) -> AuditEntry {
    AuditEntry {
        place: format!("site/experiments/demo/report.md:{line}"),
        reference: reference.into(),
        printed: printed.into(),
        recomputed: recomputed.into(),
        verdict,
        reason: (verdict == Verdict::Unverifiable)
            .then(|| "the rows of the first harvest are gone".to_string()),
    }
}

/// The whole publication; its data files are written below `folder`.
pub fn publication(folder: &Path) -> Publication {
    let entries = vec![
        entry(31, "derive:demo.base", "0.02", "0.021875", Verdict::Match),
        entry(31, "derive:demo.treatment", "0.33", "0.33125", Verdict::Match),
        entry(32, "derive:demo.delta", "+0.309", "0.30937499999999996", Verdict::Match),
        entry(32, "derive:demo.delta.low", "+0.24", "0.2369", Verdict::Match),
        entry(40, "derive:demo.first_harvest", "849", "—", Verdict::Unverifiable),
        entry(41, "derive:demo.card_score", "0.31", "0.31", Verdict::Cited),
        AuditEntry {
            place: "claims/C0001-commit-an-answer.md:14".into(),
            ..entry(1, "derive:demo.delta", "+0.31", "0.30937499999999996", Verdict::Match)
        },
    ];
    let numbers = numbers();
    let results = |id: &str| -> Vec<(Option<String>, Vec<(String, String)>)> {
        let mut rows: Vec<(Option<String>, Vec<(String, String)>)> = Vec::new();
        for n in numbers.iter().filter(|n| n.id == id) {
            match rows.iter_mut().find(|(row, _)| *row == n.row) {
                Some((_, parts)) => parts.push((n.part.clone(), n.reference.clone())),
                None => rows.push((n.row.clone(), vec![(n.part.clone(), n.reference.clone())])),
            }
        }
        rows
    };
    let mut ids: Vec<String> = numbers.iter().map(|n| n.id.clone()).collect();
    ids.sort();
    ids.dedup();
    let derivations = ids
        .iter()
        .map(|id| {
            let own: Vec<AuditEntry> = entries
                .iter()
                .filter(|e| numbers.iter().any(|n| &n.id == id && n.reference == e.reference))
                .cloned()
                .collect();
            let verdict = numbers.iter().filter(|n| &n.id == id).map(|n| n.verdict).min().unwrap();
            derivation(id, if id == "delta" { "paired_delta" } else { "mean" }, verdict, results(id), own)
        })
        .collect();
    let long = "A deliberately long title that goes on about adapters, harvests, answer lines, token budgets and the \
                several hyphenated, half-forgotten, not-quite-decided questions behind a run which starved before it began";
    Publication {
        imports: vec![super::fixture_claims::import(folder)],
        judged: None,
        title: "Answer seam lab".into(),
        description: "Small experiments on whether a small model hands in what it knows.".into(),
        author: Some("An author".into()),
        repository: Some("https://example.org/lab".into()),
        revision: Some("d1e75aca75".into()),
        experiments: vec![
            demo(folder),
            ExperimentInput {
                slug: "planned-second-seed".into(),
                title: "Does a second training seed repeat the gain?".into(),
                tagline: "Planned".into(),
                lifecycle: "planned".into(),
                programs: vec!["answer-seam".into()],
                report_path: "site/experiments/planned-second-seed/report.md".into(),
                arms: vec![("base".into(), "as in the first experiment".into())],
                ..ExperimentInput::default()
            },
            ExperimentInput {
                slug: "starved".into(),
                title: long.into(),
                lifecycle: "finished".into(),
                verdict: Some("inconclusive".into()),
                starved: true,
                started: Some("2026-11-02".into()),
                ended: Some("2026-11-02".into()),
                programs: vec!["self-harvest".into()],
                report: "The harvest kept four samples, which is [a number without a derivation](#report).\n"
                    .into(),
                report_path: "site/experiments/starved/report.md".into(),
                coverage: vec![("base".into(), 160, 160), ("treatment".into(), 0, 160)],
                ..ExperimentInput::default()
            },
        ],
        claims: super::fixture_claims::claims(),
        derivations,
        numbers: numbers.into_iter().map(|n| (n.reference.clone(), n)).collect(),
        audit: AuditInput { entries, findings: Vec::new(), files_checked: 9, rows_checked: 2_972 },
        coverage: vec![CoverageInput {
            scenario: "near a ceiling".into(),
            tasks: 20,
            attempts: 1,
            unit: "tasks".into(),
            data_sets: 4000,
            coverage: [Some(0.884), Some(0.99), Some(0.884), None],
            defined: 0.69,
            flagged: 1.0,
            flagged_of_missed: Some(1.0),
            ..CoverageInput::default()
        }],
        method: vec![
            EstimatorInput {
                id: "mean".into(),
                title: "Mean over tasks".into(),
                formula: "mean over tasks of the mean over seeds of the reward".into(),
                source: "Student's t interval over tasks.".into(),
                parts: ["value", "low", "high", "n", "se", "df"].map(String::from).to_vec(),
            },
            EstimatorInput {
                id: "paired_delta".into(),
                title: "Paired difference of two arms".into(),
                formula: "mean over shared tasks of treatment − base".into(),
                source: "Expanded percentile bootstrap, Hesterberg 2015; exact or sampled sign-flip test."
                    .into(),
                parts: ["value", "low", "high", "n", "p", "se", "df", "mde"].map(String::from).to_vec(),
            },
        ],
        refusals: Vec::new(),
    }
}
