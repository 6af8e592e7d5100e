//! A page for each data file: first rows with the meaning of every column, where imported rows come
//! from, hash, size and the file itself, copied beside the page of its experiment or import under the path
//! it has in the workspace.

use super::{Head, Site};
use crate::episode::row::Cell;
use crate::error::Result;
use crate::site::input::{FileInput, ProvenanceInput, Publication};
use crate::site::prose::{Prose, plain};
use crate::site::text::{breakable, count, counted, cut, link, root_of, sentence, short_hash, size};
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

/// What data files belong to: an experiment, or an import.
pub struct Owner<'a> {
    /// `experiments` or `imports`.
    pub shelf: &'static str,
    /// Its folder name.
    pub slug: &'a str,
    /// Its title.
    pub title: &'a str,
}

/// The page of a data file, by its path in the workspace; `None` for one that the site does not show.
pub fn page_of(publication: &Publication, path: &str) -> Option<String> {
    let (slug, rest) = path.strip_prefix("data/")?.split_once('/')?;
    let of_experiment =
        publication.experiments.iter().find(|e| e.slug == slug).map(|e| ("experiments", &e.files));
    let of_import = publication.imports.iter().find(|i| i.slug == slug).map(|i| ("imports", &i.files));
    let (shelf, files) = of_experiment.or(of_import)?;
    let shown = files.iter().any(|file| file.path == rest);
    shown.then(|| format!("{shelf}/{slug}/data/{}/index.html", link(&folder(rest))))
}

/// A page and a copy for each of these files.
pub fn pages(site: &mut Site<'_>, owner: &Owner<'_>, files: &[FileInput]) -> Result<()> {
    for file in files {
        let base = format!("{}/{}/files", owner.shelf, owner.slug);
        site.files.copy(&format!("{base}/{}", file.path), &file.source, &file.sha256)?;
        if let Some(from) = &file.provenance {
            site.files.copy(&format!("{base}/{}", from.path), &from.source, &from.sha256)?;
        }
        page(site, owner, file)?;
    }
    Ok(())
}

fn page(site: &mut Site<'_>, owner: &Owner<'_>, file: &FileInput) -> Result<()> {
    let address = format!("{}/{}/data/{}/index.html", owner.shelf, owner.slug, folder(&file.path));
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
        "slug": owner.slug,
        "shelf": owner.shelf,
        "owner_title": owner.title,
        "path_html": breakable(&file.path),
        "path": file.path,
        "href": format!("../../files/{}", link(&file.path)),
        "sha256": file.sha256,
        "provenance": file.provenance.as_ref().map(|from| {
            let before = usize::from(!file.preview.is_empty()) + usize::from(!file.columns.is_empty());
            provenance(from, before + 1)
        }),
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
        description: &format!("First rows, columns and hash of {} from {}.", file.path, owner.title),
        nav: owner.shelf,
    };
    site.page(&head, context)
}

/// The section of that number.
fn provenance(from: &ProvenanceInput, number: usize) -> Value {
    let sources = from.sources.iter().map(|(name, sha256, said)| {
        json!({
            "name_html": breakable(name),
            "sha256": sha256,
            "said": said.iter().map(|(label, value)| json!({"label": sentence(label), "value": value})).collect::<Vec<_>>(),
        })
    });
    json!({
        "no": number,
        "href": format!("../../files/{}", link(&from.path)),
        "size": counted(from.sources.len(), "source file"),
        "sources": sources.collect::<Vec<_>>(),
    })
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
