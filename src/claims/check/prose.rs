//! Numbers without a link, and words such as "significant" or "no worse" without the p value that bears them out.

use super::claims::compared_column;
use super::{Bare, Outcome};
use crate::claims::book::{Book, Entry};
use crate::claims::derivation::{Estimator, Reference};
use crate::claims::evaluate::IDENTICAL;
use crate::claims::family;
use crate::claims::front_matter::{Document, Passage};
use crate::claims::links;
use crate::claims::texts::Texts;
use crate::claims::unbound;
use crate::claims::wording::{self, Says, Statement};
use std::collections::BTreeSet;
use std::ops::Range;

/// Whether numbers in a passage must be bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Binding {
    /// An unbound number is a finding.
    Strict,
    /// Unbound numbers are counted.
    Counted,
    /// No prose: ids, paths, commands.
    Free,
}

pub(super) fn check(texts: &Texts, book: &Book, outcome: &mut Outcome) {
    numbers(texts, outcome);
    let families = Families::of(book);
    for (document, binding) in bindings(texts) {
        for passage in document.passages().filter(|p| binding(p.field) != Binding::Free) {
            let claim = texts.claims.iter().find(|claim| std::ptr::eq(&claim.document, document));
            let evidence: Vec<&Reference> =
                claim.filter(|_| passage.field.is_some()).iter().flat_map(|claim| claim.evidence()).collect();
            wording(document, &passage, (&families, book), &evidence, outcome);
        }
    }
}

/// Every text with the rule for its passages.
fn bindings(texts: &Texts) -> impl Iterator<Item = (&Document, fn(Option<&str>) -> Binding)> {
    let rule = |document, binding: fn(Option<&str>) -> Binding| (document, binding);
    let reports = texts.experiments.values().flat_map(move |experiment| {
        let log = experiment.log.iter().map(move |log| rule(&log.document, body_only));
        std::iter::once(rule(&experiment.report.document, report_binding)).chain(log)
    });
    let claims = texts.claims.iter().map(move |claim| rule(&claim.document, claim_binding));
    let pages = texts.pages.iter().map(move |page| rule(page, body_only));
    reports.chain(claims).chain(pages)
}

fn report_binding(field: Option<&str>) -> Binding {
    let Some(field) = field else { return Binding::Counted };
    let (group, last) =
        (field.split(['[', '.']).next().unwrap_or_default(), field.rsplit('.').next().unwrap_or_default());
    match (group, last) {
        ("title" | "tagline" | "cards" | "plain", _) | ("figures", "title" | "takeaway") => Binding::Strict,
        ("figures", "how_to_read" | "technical") | ("deviations" | "corrections", "text") => Binding::Counted,
        _ => Binding::Free,
    }
}

fn claim_binding(field: Option<&str>) -> Binding {
    match field {
        None | Some("title" | "scope") => Binding::Strict,
        Some(_) => Binding::Free,
    }
}

fn body_only(field: Option<&str>) -> Binding {
    if field.is_none() { Binding::Counted } else { Binding::Free }
}

/// Every number that no link binds, with its file and line, and whether a link is demanded there.
pub(super) fn bare(texts: &Texts) -> Vec<Bare> {
    let mut all = Vec::new();
    for (document, binding) in bindings(texts) {
        for passage in document.passages() {
            let binding = binding(passage.field);
            if binding == Binding::Free {
                continue;
            }
            let find = if passage.field.is_some() { unbound::find_in_line } else { unbound::find };
            all.extend(find(passage.text).into_iter().map(|number| Bare {
                file: document.path.clone(),
                line: document.line(passage.offset(number.range.start)),
                text: number.text,
                refused: binding == Binding::Strict,
            }));
        }
    }
    all
}

