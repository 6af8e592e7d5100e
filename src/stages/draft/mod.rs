//! First drafts of an experiment's texts: report, log and claim, with every number an empty
//! link that `fill` writes. A draft that nobody has edited follows the experiment; a text that
//! somebody has edited is never overwritten.

mod comparison;
mod documents;
mod ending;
mod rules;
mod wording;

pub use ending::{Change, Ending};

use super::{Experiment, list};
use crate::error::{Error, Result};
use crate::experiment::{Plan, ledger};
use crate::hash::write_atomic;
use crate::regular;
use crate::write_lock::WriteLock;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// File in the root of a demo's workspace: `quick` or `full`.
pub const DEMO_MARKER: &str = ".rederive-demo";
/// Letters of an experiment's name: it names folders and stands in addresses.
const LONGEST_NAME: usize = 80;
/// The plan that `new` starts from.
const PLAN: &str = include_str!("../../../templates/new/experiment.toml");

/// Starts an experiment: writes the plan under `data/<slug>` and the first texts. Refuses a name
/// that is taken or not made of `a-z`, `0-9` and `-`.
pub fn new_experiment(workspace: &Path, slug: &str, plan: &str) -> Result<Vec<PathBuf>> {
    let word = (1..=LONGEST_NAME).contains(&slug.len())
        && !slug.starts_with('-')
        && slug.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !word {
        return Err(Error::invalid(format!("`{slug}` is not a name for an experiment")).hint(format!(
            "use a-z, 0-9 and `-`, such as `commit-an-answer`; at most {LONGEST_NAME} of them"
        )));
    }
    let _lock = WriteLock::start(workspace)?;
    let path = crate::experiment::plan::plan_path(workspace, slug);
    let pages = workspace.join("site").join("experiments").join(slug);
    let whole = existing(&pages.join("report.md"))?.is_some() && existing(&pages.join("log.md"))?.is_some();
    if list(workspace)?.iter().any(|known| known == slug) && !whole {
        // An earlier call was ended between the plan and the texts.
        let experiment = Experiment::open(workspace, slug)?;
        return Ok(texts(&experiment, &Ending::of(&experiment)?)?.written);
    }
    if list(workspace)?.iter().any(|known| known == slug) {
        return Err(Error::invalid(format!("experiment `{slug}` exists already"))
            .at(workspace.join("data").join(slug).display())
            .hint("choose another name"));
    }
    Plan::parse(plan, &path)?;
    write_atomic(&path, plan.as_bytes())?;
    let experiment = Experiment::open(workspace, slug)?;
    let mut written = vec![path];
    written.extend(texts(&experiment, &Ending::Planned)?.written);
    Ok(written)
}

/// The plan that `new` starts from, with seeds that no plan and no run of the workspace has taken.
pub fn fresh_plan(workspace: &Path) -> Result<String> {
    let mut taken: BTreeSet<u64> = ledger::read(workspace)?.iter().map(|spent| spent.seed).collect();
    let known = if workspace.is_dir() { list(workspace)? } else { Vec::new() };
    for slug in known {
        // A plan that cannot be read is somebody's to mend, not a reason to start no other.
        if let Ok(other) = Experiment::open(workspace, &slug) {
            taken.extend(other.plan.event_seeds().into_iter().map(|(_, seed)| seed));
        }
    }
    let drafted = Plan::parse(PLAN, Path::new("experiment.toml"))?;
    let seeds: BTreeSet<u64> = drafted.event_seeds().into_iter().map(|(_, seed)| seed).collect();
    let step = (0u64..).step_by(10).find(|step| seeds.iter().all(|seed| !taken.contains(&(seed + step))));
    let step = step.expect("finitely many seeds are taken");
    // From the largest down, so that no new number is taken for an old one.
    let renumber = |text: String, seed: &u64| text.replace(&seed.to_string(), &(seed + step).to_string());
    Ok(seeds.iter().rev().fold(PLAN.to_owned(), renumber))
}

/// What became of an experiment's texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Texts {
    /// Files that were written.
    pub written: Vec<PathBuf>,
    /// A report that somebody has edited and whose `lifecycle` is behind, with what it is to say.
    pub behind: Option<(PathBuf, &'static str)>,
}

