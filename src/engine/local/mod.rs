//! The local engine: continuous batching over a fixed pool of lanes. A step gathers one row
//! for each call that is decoding and rows of contexts still to be read, runs them through
//! the network as one flat batch, and draws a token wherever a row was its call's last.
//! Rows know nothing of each other, so an answer's bits depend on its request alone.

mod attention;
mod cache;
#[cfg(feature = "cuda")]
mod cuda;
mod kernels;
mod lanes;
mod plan;
mod runner;
mod sample;
mod stop;
#[cfg(test)]
mod tests;
mod thinking;

pub use crate::model::kernel::instruction_set;
pub use plan::{MemoryPlan, main_memory_bytes};

use super::{Backend, Completion, Finish, Identity, Likeliest, Request};
use crate::environment::Message;
use crate::error::{Error, Result};
use crate::model::{Compute, Lora, Model};
use attention::Place;
use lanes::{Lanes, Run, Waiting};
use runner::{Ask, Cpu, Runner, StepRow};
use sample::Drawn;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
pub use thinking::Markers;
use thinking::Thinking;

/// Rows of one step on the processor: enough that reading the weights costs less than using them.
const CPU_ROWS: usize = 64;

/// Most calls that run at the same time.
pub const MOST_SLOTS: usize = 1024;

/// Most contexts kept beyond those in slots: each is searched for every new call.
const MOST_KEPT: usize = 1024;

/// Sizes of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Calls that run at the same time, `1..=MOST_SLOTS`.
    pub slots: usize,
    /// Most tokens of a call, context and completion together; at most the model's own limit.
    pub context: usize,
    /// Earlier contexts kept for later calls that start alike, beside those still in idle slots;
    /// each costs a slot's share of cache memory.
    pub kept: usize,
    /// Whether a call takes over prefixes computed by others. Changes time only.
    pub share_prefixes: bool,
    /// Whether end-of-turn tokens end a call; not in measurements, which count tokens.
    pub stop_at_ends: bool,
    /// Whether a card records its steps as graphs. Changes time only.
    pub record_steps: bool,
    /// Whether conversations are rendered so that the model may think first, where its template has a choice.
    pub thinking: bool,
}

impl Options {
    /// `slots` calls of at most `context` tokens, with a quarter as many kept contexts.
    pub fn new(slots: usize, context: usize) -> Self {
        Options {
            slots,
            context,
            kept: slots.div_ceil(4),
            share_prefixes: true,
            stop_at_ends: true,
            record_steps: true,
            thinking: false,
        }
    }

    fn lanes(&self) -> usize {
        self.slots + self.kept
    }
}

/// Work done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Tokens of contexts that were computed.
    pub prefill_tokens: u64,
    /// Tokens of contexts taken over from another computation.
    pub shared_tokens: u64,
    /// Tokens sampled.
    pub decode_tokens: u64,
    /// Steps in which the network ran.
    pub steps: u64,
}

/// What a running call has sampled.
#[derive(Debug, Clone, Copy, Default)]
pub struct SoFar<'a> {
    /// Sampled ids.
    pub tokens: &'a [u32],
    /// Their log-probabilities, when asked for.
    pub logprobs: &'a [f32],
    /// The most likely ids in the place of each, when asked for.
    pub top_logprobs: &'a [Likeliest],
}

/// The engine.
pub struct Engine {
    model: Arc<Model>,
    options: Options,
    identity: Identity,
    memory: MemoryPlan,
    adapters: Vec<String>,
    end_tokens: Vec<u32>,
    /// Markers of thoughts, where the model has them.
    markers: Option<Markers>,
    runner: Box<dyn Runner>,
    /// Most rows of a step.
    budget: usize,
    lanes: Lanes,
    counters: Counters,
}

