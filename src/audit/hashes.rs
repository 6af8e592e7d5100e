//! The first thing the audit looks at: every file against `hashes.json`, every row against the
//! chain of row hashes, every receipt against its own hash and the files it is bound to. The
//! canonical form of a row is written out here a second time.

use super::sheet::files_under;
use super::{Finding, fields};
use crate::episode::columns::{Columns, Values};
use crate::episode::row::Cell;
use crate::error::Result;
use crate::hash::sha256_file;
use crate::regular;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

/// Folders in which every file must be listed.
const LISTED_FOLDERS: [&str; 7] =
    ["episodes", "calls", "harvest", "imported", "superseded", "training", "transcripts"];
/// Broken rows reported a file.
const SHOWN: usize = 5;

/// What `hashes.json` says of one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listed {
    sha256: String,
    rows: Option<u64>,
    last_row_sha256: Option<String>,
}

/// Path relative to the experiment's folder → what is listed.
pub type Listing = BTreeMap<String, Listed>;

/// Compares the files of an experiment with its `hashes.json`; `known` are the hashes of files that were read already.
/// Returns the listing, the number of files compared, and what does not hold.
pub fn check_files(
    workspace: &Path,
    slug: &str,
    known: &HashMap<String, String>,
) -> Result<(Listing, usize, Vec<Finding>)> {
    let mut findings = Vec::new();
    let home = format!("data/{slug}");
    let ledger = format!("{home}/hashes.json");
    let present: Vec<String> = LISTED_FOLDERS
        .iter()
        .flat_map(|folder| files_under(workspace, &format!("{home}/{folder}")))
        .collect();
    let listing = match read_listing(&workspace.join(&ledger)) {
        Ok(Some(listing)) => listing,
        Ok(None) if present.is_empty() => return Ok((Listing::new(), 0, findings)),
        Ok(None) => {
            let detail = format!("{} data files and no hashes to hold them against", present.len());
            findings.push(Finding::new("no_hashes", &ledger, None, detail));
            return Ok((Listing::new(), 0, findings));
        }
        Err(why) => {
            findings.push(Finding::new("unreadable_file", &ledger, None, why));
            return Ok((Listing::new(), 0, findings));
        }
    };
    let mut compared = 0;
    for (path, listed) in &listing {
        let file = format!("{home}/{path}");
        if !inside(path) {
            findings.push(Finding::new("path_outside", &ledger, None, format!("`{path}` leaves the folder")));
            continue;
        }
        let full = workspace.join(&file);
        if !full.is_file() {
            findings.push(Finding::new(
                "missing_file",
                &file,
                None,
                "is listed in hashes.json and not there".into(),
            ));
            continue;
        }
        compared += 1;
        let sha256 = match known.get(&file) {
            Some(sha256) => sha256.clone(),
            None => sha256_file(&full)?,
        };
        if sha256 != listed.sha256 {
            let detail = format!("SHA-256 is {}…, hashes.json says {}…", head(&sha256), head(&listed.sha256));
            findings.push(Finding::new("file_hash", &file, None, detail));
        }
    }
    for file in present {
        let relative = file.strip_prefix(&format!("{home}/")).unwrap_or(&file);
        if !listing.contains_key(relative) {
            findings.push(Finding::new("extra_file", &file, None, "is not listed in hashes.json".into()));
        }
    }
    Ok((listing, compared, findings))
}

fn read_listing(path: &Path) -> Result<Option<Listing>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let value: Value = json(path)?;
    let entries = value.as_object().ok_or("is not an object")?;
    let mut listing = Listing::new();
    for (name, entry) in entries {
        let sha256 =
            entry.get("sha256").and_then(Value::as_str).ok_or_else(|| format!("`{name}` has no sha256"))?;
        listing.insert(
            name.clone(),
            Listed {
                sha256: sha256.into(),
                rows: entry.get("rows").and_then(Value::as_u64),
                last_row_sha256: entry.get("last_row_sha256").and_then(Value::as_str).map(String::from),
            },
        );
    }
    Ok(Some(listing))
}

/// The column of row hashes.
pub const CHAIN: &str = "row_sha256";

/// The chain of row hashes of one file, followed to its end.
#[derive(Debug)]
pub struct Chain {
    file: String,
    rows: usize,
    last: String,
    findings: Vec<Finding>,
}

