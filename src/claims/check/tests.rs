//! Every rule on a small workspace: nothing is found in a good one, and each fault by name.

use super::*;
use crate::claims::testing;
use crate::episode::row::EpisodeRow;

const BODY: &str = "From [0.17](derive:demo.base), a change of [+0.50](derive:demo.delta), [0.75](derive:demo.by_family/a) in one family.";

struct Case {
    report: String,
    log: String,
    claim: String,
    rows: Vec<EpisodeRow>,
}

fn good() -> Case {
    Case {
        report: testing::report("ended = 2026-12-02", BODY),
        log: "## 2026-12-02 — Ran\n".into(),
        claim: testing::claim("C0001", "", BODY),
        rows: testing::two_arms(),
    }
}

impl Case {
    fn outcome(&self) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        testing::write(
            dir.path(),
            &[
                ("site/experiments/demo/report.md", &self.report),
                ("site/experiments/demo/log.md", &self.log),
                ("claims/C0001-x.md", &self.claim),
            ],
        );
        testing::write_rows(dir.path(), "demo", &self.rows);
        workspace(dir.path()).unwrap()
    }

    #[track_caller]
    fn finds(&self, rule: &str, wanted: &str) {
        let outcome = self.outcome();
        let hit = outcome.findings.iter().find(|f| f.rule == rule && f.to_string().contains(wanted));
        assert!(hit.is_some(), "{rule} {wanted}: {:#?}", outcome.findings);
        assert!(outcome.findings.iter().all(|f| f.line > 0 && f.hint.is_some()));
        assert_eq!(outcome.into_result().unwrap_err().exit_code(), 1);
    }
}

fn report(extra: &str, body: &str) -> Case {
    Case { report: testing::report(extra, body), ..good() }
}

fn claim(extra: &str, body: &str) -> Case {
    Case { claim: testing::claim("C0001", extra, body), ..good() }
}

#[test]
fn a_good_workspace_has_no_findings() {
    let outcome = good().outcome();
    assert_eq!(outcome.findings, []);
    assert_eq!(outcome.links, 6);
    assert!(outcome.unbound.is_empty());
    assert!(outcome.into_result().is_ok());
}

#[test]
fn printed_numbers_must_be_what_the_rows_give() {
    report("", "[0.16](derive:demo.base)")
        .finds("mismatch", "prints `0.16`, but `derive:demo.base` gives `0.17` (0.1666");
    report("", "\n\n[—](derive:demo.base)").finds("mismatch", "prints `—`");
    report("", "[12](derive:demo.delta.low)").finds("mismatch", "prints `12`");
    report("", "[0.1–0.2](derive:demo.base)").finds("printed", "is not one number");
    report("", "[](derive:demo.base)").finds("empty", "rederive fill");
    report("", "[0.1](derive:demo.bsae)").finds("reference", "did you mean `base`?");
    report("", "[0.1](derive:demo)").finds("link", "names no derivation");
    report("", "a ` b [0.1](derive:demo.base)").finds("link", "not closed");
    report("", "[0.17](derive:demo.base) million").finds("beside", "`million` after the number");
    report("", "[0.17](derive:demo.base)9").finds("beside", "`9` is glued");
    report("[[cards]]\nlabel = \"a\"\nvalue = \"−[0.17](derive:demo.base)\"", "").finds("beside", "sign `−`");
    report("", "[0.17 dozen](derive:demo.base)").finds("printed", "is not one number");
    let mut edited = good();
    edited.rows[0].reward = Some(0.0);
    edited.rows[1].reward = Some(0.0);
    edited.finds("mismatch", "prints `+0.50`");
}

#[test]
fn a_line_is_named() {
    let outcome = report("", "one\n\n[0.16](derive:demo.base)").outcome();
    let lines = report("", "").report.lines().count();
    let found: Vec<usize> =
        outcome.findings.iter().filter(|f| f.rule == "mismatch").map(|f| f.line).collect();
    assert_eq!(found, [lines + 2]);
}

