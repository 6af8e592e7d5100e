//! The write-ahead file of an unfinished unit: JSON lines, each under its own SHA-256. An
//! episode's row, calls and transcript are one record, and episodes that finish together are one
//! line, written at once and synced: after a crash only the last line can be torn.

use super::durable;
use super::row::{CallRow, EpisodeRow};
use super::transcript::Transcript;
use crate::error::{Error, Result};
use crate::hash::sha256_hex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Version of the file's format.
pub const FORMAT: u32 = 1;

/// What the rows after it were made under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The experiment.
    pub experiment: String,
    /// The event.
    pub event: Option<String>,
    /// The arm.
    pub arm: String,
    /// The event seed.
    pub seed: u64,
    /// SHA-256 of the locked section of the plan.
    pub plan_sha256: String,
    /// SHA-256 of tasks, verifiers, sampling, examples, scaffold, evidence and training seed.
    pub settings_sha256: String,
    /// SHA-256 of the weights.
    pub model_sha256: String,
    /// SHA-256 of the adapter.
    pub adapter_sha256: Option<String>,
    /// SHA-256 of the engine.
    pub engine_sha256: String,
    /// Arithmetic type; part of the engine.
    pub dtype: Option<String>,
    /// Slots; part of the engine.
    pub slots: Option<usize>,
}

/// One finished episode; its parts stand or fall together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its row, not sealed yet.
    pub episode: EpisodeRow,
    /// Its generation calls in order, not sealed yet.
    pub calls: Vec<CallRow>,
    /// What was said, where the environment lets it be published.
    pub transcript: Option<Transcript>,
}

impl Record {
    /// Whether the episode failed for reasons outside the model, so that it is tried again.
    pub fn failed(&self) -> bool {
        self.episode.finish_reason == "infra_error"
    }
}

/// Records by task and rollout; iteration is the canonical order.
pub type Records = BTreeMap<(String, i64), Record>;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Header(Header),
    Episodes(Vec<Record>),
}

/// What a write-ahead file holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// One header for each engine that worked on the unit, in order.
    pub headers: Vec<Header>,
    /// The newest record of each episode.
    pub records: Records,
    /// Length of the whole lines; what follows is torn.
    pub good_bytes: usize,
}

const BEFORE_HASH: &str = "{\"sha256\":\"";
const BEFORE_BODY: &str = "\",\"line\":";

fn frame(line: &Line) -> Result<Vec<u8>> {
    let body = serde_json::to_string(line)
        .map_err(|e| Error::invalid(format!("an episode cannot be written as JSON: {e}")))?;
    Ok(format!("{BEFORE_HASH}{}{BEFORE_BODY}{body}}}\n", sha256_hex(body.as_bytes())).into_bytes())
}

/// The line's body, if the line is whole: its hash says so.
fn unframe(line: &[u8]) -> Option<&[u8]> {
    let (hash, rest) = line.strip_prefix(BEFORE_HASH.as_bytes())?.split_at_checked(64)?;
    let body = rest.strip_prefix(BEFORE_BODY.as_bytes())?.strip_suffix(b"}")?;
    (sha256_hex(body).as_bytes() == hash).then_some(body)
}

/// Reads a write-ahead file's bytes; `path` is only named in errors. A last line that is not whole is
/// left out; any other line that does not fit is an error.
pub fn decode(path: &Path, bytes: &[u8]) -> Result<Contents> {
    let mut contents = Contents::default();
    for (i, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let bad = |what: String| {
            Error::invalid(what).at(format!("{}: line {}", path.display(), i + 1)).hint(
                "delete the file to run the unit again, or only the lines from this one on to keep the rest",
            )
        };
        let end = contents.good_bytes + line.len();
        let Some(body) = line.strip_suffix(b"\n").and_then(unframe) else {
            if end == bytes.len() {
                break; // torn by a crash: it was never reported as done
            }
            return Err(bad("is damaged: it does not have the hash it carries".into()));
        };
        match serde_json::from_slice(body) {
            Ok(Line::Header(header)) if header.format == FORMAT => contents.headers.push(header),
            Ok(Line::Header(header)) => {
                return Err(bad(format!("has format {}, and this program reads {FORMAT}", header.format)));
            }
            Ok(Line::Episodes(records)) => {
                let header = contents.headers.last().ok_or_else(|| bad("stands before any header".into()))?;
                for record in records {
                    belongs(&record, header).map_err(|column| {
                        bad(format!(
                            "task `{}` has another `{column}` than its header",
                            record.episode.task_id
                        ))
                    })?;
                    let key = (record.episode.task_id.clone(), record.episode.rollout);
                    if contents.records.get(&key).is_some_and(|earlier| !earlier.failed()) {
                        return Err(bad(format!("task `{}`, rollout {} was already recorded", key.0, key.1)));
                    }
                    contents.records.insert(key, record);
                }
            }
            Err(e) => return Err(bad(format!("is not what this program writes: {e}"))),
        }
        contents.good_bytes = end;
    }
    Ok(contents)
}

