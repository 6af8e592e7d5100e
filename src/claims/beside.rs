//! What stands beside a linked number must not change what it says: no digit, sign, `%` or
//! scale word ("million", "dozen", "k") outside the brackets. Only what is inside is recomputed.

use super::visible::{BORDER, ENTITY, LINK, project};
use std::ops::Range;

/// Words that multiply or divide the number before them.
pub(crate) const SCALES: &[&str] = &[
    "hundred",
    "hundreds",
    "thousand",
    "thousands",
    "million",
    "millions",
    "billion",
    "billions",
    "trillion",
    "trillions",
    "dozen",
    "dozens",
    "lakh",
    "crore",
    "mio",
    "mln",
    "bn",
    "mrd",
    "tenth",
    "tenths",
    "hundredth",
    "hundredths",
    "thousandth",
    "thousandths",
    "millionth",
    "millionths",
    "percent",
    "percentage",
    "percents",
    "pct",
    "permille",
    "promille",
    "ppm",
    "ppb",
    "bps",
    "pp",
    "bp",
    "mille",
    "kilo",
    "thou",
    "grand",
    "gross",
    "fold",
    "halves",
    "thirds",
    "fifths",
];
/// Single letters that do the same: thousand, million and so on, and `x` for `×`.
const LETTERS: &[&str] = &["k", "K", "M", "G", "T", "B", "x", "X"];
/// After "per": a share of so many.
const SHARES: &[&str] = &["cent", "centum", "mille", "mil", "hundred", "thousand", "million", "billion"];
/// Number words that a number after them would join.
const LEADING: &[&str] = &[
    "minus", "negative", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
    "hundred", "thousand", "million", "billion",
];
/// Characters that can stand within one number or between two that are read as one.
const JOINTS: &[char] = &[
    '.', ',', '\'', '’', ':', '/', '-', '‐', '‑', '‒', '–', '\u{2212}', '+', '±', '×', '·', '⋅', '∙', '÷',
    '*', '^', '_', '#', '⁄',
];
const SIGNS: &[char] = &['-', '+', '\u{2212}', '‐', '‑', '‒', '–', '—', '﹣', '－'];
const TIMES: &[char] = &['×', '·', '⋅', '∙', '÷', '*', '/', '⁄', '^'];
const PARTS: &[char] = &['%', '‰', '‱', '％', '٪'];
/// How far a neighbour is looked for.
const REACH: usize = 64;

/// Whether a word, or a unit within the brackets, changes the scale of the number before it.
pub(super) fn is_scale(word: &str) -> bool {
    LETTERS.contains(&word) || SCALES.contains(&word.to_lowercase().as_str())
}

/// For each of `links` (whole, in rising order; with the printed text), what stands beside it and
/// changes what it says: the reason and the remedy.
pub(super) fn find(text: &str, links: &[(Range<usize>, &str)]) -> Vec<Option<(String, &'static str)>> {
    let ranges: Vec<Range<usize>> = links.iter().map(|(whole, _)| whole.clone()).collect();
    let (seen, places) = project(text, &ranges);
    let judge = |(place, (_, printed)): (Option<usize>, &(Range<usize>, &str))| {
        let place = place?;
        let before: Vec<char> = seen[..place].iter().rev().take(REACH).copied().collect();
        let after: Vec<char> = seen[place + 1..].iter().take(REACH).copied().collect();
        left(&before, printed.trim()).or_else(|| right(&after, printed.trim()))
    };
    places.into_iter().zip(links).map(judge).collect()
}

const OWN: &str =
    "a linked number stands by itself: print all of it inside the brackets, or put a word between";
const SIGN: &str = "the sign is part of the number: write it inside the brackets";
const TURNED: &str =
    "say what the number says: it rose by a number with a plus, and fell by one with a minus";
/// The remedy for a scale beside or within the brackets.
pub(super) const WHOLE: &str =
    "print the number as it is, with `%` or `×` inside the brackets where it needs one";

