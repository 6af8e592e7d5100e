//! Weights and counts against the receipts that sign them: the adapter, the merged checkpoint,
//! the rows that name them, and the harvest's counts by family and by reason.

use super::Finding;
use super::hashes::{head, inside, sha256, sorted};
use super::plan_rules::Case;
use super::rules::Gathered;
use super::sheet::files_under;
use crate::episode::row::Cell;
use crate::experiment::Deploy;
use crate::hash::sha256_file;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// All comparisons; what is not on disk is not compared, since weights may be kept elsewhere.
pub fn check(case: &Case) -> Vec<Finding> {
    let mut findings = Vec::new();
    let train = case.receipt("train");
    let merge = case.receipt("merge");
    let text = |receipt: &Option<Value>, key: &str| {
        receipt.as_ref().and_then(|receipt| Some(receipt.get(key)?.as_str()?.to_string()))
    };
    let adapter = text(&train, "adapter_sha256");
    let seed = train.as_ref().and_then(|receipt| receipt.get("train_seed")?.as_u64());
    if let (Some(signed), Some(seed)) = (&adapter, seed) {
        let file = format!("data/{}/adapters/{seed}/adapter_model.safetensors", case.slug);
        findings.extend(compare(case, &file, std::slice::from_ref(&file), signed, "train.json"));
    }
    if let (Some(signed), Some(merged)) = (&adapter, text(&merge, "adapter_sha256"))
        && *signed != merged
    {
        let detail = "is of another adapter than train.json".into();
        findings.push(Finding::new("weights", &case.receipt_path("merge"), None, detail));
    }
    let merged = text(&merge, "merged_sha256");
    if let (Some(signed), Some(folder)) = (&merged, text(&merge, "folder")) {
        if inside(&folder) {
            let folder = format!("data/{}/{folder}", case.slug);
            let mut files = files_under(case.workspace, &folder);
            files.retain(|file| file.ends_with(".safetensors"));
            let shown = match files.as_slice() {
                [file] => file,
                _ => &folder,
            };
            findings.extend(compare(case, shown, &files, signed, "merge.json"));
            // What stands in the place of the file and is none is not among the files.
            let single = format!("{folder}/model.safetensors");
            let error = crate::regular::there(&case.workspace.join(&single)).err();
            findings.extend(error.map(|e| Finding::new("unreadable_file", &single, None, e.to_string())));
        } else {
            let detail = format!("`{folder}` leaves the experiment's folder");
            findings.push(Finding::new("path_outside", &case.receipt_path("merge"), None, detail));
        }
    }
    findings.extend(rows(case, adapter.as_deref(), merged.as_deref()));
    findings.extend(harvest(case));
    findings
}

/// Weight files against a signed hash: that of the file, or of the files' hashes by name.
fn compare(case: &Case, shown: &str, files: &[String], signed: &str, by: &str) -> Option<Finding> {
    let mut hashes = Map::new();
    for file in files {
        let path = case.workspace.join(file);
        if crate::regular::there(&path).is_ok_and(|there| !there) {
            return None;
        }
        let name = file.rsplit('/').next().unwrap_or(file);
        match sha256_file(&path) {
            Ok(sha256) => hashes.insert(name.to_string(), sha256.into()),
            Err(error) => return Some(Finding::new("unreadable_file", file, None, error.to_string())),
        };
    }
    let actual = match hashes.values().next() {
        None => return None,
        Some(only) if hashes.len() == 1 => only.as_str().unwrap_or_default().to_string(),
        Some(_) => sha256(&sorted(&Value::Object(hashes))),
    };
    let detail = format!("SHA-256 is {}…, {by} says {}…", head(&actual), head(signed));
    (actual != signed).then(|| Finding::new("weights", shown, None, detail))
}

/// Rows of an arm with the trained adapter name that adapter, and a merged one its weights.
fn rows(case: &Case, adapter: Option<&str>, merged: Option<&str>) -> Vec<Finding> {
    let sheet = case.episodes;
    let mut wrong = Gathered::new("weights");
    for (file, number, row) in sheet.rows() {
        let arm = sheet.text(row, "arm");
        if !case.is_trained(arm) || case.is_served(row) {
            continue;
        }
        let ran = sheet.text(row, "adapter_sha256");
        if let Some(signed) = adapter
            && ran != signed
        {
            wrong.add(file, number, || {
                format!("ran adapter {}…, train.json says {}…", head(ran), head(signed))
            });
        }
        let model = sheet.text(row, "model_sha256");
        let is_merged = case.plan.arms.iter().any(|a| a.name == arm && a.deploy == Deploy::Merged);
        if let (true, Some(signed)) = (is_merged, merged)
            && model != signed
        {
            wrong.add(file, number, || {
                format!("ran model {}…, merge.json says {}…", head(model), head(signed))
            });
        }
    }
    wrong.into_findings().collect()
}

/// The harvest receipt's counts against the harvest rows.
fn harvest(case: &Case) -> Vec<Finding> {
    let Some(receipt) = case.receipt("harvest") else { return Vec::new() };
    let sheet = case.harvest;
    // samples, solved, kept
    let mut families: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut rejects: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, _, row) in sheet.rows() {
        let counts = families.entry(sheet.text(row, "family")).or_default();
        let flag = |column: &str| usize::from(sheet.cell(row, column) == Cell::Flag(true));
        for (count, more) in counts.iter_mut().zip([1, flag("solved"), flag("kept")]) {
            *count += more;
        }
        if !sheet.text(row, "reject").is_empty() {
            *rejects.entry(sheet.text(row, "reject")).or_default() += 1;
        }
    }
    let total = |at: usize| families.values().filter_map(|counts| counts.get(at)).sum::<usize>();
    let by_family: BTreeMap<&str, Value> = families
        .iter()
        .map(|(family, [samples, solved, kept])| {
            (*family, json!({"samples": samples, "solved": solved, "kept": kept}))
        })
        .collect();
    let own = [
        ("samples", json!(total(0))),
        ("kept", json!(total(2))),
        ("contributing_families", json!(families.values().filter(|[_, _, kept]| *kept > 0).count())),
        ("families", json!(by_family)),
        ("rejects", json!(rejects)),
    ];
    own.into_iter()
        .filter_map(|(key, own)| {
            let said = receipt.get(key).unwrap_or(&Value::Null);
            let detail = format!("`{key}` is {}, the harvest rows give {}", sorted(said), sorted(&own));
            (sorted(said) != sorted(&own))
                .then(|| Finding::new("weights", &case.receipt_path("harvest"), None, detail))
        })
        .collect()
}
