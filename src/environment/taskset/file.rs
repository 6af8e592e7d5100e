//! Reads a task set line by line: each line within a limit, each problem with its number, up to a
//! limit, and what only shows across lines: ids that come twice and questions that are asked twice.

use super::line::Line;
use crate::error::{Error, Problem, Result};
use crate::hash;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line, in bytes.
const MOST_LINE: usize = 1 << 20;
/// Largest file, in bytes: it is held in memory.
const MOST_BYTES: u64 = 256 << 20;
/// Most problems that are collected before reading stops.
pub const MOST_PROBLEMS: usize = 50;

/// What was read of a file.
pub struct Contents {
    /// SHA-256 of its bytes; of those that were read, where reading stopped early.
    pub sha256: String,
    /// Its tasks in file order, with their line numbers, counted from 1.
    pub lines: Vec<(usize, Line)>,
    /// What is wrong with it, in file order; empty when it can be used.
    pub problems: Vec<Found>,
    /// Whether reading stopped at the limit of problems.
    pub stopped: bool,
}

/// A problem of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, and the remedy.
    pub problem: Problem,
}

/// Reads a file. Errors only where it cannot be read at all, or is too large.
pub fn read(path: &Path) -> Result<Contents> {
    crate::regular::check(path)?;
    let file = fs_err::File::open(path)?;
    let size = file.metadata()?.len();
    if size > MOST_BYTES {
        return Err(Error::invalid(format!("has {size} bytes, and {MOST_BYTES} are the most"))
            .at(path.display())
            .hint("take a part of the tasks"));
    }
    contents(BufReader::new(file.take(MOST_BYTES)))
}

/// Reads the same from any source.
pub fn contents(mut source: impl BufRead) -> Result<Contents> {
    let mut hasher = Sha256::new();
    let mut out = Contents { sha256: String::new(), lines: Vec::new(), problems: Vec::new(), stopped: false };
    let (mut ids, mut questions) = (HashMap::new(), HashMap::new());
    let mut number = 0;
    let mut bytes = Vec::new();
    while out.problems.len() < MOST_PROBLEMS {
        bytes.clear();
        number += 1;
        let read = source.by_ref().take(MOST_LINE as u64 + 1).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            break;
        }
        hasher.update(&bytes);
        let found = if bytes.last() != Some(&b'\n') && read > MOST_LINE {
            skip_line(&mut source, &mut hasher)?;
            Err(Error::invalid(format!("is longer than {MOST_LINE} bytes"))
                .hint("a task is one JSON object on one line"))
        } else {
            parse(&bytes, number == 1)
        };
        match found
            .and_then(|line| line.map_or(Ok(None), |line| unique(line, number, &mut ids, &mut questions)))
        {
            Ok(Some(line)) => out.lines.push((number, line)),
            Ok(None) => {}
            Err(Error::Invalid(problem) | Error::Refused(problem)) => {
                out.problems.push(Found { line: number, problem: *problem });
            }
            Err(other) => return Err(other),
        }
    }
    out.stopped = out.problems.len() >= MOST_PROBLEMS;
    out.sha256 = hash::hex(&hasher.finalize());
    Ok(out)
}

/// A line's task; none of an empty line.
fn parse(bytes: &[u8], first: bool) -> Result<Option<Line>> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        Error::invalid(format!("is not UTF-8 from byte {} on", e.valid_up_to() + 1))
            .hint("save the file as UTF-8")
    })?;
    let text = if first { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
    if text.trim().is_empty() { Ok(None) } else { Line::parse(text).map(Some) }
}

/// Refuses a line whose id or question was there before.
fn unique(
    line: Line,
    number: usize,
    ids: &mut HashMap<String, usize>,
    questions: &mut HashMap<[u8; 32], (usize, &'static str)>,
) -> Result<Option<Line>> {
    if let Some(first) = ids.insert(line.id.clone(), number) {
        ids.insert(line.id.clone(), first);
        return Err(Error::invalid(format!("`id` is `{}`, as in line {first}", line.id))
            .hint("give each task an id of its own"));
    }
    let question: [u8; 32] = Sha256::digest(line.question()).into();
    let split = line.split.as_str();
    if let Some((first, other)) = questions.insert(question, (number, split)) {
        questions.insert(question, (first, other));
        let what = if other == split {
            format!("asks the same as line {first}")
        } else {
            format!("asks the same as line {first}, and one is `{other}`, the other `{split}`")
        };
        return Err(Error::invalid(what).hint(
            "keep one of them: a task that is trained on must not be evaluated, nor one be counted twice",
        ));
    }
    Ok(Some(line))
}

/// Passes over the rest of a line, without keeping it.
fn skip_line(source: &mut impl BufRead, hasher: &mut Sha256) -> Result<()> {
    loop {
        let (used, ended) = {
            let buffer = source.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(buffer.len(), |at| at + 1);
            hasher.update(&buffer[..used]);
            (used, end.is_some())
        };
        source.consume(used);
        if ended || used == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Contents {
        contents(text.as_bytes()).unwrap()
    }

    fn lines(contents: &Contents) -> Vec<usize> {
        contents.problems.iter().map(|found| found.line).collect()
    }

    #[test]
    fn good_lines_are_read_whatever_the_editor() {
        let text =
            "\u{feff}{\"prompt\": \"a\", \"answer\": \"1\"}\r\n\r\n{\"prompt\": \"b\", \"answer\": \"2\"}";
        let found = of(text);
        assert_eq!(found.problems, []);
        assert_eq!(found.lines.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(found.sha256, hash::sha256_hex(text.as_bytes()));
    }

    #[test]
    fn each_bad_line_is_named_with_its_number() {
        let long = format!("{{\"prompt\": \"{}\", \"answer\": \"x\"}}", "x".repeat(MOST_LINE));
        let text = format!(
            "{{\"prompt\": \"a\", \"answer\": \"1\", \"id\": \"q\", \"split\": \"train\"}}\n{{\n{long}\n{{\"prompt\": \"b\", \"answer\": \"2\", \"id\": \"q\"}}\n\
             {{\"prompt\": \"A \\n\", \"answer\": \"3\"}}\n{{\"prompt\": \"c\", \"answer\": \"4\"}}\n"
        );
        let found = of(&text);
        assert_eq!(lines(&found), [2, 3, 4, 5]);
        for (problem, words) in found.problems.iter().zip([
            "not JSON",
            "longer than",
            "as in line 1",
            "and one is `train`, the other `held_out`",
        ]) {
            assert!(problem.problem.what.contains(words), "{problem:?}");
        }
        assert_eq!((found.lines.len(), found.sha256), (2, hash::sha256_hex(text.as_bytes())));
        let bytes = contents(&b"{\"prompt\": \"\xff\"}\n"[..]).unwrap();
        assert!(bytes.problems[0].problem.what.contains("not UTF-8"));
    }

    #[test]
    fn reading_stops_after_many_problems() {
        let found = of(&"x\n".repeat(10_000));
        assert_eq!((found.problems.len(), found.stopped), (MOST_PROBLEMS, true));
        assert_eq!(found.problems.last().unwrap().line, MOST_PROBLEMS);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let found = contents(&bytes[..]).unwrap();
            prop_assert!(found.lines.len() + found.problems.len() <= 200);
        }
    }
}
