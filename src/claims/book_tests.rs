//! The book over small workspaces: resolving, pending data, and errors that help.

use super::*;
use crate::claims::testing;

fn build(root: &Path) -> Book {
    Book::build(root, &Texts::load(root).unwrap()).unwrap()
}

fn workspace(extra: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    testing::write(
        dir.path(),
        &[
            (
                "site/experiments/demo/report.md",
                &testing::report("", "").replace("+++\n\n", &format!("{extra}+++\n\n")),
            ),
            ("claims/C0001-x.md", &testing::claim("C0001", "", "")),
            ("data/demo/receipts/merge.json", r#"{"receipt": {"matched": 210}}"#),
        ],
    );
    dir
}

fn resolve<'a>(book: &'a Book, target: &str) -> Result<Resolved<'a>> {
    book.resolve(&Reference::parse(target).unwrap())
}

#[test]
fn references_lead_to_numbers() {
    let dir = workspace(
        "[derivations.matched]\ndata = \"receipts\"\nestimator = \"value\"\nof = \"merge.matched\"\n",
    );
    testing::write_rows(dir.path(), "demo", &testing::two_arms());
    let book = build(dir.path());
    let get = |target: &str| resolve(&book, target).unwrap().number.get().unwrap();
    assert!((get("demo.delta") - 0.5).abs() < 1e-12);
    assert_eq!(get("demo.delta.n"), 12.0);
    assert!((get("demo.by_family/a") - 0.75).abs() < 1e-12);
    assert_eq!(get("demo.matched"), 210.0);
    assert_eq!(book.numbers()["derive:demo.matched"], Some(210.0));
    assert!(book.numbers().contains_key("derive:demo.by_family/a.n"));
    let resolved = resolve(&book, "demo.delta").unwrap();
    let sources: Vec<(&str, usize, usize)> =
        resolved.derived.sources.iter().map(|s| (s.path.as_str(), s.rows_used, s.rows_total)).collect();
    assert_eq!(
        sources,
        [("data/demo/episodes/base/1.parquet", 12, 12), ("data/demo/episodes/treatment/1.parquet", 12, 12)]
    );
    assert!(resolved.entry.path.ends_with("report.md") && resolved.entry.line > 3);
    assert_eq!(book.refused().count(), 0);
}

#[test]
fn wrong_references_name_the_nearest() {
    let dir = workspace("");
    testing::write_rows(dir.path(), "demo", &testing::two_arms());
    let book = build(dir.path());
    for (target, wanted) in [
        ("dmeo.delta", "did you mean `demo`?"),
        ("demo.detla", "did you mean `delta`?"),
        ("demo.by_family/aa", "did you mean"),
        ("demo.delta/a", "has no `by`"),
        ("demo.base.p", "it gives df, high, low, n, se, value"),
        ("C0001.x", "no derivation here yet"),
        ("something_else.x", "known: C0001, demo"),
    ] {
        let e = resolve(&book, target).unwrap_err().to_string();
        assert!(e.contains(wanted), "{e}");
    }
}

#[test]
fn an_experiment_without_rows_is_pending() {
    let dir =
        workspace("[derivations.later]\ndata = \"receipts\"\nestimator = \"value\"\nof = \"train.rows\"\n");
    let book = build(dir.path());
    for target in ["demo.delta", "demo.delta.low", "demo.by_family/caravan", "demo.base.n", "demo.later"] {
        let resolved = resolve(&book, target).unwrap();
        assert!(resolved.is_pending(), "{target}: {:?}", resolved.number);
    }
    assert_eq!(
        resolve(&book, "demo.delta").unwrap().number,
        &Number::Undefined("pending: no rows yet".into())
    );
}

#[test]
fn a_planned_arm_is_pending_and_an_unknown_one_is_refused() {
    let base: Vec<_> = testing::two_arms().into_iter().filter(|r| r.arm == "base").collect();
    let dir = workspace("");
    testing::write_rows(dir.path(), "demo", &base);
    let book = build(dir.path());
    let (entry, problem) = book.refused().next().unwrap();
    assert_eq!(entry.id, "by_family");
    assert_eq!(problem.remedy.as_deref(), Some("the arms are base"));
    assert!(resolve(&book, "demo.delta").unwrap_err().to_string().contains("no arm `treatment`"));
    testing::write(
        dir.path(),
        &[("data/demo/experiment.toml", "[[arms]]\nname = \"base\"\n[[arms]]\nname = \"treatment\"\n")],
    );
    let book = build(dir.path());
    assert!(resolve(&book, "demo.delta").unwrap().is_pending());
    assert_eq!(resolve(&book, "demo.base").unwrap().number.get(), Some(2.0 / 12.0));
}

#[test]
fn bad_declarations_and_data_are_kept_as_problems() {
    let dir = workspace(
        "[derivations.typo]\ndata = \"episodes\"\nestimator = \"mean\"\nof = \"rewrad\"\n\
         [derivations.nulls]\ndata = \"episodes\"\nestimator = \"max\"\nof = \"solved_ms\"\n",
    );
    testing::write(dir.path(), &[(
        "claims/C0002-x.md",
        &testing::claim("C0002", "", "").replace(
            "+++\n\n",
            "[derivations.far]\nexperiment = \"dmeo\"\ndata = \"episodes\"\nestimator = \"count\"\n+++\n\n",
        ),
    )]);
    testing::write_rows(dir.path(), "demo", &testing::two_arms());
    let book = build(dir.path());
    let problems: Vec<String> = book.refused().map(|(entry, p)| format!("{}: {p}", entry.id)).collect();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(
        problems[0].contains("far: experiment: there is no experiment `dmeo`")
            && problems[0].contains("`demo`")
    );
    assert!(
        problems[1].contains("data/demo/episodes/base/1.parquet: row 1") && problems[1].contains("nulls")
    );
    assert!(problems[2].contains("did you mean `reward`?"));
    assert!(resolve(&book, "demo.typo").unwrap_err().to_string().contains("cannot be computed"));
}