/// Writes the texts that do not exist yet, and those that are still what an earlier call wrote and
/// speak of an earlier state.
pub fn texts(experiment: &Experiment, ending: &Ending) -> Result<Texts> {
    let workspace = &experiment.workspace;
    let today = crate::clock::today();
    let pages = workspace.join("site").join("experiments").join(&experiment.slug);
    let mut written = Vec::new();
    let mut put = |path: PathBuf, text: Option<String>| -> Result<()> {
        if let Some(text) = text {
            write_atomic(&path, text.as_bytes())?;
            written.push(path);
        }
        Ok(())
    };
    let site = workspace.join("site").join("site.toml");
    let text = existing(&site)?.is_none().then(|| SITE.to_string());
    put(site, text)?;
    let report = pages.join("report.md");
    let old = existing(&report)?;
    let text = match &old {
        None => Some(seal(&documents::report(experiment, ending, &today, &today))),
        Some(old) => followed(experiment, ending, old, &today),
    };
    let behind = old.filter(|old| text.is_none() && unsealed(old).is_none() && is_open(old));
    let behind = behind.filter(|old| !old.contains(&lifecycle_line(ending)));
    let behind = behind.map(|_| (report.clone(), ending.lifecycle()));
    put(report, text)?;
    let log = pages.join("log.md");
    let text = match (existing(&log)?, wording::log_ended(&experiment.plan, ending, &today)) {
        (None, Some(ended)) => Some(ended),
        (None, None) => Some(wording::log_planned(&today)),
        (Some(old), Some(ended)) if unedited_log(&old) => Some(format!("{old}\n{ended}")),
        _ => None,
    };
    put(log, text)?;
    if let Ending::Decided { outcome, change } = ending
        && !claimed(experiment)?
    {
        let id = next_claim(workspace)?;
        let name = format!("{id}-{}.md", experiment.slug);
        let text = documents::claim(experiment, &id, *outcome, *change);
        put(workspace.join("claims").join(name), Some(text))?;
    }
    Ok(Texts { written, behind })
}

fn lifecycle_line(ending: &Ending) -> String {
    format!("lifecycle = \"{}\"", ending.lifecycle())
}

/// Whether a report says that its experiment has not ended.
fn is_open(report: &str) -> bool {
    let open = [Ending::Planned, Ending::Underway].map(|open| lifecycle_line(&open));
    report.lines().any(|line| open.iter().any(|open| open == line))
}

