//! What a receipt may say: a field that no stage writes could be cited, and nobody has worked it out.

use serde_json::Value;

/// Receipt → its fields; `x.y` is a field of an object, `x.*.y` of each object in a table or list.
const FIELDS: [(&str, &[&str]); 9] = [
    (
        "harvest",
        &[
            "passed",
            "starved",
            "plan_sha256",
            "build",
            "model_sha256",
            "families",
            "families.*.samples",
            "families.*.solved",
            "families.*.kept",
            "samples",
            "kept",
            "contributing_families",
            "rejects",
            "rejects.*",
            "files",
            "files.*",
        ],
    ),
    (
        "train",
        &[
            "passed",
            "plan_sha256",
            "harvest_sha256",
            "build",
            "model_sha256",
            "train_seed",
            "rows",
            "skipped_too_long",
            "steps",
            "tokens",
            "first_loss",
            "last_loss",
            "adapter_sha256",
            "files",
            "files.*",
        ],
    ),
    (
        "merge",
        &[
            "passed",
            "build",
            "model_sha256",
            "adapter_sha256",
            "merged_sha256",
            "folder",
            "matched",
            "deltas",
            "delta_norm",
            "kept_share",
            "largest_logit_difference",
            "canaries_changed",
            "canaries",
        ],
    ),
    (
        "headroom",
        &[
            "passed",
            "plan_sha256",
            "ceiling",
            "minimum_delta",
            "base",
            "base.*",
            "cores",
            "cores.*.families",
            "cores.*.baseline",
            "cores.*.required",
            "cores.*.possible_gain",
            "cores.*.feasible",
            "baseline",
            "baseline_ceiling",
            "files",
            "files.*",
        ],
    ),
    (
        "kill",
        &[
            "passed",
            "plan_sha256",
            "reasons",
            "shape",
            "at_least",
            "cap",
            "episodes",
            "among",
            "of_shape",
            "share",
            "why",
            "shapes",
            "shapes.*",
            "files",
            "files.*",
        ],
    ),
    (
        "decision",
        &[
            "plan_sha256",
            "arms",
            "decision",
            "decision.outcome",
            "decision.legs",
            "decision.legs.*.asks",
            "decision.legs.*.value",
            "decision.legs.*.bar",
            "decision.legs.*.holds",
            "decision.legs.*.p",
            "decision.delta",
            "decision.low",
            "decision.high",
            "decision.tasks",
            "decision.moved",
            "null_spread",
            "looks",
            "files",
            "files.*",
        ],
    ),
    (
        "rescore",
        &[
            "number",
            "at",
            "verifiers",
            "verifiers.*.old",
            "verifiers.*.new",
            "families",
            "families.*.episodes",
            "families.*.changed",
            "families.*.solved_before",
            "families.*.solved_after",
            "replaced",
            "replaced.*.old",
            "replaced.*.new",
        ],
    ),
    ("plan", &["stage", "sha256", "locked_at", "section"]),
    ("signed", &["sha256", "receipt"]),
];

/// Fields of a receipt's file, by its name without `.json`, that nothing here writes.
pub fn unknown(name: &str, value: &Value) -> Vec<String> {
    let kind = match name.split_once('-') {
        Some((kind @ ("rescore" | "plan"), _)) => kind,
        _ => name,
    };
    let fields = |kind: &str| FIELDS.iter().find(|(of, _)| *of == kind).map(|(_, fields)| *fields);
    let mut found = Vec::new();
    match value.get("receipt") {
        Some(receipt) => {
            walk(value, "", "", fields("signed").unwrap_or_default(), &mut found);
            // A receipt of no stage is named as that.
            if let Some(fields) = fields(kind) {
                walk(receipt, "", "", fields, &mut found);
            }
        }
        None => walk(value, "", "", fields(kind).unwrap_or_default(), &mut found),
    }
    found
}

/// Walks the objects that have known fields; `form` is the path with `*` for the entries of tables and lists.
fn walk(value: &Value, path: &str, form: &str, fields: &[&str], found: &mut Vec<String>) {
    let has_fields = |form: &str| {
        fields.iter().any(|field| field.strip_prefix(form).is_some_and(|rest| rest.starts_with('.')))
    };
    let entry = format!("{form}.*");
    let open = fields.contains(&entry.as_str()) || has_fields(&entry);
    let mut child = |key: &str, value: &Value| {
        let join =
            |path: &str, key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        let (path, form) = (join(path, key), join(form, if open { "*" } else { key }));
        if has_fields(&form) {
            walk(value, &path, &form, fields, found);
        } else if !fields.contains(&form.as_str()) {
            found.push(path);
        }
    };
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| child(key, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| child(&at.to_string(), value)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_no_stage_writes_are_found_at_every_depth() {
        let headroom = json!({
            "sha256": "x", "note": 1, "receipt": {
                "passed": true, "human": 0.9, "base": {"any": 0.5, "x.y": 1},
                "cores": {"a": {"baseline": 0.1, "extra": 2}}, "files": {"episodes/base/1.parquet": "x"},
            },
        });
        assert_eq!(unknown("headroom", &headroom), ["note", "human", "cores.a.extra"]);
        let decision = json!({
            "sha256": "x",
            "receipt": {"decision": {"legs": [{"asks": "a"}, {"asks": "b", "q": 1}], "power": 0.8}, "arms": ["a", "b"]},
        });
        assert_eq!(unknown("decision", &decision), ["decision.legs.1.q", "decision.power"]);
        let rescore = json!({"sha256": "", "receipt": {"number": 1, "verifiers": {"f": {"old": ["v"], "new": "w", "z": 0}}}});
        assert_eq!(unknown("rescore-1", &rescore), ["verifiers.f.z"]);
        let lock = json!({"stage": "train", "sha256": "", "locked_at": "", "section": {"any": {"thing": 1}}, "by": "me"});
        assert_eq!(unknown("plan-train", &lock), ["by"]);
    }
}
