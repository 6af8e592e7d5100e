//! Weights on the card, placed as the product kernels read them: tiles of 16 outputs, the inner
//! dimension rounded up to 64 with zeros, and matrices that share their input laid end to end
//! (gates and the values that they gate in turn, eight outputs each).

use super::compile::Kernels;
use super::gpu::{Arg, Buffer, Gpu};
use super::{MOST_SHARES, Precision};
use crate::error::{Error, Result};
use crate::model::config::Config;
use crate::model::load::Numbers;
use crate::model::lora::Target;
use half::bf16;
use rayon::prelude::*;
use std::sync::Arc;

/// Outputs of a tile.
const TILE: usize = 16;

/// Inner indices that a warp takes at a time.
const BLOCK: usize = 64;

/// Outputs are rounded up to this: eight tiles, the most that a block takes.
const ROWS: usize = 128;

/// Warps that keep the card's memory busy: 16 on each of 132 multiprocessors.
const WANTED_WARPS: usize = 2112;

/// A matrix, or several that share their input.
pub struct Matrix {
    /// `[outputs rounded up, inner rounded up]`.
    pub weights: Arc<Buffer>,
    /// Which of `targets` each output belongs to.
    pub part: Buffer,
    /// The matrices in it and the number of outputs of each.
    pub targets: Vec<(Target, usize)>,
    /// Outputs, those that round up a gated matrix included.
    pub outputs: usize,
    /// Length of a row.
    pub inner: usize,
    /// Blocks of inner indices.
    pub blocks: usize,
    /// Parts of an output's sum. A function of the matrix alone, because it fixes the order of that sum.
    pub shares: usize,
    /// Whether gates and values take turns.
    pub gated: bool,
}

/// What a layer mixes with.
pub enum Mixer {
    /// Attention; the norms of a head's queries and keys, where there are any.
    Attention {
        /// `[head_dim]` each.
        norms: Option<[Buffer; 2]>,
    },
    /// The gated delta rule.
    Delta {
        /// `[taps, channels]`.
        convolution: Buffer,
        /// `-exp(A_log)`, `[value_heads]`.
        decay: Buffer,
        /// `[value_heads]`.
        step_bias: Buffer,
        /// `[value_dim]`.
        norm: Buffer,
    },
}

/// A decoder layer.
pub struct Layer {
    /// `[hidden]`.
    pub input_norm: Buffer,
    /// `[hidden]`.
    pub post_norm: Buffer,
    /// The matrices in the order of [`Site`].
    pub matrices: [Matrix; 4],
    /// What mixes its rows.
    pub mixer: Mixer,
}

/// A place where a layer multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// From the normed residual into the mixer.
    Input = 0,
    /// From the mixer to the residual.
    Output = 1,
    /// Gate and up.
    GateUp = 2,
    /// Down.
    Down = 3,
}

impl Site {
    /// All sites, in the order of their discriminants.
    pub const ALL: [Site; 4] = [Site::Input, Site::Output, Site::GateUp, Site::Down];

    /// The matrices that this site of a layer multiplies by.
    pub fn targets(self, config: &Config, layer: usize) -> Vec<Target> {
        use Target::*;
        match (self, config.is_delta(layer)) {
            (Site::Input, false) => vec![Q, K, V],
            (Site::Input, true) => vec![DeltaQkv, DeltaGate, DeltaShare, DeltaStep],
            (Site::Output, false) => vec![O],
            (Site::Output, true) => vec![DeltaOut],
            (Site::GateUp, _) => vec![Gate, Up],
            (Site::Down, _) => vec![Down],
        }
    }
}

/// All weights of a network.
pub struct Weights {
    /// `[vocab, hidden]`, and the head where they are tied.
    pub embedding: Matrix,
    /// The head, where it has weights of its own.
    pub head: Option<Matrix>,
    /// `[hidden]`.
    pub final_norm: Buffer,
    /// Inverse frequencies of rope.
    pub frequencies: Buffer,
    /// Decoder layers.
    pub layers: Vec<Layer>,
}

/// Puts numbers on the card.
pub struct Loader<'a> {
    /// The card.
    pub gpu: &'a Gpu,
    /// For numbers that are made there.
    pub kernels: &'a Kernels,
    /// Type of the weights.
    pub precision: Precision,
    /// Dimensions.
    pub config: &'a Config,
    /// A tensor by its name in checkpoints and its number of elements.
    pub numbers: &'a mut dyn FnMut(&str, usize) -> Result<Numbers>,
}

