//! Drawing a token from logits: greedy, or temperature, then top-k, then top-p, then min-p.
//! The only randomness is one uniform number per token, a function of the request's stream
//! and the token's index: neither neighbours nor earlier draws can change it.

use super::kernels;
use super::runner::not_finite;
use crate::engine::{Likeliest, Sampling, Stream};
use crate::error::{Error, Result};
use crate::philox::philox4x32;
use sha2::{Digest, Sha256};
use std::cell::RefCell;

/// Key and lane of a stream's Philox counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamKey {
    key: [u32; 2],
    lane: [u32; 2],
}

impl StreamKey {
    /// Key and lane are the first 16 bytes of the SHA-256 of
    /// `sample seed=<seed> rollout=<rollout> turn=<turn> task=<task_id>`.
    pub fn new(stream: &Stream) -> Self {
        let Stream { seed, task_id, rollout, turn } = stream;
        let digest =
            Sha256::digest(format!("sample seed={seed} rollout={rollout} turn={turn} task={task_id}"));
        let word = |i: usize| u32::from_le_bytes([digest[i], digest[i + 1], digest[i + 2], digest[i + 3]]);
        StreamKey { key: [word(0), word(4)], lane: [word(8), word(12)] }
    }

    /// A uniform number in `[0, 1)` with 53 random bits, for the token of that index.
    pub fn unit(&self, index: u64) -> f64 {
        let [a, b, ..] =
            philox4x32([index as u32, (index >> 32) as u32, self.lane[0], self.lane[1]], self.key);
        ((u64::from(a >> 5) << 26) | u64::from(b >> 6)) as f64 / (1u64 << 53) as f64
    }
}

/// A drawn token.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// Its id.
    pub token: u32,
    /// Its log-probability at temperature 1 over the whole row, when asked for.
    pub logprob: Option<f32>,
    /// The most likely ids in its place, as many as asked for.
    pub top: Likeliest,
}

/// Refuses settings that mean nothing.
pub fn validate(s: &Sampling) -> Result<()> {
    let divisor = s.temperature == 0.0 || (1.0 / s.temperature).is_finite();
    let problem = if !(s.temperature >= 0.0 && s.temperature.is_finite() && divisor) {
        format!("temperature {} is neither 0 nor a number that logits can be divided by", s.temperature)
    } else if !(s.top_p > 0.0 && s.top_p <= 1.0) {
        format!("top_p {} is not in (0, 1]", s.top_p)
    } else if !(0.0..=1.0).contains(&s.min_p) {
        format!("min_p {} is not in [0, 1]", s.min_p)
    } else if s.max_tokens == 0 {
        "max_tokens is 0: nothing would be sampled".to_string()
    } else if s.top_logprobs > 0 && !s.logprobs {
        "top_logprobs needs logprobs".to_string()
    } else if s.stop.iter().any(String::is_empty) {
        "a stop string is empty".to_string()
    } else {
        return Ok(());
    };
    Err(Error::invalid(problem))
}

/// Draws token number `index` of a completion from one row of logits. Ids from `vocabulary` on
/// are padding of the embedding and never drawn (a log-probability counts them, as the model does).
///
/// With `temperature > 0`: logits are divided by it; the `top_k` greatest are kept (ties: lower
/// id); of those, by falling probability, the fewest whose share reaches `top_p`; of those,
/// the ones at least `min_p` times as likely as the first. One uniform number picks among them.
pub fn draw(
    logits: &[f32],
    vocabulary: usize,
    sampling: &Sampling,
    key: &StreamKey,
    index: u64,
) -> Result<Drawn> {
    let allowed = &logits[..vocabulary.min(logits.len())];
    let top = kernels::maximum(allowed);
    if !top.is_finite() || logits.iter().any(|x| x.is_nan()) {
        return Err(not_finite());
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let token = if sampling.temperature == 0.0 {
            allowed.iter().position(|x| *x == top).unwrap_or(0) as u32
        } else {
            pick(allowed, top, sampling, key.unit(index), scratch)
        };
        let mut top_ids = Vec::new();
        let logprob = sampling.logprobs.then(|| {
            let shift = kernels::maximum(logits);
            scratch.weights.resize(logits.len(), 0.0);
            let sum = kernels::exp_into(logits, shift, 1.0, &mut scratch.weights);
            let of = |logit: f32| (f64::from(logit) - f64::from(shift) - sum.ln()) as f32;
            let drawn = of(logits[token as usize]);
            top_ids = likeliest(allowed, sampling.top_logprobs, logits[token as usize], drawn);
            drawn
        });
        Ok(Drawn { token, logprob, top: top_ids })
    })
}

