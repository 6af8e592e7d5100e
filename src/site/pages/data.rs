//! A page for each data file: first rows with the meaning of every column, hash, size and the file
//! itself, copied beside the experiment's page under the path it has in the workspace.

use super::{Head, Site};
use crate::episode::row::Cell;
use crate::error::Result;
use crate::site::input::{ExperimentInput, FileInput};
use crate::site::prose::{Prose, plain};
use crate::site::text::{breakable, count, counted, cut, link, root_of, short_hash, size};
use serde_json::{Value, json};

/// The last part of a data page's folder: the file's path with `--` for `/`.
pub fn folder(path: &str) -> String {
    path.replace('/', "--")
}

/// Columns that say most about a row; the preview begins with those that a file has.
const TELLING: [&str; 9] = [
    "task_id",
    "family",
    "seed",
    "rollout",
    "reward",
    "solved",
    "parse_ok",
    "finish_reason",
    "completion_tokens",
];

/// The preview's order of a file's columns: the telling ones, then the rest as in the file.
fn order(file: &FileInput) -> Vec<usize> {
    let mut order: Vec<usize> = (0..file.columns.len()).collect();
    let rank = |i: &usize| {
        let name = file.columns.get(*i).map_or("", |(name, ..)| name.as_str());
        TELLING.iter().position(|telling| *telling == name).unwrap_or(TELLING.len())
    };
    order.sort_by_key(rank);
    order
}

/// A page and a copy for each of the experiment's files.
pub fn pages(site: &mut Site<'_>, experiment: &ExperimentInput) -> Result<()> {
    for file in &experiment.files {
        let base = format!("experiments/{}", experiment.slug);
        site.files.copy(&format!("{base}/files/{}", file.path), &file.source, &file.sha256)?;
        page(site, experiment, file)?;
    }
    Ok(())
}

fn page(site: &mut Site<'_>, experiment: &ExperimentInput, file: &FileInput) -> Result<()> {
    let address = format!("experiments/{}/data/{}/index.html", experiment.slug, folder(&file.path));
    let numeric: Vec<bool> = (0..file.columns.len())
        .map(|i| {
            let cells = || file.preview.iter().filter_map(move |row| row.get(i));
            cells().any(|c| c.number().is_some())
                && !cells().any(|c| matches!(c, Cell::Text(_) | Cell::Flag(_)))
        })
        .collect();
    let mut prose = Prose::new(site.publication, &root_of(&address));
    let mut columns = Vec::new();
    for ((name, kind, doc), numeric) in file.columns.iter().zip(&numeric) {
        columns.push(json!({
            "name_html": breakable(name),
            "kind": kind,
            "doc": plain(doc),
            "doc_html": prose.inline(doc, &file.path)?,
            "numeric": numeric,
        }));
    }
    let order = order(file);
    let preview: Vec<Vec<Value>> = file
        .preview
        .iter()
        .map(|row| order.iter().filter_map(|i| Some(cell((row.get(*i)?, numeric.get(*i)?)))).collect())
        .collect();
    let heads: Vec<&Value> = order.iter().filter_map(|i| columns.get(*i)).collect();
    let context = json!({
        "slug": experiment.slug,
        "experiment_title": experiment.title,
        "path_html": breakable(&file.path),
        "path": file.path,
        "href": format!("../../files/{}", link(&file.path)),
        "sha256": file.sha256,
        "size": size(file.bytes),
        "rows": count(file.rows),
        "columns_size": counted(columns.len(), "column"),
        "heads": heads,
        "rows_size": counted(file.rows, "row"),
        "columns": columns,
        "preview_size": count(preview.len()),
        "preview": preview,
    });
    let head = Head {
        address: &address,
        template: "data.html",
        title: &file.path,
        description: &format!("First rows, columns and hash of {} from {}.", file.path, experiment.title),
        nav: "experiments",
    };
    site.page(&head, context)
}

/// A cell of the preview: hashes are cut, missing values are a dash.
fn cell((cell, numeric): (&Cell, &bool)) -> Value {
    let text = cell.to_string();
    let hash = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    json!({
        "text": if hash { format!("{}…", short_hash(&text)) } else { cut(&text, 80) },
        "numeric": numeric,
        "mono": hash,
    })
}
