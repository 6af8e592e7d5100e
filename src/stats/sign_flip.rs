//! The sign-flip test: if the arms do not differ, each unit's difference could as well have had
//! the other sign. Exact where it can be: by convolution on a lattice, or by enumerating all
//! signs; else by random flips, which it says.

use super::bootstrap::key;
use super::{RESAMPLES, SAME};
use crate::philox::philox4x32;
use rayon::prelude::*;
use serde::Serialize;

/// Largest common denominator that is looked for.
const MOST_DENOMINATOR: u32 = 10_000;
/// Additions that an exact convolution may take: about a second.
const MOST_ADDITIONS: u128 = 2_000_000_000;
/// Most lattice points between no sign and all signs.
const MOST_REACH: u128 = 50_000_000;
/// Up to this many nonzero contributions all signs are enumerated.
const MOST_ENUMERATED: usize = 20;

/// How a sign-flip p value was had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Road {
    /// Exact: the contributions are whole multiples of one step.
    Lattice,
    /// Exact: every assignment of signs was summed.
    Enumeration,
    /// Monte Carlo with the +1 correction.
    Random,
}

/// A two-sided p value, P(|T*| ≥ |T|) with T the sum of the contributions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SignFlip {
    /// The p value.
    pub p: f64,
    /// How it was had.
    pub road: Road,
}

/// Tests the sum of `contributions`, one a unit. Random flips, where they are needed, are drawn
/// under the bootstrap's key text: unit i of flip b has the sign of bit i mod 32 of word
/// (i div 32) mod 4 of Philox4x32-10 with counter (i div 128, b, 1, 0), zeros left out.
/// Source: Fisher (1935), The Design of Experiments, section 21.
pub fn sign_flip(contributions: &[f64], key_text: &str) -> SignFlip {
    let nonzero: Vec<f64> = contributions.iter().copied().filter(|c| c.abs() > SAME).collect();
    if nonzero.is_empty() {
        return SignFlip { p: 1.0, road: Road::Lattice };
    }
    if let Some(steps) = lattice(&nonzero) {
        return SignFlip { p: convolution(&steps), road: Road::Lattice };
    }
    if nonzero.len() <= MOST_ENUMERATED {
        return SignFlip { p: enumeration(&nonzero), road: Road::Enumeration };
    }
    SignFlip { p: random(&nonzero, key_text), road: Road::Random }
}

