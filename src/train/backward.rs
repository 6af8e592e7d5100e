//! Forward and backward through the network, one layer at a time: each layer is its own small
//! graph on a detached input, so that memory is bounded and autograd, which recurses over a
//! graph, never sees more than one layer (a 2 MiB stack is plenty).

use super::batch::Packed;
use super::loss::cross_entropy;
use crate::error::{Error, Result};
use crate::model::{Causal, Config, Lora, Network, RowAdapters};
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

/// Kept intermediate results of a micro-batch may take this many bytes before layers are
/// computed again instead.
const KEEP_AT_MOST: usize = 1 << 30;

/// Whether a micro-batch of `tokens` rows should compute its layers again in the backward pass.
pub(super) fn should_recompute(config: &Config, tokens: usize) -> bool {
    let attention = (config.heads + 2 * config.kv_heads) * config.head_dim;
    let floats_a_row = 10 * config.hidden + 8 * config.intermediate + 6 * attention;
    tokens * config.layers * floats_a_row * size_of::<f32>() > KEEP_AT_MOST
}

/// Gradients of an adapter's parameters, summed over the micro-batches of a step.
pub(super) struct Gradients<'a> {
    parameters: &'a [Var],
    sums: Vec<Option<Tensor>>,
}

impl<'a> Gradients<'a> {
    /// Nothing summed yet.
    pub fn new(parameters: &'a [Var]) -> Self {
        Gradients { parameters, sums: vec![None; parameters.len()] }
    }

    fn add(&mut self, mut store: GradStore) -> Result<()> {
        for (parameter, sum) in self.parameters.iter().zip(&mut self.sums) {
            if let Some(gradient) = store.remove(parameter) {
                *sum = Some(match sum.take() {
                    None => gradient,
                    Some(sum) => (sum + gradient)?,
                });
            }
        }
        Ok(())
    }

    /// One gradient a parameter, in their order. Errors when one was never reached: a break in
    /// the graph must not pass for a gradient of 0.
    pub fn finish(self, names: &[String]) -> Result<Vec<Tensor>> {
        let named = self.sums.into_iter().zip(names);
        named
            .map(|(sum, name)| sum.ok_or_else(|| Error::invalid(format!("no gradient reached `{name}`"))))
            .collect()
    }
}

/// The loss of a micro-batch under `lora`, whose variables' gradients are added to `gradients`.
/// With `recompute` only each layer's input is kept between the two passes.
pub(super) fn forward_backward(
    network: &Network,
    lora: &Lora,
    packed: &Packed,
    recompute: bool,
    gradients: &mut Gradients,
) -> Result<f64> {
    let config = network.config();
    let adapters = RowAdapters::all(lora);
    let layer = |index: usize, x: &Tensor| {
        let mut mix = Causal::new(config, &packed.lengths);
        network.layer(index, x, &packed.positions, &adapters, &mut mix)
    };

    let mut x = network.embed(&packed.tokens)?;
    let mut inputs = Vec::with_capacity(config.layers);
    let mut outputs = Vec::new();
    for index in 0..config.layers {
        let input = Var::from_tensor(&x)?;
        let output = layer(index, &input)?;
        x = output.detach();
        inputs.push(input);
        if !recompute {
            outputs.push(output);
        }
    }

    let (loss, mut gradient) = head_loss(network, &x, packed)?;
    for (index, input) in inputs.into_iter().enumerate().rev() {
        let output = match outputs.pop() {
            Some(kept) => kept,
            None => layer(index, &input)?,
        };
        let mut store = seeded_backward(&output, &gradient)?;
        gradient = take(&mut store, &input)?;
        gradients.add(store)?;
    }
    Ok(loss)
}

/// The loss on the last layer's output `x: [rows, hidden]`, and its gradient there. Only rows
/// whose next token has a weight go through the final norm and the head.
fn head_loss(network: &Network, x: &Tensor, packed: &Packed) -> Result<(f64, Tensor)> {
    let rows = Tensor::from_slice(&packed.loss_rows, packed.loss_rows.len(), x.device())?;
    let selected = Var::from_tensor(&x.index_select(&rows, 0)?)?;
    let hidden = network.final_norm(&selected)?;
    let (loss, gradient) = cross_entropy(network.head(), &hidden, &packed.targets, &packed.weights)?;
    let gradient = take(&mut seeded_backward(&hidden, &gradient)?, &selected)?;
    Ok((loss, x.zeros_like()?.index_add(&rows, &gradient, 0)?))
}

/// Backward from `output` with `gradient` as the gradient of the loss there. (Autograd starts
/// from a scalar, and the gradient of this dot product is `gradient`.)
fn seeded_backward(output: &Tensor, gradient: &Tensor) -> Result<GradStore> {
    Ok((output * gradient)?.sum_all()?.backward()?)
}

fn take(store: &mut GradStore, of: &Var) -> Result<Tensor> {
    store.remove(of).ok_or_else(|| Error::invalid("no gradient reached the input of a layer"))
}
