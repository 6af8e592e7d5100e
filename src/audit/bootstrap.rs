//! The normative bootstrap, written out a second time: its key from SHA-256, its own
//! Philox4x32-10, and one resample after another in the plainest way.

use super::distributions::{normal_below, t_quantile_975};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

/// Resamples drawn.
pub const RESAMPLES: usize = 10_000;

/// One resampling unit: the sum of its task differences and how many tasks it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Sum of the unit's task differences.
    pub sum: f64,
    /// Number of its tasks.
    pub tasks: f64,
}

/// The two key words of a key text.
pub fn key(text: &str) -> [u32; 2] {
    let mut hasher = Sha256::new();
    hasher.update(b"rederive/bootstrap/v1\n");
    hasher.update(text.as_bytes());
    let digest = hasher.finalize();
    let word = |at: usize| {
        (0..4).fold(0u32, |word, i| word | u32::from(digest.get(at + i).copied().unwrap_or(0)) << (8 * i))
    };
    [word(0), word(4)]
}

/// Philox4x32-10 (Salmon et al. 2011): four random words at a counter.
#[cfg(test)]
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let left = u64::from(c0) * 0xD251_1F53;
        let right = u64::from(c2) * 0xCD9E_8D57;
        (c0, c1, c2, c3) =
            ((right >> 32) as u32 ^ c1 ^ k0, right as u32, (left >> 32) as u32 ^ c3 ^ k1, left as u32);
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c0, c1, c2, c3]
}

/// The sorted values of all resamples. Each stratum is drawn by itself, the draw counter
/// running on, and a resample's value is the mean over strata; one stratum is the plain case.
pub fn resample(strata: &[Vec<Unit>], key_text: &str) -> Vec<f64> {
    let key = key(key_text);
    let fresh = || strata.iter().map(|units| vec![0u32; units.len()]).collect::<Vec<_>>();
    let one = |counts: &mut Vec<Vec<u32>>, resample: u32| {
        let mut words = Words { key, resample, next_block: 0, ready: [0; LANES * 4], used: LANES * 4 };
        let mut total = 0.0;
        for (units, counts) in strata.iter().zip(counts) {
            counts.fill(0);
            for _ in 0..units.len() {
                let chosen = ((u64::from(words.next()) * units.len() as u64) >> 32) as usize;
                counts[chosen] += 1;
            }
            let (mut sum, mut tasks) = (0.0, 0.0);
            for (unit, count) in units.iter().zip(counts.iter()) {
                sum += f64::from(*count) * unit.sum;
                tasks += f64::from(*count) * unit.tasks;
            }
            total += sum / tasks;
        }
        total / strata.len() as f64
    };
    let mut values: Vec<f64> = (0..RESAMPLES as u32).into_par_iter().map_init(fresh, one).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Blocks that are worked out side by side.
const LANES: usize = 8;

/// The words of one resample in their order, block after block.
struct Words {
    key: [u32; 2],
    resample: u32,
    next_block: u32,
    ready: [u32; LANES * 4],
    used: usize,
}

impl Words {
    fn next(&mut self) -> u32 {
        if self.used == self.ready.len() {
            self.fill();
        }
        let word = self.ready[self.used];
        self.used += 1;
        word
    }

    /// [`philox`] at the next counters (block, resample, 0, 0), all of them step by step.
    fn fill(&mut self) {
        let mut c0: [u32; LANES] = std::array::from_fn(|lane| self.next_block.wrapping_add(lane as u32));
        let (mut c1, mut c2, mut c3) = ([self.resample; LANES], [0u32; LANES], [0u32; LANES]);
        let [mut k0, mut k1] = self.key;
        for _ in 0..10 {
            for lane in 0..LANES {
                let left = u64::from(c0[lane]) * 0xD251_1F53;
                let right = u64::from(c2[lane]) * 0xCD9E_8D57;
                c0[lane] = (right >> 32) as u32 ^ c1[lane] ^ k0;
                c1[lane] = right as u32;
                c2[lane] = (left >> 32) as u32 ^ c3[lane] ^ k1;
                c3[lane] = left as u32;
            }
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        for lane in 0..LANES {
            self.ready[lane * 4..lane * 4 + 4].copy_from_slice(&[c0[lane], c1[lane], c2[lane], c3[lane]]);
        }
        self.next_block = self.next_block.wrapping_add(LANES as u32);
        self.used = 0;
    }
}

/// Element ⌈p·B⌉, counted from 1, of the sorted values.
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let rank = (p * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).checked_sub(1)?).copied()
}

/// The tail probability of the expanded percentile interval for `n` ≥ 2 units:
/// Φ(−√(n/(n−1)) · t(.975, n−1)).
pub fn expanded_tail(n: usize) -> f64 {
    let n_real = n as f64;
    normal_below(-(n_real / (n_real - 1.0)).sqrt() * t_quantile_975(n as u64 - 1))
}