#[test]
fn unbound_numbers_are_refused_or_counted() {
    claim("", &format!("{BODY} Over 12 tasks.")).finds("unbound", "`12`");
    report("[[cards]]\nlabel = \"a\"\nvalue = \"98 of [12](derive:demo.delta.n)\"", "")
        .finds("unbound", "`98` in `cards[0].value`");
    report("plain = { idea = \"a\", question = \"b\", found = \"rose to 0.3\", matters = \"d\" }", "")
        .finds("unbound", "`0.3`");
    report("tagline = \"98 of a hundred\"", "").finds("unbound", "`98` in `tagline`");
    let outcome = report("", &format!("{BODY} Over 12 tasks and 3 families.")).outcome();
    assert_eq!(outcome.findings, []);
    assert_eq!(outcome.unbound.get("site/experiments/demo/report.md"), Some(&2));
}

#[test]
fn claims_owe_evidence() {
    claim("", "Nothing.").finds("cites_nothing", "no number in its text");
    let mut none = good();
    none.claim = none.claim.replace("evidence = [\"derive:demo.delta\"]", "");
    none.finds("cites_nothing", "has no evidence");
    let mut unknown = good();
    unknown.claim = unknown.claim.replace("derive:demo.delta\"]", "derive:demo.dleta\"]");
    unknown.finds("evidence", "did you mean `delta`?");
    let mut undefined = good();
    undefined.rows.clear();
    undefined.finds("evidence", "pending");
    claim("supersedes = \"C0009\"", BODY).finds("supersedes", "no claim `C0009`");
    claim("supersedes = \"C0001\"", BODY).finds("supersedes", "replaces itself");
    claim("experiments = [\"dmeo\"]", BODY).finds("experiments", "did you mean `demo`?");
}

#[test]
fn a_change_of_status_needs_new_evidence() {
    let later = |status: &str, evidence: &str| {
        let mut case = good();
        let entry = format!(
            "[[history]]\ndate = 2026-12-02\nstatus = \"{status}\"\nevidence = [\"{evidence}\"]\n+++\nFrom"
        );
        case.claim =
            case.claim.replace("+++\nFrom", &entry).replacen("\"promising\"", &format!("\"{status}\""), 1);
        case
    };
    later("confirmed", "derive:demo.delta").finds("status_without_evidence", "to `confirmed` on 2026-12-02");
    // What is new has to bear it out by itself, and a count of tasks does not.
    for new in ["derive:demo.by_family/b", "derive:demo.by_family/b.n", "derive:demo.base"] {
        later("confirmed", new).finds("unsupported_status", "claim `C0001` is confirmed");
    }
    let mut borne_out = later("confirmed", "derive:C0001.solved");
    let solved = "[derivations.solved]\nexperiment = \"demo\"\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"solved\"\narms = [\"base\", \"treatment\"]\n[[history]]\ndate = 2026-12-01";
    borne_out.claim = borne_out.claim.replacen("[[history]]\ndate = 2026-12-01", solved, 1);
    // The new number is of a column whose change the claim prints.
    borne_out.finds("unsupported_status", "of another column than the change that the claim prints");
    borne_out.claim = borne_out.claim.replace("\nFrom", "\n[+0.50](derive:C0001.solved) are solved. From");
    assert_eq!(borne_out.outcome().findings, []);
    // The same number under another name is not new.
    let mut again = borne_out;
    again.claim = again.claim.replace("of = \"solved\"\narms", "of = \"reward\"\narms");
    again.finds("unsupported_status", "compares nothing, or nothing that is new");
    assert_eq!(later("promising", "derive:demo.delta").outcome().findings, []);
}

#[test]
fn claims_about_training_need_several_training_seeds() {
    let mut case = claim("", BODY);
    case.claim = case.claim.replace("population = \"tasks\"", "population = \"tasks-x-train-seeds\"");
    case.finds("training_claim_on_one_seed", "0 training seeds");
    for row in case.rows.iter_mut().filter(|row| row.arm == "treatment") {
        row.train_seed = Some(1);
    }
    case.finds("training_claim_on_one_seed", "has 1 training seed [");
    let again: Vec<EpisodeRow> = case
        .rows
        .iter()
        .filter(|row| row.arm == "treatment")
        .flat_map(|row| (2..=6).map(|seed| EpisodeRow { train_seed: Some(seed), ..row.clone() }))
        .collect();
    case.rows.extend(again);
    // However many there are, an interval over tasks does not speak of them.
    case.finds("unsupported_status", "whose interval is over tasks only");
    let trained = "[derivations.trained]\nexperiment = \"demo\"\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\npopulation = \"tasks-x-train-seeds\"\n[[history]]";
    // The base arm, which nobody trained, may stand beside it.
    case.claim = case.claim.replace("[[history]]", trained);
    case.claim =
        case.claim.replace("\"derive:demo.delta\"]", "\"derive:C0001.trained\", \"derive:demo.base\"]");
    assert_eq!(case.outcome().findings, []);
    case.claim = case.claim.replace("From", "[0.2](derive:demo.delta.low). From");
    case.finds("tasks_only_interval", "claim about training");
}

