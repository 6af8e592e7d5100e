//! Parts of a derivation as its page tells them: how each is printed, what a row is called, where its margin
//! comes from, and what must be known of the derivations that it rests on.

use super::recipe::word;
use crate::claims::Book;
use crate::claims::book::Entry;
use crate::claims::derivation::{DataSet, Derivation, Estimator, Reference};
use crate::claims::family;
use crate::claims::formula::{DEEPEST, Formula};
use crate::claims::number::{self, Style};
use crate::claims::value::{Derived, Evaluated, Number, Warning};
use crate::error::Result;
use crate::experiment::{Stage, lock};
use std::collections::BTreeSet;
use std::path::Path;

/// Parts that count things: printed as whole numbers.
const COUNTS: &[&str] = &["n", "gained", "lost", "both", "neither"];

/// Whether a value is a number of things, such as tasks or rejections.
fn counts(derivation: &Derivation, row: Option<&String>, value: &Number) -> bool {
    match derivation.estimator {
        Estimator::Count | Estimator::CountDistinct | Estimator::TasksWhere | Estimator::Flips => true,
        estimator if estimator.is_family() => row.is_none(),
        _ => {
            let looked_up = [DataSet::Receipts, DataSet::Plan, DataSet::Facts].contains(&derivation.data);
            looked_up && value.get().is_some_and(|x| x.fract() == 0.0)
        }
    }
}

/// How a part of a derivation is printed where no text prints it.
pub(super) fn style(derivation: &Derivation, row: Option<&String>, part: &str, value: &Number) -> Style {
    let whole = Style { thousands: true, ..Style::plain(0) };
    if COUNTS.contains(&part) {
        return whole;
    }
    let of_tests = derivation.estimator.is_family() && row.is_none();
    let declared = derivation.format.as_deref().and_then(|f| Style::parse(f).ok()).filter(|_| !of_tests);
    match part {
        "p" | "non_inferiority_p" | "equivalence_p" => Style::p_value(4),
        "share" | "zero_share" | "rollout_share" => Style::plain(3),
        "df" => Style::plain(0),
        "se" | "mde" => Style { plus: false, ..declared.unwrap_or(Style::plain(3)) },
        "value" if counts(derivation, row, value) => declared.unwrap_or(whole),
        _ => declared.unwrap_or(Style::plain(3)),
    }
}

/// The interval as text, when the result has one: `[low, high]` at the value's precision.
pub(super) fn interval(
    derivation: &Derivation,
    row: Option<&String>,
    evaluated: &Evaluated,
) -> Option<String> {
    let end = |part: &str| {
        let value = evaluated.parts.get(part)?;
        Some(number::format(value.get()?, &style(derivation, row, part, value)))
    };
    Some(format!("[{}, {}]", end("low")?, end("high")?))
}

/// `n` with what it counts.
pub(super) fn count(evaluated: &Evaluated) -> Option<String> {
    let n = evaluated.parts.get("n")?.get()?;
    let n = number::format(n, &Style { thousands: true, ..Style::plain(0) });
    Some(format!("{n} {}", evaluated.unit).trim().to_string())
}

/// What the rows of a forest are called: derivation and row, with the scope in front where there are several.
pub(super) fn labels<'a>(rows: impl Iterator<Item = &'a Reference>) -> Vec<String> {
    let rows: Vec<&Reference> = rows.collect();
    let scopes: BTreeSet<&str> = rows.iter().map(|reference| reference.scope.as_str()).collect();
    let label = |reference: &&Reference| {
        let scope = if scopes.len() > 1 { format!("{}.", reference.scope) } else { String::new() };
        let row = reference.row.as_ref().map_or_else(String::new, |row| format!("/{row}"));
        format!("{scope}{}{row}", reference.id)
    };
    rows.iter().map(label).collect()
}

/// Whether a derivation's margin is that of its experiment's own decision, in a plan that is locked.
pub(super) fn margin_is_locked(root: &Path, entry: &Entry) -> Result<bool> {
    let derivation = &entry.derivation;
    let Some(margin) = derivation.margin.filter(|_| derivation.data == DataSet::Episodes) else {
        return Ok(false);
    };
    let lock = lock::read(&root.join("data").join(&entry.experiment), Stage::Evaluate)?;
    Ok(lock.is_some_and(|lock| {
        let decision = &lock.section["decision"];
        let metric =
            |key: &str, default: &str| decision["metric"][key].as_str().unwrap_or(default).to_string();
        decision["margin"].as_f64() == Some(margin)
            && metric("of", "reward") == derivation.of.as_deref().unwrap_or("reward")
            && metric("weight", "task") == word(&derivation.weight)
    }))
}

