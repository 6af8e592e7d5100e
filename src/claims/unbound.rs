//! Numbers in prose that no link binds to a derivation. Dates, years, versions, ids, labels
//! ("seed 52004", "table 2"), list markers, link targets and code need no binding.

use super::code;
use super::links;
use std::ops::Range;

/// A number that stands in prose by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unbound {
    /// Bytes of the text.
    pub range: Range<usize>,
    /// The number as written.
    pub text: String,
}

/// Words after which a number is a name, not a quantity.
const LABELS: &[&str] = &[
    "appendix", "chapter", "column", "figure", "figures", "fig", "issue", "item", "level", "levels", "line",
    "page", "part", "phase", "phases", "question", "round", "rounds", "row", "section", "sections", "seed",
    "seeds", "stage", "stages", "step", "table", "tables", "version", "versions",
];
/// Words that carry a label on to the next number: "seeds 52004 and 52005".
const CONNECTORS: &[&str] = &["and", "or", "to", "through"];
const MONTHS: &[&str] = &[
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "jan",
    "feb",
    "mar",
    "apr",
    "jun",
    "jul",
    "aug",
    "sep",
    "sept",
    "oct",
    "nov",
    "dec",
];
/// What makes a number of `3x` or `26-point`, while `4B` and `C0001` are names.
const GLUED: &[&str] = &[
    "x",
    "ms",
    "s",
    "min",
    "h",
    "pp",
    "pt",
    "pts",
    "point",
    "points",
    "percent",
    "percentage",
    "fold",
    "times",
    "k",
    "pct",
    "tok",
    "tokens",
    "sec",
    "secs",
    "second",
    "seconds",
    "mins",
    "minutes",
    "hours",
    "days",
    "tasks",
    "rows",
    "episodes",
];

/// Words after which a number is no year: `2000 tasks`.
const COUNTED: &[&str] = &[
    "tasks", "episodes", "rows", "samples", "attempts", "tokens", "steps", "rollouts", "calls", "pairs",
    "of", "out", "percent", "ms",
];

/// As [`find`], in a text of one line, such as a card's value: `97.` at its start is no list marker.
pub fn find_in_line(text: &str) -> Vec<Unbound> {
    const BEFORE: &str = "· ";
    let shift = |number: Unbound| Unbound {
        range: number.range.start - BEFORE.len()..number.range.end - BEFORE.len(),
        ..number
    };
    find(&format!("{BEFORE}{text}")).into_iter().map(shift).collect()
}

/// Every unbound number of a Markdown text, in order.
pub fn find(text: &str) -> Vec<Unbound> {
    let prose = without_targets(&links::scan(text).prose);
    let mut out = Vec::new();
    let mut block = Block::Start;
    for line in code::lines(&prose) {
        let content = &prose[line.clone()];
        let marker = |token: Range<usize>| is_marker(content, token, block);
        numbers(content, line.start, &marker, &mut out);
        block = block.after(content);
    }
    out
}

/// What a line of Markdown may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Nothing stands before it in its block.
    Start,
    /// It follows an item of a numbered list.
    List,
    /// It follows a line of a paragraph, which only a list that starts at 1 interrupts.
    Paragraph,
}

impl Block {
    /// What the line after this one may begin.
    fn after(self, line: &str) -> Block {
        let content = line.trim_matches([' ', '\t', '>', '\r']);
        let digits = content.bytes().take_while(u8::is_ascii_digit).count();
        let numbered = digits > 0 && code::list_marker(content).is_some();
        if content.is_empty() || content.starts_with('#') {
            Block::Start
        } else if self == Block::List || (numbered && (self == Block::Start || &content[..digits] == "1")) {
            Block::List
        } else {
            Block::Paragraph
        }
    }
}

