//! The verdict in words: what a report and its log call the outcome must be the outcome.

use super::Finding;
use crate::claims::front_matter::Document;
use crate::claims::links;

const WORDS: [&str; 3] = ["inconclusive", "positive", "negative"];
/// What stands before a word that is meant as the verdict.
const LEADS: [&str; 6] =
    ["outcome is ", "outcome was ", "outcome: ", "verdict is ", "verdict was ", "verdict: "];

/// Places of a text that state another outcome. `: **word**` counts as stated too, since reports end so.
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
    let bold = before.ends_with("**") && after.starts_with("**") && bare.trim_end().ends_with(':');
    whole && (bold || LEADS.iter().any(|lead| bare.ends_with(lead)))
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
        check("Not met: **inconclusive**. The outcome is inconclusive.", 0);
        check("It would be positive if every leg held; a negative result, a design-negative one.", 0);
        check("The outcome is positively unclear.", 0);
    }
}
