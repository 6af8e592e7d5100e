//! A transcript against what was sampled: its token ids against the hashes in the rows of the episode and of its
//! calls, its words against its ids, and its opening against the prompt of the first call, so that none of them
//! can be changed alone.

use crate::engine::tokens_sha256;
use crate::environment::{Message, Role};
use crate::episode::transcript::Transcript;
use crate::episode::{CallRow, EpisodeRow, turns_sha256};
use crate::error::Result;

/// The tokens of a model, both ways.
pub struct Reader {
    /// What it said: the conversation before it, and the ids that it sampled, to the words of a transcript.
    pub said: Box<dyn Fn(&[Message], &[u32]) -> Result<String> + Send + Sync>,
    /// The ids that it is prompted with where a conversation opens.
    pub prompt: Box<dyn Fn(&[Message]) -> Result<Vec<u32>> + Send + Sync>,
}

/// What is wrong with an episode's transcript, if anything; `calls` are the episode's, in the order of their turns,
/// and none where they are not kept. Without a reader, words are not compared.
pub fn differs(
    row: &EpisodeRow,
    calls: &[&CallRow],
    transcript: &Transcript,
    reader: Option<&Reader>,
) -> Option<String> {
    if let Some(what) = other_end(row, calls, transcript) {
        return Some(what);
    }
    let sampled = &transcript.sampled;
    let Some(own) = &row.tokens_sha256 else {
        return (!sampled.is_empty())
            .then(|| "its transcript has token ids, and the row no hash of any".into());
    };
    if turns_sha256(sampled) != *own {
        return Some(
            "the token ids of its transcript are not those that the row's `tokens_sha256` seals".into(),
        );
    }
    let count: usize = sampled.iter().map(Vec::len).sum();
    if let Some(stated) = row.completion_tokens.filter(|stated| usize::try_from(*stated) != Ok(count)) {
        return Some(format!("`completion_tokens` is {stated}, and its transcript has {count} token ids"));
    }
    for (turn, (call, ids)) in calls.iter().zip(sampled).enumerate() {
        if call.tokens_sha256.as_ref().is_some_and(|sealed| *sealed != tokens_sha256(ids)) {
            return Some(format!("the token ids of reply {} are not those that its call seals", turn + 1));
        }
    }
    let messages = &transcript.messages;
    let replies: Vec<usize> =
        (0..messages.len()).filter(|at| messages[*at].role == Role::Assistant).collect();
    // Replies in front of the model's own are worked examples.
    let Some(examples) = replies.len().checked_sub(sampled.len()) else {
        let replies = replies.len();
        return Some(format!("its transcript has {} sampled turns and {replies} replies", sampled.len()));
    };
    let Reader { said, prompt } = reader?;
    let opening = replies.get(examples).map(|first| &messages[..*first]);
    if let (Some(opening), Some(call)) = (opening, calls.first().filter(|call| call.turn == 0)) {
        let sealed = call.prompt_sha256.as_deref();
        match prompt(opening) {
            Err(error) => return Some(format!("its prompt cannot be made: {error}")),
            Ok(ids) if sealed.is_some_and(|sealed| sealed != tokens_sha256(&ids)) => {
                return Some("its prompt is not the one that its first call seals".into());
            }
            Ok(ids) if call.prompt_tokens.is_some_and(|stated| usize::try_from(stated) != Ok(ids.len())) => {
                return Some(format!(
                    "its prompt has {} tokens, and its first call says otherwise",
                    ids.len()
                ));
            }
            Ok(_) => {}
        }
    }
    replies[examples..].iter().zip(sampled).enumerate().find_map(|(turn, (at, ids))| {
        match said(&messages[..*at], ids) {
            Ok(words) if words == messages[*at].content => None,
            Ok(_) => Some(format!("the words of reply {} are not those of its token ids", turn + 1)),
            Err(error) => Some(format!("the token ids of reply {} cannot be read: {error}", turn + 1)),
        }
    })
}

/// An episode whose last message is the environment's met a limit there; every other one ended as its last call did.
fn other_end(row: &EpisodeRow, calls: &[&CallRow], transcript: &Transcript) -> Option<String> {
    let reason = row.finish_reason.as_str();
    let unanswered = transcript.messages.last().is_some_and(|last| last.role == Role::User);
    let own = if unanswered { "length" } else { calls.last()?.finish_reason.as_str() };
    (reason != "infra_error" && reason != own)
        .then(|| format!("`finish_reason` is `{reason}`, and its conversation ended by `{own}`"))
}

