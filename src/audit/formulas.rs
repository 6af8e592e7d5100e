//! Numbers worked out from other numbers of this road: formulas, and families of tests.

use super::estimators::{Part, Parts};
use super::families;
use super::recompute::{Failure, Name, Road};
use crate::claims::derivation::{DataSet, Derivation, Reference};
use crate::claims::family;
use crate::claims::formula::{DEEPEST, Extreme, Formula, OfRows, Operator};

impl Road<'_> {
    /// p values of a family of tests, adjusted for their number; one row a test.
    pub(super) fn adjusted(
        &mut self,
        reference: &Reference,
        derivation: &Derivation,
    ) -> Result<Parts, Failure> {
        let name = (reference.scope.clone(), reference.id.clone());
        if self.under_way.contains(&name) {
            return Err(Failure::Wrong(format!("`{}` depends on itself", reference.id)));
        }
        self.not_too_deep(&name)?;
        self.under_way.push(name);
        let tests = self.tests(derivation, &reference.scope);
        self.under_way.pop();
        let tests = match tests? {
            Ok(tests) => tests,
            Err(why) => {
                let none = |part: &&'static str| (*part, Part::Undefined(why.clone()));
                return Ok(["value", "n"].iter().map(none).collect());
            }
        };
        let p: Vec<f64> = tests.iter().map(|(_, p)| *p).collect();
        let adjusted = families::adjust(derivation.estimator, &p);
        match &reference.row {
            None => Ok(Parts::from([
                ("value", Part::Number(adjusted.iter().filter(|p| **p < 0.05).count() as f64)),
                ("n", Part::Number(p.len() as f64)),
            ])),
            Some(label) => {
                let at = tests.iter().position(|(name, _)| name == label).ok_or_else(|| {
                    Failure::Wrong(format!("`{label}` is none of the tests of `{}`", reference.id))
                })?;
                let own = Part::Number(adjusted.get(at).copied().unwrap_or(1.0));
                Ok(Parts::from([("value", own), ("n", Part::Number(p.len() as f64))]))
            }
        }
    }

    /// Refuses a formula that rests on too many others in a row, in whatever order they are asked for.
    fn not_too_deep(&mut self, name: &Name) -> Result<(), Failure> {
        match self.depth(name, &mut Vec::new()) {
            Some(_) => Ok(()),
            None => {
                Err(Failure::Wrong(format!("`{}` rests on more than {DEEPEST} formulas in a row", name.1)))
            }
        }
    }

    /// The longest row of formulas from this one on, itself included; `None` beyond [`DEEPEST`]. A circle ends where it
    /// closes: working it out says so.
    fn depth(&mut self, name: &Name, before: &mut Vec<Name>) -> Option<usize> {
        if let Some(depth) = self.depths.get(name) {
            return (before.len() + depth <= DEEPEST).then_some(*depth);
        }
        let whole = Reference { scope: name.0.clone(), id: name.1.clone(), row: None, part: "value".into() };
        let Some((derivation, _)) = self.declaration(&whole) else { return Some(0) };
        if derivation.data != DataSet::Derivations || before.contains(name) {
            return Some(0);
        }
        if before.len() >= DEEPEST {
            return None;
        }
        let formula = Formula::parse(derivation.of.as_deref().unwrap_or(""), &name.0).ok();
        let mut parts: Vec<Reference> = formula.iter().flat_map(Formula::references).cloned().collect();
        parts.extend(families::named(derivation, &name.0));
        before.push(name.clone());
        let mut deepest = Some(0);
        for part in parts {
            let below = self.depth(&(part.scope, part.id), before);
            deepest = deepest.and_then(|deepest: usize| Some(deepest.max(below?)));
            if deepest.is_none() {
                break;
            }
        }
        before.pop();
        let depth = deepest? + 1;
        self.depths.insert(name.clone(), depth);
        Some(depth)
    }

    /// The tests of a family by label, each with its own p value; or why one has none.
    fn tests(
        &mut self,
        derivation: &Derivation,
        scope: &str,
    ) -> Result<Result<Vec<(String, f64)>, String>, Failure> {
        let mut tests = Vec::new();
        for named in families::named(derivation, scope) {
            for one in self.tests_of(&named)? {
                match self.work_out(&Formula::Of(one.clone()))? {
                    Ok(_) if tests.iter().any(|(label, _)| *label == family::label(&one, scope)) => {
                        let label = family::label(&one, scope);
                        return Err(Failure::Wrong(format!("the test `{label}` stands there twice")));
                    }
                    Ok(p) => tests.push((family::label(&one, scope), p)),
                    Err(why) => return Ok(Err(format!("`{}`: {why}", family::label(&one, scope)))),
                }
            }
        }
        Ok(Ok(tests))
    }

    /// A formula over other numbers of this road.
    pub(super) fn formula(
        &mut self,
        reference: &Reference,
        derivation: &Derivation,
    ) -> Result<Parts, Failure> {
        let name = (reference.scope.clone(), reference.id.clone());
        if reference.row.is_some() {
            return Err(Failure::Wrong(format!("`{}` has no rows: it is a formula", reference.id)));
        }
        if self.under_way.contains(&name) {
            return Err(Failure::Wrong(format!("`{}` depends on itself", reference.id)));
        }
        self.not_too_deep(&name)?;
        let of = derivation.of.as_deref().unwrap_or("");
        let formula = Formula::parse(of, &reference.scope).map_err(|e| Failure::Wrong(e.to_string()))?;
        self.under_way.push(name);
        let value = self.work_out(&formula);
        self.under_way.pop();
        let part = match value? {
            Ok(x) if x.is_finite() => Part::Number(x),
            Ok(_) => Part::Undefined("it is too large to be a number".into()),
            Err(why) => Part::Undefined(why),
        };
        Ok(Parts::from([("value", part)]))
    }

    /// The number of a formula, or why it is undefined.
    fn work_out(&mut self, formula: &Formula) -> Result<Result<f64, String>, Failure> {
        Ok(match formula {
            Formula::Number(x) => Ok(*x),
            Formula::Of(reference) => match self.part(reference)? {
                Part::Number(x) => Ok(x),
                Part::Undefined(why) => Err(why),
                Part::Within { .. } => {
                    let why =
                        format!("`{reference}` is a Monte-Carlo estimate, which a formula does not bound");
                    return Err(Failure::Unverifiable(why));
                }
            },
            Formula::Rows(of, table) => {
                let mut column = Vec::new();
                for label in self.labels(table)? {
                    let cell = Reference { row: Some(label), ..table.clone() };
                    match self.work_out(&Formula::Of(cell))? {
                        Ok(x) => column.push(x),
                        Err(why) => return Ok(Err(why)),
                    }
                }
                column.sort_by(f64::total_cmp);
                match (column.first(), column.last()) {
                    (Some(low), Some(high)) => Ok(match of {
                        OfRows::Least => *low,
                        OfRows::Greatest => *high,
                        OfRows::Range => high - low,
                        OfRows::Mean => column.iter().sum::<f64>() / column.len() as f64,
                        OfRows::Count => column.len() as f64,
                    }),
                    _ => Err("the table has no row".into()),
                }
            }
            Formula::Absolute(inner) => self.work_out(inner)?.map(f64::abs),
            Formula::Extreme(which, all) => {
                let mut found = Vec::new();
                for one in all {
                    match self.work_out(one)? {
                        Ok(x) => found.push(x),
                        Err(why) => return Ok(Err(why)),
                    }
                }
                found.sort_by(f64::total_cmp);
                let end = if *which == Extreme::Least { found.first() } else { found.last() };
                end.copied().ok_or_else(|| "there is nothing to choose from".to_owned())
            }
            Formula::Two(operator, left, right) => match (self.work_out(left)?, self.work_out(right)?) {
                (Ok(a), Ok(b)) => match operator {
                    Operator::Plus => Ok(a + b),
                    Operator::Minus => Ok(a - b),
                    Operator::Times => Ok(a * b),
                    Operator::Over if b == 0.0 => Err("it is divided by zero".into()),
                    Operator::Over => Ok(a / b),
                },
                (Err(why), _) | (_, Err(why)) => Err(why),
            },
        })
    }

    /// The tests that a name in a family stands for: all rows of a table, or itself.
    fn tests_of(&mut self, named: &Reference) -> Result<Vec<Reference>, Failure> {
        match self.declaration(named) {
            Some((of, _)) if of.by.is_some() && named.row.is_none() => {
                let labels = self.labels(named)?.into_iter();
                Ok(labels.map(|label| Reference { row: Some(label), ..named.clone() }).collect())
            }
            _ => Ok(vec![named.clone()]),
        }
    }

    /// As above; none where they cannot be found.
    pub fn rows_of(&mut self, named: &Reference) -> Vec<Reference> {
        self.tests_of(named).unwrap_or_default()
    }
}
