//! One JSON object a line. A first pass finds the column names and names the first line that is
//! not an object; a second keeps the fields that are wanted.

use super::table::{Field, Table};
use crate::error::{Error, Result};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A JSON-lines file with its column names collected.
pub struct JsonLines {
    /// The file, as given.
    pub path: String,
    /// Every key of any line, in the order in which they appear.
    pub names: Vec<String>,
    text: String,
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

impl JsonLines {
    /// Checks every line and collects the keys.
    pub fn open(path: String, text: String) -> Result<JsonLines> {
        let mut names = Vec::new();
        let mut seen = HashSet::new();
        for (number, line) in lines(&text) {
            let keys: BTreeMap<String, IgnoredAny> = serde_json::from_str(line).map_err(|e| {
                Error::invalid(format!("this line is not a JSON object: {e}"))
                    .at(format!("{path}: line {number}"))
                    .hint("each line holds one object, such as {\"task\": \"a\", \"reward\": 0.5}; a missing number is null, not NaN")
            })?;
            for key in keys.into_keys() {
                if seen.insert(key.clone()) {
                    names.push(key);
                }
            }
        }
        Ok(JsonLines { path, names, text })
    }

    /// Reads the named keys; a line without one has it missing.
    pub fn read(&self, wanted: &[&str]) -> Result<Table> {
        let mut columns = vec![Vec::new(); wanted.len()];
        let mut numbers = Vec::new();
        for (number, line) in lines(&self.text) {
            let mut object: Map<String, Value> = serde_json::from_str(line).map_err(|e| {
                Error::invalid(format!("this line is not a JSON object: {e}"))
                    .at(format!("{}: line {number}", self.path))
            })?;
            numbers.push(number);
            for (column, name) in columns.iter_mut().zip(wanted) {
                column.push(object.get_mut(*name).map_or(Field::Null, |v| field(v.take())));
            }
        }
        let columns: HashMap<String, Vec<Field>> =
            wanted.iter().map(|n| (*n).to_owned()).zip(columns).collect();
        Ok(Table { path: self.path.clone(), rows: numbers.len(), columns, lines: Some(numbers) })
    }
}

fn field(value: Value) -> Field {
    match value {
        Value::Null => Field::Null,
        Value::Bool(b) => Field::Flag(b),
        Value::Number(n) => match (n.as_i128(), n.as_f64()) {
            (Some(i), _) => Field::Int(i),
            (None, Some(r)) => Field::Real(r),
            (None, None) => Field::Other("a number out of range".into()),
        },
        Value::String(s) => Field::Text(s),
        Value::Array(_) => Field::Other("a list".into()),
        Value::Object(_) => Field::Other("an object".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_columns() {
        let text = "{\"task\": \"a\", \"reward\": 0.5, \"x\": [1]}\n\n{\"reward\": 1, \"solved\": true}\n";
        let source = JsonLines::open("r.jsonl".into(), text.into()).unwrap();
        assert_eq!(source.names, ["reward", "task", "x", "solved"]);
        let t = source.read(&["task", "reward", "solved", "x"]).unwrap();
        assert_eq!(t.columns["task"], [Field::Text("a".into()), Field::Null]);
        assert_eq!(t.columns["reward"], [Field::Real(0.5), Field::Int(1)]);
        assert_eq!(t.columns["solved"], [Field::Null, Field::Flag(true)]);
        assert_eq!(t.columns["x"][0], Field::Other("a list".into()));
        assert_eq!(t.place(1), "r.jsonl: line 3");
    }

    #[test]
    fn the_first_bad_line_is_named() {
        for bad in ["{\"reward\": NaN}", "{\"reward\": 1", "[1]", "7"] {
            let text = format!("{{\"reward\": 1}}\n{bad}\n");
            let message = JsonLines::open("r.jsonl".into(), text).err().unwrap().to_string();
            assert!(message.contains("r.jsonl: line 2"), "{message}");
        }
    }
}
