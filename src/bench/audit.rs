//! Time and memory of an audit of a large workspace, which is made on the way: rows of two arms over many seeds and families,
//! a report that declares and prints thousands of derivations, and no plan. `benches/peers/audit.py` asks DuckDB the same.

use super::machine;
use crate::claims::fill;
use crate::episode::row::EpisodeRow;
use crate::episode::{chain, hashes, table};
use crate::error::{Error, Result};
use crate::philox::Philox;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

const SLUG: &str = "large";
const FAMILIES: usize = 20;
/// Attempts at each task.
const ROLLOUTS: usize = 4;
/// Fewer rows leave a family without a task of both arms.
const FEWEST: usize = 2 * ROLLOUTS * FAMILIES;
/// Rows of one arm under one seed, at most.
const UNIT: usize = 100_000;
/// What is derived for each seed and family, and once for all rows.
const KINDS: [(&str, &str); 10] = [
    ("base", "estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]"),
    ("treatment", "estimator = \"mean\"\nof = \"reward\"\narms = [\"treatment\"]"),
    ("delta", "estimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]"),
    ("capped", "estimator = \"mean\"\nof = \"finish_reason\"\nis = \"length\"\narms = [\"treatment\"]"),
    ("tokens", "estimator = \"sum\"\nof = \"completion_tokens\"\narms = [\"treatment\"]"),
    ("flips", "estimator = \"flips\"\narms = [\"base\", \"treatment\"]"),
    ("pass", "estimator = \"pass_at_k\"\nk = 2\narms = [\"treatment\"]"),
    ("ever", "estimator = \"tasks_where\"\nof = \"solved\"\nband = { above = 0 }\narms = [\"treatment\"]"),
    ("longest", "estimator = \"max\"\nof = \"completion_tokens\"\narms = [\"base\"]"),
    ("solved", "estimator = \"share\"\nof = \"solved\"\narms = [\"base\"]"),
];

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Always `rederive`.
    pub engine: String,
    /// Version of this crate.
    pub version: String,
    /// The processor, where the system tells.
    pub machine: Option<String>,
    /// Threads that audit.
    pub threads: usize,
    /// Processes that wanted to run in the minute before, where the system tells.
    pub load_before: Option<f64>,
    /// Always `audit`.
    pub what: String,
    /// Rows whose hash was recomputed.
    pub rows: usize,
    /// Bytes of their files.
    pub bytes: u64,
    /// Printed numbers, one a derivation.
    pub derivations: usize,
    /// Numbers that matched; all of them, unless the machine is broken.
    pub matches: usize,
    /// Seconds of the whole audit.
    pub wall_s: f64,
    /// Greatest resident memory of the process, in bytes.
    pub peak_resident_bytes: Option<u64>,
}

/// Whether a folder holds a workspace of this benchmark; refuses one that holds anything else.
pub fn is_made(folder: &Path) -> Result<bool> {
    let done = folder.join("data").join(SLUG).join("hashes.json").is_file();
    let filled = fs_err::read_to_string(folder.join(report())).is_ok_and(|text| !text.contains("[](derive:"));
    if done && filled {
        return Ok(true);
    }
    let empty = !folder.exists() || fs_err::read_dir(folder)?.next().is_none();
    match empty {
        true => Ok(false),
        false => Err(Error::invalid("is neither new nor a workspace that this command has finished")
            .at(folder.display())
            .hint("name a new folder, or delete this one")),
    }
}

fn report() -> String {
    format!("site/experiments/{SLUG}/report.md")
}

