//! `audit --sql`: one DuckDB query for each derivation of a workspace. Rows are read from the workspace's own Parquet files, by
//! paths that hold where DuckDB is started in its root; what a formula names that is no row (a bar of the plan, a value of a
//! receipt, a fact) stands in it as a number, with a remark where it is from.

use super::sql::derivation_sql;
use crate::claims::Book;
use crate::claims::book::Entry;
use crate::claims::derivation::{DataSet, Derivation, Reference};
use crate::claims::formula::{Extreme, Formula, OfRows, Operator};
use crate::claims::value::Number;

/// The queries of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queries {
    /// `<scope>.<id>` and its query.
    pub written: Vec<(String, String)>,
    /// `<scope>.<id>` of derivations without one, and why.
    pub without: Vec<(String, &'static str)>,
}

/// The query of every derivation of the book.
pub fn of_book(book: &Book) -> Queries {
    let mut out = Queries::default();
    for entry in book.entries() {
        let name = format!("{}.{}", entry.scope, entry.id);
        match of_entry(book, entry) {
            Ok(query) => out.written.push((name, query)),
            Err(why) => out.without.push((name, why)),
        }
    }
    out
}

fn of_entry(book: &Book, entry: &Entry) -> Result<String, &'static str> {
    let Ok(derived) = &entry.outcome else { return Err("it cannot be computed as declared") };
    match entry.derivation.data {
        DataSet::Plan | DataSet::Receipts | DataSet::Facts => Err("it is a single value and no row"),
        DataSet::Derivations => {
            let of = entry.derivation.of.as_deref().unwrap_or_default();
            let formula = Formula::parse(of, &entry.scope).map_err(|_| "it is no formula")?;
            let value =
                expression(book, &formula).ok_or("it rests on an interval, or on rows that are not there")?;
            Ok(format!("SELECT NULL AS label, {value} AS value"))
        }
        _ if derived.sources.is_empty() => Err("there are no rows yet"),
        _ => rows(entry, &entry.derivation).ok_or("it averages several arms"),
    }
}

/// The query over an entry's files.
fn rows(entry: &Entry, derivation: &Derivation) -> Option<String> {
    let derived = entry.outcome.as_ref().ok()?;
    let files: Vec<String> = derived.sources.iter().map(|source| source.path.clone()).collect();
    derivation_sql(derivation, &files)
}

/// Parts that a query gives as the derivation does; its interval may be the bootstrap's, which SQL does not draw.
const PARTS: [&str; 8] = ["value", "n", "se", "df", "gained", "lost", "both", "neither"];

/// A number as an SQL expression.
fn number(book: &Book, reference: &Reference) -> Option<String> {
    let entry = book.entry(&reference.scope, &reference.id)?;
    match entry.derivation.data {
        DataSet::Plan | DataSet::Receipts | DataSet::Facts => {
            let Number::Defined(x) = book.resolve(reference).ok()?.number else { return None };
            let from = entry.derivation.of.as_deref().unwrap_or_default().replace("*/", "* /");
            Some(format!("CAST('{x:e}' AS DOUBLE) /* {from} */"))
        }
        DataSet::Derivations => {
            let of = entry.derivation.of.as_deref()?;
            expression(book, &Formula::parse(of, &reference.scope).ok()?)
        }
        _ if !PARTS.contains(&reference.part.as_str()) => None,
        _ => {
            // The whole is over all rows, those of a table and those without a label.
            let whole = Derivation {
                by: entry.derivation.by.clone().filter(|_| reference.row.is_some()),
                ..entry.derivation.clone()
            };
            let label = match &reference.row {
                Some(label) => format!("label = '{}'", label.replace('\'', "''")),
                None => "label IS NULL".into(),
            };
            Some(format!("(SELECT \"{}\" FROM (\n{}\n) WHERE {label})", reference.part, rows(entry, &whole)?))
        }
    }
}

fn expression(book: &Book, formula: &Formula) -> Option<String> {
    Some(match formula {
        Formula::Number(x) => format!("CAST('{x:e}' AS DOUBLE)"),
        Formula::Of(reference) => number(book, reference)?,
        Formula::Absolute(inner) => format!("abs({})", expression(book, inner)?),
        Formula::Extreme(which, all) => {
            let all: Option<Vec<String>> = all.iter().map(|one| expression(book, one)).collect();
            let function = if *which == Extreme::Least { "list_min" } else { "list_max" };
            format!("{function}([{}])", all?.join(", "))
        }
        Formula::Two(operator, left, right) => {
            let (left, right) = (expression(book, left)?, expression(book, right)?);
            match operator {
                Operator::Plus => format!("({left} + {right})"),
                Operator::Minus => format!("({left} - {right})"),
                Operator::Times => format!("({left} * {right})"),
                Operator::Over => format!("({left} / nullif({right}, 0))"),
            }
        }
        Formula::Rows(of, table) => {
            let entry = book.entry(&table.scope, &table.id)?;
            let part = PARTS.contains(&table.part.as_str()).then_some(table.part.as_str())?;
            let what = match of {
                OfRows::Least => format!("min(\"{part}\")"),
                OfRows::Greatest => format!("max(\"{part}\")"),
                OfRows::Range => format!("max(\"{part}\") - min(\"{part}\")"),
                OfRows::Mean => format!("avg(CAST(\"{part}\" AS DOUBLE))"),
                OfRows::Count => "count(*)".into(),
            };
            // A row without a number leaves nothing to say of all of them.
            let whole = format!("CASE WHEN count(*) = count(\"{part}\") THEN {what} END");
            format!("(SELECT {whole} FROM (\n{}\n) WHERE label IS NOT NULL)", rows(entry, &entry.derivation)?)
        }
    })
}
