//! Every derivation that the texts declare, evaluated once, and the way from a reference to its
//! number.

use super::data::{Store, Table};
use super::derivation::{DataSet, Derivation, Estimator, Nulls, Reference};
use super::evaluate::{evaluate, undefined};
use super::front_matter::Document;
use super::lookup;
use super::select::{Chosen, Selection, select};
use super::texts::Texts;
use super::value::{Derived, Evaluated, Number};
use super::{compose, declare};
use crate::episode::columns::Values;
use crate::error::{Error, Problem, Result, misspelt, nearest};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PENDING: &str = "pending: no rows yet";

/// One declared derivation and what came of it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Experiment slug or claim id that declares it.
    pub scope: String,
    /// Its id there.
    pub id: String,
    /// The declaration.
    pub derivation: Derivation,
    /// The experiment whose data it reads.
    pub experiment: String,
    /// The file that declares it, relative to the workspace.
    pub path: String,
    /// Line of the declaration; 1 if it could not be found by its text.
    pub line: usize,
    /// Training seeds in the rows used.
    pub train_seeds: BTreeSet<i64>,
    /// Its numbers, or why it cannot be computed as declared.
    pub outcome: Result<Derived, Problem>,
}

/// All derivations of a workspace, evaluated.
#[derive(Debug, Clone, Default)]
pub struct Book {
    scopes: BTreeMap<String, BTreeMap<String, Entry>>,
}

/// Where a reference leads.
#[derive(Debug, Clone, Copy)]
pub struct Resolved<'a> {
    /// The number.
    pub number: &'a Number,
    /// All parts beside it.
    pub evaluated: &'a Evaluated,
    /// The whole derivation's results and sources.
    pub derived: &'a Derived,
    /// The declaration and its place.
    pub entry: &'a Entry,
}

impl Resolved<'_> {
    /// Whether the number waits for rows that do not exist yet.
    pub fn is_pending(&self) -> bool {
        matches!(self.number, Number::Undefined(why) if why.starts_with("pending"))
    }
}

impl Book {
    /// Evaluates every derivation of `texts` over the data of the workspace at `root`; each data file is read
    /// once. A derivation that cannot be computed as declared is kept with its problem: see [`Book::refused`].
    /// Errors when a data file cannot be read.
    pub fn build(root: &Path, texts: &Texts) -> Result<Book> {
        Book::build_with(root, texts, &BTreeMap::new())
    }

    /// As [`Book::build`], but some data files, by path relative to the workspace, are read as these bytes.
    pub fn build_with(root: &Path, texts: &Texts, instead: &BTreeMap<String, Vec<u8>>) -> Result<Book> {
        let store = Store::with(root, instead);
        let mut slugs: BTreeSet<String> = store.slugs()?.into_iter().collect();
        slugs.extend(texts.experiments.keys().cloned());
        let mut book = Book::default();
        let mut declared: Vec<Declared<'_>> = Vec::new();
        for (slug, experiment) in &texts.experiments {
            book.scopes.entry(slug.clone()).or_default();
            let document = &experiment.report.document;
            let each = experiment.report.front.derivations.iter();
            declared.extend(each.map(|(id, derivation)| Declared {
                scope: slug,
                id,
                derivation,
                slug,
                document,
            }));
        }
        for claim in &texts.claims {
            book.scopes.entry(claim.id.clone()).or_default();
            declared.extend(claim.derivations.iter().map(|(id, derivation)| {
                let slug = derivation.experiment.as_deref().unwrap_or_default();
                Declared { scope: &claim.id, id, derivation, slug, document: &claim.document }
            }));
        }
        // A file that cannot be read is no fault of a declaration: it stops the whole book.
        let tables: BTreeSet<(&str, DataSet)> =
            declared.iter().map(|d| (d.slug, d.derivation.data)).collect();
        for (slug, data) in tables {
            if slugs.contains(slug) && super::data::columns(data).is_some() {
                store.table(slug, data)?;
            }
        }
        let entries: Vec<Entry> = declared
            .into_par_iter()
            .map(|declared| entry(&store, &slugs, declared))
            .collect::<Result<_>>()?;
        for entry in entries {
            book.scopes.entry(entry.scope.clone()).or_default().insert(entry.id.clone(), entry);
        }
        compose::all(&mut book);
        Ok(book)
    }

