//! The forward pass on the card: which kernel runs with what, layer after layer. Six to eight
//! launches a layer, no allocation, nothing that depends on more than the number of rows, so
//! that a step can be recorded as a graph.

use super::adapters::Adapters;
use super::compile::Kernels;
use super::gpu::{Arg, Buffer, Gpu};
use super::pools::{PoolShape, Pools};
use super::product::{After, Job, STAGE_BYTES};
use super::weights::{Layer, Loader, Matrix, Mixer, Site, Weights};
use super::{COMMON, Precision, SOURCES, check, definitions, product};
use crate::error::{Error, Result};
use crate::model::config::Config;
use crate::model::load::Numbers;
use crate::model::lora::Lora;
use cudarc::driver::CudaFunction;
use std::collections::HashMap;
use std::sync::Arc;

/// One row of a step, as the kernels read it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Row {
    /// Token id.
    pub token: i32,
    /// Position in its sequence.
    pub position: i32,
    /// Lane of the pools; -1 for padding.
    pub lane: i32,
    /// Number of an adapter, or -1.
    pub adapter: i32,
}

/// Splits of attention over positions (as in `attention.cu`).
const SPLITS: usize = 16;

/// Positions of a chunk of attention (as in `attention.cu`).
const CHUNK: usize = 128;

/// Threads of a warp.
pub(super) const WARP: usize = 32;

/// A network on the card.
pub struct Network {
    pub(super) gpu: Arc<Gpu>,
    pub(super) config: Config,
    pub(super) precision: Precision,
    pub(super) weights: Weights,
    functions: HashMap<&'static str, CudaFunction>,
    /// SHA-256 of the kernels' machine code.
    kernels_sha256: String,
}

/// Buffers that a step works in, for a most number of rows and of drawn rows.
pub struct Workspace {
    pub(super) rows: usize,
    pub(super) draws: usize,
    pub(super) x: Buffer,
    pub(super) normed: Buffer,
    pub(super) projected: Buffer,
    pub(super) queries: Buffer,
    pub(super) attended: Buffer,
    pub(super) convolved: Buffer,
    pub(super) read: Buffer,
    pub(super) recurred: Buffer,
    pub(super) inner: Buffer,
    pub(super) partial: Buffer,
    pub(super) arrived: Buffer,
    pub(super) h: Buffer,
    pub(super) h_stride: usize,
    pub(super) last: Buffer,
    /// `[draws, vocab]`, f32.
    pub logits: Buffer,
}

/// Rows of a step and what they use.
pub struct Step<'a> {
    /// The rows, as [`Row`]s.
    pub rows: &'a Buffer,
    /// How many.
    pub count: usize,
    /// Parts into which attention is split: at least what [`splits`] says of the greatest position.
    pub splits: usize,
    /// The lanes.
    pub pools: &'a Pools,
    /// Adapters that rows may name.
    pub adapters: &'a Adapters,
    /// Where to compute.
    pub work: &'a Workspace,
}

/// Parts into which the attention of a row at that position is split.
pub fn splits(position: usize) -> usize {
    (position / CHUNK + 1).min(SPLITS)
}

fn blocks(n: usize) -> usize {
    n.div_ceil(64)
}

fn padded(n: usize) -> usize {
    n.next_multiple_of(64)
}

const NAMES: [&str; 10] = [
    "embed",
    "rms_norm",
    "turn",
    "shrink",
    "attend",
    "copy_positions",
    "copy_memories",
    "product_store",
    "product_add",
    "product_gate",
];

