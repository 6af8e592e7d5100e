//! The second road: recomputes every printed number from raw rows by code of its own and says
//! `match`, `mismatch`, `unverifiable` or `cited`. Hashes first, then structural rules, then
//! recomputation. Shares row types, the Parquet reader, parsed texts and the plan's sections, and by intent what is no number:
//! what a declaration may mean (`claims::declare`), which turns of phrase say what (`claims::wording`), which numbers have to bear a
//! claim out (`claims::grounds`) and which claims cannot stand together (`claims::conflicts`); and what tasks there are, of the task's environment.

mod agreement;
mod bootstrap;
mod cells;
mod dates;
mod decision;
mod distributions;
mod earlier;
mod estimators;
mod families;
mod fields;
mod formulas;
mod gates;
mod hashes;
mod imported;
mod installed;
mod judge;
mod ledger;
mod looks;
mod lookup;
mod margins;
mod paired;
mod plan_rules;
mod printed;
mod prose;
pub mod queries;
mod receipts;
mod recompute;
mod render;
mod repeats;
mod rules;
mod selection;
mod shapes;
mod sheet;
mod signflip;
pub mod sql;
mod sql_parts;
mod stated;
mod superseded;
#[cfg(test)]
mod tests;
mod training;
mod units;
mod verdicts;
mod walk;
mod weights;

pub use crate::claims::value::Verdict;

use crate::claims::derivation::{DataSet, Reference};
use crate::claims::front_matter::Document;
use crate::claims::ledger::Claim;
use crate::claims::links::{self, Link};
use crate::claims::report::Lifecycle;
use crate::claims::texts::Texts;
use crate::error::Result;
use crate::experiment::Plan;
use crate::hash::sha256_file;
use crate::regular;
use crate::workspace::data_folders;
use recompute::Road;
use serde::Serialize;
use serde_json::Value;
use sheet::Sheet;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// What to audit beside the texts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Values that pages take from cached statistics (charts, tables), by reference
    /// (`derive:<scope>.<id>…`): each is recomputed and compared to 1e-9.
    pub book: Option<&'a BTreeMap<String, Option<f64>>>,
}

/// One printed number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// `file:line`, or `statistics` for a value of the book.
    pub place: String,
    /// The address, `derive:…`.
    pub reference: String,
    /// What is printed.
    pub printed: String,
    /// What the rows give; null when undefined or not computed.
    pub recomputed: Option<f64>,
    /// How it fared.
    pub verdict: Verdict,
    /// Why, unless it is a plain match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A rule that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's name, such as `file_hash`.
    pub rule: &'static str,
    /// The file, relative to the workspace.
    pub file: String,
    /// The row in the file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
    /// What is wrong.
    pub detail: String,
}

impl Finding {
    fn new(rule: &'static str, file: &str, row: Option<usize>, detail: String) -> Self {
        Finding { rule, file: file.into(), row, detail }
    }
}

/// Counts of an audit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Numbers that match.
    pub matches: usize,
    /// Numbers that do not.
    pub mismatches: usize,
    /// Numbers that could not be computed.
    pub unverifiable: usize,
    /// Cited facts.
    pub cited: usize,
    /// Rules that do not hold.
    pub findings: usize,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditReport {
    /// Every printed number, in the order of the texts, then of the book.
    pub verdicts: Vec<Entry>,
    /// Every rule that does not hold, hashes first.
    pub findings: Vec<Finding>,
    /// SHA-256 of every file that was read, by its path in the workspace: what these verdicts are about.
    pub files: BTreeMap<String, String>,
    /// Files compared with a recorded hash.
    pub files_checked: usize,
    /// Rows whose chained hash was recomputed.
    pub rows_checked: usize,
    /// Counts.
    pub summary: Summary,
}

impl AuditReport {
    /// Adds what another check found in a text: a rule that is not the second road's own.
    pub fn add(&mut self, rule: &'static str, file: &str, detail: String) {
        self.push(Finding::new(rule, file, None, detail));
    }

    /// Adds a finding of another check.
    pub fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.summary.findings = self.findings.len();
    }

    /// Whether nothing mismatches and every rule holds.
    pub fn passed(&self) -> bool {
        self.summary.mismatches == 0 && self.findings.is_empty()
    }

    /// The worst verdict on any number printed under a reference such as `derive:demo.delta`.
    pub fn verdict_of(&self, reference: &str) -> Option<Verdict> {
        self.verdicts.iter().filter(|entry| entry.reference == reference).map(|entry| entry.verdict).min()
    }

    /// A table for a terminal of `width` columns: mismatches first, then findings, then one line of counts.
    pub fn render(&self, width: usize) -> String {
        render::render(self, width)
    }
}

/// Data sets that are kept as rows.
const ROW_SETS: [DataSet; 5] =
    [DataSet::Episodes, DataSet::Calls, DataSet::Harvest, DataSet::Training, DataSet::Imported];

