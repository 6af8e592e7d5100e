//! Comma-separated text by RFC 4180, with the line of every row. Read here and not by polars,
//! which fills a line that is too short with nulls: a file cut off in the middle would then
//! look like one with missing rewards.

use super::table::{Field, Table};
use crate::error::{Error, Result};
use std::collections::HashMap;

/// A CSV file with its header read.
pub struct Csv {
    /// The file, as given.
    pub path: String,
    /// The header's names.
    pub names: Vec<String>,
    text: String,
}

impl Csv {
    /// Reads the header.
    pub fn open(path: String, text: String) -> Result<Csv> {
        let mut records = Records::new(&text);
        let header = records.next().transpose().map_err(|e| e.at_line(&path))?;
        let (_, fields) = header.ok_or_else(|| Error::invalid("the file is empty").at(&path))?;
        let names: Vec<String> = fields.iter().map(|f| f.trim().to_owned()).collect();
        if let [only] = names.as_slice()
            && (only.contains(';') || only.contains('\t'))
        {
            return Err(Error::invalid("the header has one column: the separator is not a comma")
                .at(format!("{path}: line 1"))
                .hint("write the file with commas between the fields"));
        }
        Ok(Csv { path, names, text })
    }

    /// Reads the named columns as text.
    pub fn read(&self, wanted: &[&str]) -> Result<Table> {
        let mut at = Vec::new();
        for name in wanted {
            let mut found = self.names.iter().enumerate().filter(|(_, n)| n == name).map(|(i, _)| i);
            if let (Some(first), None) = (found.next(), found.next()) {
                at.push(first);
            } else {
                return Err(Error::invalid(format!("the header has the column `{name}` twice"))
                    .at(format!("{}: line 1", self.path))
                    .hint("rename one of them"));
            }
        }
        let mut columns = vec![Vec::new(); wanted.len()];
        let mut lines = Vec::new();
        for record in Records::new(&self.text).skip(1) {
            let (line, mut fields) = record.map_err(|e| e.at_line(&self.path))?;
            if fields.len() != self.names.len() {
                let what = format!(
                    "the line has {}, the header {}",
                    crate::stats::counted(fields.len(), "field"),
                    self.names.len()
                );
                return Err(Error::invalid(what)
                    .at(format!("{}: line {line}", self.path))
                    .hint("the file may be cut off, or a field with a comma in it needs quotes"));
            }
            lines.push(line);
            for (column, &i) in columns.iter_mut().zip(&at) {
                let text = std::mem::take(&mut fields[i]);
                column.push(if text.is_empty() { Field::Null } else { Field::Text(text) });
            }
        }
        let columns: HashMap<String, Vec<Field>> =
            wanted.iter().map(|n| (*n).to_owned()).zip(columns).collect();
        Ok(Table { path: self.path.clone(), rows: lines.len(), columns, lines: Some(lines) })
    }
}

/// What is wrong with the text, and on which line.
struct Malformed {
    line: usize,
    what: &'static str,
}

impl Malformed {
    fn at_line(self, path: &str) -> Error {
        Error::invalid(self.what)
            .at(format!("{path}: line {}", self.line))
            .hint("a field in quotes doubles the quotes inside it and ends before the next comma")
    }
}

/// Records of a text: the line each starts on (from 1), and its fields. Empty lines are skipped.
struct Records<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Records<'a> {
    fn new(text: &'a str) -> Self {
        Records { rest: text, line: 1 }
    }

    /// Takes one field off the front; true when the record ends with it.
    fn field(&mut self) -> std::result::Result<(String, bool), Malformed> {
        let mut field = String::new();
        if let Some(mut quoted) = self.rest.strip_prefix('"') {
            let start = self.line;
            loop {
                let Some(end) = quoted.find('"') else {
                    return Err(Malformed { line: start, what: "a quoted field never ends" });
                };
                let (part, after) = (&quoted[..end], &quoted[end + 1..]);
                field.push_str(part);
                self.line += part.matches('\n').count();
                match after.strip_prefix('"') {
                    Some(more) => {
                        field.push('"');
                        quoted = more;
                    }
                    None => {
                        self.rest = after;
                        break;
                    }
                }
            }
        } else {
            let end = self.rest.find([',', '\n', '\r']).unwrap_or(self.rest.len());
            field.push_str(&self.rest[..end]);
            self.rest = &self.rest[end..];
        }
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            return Ok((field, false));
        }
        if let Some(rest) = ["\r\n", "\n", "\r"].iter().find_map(|end| self.rest.strip_prefix(end)) {
            self.line += 1;
            self.rest = rest;
        } else if !self.rest.is_empty() {
            return Err(Malformed { line: self.line, what: "text follows the closing quote of a field" });
        }
        Ok((field, true))
    }
}

impl Iterator for Records<'_> {
    type Item = std::result::Result<(usize, Vec<String>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let blank = self.rest.len() - self.rest.trim_start_matches(['\r', '\n']).len();
        self.line += self.rest[..blank].matches('\n').count();
        self.rest = &self.rest[blank..];
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            match self.field() {
                Ok((field, last)) => {
                    fields.push(field);
                    if last {
                        return Some(Ok((line, fields)));
                    }
                }
                Err(e) => {
                    self.rest = "";
                    return Some(Err(e));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, wanted: &[&str]) -> Result<Table> {
        Csv::open("x.csv".into(), text.into())?.read(wanted)
    }

    #[test]
    fn quotes_commas_and_line_ends() {
        let t = read("a,b\r\n\"x, \"\"y\"\"\",1\r\n\r\n\"two\nlines\",\r\nlast,3", &["a", "b"]).unwrap();
        let text = |s: &str| Field::Text(s.into());
        assert_eq!(t.columns["a"], [text("x, \"y\""), text("two\nlines"), text("last")]);
        assert_eq!(t.columns["b"], [text("1"), Field::Null, text("3")]);
        assert_eq!(t.lines, Some(vec![2, 4, 6]));
    }

    #[test]
    fn short_lines_and_broken_quotes_are_named() {
        let message = |text: &str| read(text, &["a"]).unwrap_err().to_string();
        assert!(message("a,b\n1,2\n3").contains("x.csv: line 3: the line has 1 field, the header 2"));
        assert!(message("a,b\n1,2,3\n").contains("line 2"));
        assert!(message("a,b\n\"1,2\n").contains("never ends"));
        assert!(message("a,b\n\"1\"x,2\n").contains("closing quote"));
        assert!(message("a,a\n1,2\n").contains("twice"));
        assert!(message("a;b\n1;2\n").contains("separator"));
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(rows in proptest::collection::vec(("[a-z,\"\n ]{1,8}", "[0-9]{1,3}"), 1..8)) {
            let mut text = String::from("a,b\n");
            for (a, b) in &rows {
                text.push_str(&format!("\"{}\",{b}\n", a.replace('"', "\"\"")));
            }
            let t = read(&text, &["a", "b"]).unwrap();
            let expected: Vec<Field> = rows.iter().map(|r| Field::Text(r.0.clone())).collect();
            prop_assert_eq!(&t.columns["a"], &expected);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-c\",\r\n]{0,40}") {
            if let Ok(csv) = Csv::open("x".into(), text) {
                let names: Vec<&str> = csv.names.iter().map(String::as_str).collect();
                let _ = csv.read(&names);
            }
        }
    }
}
