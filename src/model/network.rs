//! The network over flat rows: embedding, decoder layers, final norm and head, for every
//! architecture in [`Config`]. How rows mix with each other is the caller's: generation brings a slot
//! cache, training and parity checks whole sequences with a backward.

use super::config::Config;
use super::delta::Delta;
use super::linear::FrozenLinear;
use super::lora::{Lora, RowAdapters, Target};
use super::ops;
use crate::error::{Error, Result};
use candle_core::{D, Device, Tensor};
use std::sync::Arc;

/// A batch of rows: one token each, from any number of sequences, in any order that the
/// caller's [`Mix`] understands.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Token id of each row.
    pub tokens: &'a [u32],
    /// Position of each row in its own sequence, from 0.
    pub positions: &'a [u32],
    /// Adapter of each row: an index into the list given to `forward`, or none for the base model.
    pub adapters: &'a [Option<usize>],
}

/// How the rows of a sequence mix.
pub trait Mix {
    /// `q: [rows, heads * head_dim]`, `k, v: [rows, kv_heads * head_dim]`, rope already applied to
    /// `q` and `k`. Returns `[rows, heads * head_dim]`. Scores are scaled by `head_dim^-0.5`.
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor>;

    /// The gated delta rule: `x: [rows, channels]`, `steps: [rows, 2 * value_heads]`. Returns
    /// `[rows, value_heads * value_dim]`.
    fn recur(&mut self, layer: usize, delta: &Arc<Delta>, x: &Tensor, steps: &Tensor) -> Result<Tensor>;
}

/// What mixes the rows of a layer.
pub(super) enum Mixer {
    /// Causal attention, with the norms of a head's queries and keys where there are any.
    Attention { norms: Option<[Arc<ops::RmsNorm>; 2]> },
    /// The gated delta rule, with the norm of a head's output.
    Delta { delta: Arc<Delta>, norm: Arc<ops::RmsNorm> },
}

/// Weights of one decoder layer.
pub(super) struct Layer {
    pub(super) input_norm: Arc<ops::RmsNorm>,
    pub(super) post_norm: Arc<ops::RmsNorm>,
    pub(super) mixer: Mixer,
    /// In the order of [`Target::ALL`]; absent where the layer has no such matrix.
    pub(super) linears: [Option<FrozenLinear>; Target::ALL.len()],
}

impl Layer {
    fn linear(&self, target: Target) -> Result<&FrozenLinear> {
        self.linears[target as usize]
            .as_ref()
            .ok_or_else(|| Error::invalid(format!("the layer has no `{}`", target.path())))
    }
}

/// A network with frozen f32 weights.
pub struct Network {
    pub(super) config: Config,
    /// `[vocab, hidden]`.
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<Layer>,
    pub(super) final_norm: Arc<ops::RmsNorm>,
    pub(super) head: FrozenLinear,
    /// Inverse frequencies of rope, `[rotary_dim / 2]`.
    pub(super) inverse_frequencies: Arc<[f32]>,
}

impl Network {
    /// Dimensions and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Embeddings `[rows, hidden]`, a plain tensor without a gradient. Errors on an id outside the vocabulary.
    pub fn embed(&self, tokens: &[u32]) -> Result<Tensor> {
        self.config.check_tokens(tokens)?;
        let ids = Tensor::from_slice(tokens, tokens.len(), &Device::Cpu)?;
        Ok(self.embedding.index_select(&ids, 0)?)
    }

