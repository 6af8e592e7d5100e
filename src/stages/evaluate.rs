//! Evaluation: the base arm on calibration seeds, the plan's gates, null seeds, then all arms on
//! the same fresh seeds. Every unit resumes; a finished one costs nothing.

use super::lab::{self, Lab, Unit};
use super::receipts::{MergeReceipt, TrainReceipt};
use super::{Context, DecisionReceipt, Experiment, decide, earlier, gates, merge};
use crate::engine::endpoint::Endpoint;
use crate::engine::local::Engine;
use crate::episode::UnitFiles;
use crate::error::{Error, Result};
use crate::experiment::{Arm, Deploy, Purpose, Stage, ledger, lock, receipts};
use crate::model::{Source, adapter};
use std::sync::Arc;

/// Runs what is missing and decides, or returns the decision when that is done.
pub fn evaluate(experiment: &Experiment, lab: &mut Lab, context: &Context) -> Result<DecisionReceipt> {
    let plan = &experiment.plan;
    for arm in plan.arms.iter().filter(|_| plan.runs_on(false)) {
        require_receipts(experiment, context, arm)?;
    }
    let plan_sha256 = lock::check(&experiment.root, plan, Stage::Evaluate)?;
    if let Some(receipt) = receipts::read::<DecisionReceipt>(&experiment.root, "decision")? {
        earlier::of_plan(&experiment.root, "decision", &receipt.plan_sha256, &plan_sha256)?;
        earlier::of_files(&experiment.root, "decision", &receipt.files)?;
        return Ok(receipt);
    }
    let spending = [
        (Purpose::Calibrate, &plan.seeds.calibrate),
        (Purpose::Null, &plan.seeds.null),
        (Purpose::Evaluate, &plan.seeds.evaluate),
    ];
    for (purpose, seeds) in spending {
        ledger::check(&experiment.workspace, &experiment.slug, purpose, seeds)?;
    }
    if lock::read(&experiment.root, Stage::Evaluate)?.is_none() {
        // What is locked cannot be mended, so the base arm must be able to run first.
        for served in [false, true].into_iter().filter(|served| plan.runs_on(*served)) {
            drop(player(experiment, lab, context, plan.base(), served)?);
        }
    }
    lock::lock(&experiment.root, plan, Stage::Evaluate)?;
    for (purpose, seeds) in spending {
        ledger::spend(&experiment.workspace, &experiment.slug, purpose, seeds)?;
    }
    arm_units(experiment, lab, context, plan.base(), &plan_sha256, Purpose::Calibrate)?;
    gates::check(experiment, &plan_sha256)?;
    arm_units(experiment, lab, context, plan.base(), &plan_sha256, Purpose::Null)?;
    for arm in &plan.arms {
        arm_units(experiment, lab, context, arm, &plan_sha256, Purpose::Evaluate)?;
    }
    decide::decide(experiment, &plan_sha256)
}

/// An arm with a trained adapter needs its receipts before any compute is spent.
fn require_receipts(experiment: &Experiment, context: &Context, arm: &Arm) -> Result<()> {
    if arm.adapter.as_deref() != Some("receipt:train") {
        if let Some(folder) =
            lab::adapter_folder(experiment, arm).filter(|f| !f.join(adapter::WEIGHTS).is_file())
        {
            return Err(Error::invalid(format!("the adapter of arm `{}` is not there", arm.name))
                .at(folder.join(adapter::WEIGHTS).display())
                .hint("name a folder in PEFT format, relative to the workspace"));
        }
        return Ok(());
    }
    let trained = earlier::train(experiment, context)?;
    earlier::merge(experiment, context, &trained).map(drop)
}

/// All units of one arm and purpose; the engine is made only when one of them is missing.
fn arm_units(
    experiment: &Experiment,
    lab: &mut Lab,
    context: &Context,
    arm: &Arm,
    plan_sha256: &str,
    purpose: Purpose,
) -> Result<()> {
    for served in [false, true] {
        let seeds = experiment.plan.seeds_on(purpose, served);
        let mut complete = true;
        for seed in &seeds {
            complete &= UnitFiles::new(&experiment.root, &arm.name, *seed)?.complete();
        }
        if !complete {
            let player = player(experiment, lab, context, arm, served)?;
            play(experiment, context, arm, plan_sha256, purpose, &seeds, player)?;
        }
    }
    Ok(())
}

