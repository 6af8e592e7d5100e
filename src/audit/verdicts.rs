//! The verdict in words: what a report and its log call the outcome must be the outcome.

use super::Finding;
use crate::claims::front_matter::Document;
use crate::claims::links;

const WORDS: [&str; 3] = ["inconclusive", "positive", "negative"];
/// What names the verdict, and how it goes on to the word itself.
const NAMES: [&str; 4] = ["outcome", "verdict", "result", "conclusion"];
const VERBS: [&str; 4] = [" is ", " was ", ": ", " remains "];
/// What makes a rule of a sentence: "the outcome is positive when every leg holds".
const CONDITIONS: [&str; 6] = ["when ", "if ", "unless ", "only ", "where ", "as soon as "];

/// Places of a text that state another outcome. `: **word**` in any emphasis counts as stated too, since
/// reports end so.
pub fn contradictions(document: &Document, outcome: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in document.passages() {
        let prose = links::scan(passage.text).prose.to_ascii_lowercase();
        for word in WORDS.iter().filter(|word| **word != outcome) {
            for (at, _) in prose.match_indices(word) {
                if !states(&prose[..at], &prose[at + word.len()..]) {
                    continue;
                }
                let line = document.line(passage.offset(at));
                let detail = format!("line {line} says the outcome is {word}, and it is {outcome}");
                findings.push(Finding::new("verdict", &document.path, None, detail));
            }
        }
    }
    findings
}

fn states(before: &str, after: &str) -> bool {
    let whole = !after.starts_with(|c: char| c.is_alphanumeric() || c == '-') && !before.ends_with('-');
    let marks = ['*', '_', '`'];
    let bare = before.trim_end_matches(marks);
    let emphasised = before.ends_with(marks) && after.starts_with(marks) && bare.trim_end().ends_with(':');
    let rest = after.trim_start_matches(marks);
    let rule = CONDITIONS.iter().any(|word| rest.trim_start().starts_with(word));
    let named = VERBS.iter().filter_map(|verb| bare.strip_suffix(verb));
    whole
        && !rule
        && (emphasised || named.into_iter().any(|rest| NAMES.iter().any(|name| rest.ends_with(name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::front_matter::Front;

    fn check(text: &str, count: usize) {
        let document = Document::split("r.md", text.into(), Front::Optional).unwrap();
        assert_eq!(contradictions(&document, "inconclusive").len(), count, "{text}");
    }

    #[test]
    fn only_a_stated_verdict_is_held_against_the_outcome() {
        check("Every leg holds: **positive**.", 1);
        check("By the rule the outcome is positive.\n\nThe verdict: *negative*", 2);
        check("Every leg holds: *positive*. The conclusion was positive, the result _is_ positive.", 2);
        check("The result remains __negative__. It ends thus: _negative_.", 2);
        check("Not met: **inconclusive**. The outcome is inconclusive.", 0);
        check("It would be positive if every leg held; a negative result, a design-negative one.", 0);
        check("The outcome is positively unclear.", 0);
        check(
            "The outcome is positive when every leg holds, and the result is negative only below the bar.",
            0,
        );
    }
}
