//! What must hold over all rows of an import: an arm for every row, each attempt once, seeds for all or
//! for none, and one question behind one task id.

use super::source::Source;
use crate::compare::rows::shown;
use crate::episode::ImportedRow;
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Letters of an arm's name: it names files and stands in addresses.
fn is_arm(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
}

/// Gives the rows of every source their arm: the one named for the source, or for all, or in the rows.
pub fn arms(sources: &mut [Source], named: &[String]) -> Result<()> {
    for name in named {
        if !is_arm(name) {
            return Err(Error::invalid(format!("`{}` is not an arm name", shown(name)))
                .at("--arm")
                .hint("use a-z, 0-9, `_` and `-`, such as `base` or `treatment`"));
        }
    }
    if ![0, 1, sources.len()].contains(&named.len()) {
        return Err(Error::invalid(format!("{} arms are named for {} files", named.len(), sources.len()))
            .at("--arm")
            .hint("give --arm once for all files, or once for each of them in their order"));
    }
    for (i, source) in sources.iter_mut().enumerate() {
        let arm = if named.len() == 1 { named.first() } else { named.get(i) };
        let own = source.rows.iter().any(|row| !row.arm.is_empty());
        match arm {
            Some(_) if own => {
                return Err(Error::invalid("the file names the arm of its rows itself")
                    .at(&source.path)
                    .hint("leave out --arm, or map the column: --map arm=COLUMN"));
            }
            Some(arm) => source.rows.iter_mut().for_each(|row| row.arm.clone_from(arm)),
            None if !own => {
                return Err(Error::invalid("nothing says which arm these rows are of")
                    .at(&source.path)
                    .hint("name it, once a file in their order, such as --arm base --arm treatment"));
            }
            None => {}
        }
        if let Some(row) = source.rows.iter().find(|row| !is_arm(&row.arm)) {
            let what = if row.arm.is_empty() {
                "the arm is missing".into()
            } else {
                format!("`{}` is not an arm name", shown(&row.arm))
            };
            return Err(Error::invalid(what).at(source.place(row)).hint("use a-z, 0-9, `_` and `-`"));
        }
    }
    Ok(())
}

/// No file is given twice, and within an arm no two have one name. Two arms may well have the same samples: an arm
/// can change nothing. But no two logs of Inspect are alike, since each names its run.
pub fn files(sources: &[Source]) -> Result<()> {
    let arms = |source: &Source| source.rows.iter().map(|row| row.arm.clone()).collect::<BTreeSet<_>>();
    for (i, source) in sources.iter().enumerate() {
        for other in &sources[..i] {
            let real = |source: &Source| fs_err::canonicalize(&source.path).ok();
            let alike = source.origin.format == "inspect" && source.origin.sha256 == other.origin.sha256;
            if alike || source.path == other.path || (real(source).is_some() && real(source) == real(other)) {
                return Err(Error::invalid(format!("this is the same file as {}", other.path))
                    .at(&source.path)
                    .hint("name each file once"));
            }
            if source.origin.file == other.origin.file && !arms(source).is_disjoint(&arms(other)) {
                return Err(Error::invalid(format!(
                    "{} has the same name and rows of the same arm, which are told apart by it",
                    other.path
                ))
                .at(&source.path)
                .hint("rename one of the two files, or give them different arms"));
            }
        }
    }
    Ok(())
}

/// A task is of one family, whichever arm and file it stands in.
pub fn one_family(sources: &[Source], known: &[ImportedRow]) -> Result<()> {
    let mut families: HashMap<&str, &Option<String>> =
        known.iter().map(|row| (row.task_id.as_str(), &row.family)).collect();
    for (source, row) in all(sources) {
        let first = *families.entry(&row.task_id).or_insert(&row.family);
        if first != &row.family {
            let word = |family: &Option<String>| {
                family.as_ref().map_or("none".into(), |f| format!("`{}`", shown(f)))
            };
            return Err(Error::invalid(format!(
                "task `{}` is of family {} here, and of {} before",
                shown(&row.task_id),
                word(&row.family),
                word(first)
            ))
            .at(source.place(row))
            .hint("give all rows of a task the same family, or the tasks different ids"));
        }
    }
    Ok(())
}

