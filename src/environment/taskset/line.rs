//! One line of a task set: its fields, each checked, into a task with its verifier. What does not
//! fit is named with the field; an unknown field is refused, since it would be ignored in silence.

use super::decimal::Decimal;
use super::verify::{Verifier, letter};
use crate::environment::{Message, Role};
use crate::error::{Error, Result, nearest};
use regex::RegexBuilder;
use serde_json::{Map, Value};

/// Most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;
/// Most messages of a conversation.
const MOST_MESSAGES: usize = 256;
/// Longest id, family name and stratum, in characters.
const MOST_NAME: usize = 128;
/// Options that a letter can name.
const MOST_OPTIONS: usize = 26;

/// Which side a line is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Split {
    /// May be harvested and trained on.
    Train,
    /// Is only ever evaluated.
    HeldOut,
}

impl Split {
    /// As written in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::HeldOut => "held_out",
        }
    }
}

/// A task of a file.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its own id, or `t-` and the start of the hash of what it asks and of the answer.
    pub id: String,
    /// Whether the line writes its id.
    pub has_id: bool,
    /// The conversation that it opens with; the last message is the user's.
    pub messages: Vec<Message>,
    /// Kind of task.
    pub family: String,
    /// Difficulty, 1 to 4.
    pub level: u8,
    /// Which side it is on.
    pub split: Split,
    /// How it is scored.
    pub verifier: Verifier,
    /// The line as canonical JSON, with its defaults left out.
    pub canonical: String,
}

const FIELDS: [&str; 17] = [
    "id",
    "prompt",
    "messages",
    "answer",
    "verifier",
    "family",
    "level",
    "split",
    "ignore_case",
    "tolerance",
    "relative_tolerance",
    "match",
    "example",
    "options",
    "compare",
    "paths",
    "note",
];
/// Fields that belong to some verifiers only.
const OPTIONS: [(&str, &str); 8] = [
    ("ignore_case", "exact"),
    ("tolerance", "number"),
    ("relative_tolerance", "number"),
    ("match", "regex"),
    ("example", "regex"),
    ("options", "choice"),
    ("compare", "json"),
    ("paths", "json"),
];
const VERIFIERS: [&str; 5] = ["exact", "number", "regex", "choice", "json"];

impl Line {
    /// Reads a line's text. The error names the field; the caller adds file and line number.
    pub fn parse(text: &str) -> Result<Line> {
        let value: Value = serde_json::from_str(text).map_err(|e| {
            Error::invalid(format!("is not JSON: {e}")).hint("write one JSON object on each line")
        })?;
        let Value::Object(o) = &value else {
            return Err(Error::invalid("is not a JSON object")
                .hint("write one object on each line, such as {\"prompt\": \"…\", \"answer\": \"…\"}"));
        };
        if let Some(unknown) = o.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            let hint = match nearest(unknown, FIELDS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("fields: {}", FIELDS.join(", ")),
            };
            return Err(Error::invalid(format!("unknown field `{unknown}`")).hint(hint));
        }
        let messages = messages(o)?;
        let kind = text_field(o, "verifier")?.unwrap_or("exact");
        if kind == "command" {
            return Err(Error::invalid(
                "`verifier` is \"command\", which runs a program and needs the sandbox",
            )
            .hint("this version has no sandbox: use exact, number, regex, choice or json"));
        }
        if !VERIFIERS.contains(&kind) {
            let hint = match nearest(kind, VERIFIERS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("verifiers: {}", VERIFIERS.join(", ")),
            };
            return Err(Error::invalid(format!("`verifier` is \"{kind}\", which does not exist")).hint(hint));
        }
        if let Some((field, of)) = OPTIONS.iter().find(|(field, of)| *of != kind && set(o, field).is_some()) {
            return Err(Error::invalid(format!(
                "`{field}` belongs to the verifier `{of}`, and this is `{kind}`"
            ))
            .hint("remove it, or change the verifier"));
        }
        let verifier = verifier(o, kind)?;
        let judged = verifier.judge(&verifier.oracle());
        if !judged.right {
            return Err(Error::invalid(format!(
                "`answer` cannot be given: `{}` is read as {}",
                verifier.oracle(),
                judged.parsed.map_or("nothing".into(), |text| format!("`{text}`"))
            ))
            .hint("an answer must be one that its own verifier accepts"));
        }
        let canonical = crate::hash::canonical_json(&value)?;
        let id = match name(o, "id")? {
            Some(id) => id.to_owned(),
            None => {
                let hash = crate::hash::sha256_json(&(&messages, o.get("answer"), kind))?;
                format!("t-{}", &hash[..16])
            }
        };
        let family = name(o, "family")?.unwrap_or("tasks").to_owned();
        if !family.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
            return Err(Error::invalid(format!("`family` is `{family}`, which is no name"))
                .hint("use letters, digits, `_`, `-` and `.`"));
        }
        let level = match set(o, "level") {
            None => 1,
            Some(value) => value.as_u64().filter(|level| (1..=4).contains(level)).ok_or_else(|| {
                Error::invalid(format!("`level` is {value}, which is not 1 to 4"))
                    .hint("1 is the easiest; leave it out for 1")
            })? as u8,
        };
        let split = match text_field(o, "split")? {
            None | Some("held_out") => Split::HeldOut,
            Some("train") => Split::Train,
            Some(other) => {
                return Err(Error::invalid(format!("`split` is \"{other}\""))
                    .hint("write \"train\" or \"held_out\"; a line without it is held out"));
            }
        };
        text_field(o, "note")?;
        let has_id = set(o, "id").is_some();
        Ok(Line { id, has_id, messages, family, level, split, verifier, canonical })
    }

    /// The text by which two lines ask the same: what is said, without case and spacing.
    pub fn question(&self) -> String {
        let mut out = String::new();
        for message in &self.messages {
            for word in message.content.split_whitespace() {
                out.push_str(&word.to_lowercase());
                out.push(' ');
            }
            out.push('\n');
        }
        out
    }
}

