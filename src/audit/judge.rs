//! One printed number against its recomputed part: the verdict, and why.

use super::estimators::Part;
use super::printed;
use super::recompute::{Failure, Road};
use super::{Entry, Verdict};
use crate::claims::derivation::Reference;

/// A printed number against the rows.
pub fn judge(road: &mut Road, place: String, reference: &Reference, text: &str) -> Entry {
    let (verdict, recomputed, reason) = match (road.part(reference), printed::parse(text)) {
        (Err(Failure::Wrong(why)), _) => (Verdict::Mismatch, None, Some(why)),
        (Err(Failure::Unverifiable(why)), _) => (Verdict::Unverifiable, None, Some(why)),
        // An empty link that waits for rows prints nothing, and there is nothing to compare.
        (Ok(Part::Undefined(why)), _) if text.trim().is_empty() => {
            (Verdict::Unverifiable, None, Some(format!("pending: {why}")))
        }
        (Ok(part), Err(why)) => (Verdict::Mismatch, part.get(), Some(why)),
        (Ok(part), Ok(printed)) => {
            let (verdict, reason) =
                compare(&part, |value| printed::agrees(&printed, value), printed::reach(&printed));
            (verdict, part.get(), reason)
        }
    };
    Entry {
        place,
        reference: reference.to_string(),
        printed: text.to_string(),
        recomputed,
        verdict: cited(road, reference, verdict),
        reason,
    }
}

/// A number that its neighbours change is a mismatch, whatever the rows give.
pub fn beside(entry: Entry, found: Option<&(String, &str)>) -> Entry {
    match found {
        Some((what, hint)) => {
            Entry { verdict: Verdict::Mismatch, reason: Some(format!("{what}; {hint}")), ..entry }
        }
        None => entry,
    }
}

/// A fact from elsewhere, and what is worked out from one, is cited, never matched.
fn cited(road: &Road, reference: &Reference, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Match if road.rests_on_facts(reference) => Verdict::Cited,
        other => other,
    }
}

fn address(text: &str) -> &str {
    text.strip_prefix("derive:").unwrap_or(text)
}

/// The reference of a value of the book.
pub fn reference(text: &str) -> Option<Reference> {
    Reference::parse(address(text)).ok()
}

/// A value of the book against the rows.
pub fn judge_value(road: &mut Road, text: &str, value: Option<f64>) -> Entry {
    let address = address(text);
    let reference = Reference::parse(address);
    let part = match &reference {
        Ok(reference) => road.part(reference),
        Err(error) => Err(Failure::Wrong(error.to_string())),
    };
    let (verdict, recomputed, reason) = match (part, value) {
        (Ok(Part::Number(own) | Part::Within { value: own, .. }), None) => {
            (Verdict::Mismatch, Some(own), Some("is undefined there, and the rows give a number".into()))
        }
        (Ok(Part::Undefined(why)), None) => (Verdict::Match, None, Some(why)),
        // What the other road calls undefined, and this one cannot reach, is printed by nobody.
        (Err(Failure::Wrong(why) | Failure::Unverifiable(why)), None) => {
            (Verdict::Unverifiable, None, Some(why))
        }
        (Err(Failure::Wrong(why)), Some(_)) => (Verdict::Mismatch, None, Some(why)),
        (Err(Failure::Unverifiable(why)), Some(_)) => (Verdict::Unverifiable, None, Some(why)),
        (Ok(part), Some(value)) => {
            let near =
                |own: Option<f64>| own.is_some_and(|own| (own - value).abs() <= 1e-9 * own.abs().max(1.0));
            let (verdict, reason) = compare(&part, near, Some((value, value)));
            (verdict, part.get(), reason)
        }
    };
    Entry {
        place: "statistics".into(),
        reference: format!("derive:{address}"),
        printed: value.map_or_else(|| "—".to_string(), |value| value.to_string()),
        recomputed,
        verdict: reference.map_or(verdict, |reference| cited(road, &reference, verdict)),
        reason,
    }
}

/// Holds a recomputed part against what is printed. `reach` is the range of values that print so.
fn compare(
    part: &Part,
    agrees: impl Fn(Option<f64>) -> bool,
    reach: Option<(f64, f64)>,
) -> (Verdict, Option<String>) {
    match part {
        Part::Undefined(why) if agrees(None) => (Verdict::Match, Some(format!("undefined: {why}"))),
        Part::Undefined(why) => (Verdict::Mismatch, Some(format!("there is no such number: {why}"))),
        Part::Number(value) if agrees(Some(*value)) => (Verdict::Match, None),
        Part::Number(_) => (Verdict::Mismatch, None),
        Part::Within { low, high, .. } => {
            let inside = reach.is_some_and(|(from, to)| from <= *high && *low <= to);
            let bound =
                format!("Monte-Carlo error: {} to {}", printed::show(*low, 6), printed::show(*high, 6));
            if inside {
                (Verdict::Match, Some(format!("within {bound}")))
            } else {
                (Verdict::Mismatch, Some(format!("outside {bound}")))
            }
        }
    }
}