/// Audits a workspace: files and row chains against their hashes, structural rules, then every
/// number that a text prints (and every value of `options.book`) against the raw rows.
///
/// What does not hold is in the report. Errors are for a workspace whose texts cannot be parsed
/// or whose files cannot be opened.
pub fn audit(workspace: &Path, options: Options) -> Result<AuditReport> {
    let texts = Texts::load(workspace)?;
    let mut findings = Vec::new();
    let (mut files_checked, mut rows_checked) = (0, 0);
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut sheets: BTreeMap<(String, DataSet), Sheet> = BTreeMap::new();
    let slugs = experiments(workspace, &texts)?;
    for slug in &slugs {
        let mut known = HashMap::new();
        let (mut unreadable, mut chains) = (Vec::new(), Vec::new());
        for data in ROW_SETS {
            let loaded = sheet::load(workspace, slug, data);
            known.extend(loaded.hashes);
            unreadable.extend(loaded.findings);
            chains.extend(loaded.chains);
            sheets.insert((slug.clone(), data), loaded.sheet);
        }
        files.extend(known.iter().map(|(path, sha256)| (path.clone(), sha256.clone())));
        let (listing, compared, wrong) = hashes::check_files(workspace, slug, &known)?;
        findings.extend(wrong);
        let (receipts, wrong) = hashes::check_receipts(workspace, slug)?;
        findings.extend(wrong);
        files_checked += compared + receipts;
        findings.extend(superseded::check(workspace, slug, &listing)?);
        findings.extend(unreadable);
        let (walked, wrong) = hashes::check_chains(chains, slug, &listing);
        findings.extend(wrong);
        rows_checked += walked;
    }
    findings.extend(structure(workspace, &texts, &slugs, &sheets));
    findings.extend(planned(workspace, &texts, &slugs, &sheets));
    findings.extend(texts.claims.iter().flat_map(|claim| verdicts::of_claim(workspace, &texts, claim)));
    findings.extend(texts.pages.iter().flat_map(|page| verdicts::of_page(workspace, &texts, page)));
    findings.extend(texts.documents().flat_map(hidden_addresses));
    let mut road = Road::new(workspace, &texts, &sheets);
    let printed: Vec<Link> = texts.documents().flat_map(|document| document.links()).collect();
    let of_book: Vec<Reference> =
        options.book.into_iter().flatten().filter_map(|(text, _)| judge::reference(text)).collect();
    let evidence = texts.claims.iter().flat_map(Claim::evidence);
    road.prepare(
        printed.iter().filter_map(|link| link.reference.as_ref().ok()).chain(&of_book).chain(evidence),
    );
    let adjusted = prose::adjusted(&texts, &mut road);
    findings.extend(ledger::check(&texts, &mut road, &sheets, &adjusted));
    findings.extend(prose::check(&texts, &mut road, &adjusted));
    let mut verdicts = Vec::new();
    for link in printed {
        let place = format!("{}:{}", link.file, link.line);
        verdicts.push(match &link.reference {
            Ok(reference) => {
                let entry = judge::judge(&mut road, place, reference, &link.printed);
                judge::beside(entry, link.beside.as_ref())
            }
            Err(why) => Entry {
                place,
                reference: String::new(),
                printed: link.printed.clone(),
                recomputed: None,
                verdict: Verdict::Mismatch,
                reason: Some(why.clone()),
            },
        });
    }
    for (text, value) in options.book.into_iter().flatten() {
        verdicts.push(judge::judge_value(&mut road, text, *value));
    }
    let count = |verdict: Verdict| verdicts.iter().filter(|entry| entry.verdict == verdict).count();
    let summary = Summary {
        matches: count(Verdict::Match),
        mismatches: count(Verdict::Mismatch),
        unverifiable: count(Verdict::Unverifiable),
        cited: count(Verdict::Cited),
        findings: findings.len(),
    };
    files.extend(read_as_text(workspace, &texts, &slugs));
    Ok(AuditReport { verdicts, findings, files, files_checked, rows_checked, summary })
}

/// Every folder under `data/`, and every experiment that has a report.
fn experiments(workspace: &Path, texts: &Texts) -> Result<BTreeSet<String>> {
    Ok(data_folders(workspace)?.into_iter().chain(texts.experiments.keys().cloned()).collect())
}

