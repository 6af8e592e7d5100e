//! Values that are looked up instead of computed: a path in the plan, in a receipt, or a cited
//! fact. Read from the files as they stand, not through the types of other modules.

use super::estimators::Part;
use super::hashes::json;
use crate::claims::derivation::DataSet;
use crate::regular;
use serde_json::Value;
use std::path::Path;

/// What counts where a plan leaves a key of `[harvest]` out, as docs/FORMATS.md has it.
const LEFT_OUT: [(&str, f64); 7] = [
    ("harvest.per_family", 33.0),
    ("harvest.item_cap", 2.0),
    ("harvest.family_cap", 40.0),
    ("harvest.terse_tokens", 24.0),
    ("harvest.lucky_minimum", 3.0),
    ("harvest.minimum_rows", 60.0),
    ("harvest.minimum_families", 3.0),
];

/// The number at `of`, undefined while its receipt is not written; the error says what is not there.
pub fn value(workspace: &Path, slug: &str, data: DataSet, of: &str) -> Result<Part, String> {
    let number = match data {
        DataSet::Plan => {
            let plan = toml_file(workspace, &format!("data/{slug}/experiment.toml"))?;
            let usual = LEFT_OUT.iter().find(|(key, _)| *key == of).map(|(_, usual)| *usual);
            at(&plan, of, of).or_else(|missing| match step(&plan, of, of) {
                Err(_) => usual.ok_or(missing),
                Ok(_) => Err(missing),
            })
        }
        DataSet::Facts => {
            let facts = toml_file(workspace, &format!("data/{slug}/facts.toml"))?;
            let fact = step(&facts, of, of)?;
            let cited =
                fact.get("source").and_then(Value::as_str).is_some_and(|source| !source.trim().is_empty());
            if !cited {
                return Err(format!("fact `{of}` names no source"));
            }
            at(fact, "value", of)
        }
        DataSet::Receipts => {
            let (name, path) =
                of.split_once('.').ok_or_else(|| format!("`{of}` names no value in a receipt"))?;
            let file = workspace.join(format!("data/{slug}/receipts/{name}.json"));
            if name.contains(['/', '\\']) || !file.is_file() {
                return Ok(Part::Undefined(format!("there is no receipt `{name}` yet")));
            }
            let receipt = json(&file)?;
            at(receipt.get("receipt").unwrap_or(&receipt), path, of)
        }
        _ => Err("only plan, receipts and facts hold single values".into()),
    };
    number.map(Part::Number)
}

/// A TOML file as JSON values.
pub fn toml_file(workspace: &Path, path: &str) -> Result<Value, String> {
    if !workspace.join(path).exists() {
        return Err(format!("there is no {path}"));
    }
    let text = regular::text(&workspace.join(path)).map_err(|e| e.to_string())?;
    let table: toml::Table = toml::from_str(&text).map_err(|e| format!("{path}: {}", e.message()))?;
    serde_json::to_value(table).map_err(|e| format!("{path}: {e}"))
}

/// The value at a dotted path; list items by their index from 0.
fn step<'a>(value: &'a Value, path: &str, whole: &str) -> Result<&'a Value, String> {
    path.split('.').try_fold(value, |here, key| {
        let next = match here {
            Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get(i)),
            other => other.get(key),
        };
        next.ok_or_else(|| format!("there is no `{key}` on the way to `{whole}`"))
    })
}

/// The number at a dotted path.
fn at(value: &Value, path: &str, whole: &str) -> Result<f64, String> {
    match step(value, path, whole)? {
        Value::Number(number) => number.as_f64().filter(|x| x.is_finite()),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        _ => None,
    }
    .ok_or_else(|| format!("`{whole}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("data/x");
        fs_err::create_dir_all(home.join("receipts")).unwrap();
        fs_err::write(
            home.join("experiment.toml"),
            "[decision]\nminimum_delta = 0.03\n[seeds]\nevaluate = [7, 8]\n",
        )
        .unwrap();
        fs_err::write(
            home.join("facts.toml"),
            "[human]\nvalue = 0.5\nsource = \"a paper\"\n[bare]\nvalue = 1\n",
        )
        .unwrap();
        fs_err::write(
            home.join("receipts/train.json"),
            r#"{"receipt": {"rows": 80, "ok": true}, "sha256": ""}"#,
        )
        .unwrap();
        fs_err::write(home.join("receipts/bare.json"), r#"{"rows": 81}"#).unwrap();
        dir
    }

    #[test]
    fn finds_numbers_in_all_three() {
        let dir = workspace();
        let get = |data, of| value(dir.path(), "x", data, of).unwrap();
        assert_eq!(get(DataSet::Plan, "decision.minimum_delta"), Part::Number(0.03));
        assert_eq!(get(DataSet::Plan, "seeds.evaluate.1"), Part::Number(8.0));
        assert_eq!(get(DataSet::Facts, "human"), Part::Number(0.5));
        assert_eq!(get(DataSet::Receipts, "train.rows"), Part::Number(80.0));
        assert_eq!(get(DataSet::Receipts, "bare.rows"), Part::Number(81.0));
        assert_eq!(get(DataSet::Receipts, "train.ok"), Part::Number(1.0));
        assert_eq!(get(DataSet::Receipts, "merge.rows").get(), None);
    }

    #[test]
    fn what_a_plan_leaves_out_is_what_the_stages_take() {
        let dir = workspace();
        let usual = serde_json::to_value(crate::experiment::plan::Harvest::default()).unwrap();
        assert_eq!(usual.as_object().unwrap().len(), LEFT_OUT.len());
        for (key, number) in usual.as_object().unwrap() {
            let found = value(dir.path(), "x", DataSet::Plan, &format!("harvest.{key}")).unwrap();
            assert_eq!(found, Part::Number(number.as_f64().unwrap()), "{key}");
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        let dir = workspace();
        let get = |data, of| value(dir.path(), "x", data, of).unwrap_err();
        assert!(get(DataSet::Facts, "bare").contains("no source"));
        assert!(get(DataSet::Plan, "decision.maximum").contains("maximum"));
        assert!(get(DataSet::Plan, "seeds.evaluate").contains("not a number"));
        assert!(get(DataSet::Receipts, "train.columns").contains("columns"));
        assert!(get(DataSet::Receipts, "train").contains("names no value"));
    }
}
