//! A small honest workspace for the tests, and the tools of someone who tampers with it.

use super::adapter::{CONFIGURATION, NORM, adapter_config, weights, weights_sha256};
use super::texts::{CLAIM, PLAN, REPORT};
use crate::episode::row::{CallRow, EpisodeRow, HarvestRow, Row, TrainingRow};
use crate::episode::{chain, hashes, table};
use crate::experiment::{Plan, Stage, lock};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The workspace's only experiment.
pub const SLUG: &str = "demo";
/// Its evaluation seeds.
pub const SEEDS: [i64; 2] = [52004, 52005];
/// When everything was locked and spent, and when all episodes began.
const LOCKED: &str = "2026-11-29T00:00:00Z";
const BEGAN: &str = "2026-11-29T00:01:00Z";
/// A workspace in a temporary folder.
pub struct Workspace {
    folder: tempfile::TempDir,
}

impl Workspace {
    /// Two arms, two seeds, twelve tasks a seed: base solves every fourth task, treatment every
    /// second, so that the delta is 1/4 with six gains and no loss.
    pub fn honest() -> Self {
        let workspace = Workspace { folder: tempfile::tempdir().unwrap() };
        workspace.text("data/demo/experiment.toml", PLAN);
        workspace.text("data/demo/facts.toml", "[human]\nvalue = 0.93\nsource = \"a published table\"\n");
        workspace.text("site/experiments/demo/report.md", REPORT);
        workspace.text(
            "site/experiments/demo/log.md",
            "## 2026-12-01 — first run\n\nIt gained [+0.25](derive:demo.delta).\n",
        );
        workspace.text("claims/C0001-commit.md", CLAIM);
        for seed in SEEDS {
            for (arm, every) in [("base", 4), ("treatment", 2)] {
                let mut rows: Vec<EpisodeRow> =
                    (0..12).map(|i| episode(arm, seed, i, i % every == 0)).collect();
                workspace.unit(arm, seed, &mut rows);
            }
        }
        workspace.calibrate(|i| i % 4 == 0);
        let mut harvest: Vec<HarvestRow> = (0..4).map(sample).collect();
        workspace.put("harvest/11001.parquet", &mut harvest);
        let mut sampled: Vec<EpisodeRow> = (0..4).map(harvested).collect();
        workspace.unit("harvest", 11001, &mut sampled);
        let mut steps: Vec<TrainingRow> = (1..=2).map(step).collect();
        workspace.put("training/1.parquet", &mut steps);
        for (file, bytes) in
            ["adapters/1/adapter_model.safetensors", "merged/1/model.safetensors"].into_iter().zip(weights())
        {
            hash_free(&workspace.data(file), &bytes);
        }
        hash_free(&workspace.data(CONFIGURATION), adapter_config().to_string().as_bytes());
        workspace.sign();
        workspace
    }

