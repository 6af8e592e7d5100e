//! Cross-entropy over the vocabulary in chunks of rows, with its gradient worked out on the
//! spot: logits of all tokens at once never exist, and the head gets no gradient.

use crate::error::{Error, Result};
use crate::model::FrozenLinear;
use candle_core::{Storage, Tensor};
use rayon::prelude::*;

/// Rows whose logits exist at the same time.
const CHUNK: usize = 64;

/// Weighted cross-entropy of `hidden: [rows, hidden]` (after the final norm) under `head`:
/// `Σ weight · −ln p(target)` and its gradient `[rows, hidden]`. One target and one weight a
/// row; weights come divided by whatever the loss is a mean over. `rows` may be 0.
pub(super) fn cross_entropy(
    head: &FrozenLinear,
    hidden: &Tensor,
    targets: &[u32],
    weights: &[f32],
) -> Result<(f64, Tensor)> {
    let hidden = hidden.detach();
    let mut loss = 0.0;
    let mut gradients = Vec::new();
    for (chunk, (targets, weights)) in targets.chunks(CHUNK).zip(weights.chunks(CHUNK)).enumerate() {
        let logits = head.forward(&hidden.narrow(0, chunk * CHUNK, targets.len())?)?;
        let (nll, gradient) = softmax_gradient(&logits, targets, weights)?;
        loss += nll.iter().zip(weights).map(|(n, w)| n * f64::from(*w)).sum::<f64>();
        gradients.push(head.backward(&gradient)?);
    }
    match gradients.is_empty() {
        true => Ok((0.0, hidden.zeros_like()?)),
        false => Ok((loss, Tensor::cat(&gradients, 0)?)),
    }
}

/// `−ln p(target)` of each row of `logits: [rows, vocab]` (f32, on the CPU), and
/// `(p − onehot) · weight`.
fn softmax_gradient(logits: &Tensor, targets: &[u32], weights: &[f32]) -> Result<(Vec<f64>, Tensor)> {
    let logits = logits.contiguous()?;
    let (storage, layout) = logits.storage_and_layout();
    let (Storage::Cpu(cpu), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
        return Err(Error::invalid("the training loss is computed on the CPU only"));
    };
    let (nll, gradient) = softmax_gradient_rows(&cpu.as_slice::<f32>()?[start..end], targets, weights);
    Ok((nll, Tensor::from_vec(gradient, logits.dims(), logits.device())?))
}