/// Numbers that no link binds: findings where a link is demanded, counted elsewhere.
pub(super) fn numbers(texts: &Texts, outcome: &mut Outcome) {
    for (document, binding) in bindings(texts) {
        let mut counted = 0;
        for passage in document.passages() {
            let binding = binding(passage.field);
            if binding == Binding::Free {
                continue;
            }
            let find = if passage.field.is_some() { unbound::find_in_line } else { unbound::find };
            for number in find(passage.text) {
                if binding == Binding::Counted {
                    counted += 1;
                    continue;
                }
                let place = passage.field.map_or("here".to_string(), |field| format!("in `{field}`"));
                let text = format!("the number `{}` {place} is bound to no derivation", number.text);
                let line = document.line(passage.offset(number.range.start));
                outcome.add(
                    document,
                    line,
                    "unbound",
                    text,
                    "bind it with a link: `[](derive:<scope>.<id>)`, then `rederive fill`",
                );
            }
        }
        if counted > 0 {
            outcome.unbound.insert(document.path.clone(), counted);
        }
    }
}

/// A sentence that calls something significant, the same or no worse must cite p values that say so, in it or in its paragraph,
/// adjusted where they belong to a declared family of tests. What is said of an interval and zero has to hold.
fn wording(
    document: &Document,
    passage: &Passage<'_>,
    (families, book): (&Families, &Book),
    evidence: &[&Reference],
    outcome: &mut Outcome,
) {
    let scan = links::scan(passage.text);
    for paragraph in wording::paragraphs(&scan.prose) {
        let inside = scan.inside(&paragraph).iter();
        let mut cited = inside.filter_map(|link| link.reference.as_ref().ok());
        let by_itself = |reference: &&Reference| {
            let selected = book.resolve(reference).ok();
            selected.is_some_and(|r| {
                r.evaluated.warnings.iter().any(|warning| warning.code == "oracle_selection")
            })
        };
        if let Some(reference) = cited.find(by_itself)
            && !scan.prose[paragraph.clone()].to_ascii_lowercase().contains("oracle")
        {
            let line = document.line(passage.offset(paragraph.start));
            let text = format!("`{reference}` selects by the very score that it reports");
            outcome.add(
                document,
                line,
                "oracle_selection",
                text,
                "call it the oracle's, or select by another score",
            );
        }
        let cited = |range: &Range<usize>| {
            let inside = scan.inside(range).iter();
            inside.filter_map(|link| link.reference.as_ref().ok()).collect::<Vec<&Reference>>()
        };
        for Statement { says, at, clause, sentence } in wording::claims(&scan.prose[paragraph.clone()]) {
            let line = document.line(passage.offset(paragraph.start + at));
            let [clause, sentence] =
                [clause, sentence].map(|part| paragraph.start + part.start..paragraph.start + part.end);
            // What stands nearest is meant; a claim's title means the claim's evidence.
            let near = [cited(&clause), cited(&sentence), cited(&paragraph), evidence.to_vec()];
            if matches!(says, Says::LeavesZeroOut | Says::HoldsZero) {
                if let Some(text) = about_zero(says, &near, book) {
                    outcome.add(document, line, "interval", text, "say what the interval does");
                }
                continue;
            }
            let mut all = near.iter().flatten();
            if says != Says::Significant && all.any(|reference| is_identical(reference, book))
                || says == Says::NoWorse
                    && near[..2].iter().flat_map(|cited| intervals(cited, book)).any(|(low, _)| low >= 0.0)
            {
                continue;
            }
            let p = near.iter().map(|cited| p_values(cited, says, families, book));
            let p = p.into_iter().find(|p| !p.is_empty()).unwrap_or_default();
            let (rule, called, hint) = match says {
                Says::Significant => (
                    "significant",
                    "something is called significant",
                    "cite it in the same paragraph, `[](derive:<scope>.<id>.p)`, or choose another word",
                ),
                Says::Same => (
                    "equality",
                    "two arms are called the same",
                    "declare a `margin` and cite `[](derive:<scope>.<id>.equivalence_p)`, or say what was seen",
                ),
                _ => (
                    "equality",
                    "an arm is called no worse",
                    "declare a `margin` and cite `[](derive:<scope>.<id>.non_inferiority_p)`, or say what was seen",
                ),
            };
            if p.is_empty() {
                let cites_p = near.iter().flatten().any(|reference| reference.part == "p");
                let lacks = match says {
                    Says::Significant if cites_p => "a p value of the change that it cites",
                    Says::Significant => "a p value",
                    _ => "the test of a margin",
                };
                let in_title = "add the p value to the claim's `evidence`, or cite it in this very field";
                let hint = if evidence.is_empty() { hint } else { in_title };
                outcome.add(document, line, rule, format!("{called} without {lacks}"), hint);
            } else if let Some(worst) = p.iter().find(|cited| cited.p.is_none_or(|p| p >= 0.05)) {
                let text = format!("{called}, but the cited p value is {worst}");
                let hint = "choose another word, or say in a sentence of its own what each p value bears out";
                outcome.add(document, line, rule, text, hint);
            }
        }
    }
}

