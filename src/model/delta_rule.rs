//! The gated delta rule (Yang, Kautz and Hatamizadeh 2024) on plain numbers: token by token,
//! chunk by chunk, and backwards. A head's memory `S [key_dim, value_dim]` decays by `e^g`, then
//! the value stored under key `k` moves towards `v` by a share `beta`, and query `q` reads it:
//!
//! `S <- e^g S;  S <- S + k (beta (v - Sᵀk))ᵀ;  out = Sᵀq`
//!
//! Layouts: `q, k [tokens, key_heads, key_dim]`, `v, out [tokens, value_heads, value_dim]`,
//! `g, beta [tokens, value_heads]`, states `[value_heads, key_dim, value_dim]`. Neighbouring value
//! heads share a key head.

use super::ops::{exp, sum};
use rayon::prelude::*;

/// Tokens whose interaction is solved at once, and between two states kept for the backward.
const CHUNK: usize = 64;

/// Numbers of memories touched below which the work stays on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;

/// Numbers of heads and their widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys; divides `value_heads`.
    pub key_heads: usize,
    /// Heads of values, each with a memory.
    pub value_heads: usize,
    /// Width of a query and a key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
}

impl DeltaShape {
    /// Numbers in one head's memory.
    pub fn head_state(&self) -> usize {
        self.key_dim * self.value_dim
    }

    /// Numbers in all memories of a sequence.
    pub fn state(&self) -> usize {
        self.value_heads * self.head_state()
    }
}

/// What one sequence brings to the rule.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Queries, already scaled.
    pub q: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Values.
    pub v: &'a [f32],
    /// Logarithms of the decay, at most 0.
    pub g: &'a [f32],
    /// How far a stored value moves towards the new one, in [0, 1].
    pub beta: &'a [f32],
}

/// Gradients of [`Inputs`] and of the initial state, in the same layouts.
#[derive(Debug, Clone, Default)]
pub struct Gradients {
    /// Of the queries.
    pub q: Vec<f32>,
    /// Of the keys.
    pub k: Vec<f32>,
    /// Of the values.
    pub v: Vec<f32>,
    /// Of the log decays.
    pub g: Vec<f32>,
    /// Of the shares.
    pub beta: Vec<f32>,
    /// Of the initial state.
    pub state: Vec<f32>,
}

/// One value head's view of the inputs.
#[derive(Clone, Copy)]
struct Head<'a> {
    shape: DeltaShape,
    inputs: Inputs<'a>,
    index: usize,
}

impl<'a> Head<'a> {
    fn key(&self, x: &'a [f32], token: usize) -> &'a [f32] {
        let DeltaShape { key_heads, value_heads, key_dim, .. } = self.shape;
        let head = self.index / (value_heads / key_heads);
        &x[(token * key_heads + head) * key_dim..][..key_dim]
    }

    fn q(&self, token: usize) -> &'a [f32] {
        self.key(self.inputs.q, token)
    }

