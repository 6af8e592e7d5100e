//! The elementwise parts of the network as fused operations with a backward: RMS norm,
//! rotary positions and SwiGLU. Each is parallel over rows and computes a row from that row
//! alone, in one fixed order.
//!
//! candle's own fused versions cut the graph without saying so: gradients behind them are zero.

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// The numbers of a contiguous f32 tensor.
pub(super) fn slice<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let numbers = storage.as_slice::<f32>()?;
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&numbers[start..end]),
        None => candle_core::bail!("a fused operation needs a contiguous tensor"),
    }
}

/// Splits `out` into rows of `width` and computes each, in parallel when there is enough to do.
pub(super) fn each_row(out: &mut [f32], width: usize, compute: impl Fn(usize, &mut [f32]) + Sync) {
    if width == 0 {
        return;
    }
    if out.len() < 1 << 14 {
        out.chunks_mut(width).enumerate().for_each(|(i, row)| compute(i, row));
    } else {
        let least = (1usize << 12).div_ceil(width);
        out.par_chunks_mut(width).with_min_len(least).enumerate().for_each(|(i, row)| compute(i, row));
    }
}

/// The sum over `i < n` of `term(i)`: eight interleaved partial sums, then a fixed tree.
#[inline(always)]
pub(super) fn sum(n: usize, term: impl Fn(usize) -> f32) -> f32 {
    let mut parts = [0.0f32; 8];
    let whole = n - n % 8;
    for start in (0..whole).step_by(8) {
        for (lane, part) in parts.iter_mut().enumerate() {
            *part += term(start + lane);
        }
    }
    for (part, i) in parts.iter_mut().zip(whole..n) {
        *part += term(i);
    }
    ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]))
}

/// e^x to about one unit in the last place, in operations that the compiler can vectorise; 0 below -87.
/// Method: Cody and Waite's reduction by multiples of ln 2, then a polynomial of degree 6 (Cephes `expf`).
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer
    let clamped = x.clamp(-87.0, 88.0);
    let shifted = clamped * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = (clamped - n * (355.0 / 512.0)) - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    let power = f32::from_bits(((n as i32 + 127) << 23) as u32);
    if x < -87.0 { 0.0 } else { y * power }
}

/// A norm's constants: `x * weight / sqrt(mean(x²) + eps)`.
pub struct RmsNorm {
    /// `[hidden]`.
    pub weight: Vec<f32>,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNorm {
    fn inverse_root(&self, x: &[f32]) -> f32 {
        1.0 / (sum(x.len(), |i| x[i] * x[i]) / x.len() as f32 + self.eps).sqrt()
    }
}

struct Norm(Arc<RmsNorm>);
struct NormBackward(Arc<RmsNorm>);

/// RMS norm of rows `[rows, hidden]`; differentiable in `x`, the weight is frozen.
pub fn rms_norm(x: &Tensor, norm: &Arc<RmsNorm>) -> Result<Tensor> {
    x.contiguous()?.apply_op1(Norm(norm.clone()))
}

impl CustomOp1 for Norm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, width) = (slice(x, layout)?, self.0.weight.len());
        if layout.shape().dims2()?.1 != width {
            candle_core::bail!("rows {:?} do not fit a norm over {width}", layout.shape());
        }
        let mut out = vec![0.0; x.len()];
        each_row(&mut out, width, |i, out| {
            let x = &x[i * width..][..width];
            let scale = self.0.inverse_root(x);
            for ((out, x), w) in out.iter_mut().zip(x).zip(&self.0.weight) {
                *out = x * scale * w;
            }
        });
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(x.apply_op2_no_bwd(&gradient.contiguous()?, &NormBackward(self.0.clone()))?))
    }
}

impl CustomOp2 for NormBackward {
    fn name(&self) -> &'static str {
        "rms-norm-backward"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        g: &CpuStorage,
        lg: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, g, w) = (slice(x, lx)?, slice(g, lg)?, &self.0.weight);
        let width = w.len();
        let mut out = vec![0.0; x.len()];
        each_row(&mut out, width, |i, out| {
            let (x, g) = (&x[i * width..][..width], &g[i * width..][..width]);
            let scale = self.0.inverse_root(x);
            let along = sum(width, |j| g[j] * w[j] * x[j]) * scale * scale * scale / width as f32;
            for (((out, x), g), w) in out.iter_mut().zip(x).zip(g).zip(w) {
                *out = g * w * scale - x * along;
            }
        });
        Ok((CpuStorage::F32(out), lx.shape().clone()))
    }
}

