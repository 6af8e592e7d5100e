//! The seed ledger of a workspace: `data/seeds.jsonl`, append-only. A seed is spent once, by
//! one experiment for one purpose; spending it again elsewhere is refused.

use super::plan::Purpose;
use crate::error::{Error, Result};
use crate::regular;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// The event seed.
    pub seed: u64,
    /// What for.
    pub purpose: Purpose,
    /// By which experiment.
    pub experiment: String,
    /// When, UTC.
    pub at: String,
}

/// Where the ledger lies.
pub fn path(workspace: &Path) -> PathBuf {
    workspace.join("data").join("seeds.jsonl")
}

/// All spent seeds, oldest first. A torn last line (power loss while appending) is ignored; a whole one
/// that only lacks its line end (an editor's habit) counts.
pub fn read(workspace: &Path) -> Result<Vec<Spent>> {
    let path = path(workspace);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = regular::text(&path)?;
    let (complete, tail) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
    let tail = Some(tail).filter(|tail| is_entry(tail));
    let mut spent = Vec::new();
    for (i, line) in complete.lines().chain(tail).enumerate() {
        let entry = serde_json::from_str(line).map_err(|e| {
            Error::invalid(format!("not a ledger entry: {e}"))
                .at(format!("{}:{}", path.display(), i + 1))
                .hint("restore the ledger from version control; it is append-only")
        })?;
        spent.push(entry);
    }
    Ok(spent)
}

/// Those of the seeds that an experiment may spend and has not spent yet. The same experiment and
/// purpose may come back (a resumed run); anyone else is refused.
pub fn check(workspace: &Path, experiment: &str, purpose: Purpose, seeds: &[u64]) -> Result<Vec<Spent>> {
    let ledger = read(workspace)?;
    let mut fresh = Vec::new();
    for seed in seeds {
        match ledger.iter().find(|s| s.seed == *seed) {
            None => fresh.push(Spent {
                seed: *seed,
                purpose,
                experiment: experiment.into(),
                at: crate::clock::now(),
            }),
            Some(s) if s.experiment == experiment && s.purpose == purpose => {}
            Some(s) => {
                return Err(Error::invalid(format!(
                    "seed {seed} was already spent by `{}` ({}) on {}",
                    s.experiment,
                    s.purpose.as_str(),
                    s.at
                ))
                .at(format!("data/{experiment}/experiment.toml: [seeds] {}", purpose.as_str()))
                .hint("choose a seed that is not in data/seeds.jsonl"));
            }
        }
    }
    Ok(fresh)
}

/// Spends seeds for an experiment, once; where [`check`] refuses one, nothing is written.
pub fn spend(workspace: &Path, experiment: &str, purpose: Purpose, seeds: &[u64]) -> Result<()> {
    let fresh = check(workspace, experiment, purpose, seeds)?;
    if fresh.is_empty() {
        return Ok(());
    }
    let path = path(workspace);
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder)?;
    }
    let mut lines = String::new();
    for entry in &fresh {
        lines.push_str(&serde_json::to_string(entry).map_err(|e| Error::invalid(e.to_string()))?);
        lines.push('\n');
    }
    let mut file = fs_err::OpenOptions::new().create(true).append(true).read(true).open(&path)?;
    mend_last_line(&mut file)?;
    file.write_all(lines.as_bytes())?;
    file.sync_data()?;
    Ok(())
}

fn is_entry(line: &str) -> bool {
    serde_json::from_str::<Spent>(line).is_ok()
}

/// Drops a torn last line, and ends a whole one.
fn mend_last_line(file: &mut fs_err::File) -> Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    let keep = text.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    if std::str::from_utf8(&text[keep..]).is_ok_and(is_entry) {
        file.write_all(b"\n")?;
    } else if keep < text.len() {
        file.set_len(keep as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_without_its_end_counts_and_a_torn_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        spend(dir.path(), "a", Purpose::Evaluate, &[1, 2]).unwrap();
        let text = fs_err::read_to_string(path(dir.path())).unwrap();
        fs_err::write(path(dir.path()), text.trim_end()).unwrap();
        assert_eq!(read(dir.path()).unwrap().len(), 2);
        spend(dir.path(), "a", Purpose::Evaluate, &[3]).unwrap();
        assert_eq!(read(dir.path()).unwrap().len(), 3);
        fs_err::write(path(dir.path()), &text[..text.len() - 5]).unwrap();
        assert_eq!(read(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_seed_is_spent_once() {
        let dir = tempfile::tempdir().unwrap();
        spend(dir.path(), "a", Purpose::Evaluate, &[1, 2]).unwrap();
        spend(dir.path(), "a", Purpose::Evaluate, &[1, 2, 3]).unwrap();
        let before = fs_err::read(path(dir.path())).unwrap();
        let e = spend(dir.path(), "b", Purpose::Evaluate, &[9, 2]).unwrap_err();
        assert!(e.to_string().contains("seed 2 was already spent by `a`"), "{e}");
        assert_eq!(e.exit_code(), 2);
        assert!(spend(dir.path(), "a", Purpose::Harvest, &[1]).is_err());
        assert_eq!(before, fs_err::read(path(dir.path())).unwrap());
        assert_eq!(read(dir.path()).unwrap().len(), 3);
    }

    #[test]
    fn a_torn_line_is_dropped_and_a_broken_one_named() {
        let dir = tempfile::tempdir().unwrap();
        spend(dir.path(), "a", Purpose::Evaluate, &[1]).unwrap();
        let p = path(dir.path());
        let mut text = fs_err::read_to_string(&p).unwrap();
        text.push_str("{\"seed\": 5, \"purp");
        fs_err::write(&p, &text).unwrap();
        spend(dir.path(), "a", Purpose::Evaluate, &[2]).unwrap();
        assert_eq!(read(dir.path()).unwrap().iter().map(|s| s.seed).collect::<Vec<_>>(), [1, 2]);
        fs_err::write(&p, "nonsense\n").unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("seeds.jsonl:1"));
    }
}
