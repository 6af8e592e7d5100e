//! Drafts of plans with a margin or with gates say what the rule asks, and every number that they
//! link to can be derived.

use super::super::{documents, new_experiment, texts};
use super::*;
use crate::claims::testing;
use crate::episode::EpisodeRow;
use crate::stages::Experiment;
use crate::stages::draft::Change;

const TRAINED: &str = include_str!("../../../templates/new/experiment.toml");
const DECIDED: &str = "rule = \"three-way\"\nmetric = { estimator = \"paired_delta\", of = \"reward\", weight = \"task\" }\nminimum_delta = 0.03";
const KILL: &str = "[[gates]]\nkind = \"kill\"\namong = [\"wall\", \"budget\"]\nshape = \"many-under-cap\"\nat_least = 0.8\n\n[decision]";

/// The template's plan, or one that compares two arms that are there, under this rule.
fn plan(rule: &str, compared: bool) -> String {
    let number = if rule == "three-way" { "minimum_delta = 0.03" } else { "margin = 0.02" };
    let metric = "metric = { estimator = \"paired_delta\", of = \"reward\", weight = \"task\" }";
    let decided = format!("rule = \"{rule}\"\n{metric}\n{number}");
    let mut plan = TRAINED.replace(DECIDED, &decided).replace("[decision]", KILL);
    if compared {
        for (from, to) in [
            ("harvest = [11001]\n", ""),
            ("train = [1]\n", ""),
            ("adapter = \"receipt:train\" # bound by hash once it exists\ndeploy = \"merged\"\n", ""),
        ] {
            assert!(plan.contains(from), "{from}");
            plan = plan.replace(from, to);
        }
    }
    plan
}

#[test]
fn what_the_template_offers_as_comments_is_accepted() {
    let offered: Vec<&str> =
        TRAINED.lines().filter(|line| line.starts_with("# ") && line.contains(" = ")).collect();
    assert_eq!(offered.len(), 6, "{offered:?}");
    let line = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if rest.contains(" = ") || rest.starts_with('[') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let plan: Vec<String> =
        TRAINED.lines().map(|l| line(l.strip_prefix("# [[gates]]").map_or(l, |_| "[[gates]]"))).collect();
    let plan =
        crate::experiment::Plan::parse(&plan.join("\n"), std::path::Path::new("experiment.toml")).unwrap();
    assert!(plan.kill().is_some() && plan.headroom().is_some_and(|gate| gate.baseline_ceiling.is_some()));
}

/// Report, log and claim for an ending; every link is declared.
fn drafted(plan: &str, ending: &Ending) -> String {
    let dir = tempfile::tempdir().unwrap();
    new_experiment(dir.path(), "a", plan).unwrap();
    let experiment = Experiment::open(dir.path(), "a").unwrap();
    texts(&experiment, ending).unwrap();
    let mut all = documents::report(&experiment, ending, "2026-01-02", "2026-01-02");
    let front: toml::Table =
        toml::from_str(all.trim_start_matches("+++\n").split("\n+++\n").next().unwrap()).unwrap();
    let known = front["derivations"].as_table().unwrap();
    for used in all.split("(derive:a.").skip(1) {
        let id = used.split([')', '.', '/']).next().unwrap();
        assert!(known.contains_key(id), "{ending:?} uses `{id}`");
    }
    all.push_str(&fs_err::read_to_string(dir.path().join("site/experiments/a/log.md")).unwrap());
    if let Ending::Decided { outcome, change } = ending {
        all.push_str(&documents::claim(&experiment, "C0001", *outcome, *change));
    }
    all
}

const OUTCOMES: [Outcome; 3] = [Outcome::Positive, Outcome::Negative, Outcome::Inconclusive];