    /// Locks all stages and writes every receipt and the seed ledger, true to the rows.
    fn sign(&self) {
        for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
            self.lock(plan(), stage);
        }
        let spent = [(11001, "harvest"), (31001, "calibrate"), (52004, "evaluate"), (52005, "evaluate")];
        let lines = spent.map(|(seed, purpose)| {
            json!({"seed": seed, "purpose": purpose, "experiment": SLUG, "at": LOCKED}).to_string() + "\n"
        });
        self.text("data/seeds.jsonl", &lines.concat());
        self.receipt(&json!({
            "passed": true, "starved": null, "plan_sha256": plan_sha256(Stage::Harvest),
            "families": {"caravan": {"samples": 4, "solved": 4, "kept": 3}}, "samples": 4, "kept": 3,
            "contributing_families": 1, "rejects": {"not_terse": 1}, "model_sha256": "m".repeat(64),
            "files": self.bound(&["harvest/11001.parquet", "episodes/harvest/11001.parquet"]),
        }));
        let [adapter, _] = weights_sha256();
        self.signed(
            "train",
            &json!({
                "harvest_sha256": self.read_receipt("harvest")["sha256"],
                "plan_sha256": plan_sha256(Stage::Train), "train_seed": 1, "adapter_sha256": adapter,
                "model_sha256": "m".repeat(64), "steps": 2, "tokens": 18, "first_loss": 0.5, "last_loss": 0.5,
                "rows": 2, "skipped_too_long": 1,
                "files": self.bound(&["training/1.parquet"]),
            }),
        );
        self.signed("merge", &self.merge());
        self.signed("headroom", &self.headroom());
        self.signed("decision", &self.decision());
    }

    /// Locks a stage at a time of the past. Returns the hash of its section.
    fn lock(&self, plan: &Plan, stage: Stage) -> String {
        let sha256 = lock::lock(&self.data(""), plan, stage).unwrap();
        let file = format!("receipts/plan-{}.json", stage.as_str());
        let written = fs_err::read_to_string(self.data(&file)).unwrap();
        let mut written: Value = serde_json::from_str(&written).unwrap();
        written["locked_at"] = LOCKED.into();
        self.text(&format!("data/demo/{file}"), &written.to_string());
        sha256
    }

    /// Writes the base arm's rows of the calibration seed.
    pub fn calibrate(&self, solved: impl Fn(i64) -> bool) {
        let mut rows: Vec<EpisodeRow> = (0..12).map(|i| episode("base", 31001, i, solved(i))).collect();
        rows.iter_mut().for_each(|row| row.event = Some("calibrate".into()));
        self.unit("base", 31001, &mut rows);
    }

    /// Writes a unit's episodes and their calls.
    pub fn unit(&self, arm: &str, seed: i64, rows: &mut [EpisodeRow]) {
        self.put(&format!("episodes/{arm}/{seed}.parquet"), rows);
        let mut calls: Vec<CallRow> = rows.iter().flat_map(calls).collect();
        self.put(&format!("calls/{arm}/{seed}.parquet"), &mut calls);
    }

    /// The merge receipt of the weights on disk.
    pub fn merge(&self) -> Value {
        let [adapter, merged] = weights_sha256();
        json!({
            "passed": true, "canaries": 2, "canaries_changed": 1, "model_sha256": "m".repeat(64),
            "matched": 1, "deltas": 1, "delta_norm": 2.0 * NORM, "kept_share": 1.0, "largest_logit_difference": 1e-5,
            "adapter_sha256": adapter, "merged_sha256": merged, "folder": "merged/1",
        })
    }

    /// The headroom receipt of the honest rows: two of six tasks, and one of six.
    pub fn headroom(&self) -> Value {
        self.headroom_of(2.0, 1.0)
    }

    /// The headroom receipt where that many of six tasks of each family are solved.
    pub fn headroom_of(&self, brinework: f64, caravan: f64) -> Value {
        let feasible = |solved: f64| 1.0 - solved / 6.0 > 0.03;
        let core = |family: &str, solved: f64| {
            json!({
                "families": [family], "baseline": solved / 6.0, "required": solved / 6.0 + 0.03,
                "possible_gain": 1.0 - solved / 6.0, "feasible": feasible(solved),
            })
        };
        json!({
            "passed": feasible(brinework) && feasible(caravan), "plan_sha256": plan_sha256(Stage::Evaluate),
            "ceiling": 1.0, "minimum_delta": 0.03,
            "base": {"brinework": brinework / 6.0, "caravan": caravan / 6.0},
            "cores": {"brinework": core("brinework", brinework), "caravan": core("caravan", caravan)},
            "baseline": (brinework + caravan) / 12.0, "baseline_ceiling": null,
            "files": self.bound(&["episodes/base/31001.parquet"]),
        })
    }

    /// The decision of the honest rows. The interval was computed by another program (Python).
    pub fn decision(&self) -> Value {
        let leg = |asks: &str, value: f64, bar: f64| json!({"asks": asks, "value": value, "bar": bar, "holds": true});
        let of_event =
            SEEDS.map(|seed| format!("the change on event {seed} is at least the smallest gain that counts"));
        json!({
            "plan_sha256": plan_sha256(Stage::Evaluate),
            "arms": ["base", "treatment"],
            "decision": {
                "outcome": "positive",
                "legs": [
                    leg(&of_event[0], 0.25, 0.03),
                    leg(&of_event[1], 0.25, 0.03),
                    leg("the lower end of the pooled interval lies above zero", 2.0 / 24.0, 0.0),
                ],
                "delta": 0.25, "low": 2.0 / 24.0, "high": 11.0 / 24.0, "tasks": 24, "moved": 6,
            },
            "null_spread": null,
            "files": self.bound(&[
                "episodes/base/52004.parquet", "episodes/base/52005.parquet",
                "episodes/treatment/52004.parquet", "episodes/treatment/52005.parquet",
            ]),
        })
    }

    /// The same experiment under a changed plan: locked anew, every evaluated row made under it. Returns the
    /// plan's new hash; receipts stay as they were.
    pub fn replan(&self, edits: &[(&str, &str)]) -> String {
        for (from, to) in edits {
            self.replace("data/demo/experiment.toml", from, to);
        }
        let plan = Plan::load(&self.data("experiment.toml")).unwrap();
        self.delete("receipts/plan-evaluate.json");
        let sha256 = self.lock(&plan, Stage::Evaluate);
        let units =
            [("base", 31001), ("base", 52004), ("base", 52005), ("treatment", 52004), ("treatment", 52005)];
        for (arm, seed) in units {
            let file = format!("episodes/{arm}/{seed}.parquet");
            let mut rows: Vec<EpisodeRow> = self.rows(&file);
            rows.iter_mut().for_each(|row| row.plan_sha256 = sha256.clone());
            self.put(&file, &mut rows);
        }
        sha256
    }

    /// Path → hash, as receipts are bound to files.
    pub fn bound(&self, files: &[&str]) -> Value {
        files
            .iter()
            .map(|file| (file.to_string(), Value::from(self.sha256(file))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The root.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self, relative: &str) -> PathBuf {
        self.root().join("data").join(SLUG).join(relative)
    }

    /// Writes a text file.
    pub fn text(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    /// Replaces a text that must be there.
    pub fn replace(&self, path: &str, from: &str, to: &str) {
        let old = fs_err::read_to_string(self.root().join(path)).unwrap();
        assert!(old.contains(from), "{from}");
        self.text(path, &old.replace(from, to));
    }

    /// Rows of a file.
    pub fn rows<R: Row>(&self, relative: &str) -> Vec<R> {
        table::read(&self.data(relative)).unwrap()
    }

    /// Writes rows as they are: neither the chain nor `hashes.json` is touched.
    pub fn overwrite<R: Row>(&self, relative: &str, rows: &[R]) {
        table::write(&self.data(relative), rows).unwrap();
    }

    /// Brings the entry of `hashes.json` up to date with the file, but for the last row's hash.
    pub fn fix_file_hash<R: Row>(&self, relative: &str) {
        let bytes = fs_err::read(self.data(relative)).unwrap();
        let rows = self.rows::<R>(relative).len();
        let last = hashes::read(&self.data(""))
            .unwrap()
            .get(relative)
            .and_then(|entry| entry.last_row_sha256.clone());
        hashes::update(&self.data(""), [(relative.to_string(), hashes::FileHash::of(&bytes, rows, last))])
            .unwrap();
    }

    /// Writes rows the honest way: sealed, and listed in `hashes.json`.
    pub fn put<R: Row>(&self, relative: &str, rows: &mut [R]) {
        chain::seal(rows).unwrap();
        self.overwrite(relative, rows);
        let bytes = fs_err::read(self.data(relative)).unwrap();
        let entry = hashes::FileHash::of(&bytes, rows.len(), chain::last(rows));
        hashes::update(&self.data(""), [(relative.to_string(), entry)]).unwrap();
    }

    /// Deletes a data file.
    pub fn delete(&self, relative: &str) {
        fs_err::remove_file(self.data(relative)).unwrap();
    }

    /// Deletes a data file together with its entry in `hashes.json`.
    pub fn forget(&self, relative: &str) {
        self.delete(relative);
        let listed = fs_err::read(self.data("hashes.json")).unwrap();
        let mut listed: Value = serde_json::from_slice(&listed).unwrap();
        assert!(listed.as_object_mut().unwrap().remove(relative).is_some(), "{relative}");
        self.text("data/demo/hashes.json", &listed.to_string());
    }

    /// Cuts a data file short.
    pub fn truncate(&self, relative: &str, bytes: usize) {
        let old = fs_err::read(self.data(relative)).unwrap();
        fs_err::write(self.data(relative), &old[..bytes]).unwrap();
    }

    /// SHA-256 of a data file.
    pub fn sha256(&self, relative: &str) -> String {
        crate::hash::sha256_file(&self.data(relative)).unwrap()
    }

    /// Writes the harvest receipt, with its own hash.
    pub fn receipt(&self, receipt: &serde_json::Value) {
        self.signed("harvest", receipt);
    }

    /// A receipt's file: what it says under `receipt`, and its hash.
    pub fn read_receipt(&self, name: &str) -> Value {
        let path = self.data(&format!("receipts/{name}.json"));
        serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap()
    }

    /// Changes a receipt, and signs it again.
    pub fn edit_receipt(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut signed = self.read_receipt(name);
        change(&mut signed["receipt"]);
        self.signed(name, &signed["receipt"]);
    }

    /// Writes a receipt, with its own hash.
    pub fn signed(&self, name: &str, receipt: &Value) {
        let signed = json!({"sha256": crate::hash::sha256_json(receipt).unwrap(), "receipt": receipt});
        let text = serde_json::to_string_pretty(&signed).unwrap();
        self.text(&format!("data/demo/receipts/{name}.json"), &text);
    }
}

/// Writes a file that `hashes.json` does not list.
fn hash_free(path: &Path, bytes: &[u8]) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, bytes).unwrap();
}

