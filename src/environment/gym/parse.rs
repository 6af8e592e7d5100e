//! Reads a model's reply: finds the last `ANSWER:` or `ACTION:` line under markdown, quotes
//! and the model's own end markers, and takes a number or one of several options from it.
//! A reply that hedges between two values is not read as either.

/// Texts with which chat models end (or would begin) a turn; what follows is not the reply.
const MARKERS: [&str; 9] = [
    "<|im_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
];

/// The part of a reply that counts: after the last thinking that ended, before one that did not and
/// before the first end marker.
pub fn spoken(text: &str) -> &str {
    let text = text.rfind("</think>").map_or(text, |at| &text[at + "</think>".len()..]);
    let text = text.find("<think>").map_or(text, |at| &text[..at]);
    let mut text = text.trim_start();
    while let Some(rest) = MARKERS.iter().find_map(|m| text.strip_prefix(m)) {
        text = rest.trim_start();
    }
    let end = MARKERS.iter().filter_map(|m| text.find(m)).min().unwrap_or(text.len());
    &text[..end]
}

/// The value of the last line that starts with `key` and a colon, without case, markdown,
/// quotes or closing punctuation; `None` when there is no such line or its value is empty.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    spoken(text).split(['\n', '\r']).rev().find_map(|line| field_of_line(line, key)).filter(|v| !v.is_empty())
}

/// All that stands behind the last line that starts with `key` and a colon, further lines included, as it was
/// written; `None` when there is no such line. `text` is what [`spoken`] left.
pub fn raw_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut found = None;
    let mut at = 0;
    for line in text.split_inclusive(['\n', '\r']) {
        if let Some(rest) = after_key(line, key) {
            let rest = rest.trim_start_matches(|c: char| "*_".contains(c));
            found = Some(at + line.len() - rest.len());
        }
        at += line.len();
    }
    found.map(|start| text[start..].trim())
}

/// `value` without the white space, quotes, brackets, Markdown marks and closing punctuation around it.
pub fn unwrapped(value: &str) -> &str {
    value.trim_start_matches(is_wrapping).trim_end_matches(|c| is_wrapping(c) || ".,;:!".contains(c))
}

/// What follows `key` and a colon at the start of a line, under decoration.
fn after_key<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim_start_matches(|c: char| c.is_whitespace() || "*_`#>\"'-".contains(c));
    let head = line.get(..key.len())?;
    if !head.eq_ignore_ascii_case(key) {
        return None;
    }
    line[key.len()..].trim_start_matches(is_wrapping).strip_prefix(':')
}

fn field_of_line<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    after_key(line, key).map(unwrapped)
}

fn is_wrapping(c: char) -> bool {
    c.is_whitespace() || "*_`\"'“”‘’<>()[]".contains(c)
}

