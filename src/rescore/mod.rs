//! Rewards a second time: every verifier of today on the transcripts that were kept. Where a row's own
//! verifier judges otherwise, something is wrong; where a repaired one does, the rows get a new version, the
//! old one stays, and every number and text that moves is named.

pub mod moved;
mod receipt;
mod render;
mod replay;
mod supersede;
mod tasks;
#[cfg(all(test, feature = "engine"))]
mod testing;
#[cfg(all(test, feature = "engine"))]
mod tests;
mod unit;
mod words;

pub use moved::{Moved, Place};
pub use receipt::{Change, Counts, Receipt, Verifiers};
pub use render::{survey as render_survey, written as render_written};
pub use replay::Judgement;
pub use supersede::{Done, Step, rescore, rescore_with};
pub use unit::{Difference, Tally};

use crate::audit::Finding;
use crate::episode::{EpisodeRow, UnitFiles, table};
use crate::error::{Error, Result};
use crate::stages::{Context, Experiment};
use rayon::prelude::*;
use replay::Unjudged;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use unit::Unit;

/// The arm of harvested samples.
const HARVEST: &str = "harvest";
/// A file that cannot be read.
const UNREADABLE: &str = "unreadable_file";
/// Differing rows of a file that become findings of their own.
const SHOWN: usize = 5;

/// The episodes of one family, harvested and evaluated ones apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Family {
    /// Its name.
    pub family: String,
    /// Whether these are harvested samples, which no new version replaces.
    pub harvest: bool,
    /// Whether every row was judged by the verifier of today.
    pub same_verifier: bool,
    /// Counts.
    #[serde(flatten)]
    pub tally: Tally,
}

/// An experiment whose transcripts were judged again.
#[derive(Debug, Clone, Serialize)]
pub struct Rescored {
    /// Its folder under `data/`.
    pub experiment: String,
    /// By family, evaluated ones first.
    pub families: Vec<Family>,
    /// Every episode that is judged otherwise, or has a transcript and cannot be judged.
    pub differences: Vec<Difference>,
    /// Why the words of transcripts were not compared with their token ids; null where they were.
    pub words_not_compared: Option<String>,
    /// What is wrong with the model that is here and should have read them, and with files of units that cannot be read.
    #[serde(skip)]
    broken: Vec<Finding>,
    /// Whether the plan's tasks, and so their verifiers, come from a file.
    #[serde(skip)]
    from_file: bool,
    #[serde(skip)]
    units: Vec<Unit>,
}

/// A folder under `data/` whose rows nothing could judge again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotOpened {
    /// Its name.
    pub experiment: String,
    /// Why.
    pub why: String,
}

/// All experiments of a workspace judged again.
#[derive(Debug, Clone, Serialize)]
pub struct Survey {
    /// Those with a plan and tasks.
    pub experiments: Vec<Rescored>,
    /// The others.
    pub not_opened: Vec<NotOpened>,
    /// What the numbers would be under today's verifiers.
    pub moved: moved::Movement,
}

impl Rescored {
    /// Files of the next rows version, by path relative to the experiment folder.
    fn replacements(&self) -> impl Iterator<Item = &unit::Replacement> {
        self.units.iter().flat_map(|unit| &unit.next)
    }

    /// Episodes that today's verifier judges otherwise than the very same one did in the run, and those whose
    /// transcript is not what was sampled.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.broken.clone();
        let mut of_file: BTreeMap<(&str, &'static str), Vec<&Difference>> = BTreeMap::new();
        for difference in &self.differences {
            if let Some(rule) = difference.breaks() {
                of_file.entry((&difference.file, rule)).or_default().push(difference);
            }
        }
        for unit in &self.units {
            let file = format!("data/{}/transcripts/{}/{}.jsonl.zst", self.experiment, unit.arm, unit.seed);
            findings.extend(unit.odd.iter().take(SHOWN).map(|(row, detail)| Finding {
                rule: "transcript_differs",
                file: file.clone(),
                row: *row,
                detail: detail.clone(),
            }));
        }
        for ((file, rule), differences) in of_file {
            let file = format!("data/{}/{file}", self.experiment);
            let mut add = |row, detail| findings.push(Finding { rule, file: file.clone(), row, detail });
            for difference in differences.iter().take(SHOWN) {
                add(Some(difference.row), difference.said());
            }
            if let Some(more) = differences.len().checked_sub(SHOWN + 1) {
                add(None, format!("{} more rows differ", more + 1));
            }
        }
        findings
    }

    /// The command that writes the next rows version.
    fn command(&self) -> String {
        let was = if self.from_file { " --was FILE" } else { "" };
        format!("rederive rescore {}{was}", self.experiment)
    }