/// Follows the chain through a file's rows, naming the rows where it breaks. `names` are the columns' names.
pub fn chain(file: &str, columns: &Columns, names: &[&str]) -> Chain {
    let mut chain =
        Chain { file: file.into(), rows: columns.rows(), last: "0".repeat(64), findings: Vec::new() };
    let own = names.iter().position(|name| *name == CHAIN);
    let canonical = Canonical::new(columns, names);
    let mut broken = 0;
    let mut text = String::new();
    for (i, row) in columns.iter().enumerate() {
        text.clear();
        text.push_str(&chain.last);
        text.push('\n');
        canonical.write(i, &mut text);
        let follows = sha256(&text);
        let stored = own.and_then(|at| row.text(at)).unwrap_or("");
        if follows != stored {
            broken += 1;
            if broken <= SHOWN {
                let detail = format!(
                    "row hash is {}…, the row and the one before give {}…",
                    head(stored),
                    head(&follows)
                );
                chain.findings.push(Finding::new("row_chain", file, Some(i + 1), detail));
            }
        }
        // Going on from what is stored shows each edited row once, not all rows after it.
        chain.last.clear();
        chain.last.push_str(stored);
    }
    if broken > SHOWN {
        let detail = format!("{} more rows do not follow from the rows before them", broken - SHOWN);
        chain.findings.push(Finding::new("row_chain", file, None, detail));
    }
    chain
}

/// What does not hold of the chains of an experiment's files: where they break, and where they do not end as
/// `hashes.json` says.
pub fn check_chains(chains: Vec<Chain>, slug: &str, listing: &Listing) -> (usize, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut walked = 0;
    for Chain { file, rows, last, findings: broken } in chains {
        walked += rows;
        findings.extend(broken);
        let Some(listed) = file.strip_prefix(&format!("data/{slug}/")).and_then(|path| listing.get(path))
        else {
            continue;
        };
        if listed.rows.is_some_and(|said| said != rows as u64) {
            let detail = format!("holds {rows} rows, hashes.json says {}", listed.rows.unwrap_or(0));
            findings.push(Finding::new("row_count", &file, None, detail));
        }
        if rows > 0 && listed.last_row_sha256.as_ref().is_some_and(|said| *said != last) {
            let detail = "the last row's hash is not the one in hashes.json".into();
            findings.push(Finding::new("last_row", &file, Some(rows), detail));
        }
    }
    (walked, findings)
}

/// The rows of a file as canonical JSON: names in byte order, no white space, without the row's own hash.
struct Canonical<'a> {
    /// `"name":` with what stands before it, the column, and its texts as JSON.
    columns: Vec<(String, &'a Values, Vec<String>)>,
}

