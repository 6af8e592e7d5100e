//! Rules about the ledger: each claim cites something that is declared, a change of status brings new evidence, what is held is
//! borne out by its own numbers, a claim about training rests on several training seeds, and claims fit together.

use super::Finding;
use super::estimators::Part;
use super::prose::{self, Adjusted};
use super::recompute::{Failure, Road};
use super::sheet::Sheet;
use super::walk::walk;
use crate::claims::conflicts;
use crate::claims::day::Day;
use crate::claims::derivation::{self, DataSet, Derivation, Estimator, Reference};
use crate::claims::grounds::{self, Evidence, Ground};
use crate::claims::ledger::{Claim, Population, Status};
use crate::claims::links::Link;
use crate::claims::texts::Texts;
use std::collections::{BTreeMap, BTreeSet};

/// What does not hold of the claims of a workspace.
pub fn check(
    texts: &Texts,
    road: &mut Road,
    sheets: &BTreeMap<(String, DataSet), Sheet>,
    adjusted: &Adjusted,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for claim in &texts.claims {
        let file = &claim.document.path;
        let mut wrong = |rule, detail| findings.push(Finding::new(rule, file, None, detail));
        let links: Vec<Link> = claim.document.links();
        if claim.evidence().next().is_none() && links.iter().all(|link| link.reference.is_err()) {
            wrong("claim_cites_nothing", format!("claim `{}` cites no derivation", claim.id));
        }
        let cited = claim.history.iter().flat_map(|change| {
            change.evidence.iter().chain(&change.against).map(move |reference| (change.status, reference))
        });
        for (status, reference) in cited {
            match road.part(reference) {
                _ if road.declaration(reference).is_none() => {
                    wrong("evidence_not_declared", format!("nothing declares `{reference}`"));
                }
                Err(Failure::Wrong(why)) => wrong("evidence", format!("`{reference}`: {why}")),
                Ok(Part::Undefined(why)) if status != Status::Proposed => {
                    wrong("evidence", format!("`{reference}` is undefined: {why}"));
                }
                _ => {}
            }
        }
        // Who writes a claim may live a day ahead of this clock.
        let tomorrow = crate::clock::now().get(..10).unwrap_or_default().parse::<Day>().map(Day::next);
        for change in
            claim.history.iter().filter(|change| tomorrow.as_ref().is_ok_and(|day| change.date > *day))
        {
            wrong("dates", format!("the history has an entry of {}, which is yet to come", change.date));
        }
        if let Some(detail) = status_without_evidence(claim) {
            wrong("status_without_evidence", detail);
        }
        if let Some(detail) = unsupported(claim, road, adjusted) {
            wrong("unsupported_status", detail);
        }
        if claim.population == Population::TasksXTrainSeeds {
            for reference in evidence(claim, road) {
                // An arm that nobody trained has none, and says nothing of training.
                let alone = road.declaration(&reference).is_some_and(|(derivation, _)| {
                    matches!(Ground::of(derivation, &reference), Ground::Arms(_))
                });
                let seeds = train_seeds(&reference, road, sheets).filter(|seeds| *seeds > 0 || !alone);
                if let Some(seeds) = seeds.filter(|seeds| *seeds < 2) {
                    let detail = format!(
                        "claim `{}` speaks of training, and the rows of `{reference}` carry {seeds} training seed(s)",
                        claim.id
                    );
                    wrong("training_claim_on_one_seed", detail);
                }
            }
            for link in &links {
                let Ok(reference) = &link.reference else { continue };
                if road.rests_on(reference).iter().any(|leaf| tasks_only(leaf, road)) {
                    let line = link.line;
                    let detail =
                        format!("line {line}: an interval over tasks stands in a claim about training");
                    wrong("tasks_only_interval", detail);
                }
            }
        }
    }
    for conflict in conflicts::of(&texts.claims) {
        let detail = format!("claim `{}` {}", conflict.claim.id, conflict.text);
        findings.push(Finding::new(conflict.rule, &conflict.claim.document.path, None, detail));
    }
    findings
}

/// The numbers that a claim's evidence rests on in the end.
fn evidence(claim: &Claim, road: &Road) -> BTreeSet<Reference> {
    claim.evidence().flat_map(|reference| road.rests_on(reference)).collect()
}

/// A change of status without a number that no earlier entry names; another part of one is the same number.
fn status_without_evidence(claim: &Claim) -> Option<String> {
    fn number(r: &Reference) -> (&str, &str, Option<&str>) {
        (&r.scope, &r.id, r.row.as_deref())
    }
    let mut known: BTreeSet<(&str, &str, Option<&str>)> = BTreeSet::new();
    let mut before = None;
    for change in &claim.history {
        let mut brought = change.evidence.iter().chain(&change.against);
        let moved = before.is_some_and(|status| status != change.status);
        if moved && brought.all(|reference| known.contains(&number(reference))) {
            return Some(format!(
                "the change to {:?} on {} brings no new evidence",
                change.status, change.date
            ));
        }
        known.extend(change.evidence.iter().chain(&change.against).map(number));
        before = Some(change.status);
    }
    None
}

