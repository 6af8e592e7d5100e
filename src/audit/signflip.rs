//! The two-sided sign-flip test, a second time: how often a random sign for each difference
//! gives a sum at least as large as the one observed. Exact by walking the lattice of possible
//! sums, exact by listing all sign patterns when those are fewer, else simulated with a bound.

use rayon::prelude::*;
use std::iter::Sum;
use std::ops::Neg;

/// Largest common denominator looked for.
const DENOMINATORS: u32 = 10_000;
/// Largest difference in steps: beyond it a rounded step says nothing of a sum.
const LARGEST: f64 = 1e12;
/// Most lattice steps walked before the simulation takes over.
const STEPS: u128 = 2_000_000_000;
/// Largest sum of all steps whose table is kept.
const REACH: u128 = 2_000_000;
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
    let steps = lattice(&moved);
    // A table of sums that is larger than the list of patterns is not worth its room.
    let most = if moved.len() <= LISTED { REACH.min(1 << moved.len()) } else { REACH };
    match steps.as_ref().and_then(|steps| walk(steps, most)) {
        Some(p) => PValue::Exact(p),
        None if moved.len() <= LISTED => PValue::Exact(match &steps {
            Some(steps) => listed(steps, |sum: i128, observed, _| sum.abs() >= observed.abs()),
            None => listed(&moved, at_least_as_large),
        }),
        None => simulated(&moved),
    }
}

/// The differences as whole multiples of one step, if a common denominator is found.
fn lattice(differences: &[f64]) -> Option<Vec<i64>> {
    let denominator = (1..=DENOMINATORS).map(f64::from).find(|q| {
        differences.iter().all(|d| {
            let scaled = d * q;
            (scaled - scaled.round()).abs() <= 1e-9
        })
    })?;
    if differences.iter().any(|d| d.abs() * denominator > LARGEST) {
        return None;
    }
    let whole: Vec<i64> = differences.iter().map(|d| (d * denominator).round() as i64).collect();
    let common = whole.iter().fold(0, |a, b| greatest_common_divisor(a, b.abs()));
    if common == 0 {
        return None;
    }
    Some(whole.into_iter().map(|k| k / common).collect())
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Adds one step at a time, keeping the probability of every sum reached so far; `None` where the sums reach further
/// than `most`, or there are too many steps to walk.
fn walk(steps: &[i64], most: u128) -> Option<f64> {
    let reach: u128 = steps.iter().map(|k| u128::from(k.unsigned_abs())).sum();
    if reach > most || reach * steps.len() as u128 > STEPS {
        return None;
    }
    let middle = usize::try_from(reach).ok()?;
    let mut chance = vec![0.0f64; 2 * middle + 1];
    *chance.get_mut(middle)? = 1.0;
    for step in steps {
        let step = usize::try_from(step.unsigned_abs()).ok()?;
        let before = std::mem::replace(&mut chance, vec![0.0; 2 * middle + 1]);
        // A sum reached so far plus this step stays within the sum of all steps.
        for (at, reached) in before.iter().enumerate().filter(|(_, reached)| **reached > 0.0) {
            *chance.get_mut(at.checked_sub(step)?)? += 0.5 * reached;
            *chance.get_mut(at + step)? += 0.5 * reached;
        }
    }
    let observed = usize::try_from(steps.iter().sum::<i64>().unsigned_abs()).ok()?;
    let above: f64 = chance.iter().skip(middle + observed).sum();
    Some(if observed == 0 { 1.0 } else { (2.0 * above).min(1.0) })
}

fn at_least_as_large(sum: f64, observed: f64, scale: f64) -> bool {
    sum.abs() >= observed.abs() - 1e-12 * scale
}

/// Every sign pattern, one by one; `reaches(sum, observed, scale)` says which are as large as what was observed, where the scale
/// is the sum of all sizes.
fn listed<T: Copy, S: Copy + From<T> + Neg<Output = S> + Sum + PartialOrd + Default>(
    differences: &[T],
    reaches: impl Fn(S, S, S) -> bool,
) -> f64 {
    let all: Vec<S> = differences.iter().map(|d| S::from(*d)).collect();
    let observed: S = all.iter().copied().sum();
    let scale: S = all.iter().map(|d| if *d < S::default() { -*d } else { *d }).sum();
    let patterns = 1u32 << all.len();
    let sum = |pattern: u32| -> S {
        all.iter().enumerate().map(|(i, d)| if pattern >> i & 1 == 1 { -*d } else { *d }).sum()
    };
    let hits = (0..patterns).filter(|pattern| reaches(sum(*pattern), observed, scale)).count();
    hits as f64 / f64::from(patterns)
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

    /// Differences of counts that rows may state: a table of their sums has no room, and their sum has none in 64 bits.
    #[test]
    fn huge_differences_take_neither_room_nor_overflow() {
        let huge = 2f64.powi(62);
        assert_eq!(p_value(&[huge; 5]), PValue::Exact(2.0 / 32.0));
        assert_eq!(p_value(&[25e6, 25e6 + 1.0]), PValue::Exact(0.5));
        assert_eq!(p_value(&[-huge, huge, 1.0]), PValue::Exact(1.0));
        assert_eq!(lattice(&[huge, 0.5]), None);
        assert_eq!(walk(&[i64::MAX; 5], REACH), None);
        // Many of them are drawn, with a bound.
        let many: Vec<f64> = (0..40).map(|i| 25e6 + f64::from(i)).collect();
        assert!(matches!(p_value(&many), PValue::Simulated { .. }));
    }

    /// The share of all patterns of signs whose sum lies as far from zero as the one that was seen.
    fn of_all_patterns(d: &[f64]) -> f64 {
        let seen = d.iter().sum::<f64>().abs() - 1e-6;
        let patterns = 1u32 << d.len();
        let sum = |signs: u32| -> f64 {
            d.iter().enumerate().map(|(at, x)| if signs >> at & 1 == 1 { -x } else { *x }).sum()
        };
        let far = (0..patterns).filter(|signs| sum(*signs).abs() >= seen).count();
        far as f64 / f64::from(patterns)
    }

    #[test]
    fn large_differences_have_the_p_value_of_all_patterns() {
        for (n, size) in [(3, 9e11), (12, 9e11), (16, 4e6), (18, 20_000.0)] {
            let d: Vec<f64> = (0..n).map(|i| size + f64::from(i * i % 7) - f64::from(i % 3) * size).collect();
            let own = of_all_patterns(&d);
            match p_value(&d) {
                PValue::Exact(p) => assert!((p - own).abs() < 1e-9, "{n} {size}: {p} {own}"),
                PValue::Simulated { low, high, .. } => {
                    assert!(low <= own && own <= high, "{n} {size}: {low} {own} {high}");
                }
            }
        }
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
            prop_assert!((p - listed(&differences, at_least_as_large)).abs() < 1e-12);
            let walked = lattice(&differences).and_then(|steps| walk(&steps, REACH)).unwrap_or(1.0);
            prop_assert!((walked - p).abs() < 1e-12);
        }
    }
}
