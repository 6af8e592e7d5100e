//! AdamW with its state in the open, so that a run can be saved and continued bit for bit,
//! and the global norm of gradients.
//!
//! Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in the
//! order of operations of `torch.optim.AdamW`.

use super::settings::Settings;
use candle_core::{Result, Tensor, Var};

/// The optimiser of a fixed list of f32 parameters.
#[derive(Debug)]
pub(super) struct AdamW {
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    /// Updates done so far.
    pub updates: usize,
    /// First and second moment of each parameter, each of the parameter's shape.
    pub moments: Vec<[Tensor; 2]>,
}

impl AdamW {
    /// No updates yet, all moments 0.
    pub fn new(parameters: &[Var], settings: &Settings) -> Result<Self> {
        let moments =
            parameters.iter().map(|p| Ok([p.zeros_like()?, p.zeros_like()?])).collect::<Result<_>>()?;
        let Settings { betas, eps, weight_decay, .. } = *settings;
        Ok(AdamW { betas, eps, weight_decay, updates: 0, moments })
    }

    /// One update of all `parameters`, in the order they were given to `new`.
    pub fn step(&mut self, parameters: &[Var], gradients: &[Tensor], learning_rate: f64) -> Result<()> {
        self.updates += 1;
        let [beta1, beta2] = self.betas;
        let correction = |beta: f64| 1.0 - beta.powf(self.updates as f64);
        let step_size = learning_rate / correction(beta1);
        let root = correction(beta2).sqrt();
        for ((parameter, gradient), [first, second]) in
            parameters.iter().zip(gradients).zip(&mut self.moments)
        {
            *first = (first.affine(beta1, 0.0)? + gradient.affine(1.0 - beta1, 0.0)?)?;
            *second = (second.affine(beta2, 0.0)? + gradient.sqr()?.affine(1.0 - beta2, 0.0)?)?;
            let change = first.affine(step_size, 0.0)?.div(&second.sqrt()?.affine(1.0 / root, self.eps)?)?;
            let decayed = parameter.detach().affine(1.0 - learning_rate * self.weight_decay, 0.0)?;
            parameter.set(&(decayed - change)?)?;
        }
        Ok(())
    }
}

/// The Euclidean norm of all gradients taken as one vector, summed in f64.
pub(super) fn global_norm(gradients: &[Tensor]) -> Result<f64> {
    let squares = gradients.iter().map(|g| g.sqr()?.sum_all()).collect::<Result<Vec<_>>>()?;
    let squares = Tensor::stack(&squares, 0)?.to_vec1::<f32>()?;
    Ok(squares.iter().map(|s| f64::from(*s)).sum::<f64>().sqrt())
}

/// Scales `gradients` of global norm `norm` down to `limit`, if they exceed it.
pub(super) fn clip(gradients: &mut [Tensor], norm: f64, limit: f64) -> Result<()> {
    if norm > limit {
        for gradient in gradients {
            *gradient = gradient.affine(limit / norm, 0.0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    /// The published update rule on one number, in f64.
    fn reference(mut p: f64, gradients: &[f64], s: &Settings) -> f64 {
        let (mut m, mut v) = (0.0, 0.0);
        for (i, g) in gradients.iter().enumerate() {
            let t = i as i32 + 1;
            m = s.betas[0] * m + (1.0 - s.betas[0]) * g;
            v = s.betas[1] * v + (1.0 - s.betas[1]) * g * g;
            let (m_hat, v_hat) = (m / (1.0 - s.betas[0].powi(t)), v / (1.0 - s.betas[1].powi(t)));
            p -= s.learning_rate * s.weight_decay * p;
            p -= s.learning_rate * m_hat / (v_hat.sqrt() + s.eps);
        }
        p
    }

    #[test]
    fn follows_the_published_rule() {
        let settings = Settings {
            learning_rate: 0.01,
            weight_decay: 0.1,
            eps: 1e-3,
            betas: [0.8, 0.95],
            ..Settings::default()
        };
        let start = [0.5f32, -2.0, 3.0];
        let gradients = [[0.3f32, -1.0, 1e-4], [0.1, 2.0, -1e-4], [-0.7, 0.5, 0.0]];
        let p = Var::new(&start, &Device::Cpu).unwrap();
        let mut adam = AdamW::new(std::slice::from_ref(&p), &settings).unwrap();
        for g in &gradients {
            let g = Tensor::new(g, &Device::Cpu).unwrap();
            adam.step(std::slice::from_ref(&p), &[g], settings.learning_rate).unwrap();
        }
        for (i, got) in p.to_vec1::<f32>().unwrap().into_iter().enumerate() {
            let column: Vec<f64> = gradients.iter().map(|g| f64::from(g[i])).collect();
            let expected = reference(f64::from(start[i]), &column, &settings);
            assert!((f64::from(got) - expected).abs() < 1e-6, "{i}: {got} is not {expected}");
        }
    }

    #[test]
    fn the_norm_spans_all_tensors_and_clipping_only_shrinks() {
        let mut g = vec![
            Tensor::new(&[3f32, 0.0], &Device::Cpu).unwrap(),
            Tensor::new(&[4f32], &Device::Cpu).unwrap(),
        ];
        assert_eq!(global_norm(&g).unwrap(), 5.0);
        clip(&mut g, 5.0, 10.0).unwrap();
        assert_eq!(global_norm(&g).unwrap(), 5.0);
        clip(&mut g, 5.0, 1.0).unwrap();
        assert!((global_norm(&g).unwrap() - 1.0).abs() < 1e-6);
    }
}
