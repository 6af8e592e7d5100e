//! Words that need a number beside them: what is called significant, the same, or no worse. Only turns of phrase are found
//! here; whether the numbers bear them out is for `claims check` and the audit, each from its own.

use super::as_read::as_read;
use super::code;
use regex::{Match, Regex};
use std::collections::BTreeSet;
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
    /// That an interval leaves zero out.
    LeavesZeroOut,
    /// That an interval holds zero.
    HoldsZero,
}

/// A turn of phrase, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// What it says.
    pub says: Says,
    /// Its first byte.
    pub at: usize,
    /// Its clause, where the sentence sets others against it ("…, but …"); the numbers cited here are the ones that it means.
    pub clause: Range<usize>,
    /// Its sentence, whose numbers it means where its clause cites none.
    pub sentence: Range<usize>,
}

/// Turns of phrase, in lower case with single blanks.
static PHRASES: LazyLock<Vec<(Says, Regex)>> = LazyLock::new(|| {
    let manner = r"(?:\w+ly |all |both |just |about |as |roughly |practically )*";
    [
        (Says::Significant, r"\bsignifican\w*"),
        (Says::Significant, r"\bnot insignificant\b"),
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
        (
            Says::Significant,
            r"\bp(?:[ -]values?)?[ ()=]*(?:is |was |lies |stays )?(?:<|≤|below|under|less than|smaller than) ?0?\.\d",
        ),
        (Says::Significant, r"\bp(?:[ -]values?)?[ ()]*(?:=|of|is) ?0?\.0[0-4]"),
        (Says::Significant, r"\bchance (?:is|was) ruled out\b|\b(?:chance|luck|noise) (?:cannot|can't|does not) explain\b|\btoo large to be (?:chance|luck|noise)\b"),
        (Says::Significant, r"\breach\w* the 0?\.05 level\b|\bcross\w* the threshold of significance\b"),
        (Says::Significant, r"\bnull(?: hypothesis)? (?:is|was|can be|must be|has to be) rejected\b|\breject\w* (?:the |this |that )?null\b"),
        (Says::Significant, r"\b(?:difference|gain|effect|improvement|change) (?:is|was) (?:\w+ly )?real\b"),
        (Says::Same, r"\bno (?:\w+ )?differences?\b"),
        (
            Says::Same,
            r"\bno (?:\w+ )?effects?(?: (?:on|in|of|at|for|upon|over|whatsoever|here|overall|either|beyond|to|between|was|is|were|are|by|from|and|or|that)\b|[.,;:!?)\n]|$)",
        ),
        (Says::Same, r"\b(?:zero|nil|negligible) effects?\b|\beffects? (?:is|are|was|were) (?:zero|nil|negligible)\b"),
        (Says::Same, r"(?:\b(?:do|does|did) not|n't) differ(?:$|[.,;:!?)\n]| in | on | at | overall| from )"),
        (Says::Same, r"\bcomparable to the (?:base|baseline|treatment)\b|\bmatch(?:es|ed)? the (?:base|baseline)\b"),
        (Says::Same, r"\b(?:reward|score|accuracy|performance|solve rate)s? (?:is|are|was|were|stays?|stayed|remains?|remained) (?:unchanged|the same)\b"),
        (Says::Same, r"\bthe same (?:mean )?(?:reward|score|accuracy|performance|solve rate) as\b"),
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
        (Says::NoWorse, r"(?:\b(?:not|never|without|cannot)|n't) (?:regress|degrad|harm|hurt|fall|fell|drop|decreas|declin|suffer)\w*"),
        (Says::NoWorse, r"(?:\b(?:not|no|never)|n't) (?:any |get |become |made )*worse\b"),
        (Says::NoWorse, r"\bno \w+ (?:got|gets|is|was|became|becomes) worse\b"),
        (Says::NoWorse, r"\bno (?:loss|drop|decrease|decline) (?:of|in) (?:the )?(?:mean )?(?:reward|score|accuracy|performance|solve rate|capability)"),
        (Says::NoWorse, r"\bnon-?inferior\b|\bnot inferior\b"),
        (Says::NoWorse, r"\bat least as (?:good|well|capable|strong|accurate|often)\b"),
        (Says::NoWorse, r"\bas (?:good|well|capable|strong|accurate) as the (?:base|baseline|treatment)\b"),
        (Says::NoWorse, r"\bpreserv(?:e|es|ed|ing) (?:the )?(?:reward|score|accuracy|performance|solve rate)"),
        (
            Says::LeavesZeroOut,
            r"\bzero (?:lies|is) outside\b|\b(?:exclud\w*|leav\w* out|(?:do|does|did) not (?:include|contain|span|cross|reach|cover)|(?:lies?|stays?|is|are) (?:wholly |entirely )?(?:above|below|clear of|away from)) (?:zero\b|0(?:$|[^.\d]|\.(?:$|\D)))|\bleav\w* (?:zero|0) out\b",
        ),
        (Says::HoldsZero, r"\b(?:includ|contain|span|cross|straddl|cover|hold)\w* (?:zero\b|0(?:$|[^.\d]|\.(?:$|\D)))"),
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
/// What else than arms may be the same or no worse: where it follows, and where it is what the sentence is about.
const THINGS: [&str; 27] = [
    "byte", "bytes", "hash", "hashes", "file", "files", "copy", "copies", "code", "build", "builds", "page",
    "pages", "format", "prompt", "prompts", "update", "matrix", "suite", "order", "sampling", "decoding",
    "audit", "digits", "rows", "slots", "folder",
];
const SUBJECTS: [&str; 8] = ["flag", "flags", "option", "options", "command", "commands", "step", "steps"];
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

/// What a paragraph claims, in the order of its text; a clause that says the same thing twice says it once.
pub fn claims(prose: &str) -> Vec<Statement> {
    let (lower, places) = as_read(prose);
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (says, pattern) in PHRASES.iter() {
        for phrase in pattern.find_iter(&lower).filter(|phrase| means(*says, &lower, phrase)) {
            // What was left out at the end of a sentence, such as a link, is of it.
            let there =
                |part: Range<usize>| places[part.start]..places.get(part.end).copied().unwrap_or(prose.len());
            let sentence = sentence_around(&lower, phrase.start());
            let clause = there(clause_around(&lower, sentence.clone(), phrase.start()));
            let sentence = there(sentence);
            if seen.insert((*says, clause.start, clause.end)) {
                found.push(Statement { says: *says, at: places[phrase.start()], clause, sentence });
            }
        }
    }
    found.sort_by_key(|statement: &Statement| (statement.at, statement.says));
    found
}

/// Most bytes of a sentence around a turn of phrase that are looked at.
const REACH: usize = 2048;

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

/// The part of a sentence that a place stands in, where others are set against it: "…, but …", "While …, …".
fn clause_around(lower: &str, sentence: Range<usize>, at: usize) -> Range<usize> {
    static AGAINST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?:, | )(?:but|yet|while|whereas|although|though)\b").expect("a pattern of this file")
    });
    let text = &lower[sentence.clone()];
    let opens =
        ["while ", "whereas ", "although ", "though "].iter().any(|word| text.trim_start().starts_with(word));
    let first = opens.then(|| comma(text)).flatten();
    // "… and … not …" sets two against each other as well.
    let and = text.match_indices(" and ").map(|(at, _)| at).filter(|at| text[*at..].contains(" not "));
    let mut cuts: Vec<usize> =
        AGAINST.find_iter(text).map(|cut| cut.start()).chain(first).chain(and).collect();
    cuts.sort_unstable();
    let at = at - sentence.start;
    let start = cuts.iter().rev().find(|cut| **cut < at).copied().unwrap_or(0);
    let end = cuts.iter().find(|cut| **cut >= at).copied().unwrap_or(text.len());
    sentence.start + start..sentence.start + end
}

