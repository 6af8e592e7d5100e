//! Rules that bind rows to the plan they were made under: locks and their hashes, receipts that
//! must stand where rows do, the seed ledger, and the verdict a report may print. They hold
//! where an experiment has a plan; imported rows have none.

use super::hashes::{head, json, sha256, sorted};
use super::rules::{Gathered, evaluates, spending};
use super::sheet::{Sheet, files_under};
use super::{
    Finding, dates, decision, earlier, gates, installed, looks, receipts, selection, superseded, units,
    verdicts, weights,
};
use crate::claims::front_matter::Document;
use crate::claims::report::{Lifecycle, Log, ReportFront, Verdict};
use crate::claims::texts::ExperimentText;
use crate::claims::wording;
use crate::episode::columns::RowAt;
use crate::experiment::{Plan, Stage, lock};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// An experiment with a plan.
pub struct Case<'a> {
    /// The workspace.
    pub workspace: &'a Path,
    /// The experiment's folder name under `data/`.
    pub slug: &'a str,
    /// Its plan.
    pub plan: &'a Plan,
    /// Front matter of its report, where it has one.
    pub front: Option<&'a ReportFront>,
    /// The text of its report, where it has one.
    pub report: Option<&'a Document>,
    /// Its log, where it has one.
    pub log: Option<&'a Log>,
    /// The rescore before which rows and receipts are meant; none for those that stand.
    pub before: Option<u64>,
    /// Episode rows.
    pub episodes: &'a Sheet,
    /// Rows of generation calls.
    pub calls: &'a Sheet,
    /// Harvest rows.
    pub harvest: &'a Sheet,
    /// Training rows.
    pub training: &'a Sheet,
}

impl Case<'_> {
    /// Where a receipt lies, relative to the workspace.
    pub fn receipt_path(&self, name: &str) -> String {
        let path = format!("receipts/{name}.json");
        match self.before {
            Some(number) => superseded::kept(self.slug, number, &path),
            None => format!("data/{}/{path}", self.slug),
        }
    }

    /// What a receipt says; `None` if there is none, or it is not JSON (found elsewhere).
    pub fn receipt(&self, name: &str) -> Option<Value> {
        let value = json(&self.workspace.join(self.receipt_path(name))).ok()?;
        Some(value.get("receipt").cloned().unwrap_or(value))
    }

    fn has_receipt(&self, name: &str) -> bool {
        self.workspace.join(self.receipt_path(name)).is_file()
    }

    /// Whether the plan lets an endpoint answer in the event of this episode.
    pub fn is_served(&self, row: RowAt<'_>) -> bool {
        self.serves(self.episodes.text(row, "arm"), self.episodes.whole(row, "seed"))
    }

    /// Whether the plan lets an endpoint answer an arm under an event seed; the harvest is always made here.
    pub fn serves(&self, arm: &str, seed: Option<i64>) -> bool {
        let seed = seed.and_then(|seed| u64::try_from(seed).ok());
        arm != "harvest" && seed.is_some_and(|seed| self.plan.endpoint_of(seed).is_some())
    }

    /// Whether an arm's adapter is the one that the experiment trains.
    pub fn is_trained(&self, arm: &str) -> bool {
        self.plan.arms.iter().any(|a| a.name == arm && a.adapter.as_deref() == Some("receipt:train"))
    }
}

/// All rules about one experiment with a plan. `ledger` is the text of `data/seeds.jsonl`.
pub fn check(case: &Case, ledger: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
        findings.extend(plan_lock(case, stage));
    }
    findings.extend(receipts_of_later_work(case));
    findings.extend(decision::check(case, ledger));
    findings.extend(earlier::check(case, ledger));
    findings.extend(verdict(case));
    findings.extend(lifecycle(case));
    findings.extend(weights::check(case));
    findings.extend(receipts::check(case));
    findings.extend(installed::check(case));
    findings.extend(selection::check(case));
    findings.extend(gates::check(case));
    findings.extend(units::check(case));
    findings.extend(seed_ledger(case, ledger));
    findings.extend(dates::check(case, ledger));
    findings
}

/// A verdict, in front matter or in words, where no plan says what would give it.
pub fn without_plan(text: &ExperimentText) -> Vec<Finding> {
    let report = &text.report;
    let verdict = report.front.verdict.filter(|verdict| *verdict != Verdict::InstrumentOnly);
    let detail = |verdict: Verdict| {
        format!("the verdict says `{}`, and there is no plan whose rule gives one", verdict.as_str())
    };
    let file = &report.document.path;
    let stated = verdict.map(|verdict| Finding::new("verdict", file, None, detail(verdict)));
    let documents = [Some(&report.document), text.log.as_ref().map(|log| &log.document)];
    let in_words = documents.into_iter().flatten();
    let in_words = in_words.flat_map(|document| verdicts::contradictions(document, "", &|_, _, _| false));
    stated.into_iter().chain(in_words).collect()
}

