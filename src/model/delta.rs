//! The linear-attention part of a Qwen3.5 layer, between its input and output projections: a short causal
//! convolution over each channel, normalised queries and keys, decays and shares from two small
//! projections, and the gated delta rule. Works on whole sequences with a backward, and on
//! pieces of a sequence with the memory carried along.

use super::delta_rule::{self, DeltaShape, Inputs, backward};
use super::ops::{exp, slice, sum};
use candle_core::{CpuStorage, CustomOp2, Device, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// Added to the square of a query's or key's length.
const LENGTH_EPS: f32 = 1e-6;

/// Constants of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// Heads.
    pub shape: DeltaShape,
    /// Taps of the convolution.
    pub taps: usize,
    /// Its weights, `[taps, channels]`, the oldest tap first.
    pub convolution: Vec<f32>,
    /// `-exp(A_log)` of each value head.
    pub decay: Vec<f32>,
    /// Added to a head's time step.
    pub step_bias: Vec<f32>,
}

/// What a sequence carries from one piece to the next.
#[derive(Debug)]
pub struct Memory<'a> {
    /// The last `taps - 1` inputs of the convolution, `[taps - 1, channels]`, the oldest first.
    pub tail: &'a mut [f32],
    /// The heads' states.
    pub state: &'a mut [f32],
}

/// A piece of a sequence, ready for the rule.
struct Prepared {
    /// Output of the convolution, `[tokens, channels]`.
    convolved: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
}

impl Prepared {
    fn inputs(&self) -> Inputs<'_> {
        Inputs { q: &self.q, k: &self.k, v: &self.v, g: &self.g, beta: &self.beta }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// ln(1 + eˣ), without overflow.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { exp(x).ln_1p() }
}

/// One over the length of a vector.
fn inverse_length(x: &[f32]) -> f32 {
    1.0 / (sum(x.len(), |i| x[i] * x[i]) + LENGTH_EPS).sqrt()
}

impl Delta {
    /// Width of the convolution's input: queries, keys, values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Numbers of [`Memory::tail`].
    pub fn tail(&self) -> usize {
        (self.taps - 1) * self.channels()
    }

    fn keys(&self) -> usize {
        self.shape.key_heads * self.shape.key_dim
    }

    fn values(&self) -> usize {
        self.shape.value_heads * self.shape.value_dim
    }

    fn query_scale(&self) -> f32 {
        1.0 / (self.shape.key_dim as f32).sqrt()
    }

    /// `x: [tokens, channels]` and `steps: [tokens, 2 * value_heads]` (shares before time steps) to
    /// `[tokens, value_heads * value_dim]`. A token's bits do not depend on how the sequence is cut.
    pub fn advance(&self, x: &[f32], steps: &[f32], memory: Memory) -> Vec<f32> {
        let prepared = self.prepare(x, steps, memory.tail);
        let mut out = vec![0.0; prepared.v.len()];
        delta_rule::recurrent(self.shape, prepared.inputs(), memory.state, &mut out);
        let kept: Vec<f32> = memory.tail.iter().chain(x).copied().collect();
        let length = memory.tail.len();
        memory.tail.copy_from_slice(&kept[kept.len() - length..]);
        out
    }

    /// A whole sequence, from an empty memory, by chunks.
    fn whole(&self, x: &[f32], steps: &[f32]) -> Vec<f32> {
        let prepared = self.prepare(x, steps, &vec![0.0; self.tail()]);
        let mut out = vec![0.0; prepared.v.len()];
        delta_rule::chunked(self.shape, prepared.inputs(), &mut vec![0.0; self.shape.state()], &mut out);
        out
    }

    fn prepare(&self, x: &[f32], steps: &[f32], tail: &[f32]) -> Prepared {
        let (channels, heads, width) = (self.channels(), self.shape.value_heads, self.shape.key_dim);
        let before = self.taps - 1;
        let row = |t: usize| match t.checked_sub(before) {
            Some(t) => &x[t * channels..][..channels],
            None => &tail[t * channels..][..channels],
        };
        let mut convolved = vec![0.0; x.len()];
        for (t, out) in convolved.chunks_exact_mut(channels).enumerate() {
            for (tap, weights) in self.convolution.chunks_exact(channels).enumerate() {
                for ((out, x), w) in out.iter_mut().zip(row(t + tap)).zip(weights) {
                    *out += x * w;
                }
            }
        }
        let tokens = x.len() / channels;
        let (mut q, mut k) = (Vec::with_capacity(tokens * self.keys()), Vec::new());
        let mut v = Vec::with_capacity(tokens * self.values());
        for row in convolved.chunks_exact(channels) {
            let active: Vec<f32> = row.iter().map(|x| silu(*x)).collect();
            let (keys, values) = active.split_at(2 * self.keys());
            for (into, from, scale) in
                [(&mut q, &keys[..self.keys()], self.query_scale()), (&mut k, &keys[self.keys()..], 1.0)]
            {
                for head in from.chunks_exact(width) {
                    let inverse = inverse_length(head);
                    into.extend(head.iter().map(|x| x * inverse * scale));
                }
            }
            v.extend_from_slice(values);
        }
        let (mut g, mut beta) = (Vec::with_capacity(tokens * heads), Vec::with_capacity(tokens * heads));
        for row in steps.chunks_exact(2 * heads) {
            let (shares, times) = row.split_at(heads);
            beta.extend(shares.iter().map(|b| sigmoid(*b)));
            let decays = self.decay.iter().zip(&self.step_bias).zip(times);
            g.extend(decays.map(|((decay, bias), a)| decay * softplus(a + bias)));
        }
        Prepared { convolved, q, k, v, g, beta }
    }