impl Network {
    /// Compiles the kernels and puts the weights on the card; `numbers` is asked for each tensor once.
    pub fn new(
        gpu: Arc<Gpu>,
        config: &Config,
        precision: Precision,
        numbers: &mut dyn FnMut(&str, usize) -> Result<Numbers>,
    ) -> Result<Network> {
        config.check()?;
        check(config, precision, &gpu)?;
        let source = [&[COMMON], &SOURCES[..]].concat().concat();
        let kernels = Kernels::new(&gpu, &source, &definitions(config, precision))?;
        let mut names: Vec<&'static str> = NAMES[..7].to_vec();
        match precision {
            Precision::F32 => names.extend(&NAMES[7..]),
            Precision::Bf16 => names.extend(product::TILED),
        }
        if config.delta.is_some() {
            names.extend(["convolve", "recur", "norm_and_gate"]);
        }
        let functions = names
            .into_iter()
            .map(|name| Ok((name, kernels.get(name)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        for (name, function) in &functions {
            if name.starts_with("product_many") {
                gpu.allow_shared(function, STAGE_BYTES)?;
            }
        }
        let weights = Loader { gpu: &gpu, kernels: &kernels, precision, config, numbers }.all()?;
        Ok(Network {
            gpu,
            config: config.clone(),
            precision,
            weights,
            functions,
            kernels_sha256: kernels.sha256,
        })
    }

    /// The card.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Dimensions and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Type of the weights.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// SHA-256 of the kernels' machine code.
    pub fn kernels_sha256(&self) -> &str {
        &self.kernels_sha256
    }

    /// Bytes of the matrices of a network.
    pub fn weight_bytes(&self) -> u64 {
        let of = |m: &Matrix| m.weights.bytes() as u64;
        let layers: u64 = self.weights.layers.iter().flat_map(|l| &l.matrices).map(of).sum();
        layers + of(&self.weights.embedding) + self.weights.head.as_ref().map_or(0, of)
    }

    pub(super) fn layers(&self) -> &[Layer] {
        &self.weights.layers
    }

    pub(super) fn kernel(&self, name: &str) -> Result<CudaFunction> {
        Ok(self.function(name)?.clone())
    }

    pub(super) fn function(&self, name: &str) -> Result<&CudaFunction> {
        self.functions.get(name).ok_or_else(|| Error::invalid(format!("there is no kernel `{name}`")))
    }

    /// Buffers for steps of at most `rows` rows of which at most `draws` are drawn from.
    pub fn workspace(&self, rows: usize, draws: usize, adapters: &Adapters) -> Result<Workspace> {
        // Kernels take rows in groups; those beyond the last are computed and dropped.
        let (rows, draws) = (padded(rows), padded(draws));

        let c = &self.config;
        let (single, own) = (size_of::<f32>(), self.precision.bytes());
        let zeros = |numbers: usize, size: usize| self.gpu.zeros(numbers * size);
        let projected = self.weights.layers.iter().map(|l| l.matrices[0].outputs).max().unwrap_or(0);
        let (channels, values) = c.delta.as_ref().map_or((0, 0), |d| (d.channels(), d.values()));
        let group = c.heads / c.kv_heads;
        Ok(Workspace {
            rows,
            draws,
            x: zeros(rows * c.hidden, single)?,
            normed: zeros(rows * padded(c.hidden), own)?,
            projected: zeros(rows * projected, single)?,
            queries: zeros(rows * c.heads * c.head_dim, single)?,
            attended: zeros(rows * padded(c.heads * c.head_dim), own)?,
            convolved: zeros(rows * channels, single)?,
            read: zeros(rows * values, single)?,
            recurred: zeros(rows * padded(values), own)?,
            inner: zeros(rows * padded(c.intermediate), own)?,
            partial: zeros(rows * c.kv_heads * SPLITS * group * (c.head_dim + 2), single)?,
            arrived: zeros(rows * c.kv_heads, single)?,
            h: zeros(rows * adapters.width(), single)?,
            h_stride: adapters.width(),
            last: zeros(draws * padded(c.hidden), own)?,
            logits: zeros(draws * c.vocab, single)?,
        })
    }

    /// Bytes of [`Network::workspace`] without adapters.
    pub fn workspace_bytes(config: &Config, precision: Precision, rows: usize, draws: usize) -> u64 {
        let (channels, values) = config.delta.as_ref().map_or((0, 0), |d| (d.channels(), d.values()));
        let attention = (config.heads + 2 * config.kv_heads) * config.head_dim;
        let gates = if config.gates_attention() { config.heads * config.head_dim } else { 0 };
        let projected = (attention + gates).max(channels + values);
        let single = config.hidden
            + projected
            + config.heads * config.head_dim * (1 + SPLITS)
            + 2 * SPLITS * config.heads
            + channels
            + values;
        let own = padded(config.hidden)
            + padded(config.heads * config.head_dim)
            + padded(values)
            + padded(config.intermediate);
        let logits = draws * (config.vocab * 4 + padded(config.hidden) * precision.bytes());
        (rows * (single * 4 + own * precision.bytes()) + logits) as u64
    }

    /// Hidden states of the rows, before the final norm, into the workspace.
    pub fn forward(&self, step: &Step) -> Result<()> {
        let (c, w, count) = (&self.config, step.work, step.count);
        if count > w.rows {
            return Err(Error::invalid(format!("{count} rows do not fit a workspace for {}", w.rows)));
        }
        let table = &self.weights.embedding;
        let blocks = blocks(c.hidden);
        let args =
            [(&*table.weights).into(), step.rows.into(), (&w.x).into(), c.hidden.into(), blocks.into()];
        self.gpu.launch(self.function("embed")?, [count, 1, 1], [128, 1], 0, &args)?;
        for (number, layer) in self.weights.layers.iter().enumerate() {
            self.layer(number, layer, step)?;
        }
        Ok(())
    }

    fn layer(&self, number: usize, layer: &Layer, step: &Step) -> Result<()> {
        let (c, w, count) = (&self.config, step.work, step.count);
        let projected = layer.matrices[Site::Input as usize].outputs;
        self.norm(&w.x, &layer.input_norm, &w.normed, None, count)?;
        self.product(step, number, Site::Input, &w.normed, &w.projected, projected)?;
        match &layer.mixer {
            Mixer::Attention { norms } => {
                self.attend(number, norms.as_ref(), projected, step)?;
                self.product(step, number, Site::Output, &w.attended, &w.x, c.hidden)?;
            }
            Mixer::Delta { convolution, decay, step_bias, norm } => {
                self.recur(number, [convolution, decay, step_bias, norm], projected, step)?;
                self.product(step, number, Site::Output, &w.recurred, &w.x, c.hidden)?;
            }
        }
        self.norm(&w.x, &layer.post_norm, &w.normed, None, count)?;
        self.product(step, number, Site::GateUp, &w.normed, &w.inner, blocks(c.intermediate))?;
        self.product(step, number, Site::Down, &w.inner, &w.x, c.hidden)
    }

    fn norm(
        &self,
        x: &Buffer,
        weight: &Buffer,
        out: &Buffer,
        chosen: Option<&Buffer>,
        count: usize,
    ) -> Result<()> {
        let c = &self.config;
        let chosen = chosen.map_or(Arg::At(0), Arg::from);
        let args = [
            x.into(),
            weight.into(),
            out.into(),
            chosen,
            c.hidden.into(),
            blocks(c.hidden).into(),
            (c.norm_eps as f32).into(),
        ];
        self.gpu.launch(self.function("rms_norm")?, [count, 1, 1], [256, 1], 0, &args)
    }

    fn attend(&self, number: usize, norms: Option<&[Buffer; 2]>, stride: usize, step: &Step) -> Result<()> {
        let (c, w, count) = (&self.config, step.work, step.count);
        let [keys, values] = step.pools.keys_and_values(number);
        let norm = |i: usize| norms.map_or(Arg::At(0), |n| Arg::from(&n[i]));
        let context = step.pools.context();
        let args = [
            (&w.projected).into(),
            step.rows.into(),
            (&self.weights.frequencies).into(),
            norm(0),
            norm(1),
            (&w.queries).into(),
            Arg::At(keys),
            Arg::At(values),
            stride.into(),
            context.into(),
            (c.norm_eps as f32).into(),
        ];
        let grid = [count, c.heads + 2 * c.kv_heads, 1];
        self.gpu.launch(self.function("turn")?, grid, [WARP, 1], 0, &args)?;
        let args = [
            (&w.queries).into(),
            Arg::At(keys),
            Arg::At(values),
            (&w.attended).into(),
            (&w.projected).into(),
            (&w.partial).into(),
            (&w.arrived).into(),
            step.rows.into(),
            context.into(),
            blocks(c.heads * c.head_dim).into(),
            stride.into(),
        ];
        let splits = step.splits.min(SPLITS);
        self.gpu.launch(self.function("attend")?, [count, c.kv_heads, splits], [256, 1], 0, &args)
    }

    fn recur(&self, number: usize, weights: [&Buffer; 4], stride: usize, step: &Step) -> Result<()> {
        let (c, w, count) = (&self.config, step.work, step.count);
        let Some(delta) = &c.delta else { return Err(Error::invalid("the network has no delta layers")) };
        let [convolution, decay, step_bias, norm] = weights;
        let memories = Arg::At(step.pools.memories(number));
        let args = [
            (&w.projected).into(),
            step.rows.into(),
            convolution.into(),
            (&w.convolved).into(),
            memories,
            stride.into(),
        ];
        let grid = [count, delta.channels().div_ceil(256), 1];
        self.gpu.launch(self.function("convolve")?, grid, [256, 1], 0, &args)?;
        let args = [
            (&w.projected).into(),
            (&w.convolved).into(),
            step.rows.into(),
            decay.into(),
            step_bias.into(),
            memories,
            (&w.read).into(),
            count.into(),
            stride.into(),
        ];
        let (heads, width) = (delta.shape.value_heads, delta.shape.value_dim);
        let slice = if width.is_multiple_of(32) { 32 } else { width };
        let grid = [count, heads, width / slice];
        self.gpu.launch(self.function("recur")?, grid, [slice * 4, 1], 0, &args)?;
        let args = [
            (&w.read).into(),
            (&w.projected).into(),
            step.rows.into(),
            norm.into(),
            (&w.recurred).into(),
            stride.into(),
            blocks(delta.values()).into(),
            (c.norm_eps as f32).into(),
        ];
        self.gpu.launch(self.function("norm_and_gate")?, [count, heads, 1], [WARP, 1], 0, &args)
    }

    /// Logits of chosen rows into the workspace. `chosen` holds, every [`super::DRAW_BYTES`], the number of a row or
    /// -1; without it every row is chosen. `first` skips rows of the logits that are already there.
    pub fn head(&self, step: &Step, chosen: Option<&Buffer>, count: usize) -> Result<()> {
        let (c, w) = (&self.config, step.work);
        if count > w.draws {
            return Err(Error::invalid(format!("{count} draws do not fit a workspace for {}", w.draws)));
        }
        self.norm(&w.x, &self.weights.final_norm, &w.last, chosen, count)?;
        let job = Job {
            matrix: self.weights.head.as_ref().unwrap_or(&self.weights.embedding),
            x: &w.last,
            y: &w.logits,
            y_stride: c.vocab,
            rows: count,
            after: After::Store,
        };
        self.plain_product(step, &job)
    }

    /// Logits `[tokens, vocab]` of one sequence at every position, with an adapter or without.
    pub fn logits(&self, tokens: &[u32], adapter: Option<&Lora>) -> Result<Vec<Vec<f32>>> {
        const ROWS: usize = 256;
        self.config.check_length(tokens.len())?;
        self.config.check_tokens(tokens)?;
        let mut adapters = Adapters::new(&self.gpu)?;
        if let Some(lora) = adapter {
            adapters.add(self, lora)?;
        }
        let shape = PoolShape::new(&self.config, self.precision, 1, tokens.len().max(1));
        let pools = Pools::new(&self.gpu, &self.config, shape)?;
        let work = self.workspace(ROWS, ROWS, &adapters)?;
        let mut logits = Vec::with_capacity(tokens.len());
        for (number, chunk) in tokens.chunks(ROWS).enumerate() {
            let row = |(i, token): (usize, &u32)| Row {
                token: *token as i32,
                position: (number * ROWS + i) as i32,
                lane: 0,
                adapter: if adapter.is_some() { 0 } else { -1 },
            };
            let rows: Vec<Row> = chunk.iter().enumerate().map(row).collect();
            let rows = self.gpu.upload(&rows)?;
            let step = Step {
                rows: &rows,
                count: chunk.len(),
                splits: splits(tokens.len()),
                pools: &pools,
                adapters: &adapters,
                work: &work,
            };
            self.forward(&step)?;
            self.head(&step, None, chunk.len())?;
            let numbers: Vec<f32> = self.gpu.read(&work.logits, 0, chunk.len() * self.config.vocab)?;
            logits.extend(numbers.chunks_exact(self.config.vocab).map(<[f32]>::to_vec));
        }
        Ok(logits)
    }
}