/// A plan that cannot be read: nothing may be run under it, nor quoted from it.
pub fn invalid_plan(slug: &str, why: &str) -> Finding {
    let detail = format!("this is no plan: {}", why.replace('\n', " "));
    Finding::new("plan_lock", &format!("data/{slug}/experiment.toml"), None, detail)
}

/// Rows that name a plan, or receipts, where there is none: with the plan, every rule that binds them to it would be gone.
pub fn lost(workspace: &Path, slug: &str, episodes: &Sheet) -> Option<Finding> {
    let file = format!("data/{slug}/experiment.toml");
    let named =
        episodes.rows().map(|(_, _, row)| episodes.text(row, "plan_sha256")).find(|plan| !plan.is_empty());
    let receipt = files_under(workspace, &format!("data/{slug}/receipts")).into_iter().next();
    let what = match (named, receipt) {
        (Some(plan), _) => format!("the rows were made under plan {}…", head(plan)),
        (None, Some(receipt)) => format!("{receipt} is of a plan"),
        (None, None) => return None,
    };
    Some(Finding::new("plan_lock", &file, None, format!("{what}, and it is not there")))
}

/// A stage's lock against its own hash, the plan as it stands, the rows and the receipts.
fn plan_lock(case: &Case, stage: Stage) -> Vec<Finding> {
    let file = case.receipt_path(&format!("plan-{}", stage.as_str()));
    let wrong = |detail: String| Finding::new("plan_lock", &file, None, detail);
    let mut episodes = case.episodes.rows().filter(|(_, _, row)| {
        stage != Stage::Train && (case.episodes.text(*row, "arm") == "harvest") == (stage == Stage::Harvest)
    });
    let path = case.workspace.join(&file);
    if !path.is_file() {
        let ran = match stage {
            Stage::Harvest => case.harvest.rows().next().is_some() || episodes.next().is_some(),
            Stage::Train => case.training.rows().next().is_some(),
            Stage::Evaluate => episodes.next().is_some(),
        };
        return ran
            .then(|| wrong(format!("rows of the {} stage exist, and its lock does not", stage.as_str())))
            .into_iter()
            .collect();
    }
    let written = match json(&path) {
        // Other readers of receipts name a file that is not JSON.
        Err(_) => return Vec::new(),
        Ok(written) => written,
    };
    let (Some(section), Some(claimed)) =
        (written.get("section"), written.get("sha256").and_then(Value::as_str))
    else {
        return vec![wrong("is no lock: it needs `section` and `sha256`".into())];
    };
    let mut findings = Vec::new();
    if written.get("stage").and_then(Value::as_str) != Some(stage.as_str()) {
        findings.push(wrong(format!("does not say that it locks `{}`", stage.as_str())));
    }
    if sha256(&sorted(section)) != claimed {
        findings.push(wrong("the locked section does not match its own hash".into()));
    }
    match lock::section(case.plan, stage) {
        Ok(now) if sorted(&now) != sorted(section) && !repaired(case, stage, section) => {
            let changed = lock::changed_paths(section, &now).join(", ");
            let repaired = if changed.contains("tasks.file_sha256") {
                format!(" (where only verifiers were repaired: `rederive rescore {} --was FILE`)", case.slug)
            } else {
                String::new()
            };
            findings
                .push(wrong(format!("the plan, or its task file, has changed since: {changed}{repaired}")));
        }
        Ok(_) => {}
        Err(error) => findings.push(wrong(error.to_string())),
    }
    let mut foreign = Gathered::new("plan_lock");
    for (file, number, row) in episodes {
        let made_under = case.episodes.text(row, "plan_sha256");
        if made_under != claimed {
            foreign.add(file, number, || {
                format!(
                    "was made under plan {}…, the {} lock is {}…",
                    head(made_under),
                    stage.as_str(),
                    head(claimed)
                )
            });
        }
    }
    findings.extend(foreign.into_findings());
    let receipts: &[&str] = match stage {
        Stage::Harvest => &["harvest"],
        Stage::Train => &["train"],
        Stage::Evaluate => &["headroom", "kill", "decision"],
    };
    for name in receipts {
        let Some(receipt) = case.receipt(name) else { continue };
        if receipt.get("plan_sha256").and_then(Value::as_str) != Some(claimed) {
            let detail = format!("is not of the plan that the {} stage locked", stage.as_str());
            findings.push(Finding::new("plan_lock", &case.receipt_path(name), None, detail));
        }
    }
    findings
}

/// Whether the plan is the locked one but for a task file whose verifiers were repaired, as a rescore says.
fn repaired(case: &Case, stage: Stage, section: &Value) -> bool {
    superseded::earlier_tasks(case.workspace, case.slug, case.plan).into_iter().any(|earlier| {
        lock::section(&lock::with_tasks(case.plan, earlier), stage)
            .is_ok_and(|then| sorted(&then) == sorted(section))
    })
}

