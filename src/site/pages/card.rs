//! A headline card: its value and remark, and below them each interval with its level and the number it
//! belongs to, the counts, the flags and the verdict. Values whose rows are still to come are pending.

use crate::claims::value::Number;
use crate::error::Result;
use crate::site::glyphs;
use crate::site::input::{CardInput, NumberInput, Publication, Verdict};
use crate::site::number::{derivation_address, interval_name, pending};
use crate::site::prose::{Prose, find, plain, references};
use crate::site::text::{agreeing, coded, counted, full, sentence};
use serde_json::{Value, json};

/// A number of a card, as the card prints it.
struct Shown<'a> {
    printed: String,
    number: &'a NumberInput,
    /// Whether it stands in the value, not only in the remark.
    in_value: bool,
}

/// The card's part of the page; `place` is the text it comes from, `root` leads to the site's root.
pub fn card(
    prose: &mut Prose<'_>,
    publication: &Publication,
    input: &CardInput,
    place: &str,
    root: &str,
) -> Result<Value> {
    let in_value = references(&input.value);
    let mut shown: Vec<Shown<'_>> = Vec::new();
    for (reference, printed) in in_value.iter().cloned().chain(references(&input.note)) {
        let number = find(publication, &reference, place)?;
        if !shown.iter().any(|s| s.number.reference == number.reference) {
            let printed = if printed.trim().is_empty() { number.text.clone() } else { printed };
            let in_value = in_value.iter().any(|(value, _)| *value == reference);
            shown.push(Shown { printed, number, in_value });
        }
    }
    let waits =
        |reference: &str| publication.numbers.get(reference).is_some_and(|n| pending(&n.value).is_some());
    let value_html = match in_value.first() {
        Some((first, _)) if in_value.iter().all(|(reference, _)| waits(reference)) => {
            prose.inline(&format!("[pending](<{first}>)"), place)?
        }
        _ => prose.headline(&input.value, place)?,
    };
    let why = shown.iter().find_map(|s| match (&s.number.value, pending(&s.number.value)) {
        (_, Some(why)) => Some(full(why)),
        (Number::Undefined(why), _) => Some(full(&format!("Undefined: {why}"))),
        (Number::Defined(_), _) => None,
    });
    Ok(json!({
        "label": plain(&input.label),
        "value_html": value_html,
        "estimates": estimates(&shown),
        "undefined_html": why.map(|why| coded(&why)),
        "flags": flags(&shown),
        "note_html": prose.headline(&input.note, place)?,
        "badge_html": badge(&shown, root),
    }))
}

/// Intervals and counts, each with the number it belongs to where there could be a doubt.
fn estimates(shown: &[Shown<'_>]) -> Vec<Value> {
    let line = |name: String, value: &str| json!({"name": name, "value": value});
    let several = shown.iter().filter(|s| pending(&s.number.value).is_none()).count() > 1;
    let of = |one: &Shown<'_>| match several {
        false => String::new(),
        // Two numbers that print alike are told apart by their derivations.
        true if shown.iter().filter(|s| s.printed == one.printed).count() > 1 => {
            format!(" of {} ({})", one.printed, one.number.id)
        }
        true => format!(" of {}", one.printed),
    };
    let mut lines = Vec::new();
    for one in shown {
        if let Some(interval) = &one.number.interval {
            lines.push(line(format!("{}{}", sentence(&interval_name(one.number)), of(one)), interval));
        }
    }
    // The counts behind the value and behind every interval that stands above.
    let counts: Vec<(&Shown<'_>, &String)> = shown
        .iter()
        .filter(|s| s.in_value || s.number.interval.is_some())
        .filter_map(|s| Some((s, s.number.n.as_ref()?)))
        .collect();
    match counts.as_slice() {
        [(_, first), rest @ ..] if rest.iter().all(|(_, n)| n == first) => {
            lines.push(line("n".to_string(), &agreeing(first)));
        }
        differing => {
            lines.extend(differing.iter().map(|(one, n)| line(format!("n{}", of(one)), &agreeing(n))));
        }
    }
    lines
}

fn flags(shown: &[Shown<'_>]) -> Vec<String> {
    let mut flags: Vec<String> =
        shown.iter().flat_map(|s| &s.number.warnings).map(|w| flag(&w.code)).collect();
    flags.sort();
    flags.dedup();
    flags
}

/// A warning's code in plain words.
fn flag(code: &str) -> String {
    match code {
        "few_nonzero" => "few tasks moved".into(),
        "zero_variance" => "all tasks moved alike".into(),
        other => other.replace('_', " "),
    }
}

/// The worst verdict of the card's numbers; none while all are pending.
fn badge(shown: &[Shown<'_>], root: &str) -> String {
    let there: Vec<&NumberInput> =
        shown.iter().map(|s| s.number).filter(|n| pending(&n.value).is_none()).collect();
    let Some(first) = there.iter().min_by_key(|n| n.verdict) else {
        return String::new();
    };
    let same = there.iter().filter(|n| n.verdict == first.verdict).count();
    let words = match first.verdict {
        Verdict::Match => format!("match, {}", counted(there.len(), "number")),
        other => format!("{}, {same} of {}", other.word(), there.len()),
    };
    let href = format!("{root}{}", derivation_address(&first.scope, &first.id));
    glyphs::badge(first.verdict, &words, Some(&href))
}
