//! The engine's steps on a card. Steps in which every row draws (all calls are decoding) are
//! recorded once for each number of rows, a power of two, and started as a whole; other
//! steps are queued kernel by kernel. Both run the same kernels, whose arithmetic is fixed by a
//! row alone, so it makes no difference to an answer which of the two computed it.

#[cfg(test)]
mod tests;

use super::Options;
use super::attention::Place;
use super::plan::MemoryPlan;
use super::runner::{Ask, Pools, Runner, StepRow, not_finite};
use super::sample::{self, Drawn};
use crate::engine::Likeliest;
use crate::error::{Error, Result};
use crate::model::Lora;
use crate::model::cuda::compile::Kernels;
use crate::model::cuda::gpu::{Arg, Pinned, failed};
use crate::model::cuda::{
    self, Adapters, Buffer, COMMON, DRAW_BYTES, Network, PoolShape, Row, Step, Workspace,
};
use cudarc::driver::{CudaFunction, CudaGraph};
use std::collections::HashMap;
use std::sync::Arc;

/// Most rows of a step that reads contexts: few enough that running calls do not wait long, many enough to fill a card.
const ROWS: usize = 2048;

/// Most rows of a step.
pub fn rows(slots: usize) -> usize {
    ROWS.max(slots)
}

/// Memory that an engine holds on the card, all of it taken before the first step.
pub fn memory_plan(network: &Network, options: &Options) -> MemoryPlan {
    let (config, precision) = (network.config(), network.precision());
    MemoryPlan {
        weights_bytes: network.weight_bytes(),
        cache_bytes: PoolShape::new(config, precision, options.lanes(), options.context).bytes(),
        activation_bytes: Network::workspace_bytes(config, precision, rows(options.slots), options.slots),
    }
}

/// What is asked of the drawing kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Draw {
    row: i32,
    top_k: i32,
    temperature: f32,
    top_p: f32,
    min_p: f32,
    logprob: i32,
    unit: f64,
}

const _: () = assert!(size_of::<Draw>() == DRAW_BYTES, "the norm kernel steps over whole draws");

/// What it answers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Answer {
    token: i32,
    logprob: f32,
}

/// A card that computes an engine's steps.
pub struct Card {
    network: Arc<Network>,
    pools: cuda::Pools,
    adapters: Adapters,
    work: Workspace,
    /// Ids from here on are padding of the embedding.
    vocabulary: usize,
    slots: usize,
    rows: usize,
    draw: CudaFunction,
    /// Recorded steps by their number of rows and the splits of their attention.
    graphs: HashMap<(usize, usize), CudaGraph>,
    /// Whether steps are recorded.
    recording: bool,
    staged_rows: Pinned<Row>,
    staged_draws: Pinned<Draw>,
    answers: Pinned<Answer>,
    device_rows: Buffer,
    device_draws: Buffer,
    device_answers: Buffer,
}

// SAFETY: a card is used by one thread at a time (`&mut self`); the context is bound at each call.
unsafe impl Send for Card {}

impl Card {
    /// Takes all memory that the engine will need.
    pub fn new(network: Arc<Network>, options: &Options, vocabulary: usize) -> Result<Card> {
        let (gpu, rows) = (network.gpu().clone(), rows(options.slots));
        let source = [COMMON, include_str!("draw.cu")].concat();
        let kernels = Kernels::new(&gpu, &source, &[])?;
        let adapters = Adapters::new(&gpu)?;
        let shape = PoolShape::new(network.config(), network.precision(), options.lanes(), options.context);
        Ok(Card {
            pools: cuda::Pools::new(&gpu, network.config(), shape)?,
            work: network.workspace(rows, options.slots, &adapters)?,
            adapters,
            vocabulary,
            slots: options.slots,
            rows,
            draw: kernels.get("draw")?,
            graphs: HashMap::new(),
            recording: options.record_steps,
            staged_rows: gpu.pinned(rows)?,
            staged_draws: gpu.pinned(options.slots)?,
            answers: gpu.pinned(options.slots)?,
            device_rows: gpu.zeros(rows * size_of::<Row>())?,
            device_draws: gpu.zeros(options.slots * size_of::<Draw>())?,
            device_answers: gpu.zeros(options.slots * size_of::<Answer>())?,
            network,
        })
    }

    fn stage(&mut self, rows: &[StepRow], asks: &[Ask], padded_rows: usize, padded_draws: usize) {
        for (to, row) in self.staged_rows.iter_mut().zip(rows) {
            let Place { lane, position } = row.place;
            *to = Row {
                token: row.token as i32,
                position: position as i32,
                lane: lane as i32,
                adapter: row.adapter.map_or(-1, |a| a as i32),
            };
        }
        self.staged_rows[rows.len()..padded_rows].fill(Row { token: 0, position: 0, lane: -1, adapter: -1 });
        for (to, ask) in self.staged_draws.iter_mut().zip(asks) {
            *to = Draw {
                row: ask.row as i32,
                // More than a vocabulary holds is all of it.
                top_k: i32::try_from(ask.sampling.top_k).unwrap_or(0),
                temperature: ask.sampling.temperature,
                top_p: ask.sampling.top_p,
                min_p: ask.sampling.min_p,
                logprob: i32::from(ask.sampling.logprobs),
                unit: ask.key.unit(ask.index),
            };
        }
        self.staged_draws[asks.len()..padded_draws].fill(Draw { row: -1, ..Draw::default() });
    }

