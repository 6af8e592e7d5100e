//! Reading a JSON object field by field: each is taken once, with its type and range checked, and
//! what nobody took is refused by name, so that no setting is ignored silently.

use super::failure::{Failure, shorten};
use crate::error::nearest;
use serde_json::{Map, Value};

/// The fields of a request's body that were not read yet. A null counts as absent.
pub struct Fields {
    map: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Parses a body.
    pub fn parse(body: &[u8]) -> Result<Fields, Failure> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields { map, known: Vec::new() }),
            Ok(_) => Err(Failure::invalid("the body is not a JSON object")),
            Err(e) => Err(Failure::invalid(format!("the body is not JSON: {e}"))),
        }
    }

    /// Takes a field.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.map.remove(key).filter(|value| !value.is_null())
    }

    /// Takes a number within a range.
    pub fn number(&mut self, key: &'static str, low: f64, high: f64) -> Result<Option<f64>, Failure> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_f64() {
            Some(x) if (low..=high).contains(&x) => Ok(Some(x)),
            _ => Err(wrong(key, &format!("a number from {low} to {high}"), &value)),
        }
    }

    /// Takes a whole number within a range.
    pub fn integer(&mut self, key: &'static str, low: i64, high: i64) -> Result<Option<i64>, Failure> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_i64() {
            Some(x) if (low..=high).contains(&x) => Ok(Some(x)),
            _ => Err(wrong(key, &format!("a whole number from {low} to {high}"), &value)),
        }
    }

    /// Takes a boolean.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Failure> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| wrong(key, "true or false", &value))
    }

    /// Takes a text.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, "a text", &other)),
        }
    }

    /// Takes a list.
    pub fn list(&mut self, key: &'static str) -> Result<Option<Vec<Value>>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(wrong(key, "a list", &other)),
        }
    }

    /// Takes an object.
    pub fn object(&mut self, key: &'static str) -> Result<Option<Map<String, Value>>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(wrong(key, "an object", &other)),
        }
    }

    /// Fields that change nothing here, whatever they say.
    pub fn harmless(&mut self, keys: &[&'static str]) {
        for key in keys {
            self.take(key);
        }
    }

    /// A field that may only say what happens anyway.
    pub fn only(&mut self, key: &'static str, allowed: &[Value], why: &str) -> Result<(), Failure> {
        match self.take(key) {
            Some(value) if !allowed.contains(&value) => Err(Failure::unsupported(key, why)),
            _ => Ok(()),
        }
    }

    /// Refuses what is left.
    pub fn end(self) -> Result<(), Failure> {
        let Some(name) = self.map.into_iter().find(|(_, value)| !value.is_null()).map(|(name, _)| name)
        else {
            return Ok(());
        };
        let guess = match nearest(&name, self.known) {
            Some(known) => format!("; did you mean `{known}`?"),
            None => String::new(),
        };
        let mut failure =
            Failure::invalid(format!("the field `{}` is not known here{guess}", shorten(&name)))
                .field(shorten(&name));
        failure.code = Some("unknown_parameter");
        Err(failure)
    }
}

/// A field of the wrong type or out of range.
pub fn wrong(key: &str, wanted: &str, got: &Value) -> Failure {
    Failure::invalid(format!("`{key}` is not {wanted}: {}", shorten(&got.to_string()))).field(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        Fields::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn wrong_types_ranges_and_strangers_are_named() {
        let mut f = fields(json!({"a": 3, "b": "x", "c": null, "d": 0.0, "temprature": 1, "e": {"f": 1}}));
        assert_eq!(f.integer("a", 0, 2).unwrap_err().message, "`a` is not a whole number from 0 to 2: 3");
        assert_eq!(f.number("b", 0.0, 1.0).unwrap_err().field.as_deref(), Some("b"));
        assert_eq!(f.flag("c").unwrap(), None);
        assert!(f.only("d", &[json!(0.0), json!(0)], "no").is_ok());
        assert_eq!(f.only("e", &[], "no way").unwrap_err().message, "`e` is not supported: no way");
        f.harmless(&["user"]);
        f.take("temperature");
        let left = f.end().unwrap_err();
        assert_eq!(left.message, "the field `temprature` is not known here; did you mean `temperature`?");
        assert!(Fields::parse(b"[]").is_err() && Fields::parse(b"{").is_err());
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(mut f) = Fields::parse(&body) {
                let _ = f.number("a", 0.0, 1.0);
                let _ = f.end();
            }
        }
    }
}