/// What is wrong with a statement about an interval and zero: no interval that is cited nearest bears it out.
fn about_zero(says: Says, near: &[Vec<&Reference>; 4], book: &Book) -> Option<String> {
    let ends = near.iter().map(|cited| intervals(cited, book)).find(|ends| !ends.is_empty())?;
    let borne_out = |(low, high): &(f64, f64)| (*low > 0.0 || *high < 0.0) == (says == Says::LeavesZeroOut);
    let (low, high) = ends.first().filter(|_| !ends.iter().any(borne_out))?;
    let does = if says == Says::HoldsZero { "hold zero" } else { "leave zero out" };
    Some(format!("an interval is said to {does}, and it is {low} to {high}"))
}

/// The p values among the numbers cited that can say so. Beside a change, the test of another column says nothing of it.
fn p_values(cited: &[&Reference], says: Says, families: &Families, book: &Book) -> Vec<Cited> {
    let changes = cited.iter().filter(|reference| reference.part != "p");
    let columns: BTreeSet<&str> = changes.filter_map(|reference| compared_column(reference, book)).collect();
    let of_it = |reference: &&&Reference| {
        let column = compared_column(families.test_of(reference), book);
        columns.is_empty() || column.is_none_or(|column| columns.contains(column))
    };
    cited.iter().filter(of_it).filter_map(|reference| p_value(reference, says, families, book)).collect()
}

/// The intervals of the changes between two arms among the numbers cited.
fn intervals(cited: &[&Reference], book: &Book) -> Vec<(f64, f64)> {
    let of = |reference: &&Reference| {
        let resolved = book.resolve(reference).ok()?;
        let part = |name: &str| resolved.evaluated.parts.get(name).and_then(|number| number.get());
        let is_change = resolved.entry.derivation.estimator == Estimator::PairedDelta;
        part("low").zip(part("high")).filter(|_| is_change)
    };
    cited.iter().filter_map(of).collect()
}

/// A p value that a paragraph cites.
struct Cited {
    p: Option<f64>,
    /// The family that raises it to that.
    family: Option<String>,
}

impl std::fmt::Display for Cited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.p {
            Some(p) => write!(f, "{p:.3}")?,
            None => f.write_str("undefined")?,
        }
        self.family.iter().try_for_each(|family| write!(f, " in the family `{family}` of tests"))
    }
}

