//! For tests of rescoring: an experiment that ran to its end under a verifier that rejects an answer
//! because an end-of-turn marker was left behind it: 40 of 240 solved, and 94 once it is repaired.

use super::{Done, Survey, rescore, survey_of};
use crate::audit::{self, AuditReport};
use crate::engine::scripted::Scripted;
use crate::environment::gym::Gym;
use crate::environment::{Environment, Message, Outcome, Session, Task, Turn};
use crate::episode::{Row, chain, hashes, table};
use crate::error::Result;
use crate::experiment::{Purpose, Stage, ledger, lock, receipts};
use crate::philox::Philox;
use crate::stages::{Context, Experiment, Silent, decide, headroom, lab};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

pub const SLUG: &str = "marker";
pub const REPORT: &str = "site/experiments/marker/report.md";
pub const CLAIM: &str = "claims/C0001-asks.md";
pub const MARK: &str = "<|im_end|>";

/// The gym with the verifier as it was: a reply that ends with a marker cannot be read.
pub struct Unrepaired;

pub struct Strict(Box<dyn Session>);

impl Session for Strict {
    fn prompt(&self) -> String {
        self.0.prompt()
    }
    fn reply(&mut self, text: &str) -> Turn {
        self.0.reply(if text.ends_with(MARK) { "" } else { text })
    }
    fn outcome(&self) -> Outcome {
        self.0.outcome()
    }
    fn oracle(&self) -> String {
        self.0.oracle()
    }
    fn random(&self, rng: &mut Philox) -> String {
        self.0.random(rng)
    }
    fn horizon(&self) -> u32 {
        self.0.horizon()
    }
}

impl Environment for Unrepaired {
    fn name(&self) -> &str {
        "gym"
    }
    fn families(&self) -> Vec<&str> {
        Gym.families()
    }
    fn task(&self, family: &str, level: u8, seed: u64, index: u32) -> Result<Task> {
        Gym.task(family, level, seed, index)
    }
    fn by_id(&self, id: &str) -> Result<Task> {
        Gym.by_id(id)
    }
    fn longest(&self, family: &str, level: u8) -> Result<Vec<Task>> {
        Gym.longest(family, level)
    }
    fn begin(&self, task: &Task) -> Result<Box<dyn Session>> {
        Ok(Box::new(Strict(Gym.begin(task)?)))
    }
    fn examples(&self, family: &str, level: u8, count: usize) -> Result<Vec<Message>> {
        Gym.examples(family, level, count)
    }
    fn verifier_sha256(&self, family: &str) -> Result<String> {
        Ok(crate::hash::sha256_hex(format!("{family} before the repair").as_bytes()))
    }
    fn deterministic(&self) -> bool {
        true
    }
    fn publishes_transcripts(&self) -> bool {
        true
    }
}

pub const PLAN: &str = r#"
title = "Does the adapter help?"
[model]
source = "smollm2-135m-instruct"
[harness]
evaluate = { answer_tokens = 64, examples = 1, slots = 16 }
[tasks]
environment = "gym"
held_out = ["caravan"]
levels = [1]
per_family = 120
[seeds]
calibrate = [31001]
evaluate = [52004, 52005]
[[arms]]
name = "base"
[[arms]]
name = "mine"
adapter = "adapters/mine"
[[gates]]
kind = "headroom"
ceiling = 1.0
minimum_delta = 0.03
[decision]
rule = "three-way"
metric = { estimator = "paired_delta", of = "reward" }
minimum_delta = 0.03
"#;

pub const REPORT_TEXT: &str = r#"+++
title = "Does the adapter help?"
lifecycle = "finished"
verdict = "positive"
started = 2026-12-01
ended = 2026-12-01
plain = { idea = "i", question = "q", found = "The base solves [16.7%](derive:marker.rate).", matters = "m" }
[[cards]]
label = "Solved by the base"
value = "[40](derive:marker.solved) of [240](derive:marker.rate.n)"
[derivations.rate]
data = "episodes"
estimator = "share"
of = "solved"
arms = ["base"]
where = { event = "evaluate" }
format = "0.0%"
[derivations.solved]
data = "episodes"
estimator = "count"
arms = ["base"]
where = { event = "evaluate", solved = true }
[derivations.delta]
data = "episodes"
estimator = "paired_delta"
of = "reward"
arms = ["base", "mine"]
where = { event = "evaluate" }
[derivations.tokens]
data = "episodes"
estimator = "sum"
of = "completion_tokens"
arms = ["mine"]
[derivations.read]
data = "calls"
estimator = "share"
of = "parse_ok"
arms = ["base"]
format = "0%"
+++
The change is [+0.23](derive:marker.delta); [17%](derive:marker.read) of the replies could be read.
"#;

pub const CLAIM_TEXT: &str = r#"+++
id = "C0001"
title = "The base solves a sixth"
status = "promising"
population = "tasks"
[[history]]
date = 2026-12-01
status = "promising"
evidence = ["derive:marker.rate"]
+++
It solves [40](derive:marker.solved) of [240](derive:marker.rate.n), [16.7%](derive:marker.rate).
"#;

pub fn context<'a>(stop: &'a AtomicBool) -> Context<'a> {
    Context { observer: &Silent, stop, accept_engine: false }
}