    /// All derivations, by scope and id.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.scopes.values().flat_map(BTreeMap::values)
    }

    /// One derivation, to be filled in.
    pub(super) fn entry_mut(&mut self, scope: &str, id: &str) -> Option<&mut Entry> {
        self.scopes.get_mut(scope)?.get_mut(id)
    }

    /// One derivation.
    pub fn entry(&self, scope: &str, id: &str) -> Option<&Entry> {
        self.scopes.get(scope)?.get(id)
    }

    /// Derivations that cannot be computed as declared, each with its problem.
    pub fn refused(&self) -> impl Iterator<Item = (&Entry, &Problem)> {
        self.entries().filter_map(|entry| entry.outcome.as_ref().err().map(|problem| (entry, problem)))
    }

    /// The number behind a reference. Unknown scope, id, row or part: the error names the nearest known one.
    pub fn resolve(&self, reference: &Reference) -> Result<Resolved<'_>> {
        let unknown = |what: &str, name: &str, known: Vec<&str>| {
            let error = Error::invalid(format!("`{reference}` names no known {what} `{name}`"));
            match nearest(name, known.iter().copied()) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None if known.is_empty() => error.hint(format!("there is no {what} here yet")),
                None => error.hint(format!("known: {}", known.join(", "))),
            }
        };
        let scope = self.scopes.get(&reference.scope).ok_or_else(|| {
            unknown("experiment or claim", &reference.scope, self.scopes.keys().map(String::as_str).collect())
        })?;
        let entry = scope.get(&reference.id).ok_or_else(|| {
            unknown("derivation", &reference.id, scope.keys().map(String::as_str).collect())
        })?;
        let derived = entry.outcome.as_ref().map_err(|problem| {
            Error::invalid(format!("`{reference}` cannot be computed: {}", one_line(problem)))
                .hint(problem.remedy.clone().unwrap_or_else(|| "correct the derivation".into()))
        })?;
        let evaluated = match &reference.row {
            None => &derived.total,
            Some(_) if entry.derivation.by.is_none() && !entry.derivation.estimator.is_family() => {
                return Err(Error::invalid(format!(
                    "`{reference}` names a row, but the derivation has no `by`"
                ))
                .hint("leave the row out, or add `by`"));
            }
            Some(label) => match derived.rows.get(label) {
                Some(evaluated) => evaluated,
                None if is_pending(derived) => &derived.total,
                None => return Err(unknown("row", label, derived.rows.keys().map(String::as_str).collect())),
            },
        };
        let number = evaluated.parts.get(&reference.part).ok_or_else(|| {
            let parts = evaluated.parts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::invalid(format!(
                "`{reference}` asks for `{}`, which this derivation does not give",
                reference.part
            ))
            .hint(format!("it gives {parts}"))
        })?;
        Ok(Resolved { number, evaluated, derived, entry })
    }

    /// What a number rests on in the end: itself, or where it is a formula or a family of tests, the numbers that those follow from.
    pub fn rests_on(&self, reference: &Reference) -> Vec<Reference> {
        compose::leaves(self, reference)
    }

    /// Every number by its address, as the audit compares them; `None` where it is undefined although there
    /// are rows.
    pub fn numbers(&self) -> BTreeMap<String, Option<f64>> {
        let mut out = BTreeMap::new();
        for entry in self.entries() {
            let Ok(derived) = &entry.outcome else { continue };
            let rows = derived.rows.iter().map(|(label, evaluated)| (Some(label.clone()), evaluated));
            for (row, evaluated) in std::iter::once((None, &derived.total)).chain(rows) {
                for (part, number) in &evaluated.parts {
                    let (scope, id) = (entry.scope.clone(), entry.id.clone());
                    let reference = Reference { scope, id, row: row.clone(), part: part.clone() };
                    out.insert(reference.to_string(), number.get());
                }
            }
        }
        out
    }
}

