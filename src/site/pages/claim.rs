//! Claims: the list by status, and a page for each with statement, history, evidence and argument.

use super::sections::Sections;
use super::{Head, Site, Tally, figure};
use crate::error::Result;
use crate::site::chart::{Scene, Size};
use crate::site::glyphs;
use crate::site::input::{AuditEntry, ChangeInput, ClaimInput, Publication};
use crate::site::number::derivation_address;
use crate::site::prose::{Prose, bound, plain};
use crate::site::text::{anchor, breakable, counted, day, root_of, sentence};
use serde_json::{Value, json};

/// `claims/index.html`.
pub fn index(site: &mut Site<'_>) -> Result<()> {
    let publication = site.publication;
    let context = json!({
        "statuses": by_status(publication, "../", true),
        "imports": super::import::list(publication, "../"),
        "size": publication.claims.len(),
    });
    let head = Head {
        address: "claims/index.html",
        template: "claims.html",
        title: "Claims",
        description: "Numbered statements, each with a status, its history and its evidence.",
        nav: "claims",
    };
    site.page(&head, context)
}

/// Claims under their statuses; an unknown status gets a group of its own at the end.
pub fn by_status(publication: &Publication, root: &str, long: bool) -> Vec<Value> {
    let mut statuses: Vec<&str> = glyphs::STATUSES.to_vec();
    for claim in &publication.claims {
        if !statuses.contains(&claim.status.as_str()) {
            statuses.push(&claim.status);
        }
    }
    if publication.claims.is_empty() {
        return Vec::new();
    }
    let groups = statuses.iter().map(|status| {
        let claims: Vec<Value> = publication
            .claims
            .iter()
            .filter(|claim| claim.status == *status)
            .map(|claim| {
                let since = claim.history.last().map_or_else(String::new, |change| format!("since {}", day(&change.date)));
                json!({
                    "id": claim.id,
                    "title": plain(&claim.title),
                    "href": format!("{root}claims/{}/index.html", claim.id),
                    "words": if long { since } else { String::new() },
                })
            })
            .collect();
        json!({"anchor": format!("status-{}", anchor(status)), "status_html": glyphs::status(status), "n": claims.len(), "claims": claims})
    });
    groups.collect()
}

/// `claims/<id>/index.html` and the downloads of its forest.
pub fn page(site: &mut Site<'_>, input: &ClaimInput) -> Result<()> {
    let publication = site.publication;
    let folder = format!("claims/{}", input.id);
    let address = format!("{folder}/index.html");
    let root = root_of(&address);
    let mut prose = Prose::new(publication, &root);
    let title_html = prose.headline(&input.title, &input.path)?;
    let title = plain(&input.title);
    bound(&input.body, &input.path)?;
    let body_html = prose.block(&input.body, &input.path, "text", 3)?;
    let own = publication.audit.entries.iter().filter(|entry: &&AuditEntry| {
        entry
            .place
            .strip_prefix(input.path.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    });
    let tally = Tally::of(own);
    let forest = forest(site, input, &folder)?;
    let experiments = experiments(publication, input);

    let mut sections = Sections::default();
    sections.add("history", "Status history", !input.history.is_empty());
    sections.add("evidence", "Evidence", !forest.is_null());
    sections.add("argument", "Argument", !input.body.trim().is_empty());
    sections.add("experiments", "Rests on", !experiments.is_empty());
    let since =
        input.history.last().map_or_else(String::new, |change| format!("since {}", day(&change.date)));
    let context = json!({
        "id": input.id,
        "title_html": title_html,
        "long": title.chars().count() > 160,
        "status_html": glyphs::status(&input.status),
        "since": since,
        "form": form(publication, input, &tally, &root, &mut prose)?,
        "no": sections.numbers(),
        "contents": sections.contents(),
        "history": history(publication, input, &root),
        "history_size": counted(input.history.len(), "entry"),
        "forest": forest,
        "body_html": body_html,
        "path": input.path,
        "path_html": breakable(&input.path),
        "experiments": experiments,
    });
    let head = Head {
        address: &address,
        template: "claim.html",
        title: &format!("{}: {title}", input.id),
        description: &title,
        nav: "claims",
    };
    site.page(&head, context)
}

fn form(
    publication: &Publication,
    input: &ClaimInput,
    tally: &Tally,
    root: &str,
    prose: &mut Prose<'_>,
) -> Result<Vec<Value>> {
    let cell = |label: &str, value_html: String, small: String| json!({"label": label, "value_html": value_html, "small": small});
    let population = match input.population.as_str() {
        "tasks" => ("tasks", "says nothing about other training runs"),
        "tasks-x-train-seeds" => ("tasks and training seeds", "spans several training runs"),
        other => (other, ""),
    };
    let worst = publication
        .audit
        .entries
        .iter()
        .filter(|e| e.place.starts_with(&format!("{}:", input.path)))
        .map(|e| e.verdict)
        .min();
    let audited = match worst {
        Some(verdict) if tally.all() > 0 => {
            glyphs::badge(verdict, &tally.words(), Some(&format!("{root}audit/index.html")))
        }
        _ => "no numbers".to_string(),
    };
    let mut cells = vec![
        cell("Evidence", counted(input.forest.len(), "comparison"), String::new()),
        cell("Rests on", rests_on(input), String::new()),
        cell("Population", crate::site::text::escape(&sentence(population.0)), population.1.to_string()),
        cell("Audit", audited, String::new()),
    ];
    if let Some(scope) = &input.scope {
        cells.push(cell("Scope", prose.inline(scope, &input.path)?, String::new()));
    }
    let replaced_by = publication.claims.iter().filter(|claim| claim.supersedes.as_ref() == Some(&input.id));
    let named = [
        ("Supersedes", input.supersedes.iter().map(String::as_str).collect::<Vec<_>>()),
        ("Superseded by", replaced_by.map(|claim| claim.id.as_str()).collect()),
        ("Contradicts", input.contradicts.iter().map(String::as_str).collect()),
    ];
    for (label, ids) in named.into_iter().filter(|(_, ids)| !ids.is_empty()) {
        let links: Vec<String> = ids.into_iter().map(|id| link(publication, id)).collect();
        cells.push(cell(label, links.join(", "), String::new()));
    }
    Ok(cells)
}

/// `1 experiment`, `2 imports`, or both.
fn rests_on(input: &ClaimInput) -> String {
    let kinds = [(input.experiments.len(), "experiment"), (input.imports.len(), "import")];
    let some: Vec<String> = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, of)| counted(*n, of)).collect();
    if some.is_empty() { counted(0, "experiment") } else { some.join(", ") }
}

