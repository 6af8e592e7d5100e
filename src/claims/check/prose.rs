//! Numbers without a link, and the word "significant" without a p value.

use super::Outcome;
use crate::claims::book::Book;
use crate::claims::code;
use crate::claims::front_matter::{Document, Passage};
use crate::claims::links::{self, Scan};
use crate::claims::texts::Texts;
use crate::claims::unbound;
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
    for (document, binding) in bindings(texts) {
        for passage in document.passages().filter(|p| binding(p.field) != Binding::Free) {
            significance(document, &passage, book, outcome);
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
        None | Some("title") => Binding::Strict,
        Some(_) => Binding::Free,
    }
}

fn body_only(field: Option<&str>) -> Binding {
    if field.is_none() { Binding::Counted } else { Binding::Free }
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

/// A paragraph that calls something significant must cite a p value below .05.
fn significance(document: &Document, passage: &Passage<'_>, book: &Book, outcome: &mut Outcome) {
    let scan = links::scan(passage.text);
    for paragraph in paragraphs(&scan.prose) {
        let Some(at) = significant(&scan.prose[paragraph.clone()]) else { continue };
        let line = document.line(passage.offset(paragraph.start + at));
        let cited = cited_p(&scan, paragraph, book);
        if cited.is_empty() {
            outcome.add(
                document,
                line,
                "significant",
                "something is called significant without a p value",
                "cite it in the same paragraph, `[](derive:<scope>.<id>.p)`, or choose another word",
            );
        } else if !cited.iter().flatten().any(|p| *p < 0.05) {
            let shown: Vec<String> =
                cited.iter().map(|p| p.map_or("undefined".into(), |p| format!("{p:.3}"))).collect();
            let text =
                format!("something is called significant, but the cited p value is {}", shown.join(", "));
            outcome.add(document, line, "significant", text, "choose another word");
        }
    }
}

/// The p values that a paragraph cites; `None` for an undefined one.
fn cited_p(scan: &Scan, paragraph: Range<usize>, book: &Book) -> Vec<Option<f64>> {
    let inside = scan.links.iter().filter(|link| paragraph.contains(&link.whole.start));
    let references = inside.filter_map(|link| link.reference.as_ref().ok()).filter(|r| r.part == "p");
    references.map(|r| book.resolve(r).ok().and_then(|resolved| resolved.number.get())).collect()
}

fn paragraphs(prose: &str) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for line in code::lines(prose) {
        if prose[line.clone()].trim().is_empty() {
            // A line that a link or code fills alone is blank here, and still no paragraph's end.
            open = open && !line.is_empty();
        } else if let Some(last) = out.last_mut().filter(|_| open) {
            last.end = line.end;
        } else {
            out.push(line);
            open = true;
        }
    }
    out
}

/// Where a paragraph calls something significant, negations aside.
fn significant(prose: &str) -> Option<usize> {
    let lower = prose.to_ascii_lowercase();
    lower.match_indices("significan").map(|(at, _)| at).find(|at| {
        let before = lower[..*at].trim_end_matches(|c: char| !c.is_alphanumeric());
        let joined = lower[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
        let previous = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let after = lower[*at..].split_whitespace().nth(1).unwrap_or_default();
        let negated = joined || matches!(previous, "not" | "no" | "never" | "nor" | "without" | "hardly");
        !negated && !after.starts_with("digit") && !after.starts_with("figure")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negations_are_not_claims() {
        for text in ["a significant gain", "Significantly more", "of some significance"] {
            assert!(significant(text).is_some(), "{text}");
        }
        for text in [
            "not significant",
            "insignificant",
            "a non-significant gain",
            "no significant gain",
            "two significant digits",
            "none",
        ] {
            assert!(significant(text).is_none(), "{text}");
        }
    }

    #[test]
    fn paragraphs_end_at_blank_lines() {
        let found: Vec<&str> =
            paragraphs("a\nb\n\nc\n   \nd").into_iter().map(|r| &"a\nb\n\nc\n   \nd"[r]).collect();
        assert_eq!(found, ["a\nb", "c\n   \nd"]);
    }
}