/// The first comma outside brackets.
fn comma(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.match_indices(['(', ')', ',']).find_map(|(at, mark)| match mark {
        "(" => {
            depth += 1;
            None
        }
        ")" => {
            depth -= 1;
            None
        }
        _ => (depth <= 0).then_some(at),
    })
}

/// Whether a turn of phrase says what it seems to.
fn means(says: Says, lower: &str, phrase: &Match) -> bool {
    let (at, after) = (phrase.start(), &lower[phrase.end()..]);
    static SUPPOSED: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"^ ?(?:if|unless|only if|when p)\b|^(?: \w+){0,3} (?:would|could|might|should)\b|^(?: \w+){0,2} (?:was|were|is|are) (?:hypothesi[sz]ed|expected|predicted|assumed)\b|^[^.;!?\n]{0,60}\b(?:threshold|criterion|cut-off)\b";
        Regex::new(pattern).expect("a pattern of this file")
    });
    let supposed = SUPPOSED.is_match(after);
    !supposed
        && stated(lower, at)
        && match says {
            Says::Significant => {
                let comparison = lower[..at].ends_with("than ");
                !comparison && (!phrase.as_str().starts_with("significan") || is_significant(lower, phrase))
            }
            // "Non-inferiority" names a test; it says nothing of how it came out. What is equivalent to doing
            // something is no arm, and what is not significant need not be the same.
            Says::Same | Says::NoWorse => {
                !is_to_do(after)
                    && !phrase.as_str().contains("significant ")
                    && !looked_for(lower, phrase)
                    && !is_of_things(lower, phrase)
                    && ![" test", " suite", " analysis"].iter().any(|noun| after.starts_with(noun))
            }
            Says::LeavesZeroOut | Says::HoldsZero => lower[sentence_around(lower, at)].contains("interval"),
        }
}

