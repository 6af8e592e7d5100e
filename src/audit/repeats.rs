//! What is made of repeated attempts, a second time: pass@k, best@k, the attempt that a selection score picks, the spread
//! within a cell, and the interquartile mean of cells.

use super::estimators::{Part, Parts, number_of, plain_mean};
use super::walk::Attempt;
use crate::claims::derivation::{Derivation, Estimator};
use std::collections::BTreeMap;

/// Cells by (task, seed, training seed, arm), each with its attempts in rising order of rollout: number and selection score.
type Cells<'a> = BTreeMap<(&'a str, i64, Option<i64>, &'a str), Vec<(i64, f64, Option<f64>)>>;

fn cells<'a>(attempts: &[&Attempt<'a>]) -> Result<Cells<'a>, String> {
    let mut cells = Cells::new();
    for attempt in attempts {
        let key = (attempt.task, attempt.seed, attempt.train_seed, attempt.arm);
        cells.entry(key).or_default().push((attempt.rollout, number_of(attempt)?, attempt.select_score));
    }
    for cell in cells.values_mut() {
        cell.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    }
    Ok(cells)
}

/// pass@k, best@k or the selected of k: mean over the cells of a task that have k attempts, then over tasks.
pub fn at_k(derivation: &Derivation, attempts: &[&Attempt]) -> Result<Parts, String> {
    let k = match derivation.k {
        Some(k) if k > 0 => k as usize,
        _ => return Err("the derivation names no `k` of at least 1".into()),
    };
    let mut tasks: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut oracle = derivation.estimator == Estimator::SelectedAtK;
    for ((task, ..), cell) in cells(attempts)? {
        oracle &= cell.iter().all(|(_, value, score)| *score == Some(*value));
        if cell.len() < k {
            continue;
        }
        let mut values: Vec<f64> = cell.iter().map(|(_, value, _)| *value).collect();
        let value = match derivation.estimator {
            Estimator::PassAtK => pass_at_k(&values, k),
            Estimator::SelectedAtK => {
                let scored = cell.iter().map(|(_, value, score)| Some((score.as_ref().copied()?, *value)));
                match scored.collect::<Option<Vec<_>>>() {
                    Some(scored) => selected_at_k(scored, k),
                    None => return Ok(without_score(task)),
                }
            }
            _ => {
                values.sort_by(f64::total_cmp);
                best_at_k(&values, k)
            }
        };
        tasks.entry(task).or_default().push(value);
    }
    let of_tasks: Vec<f64> = tasks.values().map(|cells| plain_mean(cells)).collect();
    let value = if of_tasks.is_empty() {
        Part::Undefined(format!("no cell has {k} attempts"))
    } else {
        Part::Number(plain_mean(&of_tasks))
    };
    let mut parts = BTreeMap::from([("value", value), ("n", Part::Number(of_tasks.len() as f64))]);
    if oracle {
        parts.insert(ORACLE, Part::Number(1.0));
    }
    Ok(parts)
}

/// A part that no address has: every attempt's selection score is the very number that it is judged by.
pub const ORACLE: &str = "oracle";

fn without_score(task: &str) -> Parts {
    let why = format!("an attempt at `{task}` has no `select_score`");
    BTreeMap::from([("value", Part::Undefined(why)), ("n", Part::Number(0.0))])
}

/// Chance that k attempts drawn without replacement hold a solved one:
/// 1 − Π (failures − i)/(n − i) (Chen et al. 2021).
fn pass_at_k(solved: &[f64], k: usize) -> f64 {
    let n = solved.len();
    let failures = solved.iter().filter(|s| **s == 0.0).count();
    let mut all_fail = 1.0;
    for i in 0..k {
        all_fail *= failures.saturating_sub(i) as f64 / (n - i) as f64;
    }
    1.0 - all_fail
}

/// Expected largest of k rewards drawn without replacement from `sorted`: the largest is
/// among them with probability k/n, else the next largest of the n − 1 left, and so on.
pub(super) fn best_at_k(sorted: &[f64], k: usize) -> f64 {
    let (mut expected, mut not_yet) = (0.0, 1.0);
    for left in (k..=sorted.len()).rev() {
        let drawn = k as f64 / left as f64;
        expected += sorted.get(left - 1).copied().unwrap_or(0.0) * not_yet * drawn;
        not_yet *= 1.0 - drawn;
    }
    expected
}