    fn k(&self, token: usize) -> &'a [f32] {
        self.key(self.inputs.k, token)
    }

    fn value(&self, x: &'a [f32], token: usize) -> &'a [f32] {
        let DeltaShape { value_heads, value_dim, .. } = self.shape;
        &x[(token * value_heads + self.index) * value_dim..][..value_dim]
    }

    fn v(&self, token: usize) -> &'a [f32] {
        self.value(self.inputs.v, token)
    }

    fn g(&self, token: usize) -> f32 {
        self.inputs.g[token * self.shape.value_heads + self.index]
    }

    fn beta(&self, token: usize) -> f32 {
        self.inputs.beta[token * self.shape.value_heads + self.index]
    }

    fn tokens(&self) -> usize {
        self.inputs.g.len() / self.shape.value_heads
    }

    /// Decays the memory and returns `beta (v - Sᵀk)`, the change to be stored.
    fn change(&self, token: usize, state: &mut [f32]) -> Vec<f32> {
        let decay = exp(self.g(token));
        let mut found = vec![0.0; self.shape.value_dim];
        for (row, k) in state.chunks_exact_mut(self.shape.value_dim).zip(self.k(token)) {
            for (s, found) in row.iter_mut().zip(&mut found) {
                *s *= decay;
                *found += *s * k;
            }
        }
        let beta = self.beta(token);
        for (found, v) in found.iter_mut().zip(self.v(token)) {
            *found = beta * (v - *found);
        }
        found
    }

    /// One token: the memory moves on, `out` is what the query reads.
    fn step(&self, token: usize, state: &mut [f32], out: &mut [f32]) {
        let change = self.change(token, state);
        out.fill(0.0);
        let rows = state.chunks_exact_mut(self.shape.value_dim);
        for ((row, k), q) in rows.zip(self.k(token)).zip(self.q(token)) {
            for ((s, change), out) in row.iter_mut().zip(&change).zip(out.iter_mut()) {
                *s += k * change;
                *out += *s * q;
            }
        }
    }

    /// The tokens from `first` on that make one chunk; writes `out [tokens of the chunk, value_dim]`.
    fn chunk(&self, first: usize, state: &mut [f32], out: &mut [f32]) {
        let DeltaShape { key_dim, value_dim, .. } = self.shape;
        let count = out.len() / value_dim;
        let mut decay = Vec::with_capacity(count);
        let mut total = 0.0f32;
        for i in 0..count {
            total += self.g(first + i);
            decay.push(total);
        }
        // The changes U and what they owe to the state before the chunk, W, row by row: each token
        // sees the changes of those before it.
        let (mut u, mut w) = (vec![0.0; count * value_dim], vec![0.0; count * key_dim]);
        for i in 0..count {
            let (token, beta) = (first + i, self.beta(first + i));
            let k = self.k(token);
            let (u_before, u_row) = u.split_at_mut(i * value_dim);
            let (w_before, w_row) = w.split_at_mut(i * key_dim);
            let (u_row, w_row) = (&mut u_row[..value_dim], &mut w_row[..key_dim]);
            let grown = beta * exp(decay[i]);
            for (u, v) in u_row.iter_mut().zip(self.v(token)) {
                *u = beta * v;
            }
            for (w, k) in w_row.iter_mut().zip(k) {
                *w = grown * k;
            }
            for j in 0..i {
                let other = self.k(first + j);
                let share = beta * exp(decay[i] - decay[j]) * sum(key_dim, |d| k[d] * other[d]);
                subtract(u_row, share, &u_before[j * value_dim..][..value_dim]);
                subtract(w_row, share, &w_before[j * key_dim..][..key_dim]);
            }
        }
        // What is really stored: U - W S.
        for (u_row, w_row) in u.chunks_exact_mut(value_dim).zip(w.chunks_exact(key_dim)) {
            for (w, row) in w_row.iter().zip(state.chunks_exact(value_dim)) {
                subtract(u_row, *w, row);
            }
        }
        for (i, out) in out.chunks_exact_mut(value_dim).enumerate() {
            let q = self.q(first + i);
            out.fill(0.0);
            let grown = exp(decay[i]);
            for (q, row) in q.iter().zip(state.chunks_exact(value_dim)) {
                subtract(out, -(q * grown), row);
            }
            for (j, change) in u.chunks_exact(value_dim).enumerate().take(i + 1) {
                let k = self.k(first + j);
                let share = exp(decay[i] - decay[j]) * sum(key_dim, |d| q[d] * k[d]);
                subtract(out, -share, change);
            }
        }
        let end = decay.last().copied().unwrap_or(0.0);
        let grown = exp(end);
        for (d, row) in state.chunks_exact_mut(value_dim).enumerate() {
            for s in row.iter_mut() {
                *s *= grown;
            }
            for (j, change) in u.chunks_exact(value_dim).enumerate() {
                subtract(row, -(self.k(first + j)[d] * exp(end - decay[j])), change);
            }
        }
    }

    /// Walks a chunk backwards from the state before it: `after` is the gradient of the state behind the
    /// chunk and becomes that of the state before it. Gradients go to `into`, a token after another.
    fn chunk_back(
        &self,
        first: usize,
        before: &[f32],
        d_out: &[f32],
        after: &mut [f32],
        into: &mut [TokenGradient],
    ) {
        let value_dim = self.shape.value_dim;
        // Forward once more, keeping the decayed state that each token met, and its change.
        let mut met = Vec::with_capacity(into.len());
        let mut state = before.to_vec();
        for i in 0..into.len() {
            let change = self.change(first + i, &mut state);
            met.push((state.clone(), change.clone()));
            for (row, k) in state.chunks_exact_mut(value_dim).zip(self.k(first + i)) {
                subtract(row, -k, &change);
            }
        }
        for (i, gradient) in into.iter_mut().enumerate().rev() {
            let token = first + i;
            let (decayed, change) = &met[i];
            let (q, k, v) = (self.q(token), self.k(token), self.v(token));
            let (g, beta) = (self.g(token), self.beta(token));
            let d_out = self.value(d_out, token);
            let mut d_change = vec![0.0; value_dim];
            let mut found = vec![0.0; value_dim];
            let rows = after.chunks_exact_mut(value_dim).zip(decayed.chunks_exact(value_dim));
            for (d, (after, decayed)) in rows.enumerate() {
                let stored = |j: usize| decayed[j] + k[d] * change[j];
                gradient.q[d] = sum(value_dim, |j| stored(j) * d_out[j]);
                subtract(after, -q[d], d_out);
                gradient.k[d] = sum(value_dim, |j| after[j] * change[j]);
                subtract(&mut d_change, -k[d], after);
                subtract(&mut found, -k[d], decayed);
            }
            gradient.beta = sum(value_dim, |j| d_change[j] * (v[j] - found[j]));
            let d_found: Vec<f32> = d_change.iter().map(|d| -beta * d).collect();
            for (v, d) in gradient.v.iter_mut().zip(&d_found) {
                *v = -d;
            }
            let (decay, mut along) = (exp(g), 0.0);
            let rows = after.chunks_exact_mut(value_dim).zip(decayed.chunks_exact(value_dim));
            for (d, (after, decayed)) in rows.enumerate() {
                subtract(after, -k[d], &d_found);
                gradient.k[d] += sum(value_dim, |j| decayed[j] * d_found[j]);
                along += sum(value_dim, |j| after[j] * decayed[j]);
                for a in after.iter_mut() {
                    *a *= decay;
                }
            }
            gradient.g = along;
        }
    }
}