/// A field's value, unless it is missing or null.
fn set<'a>(o: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    o.get(field).filter(|value| !value.is_null())
}

fn wrong(field: &str, found: &Value, wanted: &str) -> Error {
    let mut shown = found.to_string();
    if shown.chars().count() > 60 {
        shown = shown.chars().take(60).chain(['…']).collect();
    }
    Error::invalid(format!("`{field}` is {shown}, not {wanted}")).hint("see docs/FORMATS.md, task sets")
}

fn missing(field: &str, what: &str) -> Error {
    Error::invalid(format!("`{field}` is missing")).hint(what.to_owned())
}

fn text_field<'a>(o: &'a Map<String, Value>, field: &str) -> Result<Option<&'a str>> {
    match set(o, field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(field, other, "text")),
    }
}

fn flag(o: &Map<String, Value>, field: &str) -> Result<bool> {
    match set(o, field) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(other) => Err(wrong(field, other, "true or false")),
    }
}

/// A short text on one line.
fn name<'a>(o: &'a Map<String, Value>, field: &str) -> Result<Option<&'a str>> {
    let Some(text) = text_field(o, field)? else { return Ok(None) };
    let plain = !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    if !plain || text.chars().count() > MOST_NAME {
        let shown = Value::String(text.to_owned());
        let wanted = format!("a name of 1 to {MOST_NAME} characters on one line, without spaces around it");
        return Err(wrong(field, &shown, &wanted));
    }
    Ok(Some(text))
}

fn messages(o: &Map<String, Value>) -> Result<Vec<Message>> {
    match (text_field(o, "prompt")?, set(o, "messages")) {
        (Some(_), Some(_)) => {
            Err(Error::invalid("`prompt` and `messages` are both there").hint("keep one of them"))
        }
        (None, None) => Err(missing("prompt", "write `prompt`, or `messages` for a whole conversation")),
        (Some(prompt), None) if prompt.trim().is_empty() => {
            Err(Error::invalid("`prompt` is empty").hint("write what the model is asked"))
        }
        (Some(prompt), None) => Ok(vec![Message::user(prompt)]),
        (None, Some(value)) => conversation(value),
    }
}

fn conversation(value: &Value) -> Result<Vec<Message>> {
    let items = value
        .as_array()
        .filter(|items| (1..=MOST_MESSAGES).contains(&items.len()))
        .ok_or_else(|| wrong("messages", value, &format!("a list of 1 to {MOST_MESSAGES} messages")))?;
    let mut messages: Vec<Message> = Vec::new();
    for item in items {
        let message: Message = serde_json::from_value(item.clone()).map_err(|_| {
            wrong("messages", item, "a message: {\"role\": system, user or assistant, \"content\": text}")
        })?;
        let last = messages.last().map(|m| m.role);
        let fits = match message.role {
            Role::System => last.is_none(),
            Role::User => last != Some(Role::User),
            Role::Assistant => last == Some(Role::User),
        };
        if !fits {
            return Err(Error::invalid(format!(
                "message {} of `messages` is out of turn",
                messages.len() + 1
            ))
            .hint("an optional system message, then user and assistant in turn"));
        }
        messages.push(message);
    }
    match messages.last() {
        Some(Message { role: Role::User, content }) if !content.trim().is_empty() => Ok(messages),
        _ => Err(Error::invalid("`messages` does not end with something that the user asks")
            .hint("the last message is the user's; the model's reply to it is scored")),
    }
}

fn verifier(o: &Map<String, Value>, kind: &str) -> Result<Verifier> {
    let answer = set(o, "answer")
        .or_else(|| o.get("answer").filter(|_| kind == "json"))
        .ok_or_else(|| missing("answer", "write the right answer; its form depends on the verifier"))?;
    match kind {
        "number" => number(o, answer),
        "regex" => pattern(o, answer),
        "choice" => choice(o, answer),
        "json" => json(o, answer),
        _ => {
            let text = |v: &Value| match v {
                Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
                other => Err(wrong("answer", other, "text, or a list of texts that all count")),
            };
            let accepted = match answer {
                Value::Array(items) if !items.is_empty() => items.iter().map(text).collect::<Result<_>>()?,
                one => vec![text(one)?],
            };
            Ok(Verifier::Exact { accepted, case: !flag(o, "ignore_case")? })
        }
    }
}

