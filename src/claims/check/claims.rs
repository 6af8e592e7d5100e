//! What a claim owes its reader: numbers in its text, evidence for its status and for every
//! change of it, and evidence of the population it speaks of.

use super::Outcome;
use super::prose::{Families, adjusted_p};
use crate::claims::book::{Book, Entry, Resolved};
use crate::claims::conflicts;
use crate::claims::day::Day;
use crate::claims::derivation::{self, Estimator, Reference};
use crate::claims::evaluate::IDENTICAL;
use crate::claims::grounds::{self, Evidence, Ground};
use crate::claims::ledger::{Claim, Population, Status};
use crate::claims::texts::Texts;
use crate::error::nearest;
use std::collections::BTreeSet;

pub(super) fn check(texts: &Texts, book: &Book, outcome: &mut Outcome) {
    let families = Families::of(book);
    for claim in &texts.claims {
        cites(claim, outcome);
        history(claim, book, outcome);
        if claim.population == Population::TasksXTrainSeeds {
            training(claim, book, outcome);
        }
        supported(claim, &families, book, outcome);
        names(claim, texts, outcome);
    }
    for conflict in conflicts::of(&texts.claims) {
        let document = &conflict.claim.document;
        let line = document.line_of(conflict.key, conflict.nth).unwrap_or(1);
        let text = format!("claim `{}` {}", conflict.claim.id, conflict.text);
        outcome.add(document, line, conflict.rule, text, conflict.hint);
    }
}

/// A claim that is held needs something that bears it out: of the comparisons that its evidence rests on, where there are any, one
/// whose interval leaves zero out, one without an interval whose p value is small, or one that is cited for what holds within its margin.
/// Numbers of two arms beside each other are no comparison, nor is what the plan fixes.
fn supported(claim: &Claim, families: &Families, book: &Book, outcome: &mut Outcome) {
    if !matches!(claim.status, Status::Promising | Status::Confirmed) {
        return;
    }
    let mut open: Vec<String> = Vec::new();
    let (mut stated, mut measured) = (false, false);
    // (experiment, arm) of what stands without a comparison.
    let mut apart: BTreeSet<(&str, String)> = BTreeSet::new();
    let of = Evidence::of(claim);
    let rests = |references: Vec<&Reference>| -> BTreeSet<Reference> {
        references.into_iter().flat_map(|reference| book.rests_on(reference)).collect()
    };
    let (evidence, known) = (rests(of.bears), rests(of.known));
    let links = claim.document.links();
    let printed = rests(links.iter().filter_map(|link| link.reference.as_ref().ok()).collect());
    let columns: BTreeSet<&str> = printed.iter().filter_map(|r| compared_column(r, book)).collect();
    for reference in &evidence {
        let Ok(resolved) = book.resolve(reference) else { return };
        if known.iter().any(|old| same_number(old, reference, book)) {
            continue;
        }
        let (derivation, slug) = (&resolved.entry.derivation, &resolved.entry.experiment);
        let ground = Ground::of(derivation, reference);
        let of_margin = ["non_inferiority_p", "equivalence_p"].contains(&reference.part.as_str());
        let compares = matches!(ground, Ground::Change | Ground::Chance);
        // Where a family of tests adjusts it, its interval alone is no evidence.
        let adjusted = if compares && !of_margin { adjusted_p(reference, families, book) } else { None };
        if adjusted.is_some_and(|p| p.is_none_or(|p| p >= 0.05)) {
            open.push(format!("{reference}, by its adjusted p value"));
            continue;
        }
        if compares && !columns.is_empty() && !columns.contains(grounds::column(derivation)) {
            open.push(format!(
                "{reference}, which is of another column than the change that the claim prints"
            ));
            continue;
        }
        // Another training run may well undo what holds on other tasks.
        let of_tasks = derivation.population == derivation::Population::Tasks;
        if compares && of_tasks && claim.population == Population::TasksXTrainSeeds {
            open.push(format!("{reference}, whose interval is over tasks only"));
            continue;
        }
        match ground {
            Ground::Change if bears_out(reference, &resolved, 0.0) => return,
            Ground::Chance if bears_out(reference, &resolved, 0.5) => return,
            Ground::Change | Ground::Chance => open.push(reference.to_string()),
            Ground::Picked(column) => {
                open.push(format!("{reference}, whose attempts are picked by `{column}`"));
            }
            Ground::Arms(arms) => {
                measured = true;
                apart.extend(arms.into_iter().map(|arm| (slug.as_str(), arm)));
            }
            Ground::Stated => stated = true,
            Ground::Measured => measured = true,
            Ground::NotMeasured => {}
        }
    }
    let two = apart.iter().zip(apart.iter().skip(1)).find(|(a, b)| a.0 == b.0);
    let (why, hint) = match two {
        _ if !open.is_empty() => (
            format!("no interval in its evidence leaves out that nothing changed ({})", open.join(", ")),
            "leave it `proposed`, or cite what bears it out",
        ),
        Some(((slug, one), (_, other))) => (
            format!(
                "its evidence has numbers of `{one}` and of `{other}` in `{slug}` and no comparison of the two"
            ),
            "declare a `paired_delta` of both arms and cite it as evidence",
        ),
        None if stated => (
            "its evidence has what a decision states, and no comparison worked out from the rows".to_string(),
            "declare a `paired_delta` of both arms and cite it as evidence",
        ),
        // What prints a comparison, or was raised on one, is held by one that is new.
        None if !columns.is_empty() || known.iter().any(|r| compared_column(r, book).is_some()) => (
            "its evidence compares nothing, or nothing that is new".to_string(),
            "cite the comparison that it prints, or one that no earlier entry names",
        ),
        None if !measured => (
            "its evidence has nothing that was measured here".to_string(),
            "cite what bears it out, a number worked out from rows",
        ),
        None => return,
    };
    let document = &claim.document;
    let line = document.line_of("status", 0).unwrap_or(1);
    let text = format!("claim `{}` is {}, and {why}", claim.id, claim.status.word().to_lowercase());
    outcome.add(document, line, "unsupported_status", text, hint);
}

