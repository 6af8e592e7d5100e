//! A number in a text: a button with its printed text, and the note that it opens, with the
//! interval, n, method, flags, verdict and the way to its derivation. Works without a script.

use super::glyphs;
use super::input::{NumberInput, Verdict};
use super::text::escape;

/// Address of a derivation's page from the site's root.
pub fn derivation_address(scope: &str, id: &str) -> String {
    format!("derivations/{scope}/{id}/index.html")
}

/// The button and its note; `id` is unique on the page, `root` leads to the site's root. An empty
/// `printed` takes the number's own text.
pub fn button(number: &NumberInput, printed: &str, id: &str, root: &str) -> String {
    let printed = if printed.trim().is_empty() { number.text.as_str() } else { printed };
    let class = match number.verdict {
        Verdict::Match => String::new(),
        other => format!(" {}", glyphs::class(other)),
    };
    let square = match number.verdict {
        Verdict::Match | Verdict::Cited => String::new(),
        other => glyphs::square(other),
    };
    let spoken = match number.verdict {
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
        row("interval", interval);
    }
    if let Some(n) = &number.n {
        row("n", n);
    }
    if let Some(label) = &number.row {
        row("row", label);
    }
    if number.part != "value" {
        row("part", &number.part);
    }
    let mut words = String::new();
    let undefined = match &number.value {
        crate::claims::value::Number::Undefined(why) => Some(format!("Undefined: {why}.")),
        crate::claims::value::Number::Defined(_) => None,
    };
    let sentences = undefined
        .into_iter()
        .chain(number.method.clone())
        .chain(number.warnings.iter().map(|w| w.text.clone()))
        .chain(number.reason.clone());
    for sentence in sentences {
        words.push_str(&format!("<span class=\"pw\">{}</span>", escape(&super::text::sentence(&sentence))));
    }
    format!(
        "<span class=\"pop\" popover id=\"{id}\"><span class=\"pv\"><span>{}</span>{}</span>{rows}{words}<a \
         href=\"{}{}\">Open the derivation</a></span>",
        escape(printed),
        glyphs::badge(number.verdict, number.verdict.word(), None),
        escape(root),
        escape(&derivation_address(&number.scope, &number.id)),
    )
}