/// A problem as one line, its place first.
pub(super) fn one_line(problem: &Problem) -> String {
    match &problem.place {
        Some(place) => format!("{place}: {}", problem.what),
        None => problem.what.clone(),
    }
}

fn is_pending(derived: &Derived) -> bool {
    matches!(derived.number(None, "value"), Some(Number::Undefined(why)) if why.starts_with("pending"))
}

/// One declaration and where it stands.
struct Declared<'a> {
    scope: &'a str,
    id: &'a str,
    derivation: &'a Derivation,
    slug: &'a str,
    document: &'a Document,
}

fn entry(store: &Store, slugs: &BTreeSet<String>, declared: Declared<'_>) -> Result<Entry> {
    let Declared { scope, id, derivation, slug, document } = declared;
    let mut train_seeds = BTreeSet::new();
    let outcome = match derive(store, slugs, (scope, id), derivation, slug, &mut train_seeds) {
        Ok(derived) => Ok(derived),
        Err(Error::Invalid(problem) | Error::Refused(problem)) => Err(*problem),
        Err(other) => return Err(other),
    };
    Ok(Entry {
        scope: scope.to_string(),
        id: id.to_string(),
        derivation: derivation.clone(),
        experiment: slug.to_string(),
        path: document.path.clone(),
        line: document.line_of(&format!("[derivations.{id}]"), 0).unwrap_or(1),
        train_seeds,
        outcome,
    })
}

fn derive(
    store: &Store,
    slugs: &BTreeSet<String>,
    (scope, id): (&str, &str),
    derivation: &Derivation,
    slug: &str,
    train_seeds: &mut BTreeSet<i64>,
) -> Result<Derived> {
    let of_none = derivation.data == DataSet::Derivations && slug.is_empty();
    if !of_none && !slugs.contains(slug) {
        let error = Error::invalid(format!("there is no experiment `{slug}`")).at("experiment");
        return Err(match nearest(slug, slugs.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint("name a folder under `data/`"),
        });
    }
    declare::check(derivation)?;
    if derivation.data == DataSet::Derivations {
        return Ok(compose::waiting());
    }
    if derivation.estimator == Estimator::Value {
        return lookup::value(store, slug, derivation);
    }
    if let Some(plan) =
        store.object(&format!("data/{slug}/experiment.toml"))?.filter(|_| derivation.margin.is_some())
    {
        declare::fixed_beforehand(derivation, &plan.value)?;
    }
    let table = store.table(slug, derivation.data)?;
    never_written(&table, derivation)?;
    spelt(store, slug, &table, derivation)?;
    let selection = select(&table, derivation)?;
    let empty = table.files.iter().all(|file| file.rows.is_empty());
    let missing_arm = missing_arm(store, slug, derivation, &selection, empty)?;
    if empty && derivation.data == DataSet::Episodes && store.has_imports(slug)? {
        return Err(Error::invalid(format!("`data/{slug}` has imported rows and no episodes"))
            .at("data")
            .hint("write `data = \"imported\"`"));
    }
    if empty || missing_arm.is_some() {
        let reason =
            missing_arm.map_or(PENDING.to_string(), |arm| format!("pending: no rows of arm `{arm}` yet"));
        let total = undefined(derivation, if empty { PENDING } else { &reason });
        return Ok(Derived { total, rows: BTreeMap::new(), sources: selection.sources });
    }
    if let Some(position) = table.position("train_seed") {
        train_seeds.extend(selection.rows.iter().filter_map(|chosen| chosen.row.whole(position)));
    }
    let mut reference = Reference { scope: scope.into(), id: id.into(), row: None, part: "value".into() };
    let all: Vec<&Chosen<'_>> = selection.rows.iter().collect();
    let mut total = evaluate(derivation, &table, &all, &reference.key_text());
    total.warnings.extend(selection.warnings.iter().cloned());
    let mut rows = BTreeMap::new();
    for (label, positions) in &selection.groups {
        let group: Vec<&Chosen<'_>> = positions.iter().filter_map(|i| selection.rows.get(*i)).collect();
        reference.row = Some(label.clone());
        rows.insert(label.clone(), evaluate(derivation, &table, &group, &reference.key_text()));
    }
    Ok(Derived { total, rows, sources: selection.sources })
}

