//! Numbers, derivations, claims and the audit as the site takes them.

use super::Workspace;
use super::parts::{self, count, interval, style};
use super::recipe::{estimator_id, recipe};
use crate::audit::{self, AuditReport, sql};
use crate::claims::Texts;
use crate::claims::book::Entry;
use crate::claims::derivation::{Estimator, PARTS, Reference};
use crate::claims::ledger::Claim;
use crate::claims::number;
use crate::claims::value::{Derived, Evaluated, Number};
use crate::error::{Error, Result};
use crate::site::input::{
    AuditEntry, AuditInput, ChangeInput, ClaimInput, CoverageInput, DerivationInput, EstimateInput,
    EstimatorInput, NumberInput, Verdict,
};
use crate::stats::registry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Place of a value that charts and tables take, rather than a text.
pub(super) const STATISTICS: &str = "statistics";

/// All results of a derivation: the total, then each row.
fn results(derived: &Derived) -> impl Iterator<Item = (Option<&String>, &Evaluated)> {
    std::iter::once((None, &derived.total)).chain(derived.rows.iter().map(|(label, e)| (Some(label), e)))
}

fn reference(entry: &Entry, row: Option<&String>, part: &str) -> Reference {
    Reference { scope: entry.scope.clone(), id: entry.id.clone(), row: row.cloned(), part: part.to_string() }
}

/// Every number of every derivation by its address, with the audit's verdict.
pub(super) fn numbers(workspace: &Workspace) -> Result<BTreeMap<String, NumberInput>> {
    let verdicts = worst(&workspace.audit);
    let mut out = BTreeMap::new();
    for entry in workspace.book.entries() {
        let derived = computed(entry)?;
        for (row, evaluated) in results(derived) {
            for (part, value) in &evaluated.parts {
                let address = reference(entry, row, part).to_string();
                let (verdict, reason) = match verdicts.get(address.as_str()) {
                    Some((v, reason)) => (*v, reason.clone()),
                    None => match value {
                        Number::Undefined(why) => (Verdict::Match, Some(why.clone())),
                        Number::Defined(_) => {
                            (Verdict::Unverifiable, Some("the audit did not reach it".into()))
                        }
                    },
                };
                let number = NumberInput {
                    reference: address.clone(),
                    scope: entry.scope.clone(),
                    id: entry.id.clone(),
                    row: row.cloned(),
                    part: part.clone(),
                    value: value.clone(),
                    text: number::print(value, &style(&entry.derivation, row, part, value)),
                    interval: (part == "value")
                        .then(|| interval(&entry.derivation, row, evaluated))
                        .flatten(),
                    n: count(evaluated),
                    method: evaluated.method.as_ref().map(|method| match evaluated.level {
                        Some(level) => format!("{method}, at {:.0}%", level * 100.0),
                        None => method.clone(),
                    }),
                    warnings: evaluated.warnings.clone(),
                    verdict,
                    reason,
                };
                out.insert(address, number);
            }
        }
    }
    Ok(out)
}

/// The results of a derivation; one that cannot be computed as declared stops the build.
pub(super) fn computed(entry: &Entry) -> Result<&Derived> {
    entry.outcome.as_ref().map_err(|problem| {
        let mut e = Error::refused(format!(
            "derivation `{}.{}` cannot be computed: {}",
            entry.scope, entry.id, problem.what
        ))
        .at(format!("{}:{}", entry.path, entry.line));
        if let Some(remedy) = &problem.remedy {
            e = e.hint(remedy.clone());
        }
        e
    })
}

/// Worst verdict of each address.
fn worst(report: &AuditReport) -> BTreeMap<&str, (Verdict, Option<String>)> {
    let mut out: BTreeMap<&str, (Verdict, Option<String>)> = BTreeMap::new();
    for entry in &report.verdicts {
        let found = (entry.verdict, entry.reason.clone());
        let slot = out.entry(entry.reference.as_str()).or_insert_with(|| found.clone());
        if found.0 < slot.0 {
            *slot = found;
        }
    }
    out
}

fn audit_entry(entry: &audit::Entry) -> AuditEntry {
    AuditEntry {
        place: entry.place.clone(),
        reference: entry.reference.clone(),
        printed: entry.printed.clone(),
        recomputed: entry.recomputed.map_or("—".to_string(), |x| x.to_string()),
        verdict: entry.verdict,
        reason: entry.reason.clone(),
    }
}

