//! An experiment's report (`site/experiments/<slug>/report.md`) and its log (`log.md`), as
//! written by their author: fields of the page, derivations, dated entries.

use super::day::Day;
use super::derivation::Derivation;
use super::front_matter::{Document, Front};
use super::links;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Where an experiment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifecycle {
    /// Planned, nothing run.
    Planned,
    /// Running, or between stages.
    InProgress,
    /// Ran to its end.
    Finished,
    /// Ended before its plan did.
    Stopped,
    /// Replaced by a later experiment.
    Superseded,
    /// Withdrawn.
    Retracted,
}

/// What an experiment found; another thing than its lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The change helped.
    Positive,
    /// It did not.
    Negative,
    /// The data do not say.
    Inconclusive,
    /// The design could not have shown it.
    DesignNegative,
    /// Only an instrument was tested.
    InstrumentOnly,
}

impl Verdict {
    /// As written in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Positive => "positive",
            Verdict::Negative => "negative",
            Verdict::Inconclusive => "inconclusive",
            Verdict::DesignNegative => "design-negative",
            Verdict::InstrumentOnly => "instrument-only",
        }
    }
}

/// The plain-language block, under its four fixed headings; links allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plain {
    /// The one idea you need.
    pub idea: String,
    /// The question.
    pub question: String,
    /// What we found.
    pub found: String,
    /// Why it matters.
    pub matters: String,
}

/// A headline card; links allowed in every field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// What is shown.
    pub label: String,
    /// The value, such as `[0.05](derive:x.base) → [0.31](derive:x.treatment)`.
    pub value: String,
    /// One line below it.
    #[serde(default)]
    pub note: String,
}

/// The kinds of figure a report may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Estimates with intervals, one a row of `by` tables.
    Forest,
    /// Two values a task, joined by a line.
    Slope,
}

/// A figure: its words, and the derivations that it draws.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Unique within the report: `[A-Za-z0-9_-]+`.
    pub id: String,
    /// What is drawn.
    pub kind: FigureKind,
    /// Title; links allowed here and in the next three.
    pub title: String,
    /// How to read it.
    #[serde(default)]
    pub how_to_read: String,
    /// What to take away.
    pub takeaway: String,
    /// Technical framing.
    #[serde(default)]
    pub technical: String,
    /// Forest: derivations with `by`, one group of rows each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
    /// Forest: the derivation of the pooled estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<String>,
    /// Forest: the derivation of the preregistered bar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar: Option<String>,
    /// Slope: a derivation by task, left end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// Slope: a derivation by task, right end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    /// Slope: the column by which lines are grouped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
}

/// Commands that run the experiment again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reproduce {
    /// A quick check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smoke: Option<String>,
    /// Everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

/// A dated remark: a correction, or a deviation from the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dated {
    /// When it was made.
    pub date: Day,
    /// What changed and why; links allowed.
    pub text: String,
}

/// The front matter of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportFront {
    /// The seal of a drafted report that nobody has edited; free text to everybody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
    /// Title of the page.
    pub title: String,
    /// One line below the title.
    #[serde(default)]
    pub tagline: String,
    /// Where the experiment stands.
    pub lifecycle: Lifecycle,
    /// What it found, once it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether the harvest ended the experiment for want of training rows.
    #[serde(default)]
    pub starved: bool,
    /// First day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Day>,
    /// Last day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Day>,
    /// Tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Research programs.
    #[serde(default)]
    pub programs: Vec<String>,
    /// The plain-language block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<Plain>,
    /// Headline cards.
    #[serde(default)]
    pub cards: Vec<Card>,
    /// Figures, in order.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Derivations by id.
    #[serde(default)]
    pub derivations: BTreeMap<String, Derivation>,
    /// Commands that run it again.
    #[serde(default)]
    pub reproduce: Reproduce,
    /// Departures from the plan.
    #[serde(default)]
    pub deviations: Vec<Dated>,
    /// Withdrawn or changed statements.
    #[serde(default)]
    pub corrections: Vec<Dated>,
}

/// A report: what its front matter says, and the file.
#[derive(Debug, Clone)]
pub struct Report {
    /// The front matter.
    pub front: ReportFront,
    /// The file, with the Markdown body.
    pub document: Document,
}

