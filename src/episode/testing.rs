//! For tests of this module: rows of every shape, a toy environment with one-turn and
//! several-turn tasks, and a backend that delays, reorders, limits and breaks.

use super::row::{CallRow, EpisodeRow};
use super::transcript::Transcript;
use super::unit::{Item, UnitSpec};
use super::wal::{Header, Record};
use crate::engine::scripted::Scripted;
use crate::engine::{Backend, Completion, Identity, Request, Sampling};
use crate::environment::{Environment, Message, Outcome, Session, Task, Turn};
use crate::error::{Error, Result};
use crate::hash::sha256_hex;
use crate::philox::Philox;

/// `n` episode rows; nulls, flags, reals and odd text all occur.
pub fn episode_rows(n: usize) -> Vec<EpisodeRow> {
    (0..n)
        .map(|i| EpisodeRow {
            experiment: "x".into(),
            event: (i % 2 == 0).then(|| "e1".into()),
            tier: None,
            plan_sha256: sha256_hex(b"plan"),
            arm: "base".into(),
            model_sha256: sha256_hex(b"model"),
            adapter_sha256: None,
            train_seed: (i % 3 == 0).then_some(1),
            scaffold: "native".into(),
            scaffold_version: None,
            dtype: Some("f32".into()),
            slots: Some(4),
            environment: "toy".into(),
            family: "sum".into(),
            level: 1,
            task_id: format!("sum/L1/7/{i}"),
            split: "held_out".into(),
            stratum: (i == 1).then(String::new),
            seed: 7,
            rollout: (i % 2) as i64,
            reward: (i % 4 != 3).then(|| i as f64 / 3.0),
            solved: (i % 4 != 3).then_some(i % 2 == 0),
            partial: None,
            select_score: None,
            verifier_sha256: sha256_hex(b"verifier"),
            parse_ok: Some(true),
            engaged: None,
            forced_close: None,
            naturally_closed: None,
            finish_reason: if i % 4 == 3 { "infra_error" } else { "stop" }.into(),
            turns: 1,
            tool_calls: None,
            tool_failures: None,
            repaired_calls: None,
            prompt_tokens: Some(100 + i as i64),
            completion_tokens: (i % 2 == 0).then_some(i64::MAX - i as i64),
            think_tokens: None,
            tokens_sha256: (i % 3 != 2).then(|| sha256_hex(&[i as u8])),
            wall_ms: 12,
            solved_ms: None,
            exit_code: (i == 2).then_some(-1),
            error: (i % 4 == 3).then(|| "ünïcode \u{0} \"quoted\"\nsecond line".into()),
            enforced: None,
            evidence: "deployable".into(),
            started_at: "2026-11-30T01:22:03Z".into(),
            engine_sha256: sha256_hex(b"engine"),
            row_sha256: String::new(),
        })
        .collect()
}

/// `n` call rows.
pub fn call_rows(n: usize) -> Vec<CallRow> {
    (0..n)
        .map(|i| CallRow {
            experiment: "x".into(),
            arm: "base".into(),
            task_id: format!("sum/L1/7/{}", i / 2),
            family: "sum".into(),
            level: 1,
            seed: 7,
            rollout: 0,
            turn: (i % 2) as i64,
            prompt_tokens: Some(5),
            completion_tokens: Some(6),
            finish_reason: "stop".into(),
            prompt_sha256: Some(sha256_hex(b"p")),
            tokens_sha256: Some(sha256_hex(b"t")),
            logprobs_sha256: (i == 1).then(|| sha256_hex(b"l")),
            parse_ok: Some(false),
            action_ok: None,
            wall_ms: 1,
            row_sha256: String::new(),
        })
        .collect()
}

