//! The settings of a request, read from its body: what chat and raw completions have in common.
//! Whatever would change the answer and cannot be honoured is refused by name.

use super::failure::Failure;
use super::fields::{Fields, wrong};
use crate::engine::Sampling;
use serde_json::{Value, json};

/// Most stop strings of a request.
pub const MOST_STOPS: usize = 16;
/// Least temperature beside 0: logits are divided by it.
const LEAST_TEMPERATURE: f32 = 1e-6;
/// Longest stop string in bytes.
pub const LONGEST_STOP: usize = 256;
/// Most alternatives that can be listed beside a sampled token.
pub const MOST_TOP_LOGPROBS: i64 = 20;

/// How to answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The model's name; `None` when the client leaves it to the server.
    pub model: Option<String>,
    /// How to draw, without the number of tokens.
    pub sampling: Sampling,
    /// Most tokens to sample, with a thinking budget those after the thought; `None` for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// The field that gave the thinking budget, which is among the settings of sampling.
    pub budget_field: Option<&'static str>,
    /// The random stream's seed; `None` for a fresh one.
    pub seed: Option<i64>,
    /// Number of choices.
    pub n: u32,
    /// Whether to send pieces as they come.
    pub stream: bool,
    /// Whether a stream ends with a count of tokens.
    pub include_usage: bool,
    /// Whether to return token ids too.
    pub token_ids: bool,
}

/// Fields that describe the caller or its billing, not the answer.
const HARMLESS: [&str; 10] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "priority",
    "cache_salt",
];

impl Ask {
    /// Takes the common fields. `most_choices` bounds `n`.
    pub fn take(fields: &mut Fields, most_choices: u32) -> Result<Ask, Failure> {
        fields.harmless(&HARMLESS);
        let zero = [json!(0), json!(0.0)];
        fields.only("presence_penalty", &zero, "tokens are drawn from the model's own distribution")?;
        fields.only("frequency_penalty", &zero, "tokens are drawn from the model's own distribution")?;
        fields.only(
            "repetition_penalty",
            &[json!(1), json!(1.0)],
            "tokens are drawn from the model's own distribution",
        )?;
        fields.only("logit_bias", &[json!({})], "tokens are drawn from the model's own distribution")?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        let mut include_usage = false;
        if let Some(options) = fields.object("stream_options")? {
            if !stream {
                return Err(Failure::invalid("`stream_options` needs `stream`").field("stream_options"));
            }
            include_usage = options.get("include_usage").and_then(Value::as_bool).unwrap_or(false);
        }
        // The bounds keep every value within f32 and usize.
        let sampling = Sampling {
            temperature: fields.number("temperature", 0.0, 100.0)?.unwrap_or(1.0) as f32,
            top_k: fields.integer("top_k", -1, i64::from(u32::MAX))?.unwrap_or(0).max(0) as usize,
            top_p: fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0) as f32,
            min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(0.0) as f32,
            stop: stops(fields.take("stop"))?,
            ..Sampling::greedy(1)
        };
        if sampling.temperature != 0.0 && sampling.temperature < LEAST_TEMPERATURE {
            let what =
                format!("`temperature` is neither 0, which is greedy, nor at least {LEAST_TEMPERATURE}");
            return Err(Failure::invalid(what).field("temperature"));
        }
        if sampling.top_p == 0.0 {
            return Err(Failure::invalid("`top_p` is 0: no token would be left").field("top_p"));
        }
        Ok(Ask {
            model: fields.text("model")?,
            sampling,
            max_tokens: None,
            budget_field: None,
            seed: fields.integer("seed", i64::MIN, i64::MAX)?,
            n: fields.integer("n", 1, i64::from(most_choices))?.unwrap_or(1) as u32,
            stream,
            include_usage,
            token_ids: fields.flag("return_token_ids")?.unwrap_or(false),
        })
    }

    /// Takes the fields that only chat has.
    pub fn take_chat(&mut self, fields: &mut Fields) -> Result<(), Failure> {
        let old = tokens(fields, "max_tokens")?;
        let new = tokens(fields, "max_completion_tokens")?;
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            return Err(Failure::invalid(format!(
                "`max_tokens` is {old}, `max_completion_tokens` {new}: send one of them"
            ))
            .field("max_completion_tokens"));
        }
        self.max_tokens = new.or(old);
        // The second is vLLM's name for the same thing.
        for field in ["thinking_budget", "thinking_token_budget"] {
            let Some(budget) = fields.integer(field, 0, i64::from(u32::MAX))? else { continue };
            match self.sampling.thinking.replace(budget as usize) {
                Some(before) if before != budget as usize => {
                    let what = format!("`thinking_budget` is {before}, `{field}` {budget}: send one of them");
                    return Err(Failure::invalid(what).field(field));
                }
                _ => self.budget_field = Some(field),
            }
        }
        self.sampling.logprobs = fields.flag("logprobs")?.unwrap_or(false);
        if let Some(top) = fields.integer("top_logprobs", 0, MOST_TOP_LOGPROBS)? {
            if !self.sampling.logprobs && top > 0 {
                return Err(Failure::invalid("`top_logprobs` needs `logprobs`").field("top_logprobs"));
            }
            self.sampling.top_logprobs = top as usize;
        }
        let why = "answers are free text; ask for the form in the prompt and check the answer";
        fields.only("response_format", &[json!({"type": "text"})], why)?;
        fields.only("modalities", &[json!(["text"])], "there is text only")?;
        fields.only("audio", &[], "there is text only")?;
        fields.only(
            "reasoning_effort",
            &[],
            "use `chat_template_kwargs`, such as {\"enable_thinking\": false}",
        )?;
        fields.only("verbosity", &[], "ask for it in the prompt")?;
        fields.only("prediction", &[], "leave it out")?;
        fields.only("web_search_options", &[], "leave it out")?;
        fields.only("functions", &[], "send `tools`")?;
        fields.only("function_call", &[json!("none")], "send `tools` and `tool_choice`")
    }

    /// Takes the fields that only raw completions have.
    pub fn take_raw(&mut self, fields: &mut Fields) -> Result<(), Failure> {
        self.max_tokens = Some(tokens(fields, "max_tokens")?.unwrap_or(16));
        if let Some(top) = fields.integer("logprobs", 0, MOST_TOP_LOGPROBS)? {
            self.sampling.logprobs = true;
            self.sampling.top_logprobs = top as usize;
        }
        fields.only("echo", &[json!(false)], "the prompt is not returned, nor are its log-probabilities")?;
        fields.only("suffix", &[json!("")], "models here write on from the prompt's end only")?;
        fields.only("best_of", &[json!(self.n)], "every choice is returned; use `n`")
    }
}

