//! Derivations that are formulas over others: worked out after those, each once, in whatever order the texts declare them.

use super::book::Book;
use super::derivation::{DataSet, Estimator, Reference};
use super::family;
use super::formula::{DEEPEST, Extreme, Formula, OfRows, Operator};
use super::value::{Derived, Evaluated, Number, Source};
use crate::error::{Error, Problem, Result};
use crate::stats::multiple;
use std::collections::{BTreeMap, BTreeSet};

/// Scope and id.
type Name = (String, String);

/// What stands for a formula until it is worked out.
pub(super) fn waiting() -> Derived {
    derived(Number::Undefined("not worked out".into()), Vec::new())
}

fn derived(value: Number, sources: Vec<Source>) -> Derived {
    let parts = BTreeMap::from([("value".to_owned(), value)]);
    let total = Evaluated { parts, method: None, level: None, unit: "numbers".into(), warnings: Vec::new() };
    Derived { total, rows: BTreeMap::new(), sources }
}

/// Works out every formula of the book.
pub(super) fn all(book: &mut Book) {
    let is_formula = |e: &&super::book::Entry| e.derivation.data == DataSet::Derivations && e.outcome.is_ok();
    let formulas: Vec<Name> =
        book.entries().filter(is_formula).map(|e| (e.scope.clone(), e.id.clone())).collect();
    let mut left: BTreeSet<Name> = formulas.iter().cloned().collect();
    let mut known = BTreeMap::new();
    for name in formulas {
        if steps(book, &name, &mut Vec::new(), &mut known).is_some() {
            work_out(book, &name, &mut left, &mut Vec::new());
        } else if let Some(entry) = book.entry_mut(&name.0, &name.1) {
            left.remove(&name);
            entry.outcome = Err(Problem {
                what: format!("rests on more than {DEEPEST} formulas in a row"),
                place: Some("of".into()),
                remedy: Some("write it in fewer steps".into()),
            });
        }
    }
}

/// How many formulas stand in a row from this one on, itself included; `None` where they are more than [`DEEPEST`]. What leads back
/// to a formula under way is told when it is worked out.
fn steps(
    book: &Book,
    name: &Name,
    under_way: &mut Vec<Name>,
    known: &mut BTreeMap<Name, usize>,
) -> Option<usize> {
    let Some(entry) = book.entry(&name.0, &name.1) else { return Some(0) };
    if entry.derivation.data != DataSet::Derivations || under_way.contains(name) {
        return Some(0);
    }
    let within = |steps: usize, before: usize| (before + steps <= DEEPEST).then_some(steps);
    if let Some(steps) = known.get(name) {
        return within(*steps, under_way.len());
    }
    within(1, under_way.len())?;
    let of = entry.derivation.of.clone().unwrap_or_default();
    let Ok(named) = named(entry.derivation.estimator, &of, &name.0) else { return Some(1) };
    under_way.push(name.clone());
    let mut longest = Some(0);
    for reference in named.references() {
        let inner = (reference.scope.clone(), reference.id.clone());
        let steps = steps(book, &inner, under_way, known);
        longest = longest.zip(steps).map(|(a, b)| a.max(b));
        if longest.is_none() {
            break;
        }
    }
    under_way.pop();
    let steps = longest? + 1;
    known.insert(name.clone(), steps);
    Some(steps)
}