/// Blanks out link targets, link definitions, bare addresses and character references.
fn without_targets(prose: &str) -> String {
    let mut blanked = links::Blanked::new(prose);
    let until = |from: usize, stop: &[char]| prose[from..].find(stop).map_or(prose.len(), |n| from + n);
    let mut each = |mark: &str, stop: &[char]| {
        let mut done = 0;
        for (start, mark) in prose.match_indices(mark) {
            if start >= done {
                done = until(start, stop);
                blanked.blank(start + mark.len()..done);
            }
        }
    };
    each("](", &[')', '\n']);
    for scheme in ["https://", "http://"] {
        each(scheme, &[' ', '\n', ')', '>']);
    }
    each("&#", &[';', ' ', '\n']);
    for line in code::lines(prose) {
        if let Some(from) = definition(&prose[line.clone()]) {
            blanked.blank(line.start + from..line.end);
        }
    }
    blanked.text()
}

/// Where the address of a line that defines a link begins: `[label]: address`, and nothing else but a title.
fn definition(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let close = line.find("]: ").filter(|_| indent < 4 && line[indent..].starts_with('['))?;
    if line[indent + 1..close].contains(['[', ']']) {
        return None;
    }
    let rest = line[close + 3..].trim();
    let (_, title) = rest.split_once(' ').unwrap_or((rest, ""));
    let title = title.trim();
    (title.is_empty() || title.starts_with(['"', '\''])).then_some(close + 3)
}

fn numbers(line: &str, offset: usize, is_marker: &dyn Fn(Range<usize>) -> bool, out: &mut Vec<Unbound>) {
    let tokens = tokens(line);
    let month = |i: Option<usize>| {
        let word = i.and_then(|i| tokens.get(i)).map_or("", |t| &line[t.clone()]);
        word.starts_with(char::is_uppercase) && MONTHS.contains(&word.to_lowercase().as_str())
    };
    let mut labelled = false;
    for (i, token) in tokens.iter().enumerate() {
        let text = &line[token.clone()];
        let dated = month(i.checked_sub(1)) || month(Some(i + 1));
        if !text.chars().any(char::is_numeric) {
            let lower = text.to_lowercase();
            labelled = LABELS.contains(&lower.as_str()) || (labelled && CONNECTORS.contains(&lower.as_str()));
            continue;
        }
        let next = tokens.get(i + 1).map_or("", |next| &line[next.clone()]);
        let share = ["percent", "points", "pp"].contains(&next);
        let name = labelled && whole(text).is_some() && !share;
        let counted = is_year(text) && COUNTED.contains(&next);
        let free = name || is_free(text) || (dated && is_day(text)) || is_marker(token.clone());
        if !free || counted {
            out.push(Unbound { range: offset + token.start..offset + token.end, text: text.to_string() });
        }
        labelled = name;
    }
}

/// Runs of characters that may belong to one number or word, outer punctuation cut off.
fn tokens(line: &str) -> Vec<Range<usize>> {
    let inside = |c: char| c.is_alphanumeric() || "+-\u{2212}–%×#^@.,:/$_".contains(c);
    let mut out = Vec::new();
    let mut start = None;
    for (i, c) in line.char_indices().chain(std::iter::once((line.len(), ' '))) {
        match (inside(c), start) {
            (true, None) => start = Some(i),
            (false, Some(from)) => {
                let run = &line[from..i];
                let left = run.trim_start_matches([',', ':', '/', '_', '–']);
                let both = left.trim_end_matches(['.', ',', ':', '/', '_', '–', '-']);
                let from = i - left.len();
                if !both.is_empty() {
                    out.push(from..from + both.len());
                }
                start = None;
            }
            _ => {}
        }
    }
    out
}

