//! Numbered sections of a page: only those that have something in them count, and contents and
//! headings show the same numbers.

use serde_json::{Value, json};

/// The sections of a page, in order.
#[derive(Default)]
pub struct Sections {
    shown: Vec<(&'static str, &'static str)>,
}

impl Sections {
    /// Adds a section when it has something to show.
    pub fn add(&mut self, id: &'static str, title: &'static str, shown: bool) {
        if shown {
            self.shown.push((id, title));
        }
    }

    /// The section's number for its heading; 0 when it is not there.
    pub fn numbers(&self) -> Value {
        let numbers = self.shown.iter().enumerate().map(|(i, (id, _))| ((*id).to_string(), json!(i + 1)));
        Value::Object(numbers.collect())
    }

    /// Entries of the contents.
    pub fn contents(&self) -> Vec<Value> {
        self.shown.iter().map(|(id, title)| json!({"id": id, "title": title})).collect()
    }
}
