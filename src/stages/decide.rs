//! The decision: rows of all evaluation events in, the rule's outcome out, signed by the hashes
//! of the files it read.

use super::{DecisionReceipt, Experiment};
use crate::episode::{EpisodeRow, table};
use crate::error::{Error, Result};
use crate::experiment::{Purpose, Rule, receipts};
use crate::stats::decision::{Pooled, equivalence, non_inferiority, three_way};
use crate::stats::{self, Arm, Estimate, Observation, Paired, estimate};
use std::collections::{BTreeMap, BTreeSet};

/// A unit's episodes: from the path of its file within the experiment folder to the file's SHA-256 and rows.
pub type Units<'a> = dyn Fn(&str) -> Result<(String, Vec<EpisodeRow>)> + 'a;

/// The episodes on disk, each file held against `hashes.json` and its own chain.
pub fn on_disk(experiment: &Experiment) -> impl Fn(&str) -> Result<(String, Vec<EpisodeRow>)> + '_ {
    |path| {
        let listed = crate::episode::hashes::verify_file(&experiment.root, path)?;
        Ok((listed.sha256, table::read_chain_checked(&experiment.root.join(path))?))
    }
}

/// Decides and writes `receipts/decision.json`. The treatment is the second arm of the plan. Refused where a row
/// was not made under this plan, for this experiment, by the arm and under the seed of its file.
pub fn decide(experiment: &Experiment, plan_sha256: &str) -> Result<DecisionReceipt> {
    let receipt = decision(experiment, plan_sha256, &on_disk(experiment))?;
    receipts::write(&experiment.root, "decision", &receipt)?;
    Ok(receipt)
}

/// What the rule gives on these units; writes nothing.
pub fn decision(experiment: &Experiment, plan_sha256: &str, units: &Units) -> Result<DecisionReceipt> {
    let plan = &experiment.plan;
    let arms = [plan.arms[0].name.clone(), plan.arms[1].name.clone()];
    let mut rows = Vec::new();
    let mut files = BTreeMap::new();
    for arm in &arms {
        for seed in &plan.seeds.evaluate {
            let (path, sha256, of_unit) = episodes(experiment, arm, *seed, plan_sha256, units)?;
            files.insert(path, sha256);
            rows.extend(of_unit);
        }
    }
    let key = format!("{}/decision", experiment.slug);
    let change = |rows: &[EpisodeRow]| change(experiment, rows, &key, &arms);
    let whole = change(&rows)?;
    let pooled = Pooled::of(whole.as_ref());
    let null_spread = null_spread(experiment, plan_sha256, units)?;
    for seed in plan.seeds.null.iter().filter(|_| null_spread.is_some()) {
        let (path, sha256, _) = episodes(experiment, &arms[0], *seed, plan_sha256, units)?;
        files.insert(path, sha256);
    }
    let bar = plan.decision.bar();
    let decision = match plan.decision.rule {
        Rule::ThreeWay => {
            let of_event = |seed: &u64| -> Result<(String, Option<f64>)> {
                let rows: Vec<EpisodeRow> = rows.iter().filter(|r| r.seed == *seed as i64).cloned().collect();
                Ok((seed.to_string(), change(&rows)?.map(|estimate| estimate.delta)))
            };
            let events: Vec<_> = plan.seeds.evaluate.iter().map(of_event).collect::<Result<_>>()?;
            three_way(&events, pooled, bar, null_spread)
        }
        Rule::NonInferiority => {
            non_inferiority(pooled, bar, tested(whole.as_ref(), |e| estimate::non_inferiority_p(e, bar)))
        }
        Rule::Equivalence => {
            let ninety = whole.as_ref().and_then(|e| estimate::t_interval(e, NINETY).ok());
            let above = tested(whole.as_ref(), |e| estimate::non_inferiority_p(e, bar));
            let below = tested(whole.as_ref(), |e| estimate::non_superiority_p(e, bar));
            equivalence(pooled, ninety, bar, [above, below])
        }
    };
    Ok(DecisionReceipt {
        plan_sha256: plan_sha256.to_string(),
        arms,
        decision,
        null_spread,
        looks: super::looks(experiment)?,
        files,
    })
}

/// Level of the interval that two one-sided tests at .05 make.
const NINETY: f64 = 0.90;

