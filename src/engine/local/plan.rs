//! What is known before a run starts: who the engine is, and how much memory it will hold.

use super::cache::LaneShape;
use super::{CPU_ROWS, Options};
use crate::engine::Identity;
use crate::error::{Error, Result};
use crate::hash;
use crate::model::{Compute, Config, Model, Target};
use serde::Serialize;
use serde_json::json;

/// Bytes that an engine holds, all of them known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// The model's weights: embedding, head, and the matrices of every layer.
    pub weights_bytes: u64,
    /// The pools of keys and values.
    pub cache_bytes: u64,
    /// The intermediate tensors of one step with all rows in use, at their greatest.
    pub activation_bytes: u64,
}

impl MemoryPlan {
    /// The plan for a model where it computes.
    pub fn new(model: &Model, options: &Options) -> MemoryPlan {
        match &model.compute {
            Compute::Cpu(_) => MemoryPlan::on_the_processor(&model.config, options),
            #[cfg(feature = "cuda")]
            Compute::Cuda(network) => super::cuda::memory_plan(network, options),
        }
    }

    /// The plan for f32 in main memory.
    pub(super) fn on_the_processor(config: &Config, options: &Options) -> MemoryPlan {
        let matrices: usize = (0..config.layers)
            .flat_map(|layer| Target::of(config, layer))
            .map(|target| target.shape(config))
            .map(|(out, input)| out * input)
            .sum();
        let vectors = config.layers * 2 * config.hidden + config.hidden;
        let weights = 2 * config.vocab * config.hidden + matrices + vectors;
        // In a layer the residual, its norm, the products and their sum live at the same time;
        // logits and sampling weights come after the layers.
        let attention = 4 * config.hidden + (2 * config.heads + 4 * config.kv_heads) * config.head_dim;
        let mlp = 4 * config.hidden + 4 * config.intermediate;
        let delta =
            config.delta.as_ref().map_or(0, |d| 4 * config.hidden + 4 * d.channels() + 4 * d.values());
        let row = attention.max(mlp).max(delta);
        let threads = rayon::current_num_threads();
        let scores = threads * (config.heads / config.kv_heads.max(1)) * options.context;
        let logits = options.slots * config.vocab + threads * 3 * config.vocab;
        let activations = (CPU_ROWS.max(options.slots) * row).max(logits) + scores;
        let bytes = |elements: usize| (elements * size_of::<f32>()) as u64;
        MemoryPlan {
            weights_bytes: bytes(weights),
            cache_bytes: (options.lanes() * LaneShape::new(config, options.context).bytes()) as u64,
            activation_bytes: bytes(activations),
        }
    }

    /// Refuses a plan that the memory cannot hold where the model computes.
    pub fn check(&self, model: &Model) -> Result<()> {
        let (where_, available) = match &model.compute {
            Compute::Cpu(_) => ("this machine", main_memory_bytes()),
            // The weights are there already.
            #[cfg(feature = "cuda")]
            Compute::Cuda(network) => ("the GPU", Some(network.gpu().memory()?.0 + self.weights_bytes)),
        };
        match available {
            Some(available) if self.total_bytes() > available => Err(Error::invalid(format!(
                "the engine would hold {} MiB, {where_} has {} MiB of memory",
                self.total_bytes() >> 20,
                available >> 20
            ))
            .hint("use fewer slots, fewer kept contexts or a shorter context")),
            _ => Ok(()),
        }
    }

    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        self.weights_bytes + self.cache_bytes + self.activation_bytes
    }
}

/// Size of main memory, where the system tells.
pub fn main_memory_bytes() -> Option<u64> {
    #[cfg(unix)]
    {
        // SAFETY: `sysconf` only reads its argument.
        let (pages, size) =
            unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        u64::try_from(pages).ok()?.checked_mul(u64::try_from(size).ok()?)
    }
    #[cfg(not(unix))]
    None
}

/// Hash of what a model's folder says beside its weights: sizes and rope, end tokens, tokenizer, template.
fn texts(model: &Model) -> String {
    let tokenizer = model.tokenizer.as_ref().map(|t| t.sha256());
    let template = model.template.as_ref().map(|t| t.identity());
    let all = format!("{:?}\n{:?}\n{tokenizer:?}\n{template:?}", model.config, model.end_tokens());
    hash::sha256_hex(all.as_bytes())
}

/// Who answers: the hash covers everything that may change a bit of an answer, beside the
/// model and the request.
pub fn identity(model: &Model, options: &Options) -> Result<Identity> {
    let mut features = vec!["engine"];
    if cfg!(feature = "cuda") {
        features.push("cuda");
    }
    let dtype = model.origin.dtype.to_string();
    let machine = match &model.compute {
        Compute::Cpu(_) => json!(crate::model::kernel::instruction_set()),
        #[cfg(feature = "cuda")]
        Compute::Cuda(network) => {
            json!({"card": network.gpu().name, "kernels": network.kernels_sha256()})
        }
    };
    let engine = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "revision": env!("REDERIVE_REVISION"),
        "texts": texts(model),
        "features": features,
        "machine": machine,
        "dtype": dtype,
        "slots": options.slots,
    });
    Ok(Identity {
        model_sha256: model.origin.sha256.clone(),
        dtype: Some(dtype),
        slots: Some(options.slots),
        engine_sha256: hash::sha256_json(&engine)?,
    })
}
