//! Derive links in Markdown text: `[0.31](derive:demo.delta)`. A small scanner of its own, so
//! that claims and the audit read the same links without a Markdown library. Code and escaped
//! brackets are no links; every other way to smuggle in a `derive:` address is reported.

use super::derivation::Reference;
use super::{beside, code};
use std::collections::HashMap;
use std::ops::Range;

/// A derive link within one text; all ranges are bytes of that text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextLink {
    /// The whole link, from `[` to `)`.
    pub whole: Range<usize>,
    /// What stands between the brackets; empty where `fill` is to write.
    pub printed: Range<usize>,
    /// The parsed address, or what is wrong with the link.
    pub reference: Result<Reference, String>,
    /// What stands beside the link and changes what its number says, and what to do about it.
    pub beside: Option<(String, &'static str)>,
}

/// What was found in one text.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Derive links in order.
    pub links: Vec<TextLink>,
    /// Places that hide or misuse a derive address, each with what is wrong.
    pub troubles: Vec<(Range<usize>, String)>,
    /// The text with code and derive links blanked out by spaces, byte for byte as long.
    pub prose: String,
}

impl Scan {
    /// The links that begin within a range.
    pub fn inside(&self, range: &Range<usize>) -> &[TextLink] {
        let from = self.links.partition_point(|link| link.whole.start < range.start);
        let to = self.links.partition_point(|link| link.whole.start < range.end);
        self.links.get(from..to).unwrap_or_default()
    }
}

/// A derive link of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The file, relative to the workspace.
    pub file: String,
    /// Line of the link, from 1.
    pub line: usize,
    /// Front-matter field it stands in, such as `cards[0].value`; `None` in the body.
    pub field: Option<String>,
    /// Bytes of the file between the brackets, without blanks around what is printed.
    pub range: Range<usize>,
    /// The text between the brackets.
    pub printed: String,
    /// The parsed address, or what is wrong with the link.
    pub reference: Result<Reference, String>,
    /// What stands beside the link and changes what its number says, and what to do about it.
    pub beside: Option<(String, &'static str)>,
}

/// Finds the derive links of a Markdown text. Never fails: what cannot be read is reported in
/// `troubles` or in a link's `reference`.
pub fn scan(text: &str) -> Scan {
    let code = code::find(text);
    let mut prose = Blanked::new(text);
    code.ranges.iter().for_each(|range| prose.blank(range.clone()));
    let live = prose.text();
    let escaped = escaped(&live);
    let bytes = live.as_bytes();
    let openings = openings(bytes, &escaped);
    let mut scan = Scan { troubles: code.troubles, ..Scan::default() };
    let mut i = 0;
    while i < bytes.len() {
        let free = |at: usize| !escaped[at];
        match bytes[i] {
            b']' if free(i) && bytes.get(i + 1) == Some(&b'(') => {
                if let Some(address) = address_start(&live, i + 2)
                    && let Some(open) = openings.get(&i).copied()
                {
                    let (mut link, end) = link(&live, open, i, address);
                    if scan.links.last().is_some_and(|inner| inner.whole.start > open) {
                        link.reference = Err("a derive link stands inside another link".to_string());
                    }
                    prose.blank(link.whole.clone());
                    scan.links.push(link);
                    i = end;
                    continue;
                }
                if disguised(&live, i + 2) {
                    scan.troubles.push((i..i + 2, DISGUISED.into()));
                }
            }
            b']' if free(i) && bytes.get(i + 1) == Some(&b':') && address_start(&live, i + 2).is_some() => {
                scan.troubles.push((i..i + 2, "a derive address stands in a link definition".into()));
            }
            b']' if free(i) && bytes.get(i + 1) == Some(&b':') && disguised(&live, i + 2) => {
                scan.troubles.push((i..i + 2, DISGUISED.into()));
            }
            b'<' if free(i) && address_start(&live, i).is_some() => {
                scan.troubles.push((i..i + 1, "a derive address stands in angle brackets".into()));
            }
            _ => {}
        }
        i += 1;
    }
    if let Some(at) = lone_return(text) {
        scan.troubles
            .push((at..at + 1, "a carriage return ends no line, and some readers think it does".into()));
    }
    scan.troubles.sort_by_key(|(range, _)| range.start);
    scan.prose = prose.text();
    let places: Vec<(Range<usize>, &str)> = scan
        .links
        .iter()
        .map(|l| (l.whole.clone(), text.get(l.printed.clone()).unwrap_or_default()))
        .collect();
    let beside = beside::find(text, &places);
    scan.links.iter_mut().zip(beside).for_each(|(link, found)| link.beside = found);
    scan
}

/// The first carriage return that no line feed follows.
pub(super) fn lone_return(text: &str) -> Option<usize> {
    text.match_indices('\r').map(|(at, _)| at).find(|at| text.as_bytes().get(at + 1) != Some(&b'\n'))
}

