//! Words that need a number beside them: what is called significant, the same, or no worse. Only turns of phrase are found
//! here; whether the numbers bear them out is for `claims check` and the audit, each from its own.

use super::code;
use regex::{Match, Regex};
use std::ops::Range;
use std::sync::LazyLock;

/// What a sentence says of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Says {
    /// That something differs, and not by chance.
    Significant,
    /// That two arms are the same.
    Same,
    /// That one arm is not worse.
    NoWorse,
}

/// A turn of phrase, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// What it says.
    pub says: Says,
    /// Its first byte.
    pub at: usize,
    /// Its sentence: the numbers cited here are the ones that it means.
    pub sentence: Range<usize>,
}

/// Turns of phrase, in lower case with single blanks.
static PHRASES: LazyLock<Vec<(Says, Regex)>> = LazyLock::new(|| {
    let manner = r"(?:\w+ly |all |both |just |about |as |roughly |practically )*";
    [
        (Says::Significant, r"\bsignifican\w*"),
        (
            Says::Significant,
            r"\bstatistically (?:better|worse|different|distinguishable|detectable|real|reliable|robust|sound|higher|lower|superior|inferior|meaningful)\b",
        ),
        (
            Says::Significant,
            r"\b(?:not|unlikely to be|more than|beyond|rather than)(?: just| mere| merely| pure| due to| caused by| by| down to)* (?:chance|luck|noise)\b",
        ),
        (Says::Significant, r"\bbeyond (?:any |all |a |every |reasonable )*doubts?\b"),
        (
            Says::Significant,
            r"\b(?:reliabl[ey]|clearly|a clear|demonstrabl[ey]|provabl[ey]|conclusively|definitely) (?:better|worse|beats?|beaten|outperform\w*|improve\w*|gains?|superior|wins?)\b",
        ),
        (Says::Significant, r"\bp(?:[ -]values?)? ?(?:<|≤|below|under|less than|smaller than) ?0?\.\d"),
        (Says::Same, r"\bno (?:\w+ )?differences?\b"),
        (Says::Same, r"\bno (?:\w+ )?effects?\b"),
        (Says::Same, r"\bno (?:\w+ )?change in (?:the )?(?:reward|score|accuracy|performance|solve rate)"),
        (Says::Same, &format!(r"\b(?:is|are|was|were|be|being|remain\w*|stay\w*) {manner}(?:equivalent|interchangeable)\b")),
        (Says::Same, r"\bindistinguishable\b"),
        (Says::Same, r"\bon (?:a )?par\b"),
        (
            Says::Same,
            &format!(r"\b(?:perform\w*|scor(?:e|es|ed|ing)|do|does|did|behav\w+|solv(?:e|es|ed)) {manner}(?:the same|identically|equally|alike)\b"),
        ),
        (
            Says::Same,
            &format!(r"\b(?:arms|policies|models|checkpoints|two|both|treatment|adapter) (?:is|are|was|were|remain\w*|stay\w*) {manner}(?:equal|identical|alike|the same)(?:$|[.,;:!?)]| in | on | at | overall)"),
        ),
        (Says::Same, r"\b(?:equally|just as) (?:good|well|capable|strong|accurate|often)\b"),
        (Says::NoWorse, r"\bno (?:\w+ )?(?:regressions?|harm|degradations?|deterioration)\b"),
        (Says::NoWorse, r"(?:\b(?:not|never|without|cannot)|n't) (?:regress|degrad|harm|hurt)\w*"),
        (Says::NoWorse, r"(?:\b(?:not|no|never)|n't) (?:any |get |become |made )*worse\b"),
        (Says::NoWorse, r"\bnon-?inferior\b"),
        (Says::NoWorse, r"\bat least as (?:good|well|capable|strong|accurate|often)\b"),
    ]
    .map(|(says, pattern)| (says, Regex::new(pattern).expect("a pattern of this file")))
    .into()
});

/// What is called significant and has no p value: digits, and how much of something there is.
const EXTENTS: [&str; 20] = [
    "digit", "digits", "bit", "bits", "figure", "figures", "part", "parts", "portion", "share", "fraction",
    "amount", "amounts", "number", "numbers", "time", "effort", "work", "cost", "costs",
];
/// What makes a comparison of such an extent again, as in "a significant cost reduction".
const CHANGES: [&str; 8] =
    ["saving", "reduction", "improvement", "gain", "increase", "decrease", "drop", "advantage"];
/// What else than arms may be the same or no worse.
const THINGS: [&str; 23] = [
    "byte", "bytes", "hash", "hashes", "file", "files", "copy", "copies", "family", "families", "code",
    "build", "builds", "page", "pages", "format", "flag", "option", "prompt", "prompts", "update", "matrix",
    "suite",
];
/// What makes a sentence one about arms all the same.
const OF_ARMS: [&str; 16] = [
    "arm",
    "arms",
    "treatment",
    "base",
    "baseline",
    "adapter",
    "policy",
    "policies",
    "reward",
    "rewards",
    "score",
    "scores",
    "accuracy",
    "performance",
    "quality",
    "solved",
];

