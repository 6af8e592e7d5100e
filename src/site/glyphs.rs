//! Drawn signs: audit badges, lifecycle, verdict and claim marks. Always beside a word, so that
//! neither colour nor shape carries a meaning alone.

use super::input::Verdict;
use super::text::{escape, sentence};

/// The class that colours a badge or a number.
pub fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Match => "match",
        Verdict::Mismatch => "miss",
        Verdict::Unverifiable => "unver",
        Verdict::Cited => "cited",
    }
}

/// The little square of an audit verdict: `=`, `≠`, `?` or a quotation mark.
pub fn square(verdict: Verdict) -> String {
    let path = match verdict {
        Verdict::Match => "M3.6 4.7h4.8M3.6 7.5h4.8",
        Verdict::Mismatch => "M3.4 4.6h5.2M3.4 7.6h5.2M7.6 2.9l-3.2 6.4",
        Verdict::Unverifiable => "M4.4 4.6c0-2.2 3.3-2.1 3.3-.2 0 1.3-1.6 1.4-1.6 2.6M6.1 9v.1",
        Verdict::Cited => "M4.4 3.9v2.2M7.6 3.9v2.2",
    };
    format!(
        "<svg class=\"bx\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect x=\".7\" y=\".7\" width=\"10.6\" \
         height=\"10.6\"/><path d=\"{path}\"/></svg>"
    )
}

/// A badge with a word; a link when there is somewhere to go.
pub fn badge(verdict: Verdict, words: &str, href: Option<&str>) -> String {
    let (class, square, words) = (class(verdict), square(verdict), escape(words));
    match href {
        Some(href) => format!("<a class=\"badge {class}\" href=\"{}\">{square}{words}</a>", escape(href)),
        None => format!("<span class=\"badge {class}\">{square}{words}</span>"),
    }
}

fn drawn(class: &str, inner: &str) -> String {
    format!("<svg class=\"{class}\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">{inner}</svg>")
}

fn hollow(path: &str) -> String {
    format!("<path d=\"{path}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.7\"/>")
}

fn filled(path: &str) -> String {
    format!("<path d=\"{path}\" fill=\"currentColor\"/>")
}

const SQUARE: &str = "M2.4 2.4h11.2v11.2H2.4z";
const DOWN: &str = "M1.8 2.6h12.4L8 13.6z";

/// Lifecycle with its mark.
pub fn lifecycle(word: &str) -> String {
    let mark = match word {
        "planned" => hollow("M3 2h10v12H3zM5.6 5.4h4.8M5.6 8.4h4.8"),
        "in progress" => hollow("M3.5 2v12l10-6z"),
        "stopped" => hollow("M2.4 2.4h11.2v11.2H2.4zM5.4 8h5.2"),
        "superseded" => hollow("M2.4 2.4h8v8h-8zM5.6 13.6h8v-8"),
        "retracted" => hollow("M2.4 2.4h11.2v11.2H2.4zM5 5l6 6M11 5l-6 6"),
        _ => filled(SQUARE),
    };
    format!("<span class=\"word\">{}{}</span>", drawn("gl", &mark), escape(&sentence(word)))
}

/// An experiment's verdict with its mark; `None` reads as pending.
pub fn outcome(verdict: Option<&str>) -> String {
    let (class, mark, word) = match verdict {
        Some("positive") => ("v-pos", filled("M8 2.4l6.2 11H1.8z"), "Positive".to_string()),
        Some("negative") => ("v-neg", filled(DOWN), "Negative".to_string()),
        Some("inconclusive") => ("v-inc", hollow("M8 1.8L14.2 8 8 14.2 1.8 8z"), "Inconclusive".to_string()),
        Some("design-negative") => {
            ("v-des", format!("{}{}", hollow(DOWN), hollow("M4.6 8h6.8")), "Design-negative".to_string())
        }
        Some("instrument-only") => ("v-ins", hollow(SQUARE), "Instrument only".to_string()),
        Some(other) => ("v-ins", hollow(SQUARE), sentence(other)),
        None => {
            let ring = "<circle cx=\"8\" cy=\"8\" r=\"6\" fill=\"none\" stroke=\"currentColor\" \
                        stroke-width=\"1.7\" stroke-dasharray=\"2.4 2.2\"/>";
            ("v-pen", ring.to_string(), "Pending".to_string())
        }
    };
    format!("<span class=\"word {class}\">{}{}</span>", drawn("gl", &mark), escape(&word))
}

/// The statuses of a claim, in the order in which lists show them.
pub const STATUSES: [&str; 6] = ["confirmed", "promising", "contested", "proposed", "refuted", "retired"];

/// The mark of a claim's status, drawn in an element of the given class.
pub fn status_mark(status: &str, class: &str) -> String {
    let heavy = |path: &str| {
        format!("<path d=\"{path}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.3\"/>")
    };
    let ring =
        "<circle cx=\"8\" cy=\"8\" r=\"6.2\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.7\"/>";
    let inner = match status {
        "confirmed" => heavy("M2 8.6l4.2 4.2L14 3.4"),
        "promising" => format!("{ring}{}", filled("M8 1.8a6.2 6.2 0 0 1 0 12.4z")),
        "contested" => filled("M9.6 1L3.4 9h4.2l-1.4 6L12.6 7H8.4z"),
        "refuted" => heavy("M3 3l10 10M13 3L3 13"),
        "retired" => heavy("M2 8h12"),
        _ => ring.to_string(),
    };
    drawn(class, &inner)
}

/// A claim's status: mark and word.
pub fn status(status: &str) -> String {
    let class = if STATUSES.contains(&status) { status } else { "proposed" };
    format!("<span class=\"st {class}\">{}{}</span>", status_mark(status, "gl"), escape(&sentence(status)))
}

/// Whether a decision's leg holds: mark and words.
pub fn leg(holds: Option<bool>) -> String {
    let (class, mark, word) = match holds {
        Some(true) => ("v-pos", "M2 8.6l4.2 4.2L14 3.4", "holds"),
        Some(false) => ("v-neg", "M3 3l10 10M13 3L3 13", "does not hold"),
        None => ("v-inc", "M2 8h12", "undefined"),
    };
    format!("<span class=\"word {class}\">{}{word}</span>", drawn("gl", &hollow(mark)))
}

/// The arrow between two values of a card; text fonts here have none.
pub const ARROW: &str = "<svg class=\"arr\" viewBox=\"0 0 20 14\" role=\"img\" aria-label=\"to\"><path \
                         d=\"M0 7h18M12.5 1.5L18 7l-5.5 5.5\" fill=\"none\" stroke=\"currentColor\" \
                         stroke-width=\"1.6\"/></svg>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_comes_with_its_word() {
        for verdict in [Verdict::Match, Verdict::Mismatch, Verdict::Unverifiable, Verdict::Cited] {
            assert!(badge(verdict, verdict.word(), None).contains(verdict.word()));
        }
        STATUSES.iter().for_each(|s| assert!(status(s).contains(&sentence(s))));
        assert!(outcome(None).contains("Pending"));
        assert!(leg(None).contains("undefined"));
    }

    #[test]
    fn words_from_files_are_escaped() {
        assert!(!lifecycle("<b>").contains("<b>"));
        assert!(!outcome(Some("<b>")).contains("<b>"));
        assert!(!status("<b>").contains("<b>"));
    }
}
