//! What a line may say, and how what does not fit is named.

use super::*;
use proptest::prelude::*;

#[test]
fn a_line_needs_a_prompt_and_an_answer_and_no_more() {
    let line = Line::parse(r#"{"prompt": "Capital of Italy?", "answer": "Rome"}"#).unwrap();
    assert_eq!((line.family.as_str(), line.level, line.split), ("tasks", 1, Split::HeldOut));
    assert!(line.id.starts_with("t-") && line.id.len() == 18, "{}", line.id);
    let again = Line::parse(r#"{"answer": "Rome", "prompt": "Capital of Italy?", "family": "x"}"#).unwrap();
    assert_eq!(again.id, line.id, "the id is that of question and answer");
    let whole = Line::parse(
        r#"{"id": "q 1", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"},
            {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "2+2?"}], "answer": 4, "verifier": "number",
            "tolerance": 0.5, "family": "sums", "level": 3, "split": "train", "note": "easy"}"#,
    )
    .unwrap();
    assert_eq!((whole.id.as_str(), whole.messages.len(), whole.split), ("q 1", 4, Split::Train));
}

#[test]
fn what_does_not_fit_is_named_by_field() {
    for (line, named) in [
        ("", "is not JSON"),
        ("[1]", "not a JSON object"),
        (r#"{"promt": "x", "answer": "y"}"#, "did you mean `prompt`"),
        (r#"{"answer": "y"}"#, "`prompt` is missing"),
        (r#"{"prompt": "x"}"#, "`answer` is missing"),
        (r#"{"prompt": " ", "answer": "y"}"#, "`prompt` is empty"),
        (r#"{"prompt": 3, "answer": "y"}"#, "`prompt` is 3"),
        (r#"{"prompt": "x", "messages": [], "answer": "y"}"#, "both there"),
        (r#"{"messages": [], "answer": "y"}"#, "`messages` is []"),
        (r#"{"messages": [{"role": "tool", "content": "x"}], "answer": "y"}"#, "`messages` is"),
        (r#"{"messages": [{"role": "assistant", "content": "x"}], "answer": "y"}"#, "out of turn"),
        (
            r#"{"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "x"}], "answer": "y"}"#,
            "message 2",
        ),
        (
            r#"{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}], "answer": "y"}"#,
            "does not end",
        ),
        (r#"{"prompt": "x", "answer": ""}"#, "`answer` is \"\""),
        (r#"{"prompt": "x", "answer": 3}"#, "`answer` is 3"),
        (r#"{"prompt": "x", "answer": []}"#, "`answer` is []"),
        (r#"{"prompt": "x", "answer": "y", "verifier": "command"}"#, "sandbox"),
        (r#"{"prompt": "x", "answer": "y", "verifier": "exakt"}"#, "did you mean `exact`"),
        (r#"{"prompt": "x", "answer": "y", "tolerance": 1}"#, "`tolerance` belongs to the verifier `number`"),
        (r#"{"prompt": "x", "answer": "y", "level": 0}"#, "`level` is 0"),
        (r#"{"prompt": "x", "answer": "y", "level": "2"}"#, "`level` is \"2\""),
        (r#"{"prompt": "x", "answer": "y", "split": "test"}"#, "`split` is \"test\""),
        (r#"{"prompt": "x", "answer": "y", "family": "a b"}"#, "`family` is `a b`"),
        (r#"{"prompt": "x", "answer": "y", "id": "a\nb"}"#, "`id` is"),
        (r#"{"prompt": "x", "answer": "y", "ignore_case": "yes"}"#, "`ignore_case` is \"yes\""),
        (r#"{"prompt": "x", "answer": "1 or 2", "verifier": "number"}"#, "`answer` is \"1 or 2\""),
        (r#"{"prompt": "x", "answer": 1, "verifier": "number", "tolerance": -1}"#, "`tolerance` is -1"),
        (r#"{"prompt": "x", "answer": "(", "verifier": "regex", "example": "x"}"#, "is no pattern"),
        (r#"{"prompt": "x", "answer": "(?=a)", "verifier": "regex", "example": "x"}"#, "no look-around"),
        (
            r#"{"prompt": "x", "answer": "(a{1000}){1000}", "verifier": "regex", "example": "x"}"#,
            "is no pattern",
        ),
        (r#"{"prompt": "x", "answer": "a)|(b", "verifier": "regex", "example": "a"}"#, "is no pattern"),
        (r#"{"prompt": "x", "answer": "a+", "verifier": "regex"}"#, "`example` is missing"),
        (r#"{"prompt": "x", "answer": "a+", "verifier": "regex", "example": "b"}"#, "cannot be given"),
        (
            r#"{"prompt": "x", "answer": "a+", "verifier": "regex", "example": "a", "match": "any"}"#,
            "`match` is",
        ),
        (r#"{"prompt": "x", "answer": "A", "verifier": "choice"}"#, "`options` is missing"),
        (r#"{"prompt": "x", "answer": "A", "verifier": "choice", "options": ["a"]}"#, "`options` is"),
        (r#"{"prompt": "x", "answer": "A", "verifier": "choice", "options": ["x", "X "]}"#, "twice"),
        (
            r#"{"prompt": "x", "answer": "C", "verifier": "choice", "options": ["x", "y"]}"#,
            "none of the options",
        ),
        (r#"{"prompt": "x", "answer": {"a": 1}, "verifier": "json", "paths": ["a"]}"#, "`paths` has `a`"),
        (r#"{"prompt": "x", "answer": {"a": 1}, "verifier": "json", "compare": "near"}"#, "`compare` is"),
        (
            r#"{"prompt": "x", "answer": "the ANSWER: ", "verifier": "exact", "options": 1}"#,
            "`options` belongs",
        ),
    ] {
        let error = Line::parse(line).map(|line| line.id).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("hint: "), "{line}: {error}");
    }
}

#[test]
fn letters_that_are_options_themselves_are_told_apart() {
    let line = r#"{"prompt": "x", "answer": "A", "verifier": "choice", "options": ["B", "A"]}"#;
    let verifier = Line::parse(line).unwrap_err().to_string();
    assert!(verifier.contains("cannot be given"), "{verifier}");
    let line = r#"{"prompt": "x", "answer": "null", "verifier": "json"}"#;
    assert!(Line::parse(line).is_ok());
    assert!(Line::parse(r#"{"prompt": "x", "answer": null, "verifier": "json"}"#).is_ok());
}

proptest! {
    #[test]
    fn no_line_panics(text in "\\PC{0,60}", answer in "\\PC{0,12}", kind in 0usize..5) {
        let _ = Line::parse(&text);
        let line = serde_json::json!({"prompt": text, "answer": answer, "verifier": VERIFIERS[kind], "id": answer});
        let _ = Line::parse(&line.to_string());
        let mut line = line;
        line["options"] = serde_json::json!([answer, "b"]);
        line["example"] = answer.into();
        if let Ok(line) = Line::parse(&line.to_string()) {
            prop_assert!(line.verifier.judge(&line.verifier.oracle()).right);
        }
    }
}
