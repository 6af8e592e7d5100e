//! The network on an NVIDIA card. The same rows as on the processor (one token each, from any
//! number of lanes), in a few fused kernels a layer whose arithmetic is fixed by a row alone.
//! Kernels are compiled at run time and need nothing but the driver; the network on the
//! processor is the reference that tests compare with.

pub mod adapters;
pub mod compile;
pub mod gpu;
mod network;
mod pools;
mod product;
mod weights;

pub use adapters::Adapters;
pub use gpu::{Buffer, Gpu};
pub use network::{Network, Row, Step, Workspace, splits};
pub use pools::{PoolShape, Pools};

use crate::error::{Error, Result};
use crate::model::config::Config;
pub use crate::model::processor::Precision;

/// The kernels' sources, the shared part first.
pub const COMMON: &str = include_str!("kernels/common.cu");
const SOURCES: [&str; 4] = [
    include_str!("kernels/rows.cu"),
    include_str!("kernels/product.cu"),
    include_str!("kernels/attention.cu"),
    include_str!("kernels/delta.cu"),
];

/// Most parts of an output's sum: as many as a block has warps. With more, two blocks would not fit a multiprocessor.
const MOST_SHARES: usize = 8;

/// Bytes of the structure that asks for a token: `rms_norm` reads the row that it starts with.
pub const DRAW_BYTES: usize = 32;

/// What the kernels are compiled for.
fn definitions(config: &Config, precision: Precision) -> Vec<String> {
    let mut names = vec![
        ("HEAD_DIM", config.head_dim),
        ("HEADS", config.heads),
        ("KV_HEADS", config.kv_heads),
        ("TURNED", config.rotary_dim / 2),
        ("GATED", usize::from(config.gates_attention())),
        ("CHOSEN_STRIDE", DRAW_BYTES / 4),
    ];
    if let Some(delta) = &config.delta {
        names.extend([
            ("DELTA_KEYS", delta.shape.key_dim),
            ("DELTA_VALUES", delta.shape.value_dim),
            ("KEY_HEADS", delta.shape.key_heads),
            ("VALUE_HEADS", delta.shape.value_heads),
            ("TAPS", delta.taps),
        ]);
    }
    let mut all: Vec<String> = names.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if precision == Precision::Bf16 {
        all.push("BF16=1".to_owned());
    }
    all
}

/// Refuses what the kernels cannot compute, by name.
fn check(config: &Config, precision: Precision, gpu: &Gpu) -> Result<()> {
    let group = config.heads / config.kv_heads;
    let problem = if precision == Precision::Bf16 && gpu.capability.0 < 8 {
        let (major, minor) = gpu.capability;
        format!("{} has compute capability {major}.{minor}; bf16 needs 8.0", gpu.name)
    } else if !config.head_dim.is_multiple_of(8) || config.head_dim > 256 {
        format!("heads of {} are not a multiple of 8 up to 256", config.head_dim)
    } else if group > 16 || group * config.head_dim > 1024 {
        format!("{group} query heads of {} that share a key head are too many", config.head_dim)
    } else if let Some(d) = config.delta.as_ref().filter(|d| {
        !d.shape.value_dim.is_multiple_of(8) || d.shape.value_dim > 256 || !d.shape.key_dim.is_multiple_of(4)
    }) {
        format!("delta heads of {} keys and {} values", d.shape.key_dim, d.shape.value_dim)
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("the GPU kernels do not support this model: {problem}"))
        .hint("run with `--device cpu`"))
}
