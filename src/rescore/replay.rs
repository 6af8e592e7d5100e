//! One episode judged again: its task made anew, the replies of its transcript given to the
//! environment's session as the run gave them, and what the verifier of today makes of them.

use crate::environment::{Environment, Message, Role, Session, Task, answer, conversation};
use crate::episode::EpisodeRow;
use crate::episode::transcript::Transcript;
use serde::Serialize;

/// What a verifier says of an episode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// Score in [0, 1]; null where the infrastructure failed.
    pub reward: Option<f64>,
    /// Whether the task counts as solved; null where the infrastructure failed.
    pub solved: Option<bool>,
    /// Whether the last reply could be read; null without a reply.
    pub parse_ok: Option<bool>,
    /// Whether any action was accepted; null where the infrastructure failed.
    pub engaged: Option<bool>,
    /// Of each reply: whether it could be read, and whether its action was accepted.
    #[serde(skip)]
    pub turns: Vec<(bool, bool)>,
}

impl Judgement {
    /// What the row says, without its turns.
    pub fn on_row(row: &EpisodeRow) -> Judgement {
        let EpisodeRow { reward, solved, parse_ok, engaged, .. } = *row;
        Judgement { reward, solved, parse_ok, engaged, turns: Vec::new() }
    }

    /// Whether the row says the same.
    pub fn agrees(&self, row: &EpisodeRow) -> bool {
        (self.reward, self.solved, self.parse_ok, self.engaged)
            == (row.reward, row.solved, row.parse_ok, row.engaged)
    }

    /// The row with this judgement, by that verifier. Its chained hash is left empty.
    pub fn put(&self, row: &EpisodeRow, verifier_sha256: &str) -> EpisodeRow {
        EpisodeRow {
            reward: self.reward,
            solved: self.solved,
            parse_ok: self.parse_ok,
            engaged: self.engaged,
            verifier_sha256: verifier_sha256.to_string(),
            row_sha256: String::new(),
            ..row.clone()
        }
    }
}

/// Why an episode cannot be judged again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unjudged {
    /// Nothing says what the model replied.
    NoTranscript,
    /// The environment has no such task under the row's seed.
    NoTask(String),
    /// The conversation is not the one that the environment would have led.
    OtherConversation(String),
    /// The transcript is not what was sampled.
    OtherWords(String),
}

impl Unjudged {
    /// The reason as it is counted.
    pub fn word(&self) -> &'static str {
        match self {
            Unjudged::NoTranscript => "no_transcript",
            Unjudged::NoTask(_) => "no_task",
            Unjudged::OtherConversation(_) => "other_conversation",
            Unjudged::OtherWords(_) => "other_words",
        }
    }
}

impl std::fmt::Display for Unjudged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unjudged::NoTranscript => f.write_str("there is no transcript of it"),
            Unjudged::NoTask(why) | Unjudged::OtherConversation(why) | Unjudged::OtherWords(why) => {
                f.write_str(why)
            }
        }
    }
}

