//! The trained adapter and its merge, a second time: the adapter's configuration against the plan and its own
//! matrices, and the merge receipt against both, the canaries against the plan and themselves. Only running the model
//! again could tell which canaries changed, and what the merged weights do.

use super::Finding;
use super::hashes::{inside, json as read};
use super::plan_rules::Case;
use super::sheet::files_under;
use super::stated::Stated;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// How far the stated norm may lie from this one, as a share: the merge works in f32.
const NORM_TOLERANCE: f64 = 1e-4;
/// Canary prompts of a training family, where the plan has as many tasks.
const CANARIES: u64 = 2;
/// The most of a change that rounding to the nearest number can make of it.
const MOST_KEPT: f64 = 2.0;

/// The share of a change that a checkpoint in f32 keeps, unless the change is as small as rounding.
const KEPT_IN_F32: [f64; 2] = [0.5, 1.5];
/// Largest difference of a logit between merged and live weights, for a checkpoint in f32.
const LOGITS_IN_F32: f64 = 1e-3;
/// The highest rank that a plan may ask for.
const MOST_RANK: usize = 1024;
/// Most bytes of a header of safetensors.
const HEADER: u64 = 16 << 20;

/// All comparisons of the adapter, where it is here, and of the merge receipt, where there is one.
pub fn check(case: &Case) -> Vec<Finding> {
    let train = case.receipt("train");
    let seed = train.as_ref().and_then(|train| train.get("train_seed")?.as_u64());
    let (adapter, mut findings) = match seed.map(|seed| adapter(case, seed)) {
        Some(Ok(adapter)) => (adapter, Vec::new()),
        Some(Err(wrong)) => (None, vec![wrong]),
        None => (None, Vec::new()),
    };
    if let Some((seed, adapter)) = seed.zip(adapter.as_ref()) {
        findings.extend(configuration(case, seed, adapter));
    }
    findings.extend(merge(case, train.as_ref(), seed, adapter.as_ref()));
    findings
}

/// The merge receipt against the training's and the adapter.
fn merge(case: &Case, train: Option<&Value>, seed: Option<u64>, adapter: Option<&Adapter>) -> Vec<Finding> {
    let Some(receipt) = case.receipt("merge") else { return Vec::new() };
    let mut stated = Stated::new(case, "merge", "merge", &receipt);
    if let Some(model) = train.and_then(|train| train.get("model_sha256")) {
        stated.holds("model_sha256", model, "the train receipt says");
        if receipt.get("merged_sha256") == Some(model) {
            stated.add("`merged_sha256` is `model_sha256`: nothing was merged into the model".into());
        }
    }
    if let Some(seed) = seed {
        stated.holds("folder", &json!(format!("merged/{seed}")), "the training seed gives");
    }
    if let Some(adapter) = adapter {
        stated.holds("deltas", &json!(adapter.modules.len()), "the adapter has");
        let norm = case.plan.training.alpha / case.plan.training.rank as f64 * adapter.squares.sqrt();
        let said = receipt.get("delta_norm").and_then(Value::as_f64);
        if !said.is_some_and(|said| (said - norm).abs() <= NORM_TOLERANCE * norm) {
            let said = said.map_or("missing".into(), |said| said.to_string());
            stated.add(format!("`delta_norm` is {said}, the adapter gives {norm}"));
        }
    }
    let count = |key: &str| receipt.get(key).and_then(Value::as_u64);
    match (count("matched"), count("deltas")) {
        (Some(matched), Some(deltas)) if matched != deltas || deltas == 0 => {
            stated.add(format!(
                "{matched} of {deltas} deltas found their weight: every one has to, and one at least"
            ));
        }
        (Some(_), Some(_)) => {}
        _ => stated.add("`matched` and `deltas` are to be counts".into()),
    }
    let families =
        case.plan.families().filter(|family| case.plan.tasks.train.contains(family)).count() as u64;
    let tasks =
        if case.plan.seeds.harvest.is_empty() { CANARIES } else { case.plan.harvest.per_family.into() };
    let canaries = families * CANARIES.min(tasks);
    stated.holds("canaries", &json!(canaries), "the plan's training families give");
    match count("canaries_changed") {
        Some(changed) if changed <= canaries => {
            stated.holds("passed", &json!(changed > 0), "the canaries that changed give");
        }
        _ => stated.add(format!("`canaries_changed` is to be a count of at most {canaries}")),
    }
    // In f32 hardly anything of a change is rounded away, and logits agree.
    let (kept, most) =
        if is_f32(case, &receipt) { (KEPT_IN_F32, LOGITS_IN_F32) } else { ([0.0, MOST_KEPT], f64::MAX) };
    within(&mut stated, "kept_share", kept[0], kept[1]);
    within(&mut stated, "largest_logit_difference", 0.0, most);
    within(&mut stated, "delta_norm", f64::MIN_POSITIVE, f64::MAX);
    stated.wrong
}

