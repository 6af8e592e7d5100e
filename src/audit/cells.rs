//! Attempts put into cells, and the cells of two arms set against each other: what means and paired differences are made of,
//! in the order in which sums run.

use super::estimators::{number_of, plain_mean};
use super::repeats::best_at_k;
use super::training;
use super::walk::Attempt;
use crate::claims::derivation::Weight;
use std::collections::{BTreeMap, HashMap};

/// (seed, train_seed).
pub type Seeds = (i64, Option<i64>);

/// A task's family, and its cells by (seed, train_seed, arm), rising: each with the numbers of its attempts, by rollout.
pub struct TaskCells<'a> {
    /// Its family.
    pub family: &'a str,
    /// Its cells.
    pub cells: Vec<Cell<'a>>,
}

/// Seed, training seed, arm, and the numbers of a cell's attempts.
pub type Cell<'a> = (i64, Option<i64>, &'a str, Vec<f64>);

impl TaskCells<'_> {
    /// The mean of every cell.
    pub fn means(&self) -> impl Iterator<Item = (Seeds, f64)> {
        self.cells.iter().map(|(seed, train_seed, _, values)| ((*seed, *train_seed), plain_mean(values)))
    }
}

/// The attempts of one arm.
pub fn of_arm<'r, 'a>(attempts: &[&'r Attempt<'a>], arm: &str) -> Vec<&'r Attempt<'a>> {
    attempts.iter().copied().filter(|attempt| attempt.arm == arm).collect()
}

/// Different texts in rising order, and the place of each given one among them.
fn ranked<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> (Vec<&'a str>, Vec<u32>) {
    let mut place: HashMap<&str, u32> = texts.clone().map(|text| (text, 0)).collect();
    let mut names: Vec<&str> = place.keys().copied().collect();
    names.sort_unstable();
    for (at, name) in names.iter().enumerate() {
        place.insert(name, at as u32);
    }
    let places = texts.map(|text| place.get(text).copied().unwrap_or_default()).collect();
    (names, places)
}

/// Every task's cells. The attempts are put in the order of the sums, and walked once.
pub fn cells<'a>(attempts: &[&Attempt<'a>]) -> Result<BTreeMap<&'a str, TaskCells<'a>>, String> {
    let (names, places) = ranked(attempts.iter().map(|attempt| attempt.task));
    let mut family_of: Vec<Option<&str>> = vec![None; names.len()];
    let mut numbers = Vec::with_capacity(attempts.len());
    for (attempt, place) in attempts.iter().zip(places) {
        if let Some(family @ None) = family_of.get_mut(place as usize) {
            *family = Some(attempt.family);
        }
        let seeds = (attempt.seed, attempt.train_seed);
        numbers.push((place, seeds, attempt.arm, attempt.rollout, number_of(attempt)?));
    }
    let order = |x: &(u32, Seeds, &str, i64, f64), y: &(u32, Seeds, &str, i64, f64)| {
        (x.0, x.1, x.2, x.3).cmp(&(y.0, y.1, y.2, y.3)).then(x.4.total_cmp(&y.4))
    };
    numbers.sort_unstable_by(order);
    let mut tasks = BTreeMap::new();
    for of_task in numbers.chunk_by(|x, y| x.0 == y.0) {
        let place = of_task[0].0 as usize;
        let cells = of_task.chunk_by(|x, y| (x.1, x.2) == (y.1, y.2)).map(|cell| {
            let (_, (seed, train_seed), arm, ..) = cell[0];
            (seed, train_seed, arm, cell.iter().map(|attempt| attempt.4).collect())
        });
        let family = family_of.get(place).copied().flatten().unwrap_or("");
        tasks.insert(names[place], TaskCells { family, cells: cells.collect() });
    }
    Ok(tasks)
}

/// Whether an arm carries a training seed at all.
pub fn trained(arm: &[&Attempt]) -> bool {
    arm.iter().any(|attempt| attempt.train_seed.is_some())
}

/// Cells with their expected best of k in the place of their attempts, where k is given; those with fewer are dropped.
fn best_of<'a>(
    mut tasks: BTreeMap<&'a str, TaskCells<'a>>,
    k: Option<u32>,
) -> BTreeMap<&'a str, TaskCells<'a>> {
    let Some(k) = k.map(|k| k as usize) else { return tasks };
    for task in tasks.values_mut() {
        task.cells.retain(|cell| cell.3.len() >= k);
        for cell in &mut task.cells {
            cell.3.sort_by(f64::total_cmp);
            cell.3 = vec![best_at_k(&cell.3, k)];
        }
    }
    tasks
}

