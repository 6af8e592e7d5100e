//! `experiment.toml`: the preregistered plan of one experiment, parsed and validated.
//! Unknown keys, duplicate arms, overlapping seeds and unknown families are refused here,
//! before anything runs.

use super::endpoint::EndpointSection;
use super::gate::{Gate, Headroom, Kill};
use super::rule::Decision;
use crate::environment::{self, Allotment, Environment};
use crate::error::{Error, Result, nearest};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A whole plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The question, as a title.
    pub title: String,
    /// The research program it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The model under test.
    pub model: ModelSection,
    /// How the model is prompted and decoded, for the harvest and for evaluation.
    #[serde(default)]
    pub harness: Harnesses,
    /// Which tasks.
    pub tasks: Tasks,
    /// Which seeds, each spent once.
    pub seeds: Seeds,
    /// What the harvest keeps.
    #[serde(default)]
    pub harvest: Harvest,
    /// How the adapter is trained.
    #[serde(default)]
    pub training: Training,
    /// The arms, base first.
    pub arms: Vec<Arm>,
    /// Gates that must hold before compute is spent.
    #[serde(default)]
    pub gates: Vec<Gate>,
    /// The rule that decides.
    pub decision: Decision,
    /// Dated additions; never part of a locked section.
    #[serde(default)]
    pub amendments: Vec<Amendment>,
}

/// `[model]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// A name from `rederive models list`, a folder of safetensors, or a `.gguf` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// A server that answers in some events, or in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointSection>,
}

/// `[harness]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Harnesses {
    /// How samples are drawn for training.
    #[serde(default = "Harness::harvest_default")]
    pub harvest: Harness,
    /// How every arm is evaluated.
    #[serde(default)]
    pub evaluate: Harness,
}

impl Default for Harnesses {
    fn default() -> Self {
        Harnesses { harvest: Harness::harvest_default(), evaluate: Harness::default() }
    }
}

/// How a model is prompted and decoded: part of an arm's identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Harness {
    /// Worked examples put in front as chat turns.
    pub examples: usize,
    /// Most tokens a turn; with `think_tokens`, most tokens of the answer behind the thought.
    pub answer_tokens: usize,
    /// Most tokens of a thought in front of an answer, after which it is closed by force. Without it the model is
    /// asked not to think.
    // Left out when there is none, so that plans from before it keep their hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think_tokens: Option<usize>,
    /// 0 is greedy.
    pub temperature: f64,
    /// Nucleus sampling; 1 keeps everything.
    pub top_p: f64,
    /// Generation slots: the number of sequences that run side by side.
    pub slots: usize,
    /// Attempts at each task (`samples` of the harvest).
    pub rollouts: u32,
}

impl Default for Harness {
    fn default() -> Self {
        Harness {
            examples: 0,
            answer_tokens: 48,
            think_tokens: None,
            temperature: 0.0,
            top_p: 1.0,
            slots: 16,
            rollouts: 1,
        }
    }
}

impl Harness {
    fn harvest_default() -> Self {
        Harness { examples: 3, temperature: 0.8, rollouts: 4, ..Harness::default() }
    }
}

/// `[tasks]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tasks {
    /// Where tasks come from: `gym`, or a `.jsonl` file of one's own, relative to the experiment's folder.
    pub environment: String,
    /// SHA-256 of that file, read with the plan; it is part of every lock.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub file_sha256: Option<String>,
    /// Families the harvest draws from; none where nothing is trained here.
    #[serde(default)]
    pub train: Vec<String>,
    /// Families that training never sees.
    #[serde(default)]
    pub held_out: Vec<String>,
    /// Difficulty levels.
    pub levels: Vec<u8>,
    /// Tasks a family, level and evaluation seed.
    pub per_family: u32,
}

/// `[seeds]`: event seeds by purpose, and training seeds. No event seed appears twice.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seeds {
    /// Tasks to harvest from.
    #[serde(default)]
    pub harvest: Vec<u64>,
    /// Evaluation events: all arms on the same fresh tasks.
    pub evaluate: Vec<u64>,
    /// Seeds of the training runs (initialisation and order).
    #[serde(default)]
    pub train: Vec<u64>,
    /// Base arm only, for the headroom gate.
    #[serde(default)]
    pub calibrate: Vec<u64>,
    /// Base against base on disjoint seeds, for the null spread.
    #[serde(default)]
    pub null: Vec<u64>,
}