/// What is said of arms that have no task in common: each is a data set by itself.
pub fn apart(sources: &[Source]) -> Vec<String> {
    let mut tasks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, row) in all(sources) {
        tasks.entry(&row.arm).or_default().insert(&row.task_id);
    }
    let mut arms = tasks.values();
    let first = arms.next().cloned().unwrap_or_default();
    let shared = arms.fold(first, |shared, arm| shared.intersection(arm).copied().collect());
    match shared.is_empty() && tasks.len() > 1 {
        true => vec!["no task is in all of these arms, so nothing can be compared over them".to_owned()],
        false => Vec::new(),
    }
}

/// Each (arm, task, seed, training seed, rollout) is there once.
pub fn once(sources: &[Source]) -> Result<()> {
    let mut seen = HashMap::new();
    for (source, row) in all(sources) {
        let key = (&row.arm, &row.task_id, row.seed, row.train_seed, row.rollout);
        if let Some((first, at)) = seen.insert(key, (source, row)) {
            let seed = row.seed.map_or_else(String::new, |s| format!(", seed {s}"));
            let rollout = row.rollout.map_or_else(String::new, |r| format!(", rollout {r}"));
            let hint = if row.rollout.is_none() && source.origin.format == "table" {
                "remove the repeated row, or number attempts in a `rollout` column"
            } else {
                "remove the repeated row, or give the second file another --arm"
            };
            return Err(Error::invalid(format!(
                "arm `{}`, task `{}`{seed}{rollout} was there before, at {}",
                row.arm,
                shown(&row.task_id),
                first.place(at)
            ))
            .at(source.place(row))
            .hint(hint));
        }
    }
    Ok(())
}

/// Seeds (and training seeds within an arm) stand in all rows or in none: a missing one pairs with nothing.
pub fn throughout(sources: &[Source]) -> Result<()> {
    let mut seeded: Option<bool> = None;
    let mut trained: HashMap<&str, bool> = HashMap::new();
    for (source, row) in all(sources) {
        let missing = |what: &str, whose: &str| {
            Error::invalid(format!("{what} is missing here or in other rows{whose}"))
                .at(source.place(row))
                .hint("give it to all rows or to none")
        };
        if *seeded.get_or_insert(row.seed.is_some()) != row.seed.is_some() {
            return Err(missing("the seed", ""));
        }
        if *trained.entry(&row.arm).or_insert(row.train_seed.is_some()) != row.train_seed.is_some() {
            return Err(missing("the training seed", &format!(" of arm `{}`", row.arm)));
        }
    }
    Ok(())
}

/// One task id stands for one question, whoever answers it. `known` are rows that are there already.
pub fn same_questions(sources: &[Source], known: &[ImportedRow]) -> Result<()> {
    let mut questions: HashMap<&str, (&str, String)> = HashMap::new();
    for row in known {
        if let Some(hash) = &row.task_sha256 {
            let place = || format!("arm `{}`, which is imported already", row.arm);
            questions.entry(&row.task_id).or_insert_with(|| (hash, place()));
        }
    }
    for (source, row) in all(sources) {
        let Some(hash) = &row.task_sha256 else { continue };
        let (first, place) = questions.entry(&row.task_id).or_insert_with(|| (hash, source.place(row)));
        if first != hash {
            return Err(Error::invalid(format!("task `{}` asks something else than in {place}", shown(&row.task_id)))
                .at(source.place(row))
                .hint("arms are compared task by task: import logs of one version of the task, or give each its own --name"));
        }
    }
    Ok(())
}

fn all(sources: &[Source]) -> impl Iterator<Item = (&Source, &ImportedRow)> {
    sources.iter().flat_map(|source| source.rows.iter().map(move |row| (source, row)))
}
