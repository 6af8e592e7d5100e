//! The verdict in words: what a report and its log call the outcome must be the outcome.

use super::Finding;
use super::superseded;
use crate::claims::front_matter::Document;
use crate::claims::ledger::Claim;
use crate::claims::links;
use crate::claims::texts::{ExperimentText, Texts};
use std::collections::BTreeSet;
use std::path::Path;

const WORDS: [&str; 4] = ["inconclusive", "positive", "negative", "design-negative"];
/// What names the verdict, and how it goes on to the word itself.
const NAMES: [&str; 11] = [
    "outcome",
    "verdict",
    "conclusion",
    "experiment",
    "final result",
    "overall result",
    "end result",
    "decision",
    "rule",
    "study",
    "trial",
];
const VERBS: [&str; 11] = [
    " is ",
    " was ",
    ": ",
    " remains ",
    " turned out ",
    " came out ",
    " came out as ",
    " stands at ",
    " | ",
    " gives ",
    " says ",
];
/// What makes a rule of a sentence: "the outcome is positive when every leg holds".
const CONDITIONS: [&str; 6] = ["when ", "if ", "unless ", "only ", "where ", "as soon as "];
/// What leaves open what it stands before.
const OPEN: [&str; 8] =
    ["hardly", "possibly", "scarcely", "barely", "only", "probably", "likely", "supposedly"];
/// What says that there is no such outcome, or only thinks of one: "a positive outcome would need", "no positive outcome".
const SUPPOSED: [&str; 21] = [
    "if", "when", "whether", "unless", "should", "would", "could", "may", "might", "can", "no", "not",
    "without", "never", "any", "every", "means", "needs", "requires", "takes", "asks",
];

/// Places of a text that state another outcome. `: **word**` in any emphasis counts as stated too, since
/// reports end so. `then(field, line, word)` says whether a place may state that outcome beside it: a log's of a day
/// on which it stood, before a rescore, and a correction.
pub fn contradictions(
    document: &Document,
    outcome: &str,
    then: &dyn Fn(Option<&str>, usize, &str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in document.passages() {
        for (at, word) in others(passage.text, outcome) {
            let line = document.line(passage.offset(at));
            if !then(passage.field, line, word) {
                let detail = format!("line {line} {}", says(word, outcome));
                findings.push(Finding::new("verdict", &document.path, None, detail));
            }
        }
    }
    findings
}

/// Places of a claim that state an outcome which none of its experiments has come to, now (as the report says, which is
/// held against the receipts elsewhere) or before a rescore.
pub fn of_claim(workspace: &Path, texts: &Texts, claim: &Claim) -> Vec<Finding> {
    let links = claim.document.links();
    let linked = links.iter().filter_map(|link| link.reference.as_ref().ok());
    let scopes = linked.chain(claim.evidence()).map(|reference| &reference.scope);
    let declared = claim.derivations.values().filter_map(|derivation| derivation.experiment.as_ref());
    let own: BTreeSet<&String> = claim.experiments.iter().chain(scopes).chain(declared).collect();
    other_outcomes(workspace, &claim.document, own.into_iter().filter_map(|slug| texts.experiments.get(slug)))
}

/// Places of a page that state an outcome which no experiment here has come to.
pub fn of_page(workspace: &Path, texts: &Texts, page: &Document) -> Vec<Finding> {
    other_outcomes(workspace, page, texts.experiments.values())
}

fn other_outcomes<'a>(
    workspace: &Path,
    document: &Document,
    of: impl Iterator<Item = &'a ExperimentText>,
) -> Vec<Finding> {
    let mut outcomes: BTreeSet<String> = BTreeSet::new();
    for text in of {
        outcomes.extend(text.report.front.verdict.map(|verdict| verdict.as_str().to_string()));
        let before = superseded::earlier_outcomes(workspace, &text.slug);
        outcomes.extend(before.into_iter().map(|earlier| earlier.outcome));
    }
    let said: Vec<&str> = outcomes.iter().map(String::as_str).collect();
    contradictions(document, &said.join(" or "), &|_, _, word| outcomes.contains(word))
}

/// What is wrong with a place that states `word`.
pub fn says(word: &str, outcome: &str) -> String {
    let is = if outcome.is_empty() { "nothing is decided".into() } else { format!("it is {outcome}") };
    format!("says the outcome is {word}, and {is}")
}

/// Where a text states another outcome, and which.
pub fn others(text: &str, outcome: &str) -> Vec<(usize, &'static str)> {
    let (prose, offsets) = flat(&links::scan(text).prose);
    let places = |word: &'static str| prose.match_indices(word).map(move |(at, _)| (at, word));
    let stated = |(at, word): &(usize, &str)| states(&prose[..*at], &prose[at + word.len()..]);
    let others = WORDS.iter().filter(|word| **word != outcome);
    others.flat_map(|word| places(word)).filter(stated).map(|(at, word)| (offsets[at], word)).collect()
}