/// Receipts that must stand, and gates that must have passed, because rows of later work exist.
fn receipts_of_later_work(case: &Case) -> Vec<Finding> {
    let sheet = case.episodes;
    let adapted =
        sheet.rows().any(|(_, _, row)| case.is_trained(sheet.text(row, "arm")) && !case.is_served(row));
    let trained = case.training.rows().next().is_some();
    let harvested = case.harvest.rows().next().is_some();
    let evaluated = sheet.rows().any(|(_, _, row)| evaluates(sheet, row));
    let finished = case.front.is_some_and(|front| front.lifecycle == Lifecycle::Finished);
    let rules = [
        ("harvest", harvested || trained, "harvest or training rows exist"),
        ("train", trained || adapted, "training rows, or episodes of the trained adapter, exist"),
        ("merge", adapted, "episodes of the trained adapter exist"),
        ("headroom", evaluated && case.plan.headroom().is_some(), "the plan has the gate and was evaluated"),
        ("kill", evaluated && case.plan.kill().is_some(), "the plan has the gate and was evaluated"),
        ("decision", evaluated && finished, "the report says finished and evaluation rows exist"),
    ];
    let missing = rules.into_iter().filter(|(name, needed, _)| *needed && !case.has_receipt(name));
    let missing = missing.map(|(name, _, why)| ("receipt_missing", name, format!("{why}, and it does not")));
    let closed = [
        ("harvest", trained, "training rows exist"),
        ("train", adapted, "episodes of the trained adapter exist"),
        ("merge", adapted, "episodes of the trained adapter exist"),
        ("headroom", evaluated, "the plan was evaluated"),
        ("kill", evaluated, "the plan was evaluated"),
    ];
    // A gate that a repaired verifier would have closed was open when the work was done.
    let was_open =
        |gate: &str| gate == "headroom" && superseded::passed_before(case.workspace, case.slug, gate);
    let bypassed =
        closed.into_iter().filter(|(gate, later, _)| *later && refused(case, gate) && !was_open(gate));
    let bypassed =
        bypassed.map(|(gate, _, why)| ("gate_bypassed", gate, format!("did not pass, and yet {why}")));
    missing
        .chain(bypassed)
        .map(|(rule, name, detail)| Finding::new(rule, &case.receipt_path(name), None, detail))
        .collect()
}

/// The verdict of the report, and what its text and log state, against the receipts that would give it.
fn verdict(case: &Case) -> Vec<Finding> {
    let Some(front) = case.front else { return Vec::new() };
    let file = format!("site/experiments/{}/report.md", case.slug);
    let printed = front.verdict.map(Verdict::as_str);
    let decision = case.receipt("decision");
    let outcome = decision.as_ref().and_then(|receipt| receipt.get("decision")?.get("outcome")?.as_str());
    let ended = ["harvest", "merge"].into_iter().any(|gate| refused(case, gate));
    let stopped = STOPPING.iter().any(|gate| refused(case, gate));
    let stated = outcome.unwrap_or(match (ended, stopped) {
        (true, _) => "inconclusive",
        (_, true) => "design-negative",
        _ => "",
    });
    // Dated entries go on saying what was decided before a rescore.
    let before = superseded::earlier_outcomes(case.workspace, case.slug);
    let mut findings: Vec<Finding> = Vec::new();
    if let Some(report) = case.report {
        let corrects = |field: Option<&str>, word: &str| {
            field.is_some_and(|field| field.starts_with("corrections["))
                && before.iter().any(|earlier| earlier.outcome == word)
        };
        findings.extend(verdicts::contradictions(report, stated, &|field, _, word| corrects(field, word)));
    }
    if let Some(log) = case.log {
        // Who writes the log may live a day ahead of the receipt's clock, or behind it.
        let then = |_: Option<&str>, line: usize, word: &str| {
            let entry = log.entries.iter().rev().find(|entry| entry.line <= line);
            entry.is_some_and(|entry| {
                before.iter().any(|earlier| {
                    earlier.outcome == word
                        && entry.date <= earlier.until.next()
                        && earlier.from.is_none_or(|from| entry.date.next() >= from)
                })
            })
        };
        findings.extend(verdicts::contradictions(&log.document, stated, &then));
    }
    for amendment in &case.plan.amendments {
        // An amendment links no number, so none bears its words out.
        findings.extend(wording::claims(&amendment.text).first().map(|_| {
            let detail = format!(
                "the amendment of {} says how a comparison came out, and links no number: say so in the report",
                amendment.date
            );
            Finding::new("significant", &format!("data/{}/experiment.toml", case.slug), None, detail)
        }));
        let stood = |word: &str| before.iter().any(|earlier| earlier.outcome == word);
        let other = verdicts::others(&amendment.text, stated).into_iter().find(|(_, word)| !stood(word));
        findings.extend(other.map(|(_, word)| {
            let detail = format!("the amendment of {} {}", amendment.date, verdicts::says(word, stated));
            Finding::new("verdict", &format!("data/{}/experiment.toml", case.slug), None, detail)
        }));
    }
    let wrong = |detail: String| Some(Finding::new("verdict", &file, None, detail));
    findings.extend(match (printed, outcome) {
        (Some(printed), Some(outcome)) if printed != outcome => {
            wrong(format!("the verdict says `{printed}`, the decision is `{outcome}`"))
        }
        (None, Some(outcome)) if front.lifecycle == Lifecycle::Finished => {
            wrong(format!("is finished without a verdict, and the decision is `{outcome}`"))
        }
        (Some("design-negative"), None) if !STOPPING.iter().any(|gate| refused(case, gate)) => {
            wrong("the verdict says `design-negative`, and the receipt of no gate stopped the plan".into())
        }
        (Some("inconclusive"), None) if front.starved => None,
        (Some("inconclusive"), None) if refused(case, "merge") => None,
        (Some(printed @ ("positive" | "negative" | "inconclusive")), None) => {
            wrong(format!("the verdict says `{printed}`, and there is no decision"))
        }
        _ => None,
    });
    findings.extend(front.starved.then(|| starved(case, &file)).flatten());
    findings
}

