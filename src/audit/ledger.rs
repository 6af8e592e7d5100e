//! Rules about the ledger: each claim cites something that is declared, a change of status brings new evidence, what is held is
//! borne out by its own numbers, a claim about training rests on several training seeds, and claims fit together.

use super::Finding;
use super::estimators::Part;
use super::recompute::Road;
use super::rules;
use super::sheet::Sheet;
use crate::claims::conflicts;
use crate::claims::derivation::{DataSet, Estimator, Reference};
use crate::claims::ledger::{Claim, Population, Status};
use crate::claims::texts::Texts;
use std::collections::{BTreeMap, BTreeSet};

/// What does not hold of the claims of a workspace.
pub fn check(texts: &Texts, road: &mut Road, sheets: &BTreeMap<(String, DataSet), Sheet>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for claim in &texts.claims {
        let file = &claim.document.path;
        let mut wrong = |rule, detail| findings.push(Finding::new(rule, file, None, detail));
        let links = claim.document.links().into_iter().filter_map(|link| link.reference.ok());
        let cited: Vec<Reference> = links.chain(claim.evidence().cloned()).collect();
        if cited.is_empty() {
            wrong("claim_cites_nothing", format!("claim `{}` cites no derivation", claim.id));
        }
        for reference in claim.evidence().chain(claim.against()) {
            if road.declaration(reference).is_none() {
                wrong("evidence_not_declared", format!("nothing declares `{reference}`"));
            }
        }
        if let Some(detail) = status_without_evidence(claim) {
            wrong("status_without_evidence", detail);
        }
        if let Some(detail) = unsupported(claim, road) {
            wrong("unsupported_status", detail);
        }
        if claim.population == Population::TasksXTrainSeeds {
            let seeds = train_seeds(&cited, road, sheets);
            if seeds < 2 {
                let rows = format!(
                    "claim `{}` speaks of training, and its rows carry {seeds} training seed(s)",
                    claim.id
                );
                wrong("training_claim_on_one_seed", rows);
            }
        }
    }
    for conflict in conflicts::of(&texts.claims) {
        let detail = format!("claim `{}` {}", conflict.claim.id, conflict.text);
        findings.push(Finding::new(conflict.rule, &conflict.claim.document.path, None, detail));
    }
    findings
}

fn status_without_evidence(claim: &Claim) -> Option<String> {
    let mut known: BTreeSet<&Reference> = BTreeSet::new();
    let mut before = None;
    for change in &claim.history {
        let mut brought = change.evidence.iter().chain(&change.against);
        let moved = before.is_some_and(|status| status != change.status);
        if moved && brought.all(|reference| known.contains(reference)) {
            return Some(format!(
                "the change to {:?} on {} brings no new evidence",
                change.status, change.date
            ));
        }
        known.extend(change.evidence.iter().chain(&change.against));
        before = Some(change.status);
    }
    None
}

/// A held claim whose evidence has comparisons, all of which may as well be nothing.
fn unsupported(claim: &Claim, road: &mut Road) -> Option<String> {
    if claim.status != Status::Promising && claim.status != Status::Confirmed {
        return None;
    }
    let mut open = Vec::new();
    for reference in claim.evidence() {
        let (derivation, _) = road.declaration(reference)?;
        let none = match derivation.estimator {
            Estimator::PairedDelta => 0.0,
            Estimator::ProbabilityOfImprovement => 0.5,
            _ => continue,
        };
        let margin = derivation.margin.is_some();
        let mut part = |name: &str| {
            let of = Reference { part: name.into(), ..reference.clone() };
            road.part(&of).ok().as_ref().and_then(Part::get)
        };
        let (low, high) = (part("low"), part("high"));
        let outside = low.is_some_and(|low| low > none) || high.is_some_and(|high| high < none);
        let nothing_differs = none == 0.0 && low == Some(0.0) && high == Some(0.0);
        let within = margin
            && ["non_inferiority_p", "equivalence_p"].iter().any(|p| part(p).is_some_and(|p| p < 0.05));
        if outside || nothing_differs || within {
            return None;
        }
        open.push(reference.to_string());
    }
    (!open.is_empty()).then(|| {
        format!(
            "claim `{}` is {:?}, and no interval in its evidence leaves out that nothing changed ({})",
            claim.id,
            claim.status,
            open.join(", ")
        )
    })
}

/// Training seeds in the rows that a claim's numbers read.
fn train_seeds(cited: &[Reference], road: &Road, sheets: &BTreeMap<(String, DataSet), Sheet>) -> usize {
    let read = cited.iter().filter_map(|reference| Some(road.declaration(reference)?.1.to_string()));
    read.flat_map(|slug| [DataSet::Episodes, DataSet::Imported].map(|data| (slug.clone(), data)))
        .filter_map(|key| sheets.get(&key))
        .map(rules::train_seeds)
        .max()
        .unwrap_or(0)
}