type Trouble = Option<(String, &'static str)>;

fn trouble(what: &str, hint: &'static str) -> Trouble {
    Some((what.to_string(), hint))
}

/// What follows the number, also behind the brackets that it stands in.
fn right(after: &[char], printed: &str) -> Trouble {
    let closed = after.iter().take_while(|c| matches!(c, ')' | ']')).count();
    if closed > 0 {
        let rest = &after[closed..];
        return match rest.first() {
            Some(c) if PARTS.contains(c) => {
                trouble(&format!("`{c}` follows the number outside its brackets"), WHOLE)
            }
            _ => multiplied(rest),
        };
    }
    match after.first() {
        Some(&LINK) => return trouble("another linked number follows without a blank", OWN),
        Some(&ENTITY) => {
            return trouble("a character reference follows the number", "write the character itself");
        }
        Some('^') => return trouble("`^` follows the number", OWN),
        Some(c) if PARTS.contains(c) => {
            return trouble(&format!("`{c}` follows the number outside its brackets"), WHOLE);
        }
        Some(c) if c.is_alphanumeric() => {
            let word = word(after);
            let hint = if is_scale(&word) { WHOLE } else { OWN };
            return trouble(&format!("`{word}` is glued to the number"), hint);
        }
        _ => {}
    }
    let joints = after.iter().take_while(|c| JOINTS.contains(c)).count();
    let rest = &after[joints..];
    if joints > 0 && rest.first().is_some_and(|c| c.is_numeric()) {
        let glued: String = after[..joints].iter().chain(&word(rest).chars().collect::<Vec<_>>()).collect();
        return trouble(&format!("`{glued}` is glued to the number"), OWN);
    }
    if joints > 0 && !(joints == 1 && rest.first().is_some_and(|c| c.is_alphabetic())) {
        // Punctuation ends what the number says, but for a sign of multiplication.
        return multiplied(after);
    }
    let blanks = rest.iter().take_while(|c| c.is_whitespace()).count();
    let next = &rest[blanks..];
    let word = self::word(next);
    match next.first() {
        Some(&ENTITY) => {
            return trouble("a character reference follows the number", "write the character itself");
        }
        Some(c) if PARTS.contains(c) => {
            return trouble(&format!("`{c}` follows the number outside its brackets"), WHOLE);
        }
        Some(c) if c.is_numeric() && blanks > 0 && continues(printed, &word, rest[0]) => {
            return trouble(&format!("`{word}` after the number reads as more of its digits"), OWN);
        }
        _ => {}
    }
    let next = if next.first() == Some(&'(') { &next[1..] } else { next };
    scaled(next).or_else(|| multiplied(rest))
}

/// A scale in words: "million", "per cent", "and a half", "e-3".
fn scaled(next: &[char]) -> Trouble {
    let first = word(next);
    let following = |skip: usize| {
        let rest = &next[skip.min(next.len())..];
        let blanks = rest.iter().take_while(|c| c.is_whitespace() || **c == '-').count();
        (word(&rest[blanks..]).to_lowercase(), skip + blanks)
    };
    let (second, at) = following(first.chars().count());
    let times = matches!(first.as_str(), "x" | "X") && next.get(at) == Some(&LINK);
    let exponent = matches!(first.as_str(), "e" | "E") && next.get(1).is_some_and(|c| SIGNS.contains(c))
        || first
            .strip_prefix(['e', 'E'])
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(char::is_numeric));
    let compound = LETTERS.contains(&first.as_str()) && next.get(1) == Some(&'-');
    if exponent || (is_scale(&first) && !times && !compound) {
        return trouble(&format!("`{first}` after the number changes its scale"), WHOLE);
    }
    if first.eq_ignore_ascii_case("per") && SHARES.contains(&second.as_str()) {
        return trouble(&format!("`per {second}` after the number changes its scale"), WHOLE);
    }
    if first.eq_ignore_ascii_case("and") && matches!(second.as_str(), "a" | "one") {
        let (third, _) = following(at + second.chars().count());
        if matches!(third.as_str(), "half" | "quarter" | "third") {
            return trouble(&format!("`and {second} {third}` after the number adds to it"), WHOLE);
        }
    }
    None
}

/// A sign of multiplication or division with anything but a linked number after it.
fn multiplied(rest: &[char]) -> Trouble {
    let solid: Vec<char> = rest.iter().copied().filter(|c| !c.is_whitespace()).take(2).collect();
    match solid.as_slice() {
        ['×', LINK] => None,
        ['×', ..] => trouble("`×` follows the number outside its brackets", WHOLE),
        [sign, digit] if TIMES.contains(sign) && digit.is_numeric() => {
            trouble(&format!("`{sign}{digit}` after the number changes its scale"), WHOLE)
        }
        _ => None,
    }
}