impl<'a> Canonical<'a> {
    fn new(columns: &'a Columns, names: &[&str]) -> Canonical<'a> {
        let mut order: Vec<usize> = (0..names.len()).filter(|at| names[*at] != CHAIN).collect();
        order.sort_unstable_by_key(|at| names[*at]);
        let mut written = Vec::with_capacity(order.len());
        for at in order {
            let Some(values) = columns.values(at) else { continue };
            let before = if written.is_empty() { '{' } else { ',' };
            let texts = match values {
                Values::Text { dictionary, .. } => {
                    dictionary.iter().map(|text| Value::from(&**text).to_string()).collect()
                }
                _ => Vec::new(),
            };
            written.push((format!("{before}{}:", Value::from(names[at])), values, texts));
        }
        Canonical { columns: written }
    }

    fn write(&self, at: usize, out: &mut String) {
        for (name, values, texts) in &self.columns {
            out.push_str(name);
            let text = match values {
                Values::Text { codes, .. } => codes.get(at).and_then(|code| texts.get(*code as usize)),
                _ => None,
            };
            match (text, values) {
                (Some(text), _) => out.push_str(text),
                (None, values) => match values.cell(at) {
                    Cell::Null => out.push_str("null"),
                    Cell::Flag(flag) => out.push_str(if flag { "true" } else { "false" }),
                    Cell::Int(whole) => out.push_str(&whole.to_string()),
                    Cell::Real(real) => out.push_str(&Value::from(real).to_string()),
                    Cell::Text(text) => out.push_str(&Value::from(text).to_string()),
                },
            }
        }
        out.push_str(if self.columns.is_empty() { "{}" } else { "}" });
    }
}

/// Receipts of an experiment: each against its own `sha256`, and the files it names under
/// `files` against theirs. Returns the number of files compared and what does not hold.
pub fn check_receipts(workspace: &Path, slug: &str) -> Result<(usize, Vec<Finding>)> {
    let mut findings = Vec::new();
    let mut compared = 0;
    let kept_elsewhere = match artifacts(workspace, slug) {
        Ok(kept) => kept,
        Err(finding) => {
            findings.push(finding);
            toml::Table::new()
        }
    };
    for file in files_under(workspace, &format!("data/{slug}/receipts")) {
        if !file.ends_with(".json") {
            continue;
        }
        let value = match json(&workspace.join(&file)) {
            Ok(value) => value,
            Err(why) => {
                findings.push(Finding::new("unreadable_file", &file, None, why));
                continue;
            }
        };
        let receipt = value.get("receipt").unwrap_or(&value);
        let name = file.rsplit('/').next().unwrap_or_default();
        let unknown = fields::unknown(name.trim_end_matches(".json"), &value).into_iter();
        findings.extend(unknown.map(|field| {
            let detail = format!("says `{field}`, which no stage writes");
            Finding::new("receipt_field", &file, None, detail)
        }));
        let is_lock = ["plan-harvest.json", "plan-train.json", "plan-evaluate.json"].contains(&name);
        let stages =
            ["harvest.json", "train.json", "merge.json", "headroom.json", "kill.json", "decision.json"];
        if !is_lock && super::superseded::number(name).is_none() && !stages.contains(&name) {
            let detail = "is the receipt of no stage".into();
            findings.push(Finding::new("receipt_file", &file, None, detail));
        }
        if !is_lock
            && (value.get("receipt").is_none() || value.get("sha256").and_then(Value::as_str).is_none())
        {
            let detail = "carries no hash of its own (`sha256` beside `receipt`)".into();
            findings.push(Finding::new("receipt_edited", &file, None, detail));
        }
        if let (Some(claimed), Some(receipt)) =
            (value.get("sha256").and_then(Value::as_str), value.get("receipt"))
        {
            compared += 1;
            if sha256(&sorted(receipt)) != claimed {
                findings.push(Finding::new(
                    "receipt_edited",
                    &file,
                    None,
                    "does not match its own hash".into(),
                ));
            }
        }
        for (path, claimed) in receipt.get("files").and_then(Value::as_object).into_iter().flatten() {
            let Some(claimed) = claimed.as_str().filter(|_| inside(path)) else {
                findings.push(Finding::new(
                    "path_outside",
                    &file,
                    None,
                    format!("`{path}` cannot be checked"),
                ));
                continue;
            };
            let near = workspace.join(format!("data/{slug}/{path}"));
            let full = if near.is_file() { near } else { workspace.join(path) };
            if !full.is_file() {
                let kept = kept_elsewhere.get(path).and_then(|of| of.get("sha256")?.as_str());
                if !is_sha256(claimed) || kept != Some(claimed) {
                    let detail =
                        format!("names `{path}`, which is not there, nor in artifacts.toml with that hash");
                    findings.push(Finding::new("missing_file", &file, None, detail));
                }
                continue;
            }
            compared += 1;
            let actual = sha256_file(&full)?;
            if actual != claimed {
                let detail =
                    format!("`{path}` has SHA-256 {}…, the receipt says {}…", head(&actual), head(claimed));
                findings.push(Finding::new("receipt_file", &file, None, detail));
            }
        }
    }
    Ok((compared, findings))
}

/// What `artifacts.toml` names of an experiment: by path, the files that are kept elsewhere and their `sha256`.
fn artifacts(workspace: &Path, slug: &str) -> Result<toml::Table, Finding> {
    let file = format!("data/{slug}/artifacts.toml");
    let path = workspace.join(&file);
    if !path.exists() {
        return Ok(toml::Table::new());
    }
    let text = regular::text(&path).map_err(|error| error.to_string());
    let table = text.and_then(|text| text.parse::<toml::Table>().map_err(|e| format!("is not TOML: {e}")));
    table.map_err(|why| Finding::new("unreadable_file", &file, None, why.trim().replace('\n', " ")))
}

/// Whether a text is a SHA-256 in lower-case hex.
fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A JSON file's value, or what is wrong with it.
pub fn json(path: &Path) -> Result<Value, String> {
    parsed(&regular::text(path).map_err(|e| e.to_string())?)
}

/// A JSON text's value, or what is wrong with it.
pub fn parsed(text: &str) -> Result<Value, String> {
    let Once(value) = serde_json::from_str(text).map_err(|e| format!("is not JSON: {e}"))?;
    Ok(value)
}

/// JSON in which no object has a key twice: readers differ in which of the two they believe.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Once, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Value;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
                Ok(flag.into())
            }
            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(number.into())
            }
            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(number.into())
            }
            fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
                Ok(number.into())
            }
            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(text.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(Once(item)) = items.next_element()? {
                    list.push(item);
                }
                Ok(list.into())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
                let mut map = serde_json::Map::new();
                while let Some((key, Once(value))) = entries.next_entry::<String, Once>()? {
                    if map.contains_key(&key) {
                        return Err(serde::de::Error::custom(format!("the key `{key}` stands there twice")));
                    }
                    map.insert(key, value);
                }
                Ok(map.into())
            }
        }
        deserializer.deserialize_any(Reader).map(Once)
    }
}

/// JSON with keys in byte order at every depth.
pub fn sorted(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<&String, &Value> = map.iter().collect();
            let fields: Vec<String> = ordered
                .into_iter()
                .map(|(k, v)| format!("{}:{}", Value::from(k.as_str()), sorted(v)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// SHA-256 of a text, in lower-case hex.
pub fn sha256(text: &str) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// The first digits of a hash, as shown.
pub fn head(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Whether a listed path stays inside its folder.
pub fn inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
