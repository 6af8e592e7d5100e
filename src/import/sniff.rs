//! What kind of file it is, from its first bytes and keys: never from its name, which anybody can change.

use super::json::Python;
use crate::error::{Error, Result};
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::io::{BufReader, Read};
use std::path::Path;

/// What a file turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A zip file, which only Inspect writes.
    InspectZip,
    /// An Inspect log as one JSON document.
    InspectJson,
    /// Samples of lm-evaluation-harness, one object a line.
    LmEval,
    /// Anything else that `compare` may read.
    Table,
}

/// Whether a file begins as zip files do.
pub fn is_zip(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    fs_err::File::open(path)?.take(4).read_to_end(&mut head)?;
    Ok(head == *b"PK\x03\x04" || head == *b"PK\x05\x06")
}

/// Looks at a file's first bytes and, in JSON, at its first keys.
pub fn sniff(path: &Path) -> Result<Found> {
    if is_zip(path)? {
        return Ok(Found::InspectZip);
    }
    let mut known = Known::default();
    let stream = Python::new(BufReader::new(fs_err::File::open(path)?));
    // It ends with an error as soon as the keys are known, or where the text is no object.
    let _ = serde_json::Deserializer::from_reader(stream).deserialize_map(&mut known);
    match known {
        Known { eval: true, .. } => Ok(Found::InspectJson),
        Known { doc_id: true, .. } => Ok(Found::LmEval),
        Known { results: true, configs: true, .. } => {
            Err(Error::invalid("these are the totals of lm-evaluation-harness, without samples")
                .at(path.display())
                .hint("give the `samples_….jsonl` beside it, which `lm_eval --log_samples` writes; this file is then read by itself"))
        }
        _ => Ok(Found::Table),
    }
}

/// Keys of the first object that tell what the file is.
#[derive(Default)]
struct Known {
    eval: bool,
    doc_id: bool,
    results: bool,
    configs: bool,
}

impl<'de> Visitor<'de> for &mut Known {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(key) = object.next_key::<String>()? {
            match key.as_str() {
                "eval" => self.eval = true,
                "doc_id" => self.doc_id = true,
                "results" => self.results = true,
                "configs" => self.configs = true,
                _ => {}
            }
            if self.eval || self.doc_id {
                return Err(A::Error::custom("known"));
            }
            object.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_and_the_name_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.csv");
        for (text, wanted) in [
            (&b"PK\x03\x04rest"[..], Found::InspectZip),
            (b"{\n  \"version\": 2,\n  \"eval\": {", Found::InspectJson),
            (b"{\"x\": NaN, \"doc_id\": 0, \"doc", Found::LmEval),
            (b"{\"task\": \"a\", \"reward\": 1}\n", Found::Table),
            (b"task,reward\na,1\n", Found::Table),
            (b"PAR1", Found::Table),
            (b"", Found::Table),
        ] {
            fs_err::write(&path, text).unwrap();
            assert_eq!(sniff(&path).unwrap(), wanted, "{text:?}");
        }
        fs_err::write(&path, "{\"results\": {}, \"configs\": {}}").unwrap();
        assert!(sniff(&path).unwrap_err().to_string().contains("samples_"));
    }
}
