//! How numbers are made here: one entry for each estimator, from the registry, and where it is used.

use super::{Head, Site};
use crate::error::Result;
use crate::site::number::derivation_address;
use crate::site::text::{breakable, counted, full};
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
                "formula": full(&estimator.formula),
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
    site.page(&head, json!({"estimators": estimators}))
}