    /// Families whose rewards are not those of today's verifier: repaired, or never there.
    fn outdated(&self) -> Vec<Finding> {
        let families = self.families.iter().filter(|f| !f.harvest && !f.same_verifier);
        families
            .filter(|family| family.tally.differing > 0)
            .map(|family| {
                let Family { family, tally, .. } = family;
                Finding {
                    rule: "verifier_outdated",
                    file: format!("data/{}", self.experiment),
                    row: None,
                    detail: format!(
                        "today's verifier of `{family}` judges {} of {} episodes otherwise than the one that their rows name: `{}` writes a new version of them",
                        tally.differing,
                        tally.rescored,
                        self.command()
                    ),
                }
            })
            .collect()
    }
}

impl Difference {
    /// The rule that it breaks; none where another verifier judged, or nothing is there to judge.
    fn breaks(&self) -> Option<&'static str> {
        match &self.unjudged {
            Some(Unjudged::OtherWords(_)) => Some("transcript_differs"),
            None | Some(Unjudged::OtherConversation(_) | Unjudged::NoTask(_)) => {
                self.same_verifier.then_some("rescore_differs")
            }
            Some(Unjudged::NoTranscript) => None,
        }
    }

    /// What differs, in words.
    fn said(&self) -> String {
        let Some(after) = &self.after else {
            let why = self.why.as_deref().unwrap_or("it cannot be judged");
            return match self.unjudged {
                Some(Unjudged::OtherWords(_)) => format!("task `{}`: {why}", self.task_id),
                _ => format!("task `{}`: under the same verifier, {why}", self.task_id),
            };
        };
        let flag = |flag: Option<bool>| flag.map_or("null".into(), |flag| flag.to_string());
        let real = |real: Option<f64>| real.map_or("null".into(), |real| real.to_string());
        let columns = [
            ("reward", real(self.before.reward), real(after.reward)),
            ("solved", flag(self.before.solved), flag(after.solved)),
            ("parse_ok", flag(self.before.parse_ok), flag(after.parse_ok)),
            ("engaged", flag(self.before.engaged), flag(after.engaged)),
        ];
        let differ: Vec<String> = columns
            .iter()
            .filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| format!("`{name}` is {before}, the same verifier gives {after}"))
            .collect();
        format!("task `{}`: {}", self.task_id, differ.join("; "))
    }
}

impl Survey {
    /// All findings, experiment by experiment.
    pub fn findings(&self) -> Vec<Finding> {
        let of = |rescored: &Rescored| [rescored.findings(), rescored.outdated()].concat();
        self.experiments.iter().flat_map(of).collect()
    }
}

/// Judges the episodes of every experiment of a workspace again, and says which numbers would move.
/// Writes nothing. Errors when a file cannot be read, and after the user asked to stop.
pub fn survey(workspace: &Path, context: &Context) -> Result<Survey> {
    let mut experiments = Vec::new();
    let mut not_opened = Vec::new();
    for slug in folders(workspace)? {
        match Experiment::open(workspace, &slug) {
            Ok(experiment) => experiments.push(experiment),
            Err(error) => {
                let why = error.to_string().lines().next().unwrap_or_default().to_string();
                not_opened.push(NotOpened { experiment: slug, why });
            }
        }
    }
    survey_of(workspace, &experiments, not_opened, context)
}

/// As [`survey`], of experiments that are open already.
pub fn survey_of(
    workspace: &Path,
    experiments: &[Experiment],
    not_opened: Vec<NotOpened>,
    context: &Context,
) -> Result<Survey> {
    let mut rescored = Vec::new();
    let mut over = BTreeMap::new();
    for experiment in experiments {
        let of = judge_again(experiment, context)?;
        over.extend(receipt::next_files(experiment, &of)?.into_iter().map(|file| {
            let path = format!("data/{}/{}", experiment.slug, file.path);
            (path, file.bytes)
        }));
        rescored.push(of);
    }
    // From files that cannot be read no number follows, on either side.
    let readable = rescored.iter().all(|of| of.broken.iter().all(|finding| finding.rule != UNREADABLE));
    let moved =
        if readable { moved::between(workspace, &BTreeMap::new(), &over)? } else { Default::default() };
    Ok(Survey { experiments: rescored, not_opened, moved })
}

/// Folders under `data/` that hold rows of attempts, sorted.
fn folders(workspace: &Path) -> Result<Vec<String>> {
    let mut names = crate::workspace::data_folders(workspace)?;
    let holds = |name: &str, rows: &str| workspace.join("data").join(name).join(rows).is_dir();
    names.retain(|name| holds(name, "episodes") || holds(name, "imported"));
    Ok(names)
}

