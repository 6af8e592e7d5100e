//! An answer's text, cut into what it says, what it only thought, and the tools it calls. Works on
//! pieces as they come, and gives the same whatever their borders.

use super::text::overlap;
use super::tools::{ToolCall, parse};
use serde_json::Value;

const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";
const CALL: &str = "<tool_call>";
const CALLED: &str = "</tool_call>";

/// One more piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Of what it says.
    Content(String),
    /// Of what it thinks.
    Reasoning(String),
    /// A call of a tool, whole.
    Call(ToolCall),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space yet: a thought may open.
    Start,
    /// Inside a thought; whether some of it was handed out.
    Thought { begun: bool },
    /// After a thought: white space between the two belongs to neither.
    Between,
    /// In what is said; whether a call was the last thing in it.
    Answer { called: bool },
}

/// Cuts a text into deltas.
#[derive(Debug, Clone)]
pub struct Splitter {
    state: State,
    tools: Vec<Value>,
    /// Text that is not handed out yet.
    rest: String,
}

impl Splitter {
    /// `thinking` when the prompt has opened a thought already; calls are looked for only when there are `tools`.
    pub fn new(thinking: bool, tools: Vec<Value>) -> Self {
        let state = if thinking { State::Thought { begun: false } } else { State::Start };
        Splitter { state, tools, rest: String::new() }
    }

    /// For an answer of which the prompt has given away the opening of a call: it counts as said.
    pub fn after(opening: String, tools: Vec<Value>) -> Self {
        Splitter { state: State::Answer { called: false }, tools, rest: opening }
    }

    /// Whether a thought is open.
    pub fn thinking(&self) -> bool {
        matches!(self.state, State::Thought { .. })
    }

    /// Takes one more piece of text; returns what is certain now.
    pub fn push(&mut self, piece: &str) -> Vec<Delta> {
        self.rest.push_str(piece);
        let mut out = Vec::new();
        while self.advance(&mut out) {}
        out
    }

    /// No text follows: returns the rest.
    pub fn finish(&mut self) -> Vec<Delta> {
        let rest = std::mem::take(&mut self.rest);
        match self.state {
            State::Start => said(rest),
            State::Thought { begun } => {
                let text = rest.trim_end();
                thought(if begun { text } else { text.trim_start() })
            }
            State::Between => said(rest.trim_start().to_owned()),
            State::Answer { called } if called && rest.trim().is_empty() => Vec::new(),
            State::Answer { .. } => said(rest),
        }
    }

    /// Makes one step; whether another may follow.
    fn advance(&mut self, out: &mut Vec<Delta>) -> bool {
        match self.state {
            State::Start => {
                let text = self.rest.trim_start();
                if let Some(after) = text.strip_prefix(THINK) {
                    self.rest = after.to_owned();
                    self.state = State::Thought { begun: false };
                } else if THINK.starts_with(text) {
                    return false;
                } else {
                    self.state = State::Answer { called: false };
                }
                true
            }
            State::Thought { begun } => self.think(begun, out),
            State::Between => {
                self.rest = self.rest.trim_start().to_owned();
                if self.rest.is_empty() {
                    return false;
                }
                self.state = State::Answer { called: false };
                true
            }
            State::Answer { called } => self.answer(called, out),
        }
    }

    fn think(&mut self, begun: bool, out: &mut Vec<Delta>) -> bool {
        let (end, closed) = match self.rest.find(THOUGHT) {
            Some(at) => (at, true),
            None => (self.rest.len() - overlap(&self.rest, THOUGHT), false),
        };
        let text = self.rest[..end].trim_end();
        let certain = text.len();
        out.extend(thought(if begun { text } else { text.trim_start() }));
        if closed {
            self.rest.drain(..end + THOUGHT.len());
            self.state = State::Between;
        } else {
            self.rest.drain(..certain);
            self.state = State::Thought { begun: begun || certain > 0 };
        }
        closed
    }

    fn answer(&mut self, called: bool, out: &mut Vec<Delta>) -> bool {
        if self.tools.is_empty() {
            out.extend(said(std::mem::take(&mut self.rest)));
            return false;
        }
        let opened = self.rest.find(CALL);
        let end = opened.unwrap_or_else(|| self.rest.len() - overlap(&self.rest, CALL));
        // White space before a call belongs to nothing.
        let certain = self.rest[..end].trim_end().len();
        let call = opened.and_then(|at| {
            let inside = at + CALL.len();
            let length = self.rest[inside..].find(CALLED)?;
            Some((inside, length))
        });
        let Some((inside, length)) = call else {
            let text: String = self.rest.drain(..certain).collect();
            self.state = State::Answer { called: called && text.is_empty() };
            out.extend(said(text));
            return false;
        };
        match parse(&self.rest[inside..inside + length], &self.tools) {
            Some(call) => {
                out.extend(said(self.rest[..certain].to_owned()));
                out.push(Delta::Call(call));
                self.rest.drain(..inside + length + CALLED.len());
                self.state = State::Answer { called: true };
            }
            None => {
                // It stays text; another call may begin inside it.
                out.extend(said(self.rest.drain(..inside).collect()));
                self.state = State::Answer { called: false };
            }
        }
        true
    }
}

fn said(text: String) -> Vec<Delta> {
    if text.is_empty() { Vec::new() } else { vec![Delta::Content(text)] }
}

fn thought(text: &str) -> Vec<Delta> {
    if text.is_empty() { Vec::new() } else { vec![Delta::Reasoning(text.to_owned())] }
}

