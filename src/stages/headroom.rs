//! What the headroom gate measures: whether the gain that a plan asks for fits between the base arm's
//! calibration scores and the ceiling.

use super::decide::Units;
use super::receipts::{Core, HeadroomReceipt};
use super::{Experiment, decide};
use crate::error::{Error, Result};
use crate::experiment::{Headroom, Purpose};
use crate::stats::SAME;
use std::collections::BTreeMap;

/// What the headroom gate says of the base arm's calibration units. In every core the ceiling minus the baseline
/// must exceed the required gain; the mean of all baselines must lie below a ceiling of its own where the plan has
/// one. Writes nothing.
pub fn measure(
    experiment: &Experiment,
    gate: &Headroom,
    plan_sha256: &str,
    units: &Units,
) -> Result<HeadroomReceipt> {
    let base = decide::base_by_family(experiment, Purpose::Calibrate, plan_sha256, units)?;
    let families = experiment.plan.families();
    let each = || families.map(|family| (family.clone(), vec![family.clone()])).collect();
    let groups: BTreeMap<String, Vec<String>> = gate.cores.clone().unwrap_or_else(each);
    let mut cores = BTreeMap::new();
    for (name, families) in groups {
        let mut scores = Vec::with_capacity(families.len());
        for family in &families {
            scores.push(*base.get(family).ok_or_else(|| {
                Error::refused(format!(
                    "no calibration episode of family `{family}` has a score, so core `{name}` cannot be judged"
                ))
                .at(format!("{}: [seeds] calibrate", experiment.root.join("experiment.toml").display()))
                .hint("run it again where the infrastructure failed")
            })?);
        }
        let baseline = mean(&scores);
        let possible_gain = gate.ceiling - baseline;
        let required = baseline + gate.minimum_delta;
        let feasible = possible_gain > gate.minimum_delta + SAME;
        cores.insert(name, Core { families, baseline, required, possible_gain, feasible });
    }
    let baselines: Vec<f64> = cores.values().map(|core| core.baseline).collect();
    let baseline = (!baselines.is_empty()).then(|| mean(&baselines));
    let below = match (baseline, gate.baseline_ceiling) {
        (Some(mean), Some(most)) => mean < most - SAME,
        _ => true,
    };
    let mut files = BTreeMap::new();
    for seed in &experiment.plan.seeds.calibrate {
        let path = format!("episodes/{}/{seed}.parquet", experiment.plan.base().name);
        let (sha256, _) = units(&path)?;
        files.insert(path, sha256);
    }
    Ok(HeadroomReceipt {
        passed: below && cores.values().all(|core| core.feasible),
        plan_sha256: plan_sha256.to_string(),
        ceiling: gate.ceiling,
        minimum_delta: gate.minimum_delta,
        base,
        cores,
        baseline,
        baseline_ceiling: gate.baseline_ceiling,
        files,
    })
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}