/// The digits of a whole number without sign or separators.
fn whole(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// Whether a token with a digit is a name, a date or a version by its own looks.
fn is_free(text: &str) -> bool {
    if text.starts_with(['#', '^', '@']) {
        return true;
    }
    if text.chars().any(char::is_alphabetic) {
        return !is_glued(text) && !holds_quantity(text) && !is_marked(text);
    }
    let groups = |by: char| text.split(by).map(whole).collect::<Option<Vec<&str>>>();
    let lengths = |by: char| groups(by).map(|g| g.iter().map(|d| d.len()).collect::<Vec<_>>());
    let date = matches!(lengths('-').as_deref(), Some([4, 2] | [4, 2, 2]));
    let clock = matches!(lengths(':').as_deref(), Some([1 | 2, 2] | [1 | 2, 2, 2]));
    let version = groups('.').is_some_and(|g| g.len() > 2);
    date || clock || version || text.split(['–', '-']).all(is_year)
}

fn is_year(text: &str) -> bool {
    whole(text)
        .filter(|d| d.len() == 4)
        .and_then(|d| d.parse().ok())
        .is_some_and(|y: u32| (1990..2040).contains(&y))
}

fn is_day(text: &str) -> bool {
    text.split(['–', '-'])
        .all(|d| whole(d).and_then(|d| d.parse().ok()).is_some_and(|d: u32| (1..=31).contains(&d)))
}

/// `97%-accurate`, `0.31/task`, `Reward:0.97`, `1e-4`: a quantity beside letters, not a name.
fn holds_quantity(text: &str) -> bool {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let percent = text.contains('%') && text.contains(|c: char| c.is_ascii_digit());
    let plain = text.trim_start_matches(['+', '-', '\u{2212}']);
    let number = |part: &str| {
        let part = part.trim_start_matches(['+', '-', '\u{2212}']);
        digit(part.chars().next()) && part.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let lead = plain.split([':', ',', '/']).next().unwrap_or_default();
    let leads = lead.len() < plain.len() && number(lead);
    let ends = text.rsplit([':', ',']).next().is_some_and(|tail| {
        tail.len() < text.len() && number(tail) && tail.contains('.') && tail.matches('.').count() == 1
    });
    let power = plain.split_once(['e', 'E']).is_some_and(|(mantissa, power)| {
        let power = power.trim_start_matches(['+', '-', '\u{2212}']);
        number(mantissa) && !power.is_empty() && power.chars().all(|c| c.is_ascii_digit())
    });
    percent || leads || ends || power
}

/// `Δ0.31`, `x3`: a number behind a sign, not a name.
fn is_marked(text: &str) -> bool {
    let mut rest = text.chars();
    let sign = rest.next().is_some_and(|c| matches!(c, 'x' | 'X') || (c.is_alphabetic() && !c.is_ascii()));
    let rest = rest.as_str().trim_start_matches(['+', '-', '\u{2212}']);
    sign && rest.starts_with(|c: char| c.is_ascii_digit())
        && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',')
}

/// `3x`, `12ms`, `26-point`: a number with its unit, not a name.
fn is_glued(text: &str) -> bool {
    let text = text.trim_start_matches(['+', '-', '\u{2212}']);
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).unwrap_or(text.len());
    let unit = text[end..].trim_start_matches(['-', '%']).split('/').next().unwrap_or_default();
    end > 0 && GLUED.contains(&unit.to_lowercase().as_str())
}