/// `x -= share * y`.
fn subtract(x: &mut [f32], share: f32, y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x -= share * y;
    }
}

/// What one token of one value head gets back.
#[derive(Clone)]
struct TokenGradient {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: f32,
    beta: f32,
}

/// Runs `one` for every value head on its own thread; the heads' outputs are laid into `out`.
fn each_head(
    shape: DeltaShape,
    inputs: Inputs,
    state: &mut [f32],
    out: &mut [f32],
    one: impl Fn(Head, &mut [f32], &mut [f32]) + Sync,
) {
    let (heads, width) = (shape.value_heads, shape.value_dim);
    let run = |(index, state): (usize, &mut [f32])| {
        let head = Head { shape, inputs, index };
        let mut out = vec![0.0; head.tokens() * width];
        one(head, state, &mut out);
        out
    };
    let size = shape.head_state();
    let parts: Vec<Vec<f32>> = if inputs.g.len() * size < PARALLEL_FROM {
        state.chunks_exact_mut(size).enumerate().map(run).collect()
    } else {
        state.par_chunks_exact_mut(size).enumerate().map(run).collect()
    };
    for (index, part) in parts.iter().enumerate() {
        for (token, part) in part.chunks_exact(width).enumerate() {
            out[(token * heads + index) * width..][..width].copy_from_slice(part);
        }
    }
}

/// Token by token. A token's bits do not depend on how a sequence is cut into calls.
pub fn recurrent(shape: DeltaShape, inputs: Inputs, state: &mut [f32], out: &mut [f32]) {
    each_head(shape, inputs, state, out, |head, state, out| {
        for (token, out) in out.chunks_exact_mut(shape.value_dim).enumerate() {
            head.step(token, state, out);
        }
    });
}

/// The same by chunks of 64 tokens, in the form that turns most of the work into matrix products; equal up to
/// rounding. The triangular systems are solved by forward substitution, which is stable where an
/// inverse by repeated squaring is not.
pub fn chunked(shape: DeltaShape, inputs: Inputs, state: &mut [f32], out: &mut [f32]) {
    each_head(shape, inputs, state, out, |head, state, out| {
        for (index, out) in out.chunks_mut(CHUNK * shape.value_dim).enumerate() {
            head.chunk(index * CHUNK, state, out);
        }
    });
}

/// Gradients, given those of the outputs and of the final state. States are kept once a chunk and
/// computed again in between, never divided back.
pub fn backward(
    shape: DeltaShape,
    inputs: Inputs,
    state: &[f32],
    d_out: &[f32],
    d_state: &[f32],
) -> Gradients {
    let DeltaShape { key_heads, value_heads, key_dim, value_dim } = shape;
    let tokens = inputs.g.len() / value_heads;
    let blank = TokenGradient {
        q: vec![0.0; key_dim],
        k: vec![0.0; key_dim],
        v: vec![0.0; value_dim],
        g: 0.0,
        beta: 0.0,
    };
    let heads: Vec<(Vec<TokenGradient>, Vec<f32>)> = (0..value_heads)
        .into_par_iter()
        .map(|index| {
            let head = Head { shape, inputs, index };
            let mut now = state[index * shape.head_state()..][..shape.head_state()].to_vec();
            let mut kept = Vec::new();
            let mut ignored = vec![0.0; value_dim];
            for token in 0..tokens {
                if token % CHUNK == 0 {
                    kept.push(now.clone());
                }
                head.step(token, &mut now, &mut ignored);
            }
            let mut after = d_state[index * shape.head_state()..][..shape.head_state()].to_vec();
            let mut gradients = vec![blank.clone(); tokens];
            for (chunk, into) in gradients.chunks_mut(CHUNK).enumerate().rev() {
                head.chunk_back(chunk * CHUNK, &kept[chunk], d_out, &mut after, into);
            }
            (gradients, after)
        })
        .collect();
    let mut all = Gradients {
        q: vec![0.0; inputs.q.len()],
        k: vec![0.0; inputs.k.len()],
        v: vec![0.0; inputs.v.len()],
        g: vec![0.0; inputs.g.len()],
        beta: vec![0.0; inputs.beta.len()],
        state: Vec::with_capacity(state.len()),
    };
    for (index, (gradients, after)) in heads.into_iter().enumerate() {
        let key_head = index / (value_heads / key_heads);
        for (token, gradient) in gradients.into_iter().enumerate() {
            let at = (token * key_heads + key_head) * key_dim;
            subtract(&mut all.q[at..][..key_dim], -1.0, &gradient.q);
            subtract(&mut all.k[at..][..key_dim], -1.0, &gradient.k);
            let at = token * value_heads + index;
            all.v[at * value_dim..][..value_dim].copy_from_slice(&gradient.v);
            all.g[at] = gradient.g;
            all.beta[at] = gradient.beta;
        }
        all.state.extend(after);
    }
    all
}
