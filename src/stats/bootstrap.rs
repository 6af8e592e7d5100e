//! The paired bootstrap whose value is fixed to the last digits: every draw follows from a key
//! text through Philox, so that any program that walks the same units gets the same interval.
//! Whole units are drawn, both arms together; resamples are streamed, in any number of threads.

use super::distribution::{normal_cdf, t_quantile};
use super::units::{Unit, Units};
use super::{Interval, LEVEL, Undefined, multinomial};
use crate::philox::{self, WORDS};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

/// From this many units on, values that take few distinct levels are drawn by multinomial
/// counts instead of one by one.
const ONE_BY_ONE: usize = 4_096;

/// The means of all resamples.
#[derive(Debug, Clone, PartialEq)]
pub struct Resamples {
    sorted: Vec<f64>,
    /// Mean over the resamples, summed in their order.
    pub mean: f64,
    /// Whether any other road must get these very values; false for the multinomial road,
    /// which agrees in distribution only.
    pub normative: bool,
}

impl Resamples {
    /// Draws `resamples` resamples (at least one) of `units` under the key named by `key_text`.
    pub fn draw(units: &Units, key_text: &str, resamples: usize) -> Resamples {
        match multinomial::Levels::of(units).filter(|_| units.len() > ONE_BY_ONE) {
            Some(levels) => {
                let value = |b| levels.resample(key_text, b);
                Resamples::new((0..resamples.max(1) as u32).into_par_iter().map(value).collect(), false)
            }
            None => Resamples::one_by_one(units, key_text, resamples),
        }
    }

    /// The normative road, whatever the number of units.
    pub fn one_by_one(units: &Units, key_text: &str, resamples: usize) -> Resamples {
        let key = key(key_text);
        let strata: Vec<Stratum> = units.strata.iter().map(|units| Stratum::new(units)).collect();
        let longest = units.strata.iter().map(Vec::len).max().unwrap_or(0);
        let value = |counts: &mut Vec<u32>, b: u32| fastest(&strata, key, b, counts);
        let means =
            (0..resamples.max(1) as u32).into_par_iter().map_init(|| vec![0; longest], value).collect();
        Resamples::new(means, true)
    }

    fn new(mut means: Vec<f64>, normative: bool) -> Resamples {
        let mut sum = 0.0;
        for m in &means {
            sum += m;
        }
        let mean = sum / means.len() as f64;
        means.sort_unstable_by(f64::total_cmp);
        Resamples { sorted: means, mean, normative }
    }

    /// Element ⌈p·B⌉, counted from 1, of the sorted means.
    pub fn quantile(&self, p: f64) -> f64 {
        let rank = (p * self.sorted.len() as f64).ceil().clamp(1.0, self.sorted.len() as f64);
        self.sorted[rank as usize - 1]
    }

    /// The plain percentile interval; too narrow for few units.
    pub fn percentile(&self) -> Interval {
        self.between(0.5 * (1.0 - LEVEL))
    }

    /// The expanded percentile interval for `units` resampling units.
    /// Source: Hesterberg (2015), "What teachers should know about the bootstrap".
    pub fn expanded_percentile(&self, units: usize) -> Result<Interval, Undefined> {
        Ok(self.between(expanded_tail(units)?))
    }

    fn between(&self, tail: f64) -> Interval {
        Interval { low: self.quantile(tail), high: self.quantile(1.0 - tail) }
    }
}

/// Probability in each tail of the expanded percentile interval, Φ(−√(n/(n−1)) · t(.975, n−1)),
/// for n units; undefined below two.
pub fn expanded_tail(units: usize) -> Result<f64, Undefined> {
    if units < 2 {
        return Err(Undefined::new("there is a single resampling unit"));
    }
    let n = units as f64;
    let t = t_quantile(0.5 + 0.5 * LEVEL, n - 1.0);
    Ok(normal_cdf(-(n / (n - 1.0)).sqrt() * t))
}