/// The honest plan.
pub fn plan() -> &'static Plan {
    static HONEST: OnceLock<Plan> = OnceLock::new();
    HONEST.get_or_init(|| Plan::parse(PLAN, Path::new("experiment.toml")).unwrap())
}

/// The hash of a stage's locked section.
pub fn plan_sha256(stage: Stage) -> String {
    crate::hash::sha256_json(&lock::section(plan(), stage).unwrap()).unwrap()
}

/// An episode's tokens as its calls took them.
pub fn calls(row: &EpisodeRow) -> Vec<CallRow> {
    let turns = row.turns;
    (0..turns)
        .map(|turn| CallRow {
            experiment: row.experiment.clone(),
            arm: row.arm.clone(),
            task_id: row.task_id.clone(),
            family: row.family.clone(),
            level: row.level,
            seed: row.seed,
            rollout: row.rollout,
            turn,
            prompt_tokens: row.prompt_tokens.map(|n| n / turns),
            completion_tokens: row.completion_tokens.map(|n| n / turns),
            finish_reason: row.finish_reason.clone(),
            prompt_sha256: Some("p".repeat(64)),
            tokens_sha256: Some("t".repeat(64)),
            logprobs_sha256: None,
            parse_ok: Some(true),
            action_ok: Some(true),
            wall_ms: 1,
            row_sha256: String::new(),
        })
        .collect()
}

