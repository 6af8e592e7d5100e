//! Words against numbers: a sentence that calls something significant, the same or no worse cites p values of this road that
//! bear it out, in it or in its paragraph, raised by the number of tests where they belong to a declared family.

use super::Finding;
use super::estimators::Part;
use super::families;
use super::ledger;
use super::recompute::Road;
use super::repeats::ORACLE;
use crate::claims::derivation::{Derivation, Estimator, Reference};
use crate::claims::front_matter::{Document, Passage};
use crate::claims::texts::Texts;
use crate::claims::wording::{self, Says, Statement};
use crate::claims::{family, links};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Fields of front matter that are no prose.
const NO_PROSE: [&str; 7] =
    ["derivations", "history", "reproduce", "id", "status", "population", "experiments"];

/// p value → its place in a family that adjusts it.
pub type Adjusted = BTreeMap<Reference, Vec<Reference>>;

/// Statements of all texts that their numbers do not bear out.
pub fn check(texts: &Texts, road: &mut Road, adjusted: &Adjusted) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in texts.documents() {
        let claim = texts.claims.iter().find(|claim| std::ptr::eq(&claim.document, document));
        for passage in document.passages() {
            let group = passage.field.and_then(|field| field.split(['[', '.']).next()).unwrap_or("body");
            if NO_PROSE.contains(&group) {
                continue;
            }
            // A claim's title means its evidence.
            let titled = claim.filter(|_| passage.field.is_some());
            let evidence: Vec<&Reference> = titled.iter().flat_map(|claim| claim.evidence()).collect();
            let scan = links::scan(passage.text);
            for paragraph in wording::paragraphs(&scan.prose) {
                let cited = |range: Range<usize>| -> Vec<&Reference> {
                    let inside = scan.inside(&range).iter();
                    inside.filter_map(|link| link.reference.as_ref().ok()).collect()
                };
                let all = cited(paragraph.clone());
                findings.extend(oracle(document, &passage, &scan.prose, &paragraph, &all, road));
                for Statement { says, at, clause, sentence } in
                    wording::claims(&scan.prose[paragraph.clone()])
                {
                    let line = document.line(passage.offset(paragraph.start + at));
                    let within =
                        |part: Range<usize>| cited(paragraph.start + part.start..paragraph.start + part.end);
                    let near = [within(clause), within(sentence), all.clone(), evidence.clone()];
                    let found = match says {
                        Says::LeavesZeroOut | Says::HoldsZero => about_zero(says, &near, road),
                        _ => judge(says, &near, adjusted, road),
                    };
                    findings.extend(found.map(|(rule, why)| {
                        Finding::new(rule, &document.path, None, format!("line {line}: {why}"))
                    }));
                }
            }
        }
    }
    findings
}

/// What is wrong with a statement that takes a p value, and under which rule. `near`: what is cited in its clause, its sentence, its
/// paragraph and as evidence; the first of them with such a p value is meant.
fn judge(
    says: Says,
    near: &[Vec<&Reference>; 4],
    adjusted: &Adjusted,
    road: &mut Road,
) -> Option<(&'static str, String)> {
    let (rule, called, parts): (_, _, &[&str]) = match says {
        Says::Significant => ("significant", "something is called significant", &["p"]),
        Says::Same => ("equality", "two arms are called the same", &["equivalence_p"]),
        _ => ("equality", "an arm is called no worse", &["equivalence_p", "non_inferiority_p"]),
    };
    let cited =
        near.iter().enumerate().flat_map(|(at, cited)| cited.iter().map(move |reference| (at, *reference)));
    for (at, reference) in cited.filter(|_| says != Says::Significant) {
        let ends = ends(reference, road);
        // What both arms wrote alike is the same; what rose, by its own sentence, is no worse.
        let rose = says == Says::NoWorse && at < 2 && ends.is_some_and(|(low, _)| low >= 0.0);
        if ends == Some((0.0, 0.0)) || rose {
            return None;
        }
    }
    let mut found: Vec<Option<f64>> = Vec::new();
    for cited in near {
        // The test of another column says nothing of a change that stands beside it.
        let changes = cited.iter().filter(|reference| reference.part != "p");
        let columns: BTreeSet<String> =
            changes.filter_map(|reference| ledger::compared(reference, road)).collect();
        let of_it = |reference: &Reference| {
            let test = adjusted
                .iter()
                .find(|(_, rows)| rows.contains(reference))
                .map_or(reference, |(test, _)| test);
            columns.is_empty() || ledger::compared(test, road).is_none_or(|column| columns.contains(&column))
        };
        let meant: Vec<&Reference> = cited.iter().copied().filter(|reference| of_it(reference)).collect();
        found = meant.into_iter().filter_map(|reference| p_value(reference, parts, adjusted, road)).collect();
        if !found.is_empty() {
            break;
        }
    }
    let why = match found.iter().find(|p| p.is_none_or(|p| p >= 0.05)) {
        None if found.is_empty() => "cites no p value of such a test".to_string(),
        None => return None,
        Some(None) => "a p value that it cites is undefined".into(),
        Some(Some(p)) => {
            format!("a p value that it cites is {p:.4}, adjusted where a family of tests is declared")
        }
    };
    Some((rule, format!("{called}, and {why}")))
}