/// Judges the replies of an episode before which the model was shown so many worked `examples`. The whole
/// conversation has to be the one that the environment leads today: a model that would have been told something
/// else might have gone on otherwise.
pub fn judge(
    environment: &dyn Environment,
    row: &EpisodeRow,
    transcript: Option<&Transcript>,
    examples: usize,
) -> Result<Judgement, Unjudged> {
    let failed = row.finish_reason == "infra_error";
    let replies = usize::try_from(row.turns).unwrap_or(0);
    if replies == 0 && failed {
        return Ok(Judgement {
            reward: None,
            solved: None,
            parse_ok: None,
            engaged: None,
            turns: Vec::new(),
        });
    }
    let task = task(environment, row)?;
    let transcript = transcript.ok_or(Unjudged::NoTranscript)?;
    let mut session = environment.begin(&task).map_err(|e| Unjudged::NoTask(one_line(&e)))?;
    let no_task = |e: crate::Error| Unjudged::NoTask(one_line(&e));
    let level = task.level;
    let shown = environment.examples(&task.family, level, examples).map_err(no_task)?;
    // A repaired verifier may answer its own examples otherwise: they were written by the one before.
    let same = environment.verifier_sha256(&row.family).is_ok_and(|today| today == row.verifier_sha256);
    let said = spoken(&transcript.messages, session.as_ref(), replies, same.then_some(&shown))?;
    let horizon = session.horizon() as usize;
    let mut turns = Vec::with_capacity(replies);
    for at in 0..replies {
        let reply = said.get(2 * at).filter(|m| m.role == Role::Assistant);
        let reply = reply.ok_or_else(|| other(format!("message {} is no reply", 2 * at + 1)))?;
        let turn = session.reply(answer(&reply.content));
        turns.push((turn.parse_ok, turn.action_ok));
        let wanted = turn.observation.filter(|_| at + 1 < horizon);
        match (wanted, said.get(2 * at + 1)) {
            (None, None) => {}
            (Some(wanted), Some(next)) if *next == Message::user(wanted.as_str()) => {}
            (Some(_), Some(_)) => {
                return Err(other(format!("reply {} is answered otherwise today", at + 1)));
            }
            (None, Some(_)) => {
                return Err(other(format!("the episode ends with reply {} today", at + 1)));
            }
            (Some(_), None) => {
                return Err(other(format!("the episode goes on after reply {} today", at + 1)));
            }
        }
    }
    let outcome = (!failed).then(|| session.outcome());
    if let Some(outcome) = outcome.filter(|o| !(0.0..=1.0).contains(&o.reward)) {
        return Err(Unjudged::NoTask(format!(
            "the verifier gives {}, which is not in [0, 1]",
            outcome.reward
        )));
    }
    Ok(Judgement {
        reward: outcome.map(|o| o.reward),
        solved: outcome.map(|o| o.solved),
        parse_ok: turns.last().map(|turn| turn.0),
        engaged: outcome.map(|_| turns.iter().any(|turn| turn.1)),
        turns,
    })
}

fn other(what: String) -> Unjudged {
    Unjudged::OtherConversation(what)
}

