//! Attacks on claims and on what words say of numbers: evidence, statuses, how claims fit together, and what is called
//! significant or the same.

use super::attacks::{caught, found, run};
use super::workspace::{SEEDS, Workspace};
use crate::audit::Verdict;
use crate::episode::row::EpisodeRow;

#[test]
fn claims_need_evidence_that_is_declared_and_seeds_that_carry_it() {
    let workspace = Workspace::honest();
    workspace.replace("claims/C0001-commit.md", "evidence = [\"derive:demo.delta\"]", "evidence = []");
    workspace.replace(
        "claims/C0001-commit.md",
        "Reward rose by [+0.25](derive:demo.delta); [0.5](derive:C0001.pass) of tasks are solved.",
        "It works.",
    );
    caught(&run(&workspace), "claim_cites_nothing", "claims/C0001-commit.md", None);

    let workspace = Workspace::honest();
    workspace.replace("claims/C0001-commit.md", "[\"derive:demo.delta\"]", "[\"derive:demo.gone\"]");
    caught(&run(&workspace), "evidence_not_declared", "claims/C0001-commit.md", None);

    let workspace = Workspace::honest();
    workspace.replace(
        "claims/C0001-commit.md",
        "population = \"tasks\"",
        "population = \"tasks-x-train-seeds\"",
    );
    let report = run(&workspace);
    caught(&report, "training_claim_on_one_seed", "claims/C0001-commit.md", None);
    found(&report, "unsupported_status", "says nothing of other training runs");
}

#[test]
fn holm_takes_the_word_significant_away() {
    let report = "site/experiments/demo/report.md";
    let said = |workspace: &Workspace| {
        workspace.replace(
            report,
            "p = [0.031](derive:demo.delta.p)",
            "a significant gain, p = [0.031](derive:demo.delta.p)",
        );
    };
    let workspace = Workspace::honest();
    said(&workspace);
    assert!(run(&workspace).passed());
    let family = "[derivations.family]\ndata = \"derivations\"\nestimator = \"holm\"\nof = \"delta, by_family\"\n[derivations.flips]";
    workspace.replace(report, "[derivations.flips]", family);
    // Nor does its interval hold a claim any longer.
    let report_of = run(&workspace);
    caught(&report_of, "unsupported_status", "claims/C0001-commit.md", None);
    found(&report_of, "unsupported_status", "by its adjusted p value");
    found(&report_of, "significant", "0.0938");
    // The same test under another name, its arms the other way round, is no way out of the family.
    let workspace = Workspace::honest();
    said(&workspace);
    workspace.replace(report, "(derive:demo.delta.p)", "(derive:demo.again.p)");
    let again = "[derivations.again]\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\nformat = \"+0.0\"\nmargin = 0.03\narms = [\"treatment\", \"base\"]\n[derivations.flips]";
    workspace.replace(report, "[derivations.flips]", again);
    assert!(run(&workspace).passed());
    workspace.replace(report, "[derivations.flips]", family);
    caught(&run(&workspace), "significant", report, None);
    // The adjusted p value itself may be printed, and says no more.
    let workspace = Workspace::honest();
    workspace.replace(report, "[derivations.flips]", family);
    workspace.replace(
        report,
        "The change is",
        "Adjusted p = [0.094](derive:demo.family/delta), [0](derive:demo.family) below. The change is",
    );
    workspace.replace("claims/C0001-commit.md", "promising", "proposed");
    assert!(run(&workspace).passed(), "{}", run(&workspace).render(120));
    workspace.replace(report, "Adjusted p", "A significant gain, p");
    caught(&run(&workspace), "significant", report, None);
}

