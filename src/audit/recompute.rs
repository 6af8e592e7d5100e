//! Finds the declaration behind a reference and keeps what was recomputed. All numbers that anything asks for are gathered
//! first, so that each declaration's rows are walked once, on all cores, and let go again.

use super::estimators::{self, Part, Parts};
use super::families;
use super::lookup;
use super::sheet::{self, Sheet};
use super::walk::{self, Attempt, walk};
use crate::claims::declare;
use crate::claims::derivation::{DataSet, Derivation, Estimator, Reference};
use crate::claims::formula::Formula;
use crate::claims::texts::Texts;
use crate::error::misspelt;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Why a reference has no recomputed number.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// What is printed refers to nothing: a mismatch.
    Wrong(String),
    /// The rows do not let this road compute it.
    Unverifiable(String),
}

/// Scope and id of a declaration.
pub(super) type Name = (String, String);

/// A declaration, or one row of its table.
type Group = (Name, Option<String>);

/// What was recomputed of one declaration over rows.
struct Walked {
    /// The labels of its table.
    labels: BTreeSet<String>,
    /// The whole (no label) and the rows that were asked for.
    parts: Vec<(Option<String>, Result<Arc<Parts>, Failure>)>,
}

/// What is asked of one declaration.
#[derive(Default)]
struct Asked {
    groups: BTreeSet<Option<String>>,
    /// Every row of its table, whatever there is.
    all_rows: bool,
}