/// Every address with what a text prints for it, as the audit saw it.
pub(super) fn judged(report: &AuditReport) -> BTreeSet<(String, String)> {
    let printed = report.verdicts.iter().filter(|entry| entry.place != STATISTICS);
    printed.map(|entry| (entry.reference.clone(), entry.printed.trim().to_string())).collect()
}

/// The audit page: every number that a text prints, mismatches first; the values that only
/// charts and tables take are counted on their derivation's page.
pub(super) fn audit_page(report: &AuditReport) -> AuditInput {
    let printed = |e: &&audit::Entry| e.place != STATISTICS || e.verdict != Verdict::Match;
    let mut entries: Vec<AuditEntry> = report.verdicts.iter().filter(printed).map(audit_entry).collect();
    entries.sort_by_key(|e| e.verdict);
    AuditInput {
        entries,
        findings: report
            .findings
            .iter()
            .map(|f| (f.rule.to_string(), f.file.clone(), f.row, f.detail.clone()))
            .collect(),
        files_checked: report.files_checked,
        rows_checked: report.rows_checked,
    }
}

/// The estimators of the registry.
pub(super) fn method() -> Vec<EstimatorInput> {
    registry::ESTIMATORS
        .iter()
        .map(|e| EstimatorInput {
            id: e.id.into(),
            title: e.title.into(),
            formula: e.formula.into(),
            source: e.source.into(),
            parts: e.parts.iter().filter(|p| PARTS.contains(p)).map(|p| p.to_string()).collect(),
        })
        .collect()
}

/// The table that `bench coverage` wrote, one entry for each population, size and unit.
pub(super) fn coverage() -> Result<Vec<CoverageInput>> {
    coverage_of(include_str!("../../benches/coverage.jsonl"))
}

fn coverage_of(table: &str) -> Result<Vec<CoverageInput>> {
    #[derive(serde::Deserialize)]
    struct Line {
        scenario: String,
        interior: bool,
        tasks: usize,
        attempts: usize,
        training_seeds: Option<usize>,
        interval: String,
        data_sets: usize,
        defined: f64,
        coverage: Option<f64>,
        flagged: f64,
        flagged_of_missed: Option<f64>,
    }
    const INTERVALS: [&str; 4] = ["default", "t", "expanded percentile", "percentile"];
    let mut all: Vec<CoverageInput> = Vec::new();
    for (number, text) in table.lines().enumerate() {
        let bad = |what: String| {
            Error::invalid(what)
                .at(format!("benches/coverage.jsonl:{}", number + 1))
                .hint("write it again with `rederive bench coverage --json`")
        };
        let line: Line = serde_json::from_str(text).map_err(|e| bad(format!("is no row: {e}")))?;
        let (interval, unit) = match line.interval.split_once(", ") {
            None => (line.interval.as_str(), "tasks"),
            Some((interval, "by cluster")) => (interval, "clusters"),
            Some((interval, _)) => (interval, "tasks × training seeds"),
        };
        let at = INTERVALS.iter().position(|name| *name == interval);
        let at = at.ok_or_else(|| bad(format!("unknown interval `{interval}`")))?;
        let same = |c: &&mut CoverageInput| {
            (c.scenario.as_str(), c.tasks, c.attempts, c.training_seeds, c.unit.as_str())
                == (line.scenario.as_str(), line.tasks, line.attempts, line.training_seeds, unit)
        };
        match all.iter_mut().find(same) {
            Some(entry) => entry.coverage[at] = line.coverage,
            None => {
                let mut entry = CoverageInput {
                    scenario: line.scenario,
                    interior: line.interior,
                    tasks: line.tasks,
                    attempts: line.attempts,
                    training_seeds: line.training_seeds,
                    unit: unit.into(),
                    data_sets: line.data_sets,
                    coverage: [None; 4],
                    defined: line.defined,
                    flagged: line.flagged,
                    flagged_of_missed: line.flagged_of_missed,
                };
                entry.coverage[at] = line.coverage;
                all.push(entry);
            }
        }
    }
    Ok(all)
}

