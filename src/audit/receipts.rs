//! Receipts that state numbers, a second time: the training curve's ends and the harvest's outcome;
//! and the files that a receipt must be bound to. (Gates have a file of their own.)

use super::Finding;
use super::hashes::json;
use super::plan_rules::Case;
use super::stated::Stated;
use super::walk::number;
use crate::episode::columns::RowAt;
use crate::episode::row::Cell;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// All comparisons for one experiment with a plan.
pub fn check(case: &Case) -> Vec<Finding> {
    let mut findings = training(case);
    findings.extend(harvest(case));
    findings
}

/// Steps, tokens and losses of the training receipt against the training rows.
fn training(case: &Case) -> Vec<Finding> {
    let Some(receipt) = case.receipt("train") else { return Vec::new() };
    let mut stated = Stated::new(case, "training", "train", &receipt);
    if let Some(model) = case.receipt("harvest").as_ref().and_then(|harvest| harvest.get("model_sha256")) {
        stated.holds("model_sha256", model, "the harvest's receipt says");
    }
    let Some(seed) = receipt.get("train_seed").and_then(Value::as_i64) else {
        stated.add("names no `train_seed`".into());
        return stated.wrong;
    };
    if !case.plan.seeds.train.iter().any(|planned| i64::try_from(*planned) == Ok(seed)) {
        stated.add(format!("`train_seed` is {seed}, which the plan does not name"));
    }
    stated.bound(std::iter::once(format!("training/{seed}.parquet")));
    if case.plan.seeds.harvest.is_empty() {
        stated.add("the plan harvests nothing to train on".into());
    } else {
        let harvest = json(&case.workspace.join(case.receipt_path("harvest"))).ok();
        let own = harvest.and_then(|signed| signed.get("sha256").cloned()).unwrap_or(Value::Null);
        stated.holds("harvest_sha256", &own, "the harvest's receipt is");
    }
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
    // Neither a loss nor a norm is below zero, and the plan's learning rate is the highest.
    for (at, row) in rows.iter().enumerate() {
        let of = |column: &str| number(&sheet.cell(*row, column)).unwrap_or(0.0);
        let most = case.plan.training.learning_rate * (1.0 + 1e-6);
        if of("loss") < 0.0 || of("grad_norm") < 0.0 || !(0.0..=most).contains(&of("learning_rate")) {
            let file = format!("data/{}/training/{seed}.parquet", case.slug);
            let detail = "a loss or norm is below zero, or the learning rate is not within the plan's".into();
            stated.wrong.push(Finding::new("training", &file, Some(at + 1), detail));
        }
    }
    let of = |row: &RowAt, column: &str| json!(number(&sheet.cell(*row, column)));
    // A sum beyond 64 bits is no number that a receipt may state.
    let tokens: i128 = rows.iter().filter_map(|row| sheet.whole(*row, "tokens")).map(i128::from).sum();
    let tokens = i64::try_from(tokens).map_or_else(|_| json!(tokens.to_string()), |tokens| json!(tokens));
    stated.holds("steps", &json!(rows.len()), "the rows give");
    stated.holds("tokens", &tokens, "the rows give");
    stated.holds("first_loss", &of(first, "loss"), "the rows give");
    stated.holds("last_loss", &of(last, "loss"), "the rows give");
    stated.wrong
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
