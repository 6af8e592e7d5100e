//! What repeated attempts show beside their mean: the attempt that a selection score picks, the spread within a cell, the
//! interquartile mean, and how often one arm's attempt beats the other's.

use super::at_k::AtK;
use super::paired::{Paired, in_order, mean};
use super::{Arm, Observation, SAME, TaskValue, Undefined, Value, counted};
use std::collections::BTreeMap;

/// Expected value of the attempt with the greatest score among k drawn without replacement from `scored`, (score, value); where
/// several tie, any of them. Its score is one of the N lowest scores or below with probability C(N, k) / C(n, k).
/// Undefined for n < k or k = 0.
pub fn selected(scored: &[(f64, f64)], k: usize) -> Value {
    let n = scored.len();
    if k == 0 || n < k {
        return Err(Undefined::new(format!("no cell has {}", counted(k, "rollout"))));
    }
    let mut rising = scored.to_vec();
    rising.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let all_among = |lowest: usize| -> f64 {
        if lowest < k { 0.0 } else { (0..k).map(|i| (lowest - i) as f64 / (n - i) as f64).product() }
    };
    let (mut expected, mut seen, mut before) = (0.0, 0, 0.0);
    for tied in rising.chunk_by(|a, b| a.0 == b.0) {
        seen += tied.len();
        let so_far = all_among(seen);
        expected += (so_far - before) * mean(tied.iter().map(|(_, value)| *value));
        before = so_far;
    }
    Ok(expected)
}

/// [`selected`] in each cell of one arm: mean over the cells of a task that have k attempts, then over tasks. `scores` stand
/// beside the observations. Undefined where an attempt of such a cell has no score.
pub fn selected_at_k(observations: &[Observation<'_>], scores: &[Option<f64>], k: usize) -> AtK {
    type Cells<'a> = BTreeMap<(&'a str, i64, Option<i64>), Vec<(Option<f64>, f64)>>;
    let mut cells: Cells<'_> = BTreeMap::new();
    for (o, score) in observations.iter().zip(scores) {
        if let Some(value) = o.reward {
            cells.entry((o.task, o.seed, o.train_seed)).or_default().push((*score, value));
        }
    }
    let mut tasks: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((task, ..), cell) in cells.iter().filter(|(_, cell)| cell.len() >= k) {
        let scored: Option<Vec<(f64, f64)>> =
            cell.iter().map(|(score, value)| Some(((*score)?, *value))).collect();
        let Some(scored) = scored else {
            let why = Undefined::new(format!("an attempt at `{task}` has no `select_score`"));
            return AtK { value: Err(why), tasks: 0 };
        };
        match selected(&scored, k) {
            Ok(value) => tasks.entry(task).or_default().push(value),
            Err(why) => return AtK { value: Err(why), tasks: 0 },
        }
    }
    let value = match tasks.len() {
        0 => Err(Undefined::new(format!("no cell has {}", counted(k, "rollout")))),
        _ => Ok(mean(tasks.values().map(|cells| mean(cells.iter().copied())))),
    };
    AtK { value, tasks: tasks.len() }
}

/// How much the attempts of a cell differ: what a group of rollouts gives a policy gradient to learn from.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSpread {
    /// Mean over cells of their standard deviation (ddof 1).
    pub sd: Value,
    /// Share of cells in which nothing varies.
    pub zero_share: Value,
    /// Cells of at least two attempts.
    pub cells: usize,
}

