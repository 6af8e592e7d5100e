//! One score of Inspect as a number, by the rules of its own `value_to_float`; but what that turns
//! into 0 with a warning (other texts, lists) is refused here.

use crate::compare::rows::shown;
use serde_json::Value;

/// What a score says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// Nothing: null, or NaN, which is Inspect's mark of an unscored sample.
    Missing,
    /// Right, wrong or partly right, in a letter, a word or a flag.
    Judged { reward: f64, solved: bool },
    /// A number on the scorer's own scale.
    Number(f64),
}

/// Reads a score's value; the error says what it is instead.
pub fn found(value: &Value) -> Result<Found, String> {
    let judged = |reward: f64| Ok(Found::Judged { reward, solved: reward == 1.0 });
    match value {
        Value::Null => Ok(Found::Missing),
        Value::Bool(right) => judged(f64::from(u8::from(*right))),
        Value::Number(number) => number.as_f64().map(Found::Number).ok_or_else(|| format!("is {number}")),
        Value::String(text) => match (text.as_str(), text.to_lowercase().as_str()) {
            ("C", _) | (_, "yes" | "true") => judged(1.0),
            ("P", _) => judged(0.5),
            ("I" | "N", _) | (_, "no" | "false") => judged(0.0),
            (_, "nan") => Ok(Found::Missing),
            (_, number) => match number.trim().parse::<f64>() {
                Ok(number) => Ok(Found::Number(number)),
                Err(_) => Err(format!("is `{}`, which stands for no number", shown(text))),
            },
        },
        Value::Array(_) => Err("is a list, not a number".into()),
        Value::Object(_) => Err("is an object, not a number".into()),
    }
}

/// The names that may be chosen: scorers, and `<scorer>.<key>` for those that give several values.
pub fn names<'a>(scores: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<String> {
    scores
        .flat_map(|(name, value)| match value {
            Value::Object(parts) => parts.keys().map(|key| format!("{name}.{key}")).collect(),
            _ => vec![name.to_string()],
        })
        .collect()
}

/// The value under a name that [`names`] gave; `None` where this sample has none.
pub fn find<'a>(mut scores: impl Iterator<Item = (&'a str, &'a Value)>, name: &str) -> Option<&'a Value> {
    scores.find_map(|(scorer, value)| match (value, name.strip_prefix(scorer)) {
        (Value::Object(parts), Some(rest)) => parts.get(rest.strip_prefix('.')?),
        (_, Some("")) => Some(value),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_as_value_to_float_does() {
        // From inspect_ai.scorer.value_to_float()() of version 0.3.285.
        for (value, wanted) in [
            (json!("C"), 1.0),
            (json!("P"), 0.5),
            (json!("I"), 0.0),
            (json!("N"), 0.0),
            (json!("Yes"), 1.0),
            (json!("FALSE"), 0.0),
            (json!(true), 1.0),
            (json!("0.25"), 0.25),
            (json!(3), 3.0),
        ] {
            let got = match found(&value).unwrap() {
                Found::Judged { reward, .. } => reward,
                Found::Number(number) => number,
                Found::Missing => f64::NAN,
            };
            assert_eq!(got, wanted, "{value}");
        }
        assert_eq!(found(&json!("P")).unwrap(), Found::Judged { reward: 0.5, solved: false });
        assert_eq!(found(&json!("NaN")).unwrap(), Found::Missing);
        assert_eq!(found(&json!("Infinity")).unwrap(), Found::Number(f64::INFINITY));
        assert_eq!(found(&Value::Null).unwrap(), Found::Missing);
        for value in [json!("c"), json!("A"), json!([1]), json!("")] {
            assert!(found(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn a_scorer_with_several_values_offers_each() {
        let (a, b) = (json!({"x": 1, "y": "C"}), json!("I"));
        let scores = || [("judge", &a), ("match", &b)].into_iter();
        assert_eq!(names(scores()), ["judge.x", "judge.y", "match"]);
        assert_eq!(find(scores(), "judge.y"), Some(&json!("C")));
        assert_eq!(find(scores(), "match"), Some(&b));
        assert_eq!(find(scores(), "judge"), None);
        assert_eq!(find(scores(), "mat"), None);
    }
}
