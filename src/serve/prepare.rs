//! From a request's body to calls for the engine: which model, which tokens, which random streams.

use super::actor::About;
use super::ask::Ask;
use super::conversation::{Conversation, MustCall};
use super::failure::Failure;
use super::fields::{Fields, wrong};
use super::{Limits, split::Splitter, tools};
use crate::engine::{Request, Stream, tokens_sha256};
use serde_json::Value;

/// Tokens that a thinking budget leaves free in the context for what closes the thought by force.
const CLOSING: usize = 8;

/// A request that can be answered.
pub struct Prepared {
    /// Its settings.
    pub ask: Ask,
    /// Whether it is of a chat.
    pub chat: bool,
    /// The model's name.
    pub model: String,
    /// The adapter to answer with.
    adapter: Option<usize>,
    /// Token ids of each prompt: one for a chat.
    pub prompts: Vec<Vec<u32>>,
    /// What cuts each choice's text into parts; none for raw completions.
    pub splitter: Option<Splitter>,
}

/// Reads the body of a chat request.
pub fn chat(body: &[u8], about: &About, name: &str, limits: &Limits) -> Result<Prepared, Failure> {
    let mut fields = Fields::parse(body)?;
    let mut ask = Ask::take(&mut fields, limits.choices)?;
    ask.take_chat(&mut fields)?;
    let conversation = Conversation::take(&mut fields)?;
    fields.end()?;
    let (model, adapter) = choose(&ask, about, name)?;
    let template = about.model.template()?;
    if !conversation.tools.is_empty() && !template.takes_tools() {
        return Err(Failure::unsupported("tools", "the model's chat template has no place for them"));
    }
    if let Some(field) = ask.budget_field {
        let tokenizer = about.model.tokenizer()?;
        if tokenizer.id("<think>").is_none() || tokenizer.id("</think>").is_none() {
            let why = "the model has no tokens `<think>` and `</think>` to tell a thought by";
            return Err(Failure::unsupported(field, why));
        }
    }
    let mut text = template
        .render_with(&conversation.messages, true, &conversation.tools, &conversation.names)
        .map_err(|e| Failure::from(e).field("messages"))?;
    let thinking = text.trim_end().ends_with("<think>");
    let splitter = match &conversation.must_call {
        None => Splitter::new(thinking, conversation.tools),
        Some(must) => {
            let name = match must {
                MustCall::Any => None,
                MustCall::Named(name) => Some(name.as_str()),
            };
            let opening = tools::opening(template.text(), name).ok_or_else(|| {
                Failure::unsupported("tool_choice", "the model's chat template shows no form of a call")
            })?;
            // A call that must come needs no thought: one that the prompt has opened is closed again.
            text.push_str(if thinking { "\n</think>\n\n" } else { "" });
            text.push_str(&opening);
            Splitter::after(opening, conversation.tools)
        }
    };
    let prompts = vec![encode(&text, about).map_err(|failure| failure.field("messages"))?];
    let splitter = Some(splitter);
    finish(Prepared { ask, chat: true, model, adapter, prompts, splitter }, about)
}

/// Reads the body of a raw completion request.
pub fn raw(body: &[u8], about: &About, name: &str, limits: &Limits) -> Result<Prepared, Failure> {
    let mut fields = Fields::parse(body)?;
    let mut ask = Ask::take(&mut fields, limits.choices)?;
    ask.take_raw(&mut fields)?;
    let prompt = fields.take("prompt");
    fields.end()?;
    let (model, adapter) = choose(&ask, about, name)?;
    let prompt = prompt.ok_or_else(|| Failure::invalid("`prompt` is missing").field("prompt"))?;
    let prompts = match &prompt {
        Value::Array(list) if list.iter().all(Value::is_u64) => vec![tokens(&prompt, about)?],
        Value::Array(list) => list.iter().map(|one| tokens(one, about)).collect::<Result<_, _>>()?,
        one => vec![tokens(one, about)?],
    };
    finish(Prepared { ask, chat: false, model, adapter, prompts, splitter: None }, about)
}

