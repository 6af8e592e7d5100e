//! One running episode: the conversation so far, its generation calls, and the record that
//! comes of it. Knows the engine only as a trait and the task only through its session.

use super::row::{CallRow, EpisodeRow};
use super::transcript::Transcript;
use super::unit::UnitSpec;
use super::wal::Record;
use crate::clock;
use crate::engine::{Backend, Close, Completion, Finish, Identity, Request, Stream, Thought, tokens_sha256};
use crate::environment::{Environment, Message, Session, Task, answer, conversation};
use crate::error::{Error, Result};
use crate::hash::sha256_hex;
use std::time::Instant;

/// What the episodes of a unit share.
pub struct Shared<'a> {
    pub spec: &'a UnitSpec,
    pub environment: &'a dyn Environment,
    pub identity: Identity,
    /// Whether contexts and completions are token ids.
    pub token_ids: bool,
}

/// An episode that has begun.
pub struct Live<'a> {
    task: &'a Task,
    rollout: u32,
    started: Instant,
    started_at: String,
    session: Option<Box<dyn Session>>,
    messages: Vec<Message>,
    context: Vec<u32>,
    sampled: Vec<Vec<u32>>,
    thoughts: Vec<Thought>,
    calls: Vec<CallRow>,
    finish_reason: &'static str,
    error: Option<String>,
}

/// What an episode waits for.
pub enum Next {
    /// A completion of this call.
    Call(Request),
    /// Nothing: it is over.
    Over,
}

impl<'a> Live<'a> {
    /// Starts an episode: `examples`, then the task's prompt, rendered for the first call. What goes wrong
    /// here makes an episode that is over, with an error and without a score.
    pub fn begin(
        shared: &Shared,
        backend: &dyn Backend,
        task: &'a Task,
        rollout: u32,
        examples: &[Message],
        id: u64,
    ) -> (Self, Next) {
        let mut live = Live {
            task,
            rollout,
            started: Instant::now(),
            started_at: clock::now(),
            session: None,
            messages: Vec::new(),
            context: Vec::new(),
            sampled: Vec::new(),
            thoughts: Vec::new(),
            calls: Vec::new(),
            finish_reason: "infra_error",
            error: None,
        };
        let opened = shared.environment.begin(task).and_then(|session| {
            live.messages = conversation(examples, session.as_ref());
            live.session = Some(session);
            backend.render(&live.messages)
        });
        let next = match opened {
            Ok(context) => live.call(shared, context, id),
            Err(error) => live.fail(&error),
        };
        (live, next)
    }

    fn call(&mut self, shared: &Shared, context: Vec<u32>, id: u64) -> Next {
        self.context = context.clone();
        let stream = Stream {
            seed: shared.spec.seed,
            task_id: self.task.id.clone(),
            rollout: self.rollout,
            turn: self.sampled.len() as u32,
        };
        let sampling = shared.spec.sampling.clone();
        Next::Call(Request { id, tokens: context, adapter: shared.spec.adapter, sampling, stream })
    }

    /// Ends the episode without a score: the failure is not the model's.
    fn fail(&mut self, error: &Error) -> Next {
        self.finish_reason = "infra_error";
        self.error = Some(error.to_string());
        Next::Over
    }

    /// The engine would not take the call, or turned it down later. In a later turn that means the conversation has outgrown the
    /// context: a limit that was reached, so the episode ends with its score. In the first it is a failure.
    pub fn refused(&mut self, error: &Error) {
        if matches!(error, Error::Invalid(_)) && !self.sampled.is_empty() {
            self.finish_reason = "length";
        } else {
            self.fail(error);
        }
    }

    /// Takes a completion and says what comes next.
    pub fn take(&mut self, shared: &Shared, backend: &dyn Backend, completion: Completion) -> Next {
        let Some(session) = self.session.as_mut() else {
            return self.fail(&Error::invalid("a completion came before the episode began"));
        };
        let said = completion.said();
        let turn = session.reply(answer(&said));
        self.thoughts.extend(completion.thought);
        let horizon = session.horizon() as usize;
        self.finish_reason = match completion.finish {
            Finish::Stop => "stop",
            Finish::Length => "length",
        };
        self.calls.push(CallRow {
            experiment: shared.spec.experiment.clone(),
            arm: shared.spec.arm.clone(),
            task_id: self.task.id.clone(),
            family: self.task.family.clone(),
            level: i64::from(self.task.level),
            seed: shared.spec.seed as i64,
            rollout: i64::from(self.rollout),
            turn: self.sampled.len() as i64,
            prompt_tokens: completion.prompt_tokens.map(|n| n as i64),
            completion_tokens: completion.completion_tokens.map(|n| n as i64),
            finish_reason: self.finish_reason.to_string(),
            prompt_sha256: shared.token_ids.then(|| tokens_sha256(&self.context)),
            tokens_sha256: shared.token_ids.then(|| tokens_sha256(&completion.tokens)),
            logprobs_sha256: completion.logprobs.as_deref().map(logprobs_sha256),
            parse_ok: Some(turn.parse_ok),
            action_ok: Some(turn.action_ok),
            wall_ms: completion.wall_ms as i64,
            row_sha256: String::new(),
        });
        self.messages.push(Message::assistant(said));
        self.sampled.push(completion.tokens);
        let Some(observation) = turn.observation.filter(|_| self.sampled.len() < horizon) else {
            return Next::Over;
        };
        let next = Message::user(observation);
        let extended = backend.extend(&self.context, self.sampled.last().map_or(&[], Vec::as_slice), &next);
        self.messages.push(next);
        match extended {
            Ok(context) => self.call(shared, context, completion.id),
            Err(error) => self.fail(&error),
        }
    }

