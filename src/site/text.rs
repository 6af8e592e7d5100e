//! Small formatting: escaping, counts, sizes, days, plurals, hashes and addresses as words. Nothing
//! here decides what a number is; it only says how one is written.

/// `text` with the five characters that mean something in HTML and XML replaced.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Escaped text in which a long name may break after `_` and `/`.
pub fn breakable(text: &str) -> String {
    let mut out = String::new();
    let mut part = String::new();
    for c in text.chars() {
        part.push(c);
        if matches!(c, '_' | '/') {
            out.push_str(&escape(&part));
            out.push_str("<wbr>");
            part.clear();
        }
    }
    out.push_str(&escape(&part));
    out
}

/// A count with separators, such as `1,400`.
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A count and its noun: `1 row`, `2 rows`.
pub fn counted(n: usize, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        Some(stem) if n != 1 => format!("{stem}ies"),
        _ if n != 1 => format!("{noun}s"),
        _ => noun.to_string(),
    };
    format!("{} {plural}", count(n))
}

/// Nouns that counts in given texts have.
const NOUNS: [&str; 12] = [
    "attempts", "clusters", "entries", "episodes", "examples", "pairs", "receipts", "rows", "samples",
    "slots", "tasks", "tokens",
];

/// `text` with the noun after each lone 1 in the singular: `1 attempts a task` as `1 attempt a task`.
pub fn agreeing(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("1 ") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        out.push_str(before);
        out.push_str("1 ");
        rest = after;
        let lone =
            !out[..out.len() - 2].ends_with(|c: char| c.is_alphanumeric() || ".,\u{2212}-".contains(c));
        let word = after.find(|c: char| !c.is_alphanumeric()).unwrap_or(after.len());
        if lone && NOUNS.contains(&&after[..word]) {
            let noun = &after[..word];
            out.push_str(
                &noun.strip_suffix("ies").map_or(noun[..word - 1].to_string(), |stem| format!("{stem}y")),
            );
            rest = &after[word..];
        }
    }
    out.push_str(rest);
    out
}

/// A small count as a word, a larger one in digits.
pub fn spelled(n: usize) -> String {
    let words = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    words.get(n).map_or_else(|| count(n), |word| (*word).to_string())
}

/// A file size in decimal units, such as `212 kB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", (bytes + 500) / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Year, month name and day of the month of a text that starts with `YYYY-MM-DD`.
fn parts(date: &str) -> Option<(&str, &'static str, u32)> {
    let mut fields = date.get(..10)?.split('-');
    let (year, month, day) = (fields.next()?, fields.next()?, fields.next()?);
    let name = MONTHS.get(month.parse::<usize>().ok()?.checked_sub(1)?)?;
    Some((year, name, day.parse().ok()?))
}

/// `2026-12-01…` as `1 December 2026`; any other text as it is.
pub fn day(date: &str) -> String {
    parts(date).map_or_else(|| date.to_string(), |(year, month, day)| format!("{day} {month} {year}"))
}

/// Two days as a compact range: `9 to 10 July 2026`.
pub fn days(first: &str, last: &str) -> String {
    let (Some((y1, m1, d1)), Some((y2, m2, d2))) = (parts(first), parts(last)) else {
        return if first == last { day(first) } else { format!("{} to {}", day(first), day(last)) };
    };
    match (y1 == y2, m1 == m2, d1 == d2) {
        (true, true, true) => format!("{d1} {m1} {y1}"),
        (true, true, false) => format!("{d1} to {d2} {m1} {y1}"),
        (true, false, _) => format!("{d1} {m1} to {d2} {m2} {y1}"),
        _ => format!("{d1} {m1} {y1} to {d2} {m2} {y2}"),
    }
}

/// The first twelve characters of a hash.
pub fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

/// Letters and digits in lower case, joined by `-`: the readable part of an anchor.
pub fn anchor(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            out.push(c);
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { "part".to_string() } else { out.chars().take(60).collect() }
}

/// A word or phrase with its first letter in upper case.
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A step, definition or remark as a sentence of its own: a capital first, a stop at the end.
pub fn full(text: &str) -> String {
    let text = sentence(text.trim());
    if text.is_empty() || text.ends_with(['.', '?', '!', ':']) { text } else { format!("{text}.") }
}