fn one_line(error: &crate::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

/// The row's task, which must be of the row's kind and seed.
fn task(environment: &dyn Environment, row: &EpisodeRow) -> Result<Task, Unjudged> {
    let task = environment.by_id(&row.task_id).map_err(|e| Unjudged::NoTask(one_line(&e)))?;
    let same = task.id == row.task_id
        && task.family == row.family
        && i64::from(task.level) == row.level
        && i64::try_from(task.seed) == Ok(row.seed);
    if same {
        return Ok(task);
    }
    Err(Unjudged::NoTask(format!(
        "the task is `{}` of family `{}`, level {} and seed {} today",
        task.id, task.family, task.level, task.seed
    )))
}

/// The messages from the first reply on, after holding what the model was told before against the task: `examples`
/// and the opening, or any messages that end with the opening where nobody says which examples there were. The
/// replies in the examples are nobody's.
fn spoken<'a>(
    messages: &'a [Message],
    session: &dyn Session,
    replies: usize,
    examples: Option<&Vec<Message>>,
) -> Result<&'a [Message], Unjudged> {
    // A last observation that the model never answered: the conversation had outgrown its context.
    let unanswered = messages.last().is_some_and(|m| m.role == Role::User);
    let length = (2 * replies).saturating_sub(usize::from(!unanswered));
    let short = || other(format!("{} messages hold no {replies} replies", messages.len()));
    let start = messages.len().checked_sub(length).ok_or_else(short)?;
    let (before, said) = messages.split_at(start);
    let as_today = match examples {
        Some(examples) => before == conversation(examples, session),
        None => {
            let opening = session.opening();
            let system = usize::from(opening.first().is_some_and(|m| m.role == Role::System));
            let (first, rest) = opening.split_at(system);
            before.starts_with(first) && before[system.min(before.len())..].ends_with(rest)
        }
    };
    if as_today { Ok(said) } else { Err(other("the model would be told something else today".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::gym::Gym;

    /// An episode that the oracle played, after two worked examples.
    fn played(id: &str) -> (EpisodeRow, Transcript) {
        let task = Gym.by_id(id).unwrap();
        let mut session = Gym.begin(&task).unwrap();
        let mut messages = Gym.examples(&task.family, task.level, 2).unwrap();
        messages.extend(session.opening());
        let mut turns = 0;
        let parse_ok = loop {
            let reply = session.oracle();
            messages.push(Message::assistant(format!("<think>ANSWER: 3</think>{reply}")));
            let turn = session.reply(&reply);
            turns += 1;
            match turn.observation.filter(|_| turns < i64::from(session.horizon())) {
                Some(next) => messages.push(Message::user(next)),
                None => break turn.parse_ok,
            }
        };
        let outcome = session.outcome();
        let row = EpisodeRow {
            family: task.family.clone(),
            level: 1,
            task_id: id.into(),
            seed: task.seed as i64,
            reward: Some(outcome.reward),
            solved: Some(outcome.solved),
            parse_ok: Some(parse_ok),
            engaged: Some(true),
            verifier_sha256: Gym.verifier_sha256(&task.family).unwrap(),
            turns,
            finish_reason: "stop".into(),
            ..crate::episode::testing::episode_rows(1).remove(0)
        };
        (row, Transcript { task_id: id.into(), rollout: 0, messages, sampled: Vec::new() })
    }

    #[test]
    fn what_the_oracle_played_is_judged_as_in_the_run() {
        for id in ["caravan/L1/52004/3", "gatepost/L1/7/0", "kilnrite/L1/52004/1", "brinework/L1/9/2"] {
            let (row, transcript) = played(id);
            let judged = judge(&Gym, &row, Some(&transcript), 2).unwrap();
            assert!(judged.agrees(&row), "{id}: {judged:?}");
            assert_eq!((judged.reward, judged.turns.len() as i64), (Some(1.0), row.turns), "{id}");
        }
    }

    #[test]
    fn a_wrong_reply_is_judged_wrong_and_a_thought_is_no_answer() {
        let (row, mut transcript) = played("caravan/L1/52004/3");
        let reply = transcript.messages.last_mut().unwrap();
        reply.content = format!("<think>{}", reply.content.rsplit("</think>").next().unwrap());
        let judged = judge(&Gym, &row, Some(&transcript), 2).unwrap();
        assert_eq!((judged.reward, judged.parse_ok), (Some(0.0), Some(false)));
        assert!(!judged.agrees(&row));
    }

    #[test]
    fn what_cannot_be_judged_says_why() {
        let (row, transcript) = played("kilnrite/L1/52004/1");
        assert!(row.turns > 1, "the case needs an episode of several turns");
        assert_eq!(judge(&Gym, &row, None, 2), Err(Unjudged::NoTranscript));
        let of = |change: fn(&mut EpisodeRow, &mut Transcript)| {
            let (mut row, mut transcript) = (row.clone(), transcript.clone());
            change(&mut row, &mut transcript);
            let why = judge(&Gym, &row, Some(&transcript), 2).unwrap_err();
            (why.word(), why.to_string())
        };
        let cases: [(fn(&mut EpisodeRow, &mut Transcript), &str, &str); 10] = [
            (|r, _| r.task_id = "kilnrite/L1/52004/01".into(), "no_task", "`kilnrite/L1/52004/1`"),
            (
                |_, t| {
                    t.messages.splice(0..0, [Message::user("42"), Message::assistant("ok")]).for_each(drop)
                },
                "other_conversation",
                "told something else",
            ),
            (|_, t| t.messages[1].content.push('!'), "other_conversation", "told something else"),
            (|r, _| r.task_id = "spindle/L1/1/1".into(), "no_task", "unknown family"),
            (|r, _| r.seed = 8, "no_task", "seed 52004 today"),
            (|_, t| t.messages.truncate(1), "other_conversation", "hold no"),
            (
                |r, t| {
                    let prompt = t.messages.len() - 2 * r.turns as usize;
                    t.messages[prompt].content.push('!');
                },
                "other_conversation",
                "told something else",
            ),
            (|_, t| t.messages.last_mut().unwrap().role = Role::System, "other_conversation", "is no reply"),
            (
                |r, t| {
                    t.messages.truncate(t.messages.len() - 2 * (r.turns as usize - 1));
                    r.turns = 1;
                },
                "other_conversation",
                "goes on after reply 1",
            ),
            (
                |_, t| {
                    let at = t.messages.len() - 2;
                    t.messages[at].content.push('!');
                },
                "other_conversation",
                "is answered otherwise today",
            ),
        ];
        for (change, word, words) in cases {
            let (said, why) = of(change);
            assert_eq!(said, word, "{why}");
            assert!(why.contains(words), "{why} has no {words}");
        }
    }

    #[test]
    fn a_failure_outside_the_model_stays_without_a_score() {
        let (mut row, _) = played("caravan/L1/52004/3");
        row.finish_reason = "infra_error".into();
        (row.turns, row.reward, row.solved, row.parse_ok, row.engaged) = (0, None, None, None, None);
        assert!(judge(&Gym, &row, None, 2).unwrap().agrees(&row));
    }
}