struct Rope {
    positions: Arc<[u32]>,
    head_dim: usize,
    inverse_frequencies: Arc<[f32]>,
    /// 1 forward, -1 backward: the gradient of a rotation is the rotation back.
    direction: f32,
}

/// Rotary positions on rows `[rows, heads * head_dim]`: the first `2 * frequencies` coordinates of each
/// head turn, their first half paired with their second (the layout of Hugging Face checkpoints), the
/// others stay; differentiable in `x`. Angles are position times frequency in f32; sine and cosine
/// are libm's in Rust, so that every machine gets the same bits.
pub fn rope(
    x: &Tensor,
    positions: &[u32],
    head_dim: usize,
    inverse_frequencies: &Arc<[f32]>,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    if rows != positions.len()
        || head_dim == 0
        || width % head_dim != 0
        || inverse_frequencies.len() * 2 > head_dim
    {
        candle_core::bail!(
            "{} positions and heads of {head_dim} do not fit rows {:?}",
            positions.len(),
            x.shape()
        );
    }
    x.contiguous()?.apply_op1(Rope {
        positions: positions.into(),
        head_dim,
        inverse_frequencies: inverse_frequencies.clone(),
        direction: 1.0,
    })
}

impl CustomOp1 for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = slice(x, layout)?;
        let width = layout.shape().dims2()?.1;
        let half = self.inverse_frequencies.len();
        let mut out = x.to_vec();
        each_row(&mut out, width, |i, out| {
            let x = &x[i * width..][..width];
            let position = self.positions[i] as f32;
            for (j, frequency) in self.inverse_frequencies.iter().enumerate() {
                let (sin, cos) = libm::sincosf(position * frequency);
                let sin = sin * self.direction;
                for head in (0..width).step_by(self.head_dim) {
                    let (first, second) = (x[head + j], x[head + j + half]);
                    out[head + j] = first * cos - second * sin;
                    out[head + j + half] = second * cos + first * sin;
                }
            }
        });
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let back = Rope {
            positions: self.positions.clone(),
            head_dim: self.head_dim,
            inverse_frequencies: self.inverse_frequencies.clone(),
            direction: -self.direction,
        };
        Ok(Some(gradient.contiguous()?.apply_op1_no_bwd(&back)?))
    }
}

struct SigmoidGate;

/// `x * sigmoid(gate)` on equal shapes; differentiable in both.
pub fn sigmoid_gate(x: &Tensor, gate: &Tensor) -> Result<Tensor> {
    if gate.shape() != x.shape() {
        candle_core::bail!("gate {:?} and rows {:?} differ in shape", gate.shape(), x.shape());
    }
    x.contiguous()?.apply_op2(&gate.contiguous()?, SigmoidGate)
}

impl CustomOp2 for SigmoidGate {
    fn name(&self) -> &'static str {
        "sigmoid-gate"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        gate: &CpuStorage,
        lg: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, gate) = (slice(x, lx)?, slice(gate, lg)?);
        Ok((CpuStorage::F32(elementwise(x, gate, |_, x, g| x / (1.0 + exp(-g)))), lx.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        gate: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        // d/dgate = grad * x * s * (1 - s), with s = sigmoid(gate)
        let through = gradient.contiguous()?.apply_op2_no_bwd(gate, &SigmoidGate)?;
        let open = Tensor::ones_like(gate)?.apply_op2_no_bwd(gate, &SigmoidGate)?;
        let d_gate = ((&through * x)? * (1.0 - open)?)?;
        Ok((Some(through), Some(d_gate)))
    }
}

struct SwiGlu;

/// `silu(gate) * up` on equal shapes `[rows, intermediate]`; differentiable in both.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.shape() != up.shape() {
        candle_core::bail!("gate {:?} and up {:?} differ in shape", gate.shape(), up.shape());
    }
    gate.contiguous()?.apply_op2(&up.contiguous()?, SwiGlu)
}

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        lg: &Layout,
        up: &CpuStorage,
        lu: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (gate, up) = (slice(gate, lg)?, slice(up, lu)?);
        Ok((CpuStorage::F32(elementwise(gate, up, |_, g, u| g / (1.0 + exp(-g)) * u)), lg.shape().clone()))
    }

    fn bwd(
        &self,
        gate: &Tensor,
        up: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        // d/dgate = grad * up * s * (1 + gate * (1 - s)), with s = sigmoid(gate)
        let through = (&gradient * up)?.apply_op2_no_bwd(gate, &Silu { derivative: true })?;
        let gated = gradient.apply_op2_no_bwd(gate, &Silu { derivative: false })?;
        Ok((Some(through), Some(gated)))
    }
}