/// What comes before the number; nearest character first.
fn left(before: &[char], printed: &str) -> Trouble {
    if let Some(found) = turned(before, printed) {
        return found;
    }
    if before.first() == Some(&'(') {
        let outside: Vec<char> = before.iter().skip_while(|c| **c == '(').copied().collect();
        let alone = outside.get(1).is_none_or(|c| c.is_whitespace() || *c == BORDER);
        return match outside.first() {
            Some(c) if SIGNS.contains(c) && alone => {
                trouble(&format!("the sign `{c}` stands before the number, outside its brackets"), SIGN)
            }
            _ => None,
        };
    }
    match before.first() {
        Some(&ENTITY) => {
            return trouble("a character reference stands before the number", "write the character itself");
        }
        Some(c) if c.is_alphanumeric() => {
            return trouble(&format!("`{}` is glued to the number", back(before)), OWN);
        }
        _ => {}
    }
    let joints = before.iter().take_while(|c| JOINTS.contains(c) || SIGNS.contains(c)).count();
    let rest = &before[joints..];
    let glued = back(rest);
    if joints > 0 && is_number(&glued) {
        let joint: String = before[..joints].iter().rev().collect();
        return trouble(&format!("`{glued}{joint}` is glued to the number"), OWN);
    }
    if joints > 0 && LEADING.contains(&glued.to_lowercase().as_str()) {
        return trouble(&format!("`{glued}` before the number changes it"), OWN);
    }
    let bare = rest.first().is_none_or(|c| c.is_whitespace() || !(c.is_alphanumeric() || *c == LINK));
    match before.first() {
        Some(c) if bare && SIGNS.contains(c) => {
            return trouble(&format!("the sign `{c}` stands before the number, outside its brackets"), SIGN);
        }
        Some('.') if bare => return trouble("a decimal point stands before the number", OWN),
        _ => {}
    }
    if joints > 0 {
        return None;
    }
    spaced(before, printed)
}

/// "Fell by" before a number with a plus, and "rose by" before one with a minus.
fn turned(before: &[char], printed: &str) -> Option<Trouble> {
    const FALLS: [&str; 12] = [
        "fell",
        "falls",
        "dropped",
        "drops",
        "decreased",
        "decreases",
        "declined",
        "declines",
        "lowered",
        "lowers",
        "reduced",
        "lost",
    ];
    const RISES: [&str; 10] =
        ["rose", "rises", "gained", "gains", "increased", "increases", "grew", "grows", "raised", "raises"];
    let blanks = |from: &[char]| from.iter().take_while(|c| c.is_whitespace()).count();
    let rest = &before[blanks(before)..];
    let by = back(rest);
    let rest = &rest[by.chars().count()..];
    let verb = back(&rest[blanks(rest)..]).to_lowercase();
    let other = match printed.chars().next() {
        Some('+') => FALLS.contains(&verb.as_str()),
        Some('-' | '\u{2212}') => RISES.contains(&verb.as_str()),
        _ => false,
    };
    (by == "by" && other)
        .then(|| trouble(&format!("`{verb} by` says the opposite of the number's sign"), TURNED))
}

/// What comes before the number with a blank between.
fn spaced(before: &[char], printed: &str) -> Trouble {
    let blanks = before.iter().take_while(|c| c.is_whitespace()).count();
    let rest = &before[blanks..];
    let word = back(rest);
    let further = &rest[word.chars().count()..];
    let beyond = |from: &[char]| from.iter().find(|c| !c.is_whitespace()).copied();
    if blanks == 0 {
        return None;
    }
    if rest.first() == Some(&'\u{2212}') && beyond(&rest[1..]) != Some(LINK) {
        return trouble("the sign `\u{2212}` stands before the number, outside its brackets", SIGN);
    }
    if LEADING.contains(&word.to_lowercase().as_str()) && beyond(further) != Some(LINK) {
        return trouble(&format!("`{word}` before the number changes it"), OWN);
    }
    let alone = further.first().is_none_or(|c| c.is_whitespace() || matches!(*c, '(' | BORDER));
    let leading: String = printed.chars().take_while(char::is_ascii_digit).collect();
    if alone && word.chars().count() <= 3 && continues(&word, &leading, before[0]) {
        return trouble(&format!("`{word}` before the number reads as more of its digits"), OWN);
    }
    None
}

/// Whether two runs of digits with one blank between read as one number: with a blank that does
/// not break, or as a group of three.
fn continues(first: &str, second: &str, blank: char) -> bool {
    let whole = |text: &str| !text.is_empty() && text.chars().all(char::is_numeric);
    let tight = matches!(blank, '\u{a0}' | '\u{2007}' | '\u{2009}' | '\u{200a}' | '\u{202f}');
    let first = first.trim_start_matches(SIGNS);
    whole(&first.replace(',', "")) && whole(second) && (tight || second.chars().count() == 3)
}

/// `1`, or `1e` of `1e-[7]`.
fn is_number(text: &str) -> bool {
    let digits = text.trim_end_matches(['e', 'E']);
    text.len() - digits.len() < 2 && !digits.is_empty() && digits.chars().all(char::is_numeric)
}

/// The word or number that starts here.
fn word(text: &[char]) -> String {
    text.iter().take_while(|c| c.is_alphanumeric()).collect()
}

/// The word or number that ends here; nearest character first.
fn back(before: &[char]) -> String {
    let letters: Vec<char> = before.iter().take_while(|c| c.is_alphanumeric()).copied().collect();
    letters.into_iter().rev().collect()
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