/// Why nothing reads the token ids of an experiment.
pub struct NoReader {
    /// Why not.
    pub why: String,
    /// Whether a model is here, and is not the one of the rows or cannot be used.
    pub is_here: bool,
}

impl NoReader {
    fn absent(why: impl Into<String>) -> NoReader {
        NoReader { why: why.into(), is_here: false }
    }
}

/// Reads and writes token ids with the tokenizer of an experiment's model, or says why words are not compared: the model
/// that answered for the base arm, `model_sha256`, has to be here.
#[cfg(feature = "engine")]
pub fn reader(
    experiment: &crate::stages::Experiment,
    model_sha256: Option<&str>,
) -> std::result::Result<Reader, NoReader> {
    use crate::engine::local::Markers;
    use crate::environment::THOUGHT;
    use crate::model::TextSide;

    let first_line = |error: crate::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    let absent = |error| NoReader::absent(first_line(error));
    let plan = &experiment.plan;
    let named = plan.model.source.as_deref();
    let named = named.ok_or_else(|| NoReader::absent("the plan names no model, only an endpoint"))?;
    let nobody = || NoReader::absent("there is no episode of the base arm with token ids");
    let model_sha256 = model_sha256.ok_or_else(nobody)?;
    let source = crate::stages::lab::source(experiment, named).map_err(absent)?;
    if !source.is_here() {
        return Err(NoReader::absent(format!("{source} is not here")));
    }
    let broken = |why| NoReader { why, is_here: true };
    if source.weights_sha256().map_err(|error| broken(first_line(error)))? != model_sha256 {
        return Err(broken(format!("{source} is not the model of the rows ({model_sha256})")));
    }
    let text = TextSide::load(&source).map_err(|error| broken(first_line(error)))?;
    // Both harnesses have a budget for thoughts, or neither.
    let thinking = plan.harness.evaluate.think_tokens.is_some();
    let markers = Markers::of(text.tokenizer()).filter(|_| thinking);
    let names = serde_json::Map::from_iter([("enable_thinking".to_owned(), thinking.into())]);
    let text = std::sync::Arc::new((text, names));
    let of_prompt = text.clone();
    Ok(Reader {
        said: Box::new(move |before, ids| {
            let (text, names) = text.as_ref();
            let words = text.tokenizer().decode(ids, true)?;
            let opened = match &markers {
                Some(markers) => markers.opened_in(&text.prompt(before, names)?),
                None => false,
            };
            Ok(if opened { format!("{THOUGHT}{words}") } else { words })
        }),
        prompt: Box::new(move |opening| of_prompt.0.prompt(opening, &of_prompt.1)),
    })
}