impl Engine {
    /// An engine for a model. Refuses sizes of zero, more slots than rows in a step, a context beyond
    /// the model's limit, and more than main memory holds. A model without a tokenizer completes ids; the text stays empty.
    pub fn new(model: Arc<Model>, options: Options) -> Result<Self> {
        if options.slots == 0 || options.slots > MOST_SLOTS {
            return Err(Error::invalid(format!("{} slots are not in 1..={MOST_SLOTS}", options.slots))
                .at("slots")
                .hint("16 are usual on a processor, 32 to 256 on a card"));
        }
        let limit = model.config.max_positions;
        if options.context < 2 || options.context > limit {
            return Err(Error::invalid(format!(
                "a context of {} tokens is not in 2..={limit}",
                options.context
            ))
            .at("context")
            .hint(format!("the model was made for at most {limit} tokens")));
        }
        if options.kept > MOST_KEPT {
            return Err(Error::invalid(format!("{} kept contexts are more than {MOST_KEPT}", options.kept))
                .at("kept"));
        }
        let config = &model.config;
        let memory = MemoryPlan::new(&model, &options);
        memory.check(&model)?;
        let mut end_tokens = if options.stop_at_ends { model.end_tokens().to_vec() } else { Vec::new() };
        // Some checkpoints name only the end of a document, though their chats end turns like this.
        let turn = model.tokenizer.as_ref().filter(|_| options.stop_at_ends);
        end_tokens.extend(turn.and_then(|t| t.id("<|im_end|>")));
        let vocabulary = model.tokenizer.as_ref().map_or(config.vocab, |t| t.reach().min(config.vocab));
        let runner: Box<dyn Runner> = match &model.compute {
            Compute::Cpu(_) => {
                let cpu = Cpu::new(model.clone(), options.lanes(), options.context, vocabulary);
                Box::new(cpu)
            }
            #[cfg(feature = "cuda")]
            Compute::Cuda(network) => {
                let card = cuda::Card::new(network.clone(), &options, vocabulary)?;
                Box::new(card)
            }
        };
        Ok(Engine {
            options,
            identity: plan::identity(&model, &options)?,
            memory,
            adapters: Vec::new(),
            end_tokens,
            markers: model.tokenizer.as_ref().and_then(Markers::of),
            runner,
            budget: Engine::rows_of_a_step(&model, options.slots),
            lanes: Lanes::new(options.lanes(), options.slots, options.share_prefixes, config.delta.is_some()),
            counters: Counters::default(),
            model,
        })
    }

    /// Registers an adapter; the handle goes into requests. Refuses a name that is taken and an
    /// adapter of another depth.
    pub fn add_adapter(&mut self, name: impl Into<String>, adapter: Lora) -> Result<usize> {
        let name = name.into();
        if self.adapter(&name).is_some() {
            return Err(Error::invalid(format!("an adapter named `{name}` is already registered"))
                .hint("give each adapter a name of its own"));
        }
        if adapter.layer_count() != self.model.config.layers {
            return Err(Error::invalid(format!(
                "the adapter has {} layers, the model {}",
                adapter.layer_count(),
                self.model.config.layers
            ))
            .at(&name));
        }
        self.runner.add_adapter(&adapter)?;
        self.adapters.push(name);
        Ok(self.adapters.len() - 1)
    }

    /// The handle of an adapter registered under that name.
    pub fn adapter(&self, name: &str) -> Option<usize> {
        self.adapters.iter().position(|n| n == name)
    }

    /// Most rows that a step of such an engine computes.
    pub fn rows_of_a_step(model: &Model, slots: usize) -> usize {
        match &model.compute {
            Compute::Cpu(_) => CPU_ROWS.max(slots),
            #[cfg(feature = "cuda")]
            Compute::Cuda(_) => cuda::rows(slots),
        }
    }

    /// The model that answers.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Memory that the engine holds.
    pub fn memory_plan(&self) -> MemoryPlan {
        self.memory
    }

    /// Work done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Gives up a call, queued or running; whether there was one. Its slot is free at once.
    pub fn cancel(&mut self, id: u64) -> bool {
        if let Some(lane) = self.lanes.lane_of(id) {
            return self.lanes.release(lane).is_some();
        }
        let before = self.lanes.queue.len();
        self.lanes.queue.retain(|w| w.request.id != id);
        self.lanes.queue.len() < before
    }

    /// Its sizes.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Names of the registered adapters, by handle.
    pub fn adapter_names(&self) -> Vec<String> {
        self.adapters.clone()
    }

    /// Calls that hold a slot.
    pub fn running(&self) -> usize {
        self.lanes.running()
    }