/// Whether "no difference" and its kin say only that none was found, or name a hypothesis.
fn looked_for(lower: &str, phrase: &Match) -> bool {
    static BEFORE: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"(?:\b(?:see|saw|seen|finds?|found|detect\w*|observ\w*|reject\w*|than)|\b(?:hypothesis|null|evidence) of|\b(?:same|different|far) (?:as|from)|\b(?:compatible|consistent) with)(?: a| any)? $";
        Regex::new(pattern).expect("a pattern of this file")
    });
    static AFTER: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"^ ?(?:\w+ ){0,8}(?:was|were|is|are|has been|have been|could be|can be|cannot be) (?:\w+ )?(?:found|seen|observed|detected|detectable|visible|apparent|excluded|ruled out|rejected)\b";
        Regex::new(pattern).expect("a pattern of this file")
    });
    phrase.as_str().starts_with("no ")
        && (BEFORE.is_match(sentence(lower, phrase.start())) || AFTER.is_match(&lower[phrase.end()..]))
}

/// Whether a sentence speaks of files, code or the like, and not of arms.
fn is_of_things(lower: &str, phrase: &Match) -> bool {
    let words =
        |text: &str, of: &[&str]| text.split(|c: char| !c.is_alphanumeric()).any(|word| of.contains(&word));
    let sentence = sentence_around(lower, phrase.start());
    let follows = lower.get(phrase.end()..sentence.end).unwrap_or_default();
    let about = words_before(clause(lower, phrase.start())).take(3).any(|word| SUBJECTS.contains(&word));
    (about || words(follows, &THINGS)) && !words(&lower[sentence], &OF_ARMS)
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
        ["test", "level", "threshold", "lack", "question", "short", "absence"]
            .iter()
            .any(|noun| word.starts_with(noun))
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
    // "Had the effect been significant, …"
    let begins = sentence(lower, at).trim_start();
    let supposed = supposed || ["had ", "were ", "neither "].iter().any(|word| begins.starts_with(word));
    let rest = &lower[at..lower.floor_char_boundary(at + REACH)];
    !asked && !supposed && !denied(clause(lower, at)) && !missed(rest)
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
        let pattern = r"(?:\b(?:not|cannot|never|nobody|nothing|without)|n't) (?:\w+ ){0,3}(?:claim|case|evidence|say|mean|show|prove|conclude|imply|establish|demonstrate|suggest|think|believe)\w*|\b(?:no|little|insufficient|not enough) (?:\w+ )?(?:evidence|proof|reason|sign|claim)\b|\btoo (?:low|small|few|little)\b|\bhypothesis (?:is|was) that\b|\bassum(?:e|es|ed|ing)\b";
        Regex::new(pattern).expect("a pattern of this file")
    });
    // "No family shows a significant change."
    static NOBODY: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"\bno (?:\w+ ){1,4}(?:is|are|was|were|shows?|showed|has|have|had|changed?|moved?|differs?|differed|gained|improved|reach\w*|gives?|gave|yields?|yielded|came|comes?)(?: (?:a|any|an|statistically|\w+ly))* $";
        Regex::new(pattern).expect("a pattern of this file")
    });
    let nobody = NOBODY.find(clause).is_some_and(|found| {
        !["no doubt", "no question", "no wonder", "no surprise"]
            .iter()
            .any(|word| found.as_str().starts_with(word))
    });
    let mut next = "";
    nobody
        || UNSAID.is_match(clause)
        || words_before(clause).take(12).enumerate().any(|(back, word)| {
            let only = std::mem::replace(&mut next, word) == "only";
            match word {
                "no" | "without" => back < 2,
                "not" => back < 4 && !only,
                "never" | "nor" | "hardly" | "barely" | "scarcely" => back < 4,
                "none" | "neither" | "cannot" | "nothing" | "rarely" | "seldom" | "lack" | "lacks"
                | "lacking" => true,
                "fail" | "fails" | "failed" | "far" | "ceases" | "ceased" | "stops" | "stopped"
                | "absence" | "unlikely" => back < 4,
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
#[path = "wording_tests.rs"]
mod tests;