/// A claim's page.
pub(super) fn claim(claim: &Claim, workspace: &Workspace) -> ClaimInput {
    let mut rows: Vec<(&Reference, &str, &Evaluated)> = Vec::new();
    let sides = [("", claim.evidence().collect::<Vec<_>>()), ("against", claim.against().collect())];
    for (note, reference) in sides.into_iter().flat_map(|(note, all)| all.into_iter().map(move |r| (note, r)))
    {
        let Some(entry) = workspace.book.entry(&reference.scope, &reference.id) else { continue };
        let Ok(derived) = &entry.outcome else { continue };
        if entry.derivation.estimator == Estimator::PairedDelta && reference.part == "value" {
            let evaluated = match &reference.row {
                Some(row) => derived.rows.get(row),
                None => Some(&derived.total),
            };
            rows.extend(evaluated.map(|e| (reference, note, e)));
        }
    }
    let labels = parts::labels(rows.iter().map(|(reference, ..)| *reference));
    let forest = labels.iter().zip(&rows).map(|(label, (_, note, e))| estimate(label, note, e)).collect();
    ClaimInput {
        id: claim.id.clone(),
        title: claim.title.clone(),
        status: claim.status.word().to_lowercase(),
        population: match claim.population {
            crate::claims::ledger::Population::Tasks => "tasks".into(),
            crate::claims::ledger::Population::TasksXTrainSeeds => "tasks-x-train-seeds".into(),
        },
        history: claim
            .history
            .iter()
            .map(|change| {
                let addresses = |of: &[Reference]| of.iter().map(Reference::to_string).collect();
                ChangeInput {
                    date: change.date.to_string(),
                    status: change.status.word().to_lowercase(),
                    evidence: addresses(&change.evidence),
                    against: addresses(&change.against),
                }
            })
            .collect(),
        experiments: experiments(claim, workspace),
        imports: imports(claim, workspace),
        scope: claim.scope.clone(),
        supersedes: claim.supersedes.clone(),
        contradicts: claim.contradicts.clone(),
        body: claim.document.body().to_string(),
        forest,
        path: claim.document.path.clone(),
    }
}

/// One row of a forest.
pub(super) fn estimate(label: &str, note: &str, evaluated: &Evaluated) -> EstimateInput {
    let part = |name: &str| {
        evaluated
            .parts
            .get(name)
            .cloned()
            .unwrap_or_else(|| Number::Undefined("not given by this estimator".into()))
    };
    EstimateInput {
        label: label.to_string(),
        note: note.to_string(),
        value: part("value"),
        low: part("low"),
        high: part("high"),
        n: part("n").get(),
    }
}

/// Every derivation's page.
pub(super) fn derivations(root: &Path, workspace: &Workspace) -> Result<Vec<DerivationInput>> {
    let verdicts = worst(&workspace.audit);
    let mut places: BTreeMap<(String, String), Vec<AuditEntry>> = BTreeMap::new();
    for entry in workspace.audit.verdicts.iter().filter(|e| e.place != STATISTICS) {
        if let Some(Ok(r)) = entry.reference.strip_prefix("derive:").map(Reference::parse) {
            places.entry((r.scope, r.id)).or_default().push(audit_entry(entry));
        }
    }
    let mut out = Vec::new();
    for entry in workspace.book.entries() {
        let derived = computed(entry)?;
        let derivation = &entry.derivation;
        let estimator = estimator_id(derivation);
        let known = registry::find(&estimator);
        let mut lowest = Verdict::Match;
        let mut shown = Vec::new();
        for (row, evaluated) in results(derived) {
            let mut parts = Vec::new();
            for (part, value) in &evaluated.parts {
                let address = reference(entry, row, part).to_string();
                if let Some((v, _)) = verdicts.get(address.as_str()) {
                    lowest = lowest.min(*v);
                }
                parts.push((part.clone(), number::print(value, &style(derivation, row, part, value))));
            }
            shown.push((row.cloned(), parts));
        }
        let files: Option<Vec<String>> =
            derived.sources.iter().map(|s| in_site(&workspace.texts, &s.path)).collect();
        out.push(DerivationInput {
            scope: entry.scope.clone(),
            id: entry.id.clone(),
            recipe: recipe(derivation, &entry.experiment, parts::margin_is_locked(root, entry)?),
            toml: toml::to_string(derivation).unwrap_or_default(),
            estimator,
            formula: known.map_or_else(String::new, |e| e.formula.to_string()),
            method_source: known.map_or_else(String::new, |e| e.source.to_string()),
            // Rows of a data set without a page are no part of the site: their paths are the workspace's.
            sql: sql::derivation_sql(
                derivation,
                &files.unwrap_or_else(|| derived.sources.iter().map(|s| s.path.clone()).collect()),
            ),
            results: shown,
            warnings: parts::warnings(&workspace.book, entry, derived),
            sources: sources(derived),
            audit: places.remove(&(entry.scope.clone(), entry.id.clone())).unwrap_or_default(),
            verdict: lowest,
        });
    }
    Ok(out)
}

