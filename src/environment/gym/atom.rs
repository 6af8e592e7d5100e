//! One-turn tasks: a prompt, one answer that is a number or one of several words, and the
//! session that scores it 1 or 0.

use super::parse;
use crate::environment::{Outcome, Session, Turn};
use crate::philox::Philox;
use serde::{Deserialize, Serialize};

/// What an atom asks and how its answer is checked; stored as the task's hidden value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtomSpec {
    /// The whole prompt.
    pub prompt: String,
    /// The right answer.
    pub answer: Answer,
    /// What a reply may name, with a colon, before its answer (`tin key: 7`). To name anything
    /// else there is wrong. `None` where answers stand alone.
    pub label: Option<String>,
}

/// A right answer among the plausible ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A whole number; a guesser draws from `low..=high`.
    Number {
        /// The right number.
        value: i64,
        /// Smallest plausible answer.
        low: i64,
        /// Largest plausible answer.
        high: i64,
    },
    /// One word of several.
    Word {
        /// Index of the right one in `options`.
        right: usize,
        /// All the words a guesser chooses from.
        options: Vec<String>,
    },
}

impl Answer {
    /// Number of plausible answers; `None` above 50, where guessing stops paying.
    pub fn domain(&self) -> Option<u32> {
        let count = match self {
            Answer::Number { low, high, .. } => u32::try_from(high - low + 1).ok()?,
            Answer::Word { options, .. } => u32::try_from(options.len()).ok()?,
        };
        (count <= 50).then_some(count)
    }

    fn is_sound(&self) -> bool {
        match self {
            // A guess is drawn with 32 bits, which bounds the width.
            Answer::Number { value, low, high } => {
                (low..=high).contains(&value)
                    && high.checked_sub(*low).is_some_and(|w| w < i64::from(u32::MAX))
            }
            Answer::Word { right, options } => *right < options.len(),
        }
    }
}

/// An episode of an atom: over after one reply.
pub struct AtomSession {
    spec: AtomSpec,
    reward: Option<f64>,
}

impl AtomSession {
    /// Starts an episode; `None` when the specification contradicts itself.
    pub fn new(spec: AtomSpec) -> Option<Self> {
        spec.answer.is_sound().then_some(AtomSession { spec, reward: None })
    }
}

impl Session for AtomSession {
    fn prompt(&self) -> String {
        self.spec.prompt.clone()
    }

    fn reply(&mut self, text: &str) -> Turn {
        if self.reward.is_some() {
            return Turn { observation: None, parse_ok: false, action_ok: false };
        }
        let (label, value) = match (&self.spec.label, parse::field(text, "ANSWER")) {
            (Some(_), Some(value)) => {
                let (label, value) = parse::labelled(value);
                (label, Some(value))
            }
            (_, value) => (None, value),
        };
        let fits = label.is_none_or(|l| self.spec.label.as_ref().is_some_and(|s| s.eq_ignore_ascii_case(l)));
        let right = match &self.spec.answer {
            Answer::Number { value: expected, .. } => value.and_then(parse::number).map(|n| n == *expected),
            Answer::Word { right, options } => {
                value.and_then(|v| parse::option(v, options)).map(|i| i == *right)
            }
        };
        self.reward = Some(if right == Some(true) && fits { 1.0 } else { 0.0 });
        Turn { observation: None, parse_ok: right.is_some(), action_ok: right.is_some() }
    }

    fn outcome(&self) -> Outcome {
        // A cut episode (no reply yet) reached a limit, which is a score of 0.
        let reward = self.reward.unwrap_or(0.0);
        Outcome { reward, solved: reward == 1.0 }
    }

    fn oracle(&self) -> String {
        let label = self.spec.label.as_ref().map(|label| format!("{label}: ")).unwrap_or_default();
        match &self.spec.answer {
            Answer::Number { value, .. } => format!("ANSWER: {label}{value}"),
            Answer::Word { right, options } => format!("ANSWER: {label}{}", options[*right]),
        }
    }

    fn random(&self, rng: &mut Philox) -> String {
        match &self.spec.answer {
            Answer::Number { low, high, .. } => format!("ANSWER: {}", rng.between(*low, *high)),
            Answer::Word { options, .. } => format!("ANSWER: {}", rng.choose(options)),
        }
    }

    fn horizon(&self) -> u32 {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> AtomSession {
        let answer = Answer::Number { value: 7, low: 1, high: 12 };
        AtomSession::new(AtomSpec { prompt: "How many?".into(), answer, label: None }).unwrap()
    }

    fn word() -> AtomSession {
        let options = ["Tarin", "Dobek", "Fena", "Miros"].map(String::from).to_vec();
        let answer = Answer::Word { right: 2, options };
        AtomSession::new(AtomSpec { prompt: "Who?".into(), answer, label: None }).unwrap()
    }

    #[test]
    fn a_label_may_be_left_out_but_not_be_another() {
        let answer = Answer::Word { right: 1, options: ["4", "17"].map(String::from).to_vec() };
        let spec = AtomSpec { prompt: "Who?".into(), answer, label: Some("tin key".into()) };
        for (reply, reward) in [
            ("ANSWER: tin key: 17", 1.0),
            ("**ANSWER:** Tin key: **17**", 1.0),
            ("ANSWER: 17", 1.0),
            ("ANSWER: oak cup: 17", 0.0),
            ("ANSWER: oak cup: 4, tin key: 17", 0.0),
            ("ANSWER: tin key: 4", 0.0),
        ] {
            let mut session = AtomSession::new(spec.clone()).unwrap();
            assert!(session.reply(reply).parse_ok, "{reply}");
            assert_eq!(session.outcome().reward, reward, "{reply}");
        }
        let mut session = AtomSession::new(spec).unwrap();
        assert_eq!(session.oracle(), "ANSWER: tin key: 17");
        assert!(!session.reply("ANSWER: tin key: 17 or 4").parse_ok);
        assert!(!number().reply("ANSWER: figs: 7").parse_ok);
    }

    #[test]
    fn only_the_first_reply_counts() {
        let mut session = number();
        assert_eq!(session.outcome(), Outcome { reward: 0.0, solved: false });
        assert_eq!(session.reply("ANSWER: 8"), Turn { observation: None, parse_ok: true, action_ok: true });
        assert!(!session.reply("ANSWER: 7").parse_ok);
        assert_eq!(session.outcome(), Outcome { reward: 0.0, solved: false });
    }

    #[test]
    fn a_stranger_is_not_an_answer() {
        let mut session = word();
        assert!(!session.reply("ANSWER: Zoltan").parse_ok);
        let mut session = word();
        assert!(session.reply("I think so.\n**ANSWER: fena**<|im_end|>").parse_ok);
        assert!(session.outcome().solved);
    }

    #[test]
    fn contradictory_specifications_do_not_start() {
        for answer in [
            Answer::Number { value: 9, low: 1, high: 4 },
            Answer::Number { value: 0, low: i64::MIN, high: i64::MAX },
            Answer::Word { right: 1, options: vec!["only".into()] },
        ] {
            assert!(AtomSession::new(AtomSpec { prompt: String::new(), answer, label: None }).is_none());
        }
    }

    proptest! {
        #[test]
        fn random_text_never_scores(text in "\\PC{0,80}", letters in "[A-Z]{0,3}[^0-9]{0,20}") {
            for reply in [text, format!("ANSWER: {letters}")] {
                let mut session = number();
                session.reply(&reply);
                prop_assert_eq!(session.outcome().reward, 0.0);
            }
        }
    }
}