impl Report {
    /// Reads `site/experiments/<slug>/report.md`. Errors name file, line and key.
    pub fn read(root: &Path, slug: &str) -> Result<Report> {
        let path = format!("site/experiments/{slug}/report.md");
        Report::parse(Document::read(root, &path, Front::Required)?, slug)
    }

    /// A report from its split file; `slug` is the experiment it belongs to.
    pub fn parse(document: Document, slug: &str) -> Result<Report> {
        let front: ReportFront = document.parse()?;
        for (id, derivation) in &front.derivations {
            let key = format!("[derivations.{id}]");
            check_id(id).map_err(|e| e.at(document.place_of(&key)))?;
            if derivation.experiment.as_deref().is_some_and(|e| e != slug) {
                return Err(Error::invalid(format!("derivation `{id}` reads another experiment"))
                    .at(document.place_of(&key))
                    .hint(
                        "a report reads its own rows; declare a comparison across experiments in a claim",
                    ));
            }
        }
        let mut ids = std::collections::BTreeSet::new();
        for figure in &front.figures {
            check_id(&figure.id).map_err(|e| e.at(&document.path))?;
            if !ids.insert(&figure.id) {
                return Err(Error::invalid(format!("two figures are called `{}`", figure.id))
                    .at(&document.path)
                    .hint("give each figure its own id"));
            }
        }
        Ok(Report { front, document })
    }
}

/// Ids of derivations and figures: what a reference can spell.
pub(super) fn check_id(id: &str) -> Result<()> {
    let ok = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if ok {
        Ok(())
    } else {
        Err(Error::invalid(format!("`{id}` is not an id")).hint("use letters, digits, `_` and `-`"))
    }
}

/// One entry of a log: from a heading `## 2026-12-01 — title` to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The day in the heading.
    pub date: Day,
    /// The rest of the heading; may be empty.
    pub title: String,
    /// Line of the heading, from 1.
    pub line: usize,
    /// Bytes of the Markdown below the heading, in the file.
    pub body: Range<usize>,
}

/// A log: its entries in the order of the file.
#[derive(Debug, Clone)]
pub struct Log {
    /// The entries.
    pub entries: Vec<LogEntry>,
    /// The file.
    pub document: Document,
}

impl Log {
    /// Reads `site/experiments/<slug>/log.md`; `None` if there is none.
    pub fn read(root: &Path, slug: &str) -> Result<Option<Log>> {
        let path = format!("site/experiments/{slug}/log.md");
        if !root.join(&path).exists() {
            return Ok(None);
        }
        Log::parse(Document::read(root, &path, Front::Optional)?).map(Some)
    }

    /// A log from its file. Every heading of the second level must carry a date.
    pub fn parse(document: Document) -> Result<Log> {
        let prose = links::scan(document.body()).prose;
        let mut entries: Vec<LogEntry> = Vec::new();
        for line in super::code::lines(&prose) {
            let start = document.body.start + line.start;
            let Some(heading) = second_heading(&prose[line.clone()]) else { continue };
            let (date, title) = heading.split_once(char::is_whitespace).unwrap_or((heading, ""));
            let date: Day = date.parse().map_err(|e: Error| {
                e.at(document.place(start))
                    .hint("head an entry with a day and a title: `## 2026-12-01 — first run`")
            })?;
            let title = title.trim_start_matches(['—', '–', '-', ':', ' ']).trim().to_string();
            if let Some(last) = entries.last_mut() {
                last.body.end = start;
            }
            let body = document.body.start + line.end..document.source.len();
            entries.push(LogEntry { date, title, line: document.line(start), body });
        }
        Ok(Log { entries, document })
    }
}