    /// What a running call has sampled so far. `None` for one that waits or is not in flight.
    pub fn sampled(&self, id: u64) -> Option<SoFar<'_>> {
        let run = self.lanes.lanes[self.lanes.lane_of(id)?].run.as_ref()?;
        Some(SoFar {
            tokens: &run.tokens[run.prompt..],
            logprobs: &run.logprobs,
            top_logprobs: &run.top_logprobs,
        })
    }

    fn check(&self, request: &Request) -> Result<()> {
        let place = format!("request {}", request.id);
        let refuse = |what: String| Err(Error::invalid(what).at(&place));
        if self.lanes.contains(request.id) {
            return refuse("another call of this id is in flight".into());
        }
        if request.tokens.is_empty() {
            return refuse("the context is empty".into());
        }
        if request.tokens.len() >= self.options.context {
            return Err(Error::invalid(format!(
                "{} tokens of context leave no room in {}",
                request.tokens.len(),
                self.options.context
            ))
            .at(&place)
            .hint("raise the engine's context length or shorten the prompt"));
        }
        self.model.config.check_tokens(&request.tokens).map_err(|e| e.at(&place))?;
        if request.adapter.is_some_and(|a| a >= self.adapters.len()) {
            return refuse("the adapter is not registered with this engine".into());
        }
        if !request.sampling.stop.is_empty() && self.model.tokenizer.is_none() {
            return refuse("stop strings need a tokenizer, which this model does not have".into());
        }
        if request.sampling.thinking.is_some() && self.markers.is_none() {
            return Err(Error::invalid(
                "the model's tokenizer has no `<think>` and `</think>`, so a thought has no budget",
            )
            .at(&place)
            .hint("leave the thinking budget out"));
        }
        sample::validate(&request.sampling).map_err(|e| e.at(&place))
    }

    /// The rows of the next step: one for each decoding call, then contexts in order of admission
    /// as far as the budget goes.
    fn gather(&self) -> Vec<Place> {
        let running = |lane: usize| self.lanes.lanes[lane].run.as_ref().map(|run| (lane, run));
        let mut order: Vec<(usize, &Run)> = (0..self.lanes.lanes.len()).filter_map(running).collect();
        order.sort_by_key(|(lane, run)| (self.lanes.lanes[*lane].computed.len() < run.prompt, run.ticket));
        let mut places = Vec::with_capacity(self.budget);
        for (lane, run) in order {
            let done = self.lanes.lanes[lane].computed.len();
            let take = (self.lanes.stop(run, done) - done).min(self.budget - places.len());
            places.extend((done..done + take).map(|position| Place { lane, position }));
        }
        places
    }

    /// Computes these rows, and draws a token for each lane whose last known token is among them.
    fn compute(&mut self, places: &[Place]) -> Result<Vec<(usize, Drawn)>> {
        let lanes = &self.lanes.lanes;
        let run = |place: &Place| {
            lanes[place.lane].run.as_ref().expect("rows are gathered from running calls only")
        };
        let row = |place: &Place| StepRow {
            place: *place,
            token: run(place).tokens[place.position],
            adapter: run(place).request.adapter,
        };
        let rows: Vec<StepRow> = places.iter().map(row).collect();
        let ask = |(row, place): (usize, &Place)| {
            let run = run(place);
            (place.position + 1 == run.tokens.len()).then(|| Ask {
                row,
                request: run.request.id,
                sampling: &run.request.sampling,
                key: &run.key,
                index: (run.tokens.len() - run.prompt) as u64,
            })
        };
        let asks: Vec<Ask> = places.iter().enumerate().filter_map(ask).collect();
        let drawn = self.runner.step(&rows, &asks)?;
        Ok(asks.iter().map(|ask| places[ask.row].lane).zip(drawn).collect())
    }

    /// Notes what a step has computed and drawn.
    fn commit(&mut self, places: &[Place], drawn: &[(usize, Drawn)]) {
        for place in places {
            let lane = &mut self.lanes.lanes[place.lane];
            if let Some(run) = &lane.run {
                lane.computed.push(run.tokens[place.position]);
                self.counters.prefill_tokens += u64::from(place.position < run.prompt);
            }
        }
        for (lane, drawn) in drawn {
            if let Some(run) = &mut self.lanes.lanes[*lane].run {
                run.tokens.push(drawn.token);
                run.logprobs.extend(drawn.logprob);
                let listed = run.request.sampling.top_logprobs > 0;
                if listed {
                    run.top_logprobs.push(drawn.top.clone());
                }
                // A turn that ends inside its thought has ended: nothing is put behind it.
                let ended = self.end_tokens.contains(&drawn.token);
                if let Some(thinking) = run.thinking.as_mut().filter(|_| !ended) {
                    let forced = thinking.drawn(&run.tokens);
                    if run.request.sampling.logprobs {
                        run.logprobs.extend(forced.iter().map(|_| f32::NAN));
                    }
                    run.tokens.extend_from_slice(forced);
                    if listed {
                        run.top_logprobs.extend(forced.iter().map(|_| Likeliest::new()));
                    }
                }
            }
        }
        self.counters.decode_tokens += drawn.len() as u64;
        self.counters.steps += 1;
    }

    /// Why the call in a lane ends after its latest token, if it does.
    fn finish(&mut self, lane: usize) -> Result<Option<Finish>> {
        let (model, context) = (self.model.clone(), self.options.context);
        let Some(run) = &mut self.lanes.lanes[lane].run else { return Ok(None) };
        if run.tokens.last().is_some_and(|t| self.end_tokens.contains(t)) {
            return Ok(Some(Finish::Stop));
        }
        if let Some(watch) = &mut run.watch
            && watch.sees_stop(&run.tokens[run.prompt..], |ids| model.decode(ids, true))?
        {
            return Ok(Some(Finish::Stop));
        }
        let sampled = match &run.thinking {
            Some(thinking) => thinking.answer_tokens(run.tokens.len(), run.prompt),
            None => run.tokens.len() - run.prompt,
        };
        let full = sampled >= run.request.sampling.max_tokens || run.tokens.len() >= context;
        Ok(full.then_some(Finish::Length))
    }

    fn complete(&self, run: Run, finish: Finish) -> Result<Completion> {
        let tokens = run.tokens[run.prompt..].to_vec();
        let mut text = match self.model.tokenizer {
            Some(_) => self.model.decode(&tokens, true)?,
            None => String::new(),
        };
        if let Some(cut) = stop::first_stop(&text, &run.request.sampling.stop) {
            text.truncate(cut);
        }
        Ok(Completion {
            id: run.request.id,
            completion_tokens: Some(tokens.len()),
            tokens,
            text,
            finish,
            prompt_tokens: Some(run.prompt),
            shared_tokens: Some(run.shared),
            thought: run.thinking.as_ref().and_then(Thinking::thought),
            logprobs: run.request.sampling.logprobs.then_some(run.logprobs),
            top_logprobs: (run.request.sampling.top_logprobs > 0).then_some(run.top_logprobs),
            wall_ms: run.submitted.elapsed().as_millis() as u64,
        })
    }
}

