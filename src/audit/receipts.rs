//! Receipts that state numbers, a second time: the headroom gate's base scores, the training
//! curve's ends, the harvest's outcome; and the files that a receipt must be bound to.

use super::Finding;
use super::estimators::plain_mean;
use super::hashes::json;
use super::paired::SAME;
use super::plan_rules::Case;
use super::walk::number;
use crate::episode::columns::RowAt;
use crate::episode::row::Cell;
use crate::experiment::Gate;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How far a stated number may lie from the recomputed one.
const TOLERANCE: f64 = 1e-9;

/// All comparisons for one experiment with a plan.
pub fn check(case: &Case) -> Vec<Finding> {
    let mut findings = headroom(case);
    findings.extend(training(case));
    findings.extend(harvest(case));
    findings
}

/// What a receipt's fields state against what they should.
struct Stated<'a> {
    rule: &'static str,
    file: String,
    receipt: &'a Value,
    wrong: Vec<Finding>,
}

impl<'a> Stated<'a> {
    fn new(case: &Case, rule: &'static str, name: &str, receipt: &'a Value) -> Self {
        Stated { rule, file: case.receipt_path(name), receipt, wrong: Vec::new() }
    }

    /// Holds `path` (parts joined by `.`) against the recomputed value.
    fn holds(&mut self, path: &str, own: &Value, from: &str) {
        let pointer = format!("/{}", path.replace('.', "/"));
        let stated = self.receipt.pointer(&pointer);
        let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE;
        let agrees = match (stated.and_then(Value::as_f64), own.as_f64()) {
            (Some(stated), Some(own)) => near(stated, own),
            _ => stated == Some(own),
        };
        if !agrees {
            let stated = stated.map_or("missing".into(), Value::to_string);
            self.add(format!("`{path}` is {stated}, {from} {own}"));
        }
    }

    fn add(&mut self, detail: String) {
        self.wrong.push(Finding::new(self.rule, &self.file, None, detail));
    }

    /// The receipt must name each of `files` among those it is bound to.
    fn bound(&mut self, files: impl Iterator<Item = String>) {
        for file in files {
            let named = self.receipt.get("files").is_some_and(|named| named.get(&file).is_some());
            if !named {
                self.add(format!("is not bound to `{file}`"));
            }
        }
    }
}

/// The base arm's mean reward by family on the calibration seeds, the gate's bars, and its verdict.
fn headroom(case: &Case) -> Vec<Finding> {
    let Some(receipt) = case.receipt("headroom") else { return Vec::new() };
    let mut stated = Stated::new(case, "headroom", "headroom", &receipt);
    let is_of = |gate: &&Gate| {
        let Gate::Headroom { ceiling, minimum_delta } = gate;
        receipt.get("ceiling").and_then(Value::as_f64) == Some(*ceiling)
            && receipt.get("minimum_delta").and_then(Value::as_f64) == Some(*minimum_delta)
    };
    let Some(gate) = case.plan.gates.iter().find(is_of).or(case.plan.gates.first()) else {
        stated.add("the plan has no headroom gate".into());
        return stated.wrong;
    };
    let Gate::Headroom { ceiling, minimum_delta } = gate;
    stated.holds("ceiling", &json!(ceiling), "the plan says");
    stated.holds("minimum_delta", &json!(minimum_delta), "the plan says");
    if !case.episodes.unreadable.is_empty() {
        return stated.wrong;
    }
    let scores = base_scores(case);
    let named = receipt.get("base").and_then(Value::as_object);
    for family in named.into_iter().flat_map(Map::keys).filter(|family| !scores.contains_key(*family)) {
        stated.add(format!("`base.{family}` is stated, and no calibration row is of that family"));
    }
    let mut room = true;
    for (family, own) in &scores {
        stated.holds(&format!("base.{family}"), &json!(own), "the rows give");
        // A border is judged on the stated number where it is right.
        let said = named.and_then(|base| base.get(family)).and_then(Value::as_f64);
        let score = said.filter(|said| (said - own).abs() <= TOLERANCE).unwrap_or(*own);
        room &= ceiling - score > *minimum_delta + SAME;
    }
    stated.holds("passed", &json!(room), "the rows give");
    stated.wrong
}