/// An answer put together from its deltas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub content: String,
    /// What it thought.
    pub reasoning: String,
    /// The tools it calls.
    pub calls: Vec<ToolCall>,
}

impl Message {
    /// Adds a piece.
    pub fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Content(text) => self.content.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::Call(call) => self.calls.push(call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn tools() -> Vec<Value> {
        vec![
            json!({"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}}),
        ]
    }

    fn cut<'a>(pieces: impl IntoIterator<Item = &'a str>, thinking: bool, tools: Vec<Value>) -> Message {
        let mut splitter = Splitter::new(thinking, tools);
        let mut message = Message::default();
        for piece in pieces {
            splitter.push(piece).into_iter().for_each(|delta| message.add(delta));
        }
        splitter.finish().into_iter().for_each(|delta| message.add(delta));
        message
    }

    /// Content, thought and calls of a whole text.
    fn parts(text: &str, thinking: bool) -> (String, String, Vec<String>) {
        let message = cut([text], thinking, tools());
        let calls = message.calls.iter().map(|call| format!("{}{}", call.name, call.arguments)).collect();
        (message.content, message.reasoning, calls)
    }

    fn wanted(content: &str, reasoning: &str, calls: &[&str]) -> (String, String, Vec<String>) {
        (content.into(), reasoning.into(), calls.iter().map(|c| c.to_string()).collect())
    }

    #[test]
    fn thoughts_are_told_from_answers() {
        assert_eq!(parts("<think>\na\nb\n</think>\n\nc ", false), wanted("c ", "a\nb", &[]));
        assert_eq!(parts("hm\n</think>\n\nc", true), wanted("c", "hm", &[]));
        assert_eq!(parts("<think>a <b> </thin", false), wanted("", "a <b> </thin", &[]));
        assert_eq!(parts(" c <think>x</think>", false), wanted(" c <think>x</think>", "", &[]));
        assert_eq!(parts("  \n", false), wanted("  \n", "", &[]));
        assert_eq!(parts("c</think>", false), wanted("c</think>", "", &[]));
    }

    #[test]
    fn calls_are_told_from_text() {
        let one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
        let two = "<tool_call>\n<function=f>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>";
        assert_eq!(parts(one, false), wanted("", "", &["f{\"a\":1}"]));
        assert_eq!(
            parts(&format!("<think>\nneed f\n</think>\n\nI look.\n\n{one}\n{two}\n"), false),
            wanted("I look.", "need f", &["f{\"a\":1}", "f{\"a\":2}"])
        );
        assert_eq!(parts(&format!("{one}\nand"), false), wanted("\nand", "", &["f{\"a\":1}"]));
        assert_eq!(parts(&format!("{one} and \n"), false).0, " and \n");
        for text in ["x <tool_call>{}</tool_call> y", "x\n<tool_call>{\"name\": \"f\"", "a <tool_c", "a \n"] {
            assert_eq!(parts(text, false), wanted(text, "", &[]), "malformed calls stay text");
        }
        assert_eq!(parts(&format!("<tool_call>{one}"), false), wanted("<tool_call>", "", &["f{\"a\":1}"]));
        assert_eq!(
            parts(&format!("<think>{one}</think>x"), false),
            wanted("x", one, &[]),
            "a thought calls nothing"
        );
        assert_eq!(cut([one], false, Vec::new()).content, one, "without tools there are no calls");
    }

    #[test]
    fn an_opened_call_is_one_when_it_is_completed_and_text_when_it_is_not() {
        let answer = |rest: &str| {
            let mut splitter =
                Splitter::after("<tool_call>\n{\"name\": \"f\", \"arguments\":".into(), tools());
            let mut message = Message::default();
            splitter.push(rest).into_iter().for_each(|delta| message.add(delta));
            splitter.finish().into_iter().for_each(|delta| message.add(delta));
            message
        };
        let called = answer(" {\"a\": 1}}\n</tool_call>");
        assert_eq!((called.calls[0].arguments.as_str(), called.content.as_str()), ("{\"a\":1}", ""));
        for rest in [" {\"a\": 1}}", " {\"a\":\n</tool_call>", ""] {
            let text = answer(rest);
            assert!(
                text.calls.is_empty() && text.content.ends_with(&format!("\"arguments\":{rest}")),
                "{text:?}"
            );
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<think>".to_owned()),
            Just("</think>".to_owned()),
            Just("<tool_call>".to_owned()),
            Just("</tool_call>".to_owned()),
            Just("{\"name\": \"f\", \"arguments\": {\"a\": 1}}".to_owned()),
            Just("<function=f><parameter=a>1</parameter></function>".to_owned()),
            Just(" \n".to_owned()),
            Just("<".to_owned()),
            "[a-zé🦀 ]{0,4}",
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn borders_of_pieces_change_nothing(text in text(), thinking: bool, with_tools: bool, steps in proptest::collection::vec(1usize..6, 1..40)) {
            let tools = if with_tools { tools() } else { Vec::new() };
            let whole = cut([text.as_str()], thinking, tools.clone());
            let characters: Vec<char> = text.chars().collect();
            let (mut pieces, mut at) = (Vec::new(), 0);
            for step in steps.iter().cycle() {
                if at >= characters.len() { break; }
                let end = (at + step).min(characters.len());
                pieces.push(characters[at..end].iter().collect::<String>());
                at = end;
            }
            prop_assert_eq!(cut(pieces.iter().map(String::as_str), thinking, tools), whole);
        }
    }
}