impl Backend for Engine {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<u32>> {
        self.model.prompt(messages, self.options.thinking)
    }

    fn extend(&self, context: &[u32], sampled: &[u32], next: &Message) -> Result<Vec<u32>> {
        // What follows an assistant's content begins with the end-of-turn token.
        let content = match sampled.split_last() {
            Some((last, content)) if self.end_tokens.contains(last) => content,
            _ => sampled,
        };
        Ok([context, content, &self.model.after_assistant(next, self.options.thinking)?].concat())
    }

    fn submit(&mut self, request: Request) -> Result<()> {
        self.check(&request)?;
        let budget = request.sampling.thinking.zip(self.markers.clone());
        let thinking = budget.map(|(budget, markers)| Thinking::new(markers, budget, &request.tokens));
        self.lanes.queue.push_back(Waiting { request, submitted: Instant::now(), thinking });
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Completion>> {
        self.counters.shared_tokens += self.lanes.admit(self.runner.pools())?;
        let places = self.gather();
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let drawn = match self.compute(&places) {
            Ok(drawn) => drawn,
            Err(e) => {
                // A memory may have moved on before the failure; keys and values are simply written again.
                if self.model.config.delta.is_some() {
                    for place in &places {
                        self.lanes.restart(place.lane, self.runner.pools())?;
                    }
                }
                return Err(e);
            }
        };
        self.commit(&places, &drawn);
        let mut done = Vec::new();
        for (lane, _) in drawn {
            if let Some(finish) = self.finish(lane)?
                && let Some(run) = self.lanes.release(lane)
            {
                done.push(self.complete(run, finish)?);
            }
        }
        done.sort_by_key(|c| c.id);
        Ok(done)
    }

    fn in_flight(&self) -> usize {
        self.lanes.queue.len() + self.lanes.running()
    }
}
