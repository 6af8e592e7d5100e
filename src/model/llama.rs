//! The Llama network over flat rows: embedding, decoder layers, final norm and head. How
//! rows attend to each other is the caller's: generation brings a slot cache, training and
//! parity checks a causal attention with a backward.

use super::config::Config;
use super::linear::FrozenLinear;
use super::lora::{Lora, RowAdapters, Target};
use super::ops;
use crate::error::{Error, Result};
use candle_core::{Device, Tensor};
use std::sync::Arc;

/// A batch of rows: one token each, from any number of sequences, in any order that the
/// caller's [`Attend`] understands.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Token id of each row.
    pub tokens: &'a [u32],
    /// Position of each row in its own sequence, from 0.
    pub positions: &'a [u32],
    /// Adapter of each row: an index into the list given to `forward`, or none for the base model.
    pub adapters: &'a [Option<usize>],
}

/// How rows attend.
pub trait Attend {
    /// `q: [rows, heads * head_dim]`, `k, v: [rows, kv_heads * head_dim]`, rope already applied to
    /// `q` and `k`. Returns `[rows, heads * head_dim]`. Scores are scaled by `head_dim^-0.5`.
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor>;
}

/// Weights of one decoder layer.
pub(super) struct Layer {
    pub(super) input_norm: Arc<ops::RmsNorm>,
    pub(super) post_norm: Arc<ops::RmsNorm>,
    /// In the order of [`Target::ALL`].
    pub(super) linears: [FrozenLinear; 7],
}

/// A Llama network with frozen f32 weights.
pub struct Llama {
    pub(super) config: Config,
    /// `[vocab, hidden]`.
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<Layer>,
    pub(super) final_norm: Arc<ops::RmsNorm>,
    pub(super) head: FrozenLinear,
    /// Inverse frequencies of rope, `[head_dim / 2]`.
    pub(super) inverse_frequencies: Arc<[f32]>,
}

impl Llama {
    /// Dimensions and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Embeddings `[rows, hidden]`, a plain tensor without a gradient. Errors on an id outside the vocabulary.
    pub fn embed(&self, tokens: &[u32]) -> Result<Tensor> {
        if let Some(bad) = tokens.iter().find(|t| **t as usize >= self.config.vocab) {
            return Err(Error::invalid(format!(
                "token id {bad} is outside the vocabulary of {}",
                self.config.vocab
            )));
        }
        let ids = Tensor::from_slice(tokens, tokens.len(), &Device::Cpu)?;
        Ok(self.embedding.index_select(&ids, 0)?)
    }

    /// Decoder layer `index` on hidden states `x: [rows, hidden]`. Differentiable in `x` and in the
    /// adapters' parameters (when `attend` is); frozen weights get no gradient.
    pub fn layer(
        &self,
        index: usize,
        x: &Tensor,
        positions: &[u32],
        adapters: &RowAdapters,
        attend: &mut dyn Attend,
    ) -> Result<Tensor> {
        let layer = self.layers.get(index).ok_or_else(|| {
            Error::invalid(format!("layer {index} does not exist: the model has {}", self.layers.len()))
        })?;
        let project = |target: Target, x: &Tensor| -> Result<Tensor> {
            let y = layer.linears[target as usize].forward(x)?;
            adapters.apply(index, target, x, y)
        };
        let rope = |x: &Tensor| ops::rope(x, positions, self.config.head_dim, &self.inverse_frequencies);

        let normed = ops::rms_norm(x, &layer.input_norm)?;
        let q = rope(&project(Target::Q, &normed)?)?;
        let k = rope(&project(Target::K, &normed)?)?;
        let v = project(Target::V, &normed)?;
        let mixed = attend.attend(index, &q, &k, &v)?;
        let x = (x + project(Target::O, &mixed)?)?;

        let normed = ops::rms_norm(&x, &layer.post_norm)?;
        let gate = project(Target::Gate, &normed)?;
        let up = project(Target::Up, &normed)?;
        let inner = ops::swiglu(&gate, &up)?;
        Ok((x + project(Target::Down, &inner)?)?)
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
        self.layers.get(layer).map(|l| &l.linears[target as usize])
    }

    /// Hidden states `[rows, hidden]` after the final norm. `loras` is what `rows.adapters` indexes.
    pub fn forward(&self, rows: &Rows, loras: &[&Lora], attend: &mut dyn Attend) -> Result<Tensor> {
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
            x = self.layer(index, &x, rows.positions, &adapters, attend)?;
        }
        self.final_norm(&x)
    }
}