/// `n` records that belong to `header`, two rollouts a task.
pub fn records(header: &Header, n: usize) -> Vec<Record> {
    let rows = episode_rows(n);
    let calls = call_rows(2);
    rows.into_iter()
        .enumerate()
        .map(|(i, row)| {
            let task_id = format!("sum/L1/7/{}", i / 2);
            let rollout = (i % 2) as i64;
            let call = |c: &CallRow| CallRow { task_id: task_id.clone(), rollout, ..c.clone() };
            Record {
                episode: EpisodeRow {
                    experiment: header.experiment.clone(),
                    arm: header.arm.clone(),
                    seed: header.seed as i64,
                    plan_sha256: header.plan_sha256.clone(),
                    model_sha256: header.model_sha256.clone(),
                    adapter_sha256: header.adapter_sha256.clone(),
                    engine_sha256: header.engine_sha256.clone(),
                    task_id: task_id.clone(),
                    rollout,
                    ..row
                },
                calls: calls.iter().take(1 + i % 2).map(call).collect(),
                transcript: Some(Transcript {
                    task_id: task_id.clone(),
                    rollout,
                    messages: vec![Message::user("q"), Message::assistant(format!("a{i}\n"))],
                    sampled: vec![vec![i as u32, 256]],
                }),
            }
        })
        .collect()
}

/// An engine identity with that many slots.
pub fn identity(slots: usize) -> Identity {
    Scripted::new("toy", slots, |_, _| String::new()).identity().clone()
}

/// A unit of ten tasks, twenty episodes.
pub fn spec() -> UnitSpec {
    let item = |family: &str, level, count| Item { family: family.into(), level, count };
    UnitSpec {
        experiment: "x".into(),
        event: None,
        arm: "base".into(),
        plan_sha256: sha256_hex(b"plan"),
        adapter_sha256: None,
        train_seed: None,
        seed: 7,
        items: vec![item("walk", 2, 4), item("sum", 1, 6)],
        split: [("walk", "held_out"), ("sum", "train")].map(|(f, s)| (f.to_string(), s.to_string())).into(),
        rollouts: 2,
        sampling: Sampling { logprobs: true, ..Sampling::greedy(12) },
        examples: 1,
        adapter: None,
        scaffold: "native".into(),
        evidence: "deployable".into(),
        accept_engine: false,
        accept_failures: false,
    }
}

/// Two families: `sum` takes one reply, `walk` up to three. The score is the reply's length in twelfths.
pub struct Toy {
    /// Whether transcripts may be published.
    pub publish: bool,
    /// What a verifier hash is made from.
    pub version: u8,
    /// The id of a task that cannot be begun.
    pub broken: Option<String>,
    /// The score of every episode, instead of the rule above.
    pub score: Option<f64>,
}

impl Default for Toy {
    fn default() -> Self {
        Toy { publish: true, version: 1, broken: None, score: None }
    }
}

struct ToySession {
    id: String,
    horizon: u32,
    said: Vec<String>,
    score: Option<f64>,
}

impl Session for ToySession {
    fn prompt(&self) -> String {
        format!("task {}", self.id)
    }
    fn reply(&mut self, text: &str) -> Turn {
        self.said.push(text.to_string());
        let over = text.contains('!') || self.horizon == 1;
        let observation = (!over).then(|| format!("seen {} of {}", self.said.len(), self.id));
        Turn { observation, parse_ok: !text.is_empty(), action_ok: text.len() > 3 }
    }
    fn outcome(&self) -> Outcome {
        let length = self.said.last().map_or(0, String::len).min(12);
        Outcome { reward: self.score.unwrap_or(length as f64 / 12.0), solved: length > 8 }
    }
    fn oracle(&self) -> String {
        "twelve chars".into()
    }
    fn random(&self, rng: &mut Philox) -> String {
        "x".repeat(rng.below(13))
    }
    fn horizon(&self) -> u32 {
        self.horizon
    }
}