/// Where the site keeps a data file: `data/<slug>/<path>` is `experiments/<slug>/files/<path>` there, or
/// `imports/<slug>/files/<path>`. `None` for a file of an experiment that has no page.
fn in_site(texts: &Texts, path: &str) -> Option<String> {
    let (slug, rest) = path.strip_prefix("data/")?.split_once('/')?;
    if texts.experiments.contains_key(slug) {
        return Some(format!("experiments/{slug}/files/{rest}"));
    }
    rest.starts_with("imported/").then(|| format!("imports/{slug}/files/{rest}"))
}

/// The experiments that a claim names, and those that what it cites and its own derivations are of, in that order.
fn experiments(claim: &Claim, workspace: &Workspace) -> Vec<String> {
    let links = claim.document.links();
    let linked = links.iter().filter_map(|link| link.reference.as_ref().ok());
    let cited = linked.chain(claim.evidence()).chain(claim.against());
    let cited = cited.filter_map(|reference| workspace.book.entry(&reference.scope, &reference.id));
    let own = workspace.book.entries().filter(|entry| entry.scope == claim.id);
    let slugs = cited.chain(own).map(|entry| entry.experiment.clone());
    let mut all = claim.experiments.clone();
    for slug in slugs.filter(|slug| workspace.texts.experiments.contains_key(slug)) {
        if !all.contains(&slug) {
            all.push(slug);
        }
    }
    all
}

/// Data sets without a report that a claim's own derivations, and what it cites, were worked out from.
fn imports(claim: &Claim, workspace: &Workspace) -> Vec<String> {
    let cited = claim.evidence().chain(claim.against());
    let cited = cited.filter_map(|reference| workspace.book.entry(&reference.scope, &reference.id));
    let own = workspace.book.entries().filter(|entry| entry.scope == claim.id);
    let sources = cited.chain(own).filter_map(|entry| entry.outcome.as_ref().ok());
    let slugs = sources
        .flat_map(|derived| &derived.sources)
        .filter_map(|source| Some(source.path.strip_prefix("data/")?.split_once('/')?.0));
    let slugs: BTreeSet<&str> =
        slugs.filter(|slug| !workspace.texts.experiments.contains_key(*slug)).collect();
    slugs.into_iter().map(str::to_string).collect()
}

/// Files behind a result: path, hash, rows used, rows in all.
pub(super) fn sources(derived: &Derived) -> Vec<(String, String, usize, usize)> {
    derived.sources.iter().map(|s| (s.path.clone(), s.sha256.clone(), s.rows_used, s.rows_total)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulations_hold_what_the_method_page_says_of_them() {
        let table = coverage().unwrap();
        let interior: Vec<_> = table.iter().filter(|c| c.interior && c.tasks >= 10).collect();
        assert!(interior.len() >= 12 && table.len() > interior.len() + 20);
        for c in interior {
            let default = c.coverage[0].unwrap();
            assert!((0.93..=0.97).contains(&default), "{c:?}");
        }
        // Where the default falls short because little moves, it says so.
        let little = |c: &&CoverageInput| ["near a ceiling", "few tasks move"].contains(&c.scenario.as_str());
        let short: Vec<_> =
            table.iter().filter(little).filter(|c| c.coverage[0].is_none_or(|x| x < 0.93)).collect();
        assert!(!short.is_empty() && short.iter().all(|c| c.flagged_of_missed.is_some_and(|x| x >= 0.95)));
        let both = table.iter().find(|c| c.unit == "tasks × training seeds").unwrap();
        assert!(both.coverage[0].is_some() && both.coverage[1].is_none());
    }

    #[test]
    fn a_broken_table_is_named_by_line() {
        let line = include_str!("../../benches/coverage.jsonl").lines().next().unwrap();
        let error = coverage_of(&format!("{line}\n{{")).unwrap_err().to_string();
        assert!(error.contains("coverage.jsonl:2") && error.contains("bench coverage"), "{error}");
        let error = coverage_of(&line.replace("\"default\"", "\"bca\"")).unwrap_err().to_string();
        assert!(error.contains("unknown interval `bca`"), "{error}");
    }
}