/// The one whole number at the start of `value`: sign, thousands separators, a fraction of
/// zeros and a unit after it are fine; a second number is not.
pub fn number(value: &str) -> Option<i64> {
    let (negative, digits) = match value.chars().next()? {
        c @ ('-' | '−' | '+') => (c != '+', value[c.len_utf8()..].trim_start()),
        _ => (false, value),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(digits.len());
    let (whole, mut rest) = digits.split_at(end);
    let whole = whole.trim_end_matches(',');
    let mut groups = whole.split(',');
    let first = groups.next().filter(|g| !g.is_empty())?;
    let mut magnitude = first.to_string();
    for group in groups {
        if group.len() != 3 || first.len() > 3 {
            return None;
        }
        magnitude.push_str(group);
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches('0');
    }
    if rest.chars().any(|c| c.is_numeric()) {
        return None;
    }
    let magnitude: i64 = magnitude.parse().ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

/// What stands before the last colon of `value`, and what stands behind it; an unlabelled
/// value is all behind.
pub fn labelled(value: &str) -> (Option<&str>, &str) {
    match value.rsplit_once(':') {
        Some((label, rest)) => {
            (Some(label.trim_end_matches(is_wrapping)), rest.trim_start_matches(is_wrapping))
        }
        None => (None, value),
    }
}

/// Index of the option that `value` starts with (a leading `the` is skipped), ignoring case;
/// `None` when it starts with none of them, or names a second one later on.
pub fn option(value: &str, options: &[String]) -> Option<usize> {
    let mut words = value
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
        .peekable();
    let place = |word: &str| options.iter().position(|o| o.to_lowercase() == word);
    words.next_if(|w| w == "the");
    let found = place(&words.next()?)?;
    words.all(|w| place(&w).is_none_or(|other| other == found)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options() -> Vec<String> {
        ["Tarin", "Dobek", "nobody"].map(String::from).to_vec()
    }

    #[test]
    fn numbers_are_read_under_decoration() {
        for reply in [
            "ANSWER: 7",
            "answer: 7",
            "Let me count.\nANSWER: 7",
            "**ANSWER:** 7",
            "**ANSWER: 7**",
            "**ANSWER**: `7`",
            "> ANSWER : 7.",
            "ANSWER: 7<|im_end|>",
            "ANSWER: 7</s>",
            "ANSWER: 7 <|im_end|>\n<|im_start|>user\nANSWER: 9",
            "<|im_start|> ANSWER: 7<|endoftext|>",
            "ANSWER: 9\nNo, wait.\nANSWER: 7",
            "<think>ANSWER: 9</think>\nANSWER: 7",
            "<think>a</think>\nANSWER: 7\n<think>\nANSWER: 9",
            "ANSWER: \"7\"",
            "ANSWER: <7>",
            "ANSWER: 7 figs.",
            "ANSWER:7.0",
            "ANSWER: +7\r\n",
        ] {
            assert_eq!(field(reply, "ANSWER").and_then(number), Some(7), "{reply:?}");
        }
        for (value, expected) in
            [("-12", -12), ("−3", -3), ("1,204", 1204), ("1,204,000 cups", 1_204_000), ("7,", 7)]
        {
            assert_eq!(number(value), Some(expected), "{value:?}");
        }
    }

    #[test]
    fn what_is_no_single_number_is_refused() {
        for value in [
            "7 or 8",
            "7-8",
            "7.5",
            "12,34",
            "1234,567",
            "seven",
            "",
            "-",
            ",",
            "99999999999999999999",
            "5 + 2",
        ] {
            assert_eq!(number(value), None, "{value:?}");
        }
        for reply in
            ["", "7", "The ANSWER: 7", "ANSWER 7", "ANSWER:", "ANSWER: **", "<think>\nANSWER: 7", "ÄNSWER: 7"]
        {
            assert_eq!(field(reply, "ANSWER").and_then(number), None, "{reply:?}");
        }
    }

    #[test]
    fn options_are_read_and_hedges_refused() {
        for value in ["Tarin", "tarin", "TARIN may pass", "the Tarin", "Tarin, since Tarin has it"] {
            assert_eq!(option(value, &options()), Some(0), "{value:?}");
        }
        for value in ["Tarin or Dobek", "not Tarin", "Tarins", "", "the", "?"] {
            assert_eq!(option(value, &options()), None, "{value:?}");
        }
    }

    #[test]
    fn labels_are_taken_off() {
        for (value, expected) in [
            ("7", (None, "7")),
            ("tin key: 7", (Some("tin key"), "7")),
            ("**tin key**: **7", (Some("**tin key"), "7")),
            ("tin key:7 or a: 8", (Some("tin key:7 or a"), "8")),
            (":", (Some(""), "")),
        ] {
            assert_eq!(labelled(value), expected, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}", tail in any::<String>()) {
            for reply in [text.clone(), tail.clone(), format!("ANSWER:{text}\n{tail}"), format!("*answer*{tail}:{text}")] {
                if let Some(value) = field(&reply, "ANSWER") {
                    let _ = (number(value), option(value, &options()), labelled(value));
                }
            }
        }

        #[test]
        fn written_numbers_are_read_back(n in -1_000_000_000i64..1_000_000_000, unit in "[a-z ]{0,12}") {
            let reply = format!("ANSWER: {n} {unit}");
            prop_assert_eq!(field(&reply, "ANSWER").and_then(number), Some(n));
        }
    }
}