fn number(o: &Map<String, Value>, answer: &Value) -> Result<Verifier> {
    let wanted = match answer {
        Value::Number(number) => Decimal::single(&number.to_string()),
        Value::String(text) => Decimal::single(text),
        _ => None,
    }
    .ok_or_else(|| wrong("answer", answer, "one number"))?;
    let bound = |field: &str| match set(o, field) {
        None => Ok(0.0),
        Some(value) => value
            .as_f64()
            .filter(|bound| *bound >= 0.0 && bound.is_finite())
            .ok_or_else(|| wrong(field, value, "a number of at least 0")),
    };
    Ok(Verifier::Number { wanted, tolerance: bound("tolerance")?, relative: bound("relative_tolerance")? })
}

fn pattern(o: &Map<String, Value>, answer: &Value) -> Result<Verifier> {
    let text = answer.as_str().ok_or_else(|| wrong("answer", answer, "a pattern"))?;
    let search = match text_field(o, "match")? {
        None | Some("full") => false,
        Some("search") => true,
        Some(other) => {
            return Err(Error::invalid(format!("`match` is \"{other}\""))
                .hint("\"full\" (the whole answer, the default) or \"search\" (any part)"));
        }
    };
    let build =
        |text: &str| RegexBuilder::new(text).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build();
    let refuse = |e: regex::Error| {
        Error::invalid(format!("`answer` is no pattern: {}", e.to_string().replace('\n', " ")))
            .hint("Rust's regex syntax: no look-around and no back-references, so that none can run for ever")
    };
    // Alone first: a stray bracket must not close the one around it.
    let mut pattern = build(text).map_err(refuse)?;
    if !search {
        pattern = build(&format!(r"\A(?:{text})\z")).map_err(refuse)?;
    }
    let example = text_field(o, "example")?
        .ok_or_else(|| missing("example", "write an answer that the pattern fits: the self-test needs one"))?
        .to_owned();
    Ok(Verifier::Regex { pattern, search, example })
}

fn choice(o: &Map<String, Value>, answer: &Value) -> Result<Verifier> {
    let listed = set(o, "options").ok_or_else(|| missing("options", "list the texts of the options"))?;
    let options: Option<Vec<String>> = listed.as_array().and_then(|items| {
        let text = |v: &Value| v.as_str().map(str::to_owned).filter(|text| !text.trim().is_empty());
        items.iter().map(text).collect()
    });
    let options = options
        .filter(|options| (2..=MOST_OPTIONS).contains(&options.len()))
        .ok_or_else(|| wrong("options", listed, &format!("a list of 2 to {MOST_OPTIONS} texts")))?;
    let folded: Vec<String> = options.iter().map(|option| option.trim().to_lowercase()).collect();
    if let Some((at, twice)) = folded.iter().enumerate().find(|(at, option)| folded[..*at].contains(option)) {
        return Err(Error::invalid(format!(
            "`options` has `{twice}` twice, the second time as {}",
            letter(at)
        ))
        .hint("each option is another answer"));
    }
    let text = answer
        .as_str()
        .map(str::trim)
        .ok_or_else(|| wrong("answer", answer, "a letter or an option's text"))?;
    // An option's text counts before a letter: in a choice between letters, `A` is the option that says A.
    let by_text = folded.iter().position(|option| *option == text.to_lowercase());
    let by_letter = || (0..options.len()).find(|at| text.eq_ignore_ascii_case(&letter(*at).to_string()));
    let right = by_text.or_else(by_letter).ok_or_else(|| {
        Error::invalid(format!("`answer` is `{text}`, which is none of the options"))
            .hint(format!("write a letter from A to {}, or an option's text", letter(options.len() - 1)))
    })?;
    Ok(Verifier::Choice { options, right })
}

fn json(o: &Map<String, Value>, answer: &Value) -> Result<Verifier> {
    let subset = match text_field(o, "compare")? {
        None | Some("equal") => false,
        Some("subset") => true,
        Some(other) => {
            return Err(Error::invalid(format!("`compare` is \"{other}\""))
                .hint("\"equal\" (the default) or \"subset\" (further members of objects are allowed)"));
        }
    };
    let mut paths = Vec::new();
    if let Some(listed) = set(o, "paths") {
        let items = listed.as_array().ok_or_else(|| wrong("paths", listed, "a list of JSON pointers"))?;
        for item in items {
            let path =
                item.as_str().ok_or_else(|| wrong("paths", item, "a JSON pointer such as \"/name\""))?;
            if answer.pointer(path).is_none() {
                return Err(Error::invalid(format!("`paths` has `{path}`, which the answer does not have"))
                    .hint("a JSON pointer starts with `/`, such as \"/name\" or \"/items/0\""));
            }
            paths.push(path.to_owned());
        }
    }
    Ok(Verifier::Json { wanted: answer.clone(), subset, paths })
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