/// The Philox key of a key text: the first eight bytes of SHA-256 of
/// `rederive/bootstrap/v1\n` + text, as two little-endian words.
pub fn key(key_text: &str) -> [u32; 2] {
    let digest = Sha256::digest(format!("rederive/bootstrap/v1\n{key_text}").as_bytes());
    let word = |i: usize| u32::from_le_bytes([digest[i], digest[i + 1], digest[i + 2], digest[i + 3]]);
    [word(0), word(4)]
}

/// Units of a stratum, as the resampling loop wants them.
struct Stratum {
    sums: Vec<f64>,
    /// `None` where every unit is one task.
    sizes: Option<Vec<f64>>,
}

impl Stratum {
    fn new(units: &[Unit]) -> Stratum {
        let tasks = units.iter().all(|unit| unit.size == 1.0);
        Stratum {
            sums: units.iter().map(|unit| unit.sum).collect(),
            sizes: (!tasks).then(|| units.iter().map(|unit| unit.size).collect()),
        }
    }

    #[inline(always)]
    fn mean(&self, counts: &[u32]) -> f64 {
        let size = self.sizes.as_ref().map_or(counts.len() as f64, |sizes| dot(counts, sizes));
        dot(counts, &self.sums) / size
    }
}

/// Resample `b` in the widest vectors that this processor has. All ways give the same bits.
fn fastest(strata: &[Stratum], key: [u32; 2], b: u32, counts: &mut [u32]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn with_avx2(strata: &[Stratum], key: [u32; 2], b: u32, counts: &mut [u32]) -> f64 {
            resample(strata, key, b, counts)
        }
        // SAFETY: the processor has AVX2.
        return unsafe { with_avx2(strata, key, b, counts) };
    }
    resample(strata, key, b, counts)
}

/// The value of resample `b`: the mean over strata of Σ count × sum / Σ count × size. Draw `j` is word `j` of the
/// blocks (0, b, 0, 0), (1, b, 0, 0), …
#[inline(always)]
fn resample(strata: &[Stratum], key: [u32; 2], b: u32, counts: &mut [u32]) -> f64 {
    let (mut block, mut words, mut used, mut total) = (0, [0; WORDS], WORDS, 0.0);
    for stratum in strata {
        let n = stratum.sums.len();
        let counts = &mut counts[..n];
        counts.fill(0);
        let mut drawn = 0;
        while drawn < n {
            if used == WORDS {
                words = philox::words(block, b, key);
                (block, used) = (block + (WORDS / 4) as u32, 0);
            }
            let here = (WORDS - used).min(n - drawn);
            for &word in &words[used..used + here] {
                counts[index(word, n)] += 1;
            }
            (used, drawn) = (used + here, drawn + here);
        }
        total += stratum.mean(counts);
    }
    total / strata.len() as f64
}

/// High 32 bits of `word` × `n`.
#[inline(always)]
fn index(word: u32, n: usize) -> usize {
    ((u64::from(word) * n as u64) >> 32) as usize
}