/// The text of a heading of the second level: up to three blanks, `##`, a blank or tab.
fn second_heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(' ');
    let rest = text.strip_prefix("##").filter(|_| line.len() - text.len() < 4)?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then(|| rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(front: &str) -> Result<Report> {
        let text = format!("+++\n{front}\n+++\n# Summary\n");
        Report::parse(Document::split("site/experiments/demo/report.md", text, Front::Required)?, "demo")
    }

    const SMALL: &str =
        "title = \"T\"\nlifecycle = \"finished\"\nverdict = \"design-negative\"\nstarted = 2026-12-01\n";

    #[test]
    fn a_report_is_read() {
        let r = report(&format!(
            "{SMALL}plain = {{ idea = \"a\", question = \"b\", found = \"c\", matters = \"d\" }}\n\
             [[cards]]\nlabel = \"Reward\"\nvalue = \"[](derive:demo.delta)\"\n\
             [[figures]]\nid = \"f\"\nkind = \"forest\"\ntitle = \"F\"\ntakeaway = \"t\"\nrows = [\"by_family\"]\n\
             [derivations.delta]\ndata = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\n\
             [[corrections]]\ndate = 2026-12-02\ntext = \"withdrawn\"\n"
        ))
        .unwrap();
        assert_eq!(r.front.verdict, Some(Verdict::DesignNegative));
        assert_eq!(r.front.figures[0].kind, FigureKind::Forest);
        assert_eq!(r.front.derivations.len(), 1);
        assert_eq!(r.document.links()[0].field.as_deref(), Some("cards[0].value"));
        assert!(serde_json::to_string(&r.front).unwrap().contains("\"started\":\"2026-12-01\""));
    }

    #[test]
    fn bad_reports_are_refused_with_their_line() {
        let fails = |front: &str, wanted: &[&str]| {
            let e = report(front).unwrap_err().to_string();
            wanted.iter().for_each(|w| assert!(e.contains(w), "{e}"));
        };
        fails("title = \"T\"\nlifecycel = \"finished\"", &["report.md:3", "did you mean `lifecycle`?"]);
        fails("title = \"T\"\nlifecycle = \"finishd\"", &["report.md:3", "did you mean `finished`?"]);
        fails("lifecycle = \"finished\"", &["missing field `title`"]);
        fails(
            &format!(
                "{SMALL}[derivations.x]\ndata = \"episodes\"\nestimator = \"count\"\nexperiment = \"other\""
            ),
            &["report.md:6", "another experiment"],
        );
        fails(
            &format!("{SMALL}[derivations.\"a b\"]\ndata = \"episodes\"\nestimator = \"count\""),
            &["not an id"],
        );
        let figure = "[[figures]]\nid = \"f\"\nkind = \"slope\"\ntitle = \"F\"\ntakeaway = \"t\"\n";
        fails(&format!("{SMALL}{figure}{figure}"), &["two figures"]);
        fails(&SMALL.replace("2026-12-01", "2026-02-30"), &["report.md:5"]);
    }

    fn log(text: &str) -> Result<Log> {
        Log::parse(Document::split("log.md", text.into(), Front::Optional)?)
    }

    #[test]
    fn log_entries_are_dated() {
        let text =
            "intro\n\n## 2026-12-01 — First run\nRan.\n```\n## not a heading\n```\n## 2026-12-02\nDone.\n";
        let log = log(text).unwrap();
        let seen: Vec<_> =
            log.entries.iter().map(|e| (e.date.to_string(), e.title.as_str(), e.line)).collect();
        assert_eq!(seen, [("2026-12-01".into(), "First run", 3), ("2026-12-02".into(), "", 8)]);
        assert_eq!(text[log.entries[1].body.clone()].trim(), "Done.");
        assert!(text[log.entries[0].body.clone()].contains("not a heading"));
    }

    #[test]
    fn headings_with_tabs_and_line_ends_of_other_editors_are_entries() {
        let log = log("\u{feff}##\t2026-12-01\tFirst run\r\nRan.\r\n   ## 2026-12-02 — x\r\n").unwrap();
        let seen: Vec<_> = log.entries.iter().map(|e| (e.title.as_str(), e.line)).collect();
        assert_eq!(seen, [("First run", 1), ("x", 3)]);
    }

    #[test]
    fn an_entry_without_a_date_is_refused() {
        let e = log("## 2026-13-01 — x\n").unwrap_err().to_string();
        assert!(e.contains("log.md:1") && e.contains("hint:"), "{e}");
        assert!(log("## First run\n").is_err());
    }
}