/// `a * silu(b)`, or `a * silu'(b)`.
struct Silu {
    derivative: bool,
}

impl CustomOp2 for Silu {
    fn name(&self) -> &'static str {
        "silu-backward"
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        la: &Layout,
        b: &CpuStorage,
        lb: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (a, b) = (slice(a, la)?, slice(b, lb)?);
        let out = if self.derivative {
            elementwise(a, b, |_, a, b| {
                let s = 1.0 / (1.0 + exp(-b));
                a * s * (1.0 + b * (1.0 - s))
            })
        } else {
            elementwise(a, b, |_, a, b| a * b / (1.0 + exp(-b)))
        };
        Ok((CpuStorage::F32(out), la.shape().clone()))
    }
}

fn elementwise(a: &[f32], b: &[f32], f: impl Fn(usize, f32, f32) -> f32 + Sync) -> Vec<f32> {
    let mut out = vec![0.0; a.len()];
    each_row(&mut out, 1 << 10, |i, out| {
        let start = i << 10;
        for (j, ((out, a), b)) in out.iter_mut().zip(&a[start..]).zip(&b[start..]).enumerate() {
            *out = f(start + j, *a, *b);
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{distance, normal, numbers};
    use candle_core::{D, Device, Var};

    fn gradient(y: &Tensor, g: &Tensor, of: &Var) -> Tensor {
        (y * g).unwrap().sum_all().unwrap().backward().unwrap().get(of).unwrap().clone()
    }

    /// The gradient of sum(g * f(x)) by central differences agrees with the one of the graph.
    fn check_differences(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) {
        let var = Var::from_tensor(x).unwrap();
        let y = f(&var);
        let g = normal("g", y.dim(0).unwrap(), y.dim(1).unwrap());
        let found = numbers(&gradient(&y, &g, &var));
        let value = |at: usize, step: f32| -> f64 {
            let mut values = numbers(x);
            values[at] += step;
            let y = f(&Tensor::from_vec(values, x.shape(), &Device::Cpu).unwrap());
            numbers(&y).iter().zip(numbers(&g)).map(|(y, g)| f64::from(*y) * f64::from(g)).sum()
        };
        for (at, found) in found.iter().enumerate() {
            let wanted = (value(at, 1e-2) - value(at, -1e-2)) / 2e-2;
            assert!(
                (f64::from(*found) - wanted).abs() < 5e-3 * wanted.abs().max(1.0),
                "{at}: {found} and {wanted}"
            );
        }
    }

    fn norm() -> Arc<RmsNorm> {
        Arc::new(RmsNorm { weight: numbers(&normal("weight", 1, 12)), eps: 1e-5 })
    }

    fn frequencies() -> Arc<[f32]> {
        vec![1.0, 0.3, 0.05].into()
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for i in -8700..8800 {
            let x = i as f32 * 0.01;
            let wanted = f64::from(x).exp();
            assert!((f64::from(exp(x)) - wanted).abs() < 2.4e-7 * wanted, "exp({x})");
        }
        assert_eq!((exp(-1e9), exp(f32::NEG_INFINITY), exp(0.0)), (0.0, 0.0, 1.0));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn rms_norm_agrees_with_plain_operations() {
        let norm = norm();
        let (x, g) = (Var::from_tensor(&normal("x", 7, 12)).unwrap(), normal("g", 7, 12));
        let ours = rms_norm(&x, &norm).unwrap();
        let mean = (x.sqr().unwrap().mean_keepdim(D::Minus1).unwrap() + 1e-5).unwrap();
        let weight = Tensor::from_slice(&norm.weight, (1, 12), &Device::Cpu).unwrap();
        let plain = x.broadcast_div(&mean.sqrt().unwrap()).unwrap().broadcast_mul(&weight).unwrap();
        assert!(distance(&ours, &plain) < 1e-6);
        assert!(distance(&gradient(&ours, &g, &x), &gradient(&plain, &g, &x)) < 1e-5);
        check_differences(|x| rms_norm(x, &norm).unwrap(), &normal("x", 2, 12));
    }

    #[test]
    fn rope_agrees_with_plain_operations() {
        let (positions, frequencies) = ([0u32, 5, 2, 900], frequencies());
        let (x, g) = (Var::from_tensor(&normal("x", 4, 12)).unwrap(), normal("g", 4, 12));
        let ours = rope(&x, &positions, 6, &frequencies).unwrap();
        let angles: Vec<f32> =
            positions.iter().flat_map(|p| frequencies.iter().map(|f| *p as f32 * f)).collect();
        let angles = Tensor::from_vec(angles, (4, 1, 3), &Device::Cpu).unwrap();
        let angles = Tensor::cat(&[&angles, &angles], 2).unwrap();
        let heads = x.reshape((4, 2, 6)).unwrap();
        let turned = Tensor::cat(
            &[&heads.narrow(2, 3, 3).unwrap().neg().unwrap(), &heads.narrow(2, 0, 3).unwrap()],
            2,
        );
        let plain = (heads.broadcast_mul(&angles.cos().unwrap()).unwrap()
            + turned.unwrap().broadcast_mul(&angles.sin().unwrap()).unwrap())
        .unwrap()
        .reshape((4, 12))
        .unwrap();
        assert!(distance(&ours, &plain) < 1e-6);
        assert!(distance(&gradient(&ours, &g, &x), &gradient(&plain, &g, &x)) < 1e-6);
        assert!(rope(&x, &positions[..3], 6, &frequencies).is_err());
    }

    #[test]
    fn swiglu_agrees_with_plain_operations() {
        let gate = Var::from_tensor(&(normal("gate", 6, 300) * 4.0).unwrap()).unwrap();
        let up = Var::from_tensor(&normal("up", 6, 300)).unwrap();
        let g = normal("g", 6, 300);
        let ours = swiglu(&gate, &up).unwrap();
        let plain = (gate.silu().unwrap() * up.as_tensor()).unwrap();
        assert!(distance(&ours, &plain) < 2e-6);
        for of in [&gate, &up] {
            assert!(distance(&gradient(&ours, &g, of), &gradient(&plain, &g, of)) < 5e-6);
        }
        let up = normal("up", 2, 5);
        check_differences(|gate| swiglu(gate, &up).unwrap(), &normal("gate", 2, 5));
    }

    #[test]
    fn sigmoid_gate_agrees_with_plain_operations() {
        let gate = Var::from_tensor(&(normal("gate", 6, 300) * 4.0).unwrap()).unwrap();
        let x = Var::from_tensor(&normal("x", 6, 300)).unwrap();
        let g = normal("g", 6, 300);
        let ours = sigmoid_gate(&x, &gate).unwrap();
        let sigmoid = (gate.neg().unwrap().exp().unwrap() + 1.0).unwrap().recip().unwrap();
        let plain = (x.as_tensor() * sigmoid).unwrap();
        assert!(distance(&ours, &plain) < 2e-6);
        for of in [&gate, &x] {
            assert!(distance(&gradient(&ours, &g, of), &gradient(&plain, &g, of)) < 5e-6);
        }
    }

    #[test]
    fn rope_leaves_the_coordinates_beyond_its_frequencies() {
        let (positions, frequencies) = ([0u32, 5, 2, 900], frequencies());
        let x = normal("x", 4, 20);
        let turned = rope(&x, &positions, 10, &frequencies).unwrap();
        for head in [0, 10] {
            let part = |t: &Tensor, from: usize, count: usize| t.narrow(1, head + from, count).unwrap();
            assert_eq!(numbers(&part(&turned, 6, 4)), numbers(&part(&x, 6, 4)));
            let alone = rope(&part(&x, 0, 6), &positions, 6, &frequencies).unwrap();
            assert_eq!(numbers(&part(&turned, 0, 6)), numbers(&alone));
        }
        assert!(rope(&x, &positions, 4, &frequencies).is_err());
    }

    #[test]
    fn a_row_depends_on_itself_alone() {
        let (norm, x, frequencies) = (norm(), normal("x", 4000, 12), frequencies());
        let positions: Vec<u32> = (0..4000).collect();
        let row = |t: &Tensor, i: usize| numbers(&t.narrow(0, i, 1).unwrap());
        let one = x.narrow(0, 3333, 1).unwrap();
        let normed = rms_norm(&x, &norm).unwrap();
        assert!(row(&normed, 3333) == numbers(&rms_norm(&one, &norm).unwrap()));
        let turned = rope(&x, &positions, 6, &frequencies).unwrap();
        assert!(row(&turned, 3333) == numbers(&rope(&one, &[3333], 6, &frequencies).unwrap()));
        let gated = swiglu(&x, &normed).unwrap();
        assert!(row(&gated, 3333) == numbers(&swiglu(&one, &normed.narrow(0, 3333, 1).unwrap()).unwrap()));
    }
}
