//! Claims about training, a second time: the error over tasks and training seeds together, and its interval.

use super::estimators::{Part, plain_mean};
use super::paired::{SAME, Spread, t_interval};
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

/// Fewer training seeds leave a sign-flip test that can never reach .05.
const FEWEST: usize = 6;

/// The difference of one task under one training seed.
pub struct Cell<'a> {
    /// The task.
    pub task: &'a str,
    /// The training seed, of whichever arm has one.
    pub train_seed: Option<i64>,
    /// Treatment minus base.
    pub difference: f64,
}

/// G/(G−1) · Σ over groups of (Σ residuals)², over N².
fn of_groups<K: Eq + Hash + Ord>(cells: &[Cell], key: impl Fn(usize, &Cell) -> K, centre: f64) -> f64 {
    let mut sums: BTreeMap<K, f64> = BTreeMap::new();
    for (at, cell) in cells.iter().enumerate() {
        *sums.entry(key(at, cell)).or_insert(0.0) += cell.difference - centre;
    }
    let (groups, n) = (sums.len() as f64, cells.len() as f64);
    groups / (groups - 1.0) * sums.values().map(|sum| sum * sum).sum::<f64>() / (n * n)
}

/// The error over tasks and training seeds: V(task) + V(seed) − V(single cells), and never below either of the two.
pub(super) fn spread(cells: &[Cell], mean: f64, tasks: usize) -> Spread {
    let seeds = cells.iter().map(|cell| cell.train_seed).collect::<HashSet<_>>();
    let centre = plain_mean(&cells.iter().map(|cell| cell.difference).collect::<Vec<_>>());
    let nothing_varies = cells.iter().all(|cell| (cell.difference - centre).abs() <= SAME);
    let units = tasks.min(seeds.len());
    let error = if seeds.contains(&None) {
        Err("an arm has no training seed".to_owned())
    } else if units < 2 {
        Err("one training seed, or one task, says nothing of training".to_owned())
    } else if nothing_varies {
        Ok(0.0)
    } else {
        let of_tasks = of_groups(cells, |at, _| cells.get(at).map(|cell| cell.task), centre);
        let of_seeds = of_groups(cells, |_, cell| cell.train_seed, centre);
        let of_cells = of_groups(cells, |at, _| at, centre);
        Ok((of_tasks + of_seeds - of_cells).max(of_tasks).max(of_seeds).sqrt())
    };
    let nothing_varies = nothing_varies && error.is_ok();
    Spread { mean, error, df: units.saturating_sub(1), units, nothing_varies }
}

/// What each training seed adds to the sign-flip test.
pub fn contributions(cells: &[Cell]) -> Result<Vec<f64>, String> {
    let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
    for cell in cells {
        let seed = cell.train_seed.ok_or("an arm has no training seed")?;
        *sums.entry(seed).or_insert(0.0) += cell.difference;
    }
    if sums.len() < FEWEST {
        return Err(format!("a test over training seeds takes {FEWEST} of them"));
    }
    Ok(sums.into_values().collect())
}

/// The interval over tasks and training seeds is t's.
pub(super) fn interval(spread: &Spread, same_tokens: bool) -> (Part, Part) {
    if spread.mean == 0.0 && same_tokens {
        return (Part::Number(0.0), Part::Number(0.0));
    }
    let ends = if spread.nothing_varies { Err("nothing varies".into()) } else { t_interval(spread) };
    match ends {
        Ok((low, high)) => (Part::Number(low), Part::Number(high)),
        Err(why) => (Part::Undefined(why.clone()), Part::Undefined(why)),
    }
}
