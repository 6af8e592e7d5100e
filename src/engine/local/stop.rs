//! Watching a completion for stop strings while it grows: text is decoded piece by piece,
//! a piece that ends inside a UTF-8 character waits for the rest of it.

use crate::error::Result;

/// The growing text of one completion.
#[derive(Debug, Clone)]
pub struct StopWatch {
    stops: Vec<String>,
    text: String,
    /// Tokens `window..shown` are decoded again with each new one, because a token's text may
    /// depend on the token before it.
    window: usize,
    shown: usize,
}

impl StopWatch {
    /// Watches for any of `stops` (none of them empty).
    pub fn new(stops: Vec<String>) -> Self {
        StopWatch { stops, text: String::new(), window: 0, shown: 0 }
    }

    /// Takes the completion's tokens after one more was sampled; whether a stop string is complete.
    pub fn sees_stop(&mut self, tokens: &[u32], decode: impl Fn(&[u32]) -> Result<String>) -> Result<bool> {
        let (before, after) = (decode(&tokens[self.window..self.shown])?, decode(&tokens[self.window..])?);
        if after.ends_with(char::REPLACEMENT_CHARACTER) || after.len() <= before.len() {
            return Ok(false);
        }
        // A stop string that was not there before can start at most its length before the new piece.
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = self.text.len().saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.push_str(after.get(before.len()..).unwrap_or(&after));
        self.window = self.shown;
        self.shown = tokens.len();
        Ok(first_stop(&self.text[from..], &self.stops).is_some())
    }
}

/// Byte offset of the earliest stop string in `text`.
pub fn first_stop(text: &str, stops: &[String]) -> Option<usize> {
    stops.iter().filter_map(|s| text.find(s.as_str())).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids are bytes, as in a byte-level vocabulary.
    fn bytes(tokens: &[u32]) -> Result<String> {
        Ok(String::from_utf8_lossy(&tokens.iter().map(|t| *t as u8).collect::<Vec<_>>()).into_owned())
    }

    /// Number of bytes of `text` after which a stop string was seen.
    fn stops_after(text: &str, stops: &[&str]) -> Option<usize> {
        let mut watch = StopWatch::new(stops.iter().map(|s| s.to_string()).collect());
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        (1..=tokens.len()).find(|n| watch.sees_stop(&tokens[..*n], bytes).unwrap())
    }

    #[test]
    fn a_stop_is_seen_when_its_last_byte_arrives() {
        assert_eq!(stops_after("abc\nUser: hi", &["\nUser:"]), Some(9));
        assert_eq!(stops_after("aaab", &["aab"]), Some(4));
        assert_eq!(stops_after("abc", &["x", "c", "b"]), Some(2));
        assert_eq!(stops_after("abc", &["abcd"]), None);
    }

    #[test]
    fn characters_of_several_bytes_wait_for_their_last() {
        assert_eq!(stops_after("na\u{ef}ve \u{1f980}!", &["\u{1f980}"]), Some(11));
        assert_eq!(stops_after("\u{e9}\u{e9}\u{e9}x", &["\u{e9}x"]), Some(7));
        assert_eq!(stops_after("\u{1f980}\u{e9}", &["\u{e9}"]), Some(6));
    }

    #[test]
    fn the_earliest_stop_cuts() {
        let stops = ["cd".to_string(), "bc".to_string()];
        assert_eq!(first_stop("abcd", &stops), Some(1));
        assert_eq!(first_stop("xyz", &stops), None);
    }
}