/// Makes the workspace; returns the seconds that filling in its numbers took. `progress` hears of rows written.
pub fn make(
    folder: &Path,
    rows: usize,
    derivations: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<f64> {
    if rows < FEWEST || derivations == 0 {
        return Err(Error::invalid(format!("{rows} rows and {derivations} derivations make no benchmark"))
            .at("--rows, --derivations")
            .hint(format!("at least {FEWEST} rows and one derivation; 1000000 and 1000 are usual")));
    }
    let seeds = rows.div_ceil(2 * UNIT);
    let unit = rows / (2 * seeds);
    let home = folder.join("data").join(SLUG);
    let units: Vec<(&str, usize)> =
        ["base", "treatment"].into_iter().flat_map(|arm| (0..seeds).map(move |s| (arm, s))).collect();
    let written = std::sync::atomic::AtomicUsize::new(0);
    let write = |(arm, seed): &(&str, usize)| -> Result<(String, hashes::FileHash)> {
        let path = format!("episodes/{arm}/{seed}.parquet");
        let mut rows = episodes(arm, *seed, unit);
        chain::seal(&mut rows)?;
        let bytes = table::encode(&rows)?;
        crate::episode::durable::write(&home.join(&path), &bytes)?;
        progress(written.fetch_add(rows.len(), std::sync::atomic::Ordering::Relaxed) + rows.len());
        Ok((path, hashes::FileHash::of(&bytes, rows.len(), chain::last(&rows))))
    };
    // One after the other: sealing and encoding take all cores, and a thread that waits for them would begin the next unit.
    let entries: Vec<(String, hashes::FileHash)> = units.iter().map(write).collect::<Result<_>>()?;
    hashes::update(&home, entries)?;
    crate::hash::write_atomic(&folder.join(report()), declared(seeds, derivations).as_bytes())?;
    // Units are rounded down: the number that was asked for counts as done.
    progress(rows);
    let started = Instant::now();
    fill::fill(folder, fill::Options::default())?;
    Ok(started.elapsed().as_secs_f64())
}

/// Rows of one unit: all attempts at a task, then at the next one, families in turn.
fn episodes(arm: &str, seed: usize, count: usize) -> Vec<EpisodeRow> {
    let mut random = Philox::named(&format!("bench/audit/{arm}/{seed}"));
    let bonus = if arm == "base" { 0.0 } else { 0.1 };
    let one = |at: usize| {
        let (task, rollout) = (at / ROLLOUTS, at % ROLLOUTS);
        let solved = random.unit() < 0.2 + 0.03 * (task % FAMILIES) as f64 + bonus;
        EpisodeRow {
            experiment: SLUG.into(),
            event: Some("evaluate".into()),
            tier: None,
            plan_sha256: String::new(),
            arm: arm.into(),
            model_sha256: "1".repeat(64),
            adapter_sha256: None,
            train_seed: None,
            scaffold: "native".into(),
            scaffold_version: None,
            dtype: Some("f32".into()),
            slots: Some(16),
            environment: "bench".into(),
            family: format!("family{:02}", task % FAMILIES),
            level: 1,
            task_id: format!("family{:02}/{seed}/{task}", task % FAMILIES),
            split: "held_out".into(),
            stratum: None,
            seed: seed as i64,
            rollout: rollout as i64,
            reward: Some(f64::from(u8::from(solved))),
            solved: Some(solved),
            partial: None,
            select_score: None,
            verifier_sha256: "2".repeat(64),
            parse_ok: Some(true),
            engaged: None,
            forced_close: None,
            naturally_closed: None,
            finish_reason: if random.below(9) == 0 { "length" } else { "stop" }.into(),
            turns: 1,
            tool_calls: None,
            tool_failures: None,
            repaired_calls: None,
            prompt_tokens: Some(100),
            completion_tokens: Some(1 + random.below(200) as i64),
            think_tokens: None,
            tokens_sha256: Some((0..8).map(|_| format!("{:08x}", random.next_u32())).collect()),
            wall_ms: random.below(5_000) as i64,
            solved_ms: None,
            exit_code: None,
            error: None,
            enforced: None,
            evidence: "deployable".into(),
            started_at: "2026-12-01T00:00:00Z".into(),
            engine_sha256: "3".repeat(64),
            row_sha256: String::new(),
        }
    };
    (0..count).map(one).collect()
}

/// The report: each derivation declared and printed, for one seed and family after the other; those over all rows come first.
fn declared(seeds: usize, derivations: usize) -> String {
    let cells = (0..seeds).flat_map(|seed| (0..FAMILIES).map(move |family| Some((seed, family))));
    let places = std::iter::once(None).chain(cells.cycle());
    let all = places.flat_map(|place| KINDS.iter().map(move |kind| (place, kind))).take(derivations);
    let (mut front, mut body) = (String::new(), String::new());
    for (at, (place, (name, of))) in all.enumerate() {
        let filter = place.map_or(String::new(), |(seed, family)| {
            format!("where = {{ seed = {seed}, family = \"family{family:02}\" }}\n")
        });
        let _ = write!(front, "[derivations.{name}{at}]\ndata = \"episodes\"\n{filter}{of}\n");
        let _ = write!(body, "Number {name}: [](derive:{SLUG}.{name}{at}).\n\n");
    }
    format!("+++\ntitle = \"A large workspace\"\nlifecycle = \"in-progress\"\n{front}+++\n{body}")
}

/// Audits the workspace in this process.
pub fn measure(folder: &Path) -> Result<Row> {
    let load_before = machine::load();
    let started = Instant::now();
    let report = crate::audit::audit(folder, crate::audit::Options::default())?;
    let wall_s = started.elapsed().as_secs_f64();
    if !report.passed() {
        return Err(Error::refused("the audit of the benchmark's own rows does not pass")
            .at(folder.display())
            .hint("delete the folder and make it again"));
    }
    let files = walkdir::WalkDir::new(folder.join("data")).into_iter().filter_map(|entry| entry.ok());
    let bytes =
        files.filter_map(|entry| entry.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum();
    Ok(Row {
        engine: "rederive".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: machine::processor_name(),
        threads: rayon::current_num_threads(),
        load_before,
        what: "audit".into(),
        rows: report.rows_checked,
        bytes,
        derivations: report.verdicts.len(),
        matches: report.summary.matches,
        wall_s,
        peak_resident_bytes: machine::peak_memory(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_passes_its_audit() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("w");
        assert!(!is_made(&folder).unwrap());
        make(&folder, 1_000, 25, &|_| ()).unwrap();
        assert!(is_made(&folder).unwrap());
        let row = measure(&folder).unwrap();
        assert_eq!((row.rows, row.derivations, row.matches), (1_000, 25, 25));
        assert!(is_made(dir.path()).unwrap_err().to_string().contains("neither new"));
        assert!(make(&folder, FEWEST - 1, 1, &|_| ()).is_err());
    }

    #[test]
    fn the_fewest_rows_give_each_family_a_task_and_every_row_a_hash_of_full_length() {
        let rows = episodes("base", 0, FEWEST / 2);
        let families: std::collections::BTreeSet<&str> = rows.iter().map(|row| row.family.as_str()).collect();
        assert_eq!(families.len(), FAMILIES);
        let full = |row: &EpisodeRow| row.tokens_sha256.as_ref().is_some_and(|hash| hash.len() == 64);
        assert!(rows.iter().all(full));
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("w");
        make(&folder, FEWEST, 25, &|_| ()).unwrap();
        assert_eq!(measure(&folder).unwrap().matches, 25);
    }
}
