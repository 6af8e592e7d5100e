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
const NO_WORSE: [&str; 12] = [
    "no regression",
    "not regress",
    "n't regress",
    "never regress",
    "without regress",
    "not worse",
    "n't worse",
    "no worse",
    "non-inferior",
    "noninferior",
    "at least as good",
    "at least as well",
];

/// What is called significant and has no p value: digits, and how much of something there is.
const EXTENTS: [&str; 12] = [
    "digit", "figure", "part", "portion", "share", "fraction", "amount", "number", "time", "effort", "work",
    "cost",
];

/// What a paragraph claims, and where in it.
pub fn claims(prose: &str) -> Vec<(Says, usize)> {
    let (lower, places) = as_read(prose);
    let place = |at: usize| places.get(at).copied().unwrap_or_default();
    said(&lower).into_iter().map(|(says, at)| (says, place(at))).collect()
}

/// Most bytes of a link's target, and of a sentence around a turn of phrase, that are looked at.
const REACH: usize = 2048;

/// A text as a reader sees it: in lower case, one blank between words, without marks of emphasis, link targets and characters of no
/// width; apostrophes, hyphens and ligatures as on a keyboard, simple character references read; and for each byte where it came from.
fn as_read(prose: &str) -> (String, Vec<usize>) {
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
            c if c.is_whitespace() && out.ends_with(' ') => {}
            c if c.is_whitespace() => out.push(' '),
            c => out.push(c.to_ascii_lowercase()),
        }
        places.resize(out.len(), at);
    }
    (out, places)
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

fn said(lower: &str) -> Vec<(Says, usize)> {
    let mut found: Vec<(Says, usize)> =
        significant(lower).map(|at| (Says::Significant, at)).into_iter().collect();
    for (says, phrases) in [(Says::Same, &SAME[..]), (Says::NoWorse, &NO_WORSE[..])] {
        let first = |phrase: &&str| {
            let meant = |(at, phrase): &(usize, &str)| {
                let after = &lower[at + phrase.len()..];
                // "Non-inferiority" names a test; it says nothing of how it came out. What is equivalent to doing
                // something is no arm.
                !after.starts_with("ity") && !is_to_do(after) && stated(lower, *at)
            };
            lower.match_indices(*phrase).find(meant).map(|(at, _)| at)
        };
        found.extend(phrases.iter().filter_map(first).min().map(|at| (says, at)));
    }
    found
}

/// Whether a text goes on with "to" and a verb in -ing.
fn is_to_do(after: &str) -> bool {
    let mut words = after.split(' ').skip(1);
    words.next() == Some("to") && words.next().is_some_and(|word| word.trim_end_matches('.').ends_with("ing"))
}

/// Where a text in lower case calls something significant.
fn significant(lower: &str) -> Option<usize> {
    lower.match_indices("significan").map(|(at, _)| at).find(|at| {
        let joined = lower[..*at].ends_with(|c: char| c.is_alphanumeric()) || lower[..*at].ends_with("non-");
        let word = lower[*at..].split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let after = lower[*at..].split_whitespace().nth(1).unwrap_or_default();
        let names = word == "significance" && !attained(lower, *at);
        let extent = word == "significant" && EXTENTS.iter().any(|noun| after.starts_with(noun));
        !joined && !names && !extent && stated(lower, *at)
    })
}

/// Whether "significance" is what something has, as in "of some significance": alone it names a test, or a level of one.
fn attained(lower: &str, at: usize) -> bool {
    let before: Vec<&str> = words_before(clause(lower, at)).take(3).collect();
    let has = |word: &&str| {
        ["reach", "attain", "achiev", "gain"].iter().any(|verb| word.starts_with(verb))
            || matches!(*word, "has" | "have" | "had" | "with" | "of")
    };
    let test = before.iter().any(|word| {
        ["test", "level", "threshold", "lack", "question"].iter().any(|noun| word.starts_with(noun))
    });
    before.iter().any(has) && !test
}

/// The clause that ends at a place.
fn clause(lower: &str, at: usize) -> &str {
    let sentence = sentence(lower, at);
    let start = sentence.rfind([',', ':', '(', ')', '—', '–']).map_or(0, |start| start + 1);
    let clause = sentence.get(start..).unwrap_or(sentence);
    clause.rsplit(" but ").next().unwrap_or(clause)
}