const DISGUISED: &str =
    "an address is written with entities or backslashes, which could hide `derive:`: write it plainly";

/// Most characters of an address that are searched for a disguise: a scheme is shorter.
const LONGEST_HEAD: usize = 256;

/// Whether the first part of an address holds an entity or a backslash: a page would decode it
/// into another scheme than the one that stands here.
fn disguised(text: &str, from: usize) -> bool {
    let rest = text.get(from..).unwrap_or_default().trim_start();
    let rest = rest.strip_prefix('<').unwrap_or(rest);
    let ends = |(_, c): &(usize, char)| c.is_whitespace() || matches!(c, ')' | '>');
    let end =
        rest.char_indices().take(LONGEST_HEAD).find(ends).map_or(rest.len().min(LONGEST_HEAD), |(at, _)| at);
    let end = (0..=end).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
    rest[..end].split(['/', '?']).next().is_some_and(|head| head.contains(['&', '\\']))
}

/// Where the text after `derive:` begins, if that is what stands at `from` after blanks and `<`.
fn address_start(text: &str, from: usize) -> Option<usize> {
    const SCHEME: &str = "derive:";
    let rest = text.get(from..)?;
    let trimmed = rest.trim_start();
    let trimmed = trimmed.strip_prefix('<').unwrap_or(trimmed);
    let start = from + (rest.len() - trimmed.len());
    let scheme = trimmed.get(..SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(start + SCHEME.len())
}

/// The `[` that belongs to each `]`, within its paragraph.
fn openings(bytes: &[u8], escaped: &[bool]) -> HashMap<usize, usize> {
    let (mut open, mut found, mut blank_line) = (Vec::new(), HashMap::new(), false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if blank_line => open.clear(),
            b'\n' => blank_line = true,
            b' ' | b'\t' | b'\r' => {}
            b'[' if !escaped[at] => open.push(at),
            b']' if !escaped[at] => found.extend(open.pop().map(|opening| (at, opening))),
            _ => {}
        }
        blank_line &= matches!(byte, b'\n' | b' ' | b'\t' | b'\r');
    }
    found
}

fn link(text: &str, open: usize, close: usize, address: usize) -> (TextLink, usize) {
    let rest = &text[address..];
    let length =
        rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '<' | '>')).unwrap_or(rest.len());
    let target = &rest[..length];
    let after = rest[length..].strip_prefix('>').unwrap_or(&rest[length..]).trim_start();
    let closed = after.starts_with(')');
    let end = if closed { text.len() - after.len() + 1 } else { address + length };
    let reference = if open > 0 && text.as_bytes()[open - 1] == b'!' {
        Err("an image cannot have a derive address".to_string())
    } else if !closed {
        Err(format!("the link to `derive:{target}` must hold one address and nothing else before `)`"))
    } else {
        Reference::parse(target).map_err(|e| e.to_string())
    };
    (TextLink { whole: open..end, printed: open + 1..close, reference, beside: None }, end)
}

/// For every byte, whether a backslash before it takes its meaning away.
fn escaped(text: &str) -> Vec<bool> {
    let bytes = text.as_bytes();
    let mut out = vec![false; bytes.len()];
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] == b'\\' && bytes.get(i + 1).is_some_and(u8::is_ascii_punctuation) {
            out[i + 1] = true;
            i += 1;
        }
        i += 1;
    }
    out
}

/// A text in which ranges are blanked out, offsets and line ends kept.
pub(super) struct Blanked(Vec<u8>);

impl Blanked {
    pub(super) fn new(text: &str) -> Blanked {
        Blanked(text.as_bytes().to_vec())
    }

    /// Blanks a range that starts and ends between characters.
    pub(super) fn blank(&mut self, range: Range<usize>) {
        for byte in self.0.get_mut(range).into_iter().flatten().filter(|b| **b != b'\n' && **b != b'\r') {
            *byte = b' ';
        }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_disguise_is_a_trouble() {
        for address in ["deri&#118;e:a.b", "derive&colon;a.b", r"derive\:a.b", "&#x64;erive:a.b"] {
            for text in
                [format!("Score [0.97]({address}) here."), format!("Score [0.97][x]\n\n[x]: {address}\n")]
            {
                assert!(!scan(&text).troubles.is_empty(), "{text}");
            }
        }
        assert!(
            scan("See [this](https://a.example/?x=1&y=2) and [that](sub/page.md?a&b).").troubles.is_empty()
        );
    }
    use proptest::prelude::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = scan(text);
        let links: Vec<(String, String)> = found
            .links
            .iter()
            .map(|l| {
                let shown = l.reference.as_ref().map_or_else(|e| format!("error: {e}"), Reference::to_string);
                (text[l.printed.clone()].to_string(), shown)
            })
            .collect();
        let links: Vec<(&str, &str)> = links.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(links, expected, "{text}");
        assert_eq!(found.prose.len(), text.len());
    }

