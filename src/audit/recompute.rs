//! Finds the declaration behind a reference, walks the rows it is about, and keeps what was
//! recomputed, so that a number printed ten times is walked once.

use super::estimators::{self, Part, Parts};
use super::lookup;
use super::sheet::{self, Sheet};
use super::walk::{Attempt, walk};
use crate::claims::derivation::{DataSet, Derivation, Estimator, Reference};
use crate::claims::formula::{Extreme, Formula, OfRows, Operator};
use crate::claims::texts::Texts;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;

/// Why a reference has no recomputed number.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// What is printed refers to nothing: a mismatch.
    Wrong(String),
    /// The rows do not let this road compute it.
    Unverifiable(String),
}

/// Scope and id of a declaration.
type Name = (String, String);

/// A declaration, or one row of its table.
type Group = (Name, Option<String>);

/// The second road: declarations, sheets and what was recomputed so far.
pub struct Road<'a> {
    workspace: &'a Path,
    texts: &'a Texts,
    sheets: &'a BTreeMap<(String, DataSet), Sheet>,
    walked: HashMap<Name, Result<Rc<Vec<Attempt>>, String>>,
    computed: HashMap<Group, Result<Rc<Parts>, Failure>>,
    /// Formulas that are being worked out.
    under_way: Vec<Name>,
}

impl<'a> Road<'a> {
    /// A road over sheets that were read already.
    pub fn new(
        workspace: &'a Path,
        texts: &'a Texts,
        sheets: &'a BTreeMap<(String, DataSet), Sheet>,
    ) -> Self {
        Road {
            workspace,
            texts,
            sheets,
            walked: HashMap::new(),
            computed: HashMap::new(),
            under_way: Vec::new(),
        }
    }

    /// The declaration of a reference and the experiment whose data it reads.
    pub fn declaration(&self, reference: &Reference) -> Option<(&'a Derivation, &'a str)> {
        if let Some(experiment) = self.texts.experiments.get(&reference.scope) {
            let derivation = experiment.report.front.derivations.get(&reference.id)?;
            return Some((derivation, derivation.experiment.as_deref().unwrap_or(&experiment.slug)));
        }
        let claim = self.texts.claims.iter().find(|claim| claim.id == reference.scope)?;
        let derivation = claim.derivations.get(&reference.id)?;
        Some((derivation, derivation.experiment.as_deref()?))
    }