/// The text in lower case with single blanks and without characters that nobody sees, and for each byte
/// where it came from.
fn flat(prose: &str) -> (String, Vec<usize>) {
    let (mut out, mut offsets) = (String::with_capacity(prose.len()), Vec::with_capacity(prose.len()));
    for (at, c) in prose.char_indices() {
        match c {
            '\u{ad}' | '\u{34f}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => continue,
            c if c.is_whitespace() && out.ends_with(' ') => continue,
            c if c.is_whitespace() => out.push(' '),
            c => out.push(c.to_ascii_lowercase()),
        }
        offsets.resize(out.len(), at);
    }
    (out, offsets)
}

fn states(before: &str, after: &str) -> bool {
    let whole = !after.starts_with(|c: char| c.is_alphanumeric() || c == '-') && !before.ends_with('-');
    let marks = ['*', '_', '`', '"', '\u{201c}', '\u{201d}'];
    let bare = before.trim_end_matches(marks);
    let emphasised = before.ends_with(marks) && after.starts_with(marks) && bare.trim_end().ends_with(':');
    let rest = after.trim_start_matches(marks).trim_start();
    let sentence = before.rsplit(['.', '!', '?']).next().unwrap_or_default();
    let supposed = ["if ", "when ", "whether ", "unless ", "should "];
    let listed = [", ", "or ", "and "].iter().any(|joint| {
        let next = rest.strip_prefix(joint).map(|next| next.trim_start_matches(marks));
        next.is_some_and(|next| WORDS.iter().any(|word| next.starts_with(word)))
    });
    let rule = CONDITIONS.iter().any(|word| rest.starts_with(word))
        || supposed
            .iter()
            .any(|word| sentence.trim_start().starts_with(word) || sentence.contains(&format!(" {word}")))
        || listed;
    // "The outcome is clearly positive".
    let last = bare.trim_end().rsplit(' ').next().unwrap_or_default();
    let adverb = bare.strip_suffix(' ').filter(|_| last.ends_with("ly") && !OPEN.contains(&last));
    let bare = adverb.and_then(|bare| bare.strip_suffix(last)).unwrap_or(bare);
    let before = bare.trim_end_matches(marks);
    let named = VERBS.iter().filter_map(|verb| before.strip_suffix(verb));
    let named =
        named.into_iter().any(|rest| NAMES.iter().any(|name| rest.trim_end_matches(marks).ends_with(name)));
    whole && !rule && (emphasised || named || (calls(sentence, rest)))
}

/// Whether a sentence calls an outcome by the word that stands between: "a positive outcome".
fn calls(before: &str, rest: &str) -> bool {
    let follows = ["outcome", "verdict", "conclusion"].iter().any(|name| rest.starts_with(name));
    let mut around =
        before.split(' ').chain(rest.split(['.', '!', '?']).next().unwrap_or_default().split(' '));
    follows && !around.any(|word| SUPPOSED.contains(&word.trim_matches(|c: char| !c.is_alphanumeric())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::front_matter::Front;

    fn check(text: &str, count: usize) {
        let document = Document::split("r.md", text.into(), Front::Optional).unwrap();
        assert_eq!(contradictions(&document, "inconclusive", &|_, _, _| false).len(), count, "{text}");
    }

    #[test]
    fn only_a_stated_verdict_is_held_against_the_outcome() {
        check("Every leg holds: **positive**.", 1);
        check("By the rule the outcome is positive.\n\nThe verdict: *negative*", 2);
        check("Every leg holds: *positive*. The conclusion was positive.", 2);
        check("The outcome remains __negative__. It ends thus: _negative_.", 2);
        check("Not met: **inconclusive**. The outcome is inconclusive.", 0);
        check("It would be positive if every leg held; a negative result, a design-negative one.", 0);
        check("The verdict is **design-negative**.", 1);
        check("The outcome is positively unclear.", 0);
        check("The outcome is clearly positive, the verdict was surprisingly **negative**.", 2);
        check("Positive; the outcome may only positive be.", 0);
        check("The outcome is hardly positive, possibly positive.", 0);
        check("Positive outcome: the adapter stays.", 1);
        check("It turned out well, a positive verdict.", 1);
        check("The outcome turned out positive. The final result is *positive*.", 2);
        check("The experiment came out as positive.", 1);
        check("| **verdict** | positive |", 1);
        check("The outcome is \u{201c}positive\u{201d}. The rule gives **positive**.", 2);
        check("A positive outcome would need more tasks; no positive verdict follows.", 0);
        check("A positive outcome means that every leg holds.", 0);
        check("If the outcome is positive, we deploy; on one seed the result was positive.", 0);
        check("Three outcomes are possible: **positive**, **negative** or **inconclusive**.", 0);
        check(
            "The outcome is positive when every leg holds, and the result is negative only below the bar.",
            0,
        );
    }
}