fn base_scores(case: &Case) -> BTreeMap<String, f64> {
    let sheet = case.episodes;
    let Some(base) = case.plan.arms.first() else { return BTreeMap::new() };
    let mut rewards: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (_, _, row) in sheet.rows() {
        let seed = sheet.whole(row, "seed").and_then(|seed| u64::try_from(seed).ok());
        let calibrates = seed.is_some_and(|seed| case.plan.seeds.calibrate.contains(&seed));
        if let (true, Cell::Real(reward)) =
            (calibrates && sheet.text(row, "arm") == base.name, sheet.cell(row, "reward"))
        {
            rewards.entry(sheet.text(row, "family").to_string()).or_default().push(reward);
        }
    }
    rewards.into_iter().map(|(family, rewards)| (family, plain_mean(&rewards))).collect()
}

/// Steps, tokens and losses of the training receipt against the training rows.
fn training(case: &Case) -> Vec<Finding> {
    let Some(receipt) = case.receipt("train") else { return Vec::new() };
    let mut stated = Stated::new(case, "training", "train", &receipt);
    let Some(seed) = receipt.get("train_seed").and_then(Value::as_i64) else {
        stated.add("names no `train_seed`".into());
        return stated.wrong;
    };
    if !case.plan.seeds.train.iter().any(|planned| i64::try_from(*planned) == Ok(seed)) {
        stated.add(format!("`train_seed` is {seed}, which the plan does not name"));
    }
    stated.bound(std::iter::once(format!("training/{seed}.parquet")));
    stated.wrong.extend(configuration(case, seed));
    let kept =
        case.harvest.rows().filter(|(_, _, row)| case.harvest.cell(*row, "kept") == Cell::Flag(true)).count();
    let count = |key: &str| receipt.get(key).and_then(Value::as_u64).unwrap_or(0);
    let trained = count("rows").saturating_add(count("skipped_too_long"));
    if kept > 0 && case.harvest.unreadable.is_empty() && trained != kept as u64 {
        stated.add(format!("`rows` and `skipped_too_long` are {trained} together, the harvest kept {kept}"));
    }
    let sheet = case.training;
    let rows: Vec<RowAt> = sheet
        .rows()
        .map(|(_, _, row)| row)
        .filter(|row| sheet.whole(*row, "train_seed") == Some(seed))
        .collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return stated.wrong };
    let of = |row: &RowAt, column: &str| json!(number(&sheet.cell(*row, column)));
    let tokens: i64 = rows.iter().filter_map(|row| sheet.whole(*row, "tokens")).sum();
    stated.holds("steps", &json!(rows.len()), "the rows give");
    stated.holds("tokens", &json!(tokens), "the rows give");
    stated.holds("first_loss", &of(first, "loss"), "the rows give");
    stated.holds("last_loss", &of(last, "loss"), "the rows give");
    stated.wrong
}

/// Rank and scale in the adapter's configuration, where it is present: no hash covers them, and
/// they multiply what the adapter does.
fn configuration(case: &Case, seed: i64) -> Vec<Finding> {
    let file = format!("data/{}/adapters/{seed}/adapter_config.json", case.slug);
    let path = case.workspace.join(&file);
    if !path.is_file() {
        return Vec::new();
    }
    match json(&path) {
        Ok(config) => {
            let mut stated = Stated { rule: "training", file, receipt: &config, wrong: Vec::new() };
            stated.holds("r", &json!(case.plan.training.rank), "the plan says");
            stated.holds("lora_alpha", &json!(case.plan.training.alpha), "the plan says");
            stated.wrong
        }
        Err(why) => vec![Finding::new("unreadable_file", &file, None, why)],
    }
}

/// Whether the harvest kept what the plan asks for. (Its counts are compared with the weights.)
fn harvest(case: &Case) -> Vec<Finding> {
    let Some(receipt) = case.receipt("harvest") else { return Vec::new() };
    let mut stated = Stated::new(case, "harvest", "harvest", &receipt);
    stated.bound(case.plan.seeds.harvest.iter().map(|seed| format!("harvest/{seed}.parquet")));
    let sheet = case.harvest;
    if !sheet.unreadable.is_empty() {
        return stated.wrong;
    }
    let mut families: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, _, row) in sheet.rows().filter(|(_, _, row)| sheet.cell(*row, "kept") == Cell::Flag(true)) {
        *families.entry(sheet.text(row, "family")).or_default() += 1;
    }
    let enough = families.values().sum::<usize>() >= case.plan.harvest.minimum_rows
        && families.len() >= case.plan.harvest.minimum_families;
    stated.holds("passed", &json!(enough), "the rows and the plan give");
    let starved = receipt.get("starved").is_some_and(|why| !why.is_null());
    if starved == enough {
        let says = if starved { "says" } else { "does not say" };
        stated.add(format!("{says} that the harvest was starved, against the rows and the plan"));
    }
    stated.wrong
}
