//! `demo`: the whole line in one go, in a workspace of its own. Composes the stages and nothing
//! else; whatever is finished is left alone, so that it can be interrupted anywhere and repeated.

use crate::claims::number::{self, Style};
use crate::error::Result;
use crate::model::registry;
use crate::stages::draft::{self, Ending};
use crate::stages::lab::{Lab, fetch_model};
use crate::stages::{Context, Experiment, evaluate, harvest, merge, train};
use crate::stats::FEW_NONZERO;
use crate::stats::decision::Outcome;
use crate::write_lock::{self, WriteLock};
use crate::{Error, publish};
use std::path::{Path, PathBuf};

/// The demo's experiment.
const SLUG: &str = "commit-an-answer";

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The demo's workspace.
    pub folder: PathBuf,
    /// A tiny model made on the spot instead of the real one.
    pub quick: bool,
    /// Take the real model from this file instead of fetching it.
    pub from: Option<PathBuf>,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Done {
    /// One line.
    pub summary: String,
    /// The website's first page.
    pub index: PathBuf,
}

/// Runs what is missing and builds the website. `Ok` whatever the verdict.
pub fn demo(options: &Options, context: &Context) -> Result<Done> {
    let folder = &options.folder;
    let (plan, _lock) = prepare(folder, options.quick)?;
    if options.quick {
        crate::quick::make(folder, context)?;
    } else {
        fetch_model(registry::get(registry::DEFAULT)?, options.from.as_deref(), context)?;
    }
    if !crate::experiment::plan::plan_path(folder, SLUG).exists() {
        crate::hash::write_atomic(&crate::experiment::plan::plan_path(folder, SLUG), plan.as_bytes())?;
    }
    let experiment = Experiment::open(folder, SLUG)?;
    let ending = run(&experiment, context)?;
    draft::texts(&experiment, &ending)?;
    context.check()?;
    crate::claims::fill::fill(folder, crate::claims::fill::Options::default())?;
    let built = publish::build(folder, &folder.join("public"), context)?;
    Ok(Done { summary: summary(&experiment, &ending)?, index: built.index })
}

/// All stages, up to the verdict.
fn run(experiment: &Experiment, context: &Context) -> Result<Ending> {
    let mut lab = Lab::default();
    let harvested = harvest::harvest(experiment, &mut lab, context)?;
    if harvested.starved.is_some() {
        return Ending::of(experiment);
    }
    train::train(experiment, &mut lab, context)?;
    if !merge::merge(experiment, &mut lab, context)?.passed {
        return Ending::of(experiment);
    }
    match evaluate::evaluate(experiment, &mut lab, context) {
        // A gate that stops it is a verdict on the plan; its receipt says so, and so does the page.
        Err(Error::Refused(problem)) => match Ending::of(experiment)? {
            ending @ (Ending::NoHeadroom | Ending::Killed) => Ok(ending),
            _ => Err(Error::Refused(problem)),
        },
        Err(other) => Err(other),
        Ok(_) => Ending::of(experiment),
    }
}

/// The plan of this kind of demo, and the right to write; a workspace made by the other kind is refused.
fn prepare(folder: &Path, quick: bool) -> Result<(String, WriteLock)> {
    let kind = if quick { "quick" } else { "full" };
    let marker = folder.join(draft::DEMO_MARKER);
    let lock = match fs_err::read_to_string(&marker) {
        Ok(text) if text.trim() == kind => WriteLock::start(folder)?,
        Ok(text) => {
            return Err(Error::invalid(format!("the folder holds a {} demo", text.trim()))
                .at(folder.display())
                .hint("name another folder with `--dir`, or remove this one"));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if folder.is_dir() && occupied(folder)? {
                return Err(Error::invalid("the folder is not empty and holds no demo")
                    .at(folder.display())
                    .hint("name another folder with `--dir`"));
            }
            let lock = WriteLock::start(folder)?;
            crate::hash::write_atomic(&marker, format!("{kind}\n").as_bytes())?;
            lock
        }
        Err(e) => {
            return Err(Error::invalid(format!("no demo can be kept here: {e}"))
                .at(folder.display())
                .hint("name another folder with `--dir`"));
        }
    };
    Ok((if quick { QUICK_PLAN } else { FULL_PLAN }.to_string(), lock))
}

/// Whether a folder holds anything but what a demo left that was ended before it began.
fn occupied(folder: &Path) -> Result<bool> {
    for entry in fs_err::read_dir(folder)? {
        let name = entry?.file_name();
        if name != write_lock::FILE && !name.to_string_lossy().starts_with(".partial-") {
            return Ok(true);
        }
    }
    Ok(false)
}

const FULL_PLAN: &str = include_str!("../templates/demo/full.toml");
const QUICK_PLAN: &str = include_str!("../templates/demo/quick.toml");

fn summary(experiment: &Experiment, ending: &Ending) -> Result<String> {
    let receipt: Option<crate::stages::DecisionReceipt> =
        crate::experiment::receipts::read(&experiment.root, "decision")?;
    let words = ending.words();
    Ok(match receipt.map(|r| r.decision) {
        Some(d) => match (d.delta, d.low, d.high) {
            (Some(delta), Some(low), Some(high)) => {
                let text = |x: f64| number::format(x, &Style { plus: true, ..Style::plain(3) });
                let bar = experiment.plan.decision.bar();
                let why = match d.outcome {
                    Outcome::Positive => String::new(),
                    Outcome::Negative => {
                        format!(": the interval ends below the smallest gain that counts, {}", text(bar))
                    }
                    Outcome::Inconclusive if low <= 0.0 => {
                        ": the interval includes 0, so chance alone could give this".into()
                    }
                    Outcome::Inconclusive => ": a leg of the rule does not hold".into(),
                };
                let few = match d.moved < FEW_NONZERO {
                    true => format!("; only {} tasks moved, too few for an interval to be trusted", d.moved),
                    false => String::new(),
                };
                let (delta, low, high) = (text(delta), text(low), text(high));
                format!(
                    "verdict {words}: change {delta} [{low}, {high}] over {} paired tasks{why}{few}",
                    d.tasks
                )
            }
            _ => format!("verdict {words}: the change has no interval"),
        },
        None => match ending {
            Ending::Starved(why) => format!("verdict {words} ({why})"),
            _ => format!("verdict {words}"),
        },
    })
}
