//! Claims about training: tasks and training seeds are both samples, so the error of a paired
//! delta has a part from each. An interval over tasks alone covers far too seldom there, and
//! more tasks make it worse.

use super::paired::{Paired, mean};
use super::{SAME, Undefined};
use std::collections::BTreeMap;

/// Training seeds below which no sign-flip test can reach .05.
pub const FEWEST_FOR_A_TEST: usize = 6;

/// The error of a paired delta over tasks × training seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoWay {
    /// Standard error.
    pub se: f64,
    /// min(tasks, training seeds) − 1.
    pub df: f64,
    /// Whether no cell differs from the mean, so that no spread can be estimated.
    pub zero_variance: bool,
    /// Whether each task is there under each training seed.
    pub balanced: bool,
}

/// The paired difference of one (task, training seed).
struct Cell<'a> {
    task: &'a str,
    train_seed: i64,
    difference: f64,
}

fn cells<'a>(paired: &Paired<'a>) -> Result<Vec<Cell<'a>>, Undefined> {
    let mut cells = Vec::new();
    for t in &paired.tasks {
        let mut by_seed: BTreeMap<i64, Vec<(f64, f64)>> = BTreeMap::new();
        for p in &t.pairs {
            let train_seed = p.train_seed.ok_or_else(|| {
                Undefined::new(format!("task `{}` has episodes of an arm without a training seed", t.task))
            })?;
            by_seed.entry(train_seed).or_default().push((p.base, p.treatment));
        }
        cells.extend(by_seed.into_iter().map(|(train_seed, pairs)| Cell {
            task: t.task,
            train_seed,
            difference: mean(pairs.iter().map(|p| p.1)) - mean(pairs.iter().map(|p| p.0)),
        }));
    }
    Ok(cells)
}

/// Variance max(V_task + V_seed − V_cell, V_task, V_seed) on the N cells (task, training seed)
/// with residuals e from their mean, where V_c = G_c/(G_c−1) · Σ_c(Σ_{i∈c} e_i)² / N² with tasks,
/// training seeds and single cells as clusters.
/// Source: Cameron, Gelbach, Miller (2011), with the floor that keeps it from going under
/// either part. Undefined for a single task or a single training seed.
pub fn two_way(paired: &Paired<'_>) -> Result<TwoWay, Undefined> {
    let cells = cells(paired)?;
    let centre = mean(cells.iter().map(|c| c.difference));
    let n = cells.len() as f64;
    let (mut tasks, mut seeds) = (BTreeMap::new(), BTreeMap::new());
    let mut squares = 0.0;
    for c in &cells {
        let e = c.difference - centre;
        *tasks.entry(c.task).or_insert(0.0) += e;
        *seeds.entry(c.train_seed).or_insert(0.0) += e;
        squares += e * e;
    }
    let (g, s) = (tasks.len(), seeds.len());
    if s < 2 {
        return Err(Undefined::new("one training seed says nothing about training"));
    }
    if g < 2 {
        return Err(Undefined::new("there is a single task"));
    }
    let part = |count: f64, sum_of_squares: f64| count / (count - 1.0) * sum_of_squares / (n * n);
    let of_tasks = part(g as f64, tasks.values().map(|e: &f64| e * e).sum());
    let of_seeds = part(s as f64, seeds.values().map(|e: &f64| e * e).sum());
    let variance = (of_tasks + of_seeds - part(n, squares)).max(of_tasks).max(of_seeds);
    let zero_variance = cells.iter().all(|c| (c.difference - centre).abs() <= SAME);
    Ok(TwoWay {
        se: if zero_variance { 0.0 } else { variance.sqrt() },
        df: (g.min(s) - 1) as f64,
        zero_variance,
        balanced: cells.len() == g * s,
    })
}

/// What each training seed adds to the sign-flip statistic: the sum of its tasks' differences,
/// rising by training seed. Undefined below six training seeds.
pub fn contributions(paired: &Paired<'_>) -> Result<Vec<f64>, Undefined> {
    let mut seeds: BTreeMap<i64, f64> = BTreeMap::new();
    for c in cells(paired)? {
        *seeds.entry(c.train_seed).or_insert(0.0) += c.difference;
    }
    if seeds.len() < FEWEST_FOR_A_TEST {
        return Err(Undefined::new("a test over training seeds needs six of them to reach .05"));
    }
    Ok(seeds.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::{made, near};
    use crate::stats::{Arm, Observation};

    fn rows(table: &[(&'static str, i64, f64)]) -> Vec<Observation<'static>> {
        let mut out = Vec::new();
        for &(task, train_seed, reward) in table {
            out.push(Observation {
                train_seed: Some(train_seed),
                ..made(Arm::Treatment, task, 1, 0, reward)
            });
            if !out.iter().any(|o| o.arm == Arm::Base && o.task == task) {
                out.push(made(Arm::Base, task, 1, 0, 0.0));
            }
        }
        out
    }

    #[test]
    fn variance_by_hand() {
        let paired =
            Paired::new(&rows(&[("a", 1, 0.1), ("a", 2, 0.3), ("b", 1, 0.5), ("b", 2, 0.9)])).unwrap();
        let e = [0.1 - 0.45, 0.3 - 0.45, 0.5 - 0.45, 0.9 - 0.45f64];
        let v_task = 2.0 * ((e[0] + e[1]).powi(2) + (e[2] + e[3]).powi(2)) / 16.0;
        let v_seed = 2.0 * ((e[0] + e[2]).powi(2) + (e[1] + e[3]).powi(2)) / 16.0;
        let v_cell = 4.0 / 3.0 * e.iter().map(|x| x * x).sum::<f64>() / 16.0;
        let got = two_way(&paired).unwrap();
        near(got.se, (v_task + v_seed - v_cell).max(v_task).max(v_seed).sqrt(), 1e-15);
        assert_eq!((got.df, got.balanced), (1.0, true));
    }

    #[test]
    fn one_training_seed_supports_no_claim() {
        let paired = Paired::new(&rows(&[("a", 1, 0.1), ("b", 1, 0.3)])).unwrap();
        assert!(two_way(&paired).unwrap_err().0.contains("one training seed"));
        let untrained =
            Paired::new(&[made(Arm::Base, "a", 1, 0, 0.0), made(Arm::Treatment, "a", 1, 0, 0.0)]).unwrap();
        assert!(two_way(&untrained).unwrap_err().0.contains("without a training seed"));
    }

    #[test]
    fn a_test_needs_six_training_seeds() {
        let table =
            |seeds: i64| -> Vec<_> { (0..seeds).flat_map(|s| [("a", s, 0.25), ("b", s, 0.5)]).collect() };
        assert!(contributions(&Paired::new(&rows(&table(5))).unwrap()).is_err());
        let six = contributions(&Paired::new(&rows(&table(6))).unwrap()).unwrap();
        assert_eq!(six, vec![0.75; 6]);
        assert!(
            two_way(
                &Paired::new(&rows(&[("a", 1, 0.5), ("a", 2, 0.5), ("b", 1, 0.5), ("b", 2, 0.5)])).unwrap()
            )
            .unwrap()
            .zero_variance
        );
    }
}
