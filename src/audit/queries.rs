//! `audit --sql`: one DuckDB query for each derivation of a workspace. Rows are read from the workspace's own Parquet files, by
//! paths that hold where DuckDB is started in its root; what a formula names that is no row (a bar of the plan, a value of a
//! receipt, a fact) stands in it as a number, with a remark where it is from.

use super::sql::derivation_sql;
use crate::claims::derivation::{DataSet, Derivation, Estimator, Reference};
use crate::claims::formula::{Extreme, Formula, OfRows, Operator};
use std::collections::BTreeMap;

/// The queries of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queries {
    /// `<scope>.<id>` and its query.
    pub written: Vec<(String, String)>,
    /// `<scope>.<id>` of derivations without one, and why.
    pub without: Vec<(String, &'static str)>,
}

/// The derivations of a workspace, by scope and id.
pub struct Declared<'a> {
    /// Each with the files that it reads; `None` where it cannot be computed as declared.
    pub derivations: BTreeMap<(String, String), (&'a Derivation, Option<Vec<String>>)>,
    /// The number at an address, for what is no row.
    pub number: &'a dyn Fn(&Reference) -> Option<f64>,
}

/// The query of every derivation.
pub fn of(declared: &Declared) -> Queries {
    let mut out = Queries::default();
    for (scope, id) in declared.derivations.keys() {
        let name = format!("{scope}.{id}");
        match one(declared, scope, id) {
            Ok(query) => out.written.push((name, query)),
            Err(why) => out.without.push((name, why)),
        }
    }
    out
}

fn one(declared: &Declared, scope: &str, id: &str) -> Result<String, &'static str> {
    let found = declared.derivations.get(&(scope.to_owned(), id.to_owned()));
    let Some((derivation, Some(files))) = found else { return Err("it cannot be computed as declared") };
    match derivation.data {
        DataSet::Plan | DataSet::Receipts | DataSet::Facts => Err("it is a single value and no row"),
        DataSet::Derivations if derivation.estimator != Estimator::Value => {
            Err("it adjusts p values, which SQL does not have")
        }
        DataSet::Derivations => {
            let of = derivation.of.as_deref().unwrap_or_default();
            let formula = Formula::parse(of, scope).map_err(|_| "it is no formula")?;
            let value = expression(declared, &formula)
                .ok_or("it rests on an interval, or on rows that are not there")?;
            Ok(format!("SELECT NULL AS label, {value} AS value"))
        }
        _ if files.is_empty() => Err("there are no rows yet"),
        _ => derivation_sql(derivation, files).ok_or("it averages several arms"),
    }
}

/// Parts that a query gives as the derivation does; its interval may be the bootstrap's, which SQL does not draw.
const PARTS: [&str; 10] =
    ["value", "n", "se", "df", "gained", "lost", "both", "neither", "share", "zero_share"];

/// A number as an SQL expression.
fn number(declared: &Declared, reference: &Reference) -> Option<String> {
    let (derivation, files) = declared.derivations.get(&(reference.scope.clone(), reference.id.clone()))?;
    match derivation.data {
        DataSet::Plan | DataSet::Receipts | DataSet::Facts => {
            let x = (declared.number)(reference)?;
            let from = derivation.of.as_deref().unwrap_or_default().replace("*/", "* /");
            Some(format!("CAST('{x:e}' AS DOUBLE) /* {from} */"))
        }
        DataSet::Derivations if derivation.estimator != Estimator::Value => None,
        DataSet::Derivations => {
            expression(declared, &Formula::parse(derivation.of.as_deref()?, &reference.scope).ok()?)
        }
        _ if !PARTS.contains(&reference.part.as_str()) => None,
        _ => {
            // The whole is over all rows, those of a table and those without a label.
            let by = derivation.by.clone().filter(|_| reference.row.is_some());
            let query = derivation_sql(&Derivation { by, ..(*derivation).clone() }, files.as_ref()?)?;
            let label = match &reference.row {
                Some(label) => format!("label = '{}'", label.replace('\'', "''")),
                None => "label IS NULL".into(),
            };
            Some(format!("(SELECT \"{}\" FROM (\n{query}\n) WHERE {label})", reference.part))
        }
    }
}

/// Longest text of a query: formulas over formulas double it at every step.
const LONGEST: usize = 1 << 18;

fn expression(declared: &Declared, formula: &Formula) -> Option<String> {
    let text = match formula {
        Formula::Number(x) => format!("CAST('{x:e}' AS DOUBLE)"),
        Formula::Of(reference) => number(declared, reference)?,
        Formula::Absolute(inner) => format!("abs({})", expression(declared, inner)?),
        Formula::Extreme(which, all) => {
            let all: Option<Vec<String>> = all.iter().map(|one| expression(declared, one)).collect();
            let function = if *which == Extreme::Least { "list_min" } else { "list_max" };
            format!("{function}([{}])", all?.join(", "))
        }
        Formula::Two(operator, left, right) => {
            let (left, right) = (expression(declared, left)?, expression(declared, right)?);
            match operator {
                Operator::Plus => format!("({left} + {right})"),
                Operator::Minus => format!("({left} - {right})"),
                Operator::Times => format!("({left} * {right})"),
                Operator::Over => format!("({left} / nullif({right}, 0))"),
            }
        }
        Formula::Rows(of, table) => {
            let (derivation, files) = declared.derivations.get(&(table.scope.clone(), table.id.clone()))?;
            let query = derivation_sql(derivation, files.as_ref()?)?;
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
            format!("(SELECT {whole} FROM (\n{query}\n) WHERE label IS NOT NULL)")
        }
    };
    (text.len() <= LONGEST).then_some(text)
}
