//! Words against numbers: a sentence that calls something significant, the same or no worse cites p values of this road that
//! bear it out, in it or in its paragraph, raised by the number of tests where they belong to a declared family.

use super::Finding;
use super::estimators::Part;
use super::families;
use super::recompute::Road;
use super::repeats::ORACLE;
use crate::claims::derivation::{Derivation, Reference};
use crate::claims::front_matter::{Document, Passage};
use crate::claims::texts::Texts;
use crate::claims::wording::{self, Says, Statement};
use crate::claims::{family, links};
use std::collections::BTreeMap;
use std::ops::Range;

/// Fields of front matter that are no prose.
const NO_PROSE: [&str; 7] =
    ["derivations", "history", "reproduce", "id", "status", "population", "experiments"];

/// p value → its place in a family that adjusts it.
type Adjusted = BTreeMap<Reference, Vec<Reference>>;

/// Statements of all texts that their numbers do not bear out.
pub fn check(texts: &Texts, road: &mut Road) -> Vec<Finding> {
    let adjusted = adjusted(texts, road);
    let mut findings = Vec::new();
    for document in texts.documents() {
        for passage in document.passages() {
            let group = passage.field.and_then(|field| field.split(['[', '.']).next()).unwrap_or("body");
            if NO_PROSE.contains(&group) {
                continue;
            }
            let scan = links::scan(passage.text);
            for paragraph in wording::paragraphs(&scan.prose) {
                let cited = |range: &Range<usize>| -> Vec<&Reference> {
                    let inside = scan.inside(range).iter();
                    inside.filter_map(|link| link.reference.as_ref().ok()).collect()
                };
                let all = cited(&paragraph);
                findings.extend(oracle(document, &passage, &scan.prose, &paragraph, &all, road));
                for Statement { says, at, sentence } in wording::claims(&scan.prose[paragraph.clone()]) {
                    let line = document.line(passage.offset(paragraph.start + at));
                    let [start, end] = [sentence.start, sentence.end].map(|at| paragraph.start + at);
                    findings.extend(judge(
                        document,
                        line,
                        says,
                        [&cited(&(start..end)), &all],
                        &adjusted,
                        road,
                    ));
                }
            }
        }
    }
    findings
}

fn judge(
    document: &Document,
    line: usize,
    says: Says,
    [of_sentence, of_paragraph]: [&[&Reference]; 2],
    adjusted: &Adjusted,
    road: &mut Road,
) -> Option<Finding> {
    let (rule, called, parts): (_, _, &[&str]) = match says {
        Says::Significant => ("significant", "something is called significant", &["p"]),
        Says::Same => ("equality", "two arms are called the same", &["equivalence_p"]),
        Says::NoWorse => ("equality", "an arm is called no worse", &["equivalence_p", "non_inferiority_p"]),
    };
    if says != Says::Significant && of_paragraph.iter().any(|reference| nothing_differs(reference, road)) {
        return None;
    }
    let values = |cited: &[&Reference], road: &mut Road| -> Vec<Option<f64>> {
        cited.iter().filter_map(|reference| p_value(reference, parts, adjusted, road)).collect()
    };
    // A sentence means its own p values; where it has none, those of its paragraph.
    let mut found = values(of_sentence, road);
    if found.is_empty() {
        found = values(of_paragraph, road);
    }
    let why = match found.iter().find(|p| p.is_none_or(|p| p >= 0.05)) {
        None if found.is_empty() => "cites no p value of such a test".to_string(),
        None => return None,
        Some(None) => "a p value that it cites is undefined".into(),
        Some(Some(p)) => {
            format!("a p value that it cites is {p:.4}, adjusted where a family of tests is declared")
        }
    };
    Some(Finding::new(rule, &document.path, None, format!("line {line}: {called}, and {why}")))
}

/// The p value behind a reference, if it is of such a part: raised by the families that it stands in, and undefined where one of
/// them is.
fn p_value(
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
fn same_test(one: &Reference, other: &Reference, road: &Road) -> bool {
    let alike = || {
        let (a, in_a) = road.declaration(one)?;
        let (b, in_b) = road.declaration(other)?;
        Some(in_a == in_b && a.tests_the_same(b, &one.part))
    };
    one == other || (&one.row, &one.part) == (&other.row, &other.part) && alike() == Some(true)
}

/// Whether both ends of the interval of a comparison are exactly zero: both arms wrote the same tokens.
fn nothing_differs(reference: &Reference, road: &mut Road) -> bool {
    ["low", "high"].iter().all(|part| {
        let end = Reference { part: (*part).to_owned(), ..reference.clone() };
        number(&end, road) == Some(0.0)
    })
}

/// Every p value that a declared family adjusts, and where.
fn adjusted(texts: &Texts, road: &mut Road) -> Adjusted {
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
