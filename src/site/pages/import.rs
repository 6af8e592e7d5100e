//! Rows that were made elsewhere and have no experiment's page: their files, and the claims that rest on
//! them. Where each file comes from stands on the file's own page.

use super::sections::Sections;
use super::{Head, Site, data};
use crate::error::Result;
use crate::site::glyphs;
use crate::site::input::{ImportInput, Publication};
use crate::site::prose::plain;
use crate::site::text::{breakable, count, counted, link, short_hash, size};
use serde_json::{Value, json};

/// What an import is called.
pub fn title(input: &ImportInput) -> String {
    format!("Imported rows: {}", input.slug)
}

/// Every import in a list of a page that is `root` away from the site's own folder.
pub fn list(publication: &Publication, root: &str) -> Vec<Value> {
    let imports = publication.imports.iter().map(|import| {
        let rows: usize = import.files.iter().map(|file| file.rows).sum();
        let mut words = format!("{} in {}", counted(rows, "row"), counted(import.files.len(), "file"));
        if !import.cited_by.is_empty() {
            words.push_str(&format!("; behind {}", counted(import.cited_by.len(), "claim")));
        }
        json!({
            "slug": import.slug,
            "href": format!("{root}imports/{}/index.html", import.slug),
            "words": words,
        })
    });
    imports.collect()
}

/// How many rows have no reward, where the files say so of any.
fn without_reward(input: &ImportInput) -> String {
    let nulls = input.files.iter().filter_map(|file| file.provenance.as_ref()?.null_rewards).sum();
    if nulls == 0 { String::new() } else { format!("{} without a reward", counted(nulls, "row")) }
}

/// `imports/<slug>/index.html`
pub fn page(site: &mut Site<'_>, input: &ImportInput) -> Result<()> {
    let publication = site.publication;
    let files: Vec<Value> = input
        .files
        .iter()
        .map(|file| {
            let programs = file.provenance.iter().flat_map(|from| &from.sources).filter_map(|(.., said)| {
                let of = |label: &str| said.iter().find(|(l, _)| l == label).map(|(_, value)| value.as_str());
                match (of("program"), of("format")) {
                    (None, Some("table")) => Some("a table".to_string()),
                    (None, format) => format.map(str::to_string),
                    (Some(program), _) => Some([program, of("program version").unwrap_or("")].join(" ")),
                }
            });
            let programs: std::collections::BTreeSet<String> =
                programs.map(|program| program.trim().to_string()).collect();
            let made_of = file.provenance.iter().flat_map(|from| &from.sources).map(|(name, sha256, _)| {
                json!({"name_html": breakable(name), "sha256": sha256, "short": short_hash(sha256)})
            });
            let nulls = file.provenance.as_ref().and_then(|from| from.null_rewards);
            json!({
                "made_of": made_of.collect::<Vec<_>>(),
                "nulls": nulls.map_or_else(String::new, count),
                "path_html": breakable(&file.path),
                "page": format!("data/{}/index.html", link(&data::folder(&file.path))),
                "file": format!("files/{}", link(&file.path)),
                "rows": count(file.rows),
                "size": size(file.bytes),
                "from": programs.into_iter().collect::<Vec<_>>().join(", "),
                "sha256": file.sha256,
                "short": short_hash(&file.sha256),
            })
        })
        .collect();
    let claims: Vec<Value> = input
        .cited_by
        .iter()
        .filter_map(|id| publication.claims.iter().find(|claim| &claim.id == id))
        .map(|claim| {
            json!({
                "id": claim.id,
                "title": plain(&claim.title),
                "status_html": glyphs::status(&claim.status),
                "href": format!("../../claims/{}/index.html", claim.id),
            })
        })
        .collect();
    let mut sections = Sections::default();
    sections.add("files", "Files", !files.is_empty());
    sections.add("claims", "Claims that rest on them", !claims.is_empty());
    let rows: usize = input.files.iter().map(|file| file.rows).sum();
    let context = json!({
        "slug": input.slug,
        "no": sections.numbers(),
        "rows": count(rows),
        "without_reward": without_reward(input),
        "files_size": counted(files.len(), "file"),
        "claims_size": counted(claims.len(), "claim"),
        "files": files,
        "claims": claims,
    });
    let title = title(input);
    let head = Head {
        address: &format!("imports/{}/index.html", input.slug),
        template: "import.html",
        title: &title,
        description: &format!(
            "Rows of {} that another program made, with where each file comes from.",
            input.slug
        ),
        nav: "imports",
    };
    site.page(&head, context)
}