/// What the reader must know of a derivation: its own warnings and, of a formula or a family of tests, those of
/// the numbers that it rests on, each with the name of its derivation.
pub(super) fn warnings(book: &Book, entry: &Entry, derived: &Derived) -> Vec<Warning> {
    let mut out = derived.total.warnings.clone();
    of_parts(book, entry, DEEPEST, &mut out);
    out
}

fn of_parts(book: &Book, entry: &Entry, deeper: usize, out: &mut Vec<Warning>) {
    let derivation = &entry.derivation;
    if derivation.data != DataSet::Derivations || deeper == 0 {
        return;
    }
    let of = derivation.of.as_deref().unwrap_or_default();
    // Each reference, and whether it stands for all rows of a table.
    let named: Vec<(Reference, bool)> = if derivation.estimator.is_family() {
        let tests = family::tests(of, &entry.scope).unwrap_or_default();
        tests.into_iter().map(|test| (test.clone(), test.row.is_none())).collect()
    } else {
        let formula = Formula::parse(of, &entry.scope);
        let numbers = formula.iter().flat_map(Formula::numbers);
        numbers.map(|(reference, rows)| (reference.clone(), rows)).collect()
    };
    for (reference, rows) in named {
        let Ok(found) = book.resolve(&reference) else { continue };
        let whole = Reference { row: None, ..reference.clone() };
        // How rows were chosen is said of a table as a whole.
        let chosen = |warning: &&Warning| ["missing_rows", "mixed_events"].contains(&warning.code.as_str());
        let of_whole = found.derived.total.warnings.iter().filter(chosen).map(|warning| (&whole, warning));
        let inner = found.derived.rows.values().filter(|_| rows).chain([found.evaluated]);
        let own = inner.flat_map(|evaluated| &evaluated.warnings).map(|warning| (&reference, warning));
        for (of, warning) in of_whole.chain(own) {
            let text = format!("`{}`: {}", labels([of].into_iter()).concat(), warning.text);
            if !out.iter().any(|known| known.code == warning.code && known.text == text) {
                out.push(Warning { code: warning.code.clone(), text });
            }
        }
        of_parts(book, found.entry, deeper - 1, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Texts;
    use crate::claims::testing;

    fn printed(text: &str, row: Option<&str>, part: &str, value: f64) -> String {
        let derivation: Derivation = toml::from_str(text).unwrap();
        let value = Number::Defined(value);
        let row = row.map(str::to_string);
        number::print(&value, &style(&derivation, row.as_ref(), part, &value))
    }

    #[test]
    fn what_counts_things_is_a_whole_number() {
        let holm = "data = \"derivations\"\nestimator = \"holm\"\nof = \"delta\"";
        assert_eq!(printed(holm, None, "value", 0.0), "0");
        assert_eq!(printed(holm, Some("delta"), "value", 0.04), "0.040");
        let tasks = "data = \"episodes\"\nestimator = \"tasks_where\"\narms = [\"a\"]\nband = { above = 0 }";
        assert_eq!(printed(tasks, None, "value", 4.0), "4");
        assert_eq!(printed(tasks, None, "share", 0.5), "0.500");
        let kept = "data = \"receipts\"\nestimator = \"value\"\nof = \"harvest.kept\"";
        assert_eq!(printed(kept, None, "value", 1412.0), "1,412");
        assert_eq!(printed(kept, None, "value", 0.03), "0.030");
    }

    #[test]
    fn rows_of_a_forest_are_told_apart() {
        let named = |all: &[&str]| {
            let all: Vec<Reference> = all.iter().map(|of| Reference::parse(of).unwrap()).collect();
            labels(all.iter())
        };
        assert_eq!(named(&["C0001.delta", "C0001.by_family/gamma"]), ["delta", "by_family/gamma"]);
        assert_eq!(named(&["demo.delta", "C0001.delta"]), ["demo.delta", "C0001.delta"]);
    }

    #[test]
    fn a_formula_carries_the_warnings_of_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let declared = "[derivations.kept]\ndata = \"episodes\"\nestimator = \"sum\"\nof = \"reward\"\nnulls = \"omit\"\n\
                        [derivations.half]\ndata = \"derivations\"\nestimator = \"value\"\nof = \"kept / 2\"\n\
                        [derivations.quarter]\ndata = \"derivations\"\nestimator = \"value\"\nof = \"half / 2\"\n";
        let report = testing::report("", "").replace("+++\n\n", &format!("{declared}+++\n\n"));
        testing::write(dir.path(), &[("site/experiments/demo/report.md", &report)]);
        let mut rows = testing::two_arms();
        rows[0].reward = None;
        testing::write_rows(dir.path(), "demo", &rows);
        let book = Book::build(dir.path(), &Texts::load(dir.path()).unwrap()).unwrap();
        let entry = book.entry("demo", "quarter").unwrap();
        let found = warnings(&book, entry, entry.outcome.as_ref().unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].code == "missing_rows" && found[0].text.starts_with("`kept`: 1 of"), "{found:?}");
    }
}
