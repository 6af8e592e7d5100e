//! Who a server is: what it lists of the model, and what one short call shows. Of this the identity
//! is made, by which runs are resumed and pairs kept together; the address is no part of it, so that
//! a server may move.

use super::http::{Caller, Failure};
use super::wire::{self, Answer, short};
use crate::engine::{Identity, Sampling};
use crate::environment::Message;
use crate::error::{Error, Result, nearest};
use serde_json::{Map, Value, json};
use std::sync::atomic::AtomicBool;

/// Raised whenever requests are made in another way.
const VERSION: u32 = 1;
/// What a listed model says that stays the same from start to start.
const LASTING: [&str; 6] = ["id", "owned_by", "root", "parent", "max_model_len", "meta"];
/// The prompt of the first call.
const PROBE: &str = "Reply with the word ready.";
/// Names shown of a server's list.
const SHOWN: usize = 8;

/// What was found out.
pub struct Described {
    model: String,
    /// Lasting members of the model's entry; only the id where the server lists nothing.
    listed: Value,
    /// The model that answers, by the server's word.
    answers_as: Option<String>,
    fingerprint: Option<String>,
    /// Whether the fingerprint must stay.
    holds_fingerprint: bool,
    extra: Map<String, Value>,
}

/// Asks a server. `count` is our own count of a prompt's tokens.
pub fn describe(
    caller: &Caller,
    url: &str,
    model: &str,
    extra: Map<String, Value>,
    holds_fingerprint: bool,
    count: Option<&(dyn Fn(&[Message]) -> Result<usize> + Send)>,
) -> Result<Described> {
    let go = AtomicBool::new(false);
    let listed = entry(caller, url, model)?;
    let messages = [Message::user(PROBE)];
    let body = wire::body(model, &messages, &Sampling::greedy(1), 1, &extra)?;
    let answer = caller
        .call(&format!("{url}/chat/completions"), Some(&body), &go, &Answer::read)
        .map_err(|failure| failure.into_error(url))?;
    if let Some(count) = count {
        let ours = count(&messages)?;
        match answer.prompt_tokens {
            Some(theirs) if theirs == ours => {}
            Some(theirs) => {
                return Err(Error::refused(format!(
                    "the server counts {theirs} tokens in a prompt of which our rendering has {ours}"
                ))
                .hint("it uses another chat template or tokenizer than `source`: start it with the model's own, or set `count_tokens = false`"));
            }
            None => {
                return Err(Error::refused("the server does not count the tokens of a prompt (`usage`)")
                    .hint("set `count_tokens = false` to run without this check"));
            }
        }
    }
    Ok(Described {
        model: model.to_owned(),
        listed,
        answers_as: answer.model,
        fingerprint: answer.fingerprint,
        holds_fingerprint,
        extra,
    })
}

/// What the server lists of the model. A server without a list is believed.
fn entry(caller: &Caller, url: &str, model: &str) -> Result<Value> {
    let read = |bytes: &[u8]| -> Result<Value, Failure> {
        serde_json::from_slice(bytes)
            .map_err(|e| Failure::again(format!("the list of models is not JSON: {e}")))
    };
    let list = caller
        .call(&format!("{url}/models"), None, &AtomicBool::new(false), &read)
        .map_err(|failure| failure.into_error(url))?;
    let entries: &[Value] = list.get("data").and_then(Value::as_array).map_or(&[], Vec::as_slice);
    let named = |entry: &Value| entry.get("id").and_then(Value::as_str).map(str::to_owned);
    let found = entries.iter().find(|entry| named(entry).as_deref() == Some(model));
    match found {
        Some(entry) => {
            let lasting = LASTING.iter().filter_map(|key| Some((key.to_string(), entry.get(*key)?.clone())));
            Ok(Value::Object(lasting.filter(|(_, value)| !value.is_null()).collect()))
        }
        None if entries.is_empty() => Ok(json!({ "id": model })),
        None => {
            let names: Vec<String> = entries.iter().filter_map(named).map(|name| short(&name)).collect();
            let hint = match nearest(model, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    format!("it serves: {}", names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", "))
                }
            };
            Err(Error::refused(format!("the server does not serve `{model}`")).hint(hint))
        }
    }
}

impl Described {
    /// All of it, as JSON.
    pub fn as_json(&self) -> Value {
        json!({ "model": self.of_model(), "engine": self.of_engine() })
    }

    fn of_model(&self) -> Value {
        json!({ "endpoint": VERSION, "listed": self.listed, "answers_as": self.answers_as })
    }

    /// What two arms on one server share, whichever models they ask for.
    fn of_engine(&self) -> Value {
        let fingerprint = self.fingerprint.as_ref().filter(|_| self.holds_fingerprint);
        json!({
            "endpoint": VERSION, "owned_by": self.listed.get("owned_by"), "system_fingerprint": fingerprint, "extra": self.extra,
        })
    }

    /// The identity that rows carry.
    pub fn identity(&self) -> Result<Identity> {
        Ok(Identity {
            model_sha256: crate::hash::sha256_json(&self.of_model())?,
            dtype: None,
            slots: None,
            engine_sha256: crate::hash::sha256_json(&self.of_engine())?,
        })
    }

    /// The body of a request.
    pub fn body(&self, messages: &[Message], sampling: &Sampling, seed: u32) -> Result<Vec<u8>> {
        wire::body(&self.model, messages, sampling, seed, &self.extra)
    }

    /// Refuses an answer of another model or build than the first one.
    pub fn still_holds(&self, answer: &Answer) -> Result<(), Failure> {
        let shown =
            |name: &Option<String>| name.as_ref().map_or("none".into(), |name| format!("`{}`", short(name)));
        if answer.model != self.answers_as {
            return Err(Failure::stop(
                format!(
                    "another model answers: {} at first, {} now",
                    shown(&self.answers_as),
                    shown(&answer.model)
                ),
                "rows of two models never mix: serve the first one again, then run the same command",
            ));
        }
        if self.holds_fingerprint && answer.fingerprint != self.fingerprint {
            return Err(Failure::stop(
                format!(
                    "the server changed: its fingerprint was {}, now {}",
                    shown(&self.fingerprint),
                    shown(&answer.fingerprint)
                ),
                "run it as it was, or, where a server is spread over several builds, plan with `fingerprint = false`",
            ));
        }
        Ok(())
    }
}
