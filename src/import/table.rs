//! Plain rows: CSV, JSON lines or Parquet, read as `compare` reads them. Columns that are named as in
//! our contract are taken over; the others are named in the provenance.

use super::source::{self, Choices, Origin, Source};
use crate::compare::Options;
use crate::compare::columns::{self, Roles};
use crate::compare::rows::shown;
use crate::compare::table::{self, Field, Source as File, Table};
use crate::episode::ImportedRow;
use crate::error::{Error, Result};
use crate::hash;
use std::collections::BTreeMap;
use std::path::Path;

/// Columns beside those of `compare` that are taken over under their own name.
const OTHERS: [&str; 14] = [
    "model",
    "task_sha256",
    "level",
    "split",
    "stratum",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "think_tokens",
    "wall_ms",
    "solved_ms",
    "select_score",
    "started_at",
    "error",
];

/// Reads a table. `map` holds `OURS=YOURS` pairs as for `compare`.
pub fn read(path: &Path, origin: Origin, choices: &Choices, map: &[String]) -> Result<Source> {
    let bytes = table::bytes(path)?;
    // What is read below is what was hashed, whatever happens to the file meanwhile.
    let (sha256, length) = (hash::sha256_hex(&bytes), bytes.len() as u64);
    let file = File::open(path, bytes)?;
    let mut map = map.to_vec();
    if let Some(metric) = &choices.metric {
        map.push(format!("reward={metric}"));
    }
    let mapped = columns::mapping(&Options { map, ..Options::default() })?;
    // As of two files: whether an arm is needed, the caller knows.
    let mut roles = columns::roles(&file, &mapped, 2)?;
    for name in OTHERS {
        if file.names().iter().any(|there| there == name) {
            roles.insert(name, name.into());
        }
    }
    let mut wanted: Vec<&str> = roles.values().map(String::as_str).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let table = file.read(&wanted)?;
    if table.rows == 0 {
        return Err(Error::invalid("the file has no rows")
            .at(&table.path)
            .hint("it needs a row for each attempt"));
    }
    let ignored = file.names().iter().filter(|n| !wanted.contains(&n.as_str())).cloned().collect();
    let mut origin = Origin {
        sha256,
        bytes: length,
        format: "table",
        metric: roles.get("reward").cloned(),
        scale: choices.scale,
        solved_from: choices.solved_from,
        mapping: mapping(&roles, choices),
        ignored,
        ..origin
    };
    origin.counts.read = table.rows;
    let unit = if table.lines.is_some() { "line" } else { "row" };
    let mut source = Source { path: table.path.clone(), unit, origin, rows: Vec::with_capacity(table.rows) };
    for i in 0..table.rows {
        source.rows.push(row(&source.origin.file, &table, &roles, choices, i)?);
    }
    Ok(source)
}

fn mapping(roles: &Roles, choices: &Choices) -> BTreeMap<&'static str, String> {
    let mut mapping: BTreeMap<&'static str, String> = BTreeMap::new();
    for (ours, theirs) in roles {
        let ours = if *ours == "task" { "task_id" } else { ours };
        let more =
            if ours == "reward" { choices.scaled() + "; null where it is empty" } else { String::new() };
        mapping.insert(ours, format!("column `{theirs}`{more}"));
    }
    if !roles.contains_key("family") {
        mapping.insert("family", "the part of `task_id` before `/`, where it has one".into());
    }
    let said = roles.get("solved").map(|column| format!("column `{column}`"));
    mapping.insert("solved", choices.judged(said.as_deref()));
    mapping
}

fn row(file: &str, table: &Table, roles: &Roles, choices: &Choices, i: usize) -> Result<ImportedRow> {
    let number = table.lines.as_ref().and_then(|lines| lines.get(i)).copied().unwrap_or(i + 1);
    let at = Place { table, roles, i };
    let task = at.take("task", Field::name)?.ok_or_else(|| {
        Error::invalid(format!("`{}` is missing", at.column("task")))
            .at(table.place(i))
            .hint("every row needs one")
    })?;
    let score = at.take("reward", Field::number)?;
    let reward =
        score.map(|score| choices.reward(at.column("reward"), score, || table.place(i))).transpose()?;
    // As `compare` has it.
    let before =
        task.split_once('/').map(|(family, _)| family.to_owned()).filter(|family| !family.is_empty());
    let family = if roles.contains_key("family") { at.take("family", Field::name)? } else { before };
    Ok(ImportedRow {
        arm: at.take("arm", Field::name)?.unwrap_or_default(),
        model: at.take("model", Field::name)?,
        task_sha256: at.take("task_sha256", Field::name)?,
        family,
        level: at.take("level", integer)?,
        split: at.take("split", Field::name)?,
        stratum: at.take("stratum", Field::name)?,
        seed: at.take("seed", integer)?,
        train_seed: at.take("train_seed", integer)?,
        rollout: at.take("rollout", integer)?,
        reward,
        solved: choices.solved(at.take("solved", Field::flag)?, reward),
        finish_reason: at.take("finish_reason", Field::name)?,
        prompt_tokens: at.take("prompt_tokens", count)?,
        completion_tokens: at.take("completion_tokens", count)?,
        think_tokens: at.take("think_tokens", count)?,
        wall_ms: at.take("wall_ms", count)?,
        solved_ms: at.take("solved_ms", count)?,
        select_score: at.take("select_score", Field::number)?,
        started_at: at.take("started_at", Field::name)?,
        error: at.take("error", Field::name)?,
        ..source::blank(file, number, task)
    })
}

fn integer(field: &Field) -> Result<i64, String> {
    let whole = field.integer()?;
    i64::try_from(whole).map_err(|_| format!("is {whole}, which does not fit in 64 bits with a sign"))
}

fn count(field: &Field) -> Result<i64, String> {
    let whole = integer(field)?;
    if whole >= 0 { Ok(whole) } else { Err(format!("is {whole}, and counts are not negative")) }
}

/// One row of a table.
struct Place<'a> {
    table: &'a Table,
    roles: &'a Roles,
    i: usize,
}

impl Place<'_> {
    fn column<'s>(&'s self, role: &'s str) -> &'s str {
        self.roles.get(role).map_or(role, String::as_str)
    }

    /// The field of a role; `None` where it is empty or there is no such column.
    fn take<T>(&self, role: &str, coerce: impl Fn(&Field) -> Result<T, String>) -> Result<Option<T>> {
        let column = self.roles.get(role).and_then(|name| self.table.columns.get(name));
        let Some(field) = column.and_then(|fields| fields.get(self.i)).filter(|field| !field.is_null())
        else {
            return Ok(None);
        };
        coerce(field).map(Some).map_err(|why| {
            Error::invalid(format!("`{}` {why}", shown(self.column(role)))).at(self.table.place(self.i)).hint(
                "correct the field, leave it empty where it is missing, or name another column with --map",
            )
        })
    }
}
