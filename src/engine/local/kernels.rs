//! The f32 arithmetic of generation: attention of one row over its own cache, and sums of
//! exponentials. Every order of operations is fixed by lengths alone, so a result has the
//! same bits on any thread, with any neighbours. Fused multiply-add is used where the
//! processor has it (chosen once per process, and part of the engine's identity).

use std::sync::LazyLock;

/// Parallel sums in a reduction: lane `i` takes every eighth element.
const LANES: usize = 8;

/// Keys that lie interleaved: a cache of keys is `[block][head_dim][KEY_BLOCK]`, so that a query
/// meets all keys of a block at once and no sum runs across a register.
pub const KEY_BLOCK: usize = 16;

/// One coordinate of a block of keys.
pub type KeyLine = [f32; KEY_BLOCK];

/// Positions whose values are added for all heads of a group before the next.
const VALUES: usize = 64;

static FUSED: LazyLock<bool> = LazyLock::new(|| {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        cfg!(target_arch = "aarch64")
    }
});

/// What one row of a query group attends to.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// `[blocks][head_dim]` lines; lanes of the last block beyond `positions` may hold anything.
    pub keys: &'a [KeyLine],
    /// `[positions, head_dim]`.
    pub values: &'a [f32],
    /// Number of positions, at least one.
    pub positions: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// Attention of one row for the query heads that share a key head.
///
/// `queries, out: [group, head_dim]`; `out = softmax(queries · keysᵀ · head_dim^-0.5) · values`.
/// `scores` is scratch.
pub fn attend(queries: &[f32], context: Context<'_>, scores: &mut Vec<f32>, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if *FUSED {
        // SAFETY: FUSED is true only when this processor has AVX2 and FMA.
        return unsafe { x86::attend(queries, context, scores, out) };
    }
    if *FUSED {
        attend_body::<true>(queries, context, scores, out)
    } else {
        attend_body::<false>(queries, context, scores, out)
    }
}

/// Writes `exp((x - shift) * scale)` of each element into `out` (of the same length) and
/// returns their sum. `shift` is the greatest element, so that no result exceeds 1.
pub fn exp_into(x: &[f32], shift: f32, scale: f32, out: &mut [f32]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if *FUSED {
        // SAFETY: as in `attend`.
        return unsafe { x86::exp_into(x, shift, scale, out) };
    }
    if *FUSED {
        exp_into_body::<true>(x, shift, scale, out)
    } else {
        exp_into_body::<false>(x, shift, scale, out)
    }
}

/// The greatest element; negative infinity when there is none.
pub fn maximum(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (m, x) in lanes.iter_mut().zip(chunk) {
            *m = larger(*m, *x);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |m, x| larger(m, *x))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The same bodies, compiled for AVX2 and FMA.

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn attend(
        queries: &[f32],
        context: super::Context<'_>,
        scores: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        super::attend_body::<true>(queries, context, scores, out)
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn exp_into(x: &[f32], shift: f32, scale: f32, out: &mut [f32]) -> f64 {
        super::exp_into_body::<true>(x, shift, scale, out)
    }
}

/// `a * b + c`, rounded once or twice.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn attend_body<const FUSED: bool>(
    queries: &[f32],
    context: Context<'_>,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let Context { keys, values, positions, head_dim } = context;
    let scale = 1.0 / (head_dim as f32).sqrt();
    let stride = positions.next_multiple_of(KEY_BLOCK);
    scores.clear();
    scores.resize(stride * (queries.len() / head_dim), 0.0);
    // Block by block for the whole group, so that keys and values are read from memory once.
    for (block, keys) in keys.chunks_exact(head_dim).enumerate() {
        for (query, scores) in queries.chunks_exact(head_dim).zip(scores.chunks_exact_mut(stride)) {
            let dots = block_dots::<FUSED>(query, keys);
            for (score, dot) in scores[block * KEY_BLOCK..].iter_mut().zip(dots) {
                *score = dot * scale;
            }
        }
    }
    for scores in scores.chunks_exact_mut(stride) {
        let total = exponentials::<FUSED>(&mut scores[..positions]);
        scores.iter_mut().for_each(|w| *w /= total);
    }
    out.fill(0.0);
    for (block, values) in values.chunks(VALUES * head_dim).enumerate() {
        for (weights, out) in scores.chunks_exact(stride).zip(out.chunks_exact_mut(head_dim)) {
            add_values::<FUSED>(&weights[block * VALUES..], values, head_dim, out);
        }
    }
}