/// The `count` likeliest ids with their log-probabilities, given the logit and the log-probability of any id.
pub fn likeliest(allowed: &[f32], count: usize, logit: f32, logprob: f32) -> Likeliest {
    let mut ids = greatest(allowed, count);
    ids.iter_mut().for_each(|(_, x)| *x = (f64::from(*x) - f64::from(logit) + f64::from(logprob)) as f32);
    ids
}

/// The `count` greatest numbers with their places, greatest first (ties: lower place).
fn greatest(numbers: &[f32], count: usize) -> Likeliest {
    let mut kept: Likeliest = Vec::with_capacity(count.min(numbers.len()) + 1);
    for (id, x) in (0..).zip(numbers) {
        if kept.len() == count && kept.last().is_none_or(|(_, least)| x <= least) {
            continue;
        }
        let at = kept.partition_point(|(_, other)| other >= x);
        kept.insert(at, (id, *x));
        kept.truncate(count);
    }
    kept
}

/// Buffers that each thread keeps between draws.
#[derive(Default)]
struct Scratch {
    weights: Vec<f32>,
    candidates: Vec<(f32, u32)>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fn pick(logits: &[f32], top: f32, sampling: &Sampling, unit: f64, scratch: &mut Scratch) -> u32 {
    let Scratch { weights, candidates } = scratch;
    weights.resize(logits.len(), 0.0);
    let total = kernels::exp_into(logits, top, 1.0 / sampling.temperature, weights);
    let filtered = sampling.top_k > 0 || sampling.top_p < 1.0 || sampling.min_p > 0.0;
    if !filtered {
        return choose(weights.iter().copied().zip(0..), total * unit);
    }
    // What no filter can keep is left out before sorting. The greatest weight is 1. Ids below
    // an even share of what top-p drops weigh less than that together, so top-p never reaches them.
    let mut floor = sampling.min_p;
    if sampling.top_k == 0 && sampling.top_p < 1.0 {
        floor = floor.max(((1.0 - f64::from(sampling.top_p)) * total / logits.len() as f64 * 0.999) as f32);
    }
    candidates.clear();
    if sampling.top_k > 0 {
        candidates.extend(weights.iter().copied().zip(0..));
    } else {
        candidates.extend(weights.iter().copied().zip(0..).filter(|(w, _)| *w >= floor));
    }
    let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    let mut mass = total;
    if sampling.top_k > 0 && sampling.top_k < candidates.len() {
        candidates.select_nth_unstable_by(sampling.top_k - 1, order);
        candidates.truncate(sampling.top_k);
    }
    candidates.sort_unstable_by(order);
    if sampling.top_k > 0 {
        mass = candidates.iter().map(|(w, _)| f64::from(*w)).sum();
    }
    if sampling.top_p < 1.0 {
        let enough = mass * f64::from(sampling.top_p);
        let mut reached = 0.0;
        let keep = candidates.iter().position(|(w, _)| {
            reached += f64::from(*w);
            reached >= enough
        });
        candidates.truncate(keep.map_or(candidates.len(), |k| k + 1));
    }
    candidates.retain(|(w, _)| *w >= sampling.min_p && *w > 0.0);
    let kept: f64 = candidates.iter().map(|(w, _)| f64::from(*w)).sum();
    choose(candidates.iter().copied(), kept * unit)
}

/// The first id at which the running sum of weights exceeds `target`; the last with a
/// weight when rounding keeps the sum below it.
fn choose(weighted: impl Iterator<Item = (f32, u32)>, target: f64) -> u32 {
    let mut sum = 0.0;
    let mut last = 0;
    for (weight, id) in weighted {
        if weight > 0.0 {
            sum += f64::from(weight);
            last = id;
            if sum > target {
                break;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sampling(temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> Sampling {
        Sampling { temperature, top_k, top_p, min_p, ..Sampling::greedy(1) }
    }

    fn key(task: &str) -> StreamKey {
        StreamKey::new(&Stream { seed: 1, task_id: task.into(), rollout: 0, turn: 0 })
    }

    /// Shares of ids over many draws.
    fn shares(logits: &[f32], s: &Sampling) -> Vec<f64> {
        let key = key("shares");
        let n = 20_000;
        let mut counts = vec![0.0; logits.len()];
        for i in 0..n {
            counts[draw(logits, logits.len(), s, &key, i).unwrap().token as usize] += 1.0 / n as f64;
        }
        counts
    }

    #[test]
    fn the_likeliest_are_listed_with_their_log_probabilities() {
        assert_eq!(greatest(&[1.0, 3.0, 2.0, 3.0], 3), [(1, 3.0), (3, 3.0), (2, 2.0)]);
        assert_eq!((greatest(&[1.0], 0), greatest(&[1.0], 5)), (vec![], vec![(0, 1.0)]));
        let s = Sampling { logprobs: true, top_logprobs: 2, ..sampling(2.0, 0, 1.0, 0.0) };
        let logits = [0.1, 2.0, -1.0, 1.5];
        let drawn = draw(&logits, 3, &s, &key("top"), 0).unwrap();
        let sum: f32 = logits.iter().map(|x| x.exp()).sum();
        assert_eq!(drawn.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 0], "3 is padding");
        for (id, logprob) in drawn.top.iter().copied().chain([(drawn.token, drawn.logprob.unwrap())]) {
            assert!((logprob - (logits[id as usize] - sum.ln())).abs() < 1e-6);
        }
    }

    fn close(got: &[f64], want: &[f64]) {
        for (g, w) in got.iter().zip(want) {
            assert!((g - w).abs() < 0.015 && (*w > 0.0 || *g == 0.0), "{got:?} {want:?}");
        }
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_never_padding() {
        let logits = [1.0, 3.0, 3.0, 2.0, 9.0];
        assert_eq!(draw(&logits, 4, &sampling(0.0, 0, 1.0, 0.0), &key("a"), 0).unwrap().token, 1);
        assert_eq!(draw(&logits, 9, &sampling(0.0, 0, 1.0, 0.0), &key("a"), 0).unwrap().token, 4);
    }

    #[test]
    fn shares_follow_each_filter() {
        let p = [0.4f64, 0.3, 0.2, 0.1];
        let logits: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
        close(&shares(&logits, &sampling(1.0, 0, 1.0, 0.0)), &p);
        close(&shares(&logits, &sampling(1.0, 2, 1.0, 0.0)), &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0]);
        close(&shares(&logits, &sampling(1.0, 0, 0.65, 0.0)), &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0]);
        close(&shares(&logits, &sampling(1.0, 0, 0.75, 0.0)), &[4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0]);
        close(&shares(&logits, &sampling(1.0, 0, 1.0, 0.4)), &[4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0]);
        // top-p counts shares of what top-k left: 4/7 reaches 0.55, so one remains.
        close(&shares(&logits, &sampling(1.0, 2, 0.55, 0.0)), &[1.0, 0.0, 0.0, 0.0]);
        let squared = p.map(|x| x * x / 0.3);
        close(&shares(&logits, &sampling(0.5, 0, 1.0, 0.0)), &squared);
        close(&shares(&logits, &sampling(1.0, 0, 1e-6, 0.0)), &[1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_draw_depends_on_stream_and_index_alone() {
        let logits: Vec<f32> = (0..100).map(|i| (i % 7) as f32 * 0.1).collect();
        let s = sampling(1.0, 0, 1.0, 0.0);
        let run = |task: &str| {
            (0..50).map(|i| draw(&logits, 100, &s, &key(task), i).unwrap().token).collect::<Vec<_>>()
        };
        assert_eq!(run("a"), run("a"));
        assert_ne!(run("a"), run("b"));
        let base = Stream { seed: 1, task_id: "t".into(), rollout: 2, turn: 3 };
        let variants = [
            base.clone(),
            Stream { seed: 2, ..base.clone() },
            Stream { rollout: 3, ..base.clone() },
            Stream { turn: 2, ..base.clone() },
            Stream { task_id: "u".into(), ..base },
        ];
        for (i, a) in variants.iter().enumerate() {
            for b in &variants[i + 1..] {
                assert_ne!(StreamKey::new(a), StreamKey::new(b));
            }
        }
    }

    #[test]
    fn log_probabilities_are_of_the_whole_row_at_temperature_one() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 * 0.1).collect();
        let lse = logits.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
        let s = Sampling { logprobs: true, ..sampling(0.3, 5, 0.5, 0.1) };
        let drawn = draw(&logits, 900, &s, &key("a"), 4).unwrap();
        let want = f64::from(logits[drawn.token as usize]) - lse;
        assert!((f64::from(drawn.logprob.unwrap()) - want).abs() < 1e-5);
        assert_eq!(draw(&logits, 900, &sampling(0.3, 5, 0.5, 0.1), &key("a"), 4).unwrap().logprob, None);
    }

    #[test]
    fn numbers_that_are_not_finite_are_errors() {
        let s = sampling(1.0, 0, 1.0, 0.0);
        assert!(draw(&[0.0, f32::NAN], 2, &s, &key("a"), 0).is_err());
        assert!(draw(&[0.0, f32::INFINITY], 2, &s, &key("a"), 0).is_err());
        assert!(draw(&[f32::NEG_INFINITY; 2], 2, &s, &key("a"), 0).is_err());
        assert!(draw(&[], 0, &s, &key("a"), 0).is_err());
        assert_eq!(draw(&[f32::NEG_INFINITY, 0.0], 2, &s, &key("a"), 0).unwrap().token, 1);
    }

    #[test]
    fn settings_without_meaning_are_refused() {
        assert!(validate(&Sampling::greedy(1)).is_ok());
        for bad in [
            sampling(-1.0, 0, 1.0, 0.0),
            sampling(f32::NAN, 0, 1.0, 0.0),
            sampling(1e-39, 0, 1.0, 0.0),
            sampling(1.0, 0, 0.0, 0.0),
            sampling(1.0, 0, 1.1, 0.0),
            sampling(1.0, 0, 1.0, -0.1),
            Sampling::greedy(0),
            Sampling { stop: vec![String::new()], ..Sampling::greedy(1) },
        ] {
            assert!(validate(&bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn filters_keep_what_their_definition_keeps(
            logits in prop::collection::vec(-8f32..8.0, 1..80),
            top_k in 0usize..20, top_p in 0.05f32..1.0, min_p in 0f32..0.5, temperature in 0.2f32..2.0, index in 0u64..99,
        ) {
            let s = sampling(temperature, top_k, top_p, min_p);
            let token = draw(&logits, logits.len(), &s, &key("p"), index).unwrap().token as usize;
            // How much of the (top-k) mass is strictly likelier than the drawn token?
            let weight = |i: usize| f64::from(logits[i] / temperature).exp();
            let mut ids: Vec<usize> = (0..logits.len()).collect();
            ids.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
            let limit = if top_k == 0 { ids.len() } else { top_k.min(ids.len()) };
            let rank = ids.iter().position(|i| *i == token).unwrap();
            prop_assert!(rank < limit);
            let mass: f64 = ids[..limit].iter().map(|i| weight(*i)).sum();
            let before: f64 = ids[..rank].iter().map(|i| weight(*i)).sum();
            prop_assert!(before < f64::from(top_p) * mass * 1.0001);
            prop_assert!(weight(token) >= f64::from(min_p) * weight(ids[0]) * 0.9999);
        }
    }
}
