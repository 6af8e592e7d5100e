//! What goes over the wire: the body of a chat completion, and what an answer must hold. A context
//! is the conversation itself, kept as bytes where the trait has token ids.

use super::http::Failure;
use crate::engine::{Finish, Sampling, Stream};
use crate::environment::Message;
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};

/// A conversation as a context.
pub fn pack(messages: &[Message]) -> Result<Vec<u32>> {
    let text = serde_json::to_string(messages).map_err(|e| Error::invalid(e.to_string()))?;
    Ok(text.bytes().map(u32::from).collect())
}

/// The conversation of a context.
pub fn unpack(context: &[u32]) -> Result<Vec<Message>> {
    serde_json::from_str(&text_of(context)?)
        .map_err(|e| Error::invalid(format!("the context is not one that this endpoint rendered: {e}")))
}

/// Text of bytes that stand where token ids would.
pub fn text_of(bytes: &[u32]) -> Result<String> {
    let bytes: Option<Vec<u8>> = bytes.iter().map(|byte| u8::try_from(*byte).ok()).collect();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| Error::invalid("the context holds token ids, and an endpoint takes conversations"))
}

/// The seed of a call: the same in every arm, and one that every server can hold.
pub fn seed(stream: &Stream) -> u32 {
    let name = format!("{}/{}/{}/{}", stream.seed, stream.task_id, stream.rollout, stream.turn);
    let hash = crate::hash::sha256_hex(name.as_bytes());
    u32::from_str_radix(&hash[..8], 16).unwrap_or_default() >> 1
}

/// The body of a request.
pub fn body(
    model: &str,
    messages: &[Message],
    sampling: &Sampling,
    seed: u32,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>> {
    let real = |x: f32| x.to_string().parse::<f64>().unwrap_or_else(|_| f64::from(x));
    let mut body = json!({
        "model": model, "messages": messages, "stream": false, "n": 1, "seed": seed, "max_tokens": sampling.max_tokens,
        "temperature": real(sampling.temperature), "top_p": real(sampling.top_p),
    });
    if !sampling.stop.is_empty() {
        body["stop"] = json!(sampling.stop);
    }
    if sampling.top_k > 0 {
        body["top_k"] = json!(sampling.top_k);
    }
    if sampling.min_p > 0.0 {
        body["min_p"] = json!(real(sampling.min_p));
    }
    if let Some(body) = body.as_object_mut() {
        for (key, value) in extra {
            body.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    serde_json::to_vec(&body).map_err(|e| Error::invalid(e.to_string()))
}

/// What is read of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the model said.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// The model that answered, by the server's word.
    pub model: Option<String>,
    /// The server's build, by its own word.
    pub fingerprint: Option<String>,
    /// Tokens of context.
    pub prompt_tokens: Option<usize>,
    /// Tokens written.
    pub completion_tokens: Option<usize>,
}

impl Answer {
    /// Reads a body. What is cut or is no JSON may come right the next time; what is whole and is no chat
    /// completion will not.
    pub fn read(bytes: &[u8]) -> Result<Answer, Failure> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|e| Failure::again(format!("the answer is not JSON: {e}")))?;
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            return Err(Failure::again(format!(
                "the server answered an error: {}",
                short(&error.to_string())
            )));
        }
        let alien = |what: &str| {
            Failure::stop(
                format!("the answer is no chat completion: {what}: {}", short(&value.to_string())),
                "does the address end in `/v1`, and is the server OpenAI-compatible?",
            )
        };
        let choice =
            value.get("choices").and_then(|c| c.get(0)).ok_or_else(|| alien("it has no `choices`"))?;
        let message = choice.get("message").ok_or_else(|| alien("it has no `message`"))?;
        let text = match message.get("content") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(_) => return Err(alien("its `content` is not text")),
        };
        let finish = match choice.get("finish_reason").and_then(Value::as_str) {
            Some("stop") | None => Finish::Stop,
            Some("length") => Finish::Length,
            Some(other) => {
                return Err(Failure::stop(
                    format!("the answer ended with `{}`", short(other)),
                    "only `stop` and `length` are answers: switch off filters and tools for this model",
                ));
            }
        };
        let named =
            |key: &str| value.get(key).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
        let count = |key: &str| value.get("usage")?.get(key)?.as_u64().and_then(|n| usize::try_from(n).ok());
        Ok(Answer {
            text,
            finish,
            model: named("model"),
            fingerprint: named("system_fingerprint"),
            prompt_tokens: count("prompt_tokens"),
            completion_tokens: count("completion_tokens"),
        })
    }
}

/// The start of a text, for a message: what a server says is data, so that control characters are dropped.
pub fn short(text: &str) -> String {
    let mut out: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    if text.chars().nth(300).is_some() {
        out.push('…');
    }
    out
}
