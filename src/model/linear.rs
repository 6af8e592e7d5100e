//! A frozen linear map as one custom operation: it holds its weight inside, so that autograd
//! hands a gradient to its input and never makes one for the weight.

use super::kernel::{self, Packed};
use super::ops::slice;
use crate::error::Result;
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Shape, Tensor};
use std::sync::{Arc, OnceLock};

/// A frozen matrix `[out, in]`, applied to rows.
#[derive(Clone)]
pub struct FrozenLinear(Arc<Weights>);

struct Weights {
    /// Packed for `x W^T`.
    forward: Packed,
    /// Packed for `grad W`; made at the first backward pass, so that inference never pays for it.
    backward: OnceLock<Packed>,
}

impl FrozenLinear {
    /// Takes over a weight of `out * input` numbers, row-major `[out, in]`.
    pub fn new(weight: &[f32], out: usize, input: usize) -> Self {
        assert_eq!(weight.len(), out * input, "a weight has as many numbers as its shape says");
        FrozenLinear(Arc::new(Weights {
            forward: Packed::from_rows(weight, out, input),
            backward: OnceLock::new(),
        }))
    }

    /// Shape `(out, in)`.
    pub fn shape(&self) -> (usize, usize) {
        (self.0.forward.columns(), self.0.forward.inner())
    }

    /// The weight as a plain tensor `[out, in]` (a copy, bit for bit what was given).
    pub fn weight(&self) -> Result<Tensor> {
        Ok(Tensor::from_vec(self.0.forward.to_rows(), self.shape(), &Device::Cpu)?)
    }

    /// `x: [rows, in]` to `[rows, out]`; a row's result is the same whatever the other rows are.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.contiguous()?.apply_op1(Forward(self.0.clone()))?)
    }

    /// The gradient of the input, `[rows, in]`, from that of the output, `[rows, out]`.
    pub fn backward(&self, gradient: &Tensor) -> Result<Tensor> {
        Ok(gradient.contiguous()?.apply_op1_no_bwd(&Backward(self.0.clone()))?)
    }
}

impl Weights {
    fn transposed(&self) -> &Packed {
        self.backward.get_or_init(|| self.forward.transposed())
    }
}

struct Forward(Arc<Weights>);
struct Backward(Arc<Weights>);

impl CustomOp1 for Forward {
    fn name(&self) -> &'static str {
        "frozen-linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        product(x, layout, &self.0.forward)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some(gradient.contiguous()?.apply_op1_no_bwd(&Backward(self.0.clone()))?))
    }
}

impl CustomOp1 for Backward {
    fn name(&self) -> &'static str {
        "frozen-linear-backward"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        product(x, layout, self.0.transposed())
    }
}

fn product(x: &CpuStorage, layout: &Layout, w: &Packed) -> candle_core::Result<(CpuStorage, Shape)> {
    let (rows, input) = layout.shape().dims2()?;
    if input != w.inner() {
        candle_core::bail!("rows of {input} numbers do not fit a matrix with {} inputs", w.inner());
    }
    let out = kernel::multiply(slice(x, layout)?, rows, w);
    Ok((CpuStorage::F32(out), (rows, w.columns()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{distance, normal, numbers};
    use candle_core::Var;

    #[test]
    fn agrees_with_a_plain_product_forward_and_backward() {
        let (rows, out, input) = (5, 40, 30);
        let (w, g) = (normal("w", out, input), normal("g", rows, out));
        let linear = FrozenLinear::new(&numbers(&w), out, input);
        let x = Var::from_tensor(&normal("x", rows, input)).unwrap();
        let ours = linear.forward(&x).unwrap();
        let plain = x.matmul(&w.t().unwrap()).unwrap();
        assert!(distance(&ours, &plain) < 1e-5);
        let gradient = |y: &Tensor| (y * &g).unwrap().sum_all().unwrap().backward().unwrap().get(&x).unwrap().clone();
        assert!(distance(&gradient(&ours), &gradient(&plain)) < 1e-5);
        assert!(distance(&linear.backward(&g).unwrap(), &gradient(&plain)) < 1e-5);
    }

    #[test]
    fn keeps_its_weight_to_the_bit() {
        let w = normal("w", 33, 65);
        let linear = FrozenLinear::new(&numbers(&w), 33, 65);
        assert_eq!(linear.shape(), (33, 65));
        assert!(numbers(&linear.weight().unwrap()) == numbers(&w));
    }

    #[test]
    fn refuses_rows_of_another_width() {
        let linear = FrozenLinear::new(&[1.0; 6], 2, 3);
        assert!(linear.forward(&normal("x", 4, 5)).is_err());
    }
}
