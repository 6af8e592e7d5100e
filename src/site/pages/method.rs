//! How numbers are made here: one entry for each estimator, from the registry, and where it is used.

use super::{Head, Site};
use crate::error::Result;
use crate::site::input::CoverageInput;
use crate::site::number::derivation_address;
use crate::site::text::{breakable, count, counted, definition, full};
use serde_json::{Value, json};

/// `method/index.html`.
pub fn page(site: &mut Site<'_>) -> Result<()> {
    let publication = site.publication;
    let estimators: Vec<Value> = publication
        .method
        .iter()
        .map(|estimator| {
            let used: Vec<Value> = publication
                .derivations
                .iter()
                .filter(|d| d.estimator == estimator.id)
                .map(|d| {
                    json!({
                        "href": format!("../{}", derivation_address(&d.scope, &d.id)),
                        "name_html": breakable(&format!("{}.{}", d.scope, d.id)),
                    })
                })
                .collect();
            json!({
                "id": estimator.id,
                "title": estimator.title,
                "formula": definition(&estimator.formula),
                "source": full(&estimator.source),
                "parts": estimator.parts.join(", "),
                "used_size": counted(used.len(), "derivation"),
                "used": used,
            })
        })
        .collect();
    let head = Head {
        address: "method/index.html",
        template: "method.html",
        title: "Method",
        description: "The estimators behind every number on this site, with formula and source.",
        nav: "method",
    };
    let worlds: Vec<Value> =
        publication.coverage.chunk_by(|a, b| a.scenario == b.scenario).map(world).collect();
    let data_sets = publication.coverage.first().map(|c| count(c.data_sets));
    site.page(&head, json!({"estimators": estimators, "worlds": worlds, "data_sets": data_sets}))
}

/// The simulations of one population.
fn world(rows: &[CoverageInput]) -> Value {
    let share = |x: f64| format!("{:.1}", 100.0 * x);
    let shown = |x: Option<f64>| x.map_or("—".to_owned(), share);
    let row = |c: &CoverageInput| {
        let mut size = counted(c.tasks, "task");
        if c.attempts > 1 {
            size += &format!(", {} each", counted(c.attempts, "attempt"));
        }
        if let Some(seeds) = c.training_seeds {
            size += &format!(", {}", counted(seeds, "training seed"));
        }
        json!({
            "size": size,
            "unit": c.unit,
            "coverage": c.coverage.map(shown),
            // Three standard errors of a simulated share of 95% on four thousand data sets are a point.
            "short": c.coverage[0].is_some_and(|x| x < 0.93),
            "defined": share(c.defined),
            "flagged": share(c.flagged),
            "flagged_of_missed": shown(c.flagged_of_missed),
        })
    };
    json!({
        "name": rows.first().map(|c| c.scenario.as_str()),
        "interior": rows.first().is_some_and(|c| c.interior),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}