    /// The record of an episode that is over. Errors when the environment's score is no score.
    pub fn record(self, shared: &Shared) -> Result<Record> {
        let spec = shared.spec;
        let outcome = match (&self.session, &self.error) {
            (Some(session), None) => Some(session.outcome()),
            _ => None,
        };
        if let Some(outcome) = outcome.filter(|o| !(0.0..=1.0).contains(&o.reward)) {
            return Err(Error::invalid(format!("scored {}, which is not in [0, 1]", outcome.reward))
                .at(format!("environment `{}`, task `{}`", shared.environment.name(), self.task.id))
                .hint("this is a defect of the environment's verifier: please report it"));
        }
        // Thoughts are told from answers only under a budget.
        let thoughts = spec.sampling.thinking.map(|_| &self.thoughts);
        let closed = |how: Close| move |thought: &Thought| thought.close == how;
        // A sum of which a part is unknown is unknown.
        let sum = |count: fn(&CallRow) -> Option<i64>| self.calls.iter().map(count).sum::<Option<i64>>();
        let episode = EpisodeRow {
            experiment: spec.experiment.clone(),
            event: spec.event.clone(),
            tier: None,
            plan_sha256: spec.plan_sha256.clone(),
            arm: spec.arm.clone(),
            model_sha256: shared.identity.model_sha256.clone(),
            adapter_sha256: spec.adapter_sha256.clone(),
            train_seed: spec.train_seed,
            scaffold: spec.scaffold.clone(),
            scaffold_version: None,
            dtype: shared.identity.dtype.clone(),
            slots: shared.identity.slots.map(|n| n as i64),
            environment: shared.environment.name().to_string(),
            family: self.task.family.clone(),
            level: i64::from(self.task.level),
            task_id: self.task.id.clone(),
            split: spec.split.get(&self.task.family).cloned().unwrap_or_default(),
            stratum: None,
            seed: spec.seed as i64,
            rollout: i64::from(self.rollout),
            reward: outcome.map(|o| o.reward),
            solved: outcome.map(|o| o.solved),
            partial: None,
            select_score: None,
            verifier_sha256: shared.environment.verifier_sha256(&self.task.family)?,
            parse_ok: self.calls.last().and_then(|c| c.parse_ok),
            engaged: outcome.map(|_| self.calls.iter().any(|c| c.action_ok == Some(true))),
            forced_close: thoughts.map(|all| all.iter().any(closed(Close::Forced))),
            naturally_closed: thoughts
                .filter(|all| !all.is_empty())
                .map(|all| all.iter().all(closed(Close::Natural))),
            finish_reason: self.finish_reason.to_string(),
            turns: self.calls.len() as i64,
            tool_calls: None,
            tool_failures: None,
            repaired_calls: None,
            prompt_tokens: sum(|c| c.prompt_tokens),
            completion_tokens: sum(|c| c.completion_tokens),
            think_tokens: thoughts.map(|all| all.iter().map(|thought| thought.tokens as i64).sum()),
            tokens_sha256: shared.token_ids.then(|| turns_sha256(&self.sampled)),
            wall_ms: self.started.elapsed().as_millis() as i64,
            solved_ms: None,
            exit_code: None,
            error: self.error,
            enforced: None,
            evidence: spec.evidence.clone(),
            started_at: self.started_at,
            engine_sha256: shared.identity.engine_sha256.clone(),
            row_sha256: String::new(),
        };
        let transcript = shared.environment.publishes_transcripts().then(|| Transcript {
            task_id: self.task.id.clone(),
            rollout: i64::from(self.rollout),
            messages: self.messages,
            sampled: if shared.token_ids { self.sampled } else { Vec::new() },
        });
        Ok(Record { episode, calls: self.calls, transcript })
    }
}

/// SHA-256 over all turns: of each, the number of its ids and the ids, as little-endian u32.
pub fn turns_sha256(turns: &[Vec<u32>]) -> String {
    let mut bytes = Vec::new();
    for turn in turns {
        for number in std::iter::once(&(turn.len() as u32)).chain(turn) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    sha256_hex(&bytes)
}

/// SHA-256 of log-probabilities as the little-endian bits of f32.
fn logprobs_sha256(logprobs: &[f32]) -> String {
    sha256_hex(&logprobs.iter().flat_map(|p| p.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_hashes_follow_the_documented_bytes() {
        let bytes = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(turns_sha256(&[vec![5, 6], vec![], vec![7]]), sha256_hex(&bytes(&[2, 5, 6, 0, 1, 7])));
        assert_ne!(turns_sha256(&[vec![5], vec![6]]), turns_sha256(&[vec![5, 6]]));
        assert_ne!(logprobs_sha256(&[0.0]), logprobs_sha256(&[-0.0]));
    }
}