impl Loader<'_> {
    /// Everything; each tensor is asked for once.
    pub fn all(&mut self) -> Result<Weights> {
        let config = self.config;
        let (vocab, hidden) = (config.vocab, config.hidden);
        let embedding = self.table("model.embed_tokens.weight", vocab, hidden)?;
        let layers = (0..config.layers).map(|layer| self.layer(layer)).collect::<Result<_>>()?;
        let final_norm = self.norm("model.norm.weight", hidden)?;
        let head = match config.tied {
            true => None,
            false => Some(self.table("lm_head.weight", vocab, hidden)?),
        };
        let frequencies = self.gpu.upload(&config.inverse_frequencies())?;
        Ok(Weights { embedding, head, final_norm, frequencies, layers })
    }

    fn take(&mut self, name: &str, count: usize) -> Result<Vec<f32>> {
        (self.numbers)(name, count)?.into_vec(name, count)
    }

    /// A small vector in f32, each number changed by `f`.
    fn vector(&mut self, name: &str, count: usize, f: impl Fn(f32) -> f32) -> Result<Buffer> {
        let numbers: Vec<f32> = self.take(name, count)?.into_iter().map(f).collect();
        self.gpu.upload(&numbers)
    }

    fn norm(&mut self, name: &str, count: usize) -> Result<Buffer> {
        let offset = self.config.norm_offset();
        self.vector(name, count, |w| w + offset)
    }

    fn layer(&mut self, layer: usize) -> Result<Layer> {
        let config = self.config;
        let prefix = format!("model.layers.{layer}");
        let input_norm = self.norm(&format!("{prefix}.input_layernorm.weight"), config.hidden)?;
        let post_norm = self.norm(&format!("{prefix}.post_attention_layernorm.weight"), config.hidden)?;
        let mut matrices = Vec::new();
        for site in Site::ALL {
            matrices.push(self.site(layer, site)?);
        }
        let matrices = <[Matrix; 4]>::try_from(matrices)
            .map_err(|_| Error::invalid("a layer has four matrices on the card"))?;
        let mixer = match config.delta.as_ref().filter(|_| config.is_delta(layer)) {
            Some(delta) => {
                let stem = format!("{prefix}.linear_attn");
                let (channels, heads, taps) = (delta.channels(), delta.shape.value_heads, delta.taps);
                let by_channel = self.take(&format!("{stem}.conv1d.weight"), channels * taps)?;
                let by_tap: Vec<f32> =
                    (0..taps * channels).map(|i| by_channel[i % channels * taps + i / channels]).collect();
                Mixer::Delta {
                    convolution: self.gpu.upload(&by_tap)?,
                    decay: self.vector(&format!("{stem}.A_log"), heads, |a| -a.exp())?,
                    step_bias: self.vector(&format!("{stem}.dt_bias"), heads, |b| b)?,
                    norm: self.vector(&format!("{stem}.norm.weight"), delta.shape.value_dim, |w| w)?,
                }
            }
            None if config.normalises_heads() => {
                let mut head =
                    |name| self.norm(&format!("{prefix}.self_attn.{name}.weight"), config.head_dim);
                Mixer::Attention { norms: Some([head("q_norm")?, head("k_norm")?]) }
            }
            None => Mixer::Attention { norms: None },
        };
        Ok(Layer { input_norm, post_norm, matrices, mixer })
    }

    fn site(&mut self, layer: usize, site: Site) -> Result<Matrix> {
        let config = self.config;
        let targets: Vec<(Target, usize)> =
            site.targets(config, layer).into_iter().map(|t| (t, t.shape(config).0)).collect();
        let inner = targets[0].0.shape(config).1;
        let mut numbers = Vec::new();
        for (target, outputs) in &targets {
            let name = format!("model.layers.{layer}.{}.weight", target.path());
            numbers.push(((self.numbers)(&name, outputs * inner)?, name));
        }
        self.matrix(targets, numbers, inner, site == Site::GateUp)
    }

    fn table(&mut self, name: &str, outputs: usize, inner: usize) -> Result<Matrix> {
        let numbers = (self.numbers)(name, outputs * inner)?;
        let mut table = self.matrix(Vec::new(), vec![(numbers, name.to_owned())], inner, false)?;
        table.outputs = outputs;
        Ok(table)
    }

    fn matrix(
        &self,
        targets: Vec<(Target, usize)>,
        numbers: Vec<(Numbers, String)>,
        inner: usize,
        gated: bool,
    ) -> Result<Matrix> {
        let counted: usize = targets.iter().map(|(_, n)| n).sum();
        let outputs = if gated { 2 * (counted / 2).next_multiple_of(8) } else { counted };
        let rows = match targets.is_empty() {
            true => self.config.vocab,
            false => outputs,
        };
        let (padded, stride) = (rows.next_multiple_of(ROWS), inner.next_multiple_of(BLOCK));
        let size = self.precision.bytes();
        let uniform = numbers.iter().find_map(|(n, _)| match n {
            Numbers::Uniform { seed, bound } => Some((*seed, *bound)),
            Numbers::Given(_) => None,
        });
        let weights = match uniform {
            Some((seed, bound)) => {
                let buffer = self.gpu.zeros(padded * stride * size)?;
                let count = (padded * stride) as u64;
                let args = [(&buffer).into(), Arg::Long(count), Arg::Long(seed), Arg::Float(bound)];
                self.gpu.launch(&self.kernels.get("fill")?, [2048, 1, 1], [256, 1], 0, &args)?;
                buffer
            }
            None => {
                let mut staged = vec![0u8; padded * stride * size];
                let mut first = 0;
                for (part, (numbers, name)) in numbers.into_iter().enumerate() {
                    let count = targets.get(part).map_or(rows, |(_, n)| *n);
                    let numbers = numbers.into_vec(&name, count * inner)?;
                    let output =
                        |row: usize| if gated { row / 8 * 16 + part * 8 + row % 8 } else { first + row };
                    let outputs: Vec<usize> = (0..count).map(output).collect();
                    self.stage(&mut staged, &numbers, inner, stride, &outputs);
                    first += count;
                }
                self.gpu.upload(&staged)?
            }
        };
        let part = parts(&targets, padded, gated);
        let blocks = stride / BLOCK;
        Ok(Matrix {
            weights: Arc::new(weights),
            part: self.gpu.upload(&part)?,
            targets,
            outputs,
            inner,
            blocks,
            shares: shares(rows.div_ceil(16), blocks),
            gated,
        })
    }

    /// Converts rows of `inner` numbers into the staged image of a matrix, row i as output `outputs[i]`.
    fn stage(&self, staged: &mut [u8], numbers: &[f32], inner: usize, stride: usize, outputs: &[usize]) {
        let (precision, size) = (self.precision, self.precision.bytes());
        // The image is handed out a tile at a time; outputs rise.
        let tiles = staged.par_chunks_exact_mut(TILE * stride * size).enumerate();
        tiles.for_each(|(tile, image)| {
            let from = outputs.partition_point(|output| *output < tile * TILE);
            let to = outputs.partition_point(|output| *output < (tile + 1) * TILE);
            for row in from..to {
                let line = &numbers[row * inner..][..inner];
                let output = outputs[row] % TILE;
                match precision {
                    Precision::F32 => {
                        let bytes = image[output * stride * size..].chunks_exact_mut(size);
                        bytes.zip(line).for_each(|(bytes, x)| bytes.copy_from_slice(&x.to_le_bytes()));
                    }
                    Precision::Bf16 => {
                        for (chunk, numbers) in line.chunks(8).enumerate() {
                            let place = chunk_place(output, chunk) * 8 * size;
                            let bytes = image[place..].chunks_exact_mut(size);
                            bytes.zip(numbers).for_each(|(bytes, x)| {
                                bytes.copy_from_slice(&bf16::from_f32(*x).to_le_bytes());
                            });
                        }
                    }
                }
            }
        });
    }
}

/// Where the eighth `chunk` of an output lies in its tile, in eighths: as `weight_place` of `common.cu` says.
fn chunk_place(output: usize, chunk: usize) -> usize {
    let (block, chunk) = (chunk / 8, chunk % 8);
    ((block * 4 + chunk / 4 * 2 + output / 8) * 32) + output % 8 * 4 + chunk % 4
}

/// Which target each output belongs to.
fn parts(targets: &[(Target, usize)], padded: usize, gated: bool) -> Vec<u8> {
    if gated {
        return (0..padded).map(|row| (row % 16 / 8) as u8).collect();
    }
    let mut parts = Vec::with_capacity(padded);
    for (part, (_, count)) in targets.iter().enumerate() {
        parts.resize(parts.len() + count, part as u8);
    }
    parts.resize(padded, 0);
    parts
}

/// How many parts an output's sum has: enough warps in all to keep memory busy, none of them idle.
fn shares(tiles: usize, blocks: usize) -> usize {
    let wanted = WANTED_WARPS.div_ceil(tiles).min(blocks).clamp(1, MOST_SHARES);
    blocks.div_ceil(blocks.div_ceil(wanted))
}
