//! Where tasks and rewards come from. An environment makes a task from a seed, shows an
//! observation, takes replies and scores them with a verifier that needs no model; it
//! never learns which model acts.

pub mod gym;

use crate::philox::Philox;
use serde::{Deserialize, Serialize};

/// Who speaks in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions ahead of the conversation.
    System,
    /// The environment.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message from the environment.
    pub fn user(content: impl Into<String>) -> Self {
        Message { role: Role::User, content: content.into() }
    }
    /// A message from the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Message { role: Role::Assistant, content: content.into() }
    }
}

/// One item, fully determined by family, level, seed and index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// `<family>/L<level>/<seed>/<index>`: the same id is the same task everywhere.
    pub id: String,
    /// Kind of task.
    pub family: String,
    /// Difficulty, 1 to 4.
    pub level: u8,
    /// The event seed that made it.
    pub seed: u64,
    /// Index under that seed, from 0.
    pub index: u32,
    /// Number of distinct answers a guesser chooses from; null when practically unbounded.
    /// At most 8 makes it a small answer domain for the lucky-guess gate of the harvest.
    pub answer_domain: Option<u32>,
    /// What the verifier needs: never shown to a model, never committed.
    pub hidden: serde_json::Value,
}

/// What a reply led to.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The next observation, or `None` when the episode is over.
    pub observation: Option<String>,
    /// Whether an answer or action could be read from the reply.
    pub parse_ok: bool,
    /// Whether the action was legal and accepted (atoms: same as `parse_ok`).
    pub action_ok: bool,
}

/// The verdict on a finished (or cut) episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Score in [0, 1].
    pub reward: f64,
    /// Whether the task counts as solved.
    pub solved: bool,
}

/// One running episode of one task: the environment's half of the conversation.
pub trait Session: Send {
    /// The first observation (the prompt).
    fn prompt(&self) -> String;
    /// Takes one reply. Must not panic on any text.
    fn reply(&mut self, text: &str) -> Turn;
    /// The score as things stand; a limit that was reached is a score, not a missing value.
    fn outcome(&self) -> Outcome;
    /// The ideal next reply (oracle policy): in the exact format that the prompt asks for.
    fn oracle(&self) -> String;
    /// A random well-formed reply (random policy).
    fn random(&self, rng: &mut Philox) -> String;
    /// Most assistant turns allowed; 1 for an atom.
    fn horizon(&self) -> u32;
}

/// A source of tasks.
pub trait Environment: Send + Sync {
    /// Name, as in `[tasks] environment`.
    fn name(&self) -> &'static str;
    /// Names of all families.
    fn families(&self) -> Vec<&'static str>;
    /// Task `index` of a family and level under an event seed. Errors name unknown families or levels.
    fn task(&self, family: &str, level: u8, seed: u64, index: u32) -> crate::Result<Task>;
    /// Starts an episode of a task (made by this environment, or read back from a file).
    fn begin(&self, task: &Task) -> crate::Result<Box<dyn Session>>;
    /// Worked examples as chat turns: `count` solved episodes of this family and level, from
    /// seeds reserved for examples, the same for every task (so that their prefix is shared).
    fn examples(&self, family: &str, level: u8, count: usize) -> crate::Result<Vec<Message>>;
    /// SHA-256 of the identity and version of a family's generator and verifier.
    fn verifier_sha256(&self, family: &str) -> crate::Result<String>;
    /// Whether the same task and replies always give the same observations and score.
    fn deterministic(&self) -> bool;
    /// Whether transcripts may be published.
    fn publishes_transcripts(&self) -> bool;
}

/// The environment of that name.
pub fn by_name(name: &str) -> crate::Result<Box<dyn Environment>> {
    match name {
        "gym" => Ok(Box::new(gym::Gym)),
        other => Err(crate::Error::invalid(format!("unknown environment `{other}`")).hint("use `gym`")),
    }
}