#[test]
fn sameness_without_a_margin_is_named() {
    let report = "site/experiments/demo/report.md";
    let workspace = Workspace::honest();
    workspace.replace(report, "Kept [75%]", "On brinework there is no regression.\n\nKept [75%]");
    caught(&run(&workspace), "equality", report, None);
    let workspace = Workspace::honest();
    let declared = "[derivations.held]\ndata = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nmargin = 0.03\n[derivations.flips]";
    workspace.replace(report, "[derivations.flips]", declared);
    let sentence = "There is no regression, p = [0.003](derive:demo.held.non_inferiority_p).\n\nKept [75%]";
    workspace.replace(report, "Kept [75%]", sentence);
    assert!(run(&workspace).passed(), "{}", run(&workspace).render(120));
    workspace.replace(
        report,
        "There is no regression, p = [0.003](derive:demo.held.non",
        "The arms are equivalent, p = [0.989](derive:demo.held.equivalence_p), [0.003](derive:demo.held.non",
    );
    caught(&run(&workspace), "equality", report, None);
}

/// The honest workspace whose report ends with this paragraph.
fn saying(text: &str) -> Workspace {
    let workspace = Workspace::honest();
    workspace.replace("site/experiments/demo/report.md", "Kept [75%]", &format!("\n\n{text}\n\nKept [75%]"));
    workspace
}

#[test]
fn what_an_interval_is_said_to_do_and_tests_of_other_columns_are_held_against_numbers() {
    let report = "site/experiments/demo/report.md";
    let change = "[+0.250](derive:demo.delta)";
    let fine = saying(&format!("It changed by {change}, and its interval excludes zero."));
    assert!(run(&fine).passed(), "{}", run(&fine).render(120));
    found(
        &run(&saying(&format!("It changed by {change}, and its interval includes zero."))),
        "interval",
        "holds zero",
    );
    let declared = "[derivations.turns]\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"solved\"\narms = [\"base\", \"treatment\"]\n[derivations.flips]";
    let other = saying(&format!("A significant gain of {change}, p = [0.031](derive:demo.turns.p)."));
    other.replace(report, "[derivations.flips]", declared);
    found(&run(&other), "significant", "cites no p value of such a test");
}

#[test]
fn a_claim_is_raised_by_what_is_new_and_of_what_it_prints() {
    let file = "claims/C0001-commit.md";
    let raised = |declared: &str, printed: &str| {
        let workspace = Workspace::honest();
        workspace.replace(file, "status = \"promising\"\npopulation", "status = \"confirmed\"\npopulation");
        let more = format!(
            "[[history]]\ndate = 2026-12-02\nstatus = \"confirmed\"\nevidence = [\"derive:C0001.more\"]\n[derivations.more]\nexperiment = \"demo\"\ndata = \"episodes\"\n{declared}\n+++\n{printed}Reward rose"
        );
        workspace.replace(file, "+++\nReward rose", &more);
        run(&workspace)
    };
    let paired =
        |of: &str| format!("estimator = \"paired_delta\"\nof = \"{of}\"\narms = [\"base\", \"treatment\"]");
    let again = raised(&paired("reward"), "");
    found(&again, "unsupported_status", "no comparison, or none that is new");
    found(
        &raised(&paired("solved"), ""),
        "unsupported_status",
        "which the changes that the claim prints are not of",
    );
    let fine = raised(&paired("solved"), "[+0.25](derive:C0001.more) are solved. ");
    assert!(fine.passed(), "{}", fine.render(120));
    // Nor is a claim raised tomorrow.
    let workspace = Workspace::honest();
    workspace.replace(file, "date = 2026-12-01", "date = 2039-12-01");
    found(&run(&workspace), "dates", "2039-12-01, which is yet to come");
}

#[test]
fn a_condition_that_is_misspelt_is_wrong_whatever_is_printed() {
    let workspace = Workspace::honest();
    let report = "site/experiments/demo/report.md";
    let declared = "[derivations.one]\ndata = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\nwhere = { family = \"brinewrok\" }\n[derivations.flips]";
    workspace.replace(report, "[derivations.flips]", declared);
    workspace.replace(report, "Kept [75%]", "Nothing: [—](derive:demo.one).\n\nKept [75%]");
    let entry =
        run(&workspace).verdicts.into_iter().find(|entry| entry.reference.contains("demo.one")).unwrap();
    assert_eq!(entry.verdict, Verdict::Mismatch, "{entry:?}");
    assert!(entry.reason.as_ref().unwrap().contains("some have `brinework`"), "{entry:?}");
}

