//! The two-sided sign-flip test, a second time: how often a random sign for each difference
//! gives a sum at least as large as the one observed. Exact by walking the lattice of possible
//! sums, exact by listing all sign patterns when there are few, else simulated with a bound.

use rayon::prelude::*;

/// Largest common denominator looked for.
const DENOMINATORS: u32 = 10_000;
/// Most lattice steps walked before the simulation takes over.
const STEPS: u64 = 2_000_000_000;
/// Most differences whose sign patterns are listed one by one.
const LISTED: usize = 20;
/// Random sign patterns of the simulation.
const DRAWS: u32 = 40_000;
/// Random sign patterns that the other road draws; enters the bound only.
const THEIR_DRAWS: f64 = 10_000.0;

/// A p-value, with the range another simulation may differ in when it is not exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PValue {
    /// Exact to rounding.
    Exact(f64),
    /// Simulated; another simulation lies between `low` and `high` but for chance of about 1 in a million.
    Simulated {
        /// The estimate.
        p: f64,
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
}

/// P(|Σ ±d| ≥ |Σ d|) over all sign patterns.
pub fn p_value(differences: &[f64]) -> PValue {
    let moved: Vec<f64> = differences.iter().copied().filter(|d| d.abs() > 1e-12).collect();
    if moved.is_empty() {
        return PValue::Exact(1.0);
    }
    if let Some(p) = lattice(&moved).and_then(|steps| walk(&steps)) {
        return PValue::Exact(p);
    }
    if moved.len() <= LISTED {
        return PValue::Exact(listed(&moved));
    }
    simulated(&moved)
}

