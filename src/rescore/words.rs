//! A transcript against what was sampled: its token ids against the hash in the episode's row, and its
//! words against its ids, so that none of the three can be changed alone.

use crate::environment::{Message, Role};
use crate::episode::transcript::Transcript;
use crate::episode::{EpisodeRow, turns_sha256};
use crate::error::Result;

/// What a model said: the conversation before it, and the ids that it sampled, to the words of a transcript.
pub type Said = Box<dyn Fn(&[Message], &[u32]) -> Result<String> + Send + Sync>;

/// What is wrong with an episode's transcript, if anything. Without `said`, words are not compared.
pub fn differs(row: &EpisodeRow, transcript: &Transcript, said: Option<&Said>) -> Option<String> {
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
    let messages = &transcript.messages;
    let replies: Vec<usize> =
        (0..messages.len()).filter(|at| messages[*at].role == Role::Assistant).collect();
    // Replies in front of the model's own are worked examples.
    let Some(examples) = replies.len().checked_sub(sampled.len()) else {
        let replies = replies.len();
        return Some(format!("its transcript has {} sampled turns and {replies} replies", sampled.len()));
    };
    let said = said?;
    replies[examples..].iter().zip(sampled).enumerate().find_map(|(turn, (at, ids))| {
        match said(&messages[..*at], ids) {
            Ok(words) if words == messages[*at].content => None,
            Ok(_) => Some(format!("the words of reply {} are not those of its token ids", turn + 1)),
            Err(error) => Some(format!("the token ids of reply {} cannot be read: {error}", turn + 1)),
        }
    })
}

/// Reads sampled ids with the tokenizer of an experiment's model, or says why words are not compared: the model
/// that answered for the base arm, `model_sha256`, has to be here.
#[cfg(feature = "engine")]
pub fn reader(
    experiment: &crate::stages::Experiment,
    model_sha256: Option<&str>,
) -> std::result::Result<Said, String> {
    use crate::engine::local::Markers;
    use crate::environment::THOUGHT;
    use crate::model::TextSide;

    let first_line = |error: crate::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    let plan = &experiment.plan;
    let source = plan.model.source.as_deref().ok_or("the plan names no model, only an endpoint")?;
    let model_sha256 = model_sha256.ok_or("there is no episode of the base arm with token ids")?;
    let source = crate::stages::lab::source(experiment, source).map_err(first_line)?;
    if source.weights_sha256().map_err(first_line)? != model_sha256 {
        return Err(format!("{source} is not the model of the rows ({model_sha256})"));
    }
    let text = TextSide::load(&source).map_err(first_line)?;
    // Both harnesses have a budget for thoughts, or neither.
    let thinking = plan.harness.evaluate.think_tokens.is_some();
    let markers = Markers::of(text.tokenizer()).filter(|_| thinking);
    let names = serde_json::Map::from_iter([("enable_thinking".to_owned(), thinking.into())]);
    Ok(Box::new(move |before, ids| {
        let words = text.tokenizer().decode(ids, true)?;
        let opened = match &markers {
            Some(markers) => markers.opened_in(&text.prompt(before, &names)?),
            None => false,
        };
        Ok(if opened { format!("{THOUGHT}{words}") } else { words })
    }))
}

/// Without the engine there is no tokenizer.
#[cfg(not(feature = "engine"))]
pub fn reader(_: &crate::stages::Experiment, _: Option<&str>) -> std::result::Result<Said, String> {
    Err("this build has no tokenizers (feature `engine`)".into())
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

    fn bytes() -> Said {
        Box::new(|_, ids| Ok(ids.iter().map(|id| char::from(*id as u8)).collect()))
    }

    #[test]
    fn hash_count_and_words_each_hold_a_transcript_to_what_was_sampled() {
        let said = bytes();
        let (row, transcript) = episode();
        assert_eq!(differs(&row, &transcript, Some(&said)), None);
        assert_eq!(differs(&row, &transcript, None), None);
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
            let what = differs(&row, &transcript, Some(&said)).unwrap();
            assert!(what.contains(words), "{what}");
            assert_eq!(differs(&row, &transcript, None).is_some(), without_tokenizer, "{words}");
        }
        // A server gives no ids, and its transcripts have none.
        let (mut row, mut transcript) = (row, transcript);
        (row.tokens_sha256, transcript.sampled) = (None, Vec::new());
        assert_eq!(differs(&row, &transcript, Some(&said)), None);
    }
}