    /// Queues a whole step: copies in, network, head, draws, copies out.
    fn queue(&mut self, rows: usize, draws: usize, splits: usize) -> Result<()> {
        let gpu = self.network.gpu().clone();
        gpu.send(&self.staged_rows, &self.device_rows, rows)?;
        if draws > 0 {
            gpu.send(&self.staged_draws, &self.device_draws, draws)?;
        }
        let step = Step {
            rows: &self.device_rows,
            count: rows,
            splits,
            pools: &self.pools,
            adapters: &self.adapters,
            work: &self.work,
        };
        self.network.forward(&step)?;
        if draws == 0 {
            return Ok(());
        }
        self.network.head(&step, Some(&self.device_draws), draws)?;
        let vocab = self.network.config().vocab;
        let args: [Arg; 6] = [
            (&self.work.logits).into(),
            (&self.device_draws).into(),
            (&self.device_answers).into(),
            vocab.into(),
            self.vocabulary.min(vocab).into(),
            vocab.into(),
        ];
        gpu.launch(&self.draw, [draws, 1, 1], [1024, 1], 0, &args)?;
        gpu.receive(&self.device_answers, &mut self.answers, draws)
    }

    /// The likeliest tokens beside a drawn one, where they are asked for: from its logits, which are still there.
    fn likeliest(&self, number: usize, ask: &Ask, answer: &Answer) -> Result<Likeliest> {
        if ask.sampling.top_logprobs == 0 {
            return Ok(Vec::new());
        }
        let vocab = self.network.config().vocab;
        let logits: Vec<f32> =
            self.network.gpu().read(&self.work.logits, number * vocab * size_of::<f32>(), vocab)?;
        let drawn = logits[answer.token as usize];
        let allowed = &logits[..self.vocabulary.min(vocab)];
        Ok(sample::likeliest(allowed, ask.sampling.top_logprobs, drawn, answer.logprob))
    }

    /// Records the step of that many rows.
    fn record(&mut self, rows: usize, splits: usize) -> Result<()> {
        // The driver loads a kernel when it is first started, which it cannot do while recording: a step of padding
        // alone comes first.
        self.stage(&[], &[], rows, rows);
        self.queue(rows, rows, splits)?;
        let gpu = self.network.gpu().clone();
        gpu.wait()?;
        let graph = gpu.capture(|| self.queue(rows, rows, splits))?;
        self.graphs.insert((rows, splits), graph);
        Ok(())
    }
}

impl Pools for Card {
    fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) -> Result<()> {
        self.pools.copy_prefix(&self.network, from, to, positions)
    }

    fn forget(&mut self, _: usize) -> Result<()> {
        // A row at position 0 starts from an empty memory.
        Ok(())
    }
}

impl Runner for Card {
    fn pools(&mut self) -> &mut dyn Pools {
        self
    }

    fn add_adapter(&mut self, adapter: &Lora) -> Result<()> {
        self.network.gpu().wait()?;
        self.adapters.add(&self.network, adapter)?;
        self.graphs.clear();
        self.work = self.network.workspace(self.rows, self.slots, &self.adapters)?;
        Ok(())
    }

    fn step(&mut self, rows: &[StepRow], asks: &[Ask]) -> Result<Vec<Drawn>> {
        let decoding = rows.len() == asks.len();
        let furthest = rows.iter().map(|row| row.place.position).max().unwrap_or(0);
        let splits = cuda::splits(furthest).next_power_of_two();
        // A recorded step has a power of two of rows, or as many as there are slots.
        let together = rows.len().next_power_of_two().min(self.slots);
        let key = (together, splits);
        if decoding && self.recording && rows.len() <= together {
            if !self.graphs.contains_key(&key) {
                self.record(together, splits)?;
            }
            self.stage(rows, asks, together, together);
            let graph = self.graphs.get(&key).ok_or_else(|| Error::invalid("the step was not recorded"))?;
            graph.launch().map_err(failed("starting a recorded step"))?;
        } else {
            self.stage(rows, asks, rows.len(), asks.len());
            self.queue(rows.len(), asks.len(), splits)?;
        }
        self.network.gpu().wait()?;
        let finish = |(number, (ask, answer)): (usize, (&Ask, &Answer))| {
            let Ok(token) = u32::try_from(answer.token) else {
                return Err(not_finite().at(format!("request {}", ask.request)));
            };
            let top = self.likeliest(number, ask, answer)?;
            Ok(Drawn { token, logprob: ask.sampling.logprobs.then_some(answer.logprob), top })
        };
        asks.iter().zip(self.answers.iter()).enumerate().map(finish).collect()
    }
}