/// The second road: declarations, sheets and what was recomputed so far.
pub struct Road<'a> {
    workspace: &'a Path,
    texts: &'a Texts,
    sheets: &'a BTreeMap<(String, DataSet), Sheet>,
    claims: HashMap<&'a str, usize>,
    labels: HashMap<Name, BTreeSet<String>>,
    computed: HashMap<Group, Result<Arc<Parts>, Failure>>,
    /// Formulas that are being worked out.
    pub(super) under_way: Vec<Name>,
    /// How many formulas stand in a row from one on.
    pub(super) depths: HashMap<Name, usize>,
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
            claims: texts.claims.iter().enumerate().map(|(at, claim)| (claim.id.as_str(), at)).collect(),
            labels: HashMap::new(),
            computed: HashMap::new(),
            under_way: Vec::new(),
            depths: HashMap::new(),
        }
    }

    /// Recomputes what is behind many references, and what their formulas rest on, each declaration's rows once.
    pub fn prepare<'r>(&mut self, references: impl Iterator<Item = &'r Reference>) {
        let mut asked: BTreeMap<Name, Asked> = BTreeMap::new();
        let mut seen: BTreeSet<Name> = BTreeSet::new();
        let mut next: Vec<(Reference, bool)> =
            references.map(|reference| (reference.clone(), false)).collect();
        while let Some((reference, all_rows)) = next.pop() {
            let Some((derivation, _)) = self.declaration(&reference) else { continue };
            let name = (reference.scope.clone(), reference.id.clone());
            if derivation.data != DataSet::Derivations {
                let asked = asked.entry(name).or_default();
                asked.all_rows |= all_rows;
                asked.groups.insert(reference.row);
            } else if seen.insert(name) {
                let of = derivation.of.as_deref().unwrap_or("");
                if let Ok(formula) = Formula::parse(of, &reference.scope) {
                    next.extend(formula.numbers().into_iter().map(|(inner, all)| (inner.clone(), all)));
                }
                next.extend(families::named(derivation, &reference.scope).into_iter().map(|one| (one, true)));
            }
        }
        let over_rows: Vec<(Name, Asked, &Derivation, &Sheet)> = asked
            .into_iter()
            .filter_map(|(name, asked)| {
                let whole =
                    Reference { scope: name.0.clone(), id: name.1.clone(), row: None, part: "value".into() };
                let (derivation, slug) = self.declaration(&whole)?;
                let sheet = self.sheet(derivation, slug)?;
                Some((name, asked, derivation, sheet))
            })
            .collect();
        let walked: Vec<(Name, Walked)> = over_rows
            .into_par_iter()
            .map(|(name, asked, derivation, sheet)| {
                let walked = recompute(&name, derivation, sheet, asked);
                (name, walked)
            })
            .collect();
        for (name, Walked { labels, parts }) in walked {
            for (label, parts) in parts {
                self.computed.insert((name.clone(), label), parts);
            }
            self.labels.insert(name, labels);
        }
    }

    /// The rows that a declaration is about, if it is about rows that are there and can be read.
    fn sheet(&self, derivation: &Derivation, slug: &str) -> Option<&'a Sheet> {
        let sheet = self.sheets.get(&(slug.to_string(), derivation.data))?;
        let of_rows = sheet::folder(derivation.data).is_some() && self.meant(derivation, slug).is_ok();
        let ready = !sheet.unreadable.is_empty() || matches!(self.pending(sheet, derivation, slug), Ok(None));
        (of_rows && ready).then_some(sheet)
    }

    /// What cannot be meant is wrong, whatever the rows hold.
    fn meant(&self, derivation: &Derivation, slug: &str) -> Result<(), Failure> {
        let wrong = |error: crate::error::Error| Failure::Wrong(error.to_string().replace('\n', " "));
        declare::check(derivation).map_err(wrong)?;
        self.spelt(derivation, slug)?;
        if derivation.margin.is_none() {
            return Ok(());
        }
        let plan = lookup::toml_file(self.workspace, &format!("data/{slug}/experiment.toml"));
        declare::fixed_beforehand(derivation, &plan.unwrap_or_default()).map_err(wrong)
    }

    /// A condition on a text that no row has, where rows have nearly that one, chooses nothing by mistake.
    fn spelt(&self, derivation: &Derivation, slug: &str) -> Result<(), Failure> {
        let Some(sheet) = self.sheets.get(&(slug.to_string(), derivation.data)) else { return Ok(()) };
        let of = derivation.of.as_deref().or(walk::default_column(derivation.estimator));
        let asked = derivation.filter.iter().map(|(column, accepts)| (column.as_str(), accepts));
        for (column, accepts) in asked.chain(of.zip(derivation.is.as_ref())) {
            for text in accepts.texts().filter(|text| !sheet.holds_text(column, text)) {
                let texts = sheet.texts(column);
                let Some(near) = misspelt(text, texts.iter().copied()) else { continue };
                let plan = lookup::toml_file(self.workspace, &format!("data/{slug}/experiment.toml"));
                if !plan.unwrap_or_default().to_string().contains(&format!("\"{text}\"")) {
                    return Err(Failure::Wrong(format!(
                        "no row has `{text}` in `{column}`, and some have `{near}`"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The declaration of a reference and the experiment whose data it reads.
    pub fn declaration(&self, reference: &Reference) -> Option<(&'a Derivation, &'a str)> {
        if let Some(experiment) = self.texts.experiments.get(&reference.scope) {
            let derivation = experiment.report.front.derivations.get(&reference.id)?;
            return Some((derivation, derivation.experiment.as_deref().unwrap_or(&experiment.slug)));
        }
        let claim = self.texts.claims.get(*self.claims.get(reference.scope.as_str())?)?;
        let derivation = claim.derivations.get(&reference.id)?;
        match (derivation.experiment.as_deref(), derivation.data) {
            (None, DataSet::Derivations) => Some((derivation, "")),
            (experiment, _) => Some((derivation, experiment?)),
        }
    }

    /// The numbers that a number rests on in the end, formulas and families of tests followed: itself where it is neither.
    pub fn rests_on(&self, reference: &Reference) -> BTreeSet<Reference> {
        let (mut ends, mut seen, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![reference.clone()]);
        while let Some(reference) = next.pop() {
            let declared = self.declaration(&reference).map(|(derivation, _)| derivation);
            match declared.filter(|derivation| derivation.data == DataSet::Derivations) {
                Some(derivation) => {
                    if seen.insert((reference.scope.clone(), reference.id.clone())) {
                        let of = derivation.of.as_deref().unwrap_or("");
                        let formula = Formula::parse(of, &reference.scope);
                        next.extend(formula.iter().flat_map(Formula::references).cloned());
                        next.extend(families::named(derivation, &reference.scope));
                    }
                }
                None => {
                    ends.insert(reference);
                }
            }
        }
        ends
    }

    /// Whether a number is a cited fact, or worked out from one.
    pub fn rests_on_facts(&self, reference: &Reference) -> bool {
        let fact = |end: &Reference| self.declaration(end).is_some_and(|(of, _)| of.data == DataSet::Facts);
        self.rests_on(reference).iter().any(fact)
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
                let parts = self.compute(reference, derivation, slug);
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
    ) -> Result<Arc<Parts>, Failure> {
        self.meant(derivation, slug)?;
        if derivation.estimator.is_family() {
            return self.adjusted(reference, derivation).map(Arc::new);
        }
        if derivation.data == DataSet::Derivations {
            return self.formula(reference, derivation).map(Arc::new);
        }
        if sheet::folder(derivation.data).is_none() || derivation.estimator == Estimator::Value {
            let of = derivation.of.as_deref().unwrap_or("");
            if reference.row.is_some() || derivation.estimator != Estimator::Value {
                return Err(Failure::Wrong(
                    "plan, receipts and facts hold single values (`estimator = \"value\"`)".into(),
                ));
            }
            let value = lookup::value(self.workspace, slug, derivation.data, of).map_err(Failure::Wrong)?;
            return Ok(Arc::new(Parts::from([("value", value)])));
        }
        let Some(sheet) = self.sheets.get(&(slug.to_string(), derivation.data)) else {
            return Err(Failure::Wrong(format!("there is no `data/{slug}`")));
        };
        if sheet.unreadable.is_empty()
            && let Some(why) = self.pending(sheet, derivation, slug)?
        {
            let none =
                estimators::part_names(derivation).iter().map(|part| (*part, Part::Undefined(why.clone())));
            return Ok(Arc::new(none.collect()));
        }
        let name = (reference.scope.clone(), reference.id.clone());
        let asked = Asked { groups: BTreeSet::from([reference.row.clone()]), all_rows: false };
        let walked = recompute(&name, derivation, sheet, asked);
        self.labels.insert(name, walked.labels);
        walked
            .parts
            .into_iter()
            .next()
            .map_or_else(|| Err(Failure::Wrong("nothing was asked".into())), |(_, p)| p)
    }

    /// The row labels of a table; none while there are no rows.
    pub(super) fn labels(&mut self, table: &Reference) -> Result<BTreeSet<String>, Failure> {
        let Some((derivation, slug)) = self.declaration(table) else {
            return Err(Failure::Wrong(format!("nothing declares `{}` in `{}`", table.id, table.scope)));
        };
        let Some(sheet) = self.sheets.get(&(slug.to_string(), derivation.data)) else {
            return Err(Failure::Wrong(format!("`{}` is no table", table.id)));
        };
        if derivation.by.is_none() {
            return Err(Failure::Wrong(format!("`{}` has no rows: it declares no `by`", table.id)));
        }
        let name = (table.scope.clone(), table.id.clone());
        if let Some(labels) = self.labels.get(&name) {
            return Ok(labels.clone());
        }
        let attempts = walk(sheet, derivation).map_err(Failure::Unverifiable)?;
        Ok(attempts.iter().filter_map(|a| a.label.as_deref().map(str::to_owned)).collect())
    }

    /// Why nothing can be said yet: no rows at all, or none of an arm that the plan names.
    fn pending(&self, sheet: &Sheet, derivation: &Derivation, slug: &str) -> Result<Option<String>, Failure> {
        let empty = sheet.files.iter().all(|file| file.columns.is_empty());
        let arms = if derivation.arms.is_empty() { BTreeSet::new() } else { sheet.texts("arm") };
        if let Some(missing) = derivation.arms.iter().find(|arm| !arms.contains(arm.as_str())) {
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
}

/// Walks the rows of a declaration once, and computes what is asked of it.
fn recompute(name: &Name, derivation: &Derivation, sheet: &Sheet, asked: Asked) -> Walked {
    let attempts = match walk(sheet, derivation) {
        Ok(attempts) => attempts,
        Err(why) => {
            let failed = |group| (group, Err(Failure::Unverifiable(why.clone())));
            return Walked { labels: BTreeSet::new(), parts: asked.groups.into_iter().map(failed).collect() };
        }
    };
    let mut by_label: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for attempt in &attempts {
        if let Some(label) = attempt.label.as_deref() {
            by_label.entry(label).or_default().push(attempt);
        }
    }
    let mut groups = asked.groups;
    if asked.all_rows {
        groups.extend(by_label.keys().map(|label| Some((*label).to_owned())));
    }
    let one = |group: &Option<String>| -> Result<Arc<Parts>, Failure> {
        let whole: Vec<&Attempt>;
        let rows = match group {
            None => {
                whole = attempts.iter().collect();
                &whole
            }
            Some(_) if derivation.by.is_none() => {
                return Err(Failure::Wrong(format!("`{}` has no rows: it declares no `by`", name.1)));
            }
            Some(label) => by_label.get(label.as_str()).ok_or_else(|| {
                let column = derivation.by.as_deref().unwrap_or("");
                Failure::Wrong(format!("no row has `{label}` in `{column}`"))
            })?,
        };
        let key =
            Reference { scope: name.0.clone(), id: name.1.clone(), row: group.clone(), part: String::new() };
        estimators::compute(derivation, rows, &key.key_text()).map(Arc::new).map_err(Failure::Unverifiable)
    };
    let parts = groups.into_par_iter().map(|group| (group.clone(), one(&group))).collect();
    Walked { labels: by_label.keys().map(|label| (*label).to_owned()).collect(), parts }
}