/// The column of a comparison.
pub(super) fn compared_column<'b>(reference: &Reference, book: &'b Book) -> Option<&'b str> {
    let derivation = &book.entry(&reference.scope, &reference.id)?.derivation;
    let compares = matches!(Ground::of(derivation, reference), Ground::Change | Ground::Chance);
    compares.then(|| grounds::column(derivation))
}

/// Whether two references lead to one number, under one name or two.
fn same_number(one: &Reference, other: &Reference, book: &Book) -> bool {
    let entry = |reference: &Reference| book.entry(&reference.scope, &reference.id);
    let alike = |(a, b): (&Entry, &Entry)| {
        a.experiment == b.experiment && a.derivation.tests_the_same(&b.derivation, "p")
    };
    one.row == other.row && entry(one).zip(entry(other)).is_some_and(alike)
}

/// Whether a comparison leaves out that it came to `nothing`, or is cited for what holds within its margin, or both arms wrote the same.
fn bears_out(reference: &Reference, resolved: &Resolved, nothing: f64) -> bool {
    let part = |name: &str| resolved.evaluated.parts.get(name).and_then(|number| number.get());
    let leaves_out = match (part("low"), part("high")) {
        (Some(low), Some(high)) => low > nothing || high < nothing,
        // Where every task moves alike there is no interval, and still a test.
        _ => part("p").is_some_and(|p| p < 0.05),
    };
    let within = ["non_inferiority_p", "equivalence_p"].contains(&reference.part.as_str());
    let margin = within && resolved.number.get().is_some_and(|p| p < 0.05);
    leaves_out || margin || resolved.evaluated.method.as_deref() == Some(IDENTICAL)
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
    // Who writes a claim may live a day ahead of this clock.
    let today = crate::clock::now().get(..10).unwrap_or_default().parse::<Day>();
    for (index, change) in claim.history.iter().enumerate() {
        if today.as_ref().is_ok_and(|today| change.date > today.next()) {
            let line = document.line_of("[[history]]", index).unwrap_or(1);
            let text = format!("the history has an entry of {}, which is yet to come", change.date);
            outcome.add(document, line, "dates", text, "write the day on which the status changed");
        }
    }
    // Another part of a number is no new evidence.
    let number = |reference: &Reference| Reference { part: String::new(), ..reference.clone() };
    let mut seen: BTreeSet<Reference> = BTreeSet::new();
    let mut before: Option<Status> = None;
    for (index, change) in claim.history.iter().enumerate() {
        let line = document.line_of("[[history]]", index).unwrap_or(1);
        for reference in change.evidence.iter().chain(&change.against) {
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
        let new = change.evidence.iter().chain(&change.against).any(|r| !seen.contains(&number(r)));
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
        seen.extend(change.evidence.iter().chain(&change.against).map(number));
        before = Some(change.status);
    }
}

/// A claim about training needs several training runs behind it, and no interval that speaks of tasks only.
fn training(claim: &Claim, book: &Book, outcome: &mut Outcome) {
    let document = &claim.document;
    let line = document.line_of("population", 0).unwrap_or(1);
    let evidence: BTreeSet<Reference> =
        claim.evidence().flat_map(|reference| book.rests_on(reference)).collect();
    for reference in &evidence {
        let Ok(resolved) = book.resolve(reference) else { continue };
        let entry = resolved.entry;
        // A row of a table by training seed is one of them.
        let one = reference.row.is_some() && entry.derivation.by.as_deref() == Some("train_seed");
        let seeds = if one { 1 } else { entry.train_seeds.len() };
        // An arm that nobody trained has none, and says nothing of training.
        if seeds == 0 && matches!(Ground::of(&entry.derivation, reference), Ground::Arms(_)) {
            continue;
        }
        if entry.derivation.data.holds_attempts() && !resolved.is_pending() && seeds < 2 {
            let text = format!(
                "claim `{}` speaks of training, but `{reference}` has {seeds} training seed{}",
                claim.id,
                if seeds == 1 { "" } else { "s" },
            );
            outcome.add(
                document,
                line,
                "training_claim_on_one_seed",
                text,
                "train with more seeds, or write `population = \"tasks\"`",
            );
        }
    }
    for link in document.links() {
        let Ok(reference) = &link.reference else { continue };
        let tasks_only = |reference: &Reference| {
            let entry = book.entry(&reference.scope, &reference.id);
            derivation::SPREAD.contains(&reference.part.as_str())
                && entry.is_some_and(|entry| {
                    entry.derivation.population == derivation::Population::Tasks
                        && matches!(
                            entry.derivation.estimator,
                            Estimator::PairedDelta | Estimator::Mean | Estimator::ProbabilityOfImprovement
                        )
                })
        };
        if book.rests_on(reference).iter().any(tasks_only) {
            outcome.add(
                document,
                link.line,
                "tasks_only_interval",
                "an interval over tasks stands in a claim about training",
                "it says nothing of another training run: write `population = \"tasks-x-train-seeds\"` in the derivation, or `\"tasks\"` in the claim",
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
