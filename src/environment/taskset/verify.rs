//! The verifiers of task sets. Each finds an answer in a reply by a stated rule, says what it read,
//! and accepts or rejects it. None needs a model, and none can be made to run for long.

use super::decimal::Decimal;
use super::json;
use crate::environment::gym::parse;
use crate::philox::Philox;
use regex::Regex;
use serde_json::Value;

/// The word before an answer, as in `ANSWER: 7`.
pub const KEY: &str = "ANSWER";
/// Most bytes of a reply that are looked at, from its end.
const MOST_BYTES: usize = 1 << 20;

/// How a line's answer is checked.
#[derive(Debug, Clone)]
pub enum Verifier {
    /// The same text.
    Exact {
        /// Texts that count, at least one; the first is the oracle's.
        accepted: Vec<String>,
        /// Whether upper and lower case are told apart.
        case: bool,
    },
    /// The same number.
    Number {
        /// The number.
        wanted: Decimal,
        /// Largest difference allowed.
        tolerance: f64,
        /// Largest difference allowed, as a share of the number.
        relative: f64,
    },
    /// A text that a pattern fits.
    Regex {
        /// The pattern, for the whole answer unless `search`.
        pattern: Regex,
        /// Whether it may fit a part.
        search: bool,
        /// A text that it fits, for the oracle.
        example: String,
    },
    /// One of several options.
    Choice {
        /// Their texts; the first is A.
        options: Vec<String>,
        /// The right one.
        right: usize,
    },
    /// The same JSON.
    Json {
        /// The value.
        wanted: Value,
        /// Whether objects may have members that it has not.
        subset: bool,
        /// JSON pointers to the parts that count; empty when all does.
        paths: Vec<String>,
    },
}

/// What a verifier made of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What was read as the answer; `None` when nothing could be.
    pub parsed: Option<String>,
    /// Whether it is right.
    pub right: bool,
}

impl Verifier {
    /// Its name in a task set.
    pub fn name(&self) -> &'static str {
        match self {
            Verifier::Exact { .. } => "exact",
            Verifier::Number { .. } => "number",
            Verifier::Regex { .. } => "regex",
            Verifier::Choice { .. } => "choice",
            Verifier::Json { .. } => "json",
        }
    }

    /// Reads and checks a reply: any text, of any length.
    pub fn judge(&self, reply: &str) -> Judgement {
        let spoken = parse::spoken(tail(reply));
        let line = parse::raw_field(spoken, KEY);
        match self {
            Verifier::Exact { accepted, case } => {
                let whole = accepted.iter().any(|text| text.trim().contains('\n'));
                let found = text_of(line, spoken, whole);
                let right =
                    found.is_some_and(|found| accepted.iter().any(|text| same_text(found, text, *case)));
                Judgement { parsed: found.map(str::to_owned), right }
            }
            Verifier::Number { wanted, tolerance, relative } => {
                let found = match line {
                    Some(rest) => Decimal::single(parse::unwrapped(first_line(rest))),
                    None => Decimal::last(spoken),
                };
                let right = found.as_ref().is_some_and(|n| wanted.agrees(n, *tolerance, *relative));
                Judgement { parsed: found.map(|n| n.to_string()), right }
            }
            Verifier::Regex { pattern, search, .. } => {
                let found = text_of(line, spoken, *search);
                let fits = |text: &str| match pattern.find(text) {
                    Some(found) => *search || (found.start() == 0 && found.end() == text.len()),
                    None => false,
                };
                let right =
                    found.is_some_and(|text| fits(text) || (!*search && fits(parse::unwrapped(text))));
                Judgement { parsed: found.map(str::to_owned), right }
            }
            Verifier::Choice { options, right } => {
                let text = text_of(line, spoken, false);
                let chosen = text.and_then(|text| choice(text, options));
                let parsed = chosen.map(|at| format!("{}: {}", letter(at), options[at]));
                Judgement { parsed, right: chosen == Some(*right) }
            }
            Verifier::Json { wanted, subset, paths } => {
                let found = json::find(line, spoken);
                let right = found.as_ref().is_some_and(|value| json::agrees(wanted, value, *subset, paths));
                Judgement { parsed: found.map(|value| value.to_string()), right }
            }
        }
    }

    /// A reply that is right.
    pub fn oracle(&self) -> String {
        let answer = match self {
            Verifier::Exact { accepted, .. } => match accepted.first() {
                // A text of several lines is compared as a whole.
                Some(text) if accepted.iter().any(|text| text.trim().contains('\n')) => return text.clone(),
                text => text.cloned().unwrap_or_default(),
            },
            Verifier::Number { wanted, .. } => wanted.to_string(),
            Verifier::Regex { example, .. } => example.clone(),
            Verifier::Choice { right, .. } => letter(*right).to_string(),
            Verifier::Json { wanted, .. } => wanted.to_string(),
        };
        format!("{KEY}: {answer}")
    }

    /// A reply in the right form whose content is chance.
    pub fn random(&self, rng: &mut Philox) -> String {
        let answer = match self {
            Verifier::Choice { options, .. } => letter(rng.below(options.len())).to_string(),
            Verifier::Number { wanted, .. } => {
                let reach = (wanted.value.abs() * 2.0 + 10.0).min(1e9) as i64;
                rng.between(-reach, reach).to_string()
            }
            Verifier::Json { .. } => format!("{{\"value\": {}}}", rng.below(1000)),
            Verifier::Exact { .. } | Verifier::Regex { .. } => format!("word{}", rng.below(1_000_000)),
        };
        format!("{KEY}: {answer}")
    }

    /// From how many answers a guesser chooses; `None` where they cannot be counted.
    pub fn domain(&self) -> Option<u32> {
        match self {
            Verifier::Choice { options, .. } => u32::try_from(options.len()).ok(),
            _ => None,
        }
    }
}