/// Inner products of a query with the keys of a block: coordinates in turn to four sums, those
/// left over at the end to a fifth.
#[inline(always)]
fn block_dots<const FUSED: bool>(query: &[f32], keys: &[KeyLine]) -> KeyLine {
    let mut sums = [[0f32; KEY_BLOCK]; 4];
    let (query, query_rest) = query.as_chunks::<4>();
    let (keys, keys_rest) = keys.as_chunks::<4>();
    for (q, k) in query.iter().zip(keys) {
        for (sums, (q, k)) in sums.iter_mut().zip(q.iter().zip(k)) {
            for (sum, k) in sums.iter_mut().zip(k) {
                *sum = multiply_add::<FUSED>(*q, *k, *sum);
            }
        }
    }
    let mut last = [0f32; KEY_BLOCK];
    for (q, k) in query_rest.iter().zip(keys_rest) {
        for (sum, k) in last.iter_mut().zip(k) {
            *sum = multiply_add::<FUSED>(*q, *k, *sum);
        }
    }
    std::array::from_fn(|i| ((sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i])) + last[i])
}

/// Replaces scores by `exp(score - greatest)`; returns their sum.
#[inline(always)]
fn exponentials<const FUSED: bool>(scores: &mut [f32]) -> f32 {
    let shift = maximum(scores);
    let mut sums = [0f32; LANES];
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *x = exp::<FUSED>(*x - shift);
            *sum += *x;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *x = exp::<FUSED>(*x - shift);
        *sum += *x;
    }
    fold(sums)
}

/// Adds `weight * value` to `out: [head_dim]`, position after position. Columns are taken in
/// blocks that fit the registers; an element's bits do not depend on the block.
#[inline(always)]
fn add_values<const FUSED: bool>(weights: &[f32], values: &[f32], head_dim: usize, out: &mut [f32]) {
    let mut start = 0;
    while start < head_dim {
        start += match head_dim - start {
            64.. => add_columns::<64, FUSED>(weights, values, head_dim, start, out),
            32.. => add_columns::<32, FUSED>(weights, values, head_dim, start, out),
            8.. => add_columns::<8, FUSED>(weights, values, head_dim, start, out),
            _ => add_columns::<1, FUSED>(weights, values, head_dim, start, out),
        };
    }
}

/// Columns `start..start + WIDTH`; returns `WIDTH`.
#[inline(always)]
fn add_columns<const WIDTH: usize, const FUSED: bool>(
    weights: &[f32],
    values: &[f32],
    head_dim: usize,
    start: usize,
    out: &mut [f32],
) -> usize {
    let Some(out) = out[start..].first_chunk_mut::<WIDTH>() else { return WIDTH };
    let mut sums = *out;
    for (weight, value) in weights.iter().zip(values.chunks_exact(head_dim)) {
        let Some(value) = value[start..].first_chunk::<WIDTH>() else { break };
        for (sum, x) in sums.iter_mut().zip(value) {
            *sum = multiply_add::<FUSED>(*weight, *x, *sum);
        }
    }
    *out = sums;
    WIDTH
}

#[inline(always)]
fn fold(x: [f32; LANES]) -> f32 {
    let half = [x[0] + x[4], x[1] + x[5], x[2] + x[6], x[3] + x[7]];
    (half[0] + half[2]) + (half[1] + half[3])
}