/// Texts, plans, receipts, facts, ledgers, provenance and earlier versions of rows, each with its hash.
fn read_as_text(workspace: &Path, texts: &Texts, slugs: &BTreeSet<String>) -> BTreeMap<String, String> {
    let of_slug = |slug: &String| {
        let named = ["experiment.toml", "facts.toml", "hashes.json", "artifacts.toml"];
        let under = |folder: &str| sheet::files_under(workspace, &format!("data/{slug}/{folder}"));
        let provenance = under("imported").into_iter().filter(|path| path.ends_with(".json"));
        let named = named.map(|name| format!("data/{slug}/{name}")).into_iter();
        named.chain(under("receipts")).chain(under("superseded")).chain(provenance)
    };
    let paths = texts.documents().map(|document| document.path.clone());
    let paths = paths.chain(slugs.iter().flat_map(of_slug)).chain(["data/seeds.jsonl".to_owned()]);
    paths
        .filter_map(|path| {
            let full = workspace.join(&path);
            regular::check(&full).ok()?;
            Some((path, sha256_file(&full).ok()?))
        })
        .collect()
}

fn structure(
    workspace: &Path,
    texts: &Texts,
    slugs: &BTreeSet<String>,
    sheets: &BTreeMap<(String, DataSet), Sheet>,
) -> Vec<Finding> {
    let none = Sheet::default();
    let sheet = |slug: &str, data| sheets.get(&(slug.to_string(), data)).unwrap_or(&none);
    let mut findings = Vec::new();
    let mut plans: BTreeMap<&str, Value> = BTreeMap::new();
    for slug in slugs {
        let path = format!("data/{slug}/experiment.toml");
        let plan = match lookup::toml_file(workspace, &path) {
            Ok(plan) => plan,
            Err(_) if !workspace.join(&path).exists() => Value::Null,
            Err(why) => {
                findings.push(Finding::new("unreadable_file", &path, None, why));
                Value::Null
            }
        };
        plans.insert(slug, plan);
    }
    let experiments: Vec<rules::Experiment> = plans
        .iter()
        .map(|(slug, plan)| rules::Experiment {
            slug,
            plan,
            complete: texts.experiments.get(*slug).is_some_and(|text| {
                text.report.front.lifecycle == Lifecycle::Finished && !text.report.front.starved
            }),
            episodes: sheet(slug, DataSet::Episodes),
            calls: sheet(slug, DataSet::Calls),
            harvest: sheet(slug, DataSet::Harvest),
            training: sheet(slug, DataSet::Training),
        })
        .collect();
    findings.extend(experiments.iter().flat_map(rules::check));
    for slug in slugs {
        findings.extend(imported::check(workspace, slug, sheet(slug, DataSet::Imported)));
    }
    let ledger = regular::text(&workspace.join("data/seeds.jsonl")).unwrap_or_default();
    findings.extend(rules::seeds_spent_twice(&experiments, &ledger));
    findings
}

/// Rules that bind rows, receipts and reports to the plan, for every experiment that has one.
fn planned(
    workspace: &Path,
    texts: &Texts,
    slugs: &BTreeSet<String>,
    sheets: &BTreeMap<(String, DataSet), Sheet>,
) -> Vec<Finding> {
    let none = Sheet::default();
    let sheet = |slug: &str, data| sheets.get(&(slug.to_string(), data)).unwrap_or(&none);
    let ledger = regular::text(&workspace.join("data/seeds.jsonl")).unwrap_or_default();
    let mut findings = Vec::new();
    for slug in slugs {
        let file = format!("data/{slug}/experiment.toml");
        if !workspace.join(&file).exists() {
            findings.extend(plan_rules::lost(workspace, slug, sheet(slug, DataSet::Episodes)));
            findings.extend(texts.experiments.get(slug).map(plan_rules::without_plan).unwrap_or_default());
            continue;
        }
        let text = regular::text(&workspace.join(&file)).map_err(|e| e.to_string());
        let plan =
            text.and_then(|text| Plan::parse(&text, &workspace.join(&file)).map_err(|e| e.to_string()));
        let plan = match plan {
            Ok(plan) => plan,
            Err(why) => {
                findings.push(plan_rules::invalid_plan(slug, &why));
                continue;
            }
        };
        let case = plan_rules::Case {
            workspace,
            slug,
            plan: &plan,
            front: texts.experiments.get(slug).map(|text| &text.report.front),
            report: texts.experiments.get(slug).map(|text| &text.report.document),
            log: texts.experiments.get(slug).and_then(|text| text.log.as_ref()),
            before: None,
            episodes: sheet(slug, DataSet::Episodes),
            calls: sheet(slug, DataSet::Calls),
            harvest: sheet(slug, DataSet::Harvest),
            training: sheet(slug, DataSet::Training),
        };
        findings.extend(plan_rules::check(&case, &ledger));
    }
    findings
}

/// Places of a text that hide or misuse a derive address.
fn hidden_addresses(document: &Document) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in document.passages() {
        for (range, what) in links::scan(passage.text).troubles {
            let line = document.line(passage.offset(range.start));
            findings.push(Finding::new("link", &document.path, None, format!("line {line}: {what}")));
        }
    }
    findings
}