/// Gates whose refusal makes an experiment design-negative.
const STOPPING: [&str; 2] = ["headroom", "kill"];

/// Whether the receipt of a gate says that it did not pass.
fn refused(case: &Case, gate: &str) -> bool {
    case.receipt(gate).is_some_and(|receipt| receipt.get("passed").and_then(Value::as_bool) == Some(false))
}

/// A report may not say planned once a stage was begun, nor in progress once a receipt ended it all.
fn lifecycle(case: &Case) -> Option<Finding> {
    let begun = || {
        let locks = ["plan-harvest", "plan-train", "plan-evaluate"];
        let what = locks.into_iter().find(|name| case.has_receipt(name))?;
        Some(format!("{} says that a stage was begun: say `in-progress`", case.receipt_path(what)))
    };
    let over = || {
        if case.has_receipt("decision") {
            return Some("the experiment is decided: say `finished`, and the verdict".to_string());
        }
        let gate = ["headroom", "kill", "merge", "harvest"].into_iter().find(|gate| refused(case, gate))?;
        Some(format!("{} ended the experiment: say `stopped`, and the verdict", case.receipt_path(gate)))
    };
    let (said, instead) = match case.front?.lifecycle {
        Lifecycle::Planned => ("planned", over().or_else(begun)?),
        Lifecycle::InProgress => ("in-progress", over()?),
        _ => return None,
    };
    let file = format!("site/experiments/{}/report.md", case.slug);
    Some(Finding::new("lifecycle", &file, None, format!("`lifecycle` is `{said}`, and {instead}")))
}

/// A report may only say starved where the harvest receipt does.
fn starved(case: &Case, file: &str) -> Option<Finding> {
    let said = case
        .receipt("harvest")
        .is_some_and(|receipt| receipt.get("starved").is_some_and(|starved| !starved.is_null()));
    let detail = "the report says starved, and no harvest receipt does";
    (!said).then(|| Finding::new("verdict", file, None, detail.into()))
}

/// Every event seed of a row must stand in the ledger for this experiment and purpose.
fn seed_ledger(case: &Case, ledger: &str) -> Vec<Finding> {
    let entries = looks::spent(ledger);
    let own = entries.iter().filter(|entry| entry.experiment == case.slug);
    let spent: BTreeSet<(i64, &str)> = own.map(|entry| (entry.seed, entry.purpose.as_str())).collect();
    let mut lacking = Gathered::new("seed_ledger");
    for (seed, purpose, file, number) in spending(case.episodes, case.harvest) {
        if !spent.contains(&(seed, purpose)) {
            lacking.add(file, number, || {
                format!("data/seeds.jsonl does not say that seed {seed} was spent on `{purpose}`")
            });
        }
    }
    let planned = case.plan.event_seeds();
    let is_planned = |(seed, purpose): &(i64, &str)| {
        planned.iter().any(|(of, own)| i64::try_from(*own) == Ok(*seed) && of.as_str() == *purpose)
    };
    let dropped = spent.iter().filter(|event| !is_planned(event)).map(|(seed, purpose)| {
        let slug = case.slug;
        let detail =
            format!("says that `{slug}` spent seed {seed} on `{purpose}`, which its plan does not name");
        Finding::new("seed_ledger", looks::LEDGER, None, detail)
    });
    lacking.into_findings().chain(dropped).collect()
}
