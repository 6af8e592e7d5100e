//! Where tasks and rewards come from. An environment makes a task from a seed, shows an
//! observation, takes replies and scores them with a verifier that needs no model; it
//! never learns which model acts.

pub mod gym;
pub mod taskset;

use crate::philox::Philox;
use serde::{Deserialize, Serialize};
use std::path::Path;

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

/// What opens a thought in a reply, and what closes it.
pub const THOUGHT: &str = "<think>";
const THOUGHT_END: &str = "</think>";

/// The part of a reply that answers: what follows its thought, the whole reply where there is none, and nothing
/// where a thought was opened and never closed. What is only thought is never scored, and no action in it is taken.
pub fn answer(reply: &str) -> &str {
    match reply.rfind(THOUGHT_END) {
        Some(end) => reply[end + THOUGHT_END.len()..].trim_start(),
        None if reply.trim_start().starts_with(THOUGHT) => "",
        None => reply,
    }
}

/// One item, fully determined by family, level, seed and index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The same id is the same task everywhere: `<family>/L<level>/<seed>/<index>` where a seed makes the task,
    /// the id in its file where a seed draws it.
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
    /// The conversation that the model is to continue, without worked examples: the prompt as the user's, unless
    /// the task says more.
    fn opening(&self) -> Vec<Message> {
        vec![Message::user(self.prompt())]
    }
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
    fn name(&self) -> &str;
    /// Names of all families.
    fn families(&self) -> Vec<&str>;
    /// Learns which seeds a plan spends on what. Where tasks are made from seeds there is nothing to do; where they
    /// are drawn from a set, each seed draws its own, and the error says where there are too few.
    fn allot(&mut self, _plan: &Allotment) -> crate::Result<()> {
        Ok(())
    }
    /// Task `index` of a family and level under an event seed. Errors name unknown families or levels.
    fn task(&self, family: &str, level: u8, seed: u64, index: u32) -> crate::Result<Task>;
    /// The task of an id that a seed of the plan made or drew.
    fn by_id(&self, id: &str) -> crate::Result<Task>;
    /// Tasks whose lengths stand for all of a family and level.
    fn longest(&self, family: &str, level: u8) -> crate::Result<Vec<Task>>;
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

/// What a plan asks of an environment: which families and levels, and what its seeds are spent on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allotment {
    /// Families that are harvested.
    pub train: Vec<String>,
    /// Families that are only evaluated.
    pub held_out: Vec<String>,
    /// Difficulties.
    pub levels: Vec<u8>,
    /// Harvest seeds, which come first.
    pub harvest: Vec<u64>,
    /// Tasks of a family and level for each of them.
    pub harvest_count: u32,
    /// The other event seeds by purpose, in the order in which they are spent.
    pub evaluate: Vec<(&'static str, Vec<u64>)>,
    /// Tasks of a family and level for each of them.
    pub evaluate_count: u32,
    /// Worked examples in front of a harvested task.
    pub harvest_examples: usize,
    /// Worked examples in front of an evaluated task.
    pub evaluate_examples: usize,
}

/// Worked examples in front of what a session opens with; a system message stays first.
pub fn conversation(examples: &[Message], session: &dyn Session) -> Vec<Message> {
    let mut messages = session.opening();
    let at = usize::from(messages.first().is_some_and(|m| m.role == Role::System));
    messages.splice(at..at, examples.iter().cloned());
    messages
}

/// The environment of that name: `gym`, or a task set, whose path is relative to `folder`.
pub fn open(name: &str, folder: &Path) -> crate::Result<Box<dyn Environment>> {
    match name {
        "gym" => Ok(Box::new(gym::Gym)),
        file if file.ends_with(taskset::EXTENSION) => {
            Ok(Box::new(taskset::TaskSet::open(file, &folder.join(file))?))
        }
        other => Err(crate::Error::invalid(format!("unknown environment `{other}`"))
            .hint("use `gym`, or a file of your own tasks such as `tasks.jsonl`")),
    }
}

/// SHA-256 of the file that an environment's tasks come from; `None` where they are made from seeds.
pub fn file_sha256(name: &str, folder: &Path) -> crate::Result<Option<String>> {
    match name.ends_with(taskset::EXTENSION) {
        true => crate::hash::sha256_file(&folder.join(name)).map(Some),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_a_thought_answers() {
        for (reply, want) in [
            ("ANSWER: 7", "ANSWER: 7"),
            ("<think>\nANSWER: 6\n</think>\n\nANSWER: 7", "ANSWER: 7"),
            ("half a thought</think>ANSWER: 7", "ANSWER: 7"),
            ("\n<think>ANSWER: 7", ""),
            ("<think>a</think>b<think>c</think> d", "d"),
            ("No <think> here", "No <think> here"),
            ("", ""),
        ] {
            assert_eq!(answer(reply), want, "{reply}");
        }
    }

    #[test]
    fn a_system_message_stays_in_front_of_worked_examples() {
        let folder = tempfile::tempdir().unwrap();
        let line = r#"{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}], "answer": "4"}"#;
        fs_err::write(folder.path().join("t.jsonl"), line).unwrap();
        let set = open("t.jsonl", folder.path()).unwrap();
        let session = set.begin(&set.task("tasks", 1, 0, 0).unwrap()).unwrap();
        let said = conversation(&[Message::user("1+1?"), Message::assistant("ANSWER: 2")], session.as_ref());
        let said: Vec<&str> = said.iter().map(|m| m.content.as_str()).collect();
        assert_eq!(said, ["Be brief.", "1+1?", "ANSWER: 2", "2+2?"]);
        let session = gym::Gym.begin(&gym::Gym.task("caravan", 1, 5, 0).unwrap()).unwrap();
        assert_eq!(conversation(&[], session.as_ref()), [Message::user(session.prompt())]);
        let error = open("gim", folder.path()).map(|e| e.name().to_owned()).unwrap_err().to_string();
        assert!(error.contains("unknown environment `gim`") && error.contains("tasks.jsonl"), "{error}");
    }
}
