//! For tests of the stages: an experiment in a temporary workspace whose units a scripted engine
//! plays, so that gates and decisions see rows of the real form without a model.

use super::lab::{self, Lab, Unit};
use super::{Context, DecisionReceipt, Experiment, Silent, evaluate};
use crate::engine::Request;
use crate::engine::scripted::Scripted;
use crate::environment::{Environment, gym::Gym};
use crate::error::Result;
use crate::experiment::plan::plan_path;
use crate::experiment::{Purpose, Stage, lock, receipts};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

static STOP: AtomicBool = AtomicBool::new(false);

/// Two arms on one family of a single turn and one of several; no model lies behind it.
const PLAN: &str = r#"
title = "A bench"
[model]
source = "no-such-model"
[harness]
evaluate = { answer_tokens = 40, slots = 4 }
[tasks]
environment = "gym"
train = ["caravan"]
held_out = ["kilnrite"]
levels = [1]
per_family = 4
[seeds]
calibrate = [31001]
evaluate = [52004]
[[arms]]
name = "base"
[[arms]]
name = "other"
"#;

/// The decision that most tests have.
pub const THREE_WAY: &str = "[decision]\nrule = \"three-way\"\nmetric = { estimator = \"paired_delta\", of = \"reward\" }\nminimum_delta = 0.03\n";

/// An experiment that a test plays.
pub struct Bench {
    _folder: tempfile::TempDir,
    /// The experiment.
    pub experiment: Experiment,
}

/// Nobody watches, nothing is accepted.
pub fn context() -> Context<'static> {
    Context { observer: &Silent, stop: &STOP, accept_engine: false }
}

impl Bench {
    /// With these lines after the plan's.
    pub fn new(lines: &str) -> Bench {
        Bench::of_plan(&format!("{PLAN}{lines}"))
    }

    /// With a plan of the test's own, whose evaluation is locked.
    pub fn of_plan(plan: &str) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let path = plan_path(folder.path(), "bench");
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, plan).unwrap();
        let experiment = Experiment::open(folder.path(), "bench").unwrap();
        // With the lock there, no stage asks for a model before it has something to run.
        lock::lock(&experiment.root, &experiment.plan, Stage::Evaluate).unwrap();
        Bench { _folder: folder, experiment }
    }

    /// The hash of the locked evaluation.
    pub fn plan_sha256(&self) -> String {
        lock::check(&self.experiment.root, &self.experiment.plan, Stage::Evaluate).unwrap()
    }

    /// Plays one unit: `answer` is what is said.
    pub fn play(&self, arm: &str, purpose: Purpose, seed: u64, answer: fn(&Request, &str) -> String) {
        let plan = &self.experiment.plan;
        let unit = Unit {
            arm,
            purpose,
            seed,
            families: plan.families().cloned().collect(),
            per_family: plan.tasks.per_family,
            harness: &plan.harness.evaluate,
            plan_sha256: self.plan_sha256(),
            adapter_sha256: None,
            train_seed: None,
            adapter: None,
        };
        let mut engine = Scripted::new("bench", 4, answer);
        lab::run(&self.experiment, &mut engine, &unit, &context()).unwrap();
    }

    /// Plays the base arm's calibration.
    pub fn calibrate(&self, answer: fn(&Request, &str) -> String) {
        self.play("base", Purpose::Calibrate, 31001, answer);
    }

    /// The evaluation stage, with no model to be had.
    pub fn evaluate(&self) -> Result<DecisionReceipt> {
        evaluate::evaluate(&self.experiment, &mut Lab::default(), &context())
    }

    /// A file of the experiment.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.experiment.root.join(relative)
    }

    /// What a receipt says.
    pub fn receipt(&self, name: &str) -> Value {
        receipts::read(&self.experiment.root, name).unwrap().unwrap()
    }

    /// Signs a receipt anew, changed.
    pub fn resign(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut receipt = self.receipt(name);
        change(&mut receipt);
        receipts::write(&self.experiment.root, name, &receipt).unwrap();
    }

    /// Changes a receipt's text and leaves its hash as it was.
    pub fn edit(&self, name: &str, from: &str, to: &str) {
        let path = receipts::path(&self.experiment.root, name);
        let text = fs_err::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs_err::write(path, text.replace(from, to)).unwrap();
    }
}

/// Refused with this exit code, naming this receipt, and these words.
pub fn refused<T>(result: Result<T>, code: u8, receipt: &str, words: &str) {
    let Err(error) = result else { panic!("`{words}` was not refused") };
    let text = error.to_string();
    assert!(text.contains(words) && text.contains(&format!("{receipt}.json")), "{words}: {text}");
    assert_eq!(error.exit_code(), code, "{text}");
}

/// Solves the tasks of one turn, and says nothing of use to the others.
pub fn half_right(request: &Request, context: &str) -> String {
    let id = &request.stream.task_id;
    if !id.starts_with("caravan") {
        return babble(request, context);
    }
    let task = Gym.by_id(id).unwrap();
    Gym.begin(&task).unwrap().oracle()
}

/// Says nothing of use: one-turn tasks run into their limit, tasks of several turns see all of them.
pub fn babble(request: &Request, _context: &str) -> String {
    if request.stream.task_id.starts_with("caravan") { "x".repeat(60) } else { "x".repeat(9) }
}