/// Judges every finished episode of an experiment again, several units at a time.
fn judge_again(experiment: &Experiment, context: &Context) -> Result<Rescored> {
    let units = units(experiment)?;
    let environment = experiment.environment.as_ref();
    let verifiers: BTreeMap<String, String> = environment
        .families()
        .into_iter()
        .map(|family| Ok((family.to_string(), environment.verifier_sha256(family)?)))
        .collect::<Result<_>>()?;
    let data = format!("data/{}", experiment.slug);
    let mut broken: Vec<Finding> = Vec::new();
    let mut unreadable = |file: String, error: Error| {
        let detail = error.to_string().replace('\n', "; ");
        broken.push(Finding { rule: UNREADABLE, file, row: None, detail });
    };
    let base = match base_model(experiment, &units) {
        Ok(base) => base,
        Err((file, error)) => {
            unreadable(format!("{data}/{file}"), error);
            None
        }
    };
    let reader = words::reader(experiment, base.as_deref());
    let what = format!("rescore {}", experiment.slug);
    context.observer.begin(&what, Some(units.len() as u64), "files");
    let mut done: Vec<Unit> = Vec::new();
    for some in units.chunks(rayon::current_num_threads().max(1)) {
        context.check()?;
        let judge = |(arm, seed): &(String, u64)| {
            let files = UnitFiles::new(&experiment.root, arm, *seed)?;
            let harness = &experiment.plan.harness;
            let examples = if arm == HARVEST { harness.harvest.examples } else { harness.evaluate.examples };
            unit::rescore(environment, &verifiers, reader.as_ref().ok(), examples, &files, (arm, *seed))
        };
        let judged: Vec<Result<Unit>> = some.par_iter().map(judge).collect();
        for ((arm, seed), unit) in some.iter().zip(judged) {
            match unit {
                Ok(unit) => done.push(unit),
                Err(error) => unreadable(format!("{data}/episodes/{arm}/{seed}.parquet"), error),
            }
        }
        context.observer.advance(done.len() as u64, "");
    }
    let mut families: BTreeMap<(bool, String), Tally> = BTreeMap::new();
    for unit in &done {
        for (family, tally) in &unit.families {
            families.entry((unit.arm == HARVEST, family.clone())).or_default().add(tally);
        }
    }
    let families: Vec<Family> = families
        .into_iter()
        .map(|((harvest, family), tally)| Family {
            family,
            harvest,
            same_verifier: tally.same_verifier(),
            tally,
        })
        .collect();
    let differences: Vec<Difference> = done.iter().flat_map(|unit| unit.differences.clone()).collect();
    let episodes: usize = families.iter().map(|family| family.tally.episodes).sum();
    let differing: usize = families.iter().map(|family| family.tally.differing).sum();
    context.observer.end(&format!("{episodes} episodes, {differing} judged otherwise"));
    if let Err(words::NoReader { why, is_here: true }) = &reader {
        let file = format!("{data}/experiment.toml");
        broken.push(Finding {
            rule: "model_differs",
            file,
            row: None,
            detail: format!("the plan's model is here and cannot read its rows: {why}"),
        });
    }
    Ok(Rescored {
        experiment: experiment.slug.clone(),
        families,
        differences,
        words_not_compared: reader.err().map(|none| none.why),
        broken,
        from_file: experiment.plan.tasks.file_sha256.is_some(),
        units: done,
    })
}

/// The model that answered for the base arm where the engine gave token ids; an error with the file that has it.
fn base_model(experiment: &Experiment, units: &[(String, u64)]) -> Result<Option<String>, (String, Error)> {
    let base = &experiment.plan.base().name;
    for (arm, seed) in units.iter().filter(|(arm, _)| arm == base) {
        let path = format!("episodes/{arm}/{seed}.parquet");
        let rows: Vec<EpisodeRow> =
            table::read(&experiment.root.join(&path)).map_err(|error| (path, error))?;
        if let Some(row) = rows.iter().find(|row| row.tokens_sha256.is_some()) {
            return Ok(Some(row.model_sha256.clone()));
        }
    }
    Ok(None)
}

/// The units whose episodes are on disk, by arm and seed.
fn units(experiment: &Experiment) -> Result<Vec<(String, u64)>> {
    let mut units = Vec::new();
    let folder = experiment.root.join("episodes");
    if !folder.is_dir() {
        return Ok(units);
    }
    for arm in fs_err::read_dir(&folder)? {
        let arm = arm?;
        if !arm.file_type()?.is_dir() {
            continue;
        }
        for file in fs_err::read_dir(arm.path())? {
            let name = file?.file_name().to_string_lossy().into_owned();
            let seed = name.strip_suffix(".parquet").and_then(|seed| seed.parse().ok());
            if let Some(seed) = seed {
                units.push((arm.file_name().to_string_lossy().into_owned(), seed));
            }
        }
    }
    units.sort();
    Ok(units)
}
