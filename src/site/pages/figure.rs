//! A figure: both drawings, data table, sources, texts and the three downloads, all from one scene.

use super::{Site, sources};
use crate::error::Result;
use crate::site::chart::{Datum, Scene, Size, Table};
use crate::site::glyphs;
use crate::site::input::{FigureInput, Verdict};
use crate::site::number::derivation_address;
use crate::site::prose::{Prose, plain};
use crate::site::text::{agreeing, breakable, counted, escape, root_of};
use serde_json::{Value, json};

/// The figure's part of a page in the folder `folder` (such as `experiments/demo`), its number on that
/// page being `number` and its rows' evidence `evidence`; the downloads are added to the site's files.
pub fn figure(
    site: &mut Site<'_>,
    prose: &mut Prose<'_>,
    input: &FigureInput,
    folder: &str,
    number: usize,
    evidence: &str,
) -> Result<Value> {
    let place = format!("{folder}: figure `{}`", input.id);
    let scene = Scene::of(&input.chart, &plain(&input.title));
    let table = scene.table();
    let id = format!("fig-{}", input.id);
    let base = format!("figures/{}", input.id);
    // A figure without rows says so in words; an empty chart or an empty file would say nothing.
    let pending = scene.is_pending();
    if !pending {
        site.files.add(&format!("{folder}/{base}.svg"), scene.svg_file())?;
        site.files.add(&format!("{folder}/{base}.csv"), table.csv())?;
        site.files.add(&format!("{folder}/{base}.json"), scene.json())?;
    }
    let root = root_of(&format!("{folder}/index.html"));
    let derivations: Vec<Value> = input
        .derivations
        .iter()
        .filter_map(|name| name.split_once('.').map(|(scope, id)| (name, derivation_address(scope, id))))
        .map(|(name, address)| json!({"name_html": breakable(name), "href": format!("{root}{address}")}))
        .collect();
    let href = derivations.first().and_then(|d| d["href"].as_str()).map(str::to_string);
    Ok(json!({
        "id": id,
        "number": number,
        "evidence": evidence,
        "title_html": prose.headline(&input.title, &place)?,
        "plain_title": plain(&input.title),
        "pending": pending,
        "badge_html": if pending { String::new() } else { badge(input, href.as_deref()) },
        "how_html": prose.inline(&input.how_to_read, &place)?,
        "takeaway_html": prose.headline(&input.takeaway, &place)?,
        "technical_html": prose.inline(&input.technical, &place)?,
        "wide_svg": scene.svg(&id, Size::Wide),
        "narrow_svg": scene.svg(&id, Size::Narrow),
        "caption": if pending { String::new() } else { caption(&input.caption, &scene) },
        "table_html": table_html(&table),
        // A long table is not printed; its rows are in the downloads.
        "bulk": table.rows.len() > 40,
        "table_size": counted(table.rows.len(), "row"),
        "table_title": format!("The data of figure {number}, as drawn"),
        "sources": sources(site.publication, &input.sources, &root),
        "sources_size": counted(input.sources.len(), "file"),
        "derivations": derivations,
        "base": base,
    }))
}

/// The caption, and why rows have no interval.
fn caption(given: &str, scene: &Scene) -> String {
    let given = agreeing(given);
    let reasons = scene.without_interval();
    std::iter::once(given).chain(reasons).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

fn badge(input: &FigureInput, href: Option<&str>) -> String {
    let words = match input.verdict {
        Verdict::Match => format!("{} match", input.numbers),
        other => format!("{}, of {}", other.word(), input.numbers),
    };
    if input.numbers == 0 { String::new() } else { glyphs::badge(input.verdict, &words, href) }
}

/// The table's rows as HTML.
pub fn table_html(table: &Table) -> String {
    let mut out = String::from("<thead><tr>");
    for column in &table.columns {
        let class = if column.numeric { " class=\"n\"" } else { "" };
        out.push_str(&format!("<th scope=\"col\"{class}>{}</th>", escape(&column.title)));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (i, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
            let text = escape(&cell.printed(column));
            match (i, cell) {
                (0, _) => out.push_str(&format!("<th scope=\"row\">{text}</th>")),
                (_, Datum::Number(_)) => out.push_str(&format!("<td class=\"n\">{text}</td>")),
                (_, Datum::Text(_)) => out.push_str(&format!("<td>{text}</td>")),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>");
    out
}
