//! All texts of a workspace that may print numbers: reports with their logs, claims, and the
//! site's plain pages.

use super::front_matter::{Document, Front};
use super::ledger::Claim;
use super::report::{Log, Report};
use crate::error::{Error, Result, nearest};
use crate::workspace::{self, names};
use std::collections::BTreeMap;
use std::path::Path;

/// The texts of one experiment.
#[derive(Debug, Clone)]
pub struct ExperimentText {
    /// Its folder name under `data/` and `site/experiments/`.
    pub slug: String,
    /// Its report.
    pub report: Report,
    /// Its log, where there is one.
    pub log: Option<Log>,
}

/// The texts of a workspace.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    /// By slug.
    pub experiments: BTreeMap<String, ExperimentText>,
    /// In rising order of id.
    pub claims: Vec<Claim>,
    /// `site/pages/*.md` and `site/programs/*.md`, by path; their front matter is the site's to read.
    pub pages: Vec<Document>,
}

impl Texts {
    /// Reads every text below `root`. The first one that is not well formed is the error: it names file,
    /// line and remedy.
    pub fn load(root: &Path) -> Result<Texts> {
        workspace::require(root)?;
        let mut texts = Texts::default();
        for slug in names(&root.join("site/experiments"), true)? {
            super::report::check_id(&slug).map_err(|e| e.at(format!("site/experiments/{slug}")))?;
            if !root.join(format!("site/experiments/{slug}/report.md")).is_file() {
                return Err(Error::invalid("has no `report.md`")
                    .at(format!("site/experiments/{slug}"))
                    .hint("write one, or remove the folder"));
            }
            let report = Report::read(root, &slug)?;
            let log = Log::read(root, &slug)?;
            texts.experiments.insert(slug.clone(), ExperimentText { slug, report, log });
        }
        // A claim that nobody reads is a claim that nobody checks.
        if let Some(folder) = names(&root.join("claims"), true)?.first() {
            return Err(Error::invalid("is a folder, and claims are not looked for in folders")
                .at(format!("claims/{folder}"))
                .hint("move its claims up into `claims/`, and anything else out of it"));
        }
        for file in names(&root.join("claims"), false)?.iter().filter(|file| file.ends_with(".md")) {
            texts.claims.push(Claim::read(root, file)?);
        }
        texts.claims.sort_by(|a, b| a.id.cmp(&b.id));
        for pair in texts.claims.windows(2) {
            if let [a, b] = pair
                && a.id == b.id
            {
                return Err(Error::invalid(format!("claim id `{}` is taken by `{}`", b.id, a.document.path))
                    .at(b.document.place_of("id"))
                    .hint("give the claim the next free number"));
            }
        }
        if let Some(claim) = texts.claims.iter().find(|c| texts.experiments.contains_key(&c.id)) {
            return Err(Error::invalid(format!("`{}` is a claim and an experiment", claim.id))
                .at(format!("site/experiments/{}", claim.id))
                .hint("rename the experiment's folder"));
        }
        for folder in ["site/pages", "site/programs"] {
            for file in names(&root.join(folder), false)?.iter().filter(|file| file.ends_with(".md")) {
                texts.pages.push(Document::read(root, &format!("{folder}/{file}"), Front::Optional)?);
            }
        }
        Ok(texts)
    }

    /// Every file, in a fixed order: reports and logs by slug, claims, pages.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        let experiments = self.experiments.values().flat_map(|experiment| {
            std::iter::once(&experiment.report.document)
                .chain(experiment.log.as_ref().map(|log| &log.document))
        });
        experiments.chain(self.claims.iter().map(|claim| &claim.document)).chain(&self.pages)
    }

    /// The claim with this id; the error names the nearest known one.
    pub fn claim(&self, id: &str) -> Result<&Claim> {
        self.claims.iter().find(|claim| claim.id == id).ok_or_else(|| {
            let error = Error::invalid(format!("there is no claim `{id}`"));
            match nearest(id, self.claims.iter().map(|claim| claim.id.as_str())) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("claims stand in `claims/<id>-….md`"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "+++\ntitle = \"T\"\nlifecycle = \"planned\"\n+++\n";
    const CLAIM: &str = "+++\nid = \"C0001\"\ntitle = \"A\"\nstatus = \"proposed\"\npopulation = \"tasks\"\n\
        [[history]]\ndate = 2026-12-01\nstatus = \"proposed\"\n+++\n";

    fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn a_workspace_is_read_in_order() {
        let dir = workspace(&[
            ("site/experiments/b/report.md", REPORT),
            ("site/experiments/a/report.md", REPORT),
            ("site/experiments/a/log.md", "## 2026-12-01 — x\n"),
            ("claims/C0002-x.md", &CLAIM.replace("C0001", "C0002")),
            ("claims/C0001-x.md", CLAIM),
            ("claims/notes.txt", "left alone"),
            ("site/pages/about.md", "About\n"),
        ]);
        let texts = Texts::load(dir.path()).unwrap();
        let paths: Vec<&str> = texts.documents().map(|d| d.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "site/experiments/a/report.md",
                "site/experiments/a/log.md",
                "site/experiments/b/report.md",
                "claims/C0001-x.md",
                "claims/C0002-x.md",
                "site/pages/about.md",
            ]
        );
        assert!(texts.claim("C0003").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let fails = |files: &[(&str, &str)], wanted: &str| {
            let e = Texts::load(workspace(files).path()).unwrap_err().to_string();
            assert!(e.contains(wanted) && e.contains("hint:"), "{e}");
        };
        fails(&[], "not a workspace");
        fails(
            &[("claims/C0001-a.md", CLAIM), ("claims/C0001-b.md", CLAIM)],
            "is taken by `claims/C0001-a.md`",
        );
        fails(&[("site/experiments/a/log.md", "")], "has no `report.md`");
        fails(
            &[("claims/C0001-a.md", CLAIM), ("site/experiments/C0001/report.md", REPORT)],
            "a claim and an experiment",
        );
        fails(&[("claims/C0002-a.md", CLAIM)], "must start with the id");
    }
}
