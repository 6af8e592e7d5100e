//! Whole sequences laid end to end in flat rows, mixed with a backward: causal attention here, the
//! gated delta rule in `delta`. What parity checks and training use. Row `i` of a sequence attends to rows `0..=i` of that
//! sequence. Products run through the same kernel as linear maps, whose sums are in a fixed
//! order, so that neither the end of a sequence nor its neighbours change a row's result.

use super::config::Config;
use super::delta::{self, Delta};
use super::kernel::{Packed, multiply_part, transpose};
use super::network::Mix;
use super::ops::{exp, slice, sum};
use crate::error::Result;
use candle_core::{CpuStorage, CustomOp3, Device, Layout, Shape, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// Causal attention over packed sequences.
#[derive(Debug, Clone)]
pub struct Causal(Arc<Plan>);

#[derive(Debug)]
struct Plan {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// First row and number of rows of each sequence.
    sequences: Arc<[(usize, usize)]>,
}

/// Rows of a sequence whose scores are computed together.
const BLOCK: usize = 64;

impl Causal {
    /// For sequences of these lengths, laid end to end.
    pub fn new(config: &Config, lengths: &[usize]) -> Self {
        let mut first = 0;
        let sequences = lengths
            .iter()
            .map(|&length| {
                first += length;
                (first - length, length)
            })
            .collect();
        Causal(Arc::new(Plan {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            sequences,
        }))
    }

    /// For one sequence.
    pub fn one(config: &Config, length: usize) -> Self {
        Self::new(config, &[length])
    }
}

impl Mix for Causal {
    fn attend(&mut self, _: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        Ok(q.contiguous()?.apply_op3(&k.contiguous()?, &v.contiguous()?, Op(self.0.clone()))?)
    }

    fn recur(&mut self, _: usize, delta: &Arc<Delta>, x: &Tensor, steps: &Tensor) -> Result<Tensor> {
        Ok(delta::sequences(delta, &self.0.sequences, x, steps)?)
    }
}

/// The query heads of one key head in one sequence: the unit of work.
#[derive(Clone, Copy)]
struct Unit {
    /// First row of the sequence.
    first: usize,
    /// Its number of rows.
    length: usize,
    kv_head: usize,
}

impl Plan {
    fn check(&self, q: &Layout, k: &Layout, v: &Layout) -> candle_core::Result<()> {
        let rows = self.sequences.iter().map(|(_, length)| length).sum();
        let (query, key) = ((rows, self.heads * self.head_dim), (rows, self.kv_heads * self.head_dim));
        if q.shape().dims2()? != query || k.shape().dims2()? != key || v.shape().dims2()? != key {
            candle_core::bail!(
                "attention over {rows} rows does not fit q {:?}, k {:?}, v {:?}",
                q.shape(),
                k.shape(),
                v.shape()
            );
        }
        Ok(())
    }

    fn units(&self) -> Vec<Unit> {
        let of = |&(first, length): &(usize, usize)| {
            (0..self.kv_heads).map(move |kv_head| Unit { first, length, kv_head })
        };
        self.sequences.iter().flat_map(of).collect()
    }

    /// Query heads that share a key head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The unit's part of some of its rows, contiguous: `width` numbers a row, where `x` has
    /// `kv_heads * width`.
    fn gather(&self, x: &[f32], unit: Unit, rows: std::ops::Range<usize>, width: usize) -> Vec<f32> {
        rows.flat_map(|row| &x[((unit.first + row) * self.kv_heads + unit.kv_head) * width..][..width])
            .copied()
            .collect()
    }

    /// Writes back what `gather` takes.
    fn scatter(&self, part: &[f32], unit: Unit, first: usize, width: usize, x: &mut [f32]) {
        for (row, part) in part.chunks_exact(width).enumerate() {
            let start = ((unit.first + first + row) * self.kv_heads + unit.kv_head) * width;
            x[start..start + width].copy_from_slice(part);
        }
    }

    /// Width of the query heads of one key head.
    fn query_width(&self) -> usize {
        self.group() * self.head_dim
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Softmax weights `[rows * group, last row + 1]` of a block of queries; 0 beyond each row itself.
    fn weights(&self, queries: &[f32], keys: &Packed, rows: std::ops::Range<usize>) -> Vec<f32> {
        let (group, scale, columns) = (self.group(), self.scale(), rows.end);
        let mut weights = multiply_part(queries, rows.len() * group, keys, self.head_dim, columns);
        for (i, weights) in weights.chunks_exact_mut(columns).enumerate() {
            let (seen, unseen) = weights.split_at_mut(rows.start + i / group + 1);
            unseen.fill(0.0);
            let largest = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for w in seen.iter_mut() {
                *w = exp((*w - largest) * scale);
            }
            let inverse = 1.0 / sum(seen.len(), |j| seen[j]);
            for w in seen.iter_mut() {
                *w *= inverse;
            }
        }
        weights
    }

    fn forward(&self, q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0f32; q.len()];
        let blocks: Vec<_> = self
            .units()
            .into_par_iter()
            .flat_map(|unit| {
                let keys = self.gather(k, unit, 0..unit.length, self.head_dim);
                let values = self.gather(v, unit, 0..unit.length, self.head_dim);
                let keys = Packed::from_rows(&keys, unit.length, self.head_dim);
                let values = Packed::from_columns(&values, unit.length, self.head_dim);
                let block = move |number: usize| {
                    let rows = number * BLOCK..unit.length.min((number + 1) * BLOCK);
                    let queries = self.gather(q, unit, rows.clone(), self.query_width());
                    let weights = self.weights(&queries, &keys, rows.clone());
                    let mixed =
                        multiply_part(&weights, rows.len() * self.group(), &values, rows.end, self.head_dim);
                    (unit, rows.start, mixed)
                };
                (0..unit.length.div_ceil(BLOCK)).into_par_iter().map(block)
            })
            .collect();
        for (unit, first, mixed) in blocks {
            self.scatter(&mixed, unit, first, self.query_width(), &mut out);
        }
        out
    }

    /// Gradients of q, k and v. With P the weights and dP = g V^T, the gradient of a score is
    /// P (dP - D), D the row's sum of P dP; P is computed again rather than kept.
    fn backward(&self, q: &[f32], k: &[f32], v: &[f32], g: &[f32]) -> [Vec<f32>; 3] {
        let parts: Vec<_> =
            self.units().into_par_iter().map(|unit| (unit, self.unit_backward(unit, q, k, v, g))).collect();
        let mut out = [vec![0.0f32; q.len()], vec![0.0f32; k.len()], vec![0.0f32; v.len()]];
        for (unit, parts) in parts {
            for ((out, part), width) in
                out.iter_mut().zip(&parts).zip([self.query_width(), self.head_dim, self.head_dim])
            {
                self.scatter(part, unit, 0, width, out);
            }
        }
        out
    }

    fn unit_backward(&self, unit: Unit, q: &[f32], k: &[f32], v: &[f32], g: &[f32]) -> [Vec<f32>; 3] {
        let (length, width, group) = (unit.length, self.head_dim, self.group());
        let keys = self.gather(k, unit, 0..length, width);
        let values = self.gather(v, unit, 0..length, width);
        let (keys_as_rows, keys_as_columns) =
            (Packed::from_rows(&keys, length, width), Packed::from_columns(&keys, length, width));
        let values = Packed::from_rows(&values, length, width);
        let mut dq = Vec::with_capacity(length * self.query_width());
        let (mut dk, mut dv) = (vec![0.0f32; length * width], vec![0.0f32; length * width]);
        for first in (0..length).step_by(BLOCK) {
            let rows = first..length.min(first + BLOCK);
            let (count, seen) = (rows.len() * group, rows.end);
            let queries = self.gather(q, unit, rows.clone(), self.query_width());
            let gradient = self.gather(g, unit, rows.clone(), self.query_width());
            let weights = self.weights(&queries, &keys_as_rows, rows);
            let mut scores = multiply_part(&gradient, count, &values, width, seen);
            for (scores, weights) in scores.chunks_exact_mut(seen).zip(weights.chunks_exact(seen)) {
                let along = sum(seen, |j| scores[j] * weights[j]);
                for (score, w) in scores.iter_mut().zip(weights) {
                    *score = w * (*score - along) * self.scale();
                }
            }
            dq.extend(multiply_part(&scores, count, &keys_as_columns, seen, width));
            add_transposed_product(&scores, seen, &queries, width, &mut dk);
            add_transposed_product(&weights, seen, &gradient, width, &mut dv);
        }
        [dq, dk, dv]
    }
}

/// Adds `a^T b` to the first rows of `out: [.., width]`, for `a: [count, columns]` and `b: [count, width]`.
fn add_transposed_product(a: &[f32], columns: usize, b: &[f32], width: usize, out: &mut [f32]) {
    let count = a.len() / columns;
    let mut turned = vec![0.0; a.len()];
    transpose(a, columns, &mut turned);
    let product = multiply_part(&turned, columns, &Packed::from_columns(b, count, width), count, width);
    for (out, product) in out.iter_mut().zip(&product) {
        *out += product;
    }
}

struct Op(Arc<Plan>);

impl CustomOp3 for Op {
    fn name(&self) -> &'static str {
        "causal-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        lq: &Layout,
        k: &CpuStorage,
        lk: &Layout,
        v: &CpuStorage,
        lv: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        self.0.check(lq, lk, lv)?;
        let out = self.0.forward(slice(q, lq)?, slice(k, lk)?, slice(v, lv)?);
        Ok((CpuStorage::F32(out), lq.shape().clone()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let numbers = |t: &Tensor| -> candle_core::Result<Vec<f32>> { t.flatten_all()?.to_vec1() };
        let [dq, dk, dv] = self.0.backward(&numbers(q)?, &numbers(k)?, &numbers(v)?, &numbers(gradient)?);
        let tensor =
            |values: Vec<f32>, like: &Tensor| Tensor::from_vec(values, like.shape(), &Device::Cpu).map(Some);
        Ok((tensor(dq, q)?, tensor(dk, k)?, tensor(dv, v)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{distance, model, normal, numbers};
    use candle_core::{D, Var};

    /// Attention of one sequence by plain operations: repeated key heads, an additive mask, a softmax.
    fn plain(config: &Config, q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
        let rows = q.dim(0).unwrap();
        let split = |x: &Tensor, heads: usize| {
            x.reshape((rows, heads, config.head_dim)).unwrap().transpose(0, 1).unwrap().contiguous().unwrap()
        };
        let spread = |x: &Tensor| {
            let group = config.heads / config.kv_heads;
            let x = split(x, config.kv_heads).unsqueeze(1).unwrap();
            let x = x.broadcast_as((config.kv_heads, group, rows, config.head_dim)).unwrap();
            x.reshape((config.heads, rows, config.head_dim)).unwrap()
        };
        let mask: Vec<f32> =
            (0..rows * rows).map(|i| if i % rows > i / rows { f32::NEG_INFINITY } else { 0.0 }).collect();
        let mask = Tensor::from_vec(mask, (1, rows, rows), &Device::Cpu).unwrap();
        let scores =
            split(q, config.heads).matmul(&spread(k).transpose(1, 2).unwrap().contiguous().unwrap()).unwrap();
        let scores = (scores / (config.head_dim as f64).sqrt()).unwrap().broadcast_add(&mask).unwrap();
        let largest = scores.max_keepdim(D::Minus1).unwrap().detach();
        let weights = scores.broadcast_sub(&largest).unwrap().exp().unwrap();
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1).unwrap()).unwrap();
        let mixed = weights.matmul(&spread(v)).unwrap().transpose(0, 1).unwrap();
        mixed.reshape((rows, config.heads * config.head_dim)).unwrap()
    }

    fn inputs(config: &Config, rows: usize) -> [Tensor; 3] {
        let key = config.kv_heads * config.head_dim;
        [normal("q", rows, config.heads * config.head_dim), normal("k", rows, key), normal("v", rows, key)]
    }

    #[test]
    fn agrees_with_plain_operations_forward_and_backward() {
        let config = model("llama_tied").config;
        let [q, k, v] = inputs(&config, 21).map(|t| Var::from_tensor(&t).unwrap());
        let ours = Causal::one(&config, 21).attend(0, &q, &k, &v).unwrap();
        let reference = plain(&config, &q, &k, &v);
        assert!(distance(&ours, &reference) < 2e-6);
        let g = normal("g", 21, config.heads * config.head_dim);
        let gradients = |y: &Tensor| (y * &g).unwrap().sum_all().unwrap().backward().unwrap();
        let (ours, reference) = (gradients(&ours), gradients(&reference));
        for of in [&q, &k, &v] {
            assert!(distance(ours.get(of).unwrap(), reference.get(of).unwrap()) < 1e-5);
        }
    }

    #[test]
    fn packed_sequences_do_not_see_each_other() {
        let config = model("llama_tied").config;
        let lengths = [4usize, 1, 9];
        let [q, k, v] = inputs(&config, 14).map(|t| Var::from_tensor(&t).unwrap());
        let packed = Causal::new(&config, &lengths).attend(0, &q, &k, &v).unwrap();
        let packed_gradients = packed.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let mut first = 0;
        for length in lengths {
            let parts = [&q, &k, &v].map(|t| {
                Var::from_tensor(&t.narrow(0, first, length).unwrap().contiguous().unwrap()).unwrap()
            });
            let alone = Causal::one(&config, length).attend(0, &parts[0], &parts[1], &parts[2]).unwrap();
            assert!(numbers(&alone) == numbers(&packed.narrow(0, first, length).unwrap()));
            let gradients = alone.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            for (part, whole) in parts.iter().zip([&q, &k, &v]) {
                let whole = packed_gradients.get(whole).unwrap().narrow(0, first, length).unwrap();
                assert!(numbers(gradients.get(part).unwrap()) == numbers(&whole));
            }
            first += length;
        }
    }

    #[test]
    fn a_longer_sequence_leaves_its_beginning_as_it_was() {
        let config = model("llama_tied").config;
        let [q, k, v] = inputs(&config, 30);
        let long = Causal::one(&config, 30).attend(0, &q, &k, &v).unwrap();
        let cut = |t: &Tensor| t.narrow(0, 0, 11).unwrap();
        let short = Causal::one(&config, 11).attend(0, &cut(&q), &cut(&k), &cut(&v)).unwrap();
        assert!(numbers(&short) == numbers(&cut(&long)));
    }

    #[test]
    fn refuses_rows_that_are_not_its_own() {
        let config = model("llama_tied").config;
        let [q, k, v] = inputs(&config, 5);
        assert!(Causal::one(&config, 6).attend(0, &q, &k, &v).is_err());
    }
}
