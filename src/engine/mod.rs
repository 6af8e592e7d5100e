//! Generation: prompts in, completions out, with token ids, counts, hashes and finish
//! reasons. Knows nothing of rewards. The trait below is what `episode` drives; the local
//! candle engine is one implementation of it.

#[cfg(feature = "engine")]
pub mod endpoint;
#[cfg(feature = "engine")]
pub mod local;
#[doc(hidden)]
pub mod scripted;

use crate::environment::{Message, THOUGHT};
use serde::{Deserialize, Serialize};

/// How a completion is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 is greedy (ties to the lowest id).
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Most tokens to sample; with a thinking budget, most tokens of the answer that follows the thought.
    pub max_tokens: usize,
    /// Most tokens inside `<think>` and `</think>`, after which the thought is closed by force. Without a budget a
    /// thought is text like any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<usize>,
    /// Strings that end the completion (kept out of its text, ids stay as sampled).
    pub stop: Vec<String>,
    /// Record each sampled token's log-probability (temperature 1, untruncated).
    pub logprobs: bool,
    /// Beside each sampled token's log-probability, record those of this many most likely tokens.
    // Left out when it asks for nothing, so that settings from before it keep their hash.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub top_logprobs: usize,
}

/// The most likely ids at one position with their log-probabilities, most likely first.
pub type Likeliest = Vec<(u32, f32)>;

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Sampling {
    /// Greedy decoding of at most `max_tokens`.
    pub fn greedy(max_tokens: usize) -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            max_tokens,
            thinking: None,
            stop: Vec::new(),
            logprobs: false,
            top_logprobs: 0,
        }
    }
}

/// Names the random stream of one call: the same in every arm, slot and neighbourhood.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stream {
    /// Event seed.
    pub seed: u64,
    /// Task id.
    pub task_id: String,
    /// Rollout index.
    pub rollout: u32,
    /// Turn within the episode.
    pub turn: u32,
}

/// One call for a completion.
#[derive(Debug, Clone)]
pub struct Request {
    /// Chosen by the caller, returned with the completion; unique among those in flight.
    pub id: u64,
    /// The whole context as token ids (never empty).
    pub tokens: Vec<u32>,
    /// The adapter to answer with (a handle from the engine), or the base model.
    pub adapter: Option<usize>,
    /// How to draw.
    pub sampling: Sampling,
    /// Which random stream to draw from.
    pub stream: Stream,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// An end-of-turn token or a stop string.
    Stop,
    /// `max_tokens` or the context length was reached.
    Length,
}

/// How a thought ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The model closed it.
    Natural,
    /// Its budget was spent.
    Forced,
    /// The call ended inside it.
    Never,
}

/// The thought of a call that had a thinking budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thought {
    /// Whether the context had opened it, so that the marker is not among the call's own tokens.
    pub opened_before: bool,
    /// Tokens between the markers.
    pub tokens: usize,
    /// How it ended.
    pub close: Close,
}

/// A finished call.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The request's id.
    pub id: u64,
    /// Sampled ids, the final end-of-turn id included when one was sampled, and what closed a thought by force. Of a
    /// backend without token ids: what it needs to go on with, for nobody else to read.
    pub tokens: Vec<u32>,
    /// Decoded text, without special tokens and cut before a stop string.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of context, as far as the backend counts them.
    pub prompt_tokens: Option<usize>,
    /// Those of them that were taken over from another computation, where the backend tells.
    pub shared_tokens: Option<usize>,
    /// Tokens written, as far as the backend counts them.
    pub completion_tokens: Option<usize>,
    /// Log-probability of each token, when asked for; NaN for those that closed a thought by force.
    pub logprobs: Option<Vec<f32>>,
    /// The thought, when there was a budget for one and it was opened.
    pub thought: Option<Thought>,
    /// The most likely ids at each sampled token, when asked for.
    pub top_logprobs: Option<Vec<Likeliest>>,
    /// Milliseconds from submission to the last token.
    pub wall_ms: u64,
}

impl Completion {
    /// What was said, thought included: the text, with the marker of a thought in front that the context had opened.
    pub fn said(&self) -> String {
        match self.thought {
            Some(Thought { opened_before: true, .. }) => format!("{THOUGHT}{}", self.text),
            _ => self.text.clone(),
        }
    }
}

/// What a run must know of an engine to sign its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// SHA-256 of the weights file(s); of an endpoint, of what its server says of the model.
    pub model_sha256: String,
    /// Arithmetic type, such as `f32`; `None` where a server does not promise one.
    pub dtype: Option<String>,
    /// Number of slots; `None` where a server does not promise it.
    pub slots: Option<usize>,
    /// SHA-256 of version, hash of the sources, features, instruction set, dtype, slots, and the model's config,
    /// tokenizer and template; of an endpoint, of what its server says of itself.
    pub engine_sha256: String,
}

/// Something that completes prompts.
pub trait Backend {
    /// Who answers.
    fn identity(&self) -> &Identity;
    /// Token ids of a conversation followed by the opening of an assistant turn.
    fn render(&self, messages: &[Message]) -> crate::Result<Vec<u32>>;
    /// The context of the next turn: `context` and the ids sampled after it, kept as they were
    /// sampled, then the rendering of `next` and the opening of another assistant turn.
    fn extend(&self, context: &[u32], sampled: &[u32], next: &Message) -> crate::Result<Vec<u32>>;
    /// Queues a call. Errors when it can never run (empty, or longer than the context).
    fn submit(&mut self, request: Request) -> crate::Result<()>;
    /// Advances all running calls by one step; returns those that finished. A call's result
    /// depends on its own request alone.
    fn step(&mut self) -> crate::Result<Vec<Completion>>;
    /// Calls that were taken and then could not run, because their context turned out to be too long, with the
    /// error that [`Backend::submit`] would have given had it known: each is told once, and no longer in flight.
    fn turned_down(&mut self) -> Vec<(u64, crate::Error)> {
        Vec::new()
    }
    /// Calls queued or running.
    fn in_flight(&self) -> usize;
    /// How many calls it works on at the same time.
    fn width(&self) -> usize {
        self.identity().slots.unwrap_or(1)
    }
    /// Whether contexts and completions are token ids. Without them a row has no hash of ids.
    fn gives_token_ids(&self) -> bool {
        true
    }
}

/// SHA-256 of token ids as little-endian u32.
pub fn tokens_sha256(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
    crate::hash::sha256_hex(&bytes)
}