    #[test]
    fn links_are_found() {
        check(
            "from [0.05](derive:d.base) to **[0.31](derive:d.delta.high)**, é [](derive:d.t/a%20b)",
            &[("0.05", "derive:d.base"), ("0.31", "derive:d.delta.high"), ("", "derive:d.t/a%20b")],
        );
        check(
            "see [the page](https://x.org) and [8](derive:a.b) of [11]( <derive:a.c> )",
            &[("8", "derive:a.b"), ("11", "derive:a.c")],
        );
        check("[outer [0.3](derive:a.b)](https://x.org)", &[("0.3", "derive:a.b")]);
        check("[a\nb](derive:a.b)", &[("a\nb", "derive:a.b")]);
    }

    #[test]
    fn code_and_escaped_brackets_are_no_links() {
        check("`[1](derive:a.b)`", &[]);
        check("```\n[1](derive:a.b)\n```\n[2](derive:a.c)", &[("2", "derive:a.c")]);
        check("\\[1](derive:a.b)", &[]);
        check("[1\\](derive:a.b)", &[]);
        check("[\\]1](derive:a.b)", &[("\\]1", "derive:a.b")]);
        check("[a\n\nb](derive:a.b)", &[]);
    }

    #[test]
    fn misuse_is_an_error_that_says_so() {
        let bad = |text: &str| scan(text).links[0].reference.clone().unwrap_err();
        assert!(bad("[1](derive:a)").contains("names no derivation"));
        assert!(bad("[1](derive:a.b \"title\")").contains("one address"));
        assert!(bad("![1](derive:a.b)").contains("image"));
        assert!(bad("[1](DERIVE:a.b.lwo)").contains("unknown part"));
        assert!(bad("[1](derive:a.b").contains("one address"));
        let nested = scan("[a [1](derive:a.b)](derive:a.c)").links;
        assert!(
            nested[0].reference.is_ok()
                && nested[1].reference.as_ref().unwrap_err().contains("inside another")
        );
        for text in
            ["[1][x]\n\n[x]: derive:a.b", "<derive:a.b>", "[x]:\n<derive:a.b>", "a ` b [1](derive:a.b)"]
        {
            assert!(!scan(text).troubles.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_lone_carriage_return_is_a_trouble() {
        assert_eq!(scan("a `\r\r[9](derive:a.b)\r\r` b").troubles.len(), 1);
        assert!(scan("a\r\n[9](derive:a.b)\r\n").troubles.is_empty());
    }

    #[test]
    fn prose_keeps_what_is_neither_code_nor_link() {
        let scan = scan("a [8](derive:a.b) of 11 `x 9`\n7");
        assert_eq!(scan.prose, format!("a {} of 11 {}\n7", " ".repeat(15), " ".repeat(5)));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[\\[\\]()`\\\\ \n>~!<:a-c1é—derive.*-]{0,80}") {
            let found = scan(&text);
            prop_assert_eq!(found.prose.len(), text.len());
            let mut end = 0;
            for link in found.links {
                prop_assert!(text.get(link.whole.clone()).is_some() && text.get(link.printed).is_some());
                if link.reference.is_ok() {
                    prop_assert!(link.whole.start >= end);
                    end = link.whole.end;
                }
            }
        }

        #[test]
        fn planted_links_are_found(before in "[a-z *_,.\n#>-]{0,40}", after in "[a-z *_,.`\n]{0,40}", n in 0u32..1000) {
            let text = format!("{before} [{n}](derive:demo.x.n) {after}");
            let found = scan(&text);
            prop_assert_eq!(found.links.len(), 1);
            prop_assert_eq!(&text[found.links[0].printed.clone()], n.to_string());
        }

        #[test]
        fn links_in_code_are_not(before in "[a-z *,.\n]{0,40}", fence in prop::sample::select(vec!["`", "``", "\n```\n", "\n~~~~\n"])) {
            let text = format!("{before}{fence}[1](derive:demo.x){fence}");
            prop_assert!(scan(&text).links.is_empty(), "{}", text);
        }
    }

    #[cfg(feature = "site")]
    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// What a Markdown library takes for a derive link is found here, or the text is refused.
        #[test]
        fn no_link_of_a_markdown_reader_is_missed(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "[1](derive:a.b)", "`", "``", "```", "~~~", "\n", "\n\n", "    ", "> ", "- ", "1. ", "| ", "# ",
                "\\", "[", "]", "(", ")", "*", "!", "<", ">", "[x]: derive:a.b", "[1][x]", "text", " ", "|---|\n",
            ]), 0..24),
        ) {
            use pulldown_cmark::{Event, Options, Parser, Tag};
            let text = pieces.concat();
            let read = Parser::new_ext(&text, Options::all())
                .filter(|e| matches!(e, Event::Start(Tag::Link { dest_url, .. }) if dest_url.starts_with("derive:")))
                .count();
            let found = scan(&text);
            prop_assert!(found.links.len() >= read || !found.troubles.is_empty(), "{:?}", text);
        }
    }
}
