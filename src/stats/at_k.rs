//! What k attempts give: pass@k from solved counts, and the expected best of k rewards for
//! partial credit. Both are means over all ways to choose k of a cell's n rollouts, and have no
//! value where a cell has fewer than k.

use super::paired::mean;
use super::{Arm, Observation, Undefined, Value};
use std::collections::BTreeMap;

/// Chance that k rollouts drawn without replacement from n, of which c solved, hold a solved one:
/// 1 − C(n−c, k) / C(n, k). Undefined for n < k or k = 0.
/// Source: Chen et al. (2021), "Evaluating large language models trained on code".
pub fn pass_at_k(n: usize, c: usize, k: usize) -> Value {
    enough(n, k)?;
    if c > n {
        return Err(Undefined::new("more rollouts are solved than there are"));
    }
    if n - c < k {
        return Ok(1.0);
    }
    let mut all_fail = 1.0;
    for i in n - c + 1..=n {
        all_fail *= 1.0 - k as f64 / i as f64;
    }
    Ok(1.0 - all_fail)
}

/// Expected maximum of k rewards drawn without replacement:
/// Σ C(i−1, k−1) / C(n, k) · r₍ᵢ₎ over the n rewards in rising order. Undefined for n < k or k = 0.
pub fn best_at_k(rewards: &[f64], k: usize) -> Value {
    let mut sorted = rewards.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    best_of_sorted(&sorted, k)
}

fn best_of_sorted(sorted: &[f64], k: usize) -> Value {
    let n = sorted.len();
    enough(n, k)?;
    let (mut share, mut best) = (k as f64 / n as f64, 0.0);
    for i in (k..=n).rev() {
        best += share * sorted[i - 1];
        if i > 1 {
            share *= (i - k) as f64 / (i - 1) as f64;
        }
    }
    Ok(best)
}

fn enough(n: usize, k: usize) -> Result<(), Undefined> {
    match k {
        0 => Err(Undefined::new("k is at least 1")),
        _ if n < k => Err(Undefined::new(format!("no cell has {k} rollouts"))),
        _ => Ok(()),
    }
}

/// Which of the two is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// pass@k, from `solved`.
    Pass,
    /// Expected best of k, from `reward`.
    Best,
}

/// A mean over tasks at one k, and how many tasks it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct AtK {
    /// Mean over the tasks that define it.
    pub value: Value,
    /// Number of tasks that define it: those with a cell of at least k rollouts.
    pub tasks: usize,
}

/// One arm's cells, ready to be asked for any k.
#[derive(Debug, Clone)]
pub struct ArmCells<'a> {
    /// By task: the cells' solved (solved, n) and rising rewards, in rising (seed, train_seed).
    tasks: Vec<(&'a str, Vec<Cell>)>,
}

#[derive(Debug, Clone)]
struct Cell {
    solved: usize,
    judged: usize,
    rewards: Vec<f64>,
}

