//! The claims ledger: numbered statements (`claims/C0001-….md`) with a status, its dated
//! history, the evidence for each change, and derivations of their own.

use super::day::Day;
use super::derivation::{Derivation, Reference};
use super::front_matter::{Document, Front};
use super::report::check_id;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a claim has come. Shown by a mark and a word, never by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Stated, not yet supported.
    Proposed,
    /// Supported once.
    Promising,
    /// Supported again, on fresh data.
    Confirmed,
    /// Supported and contradicted.
    Contested,
    /// Contradicted.
    Refuted,
    /// No longer claimed.
    Retired,
}

impl Status {
    /// Every status, in the order of the ledger's page.
    pub const ALL: [Status; 6] = [
        Status::Confirmed,
        Status::Promising,
        Status::Proposed,
        Status::Contested,
        Status::Refuted,
        Status::Retired,
    ];

    /// The mark before the word.
    pub fn mark(self) -> &'static str {
        match self {
            Status::Proposed => "○",
            Status::Promising => "◑",
            Status::Confirmed => "✓",
            Status::Contested => "⚡",
            Status::Refuted => "✗",
            Status::Retired => "—",
        }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Status::Proposed => "Proposed",
            Status::Promising => "Promising",
            Status::Confirmed => "Confirmed",
            Status::Contested => "Contested",
            Status::Refuted => "Refuted",
            Status::Retired => "Retired",
        }
    }
}

/// What a claim speaks of: what would vary if it were tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Population {
    /// Fresh tasks, with these very models and adapters.
    Tasks,
    /// Fresh tasks and freshly trained adapters.
    TasksXTrainSeeds,
}

/// One entry of a claim's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When.
    pub date: Day,
    /// The status from then on.
    pub status: Status,
    /// The numbers that led to it.
    pub evidence: Vec<Reference>,
    /// Numbers that speak against the claim.
    pub against: Vec<Reference>,
}

/// A claim, as its file states it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// `C0001`.
    pub id: String,
    /// The statement in one line; links allowed.
    pub title: String,
    /// Its status now: that of the last change.
    pub status: Status,
    /// What it speaks of.
    pub population: Population,
    /// Changes of status, oldest first; never empty.
    pub history: Vec<Change>,
    /// Experiments it belongs to, beside those it cites.
    pub experiments: Vec<String>,
    /// What it is limited to, in words.
    pub scope: Option<String>,
    /// The claim it replaces.
    pub supersedes: Option<String>,
    /// Claims that cannot hold where this one does.
    pub contradicts: Vec<String>,
    /// Derivations of its own by id; each names its experiment.
    pub derivations: BTreeMap<String, Derivation>,
    /// The file, with the Markdown body.
    pub document: Document,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFront {
    id: String,
    title: String,
    status: Status,
    population: Population,
    history: Vec<ChangeFront>,
    #[serde(default)]
    experiments: Vec<String>,
    scope: Option<String>,
    supersedes: Option<String>,
    #[serde(default)]
    contradicts: Vec<String>,
    #[serde(default)]
    derivations: BTreeMap<String, Derivation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeFront {
    date: Day,
    status: Status,
    #[serde(default)]
    evidence: Vec<String>,
    #[serde(default)]
    against: Vec<String>,
}

impl Claim {
    /// A claim from its split file. Checks that id and file name agree, dates rise, the last
    /// status is the status, evidence is spelt as references, derivations name their experiment.
    pub fn parse(document: Document) -> Result<Claim> {
        let front: ClaimFront = document.parse()?;
        let at = |key: &str| document.place_of(key);
        let file = document.path.rsplit('/').next().unwrap_or_default();
        let digits = front.id.strip_prefix('C').unwrap_or_default();
        if digits.len() < 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Error::invalid(format!("`{}` is not a claim id", front.id))
                .at(at("id"))
                .hint("write `C` and at least four digits, such as `C0001`"));
        }
        let stem = file.strip_suffix(".md").unwrap_or(file);
        if stem != front.id && !stem.starts_with(&format!("{}-", front.id)) {
            return Err(Error::invalid(format!("claim `{}` stands in a file called `{file}`", front.id))
                .at(at("id"))
                .hint(format!("the file name must start with the id: `{}-….md`", front.id)));
        }
        let mut history: Vec<Change> = Vec::new();
        for (i, change) in front.history.into_iter().enumerate() {
            let place = format!("{}: [[history]] entry {}", document.path, i + 1);
            if let Some(before) = history.last().filter(|before| before.date > change.date) {
                return Err(Error::invalid(format!(
                    "an entry of {} stands behind one of {}",
                    change.date, before.date
                ))
                .at(format!("{place}, line {}", document.line_of("[[history]]", i).unwrap_or(1)))
                .hint("list the history oldest first"));
            }
            let read = |texts: &[String]| {
                texts.iter().map(|text| evidence(text)).collect::<Result<Vec<_>>>().map_err(|e| e.at(&place))
            };
            let (evidence, against) = (read(&change.evidence)?, read(&change.against)?);
            history.push(Change { date: change.date, status: change.status, evidence, against });
        }
        match history.last() {
            Some(last) if last.status == front.status => {}
            last => {
                let says = last.map_or("is empty".to_string(), |l| {
                    format!("ends in `{}`", l.status.word().to_lowercase())
                });
                return Err(Error::invalid(format!(
                    "status is `{}`, but the history {says}",
                    front.status.word().to_lowercase()
                ))
                .at(at("status"))
                .hint("add a dated [[history]] entry with its evidence for every change of status"));
            }
        }
        for (id, derivation) in &front.derivations {
            let key = format!("[derivations.{id}]");
            check_id(id).map_err(|e| e.at(at(&key)))?;
            if derivation.experiment.is_none() && derivation.data != super::derivation::DataSet::Derivations {
                return Err(Error::invalid(format!("derivation `{id}` names no experiment"))
                    .at(at(&key))
                    .hint("add `experiment = \"<folder under data/>\"`"));
            }
        }
        Ok(Claim {
            id: front.id,
            title: front.title,
            status: front.status,
            population: front.population,
            history,
            experiments: front.experiments,
            scope: front.scope,
            supersedes: front.supersedes,
            contradicts: front.contradicts,
            derivations: front.derivations,
            document,
        })
    }

    /// Reads `claims/<file>`.
    pub fn read(root: &std::path::Path, file: &str) -> Result<Claim> {
        Claim::parse(Document::read(root, &format!("claims/{file}"), Front::Required)?)
    }

    /// All that speaks against it, oldest first.
    pub fn against(&self) -> impl Iterator<Item = &Reference> {
        self.history.iter().flat_map(|change| &change.against)
    }

    /// All evidence of the history, oldest first.
    pub fn evidence(&self) -> impl Iterator<Item = &Reference> {
        self.history.iter().flat_map(|change| &change.evidence)
    }
}

