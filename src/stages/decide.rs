//! The decision: rows of all evaluation events in, the rule's outcome out, signed by the hashes
//! of the files it read.

use super::{DecisionReceipt, Experiment};
use crate::episode::{EpisodeRow, table};
use crate::error::{Error, Result};
use crate::experiment::{Purpose, receipts};
use crate::stats::decision::{Pooled, three_way};
use crate::stats::{self, Arm, Observation, Paired};
use std::collections::{BTreeMap, BTreeSet};

/// Decides and writes `receipts/decision.json`. The treatment is the second arm of the plan.
pub fn decide(experiment: &Experiment, plan_sha256: &str) -> Result<DecisionReceipt> {
    let plan = &experiment.plan;
    let arms = [plan.arms[0].name.clone(), plan.arms[1].name.clone()];
    let mut rows = Vec::new();
    let mut files = BTreeMap::new();
    for arm in &arms {
        for seed in &plan.seeds.evaluate {
            let (path, of_unit) = read(experiment, arm, *seed)?;
            files.insert(path.clone(), crate::hash::sha256_file(&experiment.root.join(&path))?);
            rows.extend(of_unit);
        }
    }
    let key = format!("{}/decision", experiment.slug);
    let pooled = delta(experiment, &rows, &key, &arms)?;
    let events: Vec<(String, Option<f64>)> = plan
        .seeds
        .evaluate
        .iter()
        .map(|seed| {
            let of_event: Vec<EpisodeRow> = rows.iter().filter(|r| r.seed == *seed as i64).cloned().collect();
            Ok((seed.to_string(), delta(experiment, &of_event, &key, &arms)?.delta))
        })
        .collect::<Result<_>>()?;
    let null_spread = null_spread(experiment)?;
    let receipt = DecisionReceipt {
        plan_sha256: plan_sha256.to_string(),
        arms,
        decision: three_way(&events, pooled, plan.decision.minimum_delta, null_spread),
        null_spread,
        files,
    };
    receipts::write(&experiment.root, "decision", &receipt)?;
    Ok(receipt)
}

/// Mean score of the base arm by family, over the seeds of one purpose.
pub fn base_by_family(experiment: &Experiment, purpose: Purpose) -> Result<BTreeMap<String, f64>> {
    let mut scores: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in base_rows(experiment, purpose)? {
        if let Some(reward) = row.reward {
            scores.entry(row.family).or_default().push(reward);
        }
    }
    Ok(scores.into_iter().map(|(family, s)| (family, s.iter().sum::<f64>() / s.len() as f64)).collect())
}

/// Largest difference between the base arm's mean scores on any two null seeds: on disjoint
/// seeds, since on the same ones greedy decoding gives 0 by construction.
fn null_spread(experiment: &Experiment) -> Result<Option<f64>> {
    if experiment.plan.seeds.null.len() < 2 {
        return Ok(None);
    }
    let mut by_seed: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for row in base_rows(experiment, Purpose::Null)? {
        by_seed.entry(row.seed).or_default().extend(row.reward);
    }
    let means: Vec<f64> =
        by_seed.values().filter(|s| !s.is_empty()).map(|s| s.iter().sum::<f64>() / s.len() as f64).collect();
    let (low, high) =
        means.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), m| (l.min(*m), h.max(*m)));
    if means.len() < 2 {
        return Err(Error::refused(
            "fewer than two null seeds have scored episodes, so the null spread is unknown",
        )
        .at("seeds.null")
        .hint("the plan asks for a null calibration: run it again where the infrastructure failed"));
    }
    Ok(Some(high - low))
}

fn base_rows(experiment: &Experiment, purpose: Purpose) -> Result<Vec<EpisodeRow>> {
    let mut rows = Vec::new();
    for (of, seed) in experiment.plan.event_seeds() {
        if of == purpose {
            rows.extend(read(experiment, &experiment.plan.base().name, seed)?.1);
        }
    }
    Ok(rows)
}

fn read(experiment: &Experiment, arm: &str, seed: u64) -> Result<(String, Vec<EpisodeRow>)> {
    let path = format!("episodes/{arm}/{seed}.parquet");
    let file = experiment.root.join(&path);
    crate::episode::hashes::verify_file(&experiment.root, &path)?;
    Ok((path, table::read_chain_checked(&file)?))
}

fn delta(experiment: &Experiment, rows: &[EpisodeRow], key: &str, arms: &[String; 2]) -> Result<Pooled> {
    let metric = &experiment.plan.decision.metric;
    let observations: Vec<Observation> = rows
        .iter()
        .map(|row| {
            let reward = match metric.of.as_str() {
                "solved" => row.solved.map(|s| f64::from(u8::from(s))),
                _ => row.reward,
            };
            Observation {
                arm: if row.arm == arms[0] { Arm::Base } else { Arm::Treatment },
                task: &row.task_id,
                family: Some(&row.family),
                cluster: None,
                seed: row.seed,
                train_seed: row.train_seed,
                rollout: row.rollout,
                reward,
                solved: row.solved,
            }
        })
        .collect();
    let undefined = Pooled { delta: None, low: None, high: None, tasks: 0, moved: 0 };
    let Ok(paired) = Paired::new(&observations) else { return Ok(undefined) };
    let weight = match metric.weight {
        crate::claims::derivation::Weight::Task => stats::Weight::Task,
        crate::claims::derivation::Weight::Family => stats::Weight::Family,
    };
    let streams = |of: &String| -> Option<BTreeSet<(&str, i64, i64, &str)>> {
        let rows = rows.iter().filter(|row| row.arm == *of);
        rows.map(|r| Some((r.task_id.as_str(), r.seed, r.rollout, r.tokens_sha256.as_deref()?))).collect()
    };
    // Where token ids are unknown, nobody can say that they are the same.
    let (left, right) = (streams(&arms[0]), streams(&arms[1]));
    let identical_streams = left.is_some() && left == right;
    let options =
        stats::Options { weight, bootstrap_key: key, identical_streams, ..stats::Options::default() };
    let estimate = stats::estimate(&paired, &options).map_err(|why| {
        Error::refused(format!("the change cannot be estimated: {why}")).at(experiment.root.display())
    })?;
    let interval = estimate.headline.ok().map(|h| h.interval);
    Ok(Pooled {
        delta: Some(estimate.delta),
        low: interval.map(|i| i.low),
        high: interval.map(|i| i.high),
        tasks: estimate.tasks,
        moved: estimate.nonzero_differences,
    })
}