/// Runs the units of one arm on one backend.
fn play(
    experiment: &Experiment,
    context: &Context,
    arm: &Arm,
    plan_sha256: &str,
    purpose: Purpose,
    seeds: &[u64],
    mut player: Player,
) -> Result<()> {
    let plan = &experiment.plan;
    for seed in seeds {
        let unit = Unit {
            arm: &arm.name,
            purpose,
            seed: *seed,
            families: plan.families().cloned().collect(),
            per_family: plan.tasks.per_family,
            harness: &plan.harness.evaluate,
            plan_sha256: plan_sha256.to_string(),
            adapter_sha256: player.adapter_sha256.clone(),
            train_seed: player.train_seed,
            adapter: player.adapter,
        };
        match &mut player.engine {
            Actor::Local(engine) => lab::run(experiment, engine.as_mut(), &unit, context)?,
            Actor::Served(endpoint) => {
                lab::same_server(experiment, endpoint, *seed)?;
                lab::run(experiment, endpoint.as_mut(), &unit, context)?
            }
        };
    }
    Ok(())
}

/// An arm ready to act.
struct Player {
    engine: Actor,
    adapter: Option<usize>,
    adapter_sha256: Option<String>,
    train_seed: Option<i64>,
}

/// Who answers.
enum Actor {
    Local(Box<Engine>),
    Served(Box<Endpoint>),
}

fn player(
    experiment: &Experiment,
    lab: &mut Lab,
    context: &Context,
    arm: &Arm,
    served: bool,
) -> Result<Player> {
    let harness = &experiment.plan.harness.evaluate;
    if let Some(section) = experiment.plan.model.endpoint.as_ref().filter(|_| served) {
        let endpoint = lab::endpoint(experiment, section, arm, harness, context)?;
        // Which weights a server runs it does not say; which training the arm stands for, the plan does.
        let train_seed = trained_seed(experiment, arm);
        let engine = Actor::Served(Box::new(endpoint));
        return Ok(Player { engine, adapter: None, adapter_sha256: None, train_seed });
    }
    let Some(folder) = lab::adapter_folder(experiment, arm) else {
        let model = lab.base(experiment, context)?;
        let (engine, _) = lab::engine(experiment, &model, harness, None)?;
        let engine = Actor::Local(Box::new(engine));
        return Ok(Player { engine, adapter: None, adapter_sha256: None, train_seed: None });
    };
    let adapter_sha256 = Some(crate::hash::sha256_file(&folder.join(adapter::WEIGHTS))?);
    let train_seed = trained_seed(experiment, arm);
    if arm.adapter.as_deref() == Some("receipt:train") {
        let trained: TrainReceipt = receipts::require(&experiment.root, "train", "rederive train")?;
        if adapter_sha256.as_deref() != Some(trained.adapter_sha256.as_str()) {
            return Err(Error::refused("the adapter is not the one that the train receipt signed")
                .at(folder.join(adapter::WEIGHTS).display())
                .hint("restore it, or remove the train receipt's experiment and start a new one"));
        }
    }
    match arm.deploy {
        Deploy::Live => {
            let model = lab.base(experiment, context)?;
            let lora = model.load_adapter(&folder)?;
            merge::probe_live(experiment, &model, &lora, &arm.name)?;
            let (engine, adapter) = lab::engine(experiment, &model, harness, Some(lora))?;
            let engine = Actor::Local(Box::new(engine));
            Ok(Player { engine, adapter, adapter_sha256, train_seed })
        }
        Deploy::Merged => {
            let folder = merge::folder(experiment)?;
            lab.release();
            let model =
                Arc::new(lab::load(&Source::parse(&folder.to_string_lossy())?, lab.processor(), context)?);
            let receipt: MergeReceipt = receipts::require(&experiment.root, "merge", "rederive merge")?;
            if model.origin.sha256 != receipt.merged_sha256 {
                return Err(Error::refused(
                    "the merged checkpoint is not the one that the merge receipt signed",
                )
                .at(folder.display())
                .hint("remove the folder and run `rederive merge` again"));
            }
            let (engine, _) = lab::engine(experiment, &model, harness, None)?;
            let engine = Actor::Local(Box::new(engine));
            Ok(Player { engine, adapter: None, adapter_sha256, train_seed })
        }
    }
}

/// The training seed that an arm's adapter has by the plan.
fn trained_seed(experiment: &Experiment, arm: &Arm) -> Option<i64> {
    let is_trained = arm.adapter.as_deref() == Some("receipt:train");
    experiment.plan.seeds.train.first().filter(|_| is_trained).map(|seed| *seed as i64)
}
