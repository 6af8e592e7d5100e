//! The bootstrap for very many tasks that take few distinct values: a resample is then a draw
//! of multinomial counts over the values, O(levels) instead of O(tasks). It has the same
//! distribution as drawing one by one, but not the same digits, so it is not normative.

use super::units::Units;
use crate::philox::Philox;
use statrs::function::gamma::ln_gamma;

/// Above this many distinct values the counts would save nothing.
const MOST_LEVELS: usize = 256;

/// Distinct values and how often each occurs, by stratum.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels(Vec<Vec<(f64, u64)>>);

impl Levels {
    /// The levels of `units` whose units are single tasks; `None` for clusters, or where there
    /// are more than 256 levels. Values within 1e-12 count as one.
    pub fn of(units: &Units) -> Option<Levels> {
        if units.clustered {
            return None;
        }
        let mut levels = Vec::with_capacity(units.strata.len());
        let mut distinct = 0;
        for stratum in &units.strata {
            let mut sorted: Vec<f64> = stratum.iter().map(|u| u.sum).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            let groups = sorted.chunk_by(|a, b| b - a <= super::SAME);
            let of_stratum: Vec<(f64, u64)> = groups.map(|g| (g[0], g.len() as u64)).collect();
            distinct += of_stratum.len();
            levels.push(of_stratum);
        }
        (distinct <= MOST_LEVELS).then_some(Levels(levels))
    }

    /// The value of resample `b` under a key text: the mean over strata of the drawn means.
    pub fn resample(&self, key_text: &str, b: u32) -> f64 {
        let mut random = Philox::named(&format!("rederive/multinomial/v1\n{key_text}\n{b}"));
        let mut total = 0.0;
        for stratum in &self.0 {
            let n: u64 = stratum.iter().map(|(_, count)| count).sum();
            let (mut draws, mut rest, mut sum) = (n, n, 0.0);
            for &(value, count) in stratum {
                let hits = if count == rest {
                    draws
                } else {
                    binomial(&mut random, draws, count as f64 / rest as f64)
                };
                sum += hits as f64 * value;
                draws -= hits;
                rest -= count;
            }
            total += sum / n as f64;
        }
        total / self.0.len() as f64
    }
}

/// A binomial draw: inversion where the mean is small, else transformed rejection.
/// Source: Hörmann (1993), "The generation of binomial random variates", algorithm BTRS.
fn binomial(random: &mut Philox, n: u64, p: f64) -> u64 {
    if n == 0 || p <= 0.0 {
        return 0;
    }
    if p > 0.5 {
        return n - binomial(random, n, 1.0 - p);
    }
    let size = n as f64;
    if size * p < 10.0 {
        return inversion(random, n, p);
    }
    let sd = (size * p * (1.0 - p)).sqrt();
    let b = 1.15 + 2.53 * sd;
    let a = -0.0873 + 0.0248 * b + 0.01 * p;
    let centre = size * p + 0.5;
    let v_r = 0.92 - 4.2 / b;
    let alpha = (2.83 + 5.1 / b) * sd;
    let log_odds = (p / (1.0 - p)).ln();
    let mode = ((size + 1.0) * p).floor();
    let log_ways = |k: f64| -ln_gamma(k + 1.0) - ln_gamma(size - k + 1.0);
    loop {
        let (u, v) = (random.unit() - 0.5, 1.0 - random.unit());
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + centre).floor();
        if k < 0.0 || k > size {
            continue;
        }
        if us >= 0.07 && v <= v_r {
            return k as u64;
        }
        let bound = log_ways(k) - log_ways(mode) + (k - mode) * log_odds;
        if (v * alpha / (a / (us * us) + b)).ln() <= bound {
            return k as u64;
        }
    }
}

/// Walks the distribution function up from 0; the mean is below 10.
fn inversion(random: &mut Philox, n: u64, p: f64) -> u64 {
    let odds = p / (1.0 - p);
    let mut term = (n as f64 * (-p).ln_1p()).exp();
    let mut u = random.unit();
    let mut k = 0;
    while u > term && k < n {
        u -= term;
        term *= odds * (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    k
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's chi-square of draws against the exact distribution, pooled to cells of at
    /// least 10 expected; a right sampler stays near the number of cells.
    fn chi_square(n: u64, p: f64) -> (f64, usize) {
        const DRAWS: usize = 40_000;
        let mut random = Philox::named(&format!("test {n} {p}"));
        let mut seen = vec![0usize; n as usize + 1];
        for _ in 0..DRAWS {
            seen[binomial(&mut random, n, p) as usize] += 1;
        }
        let size = n as f64;
        let pmf = |k: f64| {
            let ways = ln_gamma(size + 1.0) - ln_gamma(k + 1.0) - ln_gamma(size - k + 1.0);
            (ways + k * p.ln() + (size - k) * (1.0 - p).ln()).exp()
        };
        let (mut chi, mut cells, mut expected, mut observed) = (0.0, 0, 0.0, 0.0);
        for (k, &count) in seen.iter().enumerate() {
            expected += DRAWS as f64 * pmf(k as f64);
            observed += count as f64;
            if expected >= 10.0 {
                chi += (observed - expected).powi(2) / expected;
                cells += 1;
                (expected, observed) = (0.0, 0.0);
            }
        }
        (chi, cells)
    }

    #[test]
    fn binomial_draws_have_the_right_distribution() {
        for (n, p) in [(5, 0.3), (1_000, 0.002), (50, 0.4), (4_096, 0.05), (1_000, 0.9), (100_000, 0.25)] {
            let (chi, cells) = chi_square(n, p);
            let bound = cells as f64 + 5.0 * (2.0 * cells as f64).sqrt() + 5.0;
            assert!(chi < bound, "n {n} p {p}: chi-square {chi} over {cells} cells");
        }
    }

    #[test]
    fn certain_and_impossible_draws() {
        let mut random = Philox::named("edges");
        assert_eq!(binomial(&mut random, 7, 0.0), 0);
        assert_eq!(binomial(&mut random, 7, 1.0), 7);
        assert_eq!(binomial(&mut random, 0, 0.5), 0);
    }
}