    /// Gradients of a whole sequence's `x` and `steps`.
    fn whole_backward(&self, x: &[f32], steps: &[f32], d_out: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (channels, heads, width) = (self.channels(), self.shape.value_heads, self.shape.key_dim);
        let prepared = self.prepare(x, steps, &vec![0.0; self.tail()]);
        let nothing = vec![0.0; self.shape.state()];
        let gradients = backward(self.shape, prepared.inputs(), &nothing, d_out, &nothing);

        let mut d_x = vec![0.0; x.len()];
        let mut d_convolved = vec![0.0; channels];
        for (t, row) in prepared.convolved.chunks_exact(channels).enumerate() {
            let (keys, values) = d_convolved.split_at_mut(2 * self.keys());
            values.copy_from_slice(&gradients.v[t * self.values()..][..self.values()]);
            for (part, (d, scale)) in
                [(&gradients.q, self.query_scale()), (&gradients.k, 1.0)].into_iter().enumerate()
            {
                let d = &d[t * self.keys()..][..self.keys()];
                let from = part * self.keys();
                for (head, d) in d.chunks_exact(width).enumerate() {
                    let first = from + head * width;
                    let active: Vec<f32> = row[first..first + width].iter().map(|x| silu(*x)).collect();
                    let inverse = inverse_length(&active);
                    let along = sum(width, |i| active[i] * d[i]) * inverse * inverse;
                    for ((out, d), active) in keys[first..first + width].iter_mut().zip(d).zip(&active) {
                        *out = scale * inverse * (d - active * along);
                    }
                }
            }
            for (d, x) in d_convolved.iter_mut().zip(row) {
                let s = sigmoid(*x);
                *d *= s * (1.0 + x * (1.0 - s));
            }
            for (tap, weights) in self.convolution.chunks_exact(channels).enumerate() {
                let Some(source) = (t + tap).checked_sub(self.taps - 1) else { continue };
                let into = d_x[source * channels..][..channels].iter_mut();
                for ((out, d), w) in into.zip(&d_convolved).zip(weights) {
                    *out += d * w;
                }
            }
        }
        let mut d_steps = vec![0.0; steps.len()];
        for (t, (out, row)) in
            d_steps.chunks_exact_mut(2 * heads).zip(steps.chunks_exact(2 * heads)).enumerate()
        {
            for head in 0..heads {
                let (at, beta) = (t * heads + head, prepared.beta[t * heads + head]);
                out[head] = gradients.beta[at] * beta * (1.0 - beta);
                let through = sigmoid(row[heads + head] + self.step_bias[head]);
                out[heads + head] = gradients.g[at] * self.decay[head] * through;
            }
        }
        (d_x, d_steps)
    }
}

/// Whole sequences laid end to end: first row and number of rows of each.
struct Op {
    delta: Arc<Delta>,
    sequences: Arc<[(usize, usize)]>,
}

/// The layer on whole sequences laid end to end in rows; differentiable in `x: [rows, channels]` and
/// `steps: [rows, 2 * value_heads]`. Returns `[rows, value_heads * value_dim]`.
pub fn sequences(
    delta: &Arc<Delta>,
    sequences: &Arc<[(usize, usize)]>,
    x: &Tensor,
    steps: &Tensor,
) -> Result<Tensor> {
    let op = Op { delta: delta.clone(), sequences: sequences.clone() };
    x.contiguous()?.apply_op2(&steps.contiguous()?, op)
}

impl Op {
    fn check(&self, x: &Layout, steps: &Layout) -> Result<()> {
        let rows: usize = self.sequences.iter().map(|(_, length)| length).sum();
        let (channels, heads) = (self.delta.channels(), self.delta.shape.value_heads);
        if x.shape().dims2()? != (rows, channels) || steps.shape().dims2()? != (rows, 2 * heads) {
            candle_core::bail!(
                "{rows} rows of {channels} channels and {heads} heads do not fit {:?} and {:?}",
                x.shape(),
                steps.shape()
            );
        }
        Ok(())
    }

    /// The rows of one sequence out of `all`, `width` numbers each.
    fn part<'a>(&self, all: &'a [f32], width: usize, (first, length): (usize, usize)) -> &'a [f32] {
        &all[first * width..][..length * width]
    }
}