fn evidence(text: &str) -> Result<Reference> {
    let target = text.strip_prefix("derive:").ok_or_else(|| {
        Error::invalid(format!("evidence `{text}` is not a reference")).hint("write `derive:<scope>.<id>`")
    })?;
    Reference::parse(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "id = \"C0001\"\ntitle = \"A claim\"\nstatus = \"promising\"\npopulation = \"tasks-x-train-seeds\"\n\
        [[history]]\ndate = 2026-11-01\nstatus = \"proposed\"\n\
        [[history]]\ndate = 2026-12-01\nstatus = \"promising\"\nevidence = [\"derive:demo.delta\"]\n";

    fn claim(file: &str, front: &str) -> Result<Claim> {
        Claim::parse(Document::split(
            &format!("claims/{file}"),
            format!("+++\n{front}+++\nBody\n"),
            Front::Required,
        )?)
    }

    #[test]
    fn a_claim_is_read() {
        let c = claim("C0001-a-claim.md", GOOD).unwrap();
        assert_eq!(
            (c.status, c.population, c.history.len()),
            (Status::Promising, Population::TasksXTrainSeeds, 2)
        );
        assert_eq!(c.evidence().map(Reference::to_string).collect::<Vec<_>>(), ["derive:demo.delta"]);
        assert!(claim("C0001.md", GOOD).is_ok());
        assert_eq!(format!("{} {}", c.status.mark(), c.status.word()), "◑ Promising");
    }

    #[test]
    fn bad_claims_are_refused() {
        for (file, from, to, wanted) in [
            ("C0002-x.md", "", "", "must start with the id"),
            ("C00015.md", "", "", "must start with the id"),
            ("C0001.md", "C0001", "c1", "not a claim id"),
            ("C0001.md", "2026-12-01", "2026-10-01", "oldest first"),
            ("C0001.md", "2026-12-01", "2026-12-32", "claims/C0001.md:"),
            (
                "C0001.md",
                "\"promising\"\npop",
                "\"confirmed\"\npop",
                "status is `confirmed`, but the history ends in `promising`",
            ),
            ("C0001.md", "derive:demo", "demo", "not a reference"),
            ("C0001.md", "demo.delta\"", "demo.delta.lwo\"", "unknown part"),
            ("C0001.md", "tasks-x-train-seeds", "task", "did you mean `tasks`?"),
            ("C0001.md", "title", "tilte", "did you mean `title`?"),
        ] {
            let e = claim(file, &GOOD.replace(from, to)).unwrap_err().to_string();
            assert!(e.contains(wanted) && e.contains("hint:"), "{e}");
        }
        let own = format!("{GOOD}[derivations.x]\ndata = \"episodes\"\nestimator = \"count\"\n");
        assert!(claim("C0001.md", &own).unwrap_err().to_string().contains("names no experiment"));
        let empty =
            "id = \"C0001\"\ntitle = \"A\"\nstatus = \"proposed\"\npopulation = \"tasks\"\nhistory = []\n";
        assert!(claim("C0001.md", empty).unwrap_err().to_string().contains("history is empty"));
    }
}
