//! No episode counts twice: not within a file, not across files, not because a file is given twice
//! or as a copy. Attempts that no column numbers are numbered here, within one file only.

use super::Options;
use super::columns::Roles;
use super::rows::{Episode, Rows, shown};
use crate::error::{Error, Result};
use crate::stats::{Arm, Warning};
use std::collections::HashMap;
use std::path::PathBuf;

/// No file is given twice. Two arms in a file each may be the same text under two names: an arm can
/// change nothing; under one name they are one arm.
pub fn once(options: &Options, digests: &[String], with_arms: bool) -> Result<()> {
    for (i, path) in options.rows.iter().enumerate() {
        for (j, other) in options.rows.iter().enumerate().take(i) {
            let real = |p: &PathBuf| fs_err::canonicalize(p).ok();
            let same_path = path == other || real(path).is_some_and(|p| real(other) == Some(p));
            if same_path || (with_arms && digests.get(i) == digests.get(j)) {
                let what = if same_path { "this file is given twice, first as" } else { "this is a copy of" };
                return Err(Error::invalid(format!("{what} `{}` (file {} of {}): its rows would count twice", other.display(), j + 1, options.rows.len()))
                    .at(format!("{} (file {})", path.display(), i + 1))
                    .hint("name each file once; two arms in two files are the base arm's first, then the treatment's"));
            }
        }
    }
    Ok(())
}

/// (arm, task, seed, train_seed): what repeated attempts share.
type CellKey<'a> = (Arm, &'a str, i128, Option<i128>);

fn cell(e: &Episode) -> CellKey<'_> {
    (e.arm, &e.task, e.seed, e.train_seed)
}

fn unnumbered(e: &Episode, named: &[Roles]) -> bool {
    named.get(e.origin.0).is_some_and(|roles| !roles.contains_key("rollout"))
}

/// Gives the rows of files without a `rollout` column their index within their cell.
pub fn number_rollouts(episodes: &mut [Episode], named: &[Roles]) {
    let mut next: HashMap<CellKey<'_>, i128> = HashMap::new();
    let mut indices = Vec::with_capacity(episodes.len());
    for e in episodes.iter() {
        indices.push(unnumbered(e, named).then(|| {
            let count = next.entry(cell(e)).or_insert(0);
            *count += 1;
            *count - 1
        }));
    }
    for (e, index) in episodes.iter_mut().zip(indices) {
        e.rollout = index.unwrap_or(e.rollout);
    }
}

/// Rows without a rollout of their own share their cell with no other file: whether they are
/// further attempts there or the same ones once more could not be told.
pub fn unnumbered_in_one_file(rows: &Rows, named: &[Roles]) -> Result<()> {
    let mut first_of: HashMap<CellKey<'_>, &Episode> = HashMap::new();
    for e in &rows.episodes {
        let first = *first_of.entry(cell(e)).or_insert(e);
        if first.origin.0 != e.origin.0 && (unnumbered(e, named) || unnumbered(first, named)) {
            return Err(Error::invalid(format!(
                "{} is also in another file, at {}, and not all attempts are numbered: they may be the same ones",
                described(rows, e),
                rows.place(first)
            ))
            .at(rows.place(e))
            .hint("give the attempts a `rollout` column that counts on from file to file, or leave one of the files out"));
        }
    }
    Ok(())
}

/// A warning where no column numbers the attempts and all attempts at every task came out alike: rows
/// written twice look like that, and so does greedy decoding done several times.
pub fn identical(rows: &Rows) -> Option<Warning> {
    if !rows.warnings.iter().any(|w| w.code == "default_rollout") {
        return None;
    }
    let mut cells: HashMap<CellKey<'_>, Vec<&Episode>> = HashMap::new();
    for e in &rows.episodes {
        cells.entry(cell(e)).or_default().push(e);
    }
    let alike = |of: &Vec<&Episode>| {
        of.len() > 1 && of.iter().all(|e| (e.reward, e.solved) == (of[0].reward, of[0].solved))
    };
    let several = cells.len() > 2 && cells.values().all(alike);
    several.then(|| {
        let text = "all attempts at a task gave the same result, at every task and in both arms: if the rows were written twice, give them once; they add nothing to the interval, and pass@k counts them as attempts";
        Warning::new("identical_attempts", text)
    })
}

/// A cell in words: `arm …, task …, seed …`.
fn described(rows: &Rows, e: &Episode) -> String {
    let arm = if e.arm == Arm::Base { &rows.base } else { &rows.treatment };
    let training = e.train_seed.map_or_else(String::new, |s| format!(", training seed {s}"));
    format!("arm `{}`, task `{}`, seed {}{training}", shown(arm), shown(&e.task), e.seed)
}

/// Each (arm, task, seed, train_seed, rollout) is there once.
pub fn unique(rows: &Rows) -> Result<()> {
    let mut seen: HashMap<(CellKey<'_>, i128), &Episode> = HashMap::with_capacity(rows.episodes.len());
    for e in &rows.episodes {
        if let Some(first) = seen.insert((cell(e), e.rollout), e) {
            return Err(Error::invalid(format!(
                "{}, rollout {} was there before, at {}",
                described(rows, e),
                e.rollout,
                rows.place(first)
            ))
            .at(rows.place(e))
            .hint("remove the repeated row, or name the column that tells attempts apart: --map rollout=COLUMN (or --training-seed COLUMN)"));
        }
    }
    Ok(())
}