/// Two cells that stand against each other: their seeds, the base's mean, the treatment's.
pub type Facing = (Seeds, f64, f64);

/// Every task's cells that both arms have, in rising order of their seeds.
pub fn facing<'a>(
    base: &[&Attempt<'a>],
    treatment: &[&Attempt<'a>],
    k: Option<u32>,
) -> Result<Vec<(&'a str, &'a str, Vec<Facing>)>, String> {
    let exact = trained(base) == trained(treatment);
    let before = best_of(cells(base)?, k);
    let mut tasks = Vec::new();
    for (task, after) in best_of(cells(treatment)?, k) {
        let Some(before) = before.get(task) else { continue };
        let before: Vec<(Seeds, f64)> = before.means().collect();
        let mut pairs: Vec<Facing> = Vec::new();
        for ((seed, train_seed), reward) in after.means() {
            for ((base_seed, base_train_seed), base_reward) in &before {
                if seed == *base_seed && (!exact || train_seed == *base_train_seed) {
                    pairs.push(((seed, train_seed.or(*base_train_seed)), *base_reward, reward));
                }
            }
        }
        if !pairs.is_empty() {
            pairs.sort_by_key(|pair| pair.0);
            tasks.push((task, after.family, pairs));
        }
    }
    Ok(tasks)
}

/// How much the mean difference would vary if every task were attempted afresh; or why that cannot be said.
pub fn sampling(
    base: &[&Attempt],
    treatment: &[&Attempt],
    weight: Weight,
) -> Result<Result<f64, String>, String> {
    let exact = trained(base) == trained(treatment);
    let before = cells(base)?;
    let mut of_tasks: Vec<(&str, f64)> = Vec::new();
    for (task, after) in cells(treatment)? {
        let Some(before) = before.get(task) else { continue };
        let meet = |b: &Cell, t: &Cell| b.0 == t.0 && (!exact || b.1 == t.1);
        let count = |cell: &Cell, others: &[Cell], is_base: bool| {
            others.iter().filter(|other| if is_base { meet(cell, other) } else { meet(other, cell) }).count()
        };
        let sides = [(&before.cells, &after.cells, true), (&after.cells, &before.cells, false)];
        let pairs: usize = before.cells.iter().map(|cell| count(cell, &after.cells, true)).sum();
        let mut variance = 0.0;
        for (own, others, is_base) in sides {
            for cell in own {
                let share = count(cell, others, is_base) as f64 / pairs.max(1) as f64;
                if share == 0.0 {
                    continue;
                }
                let (n, mean) = (cell.3.len() as f64, plain_mean(&cell.3));
                if cell.3.len() < 2 {
                    return Ok(Err(format!("a cell of `{task}` has one attempt")));
                }
                let squares = cell.3.iter().fold(0.0, |sum, x| sum + (x - mean) * (x - mean));
                variance += share * share * squares / ((n - 1.0) * n);
            }
        }
        if pairs > 0 {
            of_tasks.push((after.family, variance));
        }
    }
    let mut families: BTreeMap<&str, f64> = BTreeMap::new();
    of_tasks.iter().for_each(|(family, _)| *families.entry(family).or_insert(0.0) += 1.0);
    let parts = |family: &str| match weight {
        Weight::Task => of_tasks.len() as f64,
        Weight::Family => families.len() as f64 * families.get(family).copied().unwrap_or(1.0),
    };
    Ok(Ok(of_tasks.iter().map(|(family, variance)| variance / (parts(family) * parts(family))).sum()))
}

/// The difference of every (task, training seed), in rising order.
pub fn training_cells<'a>(
    base: &[&Attempt<'a>],
    treatment: &[&Attempt<'a>],
    k: Option<u32>,
) -> Result<Vec<training::Cell<'a>>, String> {
    let mut cells = Vec::new();
    for (task, _, mut pairs) in facing(base, treatment, k)? {
        pairs.sort_by_key(|pair| (pair.0.1, pair.0.0));
        for of_seed in pairs.chunk_by(|a, b| a.0.1 == b.0.1) {
            let mean = |of: fn(&Facing) -> f64| plain_mean(&of_seed.iter().map(of).collect::<Vec<_>>());
            let train_seed = of_seed[0].0.1;
            cells.push(training::Cell { task, train_seed, difference: mean(|p| p.2) - mean(|p| p.1) });
        }
    }
    Ok(cells)
}
