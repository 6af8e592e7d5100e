//! The harvest: K samples of the base model for each task of the training families, on seeds
//! of their own; the verifier decides what is kept. Held-out families never enter.

use super::earlier::{self, foreign};
use super::lab::{self, Lab, Unit};
use super::receipts::{FamilyYield, HarvestReceipt};
use super::select::{Sample, select};
use super::{Context, Experiment};
use crate::episode::{EpisodeRow, HarvestRow, chain, hashes, table, transcript};
use crate::error::{Error, Result};
use crate::experiment::{Purpose, Stage, ledger, lock, receipts};
use std::collections::BTreeMap;
use std::path::Path;

/// The name under which harvested episodes are stored; no arm may take it.
pub const ARM: &str = "harvest";

/// Runs the harvest, or returns its receipt when it is done.
pub fn harvest(experiment: &Experiment, lab: &mut Lab, context: &Context) -> Result<HarvestReceipt> {
    let plan = &experiment.plan;
    if plan.seeds.harvest.is_empty() {
        return Err(Error::invalid("the plan names no harvest seed")
            .at(format!("{}: [seeds] harvest", experiment.root.join("experiment.toml").display()))
            .hint("add `harvest = [11001]` under `[seeds]`"));
    }
    let plan_sha256 = lock::check(&experiment.root, plan, Stage::Harvest)?;
    if let Some(receipt) = receipts::read::<HarvestReceipt>(&experiment.root, "harvest")? {
        if receipt.plan_sha256 == plan_sha256 {
            return Ok(receipt);
        }
        return Err(foreign(&experiment.root, "harvest"));
    }
    let (workspace, slug) = (&experiment.workspace, &experiment.slug);
    ledger::check(workspace, slug, Purpose::Harvest, &plan.seeds.harvest)?;
    let model = lab.base(experiment, context)?;
    let (mut engine, _) = lab::engine(experiment, &model, &plan.harness.harvest, None)?;
    lock::lock(&experiment.root, plan, Stage::Harvest)?;
    ledger::spend(workspace, slug, Purpose::Harvest, &plan.seeds.harvest)?;
    for seed in &plan.seeds.harvest {
        let unit = Unit {
            arm: ARM,
            purpose: Purpose::Harvest,
            seed: *seed,
            families: plan.tasks.train.clone(),
            per_family: plan.harvest.per_family,
            harness: &plan.harness.harvest,
            plan_sha256: plan_sha256.clone(),
            adapter_sha256: None,
            train_seed: None,
            adapter: None,
        };
        lab::run(experiment, &mut engine, &unit, context)?;
    }
    let receipt = keep(experiment, plan_sha256, model.origin.sha256.clone())?;
    receipts::write(&experiment.root, "harvest", &receipt)?;
    Ok(receipt)
}

