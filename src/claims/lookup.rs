//! `estimator = "value"`: one number at a path of a receipt, of the plan, or among the facts.

use super::data::{Object, Store};
use super::derivation::{DataSet, Derivation};
use super::value::{Derived, Evaluated, Number};
use crate::error::{Error, Result, nearest};
use crate::experiment::plan::Harvest;
use serde_json::Value;
use std::collections::BTreeMap;

/// Looks up the value that a derivation names. A receipt that was not written yet is undefined
/// ("pending"); a path that leads nowhere is an error with the nearest key.
pub fn value(store: &Store, slug: &str, derivation: &Derivation) -> Result<Derived> {
    let of = derivation.of.as_deref().unwrap_or_default();
    let (file, path) = match derivation.data {
        DataSet::Plan => (format!("data/{slug}/experiment.toml"), of),
        DataSet::Facts => (format!("data/{slug}/facts.toml"), of),
        _ => {
            let (name, path) = of.split_once('.').ok_or_else(|| {
                Error::invalid(format!("`of = \"{of}\"` names no value in a receipt"))
                    .hint("write `<receipt>.<key>`, such as `merge.matched`")
            })?;
            (format!("data/{slug}/receipts/{name}.json"), path)
        }
    };
    let Some(object) = store.object(&file)? else {
        return match derivation.data {
            DataSet::Receipts => Ok(single(Number::Undefined("pending: no receipt yet".into()), None)),
            _ => Err(Error::invalid("there is no such file").at(&file).hint("a derivation reads it")),
        };
    };
    let usual = left_out(&object.value, path);
    let found = match derivation.data {
        DataSet::Facts => fact(&object.value, of),
        // A receipt written by a stage carries its own hash beside it.
        DataSet::Receipts => at(object.value.get("receipt").unwrap_or(&object.value), path),
        _ => usual.as_ref().map_or_else(|| at(&object.value, path), Ok),
    };
    let number = found.and_then(|value| number(value, of)).map_err(|e| e.at(&file))?;
    Ok(single(number, Some(&object)))
}

/// What counts for a key of `[harvest]` that a plan leaves out.
fn left_out(plan: &Value, path: &str) -> Option<Value> {
    let key = path.strip_prefix("harvest.")?;
    match plan.get("harvest").and_then(|table| table.get(key)) {
        Some(_) => None,
        None => serde_json::to_value(Harvest::default()).ok()?.get(key).cloned(),
    }
}

/// The value of a fact, which must say where it comes from.
fn fact<'a>(facts: &'a Value, name: &str) -> Result<&'a Value> {
    let fact = at(facts, name)?;
    let source = fact.get("source").and_then(Value::as_str).unwrap_or_default();
    if source.trim().is_empty() {
        return Err(Error::invalid(format!("fact `{name}` has no source")).hint("add `source = \"…\"`"));
    }
    at(fact, "value")
}

/// Walks a dotted path; list items by their index from 0.
fn at<'a>(value: &'a Value, path: &str) -> Result<&'a Value> {
    let mut here = value;
    for step in path.split('.') {
        let next = match here {
            Value::Array(items) => step.parse::<usize>().ok().and_then(|i| items.get(i)),
            Value::Object(map) => map.get(step),
            _ => None,
        };
        here = next.ok_or_else(|| {
            let error = Error::invalid(format!("there is no `{step}` on the way to `{path}`"));
            let near = here.as_object().and_then(|map| nearest(step, map.keys().map(String::as_str)));
            match (near, here) {
                (_, Value::Object(map)) if ["minimum_delta", "margin"].contains(&step) => {
                    let has = ["minimum_delta", "margin"].iter().find(|key| map.contains_key(**key));
                    error.hint(format!(
                        "each rule has its own number, and this plan names {}; a drafted report that nobody edited is drafted again when a stage runs",
                        has.map_or("none".into(), |key| format!("`{key}`"))
                    ))
                }
                (Some(near), _) => error.hint(format!("did you mean `{near}`?")),
                (None, Value::Array(items)) => {
                    error.hint(format!("the list has {} items, counted from 0", items.len()))
                }
                (None, _) => error.hint("open the file and name a key that it has"),
            }
        })?;
    }
    Ok(here)
}

fn number(value: &Value, of: &str) -> Result<Number> {
    let found = match value {
        Value::Number(n) => n.as_f64().filter(|x| x.is_finite()),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        _ => None,
    };
    found.map(Number::Defined).ok_or_else(|| {
        Error::invalid(format!("`{of}` is not a number")).hint("name a number, or true or false (1 or 0)")
    })
}

fn single(number: Number, object: Option<&Object>) -> Derived {
    let total = Evaluated {
        parts: BTreeMap::from([("value".to_string(), number)]),
        method: None,
        level: None,
        unit: "values".into(),
        warnings: Vec::new(),
    };
    Derived { total, rows: BTreeMap::new(), sources: object.map(|o| o.source.clone()).into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::write_atomic;

    fn look_up(data: &str, of: &str) -> Result<Derived> {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            (
                "receipts/merge.json",
                r#"{"sha256": "x", "receipt": {"matched": 210, "deep": [{"x": 0.5}], "ok": true, "none": null}}"#,
            ),
            ("receipts/plain.json", r#"{"rows": 80}"#),
            ("experiment.toml", "title = \"t\"\n[decision]\nminimum_delta = 0.03\n[harvest]\nitem_cap = 9\n"),
            ("facts.toml", "[peer]\nvalue = 0.7\nsource = \"a paper\"\n[bare]\nvalue = 1\n"),
        ] {
            write_atomic(&dir.path().join("data/demo").join(file), text.as_bytes()).unwrap();
        }
        let text = format!("data = \"{data}\"\nestimator = \"value\"\nof = \"{of}\"");
        value(&Store::new(dir.path()), "demo", &toml::from_str(&text).unwrap())
    }

    #[test]
    fn numbers_are_found() {
        for (data, of, x) in [
            ("receipts", "merge.matched", 210.0),
            ("receipts", "merge.deep.0.x", 0.5),
            ("receipts", "merge.ok", 1.0),
            ("receipts", "plain.rows", 80.0),
            ("plan", "decision.minimum_delta", 0.03),
            ("plan", "harvest.item_cap", 9.0),
            ("plan", "harvest.minimum_rows", 60.0),
            ("facts", "peer", 0.7),
        ] {
            let derived = look_up(data, of).unwrap();
            assert_eq!(derived.number(None, "value"), Some(&Number::Defined(x)), "{of}");
            assert_eq!(derived.sources.len(), 1);
        }
        let pending = look_up("receipts", "train.rows").unwrap();
        assert_eq!(pending.number(None, "value"), Some(&Number::Undefined("pending: no receipt yet".into())));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (data, of, wanted) in [
            ("receipts", "merge.mached", "did you mean `matched`?"),
            ("receipts", "merge.deep.3.x", "1 items"),
            ("receipts", "merge", "<receipt>.<key>"),
            ("receipts", "merge.deep", "is not a number"),
            ("receipts", "merge.none", "is not a number"),
            ("plan", "title", "is not a number"),
            ("plan", "decison.minimum_delta", "did you mean `decision`?"),
            ("plan", "harvest.itemcap", "did you mean `item_cap`?"),
            ("facts", "bare", "has no source"),
            ("facts", "pear", "did you mean `peer`?"),
        ] {
            let e = look_up(data, of).unwrap_err().to_string();
            assert!(e.contains(wanted) && e.contains("hint:"), "{e}");
        }
    }
}
