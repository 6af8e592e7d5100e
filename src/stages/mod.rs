//! The stages of an experiment, in order: harvest, train, merge, evaluate, decide. Each takes
//! the receipts of the one before and leaves its own; a stage that is finished does nothing,
//! one that was interrupted continues. This is where plan, engine, environment and training meet.

#[cfg(feature = "engine")]
pub mod calibrate;
pub mod decide;
pub mod draft;
#[cfg(feature = "engine")]
mod earlier;
#[cfg(feature = "engine")]
pub mod evaluate;
#[cfg(feature = "engine")]
mod examples;
#[cfg(feature = "engine")]
mod gates;
#[cfg(feature = "engine")]
pub mod harvest;
pub mod headroom;
#[cfg(feature = "engine")]
pub mod lab;
mod looks;
#[cfg(feature = "engine")]
pub mod merge;
mod observer;
mod receipts;
pub(crate) mod select;
#[cfg(feature = "engine")]
mod shapes;
pub mod status;
#[cfg(all(test, feature = "engine"))]
pub(crate) mod testing;
#[cfg(feature = "engine")]
pub mod train;

pub use looks::looks;
pub use observer::{Context, Observer, Silent};
pub use receipts::{
    Core, DecisionReceipt, FamilyYield, HarvestReceipt, HeadroomReceipt, KillReceipt, MergeReceipt,
    TrainReceipt,
};

use crate::environment::Environment;
use crate::error::{Error, Result, nearest};
use crate::experiment::Plan;
use crate::experiment::plan::plan_path;
use std::path::{Path, PathBuf};

/// An experiment of a workspace, with its plan loaded and validated.
pub struct Experiment {
    /// The folder with `data/`, `claims/` and `site/`.
    pub workspace: PathBuf,
    /// Its name: the folder under `data/`.
    pub slug: String,
    /// `data/<slug>`.
    pub root: PathBuf,
    /// Its plan.
    pub plan: Plan,
    /// Where its tasks come from.
    pub environment: Box<dyn Environment>,
}

impl Experiment {
    /// Opens `data/<slug>`; an unknown name is refused with the nearest known one.
    pub fn open(workspace: &Path, slug: &str) -> Result<Experiment> {
        let path = plan_path(workspace, slug);
        if !path.exists() {
            let known = list(workspace)?;
            let hint = match nearest(slug, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => "`rederive new <name>` drafts an experiment".to_string(),
                None => format!("experiments here: {}", known.join(", ")),
            };
            return Err(Error::invalid(format!("there is no experiment `{slug}`"))
                .at(path.display())
                .hint(hint));
        }
        let plan = Plan::load(&path)?;
        let environment = plan.environment(&path)?;
        Ok(Experiment {
            workspace: workspace.to_path_buf(),
            slug: slug.to_string(),
            root: workspace.join("data").join(slug),
            plan,
            environment,
        })
    }
}

/// Names of all experiments of a workspace, sorted.
pub fn list(workspace: &Path) -> Result<Vec<String>> {
    if !workspace.is_dir() {
        return Err(Error::invalid("there is no such folder")
            .at(workspace.display())
            .hint("name the workspace with `--workspace DIR`"));
    }
    let mut names = crate::workspace::data_folders(workspace)?;
    names.retain(|name| workspace.join("data").join(name).join("experiment.toml").exists());
    Ok(names)
}