#[test]
fn an_amendment_says_nothing_of_how_a_comparison_came_out() {
    let workspace = Workspace::honest();
    let plan = "data/demo/experiment.toml";
    let text = "\n[[amendments]]\ndate = 2026-12-01\ntext = \"The gain was significant.\"\n";
    let old = fs_err::read_to_string(workspace.root().join(plan)).unwrap();
    workspace.text(plan, &(old + text));
    caught(&run(&workspace), "significant", plan, None);
}

#[test]
fn a_margin_that_nobody_fixed_beforehand_is_wrong() {
    let report = "site/experiments/demo/report.md";
    let workspace = Workspace::honest();
    let declared = "[derivations.held]\ndata = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nmargin = 0.99\n[derivations.flips]";
    workspace.replace(report, "[derivations.flips]", declared);
    workspace.replace(
        report,
        "Kept [75%]",
        "The arms are equivalent, p = [0.000](derive:demo.held.equivalence_p).\n\nKept [75%]",
    );
    let entry = run(&workspace).verdicts.into_iter().find(|entry| entry.reference.contains("held")).unwrap();
    assert_eq!(entry.verdict, Verdict::Mismatch);
    assert!(
        entry.reason.as_ref().unwrap().contains("wider than the plan's `minimum_delta` of 0.03"),
        "{entry:?}"
    );
}

#[test]
fn outcomes_that_pages_and_claims_state_are_those_of_experiments() {
    let other = "It turned out a negative outcome.\n";
    let workspace = Workspace::honest();
    workspace.text("site/pages/about.md", &format!("+++\ntitle = \"About\"\n+++\n{other}"));
    caught(&run(&workspace), "verdict", "site/pages/about.md", None);
    // A claim that reads an experiment only through derivations of its own is still about it.
    let workspace = Workspace::honest();
    let file = "claims/C0002.md";
    let own = |said: &str| {
        format!(
            "+++\nid = \"C0002\"\ntitle = \"It does\"\nstatus = \"proposed\"\npopulation = \"tasks\"\n\
             [derivations.own]\nexperiment = \"demo\"\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\n\
             [[history]]\ndate = 2026-12-02\nstatus = \"proposed\"\nevidence = [\"derive:C0002.own\"]\n+++\n{said} [+0.25](derive:C0002.own).\n"
        )
    };
    workspace.text(file, &own("The outcome is positive."));
    assert!(run(&workspace).passed(), "{}", run(&workspace).render(100));
    workspace.text(file, &own("The outcome is negative."));
    caught(&run(&workspace), "verdict", file, None);
}

#[test]
fn claims_that_do_not_fit_together_are_named() {
    let other = |status: &str, extra: &str| {
        format!(
            "+++\nid = \"C0002\"\ntitle = \"It does not\"\nstatus = \"{status}\"\npopulation = \"tasks\"\n{extra}[[history]]\n\
             date = 2026-12-02\nstatus = \"{status}\"\nevidence = [\"derive:demo.by_family/caravan\"]\n+++\nBy [+0.33](derive:demo.by_family/caravan).\n"
        )
    };
    for (status, extra, rule, file) in [
        ("proposed", "contradicts = [\"C0001\"]\n", "", ""),
        ("promising", "contradicts = [\"C0001\"]\n", "contradiction", "claims/C0002.md"),
        ("proposed", "supersedes = \"C0001\"\n", "superseded", "claims/C0002.md"),
        ("refuted", "", "nothing_against", "claims/C0002.md"),
    ] {
        let workspace = Workspace::honest();
        workspace.text("claims/C0002.md", &other(status, extra));
        let report = run(&workspace);
        match rule {
            "" => assert!(report.passed(), "{}", report.render(100)),
            rule => caught(&report, rule, file, None),
        }
    }
}

#[test]
fn a_claim_confirmed_by_nothing_is_named() {
    // Every second task gains and every second loses: the interval holds zero.
    let workspace = Workspace::honest();
    for seed in SEEDS {
        let file = format!("episodes/treatment/{seed}.parquet");
        let mut rows: Vec<EpisodeRow> = workspace.rows(&file);
        for (i, row) in rows.iter_mut().enumerate() {
            (row.reward, row.solved) = (Some(f64::from(u8::from(i % 4 == 1))), Some(i % 4 == 1));
        }
        workspace.put(&file, &mut rows);
    }
    caught(&run(&workspace), "unsupported_status", "claims/C0001-commit.md", None);
}