/// `[harvest]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Harvest {
    /// Tasks a family, level and harvest seed.
    pub per_family: u32,
    /// Most rows kept a task.
    pub item_cap: usize,
    /// Most rows kept a family.
    pub family_cap: usize,
    /// Most completion tokens of a kept turn: longer replies are not terse.
    pub terse_tokens: usize,
    /// Correct samples a task with a small answer domain needs before any counts.
    pub lucky_minimum: usize,
    /// Fewer kept rows end the experiment as starved.
    pub minimum_rows: usize,
    /// Fewer contributing families end the experiment as starved.
    pub minimum_families: usize,
}

impl Default for Harvest {
    fn default() -> Self {
        Harvest {
            per_family: 33,
            item_cap: 2,
            family_cap: 40,
            terse_tokens: 24,
            lucky_minimum: 3,
            minimum_rows: 60,
            minimum_families: 3,
        }
    }
}

/// `[training]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Training {
    /// LoRA rank.
    pub rank: usize,
    /// LoRA alpha; the update is scaled by alpha / rank.
    pub alpha: f64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Passes over the kept rows.
    pub epochs: usize,
    /// Rows an optimiser step.
    pub batch_rows: usize,
    /// Longer rows are skipped and counted, never truncated.
    pub max_tokens: usize,
    /// Steps of linear warm-up.
    pub warmup_steps: usize,
    /// Global gradient-norm clip; null never clips.
    pub clip_norm: Option<f64>,
    /// Steps between checkpoints.
    pub checkpoint_steps: usize,
}

impl Default for Training {
    fn default() -> Self {
        Training {
            rank: 16,
            alpha: 32.0,
            learning_rate: 5e-4,
            weight_decay: 0.0,
            epochs: 1,
            batch_rows: 8,
            max_tokens: 512,
            warmup_steps: 2,
            clip_norm: Some(1.0),
            checkpoint_steps: 4,
        }
    }
}

/// `[[arms]]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The arm's name: `[a-z0-9_-]+`.
    pub name: String,
    /// `receipt:train` (bound by hash once it exists) or a folder in PEFT format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// How the adapter is applied.
    #[serde(default)]
    pub deploy: Deploy,
    /// The model that an endpoint serves for this arm; the endpoint's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
}

/// How an arm's adapter is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deploy {
    /// Added to the base weights at run time.
    #[default]
    Live,
    /// Merged into a full checkpoint beforehand.
    Merged,
}

/// `[[amendments]]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// When it was added, `YYYY-MM-DD`.
    pub date: toml::value::Datetime,
    /// What changes for the reader, and why; locked sections stay as they are.
    pub text: String,
}

/// What a seed was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Harvesting.
    Harvest,
    /// An evaluation event.
    Evaluate,
    /// Headroom calibration.
    Calibrate,
    /// Null calibration.
    Null,
}

impl Purpose {
    /// As written in rows and the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Harvest => "harvest",
            Purpose::Evaluate => "evaluate",
            Purpose::Calibrate => "calibrate",
            Purpose::Null => "null",
        }
    }
}

impl Plan {
    /// Reads and validates a plan; errors name file, key and remedy.
    pub fn load(path: &Path) -> Result<Plan> {
        let text = crate::regular::text(path)?;
        Plan::parse(&text, path)
    }