/// A text in `where` or `is` that no row has, and that is nearly one that rows have: nothing would be chosen by it.
fn spelt(store: &Store, slug: &str, table: &Table, derivation: &Derivation) -> Result<()> {
    let of = declare::column(derivation).zip(derivation.is.as_ref());
    let wheres = derivation.filter.iter().map(|(column, accepts)| (column.as_str(), accepts));
    for (column, accepts) in wheres.chain(of) {
        let Some(position) = table.position(column) else { continue };
        let known = || {
            table.files.iter().filter_map(|file| file.rows.values(position)).flat_map(Values::different_texts)
        };
        for text in accepts.texts() {
            if known().any(|there| there == text) {
                continue;
            }
            let Some(near) = misspelt(text, known()) else { continue };
            // What the plan names may still be to come.
            let plan = store.object(&format!("data/{slug}/experiment.toml"))?;
            let planned = plan.is_some_and(|plan| plan.value.to_string().contains(&format!("\"{text}\"")));
            if !planned {
                return Err(Error::invalid(format!("no row has `{text}` in `{column}`"))
                    .at("where")
                    .hint(format!("did you mean `{near}`?")));
            }
        }
    }
    Ok(())
}

/// A column that no row has was never written; with `nulls = "zero"` it would be 0 all the same.
fn never_written(table: &Table, derivation: &Derivation) -> Result<()> {
    let column = declare::column(derivation).filter(|_| derivation.nulls == Some(Nulls::Zero));
    let Some((name, position)) = column.and_then(|name| Some((name, table.position(name)?))) else {
        return Ok(());
    };
    let mut files = table.files.iter().filter(|file| !file.rows.is_empty()).peekable();
    if files.peek().is_some() && files.all(|file| file.rows.is_missing(position)) {
        return Err(Error::invalid(format!(
            "`{name}` is null in every row: what was never written is not 0"
        ))
        .at("nulls")
        .hint("read another column, or leave `nulls = \"zero\"` out"));
    }
    Ok(())
}

/// An arm that is planned but has no rows yet. An arm that neither rows nor plan know is an error.
fn missing_arm(
    store: &Store,
    slug: &str,
    derivation: &Derivation,
    selection: &Selection<'_>,
    empty: bool,
) -> Result<Option<String>> {
    let Some(missing) = derivation.arms.iter().find(|arm| !selection.arms_found.contains(*arm)) else {
        return Ok(None);
    };
    let plan = store.object(&format!("data/{slug}/experiment.toml"))?;
    let arms = plan.as_ref().and_then(|plan| plan.value.get("arms")).and_then(|arms| arms.as_array());
    let planned: Vec<&str> = arms.into_iter().flatten().filter_map(|arm| arm.get("name")?.as_str()).collect();
    if planned.contains(&missing.as_str()) || (empty && planned.is_empty()) {
        return Ok(Some(missing.clone()));
    }
    let found: Vec<&str> = selection.arms_found.iter().map(String::as_str).chain(planned).collect();
    let error = Error::invalid(format!("there is no arm `{missing}`")).at("arms");
    Err(match nearest(missing, found.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!(
            "the arms are {}",
            found.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
        )),
    })
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
