//! The table of audited numbers: grouped by the file that prints them, files and lines in the order of
//! their worst verdict, then by line.

use super::Site;
use crate::site::glyphs;
use crate::site::input::{AuditEntry, Verdict};
use crate::site::number::derivation_address;
use crate::site::text::{breakable, coded};
use serde_json::{Value, json};

/// Decimals of a recomputed value beyond the printed ones.
const MORE_DECIMALS: usize = 6;

/// The table's groups, and whether any line has a reason; null when there is no line.
pub fn audit_table(site: &Site<'_>, entries: &[&AuditEntry], root: &str) -> Value {
    if entries.is_empty() {
        return Value::Null;
    }
    let mut groups: Vec<(&str, Vec<(Option<usize>, &AuditEntry)>)> = Vec::new();
    for entry in entries {
        let (file, line) = place(&entry.place);
        match groups.iter_mut().find(|(known, _)| *known == file) {
            Some((_, lines)) => lines.push((line, entry)),
            None => groups.push((file, vec![(line, entry)])),
        }
    }
    for (_, lines) in &mut groups {
        lines.sort_by_key(|(line, entry)| (entry.verdict, *line));
    }
    groups.sort_by_key(|(_, lines)| {
        lines.iter().map(|(_, entry)| entry.verdict).min().unwrap_or(Verdict::Match)
    });
    let groups: Vec<Value> = groups
        .iter()
        .map(|(file, lines)| {
            let rows: Vec<Value> = lines.iter().map(|(line, entry)| row(site, *line, entry, root)).collect();
            json!({"file_html": breakable(file), "rows": rows})
        })
        .collect();
    json!({"groups": groups, "why": entries.iter().any(|entry| entry.reason.is_some())})
}

/// A place's file and line.
fn place(place: &str) -> (&str, Option<usize>) {
    match place.rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => (file, Some(line)),
        _ => (place, None),
    }
}

fn row(site: &Site<'_>, line: Option<usize>, entry: &AuditEntry, root: &str) -> Value {
    let number = site.publication.numbers.get(&entry.reference);
    let href = number.map(|n| format!("{root}{}", derivation_address(&n.scope, &n.id)));
    let (recomputed, digits) = recomputed(&entry.printed, &entry.recomputed);
    json!({
        "badge_html": glyphs::badge(entry.verdict, entry.verdict.word(), href.as_deref()),
        "line": line.map_or_else(|| "—".to_string(), |line| line.to_string()),
        "reference_html": breakable(&entry.reference),
        "href": href,
        "printed": entry.printed,
        "recomputed": recomputed,
        "digits": digits,
        "reason_html": entry.reason.as_deref().map(coded),
    })
}

/// A recomputed value as it is shown, and all of its digits when some are left out.
fn recomputed(printed: &str, value: &str) -> (String, Option<String>) {
    let typographic = |text: &str| text.replace('-', "\u{2212}");
    let Some(number) = value.replace('\u{2212}', "-").parse::<f64>().ok().filter(|n| n.is_finite()) else {
        return (value.to_string(), None);
    };
    let after = printed.split_once('.').map_or("", |(_, after)| after);
    let decimals = after.chars().take_while(char::is_ascii_digit).count();
    let percent = if printed.contains('%') { 2 } else { 0 };
    let rounded = format!("{number:.*}", decimals + percent + MORE_DECIMALS);
    let short = rounded.trim_end_matches('0').trim_end_matches('.');
    let all = typographic(value);
    // What would round to nothing is shown in full.
    if short.len() >= value.len() || (number != 0.0 && short.trim_start_matches('-') == "0") {
        return (all, None);
    }
    (typographic(short), Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recomputed_values_keep_six_decimals_more_than_printed() {
        let show = |printed, value| {
            let (text, all) = recomputed(printed, value);
            (text, all.unwrap_or_default())
        };
        let minus = |text: &str| text.replace('-', "\u{2212}");
        assert_eq!(
            show("\u{2212}0.01", "-0.010416666666666666"),
            (minus("-0.01041667"), minus("-0.010416666666666666"))
        );
        assert_eq!(show("\u{2212}0.03", "-0.03125"), (minus("-0.03125"), String::new()));
        assert_eq!(show("49%", "0.4895833333333333").0, "0.48958333");
        assert_eq!(show("768", "768"), ("768".into(), String::new()));
        assert_eq!(show("0.0000", "0.000000000001234567").0, "0.000000000001234567");
        assert_eq!(show("849", "—"), ("—".into(), String::new()));
        assert_eq!(show("100", "100.00000000000001").0, "100");
    }

    #[test]
    fn places_are_a_file_and_a_line() {
        assert_eq!(place("site/report.md:13"), ("site/report.md", Some(13)));
        assert_eq!(place("statistics"), ("statistics", None));
        assert_eq!(place("a:b"), ("a:b", None));
    }
}