/// The sentence up to a place, as far back as is looked at.
fn sentence(lower: &str, at: usize) -> &str {
    let mut from = at.saturating_sub(REACH);
    while !lower.is_char_boundary(from) {
        from += 1;
    }
    lower[from..at].rsplit(['.', '!', '?', ';']).next().unwrap_or_default()
}

/// The words of a clause, the last one first; an apostrophe belongs to its word.
fn words_before(clause: &str) -> impl Iterator<Item = &str> {
    clause.rsplit(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty())
}

/// Whether the phrase at a place is stated rather than asked, supposed or denied.
fn stated(lower: &str, at: usize) -> bool {
    const SUPPOSED: [&str; 11] =
        ["if", "when", "whether", "unless", "until", "should", "would", "could", "may", "might", "suppose"];
    // "In May it …" supposes nothing.
    const OF_A_MONTH: [&str; 8] = ["in", "of", "since", "by", "during", "from", "early", "late"];
    let words: Vec<&str> = words_before(sentence(lower, at)).collect();
    let month = |at: usize| words.get(at + 1).is_some_and(|before| OF_A_MONTH.contains(before));
    let mut supposed = words.iter().enumerate().filter(|(_, word)| SUPPOSED.contains(word));
    let supposed = supposed.any(|(at, word)| *word != "may" || !month(at));
    let rest = &lower.as_bytes()[at..lower.len().min(at + REACH)];
    let asked = rest.iter().find(|byte| b".!;?".contains(byte)) == Some(&b'?');
    !asked && !supposed && !denied(clause(lower, at)) && !missed(&lower[at..])
}

/// Whether what a clause begins with was looked for and not found.
fn missed(rest: &str) -> bool {
    const FINDS: [&str; 6] = ["found", "seen", "observed", "detected", "shown", "reached"];
    let clause = rest.split(['.', '!', '?', ';', ',', ':']).next().unwrap_or_default();
    let words: Vec<&str> = clause.split_whitespace().take(10).collect();
    let not = |word: &str| word == "not" || word == "never" || word.ends_with("n't");
    words.windows(2).any(|pair| not(pair[0]) && FINDS.contains(&pair[1]))
}

/// Whether what follows a clause is denied in it.
fn denied(clause: &str) -> bool {
    let mut next = "";
    words_before(clause).take(8).enumerate().any(|(back, word)| {
        let only = std::mem::replace(&mut next, word) == "only";
        match word {
            "no" | "without" => back < 2,
            "not" => back < 4 && !only,
            "never" | "nor" | "hardly" => back < 4,
            "none" | "neither" | "cannot" | "nothing" | "rarely" | "seldom" => true,
            "fail" | "fails" | "failed" | "lacks" | "far" => back < 4,
            _ => back < 4 && word.ends_with("n't"),
        }
    })
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
        for text in [
            "a significant gain",
            "Significantly more",
            "of some significance",
            "It reaches significance.",
            "a signi\u{fb01}cant gain",
            "Not only faster, it is significantly better",
            "Without tuning of any kind the gain is significant",
            "The gain is significant, and no loss was not found",
            "A significant gain was found",
        ] {
            assert_eq!(says(text), [Says::Significant], "{text}");
        }
        for text in [
            "not significant",
            "insignificant",
            "a non-significant gain",
            "no significant gain",
            "two significant digits",
            "none",
            "The difference is not statistically significant",
            "None of the gains is significant.",
            "Whether the gain is significant is open.",
            "Is it significant?",
            "Significance was tested by sign flips.",
            "at a significance level of five percent",
            "We cannot call it significant.",
            "Nothing here is significant.",
            "It is far from significant, and fails to reach significance.",
            "Reviewers asked about the significance of the gain.",
            "They asked about significance of the change.",
            "A significant part of the work was the verifier.",
            "It takes a significant amount of memory.",
            "A significant difference was not found.",
            "Significant gains weren't observed on either seed.",
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
            ("The model didn\u{2019}t regress.", Says::NoWorse),
            ("The treatment is noninferior.", Says::NoWorse),
            ("It is non\u{2011}inferior.", Says::NoWorse),
            ("It is no [worse](https://x.example/a).", Says::NoWorse),
            ("In May the treatment shows no regression.", Says::NoWorse),
            ("This means the arms are equivalent.", Says::Same),
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
            "We cannot say that there is no difference between the arms.",
            "This flag is equivalent to leaving it out.",
            "It may be that training had no effect.",
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
