//! Every string of a TOML text with the place of each of its bytes in the file, so that a link
//! inside a front-matter string can be found, reported and filled in like one in the body.

use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// One string value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextField {
    /// Where it stands, such as `cards[0].value`.
    pub path: String,
    /// The decoded text.
    pub text: String,
    /// For each byte of `text`, and its end, the byte of the file that it comes from.
    pub offsets: Vec<usize>,
}

/// All string values of `toml`, in the order of the text; `base` is where it starts in the file.
/// Empty if it is not valid TOML: the typed reader reports that.
pub fn strings(toml: &str, base: usize) -> Vec<TextField> {
    let Ok(table) = DeTable::parse(toml) else { return Vec::new() };
    let mut out = Vec::new();
    walk_table(table.get_ref(), "", toml, base, &mut out);
    out.sort_by_key(|field: &TextField| field.offsets.first().copied());
    out
}

fn walk_table(table: &DeTable<'_>, path: &str, toml: &str, base: usize, out: &mut Vec<TextField>) {
    for (key, value) in table {
        let key = key.get_ref();
        let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        walk(value.get_ref(), value.span(), &path, toml, base, out);
    }
}

fn walk(
    value: &DeValue<'_>,
    span: Range<usize>,
    path: &str,
    toml: &str,
    base: usize,
    out: &mut Vec<TextField>,
) {
    match value {
        DeValue::String(text) => {
            let raw = toml.get(span.clone()).unwrap_or_default();
            out.push(field(path, text, raw, base + span.start));
        }
        DeValue::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                walk(item.get_ref(), item.span(), &format!("{path}[{i}]"), toml, base, out);
            }
        }
        DeValue::Table(table) => walk_table(table, path, toml, base, out),
        _ => {}
    }
}

/// Traces a decoded string back to its source. A string that cannot be traced is taken as it
/// stands in the file, escapes and all.
fn field(path: &str, text: &str, raw: &str, start: usize) -> TextField {
    let (quote, literal) = match raw.as_bytes() {
        [b'"', b'"', b'"', ..] => (3, false),
        [b'\'', b'\'', b'\'', ..] => (3, true),
        [b'\'', ..] => (1, true),
        _ => (1, false),
    };
    let inner = raw.get(quote..raw.len().saturating_sub(quote)).unwrap_or_default();
    let skipped = match inner.as_bytes() {
        [b'\n', ..] if quote == 3 => 1,
        [b'\r', b'\n', ..] if quote == 3 => 2,
        _ => 0,
    };
    let (inner, start) = (&inner[skipped..], start + quote + skipped);
    let decoded = if literal { plain(inner) } else { unescape(inner) };
    let (traced, offsets) = if decoded.0 == text { decoded } else { plain(inner) };
    TextField {
        path: path.to_string(),
        text: traced,
        offsets: offsets.into_iter().map(|o| start + o).collect(),
    }
}

fn plain(inner: &str) -> (String, Vec<usize>) {
    (inner.to_string(), (0..=inner.len()).collect())
}

/// Decodes the escapes of a basic string, keeping for each byte where it came from.
fn unescape(inner: &str) -> (String, Vec<usize>) {
    let (mut text, mut offsets) = (String::new(), Vec::new());
    let mut at = 0;
    while let Some(c) = inner[at..].chars().next() {
        let (decoded, length) = if c == '\\' { escape(&inner[at + 1..]) } else { (Some(c), c.len_utf8()) };
        if let Some(decoded) = decoded {
            text.push(decoded);
            offsets.resize(text.len(), at);
        }
        at += length;
    }
    offsets.push(inner.len());
    (text, offsets)
}

/// What an escape stands for and its length, the backslash included; nothing for a line continuation.
fn escape(rest: &str) -> (Option<char>, usize) {
    let code = |digits: usize| {
        let hex = rest.get(1..1 + digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        hex.and_then(char::from_u32).map(|c| (Some(c), 2 + digits))
    };
    let simple = match rest.chars().next() {
        Some('b') => '\u{8}',
        Some('t') => '\t',
        Some('n') => '\n',
        Some('f') => '\u{c}',
        Some('r') => '\r',
        Some('e') => '\u{1b}',
        Some('x') => return code(2).unwrap_or((Some('\\'), 1)),
        Some('u') => return code(4).unwrap_or((Some('\\'), 1)),
        Some('U') => return code(8).unwrap_or((Some('\\'), 1)),
        Some(c) if c.is_whitespace() => return (None, 1 + rest.len() - rest.trim_start().len()),
        Some(c) if c.is_ascii() => c,
        _ => return (Some('\\'), 1),
    };
    (Some(simple), 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strings_are_traced_to_their_source() {
        let toml = "title = 'a [1](x)'\n[[cards]]\nvalue = \"q \\\"é\\\" [2](y)\"\n[plain]\nidea = \"\"\"\nfirst \\\n   [3](z)\"\"\"\n";
        let fields = strings(toml, 10);
        let paths: Vec<&str> = fields.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["title", "cards[0].value", "plain.idea"]);
        assert_eq!(fields[1].text, "q \"é\" [2](y)");
        assert_eq!(fields[2].text, "first [3](z)");
        for field in fields {
            let at = field.text.find('[').unwrap();
            assert_eq!(&toml[field.offsets[at] - 10..][..1], "[");
            assert_eq!(field.offsets.len(), field.text.len() + 1);
        }
        assert!(strings("not toml", 0).is_empty());
    }

    proptest! {
        #[test]
        fn every_written_string_is_traced(text in "[\\PC\\n\\t\"'\\\\]{0,30}", tail in "[a-z]{1,5}") {
            let value = format!("{text}[{tail}](derive:a.b)");
            let toml = toml::to_string(&std::collections::BTreeMap::from([("k", value.clone())])).unwrap();
            let field = &strings(&toml, 0)[0];
            prop_assert_eq!(&field.text, &value);
            let at = field.text.rfind('[').unwrap();
            let planted = format!("[{tail}]");
            prop_assert!(toml[field.offsets[at]..].starts_with(&planted));
        }

        #[test]
        fn never_panics(toml in "\\PC{0,40}", inner in "[\\\\uUxn0-9a \\n\"']{0,12}") {
            let _ = strings(&toml, 0);
            let _ = strings(&format!("a = \"{inner}\""), 0);
            let _ = strings(&format!("a = \"\"\"{inner}\"\"\""), 0);
        }
    }
}
