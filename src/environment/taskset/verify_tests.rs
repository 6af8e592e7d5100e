//! What each verifier reads and accepts, on replies as models write them.

use super::*;
use proptest::prelude::*;

fn exact(accepted: &[&str], case: bool) -> Verifier {
    Verifier::Exact { accepted: accepted.iter().map(|s| s.to_string()).collect(), case }
}

fn number(wanted: &str, tolerance: f64) -> Verifier {
    Verifier::Number { wanted: Decimal::single(wanted).unwrap(), tolerance, relative: 0.0 }
}

fn pattern(text: &str, search: bool) -> Verifier {
    Verifier::Regex { pattern: Regex::new(text).unwrap(), search, example: "x".into() }
}

fn options() -> Verifier {
    Verifier::Choice {
        options: ["Oslo", "Bern", "A coruña", "none of these"].map(String::from).to_vec(),
        right: 1,
    }
}

#[track_caller]
fn check(verifier: &Verifier, reply: &str, right: bool, parsed: Option<&str>) {
    let found = verifier.judge(reply);
    assert_eq!((found.right, found.parsed.as_deref()), (right, parsed), "{reply:?}");
}

#[test]
fn exact_takes_the_marked_line_or_the_last() {
    let bern = exact(&["Bern", "Berne"], false);
    for reply in [
        "ANSWER: Bern",
        "**ANSWER:** *Berne*.",
        "It is clear.\nbern",
        "<think>Oslo</think>Bern<|im_end|>",
        "ANSWER: Oslo\nANSWER: \"Bern\"",
    ] {
        assert!(bern.judge(reply).right, "{reply:?}");
    }
    check(&bern, "ANSWER: Bern or Oslo", false, Some("Bern or Oslo"));
    check(&bern, "Bern\nI am sure.", false, Some("I am sure."));
    check(&bern, "", false, None);
    check(&bern, "ANSWER:", false, None);
    assert!(!exact(&["Bern"], true).judge("ANSWER: bern").right);
    // Brackets belong to some answers, and to some replies.
    check(&exact(&["(3, 4)"], true), "ANSWER: (3, 4)", true, Some("(3, 4)"));
    check(&exact(&["(3, 4)"], true), "ANSWER: 3, 4", true, Some("3, 4"));
    check(&exact(&["."], true), "ANSWER: !", false, Some("!"));
    let poem = exact(&["one\ntwo"], true);
    check(&poem, "one\r\ntwo\n", true, Some("one\r\ntwo"));
    check(&poem, "Here:\nANSWER: one\ntwo", true, Some("one\ntwo"));
    check(&poem, "two", false, Some("two"));
}

#[test]
fn numbers_are_single_behind_the_mark_and_last_without_it() {
    let seven = number("7", 0.0);
    for reply in [
        "ANSWER: 7",
        "**ANSWER: 7.0**",
        "ANSWER: $7.",
        "ANSWER: 7 figs",
        "first 3, then 4, so 7.",
        "ANSWER: (7)",
    ] {
        assert!(seven.judge(reply).right, "{reply:?}");
    }
    check(&seven, "ANSWER: 7 or 8", false, None);
    check(&seven, "ANSWER: seven", false, None);
    check(&seven, "7, because 3 + 4", false, Some("4"));
    check(&number("3.14", 0.01), "ANSWER: 3.15", true, Some("3.15"));
    check(&number("3.14", 0.01), "ANSWER: 3.151", false, Some("3.151"));
}

#[test]
fn patterns_fit_all_of_an_answer_unless_they_search() {
    let code = pattern(r"[A-Z]{2}-\d{3}", false);
    check(&code, "ANSWER: AB-123", true, Some("AB-123"));
    check(&code, "ANSWER: `AB-123`.", true, Some("`AB-123`."));
    check(&code, "ANSWER: xAB-123", false, Some("xAB-123"));
    check(&code, "The code:\nAB-123", true, Some("AB-123"));
    // Both branches of an alternative may be the whole answer.
    check(&pattern("a|ab", false), "ANSWER: b", false, Some("b"));
    let anywhere = pattern(r"(?i)\bbern\b", true);
    check(&anywhere, "I say Bern, of course.\nYes.", true, Some("I say Bern, of course.\nYes."));
    check(&anywhere, "Bernard", false, Some("Bernard"));
    check(&anywhere, "", false, None);
    // No backtracking: this would take for ever elsewhere.
    let slow = pattern(r"(a+)+$", true);
    assert!(!slow.judge(&format!("{}!", "a".repeat(100_000))).right);
}

#[test]
fn options_are_read_by_letter_and_by_text() {
    for reply in [
        "ANSWER: B",
        "ANSWER: (b)",
        "ANSWER: **B.** Bern",
        "ANSWER: B) bern",
        "ANSWER: Bern",
        "So it is:\nB",
        "ANSWER: Option B",
        "answer: \"BERN\"",
    ] {
        check(&options(), reply, true, Some("B: Bern"));
    }
    check(&options(), "ANSWER: A coruña", false, Some("C: A coruña"));
    check(&options(), "ANSWER: A", false, Some("A: Oslo"));
    for reply in [
        "ANSWER: B: Oslo",
        "ANSWER: B or C",
        "ANSWER: E",
        "ANSWER: Better",
        "ANSWER: ?",
        "",
        "I do not know.",
    ] {
        check(&options(), reply, false, None);
    }
}

#[test]
fn json_is_compared_as_json() {
    let verifier = Verifier::Json { wanted: serde_json::json!({"a": 1}), subset: false, paths: Vec::new() };
    check(&verifier, "ANSWER: {\"a\": 1.0}", true, Some("{\"a\":1.0}"));
    check(&verifier, "ANSWER:\n```json\n{\n \"a\": 1\n}\n```", true, Some("{\"a\":1}"));
    check(&verifier, "ANSWER: {\"a\": 2}", false, Some("{\"a\":2}"));
    check(&verifier, "ANSWER: a is 1", false, None);
}

#[test]
fn every_oracle_is_right_and_says_so() {
    let json =
        Verifier::Json { wanted: serde_json::json!([1, {"b": null}]), subset: false, paths: Vec::new() };
    let fits = Verifier::Regex { pattern: Regex::new("x+").unwrap(), search: false, example: "xx".into() };
    for verifier in
        [exact(&["a b"], true), exact(&["a\nb"], true), number("-1204.5", 0.0), fits, options(), json]
    {
        let reply = verifier.oracle();
        assert!(verifier.judge(&reply).right, "{}: {reply}", verifier.name());
    }
}

proptest! {
    #[test]
    fn no_reply_panics_and_what_is_right_was_read(text in any::<String>(), tail in "\\PC{0,40}") {
        let json = Verifier::Json { wanted: 1.into(), subset: true, paths: vec!["/a".into()] };
        for verifier in [exact(&["a", "b\nc"], false), exact(&["a"], true), number("7", 0.5), pattern(".*", true), pattern("a?", false), options(), json] {
            for reply in [text.clone(), format!("ANSWER: {text}{tail}"), format!("{tail}\nANSWER:{text}")] {
                let judged = verifier.judge(&reply);
                prop_assert!(!judged.right || judged.parsed.is_some());
            }
        }
    }
}
