//! A derivation's page: the printed number above its two recomputed values, digit under digit, then
//! the recipe in words, in SQL and in TOML, every result, every printed place, and the files.

use super::sections::Sections;
use super::{Head, Site, Tally, audit_rows, sources};
use crate::claims::value::Number;
use crate::error::Result;
use crate::site::glyphs;
use crate::site::input::{AuditEntry, DerivationInput, NumberInput, Verdict};
use crate::site::number::derivation_address;
use crate::site::text::{breakable, count, counted, escape, sentence};
use serde_json::{Value, json};

/// `derivations/<scope>/<id>/index.html`.
pub fn page(site: &mut Site<'_>, input: &DerivationInput) -> Result<()> {
    let address = derivation_address(&input.scope, &input.id);
    let publication = site.publication;
    let experiment = publication.experiments.iter().find(|e| e.slug == input.scope);
    let claim = publication.claims.iter().find(|c| c.id == input.scope);
    let (parent, parent_href, parent_title) = match (experiment, claim) {
        (Some(e), _) => {
            ("Experiments", Some(format!("../../../experiments/{}/index.html", e.slug)), e.title.as_str())
        }
        (None, Some(c)) => ("Claims", Some(format!("../../../claims/{}/index.html", c.id)), c.title.as_str()),
        (None, None) => ("Audit", None, ""),
    };
    let mut entries: Vec<&AuditEntry> = input.audit.iter().collect();
    entries.sort_by_key(|entry| entry.verdict);
    let tally = Tally::of(input.audit.iter());
    let (columns, results) = results(site, input);
    let mut sections = Sections::default();
    sections.add("recipe", "The recipe in words", !input.recipe.is_empty());
    sections.add("sql", "The same in SQL", input.sql.is_some());
    sections.add("results", "Results", !results.is_empty());
    sections.add("printed", "Where it is printed", !entries.is_empty());
    sections.add("files", "Files and rows", !input.sources.is_empty());
    sections.add("declared", "As declared", !input.toml.trim().is_empty());
    let estimator = publication.method.iter().find(|e| e.id == input.estimator);
    let context = json!({
        "scope": input.scope,
        "id_html": breakable(&input.id),
        "id": input.id,
        "long": input.id.chars().count() > 34,
        "parent": parent,
        "parent_index": match parent { "Experiments" => "../../../experiments/index.html", "Claims" => "../../../claims/index.html", _ => "../../../audit/index.html" },
        "parent_href": parent_href,
        "parent_title": parent_title,
        "align": headline(site, input).map_or_else(Vec::new, |number| align(number, input)),
        "verdict_html": glyphs::badge(input.verdict, input.verdict.word(), None),
        "verdict_words": verdict_words(input, &tally),
        "form": form(site, input),
        "no": sections.numbers(),
        "recipe": input.recipe.iter().map(|step| full(step)).collect::<Vec<_>>(),
        "estimator": input.estimator,
        "estimator_href": estimator.map(|e| format!("../../../method/index.html#{}", e.id)),
        "formula": input.formula,
        "method_source": input.method_source,
        "sql": input.sql,
        "columns": columns,
        "results": results,
        "results_size": counted(input.results.len(), "row"),
        "warnings": input.warnings.iter().map(|w| json!({"code": w.code.replace('_', " "), "text": full(&w.text)})).collect::<Vec<_>>(),
        "rows": audit_rows(site, &entries, "../../../"),
        "rows_size": counted(entries.len(), "place"),
        "sources": sources(&input.sources),
        "sources_size": counted(input.sources.len(), "file"),
        "toml": input.toml,
    });
    let title = format!("{}.{}", input.scope, input.id);
    let head = Head {
        address: &address,
        template: "derivation.html",
        title: &title,
        description: &format!("How {title} was worked out, twice, and from which rows."),
        nav: "audit",
    };
    site.page(&head, context)
}

/// The number that stands for the derivation: the value over all rows, else the first there is.
fn headline<'a>(site: &Site<'a>, input: &DerivationInput) -> Option<&'a NumberInput> {
    let own = || site.publication.numbers.values().filter(|n| n.scope == input.scope && n.id == input.id);
    own()
        .find(|n| n.row.is_none() && n.part == "value")
        .or_else(|| own().find(|n| n.row.is_none()))
        .or_else(|| own().find(|n| n.part == "value"))
        .or_else(|| own().next())
}

