//! The bodies of answers in the API's shapes: whole ones and the pieces of a stream, for chat and
//! for raw completions.

use super::choice::{Choice, Sampled, chat_logprobs, number, spelled};
use super::split::{Delta, Message};
use super::tools::ToolCall;
use crate::engine::Likeliest;
use crate::error::Result;
use crate::model::Model;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// A response that carries JSON.
pub fn json_body(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// What every body of one answer begins with.
#[derive(Debug, Clone)]
pub struct Head {
    /// The answer's id.
    pub id: String,
    /// Whether it is of a chat or of a raw completion.
    pub chat: bool,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name, as asked for.
    pub model: String,
    /// The start of the engine's hash: rows of one fingerprint can be compared.
    pub fingerprint: String,
    /// The seed of the random streams: with it, the same request gives the same answer.
    pub seed: i64,
    /// Whether log-probabilities are returned too.
    pub logprobs: bool,
    /// Whether token ids are returned too.
    pub token_ids: bool,
}

/// Counts of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of all prompts.
    pub prompt: usize,
    /// Those of them that were taken over from earlier calls.
    pub shared: Option<usize>,
    /// Tokens of all choices.
    pub completion: usize,
    /// Those of them in thoughts; unknown for raw completions, which are not cut into parts.
    pub thought: Option<usize>,
}