/// The spread within the cells of `observations`, all of one arm.
pub fn group_spread(observations: &[Observation<'_>]) -> GroupSpread {
    let groups: Vec<Vec<f64>> = cells(observations).into_iter().filter(|cell| cell.len() > 1).collect();
    let spreads = groups.iter().map(|cell| {
        let centre = mean(cell.iter().copied());
        if cell.iter().all(|x| (x - centre).abs() <= SAME) {
            return 0.0;
        }
        let squares: f64 = cell.iter().map(|x| (x - centre).powi(2)).sum();
        (squares / (cell.len() - 1) as f64).sqrt()
    });
    let spreads: Vec<f64> = spreads.collect();
    let none = || Undefined::new("no cell has two attempts");
    let still = spreads.iter().filter(|sd| **sd == 0.0).count();
    GroupSpread {
        sd: if spreads.is_empty() { Err(none()) } else { Ok(mean(spreads.iter().copied())) },
        zero_share: if spreads.is_empty() { Err(none()) } else { Ok(still as f64 / spreads.len() as f64) },
        cells: spreads.len(),
    }
}

/// Mean of the cell means between their quartiles: a quarter of them, rounded down, is left out at either end. Returns it and
/// the number of cells. Source: Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice".
pub fn interquartile_mean(observations: &[Observation<'_>]) -> (Value, usize) {
    let mut means: Vec<f64> = cells(observations).into_iter().map(|cell| mean(cell.into_iter())).collect();
    means.sort_unstable_by(f64::total_cmp);
    let out = means.len() / 4;
    let value = match means.is_empty() {
        true => Err(Undefined::new("there are no rows")),
        false => Ok(mean(means[out..means.len() - out].iter().copied())),
    };
    (value, means.len())
}

/// For each task that both arms have, the share of pairs of attempts under common seeds in which the treatment's is the better;
/// an equal pair counts half (the Mann–Whitney statistic over the number of pairs). Source: as above.
///
/// Undefined where [`Paired::new`] is.
pub fn probability_of_improvement<'a>(
    observations: &[Observation<'a>],
) -> Result<Vec<TaskValue<'a>>, Undefined> {
    Paired::new(observations)?;
    let scored = in_order(observations);
    let trained = |arm: Arm| scored.iter().any(|o| o.arm == arm && o.train_seed.is_some());
    let exact = trained(Arm::Base) == trained(Arm::Treatment);
    let mut tasks = Vec::new();
    for of_task in scored.chunk_by(|a, b| a.task == b.task) {
        let (base, treatment) = of_task.split_at(of_task.partition_point(|o| o.arm == Arm::Base));
        let (mut better, mut pairs) = (0.0, 0usize);
        for now in by_cell(treatment) {
            for before in by_cell(base) {
                let (a, b) = (&now[0], &before[0]);
                if a.seed == b.seed && (!exact || a.train_seed == b.train_seed) {
                    better += wins(now, before);
                    pairs += now.len() * before.len();
                }
            }
        }
        if pairs > 0 {
            let Observation { task, family, cluster, .. } = of_task[0];
            tasks.push(TaskValue { task, family, cluster, value: better / pairs as f64 });
        }
    }
    Ok(tasks)
}

/// Pairs in which the first is greater, and half of those that are equal.
fn wins(now: &[Observation<'_>], before: &[Observation<'_>]) -> f64 {
    let mut below: Vec<f64> = before.iter().filter_map(|o| o.reward).collect();
    below.sort_unstable_by(f64::total_cmp);
    let of_one = |x: f64| {
        let (less, not_more) =
            (below.partition_point(|y| *y < x - SAME), below.partition_point(|y| *y <= x + SAME));
        less as f64 + 0.5 * (not_more - less) as f64
    };
    now.iter().filter_map(|o| o.reward).map(of_one).sum()
}

fn by_cell<'o, 'a>(episodes: &'o [Observation<'a>]) -> impl Iterator<Item = &'o [Observation<'a>]> {
    episodes.chunk_by(|a, b| (a.seed, a.train_seed) == (b.seed, b.train_seed))
}