/// What a paragraph claims, in the order of its text; a sentence that says the same thing twice says it once.
pub fn claims(prose: &str) -> Vec<Statement> {
    let (lower, places) = as_read(prose);
    let mut found: Vec<Statement> = Vec::new();
    for (says, pattern) in PHRASES.iter() {
        for phrase in pattern.find_iter(&lower).filter(|phrase| means(*says, &lower, phrase)) {
            let sentence = sentence_around(&lower, phrase.start());
            // What was left out at the end of a sentence, such as a link, is of it.
            let end = places.get(sentence.end).copied().unwrap_or(prose.len());
            let sentence = places[sentence.start]..end;
            if found.iter().all(|other| (other.says, &other.sentence) != (*says, &sentence)) {
                found.push(Statement { says: *says, at: places[phrase.start()], sentence });
            }
        }
    }
    found.sort_by_key(|statement| (statement.at, statement.says));
    found
}

/// Most bytes of a link's target, and of a sentence around a turn of phrase, that are looked at.
const REACH: usize = 2048;

/// A text as a reader sees it: in lower case, one blank between words, without marks of emphasis, link targets and characters of no
/// width; apostrophes, hyphens and ligatures as on a keyboard, simple character references read; items of lists and rows of tables
/// on lines of their own; and for each byte where it came from.
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

/// The sentence that a place stands in, as far as is looked at: up to a mark that ends one, or the end of a line.
fn sentence_around(lower: &str, at: usize) -> Range<usize> {
    let bytes = lower.as_bytes();
    let ends = |at: usize| match bytes[at] {
        b'\n' => true,
        b'.' | b'!' | b'?' | b';' => bytes.get(at + 1).is_none_or(|next| !next.is_ascii_alphanumeric()),
        _ => false,
    };
    let first = lower.floor_char_boundary(at.saturating_sub(REACH));
    let last = lower.floor_char_boundary(at + REACH);
    let start = (first..at).rev().find(|at| ends(*at)).map_or(first, |at| at + 1);
    start..(at..last).find(|at| ends(*at)).unwrap_or(last)
}

/// Whether a turn of phrase says what it seems to.
fn means(says: Says, lower: &str, phrase: &Match) -> bool {
    let (at, after) = (phrase.start(), &lower[phrase.end()..]);
    stated(lower, at)
        && match says {
            Says::Significant => !phrase.as_str().starts_with("significan") || is_significant(lower, phrase),
            // "Non-inferiority" names a test; it says nothing of how it came out. What is equivalent to doing
            // something is no arm, and what is not significant need not be the same.
            Says::Same | Says::NoWorse => {
                !is_to_do(after)
                    && !phrase.as_str().contains("significant ")
                    && !is_of_things(&lower[sentence_around(lower, at)], after)
            }
        }
}

/// Whether a sentence speaks of files, code or the like, and not of arms.
fn is_of_things(sentence: &str, after: &str) -> bool {
    let words =
        |text: &str, of: &[&str]| text.split(|c: char| !c.is_alphanumeric()).any(|word| of.contains(&word));
    let clause = after.split(['.', '!', '?', ';', '\n']).next().unwrap_or_default();
    words(clause, &THINGS) && !words(sentence, &OF_ARMS)
}

/// Whether a text goes on with "to" and a verb in -ing.
fn is_to_do(after: &str) -> bool {
    let mut words = after.split(' ').skip(1);
    words.next() == Some("to") && words.next().is_some_and(|word| word.trim_end_matches('.').ends_with("ing"))
}

/// Whether "significant" and its kin say that something is not by chance.
fn is_significant(lower: &str, phrase: &Match) -> bool {
    let (before, word) = (&lower[..phrase.start()], phrase.as_str());
    let joined = before.ends_with("non-");
    let names = word == "significance" && !attained(lower, phrase);
    let mut following =
        lower[phrase.end()..].split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let noun = following.next().unwrap_or_default();
    let goes_on = following.next().unwrap_or_default();
    let extent = EXTENTS.contains(&noun) && !CHANGES.iter().any(|change| goes_on.starts_with(change));
    !(joined || names || word == "significant" && extent)
}

/// Whether "significance" is what something has, as in "of some significance": alone it names a test, or a level of one.
fn attained(lower: &str, phrase: &Match) -> bool {
    let before: Vec<&str> = words_before(clause(lower, phrase.start())).take(3).collect();
    let mut after = lower[phrase.end()..].split(|c: char| !c.is_alphanumeric()).take(4);
    let has = |word: &&str| {
        ["reach", "attain", "achiev", "gain"].iter().any(|verb| word.starts_with(verb))
            || matches!(*word, "has" | "have" | "had" | "with" | "of")
    };
    let test = before.iter().any(|word| {
        ["test", "level", "threshold", "lack", "question"].iter().any(|noun| word.starts_with(noun))
    });
    let is_attained = after.any(|word| ["reached", "attained", "achieved"].contains(&word));
    is_attained || before.iter().any(has) && !test
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
    lower[from..at].rsplit(['.', '!', '?', ';', '\n']).next().unwrap_or_default()
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
    let asked = rest.iter().find(|byte| b".!;?\n".contains(byte)) == Some(&b'?');
    !asked && !supposed && !denied(clause(lower, at)) && !missed(&lower[at..])
}

