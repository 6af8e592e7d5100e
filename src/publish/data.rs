//! The data files of an experiment, with their first rows and the doc strings of their columns.

use super::unreadable;
use crate::episode::row::{CallRow, Column, EpisodeRow, HarvestRow, ImportedRow, Kind, Row, TrainingRow};
use crate::episode::{hashes, preview};
use crate::error::Result;
use crate::regular;
use crate::site::input::{FileInput, ImportInput, ProvenanceInput};
use serde_json::Value;
use std::path::Path;

/// Rows shown of each file.
const PREVIEW_ROWS: usize = 20;

/// Every listed Parquet file, in order of its path.
pub(super) fn files(root: &Path) -> Result<Vec<FileInput>> {
    let mut out = Vec::new();
    let all = hashes::read(root)?;
    for (path, listed) in &all {
        if !path.ends_with(".parquet") {
            continue;
        }
        let source = root.join(path);
        if !source.exists() {
            return Err(unreadable("a listed data file is missing", &source));
        }
        regular::check(&source)?;
        let head = preview::preview(&source, PREVIEW_ROWS)?;
        let contract = contract(path);
        let columns = head
            .columns
            .iter()
            .map(|name| {
                let column = contract.iter().find(|c| c.name == name);
                let kind = column.map_or("", |c| kind(c));
                (name.clone(), kind.to_string(), column.map_or("", |c| c.doc.trim()).to_string())
            })
            .collect();
        let beside = path.strip_suffix(".parquet").filter(|path| path.starts_with("imported/"));
        let beside = beside.map(|path| format!("{path}.json"));
        let provenance = beside.and_then(|path| Some((all.get(&path)?.sha256.clone(), path)));
        out.push(FileInput {
            path: path.clone(),
            provenance: provenance.map(|(sha256, path)| provenance_of(root, path, sha256)).transpose()?,
            source,
            sha256: listed.sha256.clone(),
            bytes: listed.bytes,
            rows: head.total_rows,
            columns,
            preview: head.rows,
        });
    }
    Ok(out)
}

/// Folders under `data/` with imported rows and no report, in order of their name. The claims that cite them are
/// left to the caller.
pub(super) fn imports(workspace: &Path, reported: impl Fn(&str) -> bool) -> Result<Vec<ImportInput>> {
    let mut out = Vec::new();
    for slug in crate::import::imported(workspace)?.into_iter().filter(|slug| !reported(slug)) {
        let files = files(&workspace.join("data").join(&slug))?;
        out.push(ImportInput { slug, files, cited_by: Vec::new() });
    }
    Ok(out)
}

/// What `imported/<arm>.json` says, as labels and values.
fn provenance_of(root: &Path, path: String, sha256: String) -> Result<ProvenanceInput> {
    let source = root.join(&path);
    let value: Value = serde_json::from_slice(&regular::bytes(&source)?)
        .map_err(|e| unreadable(&format!("is not JSON: {e}"), &source))?;
    let list = value["sources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sources = list.iter().map(|origin| {
        let word = |key: &str| origin[key].as_str().unwrap_or_default().to_string();
        let mut said = Vec::new();
        labels("", origin, &mut said);
        said.retain(|(label, _)| label != "file" && label != "sha256");
        (word("file"), word("sha256"), said)
    });
    let null_rewards = value["null_rewards"].as_u64().and_then(|n| usize::try_from(n).ok());
    Ok(ProvenanceInput { sources: sources.collect(), path, source, sha256, null_rewards })
}

/// Every value that is stated, under its keys in words, columns of a mapping under their names; what is null or
/// empty is left out.
fn labels(before: &str, value: &Value, out: &mut Vec<(String, String)>) {
    let mut add = |text: String| {
        if !text.is_empty() {
            out.push((before.to_string(), text));
        }
    };
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (key, inner) in map {
                let key = if before == "mapping" { key.clone() } else { key.replace('_', " ") };
                labels(&if before.is_empty() { key } else { format!("{before}: {key}") }, inner, out);
            }
        }
        Value::Array(items) => {
            let text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_string);
            add(items.iter().map(text).collect::<Vec<_>>().join(", "));
        }
        Value::String(text) => add(text.clone()),
        other => add(other.to_string()),
    }
}

fn contract(path: &str) -> &'static [Column] {
    let mut parts = path.split('/');
    // An earlier version of a file lies below `superseded/<n>/`.
    let first = match parts.next() {
        Some("superseded") => parts.nth(1),
        first => first,
    };
    match first {
        Some("episodes") => EpisodeRow::COLUMNS,
        Some("calls") => CallRow::COLUMNS,
        Some("harvest") => HarvestRow::COLUMNS,
        Some("training") => TrainingRow::COLUMNS,
        Some("imported") => ImportedRow::COLUMNS,
        _ => &[],
    }
}

fn kind(column: &Column) -> &'static str {
    match (column.kind, column.nullable) {
        (Kind::Text, false) => "text",
        (Kind::Text, true) => "text or null",
        (Kind::Int, false) => "integer",
        (Kind::Int, true) => "integer or null",
        (Kind::Real, false) => "number",
        (Kind::Real, true) => "number or null",
        (Kind::Flag, false) => "true or false",
        (Kind::Flag, true) => "true, false or null",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provenance_is_read_from_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let of = |path: &str| provenance_of(dir.path(), path.to_string(), "f".into());
        fs_err::write(
            dir.path().join("a.json"),
            r#"{"sources": [{"file": "x.eval", "model_name": "m",
                "mapping": {"task_id": "column `q`"}}], "null_rewards": 1}"#,
        )
        .unwrap();
        let read = of("a.json").unwrap();
        assert_eq!(read.null_rewards, Some(1));
        let said = read.sources;
        assert_eq!(said[0].0, "x.eval");
        assert_eq!(
            said[0].2,
            [("model name", "m"), ("mapping: task_id", "column `q`")]
                .map(|(a, b)| (a.to_string(), b.to_string()))
        );
        fs_err::write(dir.path().join("b.json"), "{").unwrap();
        assert!(of("b.json").is_err_and(|e| e.to_string().contains("is not JSON")));
        fs_err::create_dir(dir.path().join("c.json")).unwrap();
        assert!(of("c.json").is_err_and(|e| e.to_string().contains("no regular file")));
    }
}
