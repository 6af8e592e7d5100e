//! Plain aggregates over rows, one arm's mean with a clustered interval, and the flips between
//! two arms. What counts as a value is said by the caller: nothing here knows of nulls.

use super::distribution::t_quantile;
use super::paired::{mean as mean_of, task_means};
use super::units::{TaskValue, Units, Weight};
use super::{Arm, Interval, LEVEL, Observation, Undefined, Value};
use std::collections::{BTreeMap, BTreeSet};

fn some(values: &[f64]) -> Result<&[f64], Undefined> {
    if values.is_empty() { Err(Undefined::new("there are no rows")) } else { Ok(values) }
}

/// Arithmetic mean, summed in the order given.
pub fn mean(values: &[f64]) -> Value {
    Ok(mean_of(some(values)?.iter().copied()))
}

/// Sum in the order given; 0 of nothing.
pub fn sum(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |total, v| total + v)
}

/// Least value.
pub fn min(values: &[f64]) -> Value {
    Ok(some(values)?.iter().copied().fold(f64::INFINITY, f64::min))
}

/// Greatest value.
pub fn max(values: &[f64]) -> Value {
    Ok(some(values)?.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// The last value in the order given.
pub fn last(values: &[f64]) -> Value {
    some(values)?.last().copied().ok_or_else(|| Undefined::new("there are no rows"))
}

/// The middle value; the mean of the two middle ones where their number is even.
pub fn median(values: &[f64]) -> Value {
    let mut sorted = some(values)?.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    Ok((low + high) / 2.0)
}

/// Share of flags that are set.
pub fn share(flags: &[bool]) -> Value {
    match flags.len() {
        0 => Err(Undefined::new("there are no rows")),
        n => Ok(flags.iter().filter(|f| **f).count() as f64 / n as f64),
    }
}

/// Number of distinct values.
pub fn count_distinct<T: Ord>(values: impl IntoIterator<Item = T>) -> usize {
    values.into_iter().collect::<BTreeSet<T>>().len()
}

/// One arm's mean of task means, with a t interval over its tasks or clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmMean {
    /// Mean of task means, weighted.
    pub mean: f64,
    /// Its standard error over the resampling units.
    pub se: Value,
    /// Degrees of freedom.
    pub df: f64,
    /// mean ± t(.975, df) · se; undefined for a single unit or where no task mean differs.
    pub t: Result<Interval, Undefined>,
    /// Number of tasks.
    pub tasks: usize,
}

/// The mean of one arm over all its tasks and cells.
pub fn arm_mean(observations: &[Observation<'_>], arm: Arm, weight: Weight) -> Result<ArmMean, Undefined> {
    mean_of_tasks(&task_means(observations, arm), weight)
}

/// The mean of one value a task.
pub fn mean_of_tasks(values: &[TaskValue<'_>], weight: Weight) -> Result<ArmMean, Undefined> {
    let units = Units::new(values, weight)?;
    let (mean, se, df) = (units.mean(), units.standard_error(), units.df());
    let t = se.clone().and_then(|se| {
        if units.zero_variance() {
            return Err(Undefined::new("no task mean differs from another"));
        }
        let half = t_quantile(0.5 + 0.5 * LEVEL, df) * se;
        Ok(Interval { low: mean - half, high: mean + half })
    });
    Ok(ArmMean { mean, se, df, t, tasks: values.len() })
}

/// How pairs of episodes with the same (task, seed, rollout) ended in the two arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flips {
    /// Both solved it.
    pub both: usize,
    /// Only the base arm solved it: ✓→✗.
    pub base_only: usize,
    /// Only the treatment arm solved it: ✗→✓.
    pub treatment_only: usize,
    /// Neither solved it.
    pub neither: usize,
}

impl Flips {
    /// Number of pairs.
    pub fn pairs(self) -> usize {
        self.both + self.base_only + self.treatment_only + self.neither
    }
}

/// Counts flips over the pairs where both arms have `solved`. A never-trained arm stands against
/// every training seed of the other, as in the paired design.
pub fn flips(observations: &[Observation<'_>]) -> Flips {
    type Episodes<'a> = BTreeMap<(&'a str, i64, i64), Vec<(Option<i64>, bool)>>;
    let of = |arm: Arm| {
        let mut by_key: Episodes<'_> = BTreeMap::new();
        for o in observations.iter().filter(|o| o.arm == arm) {
            if let Some(solved) = o.solved {
                by_key.entry((o.task, o.seed, o.rollout)).or_default().push((o.train_seed, solved));
            }
        }
        by_key
    };
    let (base, treatment) = (of(Arm::Base), of(Arm::Treatment));
    let trained = |episodes: &Episodes<'_>| episodes.values().flatten().any(|e| e.0.is_some());
    let exact = trained(&base) == trained(&treatment);
    let mut counts = Flips::default();
    for (key, of_base) in &base {
        for (b_seed, b) in of_base {
            for (t_seed, t) in treatment.get(key).into_iter().flatten() {
                if exact && b_seed != t_seed {
                    continue;
                }
                match (b, t) {
                    (true, true) => counts.both += 1,
                    (true, false) => counts.base_only += 1,
                    (false, true) => counts.treatment_only += 1,
                    (false, false) => counts.neither += 1,
                }
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Paired;
    use crate::stats::fixtures::{DATA_SETS, csv, golden, made, near, observations};

    #[test]
    fn arm_means_match_the_reference() {
        let golden = golden();
        for name in DATA_SETS {
            let text = csv(name);
            let rows = observations(&text);
            for (arm, label) in [(Arm::Base, "base"), (Arm::Treatment, "treatment")] {
                let reference = &golden["datasets"][name]["arm"][label];
                let number = |key: &str| reference[key].as_f64().expect("a number");
                let ours = arm_mean(&rows, arm, Weight::Task).unwrap();
                near(ours.mean, number("mean_reward_task_macro_all_tasks"), 1e-12);
                // The reference gives this error over the tasks that both arms have.
                let paired = Paired::new(&rows).unwrap();
                let means = paired.values(|t| if arm == Arm::Base { t.base } else { t.treatment });
                let se = Units::new(&means, Weight::Task).unwrap().standard_error();
                near(se.clone().unwrap(), number("se_task_macro_iid_tasks"), 1e-12);
                if ours.tasks == paired.tasks.len() && paired.crossing == 1.0 {
                    near(ours.se.unwrap(), se.unwrap(), 1e-15);
                }
                assert_eq!(ours.t.is_err(), name == "degenerate_all_equal");
                let of_arm: Vec<_> = rows.iter().filter(|o| o.arm == arm).collect();
                let rewards: Vec<f64> = of_arm.iter().filter_map(|o| o.reward).collect();
                near(mean(&rewards).unwrap(), number("mean_reward_episode_pooled"), 1e-12);
                let solved: Vec<bool> = of_arm.iter().filter_map(|o| o.solved).collect();
                near(share(&solved).unwrap(), number("solved_rate_episode_pooled"), 1e-12);
            }
        }
    }

    #[test]
    fn flips_match_the_reference() {
        let golden = golden();
        for name in DATA_SETS {
            let text = csv(name);
            let ours = flips(&observations(&text));
            let reference = &golden["datasets"][name]["mcnemar_episode_pairs"];
            let count = |key: &str| reference[key].as_u64().expect("a count") as usize;
            let expected = Flips {
                both: count("both_solved"),
                base_only: count("base_only"),
                treatment_only: count("treatment_only"),
                neither: count("neither"),
            };
            assert_eq!(ours, expected, "{name}");
        }
    }

    #[test]
    fn nothing_has_no_mean_and_a_sum_of_zero() {
        assert!(
            mean(&[]).is_err()
                && last(&[]).is_err()
                && min(&[]).is_err()
                && max(&[]).is_err()
                && share(&[]).is_err()
        );
        assert_eq!(sum(&[]), 0.0);
        assert_eq!((min(&[2.0, -1.0]), max(&[2.0, -1.0])), (Ok(-1.0), Ok(2.0)));
        assert_eq!(last(&[2.0, -1.0]), Ok(-1.0));
        assert!(median(&[]).is_err());
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (Ok(2.0), Ok(2.5)));
        assert_eq!(count_distinct(["a", "b", "a"]), 2);
    }

    #[test]
    fn an_untrained_base_flips_against_each_training_seed() {
        let rows = [
            made(Arm::Base, "a", 0, 0, 1.0),
            Observation { train_seed: Some(1), ..made(Arm::Treatment, "a", 0, 0, 0.0) },
            Observation { train_seed: Some(2), ..made(Arm::Treatment, "a", 0, 0, 1.0) },
        ];
        assert_eq!(flips(&rows), Flips { both: 1, base_only: 1, ..Flips::default() });
    }
}
