//! One choice of an answer while it grows: sampled tokens in, deltas and log-probability entries
//! out. Answers that are streamed and answers that are not take this same road.

use super::actor::Outcome;
use super::split::{Delta, Splitter};
use super::text::TextStream;
use crate::engine::{Finish, Likeliest};
use crate::error::Result;
use crate::model::Model;
use crate::model::tokenizer::byte_characters;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Tokens that a step of the engine added to a choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampled {
    /// Their ids.
    pub ids: Vec<u32>,
    /// Their log-probabilities, when asked for.
    pub logprobs: Vec<f32>,
    /// The most likely ids in the place of each, when asked for.
    pub top_logprobs: Vec<Likeliest>,
}

/// A growing choice.
pub struct Choice {
    model: Arc<Model>,
    text: TextStream,
    /// Raw completions are not cut into parts.
    splitter: Option<Splitter>,
    /// Tokens sampled so far.
    pub count: usize,
    /// Those of them in its thought, between the markers.
    pub thought_tokens: usize,
    /// Tokens of its prompt that were taken over from another computation, once it has ended.
    pub shared_tokens: Option<usize>,
    /// Tools called so far.
    pub calls: usize,
    /// Characters of the tokens reported so far, as raw completions count them.
    pub offset: usize,
    /// Tokens that were not reported yet, with their log-probabilities when asked for.
    unreported: Sampled,
}

impl Choice {
    /// A choice that ends before the first of `stops`.
    pub fn new(model: Arc<Model>, stops: Vec<String>, splitter: Option<Splitter>) -> Self {
        Choice {
            model,
            text: TextStream::new(stops),
            splitter,
            count: 0,
            thought_tokens: 0,
            shared_tokens: None,
            calls: 0,
            offset: 0,
            unreported: Sampled::default(),
        }
    }

    /// Takes what a step added.
    pub fn push(&mut self, sampled: Sampled) -> Result<Vec<Delta>> {
        let model = self.model.clone();
        let mut deltas = Vec::new();
        for id in &sampled.ids {
            let piece = self.text.push(*id, &|ids| model.decode(ids, true))?;
            let inside = self.thinking();
            deltas.extend(self.split(&piece, false));
            self.thought_tokens += usize::from(inside && self.thinking());
        }
        self.count += sampled.ids.len();
        self.unreported.ids.extend(sampled.ids);
        self.unreported.logprobs.extend(sampled.logprobs);
        self.unreported.top_logprobs.extend(sampled.top_logprobs);
        Ok(deltas)
    }

    fn thinking(&self) -> bool {
        self.splitter.as_ref().is_some_and(Splitter::thinking)
    }

    /// No token follows.
    pub fn end(&mut self, outcome: &Outcome) -> Result<Vec<Delta>> {
        self.shared_tokens = outcome.shared_tokens;
        if let Some(thought) = outcome.thought {
            // What closes a thought by force may begin inside it; the engine knows.
            self.thought_tokens = thought.tokens;
        }
        self.finish()
    }

    fn finish(&mut self) -> Result<Vec<Delta>> {
        let model = self.model.clone();
        let piece = self.text.finish(&|ids| model.decode(ids, true))?;
        Ok(self.split(&piece, true))
    }

    fn split(&mut self, piece: &str, last: bool) -> Vec<Delta> {
        let deltas = match &mut self.splitter {
            None if piece.is_empty() => Vec::new(),
            None => vec![Delta::Content(piece.to_owned())],
            Some(splitter) => {
                let mut deltas = if piece.is_empty() { Vec::new() } else { splitter.push(piece) };
                if last {
                    deltas.extend(splitter.finish());
                }
                deltas
            }
        };
        self.calls += deltas.iter().filter(|delta| matches!(delta, Delta::Call(_))).count();
        deltas
    }

    /// The API's word for why the choice ended.
    pub fn reason(&self, finish: Finish) -> &'static str {
        match finish {
            Finish::Length => "length",
            Finish::Stop if self.calls > 0 => "tool_calls",
            Finish::Stop => "stop",
        }
    }

    /// Takes the tokens that were not reported yet.
    pub fn report(&mut self) -> Sampled {
        std::mem::take(&mut self.unreported)
    }
}

/// Entries of chat's `logprobs.content`: one for each sampled token, the end-of-turn token included.
pub fn chat_logprobs(model: &Model, sampled: &Sampled) -> Result<Vec<Value>> {
    let spell = |id: u32, logprob: f32| {
        let (token, bytes) = spelled(model, id)?;
        Ok(json!({"token": token, "logprob": number(logprob), "bytes": bytes}))
    };
    let entry = |(at, (id, logprob)): (usize, (&u32, &f32))| {
        let top = sampled.top_logprobs.get(at).map_or(&[][..], |top| top);
        let top: Vec<Value> = top.iter().map(|(id, logprob)| spell(*id, *logprob)).collect::<Result<_>>()?;
        let mut entry = spell(*id, *logprob)?;
        entry["top_logprobs"] = top.into();
        Ok(entry)
    };
    sampled.ids.iter().zip(&sampled.logprobs).enumerate().map(entry).collect()
}

