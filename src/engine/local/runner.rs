//! What the scheduler asks of the machine that computes: rows in, drawn tokens out. On the
//! processor it is the network with its cache; on a card, kernels and recorded steps.

use super::attention::{LaneAttention, Place, with_f32};
use super::cache::{Cache, LaneShape};
use super::sample::{self, Drawn, StreamKey};
use crate::engine::Sampling;
use crate::error::{Error, Result};
use crate::model::{Lora, Model, Rows};
use candle_core::{Device, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// Logits that one thread draws from before another is asked for.
const DRAW_TOGETHER: usize = 1 << 15;

/// One row of a step.
#[derive(Debug, Clone, Copy)]
pub struct StepRow {
    /// Where its key and value belong.
    pub place: Place,
    /// Token id.
    pub token: u32,
    /// Number of an adapter, or none.
    pub adapter: Option<usize>,
}

/// A token that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Row of the step after which it is drawn.
    pub row: usize,
    /// The call that it is for, for messages.
    pub request: u64,
    /// How to draw.
    pub sampling: &'a Sampling,
    /// The call's random stream.
    pub key: &'a StreamKey,
    /// Number of the token in its completion.
    pub index: u64,
}

/// What lanes have computed.
pub trait Pools {
    /// Copies the first `positions` positions from one lane to another, and the memories as they stand.
    fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) -> Result<()>;
    /// Empties a lane's memories: what comes next is a sequence's first token.
    fn forget(&mut self, lane: usize) -> Result<()>;
}

/// A machine that computes steps.
pub trait Runner: Send {
    /// The lanes' memory.
    fn pools(&mut self) -> &mut dyn Pools;
    /// Takes over an adapter; its number is how many there were before.
    fn add_adapter(&mut self, adapter: &Lora) -> Result<()>;
    /// Computes rows (those of a lane together, in the order of their positions) and draws what is asked for, in the
    /// order of the asking.
    fn step(&mut self, rows: &[StepRow], asks: &[Ask]) -> Result<Vec<Drawn>>;
    /// Whether it can list the likeliest tokens beside each drawn one.
    fn lists_likeliest(&self) -> bool {
        false
    }
}

/// The error of a row whose logits are no numbers.
pub fn not_finite() -> Error {
    Error::invalid("the model's logits are not finite numbers")
        .hint("check the weights and the adapter for NaN or infinity")
}

/// The processor.
pub struct Cpu {
    model: Arc<Model>,
    cache: Cache,
    adapters: Vec<Lora>,
    /// Ids from here on are padding of the embedding.
    vocabulary: usize,
}

impl Cpu {
    /// Pools of `lanes` lanes for at most `context` tokens each.
    pub fn new(model: Arc<Model>, lanes: usize, context: usize, vocabulary: usize) -> Self {
        let cache = Cache::new(lanes, LaneShape::new(&model.config, context), &model.config);
        Cpu { model, cache, adapters: Vec::new(), vocabulary }
    }
}

impl Pools for Cache {
    fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) -> Result<()> {
        Cache::copy_prefix(self, from, to, positions);
        Ok(())
    }

    fn forget(&mut self, lane: usize) -> Result<()> {
        Cache::forget(self, lane);
        Ok(())
    }
}

impl Runner for Cpu {
    fn lists_likeliest(&self) -> bool {
        true
    }

    fn pools(&mut self) -> &mut dyn Pools {
        &mut self.cache
    }

    fn add_adapter(&mut self, adapter: &Lora) -> Result<()> {
        self.adapters.push(adapter.clone());
        Ok(())
    }

    fn step(&mut self, rows: &[StepRow], asks: &[Ask]) -> Result<Vec<Drawn>> {
        let network = self.model.network()?;
        let places: Vec<Place> = rows.iter().map(|r| r.place).collect();
        let tokens: Vec<u32> = rows.iter().map(|r| r.token).collect();
        let positions: Vec<u32> = places.iter().map(|p| p.position as u32).collect();
        let adapters: Vec<Option<usize>> = rows.iter().map(|r| r.adapter).collect();
        let loras: Vec<&Lora> = self.adapters.iter().collect();
        let rows = Rows { tokens: &tokens, positions: &positions, adapters: &adapters };
        let mut attend = LaneAttention { cache: &mut self.cache, places: &places };
        let hidden = network.forward(&rows, &loras, &mut attend)?;
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let chosen: Vec<u32> = asks.iter().map(|ask| ask.row as u32).collect();
        let chosen = hidden.index_select(&Tensor::from_vec(chosen, asks.len(), &Device::Cpu)?, 0)?;
        let logits = network.logits(&chosen)?.contiguous()?;
        let width = logits.dims2()?.1;
        with_f32(&logits, |logits| {
            let draw = |(ask, row): (&Ask, &[f32])| {
                sample::draw(row, self.vocabulary, ask.sampling, ask.key, ask.index)
                    .map_err(|e| e.at(format!("request {}", ask.request)))
            };
            // Small vocabularies are drawn from faster than work is handed out.
            let least = DRAW_TOGETHER.div_ceil(width);
            asks.par_iter().zip(logits.par_chunks_exact(width)).with_min_len(least).map(draw).collect()
        })?
    }
}