/// The values of each cell of one arm, by rollout.
fn cells(observations: &[Observation<'_>]) -> Vec<Vec<f64>> {
    let scored = in_order(observations);
    let same = |a: &Observation<'_>, b: &Observation<'_>| {
        (a.task, a.arm, a.seed, a.train_seed) == (b.task, b.arm, b.seed, b.train_seed)
    };
    scored.chunk_by(same).map(|cell| cell.iter().filter_map(|o| o.reward).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::at_k::best_at_k;
    use crate::stats::fixtures::{made, near};
    use proptest::prelude::*;

    #[test]
    fn a_selection_by_hand() {
        // Three attempts, the best score on the only failure: with two draws it is picked unless it is not drawn.
        near(selected(&[(1.0, 0.0), (0.0, 1.0), (0.5, 1.0)], 2).unwrap(), 1.0 / 3.0, 1e-15);
        near(selected(&[(0.5, 0.0), (0.5, 1.0)], 1).unwrap(), 0.5, 1e-15);
        near(selected(&[(0.5, 0.0), (0.5, 1.0)], 2).unwrap(), 0.5, 1e-15);
        assert!(selected(&[(0.5, 0.0)], 2).is_err() && selected(&[], 0).is_err());
    }

    #[test]
    fn a_missing_score_leaves_the_selection_undefined() {
        let rows = [made(Arm::Treatment, "a", 0, 0, 1.0), made(Arm::Treatment, "a", 0, 1, 0.0)];
        let at = |scores: &[Option<f64>], k| selected_at_k(&rows, scores, k);
        assert_eq!(at(&[Some(0.1), Some(0.9)], 2), AtK { value: Ok(0.0), tasks: 1 });
        assert!(at(&[Some(0.1), None], 2).value.unwrap_err().0.contains("`a` has no `select_score`"));
        assert!(at(&[Some(0.1), None], 3).value.unwrap_err().0.contains("3 rollouts"));
    }

    #[test]
    fn groups_without_spread_are_counted() {
        let rows = [
            made(Arm::Base, "a", 0, 0, 0.0),
            made(Arm::Base, "a", 0, 1, 1.0),
            made(Arm::Base, "b", 0, 0, 0.3),
            made(Arm::Base, "b", 0, 1, 0.1 + 0.2),
            made(Arm::Base, "c", 0, 0, 0.5),
        ];
        let spread = group_spread(&rows);
        near(spread.sd.unwrap(), 0.5f64.sqrt() / 2.0, 1e-15);
        assert_eq!((spread.zero_share, spread.cells), (Ok(0.5), 2));
        assert!(group_spread(&rows[4..]).sd.is_err());
    }

    #[test]
    fn a_quarter_is_left_out_at_either_end() {
        let rows: Vec<Observation<'_>> = ["a", "b", "c", "d", "e"]
            .into_iter()
            .zip([9.0, 0.0, 0.2, 0.3, 0.4])
            .map(|(task, reward)| made(Arm::Base, task, 0, 0, reward))
            .collect();
        let (value, cells) = interquartile_mean(&rows);
        near(value.unwrap(), 0.3, 1e-15);
        assert_eq!(cells, 5);
        near(interquartile_mean(&rows[1..4]).0.unwrap(), 0.5 / 3.0, 1e-15);
        assert!(interquartile_mean(&[]).0.is_err());
    }

    #[test]
    fn wins_and_draws_by_hand() {
        let rows = [
            made(Arm::Base, "a", 0, 0, 0.0),
            made(Arm::Base, "a", 0, 1, 0.5),
            made(Arm::Treatment, "a", 0, 0, 0.5),
            made(Arm::Treatment, "a", 0, 1, 0.25),
            made(Arm::Base, "b", 0, 0, 1.0),
            made(Arm::Treatment, "b", 0, 0, 0.0),
            made(Arm::Treatment, "b", 1, 0, 1.0),
        ];
        let values: Vec<f64> = probability_of_improvement(&rows).unwrap().iter().map(|t| t.value).collect();
        // 0.5 beats 0 and equals 0.5; 0.25 beats 0 and loses to 0.5. Of `b` only seed 0 is common.
        assert_eq!(values, [2.5 / 4.0, 0.0]);
        assert!(probability_of_improvement(&rows[..2]).is_err());
    }

    proptest! {
        #[test]
        fn the_mean_of_all_choices(scored in prop::collection::vec((0u8..4, 0u8..5), 1..8), k in 1usize..5) {
            let scored: Vec<(f64, f64)> = scored.into_iter().map(|(s, v)| (f64::from(s), f64::from(v) / 4.0)).collect();
            prop_assume!(k <= scored.len());
            let (mut sum, mut count) = (0.0, 0.0);
            for chosen in 0u32..1 << scored.len() {
                if chosen.count_ones() as usize == k {
                    let of: Vec<_> = scored.iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1).map(|(_, s)| *s).collect();
                    let best = of.iter().map(|s| s.0).fold(f64::MIN, f64::max);
                    sum += mean(of.iter().filter(|s| s.0 == best).map(|s| s.1));
                    count += 1.0;
                }
            }
            prop_assert!((selected(&scored, k).unwrap() - sum / count).abs() < 1e-12);
            let own: Vec<(f64, f64)> = scored.iter().map(|s| (s.1, s.1)).collect();
            let rewards: Vec<f64> = scored.iter().map(|s| s.1).collect();
            prop_assert!((selected(&own, k).unwrap() - best_at_k(&rewards, k).unwrap()).abs() < 1e-12);
        }
    }
}
