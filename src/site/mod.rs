//! The website: a [`Publication`] of plain values becomes pages, charts and downloads. Nothing in this
//! module computes a number or reads a row; the output is a function of its input, byte for byte.

pub mod chart;
mod check;
#[cfg(test)]
mod fixture_claims;
#[cfg(test)]
mod fixtures;
mod glyphs;
pub mod input;
mod number;
mod output;
mod pages;
mod prose;
#[cfg(test)]
mod reading_tests;
mod staging;
mod templates;
#[cfg(test)]
mod tests;
mod text;
mod validate;

pub use check::{check, strays};
pub use input::Publication;

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A site that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Its first page.
    pub index: PathBuf,
    /// HTML pages.
    pub pages: usize,
    /// Files, pages included.
    pub files: usize,
}

/// Builds the site into `out`, in the place of the site that may be there; files in `out` that are no
/// part of that site are kept.
///
/// Refuses when the publication must not be published, when a data file changed since it was hashed,
/// or when the finished pages have a broken link; an error when `out` is no place for a site. What lies
/// in `out` then stays as it is.
pub fn build(publication: &Publication, out: &Path) -> Result<Built> {
    refuse(publication)?;
    validate::validate(publication)?;
    let files = pages::render(publication)?;
    let staging = staging::Staging::beside(out, &files)?;
    files.write(&staging.folder)?;
    let problems = check(&staging.folder)?;
    if !problems.is_empty() {
        let shown: Vec<String> = problems.iter().take(FEW).map(|p| format!("- {p}")).collect();
        return Err(Error::refused(format!(
            "the pages do not hold together ({}):\n{}{}",
            text::counted(problems.len(), "problem"),
            shown.join("\n"),
            more(problems.len())
        ))
        .at(out.display())
        .hint("mend the links in the report, the log or the claim that the page is made from"));
    }
    staging.swap()?;
    Ok(Built { index: out.join("index.html"), pages: files.pages(), files: files.len() })
}

const FEW: usize = 8;

fn more(all: usize) -> String {
    match all.saturating_sub(FEW) {
        0 => String::new(),
        rest => format!("\n- and {rest} more"),
    }
}

fn refuse(publication: &Publication) -> Result<()> {
    let reasons = &publication.refusals;
    if reasons.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = reasons.iter().take(FEW).map(|reason| format!("- {reason}")).collect();
    Err(Error::refused(format!(
        "the site is not built, for {}:\n{}{}",
        text::counted(reasons.len(), "reason"),
        shown.join("\n"),
        more(reasons.len())
    ))
    .hint("run `rederive audit` for the whole list; correct the text, or the derivation, and build again"))
}
