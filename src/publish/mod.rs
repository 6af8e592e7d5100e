//! Turns a workspace into the publication that `site` renders: texts, evaluated derivations and
//! audit verdicts side by side, as plain values. Refuses to build on a mismatch.

mod caption;
mod data;
mod evidence;
mod experiment;
mod parts;
mod recipe;
mod rescored;

use crate::audit::{self, AuditReport};
use crate::claims::check::{self, Finding};
use crate::claims::{Book, Texts};
use crate::error::{Error, Result};
use crate::regular;
use crate::site;
use crate::site::input::{ClaimInput, Publication};
use crate::stages::Context;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// `site/site.toml`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteFile {
    #[serde(default = "default_title")]
    title: String,
    #[serde(default)]
    description: String,
    author: Option<String>,
    repository: Option<String>,
}

fn default_title() -> String {
    "Research log".into()
}

/// Everything that a build looks at.
pub struct Workspace {
    /// Reports, logs, claims, pages.
    pub texts: Texts,
    /// Their derivations, evaluated.
    pub book: Book,
    /// The second road's verdicts, the book's numbers included.
    pub audit: AuditReport,
    /// What the ledger's own check found.
    pub check: check::Outcome,
}

/// Loads, evaluates, checks and audits a workspace.
pub fn examine(root: &Path) -> Result<Workspace> {
    let texts = Texts::load(root)?;
    let book = Book::build(root, &texts)?;
    let numbers = book.numbers();
    let audit = audit::audit(root, audit::Options { book: Some(&numbers) })?;
    let check = check::check(&texts, &book);
    Ok(Workspace { texts, book, audit, check })
}

/// The publication of a workspace. Errors only on unreadable files: what is wrong with the
/// numbers stands in `refusals`, and `site::build` refuses on them.
pub fn publication(root: &Path, workspace: &Workspace) -> Result<Publication> {
    let path = root.join("site").join("site.toml");
    let text = if path.exists() { regular::text(&path)? } else { String::new() };
    let site: SiteFile =
        toml::from_str(&text).map_err(|e| crate::experiment::plan::toml_error(&e, &text, &path))?;
    let bare =
        [("title", &site.title), ("description", &site.description)].into_iter().filter_map(|(key, text)| {
            let number = crate::claims::unbound::find(text).into_iter().next()?;
            let shown = number.text;
            Some(format!(
                "{}: `{key}` holds the number `{shown}`, which is bound to no derivation",
                path.display()
            ))
        });
    let said =
        [("title", &site.title), ("description", &site.description)].into_iter().filter_map(|(key, text)| {
            crate::claims::wording::claims(text).first()?;
            Some(format!("{}: `{key}` says how a comparison came out, and links no number", path.display()))
        });
    let bare: Vec<String> = bare.chain(said).collect();
    let numbers = evidence::numbers(workspace)?;
    let mut experiments = Vec::new();
    for (slug, text) in &workspace.texts.experiments {
        experiments.push(experiment::experiment(root, slug, text, workspace)?);
    }
    let claims: Vec<ClaimInput> =
        workspace.texts.claims.iter().map(|claim| evidence::claim(claim, workspace)).collect();
    let mut imports = data::imports(root, |slug| workspace.texts.experiments.contains_key(slug))?;
    for import in &mut imports {
        let citing = claims.iter().filter(|claim| claim.imports.contains(&import.slug));
        import.cited_by = citing.map(|claim| claim.id.clone()).collect();
    }
    Ok(Publication {
        title: site.title,
        description: site.description,
        author: site.author,
        repository: site.repository,
        revision: None,
        experiments,
        imports,
        claims,
        derivations: evidence::derivations(root, workspace)?,
        numbers,
        audit: evidence::audit_page(&workspace.audit),
        judged: Some(evidence::judged(&workspace.audit)),
        method: evidence::method(),
        coverage: evidence::coverage()?,
        refusals: refusals(workspace).into_iter().chain(bare).collect(),
    })
}

/// Why the site must not be built, most telling first.
fn refusals(workspace: &Workspace) -> Vec<String> {
    let mut out = Vec::new();
    for finding in &workspace.audit.findings {
        let row = finding.row.map(|r| format!(": row {r}")).unwrap_or_default();
        out.push(format!("{}{row}: {} ({})", finding.file, finding.detail, finding.rule));
    }
    let checked = &workspace.check.findings;
    for entry in workspace.audit.verdicts.iter().filter(|e| e.verdict == audit::Verdict::Mismatch) {
        // What the first road says of the same link, with its remedy, follows.
        let said = |finding: &Finding| {
            format!("{}:{}", finding.file, finding.line) == entry.place
                && finding.text.contains(&entry.reference)
        };
        if checked.iter().any(said) {
            continue;
        }
        let recomputed = entry.recomputed.map_or("—".to_string(), |x| x.to_string());
        let printed = if entry.printed.is_empty() { "nothing" } else { &entry.printed };
        out.push(format!("{}: {} prints {printed}, recomputed {recomputed}", entry.place, entry.reference));
    }
    out.extend(checked.iter().map(Finding::to_string));
    out
}

/// Examines a workspace and builds its site into `out`, which must lie apart from what it is made from.
pub fn build(root: &Path, out: &Path, context: &Context) -> Result<site::Built> {
    apart(root, out)?;
    context.observer.begin("audit", None, "");
    let workspace = examine(root)?;
    let s = workspace.audit.summary;
    let verdicts = &workspace.audit.verdicts;
    let printed = verdicts.iter().filter(|entry| entry.place != evidence::STATISTICS).count();
    context.observer.end(&format!(
        "{printed} printed numbers and {} behind tables and charts: {} match, {} mismatch, {} unverifiable, {} cited; {} rows checked",
        verdicts.len() - printed, s.matches, s.mismatches, s.unverifiable, s.cited, workspace.audit.rows_checked
    ));
    context.check()?;
    context.observer.begin("site", None, "");
    let built = site::build(&publication(root, &workspace)?, out)?;
    context.observer.end(&format!("{} pages, every link checked", built.pages));
    Ok(built)
}

/// Refuses a place for the site among the workspace's own data and texts, or around the workspace.
fn apart(root: &Path, out: &Path) -> Result<()> {
    let refuse = |what: String| {
        Error::invalid(what).at(out.display()).hint("leave `--out` out, or name a folder of its own")
    };
    let place = resolved(out)?;
    for folder in ["data", "claims", "site"] {
        if place.starts_with(resolved(&root.join(folder))?) {
            return Err(refuse(format!("the site would be written inside `{folder}/`")));
        }
    }
    if resolved(root)?.starts_with(&place) {
        return Err(refuse("the site would be written over the workspace".into()));
    }
    Ok(())
}

/// The absolute path, links followed as far as it exists.
fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let known = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(fs_err::canonicalize(above).ok()?.join(rest))
    });
    Ok(known.unwrap_or(path))
}

/// A problem with the data behind a page.
fn unreadable(what: &str, place: &Path) -> Error {
    Error::invalid(what.to_string()).at(place.display()).hint("run `rederive audit` for the whole list")
}