/// The differences as whole multiples of one step, if a common denominator is found.
fn lattice(differences: &[f64]) -> Option<Vec<i64>> {
    let denominator = (1..=DENOMINATORS).find(|q| {
        differences.iter().all(|d| {
            let scaled = d * f64::from(*q);
            (scaled - scaled.round()).abs() <= 1e-9
        })
    })?;
    let whole: Vec<i64> = differences.iter().map(|d| (d * f64::from(denominator)).round() as i64).collect();
    let common = whole.iter().fold(0u64, |a, b| greatest_common_divisor(a, b.unsigned_abs()));
    if common == 0 {
        return None;
    }
    Some(whole.into_iter().map(|k| k / common as i64).collect())
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Adds one step at a time, keeping the probability of every sum reached so far.
fn walk(steps: &[i64]) -> Option<f64> {
    let reach: u64 = steps.iter().map(|k| k.unsigned_abs()).sum();
    if reach.saturating_mul(steps.len() as u64) > STEPS || reach > 50_000_000 {
        return None;
    }
    let middle = reach as usize;
    let mut chance = vec![0.0f64; 2 * middle + 1];
    chance[middle] = 1.0;
    for step in steps {
        let step = step.unsigned_abs() as usize;
        let before = std::mem::replace(&mut chance, vec![0.0; 2 * middle + 1]);
        // A sum reached so far plus this step stays within the sum of all steps.
        for (at, reached) in before.iter().enumerate().filter(|(_, reached)| **reached > 0.0) {
            chance[at - step] += 0.5 * reached;
            chance[at + step] += 0.5 * reached;
        }
    }
    let observed = steps.iter().sum::<i64>().unsigned_abs() as usize;
    let above: f64 = chance[middle + observed..].iter().sum();
    Some(if observed == 0 { 1.0 } else { (2.0 * above).min(1.0) })
}

fn at_least_as_large(sum: f64, observed: f64, scale: f64) -> bool {
    sum.abs() >= observed.abs() - 1e-12 * scale
}

/// Every sign pattern, one by one.
fn listed(differences: &[f64]) -> f64 {
    let observed: f64 = differences.iter().sum();
    let scale: f64 = differences.iter().map(|d| d.abs()).sum();
    let patterns = 1u32 << differences.len();
    let mut hits = 0u32;
    for pattern in 0..patterns {
        let sum: f64 =
            differences.iter().enumerate().map(|(i, d)| if pattern >> i & 1 == 1 { -d } else { *d }).sum();
        hits += u32::from(at_least_as_large(sum, observed, scale));
    }
    f64::from(hits) / f64::from(patterns)
}

/// Random sign patterns, each from a SplitMix64 stream of its own, with the usual +1 correction. Differences of one size flip
/// together: all that counts is how many of them keep their sign.
fn simulated(differences: &[f64]) -> PValue {
    let observed: f64 = differences.iter().sum();
    let scale: f64 = differences.iter().map(|d| d.abs()).sum();
    let mut sizes: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let alike: Vec<(f64, usize)> =
        sizes.chunk_by(|a, b| b - a <= 1e-12).map(|group| (group[0], group.len())).collect();
    let reaches = |draw: &u32| {
        let mut bits = Bits { state: 0x5EED_0FA0_D175_1234 ^ u64::from(*draw) << 20, word: 0, left: 0 };
        let sum: f64 = alike.iter().map(|(d, n)| d * (2.0 * bits.ones(*n) as f64 - *n as f64)).sum();
        at_least_as_large(sum, observed, scale)
    };
    let hits = (0..DRAWS).into_par_iter().filter(reaches).count();
    let draws = f64::from(DRAWS);
    let p = (hits as f64 + 1.0) / (draws + 1.0);
    let error = 5.0 * (p * (1.0 - p) * (1.0 / draws + 1.0 / THEIR_DRAWS)).sqrt() + 5.0 / THEIR_DRAWS;
    PValue::Simulated { p, low: (p - error).max(0.0), high: (p + error).min(1.0) }
}

/// Random bits.
struct Bits {
    state: u64,
    word: u64,
    left: usize,
}

impl Bits {
    fn next_word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// How many of the next n bits are set.
    fn ones(&mut self, n: usize) -> usize {
        let mut set: usize = (0..n / 64).map(|_| self.next_word().count_ones() as usize).sum();
        for _ in 0..n % 64 {
            if self.left == 0 {
                (self.word, self.left) = (self.next_word(), 64);
            }
            set += (self.word & 1) as usize;
            self.word >>= 1;
            self.left -= 1;
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::golden;
    use proptest::prelude::*;

    #[test]
    fn lattice_walk_matches_the_reference() {
        let reference = golden::json("stats/golden.json");
        for (name, set) in reference["datasets"].as_object().unwrap() {
            let differences: Vec<f64> =
                set["d_t"].as_object().unwrap().values().map(|d| d.as_f64().unwrap()).collect();
            let PValue::Exact(p) = p_value(&differences) else { panic!("{name} is not exact") };
            golden::near(p, &set["permutation_signflip_task"]["p_exact"], 1e-9, name);
        }
    }

    #[test]
    fn small_cases_by_hand() {
        assert_eq!(p_value(&[]), PValue::Exact(1.0));
        assert_eq!(p_value(&[0.0, 0.0]), PValue::Exact(1.0));
        assert_eq!(p_value(&[0.3]), PValue::Exact(1.0));
        assert_eq!(p_value(&[1.0, 1.0, 1.0]), PValue::Exact(0.25));
        assert_eq!(p_value(&[1.0, -1.0]), PValue::Exact(1.0));
        assert_eq!(p_value(&[std::f64::consts::PI, std::f64::consts::E]), PValue::Exact(0.5));
    }

    #[test]
    fn off_the_lattice_it_is_simulated_with_a_bound() {
        let irrational: Vec<f64> = (1..=30).map(|i| f64::from(i).sqrt() - 4.0).collect();
        let PValue::Simulated { p, low, high } = p_value(&irrational) else { panic!("not simulated") };
        assert!(low < p && p < high && high - low < 0.06);
    }

    #[test]
    fn half_of_many_bits_are_set() {
        let mut bits = Bits { state: 1, word: 0, left: 0 };
        let set = bits.ones(1_000_003) as f64;
        assert!((set - 500_001.5).abs() < 2_500.0, "{set}");
        let few: usize = (0..10_000).map(|_| bits.ones(3)).sum();
        assert!((few as f64 - 15_000.0).abs() < 450.0, "{few}");
    }

    #[test]
    fn differences_of_one_size_are_simulated_as_the_walk_has_them() {
        // Seven twelfths on the way up: the walk is exact, and the simulation must lie around it.
        let d: Vec<f64> = (0..240).map(|i| if i % 12 < 7 { 0.25 } else { -0.25 }).collect();
        let PValue::Exact(exact) = p_value(&d) else { panic!("not exact") };
        let PValue::Simulated { low, high, .. } = simulated(&d) else { panic!("not simulated") };
        assert!(low < exact && exact < high, "{low} {exact} {high}");
    }

    proptest! {
        #[test]
        fn walking_and_listing_agree(steps in prop::collection::vec(-6i64..=6, 1..12)) {
            let differences: Vec<f64> = steps.iter().map(|k| *k as f64 / 12.0).collect();
            let PValue::Exact(p) = p_value(&differences) else { panic!("not exact") };
            prop_assert!((p - listed(&differences)).abs() < 1e-12);
        }
    }
}
