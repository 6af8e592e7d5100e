//! The pages: one file for each kind, and what they share, from a publication to [`Files`].

mod align;
mod audit;
mod audited;
mod card;
mod claim;
mod data;
mod derivation;
mod experiment;
mod figure;
mod home;
mod import;
mod method;
mod results;
mod sections;

use super::glyphs;
use super::input::{AuditEntry, Publication, Verdict};
use super::output::Files;
use super::templates::{ASSETS, Templates};
use super::text::{breakable, counted, root_of};
use crate::error::Result;
use audited::audit_table;
use serde_json::{Value, json};

/// What every page needs.
pub struct Site<'a> {
    publication: &'a Publication,
    templates: Templates,
    files: Files,
}

/// A page's head: where it stands and what it is called.
struct Head<'t> {
    address: &'t str,
    template: &'t str,
    title: &'t str,
    description: &'t str,
    /// The entry of the site's menu that it belongs to.
    nav: &'t str,
}

/// Every file of the site.
pub fn render(publication: &Publication) -> Result<Files> {
    let mut site = Site { publication, templates: Templates::load()?, files: Files::default() };
    for (address, bytes) in ASSETS {
        site.files.add(address, *bytes)?;
    }
    home::home(&mut site)?;
    home::experiments(&mut site)?;
    for input in &publication.experiments {
        experiment::page(&mut site, input)?;
        let owner = data::Owner { shelf: "experiments", slug: &input.slug, title: &input.title };
        data::pages(&mut site, &owner, &input.files)?;
    }
    for input in &publication.imports {
        import::page(&mut site, input)?;
        let owner = data::Owner { shelf: "imports", slug: &input.slug, title: &import::title(input) };
        data::pages(&mut site, &owner, &input.files)?;
    }
    claim::index(&mut site)?;
    for input in &publication.claims {
        claim::page(&mut site, input)?;
    }
    for input in &publication.derivations {
        derivation::page(&mut site, input)?;
    }
    audit::page(&mut site)?;
    method::page(&mut site)?;
    home::missing(&mut site)?;
    Ok(site.files)
}

impl Site<'_> {
    /// Renders a page with its template and adds it to the files.
    fn page(&mut self, head: &Head<'_>, mut context: Value) -> Result<()> {
        let publication = self.publication;
        if let Value::Object(map) = &mut context {
            map.insert("root".into(), json!(root_of(head.address)));
            map.insert("site_title".into(), json!(publication.title));
            map.insert("page_title".into(), json!(head.title));
            map.insert("description".into(), json!(head.description));
            map.insert("nav".into(), json!(head.nav));
            map.insert("author".into(), json!(publication.author));
            map.insert("repository".into(), json!(web(publication.repository.as_deref())));
            map.insert("revision".into(), json!(publication.revision));
        }
        let html = self.templates.render(head.template, &context)?;
        self.files.add(head.address, html)
    }
}

/// An address that may become a link to the web.
fn web(address: Option<&str>) -> Option<&str> {
    address.filter(|a| a.starts_with("https://") || a.starts_with("http://"))
}

/// How many numbers fared how, as a badge row and a tally.
struct Tally {
    counts: [(Verdict, usize); 4],
}

impl Tally {
    fn of<'e>(entries: impl Iterator<Item = &'e AuditEntry>) -> Tally {
        let mut counts =
            [Verdict::Match, Verdict::Cited, Verdict::Unverifiable, Verdict::Mismatch].map(|v| (v, 0));
        for entry in entries {
            for (verdict, n) in &mut counts {
                *n += usize::from(*verdict == entry.verdict);
            }
        }
        Tally { counts }
    }

    fn all(&self) -> usize {
        self.counts.iter().map(|(_, n)| n).sum()
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.counts.iter().filter(|(v, _)| *v == verdict).map(|(_, n)| n).sum()
    }

    /// `109 match, 1 mismatch` with spaces that do not break, verdicts that do not occur left out.
    fn words(&self) -> String {
        let words: Vec<String> = self
            .counts
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(v, n)| format!("{n}\u{a0}{}", v.word()))
            .collect();
        words.join(", ")
    }

    fn badges(&self, href: Option<&str>) -> Vec<Value> {
        let shown = self.counts.iter().filter(|(_, n)| *n > 0);
        shown
            .map(|(v, n)| json!({"badge_html": glyphs::badge(*v, &format!("{n} {}", v.word()), href)}))
            .collect()
    }
}

/// Files behind a result, for a list on a page that is `root` away from the site's own folder.
fn sources(publication: &Publication, files: &[(String, String, usize, usize)], root: &str) -> Vec<Value> {
    let rows = files.iter().map(|(path, sha256, used, all)| {
        json!({
            "path_html": breakable(path),
            "href": data::page_of(publication, path).map(|page| format!("{root}{page}")),
            "rows": match (used, all) {
                (0, 0) => String::new(),
                (used, all) if used == all => counted(*all, "row"),
                (used, all) => format!("{} of {}", super::text::count(*used), counted(*all, "row")),
            },
            "sha256": sha256,
            "short": super::text::short_hash(sha256),
        })
    });
    rows.collect()
}
