//! A derivation's page: the printed number above its two recomputed values, digit under digit, then
//! the recipe in words, in SQL and in TOML, every result, every printed place, and the files.

use super::align::align;
use super::results;
use super::sections::Sections;
use super::{Head, Site, Tally, audit_table, sources};
use crate::error::Result;
use crate::site::glyphs;
use crate::site::input::{AuditEntry, DerivationInput, NumberInput, Verdict};
use crate::site::number::{derivation_address, interval_name, pending};
use crate::site::prose::plain;
use crate::site::text::{agreeing, breakable, coded, count, counted, definition, full, sentence, spelled};
use serde_json::{Value, json};

/// `derivations/<scope>/<id>/index.html`.
pub fn page(site: &mut Site<'_>, input: &DerivationInput) -> Result<()> {
    let address = derivation_address(&input.scope, &input.id);
    let publication = site.publication;
    let experiment = publication.experiments.iter().find(|e| e.slug == input.scope);
    let claim = publication.claims.iter().find(|c| c.id == input.scope);
    let (parent, parent_href, parent_title) = match (experiment, claim) {
        (Some(e), _) => {
            ("Experiments", Some(format!("../../../experiments/{}/index.html", e.slug)), e.title.clone())
        }
        (None, Some(c)) => ("Claims", Some(format!("../../../claims/{}/index.html", c.id)), plain(&c.title)),
        (None, None) => ("Audit", None, String::new()),
    };
    let mut entries: Vec<&AuditEntry> = input.audit.iter().collect();
    entries.sort_by_key(|entry| entry.verdict);
    let tally = Tally::of(input.audit.iter());
    let results = results::results(site, input);
    let mut sections = Sections::default();
    sections.add("recipe", "The recipe in words", !input.recipe.is_empty());
    sections.add("sql", "The same in SQL", input.sql.is_some());
    sections.add("results", "Results", !input.results.is_empty());
    sections.add("printed", "Where it is printed", !entries.is_empty());
    sections.add("files", "Files and rows", !input.sources.is_empty());
    sections.add("declared", "As declared", !input.toml.trim().is_empty());
    let waits = headline(site, input).and_then(|n| pending(&n.value)).map(full);
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
        "verdict_html": if waits.is_some() { String::new() } else { glyphs::badge(input.verdict, input.verdict.word(), None) },
        "verdict_words_html": coded(&waits.unwrap_or_else(|| verdict_words(input, &tally))),
        "form": form(site, input),
        "no": sections.numbers(),
        "recipe": input.recipe.iter().map(|step| coded(&full(step))).collect::<Vec<_>>(),
        "estimator": input.estimator,
        "estimator_href": estimator.map(|e| format!("../../../method/index.html#{}", e.id)),
        "formula": definition(&input.formula),
        "method_source": full(&input.method_source),
        "sql": input.sql,
        "sql_interval": input.sql.as_ref().is_some_and(|sql| sql.contains(" AS low,")),
        "results": results,
        "results_size": counted(input.results.len(), "row"),
        "warnings": input.warnings.iter().map(|w| json!({"code": w.code.replace('_', " "), "text_html": coded(&agreeing(&full(&w.text)))})).collect::<Vec<_>>(),
        "audited": audit_table(site, &entries, "../../../"),
        "rows_size": counted(entries.len(), "printed place"),
        "sources": sources(publication, &input.sources, "../../../"),
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

fn verdict_words(input: &DerivationInput, tally: &Tally) -> String {
    match (input.verdict, tally.all()) {
        (Verdict::Match, 0) => {
            "No text prints this derivation; figures, tables and rules may take its values.".to_string()
        }
        (Verdict::Match, n) => {
            let places = match n {
                1 => "the one place".to_string(),
                2 => "both places".to_string(),
                n => format!("all {} places", spelled(n)),
            };
            format!(
                "The second road gives the printed digits of this derivation in {places} where it is printed."
            )
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
            cells.push(cell(
                &sentence(&interval_name(number)),
                interval,
                number.method.as_deref().unwrap_or(""),
            ));
        }
        if let Some(n) = &number.n {
            cells.push(cell("n", &agreeing(n), ""));
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
