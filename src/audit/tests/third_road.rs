//! The SQL of a derivation, really run by DuckDB on Parquet files, against the audit's own
//! numbers. DuckDB comes from PyPI into a virtual environment in the temporary folder; a Python
//! that has it already can be named by `REDERIVE_DUCKDB`.

use super::workspace::{Workspace, episode};
use crate::audit::distributions::t_quantile_975;
use crate::audit::estimators::{Part, compute};
use crate::audit::sheet;
use crate::audit::sql::derivation_sql;
use crate::audit::walk::{Attempt, walk};
use crate::claims::derivation::Derivation;
use crate::episode::row::EpisodeRow;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const SCRIPT: &str = "import duckdb, json, sys
connection = duckdb.connect()
connection.execute('SET enable_progress_bar = false')
cursor = connection.execute(sys.stdin.read())
names = [column[0] for column in cursor.description]
print(json.dumps([dict(zip(names, row)) for row in cursor.fetchall()]))";

/// A Python interpreter that has DuckDB, made once.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        if let Ok(named) = std::env::var("REDERIVE_DUCKDB") {
            return named;
        }
        let folder = std::env::temp_dir().join("rederive-duckdb-1");
        let python = folder.join("bin").join("python").display().to_string();
        let works = |python: &str| {
            Command::new(python).args(["-c", "import duckdb"]).output().is_ok_and(|o| o.status.success())
        };
        if !works(&python) {
            let made = Command::new("python3")
                .arg("-m")
                .arg("venv")
                .arg(&folder)
                .output()
                .expect("python3 is installed");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let pip = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "duckdb"];
            let installed = Command::new(&python).args(pip).output().expect("pip starts");
            assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        }
        python
    })
}

fn duckdb(query: &str) -> Result<Vec<serde_json::Value>, String> {
    duckdb_in(Path::new("."), query)
}