fn existing(path: &Path) -> Result<Option<String>> {
    match regular::text(path) {
        Err(Error::Io(e)) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The draft for `ending` in place of `old`, where that is a draft of an earlier state.
fn followed(experiment: &Experiment, ending: &Ending, old: &str, today: &str) -> Option<String> {
    let drafted = unsealed(old)?;
    let open =
        [Ending::Planned, Ending::Underway].map(|open| format!("lifecycle = \"{}\"", open.lifecycle()));
    // What is finished speaks of an earlier state only where rows were judged again.
    let rescored = experiment.root.join("receipts").join("rescore-1.json").is_file();
    if !rescored && !drafted.lines().any(|line| open.iter().any(|open| open == line)) {
        return None;
    }
    let day = |key: &str| drafted.lines().find_map(|line| line.strip_prefix(key)).unwrap_or(today);
    let now = documents::report(experiment, ending, day("started = "), day("ended = "));
    (without_numbers(&now) != without_numbers(&drafted)).then(|| seal(&now))
}

/// The report with a hash of itself in its front matter: as long as it holds, nobody has edited the text.
fn seal(report: &str) -> String {
    report.replacen("+++\n", &format!("+++\n{SEAL}\"{}\"\n", digest(report)), 1)
}

/// The report without its seal, where the seal holds.
fn unsealed(report: &str) -> Option<String> {
    let (front, rest) = report.strip_prefix("+++\n")?.split_once("\n+++\n")?;
    let line = front.lines().find(|line| line.starts_with(SEAL))?;
    let rest = format!("+++\n{}\n+++\n{rest}", front.replacen(&format!("{line}\n"), "", 1));
    (line == format!("{SEAL}\"{}\"", digest(&rest))).then_some(rest)
}

const SEAL: &str = "draft = ";

/// What a person would have to change: everything but the numbers that `fill` writes.
fn digest(report: &str) -> String {
    crate::hash::sha256_hex(without_numbers(report).as_bytes())[..16].to_string()
}

/// A log that holds the entry of its first day alone.
fn unedited_log(log: &str) -> bool {
    let date = log.strip_prefix("## ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    log == wording::log_planned(date)
}

/// The text with nothing printed in its links to derivations.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split("](derive:").peekable();
    while let Some(part) = parts.next() {
        match part.rfind('[').filter(|_| parts.peek().is_some()) {
            Some(open) => out.push_str(&format!("{}[](derive:", &part[..open])),
            None => out.push_str(part),
        }
    }
    out
}

const SITE: &str = "title = \"Research log\"\ndescription = \"Experiments whose every number is recomputed from raw episodes.\"\n";

fn claim_files(workspace: &Path) -> Result<Vec<PathBuf>> {
    let folder = workspace.join("claims");
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs_err::read_dir(&folder)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

fn next_claim(workspace: &Path) -> Result<String> {
    let number =
        |p: &PathBuf| p.file_name()?.to_str()?.strip_prefix('C')?.split('-').next()?.parse::<u32>().ok();
    let files = claim_files(workspace)?;
    let Some((last, path)) = files.iter().filter_map(|path| Some((number(path)?, path))).max() else {
        return Ok("C0001".into());
    };
    let next = last.checked_add(1).ok_or_else(|| {
        Error::invalid(format!("no number is left for a new claim after C{last}"))
            .at(path.display())
            .hint("give that claim a smaller number, in its file's name and in its `id`")
    })?;
    Ok(format!("C{next:04}"))
}

fn claimed(experiment: &Experiment) -> Result<bool> {
    let name = format!("{}.md", experiment.slug);
    let of = |path: &PathBuf| path.file_name()?.to_str()?.split_once('-').map(|(_, rest)| rest.to_string());
    Ok(claim_files(&experiment.workspace)?.iter().any(|path| of(path).as_ref() == Some(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::decision::Outcome;

    #[test]
    fn a_new_experiment_is_drafted_once() {
        let dir = tempfile::tempdir().unwrap();
        let written = new_experiment(dir.path(), "my-try", PLAN).unwrap();
        assert!(written.iter().all(|p| p.exists()) && written.len() == 4);
        assert!(
            new_experiment(dir.path(), "my-try", PLAN).unwrap_err().to_string().contains("exists already")
        );
        for bad in ["My Try", "", "-a", &"a".repeat(81)] {
            assert!(new_experiment(dir.path(), bad, PLAN).is_err(), "{bad}");
        }
    }

    const POSITIVE: Ending = Ending::Decided { outcome: Outcome::Positive, change: Change::Interval };

    fn drafted() -> (tempfile::TempDir, Experiment, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", PLAN).unwrap();
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        let pages = dir.path().join("site/experiments/a");
        (dir, experiment, pages)
    }

    /// Two arms that were there before, on a task family that nothing is trained on.
    const COMPARED: &str = r#"
title = "Does the adapter help?"
[model]
source = "smollm2-135m-instruct"
[tasks]
environment = "gym"
held_out = ["caravan"]
levels = [1]
per_family = 12
[seeds]
evaluate = [61001]
[[arms]]
name = "plain"
[[arms]]
name = "tuned"
adapter = "adapters/from-elsewhere"
[decision]
rule = "three-way"
metric = { estimator = "paired_delta", of = "reward", weight = "task" }
minimum_delta = 0.03
"#;

    #[test]
    fn a_comparison_is_not_said_to_have_trained_anything() {
        let endings = [
            Ending::Planned,
            Ending::Underway,
            Ending::Unchanged,
            Ending::NoHeadroom,
            Ending::Killed,
            POSITIVE,
            Ending::Decided { outcome: Outcome::Negative, change: Change::Interval },
            Ending::Decided { outcome: Outcome::Inconclusive, change: Change::Few },
        ];
        for ending in endings {
            let dir = tempfile::tempdir().unwrap();
            new_experiment(dir.path(), "b", COMPARED).unwrap();
            let experiment = Experiment::open(dir.path(), "b").unwrap();
            texts(&experiment, &ending).unwrap();
            let mut all = documents::report(&experiment, &ending, "2026-01-02", "2026-01-02");
            all.push_str(&fs_err::read_to_string(dir.path().join("site/experiments/b/log.md")).unwrap());
            if let Ending::Decided { outcome, change } = &ending {
                all.push_str(&documents::claim(&experiment, "C0001", *outcome, *change));
            }
            for word in
                ["harvest", "Harvest", "trained", "Training", "self-training", "unseen", "recipe", "training"]
            {
                assert!(!all.contains(word), "{ending:?} says `{word}`:\n{all}");
            }
            assert!(all.contains("rederive run b") && all.contains("tuned"), "{ending:?}");
            // Every number that the texts ask for can be derived from what such an experiment has.
            let book =
                crate::claims::Book::build(dir.path(), &crate::claims::Texts::load(dir.path()).unwrap())
                    .unwrap();
            assert_eq!(book.refused().count(), 0);
            for part in all.split("](derive:").skip(1) {
                let reference = part.split(')').next().unwrap();
                let reference = crate::claims::derivation::Reference::parse(reference).unwrap();
                if matches!(ending, Ending::Planned | Ending::Underway | Ending::Decided { .. }) {
                    book.resolve(&reference).unwrap();
                }
            }
        }
    }

    #[test]
    fn an_edited_text_is_never_overwritten() {
        let (dir, experiment, pages) = drafted();
        let (report, log) = (pages.join("report.md"), pages.join("log.md"));
        fs_err::write(&log, "## 2026-01-01 — mine\n").unwrap();
        let mine = fs_err::read_to_string(&report).unwrap().replace("## Question", "## My question");
        fs_err::write(&report, &mine).unwrap();
        let written = texts(&experiment, &POSITIVE).unwrap().written;
        assert_eq!(written, [dir.path().join("claims/C0001-a.md")]);
        assert_eq!(fs_err::read_to_string(&report).unwrap(), mine);
        assert_eq!(texts(&experiment, &POSITIVE).unwrap().behind, Some((report.clone(), "finished")));
        fs_err::write(&report, mine.replace("\"planned\"", "\"finished\"")).unwrap();
        assert_eq!(texts(&experiment, &POSITIVE).unwrap().behind, None);
        assert!(texts(&experiment, &POSITIVE).unwrap().written.is_empty());
    }

    #[test]
    fn a_draft_that_nobody_edited_follows_the_experiment() {
        let (_dir, experiment, pages) = drafted();
        let report = pages.join("report.md");
        let read = || fs_err::read_to_string(&report).unwrap();
        let planned = documents::report(&experiment, &Ending::Planned, "2026-01-02", "2026-01-02");
        fs_err::write(&report, seal(&planned)).unwrap();
        assert!(texts(&experiment, &Ending::Planned).unwrap().written.is_empty());
        assert_eq!(texts(&experiment, &Ending::Underway).unwrap().written, std::slice::from_ref(&report));
        assert!(read().contains("lifecycle = \"in-progress\"") && read().contains("started = 2026-01-02\n"));
        // What `fill` writes is no edit.
        let filled = read().replace("[](derive:a.kept)", "[12](derive:a.kept)");
        fs_err::write(&report, filled).unwrap();
        let written = texts(&experiment, &POSITIVE).unwrap().written;
        assert_eq!(written.len(), 3, "{written:?}");
        assert!(read().contains("verdict = \"positive\"") && read().contains("[](derive:a.kept)"));
        let log = fs_err::read_to_string(pages.join("log.md")).unwrap();
        assert_eq!(log.matches("\n## ").count() + 1, 2, "{log}");
        assert!(texts(&experiment, &POSITIVE).unwrap().written.is_empty());
        assert!(texts(&experiment, &Ending::Underway).unwrap().written.is_empty(), "never backwards");
    }

    /// The draft prints the statistic that the plan decides by, of the plan's arms.
    #[test]
    fn derivations_are_those_of_the_plan() {
        let plan = PLAN
            .replace("name = \"treatment\"", "name = \"lora\"")
            .replace("of = \"reward\", weight = \"task\"", "of = \"solved\", weight = \"family\"");
        assert_ne!(plan, PLAN);
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", &plan).unwrap();
        let text = fs_err::read_to_string(dir.path().join("site/experiments/a/report.md")).unwrap();
        let front: toml::Table =
            toml::from_str(text.trim_start_matches("+++\n").split("\n+++\n").next().unwrap()).unwrap();
        let delta = &front["derivations"]["delta"];
        assert_eq!(delta["of"].as_str(), Some("solved"));
        assert_eq!(delta["weight"].as_str(), Some("family"));
        assert_eq!(delta["arms"].as_array().unwrap()[1].as_str(), Some("lora"));
        assert!(!text.contains("\"treatment\"]") && text.contains("each family weighing the same"));
    }

    #[test]
    fn an_interrupted_new_is_finished_by_the_next_one() {
        let (dir, _, pages) = drafted();
        fs_err::remove_file(pages.join("report.md")).unwrap();
        fs_err::remove_file(pages.join("log.md")).unwrap();
        assert_eq!(new_experiment(dir.path(), "a", PLAN).unwrap().len(), 2);
        assert!(new_experiment(dir.path(), "a", PLAN).is_err());
    }

    #[test]
    fn a_claim_belongs_to_the_experiment_of_its_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        for slug in ["my-try", "try"] {
            new_experiment(dir.path(), slug, PLAN).unwrap();
            let experiment = Experiment::open(dir.path(), slug).unwrap();
            assert!(!claimed(&experiment).unwrap(), "{slug}");
            texts(&experiment, &POSITIVE).unwrap();
            assert!(claimed(&experiment).unwrap(), "{slug}");
        }
    }

    #[test]
    fn the_next_claim_follows_the_last_and_the_last_number_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str| write_atomic(&dir.path().join("claims").join(name), b"").unwrap();
        assert_eq!(next_claim(dir.path()).unwrap(), "C0001");
        put("C0007-a.md");
        put("notes.md");
        assert_eq!(next_claim(dir.path()).unwrap(), "C0008");
        put("C4294967295-x.md");
        let error = next_claim(dir.path()).unwrap_err().to_string();
        assert!(error.contains("C4294967295-x.md") && error.contains("hint: give that claim"), "{error}");
    }

    #[test]
    fn what_is_no_text_is_named_and_what_is_not_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(existing(&dir.path().join("none.md")).unwrap(), None);
        let error = existing(dir.path()).unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
        #[cfg(unix)]
        assert!(existing(Path::new("/dev/zero")).unwrap_err().to_string().contains("/dev/zero"));
    }

    #[test]
    fn every_ending_drafts_front_matter_that_parses() {
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", PLAN).unwrap();
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        let mut endings = vec![
            Ending::Planned,
            Ending::Underway,
            Ending::Starved("59 rows were kept".into()),
            Ending::Unchanged,
            Ending::NoHeadroom,
            Ending::Killed,
        ];
        for outcome in [Outcome::Positive, Outcome::Negative, Outcome::Inconclusive] {
            for change in [Change::Undefined, Change::Nothing, Change::Point, Change::Few, Change::Interval] {
                endings.push(Ending::Decided { outcome, change });
            }
        }
        for ending in endings {
            let text = documents::report(&experiment, &ending, "2026-01-01", "2026-01-02");
            let front = text.trim_start_matches("+++\n").split("\n+++\n").next().unwrap();
            let value: toml::Table = toml::from_str(front).unwrap_or_else(|e| panic!("{ending:?}: {e}"));
            let known = value["derivations"].as_table().unwrap();
            for used in text.split("(derive:a.").skip(1) {
                let id = used.split([')', '.', '/']).next().unwrap();
                assert!(known.contains_key(id), "{ending:?} uses `{id}`");
            }
            // What has no value is not asked for.
            if let Ending::Decided { change, .. } = &ending {
                let interval = text.contains("delta.low)") || text.contains("delta.mde)");
                assert_eq!(interval, matches!(change, Change::Few | Change::Interval), "{ending:?}");
                assert!(*change != Change::Undefined || !text.contains("changed by [](derive:a.delta)"));
            }
        }
    }
}
