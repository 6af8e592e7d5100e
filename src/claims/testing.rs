//! For tests of this module: made-up rows, tables and workspaces.

use super::data::{File, Table};
use crate::episode::columns::Columns;
use crate::episode::row::{EpisodeRow, Row};
use crate::episode::table;
use std::path::Path;

/// One episode; the family is the part of the task before `/`, solved means reward 1.
pub fn episode(arm: &str, task: &str, seed: i64, rollout: i64, reward: Option<f64>) -> EpisodeRow {
    EpisodeRow {
        experiment: "demo".into(),
        event: Some("evaluate".into()),
        tier: None,
        plan_sha256: String::new(),
        arm: arm.into(),
        model_sha256: "m".into(),
        adapter_sha256: None,
        train_seed: None,
        scaffold: "native".into(),
        scaffold_version: None,
        dtype: Some("f32".into()),
        slots: Some(4),
        environment: "gym".into(),
        family: task.split('/').next().unwrap_or_default().into(),
        level: 1,
        task_id: task.into(),
        split: "held_out".into(),
        stratum: None,
        seed,
        rollout,
        reward,
        solved: reward.map(|r| r >= 1.0),
        partial: None,
        select_score: None,
        verifier_sha256: "v".into(),
        parse_ok: Some(true),
        engaged: None,
        forced_close: None,
        naturally_closed: None,
        finish_reason: if reward.is_some() { "stop" } else { "infra_error" }.into(),
        turns: 1,
        tool_calls: None,
        tool_failures: None,
        repaired_calls: None,
        prompt_tokens: Some(10),
        completion_tokens: Some(3),
        think_tokens: None,
        tokens_sha256: Some(format!("{arm}{task}{seed}{rollout}")),
        wall_ms: 5,
        solved_ms: None,
        exit_code: None,
        error: None,
        enforced: None,
        evidence: "deployable".into(),
        started_at: "2026-12-01T00:00:00Z".into(),
        engine_sha256: "e".into(),
        row_sha256: "r".into(),
    }
}

/// A table of one file.
pub fn table(rows: &[EpisodeRow]) -> Table {
    let file = File {
        path: "data/demo/episodes/base/1.parquet".into(),
        sha256: "f".into(),
        rows: Columns::of(EpisodeRow::COLUMNS.len(), &rows.iter().map(Row::cells).collect::<Vec<_>>()),
    };
    Table { columns: EpisodeRow::COLUMNS, files: vec![file] }
}

/// Writes text files below a folder.
pub fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        put(&root.join(path), text.as_bytes());
    }
}

fn put(path: &Path, bytes: &[u8]) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, bytes).unwrap();
}

/// Writes rows as `data/<slug>/episodes/<arm>/<seed>.parquet`.
pub fn write_rows(root: &Path, slug: &str, rows: &[EpisodeRow]) {
    let mut units: Vec<(&str, i64)> = rows.iter().map(|r| (r.arm.as_str(), r.seed)).collect();
    units.sort_unstable();
    units.dedup();
    for (arm, seed) in units {
        let unit: Vec<EpisodeRow> = rows.iter().filter(|r| r.arm == arm && r.seed == seed).cloned().collect();
        let path = root.join(format!("data/{slug}/episodes/{arm}/{seed}.parquet"));
        put(&path, &table::encode(&unit).unwrap());
    }
}

/// Rows of two arms over twelve tasks of three families under one seed: base solves none of `a`,
/// a third of the rest; treatment solves two thirds.
pub fn two_arms() -> Vec<EpisodeRow> {
    let mut rows = Vec::new();
    for family in ["a", "b", "c"] {
        for i in 0..4 {
            let task = format!("{family}/{i}");
            let base = if family != "a" && i == 0 { 1.0 } else { 0.0 };
            let treatment = if i < 3 && !(family == "c" && i == 1) { 1.0 } else { 0.0 };
            rows.push(episode("base", &task, 1, 0, Some(base)));
            rows.push(episode("treatment", &task, 1, 0, Some(treatment)));
        }
    }
    rows
}

/// A report's front matter with derivations over [`two_arms`], and a body.
pub fn report(extra: &str, body: &str) -> String {
    format!(
        "+++\ntitle = \"Demo\"\nlifecycle = \"finished\"\n{extra}\n\
         [derivations.base]\ndata = \"episodes\"\nestimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nformat = \"0.00\"\n\
         [derivations.delta]\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\nformat = \"+0.00\"\n\
         [derivations.by_family]\ndata = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\nby = \"family\"\n\
         +++\n{body}\n"
    )
}

/// A claim file over the same experiment.
pub fn claim(id: &str, extra: &str, body: &str) -> String {
    format!(
        "+++\nid = \"{id}\"\ntitle = \"Training helps\"\nstatus = \"promising\"\npopulation = \"tasks\"\n{extra}\n\
         [[history]]\ndate = 2026-12-01\nstatus = \"promising\"\nevidence = [\"derive:demo.delta\"]\n+++\n{body}\n"
    )
}