    /// Whether a number is a cited fact, or worked out from one.
    pub fn rests_on_facts(&self, reference: &Reference) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), vec![reference.clone()]);
        while let Some(reference) = next.pop() {
            if !seen.insert((reference.scope.clone(), reference.id.clone())) {
                continue;
            }
            match self.declaration(&reference).map(|(derivation, _)| derivation) {
                Some(derivation) if derivation.data == DataSet::Facts => return true,
                Some(derivation) if derivation.data == DataSet::Derivations => {
                    let formula = Formula::parse(derivation.of.as_deref().unwrap_or(""), &reference.scope);
                    next.extend(formula.iter().flat_map(Formula::references).cloned());
                }
                _ => {}
            }
        }
        false
    }

    /// Recomputes the number behind a reference from the rows.
    pub fn part(&mut self, reference: &Reference) -> Result<Part, Failure> {
        let Some((derivation, slug)) = self.declaration(reference) else {
            return Err(Failure::Wrong(format!(
                "nothing declares `{}` in `{}`",
                reference.id, reference.scope
            )));
        };
        let key = ((reference.scope.clone(), reference.id.clone()), reference.row.clone());
        let parts = match self.computed.get(&key) {
            Some(parts) => parts.clone(),
            None => {
                let parts = self.compute(reference, derivation, slug).map(Rc::new);
                self.computed.insert(key, parts.clone());
                parts
            }
        }?;
        parts.get(reference.part.as_str()).cloned().ok_or_else(|| {
            Failure::Wrong(format!("{:?} has no part `{}`", derivation.estimator, reference.part))
        })
    }

    fn compute(
        &mut self,
        reference: &Reference,
        derivation: &Derivation,
        slug: &str,
    ) -> Result<Parts, Failure> {
        if derivation.data == DataSet::Derivations {
            return self.formula(reference, derivation);
        }
        if sheet::folder(derivation.data).is_none() || derivation.estimator == Estimator::Value {
            let of = derivation.of.as_deref().unwrap_or("");
            if reference.row.is_some() || derivation.estimator != Estimator::Value {
                return Err(Failure::Wrong(
                    "plan, receipts and facts hold single values (`estimator = \"value\"`)".into(),
                ));
            }
            let value = lookup::value(self.workspace, slug, derivation.data, of).map_err(Failure::Wrong)?;
            return Ok(Parts::from([("value", value)]));
        }
        let Some(sheet) = self.sheets.get(&(slug.to_string(), derivation.data)) else {
            return Err(Failure::Wrong(format!("there is no `data/{slug}`")));
        };
        if sheet.unreadable.is_empty()
            && let Some(why) = self.pending(sheet, derivation, slug)?
        {
            let none =
                estimators::part_names(derivation).iter().map(|part| (*part, Part::Undefined(why.clone())));
            return Ok(none.collect());
        }
        let attempts = self.attempts(reference, derivation, sheet).map_err(Failure::Unverifiable)?;
        let group: Vec<&Attempt> = match &reference.row {
            None => attempts.iter().collect(),
            Some(label) => {
                if derivation.by.is_none() {
                    return Err(Failure::Wrong(format!(
                        "`{}` has no rows: it declares no `by`",
                        reference.id
                    )));
                }
                let group: Vec<&Attempt> =
                    attempts.iter().filter(|a| a.label.as_ref() == Some(label)).collect();
                if group.is_empty() {
                    let column = derivation.by.as_deref().unwrap_or("");
                    return Err(Failure::Wrong(format!("no row has `{label}` in `{column}`")));
                }
                group
            }
        };
        estimators::compute(derivation, &group, &reference.key_text()).map_err(Failure::Unverifiable)
    }

    /// A formula over other numbers of this road.
    fn formula(&mut self, reference: &Reference, derivation: &Derivation) -> Result<Parts, Failure> {
        let name = (reference.scope.clone(), reference.id.clone());
        if reference.row.is_some() {
            return Err(Failure::Wrong(format!("`{}` has no rows: it is a formula", reference.id)));
        }
        if self.under_way.contains(&name) {
            return Err(Failure::Wrong(format!("`{}` depends on itself", reference.id)));
        }
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

    /// The row labels of a table; none while there are no rows.
    fn labels(&mut self, table: &Reference) -> Result<BTreeSet<String>, Failure> {
        let Some((derivation, slug)) = self.declaration(table) else {
            return Err(Failure::Wrong(format!("nothing declares `{}` in `{}`", table.id, table.scope)));
        };
        let Some(sheet) = self.sheets.get(&(slug.to_string(), derivation.data)) else {
            return Err(Failure::Wrong(format!("`{}` is no table", table.id)));
        };
        if derivation.by.is_none() {
            return Err(Failure::Wrong(format!("`{}` has no rows: it declares no `by`", table.id)));
        }
        let attempts = self.attempts(table, derivation, sheet).map_err(Failure::Unverifiable)?;
        Ok(attempts.iter().filter_map(|a| a.label.clone()).collect())
    }

    /// Why nothing can be said yet: no rows at all, or none of an arm that the plan names.
    fn pending(&self, sheet: &Sheet, derivation: &Derivation, slug: &str) -> Result<Option<String>, Failure> {
        let empty = sheet.rows().next().is_none();
        let has_rows = |arm: &String| sheet.rows().any(|(_, _, row)| sheet.text(row, "arm") == arm.as_str());
        if let Some(missing) = derivation.arms.iter().find(|arm| !has_rows(arm)) {
            let plan = lookup::toml_file(self.workspace, &format!("data/{slug}/experiment.toml"))
                .unwrap_or_default();
            let arms = plan.get("arms").and_then(|arms| arms.as_array());
            let mut names = arms.into_iter().flatten().filter_map(|arm| arm.get("name")?.as_str());
            let known = names.any(|name| name == missing.as_str());
            if !known && (!empty || arms.is_some()) {
                return Err(Failure::Wrong(format!("there is no arm `{missing}`")));
            }
            return Ok(Some(format!("no rows of arm `{missing}` yet")));
        }
        Ok(empty.then(|| "no rows yet".into()))
    }

    fn attempts(
        &mut self,
        reference: &Reference,
        derivation: &Derivation,
        sheet: &Sheet,
    ) -> Result<Rc<Vec<Attempt>>, String> {
        let key = (reference.scope.clone(), reference.id.clone());
        let walked = self.walked.entry(key).or_insert_with(|| walk(sheet, derivation).map(Rc::new));
        walked.clone()
    }
}
