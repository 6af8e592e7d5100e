//! From the write-ahead file of a complete unit to its final files. Every step replaces a file
//! as a whole and the write-ahead file goes last, so that after a crash anywhere the same call
//! gives the same files.

use super::hashes::{self, FileHash};
use super::row::{CallRow, EpisodeRow};
use super::transcript::Transcript;
use super::unit::UnitFiles;
use super::wal::{Records, Wal};
use super::{chain, durable, table, transcript};
use crate::error::Result;

/// A step that is done and durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `episodes/…` is written.
    Episodes,
    /// `calls/…` is written.
    Calls,
    /// `transcripts/…` is written, where there is one.
    Transcripts,
    /// `hashes.json` lists them.
    Hashes,
    /// The write-ahead file is gone.
    WriteAhead,
}

/// Writes a unit's files from all its records, lists them in `hashes.json` and removes the write-ahead
/// file. `after` is called when a step is durable; its error stops there.
/// Transcripts are written if `publish`.
pub fn compact(
    files: &UnitFiles,
    records: Records,
    wal: Wal,
    publish: bool,
    after: &mut dyn FnMut(Step) -> Result<()>,
) -> Result<()> {
    let mut episodes: Vec<EpisodeRow> = Vec::with_capacity(records.len());
    let mut calls: Vec<CallRow> = Vec::new();
    let mut transcripts: Vec<Transcript> = Vec::new();
    // A map in key order: task id by its bytes, then rollout. Calls follow in turn order.
    for record in records.into_values() {
        episodes.push(record.episode);
        calls.extend(record.calls);
        transcripts.extend(record.transcript);
    }
    chain::seal(&mut episodes)?;
    chain::seal(&mut calls)?;

    let mut listed = Vec::new();
    let mut put = |relative: String, bytes: Vec<u8>, rows: usize, last: Option<String>| -> Result<()> {
        durable::write(&files.path(&relative), &bytes)?;
        listed.push((relative, FileHash::of(&bytes, rows, last)));
        Ok(())
    };
    put(files.episodes(), table::encode(&episodes)?, episodes.len(), chain::last(&episodes))?;
    after(Step::Episodes)?;
    put(files.calls(), table::encode(&calls)?, calls.len(), chain::last(&calls))?;
    after(Step::Calls)?;
    if publish {
        put(files.transcripts(), transcript::encode(&transcripts)?, transcripts.len(), None)?;
    }
    after(Step::Transcripts)?;
    hashes::update(files.root(), listed)?;
    after(Step::Hashes)?;
    wal.remove()?;
    after(Step::WriteAhead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::testing::{self, identity, spec};
    use crate::error::Error;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn files_under(root: &Path) -> BTreeMap<String, Vec<u8>> {
        walkdir::WalkDir::new(root)
            .into_iter()
            .map(Result::unwrap)
            .filter(|e| e.file_type().is_file() && !e.path().ends_with("wal/hashes.lock"))
            .map(|e| {
                (e.path().strip_prefix(root).unwrap().display().to_string(), fs_err::read(e.path()).unwrap())
            })
            .collect()
    }

    fn started(root: &Path) -> UnitFiles {
        let files = UnitFiles::new(root, "base", 7).unwrap();
        let header = spec().header(&testing::Toy::default(), &identity(4)).unwrap();
        let (mut wal, _) = Wal::open(&files.path(&files.write_ahead()), &header, false).unwrap();
        // Out of order, in groups.
        for group in testing::records(&header, 9).chunks(2).rev() {
            wal.append(group.to_vec()).unwrap();
        }
        files
    }

    fn go(files: &UnitFiles, after: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
        let header = spec().header(&testing::Toy::default(), &identity(4)).unwrap();
        let (wal, contents) = Wal::open(&files.path(&files.write_ahead()), &header, false).unwrap();
        compact(files, contents.records, wal, true, after)
    }

    #[test]
    fn a_crash_after_any_step_and_a_second_call_give_the_same_files() {
        let undisturbed = tempfile::tempdir().unwrap();
        go(&started(undisturbed.path()), &mut |_| Ok(())).unwrap();
        let expected = files_under(undisturbed.path());
        assert_eq!(
            expected.keys().collect::<Vec<_>>(),
            [
                "calls/base/7.parquet",
                "episodes/base/7.parquet",
                "hashes.json",
                "transcripts/base/7.jsonl.zst"
            ]
        );
        for stop in [Step::Episodes, Step::Calls, Step::Transcripts, Step::Hashes] {
            let dir = tempfile::tempdir().unwrap();
            let files = started(dir.path());
            let crash = go(&files, &mut |step| if step == stop { Err(Error::Interrupted) } else { Ok(()) });
            assert!(crash.is_err());
            assert!(files.path(&files.write_ahead()).exists(), "the write-ahead file outlives {stop:?}");
            go(&files, &mut |_| Ok(())).unwrap();
            assert!(files_under(dir.path()) == expected, "crash after {stop:?}");
        }
    }

    #[test]
    fn rows_are_in_canonical_order_sealed_and_listed() {
        let dir = tempfile::tempdir().unwrap();
        let files = started(dir.path());
        go(&files, &mut |_| Ok(())).unwrap();
        let rows: Vec<EpisodeRow> = table::read_chain_checked(&files.path(&files.episodes())).unwrap();
        assert!(rows.windows(2).all(|p| (&p[0].task_id, p[0].rollout) < (&p[1].task_id, p[1].rollout)));
        let calls: Vec<CallRow> = table::read_chain_checked(&files.path(&files.calls())).unwrap();
        let key = |c: &CallRow| (c.task_id.clone(), c.rollout, c.turn);
        assert!(calls.windows(2).all(|p| key(&p[0]) < key(&p[1])));
        let listed = hashes::verify(dir.path()).unwrap();
        assert_eq!(listed[&files.episodes()].last_row_sha256, chain::last(&rows));
        assert_eq!(listed[&files.calls()].rows, calls.len() as u64);
    }
}