/// The model that a request names: the base model when it names none.
fn choose(ask: &Ask, about: &About, name: &str) -> Result<(String, Option<usize>), Failure> {
    let Some(wanted) = &ask.model else { return Ok((name.to_owned(), None)) };
    if wanted == name {
        return Ok((name.to_owned(), None));
    }
    match about.adapters.iter().position(|adapter| adapter == wanted) {
        Some(handle) => Ok((wanted.clone(), Some(handle))),
        None => {
            let known: Vec<String> =
                std::iter::once(name.to_owned()).chain(about.adapters.iter().cloned()).collect();
            Err(Failure::unknown_model(wanted, &known))
        }
    }
}

/// Token ids of a text. One that cannot fit is refused by its length, since its tokens would take much time and memory.
fn encode(text: &str, about: &About) -> Result<Vec<u32>, Failure> {
    if text.len() > about.longest_text {
        return Err(Failure::too_long(&format!("{} bytes", text.len()), about.options.context));
    }
    Ok(about.model.encode(text)?)
}

/// A raw prompt: a text, or token ids.
fn tokens(prompt: &Value, about: &About) -> Result<Vec<u32>, Failure> {
    const WANTED: &str = "a text, a list of token ids, or a list of either";
    let vocabulary = about.model.config.vocab;
    match prompt {
        Value::String(text) => encode(text, about).map_err(|failure| failure.field("prompt")),
        Value::Array(ids) => ids
            .iter()
            .map(|id| match id.as_u64().and_then(|id| u32::try_from(id).ok()) {
                Some(id) if (id as usize) < vocabulary => Ok(id),
                _ => Err(wrong("prompt", &format!("{WANTED}, each below {vocabulary}"), id)),
            })
            .collect(),
        other => Err(wrong("prompt", WANTED, other)),
    }
}

fn finish(mut prepared: Prepared, about: &About) -> Result<Prepared, Failure> {
    let context = about.options.context;
    if prepared.prompts.is_empty() || prepared.prompts.iter().any(Vec::is_empty) {
        let field = if prepared.chat { "messages" } else { "prompt" };
        return Err(
            Failure::invalid(format!("`{field}` is empty: there is nothing to continue")).field(field)
        );
    }
    if let Some(long) = prepared.prompts.iter().map(Vec::len).find(|length| *length >= context) {
        return Err(Failure::too_long(&format!("{long} tokens"), context).field(if prepared.chat {
            "messages"
        } else {
            "prompt"
        }));
    }
    // An answer ends with the context at the latest, and says so (`length`).
    let sampling = &mut prepared.ask.sampling;
    sampling.max_tokens = prepared.ask.max_tokens.unwrap_or(context).min(context);
    let room = prepared.prompts.iter().map(|prompt| context.saturating_sub(prompt.len() + CLOSING)).min();
    sampling.thinking = sampling.thinking.map(|budget| budget.min(room.unwrap_or_default()));
    Ok(prepared)
}

impl Prepared {
    /// Number of choices of all prompts.
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.ask.n as usize
    }

    /// The calls, in the order of the choices; ids are counted from `first_id`. A stream is named by the seed, the
    /// prompt and the number of the choice: two models that are asked the same draw the same numbers.
    pub fn calls(&self, seed: i64, first_id: u64) -> Vec<Request> {
        let mut out = Vec::with_capacity(self.choices());
        for prompt in &self.prompts {
            let task_id = format!("serve {}", tokens_sha256(prompt));
            for rollout in 0..self.ask.n {
                out.push(Request {
                    id: first_id + out.len() as u64,
                    tokens: prompt.clone(),
                    adapter: self.adapter,
                    sampling: self.ask.sampling.clone(),
                    stream: Stream { seed: seed as u64, task_id: task_id.clone(), rollout, turn: 0 },
                });
            }
        }
        out
    }
}