/// Whether what a clause begins with was looked for and not found; what was not seen before was found now.
fn missed(rest: &str) -> bool {
    static MISSED: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"(?:\b(?:was|were|is|are|has|have|had|could|can) (?:not|never)|n't|\bcannot)(?: yet| ever)?(?: be| been)?(?: yet)? (?:found|seen|observed|detected|shown|reached|established|confirmed)\b";
        Regex::new(pattern).expect("a pattern of this file")
    });
    let clause = rest.split(['.', '!', '?', ';', ',', ':', '\n']).next().unwrap_or_default();
    MISSED.find(clause).is_some_and(|missed| {
        let next = clause[missed.end()..].split_whitespace().next().unwrap_or_default();
        !["before", "earlier", "previously", "until"].contains(&next)
    })
}

/// Whether what follows a clause is denied in it.
fn denied(clause: &str) -> bool {
    static UNSAID: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"(?:\b(?:not|cannot|never|nobody|nothing|without)|n't) (?:\w+ ){0,2}(?:claim|say|mean|show|prove|conclude|imply|establish|demonstrate|suggest|think|believe)\w*|\bno (?:\w+ )?(?:evidence|proof|reason|sign|claim)\b";
        Regex::new(pattern).expect("a pattern of this file")
    });
    let mut next = "";
    UNSAID.is_match(clause)
        || words_before(clause).take(8).enumerate().any(|(back, word)| {
            let only = std::mem::replace(&mut next, word) == "only";
            match word {
                "no" | "without" => back < 2,
                "not" => back < 4 && !only,
                "never" | "nor" | "hardly" | "barely" | "scarcely" => back < 4,
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
        claims(text).into_iter().map(|statement| statement.says).collect()
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
            "A significant gain not seen before",
            "a significant partial credit",
            "significantly more timely",
            "a significant cost reduction",
            "The difference is statistically reliable.",
            "It is unlikely to be due to chance.",
            "The gain is more than luck.",
            "It is better beyond any doubt.",
            "The treatment clearly beats the base.",
            "A reliable improvement on both seeds.",
            "The gain holds (p < .05).",
            "Significance was reached.",
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
            "A significant gain has not been found.",
            "A significant gain could not be found.",
            "The most significant bit is set.",
            "We do not claim that the gain is significant.",
            "There is no evidence that the gain is significant.",
            "It may be no more than chance.",
            "Whether it is more than noise is open.",
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
            ("There is no difference.", Says::Same),
            ("Both arms are equal.", Says::Same),
            ("The two are on par.", Says::Same),
            ("The arms perform identically.", Says::Same),
            ("The treatment does just as well.", Says::Same),
            ("No measurable difference was seen in reward.", Says::Same),
            ("The adapter does no harm.", Says::NoWorse),
            ("It doesn't hurt the score.", Says::NoWorse),
            ("No regression in the code families' scores.", Says::NoWorse),
            ("The adapter is at least as accurate.", Says::NoWorse),
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
            "We do not claim that the arms are equivalent.",
            "LoRA is equivalent to a low-rank update of the weights.",
            "There is no difference between the two copies.",
            "The order of fields has no effect on the hashes.",
            "There is no regression in the code.",
            "No significant difference between the arms.",
            "Both arms are the same size.",
            "The tasks are the same under both arms.",
            "A regression has not been found.",
        ] {
            assert!(says(text).is_empty(), "{text}");
        }
        let both = claims("A significant gain. On the rest it had no effect.");
        let of = |says, at, sentence| Statement { says, at, sentence };
        assert_eq!(both, [of(Says::Significant, 2, 0..18), of(Says::Same, 39, 19..48)]);
    }

    #[test]
    fn a_sentence_ends_with_its_mark_or_its_line() {
        let sentences = |text: &str| -> Vec<String> {
            claims(text).into_iter().map(|said| text[said.sentence].trim().to_string()).collect()
        };
        assert_eq!(
            sentences("At p = 0.03 it is significant; more at 3.5 (e.g.) is not."),
            ["At p = 0.03 it is significant"]
        );
        assert_eq!(sentences("- one\n- a *significant* gain\n- three"), ["- a *significant* gain"]);
        assert_eq!(
            sentences("| a | significant |\n| b | no worse |"),
            ["| a | significant |", "| b | no worse |"]
        );
        assert_eq!(
            sentences("Significant, and\nsignificantly so, [x](derive:a.b)."),
            ["Significant, and\nsignificantly so, [x](derive:a.b)"]
        );
    }

    #[test]
    fn paragraphs_end_at_blank_lines() {
        let found: Vec<&str> =
            paragraphs("a\nb\n\nc\n   \nd").into_iter().map(|r| &"a\nb\n\nc\n   \nd"[r]).collect();
        assert_eq!(found, ["a\nb", "c\n   \nd"]);
    }
}
