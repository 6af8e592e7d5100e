//! A text in the form in which turns of phrase are looked for: as a reader sees it, with the places it came from.

/// Most bytes of a link's target that are looked at.
const REACH: usize = 2048;

/// A text as a reader sees it: in lower case, one blank between words, without marks of emphasis, link targets and characters of no
/// width; apostrophes, hyphens and ligatures as on a keyboard, simple character references read; items of lists and rows of tables
/// on lines of their own; and for each byte where it came from.
pub fn as_read(prose: &str) -> (String, Vec<usize>) {
    let (mut out, mut places) = (String::with_capacity(prose.len()), Vec::with_capacity(prose.len()));
    let mut skip = 0;
    for (at, c) in prose.char_indices() {
        if at < skip {
            continue;
        }
        let mut c = c;
        if let Some((read, end)) = (c == '&').then(|| reference(&prose[at..])).flatten() {
            (c, skip) = (read, at + end);
        }
        match c {
            '\n' if opens_a_line(prose[at..].trim_start()) => {
                if out.ends_with(' ') {
                    out.pop();
                    places.pop();
                }
                out.push('\n');
            }
            ']' => skip = at + 1 + target(&prose[at + 1..]),
            '[' | '*' | '_' | '~' | '\u{ad}' | '\u{34f}' | '\u{200b}'..='\u{200f}' => {}
            '\u{2060}'..='\u{2064}' | '\u{feff}' => {}
            '\u{2018}' | '\u{2019}' | '\u{2bc}' => out.push('\''),
            '\u{2010}'..='\u{2012}' => out.push('-'),
            '\u{fb00}' => out.push_str("ff"),
            '\u{fb01}' => out.push_str("fi"),
            '\u{fb02}' => out.push_str("fl"),
            '\u{fb03}' => out.push_str("ffi"),
            '\u{fb04}' => out.push_str("ffl"),
            c if c.is_whitespace() && out.ends_with([' ', '\n']) => {}
            c if c.is_whitespace() => out.push(' '),
            c => out.push(c.to_ascii_lowercase()),
        }
        places.resize(out.len(), at);
    }
    (out, places)
}

/// Whether a line is an item of a list, a row of a table, a heading or a quotation.
fn opens_a_line(line: &str) -> bool {
    ["- ", "* ", "+ ", "|", "#", ">"].iter().any(|mark| line.starts_with(mark))
}

/// The character of a reference such as `&nbsp;` or `&#105;` at the start of a text, and its length.
fn reference(text: &str) -> Option<(char, usize)> {
    let end = text.bytes().take(9).position(|byte| byte == b';')?;
    let named = text.get(1..end)?;
    let number = named.strip_prefix('#').and_then(|digits| match digits.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    });
    let read = match named {
        "shy" => '\u{ad}',
        "nbsp" => ' ',
        _ => char::from_u32(number?)?,
    };
    Some((read, end + 1))
}

/// The length of the `(…)` behind the `]` of a link; 0 where there is none.
fn target(text: &str) -> usize {
    let inside = |byte: &u8| *byte != b'\n' && *byte != b')';
    let length = text.bytes().take(REACH).take_while(inside).count();
    if text.starts_with('(') && text.as_bytes().get(length) == Some(&b')') { length + 1 } else { 0 }
}