/// The contributions as whole numbers of one step: their greatest common divisor in units of
/// 1/D, for the least D ≤ 10,000 that makes them whole; `None` without such a D, or where the
/// convolution would take too long or too much room.
fn lattice(contributions: &[f64]) -> Option<Vec<i64>> {
    let whole = |c: f64, d: f64| (c * d - (c * d).round()).abs() <= 1e-9;
    let d = (1..=MOST_DENOMINATOR).map(f64::from).find(|&d| contributions.iter().all(|&c| whole(c, d)))?;
    if contributions.iter().any(|c| c.abs() * d > 1e12) {
        return None;
    }
    let mut steps: Vec<i64> = contributions.iter().map(|c| (c * d).round() as i64).collect();
    let common = steps.iter().fold(0, |common, s| greatest_common_divisor(common, s.abs())).max(1);
    steps.iter_mut().for_each(|s| *s /= common);
    let reach: u128 = steps.iter().map(|s| u128::from(s.unsigned_abs())).sum();
    (reach <= MOST_REACH && reach * steps.len() as u128 <= MOST_ADDITIONS).then_some(steps)
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Distribution of the sum S⁺ of the magnitudes with a plus sign, then both tails of
/// T = 2·S⁺ − S, which are equal. Only the sums with a chance above 1e-290 are carried along:
/// far out there is nothing that a p value could show.
fn convolution(steps: &[i64]) -> f64 {
    let reach: usize = steps.iter().map(|s| s.unsigned_abs() as usize).sum();
    let total = steps.iter().sum::<i64>().unsigned_abs() as usize;
    if total == 0 {
        return 1.0;
    }
    let mut chance = vec![0.0; reach + 1];
    chance[0] = 1.0;
    let (mut low, mut high) = (0, 0);
    for step in steps.iter().map(|s| s.unsigned_abs() as usize).filter(|s| *s > 0) {
        // Downwards, so that what is read still holds the chances before this step.
        for at in (low + step..=high + step).rev() {
            chance[at] = 0.5 * (chance[at] + chance[at - step]);
        }
        for early in &mut chance[low..(low + step).min(high + 1)] {
            *early *= 0.5;
        }
        high += step;
        while chance[low] < 1e-290 {
            chance[low] = 0.0;
            low += 1;
        }
        while chance[high] < 1e-290 {
            chance[high] = 0.0;
            high -= 1;
        }
    }
    // reach and total have the same parity, so the half is whole.
    let tail: f64 = chance[(reach + total) / 2..].iter().rev().sum();
    (2.0 * tail).min(1.0)
}

/// All signs of two halves, then every sum of one with the other.
fn enumeration(contributions: &[f64]) -> f64 {
    let sums = |half: &[f64]| {
        let signed = |signs: u32| {
            let mut sum = 0.0;
            for (i, c) in half.iter().enumerate() {
                sum += if signs >> i & 1 == 1 { *c } else { -*c };
            }
            sum
        };
        (0..1u32 << half.len()).map(signed).collect::<Vec<f64>>()
    };
    let (left, right) = contributions.split_at(contributions.len() / 2);
    let (left, right) = (sums(left), sums(right));
    let least = threshold(contributions);
    let hits: usize = left.iter().map(|l| right.iter().filter(|r| (l + **r).abs() >= least).count()).sum();
    hits as f64 / (left.len() * right.len()) as f64
}

/// |T| less the rounding noise that sums of these contributions can carry.
fn threshold(contributions: &[f64]) -> f64 {
    let size: f64 = contributions.iter().map(|c| c.abs()).sum();
    contributions.iter().sum::<f64>().abs() - SAME * size
}

fn random(contributions: &[f64], key_text: &str) -> f64 {
    let (key, least) = (key(key_text), threshold(contributions));
    let as_extreme = |b: u32| {
        let mut sum = 0.0;
        for (block, chunk) in contributions.chunks(128).enumerate() {
            let words = philox4x32([block as u32, b, 1, 0], key);
            for (i, c) in chunk.iter().enumerate() {
                let minus = u64::from(!words[i / 32] >> (i % 32) & 1) << 63;
                sum += f64::from_bits(c.to_bits() ^ minus);
            }
        }
        sum.abs() >= least
    };
    let hits = (0..RESAMPLES as u32).into_par_iter().filter(|&b| as_extreme(b)).count();
    (1 + hits) as f64 / (1 + RESAMPLES) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Paired;
    use crate::stats::fixtures::{DATA_SETS, csv, golden, near, observations};
    use proptest::prelude::*;

    #[test]
    fn exact_p_values_match_the_reference() {
        let golden = golden();
        for name in DATA_SETS {
            let text = csv(name);
            let paired = Paired::new(&observations(&text)).unwrap();
            let d: Vec<f64> = paired.tasks.iter().map(|t| t.difference()).collect();
            let test = sign_flip(&d, "0");
            let reference = &golden["datasets"][name]["permutation_signflip_task"]["p_exact"];
            near(test.p, reference.as_f64().expect("a p value"), 1e-9);
            assert_eq!(test.road, Road::Lattice);
        }
    }

    #[test]
    fn small_cases_by_hand() {
        near(sign_flip(&[], "0").p, 1.0, 0.0);
        near(sign_flip(&[0.0, 1e-17], "0").p, 1.0, 0.0);
        near(sign_flip(&[1.0; 6], "0").p, 2.0 / 64.0, 1e-15);
        near(sign_flip(&[0.5, 0.25], "0").p, 0.5, 1e-15);
        near(sign_flip(&[1.0, -1.0], "0").p, 1.0, 0.0);
        // 2/3 is two steps of 1/3; the common divisor makes it one.
        assert_eq!(lattice(&[2.0 / 3.0, -4.0 / 3.0]), Some(vec![1, -2]));
    }

    #[test]
    fn many_units_stay_exact_into_the_far_tail() {
        // 3,000 coins, 1,900 of them heads: the binomial tail, by its own road.
        let d: Vec<f64> = (0..3_000).map(|i| if i < 1_900 { 1.0 } else { -1.0 }).collect();
        let exact = crate::stats::proportion::mcnemar_exact(1_100, 1_900).unwrap();
        assert!(exact < 1e-40 && exact > 0.0);
        near(sign_flip(&d, "0").p / exact, 1.0, 1e-9);
    }

    #[test]
    fn without_a_lattice_few_values_are_enumerated_and_many_are_drawn() {
        let odd = |n: usize| (1..=n).map(|i| (i as f64).sqrt() / 7.0).collect::<Vec<f64>>();
        let few = sign_flip(&odd(6), "0");
        assert_eq!(few.road, Road::Enumeration);
        near(few.p, 2.0 / 64.0, 1e-15);
        let many = sign_flip(&odd(40), "0");
        assert_eq!(many.road, Road::Random);
        near(many.p, 1.0 / 10_001.0, 1e-12);
    }

    #[test]
    fn random_flips_agree_with_the_exact_value() {
        let text = csv("partial_credit");
        let paired = Paired::new(&observations(&text)).unwrap();
        let d: Vec<f64> = paired.tasks.iter().map(|t| t.difference()).filter(|d| d.abs() > SAME).collect();
        let exact = sign_flip(&d, "0").p;
        near(random(&d, "0"), exact, 5.0 * (exact * (1.0 - exact) / RESAMPLES as f64).sqrt());
    }

    proptest! {
        #[test]
        fn the_exact_roads_agree(steps in proptest::collection::vec(-6i64..=6, 1..12)) {
            let d: Vec<f64> = steps.iter().map(|s| *s as f64 / 12.0).collect();
            prop_assert!((sign_flip(&d, "0").p - enumeration(&d)).abs() < 1e-12);
        }

        #[test]
        fn the_other_sign_and_the_order_change_nothing(steps in proptest::collection::vec(-20i64..=20, 1..30)) {
            let d: Vec<f64> = steps.iter().map(|s| *s as f64 / 20.0).collect();
            let turned: Vec<f64> = d.iter().rev().map(|v| -v).collect();
            prop_assert!((sign_flip(&d, "0").p - sign_flip(&turned, "0").p).abs() < 1e-12);
        }
    }
}