/// The p value behind a reference, if it is one that can say so.
fn p_value(reference: &Reference, says: Says, families: &Families, book: &Book) -> Option<Cited> {
    let number =
        |reference: &Reference| book.resolve(reference).ok().and_then(|resolved| resolved.number.get());
    let speaks = |part: &str| match says {
        Says::Significant => part == "p",
        Says::Same => part == "equivalence_p",
        Says::NoWorse => part == "equivalence_p" || part == "non_inferiority_p",
        Says::LeavesZeroOut | Says::HoldsZero => false,
    };
    // A family's row speaks for its test, and no family is left for a smaller one.
    let cited = families.rows.iter().find(|(row, _)| row == reference);
    let (test, least) = match cited {
        Some((row, test)) => (test, families.size(row)),
        None => (reference, 0),
    };
    if !speaks(&test.part) {
        return None;
    }
    let counts = |row: &Reference| row == reference || families.size(row) > least;
    let rows = families.rows.iter().filter(|(row, of)| same_test(of, test, book) && counts(row));
    let adjusted = rows.map(|(row, _)| (row, number(row)));
    // Of several families the one that raises it most.
    let worst = adjusted.max_by(|a, b| a.1.unwrap_or(2.0).total_cmp(&b.1.unwrap_or(2.0)));
    Some(match worst {
        Some((row, p)) => Cited { p, family: Some(format!("derive:{}.{}", row.scope, row.id)) },
        None => Cited { p: number(reference), family: None },
    })
}

/// The p value of the test of a number as the families of tests that it stands in have it; none where it stands in none.
pub(super) fn adjusted_p(reference: &Reference, families: &Families, book: &Book) -> Option<Option<f64>> {
    let test = Reference { part: "p".into(), ..reference.clone() };
    let cited = p_value(&test, Says::Significant, families, book)?;
    cited.family.map(|_| cited.p)
}

/// Whether two references are one test, under one name or two.
fn same_test(one: &Reference, other: &Reference, book: &Book) -> bool {
    let entry = |reference: &Reference| book.entry(&reference.scope, &reference.id);
    let alike = |(a, b): (&Entry, &Entry)| {
        a.experiment == b.experiment && a.derivation.tests_the_same(&b.derivation, &one.part)
    };
    let place = |reference: &Reference| (reference.row.clone(), reference.part.clone());
    one == other || place(one) == place(other) && entry(one).zip(entry(other)).is_some_and(alike)
}

/// Whether both arms of the comparison behind a reference wrote the same tokens: then nothing differed, and no margin is needed.
fn is_identical(reference: &Reference, book: &Book) -> bool {
    book.resolve(reference).is_ok_and(|resolved| resolved.evaluated.method.as_deref() == Some(IDENTICAL))
}

/// The rows of all declared families, each with the p value that it adjusts.
pub(super) struct Families {
    rows: Vec<(Reference, Reference)>,
}

impl Families {
    /// The test of a row of a family; anything else is itself.
    fn test_of<'r>(&'r self, reference: &'r Reference) -> &'r Reference {
        self.rows.iter().find(|(row, _)| row == reference).map_or(reference, |(_, test)| test)
    }

    /// How many tests the family of a row has.
    fn size(&self, row: &Reference) -> usize {
        self.rows.iter().filter(|(other, _)| (&other.scope, &other.id) == (&row.scope, &row.id)).count()
    }

    pub(super) fn of(book: &Book) -> Families {
        let mut rows = Vec::new();
        for entry in book.entries() {
            if !entry.derivation.estimator.is_family() || entry.outcome.is_err() {
                continue;
            }
            let tests = family::tests(entry.derivation.of.as_deref().unwrap_or_default(), &entry.scope);
            for test in tests.into_iter().flatten() {
                let table = book
                    .resolve(&test)
                    .ok()
                    .filter(|r| r.entry.derivation.by.is_some() && test.row.is_none());
                let each: Vec<Reference> = match table {
                    Some(table) => {
                        let row = |label: &String| Reference { row: Some(label.clone()), ..test.clone() };
                        table.derived.rows.keys().map(row).collect()
                    }
                    None => vec![test],
                };
                rows.extend(each.into_iter().map(|test| {
                    let label = Some(family::label(&test, &entry.scope));
                    let (scope, id) = (entry.scope.clone(), entry.id.clone());
                    (Reference { scope, id, row: label, part: "value".into() }, test)
                }));
            }
        }
        Families { rows }
    }
}
