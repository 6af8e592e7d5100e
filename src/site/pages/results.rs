//! The table of a derivation's results: a row for each label, a column for each part in the order in
//! which a reader asks for them, and the reason of whatever is undefined.

use super::Site;
use crate::claims::value::Number;
use crate::site::glyphs;
use crate::site::input::{DerivationInput, NumberInput, Verdict};
use crate::site::text::coded;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Parts that come first, in this order; others follow as they are given.
const FIRST: [&str; 8] = ["value", "low", "high", "n", "p", "se", "df", "mde"];

/// Columns, rows, and whether any row has a reason; null when there is no result.
pub fn results(site: &Site<'_>, input: &DerivationInput) -> Value {
    if input.results.is_empty() {
        return Value::Null;
    }
    let columns = columns(input);
    // The total of a family of tests is how many are rejected.
    let of_tests = ["holm", "benjamini_hochberg"].contains(&input.estimator.as_str());
    let total = if of_tests { "below .05" } else { "all rows" };
    let own: BTreeMap<(Option<&str>, &str), &NumberInput> = site
        .publication
        .numbers
        .values()
        .filter(|n| n.scope == input.scope && n.id == input.id)
        .map(|n| ((n.row.as_deref(), n.part.as_str()), n))
        .collect();
    let rows: Vec<Value> = input
        .results
        .iter()
        .map(|(label, parts)| {
            let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
            let mut cells = Vec::new();
            for column in &columns {
                let text = parts.iter().find(|(part, _)| part == column).map(|(_, text)| text);
                let number = text.and_then(|text| {
                    let keyed = site.publication.numbers.get(text);
                    keyed.or_else(|| own.get(&(label.as_deref(), *column)).copied())
                });
                if let Some(Number::Undefined(why)) = number.map(|n| &n.value) {
                    match reasons.iter_mut().find(|(known, _)| known == why) {
                        Some((_, parts)) => parts.push(column),
                        None => reasons.push((why, vec![column])),
                    }
                }
                cells.push(json!({
                    "text": number.map_or_else(|| text.cloned().unwrap_or_default(), |n| n.text.clone()),
                    "class": number.map_or("", |n| match n.verdict { Verdict::Match => "", other => glyphs::class(other) }),
                }));
            }
            json!({
                "label": label.as_deref().unwrap_or(total),
                "total": label.is_none(),
                "cells": cells,
                "why_html": reason(&reasons, parts.len()),
            })
        })
        .collect();
    let why = rows.iter().any(|row| row["why_html"].as_str().is_some_and(|why| !why.is_empty()));
    json!({"columns": columns, "rows": rows, "why": why})
}

fn columns(input: &DerivationInput) -> Vec<&str> {
    let mut columns: Vec<&str> = Vec::new();
    for (part, _) in input.results.iter().flat_map(|(_, parts)| parts) {
        if !columns.contains(&part.as_str()) {
            columns.push(part);
        }
    }
    columns.sort_by_key(|part| FIRST.iter().position(|first| first == part).unwrap_or(FIRST.len()));
    columns
}

/// The reasons of a row; a reason that holds for some parts only names them.
fn reason(reasons: &[(&str, Vec<&str>)], parts: usize) -> String {
    let words: Vec<String> = reasons
        .iter()
        .map(
            |(why, of)| {
                if of.len() == parts { (*why).to_string() } else { format!("{}: {why}", of.join(", ")) }
            },
        )
        .collect();
    coded(&words.join("; "))
}