/// Escaped text in which what stands between two backticks is code.
pub fn coded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (code, after))) =
        rest.split_once('`').and_then(|(before, after)| Some((before, after.split_once('`')?)))
    {
        out.push_str(&format!("{}<code>{}</code>", escape(before), escape(code)));
        rest = after;
    }
    out + &escape(rest)
}

/// A definition that has its parts on lines of their own, each as a sentence.
pub fn definition(text: &str) -> Vec<String> {
    text.lines().map(|part| coded(&full(part))).collect()
}

/// `text` cut to at most `most` characters, with an ellipsis when something was cut.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// A path as a link's address: what would end or change a path is percent-encoded.
pub fn link(path: &str) -> String {
    path.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b'=' | b'+' => {
                (b as char).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// The `../` steps from a page's address to the root of the site.
pub fn root_of(address: &str) -> String {
    "../".repeat(address.matches('/').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a href=\"x\">'&\u{7}"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{fffd}");
        assert_eq!(breakable("a/b_<c"), "a/<wbr>b_<wbr>&lt;c");
    }

    #[test]
    fn counts_and_sizes_read_well() {
        let counts = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        counts.iter().for_each(|(n, want)| assert_eq!(count(*n), *want));
        assert_eq!(counted(1, "entry"), "1 entry");
        assert_eq!(counted(2, "entry"), "2 entries");
        assert_eq!(counted(1_400, "row"), "1,400 rows");
        let sizes = [(512, "512 B"), (1_499, "1 kB"), (212_000, "212 kB"), (18_400_000, "18.4 MB")];
        sizes.iter().for_each(|(n, want)| assert_eq!(size(*n), *want));
    }

    #[test]
    fn one_of_a_thing_is_singular() {
        let cases = [
            ("1 tasks", "1 task"),
            ("bare; 1 attempts a task; 1 slots", "bare; 1 attempt a task; 1 slot"),
            ("1 entries", "1 entry"),
            ("1", "1"),
        ];
        cases.iter().for_each(|(text, want)| assert_eq!(agreeing(text), *want));
        for same in
            ["21 tasks", "0.1 tokens", "1,401 rows", "1 of 96 tasks", "seed 1 was", "", "1 ", "é1 tasks"]
        {
            assert_eq!(agreeing(same), same);
        }
        assert_eq!(
            (spelled(1), spelled(12), spelled(1_300)),
            ("one".into(), "twelve".into(), "1,300".into())
        );
    }

    #[test]
    fn backticks_are_code_and_sentences_end() {
        assert_eq!(coded("Keep `a<b` & `c`."), "Keep <code>a&lt;b</code> &amp; <code>c</code>.");
        assert_eq!(coded("a lone ` tick"), "a lone ` tick");
        assert_eq!(full("mean over tasks"), "Mean over tasks.");
        assert_eq!((full("Done?"), full(" ")), ("Done?".into(), String::new()));
    }

    #[test]
    fn days_are_compact_and_odd_dates_stay() {
        assert_eq!(day("2026-12-01T10:00:00Z"), "1 December 2026");
        assert_eq!(day("soon"), "soon");
        assert_eq!(day("2026-13-01"), "2026-13-01");
        assert_eq!(days("2026-07-09", "2026-07-10"), "9 to 10 July 2026");
        assert_eq!(days("2026-06-30", "2026-07-01"), "30 June to 1 July 2026");
        assert_eq!(days("2026-12-31", "2027-01-01"), "31 December 2026 to 1 January 2027");
        assert_eq!(days("2026-12-31", "2026-12-31"), "31 December 2026");
    }

    #[test]
    fn anchors_are_plain() {
        assert_eq!(anchor("  Why it's <b>so</b>! "), "why-it-s-b-so-b");
        assert_eq!(anchor("!!"), "part");
        assert_eq!(root_of("a/b/index.html"), "../../");
        assert_eq!(root_of("index.html"), "");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(link("a b/c#.parquet"), "a%20b/c%23.parquet");
    }
}
