//! A number in a text: a button with its printed text, and the note that it opens, with the
//! interval, n, method, flags, verdict and the way to its derivation. Works without a script.

use super::glyphs;
use super::input::{NumberInput, Verdict};
use super::text::{agreeing, coded, escape, sentence};
use crate::claims::number::UNDEFINED;
use crate::claims::value::Number;

/// Address of a derivation's page from the site's root.
pub fn derivation_address(scope: &str, id: &str) -> String {
    format!("derivations/{scope}/{id}/index.html")
}

/// Why a number is pending, when it is: its rows are still to come.
pub fn pending(number: &Number) -> Option<&str> {
    match number {
        Number::Undefined(why) if why.starts_with("pending") => Some(why),
        _ => None,
    }
}

/// What a number's interval is called: `95% interval` when its method tells the level.
pub fn interval_name(number: &NumberInput) -> String {
    let level = number.method.iter().flat_map(|m| m.split_whitespace()).find_map(|word| {
        let digits = word.trim_matches(['(', ')', ',', ':', ';', '.']).strip_suffix('%')?;
        digits.parse::<f64>().is_ok_and(|level| level > 50.0 && level < 100.0).then_some(digits)
    });
    level.map_or("interval".to_string(), |level| format!("{level}% interval"))
}

/// The button and its note; `id` is unique on the page, `root` leads to the site's root. An empty
/// `printed` takes the number's own text.
pub fn button(number: &NumberInput, printed: &str, id: &str, root: &str) -> String {
    let waiting = pending(&number.value).is_some();
    let printed = match printed.trim() {
        "" | UNDEFINED if waiting => "pending",
        "" => number.text.as_str(),
        _ => printed,
    };
    let class = match number.verdict {
        Verdict::Match => String::new(),
        other => format!(" {}", glyphs::class(other)),
    };
    let square = match number.verdict {
        Verdict::Match | Verdict::Cited => String::new(),
        other => glyphs::square(other),
    };
    let spoken = match number.verdict {
        _ if waiting => "no rows yet",
        Verdict::Match => "recomputed, matches",
        Verdict::Mismatch => "recomputed, differs",
        Verdict::Unverifiable => "cannot be recomputed",
        Verdict::Cited => "cited from elsewhere",
    };
    let interval =
        number.interval.as_ref().map_or_else(String::new, |i| format!(" data-i=\"{}\"", escape(i)));
    format!(
        "<button type=\"button\" class=\"num{class}\" popovertarget=\"{id}\"{interval}>{}{square}<span \
         class=\"vh\"> ({spoken})</span></button>{}",
        escape(printed),
        note(number, printed, id, root)
    )
}

fn note(number: &NumberInput, printed: &str, id: &str, root: &str) -> String {
    let mut rows = String::new();
    let mut row = |name: &str, value: &str| {
        rows.push_str(&format!(
            "<span class=\"pr\"><span>{name}</span><span>{}</span></span>",
            escape(value)
        ));
    };
    if let Some(interval) = &number.interval {
        row(&interval_name(number), interval);
    }
    if let Some(n) = &number.n {
        row("n", &agreeing(n));
    }
    if let Some(label) = &number.row {
        row("row", label);
    }
    if number.part != "value" {
        row("part", &number.part);
    }
    let mut words = String::new();
    let why = match (&number.value, pending(&number.value)) {
        (_, Some(why)) => Some(sentence(why)),
        (Number::Undefined(why), _) => Some(format!("Undefined: {why}")),
        (Number::Defined(_), _) => None,
    };
    // The audit gives the reason of an undefined value as its own reason too.
    let reason = number
        .reason
        .clone()
        .filter(|reason| !matches!(&number.value, Number::Undefined(why) if why == reason));
    let sentences = why
        .into_iter()
        .chain(number.method.clone())
        .chain(number.warnings.iter().map(|w| w.text.clone()))
        .chain(reason);
    for words_of in sentences {
        words.push_str(&format!("<span class=\"pw\">{}</span>", coded(&super::text::full(&words_of))));
    }
    let badge = match pending(&number.value) {
        Some(_) => String::new(),
        None => glyphs::badge(number.verdict, number.verdict.word(), None),
    };
    format!(
        "<span class=\"pop\" popover id=\"{id}\"><span class=\"pv\"><span>{}</span>{}</span>{rows}{words}<a \
         href=\"{}{}\">Open the derivation</a></span>",
        escape(printed),
        badge,
        escape(root),
        escape(&derivation_address(&number.scope, &number.id)),
    )
}