/// Without the engine there is no tokenizer.
#[cfg(not(feature = "engine"))]
pub fn reader(_: &crate::stages::Experiment, _: Option<&str>) -> std::result::Result<Reader, NoReader> {
    Err(NoReader::absent("this build has no tokenizers (feature `engine`)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::testing::episode_rows;

    /// An episode of two turns after a worked example, whose ids are the bytes of its words.
    fn episode() -> (EpisodeRow, Transcript) {
        let messages = vec![
            Message::user("2?"),
            Message::assistant("2"),
            Message::user("3?"),
            Message::assistant("three"),
            Message::user("a digit"),
            Message::assistant("3"),
        ];
        let sampled = ["three", "3"].map(|words| words.bytes().map(u32::from).collect()).to_vec();
        let row = EpisodeRow {
            tokens_sha256: Some(turns_sha256(&sampled)),
            completion_tokens: Some(6),
            turns: 2,
            ..episode_rows(1).remove(0)
        };
        (row, Transcript { task_id: "t".into(), rollout: 0, messages, sampled })
    }

    /// Tokens are bytes, and a prompt is the first byte of each message.
    fn bytes() -> Reader {
        Reader {
            said: Box::new(|_, ids| Ok(ids.iter().map(|id| char::from(*id as u8)).collect())),
            prompt: Box::new(|opening| {
                Ok(opening.iter().map(|m| m.content.bytes().next().unwrap_or(0).into()).collect())
            }),
        }
    }

    #[test]
    fn the_calls_hold_each_reply_and_the_first_prompt() {
        use crate::episode::testing::call_rows;
        let reader = bytes();
        let (row, transcript) = episode();
        let mut calls: Vec<CallRow> = call_rows(2);
        for (turn, (call, ids)) in calls.iter_mut().zip(&transcript.sampled).enumerate() {
            (call.turn, call.tokens_sha256) = (turn as i64, Some(tokens_sha256(ids)));
            (call.prompt_sha256, call.prompt_tokens) = (None, Some(99));
        }
        let opening: Vec<u32> = "223".bytes().map(u32::from).collect();
        (calls[0].prompt_sha256, calls[0].prompt_tokens) = (Some(tokens_sha256(&opening)), Some(3));
        let found = |change: fn(&mut [CallRow]), reader: Option<&Reader>| {
            let mut calls = calls.clone();
            change(&mut calls);
            let calls: Vec<&CallRow> = calls.iter().collect();
            differs(&row, &calls, &transcript, reader).unwrap_or_default()
        };
        assert_eq!(found(|_| {}, Some(&reader)), "");
        assert_eq!(found(|_| {}, None), "");
        let other = |calls: &mut [CallRow]| calls[1].tokens_sha256 = Some("0".repeat(64));
        assert!(found(other, None).contains("the token ids of reply 2 are not those that its call seals"));
        let prompt = |calls: &mut [CallRow]| calls[0].prompt_sha256 = Some("0".repeat(64));
        assert!(found(prompt, Some(&reader)).contains("not the one that its first call seals"));
        assert_eq!(found(prompt, None), "", "nobody makes prompts without a tokenizer");
        let tokens = |calls: &mut [CallRow]| calls[0].prompt_tokens = Some(4);
        assert!(found(tokens, Some(&reader)).contains("has 3 tokens"));
        let cut = |calls: &mut [CallRow]| calls[1].finish_reason = "length".into();
        assert!(found(cut, None).contains("its conversation ended by `length`"));
        let mut unanswered = transcript.clone();
        unanswered.messages.push(Message::user("once more"));
        let stopped = differs(&row, &[], &unanswered, None).unwrap();
        assert!(
            stopped.contains("`finish_reason` is `stop`, and its conversation ended by `length`"),
            "{stopped}"
        );
        // A server's calls seal nothing.
        let silent = |calls: &mut [CallRow]| {
            for call in calls {
                (call.tokens_sha256, call.prompt_sha256, call.prompt_tokens) = (None, None, None);
            }
        };
        assert_eq!(found(silent, Some(&reader)), "");
    }

    #[test]
    fn hash_count_and_words_each_hold_a_transcript_to_what_was_sampled() {
        let said = bytes();
        let (row, transcript) = episode();
        assert_eq!(differs(&row, &[], &transcript, Some(&said)), None);
        assert_eq!(differs(&row, &[], &transcript, None), None);
        type Case = (fn(&mut EpisodeRow, &mut Transcript), &'static str, bool);
        let cases: [Case; 7] = [
            (|_, t| t.messages[5].content = "4".into(), "the words of reply 2", false),
            (|_, t| t.messages[3].content.push(' '), "the words of reply 1", false),
            (|_, t| t.sampled[1][0] = 52, "`tokens_sha256`", true),
            (|_, t| t.sampled[1].insert(0, 9), "`tokens_sha256`", true),
            (|r, _| r.completion_tokens = Some(5), "is 5, and its transcript has 6", true),
            (|r, _| r.tokens_sha256 = None, "no hash of any", true),
            (
                |r, t| {
                    t.sampled = vec![vec![51]; 4];
                    r.tokens_sha256 = Some(turns_sha256(&t.sampled));
                    r.completion_tokens = None;
                },
                "4 sampled turns and 3 replies",
                true,
            ),
        ];
        for (change, words, without_tokenizer) in cases {
            let (mut row, mut transcript) = (row.clone(), transcript.clone());
            change(&mut row, &mut transcript);
            let what = differs(&row, &[], &transcript, Some(&said)).unwrap();
            assert!(what.contains(words), "{what}");
            assert_eq!(differs(&row, &[], &transcript, None).is_some(), without_tokenizer, "{words}");
        }
        // A server gives no ids, and its transcripts have none.
        let (mut row, mut transcript) = (row, transcript);
        (row.tokens_sha256, transcript.sampled) = (None, Vec::new());
        assert_eq!(differs(&row, &[], &transcript, Some(&said)), None);
    }
}
