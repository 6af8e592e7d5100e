//! The merge receipt, a second time: what it says of the adapter against the adapter's own matrices, and of the
//! canaries against the plan and itself. Only running the model again could tell which canaries changed.

use super::Finding;
use super::hashes::inside;
use super::plan_rules::Case;
use super::sheet::files_under;
use super::stated::Stated;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// How far the stated norm may lie from this one, as a share: the merge works in f32.
const NORM_TOLERANCE: f64 = 1e-4;
/// Canary prompts of a training family, where the plan has as many tasks.
const CANARIES: u64 = 2;
/// The most of a change that rounding to the nearest number can make of it.
const MOST_KEPT: f64 = 2.0;

/// The share of a change that a checkpoint in f32 keeps, however small it is beside the weights.
const KEPT_IN_F32: [f64; 2] = [0.5, 1.5];
/// Largest difference of a logit between merged and live weights, for a checkpoint in f32.
const LOGITS_IN_F32: f64 = 1e-3;
/// The highest rank that a plan may ask for.
const MOST_RANK: usize = 1024;
/// Most bytes of a header of safetensors.
const HEADER: u64 = 16 << 20;

/// All comparisons of the merge receipt, where there is one.
pub fn check(case: &Case) -> Vec<Finding> {
    let Some(receipt) = case.receipt("merge") else { return Vec::new() };
    let mut stated = Stated::new(case, "merge", "merge", &receipt);
    let train = case.receipt("train");
    if let Some(model) = train.as_ref().and_then(|train| train.get("model_sha256")) {
        stated.holds("model_sha256", model, "the train receipt says");
    }
    if let Some(seed) = train.as_ref().and_then(|train| train.get("train_seed")?.as_u64()) {
        stated.holds("folder", &json!(format!("merged/{seed}")), "the training seed gives");
        adapter(case, seed, &mut stated);
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

/// Count and norm of the deltas against the adapter, where its file is here.
fn adapter(case: &Case, seed: u64, stated: &mut Stated) {
    let file = format!("data/{}/adapters/{seed}/adapter_model.safetensors", case.slug);
    let path = case.workspace.join(&file);
    if !path.is_file() {
        return;
    }
    let (deltas, squares) = match changes(&path) {
        Ok(changes) => changes,
        Err(why) => return stated.wrong.push(Finding::new("unreadable_file", &file, None, why)),
    };
    stated.holds("deltas", &json!(deltas), "the adapter has");
    let norm = case.plan.training.alpha / case.plan.training.rank as f64 * squares.sqrt();
    let said = stated.receipt.get("delta_norm").and_then(Value::as_f64);
    if !said.is_some_and(|said| (said - norm).abs() <= NORM_TOLERANCE * norm) {
        let said = said.map_or("missing".into(), |said| said.to_string());
        stated.add(format!("`delta_norm` is {said}, the adapter gives {norm}"));
    }
}

/// Whether the merged checkpoint is here and all its tensors are f32, by their files' headers.
fn is_f32(case: &Case, receipt: &Value) -> bool {
    let Some(folder) = receipt.get("folder").and_then(Value::as_str).filter(|folder| inside(folder)) else {
        return false;
    };
    let mut files = files_under(case.workspace, &format!("data/{}/{folder}", case.slug));
    files.retain(|file| file.ends_with(".safetensors"));
    !files.is_empty() && files.iter().all(|file| types(&case.workspace.join(file)).is_ok_and(|all| all))
}

/// Whether every tensor that a file's header names is f32.
fn types(path: &Path) -> std::io::Result<bool> {
    let mut file = fs_err::File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let mut header = Vec::new();
    file.take(u64::from_le_bytes(length).min(HEADER)).read_to_end(&mut header)?;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&header)?;
    Ok(header.iter().filter(|(name, _)| *name != "__metadata__").all(|(_, tensor)| tensor["dtype"] == "F32"))
}

/// How many modules an adapter changes, and the sum of squares of all their `B A`.
fn changes(path: &Path) -> Result<(usize, f64), String> {
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
    match squares.is_finite() {
        true => Ok((pairs.len(), squares)),
        false => Err("its changes have no finite norm".into()),
    }
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
