//! `claims check`: everything printed is what the rows give, every claim has evidence, every
//! figure has something behind it. Collects all findings instead of stopping at the first.

mod claims;
mod links;
mod prose;
mod reports;

use super::book::{Book, one_line};
use super::front_matter::Document;
use super::texts::Texts;
use crate::error::{Error, Problem, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// A stable name, such as `mismatch` or `unbound`.
    pub rule: &'static str,
    /// What does not hold, in one sentence.
    pub text: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {} [{}]", self.file, self.line, self.text, self.rule)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Outcome {
    /// What does not hold, by file and line.
    pub findings: Vec<Finding>,
    /// Number of derive links looked at.
    pub links: usize,
    /// File → numbers in its prose that no link binds, where that is allowed (reports, logs, pages).
    pub unbound: BTreeMap<String, usize>,
}

impl Outcome {
    /// The error that a command ends with, if anything was found: all findings in one message.
    pub fn into_result(self) -> Result<Outcome> {
        if self.findings.is_empty() {
            return Ok(self);
        }
        let count = self.findings.len();
        let list: Vec<String> = self.findings.iter().map(Finding::to_string).collect();
        let what = format!(
            "{count} {} in what is printed:\n{}",
            if count == 1 { "finding" } else { "findings" },
            list.join("\n")
        );
        Err(Error::refused(what))
    }

    fn add(
        &mut self,
        document: &Document,
        line: usize,
        rule: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let (text, hint) = (text.into(), hint.into());
        let hint = (!hint.is_empty()).then_some(hint);
        self.findings.push(Finding { file: document.path.clone(), line, rule, text, hint });
    }

    /// A finding from an error; its own hint goes along.
    fn add_error(&mut self, document: &Document, line: usize, rule: &'static str, error: Error) {
        let problem = match error {
            Error::Invalid(problem) | Error::Refused(problem) => *problem,
            other => Problem { what: other.to_string(), place: None, remedy: None },
        };
        self.add(document, line, rule, one_line(&problem), problem.remedy.unwrap_or_default());
    }
}

/// Checks texts against a book built from them.
pub fn check(texts: &Texts, book: &Book) -> Outcome {
    let mut outcome = Outcome::default();
    for (entry, problem) in book.refused() {
        outcome.findings.push(Finding {
            file: entry.path.clone(),
            line: entry.line,
            rule: "derivation",
            text: format!("derivation `{}` cannot be computed: {}", entry.id, one_line(problem)),
            hint: problem.remedy.clone(),
        });
    }
    for document in texts.documents() {
        links::check(document, book, &mut outcome);
    }
    prose::check(texts, book, &mut outcome);
    reports::check(texts, book, &mut outcome);
    claims::check(texts, book, &mut outcome);
    outcome.findings.sort();
    outcome.findings.dedup();
    outcome
}

/// A number in prose that no link binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bare {
    /// The file, relative to the workspace.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The number as written.
    pub text: String,
    /// Whether a link is demanded there.
    pub refused: bool,
}

/// Every number in prose that no link binds, where one is demanded and where it is only counted. Needs no rows.
pub fn bare(texts: &Texts) -> Vec<Bare> {
    prose::bare(texts)
}

/// Numbers that must be bound and are not. Needs no rows.
pub fn unbound(texts: &Texts) -> Vec<Finding> {
    let mut outcome = Outcome::default();
    prose::numbers(texts, &mut outcome);
    outcome.findings
}

/// Loads the workspace at `root`, evaluates it and checks it. Errors only where it cannot be read.
pub fn workspace(root: &Path) -> Result<Outcome> {
    let texts = Texts::load(root)?;
    let book = Book::build(root, &texts)?;
    Ok(check(&texts, &book))
}

#[cfg(test)]
mod tests;