/// Σ count × number, in eight sums that are added in their order.
#[inline(always)]
fn dot(counts: &[u32], numbers: &[f64]) -> f64 {
    let (counts, counts_left) = counts.as_chunks::<8>();
    let (numbers, numbers_left) = numbers.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (counts, numbers) in counts.iter().zip(numbers) {
        for i in 0..8 {
            sums[i] += f64::from(counts[i]) * numbers[i];
        }
    }
    let left = counts_left.iter().zip(numbers_left).map(|(&count, number)| f64::from(count) * number);
    sums.into_iter().chain(left).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::{csv, near, normative, numbers, observations};
    use crate::stats::{Paired, RESAMPLES, TaskValue, Weight};

    #[test]
    fn every_reference_vector_is_met() {
        let reference = normative();
        let sets = reference["datasets"].as_object().expect("data sets by name");
        assert_eq!(sets.len(), 4);
        for (name, by_key) in sets {
            let text = csv(name);
            let paired = Paired::new(&observations(&text)).unwrap();
            let units = Units::new(&paired.values(|t| t.difference()), Weight::Task).unwrap();
            for (key_text, case) in by_key.as_object().expect("cases by key text") {
                assert_eq!(Some(units.len() as u64), case["n"].as_u64());
                assert_eq!(key(key_text).map(f64::from).to_vec(), numbers(&case["key"]));
                for (b, field) in [(0, "first_indices_b0"), (9_999, "first_indices_b9999")] {
                    let words = philox::words(0, b, key(key_text));
                    for (word, expected) in words.into_iter().zip(numbers(&case[field])) {
                        assert_eq!(index(word, units.len()) as f64, expected);
                    }
                }
                near(expanded_tail(units.len()).unwrap(), case["alpha_per_tail"].as_f64().unwrap(), 1e-12);
                let drawn = Resamples::draw(&units, key_text, RESAMPLES);
                assert!(drawn.normative);
                near(drawn.mean, case["mean_of_resample_means"].as_f64().unwrap(), 1e-12);
                let expanded = drawn.expanded_percentile(units.len()).unwrap();
                for (ours, field) in [(drawn.percentile(), "percentile"), (expanded, "expanded_percentile")] {
                    near(ours.low, numbers(&case[field])[0], 1e-12);
                    near(ours.high, numbers(&case[field])[1], 1e-12);
                }
            }
        }
    }

    fn value(units: &Units, key: [u32; 2], b: u32, counts: &mut [u32]) -> f64 {
        let strata: Vec<Stratum> = units.strata.iter().map(|units| Stratum::new(units)).collect();
        let fastest = fastest(&strata, key, b, counts);
        assert_eq!(fastest.to_bits(), resample(&strata, key, b, counts).to_bits());
        fastest
    }

    fn made(n: usize, families: usize, clustered: bool) -> Vec<TaskValue<'static>> {
        let name = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let value = |i: usize| {
            let family = name(format!("f{:02}", i * families / n));
            let cluster = clustered.then_some(family);
            TaskValue {
                task: name(format!("t{i:05}")),
                family: Some(family),
                cluster,
                value: ((i * 7) % 11) as f64 / 11.0,
            }
        };
        (0..n).map(value).collect()
    }

    #[test]
    fn families_are_strata_and_the_draw_index_runs_on() {
        let units = Units::new(&made(10, 2, false), Weight::Family).unwrap();
        assert_eq!(units.strata.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5]);
        // By hand from the definition, one draw at a time.
        let by_hand = |b: u32| {
            let draw = |j: usize| philox::philox4x32([j as u32 / 4, b, 0, 0], key("k"))[j % 4];
            let family =
                |f: usize| (0..5).map(|i| units.strata[f][index(draw(5 * f + i), 5)].sum).sum::<f64>() / 5.0;
            (family(0) + family(1)) / 2.0
        };
        let mut counts = vec![0; 5];
        for b in [0, 1, 77] {
            near(value(&units, key("k"), b, &mut counts), by_hand(b), 1e-15);
        }
    }

    #[test]
    fn clusters_are_drawn_whole_and_weigh_by_their_tasks() {
        let mut values = made(10, 3, true);
        values.truncate(9);
        let units = Units::new(&values, Weight::Task).unwrap();
        let mut counts = vec![0; units.len()];
        let draw = |j: usize| units.strata[0][index(philox::philox4x32([0, 5, 0, 0], key("k"))[j], 3)];
        let (sum, size) = (0..3).map(draw).fold((0.0, 0.0), |(s, m), u| (s + u.sum, m + u.size));
        near(value(&units, key("k"), 5, &mut counts), sum / size, 1e-15);
    }

    #[test]
    fn threads_do_not_change_the_result() {
        let units = Units::new(&made(50, 5, false), Weight::Task).unwrap();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Resamples::draw(&units, "0", 500))
        };
        assert_eq!(with(1), with(3));
    }

    #[test]
    fn many_units_with_few_levels_take_the_multinomial_road() {
        let units = Units::new(&made(5_000, 5, false), Weight::Task).unwrap();
        let (fast, slow) = (Resamples::draw(&units, "0", 2_000), Resamples::one_by_one(&units, "0", 2_000));
        assert!(!fast.normative && slow.normative);
        let se = units.standard_error().unwrap();
        near(fast.mean, slow.mean, 6.0 * se / 2_000f64.sqrt());
        near(fast.percentile().low, slow.percentile().low, 0.25 * se);
        near(fast.percentile().high, slow.percentile().high, 0.25 * se);
    }
}