fn tokens(fields: &mut Fields, key: &'static str) -> Result<Option<usize>, Failure> {
    Ok(fields.integer(key, 1, i64::from(u32::MAX))?.map(|n| n as usize))
}

fn stops(value: Option<Value>) -> Result<Vec<String>, Failure> {
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    let wanted = format!("a text, or a list of at most {MOST_STOPS}, each of 1 to {LONGEST_STOP} bytes");
    if list.len() > MOST_STOPS {
        return Err(Failure::invalid(format!("`stop` is not {wanted}: {} texts", list.len())).field("stop"));
    }
    list.into_iter()
        .map(|item| match item {
            Value::String(text) if (1..=LONGEST_STOP).contains(&text.len()) => Ok(text),
            other => Err(wrong("stop", &wanted, &other)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(value: Value) -> Result<Ask, Failure> {
        let mut fields = Fields::parse(value.to_string().as_bytes())?;
        let mut ask = Ask::take(&mut fields, 8)?;
        ask.take_chat(&mut fields)?;
        fields.end().map(|()| ask)
    }

    #[test]
    fn settings_are_read_and_defaults_are_those_of_the_api() {
        let ask = chat(json!({})).unwrap();
        assert_eq!((ask.n, ask.seed, ask.max_tokens, ask.stream), (1, None, None, false));
        assert_eq!((ask.sampling.temperature, ask.sampling.top_p, ask.sampling.logprobs), (1.0, 1.0, false));
        let ask = chat(json!({
            "model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "seed": -1, "n": 3,
            "stop": "x", "max_completion_tokens": 7, "max_tokens": 7, "logprobs": true, "top_logprobs": 0,
            "stream": true, "stream_options": {"include_usage": true}, "user": "me", "presence_penalty": 0.0,
            "logit_bias": {}, "response_format": {"type": "text"}, "metadata": {"a": 1}, "tools": null,
        }))
        .unwrap();
        assert_eq!((ask.n, ask.seed, ask.max_tokens), (3, Some(-1), Some(7)));
        assert_eq!((ask.sampling.stop, ask.sampling.top_k), (vec!["x".to_owned()], 0));
        assert!(ask.stream && ask.include_usage && ask.sampling.logprobs);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (body, field) in [
            (json!({"response_format": {"type": "json_object"}}), "response_format"),
            (json!({"logit_bias": {"1": 5}}), "logit_bias"),
            (json!({"presence_penalty": 0.5}), "presence_penalty"),
            (json!({"repetition_penalty": 1.1}), "repetition_penalty"),
            (json!({"reasoning_effort": "low"}), "reasoning_effort"),
            (json!({"functions": []}), "functions"),
            (json!({"n": 9}), "n"),
            (json!({"n": 0}), "n"),
            (json!({"temperature": -1}), "temperature"),
            (json!({"temperature": "hot"}), "temperature"),
            (json!({"temperature": 1e-45}), "temperature"),
            (json!({"top_p": 0}), "top_p"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"max_tokens": 1, "max_completion_tokens": 2}), "max_completion_tokens"),
            (json!({"top_logprobs": 21, "logprobs": true}), "top_logprobs"),
            (json!({"top_logprobs": 2}), "top_logprobs"),
            (json!({"stop": [""]}), "stop"),
            (json!({"stop": 5}), "stop"),
            (json!({"stop": vec!["x"; 17]}), "stop"),
            (json!({"stream_options": {}}), "stream_options"),
            (json!({"seed": 1.5}), "seed"),
            (json!({"ignore_eos": true}), "ignore_eos"),
            (json!({"thinking_budget": -1}), "thinking_budget"),
            (json!({"thinking_budget": 1, "thinking_token_budget": 2}), "thinking_token_budget"),
        ] {
            let failure = chat(body.clone()).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some(field), "{body}: {}", failure.message);
            assert!(failure.message.contains(field), "{}", failure.message);
        }
    }
}