impl<'a> ArmCells<'a> {
    /// Cells of one arm. An episode counts for pass@k where `solved` is there, for the best of k
    /// where `reward` is.
    pub fn new(observations: &[Observation<'a>], arm: Arm) -> ArmCells<'a> {
        let mut of_arm: Vec<&Observation<'a>> = observations.iter().filter(|o| o.arm == arm).collect();
        of_arm.sort_by_key(|o| (o.task, o.seed, o.train_seed));
        let cell = |of: &[&Observation<'a>]| {
            let mut rewards: Vec<f64> = of.iter().filter_map(|o| o.reward).collect();
            rewards.sort_unstable_by(f64::total_cmp);
            let judged = of.iter().filter(|o| o.solved.is_some()).count();
            Cell { solved: of.iter().filter(|o| o.solved == Some(true)).count(), judged, rewards }
        };
        let of_task = |of: &[&Observation<'a>]| {
            let cells = of.chunk_by(|a, b| (a.seed, a.train_seed) == (b.seed, b.train_seed));
            (of[0].task, cells.map(cell).collect())
        };
        ArmCells { tasks: of_arm.chunk_by(|a, b| a.task == b.task).map(of_task).collect() }
    }

    /// Rollouts in the largest cell.
    pub fn largest(&self) -> usize {
        let size = |c: &Cell| c.judged.max(c.rewards.len());
        self.tasks.iter().flat_map(|(_, cells)| cells).map(size).max().unwrap_or(0)
    }

    /// The tasks that define the statistic at k with their values, rising by task: means over
    /// the cells (seeds) that define it.
    pub fn task_values(&self, kind: Kind, k: usize) -> Vec<(&'a str, f64)> {
        let of_cell = |c: &Cell| match kind {
            Kind::Pass => pass_at_k(c.judged, c.solved, k).ok(),
            Kind::Best => best_of_sorted(&c.rewards, k).ok(),
        };
        let of_task = |(task, cells): &(&'a str, Vec<Cell>)| {
            let values: Vec<f64> = cells.iter().filter_map(of_cell).collect();
            (!values.is_empty()).then(|| (*task, mean(values.into_iter())))
        };
        self.tasks.iter().filter_map(of_task).collect()
    }

    /// Mean over all tasks of the arm that define the statistic at k.
    pub fn at(&self, kind: Kind, k: usize) -> AtK {
        let values = self.task_values(kind, k);
        let value = match values.len() {
            0 => Err(Undefined::new(if k == 0 {
                "k is at least 1".into()
            } else {
                format!("no cell has {k} rollouts")
            })),
            _ => Ok(mean(values.iter().map(|v| v.1))),
        };
        AtK { value, tasks: values.len() }
    }
}

/// Both arms at k over the tasks that define it in both: (base, treatment, number of tasks).
pub fn compare_at_k(
    base: &ArmCells<'_>,
    treatment: &ArmCells<'_>,
    kind: Kind,
    k: usize,
) -> Result<(f64, f64, usize), Undefined> {
    let of_base: BTreeMap<&str, f64> = base.task_values(kind, k).into_iter().collect();
    let of_treatment = treatment.task_values(kind, k);
    let both: Vec<(f64, f64)> =
        of_treatment.iter().filter_map(|(task, t)| Some((*of_base.get(task)?, *t))).collect();
    if both.is_empty() {
        return Err(Undefined::new(format!("no task has {k} rollouts in both arms")));
    }
    Ok((mean(both.iter().map(|v| v.0)), mean(both.iter().map(|v| v.1)), both.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::{DATA_SETS, csv, golden, made, near, numbers, observations};
    use proptest::prelude::*;

    #[test]
    fn tables_match_the_reference() {
        let golden = golden();
        for row in golden["pass_at_k_table"].as_array().expect("a list") {
            let count = |key: &str| row[key].as_u64().expect("a count") as usize;
            let ours = pass_at_k(count("n"), count("c"), count("k"));
            match row["pass_at_k"].as_f64() {
                Some(value) => near(ours.unwrap(), value, 1e-12),
                None => assert!(ours.is_err()),
            }
        }
        for row in golden["best_at_k_table"].as_array().expect("a list") {
            let ours = best_at_k(&numbers(&row["rewards"]), row["k"].as_u64().expect("a count") as usize);
            match row["best_at_k"].as_f64() {
                Some(value) => near(ours.unwrap(), value, 1e-12),
                None => assert!(ours.is_err()),
            }
        }
    }

    #[test]
    fn arms_match_the_reference() {
        let golden = golden();
        let mut checked = 0;
        for name in DATA_SETS {
            let text = csv(name);
            let rows = observations(&text);
            for (arm, label) in [(Arm::Base, "base"), (Arm::Treatment, "treatment")] {
                let cells = ArmCells::new(&rows, arm);
                let reference = &golden["datasets"][name]["arm"][label];
                for (kind, key) in
                    [(Kind::Pass, "pass_at_k_per_seed"), (Kind::Best, "best_at_k_reward_per_seed")]
                {
                    for (k, value) in reference[key].as_object().expect("values by k") {
                        let ours = cells.at(kind, k.parse().unwrap());
                        match value.as_f64() {
                            Some(value) => near(ours.value.unwrap(), value, 1e-12),
                            None => assert!(ours.value.is_err() && ours.tasks == 0),
                        }
                        checked += 1;
                    }
                }
            }
        }
        assert_eq!(checked, 60);
    }

    #[test]
    fn a_comparison_uses_the_tasks_that_define_it_in_both() {
        let rows = [
            made(Arm::Base, "a", 0, 0, 1.0),
            made(Arm::Base, "a", 0, 1, 0.0),
            made(Arm::Base, "b", 0, 0, 1.0),
            made(Arm::Treatment, "a", 0, 0, 0.0),
            made(Arm::Treatment, "a", 0, 1, 0.0),
            made(Arm::Treatment, "b", 0, 0, 1.0),
            made(Arm::Treatment, "b", 0, 1, 1.0),
        ];
        let (base, treatment) = (ArmCells::new(&rows, Arm::Base), ArmCells::new(&rows, Arm::Treatment));
        assert_eq!(compare_at_k(&base, &treatment, Kind::Pass, 2), Ok((1.0, 0.0, 1)));
        assert!(compare_at_k(&base, &treatment, Kind::Pass, 3).is_err());
        assert_eq!(treatment.at(Kind::Best, 2).tasks, 2);
        assert_eq!(treatment.largest(), 2);
    }

    #[test]
    fn missing_values_are_left_out_of_their_own_statistic_only() {
        let mut row = made(Arm::Base, "a", 0, 0, 0.5);
        row.solved = None;
        let cells = ArmCells::new(&[row], Arm::Base);
        assert!(cells.at(Kind::Pass, 1).value.is_err());
        assert_eq!(cells.at(Kind::Best, 1).value, Ok(0.5));
    }

    proptest! {
        #[test]
        fn more_attempts_never_hurt(rewards in proptest::collection::vec(0.0f64..=1.0, 1..20)) {
            let values: Vec<f64> = (1..=rewards.len()).map(|k| best_at_k(&rewards, k).unwrap()).collect();
            prop_assert!(values.windows(2).all(|w| w[1] >= w[0] - 1e-12));
            let greatest = rewards.iter().copied().fold(0.0, f64::max);
            prop_assert!((values[rewards.len() - 1] - greatest).abs() < 1e-12);
        }

        #[test]
        fn best_of_binary_rewards_is_pass(n in 1usize..20, c in 0usize..20, k in 1usize..20) {
            let c = c.min(n);
            let rewards: Vec<f64> = (0..n).map(|i| if i < c { 1.0 } else { 0.0 }).collect();
            match (pass_at_k(n, c, k), best_at_k(&rewards, k)) {
                (Ok(a), Ok(b)) => prop_assert!((a - b).abs() < 1e-12),
                (a, b) => prop_assert!(a.is_err() && b.is_err()),
            }
        }
    }
}
