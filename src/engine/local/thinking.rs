//! Thoughts: where one opens and closes among a call's tokens, and when its budget is spent. A
//! thought that has used up its budget is closed by force: the closing marker is put behind it
//! as if it had been sampled, and the answer follows within its own budget.

use crate::engine::{Close, Thought};
use crate::model::Tokenizer;

/// The markers of a model's thoughts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Markers {
    open: u32,
    close: u32,
    /// What is put behind a thought to close it, the marker included.
    forced: Vec<u32>,
}

impl Markers {
    /// The markers of a tokenizer that has both as single tokens and writes them in texts.
    pub fn of(tokenizer: &Tokenizer) -> Option<Markers> {
        let marker = |text: &str| {
            let id = tokenizer.id(text)?;
            (tokenizer.decode(&[id], true).ok()? == text).then_some(id)
        };
        let forced = tokenizer.encode("\n</think>\n\n").ok()?;
        Some(Markers { open: marker("<think>")?, close: marker("</think>")?, forced })
    }

    /// Tokens that close a thought by force.
    pub fn forced_tokens(&self) -> usize {
        self.forced.len()
    }

    /// Whether a context leaves a thought open.
    pub fn opened_in(&self, context: &[u32]) -> bool {
        context.iter().rev().find(|t| **t == self.open || **t == self.close) == Some(&self.open)
    }
}

/// How far a call's thought is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No thought was opened.
    None,
    /// One is open; tokens in it so far.
    Open(usize),
    /// It is closed: tokens that were in it, how, and the call's tokens up to there.
    Closed(usize, Close, usize),
}

/// Watches one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thinking {
    markers: Markers,
    budget: usize,
    opened_before: bool,
    state: State,
}

impl Thinking {
    /// For a call whose context is `prompt`, with at most `budget` tokens in its thought. The context may have opened it.
    pub fn new(markers: Markers, budget: usize, prompt: &[u32]) -> Self {
        let opened_before = markers.opened_in(prompt);
        let state = if opened_before { State::Open(0) } else { State::None };
        Thinking { markers, budget, opened_before, state }
    }

    /// Takes the token that was just drawn, the last of `tokens`; returns what is to be put behind it.
    pub fn drawn(&mut self, tokens: &[u32]) -> &[u32] {
        let Some(last) = tokens.last() else { return &[] };
        match self.state {
            State::None if *last == self.markers.open => self.state = State::Open(0),
            State::Open(inside) if *last == self.markers.close => {
                self.state = State::Closed(inside, Close::Natural, tokens.len());
            }
            State::Open(inside) => self.state = State::Open(inside + 1),
            State::None | State::Closed(..) => {}
        }
        match self.state {
            State::Open(inside) if inside >= self.budget => {
                let end = tokens.len() + self.markers.forced.len();
                self.state = State::Closed(inside, Close::Forced, end);
                &self.markers.forced
            }
            _ => &[],
        }
    }

    /// How many of a call's tokens count as its answer; the context has `prompt` of them.
    pub fn answer_tokens(&self, tokens: usize, prompt: usize) -> usize {
        match self.state {
            State::None => tokens - prompt,
            State::Open(_) => 0,
            State::Closed(.., end) => tokens.saturating_sub(end),
        }
    }

    /// The thought as it stands, if one was opened.
    pub fn thought(&self) -> Option<Thought> {
        let (tokens, close) = match self.state {
            State::None => return None,
            State::Open(tokens) => (tokens, Close::Never),
            State::Closed(tokens, close, _) => (tokens, close),
        };
        Some(Thought { opened_before: self.opened_before, tokens, close })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinking(budget: usize, prompt: &[u32]) -> Thinking {
        Thinking::new(Markers { open: 1, close: 2, forced: vec![9, 2, 9] }, budget, prompt)
    }

    /// Runs tokens through; the call's tokens with what was put between.
    fn run(thinking: &mut Thinking, prompt: &[u32], drawn: &[u32]) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for token in drawn {
            tokens.push(*token);
            let forced = thinking.drawn(&tokens).to_vec();
            tokens.extend(forced);
        }
        tokens
    }

    #[test]
    fn a_thought_within_its_budget_closes_itself() {
        let mut t = thinking(3, &[5]);
        assert_eq!(run(&mut t, &[5], &[1, 6, 7, 2, 8]), [5, 1, 6, 7, 2, 8]);
        assert_eq!(t.thought(), Some(Thought { opened_before: false, tokens: 2, close: Close::Natural }));
        assert_eq!(t.answer_tokens(6, 1), 1);
    }

    #[test]
    fn a_thought_that_spends_its_budget_is_closed_by_force() {
        let mut t = thinking(2, &[5, 1]);
        assert_eq!(run(&mut t, &[5, 1], &[6, 7, 8, 8]), [5, 1, 6, 7, 9, 2, 9, 8, 8]);
        assert_eq!(t.thought(), Some(Thought { opened_before: true, tokens: 2, close: Close::Forced }));
        assert_eq!(t.answer_tokens(9, 2), 2);
    }

    #[test]
    fn a_budget_of_nothing_closes_at_once_and_no_thought_is_none() {
        let mut t = thinking(0, &[5]);
        assert_eq!(run(&mut t, &[5], &[1, 6]), [5, 1, 9, 2, 9, 6]);
        let mut t = thinking(4, &[1, 6, 2]);
        run(&mut t, &[1, 6, 2], &[6, 6]);
        assert_eq!((t.thought(), t.answer_tokens(5, 3)), (None, 2));
        let mut t = thinking(4, &[1]);
        run(&mut t, &[1], &[6]);
        assert_eq!(t.thought(), Some(Thought { opened_before: true, tokens: 1, close: Close::Never }));
        assert_eq!(t.answer_tokens(2, 1), 0);
    }
}
