//! The comparison at the head of a derivation's page: the printed number, and under it, digit by digit,
//! the value of each road.

use crate::claims::value::Number;
use crate::site::input::{DerivationInput, NumberInput, Verdict};
use crate::site::number::pending;
use crate::site::text::{breakable, count, escape, spelled};
use serde_json::{Value, json};

/// The lines of the comparison: as printed, by the first road, by the second.
pub fn align(number: &NumberInput, input: &DerivationInput) -> Vec<Value> {
    let entry = input.audit.iter().find(|entry| entry.reference == number.reference);
    let printed = entry.map_or(number.text.as_str(), |entry| entry.printed.as_str());
    let bad = entry.is_some_and(|entry| entry.verdict == Verdict::Mismatch);
    let places = input.audit.iter().filter(|entry| entry.reference == number.reference).count();
    let shape = Shape::of(printed);
    let decimals = match (shape.body.is_empty(), shape.decimals) {
        (true, _) => "as a dash".to_string(),
        (_, 0) => "as a whole number".to_string(),
        (_, 1) => "with one decimal".to_string(),
        (_, n) => format!("with {} decimals", spelled(n)),
    };
    let where_printed = match places {
        0 if input.audit.is_empty() => "no text prints it; this is its own format".to_string(),
        0 => "no text prints this part; this is its own format".to_string(),
        1 => format!("{decimals} in {}", entry.map_or("", |e| e.place.as_str())),
        several => format!(
            "{decimals}, printed in {} places, such as {}",
            spelled(several),
            entry.map_or("", |e| e.place.as_str())
        ),
    };
    let first = match &number.value {
        Number::Defined(value) => shape.digits(*value),
        Number::Undefined(why) if pending(&number.value).is_some() => words(why),
        Number::Undefined(why) => words(&format!("— ({why})")),
    };
    let mut lines = vec![
        json!({"name": if places == 0 { "As formatted" } else { "Printed" }, "note_html": breakable(&where_printed), "digits_html": shape.printed(bad)}),
        json!({"name": "Road one", "note_html": "stats, over columns", "digits_html": first}),
    ];
    if let Some(entry) = entry {
        let second = match entry.recomputed.replace('\u{2212}', "-").trim().parse::<f64>() {
            Ok(value) if value.is_finite() => shape.digits(value),
            _ => words(&entry.recomputed),
        };
        let note =
            if entry.verdict == Verdict::Cited { "cited, with its source" } else { "audit, row by row" };
        lines.push(json!({"name": "Road two", "note_html": note, "digits_html": second}));
    }
    lines
}

fn words(text: &str) -> String {
    format!("<span class=\"say\">{}</span>", escape(text))
}

/// How a printed number is written, so that unrounded values can be set under it digit by digit.
struct Shape<'t> {
    sign: &'t str,
    body: &'t str,
    suffix: &'t str,
    decimals: usize,
}

impl<'t> Shape<'t> {
    fn of(printed: &'t str) -> Shape<'t> {
        let printed = printed.trim();
        let start = printed.find(|c: char| !matches!(c, '+' | '-' | '\u{2212}')).unwrap_or(printed.len());
        let (sign, rest) = printed.split_at(start);
        let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ','))).unwrap_or(rest.len());
        let (body, suffix) = rest.split_at(end);
        Shape { sign, body, suffix, decimals: body.split_once('.').map_or(0, |(_, d)| d.len()) }
    }

    fn line(&self, sign: &str, sure: &str, past: &str) -> String {
        let sign = if self.sign.is_empty() && sign.is_empty() {
            String::new()
        } else {
            format!("<span class=\"sgn\">{}</span>", escape(sign))
        };
        let past =
            if past.is_empty() { String::new() } else { format!("<span class=\"past\">{past}</span>") };
        format!("{sign}<span class=\"sure\">{sure}</span>{past}{}", escape(self.suffix))
    }

    fn printed(&self, bad: bool) -> String {
        if self.body.is_empty() {
            return words(self.suffix);
        }
        let body = escape(self.body);
        let body = if bad { format!("<span class=\"bad\">{body}</span>") } else { body };
        self.line(self.sign, &body, "")
    }

    /// A value with the digits that are printed, then those past the rounding.
    fn digits(&self, value: f64) -> String {
        if self.body.is_empty() {
            return words(&value.to_string().replace('-', "\u{2212}"));
        }
        let shown = if self.suffix.starts_with('%') { value * 100.0 } else { value };
        let all = format!("{:.*}", self.decimals + 6, shown.abs());
        let all = if shown.abs() < 1e12 { all } else { format!("{}", shown.abs()) };
        let whole = all.find('.').unwrap_or(all.len());
        let cut = if self.decimals == 0 { whole } else { (whole + 1 + self.decimals).min(all.len()) };
        let (sure, past) = all.split_at(cut);
        let past = past.trim_end_matches('0');
        let past = if past == "." { "" } else { past };
        let sure = if self.body.contains(',') { grouped(sure) } else { sure.to_string() };
        let sign = match (shown < 0.0, self.sign) {
            (true, _) => "\u{2212}",
            (false, "+") => "+",
            (false, _) => "",
        };
        self.line(sign, &sure, past)
    }
}

fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    whole.parse::<usize>().map_or_else(|_| digits.to_string(), |n| format!("{}{rest}", count(n)))
}