/// A log-probability as JSON can hold it: a probability that rounds to zero has the lowest number, a token that was
/// put in by force none.
pub fn number(logprob: f32) -> Option<f32> {
    (!logprob.is_nan()).then_some(logprob.max(f32::MIN))
}

/// A token as text, and its bytes where they are known: part of a character has no text of its own.
pub fn spelled(model: &Model, id: u32) -> Result<(String, Option<Vec<u8>>)> {
    let text = model.decode(&[id], false)?;
    if !text.contains(char::REPLACEMENT_CHARACTER) {
        let bytes = text.as_bytes().to_vec();
        return Ok((text, Some(bytes)));
    }
    static BYTES: OnceLock<HashMap<char, u8>> = OnceLock::new();
    let table = BYTES.get_or_init(|| byte_characters().into_iter().zip(0..=255).collect());
    let written = model.tokenizer()?.token(id).unwrap_or_default();
    let bytes = written.chars().map(|c| table.get(&c).copied()).collect();
    Ok((text, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TinySpec;
    use crate::serve::split::Message;
    use proptest::prelude::*;

    fn model() -> Arc<Model> {
        static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
        let make = || {
            let merges =
                crate::model::tiny::learn_merges(&["<think> </think> <tool_call> </tool_call>".into()], 30);
            let spec = TinySpec { layers: 1, hidden: 8, merges: merges.unwrap(), ..TinySpec::default() };
            Arc::new(Model::tiny(&spec).unwrap())
        };
        MODEL.get_or_init(make).clone()
    }

    #[test]
    fn parts_of_characters_have_bytes() {
        let model = model();
        let ids = model.encode("é").unwrap();
        assert_eq!(spelled(&model, ids[0]).unwrap(), ("\u{fffd}".to_owned(), Some(vec![0xc3])));
        assert_eq!(spelled(&model, 2).unwrap().0, "<|im_end|>");
        assert_eq!((number(f32::NEG_INFINITY), number(f32::NAN)), (Some(f32::MIN), None));
    }

    fn message(ids: &[u32], together: &[usize], stops: &[String], tools: &[Value]) -> Message {
        let splitter = Splitter::new(false, tools.to_vec());
        let mut choice = Choice::new(model(), stops.to_vec(), Some(splitter));
        let mut message = Message::default();
        let (mut at, mut sizes) = (0, together.iter().cycle());
        while at < ids.len() {
            let end = (at + sizes.next().unwrap()).min(ids.len());
            let sampled = Sampled { ids: ids[at..end].to_vec(), ..Sampled::default() };
            choice.push(sampled).unwrap().into_iter().for_each(|delta| message.add(delta));
            at = end;
        }
        choice.finish().unwrap().into_iter().for_each(|delta| message.add(delta));
        assert_eq!(choice.report().ids, ids);
        message
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_stream_says_what_the_whole_says(
            parts in proptest::collection::vec(prop_oneof![
                Just("<think>".to_owned()), Just("</think>\n".to_owned()), Just("<tool_call>".to_owned()), Just("</tool_call>".to_owned()),
                Just("{\"name\": \"f\"}".to_owned()), Just(" \n".to_owned()), "[aé🦀END]{0,5}"], 0..8),
            noise in proptest::collection::vec(3u32..259, 0..4),
            together in proptest::collection::vec(1usize..5, 1..6),
            stop in proptest::option::of("[ED🦀]{1,2}"),
            with_tools: bool,
        ) {
            let tools = if with_tools { vec![json!({"type": "function", "function": {"name": "f"}})] } else { Vec::new() };
            let stops: Vec<String> = stop.into_iter().collect();
            let mut ids = model().encode(&parts.concat()).unwrap();
            ids.extend(noise);
            ids.push(2);
            // The whole text at once, decoded and cut as the engine does.
            let whole = model().decode(&ids, true).unwrap();
            let cut = stops.iter().filter_map(|s| whole.find(s.as_str())).min().unwrap_or(whole.len());
            let mut splitter = Splitter::new(false, tools.clone());
            let mut wanted = Message::default();
            splitter.push(&whole[..cut]).into_iter().for_each(|delta| wanted.add(delta));
            splitter.finish().into_iter().for_each(|delta| wanted.add(delta));
            prop_assert_eq!(message(&ids, &together, &stops, &tools), wanted);
        }
    }
}