impl Environment for Toy {
    fn name(&self) -> &str {
        "toy"
    }
    fn families(&self) -> Vec<&str> {
        vec!["sum", "walk"]
    }
    fn by_id(&self, id: &str) -> Result<Task> {
        Err(Error::invalid(format!("`{id}` is not made again here")))
    }
    fn longest(&self, family: &str, level: u8) -> Result<Vec<Task>> {
        Ok(vec![self.task(family, level, 0, 0)?])
    }
    fn task(&self, family: &str, level: u8, seed: u64, index: u32) -> Result<Task> {
        if !self.families().contains(&family) {
            return Err(Error::invalid(format!("unknown family `{family}`")));
        }
        Ok(Task {
            id: format!("{family}/L{level}/{seed}/{index}"),
            family: family.into(),
            level,
            seed,
            index,
            answer_domain: None,
            hidden: serde_json::Value::Null,
        })
    }
    fn begin(&self, task: &Task) -> Result<Box<dyn Session>> {
        if self.broken.as_ref() == Some(&task.id) {
            return Err(Error::invalid("this task is broken"));
        }
        let horizon = if task.family == "walk" { 3 } else { 1 };
        Ok(Box::new(ToySession { id: task.id.clone(), horizon, said: Vec::new(), score: self.score }))
    }
    fn examples(&self, family: &str, _level: u8, count: usize) -> Result<Vec<Message>> {
        Ok((0..count)
            .flat_map(|i| {
                [Message::user(format!("example {family} {i}")), Message::assistant("twelve chars")]
            })
            .collect())
    }
    fn verifier_sha256(&self, family: &str) -> Result<String> {
        Ok(sha256_hex(format!("{family} {}", self.version).as_bytes()))
    }
    fn deterministic(&self) -> bool {
        true
    }
    fn publishes_transcripts(&self) -> bool {
        self.publish
    }
}

/// What a random policy says to `request`: it depends on its stream alone. Some answers are empty, some
/// too long for 12 tokens, some end a walk.
pub fn answer(request: &Request, _context: &str) -> String {
    let s = &request.stream;
    let mut rng = Philox::named(&format!("{} {} {} {}", s.seed, s.task_id, s.rollout, s.turn));
    let length = rng.below(16);
    (0..length).map(|_| *rng.choose(&['a', 'b', 'é', '!', '\n'])).collect()
}

/// A scripted engine that hands completions over late and in another order, and can break.
pub struct Unruly {
    inner: Scripted,
    identity: Identity,
    rng: Philox,
    held: Vec<Completion>,
    /// Steps until it breaks down.
    pub steps_left: usize,
    /// Longest context it takes.
    pub context_limit: usize,
    /// Whether it takes longer ones at first, and turns them down at its next step.
    pub late: bool,
    turned_down: Vec<(u64, Error)>,
    /// The task whose calls it does not take, for a reason that is not their length.
    pub refuse: Option<String>,
}

impl Unruly {
    /// `disorder` names the random order.
    pub fn new(slots: usize, disorder: &str) -> Self {
        let inner = Scripted::new("toy", slots, answer);
        Unruly {
            identity: inner.identity().clone(),
            inner,
            rng: Philox::named(disorder),
            held: Vec::new(),
            steps_left: usize::MAX,
            context_limit: usize::MAX,
            late: false,
            turned_down: Vec::new(),
            refuse: None,
        }
    }

    /// The same engine as another build of it.
    pub fn rebuilt(mut self) -> Self {
        self.identity.engine_sha256 = sha256_hex(b"another build");
        self
    }
}

impl Backend for Unruly {
    fn identity(&self) -> &Identity {
        &self.identity
    }
    fn render(&self, messages: &[Message]) -> Result<Vec<u32>> {
        self.inner.render(messages)
    }
    fn extend(&self, context: &[u32], sampled: &[u32], next: &Message) -> Result<Vec<u32>> {
        self.inner.extend(context, sampled, next)
    }
    fn submit(&mut self, request: Request) -> Result<()> {
        if self.refuse.as_ref() == Some(&request.stream.task_id) {
            return Err(Error::refused("not today"));
        }
        if request.tokens.len() > self.context_limit {
            let error = Error::invalid("longer than the context");
            if self.late {
                self.turned_down.push((request.id, error));
                return Ok(());
            }
            return Err(error);
        }
        self.inner.submit(request)
    }
    fn step(&mut self) -> Result<Vec<Completion>> {
        self.steps_left =
            self.steps_left.checked_sub(1).ok_or_else(|| Error::invalid("the engine broke down"))?;
        self.held.extend(self.inner.step()?);
        self.rng.shuffle(&mut self.held);
        let keep = if self.inner.in_flight() == 0 { 0 } else { self.rng.below(self.held.len() + 1) };
        Ok(self.held.split_off(keep))
    }
    fn turned_down(&mut self) -> Vec<(u64, Error)> {
        std::mem::take(&mut self.turned_down)
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }
}
