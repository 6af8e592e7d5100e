//! A Markdown text as a reader sees it, as far as the neighbours of a number are concerned: marks
//! of emphasis, link targets and invisible characters gone, derive links as single characters.

use super::code;
use std::ops::Range;

/// Stands for a derive link.
pub(super) const LINK: char = '\u{1}';
/// Stands for a border that no reader reads across: a table cell, a paragraph, a block.
pub(super) const BORDER: char = '\u{2}';
/// Stands for a character reference that is not known here.
pub(super) const ENTITY: char = '\u{3}';

/// Most characters of a link's target; what goes on beyond is no link here.
const LONGEST_TARGET: usize = 4096;

/// The visible characters of a text, and where each of `links` (in rising order, whole links)
/// stands among them. A link that overlaps the one before it is left out and stands nowhere.
pub(super) fn project(text: &str, links: &[Range<usize>]) -> (Vec<char>, Vec<Option<usize>>) {
    let (mut seen, mut places) = (Vec::with_capacity(text.len()), Vec::with_capacity(links.len()));
    let mut links = links.iter().peekable();
    let mut at = 0;
    while at < text.len() {
        while links.next_if(|link| link.start < at).is_some() {
            places.push(None);
        }
        if let Some(link) = links.next_if(|link| link.start == at) {
            places.push(Some(seen.len()));
            seen.push(LINK);
            at = link.end.max(at + 1);
            continue;
        }
        let (shown, length) = match seen.last() {
            // A star between blanks is a sign of multiplication, not a mark.
            Some(last) if last.is_whitespace() && text[at..].starts_with("* ") => (Some('*'), 1),
            _ => step(&text[at..]),
        };
        seen.extend(shown);
        at += length;
    }
    places.extend(links.map(|_| None));
    (seen, places)
}

/// The next visible character, if there is one, and the bytes it takes.
fn step(rest: &str) -> (Option<char>, usize) {
    let Some(c) = rest.chars().next() else { return (None, 1) };
    let length = c.len_utf8();
    match c {
        '\\' => match rest[1..].chars().next() {
            Some(next) if next.is_ascii_punctuation() => (Some(next), 2),
            _ => (Some(c), 1),
        },
        '*' | '_' | '~' | '`' | '[' | '\r' => (None, length),
        '!' if rest[1..].starts_with('[') => (None, length),
        ']' => (None, length + target(&rest[1..])),
        '|' => (Some(BORDER), length),
        '&' => entity(rest),
        '\n' => line_end(rest),
        _ if invisible(c) => (None, length),
        _ => (Some(c), length),
    }
}

/// Bytes of a link's target after its `]`, from `(` to the `)` that closes it, titles in quotes
/// included; 0 where there is none.
fn target(rest: &str) -> usize {
    if !rest.starts_with('(') {
        return 0;
    }
    let (mut depth, mut quote, mut last) = (0usize, None, ' ');
    for (at, c) in rest.char_indices().take(LONGEST_TARGET) {
        match (c, quote) {
            _ if last == '\\' => {}
            ('\n', _) if last == '\n' => return 0,
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) if last.is_whitespace() => quote = Some(c),
            ('(', None) => depth += 1,
            (')', None) if depth == 1 => return at + 1,
            (')', None) => depth -= 1,
            _ => {}
        }
        last = if last == '\\' { ' ' } else { c };
    }
    0
}

/// A line end is a blank; before an empty line, a list item, a heading or a fence it is a border.
fn line_end(rest: &str) -> (Option<char>, usize) {
    let line = &rest[1..];
    let content = line.trim_start_matches([' ', '\t', '>', '\r']);
    let block = content.is_empty()
        || content.starts_with(['\n', '#'])
        || content.starts_with("```")
        || content.starts_with("~~~")
        || code::list_marker(content).is_some();
    let skipped = line.len() - content.len();
    (Some(if block { BORDER } else { '\n' }), 1 + skipped)
}

fn entity(rest: &str) -> (Option<char>, usize) {
    let end = rest.bytes().take(40).position(|b| b == b';').unwrap_or(0);
    let name = rest.get(1..end).unwrap_or_default();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'#') {
        return (Some('&'), 1);
    }
    let known = match name {
        "nbsp" => '\u{a0}',
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "mdash" => '—',
        "ndash" => '–',
        "minus" => '\u{2212}',
        "times" => '×',
        _ => ENTITY,
    };
    (Some(known), end + 1)
}

/// Characters of no width: joiners, marks of direction, soft hyphens, variation selectors.
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{180e}' | '\u{61c}')
        || (c.is_control() && !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        let links: Vec<_> = super::super::links::scan(text).links.into_iter().map(|l| l.whole).collect();
        let (seen, places) = project(text, &links);
        places.iter().flatten().for_each(|place| assert_eq!(seen[*place], LINK));
        seen.into_iter()
            .map(|c| {
                if c == LINK {
                    'N'
                } else if c == BORDER {
                    '¦'
                } else {
                    c
                }
            })
            .collect()
    }

    #[test]
    fn what_a_reader_does_not_see_is_gone() {
        for (text, wanted) in [
            ("**[7](derive:a.b)**0", "N0"),
            ("[1](https://x.org/2)[7](derive:a.b)\u{200b}`0`", "1N0"),
            ("[7](derive:a.b)&nbsp;k &#48; & b", "N\u{a0}k \u{3} & b"),
            ("\\-[7](derive:a.b)\\*", "-N*"),
            ("|1|[7](derive:a.b)|", "¦1¦N¦"),
            ("[7](derive:a.b)\n> k", "N\nk"),
            ("[7](derive:a.b)\r\n\r\nk", "N¦\nk"),
            ("[7](derive:a.b)\n- k", "N¦- k"),
            ("[1](https://x.org/a_(b) \"c) d\")[7](derive:a.b) * 2", "1N * 2"),
            ("[1](\nhttps://x.org)[7](derive:a.b)", "1N"),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[\\[\\]()`\\\\ \r\n>~!<:&;#a-c1é—|derive.*-]{0,80}") {
            shown(&text);
        }
    }
}
