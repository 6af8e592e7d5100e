//! From checked rows to `data/<name>/imported/<arm>.parquet`, with `<arm>.json` beside it saying where they
//! come from, both listed in `hashes.json`. That list is written last: what it does not name is no data.

use super::check;
use super::source::{Origin, Source};
use crate::compare::rows::shown;
use crate::episode::{ImportedRow, Row, chain, durable, hashes, table};
use crate::error::{Error, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where the rows of one arm come from; `imported/<arm>.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Provenance {
    /// The folder's name under `data/`.
    pub experiment: String,
    /// The arm.
    pub arm: String,
    /// The rows.
    pub rows: usize,
    /// Different tasks among them.
    pub tasks: usize,
    /// Rows without a reward.
    pub null_rewards: usize,
    /// Version of the program that imported them.
    pub rederive_version: String,
    /// The files, in the order in which they were given.
    pub sources: Vec<Origin>,
}

/// What an import wrote, or would write.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Written {
    /// The folder's name under `data/`.
    pub experiment: String,
    /// Files of rows and of provenance that were written, relative to the workspace.
    pub written: Vec<String>,
    /// Files of rows that were there already, with the same rows.
    pub unchanged: Vec<String>,
    /// Each arm that was imported.
    pub arms: Vec<Provenance>,
    /// What stands in the way of comparing them.
    pub notes: Vec<String>,
}

/// One arm, ready to be written.
struct Arm {
    provenance: Provenance,
    rows: Vec<ImportedRow>,
}

pub fn write(workspace: &Path, name: &str, sources: Vec<Source>, dry_run: bool) -> Result<Written> {
    let root = workspace.join("data").join(name);
    let known = others(&root, &sources)?;
    check::same_questions(&sources, &known)?;
    check::one_family(&sources, &known)?;
    let mut out = Written {
        experiment: name.into(),
        written: Vec::new(),
        unchanged: Vec::new(),
        arms: Vec::new(),
        notes: check::apart(&sources),
    };
    let mut files = Vec::new();
    for mut arm in arms(name, sources) {
        chain::seal(&mut arm.rows)?;
        let path = format!("{}/{}.parquet", ImportedRow::DATA_SET, arm.provenance.arm);
        let bytes = table::encode(&arm.rows)?;
        let entry = hashes::FileHash::of(&bytes, arm.rows.len(), chain::last(&arm.rows));
        let here = format!("data/{name}/{path}");
        match hashes::read(&root)?.get(&path) {
            Some(known) if root.join(&path).exists() => {
                hashes::verify_file(&root, &path)?;
                if known.sha256 != entry.sha256 {
                    return Err(Error::invalid(format!(
                        "arm `{}` is imported already, with other rows",
                        arm.provenance.arm
                    ))
                    .at(workspace.join(&here).display())
                    .hint("choose another --name or --arm; to replace the rows, delete this file first"));
                }
                out.unchanged.push(here);
            }
            _ => {
                let json = serde_json::to_string_pretty(&arm.provenance)
                    .map_err(|e| Error::invalid(format!("the provenance cannot be written: {e}")))?
                    + "\n";
                let beside = path.replace(".parquet", ".json");
                out.written.extend([here, format!("data/{name}/{beside}")]);
                files.push((beside, hashes::FileHash::of(json.as_bytes(), 0, None), json.into_bytes()));
                files.push((path, entry, bytes));
            }
        }
        out.arms.push(arm.provenance);
    }
    if !dry_run && !files.is_empty() {
        for (path, _, bytes) in &files {
            durable::write(&root.join(path), bytes)?;
        }
        hashes::update(&root, files.into_iter().map(|(path, entry, _)| (path, entry)))?;
    }
    Ok(out)
}

/// Folders under `data/` that hold imported rows, sorted.
pub fn imported(workspace: &Path) -> Result<Vec<String>> {
    let mut names = crate::workspace::data_folders(workspace)?;
    names.retain(|name| workspace.join("data").join(name).join("imported").is_dir());
    Ok(names)
}

/// Rows of the arms that are there already and are not imported now.
fn others(root: &Path, sources: &[Source]) -> Result<Vec<ImportedRow>> {
    let now: BTreeSet<&str> = sources.iter().flat_map(|s| &s.rows).map(|row| row.arm.as_str()).collect();
    let mut rows: Vec<ImportedRow> = Vec::new();
    for path in hashes::read(root)?.into_keys() {
        let arm = path.strip_prefix("imported/").and_then(|rest| rest.strip_suffix(".parquet"));
        if arm.is_some_and(|arm| !now.contains(arm)) && root.join(&path).exists() {
            hashes::verify_file(root, &path)?;
            rows.extend(table::read_chain_checked::<ImportedRow>(&root.join(&path))?);
        }
    }
    let seeded = sources.iter().flat_map(|s| &s.rows).next().map(|row| row.seed.is_some());
    if let Some(row) = rows.iter().find(|row| seeded.is_some_and(|seeded| row.seed.is_some() != seeded)) {
        return Err(Error::invalid(format!(
            "arm `{}` is imported already, and only one of the two has seeds",
            shown(&row.arm)
        ))
        .at(root.display())
        .hint("rows with a seed and rows without cannot be paired: choose another --name"));
    }
    Ok(rows)
}

/// The rows by arm, in the order in which arms first appear, with what is known of them.
fn arms(name: &str, sources: Vec<Source>) -> Vec<Arm> {
    let mut arms: Vec<Arm> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        for mut row in source.rows {
            row.experiment = name.into();
            let place = *places.entry(row.arm.clone()).or_insert(arms.len());
            if place == arms.len() {
                arms.push(Arm {
                    provenance: Provenance {
                        experiment: name.into(),
                        arm: row.arm.clone(),
                        rows: 0,
                        tasks: 0,
                        null_rewards: 0,
                        rederive_version: env!("CARGO_PKG_VERSION").into(),
                        sources: Vec::new(),
                    },
                    rows: Vec::new(),
                });
            }
            let arm = &mut arms[place];
            if arm.provenance.sources.last().is_none_or(|last| last.file != source.origin.file) {
                arm.provenance.sources.push(source.origin.clone());
            }
            arm.rows.push(row);
        }
    }
    for Arm { provenance, rows } in &mut arms {
        provenance.rows = rows.len();
        provenance.null_rewards = rows.iter().filter(|row| row.reward.is_none()).count();
        provenance.tasks = rows.iter().map(|row| &row.task_id).collect::<BTreeSet<_>>().len();
    }
    arms
}

/// The command that compares what was imported, for the last line of the report.
pub fn compare_command(workspace: &Path, written: &Written) -> Option<String> {
    let [base, treatment] = written.arms.as_slice() else { return None };
    // The first is the base unless another is called so.
    let (base, treatment) = if treatment.arm == "base" { (treatment, base) } else { (base, treatment) };
    let path =
        |arm: &Provenance| workspace.join(format!("data/{}/imported/{}.parquet", arm.experiment, arm.arm));
    let flags = match (base.arm.as_str(), treatment.arm.as_str()) {
        ("base", _) | (_, "treatment") => String::new(),
        (base, treatment) => format!(" --base {base} --treatment {treatment}"),
    };
    Some(format!("rederive compare {} {}{flags}", path(base).display(), path(treatment).display()))
}
