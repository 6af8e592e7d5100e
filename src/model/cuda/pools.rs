//! What every lane has computed, on the card: keys and values of the attention layers and the
//! memories of delta layers, in pools of fixed size. Prefixes move between lanes by copy.

use super::Precision;
use super::gpu::{Arg, Buffer, Gpu};
use super::network::Network;
use crate::error::Result;
use crate::model::config::Config;

/// Dimensions of the pools.
#[derive(Debug, Clone, Copy)]
pub struct PoolShape {
    attention_layers: usize,
    delta_layers: usize,
    /// Numbers of one lane and attention layer, keys or values.
    head_numbers: usize,
    /// Numbers of one lane and delta layer.
    memory: usize,
    lanes: usize,
    context: usize,
    precision: Precision,
}

impl PoolShape {
    /// For a network, a number of lanes, and calls of at most `context` tokens.
    pub fn new(config: &Config, precision: Precision, lanes: usize, context: usize) -> Self {
        let delta_layers = (0..config.layers).filter(|layer| config.is_delta(*layer)).count();
        let memory = |d: &crate::model::config::DeltaConfig| (d.taps - 1) * d.channels() + d.shape.state();
        PoolShape {
            attention_layers: config.layers - delta_layers,
            delta_layers,
            head_numbers: config.kv_heads * context * config.head_dim,
            memory: config.delta.as_ref().map_or(0, memory),
            lanes,
            context,
            precision,
        }
    }

    /// Bytes of keys, values and memories.
    pub fn bytes(&self) -> u64 {
        (self.kv_bytes() + self.memory_bytes()) as u64
    }

    fn kv_bytes(&self) -> usize {
        self.attention_layers * 2 * self.lanes * self.head_numbers * self.precision.bytes()
    }

    fn memory_bytes(&self) -> usize {
        self.delta_layers * self.lanes * self.memory * size_of::<f32>()
    }
}

/// The pools.
pub struct Pools {
    shape: PoolShape,
    /// `[attention layer, 2, lane, kv_head, context, head_dim]`.
    kv: Buffer,
    /// `[delta layer, lane, memory]`, f32.
    memories: Buffer,
    /// Number of each layer of the network among those of its kind.
    ordinals: Vec<usize>,
}

impl Pools {
    /// Takes the memory, zeroed.
    pub fn new(gpu: &Gpu, config: &Config, shape: PoolShape) -> Result<Pools> {
        let ordinal = |layer: usize| {
            (0..layer).filter(|before| config.is_delta(*before) == config.is_delta(layer)).count()
        };
        Ok(Pools {
            shape,
            kv: gpu.zeros(shape.kv_bytes())?,
            memories: gpu.zeros(shape.memory_bytes())?,
            ordinals: (0..config.layers).map(ordinal).collect(),
        })
    }

    /// Most tokens of a lane.
    pub fn context(&self) -> usize {
        self.shape.context
    }

    /// Addresses of a layer's keys and values.
    pub(super) fn keys_and_values(&self, layer: usize) -> [u64; 2] {
        let bytes = self.shape.lanes * self.shape.head_numbers * self.shape.precision.bytes();
        let keys = self.kv.pointer() + (self.ordinals[layer] * 2 * bytes) as u64;
        [keys, keys + bytes as u64]
    }

    /// Address of a layer's memories.
    pub(super) fn memories(&self, layer: usize) -> u64 {
        let bytes = self.shape.lanes * self.shape.memory * size_of::<f32>();
        self.memories.pointer() + (self.ordinals[layer] * bytes) as u64
    }

    /// Copies the first `positions` positions of every layer from one lane to another, and the memories as they
    /// stand.
    pub fn copy_prefix(&self, network: &Network, from: usize, to: usize, positions: usize) -> Result<()> {
        if from == to || positions == 0 {
            return Ok(());
        }
        let s = &self.shape;
        if s.attention_layers > 0 {
            let args = [
                (&self.kv).into(),
                s.lanes.into(),
                s.context.into(),
                from.into(),
                to.into(),
                positions.into(),
            ];
            let grid = [s.attention_layers * 2, network.config().kv_heads, positions.div_ceil(64).min(16)];
            network.gpu().launch(&network.kernel("copy_positions")?, grid, [256, 1], 0, &args)?;
        }
        if s.delta_layers > 0 {
            let args =
                [(&self.memories).into(), s.lanes.into(), Arg::Long(s.memory as u64), from.into(), to.into()];
            let grid = [s.delta_layers, s.memory.div_ceil(1024).min(64), 1];
            network.gpu().launch(&network.kernel("copy_memories")?, grid, [256, 1], 0, &args)?;
        }
        Ok(())
    }
}