#[test]
fn a_claim_held_by_two_means_is_named() {
    for (evidence, passes) in [
        ("\"derive:demo.base\", \"derive:demo.treatment\"", false),
        ("\"derive:demo.flips\"", false),
        ("\"derive:C0001.gap\"", false),
        // What prints a comparison is not held by one arm's number.
        ("\"derive:demo.base\"", false),
        ("\"derive:C0001.gap\", \"derive:demo.delta\"", true),
    ] {
        let workspace = Workspace::honest();
        let file = "claims/C0001-commit.md";
        workspace.replace(file, "\"derive:demo.delta\"]", &format!("{evidence}]"));
        let gap = "[derivations.gap]\ndata = \"derivations\"\nestimator = \"value\"\nof = \"derive:demo.treatment - derive:demo.base\"\n";
        workspace.replace(file, "[[history]]", &format!("{gap}[[history]]"));
        let report = run(&workspace);
        match passes {
            true => assert!(report.passed(), "{}", report.render(100)),
            false => caught(&report, "unsupported_status", file, None),
        }
    }
    // One arm's number says what it says.
    let workspace = Workspace::honest();
    let file = "claims/C0001-commit.md";
    workspace.replace(file, "\"derive:demo.delta\"]", "\"derive:demo.base\"]");
    workspace.replace(file, "Reward rose by [+0.25](derive:demo.delta); ", "");
    assert!(run(&workspace).passed(), "{}", run(&workspace).render(100));
    for (declared, evidence, why) in [
        (
            "data = \"episodes\"\nestimator = \"iqm\"\nof = \"reward\"\narms = [\"treatment\"]",
            "derive:demo.base",
            "no comparison of them",
        ),
        (
            "data = \"episodes\"\nestimator = \"count\"\nwhere = { arm = \"treatment\", solved = true }",
            "derive:demo.base",
            "no comparison of them",
        ),
        (
            "data = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\nwhere = { finish_reason = \"stop\" }",
            "derive:C0001.one",
            "of attempts that `finish_reason` picks",
        ),
        (
            "data = \"receipts\"\nestimator = \"value\"\nof = \"decision.decision.delta\"",
            "derive:C0001.one",
            "what a decision's receipt says",
        ),
        (
            "data = \"plan\"\nestimator = \"value\"\nof = \"decision.minimum_delta\"",
            "derive:C0001.one",
            "no comparison, or none that is new",
        ),
    ] {
        let workspace = Workspace::honest();
        let file = "claims/C0001-commit.md";
        let cited = format!("\"{evidence}\", \"derive:C0001.one\"]");
        workspace.replace(file, "\"derive:demo.delta\"]", &cited);
        let one = format!("[derivations.one]\nexperiment = \"demo\"\n{declared}\n[[history]]");
        workspace.replace(file, "[[history]]", &one);
        let report = run(&workspace);
        caught(&report, "unsupported_status", file, None);
        found(&report, "unsupported_status", why);
    }
    // Evidence that nothing works out is none.
    for (formula, rule) in
        [("demo.treatment - 1", "evidence"), ("delta / 0", "evidence"), ("", "evidence_not_declared")]
    {
        let workspace = Workspace::honest();
        let file = "claims/C0001-commit.md";
        workspace.replace(file, "\"derive:demo.delta\"]", "\"derive:demo.delta\", \"derive:C0001.gap\"]");
        let formula = formula.replace("delta", "derive:demo.delta");
        let gap =
            format!("[derivations.gap]\ndata = \"derivations\"\nestimator = \"value\"\nof = \"{formula}\"\n");
        let gap = if formula.is_empty() { String::new() } else { gap };
        workspace.replace(file, "[[history]]", &format!("{gap}[[history]]"));
        caught(&run(&workspace), rule, file, None);
    }
}