/// `exp(x)` for `x <= 0`, within two units in the last place; 0 below -87. An own polynomial,
/// because a libm's may differ between machines: `x = n ln 2 + r`, Taylor's series to the
/// seventh power in `|r| <= ln 2 / 2`, and `n` added to the exponent.
#[inline(always)]
fn exp<const FUSED: bool>(x: f32) -> f32 {
    // Adding 1.5 · 2^23 rounds to an integer, which is then read from the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first short enough that n times it is exact.
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = multiply_add::<FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = multiply_add::<FUSED>(n, -LN2_HIGH, x);
    let r = multiply_add::<FUSED>(n, -LN2_LOW, r);
    let mut series = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = multiply_add::<FUSED>(series, r, coefficient);
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_shl(23);
    let result = f32::from_bits(series.to_bits().wrapping_add(exponent));
    // Written so that NaN stays NaN.
    if x < -87.0 { 0.0 } else { result }
}

#[inline(always)]
fn exp_into_body<const FUSED: bool>(x: &[f32], shift: f32, scale: f32, out: &mut [f32]) -> f64 {
    let mut sums = [0f64; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (out_chunks, out_rest) = out.as_chunks_mut::<LANES>();
    for (x, out) in chunks.iter().zip(out_chunks) {
        for (sum, (x, out)) in sums.iter_mut().zip(x.iter().zip(out)) {
            *out = exp::<FUSED>((*x - shift) * scale);
            *sum += f64::from(*out);
        }
    }
    for (sum, (x, out)) in sums.iter_mut().zip(rest.iter().zip(out_rest)) {
        *out = exp::<FUSED>((*x - shift) * scale);
        *sum += f64::from(*out);
    }
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::Philox;

    fn noise(name: &str, n: usize, spread: f32) -> Vec<f32> {
        let mut p = Philox::named(name);
        (0..n).map(|_| (p.unit() as f32 - 0.5) * spread).collect()
    }

    /// Softmax attention in f64, straight from its definition.
    fn reference(queries: &[f32], keys: &[f32], values: &[f32], head_dim: usize) -> Vec<f64> {
        let mut out = Vec::new();
        for q in queries.chunks(head_dim) {
            let scores: Vec<f64> = keys
                .chunks(head_dim)
                .map(|k| q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>())
                .map(|s| s / (head_dim as f64).sqrt())
                .collect();
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let total: f64 = weights.iter().sum();
            for d in 0..head_dim {
                out.push(
                    weights
                        .iter()
                        .zip(values.chunks(head_dim))
                        .map(|(w, v)| w * f64::from(v[d]))
                        .sum::<f64>()
                        / total,
                );
            }
        }
        out
    }

    /// Keys `[positions, head_dim]` as a cache holds them; lanes beyond hold garbage.
    fn interleaved(keys: &[f32], head_dim: usize) -> Vec<KeyLine> {
        let blocks = (keys.len() / head_dim).div_ceil(KEY_BLOCK);
        let mut lines = vec![[f32::NAN; KEY_BLOCK]; blocks * head_dim];
        for (i, key) in keys.chunks(head_dim).enumerate() {
            for (d, x) in key.iter().enumerate() {
                lines[i / KEY_BLOCK * head_dim + d][i % KEY_BLOCK] = *x;
            }
        }
        lines
    }

    #[test]
    fn attention_is_the_definition_for_all_head_sizes_and_both_roundings() {
        for head_dim in [2, 6, 7, 8, 24, 36, 64, 72, 128, 250] {
            for positions in [1, 2, 7, 8, 9, 65, 200] {
                let q = noise("q", 3 * head_dim, 4.0);
                let k = noise("k", positions * head_dim, 4.0);
                let v = noise("v", positions * head_dim, 4.0);
                let want = reference(&q, &k, &v, head_dim);
                let keys = &interleaved(&k, head_dim);
                let context = Context { keys, values: &v, positions, head_dim };
                let mut got = vec![0.0; 3 * head_dim];
                let mut plain = got.clone();
                let mut scores = Vec::new();
                attend(&q, context, &mut scores, &mut got);
                attend_body::<false>(&q, context, &mut scores, &mut plain);
                for ((g, p), w) in got.iter().zip(&plain).zip(&want) {
                    assert!((f64::from(*g) - w).abs() < 3e-6, "{head_dim} {positions}: {g} {w}");
                    assert!((f64::from(*p) - w).abs() < 3e-6, "{head_dim} {positions}: {p} {w}");
                }
            }
        }
    }

    #[test]
    fn vector_code_and_plain_code_with_fused_sums_give_the_same_bits() {
        if !*FUSED {
            eprintln!("skipped: this processor has no fused multiply-add");
            return;
        }
        for (head_dim, positions) in [(2, 1), (7, 9), (36, 17), (64, 65)] {
            let (q, k) = (noise("q", 3 * head_dim, 4.0), noise("k", positions * head_dim, 4.0));
            let v = noise("v", positions * head_dim, 4.0);
            let keys = &interleaved(&k, head_dim);
            let context = Context { keys, values: &v, positions, head_dim };
            let (mut vector, mut plain) = (vec![0.0; q.len()], vec![0.0; q.len()]);
            attend(&q, context, &mut Vec::new(), &mut vector);
            attend_body::<true>(&q, context, &mut Vec::new(), &mut plain);
            assert!(vector == plain, "attention, {head_dim} x {positions}");
            let sum = exp_into(&k, 2.0, 0.7, &mut vec![0.0; k.len()]);
            assert!(
                sum == exp_into_body::<true>(&k, 2.0, 0.7, &mut vec![0.0; k.len()]),
                "sum of {}",
                k.len()
            );
        }
    }

    #[test]
    fn a_head_has_the_same_bits_alone_and_in_its_group() {
        let (d, n) = (64, 77);
        let (q, k, v) = (noise("q", 3 * d, 4.0), noise("k", n * d, 4.0), noise("v", n * d, 4.0));
        let context = Context { keys: &interleaved(&k, d), values: &v, positions: n, head_dim: d };
        let mut all = vec![0.0; 3 * d];
        attend(&q, context, &mut Vec::new(), &mut all);
        for h in 0..3 {
            let mut one = vec![0.0; d];
            attend(&q[h * d..][..d], context, &mut vec![9.0; 500], &mut one);
            assert_eq!(one, all[h * d..][..d]);
        }
    }

    #[test]
    fn exp_is_accurate_and_keeps_special_values() {
        let mut worst = 0f64;
        for i in 0..870_000 {
            let x = -(i as f32) * 1e-4;
            for got in [exp::<true>(x), exp::<false>(x)] {
                let want = f64::from(x).exp();
                worst = worst.max((f64::from(got) - want).abs() / want);
            }
        }
        assert!(worst < 2.4e-7, "{worst}");
        assert_eq!(exp::<true>(0.0), 1.0);
        assert_eq!(exp::<true>(-87.5), 0.0);
        assert_eq!(exp::<true>(f32::NEG_INFINITY), 0.0);
        assert!(exp::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn exp_into_sums_what_it_writes() {
        for n in [1, 7, 8, 9, 1000] {
            let x = noise("x", n, 30.0);
            let top = maximum(&x);
            assert_eq!(top, x.iter().copied().fold(f32::MIN, f32::max));
            let mut out = vec![0.0; n];
            let sum = exp_into(&x, top, 0.5, &mut out);
            let want: f64 = x.iter().map(|x| (f64::from(x - top) * 0.5).exp()).sum();
            assert!((sum - want).abs() < 1e-5 * want);
            assert!((out.iter().map(|x| f64::from(*x)).sum::<f64>() - sum).abs() < 1e-9);
        }
        assert_eq!(maximum(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn the_instruction_set_starts_with_the_architecture() {
        assert!(crate::model::kernel::instruction_set().starts_with(std::env::consts::ARCH));
    }
}