    /// Decoder layer `index` on hidden states `x: [rows, hidden]`. Differentiable in `x` and in the
    /// adapters' parameters (when `mix` is); frozen weights get no gradient.
    pub fn layer(
        &self,
        index: usize,
        x: &Tensor,
        positions: &[u32],
        adapters: &RowAdapters,
        mix: &mut dyn Mix,
    ) -> Result<Tensor> {
        let layer = self.layers.get(index).ok_or_else(|| {
            Error::invalid(format!("layer {index} does not exist: the model has {}", self.layers.len()))
        })?;
        let project = |target: Target, x: &Tensor| -> Result<Tensor> {
            let y = layer.linear(target)?.forward(x)?;
            adapters.apply(index, target, x, y)
        };
        let normed = ops::rms_norm(x, &layer.input_norm)?;
        let mixed = match &layer.mixer {
            Mixer::Attention { norms } => {
                let turn = |x: Tensor, norm: Option<&Arc<ops::RmsNorm>>| -> Result<Tensor> {
                    let x = match norm {
                        Some(norm) => each_head(&x, norm)?,
                        None => x,
                    };
                    Ok(ops::rope(&x, positions, self.config.head_dim, &self.inverse_frequencies)?)
                };
                let (q, gate) = self.queries(project(Target::Q, &normed)?)?;
                let q = turn(q, norms.as_ref().map(|[q, _]| q))?;
                let k = turn(project(Target::K, &normed)?, norms.as_ref().map(|[_, k]| k))?;
                let mixed = mix.attend(index, &q, &k, &project(Target::V, &normed)?)?;
                let mixed = match gate {
                    Some(gate) => ops::sigmoid_gate(&mixed, &gate)?,
                    None => mixed,
                };
                project(Target::O, &mixed)?
            }
            Mixer::Delta { delta, norm } => {
                let steps = [project(Target::DeltaShare, &normed)?, project(Target::DeltaStep, &normed)?];
                let steps = Tensor::cat(&steps, 1)?;
                let mixed = mix.recur(index, delta, &project(Target::DeltaQkv, &normed)?, &steps)?;
                let gated = ops::swiglu(&project(Target::DeltaGate, &normed)?, &each_head(&mixed, norm)?)?;
                project(Target::DeltaOut, &gated)?
            }
        };
        let x = (x + mixed)?;

        let normed = ops::rms_norm(&x, &layer.post_norm)?;
        let gate = project(Target::Gate, &normed)?;
        let up = project(Target::Up, &normed)?;
        let inner = ops::swiglu(&gate, &up)?;
        Ok((x + project(Target::Down, &inner)?)?)
    }

    /// The query projection's output as queries and, where the network gates attention, gates: a head's
    /// gate follows its queries.
    fn queries(&self, projected: Tensor) -> Result<(Tensor, Option<Tensor>)> {
        if !self.config.gates_attention() {
            return Ok((projected, None));
        }
        let Config { heads, head_dim, .. } = self.config;
        let rows = projected.dim(0)?;
        let pairs = projected.reshape((rows, heads, 2 * head_dim))?;
        let part = |from: usize| -> Result<Tensor> {
            Ok(pairs.narrow(D::Minus1, from, head_dim)?.reshape((rows, heads * head_dim))?)
        };
        Ok((part(0)?, Some(part(head_dim)?)))
    }

    /// Final norm of hidden states `[rows, hidden]`; differentiable in `x`.
    pub fn final_norm(&self, x: &Tensor) -> Result<Tensor> {
        Ok(ops::rms_norm(x, &self.final_norm)?)
    }

    /// Logits `[rows, vocab]` of final hidden states `[rows, hidden]`; differentiable in `hidden`.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    /// The output head, for a loss that walks the vocabulary itself.
    pub fn head(&self) -> &FrozenLinear {
        &self.head
    }

    /// The frozen matrix of a target in a layer, if both exist.
    pub fn linear(&self, layer: usize, target: Target) -> Option<&FrozenLinear> {
        self.layers.get(layer)?.linears[target as usize].as_ref()
    }

    /// Hidden states `[rows, hidden]` after the final norm. `loras` is what `rows.adapters` indexes.
    pub fn forward(&self, rows: &Rows, loras: &[&Lora], mix: &mut dyn Mix) -> Result<Tensor> {
        if rows.positions.len() != rows.tokens.len() || rows.adapters.len() != rows.tokens.len() {
            return Err(Error::invalid(format!(
                "{} tokens, {} positions and {} adapter choices are not one batch of rows",
                rows.tokens.len(),
                rows.positions.len(),
                rows.adapters.len()
            )));
        }
        let adapters = RowAdapters::new(rows.adapters, loras)?;
        let mut x = self.embed(rows.tokens)?;
        for index in 0..self.layers.len() {
            x = self.layer(index, &x, rows.positions, &adapters, mix)?;
        }
        self.final_norm(&x)
    }
}

/// A norm over each head of rows `[rows, heads * head_dim]`.
fn each_head(x: &Tensor, norm: &Arc<ops::RmsNorm>) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let head = norm.weight.len();
    Ok(ops::rms_norm(&x.reshape((rows * width / head, head))?, norm)?.reshape((rows, width))?)
}
