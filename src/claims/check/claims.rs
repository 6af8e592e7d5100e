//! What a claim owes its reader: numbers in its text, evidence for its status and for every
//! change of it, and evidence of the population it speaks of.

use super::Outcome;
use crate::claims::book::Book;
use crate::claims::derivation::{Estimator, Reference};
use crate::claims::ledger::{Claim, Population, Status};
use crate::claims::texts::Texts;
use crate::error::nearest;
use std::collections::BTreeSet;

pub(super) fn check(texts: &Texts, book: &Book, outcome: &mut Outcome) {
    for claim in &texts.claims {
        cites(claim, outcome);
        history(claim, book, outcome);
        if claim.population == Population::TasksXTrainSeeds {
            training(claim, book, outcome);
        }
        names(claim, texts, outcome);
    }
}

fn cites(claim: &Claim, outcome: &mut Outcome) {
    let document = &claim.document;
    if !document.links().iter().any(|link| link.field.is_none() && link.reference.is_ok()) {
        outcome.add(
            document,
            document.line(document.body.start),
            "cites_nothing",
            format!("claim `{}` cites no number in its text", claim.id),
            "say what was found, with a link: `[](derive:<scope>.<id>)`",
        );
    }
    if claim.evidence().next().is_none() {
        outcome.add(
            document,
            document.line_of("[[history]]", 0).unwrap_or(1),
            "cites_nothing",
            format!("claim `{}` has no evidence", claim.id),
            "add `evidence = [\"derive:<scope>.<id>\"]` to its history",
        );
    }
}

fn history(claim: &Claim, book: &Book, outcome: &mut Outcome) {
    let document = &claim.document;
    let mut seen: BTreeSet<&Reference> = BTreeSet::new();
    let mut before: Option<Status> = None;
    for (index, change) in claim.history.iter().enumerate() {
        let line = document.line_of("[[history]]", index).unwrap_or(1);
        for reference in &change.evidence {
            match book.resolve(reference) {
                Err(error) => outcome.add_error(document, line, "evidence", error),
                Ok(resolved) if resolved.number.get().is_none() && change.status != Status::Proposed => {
                    let why = match resolved.number {
                        crate::claims::value::Number::Undefined(why) => why.as_str(),
                        crate::claims::value::Number::Defined(_) => "",
                    };
                    let text = format!("evidence `{reference}` is undefined: {why}");
                    outcome.add(
                        document,
                        line,
                        "evidence",
                        text,
                        "a claim stays `proposed` until its evidence is there",
                    );
                }
                Ok(_) => {}
            }
        }
        let new = change.evidence.iter().any(|reference| !seen.contains(reference));
        if before.is_some_and(|before| before != change.status) && !new {
            let text = format!(
                "the change to `{}` on {} brings no new evidence",
                change.status.word().to_lowercase(),
                change.date
            );
            outcome.add(
                document,
                line,
                "status_without_evidence",
                text,
                "cite what changed, or leave the status as it was",
            );
        }
        seen.extend(&change.evidence);
        before = Some(change.status);
    }
}

/// A claim about training needs several training runs behind it, and no interval that speaks of tasks only.
fn training(claim: &Claim, book: &Book, outcome: &mut Outcome) {
    let document = &claim.document;
    let line = document.line_of("population", 0).unwrap_or(1);
    for reference in claim.evidence().collect::<BTreeSet<_>>() {
        let Ok(resolved) = book.resolve(reference) else { continue };
        let entry = resolved.entry;
        if entry.derivation.data.holds_attempts() && !resolved.is_pending() && entry.train_seeds.len() < 2 {
            let text = format!(
                "claim `{}` speaks of training, but `{reference}` has {} training seed{}",
                claim.id,
                entry.train_seeds.len(),
                if entry.train_seeds.len() == 1 { "" } else { "s" },
            );
            outcome.add(
                document,
                line,
                "one_training_seed",
                text,
                "train with more seeds, or write `population = \"tasks\"`",
            );
        }
    }
    for link in document.links() {
        let Ok(resolved) =
            link.reference.as_ref().map_err(|_| ()).and_then(|r| book.resolve(r).map_err(|_| ()))
        else {
            continue;
        };
        let spread = link
            .reference
            .as_ref()
            .is_ok_and(|r| ["low", "high", "p", "se", "df", "mde"].contains(&r.part.as_str()));
        if spread && matches!(resolved.entry.derivation.estimator, Estimator::PairedDelta | Estimator::Mean) {
            outcome.add(
                document,
                link.line,
                "tasks_only_interval",
                "an interval over tasks stands in a claim about training",
                "it says nothing of another training run: leave it out, or write `population = \"tasks\"`",
            );
        }
    }
}

fn names(claim: &Claim, texts: &Texts, outcome: &mut Outcome) {
    let document = &claim.document;
    if let Some(old) = claim.supersedes.as_deref() {
        let line = document.line_of("supersedes", 0).unwrap_or(1);
        if old == claim.id {
            outcome.add(
                document,
                line,
                "supersedes",
                "the claim replaces itself",
                "name the claim that it replaces",
            );
        } else if let Err(error) = texts.claim(old) {
            outcome.add_error(document, line, "supersedes", error);
        }
    }
    for slug in claim.experiments.iter().filter(|slug| !texts.experiments.contains_key(*slug)) {
        let near = nearest(slug, texts.experiments.keys().map(String::as_str));
        let hint = near.map_or("name a folder under `site/experiments/`".to_string(), |near| {
            format!("did you mean `{near}`?")
        });
        let line = document.line_of("experiments", 0).unwrap_or(1);
        outcome.add(document, line, "experiments", format!("there is no experiment `{slug}`"), hint);
    }
}
