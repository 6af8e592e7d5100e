//! Base against base: a row's tokens and log-probabilities are the same to the bit whatever the
//! number of slots, the neighbours, and whether an adapter is loaded beside it. (The engine's own
//! tests permute order and stagger arrivals; the demo's tests kill and resume.)

use crate::common::{data, demo};
use rederive::engine::Sampling;
use rederive::engine::local::{Engine, Options};
use rederive::environment::gym::Gym;
use rederive::episode::{CallRow, Control, EpisodeRow, Item, UnitSpec, run_unit, table};
use rederive::model::{Model, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

type Streams = BTreeMap<(String, i64, i64), (String, Option<String>)>;

/// What each call sampled, by (task, rollout, turn): hashes of tokens and of log-probabilities.
fn streams(
    slots: usize,
    share_prefixes: bool,
    families: &[&str],
    rollouts: u32,
    temperature: f32,
) -> (Streams, BTreeMap<(String, i64), String>) {
    let folder = tempfile::tempdir().unwrap();
    let model = Arc::new(Model::load(&Source::Folder(demo().join("models/tiny"))).unwrap());
    let mut options = Options::new(slots, 1024);
    options.share_prefixes = share_prefixes;
    let mut engine = Engine::new(model.clone(), options).unwrap();
    // Loaded, and used by nobody: the base rows must not notice.
    let adapter = model.load_adapter(&data(demo()).join("adapters/1")).unwrap();
    engine.add_adapter("idle", adapter).unwrap();
    let spec = UnitSpec {
        experiment: "x".into(),
        event: None,
        arm: "base".into(),
        plan_sha256: "0".repeat(64),
        adapter_sha256: None,
        train_seed: None,
        seed: 77,
        items: families.iter().map(|f| Item { family: f.to_string(), level: 1, count: 6 }).collect(),
        split: families.iter().map(|f| (f.to_string(), "train".to_string())).collect(),
        rollouts,
        sampling: Sampling { temperature, logprobs: true, ..Sampling::greedy(16) },
        examples: 1,
        adapter: None,
        scaffold: "native".into(),
        evidence: "deployable".into(),
        accept_engine: false,
        accept_failures: false,
    };
    let stop = AtomicBool::new(false);
    let mut control = Control { stop: &stop, progress: &mut |_| {} };
    run_unit(&spec, &Gym, &mut engine, folder.path(), &mut control).unwrap();
    let calls: Vec<CallRow> = table::read(&folder.path().join("calls/base/77.parquet")).unwrap();
    let rows: Vec<EpisodeRow> = table::read(&folder.path().join("episodes/base/77.parquet")).unwrap();
    let calls = calls
        .into_iter()
        .map(|c| ((c.task_id, c.rollout, c.turn), (c.tokens_sha256.unwrap(), c.logprobs_sha256)))
        .collect();
    (calls, rows.into_iter().map(|r| ((r.task_id, r.rollout), r.tokens_sha256.unwrap())).collect())
}

#[test]
fn slots_neighbours_and_prefixes_change_no_bit() {
    let all = ["caravan", "gatepost", "kilnrite", "brinework"];
    for temperature in [0.0, 0.8] {
        let (calls, rows) = streams(2, true, &all, 2, temperature);
        assert!(calls.len() >= 48 && calls.values().all(|(_, logprobs)| logprobs.is_some()));
        for (slots, share) in [(3, true), (8, false), (32, true)] {
            let other = streams(slots, share, &all, 2, temperature);
            assert!(calls == other.0, "{slots} slots, sharing {share}: calls differ");
            assert!(rows == other.1, "{slots} slots, sharing {share}: rows differ");
        }
        let (alone, _) = streams(8, true, &["kilnrite"], 1, temperature);
        for (key, value) in &alone {
            assert!(calls.get(key) == Some(value), "{key:?} depends on its neighbours");
        }
    }
}
