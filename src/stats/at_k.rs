//! What k attempts give: pass@k from solved counts, and the expected best of k rewards for
//! partial credit. Both are means over all ways to choose k of a cell's n rollouts, and have no
//! value where a cell has fewer than k.

use super::paired::mean;
use super::{Arm, Observation, Undefined, Value, counted};

/// A share so small that leaving it out does not change a sum of ordinary size.
const NOTHING: f64 = 1e-18;

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
    // The chance that all fail is a product of k factors, and as well of c: the shorter one is taken, up to
    // where it no longer shows. So all k of a cell together take about n log n steps, not n².
    let (few, many) = (c.min(k), c.max(k));
    let mut all_fail = 1.0;
    for i in 0..few {
        all_fail *= (n - i - many) as f64 / (n - i) as f64;
        if all_fail < NOTHING {
            break;
        }
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
    let size = sorted[0].abs().max(sorted[n - 1].abs());
    // What a sum of very many small terms loses in rounding is kept beside it.
    let (mut share, mut best, mut lost) = (k as f64 / n as f64, 0.0f64, 0.0f64);
    for i in (k..=n).rev() {
        let term = share * sorted[i - 1] - lost;
        let sum = best + term;
        (lost, best) = ((sum - best) - term, sum);
        // The shares of all smaller rewards together: the chance that none of the greater is drawn.
        let rest = share * (i - k) as f64 / k as f64;
        if rest * size <= NOTHING * best.abs() {
            break;
        }
        share *= (i - k) as f64 / (i - 1) as f64;
    }
    Ok(best)
}

fn enough(n: usize, k: usize) -> Result<(), Undefined> {
    match k {
        0 => Err(Undefined::new("k is at least 1")),
        _ if n < k => Err(too_few(k)),
        _ => Ok(()),
    }
}

fn too_few(k: usize) -> Undefined {
    Undefined::new(format!("no cell has {}", counted(k, "rollout")))
}

/// One observation a cell: the expected best of k of its rewards. Cells with fewer are left out.
pub fn one_a_cell<'a>(observations: &[Observation<'a>], k: usize) -> Vec<Observation<'a>> {
    let mut scored: Vec<&Observation<'a>> = observations.iter().filter(|o| o.reward.is_some()).collect();
    let key = |o: &Observation<'a>| (o.arm, o.task, o.seed, o.train_seed);
    scored.sort_by_key(|o| (key(o), o.rollout));
    let of_cell = |cell: &[&Observation<'a>]| {
        let rewards: Vec<f64> = cell.iter().filter_map(|o| o.reward).collect();
        let best = best_at_k(&rewards, k).ok()?;
        Some(Observation { rollout: 0, reward: Some(best), solved: None, ..*cell[0] })
    };
    scored.chunk_by(|a, b| key(a) == key(b)).filter_map(of_cell).collect()
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
        let of_task = |(task, cells): &(&'a str, Vec<Cell>)| {
            let values: Vec<f64> = cells.iter().filter_map(|c| c.at(kind, k).ok()).collect();
            (!values.is_empty()).then(|| (*task, mean(values.into_iter())))
        };
        self.tasks.iter().filter_map(of_task).collect()
    }

    /// Mean over all tasks of the arm that define the statistic at k.
    pub fn at(&self, kind: Kind, k: usize) -> AtK {
        let values = self.task_values(kind, k);
        let value = match values.len() {
            0 if k == 0 => Err(Undefined::new("k is at least 1")),
            0 => Err(too_few(k)),
            _ => Ok(mean(values.iter().map(|v| v.1))),
        };
        AtK { value, tasks: values.len() }
    }

    /// The values of [`ArmCells::at`] at every k from 1 on, as far as a cell defines them. Takes time in
    /// proportion to the rollouts, but for a logarithm.
    pub fn at_every_k(&self, kind: Kind) -> Vec<f64> {
        let mut of_arm = Vec::new();
        for (_, cells) in &self.tasks {
            let mut of_task = Vec::new();
            for cell in cells {
                let values = (1..=cell.rollouts(kind)).map_while(|k| cell.at(kind, k).ok());
                add(&mut of_task, values);
            }
            add(&mut of_arm, means(of_task));
        }
        means(of_arm).collect()
    }
}

impl Cell {
    /// Rollouts that count for the statistic.
    fn rollouts(&self, kind: Kind) -> usize {
        match kind {
            Kind::Pass => self.judged,
            Kind::Best => self.rewards.len(),
        }
    }

    fn at(&self, kind: Kind, k: usize) -> Value {
        match kind {
            Kind::Pass => pass_at_k(self.judged, self.solved, k),
            Kind::Best => best_of_sorted(&self.rewards, k),
        }
    }
}

/// Adds the values for k = 1, 2, … to sums with their counts.
fn add(sums: &mut Vec<(f64, usize)>, values: impl Iterator<Item = f64>) {
    for (i, value) in values.enumerate() {
        if i == sums.len() {
            sums.push((0.0, 0));
        }
        sums[i].0 += value;
        sums[i].1 += 1;
    }
}

fn means(sums: Vec<(f64, usize)>) -> impl Iterator<Item = f64> {
    sums.into_iter().map(|(sum, count)| sum / count as f64)
}

#[cfg(test)]
mod tests;
