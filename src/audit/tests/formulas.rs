//! Numbers that are worked out from other numbers: both roads agree on them, and what is wrong with one is said.

use super::attacks::run;
use super::workspace::Workspace;
use crate::audit::{Options, Verdict, audit, queries};
use crate::claims::{Book, Texts};

const REPORT: &str = "site/experiments/demo/report.md";

/// The honest workspace with these formulas, and a sentence.
fn with(formulas: &[(&str, &str)], sentence: &str) -> Workspace {
    let workspace = Workspace::honest();
    let declared: Vec<String> = formulas
        .iter()
        .map(|(id, of)| {
            format!("[derivations.{id}]\ndata = \"derivations\"\nestimator = \"value\"\nof = \"{of}\"\n")
        })
        .collect();
    workspace.replace(REPORT, "[derivations.flips]", &format!("{}[derivations.flips]", declared.concat()));
    workspace.replace(REPORT, "The change is", &format!("{sentence} The change is"));
    workspace
}

fn book(workspace: &Workspace) -> Book {
    Book::build(workspace.root(), &Texts::load(workspace.root()).unwrap()).unwrap()
}

#[test]
fn both_roads_work_them_out() {
    let workspace = with(
        &[
            ("spread", "range(by_family)"),
            ("room", "1 - treated"),
            ("treated", "gained_share * (flips.gained + flips.both) / flips.n"),
            ("gained_share", "flips.gained / (flips.gained + flips.lost)"),
            ("families", "rows(by_family)"),
            ("macro", "mean(by_family)"),
            ("ends", "greatest(by_family) - least(by_family)"),
            ("most", "max(delta, human, abs(0 - bar))"),
            ("nothing", "delta / (delta - delta)"),
            ("unwritten_twice", "2 * unwritten"),
        ],
        "They span [+0.17](derive:demo.spread), and [0.50](derive:demo.room) is left.",
    );
    workspace.replace(REPORT, "of = \"think_tokens\"", "of = \"think_tokens\"\nnulls = \"omit\"");
    let book = book(&workspace);
    let refused: Vec<String> =
        book.refused().map(|(entry, problem)| format!("{}: {problem}", entry.id)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let numbers = book.numbers();
    let number = |id: &str| numbers[&format!("derive:demo.{id}")];
    let near =
        |id: &str, want: f64| assert!((number(id).unwrap() - want).abs() < 1e-12, "{id}: {:?}", number(id));
    near("spread", 1.0 / 6.0);
    near("ends", 1.0 / 6.0);
    near("room", 0.5);
    near("macro", 0.25);
    near("families", 2.0);
    near("most", 0.93);
    assert_eq!((number("nothing"), number("unwritten_twice")), (None, None));
    let report = audit(workspace.root(), Options { book: Some(&numbers) }).unwrap();
    assert!(report.passed(), "{}", report.render(100));
    for id in ["spread", "room", "treated", "families", "macro", "nothing"] {
        assert_eq!(report.verdict_of(&format!("derive:demo.{id}")), Some(Verdict::Match), "{id}");
    }
    assert_eq!(report.verdict_of("derive:demo.most"), Some(Verdict::Cited), "it rests on a fact");
    let files = |entry: &crate::claims::book::Entry| -> Option<Vec<String>> {
        Some(entry.outcome.as_ref().ok()?.sources.iter().map(|source| source.path.clone()).collect())
    };
    let declared = |entry| {
        let entry: &crate::claims::book::Entry = entry;
        ((entry.scope.clone(), entry.id.clone()), (&entry.derivation, files(entry)))
    };
    let queries = queries::of(&queries::Declared {
        derivations: book.entries().map(declared).collect(),
        number: &|reference| book.resolve(reference).ok()?.number.get(),
    });
    let asked: Vec<&str> = queries.written.iter().map(|(name, _)| name.as_str()).collect();
    for id in
        ["spread", "room", "families", "macro", "ends", "most", "nothing", "flips", "by_family", "delta"]
    {
        assert!(asked.contains(&format!("demo.{id}").as_str()), "{id}: {queries:?}");
    }
    assert!(queries.without.iter().any(|(name, why)| name == "demo.bar" && why.contains("single value")));
    for (name, query) in &queries.written {
        let rows = super::third_road::duckdb_in(workspace.root(), query)
            .unwrap_or_else(|why| panic!("{name}\n{why}"));
        for row in rows {
            let label = row["label"]
                .as_str()
                .map(|label| format!("/{}", label.replace(' ', "%20")))
                .unwrap_or_default();
            // The whole of a table is another query than that of its rows.
            let id = name.split('.').nth(1).unwrap();
            if label.is_empty() && book.entry("demo", id).is_some_and(|entry| entry.derivation.by.is_some()) {
                continue;
            }
            let own = numbers[&format!("derive:{name}{label}")];
            match (own, row["value"].as_f64()) {
                (Some(own), Some(value)) => {
                    assert!((own - value).abs() < 1e-9, "{name}{label}: {own} {value}")
                }
                (own, value) => assert_eq!(own, value, "{name}{label}"),
            }
        }
    }
    let sources = |id: &str| book.entry("demo", id).unwrap().outcome.as_ref().unwrap().sources.clone();
    assert_eq!(sources("spread"), sources("by_family"), "what a formula rests on");
}

#[test]
fn a_wrong_one_is_a_mismatch() {
    let workspace = with(&[("spread", "range(by_family)")], "They span [+0.20](derive:demo.spread).");
    assert_eq!(run(&workspace).verdict_of("derive:demo.spread"), Some(Verdict::Mismatch));
    let numbers = {
        let mut numbers = book(&workspace).numbers();
        numbers.insert("derive:demo.spread".into(), Some(0.2));
        numbers
    };
    workspace.replace(REPORT, "[+0.20](derive:demo.spread)", "[+0.17](derive:demo.spread)");
    let report = audit(workspace.root(), Options { book: Some(&numbers) }).unwrap();
    assert_eq!(report.verdict_of("derive:demo.spread"), Some(Verdict::Mismatch), "the other road's number");
}

#[test]
fn what_cannot_be_worked_out_is_refused_on_both_roads() {
    for (formulas, what) in [
        (vec![("a", "b + 1"), ("b", "a + 1")], "depends on itself"),
        (vec![("a", "a")], "depends on itself"),
        (vec![("a", "detla")], "did you mean `delta`?"),
        (vec![("a", "range(delta)")], "no `by`"),
        (vec![("a", "by_family/caravam")], "did you mean `caravan`?"),
        (vec![("a", "delta.gained")], "does not give"),
        (vec![("a", "delta +")], "missing at its end"),
    ] {
        let workspace = with(&formulas, "It is [1](derive:demo.a).");
        let book = book(&workspace);
        let said: Vec<String> = book.refused().map(|(_, problem)| problem.to_string()).collect();
        assert!(said.iter().any(|text| text.contains(what)), "{formulas:?}: {said:?}");
        assert_eq!(run(&workspace).verdict_of("derive:demo.a"), Some(Verdict::Mismatch), "{formulas:?}");
    }
}
