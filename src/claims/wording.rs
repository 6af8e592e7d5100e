//! Words that need a number beside them: what is called significant, the same, or no worse. Only turns of phrase are found
//! here; whether the numbers bear them out is for `claims check` and the audit, each from its own.

use super::code;
use std::ops::Range;

/// What a paragraph says of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// That something differs, and not by chance.
    Significant,
    /// That two arms are the same.
    Same,
    /// That one arm is not worse.
    NoWorse,
}

/// Turns of phrase that call two arms the same.
const SAME: [&str; 15] = [
    "no difference between",
    "makes no difference",
    "made no difference",
    "has no effect",
    "had no effect",
    "have no effect",
    "shows no effect",
    "equally good",
    "equally well",
    "is equivalent",
    "are equivalent",
    "performs the same",
    "perform the same",
    "indistinguishable",
    "just as good as",
];

/// Turns of phrase that call an arm no worse.
const NO_WORSE: [&str; 11] = [
    "no regression",
    "not regress",
    "n't regress",
    "never regress",
    "without regress",
    "not worse",
    "n't worse",
    "no worse",
    "non-inferior",
    "at least as good",
    "at least as well",
];

/// What a paragraph claims, and where in it.
pub fn claims(prose: &str) -> Vec<(Says, usize)> {
    let (lower, places) = as_read(prose);
    let place = |at: usize| places.get(at).copied().unwrap_or_default();
    said(&lower).into_iter().map(|(says, at)| (says, place(at))).collect()
}

/// A text as a reader sees it: in lower case, one blank between words, without marks of emphasis and characters of no width, simple
/// character references read; and for each byte where it came from.
fn as_read(prose: &str) -> (String, Vec<usize>) {
    let (mut out, mut places) = (String::with_capacity(prose.len()), Vec::with_capacity(prose.len()));
    let mut skip = 0;
    for (at, c) in prose.char_indices() {
        if at < skip {
            continue;
        }
        let mut c = c;
        if c == '&'
            && let Some(end) = prose[at..].find(';').filter(|end| *end <= 8)
        {
            let named = &prose[at + 1..at + end];
            let number = named.strip_prefix('#').and_then(|digits| match digits.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => digits.parse().ok(),
            });
            let read = match named {
                "shy" => Some('\u{ad}'),
                "nbsp" => Some(' '),
                _ => number.and_then(char::from_u32),
            };
            if let Some(read) = read {
                (c, skip) = (read, at + end + 1);
            }
        }
        match c {
            '*'
            | '_'
            | '~'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2060}'..='\u{2064}'
            | '\u{feff}' => {}
            c if c.is_whitespace() && out.ends_with(' ') => {}
            c if c.is_whitespace() => out.push(' '),
            c => out.push(c.to_ascii_lowercase()),
        }
        places.resize(out.len(), at);
    }
    (out, places)
}

fn said(lower: &str) -> Vec<(Says, usize)> {
    let mut found: Vec<(Says, usize)> =
        significant(lower).map(|at| (Says::Significant, at)).into_iter().collect();
    for (says, phrases) in [(Says::Same, &SAME[..]), (Says::NoWorse, &NO_WORSE[..])] {
        let all = phrases.iter().flat_map(|phrase| {
            // "Non-inferiority" names a test; it says nothing of how it came out.
            lower.match_indices(phrase).filter(|(at, phrase)| !lower[at + phrase.len()..].starts_with("ity"))
        });
        let all = all.map(|(at, _)| at);
        found.extend(all.filter(|at| stated(lower, *at)).min().map(|at| (says, at)));
    }
    found
}

/// Where a text in lower case calls something significant, negations aside.
fn significant(lower: &str) -> Option<usize> {
    lower.match_indices("significan").map(|(at, _)| at).find(|at| {
        let joined = lower[..*at].ends_with(|c: char| c.is_alphanumeric()) || lower[..*at].ends_with("non-");
        let negated = joined || negation(word_before(lower, *at));
        let after = lower[*at..].split_whitespace().nth(1).unwrap_or_default();
        !negated && !after.starts_with("digit") && !after.starts_with("figure")
    })
}

fn word_before(text: &str, at: usize) -> &str {
    let before = text[..at].trim_end_matches(|c: char| !c.is_alphanumeric());
    before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

fn negation(word: &str) -> bool {
    matches!(word, "not" | "no" | "never" | "nor" | "without" | "hardly" | "t")
}

/// Whether the phrase is stated rather than asked, supposed or denied.
fn stated(lower: &str, at: usize) -> bool {
    let sentence = lower[..at].rsplit(['.', '!', '?', ';']).next().unwrap_or_default();
    let supposed = [
        "if", "when", "whether", "unless", "until", "should", "would", "could", "may", "might", "suppose",
        "says", "means",
    ];
    let words = || sentence.split(|c: char| !c.is_alphanumeric());
    let asked = lower[at..].split(['.', '!', ';']).next().is_some_and(|rest| rest.contains('?'));
    !asked && !words().any(|word| supposed.contains(&word)) && !negation(word_before(lower, at))
}

/// The paragraphs of a text from which links and code were blanked out.
pub fn paragraphs(prose: &str) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for line in code::lines(prose) {
        if prose[line.clone()].trim().is_empty() {
            // A line that a link or code fills alone is blank here, and still no paragraph's end.
            open = open && !line.is_empty();
        } else if let Some(last) = out.last_mut().filter(|_| open) {
            last.end = line.end;
        } else {
            out.push(line);
            open = true;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> Vec<Says> {
        claims(text).into_iter().map(|(says, _)| says).collect()
    }

    #[test]
    fn negations_are_not_claims() {
        for text in ["a significant gain", "Significantly more", "of some significance"] {
            assert_eq!(says(text), [Says::Significant], "{text}");
        }
        for text in [
            "not significant",
            "insignificant",
            "a non-significant gain",
            "no significant gain",
            "two significant digits",
            "none",
        ] {
            assert!(says(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn sameness_is_found_where_it_is_stated() {
        for (text, wanted) in [
            ("There is no difference between the arms.", Says::Same),
            ("Training had no effect.", Says::Same),
            ("The two are equivalent", Says::Same),
            ("It shows no regression on held-out tasks.", Says::NoWorse),
            ("The model did not regress.", Says::NoWorse),
            ("The treatment is non-inferior.", Says::NoWorse),
            ("There is no\n*difference*  between&nbsp;the arms.", Says::Same),
            ("It does\u{200b}n't re&shy;gress.", Says::NoWorse),
            ("A highly-sig**nificant** gain.", Says::Significant),
            ("A sign&#105;ficant gain.", Says::Significant),
        ] {
            assert_eq!(says(text), [wanted], "{text}");
        }
        for text in [
            "Whether there is no difference between the arms is open.",
            "Is there no difference between the arms?",
            "Positive when the treatment is not worse by the margin.",
            "The arms are not indistinguishable.",
            "The same tasks ran under both arms.",
            "It is worse.",
            "The p value of non-inferiority is printed here.",
        ] {
            assert!(says(text).is_empty(), "{text}");
        }
        let both = claims("A significant gain. On the rest it had no effect.");
        assert_eq!(both, [(Says::Significant, 2), (Says::Same, 35)]);
    }

    #[test]
    fn paragraphs_end_at_blank_lines() {
        let found: Vec<&str> =
            paragraphs("a\nb\n\nc\n   \nd").into_iter().map(|r| &"a\nb\n\nc\n   \nd"[r]).collect();
        assert_eq!(found, ["a\nb", "c\n   \nd"]);
    }
}
