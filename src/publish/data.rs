//! The data files of an experiment, with their first rows and the doc strings of their columns.

use super::unreadable;
use crate::episode::row::{CallRow, Column, EpisodeRow, HarvestRow, ImportedRow, Kind, Row, TrainingRow};
use crate::episode::{hashes, preview};
use crate::error::Result;
use crate::site::input::FileInput;
use std::path::Path;

/// Rows shown of each file.
const PREVIEW_ROWS: usize = 20;

/// Every listed Parquet file, in order of its path.
pub(super) fn files(root: &Path) -> Result<Vec<FileInput>> {
    let mut out = Vec::new();
    for (path, listed) in hashes::read(root)? {
        if !path.ends_with(".parquet") {
            continue;
        }
        let source = root.join(&path);
        if !source.exists() {
            return Err(unreadable("a listed data file is missing", &source));
        }
        let head = preview::preview(&source, PREVIEW_ROWS)?;
        let contract = contract(&path);
        let columns = head
            .columns
            .iter()
            .map(|name| {
                let column = contract.iter().find(|c| c.name == name);
                let kind = column.map_or("", |c| kind(c));
                (name.clone(), kind.to_string(), column.map_or("", |c| c.doc.trim()).to_string())
            })
            .collect();
        out.push(FileInput {
            path,
            source,
            sha256: listed.sha256,
            bytes: listed.bytes,
            rows: head.total_rows,
            columns,
            preview: head.rows,
        });
    }
    Ok(out)
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