/// Works out one formula after those that it names; `under_way` are the formulas that wait for it.
fn work_out(book: &mut Book, name: &Name, left: &mut BTreeSet<Name>, under_way: &mut Vec<Name>) {
    if !left.contains(name) {
        return;
    }
    let Some(entry) = book.entry(&name.0, &name.1) else { return };
    let of = entry.derivation.of.clone().unwrap_or_default();
    under_way.push(name.clone());
    let estimator = entry.derivation.estimator;
    let named = named(estimator, &of, &name.0).and_then(|named| {
        for reference in named.references() {
            let inner = (reference.scope.clone(), reference.id.clone());
            if under_way.contains(&inner) {
                let circle: Vec<&str> = under_way.iter().map(|(_, id)| id.as_str()).collect();
                return Err(Error::invalid(format!(
                    "depends on itself: {} → {}",
                    circle.join(" → "),
                    inner.1
                ))
                .hint("a formula may name only what can be worked out before it"));
            }
            work_out(book, &inner, left, under_way);
        }
        Ok(named)
    });
    under_way.pop();
    left.remove(name);
    let outcome = named.and_then(|named| {
        let mut derived = match &named {
            Named::Formula(formula) => derived(value(book, formula)?, Vec::new()),
            Named::Tests(tests) => adjusted(book, estimator, tests, &name.0)?,
        };
        let mut sources = Vec::new();
        let mut train_seeds = BTreeSet::new();
        for reference in named.references() {
            let from = book.resolve(reference)?;
            train_seeds.extend(&from.entry.train_seeds);
            for source in &from.derived.sources {
                if !sources.contains(source) {
                    sources.push(source.clone());
                }
            }
        }
        derived.sources = sources;
        Ok((derived, train_seeds))
    });
    let Some(entry) = book.entry_mut(&name.0, &name.1) else { return };
    match outcome {
        Ok((derived, train_seeds)) => (entry.outcome, entry.train_seeds) = (Ok(derived), train_seeds),
        Err(Error::Invalid(problem) | Error::Refused(problem)) => entry.outcome = Err(*problem),
        Err(other) => {
            entry.outcome = Err(Problem { what: other.to_string(), place: Some("of".into()), remedy: None });
        }
    }
}

/// The numbers over rows, receipts, plan or facts that a number rests on, formulas and families of tests followed to
/// their ends: itself where it is none of these.
pub(super) fn leaves(book: &Book, reference: &Reference) -> Vec<Reference> {
    let (mut leaves, mut seen, mut next) = (Vec::new(), BTreeSet::new(), vec![reference.clone()]);
    while let Some(reference) = next.pop() {
        if !seen.insert(reference.clone()) {
            continue;
        }
        match book.entry(&reference.scope, &reference.id) {
            Some(entry) if entry.derivation.data == DataSet::Derivations => {
                let of = entry.derivation.of.as_deref().unwrap_or_default();
                let named = named(entry.derivation.estimator, of, &reference.scope);
                next.extend(named.iter().flat_map(Named::references).cloned());
            }
            _ => leaves.push(reference),
        }
    }
    leaves.sort();
    leaves
}

/// What a derivation over derivations names.
enum Named {
    Formula(Formula),
    Tests(Vec<Reference>),
}

impl Named {
    fn references(&self) -> Vec<&Reference> {
        match self {
            Named::Formula(formula) => formula.references(),
            Named::Tests(tests) => tests.iter().collect(),
        }
    }
}

fn named(estimator: Estimator, of: &str, scope: &str) -> Result<Named> {
    match estimator {
        Estimator::Holm | Estimator::BenjaminiHochberg => family::tests(of, scope).map(Named::Tests),
        _ => Formula::parse(of, scope).map(Named::Formula),
    }
}

/// A family of tests: one row a test with its adjusted p value, and how many lie below .05. Undefined where a test has none.
fn adjusted(book: &Book, estimator: Estimator, tests: &[Reference], scope: &str) -> Result<Derived> {
    let mut labels = Vec::new();
    let mut p = Vec::new();
    let mut missing = None;
    for test in tests {
        let whole = book.resolve(test)?;
        let of_rows = whole.entry.derivation.by.is_some() && test.row.is_none();
        let rows: Vec<Option<String>> = match of_rows {
            true => whole.derived.rows.keys().cloned().map(Some).collect(),
            false => vec![test.row.clone()],
        };
        for row in rows {
            let one = Reference { row, ..test.clone() };
            let label = family::label(&one, scope);
            match book.resolve(&one)?.number {
                Number::Defined(x) => p.push(*x),
                Number::Undefined(why) => missing = missing.or_else(|| Some(format!("`{label}`: {why}"))),
            }
            if labels.contains(&label) {
                return Err(Error::invalid(format!("the test `{label}` stands there twice"))
                    .hint("name a table, or rows of it"));
            }
            labels.push(label);
        }
        if let (true, Number::Undefined(why)) = (of_rows && whole.derived.rows.is_empty(), whole.number) {
            missing = missing.or_else(|| Some(why.clone()));
        }
    }
    let parts = |value: Number, n: Number| {
        let parts = BTreeMap::from([("value".to_owned(), value), ("n".to_owned(), n)]);
        Evaluated { parts, method: None, level: None, unit: "tests".into(), warnings: Vec::new() }
    };
    if let Some(why) = missing {
        let none = || Number::Undefined(why.clone());
        let rows = labels.into_iter().map(|label| (label, parts(none(), none()))).collect();
        return Ok(Derived { total: parts(none(), none()), rows, sources: Vec::new() });
    }
    let n = || Number::Defined(p.len() as f64);
    let adjusted = match estimator {
        Estimator::Holm => multiple::holm(&p),
        _ => multiple::benjamini_hochberg(&p),
    };
    let below = adjusted.iter().filter(|p| **p < 0.05).count();
    let rows =
        labels.into_iter().zip(adjusted).map(|(label, p)| (label, parts(Number::Defined(p), n()))).collect();
    Ok(Derived { total: parts(Number::Defined(below as f64), n()), rows, sources: Vec::new() })
}

