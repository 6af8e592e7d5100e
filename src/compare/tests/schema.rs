//! The JSON output against the committed schema: a small structural check of the keywords that
//! the schema uses.

#![cfg(test)]

use super::{DATA_SETS, reference};
use serde_json::Value;

fn schema() -> Value {
    let text = include_str!("../../../docs/schemas/compare.schema.json");
    serde_json::from_str(text).expect("the schema is JSON")
}

/// Complaints of `value` under `rule`; empty when it fits.
pub(crate) fn complaints(root: &Value, rule: &Value, value: &Value, place: &str) -> Vec<String> {
    if let Some(name) = rule["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).expect("a reference within the schema");
        return complaints(root, target, value, place);
    }
    let mut out = Vec::new();
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |t: &Value| t == kind || (t == "number" && kind == "integer");
    let allowed = match &rule["type"] {
        Value::Array(types) => types.iter().any(fits),
        one => fits(one),
    };
    if !allowed {
        out.push(format!("{place}: {kind} is not {}", rule["type"]));
    }
    if rule["enum"].as_array().is_some_and(|list| !list.contains(value)) {
        out.push(format!("{place}: {value} is not in the list"));
    }
    if let Some(number) = value.as_f64() {
        let above = rule["minimum"].as_f64().is_none_or(|least| number >= least);
        let below = rule["maximum"].as_f64().is_none_or(|most| number <= most);
        if !above || !below {
            out.push(format!("{place}: {number} is out of range"));
        }
    }
    if let Some(items) = value.as_array() {
        let count = |key: &str| rule[key].as_u64().map(|n| n as usize);
        if count("minItems").is_some_and(|n| items.len() < n)
            || count("maxItems").is_some_and(|n| items.len() > n)
        {
            out.push(format!("{place}: {} items", items.len()));
        }
        for (i, item) in items.iter().enumerate() {
            out.extend(complaints(root, &rule["items"], item, &format!("{place}[{i}]")));
        }
    }
    if let Some(object) = value.as_object() {
        for key in rule["required"].as_array().into_iter().flatten() {
            if !object.contains_key(key.as_str().expect("a name")) {
                out.push(format!("{place}: no {key}"));
            }
        }
        for (key, item) in object {
            let inside = format!("{place}.{key}");
            match (&rule["properties"][key.as_str()], &rule["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => out.push(format!("{inside}: not in the schema")),
                (Value::Null, Value::Null) => {}
                (Value::Null, any) => out.extend(complaints(root, any, item, &inside)),
                (known, _) => out.extend(complaints(root, known, item, &inside)),
            }
        }
    }
    out
}

#[test]
fn every_output_fits_the_schema() {
    let schema = schema();
    for name in DATA_SETS {
        let value = serde_json::to_value(reference(name, "0")).unwrap();
        assert_eq!(complaints(&schema, &schema, &value, name), Vec::<String>::new());
    }
}

#[test]
fn the_check_itself_finds_faults() {
    let schema = schema();
    let good = serde_json::to_value(reference("tiny_n5", "0")).unwrap();
    let spoil = |change: &dyn Fn(&mut Value)| {
        let mut bad = good.clone();
        change(&mut bad);
        complaints(&schema, &schema, &bad, "x").len()
    };
    assert_eq!(spoil(&|v| v["delta"] = Value::Null), 1);
    assert_eq!(spoil(&|v| v["design"] = "mixed".into()), 1);
    assert_eq!(spoil(&|v| v["extra"] = 1.into()), 1);
    assert_eq!(spoil(&|v| v["sign_flip_p"] = 1.5.into()), 1);
    assert_eq!(spoil(&|v| drop(v.as_object_mut().unwrap().remove("ci"))), 1);
    assert_eq!(spoil(&|v| v["wilson"]["base"] = serde_json::json!([1])), 1);
}