/// The rows that a query gives where DuckDB is started in a folder.
pub fn duckdb_in(folder: &Path, query: &str) -> Result<Vec<serde_json::Value>, String> {
    let mut child = Command::new(python())
        .current_dir(folder)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(query.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// Rewards in quarters, two rollouts, two training seeds, an infrastructure failure, uneven families.
fn uneven() -> Workspace {
    let workspace = Workspace::honest();
    for seed in super::workspace::SEEDS {
        let mut base = Vec::new();
        let mut treated = Vec::new();
        for index in 0..12 {
            for rollout in 0..2 {
                let mut row: EpisodeRow = episode("base", seed, index, false);
                row.rollout = rollout;
                row.reward = Some(((index * 7 + rollout * 3 + seed) % 5) as f64 / 4.0);
                row.solved_ms = (index % 3 == 0).then_some(100 + index);
                base.push(row);
                for train_seed in 1..3 {
                    let mut row: EpisodeRow = episode("treatment", seed, index, true);
                    row.rollout = rollout;
                    row.train_seed = Some(train_seed);
                    row.reward = Some(((index * 3 + rollout + train_seed * 2) % 5) as f64 / 4.0);
                    row.select_score = Some(((index + rollout * 2 + train_seed) % 3) as f64 / 2.0);
                    treated.push(row);
                }
            }
        }
        base[5].reward = None;
        treated.remove(17);
        workspace.put(&format!("episodes/base/{seed}.parquet"), &mut base);
        workspace.put(&format!("episodes/treatment/{seed}.parquet"), &mut treated);
    }
    workspace
}

#[test]
fn duckdb_agrees() {
    let workspace = uneven();
    let mut compared = 0;
    for text in [
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nnulls = \"omit\"",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nnulls = \"zero\"\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"completion_tokens\"\narms = [\"treatment\"]\nwhere = { level = 1, split = [\"train\", \"held_out\"] }",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"zero\"\nby = \"seed\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\nof = \"prompt_tokens\"\narms = [\"base\", \"treatment\"]",
        "data = \"episodes\"\nestimator = \"share\"\nof = \"finish_reason\"\nis = \"length\"\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"share\"\nof = \"solved\"\nby = \"arm\"",
        "data = \"episodes\"\nestimator = \"share\"\nof = \"reward\"\nis = 0\nnulls = \"zero\"\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"count\"\nwhere = { seed = 52004 }",
        "data = \"episodes\"\nestimator = \"count_distinct\"\nof = \"task_id\"",
        "data = \"episodes\"\nestimator = \"sum\"\nof = \"solved_ms\"\nnulls = \"omit\"\nby = \"arm\"",
        "data = \"episodes\"\nestimator = \"min\"\nof = \"reward\"\nnulls = \"omit\"",
        "data = \"episodes\"\nestimator = \"max\"\nof = \"completion_tokens\"\nby = \"finish_reason\"",
        "data = \"harvest\"\nestimator = \"share\"\nof = \"kept\"",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nnulls = \"omit\"\nweight = \"family\"",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nnulls = \"omit\"\ncluster = \"family\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nweight = \"family\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nweight = \"family\"\nby = \"seed\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\ncluster = \"family\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\ncluster = \"family\"\nweight = \"family\"",
        "data = \"episodes\"\nestimator = \"pass_at_k\"\nk = 1\narms = [\"treatment\"]\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"pass_at_k\"\nk = 2\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"pass_at_k\"\nk = 3\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"best_at_k\"\nk = 2\narms = [\"treatment\"]\nnulls = \"omit\"",
        "data = \"episodes\"\nestimator = \"best_at_k\"\nk = 1\narms = [\"base\"]\nnulls = \"zero\"\nby = \"seed\"",
        "data = \"episodes\"\nestimator = \"flips\"\narms = [\"base\", \"treatment\"]",
        "data = \"episodes\"\nestimator = \"flips\"\narms = [\"base\", \"treatment\"]\nby = \"family\"",
        "data = \"training\"\nestimator = \"last\"\nof = \"loss\"",
        "data = \"episodes\"\nestimator = \"last\"\nof = \"completion_tokens\"\nby = \"arm\"",
        "data = \"harvest\"\nestimator = \"mean\"\nof = \"completion_tokens\"",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"finish_reason\"\nis = \"length\"\narms = [\"base\"]\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"solved_ms\"\nis = { at_most = 105 }\nnulls = \"zero\"\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"share\"\nof = \"solved_ms\"\nis = { above = 105 }\nnulls = \"omit\"\nwhere = { completion_tokens = { at_least = 20, below = 100 }, finish_reason = { not = \"stop\" } }",
        "data = \"episodes\"\nestimator = \"pass_at_k\"\nof = \"reward\"\nis = { above = 0.5 }\nnulls = \"omit\"\nk = 2\narms = [\"treatment\"]",
        "data = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\nis = [1, 0.75]\nnulls = \"zero\"\narms = [\"base\", \"treatment\"]",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"parse_ok\"\narms = [\"base\"]\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"turns\"\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"mean\"\nof = \"finish_reason\"\nis = \"wall\"\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\nk = 2",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"zero\"\nk = 1\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"median\"\nof = \"reward\"\nnulls = \"omit\"\nby = \"arm\"",
        "data = \"episodes\"\nestimator = \"iqm\"\narms = [\"treatment\"]\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"tasks_where\"\nband = { at_least = 0.25, at_most = 0.5 }\nnulls = \"omit\"\narms = [\"base\"]",
        "data = \"episodes\"\nestimator = \"tasks_where\"\nof = \"solved\"\nband = { above = 0 }\narms = [\"treatment\"]\nby = \"seed\"",
        "data = \"episodes\"\nestimator = \"selected_at_k\"\nk = 2\narms = [\"treatment\"]",
        "data = \"episodes\"\nestimator = \"selected_at_k\"\nk = 1\narms = [\"treatment\"]\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"selected_at_k\"\nk = 2\narms = [\"base\"]\nnulls = \"zero\"",
        "data = \"episodes\"\nestimator = \"selected_at_k\"\nk = 5\narms = [\"treatment\"]",
        "data = \"episodes\"\nestimator = \"group_sd\"\narms = [\"treatment\"]\nby = \"family\"",
        "data = \"episodes\"\nestimator = \"group_sd\"\narms = [\"base\"]\nnulls = \"omit\"",
        "data = \"episodes\"\nestimator = \"probability_of_improvement\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"",
        "data = \"episodes\"\nestimator = \"probability_of_improvement\"\narms = [\"base\", \"treatment\"]\nnulls = \"zero\"\nby = \"seed\"\nweight = \"family\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\npopulation = \"tasks-x-train-seeds\"",
        "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\nnulls = \"omit\"\npopulation = \"tasks-x-train-seeds\"\nby = \"family\"",
    ] {
        let derivation: Derivation = toml::from_str(text).unwrap();
        let sheet = sheet::load(workspace.root(), super::workspace::SLUG, derivation.data).sheet;
        let files: Vec<String> =
            sheet.files.iter().map(|file| workspace.root().join(&file.path).display().to_string()).collect();
        let rows = duckdb(&derivation_sql(&derivation, &files).unwrap())
            .unwrap_or_else(|why| panic!("{text}\n{why}"));
        assert!(!rows.is_empty(), "{text}");
        let attempts = walk(&sheet, &derivation).unwrap();
        let paired = derivation.estimator == crate::claims::derivation::Estimator::PairedDelta;
        for row in rows {
            let label = row["label"].as_str();
            let group: Vec<&Attempt> = attempts.iter().filter(|a| a.label.as_deref() == label).collect();
            let parts = compute(&derivation, &group, "k").unwrap();
            for (part, value) in row.as_object().unwrap().iter().filter(|(part, _)| *part != "label") {
                let get = |part: &str| parts.get(part).and_then(Part::get);
                // The headline interval of a paired difference may be the bootstrap's: SQL gives t's.
                let t = || Some(t_quantile_975(get("df")? as u64) * get("se")?).filter(|half| *half > 0.0);
                let own = match part.as_str() {
                    "low" if paired => t().and_then(|half| Some(get("value")? - half)),
                    "high" if paired => t().and_then(|half| Some(get("value")? + half)),
                    part => get(part),
                };
                match (own, value.as_f64()) {
                    (Some(own), Some(value)) => {
                        assert!((own - value).abs() < 1e-9, "{text}: {part} {own} {value}")
                    }
                    (own, value) => assert_eq!(own, value, "{text}: {part}"),
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 220, "{compared}");
}

#[test]
fn duckdb_refuses_a_null_without_a_policy() {
    let workspace = uneven();
    let derivation: Derivation =
        toml::from_str("data = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"").unwrap();
    let sheet = sheet::load(workspace.root(), super::workspace::SLUG, derivation.data).sheet;
    let files: Vec<String> =
        sheet.files.iter().map(|file| workspace.root().join(&file.path).display().to_string()).collect();
    assert!(duckdb(&derivation_sql(&derivation, &files).unwrap()).unwrap_err().contains("reward is null"));
}
