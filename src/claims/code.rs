//! Where code stands in Markdown: fenced blocks and code spans, found so narrowly that nothing
//! which a Markdown reader takes for prose is ever taken for code. Where the two could differ
//! (an open fence, a stray backtick) the place is reported instead of guessed.

use std::collections::HashMap;
use std::ops::Range;

/// Code in a text, and places where code could not be told from prose.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// Byte ranges of code, fences and backticks included, in rising order.
    pub ranges: Vec<Range<usize>>,
    /// Places that must be rewritten, each with what is wrong.
    pub troubles: Vec<(Range<usize>, String)>,
}

/// A line that can open or close a fence.
struct Fence {
    mark: u8,
    length: usize,
    quotes: usize,
    indent: usize,
    bare: bool,
}

/// Finds code in `text`.
pub(super) fn find(text: &str) -> Code {
    let lines = lines(text);
    let mut code = Code::default();
    let mut index = 0;
    // Fences that nothing closes, by their kind, and the line up to which that was seen: each kind is looked for once.
    let mut open_ended: HashMap<(u8, usize, usize, usize), usize> = HashMap::new();
    while let Some(line) = lines.get(index) {
        let content = &text[line.clone()];
        match opening(content) {
            Some(open) => {
                let kind = (open.mark, open.length, open.quotes, open.indent);
                let found = match open_ended.get(&kind).is_some_and(|seen| index < *seen) {
                    true => Err(0),
                    false => closing(text, &lines[index + 1..], &open),
                };
                match found {
                    Ok(count) => {
                        let last = &lines[index + count];
                        code.ranges.push(line.start..last.end);
                        index += count;
                    }
                    Err(looked) => {
                        let seen = open_ended.entry(kind).or_default();
                        *seen = (*seen).max(index + looked);
                        let what = "a code fence that is opened here is never closed";
                        code.troubles.push((line.clone(), what.into()));
                    }
                }
            }
            None => spans(content, line.start, &mut code),
        }
        index += 1;
    }
    code
}

/// Byte ranges of lines, without their line ends.
pub(super) fn lines(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    text.split('\n')
        .map(|line| {
            let range = start..start + line.strip_suffix('\r').unwrap_or(line).len();
            start += line.len() + 1;
            range
        })
        .collect()
}

/// Strips blanks and block-quote marks: `(depth of quotes, indent after them, the rest)`.
fn strip_quotes(line: &str) -> (usize, usize, &str) {
    let (mut quotes, mut indent, mut rest) = (0, 0, line);
    loop {
        match rest.as_bytes().first() {
            Some(b' ') => indent += 1,
            Some(b'\t') => indent += 4,
            Some(b'>') => {
                quotes += 1;
                indent = 0;
            }
            _ => return (quotes, indent, rest),
        }
        rest = &rest[1..];
    }
}

fn opening(line: &str) -> Option<Fence> {
    let (mut quotes, mut indent, mut rest) = strip_quotes(line);
    while let Some(after) = list_marker(rest) {
        indent += rest.len() - after.len();
        let (more, spaces, tail) = strip_quotes(after);
        quotes += more;
        indent += spaces;
        rest = tail;
    }
    let mark = *rest.as_bytes().first().filter(|b| **b == b'`' || **b == b'~')?;
    let length = rest.bytes().take_while(|b| *b == mark).count();
    let info = &rest[length..];
    if length < 3 || (mark == b'`' && info.contains('`')) {
        return None;
    }
    Some(Fence { mark, length, quotes, indent, bare: info.trim().is_empty() })
}

/// What follows `- `, `* `, `+ `, `1. ` or `1) `.
pub(super) fn list_marker(text: &str) -> Option<&str> {
    let rest = match text.as_bytes().first()? {
        b'-' | b'*' | b'+' => &text[1..],
        b'0'..=b'9' => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            if digits > 9 {
                return None;
            }
            text[digits..].strip_prefix(['.', ')'])?
        }
        _ => return None,
    };
    rest.strip_prefix([' ', '\t'])
}

/// How many lines further on the fence is closed; else, how many lines were looked at until its container or the text ends.
fn closing(text: &str, following: &[Range<usize>], open: &Fence) -> Result<usize, usize> {
    for (count, line) in following.iter().enumerate() {
        let content = &text[line.clone()];
        let (quotes, indent, rest) = strip_quotes(content);
        if !rest.is_empty() && (quotes < open.quotes || (open.indent > 0 && indent < open.indent)) {
            return Err(count);
        }
        let fence = opening(content).filter(|f| f.mark == open.mark && f.bare && list_marker(rest).is_none());
        if fence.is_some_and(|f| f.length >= open.length && indent < open.indent + 4) {
            return Ok(count + 1);
        }
    }
    Err(following.len())
}

/// Code spans of one line. A span that goes over a line end is not looked for: the backticks
/// that would open it are reported.
fn spans(line: &str, offset: usize, code: &mut Code) {
    let bytes = line.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' if bytes.get(i + 1).is_some_and(u8::is_ascii_punctuation) => i += 2,
            b'`' => {
                let length = run(bytes, i);
                let inside = i + length;
                match close(bytes, inside, length) {
                    Some(end) => {
                        let span = offset + i..offset + end;
                        // In a table row, cells are cut at `|` before code is looked for.
                        if line[i..end].contains('|') && line[i..end].contains("](") {
                            code.troubles.push((span, "a link and a `|` stand in one code span".into()));
                        } else {
                            code.ranges.push(span);
                        }
                        i = end;
                    }
                    None => {
                        code.troubles.push((
                            offset + i..offset + inside,
                            "a code span that is opened here is not closed on its line".into(),
                        ));
                        i = inside;
                    }
                }
            }
            _ => i += 1,
        }
    }
}

fn run(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().take_while(|b| **b == b'`').count()
}

fn close(bytes: &[u8], from: usize, length: usize) -> Option<usize> {
    let mut i = from;
    while i < bytes.len() {
        if bytes[i] == b'`' {
            let found = run(bytes, i);
            if found == length {
                return Some(i + found);
            }
            i += found;
        } else {
            i += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str], troubles: usize) {
        let code = find(text);
        let found: Vec<&str> = code.ranges.iter().map(|r| &text[r.clone()]).collect();
        assert_eq!(found, expected, "{text}");
        assert_eq!(code.troubles.len(), troubles, "{text}: {:?}", code.troubles);
    }

    #[test]
    fn spans_and_fences_are_found() {
        check("a `b` c ``d ` e``", &["`b`", "``d ` e``"], 0);
        check("a \\`b` c`", &["` c`"], 0);
        check("x\n```toml\na = 1\n```\ny", &["```toml\na = 1\n```"], 0);
        check("~~~\n```\n~~~~\nz", &["~~~\n```\n~~~~"], 0);
        check("- item\n  ```\n  code\n  ```\n- next", &["  ```\n  code\n  ```"], 0);
        check("> ```\n> code\n> ```\n", &["> ```\n> code\n> ```"], 0);
        check("```\r\ncode\r\n```\r\n", &["```\r\ncode\r\n```"], 0);
    }

    #[test]
    fn doubtful_code_is_reported_not_guessed() {
        check("```\nnever closed", &[], 1);
        check("> ```\n> x\n\nprose\n\n```\ncode\n```", &["```\ncode\n```"], 1);
        check("- ```\nprose\n", &[], 1);
        check("a ` b\nc ` d", &[], 2);
        check("| ` | [1](derive:a.b) | ` |", &[], 1);
    }
}