#[test]
fn a_rule_with_a_margin_looks_for_no_gain() {
    for compared in [false, true] {
        for rule in ["non-inferiority", "equivalence"] {
            for outcome in OUTCOMES {
                let ending = Ending::Decided { outcome, change: Change::Interval };
                let text = drafted(&plan(rule, compared), &ending);
                for word in [
                    "gain that counts",
                    " gains",
                    "does better",
                    "do better",
                    "scores higher",
                    "raises",
                    "Every leg",
                ] {
                    assert!(!text.contains(word), "{rule} {outcome:?} says `{word}`:\n{text}");
                }
                assert!(
                    text.contains("of = \"decision.margin\"") && text.contains("the margin, set beforehand")
                );
                assert!(text.contains(&format!("**{}**", outcome.as_str())), "{text}");
                assert_eq!(
                    text.matches("margin = 0.02").count(),
                    1,
                    "the number that decides has it: {text}"
                );
            }
        }
        let ending = Ending::Decided { outcome: Outcome::Positive, change: Change::Interval };
        let text = drafted(&plan("three-way", compared), &ending);
        assert!(text.contains("the smallest gain that counts") && !text.contains("margin"), "{text}");
    }
}

#[test]
fn an_experiment_that_a_gate_stopped_says_what_was_counted() {
    for compared in [false, true] {
        let text = drafted(&plan("three-way", compared), &Ending::Killed);
        for words in [
            "verdict = \"design-negative\"",
            "lifecycle = \"stopped\"",
            "that ended by `wall` or `budget`",
            "have the shape `many-under-cap`",
            "of = \"kill.share\"",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = drafted(&plan("three-way", compared), &Ending::NoHeadroom);
        assert!(text.contains("of = \"headroom.cores.caravan.possible_gain\""), "{text}");
        assert!(text.contains("| brinework | [](derive:a.core_brinework_baseline) |"), "{text}");
    }
}

/// Rows of 24 tasks of the template's families on both evaluation seeds, the second arm better by what is given.
fn compared_rows(gain: impl Fn(usize) -> f64) -> Vec<EpisodeRow> {
    let families = ["caravan", "gatepost", "kilnrite", "brinework"];
    let mut rows = Vec::new();
    for (at, seed) in (0..24).flat_map(|at| [(at, 52004), (at, 52005)]) {
        let task = format!("{}/L1/{seed}/{at}", families[at % 4]);
        for (arm, reward) in [("base", 0.5), ("treatment", 0.5 + gain(at))] {
            let row = testing::episode(arm, &task, seed, 0, Some(reward));
            rows.push(EpisodeRow { event: Some("evaluate".into()), ..row });
        }
    }
    rows
}

#[test]
fn a_drafted_claim_is_borne_out_by_what_decided() {
    let little = |at: usize| (at % 3) as f64 * 0.005 - 0.005;
    let much = |at: usize| 0.3 + (at % 5) as f64 * 0.01;
    let less = |at: usize| -0.3 + (at % 5) as f64 * 0.01;
    type Case<'a> = (&'a str, Outcome, &'a dyn Fn(usize) -> f64, &'a str);
    let cases: [Case; 7] = [
        ("three-way", Outcome::Positive, &much, "promising"),
        ("three-way", Outcome::Negative, &little, "proposed"),
        ("three-way", Outcome::Inconclusive, &little, "proposed"),
        ("non-inferiority", Outcome::Positive, &little, "promising"),
        ("non-inferiority", Outcome::Negative, &less, "promising"),
        ("equivalence", Outcome::Positive, &little, "promising"),
        ("equivalence", Outcome::Negative, &much, "promising"),
    ];
    for (rule, outcome, gain, status) in cases {
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", &plan(rule, true)).unwrap();
        testing::write_rows(dir.path(), "a", &compared_rows(gain));
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        texts(&experiment, &Ending::Decided { outcome, change: Change::Interval }).unwrap();
        crate::claims::fill::fill(dir.path(), Default::default()).unwrap();
        let claim = fs_err::read_to_string(dir.path().join("claims/C0001-a.md")).unwrap();
        assert!(claim.contains(&format!("status = \"{status}\"")), "{claim}");
        let found = crate::claims::check::workspace(dir.path()).unwrap().findings;
        assert!(found.is_empty(), "{rule} {outcome:?}: {found:#?}");
        let report = crate::audit::audit(dir.path(), Default::default()).unwrap();
        let of_words = ["unsupported_status", "significant", "equality"];
        assert!(report.findings.iter().all(|f| !of_words.contains(&f.rule)), "{:#?}", report.findings);
    }
}