/// A stated number has to be one, and in its range.
fn within(stated: &mut Stated, field: &str, low: f64, high: f64) {
    let said = stated.receipt.get(field);
    if !said.and_then(Value::as_f64).is_some_and(|said| (low..=high).contains(&said)) {
        let said = said.map_or("missing".into(), Value::to_string);
        stated.add(format!("`{field}` is {said}, which no merge gives"));
    }
}

/// A trained adapter, as its file has it.
struct Adapter {
    /// The modules that it changes, by path, each with the rank of its matrices.
    modules: BTreeMap<String, usize>,
    /// The sum of squares of all their B A.
    squares: f64,
}

/// The adapter of a training seed; none where its file is kept elsewhere.
fn adapter(case: &Case, seed: u64) -> Result<Option<Adapter>, Finding> {
    let file = format!("data/{}/adapters/{seed}/adapter_model.safetensors", case.slug);
    let path = case.workspace.join(&file);
    let wrong = |why: String| Finding::new("unreadable_file", &file, None, why);
    match crate::regular::there(&path) {
        Ok(true) => changes(&path).map(Some).map_err(wrong),
        Ok(false) => Ok(None),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// The adapter's configuration, which no hash covers, and which says what its matrices do: rank and scale are the
/// plan's for every module, the modules those that the file has, and nothing else is asked for.
fn configuration(case: &Case, seed: u64, adapter: &Adapter) -> Vec<Finding> {
    let file = format!("data/{}/adapters/{seed}/adapter_config.json", case.slug);
    let path = case.workspace.join(&file);
    // What is there and no file is an error of reading it.
    if crate::regular::there(&path).is_ok_and(|there| !there) {
        return Vec::new();
    }
    let config = match read(&path) {
        Ok(config) => config,
        Err(why) => return vec![Finding::new("unreadable_file", &file, None, why)],
    };
    let mut stated = Stated { rule: "training", file, receipt: &config, wrong: Vec::new() };
    let rank = case.plan.training.rank;
    stated.holds("r", &json!(rank), "the plan says");
    stated.holds("lora_alpha", &json!(case.plan.training.alpha), "the plan says");
    if let Some((module, other)) = adapter.modules.iter().find(|(_, other)| **other != rank) {
        stated.add(format!("`{module}` has rank {other}, the plan says {rank}"));
    }
    let targets: BTreeSet<&str> =
        adapter.modules.keys().map(|path| path.rsplit('.').next().unwrap_or(path)).collect();
    stated.holds("target_modules", &json!(targets), "the adapter's file gives");
    let plain = [
        ("peft_type", json!("LORA")),
        ("bias", json!("none")),
        ("rank_pattern", json!({})),
        ("alpha_pattern", json!({})),
        ("layers_to_transform", Value::Null),
        ("modules_to_save", Value::Null),
        ("use_rslora", json!(false)),
        ("use_dora", json!(false)),
        ("fan_in_fan_out", json!(false)),
    ];
    for (field, value) in plain {
        stated.holds(field, &value, "every training here writes");
    }
    stated.wrong
}

/// Whether the merged checkpoint is here and all its tensors are f32, by their files' headers.
fn is_f32(case: &Case, receipt: &Value) -> bool {
    let Some(folder) = receipt.get("folder").and_then(Value::as_str).filter(|folder| inside(folder)) else {
        return false;
    };
    let mut files = files_under(case.workspace, &format!("data/{}/{folder}", case.slug));
    files.retain(|file| file.ends_with(".safetensors"));
    !files.is_empty() && files.iter().all(|file| all_f32(&case.workspace.join(file)).unwrap_or(false))
}

/// Whether every tensor that a file's header names is f32.
fn all_f32(path: &Path) -> std::io::Result<bool> {
    let mut file = fs_err::File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let mut header = Vec::new();
    file.take(u64::from_le_bytes(length).min(HEADER)).read_to_end(&mut header)?;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&header)?;
    Ok(header.iter().filter(|(name, _)| *name != "__metadata__").all(|(_, tensor)| tensor["dtype"] == "F32"))
}

/// What an adapter's file changes.
fn changes(path: &Path) -> Result<Adapter, String> {
    let bytes = crate::regular::data(path).map_err(|error| error.to_string())?;
    let tensors = safetensors::SafeTensors::deserialize(&bytes).map_err(|error| error.to_string())?;
    let mut pairs: BTreeMap<String, [Option<Matrix>; 2]> = BTreeMap::new();
    for (name, tensor) in tensors.iter() {
        for (at, half) in [".lora_A.weight", ".lora_B.weight"].into_iter().enumerate() {
            if let Some(module) = name.strip_suffix(half) {
                pairs.entry(module.to_string()).or_default()[at] = Some(Matrix::of(name, &tensor)?);
            }
        }
    }
    // A sum in the order of the modules, however many threads there are.
    let squares: Vec<f64> = pairs
        .par_iter()
        .map(|(module, pair)| match pair {
            [Some(a), Some(b)] if a.rows == b.columns && a.rows <= MOST_RANK => Ok(squares(a, b)),
            [Some(_), Some(_)] => Err(format!("the matrices of `{module}` do not fit")),
            _ => Err(format!("`{module}` has one of two matrices")),
        })
        .collect::<Result<_, String>>()?;
    let squares: f64 = squares.iter().sum();
    if !squares.is_finite() {
        return Err("its changes have no finite norm".into());
    }
    let rank = |[a, _]: [Option<Matrix>; 2]| a.map_or(0, |a| a.rows);
    Ok(Adapter { modules: pairs.into_iter().map(|(module, pair)| (module, rank(pair))).collect(), squares })
}

/// The sum of squares of B A: the trace of (Bᵀ B)(A Aᵀ), two matrices of rank by rank.
fn squares(a: &Matrix, b: &Matrix) -> f64 {
    let outer = |i: usize, j: usize| -> f64 { (0..a.columns).map(|k| a.at(i, k) * a.at(j, k)).sum() };
    let inner = |i: usize, j: usize| -> f64 { (0..b.rows).map(|k| b.at(k, i) * b.at(k, j)).sum() };
    let rank = a.rows;
    (0..rank * rank).map(|at| outer(at / rank, at % rank) * inner(at / rank, at % rank)).sum()
}

/// A matrix of f32, row by row.
struct Matrix {
    rows: usize,
    columns: usize,
    numbers: Vec<f64>,
}

impl Matrix {
    fn of(name: &str, tensor: &safetensors::tensor::TensorView) -> Result<Matrix, String> {
        let (safetensors::Dtype::F32, [rows, columns]) = (tensor.dtype(), tensor.shape()) else {
            return Err(format!("`{name}` is no matrix of f32"));
        };
        let number = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let numbers = tensor.data().chunks_exact(4).map(number).collect();
        Ok(Matrix { rows: *rows, columns: *columns, numbers })
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.numbers[row * self.columns + column]
    }
}
