//! JSON as Python writes it, read from any stream without trust: `NaN` and `Infinity` outside texts
//! become texts that no score may be, and a stream that gives more than it may is cut off.

use std::io::{BufRead, Error, Read, Result};

/// Where in the JSON text the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Plain,
    Text,
    Escape,
    /// Behind a minus that may begin a number or `-Infinity`.
    Minus,
    /// Within a bare word that JSON does not have.
    Word,
}

/// Puts `NaN`, `Infinity` and `-Infinity` between quotation marks; every other byte passes as it is.
pub struct Python<R> {
    inner: R,
    state: State,
    ready: Vec<u8>,
    given: usize,
    ended: bool,
}

impl<R: BufRead> Python<R> {
    /// Reads JSON from `inner`.
    pub fn new(inner: R) -> Self {
        Python { inner, state: State::Plain, ready: Vec::new(), given: 0, ended: false }
    }

    fn push(&mut self, byte: u8) {
        if self.state == State::Minus {
            if byte == b'I' {
                self.ready.extend(b"\"-I");
                self.state = State::Word;
                return;
            }
            self.ready.push(b'-');
            self.state = State::Plain;
        } else if self.state == State::Word && !byte.is_ascii_alphabetic() {
            self.ready.push(b'"');
            self.state = State::Plain;
        }
        match (self.state, byte) {
            (State::Plain, b'-') => {
                self.state = State::Minus;
                return;
            }
            (State::Plain, b'"') => self.state = State::Text,
            (State::Plain, b'N' | b'I') => {
                self.ready.push(b'"');
                self.state = State::Word;
            }
            (State::Text, b'"') => self.state = State::Plain,
            (State::Text, b'\\') => self.state = State::Escape,
            (State::Escape, _) => self.state = State::Text,
            _ => {}
        }
        self.ready.push(byte);
    }

    fn end(&mut self) {
        match self.state {
            State::Minus => self.ready.push(b'-'),
            State::Word => self.ready.push(b'"'),
            _ => {}
        }
        self.state = State::Plain;
        self.ended = true;
    }
}

impl<R: BufRead> Read for Python<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        while self.given == self.ready.len() && !self.ended {
            self.ready.clear();
            self.given = 0;
            let bytes = self.inner.fill_buf()?.to_vec();
            self.inner.consume(bytes.len());
            if bytes.is_empty() {
                self.end();
            }
            bytes.into_iter().for_each(|byte| self.push(byte));
        }
        let left = &self.ready[self.given..];
        let n = left.len().min(out.len());
        out[..n].copy_from_slice(&left[..n]);
        self.given += n;
        Ok(n)
    }
}

/// A stream that fails once it has given more than `limit` bytes.
pub struct Bounded<R> {
    inner: R,
    left: u64,
    limit: u64,
}

impl<R: Read> Bounded<R> {
    /// At most `limit` bytes of `inner`.
    pub fn new(inner: R, limit: u64) -> Self {
        Bounded { inner, left: limit, limit }
    }

    /// Bytes given so far.
    pub fn given(&self) -> u64 {
        self.limit - self.left
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let n = self.inner.read(out)?;
        match self.left.checked_sub(n as u64) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                return Err(Error::other(format!("it holds more than {} MiB", self.limit >> 20)));
            }
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn through(text: &str) -> String {
        let mut out = String::new();
        Python::new(text.as_bytes()).read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn bare_words_of_python_become_texts_and_texts_stay() {
        for (given, wanted) in [
            ("[NaN, -Infinity,Infinity]", "[\"NaN\", \"-Infinity\",\"Infinity\"]"),
            ("{\"a\":NaN}", "{\"a\":\"NaN\"}"),
            (r#"["NaN -Infinity \" Infinity", -1, - 2]"#, r#"["NaN -Infinity \" Infinity", -1, - 2]"#),
            ("NaN", "\"NaN\""),
            ("-", "-"),
            ("true", "true"),
        ] {
            assert_eq!(through(given), wanted);
        }
    }

    #[test]
    fn a_stream_is_cut_off_where_it_gives_too_much() {
        let mut out = Vec::new();
        assert!(Bounded::new(&b"1234"[..], 4).read_to_end(&mut out).is_ok());
        assert!(
            Bounded::new(std::io::repeat(1), 3 << 20)
                .read_to_end(&mut out)
                .unwrap_err()
                .to_string()
                .contains("3 MiB")
        );
    }

    proptest! {
        #[test]
        fn any_json_passes_unchanged(values in prop::collection::vec((any::<f64>(), ".*", any::<bool>()), 0..8)) {
            let text = serde_json::to_string(&values).unwrap();
            prop_assert_eq!(through(&text), text);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-\"\\\\NaIx\u{e9} ]{0,30}") {
            through(&text);
        }
    }
}
