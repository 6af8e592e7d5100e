//! JSON answers: where one stands in a reply, and when two values are the same. Numbers are compared
//! as numbers, members of an object in any order.

use serde_json::Value;

/// The first JSON value among: what stands behind the answer mark, the last fenced block, the whole reply, the
/// part from the first bracket to the last.
pub fn find(line: Option<&str>, spoken: &str) -> Option<Value> {
    let bracketed = || {
        let start = spoken.find(['{', '['])?;
        let end = spoken.rfind(['}', ']'])?;
        spoken.get(start..=end)
    };
    let candidates = [line.map(unfenced), fenced(spoken), Some(spoken.trim()), bracketed()];
    candidates.into_iter().flatten().find_map(read)
}

/// A JSON value that `text` is, or that it begins with.
fn read(text: &str) -> Option<Value> {
    let mut values = serde_json::Deserializer::from_str(text.trim()).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let rest = text.trim().get(values.byte_offset()..).unwrap_or_default().trim();
    // Behind an object a remark may follow; behind `7 apples` it would be another answer.
    (rest.is_empty() || value.is_object() || value.is_array() || rest.starts_with("```")).then_some(value)
}

/// The content of the last fenced block.
fn fenced(text: &str) -> Option<&str> {
    let (head, _) = text.rsplit_once("```")?;
    let (_, block) = head.rsplit_once("```")?;
    Some(unfenced_language(block))
}

fn unfenced(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("```").map_or(text, unfenced_language).trim_start_matches('`')
}

/// A block without the name of its language.
fn unfenced_language(block: &str) -> &str {
    block.trim_start_matches(|c: char| c.is_ascii_alphanumeric())
}

/// Whether `found` is `wanted`, in the parts that `paths` point to (all, when there are none). With `subset`
/// an object may have members that the wanted one has not.
pub fn agrees(wanted: &Value, found: &Value, subset: bool, paths: &[String]) -> bool {
    if paths.is_empty() {
        return same(wanted, found, subset);
    }
    paths.iter().all(|path| match (wanted.pointer(path), found.pointer(path)) {
        (Some(wanted), Some(found)) => same(wanted, found, subset),
        _ => false,
    })
}

fn same(wanted: &Value, found: &Value, subset: bool) -> bool {
    match (wanted, found) {
        (Value::Number(a), Value::Number(b)) => {
            // Whole numbers as such: beyond 2^53 several share one f64.
            match (a.as_i128(), b.as_i128()) {
                (Some(a), Some(b)) => a == b,
                _ => a.as_f64() == b.as_f64(),
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, subset))
        }
        (Value::Object(a), Value::Object(b)) => {
            (subset || a.len() == b.len())
                && a.iter().all(|(key, value)| b.get(key).is_some_and(|found| same(value, found, subset)))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_found_where_models_put_it() {
        for reply in [
            "{\"a\": [1, 2]}",
            "Here it is:\n```json\n{\"a\": [1, 2]}\n```\nDone.",
            "```\n{\"b\": 0}\n```\nNo:\n```\n{\"a\":[1,2]}\n```",
            "I think {\"a\": [1, 2.0]} is right",
        ] {
            let found = find(None, reply).unwrap();
            assert!(agrees(&json!({"a": [1, 2]}), &found, false, &[]), "{reply}");
        }
        assert_eq!(find(Some(" {\"a\": 1} as asked"), "x"), Some(json!({"a": 1})));
        assert_eq!(find(Some("```json\n[1]\n```"), "x"), Some(json!([1])));
        assert_eq!(find(Some("7"), "x"), Some(json!(7)));
        for reply in ["", "none", "{", "7 apples", "{\"a\": }", &"[".repeat(10_000)] {
            assert_eq!(find(None, reply), None, "{reply:.20}");
        }
    }

    #[test]
    fn values_are_compared_as_values() {
        let wanted = json!({"a": 1, "b": {"c": [1.5, "x"]}});
        assert!(agrees(&wanted, &json!({"b": {"c": [1.5, "x"]}, "a": 1.0}), false, &[]));
        assert!(!agrees(&wanted, &json!({"a": 1, "b": {"c": [1.5, "x"]}, "d": 0}), false, &[]));
        assert!(agrees(&wanted, &json!({"a": 1, "b": {"c": [1.5, "x"], "e": 1}, "d": 0}), true, &[]));
        assert!(!agrees(&wanted, &json!({"a": 1, "b": {"c": [1.5]}}), true, &[]));
        assert!(agrees(
            &wanted,
            &json!({"b": {"c": [1.5, "y"]}, "a": 1}),
            false,
            &["/a".into(), "/b/c/0".into()]
        ));
        assert!(!agrees(&wanted, &json!({"a": 2}), false, &["/a".into()]));
        assert!(!agrees(&wanted, &json!({"a": 1}), false, &["/b/c/0".into()]));
        assert!(!agrees(&json!(9007199254740993u64), &json!(9007199254740992u64), false, &[]));
        assert!(!agrees(&json!(1), &json!("1"), false, &[]) && !agrees(&json!(true), &json!(1), false, &[]));
    }
}
