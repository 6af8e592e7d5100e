//! The growing text of one answer, handed out piece by piece: never part of a character, and never
//! part of a stop string that may yet become complete. All pieces together are the answer's text.

use crate::error::Result;

/// Replacement characters at the end of a text that may yet become a character.
const UNFINISHED: usize = 3;

/// Turns token ids into pieces of text.
#[derive(Debug, Clone)]
pub struct TextStream {
    stops: Vec<String>,
    /// Ids from the start of the window: decoded again with each new one, because a token's text may
    /// depend on those before it.
    window: Vec<u32>,
    /// Where in the window the tokens begin whose text is new.
    fresh: usize,
    /// Bytes of the window's text that were handed on.
    taken: usize,
    /// Text that was decoded and may be the start of a stop string.
    held: String,
    stopped: bool,
}

impl TextStream {
    /// A text that ends before that of `stops` which is complete first (none of them empty).
    pub fn new(stops: Vec<String>) -> Self {
        TextStream { stops, window: Vec::new(), fresh: 0, taken: 0, held: String::new(), stopped: false }
    }

    /// Takes one more token; returns the text that is certain now.
    pub fn push(&mut self, token: u32, decode: &impl Fn(&[u32]) -> Result<String>) -> Result<String> {
        if self.stopped {
            return Ok(String::new());
        }
        self.window.push(token);
        let text = decode(&self.window)?;
        let unfinished =
            text.chars().rev().take(UNFINISHED).take_while(|c| *c == char::REPLACEMENT_CHARACTER).count();
        let certain = text.len() - unfinished * char::REPLACEMENT_CHARACTER.len_utf8();
        if certain > self.taken {
            self.held.push_str(text.get(self.taken..certain).unwrap_or_default());
            self.taken = certain;
        }
        if unfinished == 0 && self.taken == text.len() {
            // The tokens that were new become what the next ones are decoded after.
            let before = self.window.split_off(self.fresh);
            self.taken = decode(&before)?.len();
            self.fresh = before.len();
            self.window = before;
        }
        Ok(self.release())
    }

    /// No token follows: returns the rest of the text.
    pub fn finish(&mut self, decode: &impl Fn(&[u32]) -> Result<String>) -> Result<String> {
        if self.stopped {
            return Ok(String::new());
        }
        let text = decode(&self.window)?;
        self.held.push_str(text.get(self.taken..).unwrap_or_default());
        let piece = self.release();
        self.stopped = true;
        Ok(piece + &std::mem::take(&mut self.held))
    }

    /// The part of the held text that no stop string can begin in.
    fn release(&mut self) -> String {
        if let Some(cut) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(cut);
            self.stopped = true;
            return std::mem::take(&mut self.held);
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, kept)
    }
}

/// Length of the longest end of `text` that `pattern` begins with, without being all of it.
pub fn overlap(text: &str, pattern: &str) -> usize {
    let longest = text.len().min(pattern.len().saturating_sub(1));
    (1..=longest).rev().find(|n| pattern.is_char_boundary(*n) && text.ends_with(&pattern[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ids are bytes, as in a byte-level vocabulary.
    fn bytes(tokens: &[u32]) -> Result<String> {
        Ok(String::from_utf8_lossy(&tokens.iter().map(|t| *t as u8).collect::<Vec<_>>()).into_owned())
    }

    fn pieces(text: &[u8], stops: &[&str]) -> Vec<String> {
        let mut stream = TextStream::new(stops.iter().map(|s| s.to_string()).collect());
        let mut out: Vec<String> = text
            .iter()
            .map(|b| stream.push(u32::from(*b), &bytes).unwrap())
            .filter(|p| !p.is_empty())
            .collect();
        out.push(stream.finish(&bytes).unwrap());
        out
    }

    #[test]
    fn characters_come_whole() {
        assert_eq!(pieces("aé🦀".as_bytes(), &[]), ["a", "é", "🦀", ""]);
        assert_eq!(
            pieces(&[b'a', 0xe2, 0x82], &[]),
            ["a", "\u{fffd}"],
            "what never became a character is shown"
        );
    }

    #[test]
    fn a_stop_string_never_leaks() {
        assert_eq!(pieces(b"abENx", &["END"]), ["a", "b", "ENx", ""]);
        assert_eq!(pieces(b"abENDx", &["END"]), ["a", "b", ""]);
        assert_eq!(pieces(b"abEN", &["END"]), ["a", "b", "EN"]);
        assert_eq!(pieces(b"abc", &["abcd", "bc"]).concat(), "a");
    }

    #[test]
    fn a_token_may_depend_on_the_one_before() {
        // As in a sentencepiece vocabulary: a word begins with a blank, unless it is the first.
        let words = |tokens: &[u32]| -> Result<String> {
            Ok(tokens.iter().map(|t| format!("w{t}")).collect::<Vec<_>>().join(" "))
        };
        let mut stream = TextStream::new(Vec::new());
        let got: Vec<String> = (1..4).map(|t| stream.push(t, &words).unwrap()).collect();
        assert_eq!(got, ["w1", " w2", " w3"]);
    }

    #[test]
    fn overlaps_are_those_of_whole_characters() {
        assert_eq!(overlap("xaé", "éa"), 2);
        assert_eq!(overlap("abab", "ababc"), 4);
        assert_eq!(overlap("abc", "abc"), 0);
    }

    proptest! {
        #[test]
        fn pieces_make_up_the_text_before_the_first_stop(
            text in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0xe2), Just(0x82), Just(0xac), any::<u8>()], 0..40),
            stops in proptest::collection::vec("[ab€]{1,3}", 0..3),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let whole = String::from_utf8_lossy(&text).into_owned();
            // The stop that is complete first, though another may begin before it.
            let first = stops.iter().filter_map(|s| whole.find(s).map(|at| (at + s.len(), at))).min();
            let cut = first.map_or(whole.len(), |(_, at)| at);
            prop_assert_eq!(pieces(&text, &stops).concat(), &whole[..cut]);
        }
    }
}