    /// Parses and validates; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Plan> {
        let mut plan: Plan = toml::from_str(text).map_err(|e| toml_error(&e, text, path))?;
        plan.tasks.file_sha256 = environment::file_sha256(&plan.tasks.environment, folder_of(path))?;
        super::validate::validate(&plan, path)?;
        Ok(plan)
    }

    /// Where the tasks come from, with the plan's seeds allotted; `path` is the plan's.
    pub fn environment(&self, path: &Path) -> Result<Box<dyn Environment>> {
        let mut environment = environment::open(&self.tasks.environment, folder_of(path))?;
        environment.allot(&self.allotment())?;
        Ok(environment)
    }

    /// What the plan asks of an environment.
    pub fn allotment(&self) -> Allotment {
        let seeds = &self.seeds;
        Allotment {
            train: self.tasks.train.clone(),
            held_out: self.tasks.held_out.clone(),
            levels: self.tasks.levels.clone(),
            harvest: seeds.harvest.clone(),
            harvest_count: self.harvest.per_family,
            evaluate: vec![
                (Purpose::Calibrate.as_str(), seeds.calibrate.clone()),
                (Purpose::Null.as_str(), seeds.null.clone()),
                (Purpose::Evaluate.as_str(), seeds.evaluate.clone()),
            ],
            evaluate_count: self.tasks.per_family,
            harvest_examples: if seeds.harvest.is_empty() { 0 } else { self.harness.harvest.examples },
            evaluate_examples: self.harness.evaluate.examples,
        }
    }

    /// All event seeds with their purpose.
    pub fn event_seeds(&self) -> Vec<(Purpose, u64)> {
        let s = &self.seeds;
        [
            (Purpose::Harvest, &s.harvest),
            (Purpose::Calibrate, &s.calibrate),
            (Purpose::Null, &s.null),
            (Purpose::Evaluate, &s.evaluate),
        ]
        .into_iter()
        .flat_map(|(p, seeds)| seeds.iter().map(move |s| (p, *s)))
        .collect()
    }

    /// All evaluated families, trained ones first.
    pub fn families(&self) -> impl Iterator<Item = &String> {
        self.tasks.train.iter().chain(&self.tasks.held_out)
    }

    /// `held_out` or `train`, by family.
    pub fn split(&self, family: &str) -> &'static str {
        if self.tasks.held_out.iter().any(|f| f == family) { "held_out" } else { "train" }
    }

    /// The headroom gate, where one is planned.
    pub fn headroom(&self) -> Option<&Headroom> {
        self.gates.iter().find_map(|gate| match gate {
            Gate::Headroom(headroom) => Some(headroom),
            Gate::Kill(_) => None,
        })
    }

    /// The mechanism gate, where one is planned.
    pub fn kill(&self) -> Option<&Kill> {
        self.gates.iter().find_map(|gate| match gate {
            Gate::Kill(kill) => Some(kill),
            Gate::Headroom(_) => None,
        })
    }

    /// The base arm: the first one.
    pub fn base(&self) -> &Arm {
        &self.arms[0]
    }
}

/// The folder that a plan's own paths are relative to.
fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// A TOML error with file, line and a "did you mean" hint.
pub fn toml_error(e: &toml::de::Error, text: &str, path: &Path) -> Error {
    let line = e.span().map(|s| text.as_bytes().iter().take(s.start).filter(|b| **b == b'\n').count() + 1);
    let place = match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    };
    let message = e.message().to_string();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let hint = match (message.starts_with("unknown"), quoted.next()) {
        (true, Some(unknown)) => {
            let known: Vec<&str> = quoted.collect();
            match nearest(unknown, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if message.starts_with("unknown variant") => {
                    format!("write one of: {}", known.join(", "))
                }
                None => "remove it, or see docs/FORMATS.md for the keys there are".to_string(),
            }
        }
        _ => "see docs/FORMATS.md".to_string(),
    };
    let mut what = message.split(", expected").next().unwrap_or(&message).to_string();
    if let (true, Some(line)) = (message.starts_with("invalid"), line) {
        let written = text.lines().nth(line - 1).unwrap_or_default().trim();
        what = format!("{}: `{written}`", in_plain_words(&message));
    }
    Error::invalid(what).at(place).hint(hint)
}

/// A message in which no type of a programming language is expected.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.split_once(", expected ") else { return message.to_owned() };
    let plain = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list in brackets",
        "a map" => "a table of keys and values",
        "a string" => "a text in quotes",
        other => other,
    };
    format!("{found}, expected {plain}")
}

/// Where an experiment's plan lies.
pub fn plan_path(workspace: &Path, slug: &str) -> PathBuf {
    workspace.join("data").join(slug).join("experiment.toml")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