/// A list marker at the start of a line, or the number of a heading: one with `.` or `)` after it, or
/// one of several parts, fewer than the heading has `#`.
fn is_marker(line: &str, token: Range<usize>, block: Block) -> bool {
    let before = line[..token.start].trim_matches([' ', '\t', '>']);
    let heading = !before.is_empty() && before.bytes().all(|b| b == b'#');
    let parts: Vec<&str> = line[token.clone()].split('.').collect();
    let number = parts.iter().all(|d| whole(d).is_some_and(|d| d.len() < 3 && !d.starts_with('0')));
    let after = &line[token.end..];
    let closed = after.strip_prefix(['.', ')']).filter(|rest| rest.starts_with([' ', '\t'])).is_some();
    // A list that does not start at 1 cannot interrupt a paragraph.
    let item = before.is_empty() && closed && (block != Block::Paragraph || &line[token] == "1");
    // `## 2. Method` and `### 2.1 Setup`, but not `## 12 tasks` or `## 3.5 points`.
    let nested = parts.len() > 1 && parts.len() < before.len() && after.starts_with([' ', '\t']);
    number && (item || (heading && (closed || nested)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[&str]) {
        let found = find(text);
        let texts: Vec<&str> = found.iter().map(|u| u.text.as_str()).collect();
        assert_eq!(texts, expected, "{text}");
        found.iter().for_each(|u| assert_eq!(&text[u.range.clone()], u.text));
    }

    #[test]
    fn a_line_has_no_list_markers() {
        let text = "97. percent of 3 tasks";
        assert!(find(text).iter().all(|number| number.text != "97"));
        for number in find_in_line(text) {
            assert_eq!(&text[number.range.clone()], number.text);
        }
        assert_eq!(find_in_line(text).iter().map(|n| n.text.as_str()).collect::<Vec<_>>(), ["97", "3"]);
    }

    #[test]
    fn quantities_are_found() {
        check("rose from 0.05 to 0.31 (+0.26), p < 0.001.", &["0.05", "0.31", "+0.26", "0.001"]);
        check(
            "14% → 36–45%, \u{2212}3 points, ×2, 1,234 rows",
            &["14%", "36–45%", "\u{2212}3", "×2", "1,234"],
        );
        check("8 of 11; 8/11; k=3; **98**", &["8", "11", "8/11", "3", "98"]);
        check("[8](derive:a.b) of 11 and [see 7](https://x.org/9)", &["11", "7"]);
        check("a 3x gain, a 26-point gain, 12ms, ½ of it", &["3x", "26-point", "12ms", "½"]);
        check("25 tasks\n| a | 7 |", &["25", "7"]);
        check("Score [bare prompt]: 0.97 against 0.31", &["0.97", "0.31"]);
        check("[a]: http://x/1 and 7 more", &["7"]);
        check("Reward rose to\n97. Then it fell.", &["97"]);
        check("Δ0.31, x3, 12secs, claims 97 percent, level 3 percent", &["Δ0.31", "x3", "12secs", "97", "3"]);
    }

    #[test]
    fn names_dates_and_markers_are_free() {
        for text in [
            "C0001, L1, SmolLM2-135M, 4B, v2, utf8, 1st, 3a5f9c, x86_64",
            "on 2026-12-01, July 10, 9–10 July, in July 2026, 2024–2026, at 12:30",
            "toolz 0.11.1, version 2, seeds 52004 and 52005, round 3, level 1, Table 2, issue #12",
            "1. first\n2) second\n> 3. third\n## 2. Method\n### 2.1 Setup",
            "Text:\n1. first\n2. second\n   and more\n3. third\n\n7. seventh",
            "[a]: http://x/1 \"a title of 3\"",
            "see [page](https://x.org/2/3), https://y.org/4, [^1] and `5`\n```\n6\n```\n[x]: http://z/7\n&#8212;",
            "[0.05](derive:a.b)",
        ] {
            check(text, &[]);
        }
    }

    #[test]
    fn a_label_reaches_no_further_than_its_list() {
        check("seed 52004 gave 3", &["3"]);
        check("seeds 1 and 2, then 7 tasks", &["7"]);
        check("table 2.5", &["2.5"]);
        check("solved 2000 tasks, 2010 of them in 2026", &["2000", "2010"]);
        check("## 12 tasks\n# 3.5 points\n## 98) of all", &["12", "3.5"]);
        check("1.\tfirst, 98k of them and 7pct", &["98k", "7pct"]);
        check("## 0.31 is the result\n5 of them, 3 may fail", &["0.31", "5", "3"]);
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            find(&text);
        }

        #[test]
        fn a_planted_decimal_is_found(before in "[a-z ,]{0,30}", a in 0u32..1000, b in 0u32..1000, after in "[a-z ,]{0,30}") {
            let text = format!("{before} {a}.{b:03} {after}");
            let number = format!("{a}.{b:03}");
            prop_assert!(find(&text).iter().any(|u| u.text == number), "{}", text);
        }
    }
}