fn belongs(record: &Record, header: &Header) -> Result<(), &'static str> {
    let row = &record.episode;
    let same = [
        ("experiment", row.experiment == header.experiment),
        ("arm", row.arm == header.arm),
        ("seed", u64::try_from(row.seed) == Ok(header.seed)),
        ("plan_sha256", row.plan_sha256 == header.plan_sha256),
        ("model_sha256", row.model_sha256 == header.model_sha256),
        ("adapter_sha256", row.adapter_sha256 == header.adapter_sha256),
        ("engine_sha256", row.engine_sha256 == header.engine_sha256),
    ];
    same.into_iter().find(|(_, same)| !same).map_or(Ok(()), |(column, _)| Err(column))
}

/// Whether a unit with header `then` may go on under `now`. The engine may change if `accept_engine`
/// says so; nothing else may.
pub fn agree(then: &Header, now: &Header, accept_engine: bool) -> Result<()> {
    let differs = |what: &str, then: &str, now: &str| {
        Error::refused(format!(
            "the {what} is not the one this unit was started with: {then} then, {now} now"
        ))
    };
    let none = "none".to_string();
    let fixed = [
        ("experiment", &then.experiment, &now.experiment),
        ("event", then.event.as_ref().unwrap_or(&none), now.event.as_ref().unwrap_or(&none)),
        ("arm", &then.arm, &now.arm),
        ("seed", &then.seed.to_string(), &now.seed.to_string()),
        ("plan (plan_sha256)", &then.plan_sha256, &now.plan_sha256),
        ("model (model_sha256)", &then.model_sha256, &now.model_sha256),
        (
            "adapter (adapter_sha256)",
            then.adapter_sha256.as_ref().unwrap_or(&none),
            now.adapter_sha256.as_ref().unwrap_or(&none),
        ),
        ("set of tasks or sampling (settings_sha256)", &then.settings_sha256, &now.settings_sha256),
    ];
    if let Some((what, then, now)) = fixed.into_iter().find(|(_, then, now)| then != now) {
        return Err(differs(what, then, now)
            .hint("rows of different plans never mix: restore what changed, or start a new experiment"));
    }
    let engine = |h: &Header| match (&h.dtype, h.slots) {
        (Some(dtype), Some(slots)) => format!("{} ({dtype}, {slots} slots)", h.engine_sha256),
        _ => format!("{} (an endpoint)", h.engine_sha256),
    };
    if then.engine_sha256 != now.engine_sha256 && !accept_engine {
        return Err(differs("engine", &engine(then), &engine(now)).hint(
            "use the same build and settings, or `--accept-engine`, which records both engines on their rows",
        ));
    }
    Ok(())
}

/// A write-ahead file open for appending. Its lock keeps other processes out until it is dropped.
#[derive(Debug)]
pub struct Wal {
    file: fs_err::File,
}

impl Wal {
    /// Opens or starts the file of a unit and reads what it holds. A torn last line is cut off; a new
    /// engine that is accepted gets a header of its own. Refused when headers do not [`agree`] or
    /// another process is running the unit.
    pub fn open(path: &Path, header: &Header, accept_engine: bool) -> Result<(Wal, Contents)> {
        let folder = path.parent().unwrap_or(Path::new(""));
        durable::create_folder(folder)?;
        let file =
            fs_err::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        // A process that is being started by another thread holds our files open until its program begins.
        let mut locked = file.try_lock();
        for _ in 0..20 {
            if !matches!(locked, Err(std::fs::TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            locked = file.try_lock();
        }
        match locked {
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(Error::invalid("another process is running this unit")
                    .at(path.display())
                    .hint("wait until it ends"));
            }
            Err(std::fs::TryLockError::Error(e)) => return Err(e.into()),
            Ok(()) => durable::sync_folder(folder)?,
        }
        let mut wal = Wal { file };
        let mut bytes = Vec::new();
        wal.file.read_to_end(&mut bytes)?;
        let mut contents = decode(path, &bytes)?;
        if let Some(then) = contents.headers.last() {
            agree(then, header, accept_engine).map_err(|e| e.at(path.display()))?;
        }
        if contents.good_bytes < bytes.len() {
            wal.file.set_len(contents.good_bytes as u64)?;
            wal.file.sync_all()?;
        }
        wal.file.seek(SeekFrom::Start(contents.good_bytes as u64))?;
        if contents.headers.last().is_none_or(|h| h.engine_sha256 != header.engine_sha256) {
            wal.line(&Line::Header(header.clone()))?;
            contents.headers.push(header.clone());
        }
        Ok((wal, contents))
    }

    /// Appends finished episodes as one line; on return they are on disk.
    pub fn append(&mut self, records: Vec<Record>) -> Result<()> {
        self.line(&Line::Episodes(records))
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        self.file.write_all(&frame(line)?)?;
        Ok(self.file.sync_data()?)
    }

    /// Reads the file again from its start: what compaction writes is what is on disk.
    pub fn reread(&mut self) -> Result<Contents> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_end(&mut bytes)?;
        decode(self.file.path(), &bytes)
    }

    /// Deletes the file, after everything in it is durable elsewhere.
    pub fn remove(self) -> Result<()> {
        durable::remove(self.file.path())
    }
}

#[cfg(test)]
#[path = "wal_tests.rs"]
mod tests;