/// Whether what is said of an interval and zero holds for one of the intervals that are cited nearest.
fn about_zero(says: Says, near: &[Vec<&Reference>; 4], road: &mut Road) -> Option<(&'static str, String)> {
    for cited in near {
        let intervals: Vec<(f64, f64)> = cited.iter().filter_map(|reference| ends(reference, road)).collect();
        let Some((low, high)) = intervals.first() else { continue };
        let holds = |(low, high): &(f64, f64)| *low <= 0.0 && *high >= 0.0;
        let said = says == Says::HoldsZero;
        return intervals.iter().all(|interval| holds(interval) != said).then(|| {
            let does = if said { "holds zero" } else { "leaves zero out" };
            ("interval", format!("an interval {does}, it is said, and it is {low:.4} to {high:.4}"))
        });
    }
    None
}

/// The ends of the interval of a change between two arms.
fn ends(reference: &Reference, road: &mut Road) -> Option<(f64, f64)> {
    let (derivation, _) = road.declaration(reference)?;
    if derivation.estimator != Estimator::PairedDelta {
        return None;
    }
    let mut end = |part: &str| number(&Reference { part: part.into(), ..reference.clone() }, road);
    end("low").zip(end("high"))
}

/// The p value behind a reference, if it is of such a part: raised by the families that it stands in, and undefined where one of
/// them is.
pub fn p_value(
    reference: &Reference,
    parts: &[&str],
    adjusted: &Adjusted,
    road: &mut Road,
) -> Option<Option<f64>> {
    // A row of a family is the p value of its test; a test's own p value counts as its family has it.
    let row_of = adjusted.iter().find(|(_, rows)| rows.contains(reference));
    let part = row_of.map_or(reference.part.as_str(), |(test, _)| test.part.as_str());
    if !parts.contains(&part) {
        return None;
    }
    // A family that has more tests than the one whose row is cited counts too.
    let size = |row: &Reference| {
        let same = |other: &&Reference| (&other.scope, &other.id) == (&row.scope, &row.id);
        adjusted.values().flatten().filter(same).count()
    };
    let test = row_of.map_or(reference, |(test, _)| test);
    let least = row_of.map_or(0, |_| size(reference));
    let counts = |row: &&Reference| *row == reference || size(row) > least;
    let of_test = adjusted.iter().filter(|(own, _)| same_test(own, test, road));
    let raised: Vec<Reference> = of_test.flat_map(|(_, rows)| rows).filter(counts).cloned().collect();
    let places = if raised.is_empty() { vec![reference.clone()] } else { raised };
    let values: Option<Vec<f64>> = places.iter().map(|place| number(place, road)).collect();
    Some(values.and_then(|values| values.into_iter().reduce(f64::max)))
}

/// What was selected by the score that it is judged by is called the oracle's.
fn oracle(
    document: &Document,
    passage: &Passage<'_>,
    prose: &str,
    paragraph: &Range<usize>,
    cited: &[&Reference],
    road: &mut Road,
) -> Option<Finding> {
    if prose[paragraph.clone()].to_ascii_lowercase().contains("oracle") {
        return None;
    }
    let selected = cited.iter().find(|reference| {
        let part = Reference { part: ORACLE.into(), ..(**reference).clone() };
        number(&part, road).is_some()
    })?;
    let line = document.line(passage.offset(paragraph.start));
    let detail = format!(
        "line {line}: `{selected}` selects by the very score that it reports, and is not called the oracle's"
    );
    Some(Finding::new("oracle_selection", &document.path, None, detail))
}

fn number(reference: &Reference, road: &mut Road) -> Option<f64> {
    road.part(reference).ok().as_ref().and_then(Part::get)
}

/// Whether two references are one test, under one name or two.
pub fn same_test(one: &Reference, other: &Reference, road: &Road) -> bool {
    let alike = || {
        let (a, in_a) = road.declaration(one)?;
        let (b, in_b) = road.declaration(other)?;
        Some(in_a == in_b && a.tests_the_same(b, &one.part))
    };
    one == other || (&one.row, &one.part) == (&other.row, &other.part) && alike() == Some(true)
}

/// Every p value that a declared family adjusts, and where.
pub fn adjusted(texts: &Texts, road: &mut Road) -> Adjusted {
    let of_reports = texts.experiments.iter().flat_map(|(slug, experiment)| {
        experiment
            .report
            .front
            .derivations
            .iter()
            .map(move |(id, derivation)| (slug.as_str(), id, derivation))
    });
    let of_claims = texts.claims.iter().flat_map(|claim| {
        claim.derivations.iter().map(move |(id, derivation)| (claim.id.as_str(), id, derivation))
    });
    let declared: Vec<(&str, &String, &Derivation)> = of_reports.chain(of_claims).collect();
    let mut adjusted = Adjusted::new();
    for (scope, id, derivation) in declared {
        for test in families::named(derivation, scope) {
            for one in road.rows_of(&test) {
                let row = Some(family::label(&one, scope));
                let place = Reference { scope: scope.into(), id: id.clone(), row, part: "value".into() };
                adjusted.entry(one).or_default().push(place);
            }
        }
    }
    adjusted
}