/// The lines of the comparison: as printed, by the first road, by the second.
fn align(number: &NumberInput, input: &DerivationInput) -> Vec<Value> {
    let entry = input.audit.iter().find(|entry| entry.reference == number.reference);
    let printed = entry.map_or(number.text.as_str(), |entry| entry.printed.as_str());
    let bad = entry.is_some_and(|entry| entry.verdict == Verdict::Mismatch);
    let places = input.audit.iter().filter(|entry| entry.reference == number.reference).count();
    let where_printed = match places {
        0 => "printed nowhere; in its own format".to_string(),
        1 => entry.map_or_else(String::new, |entry| entry.place.clone()),
        several => {
            format!("in {}, such as {}", counted(several, "place"), entry.map_or("", |e| e.place.as_str()))
        }
    };
    let shape = Shape::of(printed);
    let first = match &number.value {
        Number::Defined(value) => shape.digits(*value),
        Number::Undefined(why) => words(&format!("— ({why})")),
    };
    let mut lines = vec![
        json!({"name": "Printed", "note_html": breakable(&where_printed), "digits_html": shape.printed(bad)}),
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

/// A step or remark as a sentence of its own.
fn full(text: &str) -> String {
    let text = sentence(text.trim());
    if text.ends_with(['.', '?', '!', ':']) { text } else { format!("{text}.") }
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

fn verdict_words(input: &DerivationInput, tally: &Tally) -> String {
    match (input.verdict, tally.all()) {
        (Verdict::Match, 0) => "Recomputed; printed on no page.".to_string(),
        (Verdict::Match, n) => {
            format!("The second road gives the printed digits in {}.", counted(n, "place"))
        }
        (Verdict::Cited, _) => "Taken from elsewhere, with its source; not recomputed here.".to_string(),
        (verdict, _) => {
            let reason = input.audit.iter().find(|e| e.verdict == verdict).and_then(|e| e.reason.as_deref());
            sentence(reason.unwrap_or("no reason was recorded"))
        }
    }
}

fn form(site: &Site<'_>, input: &DerivationInput) -> Vec<Value> {
    let cell =
        |label: &str, value: &str, small: &str| json!({"label": label, "value": value, "small": small});
    let mut cells = Vec::new();
    if let Some(number) = headline(site, input) {
        if let Some(interval) = &number.interval {
            cells.push(cell("Interval", interval, number.method.as_deref().unwrap_or("")));
        }
        if let Some(n) = &number.n {
            cells.push(cell("n", n, ""));
        }
    }
    let used: usize = input.sources.iter().map(|(_, _, used, _)| used).sum();
    let all: usize = input.sources.iter().map(|(.., all)| all).sum();
    if all > 0 {
        cells.push(cell("Rows used", &count(used), &format!("of {}", count(all))));
    }
    cells.push(cell("Estimator", &input.estimator, ""));
    cells
}

/// The columns (parts) and rows of the results table.
fn results(site: &Site<'_>, input: &DerivationInput) -> (Vec<String>, Vec<Value>) {
    let mut columns: Vec<String> = Vec::new();
    for (_, parts) in &input.results {
        for (part, _) in parts {
            if !columns.contains(part) {
                columns.push(part.clone());
            }
        }
    }
    let rows = input.results.iter().map(|(label, parts)| {
        let cells: Vec<Value> = columns
            .iter()
            .map(|column| {
                let text = parts.iter().find(|(part, _)| part == column).map(|(_, text)| text);
                let number = text.and_then(|text| site.publication.numbers.get(text));
                let why = number.and_then(|n| match &n.value {
                    Number::Undefined(why) => Some(why.clone()),
                    Number::Defined(_) => None,
                });
                json!({
                    "text": number.map_or_else(|| text.cloned().unwrap_or_default(), |n| n.text.clone()),
                    "why": why,
                    "class": number.map_or("", |n| match n.verdict { Verdict::Match => "", other => glyphs::class(other) }),
                })
            })
            .collect();
        json!({"label": label.clone().unwrap_or_else(|| "all rows".to_string()), "total": label.is_none(), "cells": cells})
    });
    let rows = rows.collect();
    (columns, rows)
}