/// A p value, where there is an interval to stand beside and anything differed.
fn tested(estimate: Option<&Estimate>, p: impl Fn(&Estimate) -> stats::Value) -> Option<f64> {
    let headline = estimate?.headline.as_ref().ok()?;
    if headline.method == stats::Method::Identical { None } else { p(estimate?).ok() }
}

/// What an episode scores in the plan's metric.
fn score(experiment: &Experiment, row: &EpisodeRow) -> Option<f64> {
    match experiment.plan.decision.metric.of.as_str() {
        "solved" => row.solved.map(|solved| f64::from(u8::from(solved))),
        _ => row.reward,
    }
}

/// Mean score of the base arm by family, over the seeds of one purpose.
pub fn base_by_family(
    experiment: &Experiment,
    purpose: Purpose,
    plan_sha256: &str,
    units: &Units,
) -> Result<BTreeMap<String, f64>> {
    let mut scores: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in base_rows(experiment, purpose, plan_sha256, units)? {
        if let Some(score) = score(experiment, &row) {
            scores.entry(row.family).or_default().push(score);
        }
    }
    Ok(scores.into_iter().map(|(family, s)| (family, s.iter().sum::<f64>() / s.len() as f64)).collect())
}

/// Largest difference between the base arm's mean scores on any two null seeds: on disjoint
/// seeds, since on the same ones greedy decoding gives 0 by construction.
fn null_spread(experiment: &Experiment, plan_sha256: &str, units: &Units) -> Result<Option<f64>> {
    if experiment.plan.seeds.null.len() < 2 {
        return Ok(None);
    }
    let mut by_seed: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for row in base_rows(experiment, Purpose::Null, plan_sha256, units)? {
        by_seed.entry(row.seed).or_default().extend(score(experiment, &row));
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

/// The base arm's rows of one purpose.
pub(super) fn base_rows(
    experiment: &Experiment,
    purpose: Purpose,
    plan_sha256: &str,
    units: &Units,
) -> Result<Vec<EpisodeRow>> {
    let mut rows = Vec::new();
    for (of, seed) in experiment.plan.event_seeds() {
        if of == purpose {
            rows.extend(episodes(experiment, &experiment.plan.base().name, seed, plan_sha256, units)?.2);
        }
    }
    Ok(rows)
}

/// The episodes of one unit, with the path and SHA-256 of their file; rows from elsewhere are refused.
fn episodes(
    experiment: &Experiment,
    arm: &str,
    seed: u64,
    plan_sha256: &str,
    units: &Units,
) -> Result<(String, String, Vec<EpisodeRow>)> {
    let path = format!("episodes/{arm}/{seed}.parquet");
    let (sha256, rows) = units(&path)?;
    let foreign = rows.iter().position(|row| {
        row.experiment != experiment.slug
            || row.plan_sha256 != plan_sha256
            || row.arm != arm
            || u64::try_from(row.seed) != Ok(seed)
    });
    match foreign {
        None => Ok((path, sha256, rows)),
        Some(at) => Err(Error::refused(format!(
            "the row was made by arm `{}` of `{}` under seed {} and plan {}",
            rows[at].arm, rows[at].experiment, rows[at].seed, rows[at].plan_sha256
        ))
        .at(format!("{}: row {}", experiment.root.join(&path).display(), at + 1))
        .hint("rows of another experiment or plan decide nothing here: remove the file and run its unit")),
    }
}

/// The change over these rows; `None` where they cannot be compared.
fn change(
    experiment: &Experiment,
    rows: &[EpisodeRow],
    key: &str,
    arms: &[String; 2],
) -> Result<Option<Estimate>> {
    let metric = &experiment.plan.decision.metric;
    let observations: Vec<Observation> = rows
        .iter()
        .map(|row| Observation {
            arm: if row.arm == arms[0] { Arm::Base } else { Arm::Treatment },
            task: &row.task_id,
            family: Some(&row.family),
            cluster: None,
            seed: row.seed,
            train_seed: row.train_seed,
            rollout: row.rollout,
            reward: score(experiment, row),
            solved: row.solved,
        })
        .collect();
    let Ok(paired) = Paired::new(&observations) else { return Ok(None) };
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
    stats::estimate(&paired, &options).map(Some).map_err(|why| {
        Error::refused(format!("the change cannot be estimated: {why}")).at(experiment.root.display())
    })
}
