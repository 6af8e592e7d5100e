//! Wilson's interval for one proportion, and McNemar's exact test for paired ones.
//! Both take trials as independent: one episode a task.

use super::distribution::normal_quantile;
use super::{Interval, LEVEL, Undefined, Value};
use statrs::function::gamma::ln_gamma;

/// Wilson's score interval for `solved` of `n` independent trials.
/// Source: Wilson (1927). Undefined for no trials.
pub fn wilson(solved: usize, n: usize) -> Result<Interval, Undefined> {
    check(solved, n)?;
    let (n, p) = (n as f64, solved as f64 / n as f64);
    let z = normal_quantile(0.5 + 0.5 * LEVEL);
    let z2 = z * z;
    let centre = p + z2 / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let end = |x: f64| (x / (1.0 + z2 / n)).clamp(0.0, 1.0);
    Ok(Interval { low: end(centre - half), high: end(centre + half) })
}

fn check(solved: usize, n: usize) -> Result<(), Undefined> {
    match n {
        0 => Err(Undefined::new("there are no trials")),
        _ if solved > n => Err(Undefined::new("more trials are solved than there are")),
        _ => Ok(()),
    }
}

/// McNemar's exact two-sided p value from the two discordant counts: a binomial test at ½.
/// 1 where nothing is discordant. Valid only where each task gives one pair.
/// Source: McNemar (1947), in its exact form.
pub fn mcnemar_exact(base_only: usize, treatment_only: usize) -> Value {
    let n = (base_only + treatment_only) as f64;
    let k = base_only.min(treatment_only) as f64;
    let log_pmf = ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0) - n * std::f64::consts::LN_2;
    // Down from the largest term, each next one by the ratio of neighbouring binomials.
    let (mut term, mut i, mut sum) = (1.0, k, 0.0);
    while i >= 0.0 && term > 1e-18 {
        sum += term;
        term *= i / (n - i + 1.0);
        i -= 1.0;
    }
    Ok((2.0 * log_pmf.exp() * sum).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::{golden, near, numbers};

    #[test]
    fn intervals_match_the_reference_table() {
        let golden = golden();
        let table = golden["wilson_table"].as_array().expect("the reference has a list here");
        assert!(table.len() >= 8);
        for row in table {
            let count = |key: &str| row[key].as_u64().expect("a count") as usize;
            let (solved, n) = (count("solved"), count("n"));
            let (ours, reference) = (wilson(solved, n).unwrap(), numbers(&row["wilson95"]));
            near(ours.low, reference[0], 1e-12);
            near(ours.high, reference[1], 1e-12);
        }
    }

    #[test]
    fn mcnemar_matches_the_reference_table() {
        let golden = golden();
        let table = golden["mcnemar_table"].as_array().expect("the reference has a list here");
        assert!(table.len() >= 9);
        for row in table {
            let count = |key: &str| row[key].as_u64().expect("a count") as usize;
            let (b, t) = (count("base_only"), count("treatment_only"));
            let p = row["p_exact"].as_f64().expect("a p value");
            near(mcnemar_exact(b, t).unwrap(), p, 1e-9);
            near(mcnemar_exact(t, b).unwrap(), p, 1e-9);
        }
    }

    #[test]
    fn no_trials_have_no_interval() {
        assert!(wilson(0, 0).is_err());
        assert!(wilson(2, 1).is_err());
    }

    #[test]
    fn large_counts_stay_finite() {
        let w = wilson(300_000, 1_000_000).unwrap();
        assert!(w.low > 0.299 && w.low < 0.3 && w.high > 0.3 && w.high < 0.301);
        assert!((mcnemar_exact(500_000, 500_000).unwrap() - 1.0).abs() < 1e-9);
    }
}