/// Why a held claim is not borne out: all comparisons in its evidence may as well be nothing, or are of picked attempts; or it has
/// none, and numbers of two arms, or a decision's, or nothing that was measured.
fn unsupported(claim: &Claim, road: &mut Road, adjusted: &Adjusted) -> Option<String> {
    if claim.status != Status::Promising && claim.status != Status::Confirmed {
        return None;
    }
    let mut open: Vec<String> = Vec::new();
    let mut alone: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut of_decision, mut measured) = (false, false);
    let ends = |references: Vec<&Reference>, road: &Road| -> BTreeSet<Reference> {
        references.into_iter().flat_map(|reference| road.rests_on(reference)).collect()
    };
    let of = Evidence::of(claim);
    let (evidence, known) = (ends(of.bears, road), ends(of.known, road));
    let links: Vec<Link> = claim.document.links();
    let printed = ends(links.iter().filter_map(|link| link.reference.as_ref().ok()).collect(), road);
    let columns: BTreeSet<String> = printed.iter().filter_map(|end| compared(end, road)).collect();
    for reference in &evidence {
        let Some((derivation, slug)) = road.declaration(reference) else { continue };
        // What earlier entries rest on is nothing new under another name.
        let again = |old: &Reference| {
            let same = |(own, at): (&Derivation, &str)| at == slug && own.tests_the_same(derivation, "p");
            old.row == reference.row && road.declaration(old).is_some_and(same)
        };
        if known.iter().any(again) {
            continue;
        }
        if let Some(column) =
            compared(reference, road).filter(|of| !columns.is_empty() && !columns.contains(of))
        {
            open.push(format!(
                "{reference}, of `{column}`, which the changes that the claim prints are not of"
            ));
            continue;
        }
        let of_training = claim.population == Population::TasksXTrainSeeds;
        if of_training
            && derivation.population == derivation::Population::Tasks
            && compared(reference, road).is_some()
        {
            open.push(format!("{reference}, which says nothing of other training runs"));
            continue;
        }
        let none = match Ground::of(derivation, reference) {
            Ground::Change => 0.0,
            Ground::Chance => 0.5,
            Ground::Picked(column) => {
                open.push(format!("{reference}, of attempts that `{column}` picks"));
                continue;
            }
            Ground::Arms(arms) => {
                measured = true;
                alone.entry(slug.to_string()).or_default().extend(arms);
                continue;
            }
            other => {
                of_decision |= other == Ground::Stated;
                measured |= other == Ground::Measured;
                continue;
            }
        };
        let cited = ["non_inferiority_p", "equivalence_p"].contains(&reference.part.as_str());
        // Where a family of tests adjusts it, its interval alone is no evidence.
        let test = Reference { part: "p".into(), ..reference.clone() };
        let in_family = adjusted.keys().any(|own| prose::same_test(own, &test, road));
        if in_family
            && !cited
            && prose::p_value(&test, &["p"], adjusted, road).flatten().is_none_or(|p| p >= 0.05)
        {
            open.push(format!("{reference}, by its adjusted p value"));
            continue;
        }
        let mut part = |name: &str| {
            let of = Reference { part: name.into(), ..reference.clone() };
            road.part(&of).ok().as_ref().and_then(Part::get)
        };
        let (low, high) = (part("low"), part("high"));
        let by_test = low.is_none() && high.is_none() && part("p").is_some_and(|p| p < 0.05);
        let outside = by_test || low.is_some_and(|low| low > none) || high.is_some_and(|high| high < none);
        let nothing_differs = none == 0.0 && low == Some(0.0) && high == Some(0.0);
        // A margin that is declared bears out what is cited of it, and no gain.
        let within = cited && part(&reference.part).is_some_and(|p| p < 0.05);
        if outside || nothing_differs || within {
            return None;
        }
        open.push(reference.to_string());
    }
    let (id, status) = (&claim.id, claim.status);
    let why = if !open.is_empty() {
        format!("no interval in its evidence leaves out that nothing changed ({})", open.join("; "))
    } else if let Some((slug, arms)) = alone.into_iter().find(|(_, arms)| arms.len() > 1) {
        let arms: Vec<String> = arms.iter().map(|arm| format!("`{arm}`")).collect();
        format!("its evidence has numbers of {} in `{slug}` and no comparison of them", arms.join(" and "))
    } else if of_decision {
        "its evidence is what a decision's receipt says, and no comparison of rows".to_string()
    } else if !columns.is_empty() || known.iter().any(|end| compared(end, road).is_some()) {
        "no comparison, or none that is new, is in its evidence".to_string()
    } else if !measured {
        "no number in its evidence was measured here".to_string()
    } else {
        return None;
    };
    Some(format!("claim `{id}` is {status:?}, and {why}"))
}

/// The column of a number that compares two arms.
pub fn compared(reference: &Reference, road: &Road) -> Option<String> {
    let (derivation, _) = road.declaration(reference)?;
    let compares = matches!(Ground::of(derivation, reference), Ground::Change | Ground::Chance);
    compares.then(|| grounds::column(derivation).to_string())
}

/// Training seeds among the attempts that a number is worked out from; `None` for numbers of other kinds, and while there are no rows.
fn train_seeds(
    reference: &Reference,
    road: &Road,
    sheets: &BTreeMap<(String, DataSet), Sheet>,
) -> Option<usize> {
    let (derivation, slug) = road.declaration(reference)?;
    let sheet = sheets.get(&(slug.to_string(), derivation.data))?;
    let attempts = walk(sheet, derivation).ok().filter(|_| derivation.data.holds_attempts())?;
    let mut of_row = attempts
        .iter()
        .filter(|attempt| reference.row.is_none() || attempt.label.as_deref() == reference.row.as_deref())
        .peekable();
    of_row.peek()?;
    Some(of_row.filter_map(|attempt| attempt.train_seed).collect::<BTreeSet<i64>>().len())
}

/// Whether a part says how far a number may be off on other tasks, and nothing of other training runs.
fn tasks_only(reference: &Reference, road: &Road) -> bool {
    let of = |(derivation, _): (&Derivation, &str)| {
        derivation.population == derivation::Population::Tasks
            && matches!(
                derivation.estimator,
                Estimator::PairedDelta | Estimator::Mean | Estimator::ProbabilityOfImprovement
            )
    };
    derivation::SPREAD.contains(&reference.part.as_str()) && road.declaration(reference).is_some_and(of)
}