/// Expected value of the attempt with the best score among k drawn without replacement, any of the best where several tie:
/// the tied attempts with the greatest score hold one of the k unless all k are of the rest, and then each of them alike.
fn selected_at_k(mut scored: Vec<(f64, f64)>, k: usize) -> f64 {
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1)));
    let n = scored.len();
    // Chance that none of the first `better` attempts is drawn.
    let none_of = |better: usize| -> f64 {
        (0..better).map(|i| (n - k).saturating_sub(i) as f64 / (n - i) as f64).product()
    };
    let mut expected = 0.0;
    let mut from = 0;
    for tied in scored.chunk_by(|a, b| a.0 == b.0) {
        let values: Vec<f64> = tied.iter().map(|(_, value)| *value).collect();
        expected += (none_of(from) - none_of(from + tied.len())) * plain_mean(&values);
        from += tied.len();
    }
    expected
}

/// Mean over cells of several attempts of their standard deviation, and the share of those in which nothing varies.
pub fn group_sd(attempts: &[&Attempt]) -> Result<Parts, String> {
    let mut spreads = Vec::new();
    let mut still = 0.0;
    for cell in cells(attempts)?.into_values().filter(|cell| cell.len() > 1) {
        let values: Vec<f64> = cell.iter().map(|(_, value, _)| *value).collect();
        let mean = plain_mean(&values);
        let squares = values.iter().fold(0.0, |sum, value| sum + (value - mean) * (value - mean));
        let same = values.iter().all(|value| (value - mean).abs() <= super::paired::SAME);
        still += if same { 1.0 } else { 0.0 };
        spreads.push(if same { 0.0 } else { (squares / (values.len() - 1) as f64).sqrt() });
    }
    let n = spreads.len() as f64;
    let none = || Part::Undefined("no cell has two attempts".into());
    let of = |x: f64| if spreads.is_empty() { none() } else { Part::Number(x) };
    let value = if spreads.is_empty() { none() } else { Part::Number(plain_mean(&spreads)) };
    Ok(BTreeMap::from([("value", value), ("zero_share", of(still / n)), ("n", Part::Number(n))]))
}

/// Mean of the cell means between the quartiles: a quarter of them, rounded down, is left out at either end.
pub fn interquartile_mean(attempts: &[&Attempt]) -> Result<Parts, String> {
    let mut means: Vec<f64> = cells(attempts)?
        .into_values()
        .map(|cell| plain_mean(&cell.iter().map(|(_, value, _)| *value).collect::<Vec<_>>()))
        .collect();
    means.sort_by(f64::total_cmp);
    let out = means.len() / 4;
    let value = match means.get(out..means.len() - out) {
        Some(middle) if !middle.is_empty() => Part::Number(plain_mean(middle)),
        _ => Part::Undefined("no row passes the filter".into()),
    };
    Ok(BTreeMap::from([("value", value), ("n", Part::Number(means.len() as f64))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::golden;

    #[test]
    fn at_k_tables_match() {
        let reference = golden::json("stats/golden.json");
        for row in reference["pass_at_k_table"].as_array().unwrap() {
            let (n, c, k) =
                (row["n"].as_u64().unwrap(), row["c"].as_u64().unwrap(), row["k"].as_u64().unwrap());
            let solved: Vec<f64> = (0..n).map(|i| if i < c { 1.0 } else { 0.0 }).collect();
            let value = if n < k { f64::NAN } else { pass_at_k(&solved, k as usize) };
            golden::near(value, &row["pass_at_k"], 1e-12, &row.to_string());
        }
    }

    #[test]
    fn a_selection_by_the_reward_itself_is_the_best_of_k() {
        let rewards = [0.0, 0.25, 0.25, 0.75, 1.0];
        for k in 1..=5 {
            let own = selected_at_k(rewards.iter().map(|r| (*r, *r)).collect(), k);
            assert!((own - best_at_k(&rewards, k)).abs() < 1e-14, "{k}");
            // A score that tells nothing picks any of them.
            let blind = selected_at_k(rewards.iter().map(|r| (0.5, *r)).collect(), k);
            assert!((blind - 0.45).abs() < 1e-14, "{k}");
        }
        // The best score on the worst attempt: it is picked whenever it is drawn.
        let misled = selected_at_k(vec![(1.0, 0.0), (0.0, 1.0), (0.0, 1.0)], 2);
        assert!((misled - 1.0 / 3.0).abs() < 1e-14);
    }
}