/// The id of the task at this place of a seed: six of each family.
pub fn task(seed: i64, index: i64) -> String {
    let family = if index < 6 { "brinework" } else { "caravan" };
    format!("{family}/L1/{seed}/{}", index % 6)
}

/// One honest episode.
pub fn episode(arm: &str, seed: i64, index: i64, solved: bool) -> EpisodeRow {
    let treated = arm != "base";
    EpisodeRow {
        experiment: SLUG.into(),
        event: Some("evaluate".into()),
        tier: None,
        plan_sha256: plan_sha256(Stage::Evaluate),
        arm: arm.into(),
        model_sha256: if treated { weights_sha256()[1].clone() } else { "m".repeat(64) },
        adapter_sha256: treated.then(|| weights_sha256()[0].clone()),
        train_seed: treated.then_some(1),
        scaffold: "native".into(),
        scaffold_version: None,
        dtype: Some("f32".into()),
        slots: Some(16),
        environment: "gym".into(),
        family: if index < 6 { "brinework" } else { "caravan" }.into(),
        level: 1,
        task_id: task(seed, index),
        split: if index < 6 { "held_out" } else { "train" }.into(),
        stratum: None,
        seed,
        rollout: 0,
        reward: Some(if solved { 1.0 } else { 0.0 }),
        solved: Some(solved),
        partial: None,
        select_score: None,
        verifier_sha256: "v".repeat(64),
        parse_ok: Some(true),
        engaged: Some(true),
        forced_close: None,
        naturally_closed: None,
        finish_reason: if index % 3 == 0 { "length" } else { "stop" }.into(),
        turns: 1,
        tool_calls: None,
        tool_failures: None,
        repaired_calls: None,
        prompt_tokens: Some(100 + index),
        completion_tokens: Some(10 * (index + 1)),
        think_tokens: None,
        tokens_sha256: Some(format!("{arm} {seed} {index}")),
        wall_ms: 12,
        solved_ms: None,
        exit_code: None,
        error: None,
        enforced: None,
        evidence: "deployable".into(),
        started_at: BEGAN.into(),
        engine_sha256: "e".repeat(64),
        row_sha256: String::new(),
    }
}

/// The episode of a harvested sample: each is solved, the last one in too many tokens.
pub fn harvested(index: i64) -> EpisodeRow {
    EpisodeRow {
        event: Some("harvest".into()),
        plan_sha256: plan_sha256(Stage::Harvest),
        arm: "harvest".into(),
        family: "caravan".into(),
        task_id: format!("caravan/L1/11001/{index}"),
        split: "train".into(),
        completion_tokens: Some(if index == 3 { 30 } else { 9 }),
        tokens_sha256: Some(format!("h{index}")),
        ..episode("base", 11001, index, true)
    }
}

/// One harvested sample.
pub fn sample(index: i64) -> HarvestRow {
    let episode = harvested(index);
    HarvestRow {
        experiment: episode.experiment,
        family: episode.family,
        level: episode.level,
        task_id: episode.task_id,
        seed: episode.seed,
        rollout: episode.rollout,
        reward: episode.reward,
        solved: episode.solved,
        kept: index != 3,
        reject: (index == 3).then(|| "not_terse".into()),
        completion_tokens: episode.completion_tokens.unwrap(),
        tokens_sha256: episode.tokens_sha256.unwrap(),
        row_sha256: String::new(),
    }
}

/// One optimiser step.
fn step(number: i64) -> TrainingRow {
    TrainingRow {
        experiment: SLUG.into(),
        train_seed: 1,
        step: number,
        loss: 0.5,
        grad_norm: 1.0,
        learning_rate: 5e-4,
        loss_tokens: 4,
        tokens: 9,
        wall_ms: 3,
        row_sha256: String::new(),
    }
}