#[test]
fn means_of_two_arms_are_no_comparison() {
    let other = "[derivations.other]\nexperiment = \"demo\"\ndata = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\narms = [\"treatment\"]\n\
        [derivations.flips]\nexperiment = \"demo\"\ndata = \"episodes\"\nestimator = \"flips\"\narms = [\"base\", \"treatment\"]\n\
        [derivations.gap]\ndata = \"derivations\"\nestimator = \"value\"\nof = \"other - derive:demo.base\"\n";
    let held = |evidence: &str| {
        let case = claim(other, BODY);
        Case { claim: case.claim.replace("\"derive:demo.delta\"]", &format!("{evidence}]")), ..case }
    };
    let apart = "has numbers of `base` and of `treatment` in `demo` and no comparison of the two";
    held("\"derive:demo.base\", \"derive:C0001.other\"").finds("unsupported_status", apart);
    held("\"derive:C0001.gap\"").finds("unsupported_status", apart);
    held("\"derive:C0001.flips\"").finds("unsupported_status", apart);
    for (declared, why) in [
        ("data = \"episodes\"\nestimator = \"iqm\"\nof = \"reward\"\narms = [\"treatment\"]", apart),
        ("data = \"episodes\"\nestimator = \"sum\"\nof = \"reward\"\nwhere = { arm = \"treatment\" }", apart),
        (
            "data = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\nwhere = { task_id = [\"a/0\", \"a/1\", \"a/2\"] }",
            "derive:C0001.one, whose attempts are picked by `task_id`",
        ),
    ] {
        let one = format!("[derivations.one]\nexperiment = \"demo\"\n{declared}\n");
        let case = claim(&one, BODY);
        let evidence = "\"derive:demo.base\", \"derive:C0001.one\"]";
        Case { claim: case.claim.replace("\"derive:demo.delta\"]", evidence), ..case }
            .finds("unsupported_status", why);
    }
    // Beside a comparison two do, and one arm's number says what it says where no comparison is printed.
    let held_well = |case: Case| {
        let outcome = case.outcome();
        assert!(outcome.findings.iter().all(|f| f.rule != "unsupported_status"), "{:#?}", outcome.findings);
    };
    held_well(held("\"derive:C0001.gap\", \"derive:demo.delta\""));
    let one = held("\"derive:demo.base\"");
    let silent = one.claim.replace(BODY, "From [0.17](derive:demo.base).");
    held_well(Case { claim: silent, ..one });
    held("\"derive:demo.base\"").finds("unsupported_status", "its evidence compares nothing");
}

#[test]
fn significant_needs_a_p_value() {
    report("", "A significant gain of [+0.50](derive:demo.delta).").finds("significant", "without a p value");
    report("", "p is [0.031](derive:demo.delta.p).\n\nA significant gain.").finds("significant", "without");
    let p = "[0.031](derive:demo.delta.p)";
    assert_eq!(
        report("", &format!("A significant gain, p = {p}, and nothing not significant.")).outcome().findings,
        []
    );
    report("", "Significant: p = [1.0](derive:demo.by_family/b.p)")
        .finds("significant", "the cited p value is");
}

#[test]
fn what_is_said_of_an_interval_and_zero_holds() {
    let said = |text: &str| report("", &format!("{BODY}\n\n{text}")).outcome().findings;
    let interval = "[+0.17](derive:demo.delta.low) to [+0.83](derive:demo.delta.high)";
    assert_eq!(said(&format!("The interval, {interval}, excludes zero.")), []);
    let found = said(&format!("The interval, {interval}, includes zero."));
    assert!(found[0].rule == "interval" && found[0].text.contains("said to hold zero"), "{found:?}");
    let found = said("It changed by [+0.50](derive:demo.by_family/b), whose interval excludes zero.");
    assert!(found[0].rule == "interval" && found[0].text.contains("leave zero out"), "{found:?}");
    assert_eq!(said("It changed by [+0.50](derive:demo.by_family/b), whose interval includes zero."), []);
    // What rose is no worse, by its own sentence; beside it that is said of something else.
    assert_eq!(said(&format!("It is no worse: {interval}.")), []);
    assert_eq!(said(&format!("Elsewhere it is no worse. It rose by {interval}."))[0].rule, "equality");
}