/// What an arm says to a task: 20 of a seed's 120 are answered well, 27 well and (by the base) with a marker.
pub fn says(arm: &str, id: &str) -> String {
    let task = Gym.by_id(id).unwrap();
    let right = Gym.begin(&task).unwrap().oracle();
    match (arm, task.index) {
        (_, 0..20) | ("mine", 20..47) => right,
        (_, 20..47) => format!("{right}{MARK}"),
        _ => format!("ANSWER: never {}", task.index),
    }
}

pub fn play(experiment: &Experiment, arm: &'static str, purpose: Purpose, seed: u64) {
    let plan = &experiment.plan;
    let stop = AtomicBool::new(false);
    let mut backend = Scripted::new("model", 16, move |request, _| says(arm, &request.stream.task_id));
    let unit = lab::Unit {
        arm,
        purpose,
        seed,
        families: plan.families().cloned().collect(),
        per_family: plan.tasks.per_family,
        harness: &plan.harness.evaluate,
        plan_sha256: lock::check(&experiment.root, plan, Stage::Evaluate).unwrap(),
        adapter_sha256: (arm == "mine").then(|| "a".repeat(64)),
        train_seed: None,
        adapter: None,
    };
    lab::run(experiment, &mut backend, &unit, &context(&stop)).unwrap();
}

/// A workspace whose experiment ran to its end under the verifier as it was. Made once.
pub fn finished() -> &'static Path {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (path, text) in [
            ("data/marker/experiment.toml", PLAN),
            (REPORT, REPORT_TEXT),
            (CLAIM, CLAIM_TEXT),
            (
                "site/experiments/marker/log.md",
                "## 2026-01-02 — run\n\nAll arms ran. The outcome is positive.\n",
            ),
        ] {
            crate::hash::write_atomic(&root.join(path), text.as_bytes()).unwrap();
        }
        let mut experiment = Experiment::open(root, SLUG).unwrap();
        experiment.environment = Box::new(Unrepaired);
        let plan = &experiment.plan;
        let locked = lock::lock(&experiment.root, plan, Stage::Evaluate).unwrap();
        for (purpose, seed) in plan.event_seeds() {
            ledger::spend(root, SLUG, purpose, &[seed]).unwrap();
        }
        play(&experiment, "base", Purpose::Calibrate, 31001);
        let gate = plan.headroom().unwrap();
        let headroom = headroom::measure(&experiment, gate, &locked, &decide::on_disk(&experiment)).unwrap();
        receipts::write(&experiment.root, "headroom", &headroom).unwrap();
        for arm in ["base", "mine"] {
            for seed in [52004, 52005] {
                play(&experiment, arm, Purpose::Evaluate, seed);
            }
        }
        assert_eq!(decide::decide(&experiment, &locked).unwrap().decision.outcome.as_str(), "positive");
        folder
    })
    .path()
}

/// A copy of it, to be changed.
pub struct Copy(tempfile::TempDir);

impl Copy {
    pub fn new() -> Copy {
        let folder = tempfile::tempdir().unwrap();
        for entry in walkdir::WalkDir::new(finished()) {
            let entry = entry.unwrap();
            let target = folder.path().join(entry.path().strip_prefix(finished()).unwrap());
            if entry.file_type().is_dir() {
                fs_err::create_dir_all(target).unwrap();
            } else {
                fs_err::copy(entry.path(), target).unwrap();
            }
        }
        Copy(folder)
    }
    pub fn root(&self) -> &Path {
        self.0.path()
    }
    pub fn data(&self, path: &str) -> PathBuf {
        self.root().join("data").join(SLUG).join(path)
    }
    /// The experiment under the gym as it is, whose verifier drops the marker.
    pub fn repaired(&self) -> Experiment {
        Experiment::open(self.root(), SLUG).unwrap()
    }
    pub fn unrepaired(&self) -> Experiment {
        Experiment { environment: Box::new(Unrepaired), ..self.repaired() }
    }
    pub fn survey(&self, experiment: Experiment) -> Survey {
        survey_of(self.root(), &[experiment], Vec::new(), &context(&AtomicBool::new(false))).unwrap()
    }
    pub fn rescore(&self) -> Result<Option<Done>> {
        rescore(&self.repaired(), None, &context(&AtomicBool::new(false)))
    }
    pub fn audit(&self) -> AuditReport {
        audit::audit(self.root(), audit::Options::default()).unwrap()
    }
    /// Writes rows the honest way: sealed, and listed.
    pub fn put<R: Row>(&self, path: &str, change: impl FnOnce(&mut Vec<R>)) {
        let mut rows: Vec<R> = table::read(&self.data(path)).unwrap();
        change(&mut rows);
        chain::seal(&mut rows).unwrap();
        let bytes = table::encode(&rows).unwrap();
        fs_err::write(self.data(path), &bytes).unwrap();
        let entry = hashes::FileHash::of(&bytes, rows.len(), chain::last(&rows));
        hashes::update(&self.data(""), [(path.to_string(), entry)]).unwrap();
    }
    /// Every file below the data folder but the write-ahead lock and what has a date in it.
    pub fn snapshot(&self) -> BTreeMap<String, String> {
        let files = walkdir::WalkDir::new(self.data("")).into_iter().map(|entry| entry.unwrap());
        files
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| entry.path().to_path_buf())
            .filter(|path| !path.ends_with("hashes.lock") && !path.ends_with("rescore-1.json"))
            .map(|path| {
                let name = path.strip_prefix(self.root()).unwrap().display().to_string();
                (name, crate::hash::sha256_file(&path).unwrap())
            })
            .collect()
    }
}