/// Gives every sample its verdict, writes them, and counts.
fn keep(experiment: &Experiment, plan_sha256: String, model_sha256: String) -> Result<HarvestReceipt> {
    let plan = &experiment.plan;
    let mut families: BTreeMap<String, FamilyYield> = BTreeMap::new();
    let mut rejects: BTreeMap<String, usize> = BTreeMap::new();
    let mut paths = Vec::new();
    let mut verdicts_of_seed = Vec::new();
    let mut all = Vec::new();
    for seed in &plan.seeds.harvest {
        let rows: Vec<EpisodeRow> = table::read_chain_checked(
            &experiment.root.join("episodes").join(ARM).join(format!("{seed}.parquet")),
        )?;
        let longest = longest_replies(experiment, *seed)?;
        for row in &rows {
            if plan.split(&row.family) != "train" {
                return Err(Error::refused(format!("family `{}` is held out and was harvested", row.family))
                    .at(format!("episodes/{ARM}/{seed}.parquet"))
                    .hint("remove the harvest and run it again"));
            }
            all.push(sample(experiment, row, &longest)?);
        }
        verdicts_of_seed.push((*seed, rows));
    }
    let verdicts = select(&all, &plan.harvest);
    let mut next = 0;
    for (seed, rows) in verdicts_of_seed {
        let mut out = Vec::with_capacity(rows.len());
        for row in rows {
            let reject = verdicts[next].map(str::to_string);
            next += 1;
            let family = families.entry(row.family.clone()).or_default();
            family.samples += 1;
            family.solved += usize::from(row.solved == Some(true));
            family.kept += usize::from(reject.is_none());
            if let Some(why) = &reject {
                *rejects.entry(why.clone()).or_default() += 1;
            }
            let (Some(completion_tokens), Some(tokens_sha256)) = (row.completion_tokens, row.tokens_sha256)
            else {
                return Err(Error::refused("a harvested episode has no token ids, which training needs")
                    .at(format!("episodes/{ARM}/{seed}.parquet: task `{}`", row.task_id))
                    .hint("remove the harvest and run it again on the local engine"));
            };
            out.push(HarvestRow {
                experiment: row.experiment,
                family: row.family,
                level: row.level,
                task_id: row.task_id,
                seed: row.seed,
                rollout: row.rollout,
                reward: row.reward,
                solved: row.solved,
                kept: reject.is_none(),
                reject,
                completion_tokens,
                tokens_sha256,
                row_sha256: String::new(),
            });
        }
        let path = format!("harvest/{seed}.parquet");
        write_rows(&experiment.root, &path, &mut out)?;
        paths.push(path);
        paths.push(format!("episodes/{ARM}/{seed}.parquet"));
        paths.push(format!("transcripts/{ARM}/{seed}.jsonl.zst"));
    }
    let kept: usize = families.values().map(|f| f.kept).sum();
    let contributing_families = families.values().filter(|f| f.kept > 0).count();
    let starved = starvation(kept, contributing_families, &plan.harvest);
    Ok(HarvestReceipt {
        passed: starved.is_none(),
        starved,
        plan_sha256,
        build: Some(earlier::BUILD.to_string()),
        model_sha256,
        samples: all.len(),
        kept,
        contributing_families,
        families,
        rejects,
        files: lab::file_hashes(&experiment.root, &paths)?,
    })
}

fn starvation(kept: usize, families: usize, rules: &crate::experiment::plan::Harvest) -> Option<String> {
    if kept < rules.minimum_rows {
        return Some(format!("{kept} rows were kept, and {} were required", rules.minimum_rows));
    }
    if families < rules.minimum_families {
        return Some(format!(
            "{families} families contributed, and {} were required",
            rules.minimum_families
        ));
    }
    None
}

/// Seals rows, writes their Parquet file and lists it in `hashes.json`.
pub(super) fn write_rows<R: crate::episode::Row>(root: &Path, relative: &str, rows: &mut [R]) -> Result<()> {
    chain::seal(rows)?;
    let bytes = table::encode(rows)?;
    crate::hash::write_atomic(&root.join(relative), &bytes)?;
    hashes::update(
        root,
        [(relative.to_string(), hashes::FileHash::of(&bytes, rows.len(), chain::last(rows)))],
    )
}

/// Longest reply in tokens, by (task, rollout).
fn longest_replies(experiment: &Experiment, seed: u64) -> Result<BTreeMap<(String, i64), usize>> {
    let path = experiment.root.join("transcripts").join(ARM).join(format!("{seed}.jsonl.zst"));
    Ok(transcript::read(&path)?
        .into_iter()
        .map(|t| ((t.task_id, t.rollout), t.sampled.iter().map(Vec::len).max().unwrap_or(0)))
        .collect())
}

fn sample(
    experiment: &Experiment,
    row: &EpisodeRow,
    longest: &BTreeMap<(String, i64), usize>,
) -> Result<Sample> {
    let place = || format!("episodes/{ARM}/{}.parquet: task `{}`", row.seed, row.task_id);
    let task = experiment.environment.by_id(&row.task_id).map_err(|e| e.at(place()))?;
    let longest_reply = longest.get(&(row.task_id.clone(), row.rollout)).copied().ok_or_else(|| {
        Error::invalid("the episode has no transcript")
            .at(place())
            .hint("remove the harvest and run it again")
    })?;
    Ok(Sample {
        family: row.family.clone(),
        level: row.level,
        task_id: row.task_id.clone(),
        rollout: row.rollout,
        solved: row.solved,
        longest_reply,
        answer_domain: task.answer_domain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Harvest;

    #[test]
    fn starvation_says_what_was_missing() {
        let rules = Harvest { minimum_rows: 60, minimum_families: 3, ..Harvest::default() };
        assert_eq!(starvation(60, 3, &rules), None);
        assert!(starvation(59, 3, &rules).unwrap().contains("59 rows"));
        assert!(starvation(90, 2, &rules).unwrap().contains("2 families"));
    }
}