/// Where a quantile may lie when it was estimated from `RESAMPLES` other draws: the order
/// statistics five standard errors of the difference of two such ranks away, on both sides.
pub fn monte_carlo_range(sorted: &[f64], p: f64) -> Option<(f64, f64)> {
    let b = sorted.len() as f64;
    let ranks = 5.0 * (2.0 * p * (1.0 - p) * b).sqrt() / b;
    Some((quantile(sorted, (p - ranks).max(0.0))?, quantile(sorted, (p + ranks).min(1.0))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::golden;

    #[test]
    fn words_side_by_side_are_those_one_by_one() {
        let key = key("x");
        let mut words = Words { key, resample: 7, next_block: 0, ready: [0; LANES * 4], used: LANES * 4 };
        for block in 0..20 {
            for word in philox([block, 7, 0, 0], key) {
                assert_eq!(words.next(), word);
            }
        }
    }

    /// The unit index of draw `draw` of resample `resample` among `n` units, straight from the definition.
    fn index(key: [u32; 2], resample: u32, draw: u32, n: usize) -> usize {
        let words = philox([draw / 4, resample, 0, 0], key);
        let word = match draw % 4 {
            0 => words[0],
            1 => words[1],
            2 => words[2],
            _ => words[3],
        };
        ((u64::from(word) * n as u64) >> 32) as usize
    }

    #[test]
    fn philox_matches_the_published_vectors() {
        let vectors = golden::json("stats/normative_bootstrap.json");
        let words = |name: &str| -> Vec<u32> {
            vectors["philox4x32_10"][name]
                .as_array()
                .unwrap()
                .iter()
                .map(|w| u32::from_str_radix(w.as_str().unwrap().trim_start_matches("0x"), 16).unwrap())
                .collect()
        };
        assert_eq!(philox([0; 4], [0; 2]).to_vec(), words("counter 0, key 0"));
        assert_eq!(philox([1, 2, 3, 4], [5, 6]).to_vec(), words("counter (1,2,3,4), key (5,6)"));
    }

    #[test]
    fn resamples_match_the_normative_vectors() {
        let vectors = golden::json("stats/normative_bootstrap.json");
        let expected = golden::json("stats/golden.json");
        let mut seen = 0;
        for (name, keys) in vectors["datasets"].as_object().unwrap() {
            let differences = &expected["datasets"][name]["d_t"];
            let units: Vec<Unit> = differences
                .as_object()
                .unwrap()
                .values()
                .map(|d| Unit { sum: d.as_f64().unwrap(), tasks: 1.0 })
                .collect();
            for (text, want) in keys.as_object().unwrap() {
                let n = units.len();
                assert_eq!(want["n"], n);
                assert_eq!(want["key"], serde_json::json!(key(text)));
                for (field, b) in [("first_indices_b0", 0), ("first_indices_b9999", 9999)] {
                    for (draw, i) in want[field].as_array().unwrap().iter().enumerate() {
                        assert_eq!(index(key(text), b, draw as u32, n) as u64, i.as_u64().unwrap());
                    }
                }
                let sorted = resample(std::slice::from_ref(&units), text);
                let tail = expanded_tail(n);
                golden::near(tail, &want["alpha_per_tail"], 1e-12, "tail");
                for (field, tail) in [("percentile", 0.025), ("expanded_percentile", tail)] {
                    golden::near(quantile(&sorted, tail).unwrap(), &want[field][0], 1e-12, field);
                    golden::near(quantile(&sorted, 1.0 - tail).unwrap(), &want[field][1], 1e-12, field);
                }
                let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
                golden::near(mean, &want["mean_of_resample_means"], 1e-12, "mean");
                seen += 1;
            }
        }
        assert_eq!(seen, 8);
    }

    #[test]
    fn strata_run_on_in_one_draw_counter() {
        let unit = |sum| Unit { sum, tasks: 1.0 };
        let strata = vec![vec![unit(0.0), unit(1.0)], vec![unit(0.0), unit(1.0), unit(2.0)]];
        let mut by_hand: Vec<f64> = (0..RESAMPLES as u32)
            .map(|b| {
                let k = key("x");
                let first: f64 = (0..2).map(|j| index(k, b, j, 2) as f64).sum::<f64>() / 2.0;
                let second: f64 = (2..5).map(|j| index(k, b, j, 3) as f64).sum::<f64>() / 3.0;
                (first + second) / 2.0
            })
            .collect();
        by_hand.sort_by(f64::total_cmp);
        assert_eq!(resample(&strata, "x"), by_hand);
    }

    #[test]
    fn the_monte_carlo_range_holds_the_quantile_of_another_key() {
        let units: Vec<Unit> = (0..40).map(|i| Unit { sum: f64::from(i % 7) / 7.0, tasks: 1.0 }).collect();
        let (a, b) =
            (resample(std::slice::from_ref(&units), "a"), resample(std::slice::from_ref(&units), "b"));
        let (low, high) = monte_carlo_range(&a, 0.025).unwrap();
        let other = quantile(&b, 0.025).unwrap();
        assert!(low <= other && other <= high);
    }
}