#[test]
fn the_test_of_another_column_bears_out_nothing() {
    let wall = "[derivations.wall]\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"solved\"\narms = [\"base\", \"treatment\"]\n";
    let said = |text: &str| report(wall, &format!("{BODY}\n\n{text}")).outcome().findings;
    let change = "A significant gain of [+0.50](derive:demo.delta)";
    assert_eq!(said(&format!("{change}, p = [0.031](derive:demo.delta.p).")), []);
    let found = said(&format!("{change}, p = [0.031](derive:demo.wall.p)."));
    assert!(found[0].rule == "significant" && found[0].text.contains("without a p value"), "{found:?}");
}

#[test]
fn a_claims_title_means_its_evidence() {
    let title = |evidence: &str| {
        let case = claim("", BODY);
        let held = case.claim.replace("Training helps", "A significant gain");
        Case { claim: held.replace("\"derive:demo.delta\"]", &format!("{evidence}]")), ..case }
    };
    assert_eq!(title("\"derive:demo.delta\", \"derive:demo.delta.p\"").outcome().findings, []);
    title("\"derive:demo.delta\"").finds("significant", "without a p value");
}

#[test]
fn a_condition_that_is_misspelt_chooses_nothing_and_says_so() {
    let extra = "[derivations.one]\ndata = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\nwhere = { split = \"heldout\" }\n";
    report(extra, BODY).finds("derivation", "no row has `heldout` in `split`");
    // What rows may not have is not misspelt.
    let other = extra.replace("heldout", "train");
    assert_eq!(report(&other, BODY).outcome().findings, []);
}

#[test]
fn a_test_under_two_names_stays_in_its_family() {
    let said = |families: &str, cited: &str| {
        let again = "[derivations.again]\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\nmargin = 0.1\narms = [\"treatment\", \"base\"]\n";
        let body = format!("{BODY}\n\nA significant gain, p = [0.031](derive:demo.{cited}).");
        let findings = report(&format!("{again}{families}"), &body).outcome().findings;
        let found = findings.iter().find(|finding| finding.rule == "significant");
        found.map(ToString::to_string).unwrap_or_default()
    };
    let family =
        "[derivations.family]\ndata = \"derivations\"\nestimator = \"holm\"\nof = \"delta, by_family\"\n";
    for cited in ["delta.p", "again.p"] {
        assert_eq!(said("", cited), "");
        let within = said(family, cited);
        assert!(within.contains("0.125 in the family `derive:demo.family` of tests"), "{within}");
    }
}

#[test]
fn figures_and_dates_must_hold() {
    let figure = |fields: &str| format!("[[figures]]\nid = \"f\"\ntitle = \"F\"\ntakeaway = \"t\"\n{fields}");
    let forest = |fields: &str| report(&figure(&format!("kind = \"forest\"\n{fields}")), "");
    forest("rows = [\"by_famly\"]").finds("figure", "did you mean `by_family`?");
    forest("rows = [\"delta\"]").finds("figure", "has no row for each");
    forest("").finds("figure", "has no rows");
    forest("rows = [\"by_family\"]\nbar = \"delta\"").finds("figure", "no value of the plan");
    report(&figure("kind = \"slope\"\nleft = \"by_family\""), "").finds("figure", "has no `right`");
    report(&figure("kind = \"slope\"\nleft = \"by_family\"\ngroup_by = \"colour\""), "")
        .finds("figure", "groups by `colour`");
    assert_eq!(forest("rows = [\"by_family\"]\npooled = \"delta\"").outcome().findings, []);
    report("ended = 2026-12-01", "").finds("dates", "the log has an entry of 2026-12-02");
    report("started = 2026-12-03\nended = 2026-12-02", "").finds("dates", "before it started");
}

#[test]
fn a_derivation_that_cannot_be_computed_is_found_once() {
    let mut case = good();
    case.report =
        case.report.replace("of = \"reward\"\narms = [\"base\"]", "of = \"rewrad\"\narms = [\"base\"]");
    case.finds("derivation", "derivation `base` cannot be computed: of: the rows have no column `rewrad`");
}