impl Usage {
    fn body(self) -> Value {
        let total = self.prompt + self.completion;
        let mut body = json!({"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total});
        if let Some(shared) = self.shared {
            body["prompt_tokens_details"] = json!({"cached_tokens": shared});
        }
        if let Some(thought) = self.thought {
            body["completion_tokens_details"] = json!({"reasoning_tokens": thought});
        }
        body
    }
}

impl Head {
    fn body(&self, object: &str, choices: Vec<Value>) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("id".into(), self.id.as_str().into());
        body.insert("object".into(), object.into());
        body.insert("created".into(), self.created.into());
        body.insert("model".into(), self.model.as_str().into());
        body.insert("system_fingerprint".into(), self.fingerprint.as_str().into());
        body.insert("seed".into(), self.seed.into());
        body.insert("choices".into(), choices.into());
        body
    }

    /// The body of an answer that is not streamed.
    pub fn whole(&self, choices: Vec<Value>, usage: Usage) -> Value {
        let object = if self.chat { "chat.completion" } else { "text_completion" };
        let mut body = self.body(object, choices);
        body.insert("usage".into(), usage.body());
        Value::Object(body)
    }

    /// One event of a stream; `usage` is a field when the client asked for it, null in all but the last.
    pub fn chunk(&self, choices: Vec<Value>, usage: Option<Option<Usage>>) -> Value {
        let object = if self.chat { "chat.completion.chunk" } else { "text_completion" };
        let mut body = self.body(object, choices);
        if let Some(usage) = usage {
            body.insert("usage".into(), usage.map_or(Value::Null, Usage::body));
        }
        Value::Object(body)
    }

    /// A choice of an answer that is not streamed, once it has ended.
    pub fn choice(
        &self,
        model: &Model,
        index: usize,
        choice: &mut Choice,
        message: &Message,
        reason: &str,
    ) -> Result<Value> {
        let mut out = if self.chat {
            json!({"index": index, "message": self.message(index, message)})
        } else {
            json!({"index": index, "text": message.content})
        };
        self.report(model, choice, &mut out)?;
        out["finish_reason"] = reason.into();
        Ok(out)
    }

    fn message(&self, index: usize, message: &Message) -> Value {
        let content = match message.content.is_empty() && !message.calls.is_empty() {
            true => Value::Null,
            false => message.content.as_str().into(),
        };
        let mut out = json!({"role": "assistant", "content": content, "refusal": null});
        if !message.reasoning.is_empty() {
            out["reasoning_content"] = message.reasoning.as_str().into();
        }
        if !message.calls.is_empty() {
            let calls = message.calls.iter().enumerate();
            out["tool_calls"] = calls.map(|(at, call)| self.call(index, at, call)).collect();
        }
        out
    }

    fn call(&self, index: usize, at: usize, call: &ToolCall) -> Value {
        let answer = self.id.trim_start_matches("chatcmpl-");
        json!({"id": format!("call_{answer}_{index}_{at}"), "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}})
    }

    /// The first piece of a streamed chat choice: who speaks.
    pub fn opening(&self, index: usize) -> Value {
        json!({"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null})
    }

    /// The pieces of a streamed choice after some deltas; the first carries what is to be said of the new
    /// tokens. With a `reason`, the last says why the choice ended.
    pub fn pieces(
        &self,
        model: &Model,
        index: usize,
        choice: &mut Choice,
        deltas: Vec<Delta>,
        reason: Option<&str>,
    ) -> Result<Vec<Value>> {
        let mut out = Vec::new();
        let mut calls = choice.calls - deltas.iter().filter(|d| matches!(d, Delta::Call(_))).count();
        for delta in deltas {
            out.push(match delta {
                Delta::Content(text) if self.chat => json!({"index": index, "delta": {"content": text}}),
                Delta::Content(text) => json!({"index": index, "text": text}),
                Delta::Reasoning(text) => json!({"index": index, "delta": {"reasoning_content": text}}),
                Delta::Call(call) => {
                    let mut call = self.call(index, calls, &call);
                    call["index"] = calls.into();
                    calls += 1;
                    json!({"index": index, "delta": {"tool_calls": [call]}})
                }
            });
        }
        if reason.is_some() {
            let end = if self.chat {
                json!({"index": index, "delta": {}})
            } else {
                json!({"index": index, "text": ""})
            };
            out.push(end);
        }
        let last = out.len().saturating_sub(1);
        for (at, piece) in out.iter_mut().enumerate() {
            match at {
                0 => self.report(model, choice, piece)?,
                _ => piece["logprobs"] = Value::Null,
            }
            piece["finish_reason"] = reason.filter(|_| at == last).into();
        }
        Ok(out)
    }

    /// Adds what is asked of the tokens that were not reported yet: log-probabilities, ids.
    fn report(&self, model: &Model, choice: &mut Choice, out: &mut Value) -> Result<()> {
        let sampled = choice.report();
        out["logprobs"] = match (self.logprobs, self.chat) {
            (false, _) => Value::Null,
            (true, true) => json!({"content": chat_logprobs(model, &sampled)?, "refusal": null}),
            (true, false) => raw_logprobs(model, &sampled, &mut choice.offset)?,
        };
        if self.token_ids {
            out["token_ids"] = json!(sampled.ids);
        }
        Ok(())
    }
}

/// The older shape of log-probabilities; `offset` counts the characters of the tokens before.
fn raw_logprobs(model: &Model, sampled: &Sampled, offset: &mut usize) -> Result<Value> {
    let (mut tokens, mut offsets) = (Vec::new(), Vec::new());
    for id in &sampled.ids {
        let (token, _) = spelled(model, *id)?;
        offsets.push(*offset);
        *offset += token.chars().count();
        tokens.push(token);
    }
    let numbers: Vec<Option<f32>> = sampled.logprobs.iter().map(|x| number(*x)).collect();
    let top = |top: &Likeliest| -> Result<Value> {
        top.iter()
            .map(|(id, x)| Ok((spelled(model, *id)?.0, json!(number(*x)))))
            .collect::<Result<Map<_, _>>>()
            .map(Value::Object)
    };
    let tops: Vec<Value> = sampled.top_logprobs.iter().map(top).collect::<Result<_>>()?;
    let tops = if tops.is_empty() { Value::Null } else { tops.into() };
    Ok(json!({"tokens": tokens, "token_logprobs": numbers, "top_logprobs": tops, "text_offset": offsets}))
}