impl CustomOp2 for Op {
    fn name(&self) -> &'static str {
        "gated-delta"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        s: &CpuStorage,
        ls: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.check(lx, ls)?;
        let (x, steps, delta) = (slice(x, lx)?, slice(s, ls)?, &self.delta);
        let (channels, heads) = (delta.channels(), delta.shape.value_heads);
        let one =
            |at: &(usize, usize)| delta.whole(self.part(x, channels, *at), self.part(steps, 2 * heads, *at));
        let out: Vec<Vec<f32>> = self.sequences.par_iter().map(one).collect();
        Ok((CpuStorage::F32(out.concat()), (lx.shape().dims2()?.0, delta.values()).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        steps: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let numbers = |t: &Tensor| -> Result<Vec<f32>> { t.flatten_all()?.to_vec1() };
        let (all, all_steps, d_out) = (numbers(x)?, numbers(steps)?, numbers(gradient)?);
        let (channels, heads) = (self.delta.channels(), self.delta.shape.value_heads);
        let one = |at: &(usize, usize)| {
            self.delta.whole_backward(
                self.part(&all, channels, *at),
                self.part(&all_steps, 2 * heads, *at),
                self.part(&d_out, self.delta.values(), *at),
            )
        };
        let (d_x, d_steps): (Vec<Vec<f32>>, Vec<Vec<f32>>) = self.sequences.par_iter().map(one).unzip();
        let tensor = |parts: Vec<Vec<f32>>, like: &Tensor| {
            Tensor::from_vec(parts.concat(), like.shape(), &Device::Cpu).map(Some)
        };
        Ok((tensor(d_x, x)?, tensor(d_steps, steps)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{normal, numbers};
    use candle_core::Var;

    fn delta() -> Arc<Delta> {
        let shape = DeltaShape { key_heads: 2, value_heads: 4, key_dim: 4, value_dim: 3 };
        Arc::new(Delta {
            shape,
            taps: 4,
            convolution: numbers(&normal("taps", 4, 28)),
            decay: vec![-0.1, -0.5, -1.0, -2.0],
            step_bias: vec![0.3, -0.2, 0.0, 0.5],
        })
    }

    #[test]
    fn pieces_of_a_sequence_are_the_whole_of_it() {
        let delta = delta();
        let (x, steps) = (numbers(&normal("x", 70, 28)), numbers(&normal("steps", 70, 8)));
        let run = |cuts: &[usize]| {
            let (mut tail, mut state) = (vec![0.0; delta.tail()], vec![0.0; delta.shape.state()]);
            let mut out = Vec::new();
            for w in cuts.windows(2) {
                let memory = Memory { tail: &mut tail, state: &mut state };
                out.extend(delta.advance(&x[w[0] * 28..w[1] * 28], &steps[w[0] * 8..w[1] * 8], memory));
            }
            (out, tail, state)
        };
        let whole = run(&[0, 70]);
        assert!(whole == run(&[0, 1, 2, 3, 64, 70]));
        assert!(whole == run(&(0..=70).collect::<Vec<_>>()));
        for (a, b) in whole.0.iter().zip(delta.whole(&x, &steps)) {
            assert!((a - b).abs() < 1e-4, "{a} by tokens, {b} by chunks");
        }
    }

    #[test]
    fn gradients_agree_with_differences_and_sequences_stay_apart() {
        let delta = delta();
        let lengths: Arc<[(usize, usize)]> = vec![(0, 3), (3, 5)].into();
        let (x, steps) = (normal("x", 8, 28), normal("steps", 8, 8));
        let g = normal("g", 8, 12);
        let value = |x: &Tensor, steps: &Tensor| -> f64 {
            let y = numbers(&sequences(&delta, &lengths, x, steps).unwrap());
            y.iter().zip(numbers(&g)).map(|(y, g)| f64::from(*y) * f64::from(g)).sum()
        };
        let (vx, vs) = (Var::from_tensor(&x).unwrap(), Var::from_tensor(&steps).unwrap());
        let y = sequences(&delta, &lengths, &vx, &vs).unwrap();
        let gradients = (y * &g).unwrap().sum_all().unwrap().backward().unwrap();
        for (of, var) in [(&x, &vx), (&steps, &vs)] {
            let found = numbers(gradients.get(var).unwrap());
            for at in (0..found.len()).step_by(3) {
                let moved = |step: f32| {
                    let mut values = numbers(of);
                    values[at] += step;
                    let moved = Tensor::from_vec(values, of.shape(), &Device::Cpu).unwrap();
                    if of.dims() == x.dims() { value(&moved, &steps) } else { value(&x, &moved) }
                };
                let wanted = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                let difference = (f64::from(found[at]) - wanted).abs();
                assert!(difference < 1e-2 * wanted.abs().max(1.0), "{at}: {} and {wanted}", found[at]);
            }
        }
        let alone = numbers(&delta_alone(&delta, &x, &steps));
        assert!(numbers(&sequences(&delta, &lengths, &x, &steps).unwrap())[36..] == alone);
    }

    fn delta_alone(delta: &Arc<Delta>, x: &Tensor, steps: &Tensor) -> Tensor {
        let cut = |t: &Tensor| t.narrow(0, 3, 5).unwrap();
        sequences(delta, &vec![(0, 5)].into(), &cut(x), &cut(steps)).unwrap()
    }
}