/// The letter of an option: A for the first.
pub fn letter(at: usize) -> char {
    char::from(b'A' + u8::try_from(at).unwrap_or(25).min(25))
}

/// The end of a reply, where its answer is, cut at a character.
fn tail(reply: &str) -> &str {
    let mut start = reply.len().saturating_sub(MOST_BYTES);
    while !reply.is_char_boundary(start) {
        start += 1;
    }
    &reply[start..]
}

fn first_line(text: &str) -> &str {
    text.split(['\n', '\r']).next().unwrap_or_default().trim()
}

fn last_line(text: &str) -> Option<&str> {
    text.split(['\n', '\r']).rev().map(str::trim).find(|line| !line.is_empty())
}

/// The text that counts: what stands behind the mark, or where nothing is marked all that was said; of either
/// the first or the last line alone, unless the `whole` of it is asked for.
fn text_of<'a>(line: Option<&'a str>, spoken: &'a str, whole: bool) -> Option<&'a str> {
    let found = match (line, whole) {
        (Some(rest), true) => rest.trim(),
        (Some(rest), false) => first_line(rest),
        (None, true) => spoken.trim(),
        (None, false) => last_line(spoken)?,
    };
    Some(found).filter(|text| !text.is_empty())
}

/// Whether two texts are the same but for what surrounds them: white space, quotes, brackets, Markdown marks
/// and closing punctuation.
fn same_text(found: &str, wanted: &str, case: bool) -> bool {
    let fold = |text: &str| if case { text.to_owned() } else { text.to_lowercase() };
    let (found, wanted) = (fold(found.trim()), fold(wanted.trim()));
    // Lines may end in another system's way.
    let (found, wanted) = (found.replace("\r\n", "\n"), wanted.replace("\r\n", "\n"));
    let bare = parse::unwrapped(&wanted);
    found == wanted || (!bare.is_empty() && parse::unwrapped(&found) == bare)
}

/// The option that an answer names: its letter, its text, or both where they agree.
fn choice(text: &str, options: &[String]) -> Option<usize> {
    let by_text = |text: &str| {
        let mut same = options.iter().enumerate().filter(|(_, option)| same_text(text, option, false));
        same.next().map(|(at, _)| at)
    };
    if let Some(at) = by_text(text) {
        return Some(at);
    }
    let bare = parse::unwrapped(text);
    let bare = bare.strip_prefix("Option ").or_else(|| bare.strip_prefix("option ")).unwrap_or(bare);
    let mut characters = bare.chars();
    let first = characters.next()?.to_ascii_uppercase();
    let at = (first as usize).checked_sub('A' as usize).filter(|at| *at < options.len())?;
    let rest = characters.as_str();
    if rest.chars().next().is_some_and(char::is_alphanumeric) {
        return None;
    }
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ").]:,-–—*_".contains(c));
    let agrees = rest.is_empty() || by_text(rest) == Some(at);
    agrees.then_some(at)
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
