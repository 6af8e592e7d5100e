//! Linear maps as custom operations. A frozen one holds its weight inside, so that autograd
//! hands a gradient to its input and never makes one for the weight; a trained one, for LoRA,
//! gives both. A row's result is independent of the other rows.

use super::kernel::{self, Packed};
use super::ops::slice;
use crate::error::Result;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Device, Layout, Shape, Tensor};
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

/// A product of two matrices that may both be trained, in the three forms that it and its gradients need.
#[derive(Clone, Copy)]
enum Product {
    /// `a: [rows, inner]`, `b: [columns, inner]`: `a b^T`.
    Transposed,
    /// `a: [rows, inner]`, `b: [inner, columns]`: `a b`.
    Plain,
    /// `a: [inner, rows]`, `b: [inner, columns]`: `a^T b`.
    OverRows,
}

/// `x W^T` for `x: [rows, in]` and a small `w: [out, in]` that may be trained: `[rows, out]`.
/// A row's result is independent of the other rows; differentiable in both.
pub fn rows_times(x: &Tensor, w: &Tensor) -> candle_core::Result<Tensor> {
    x.contiguous()?.apply_op2(&w.contiguous()?, Product::Transposed)
}

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "rows-times"
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        la: &Layout,
        b: &CpuStorage,
        lb: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (shape_a, shape_b) = (la.shape().dims2()?, lb.shape().dims2()?);
        let (a, b) = (slice(a, la)?, slice(b, lb)?);
        let ((rows, inner), (inner_b, columns)) = match self {
            Product::Transposed => (shape_a, (shape_b.1, shape_b.0)),
            Product::Plain => (shape_a, shape_b),
            Product::OverRows => ((shape_a.1, shape_a.0), shape_b),
        };
        if inner != inner_b {
            candle_core::bail!("{shape_a:?} and {shape_b:?} do not fit together");
        }
        let packed = match self {
            Product::Transposed => Packed::from_rows(b, columns, inner),
            Product::Plain | Product::OverRows => Packed::from_columns(b, inner, columns),
        };
        let product = if let Product::OverRows = self {
            let mut turned = vec![0.0; a.len()];
            kernel::transpose(a, rows, &mut turned);
            kernel::multiply(&turned, rows, &packed)
        } else {
            kernel::multiply(a, rows, &packed)
        };
        Ok((CpuStorage::F32(product), (rows, columns).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>)> {
        if !matches!(self, Product::Transposed) {
            return Err(candle_core::Error::BackwardNotSupported { op: self.name() });
        }
        let gradient = gradient.contiguous()?;
        let of_x = gradient.apply_op2_no_bwd(w, &Product::Plain)?;
        let of_w = gradient.apply_op2_no_bwd(x, &Product::OverRows)?;
        Ok((Some(of_x), Some(of_w)))
    }
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
        let gradient =
            |y: &Tensor| (y * &g).unwrap().sum_all().unwrap().backward().unwrap().get(&x).unwrap().clone();
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

    #[test]
    fn rows_times_agrees_with_a_plain_product() {
        let x = Var::from_tensor(&normal("x", 9, 20)).unwrap();
        let w = Var::from_tensor(&normal("w", 4, 20)).unwrap();
        let g = normal("g", 9, 4);
        let ours = rows_times(&x, &w).unwrap();
        let plain = x.matmul(&w.t().unwrap()).unwrap();
        let gradient = |y: &Tensor, of: &Var| {
            (y * &g).unwrap().sum_all().unwrap().backward().unwrap().get(of).unwrap().clone()
        };
        assert!(distance(&ours, &plain) < 1e-5);
        for of in [&x, &w] {
            assert!(distance(&gradient(&ours, of), &gradient(&plain, of)) < 1e-5);
        }
    }
}