/// The same on plain numbers: one pass over each row, rows in parallel.
fn softmax_gradient_rows(logits: &[f32], targets: &[u32], weights: &[f32]) -> (Vec<f64>, Vec<f32>) {
    let vocab = logits.len() / targets.len().max(1);
    let mut gradient = vec![0f32; logits.len()];
    let nll = gradient
        .par_chunks_mut(vocab)
        .zip(logits.par_chunks(vocab))
        .zip(targets.par_iter().zip(weights))
        .map(|((gradient, logits), (target, weight))| {
            let target = *target as usize;
            let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0f64;
            for (e, logit) in gradient.iter_mut().zip(logits) {
                *e = (logit - highest).exp();
                total += f64::from(*e);
            }
            let scale = (f64::from(*weight) / total) as f32;
            gradient.iter_mut().for_each(|e| *e *= scale);
            gradient[target] -= weight;
            total.ln() + f64::from(highest) - f64::from(logits[target])
        })
        .collect();
    (nll, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{D, DType, Device};

    fn logits() -> Tensor {
        let values: Vec<f32> = (0..35).map(|i| ((i * 37 % 23) as f32 - 11.0) / 3.0).collect();
        Tensor::from_vec(values, (5, 7), &Device::Cpu).unwrap()
    }
    const TARGETS: [u32; 5] = [0, 6, 3, 3, 1];
    const WEIGHTS: [f32; 5] = [1.0, 0.5, 0.0, 0.25, 2.0];

    /// The same in tensor operations.
    fn softmax_gradient_ops(logits: &Tensor, targets: &[u32], weights: &[f32]) -> Result<(Vec<f64>, Tensor)> {
        let rows = targets.len();
        let device = logits.device();
        let logits = logits.to_dtype(DType::F32)?;
        let target = Tensor::from_slice(targets, (rows, 1), device)?;
        let weight = Tensor::from_slice(weights, (rows, 1), device)?;
        let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?)?;
        let exp = shifted.exp()?;
        let total = exp.sum_keepdim(D::Minus1)?;
        let nll = (total.log()? - shifted.gather(&target, 1)?)?.squeeze(1)?.to_vec1::<f32>()?;
        let gradient = exp.broadcast_mul(&weight.div(&total)?)?.scatter_add(&target, &weight.neg()?, 1)?;
        Ok((nll.into_iter().map(f64::from).collect(), gradient))
    }

    #[test]
    fn agrees_with_plain_tensor_operations() {
        let (nll, gradient) = softmax_gradient(&logits(), &TARGETS, &WEIGHTS).unwrap();
        let (nll_ops, gradient_ops) = softmax_gradient_ops(&logits(), &TARGETS, &WEIGHTS).unwrap();
        for (a, b) in nll.iter().zip(&nll_ops) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
        let off =
            (gradient - gradient_ops).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(off < 1e-6, "{off}");
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let loss = |values: &[f32]| {
            let (nll, _) = softmax_gradient_rows(values, &TARGETS, &WEIGHTS);
            nll.iter().zip(WEIGHTS).map(|(n, w)| n * f64::from(w)).sum::<f64>()
        };
        let base = logits().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let (_, gradient) = softmax_gradient_rows(&base, &TARGETS, &WEIGHTS);
        for i in 0..base.len() {
            let shifted = |by: f32| {
                let mut values = base.clone();
                values[i] += by;
                loss(&values)
            };
            let numeric = (shifted(0.01) - shifted(-0.01)) / 0.02;
            assert!((numeric - f64::from(gradient[i])).abs() < 1e-4, "{i}: {numeric} {}", gradient[i]);
        }
    }

    #[test]
    fn chunks_give_what_one_piece_gives() {
        let rows = 2 * CHUNK + 22;
        let wave = |n: usize, step: f32| (0..n).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
        let head = FrozenLinear::new(&wave(20 * 8, 1.7), 20, 8);
        let hidden = Tensor::from_vec(wave(rows * 8, 0.9), (rows, 8), &Device::Cpu).unwrap();
        let targets: Vec<u32> = (0..rows as u32).map(|i| i * 7 % 20).collect();
        let weights: Vec<f32> = (0..rows).map(|i| (i % 5) as f32 / 100.0).collect();
        let (loss, gradient) = cross_entropy(&head, &hidden, &targets, &weights).unwrap();

        let logits = hidden.matmul(&head.weight().unwrap().t().unwrap()).unwrap();
        let (nll, of_logits) = softmax_gradient_ops(&logits, &targets, &weights).unwrap();
        let whole: f64 = nll.iter().zip(&weights).map(|(n, w)| n * f64::from(*w)).sum();
        assert!((loss - whole).abs() < 1e-5 * whole, "{loss} {whole}");
        let of_hidden = of_logits.matmul(&head.weight().unwrap()).unwrap();
        let off =
            (gradient - of_hidden).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(off < 1e-6, "{off}");
        let (none, _) = cross_entropy(&head, &hidden.narrow(0, 0, 0).unwrap(), &[], &[]).unwrap();
        assert_eq!(none, 0.0);
    }

    #[test]
    fn extreme_logits_stay_finite() {
        let values = [1e4f32, -1e4, 0.0, f32::MIN, f32::MAX, 0.0];
        let (nll, gradient) = softmax_gradient_rows(&values, &[0, 1], &[1.0, 1.0]);
        assert_eq!(nll[0], 0.0);
        assert!(nll.iter().all(|n| n.is_finite()) && gradient.iter().all(|g| g.is_finite()));
    }
}
