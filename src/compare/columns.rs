//! Which column of a file plays which role: by its usual name, in any case of its letters, or by
//! `--map`; and what is said where a column that is needed is not there.

use super::Options;
use super::rows::shown;
use super::table::Source;
use crate::error::{Error, Result, nearest};
use std::collections::BTreeMap;

/// Our column names, each with the names it goes by in files.
const ROLES: [(&str, &[&str]); 8] = [
    ("task", &["task", "task_id"]),
    ("reward", &["reward"]),
    ("solved", &["solved"]),
    ("arm", &["arm"]),
    ("seed", &["seed"]),
    ("rollout", &["rollout"]),
    ("family", &["family"]),
    ("train_seed", &["train_seed"]),
];

/// Our column → the file's.
pub type Roles = BTreeMap<&'static str, String>;

/// Our column → the file's, as asked for by `--map` and `--training-seed`.
pub fn mapping(options: &Options) -> Result<Roles> {
    let mut mapped = BTreeMap::new();
    for entry in options.map.iter().filter(|e| !e.trim().is_empty()) {
        let (ours, theirs) = entry.split_once('=').ok_or_else(|| {
            Error::invalid(format!("`{entry}` is no mapping"))
                .at("--map")
                .hint("write OURS=YOURS, such as reward=score")
        })?;
        let (ours, theirs) = (ours.trim(), theirs.trim());
        let ours = if ours == "task_id" { "task" } else { ours };
        let names = ROLES.iter().map(|r| r.0);
        let role = names.clone().find(|r| *r == ours).ok_or_else(|| {
            let hint = match nearest(ours, names.clone()) {
                Some(near) => format!("did you mean {near}={theirs}?"),
                None => format!("our columns are {}", names.collect::<Vec<_>>().join(", ")),
            };
            Error::invalid(format!("`{ours}` is none of our columns")).at("--map").hint(hint)
        })?;
        if theirs.is_empty() || mapped.insert(role, theirs.to_owned()).is_some() {
            return Err(Error::invalid(format!("`{role}` is mapped to nothing, or twice")).at("--map"));
        }
    }
    if let Some(column) = &options.training_seed
        && mapped.insert("train_seed", column.clone()).is_some_and(|other| other != *column)
    {
        return Err(Error::invalid("the training seed is named twice")
            .at("--training-seed")
            .hint("leave it out of --map"));
    }
    Ok(mapped)
}

/// Our column → the file's, for one file. `task` and `reward` are always there. A name that fails
/// only by the case of its letters is taken where a single column has it.
pub fn roles(source: &Source, mapped: &Roles, files: usize) -> Result<Roles> {
    let has = |name: &str| source.names().iter().any(|n| n == name);
    let mut roles = BTreeMap::new();
    let mut missing = Vec::new();
    for (role, usual) in ROLES {
        let column = match mapped.get(role) {
            Some(column) if has(column) => Some(column.clone()),
            Some(column) => return Err(no_column(source, column, None)),
            None => match usual.iter().find(|n| has(n)) {
                Some(name) => Some((*name).to_owned()),
                None => in_other_case(source, role, usual)?,
            },
        };
        match column {
            Some(column) => drop(roles.insert(role, column)),
            // Two files may be an arm each; any other number of them needs the column.
            None if ["task", "reward"].contains(&role) || (role == "arm" && files != 2) => missing.push(role),
            None => {}
        }
    }
    match missing.as_slice() {
        // The arms have a message of their own.
        [] | ["arm"] => Ok(roles),
        [role] => Err(no_column(source, role, Some(role))),
        several => Err(no_columns(source, several)),
    }
}

/// The one column that goes by a usual name in other letters, such as `Task`.
fn in_other_case(source: &Source, role: &str, usual: &[&str]) -> Result<Option<String>> {
    let alike = |n: &&String| usual.iter().any(|u| u.eq_ignore_ascii_case(n));
    match source.names().iter().filter(alike).collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [only] => Ok(Some((*only).clone())),
        [first, others @ ..] => {
            let all = [first].into_iter().chain(others).map(|n| format!("`{}`", shown(n)));
            let what = format!("which column is `{role}` is open: {}", all.collect::<Vec<_>>().join(" or "));
            Err(Error::invalid(what)
                .at(source.path())
                .hint(format!("name it: --map {role}={}", shown(first))))
        }
    }
}

fn no_columns(source: &Source, missing: &[&str]) -> Error {
    let names = source.names();
    let listed = names.iter().take(20).map(|n| shown(n)).collect::<Vec<_>>().join(", ");
    let map = missing.iter().map(|role| {
        // Of a short word two other letters are within reach: a likeness has all but one of its own.
        let like = |near: &&str| role.chars().filter(|c| near.contains(*c)).count() + 1 >= role.len();
        let near = nearest(role, names.iter().map(String::as_str)).filter(like);
        format!("{role}={}", near.map_or_else(|| "COLUMN".into(), shown))
    });
    let map = map.collect::<Vec<_>>().join(",");
    let missing = missing.iter().map(|m| format!("`{m}`")).collect::<Vec<_>>().join(", ");
    Error::invalid(format!("there are no columns {missing}"))
        .at(source.path())
        .hint(format!("name those that hold them: --map {map}; the file has {listed}"))
}

fn no_column(source: &Source, column: &str, role: Option<&str>) -> Error {
    let near = nearest(column, source.names().iter().map(String::as_str));
    let listed = || source.names().iter().take(20).map(|n| shown(n)).collect::<Vec<_>>().join(", ");
    let hint = match (near, role) {
        (Some(near), Some(role)) => format!("if `{0}` is meant: --map {role}={0}", shown(near)),
        (Some(near), None) => format!("did you mean `{}`?", shown(near)),
        (None, Some(role)) => {
            format!("name the column that holds it: --map {role}=COLUMN; the file has {}", listed())
        }
        (None, None) => format!("the file has {}", listed()),
    };
    Error::invalid(format!("there is no column `{column}`")).at(source.path()).hint(hint)
}