/// Another claim, linked where it has a page.
fn link(publication: &Publication, id: &str) -> String {
    let known = publication.claims.iter().any(|claim| claim.id == id);
    let id = crate::site::text::escape(id);
    if known { format!("<a href=\"../{id}/index.html\">{id}</a>") } else { id }
}

fn history(publication: &Publication, input: &ClaimInput, root: &str) -> Vec<Value> {
    let mut before = "";
    let mut entries = Vec::new();
    let number = |address: &String| {
        let number = publication.numbers.get(address);
        json!({
            "name_html": breakable(address.strip_prefix("derive:").unwrap_or(address)),
            "href": number.map(|n| format!("{root}{}", derivation_address(&n.scope, &n.id))),
            "text": number.map(|n| n.text.clone()),
            "interval": number.and_then(|n| n.interval.clone()),
        })
    };
    for ChangeInput { date, status, evidence, against } in &input.history {
        let known = glyphs::STATUSES.contains(&status.as_str());
        let evidence: Vec<Value> = evidence.iter().map(number).collect();
        let against: Vec<Value> = against.iter().map(number).collect();
        entries.push(json!({
            "date": date,
            "day": day(date),
            "word": if status == before { "Status unchanged".to_string() } else { sentence(status) },
            "class": if known { status.as_str() } else { "proposed" },
            "node_html": glyphs::status_mark(status, "node"),
            "changed": status != before,
            "evidence": evidence,
            "against": against,
        }));
        before = status;
    }
    entries
}

fn forest(site: &mut Site<'_>, input: &ClaimInput, folder: &str) -> Result<Value> {
    if input.forest.is_empty() {
        return Ok(Value::Null);
    }
    let title = format!("Evidence of claim {}", input.id);
    let scene = Scene::forest(&title, &[(String::new(), input.forest.clone())], None, None);
    if scene.is_pending() {
        return Ok(json!({"pending": true}));
    }
    let table = scene.table();
    let base = "figures/evidence";
    site.files.add(&format!("{folder}/{base}.svg"), scene.svg_file())?;
    site.files.add(&format!("{folder}/{base}.csv"), table.csv())?;
    site.files.add(&format!("{folder}/{base}.json"), scene.json())?;
    Ok(json!({
        "pending": false,
        "wide_svg": scene.svg("evidence-chart", Size::Wide),
        "narrow_svg": scene.svg("evidence-chart", Size::Narrow),
        "table_html": figure::table_html(&table),
        "table_size": counted(table.rows.len(), "row"),
        "base": base,
    }))
}

fn experiments(publication: &Publication, input: &ClaimInput) -> Vec<Value> {
    let entries = input.experiments.iter().map(|slug| {
        let experiment = publication.experiments.iter().find(|e| &e.slug == slug);
        json!({
            "title": experiment.map_or(slug.as_str(), |e| e.title.as_str()),
            "href": experiment.map(|e| format!("../../experiments/{}/index.html", e.slug)),
            "words": experiment.map_or_else(String::new, |e| {
                format!("{}, {}", e.lifecycle, e.verdict.as_deref().unwrap_or("no verdict yet"))
            }),
        })
    });
    let imports = input.imports.iter().map(|slug| {
        let import = publication.imports.iter().find(|i| &i.slug == slug);
        json!({
            "title": slug,
            "href": import.map(|i| format!("../../imports/{}/index.html", i.slug)),
            "words": "rows made elsewhere",
        })
    });
    entries.chain(imports).collect()
}