/// The number of a formula; undefined where a part is, with that part's reason.
fn value(book: &Book, formula: &Formula) -> Result<Number> {
    let both = |a: &Formula, b: &Formula| -> Result<std::result::Result<(f64, f64), Number>> {
        Ok(match (value(book, a)?, value(book, b)?) {
            (Number::Defined(a), Number::Defined(b)) => Ok((a, b)),
            (Number::Defined(_), undefined) | (undefined, _) => Err(undefined),
        })
    };
    let number = match formula {
        Formula::Number(x) => Number::Defined(*x),
        Formula::Of(reference) => book.resolve(reference)?.number.clone(),
        Formula::Rows(of, table) => of_rows(book, *of, table)?,
        Formula::Absolute(inner) => match value(book, inner)? {
            Number::Defined(x) => Number::Defined(x.abs()),
            undefined => undefined,
        },
        Formula::Extreme(extreme, all) => {
            let mut found: Option<f64> = None;
            for formula in all {
                match value(book, formula)? {
                    Number::Defined(x) => {
                        found = Some(match extreme {
                            Extreme::Least => found.map_or(x, |y| y.min(x)),
                            Extreme::Greatest => found.map_or(x, |y| y.max(x)),
                        });
                    }
                    undefined => return Ok(undefined),
                }
            }
            found.map_or(Number::Undefined("nothing to choose from".into()), Number::Defined)
        }
        Formula::Two(operator, a, b) => match both(a, b)? {
            Err(undefined) => undefined,
            Ok((_, 0.0)) if *operator == Operator::Over => Number::Undefined("divided by zero".into()),
            Ok((a, b)) => Number::Defined(match operator {
                Operator::Plus => a + b,
                Operator::Minus => a - b,
                Operator::Times => a * b,
                Operator::Over => a / b,
            }),
        },
    };
    Ok(match number {
        Number::Defined(x) if !x.is_finite() => Number::Undefined("too large to be a number".into()),
        number => number,
    })
}

fn of_rows(book: &Book, of: OfRows, table: &Reference) -> Result<Number> {
    let resolved = book.resolve(table)?;
    if resolved.entry.derivation.by.is_none() {
        return Err(Error::invalid(format!("`{}` has no rows, since it declares no `by`", table.id))
            .hint("name a derivation with `by`, such as `by = \"seed\"`"));
    }
    if resolved.derived.rows.is_empty() {
        return Ok(match resolved.number {
            Number::Undefined(why) => Number::Undefined(why.clone()),
            Number::Defined(_) => Number::Undefined("the table has no row".into()),
        });
    }
    let mut numbers = Vec::new();
    for label in resolved.derived.rows.keys() {
        match book.resolve(&Reference { row: Some(label.clone()), ..table.clone() })?.number {
            Number::Defined(x) => numbers.push(*x),
            Number::Undefined(why) => return Ok(Number::Undefined(format!("row `{label}`: {why}"))),
        }
    }
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok(Number::Defined(match of {
        OfRows::Least => least,
        OfRows::Greatest => greatest,
        OfRows::Range => greatest - least,
        OfRows::Mean => numbers.iter().sum::<f64>() / numbers.len() as f64,
        OfRows::Count => numbers.len() as f64,
    }))
}
