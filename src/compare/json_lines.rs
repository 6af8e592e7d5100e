//! One JSON object a line. A first pass finds the column names and names the first line that is
//! not an object; a second keeps the fields that are wanted.

use super::rows::shown;
use super::table::{Field, Table};
use crate::error::{Error, Result};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// A JSON-lines file with its column names collected.
pub struct JsonLines {
    /// The file, as given.
    pub path: String,
    /// Every key of any line, in the order in which they appear.
    pub names: Vec<String>,
    text: String,
}

/// The keys of one object, and the first that comes back.
struct Keys {
    once: BTreeSet<String>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'de> Visitor<'de> for OfObject {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Keys, A::Error> {
                let mut keys = Keys { once: BTreeSet::new(), twice: None };
                while let Some((key, _)) = object.next_entry::<String, IgnoredAny>()? {
                    if keys.twice.is_none() && keys.once.contains(&key) {
                        keys.twice = Some(key);
                    } else {
                        keys.once.insert(key);
                    }
                }
                Ok(keys)
            }
        }
        deserializer.deserialize_map(OfObject)
    }
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
            let keys: Keys = serde_json::from_str(line).map_err(|e| {
                Error::invalid(format!("this line is not a JSON object: {e}"))
                    .at(format!("{path}: line {number}"))
                    .hint("each line holds one object, such as {\"task\": \"a\", \"reward\": 0.5}; a missing number is null, not NaN")
            })?;
            if let Some(key) = keys.twice {
                return Err(Error::invalid(format!("the object has the key `{}` twice", shown(&key)))
                    .at(format!("{path}: line {number}"))
                    .hint("keep one of the two: which value is meant cannot be told"));
            }
            for key in keys.once {
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
                    .hint("numbers fit a double, and text is valid Unicode: write such a value as null, or leave it out")
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
    fn a_key_that_comes_twice_is_refused() {
        let good = "{\"reward\": 1, \"more\": {\"a\": 1, \"a\": 2}}\n";
        assert!(JsonLines::open("r.jsonl".into(), good.into()).is_ok());
        for bad in ["{\"reward\": 1, \"x\": 0, \"reward\": 0}", "{\"reward\": 1, \"rew\\u0061rd\": 1}"] {
            let message =
                JsonLines::open("r.jsonl".into(), format!("{good}{bad}\n")).err().unwrap().to_string();
            assert!(message.contains("r.jsonl: line 2: the object has the key `reward` twice"), "{message}");
        }
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
