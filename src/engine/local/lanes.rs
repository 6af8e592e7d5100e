//! Who computes where. A lane is one sequence's share of the cache; at most `slots` lanes run
//! at a time, the others keep what they last computed until it is overwritten. A new call
//! takes over the longest prefix that any lane has computed for the same adapter: the values
//! are bit-identical to computing them again, so sharing changes nothing but time. Where layers
//! have a memory that cannot be cut back, only the whole of what a lane computed can be taken
//! over; prompts then halt before their last token, so that others can start from there.

use super::runner::Pools;
use super::sample::StreamKey;
use super::stop::StopWatch;
use super::thinking::Thinking;
use crate::engine::{Likeliest, Request};
use crate::error::Result;
use std::collections::VecDeque;
use std::time::Instant;

/// A call waits for another that is computing a prefix of its context when that saves it at
/// least this many tokens.
const WORTH_WAITING: usize = 8;

/// One running call.
pub struct Run {
    /// What was asked; its tokens are moved into `tokens`.
    pub request: Request,
    /// The context, then the sampled ids.
    pub tokens: Vec<u32>,
    /// Tokens of context.
    pub prompt: usize,
    /// Tokens of context that were taken over from another lane, or from what this one had computed.
    pub shared: usize,
    /// Log-probability of each sampled id, when asked for.
    pub logprobs: Vec<f32>,
    /// The most likely ids at each sampled id, when asked for.
    pub top_logprobs: Vec<Likeliest>,
    /// Stop strings, when there are any.
    pub watch: Option<StopWatch>,
    /// The call's thought, when it has a budget.
    pub thinking: Option<Thinking>,
    /// The call's random stream.
    pub key: StreamKey,
    /// When it was submitted.
    pub submitted: Instant,
    /// Order of admission.
    pub ticket: u64,
}

/// One sequence's share of the cache.
#[derive(Default)]
pub struct Lane {
    /// Ids whose keys and values lie in the cache, from position 0.
    pub computed: Vec<u32>,
    /// The adapter they were computed with.
    pub adapter: Option<usize>,
    /// When the contents last served a call (a ticket; 0 is never).
    pub served: u64,
    /// The call that runs here.
    pub run: Option<Run>,
}

/// A call that has not started.
pub struct Waiting {
    /// What was asked.
    pub request: Request,
    /// When.
    pub submitted: Instant,
    /// Its thought, when it has a budget.
    pub thinking: Option<Thinking>,
}

/// All lanes and the queue before them.
pub struct Lanes {
    /// Running and idle lanes; more of them than slots keep earlier contexts.
    pub lanes: Vec<Lane>,
    /// Calls in order of arrival.
    pub queue: VecDeque<Waiting>,
    slots: usize,
    share: bool,
    /// Whether only the whole of a lane's contents can be taken over.
    whole: bool,
    tickets: u64,
}

impl Lanes {
    /// `lanes` lanes of which at most `slots` run at a time; `share` allows taking over prefixes, with
    /// `whole` only entire ones.
    pub fn new(lanes: usize, slots: usize, share: bool, whole: bool) -> Self {
        let lanes = (0..lanes).map(|_| Lane::default()).collect();
        Lanes { lanes, queue: VecDeque::new(), slots, share, whole, tickets: 0 }
    }

    /// Calls that run.
    pub fn running(&self) -> usize {
        self.lanes.iter().filter(|l| l.run.is_some()).count()
    }

    /// Starts calls in order of arrival while slots are free; one that would compute again what a
    /// running call is just computing stays back. Returns the number of tokens taken over.
    pub fn admit(&mut self, cache: &mut dyn Pools) -> Result<u64> {
        let mut shared_tokens = 0;
        let mut running = self.running();
        let mut at = 0;
        while at < self.queue.len() && running < self.slots {
            let request = &self.queue[at].request;
            let (source, shared) = self.longest_prefix(request);
            if self.is_being_computed(request, shared) {
                at += 1;
                continue;
            }
            let Some(waiting) = self.queue.remove(at) else { break };
            self.start(waiting, source, shared, cache)?;
            running += 1;
            shared_tokens += shared as u64;
        }
        self.keep_for_the_queue(cache)?;
        Ok(shared_tokens)
    }

    /// Up to which token a call's context is computed next, given that `done` are.
    pub fn stop(&self, run: &Run, done: usize) -> usize {
        if self.whole && self.share && done + 1 < run.prompt { run.prompt - 1 } else { run.tokens.len() }
    }

    /// Copies what a call has halted at into an idle lane when calls that cannot start yet begin like it:
    /// once it goes on, its memory is of no use to them.
    fn keep_for_the_queue(&mut self, cache: &mut dyn Pools) -> Result<()> {
        if !self.whole || !self.share {
            return Ok(());
        }
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            let halted = lane.run.as_ref().is_some_and(|run| lane.computed.len() + 1 == run.prompt);
            let wanted = |w: &Waiting| {
                w.request.adapter == lane.adapter
                    && w.request.tokens.len() > lane.computed.len()
                    && w.request.tokens.starts_with(&lane.computed)
            };
            let kept = |l: &Lane| l.run.is_none() && l.adapter == lane.adapter && l.computed == lane.computed;
            let idle = self.lanes.iter().any(|l| l.run.is_none());
            if !halted || !idle || !self.queue.iter().any(wanted) || self.lanes.iter().any(kept) {
                continue;
            }
            let target = self.least_useful();
            cache.copy_prefix(index, target, self.lanes[index].computed.len())?;
            self.lanes[target] = Lane {
                computed: self.lanes[index].computed.clone(),
                adapter: self.lanes[index].adapter,
                served: self.tickets,
                run: None,
            };
        }
        Ok(())
    }

    /// Computes a lane's context anew from its first token.
    pub fn restart(&mut self, lane: usize, cache: &mut dyn Pools) -> Result<()> {
        self.lanes[lane].computed.clear();
        cache.forget(lane)
    }

    /// The lane with the longest computed prefix of a call's context, and its length. The last
    /// token of a context is always computed anew, because its logits are needed.
    fn longest_prefix(&self, request: &Request) -> (usize, usize) {
        if !self.share {
            return (0, 0);
        }
        let mut best = (0, 0);
        for (index, lane) in self.lanes.iter().enumerate().filter(|(_, l)| l.adapter == request.adapter) {
            let shared = common(&lane.computed, &request.tokens[..request.tokens.len() - 1]);
            if self.whole && shared < lane.computed.len() {
                continue;
            }
            // Of equals, one that can be continued in place saves the copy.
            if shared > best.1
                || (shared == best.1 && self.continues(index, shared) && !self.continues(best.0, shared))
            {
                best = (index, shared);
            }
        }
        best
    }

    /// Whether an idle lane's whole contents are a prefix of that length: nothing is lost by continuing it.
    fn continues(&self, lane: usize, shared: usize) -> bool {
        let lane = &self.lanes[lane];
        lane.run.is_none() && shared > 0 && lane.computed.len() == shared
    }

    fn is_being_computed(&self, request: &Request, shared: usize) -> bool {
        self.share
            && self.lanes.iter().filter(|l| l.adapter == request.adapter).any(|lane| {
                lane.run.as_ref().is_some_and(|run| {
                    let goal = &run.tokens[..if self.whole { run.prompt - 1 } else { run.prompt }];
                    let planned = common(goal, &request.tokens[..request.tokens.len() - 1]);
                    let planned = if self.whole && planned < goal.len() { 0 } else { planned };
                    planned > lane.computed.len() && planned >= shared + WORTH_WAITING
                })
            })
    }

    fn start(&mut self, waiting: Waiting, source: usize, shared: usize, cache: &mut dyn Pools) -> Result<()> {
        self.tickets += 1;
        let target = if self.continues(source, shared) { source } else { self.least_useful() };
        if shared == 0 {
            cache.forget(target)?;
        }
        cache.copy_prefix(source, target, shared)?;
        if shared > 0 {
            self.lanes[source].served = self.tickets;
        }
        let Waiting { mut request, submitted, thinking } = waiting;
        let tokens = std::mem::take(&mut request.tokens);
        let lane = &mut self.lanes[target];
        lane.computed.clear();
        lane.computed.extend_from_slice(&tokens[..shared]);
        lane.adapter = request.adapter;
        lane.served = self.tickets;
        lane.run = Some(Run {
            prompt: tokens.len(),
            shared,
            tokens,
            logprobs: Vec::new(),
            top_logprobs: Vec::new(),
            watch: (!request.sampling.stop.is_empty()).then(|| StopWatch::new(request.sampling.stop.clone())),
            thinking,
            key: StreamKey::new(&request.stream),
            submitted,
            ticket: self.tickets,
            request,
        });
        Ok(())
    }

    /// The idle lane whose contents have been of no use for longest.
    fn least_useful(&self) -> usize {
        let idle = self.lanes.iter().enumerate().filter(|(_, l)| l.run.is_none());
        idle.min_by_key(|(index, l)| (l.served, *index))
            .map(|(index, _)| index)
            .expect("fewer calls run than lanes exist")
    }

    /// Ends the call in a lane; what it computed stays until the lane is taken.
    pub fn release(&mut self, lane: usize) -> Option<Run> {
        let lane = self.lanes.get_mut(lane)?;
        lane.served = self.tickets;
        lane.run.take()
    }

    /// Whether a call of that id waits or runs.
    pub fn contains(&self, id: u64) -> bool {
        self.lane_of(id).is_some() || self.queue.iter().any(|w| w.request.id == id)
    }

    /// The lane in which a call of that id runs.
    pub fn lane_of(&self, id: u64) -> Option<usize> {
        self.lanes.iter().position(|l| l.run.as_ref().is_some_and(|r| r.request.id == id))
    }
}

/// Length of the longest common prefix.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::super::cache::{Cache, LaneShape};
    use super::*;
    use crate::engine::{Sampling, Stream};

    fn cache(lanes: usize) -> Cache {
        let config = crate::model::testing::model("llama_tied").config;
        Cache::new(lanes, LaneShape::new(&config, 64), &config)
    }

    fn waiting(id: u64, tokens: impl IntoIterator<Item = u32>, adapter: Option<usize>) -> Waiting {
        let stream = Stream { seed: 0, task_id: "t".into(), rollout: 0, turn: 0 };
        let tokens = tokens.into_iter().collect();
        let request = Request { id, tokens, adapter, sampling: Sampling::greedy(4), stream };
        Waiting { request, submitted: Instant::now(), thinking: None }
    }

    /// Computes everything that is pending in the lane where `id` runs.
    fn compute(lanes: &mut Lanes, id: u64) -> usize {
        let index = lanes.lane_of(id).unwrap();
        let lane = &mut lanes.lanes[index];
        lane.computed = lane.run.as_ref().unwrap().tokens.clone();
        index
    }

    #[test]
    fn calls_start_in_order_and_only_as_slots_are_free() {
        let (mut lanes, mut cache) = (Lanes::new(3, 2, true, false), cache(3));
        for id in 0..4 {
            lanes.queue.push_back(waiting(id, [id as u32 + 10, 1], None));
        }
        assert_eq!(lanes.admit(&mut cache).unwrap(), 0);
        assert_eq!((lanes.running(), lanes.queue.len()), (2, 2));
        assert!(lanes.lane_of(0).is_some() && lanes.lane_of(1).is_some() && lanes.contains(3));
        let index = compute(&mut lanes, 1);
        assert_eq!(lanes.release(index).unwrap().request.id, 1);
        lanes.admit(&mut cache).unwrap();
        assert!(
            lanes.lane_of(2).is_some() && lanes.lane_of(2) != Some(index),
            "the spare lane was never used"
        );
    }

    #[test]
    fn samples_of_one_prompt_wait_for_the_first_and_then_share_it() {
        let (mut lanes, mut cache) = (Lanes::new(4, 4, true, false), cache(4));
        for id in 0..3 {
            lanes.queue.push_back(waiting(id, 0..30, None));
        }
        lanes.queue.push_back(waiting(3, 0..30, Some(0)));
        assert_eq!(lanes.admit(&mut cache).unwrap(), 0);
        assert_eq!(lanes.running(), 2, "another adapter's values are of no use");
        compute(&mut lanes, 0);
        assert_eq!(lanes.admit(&mut cache).unwrap(), 29 + 29);
        assert_eq!(lanes.running(), 4);
        let shared = |id| lanes.lanes[lanes.lane_of(id).unwrap()].run.as_ref().unwrap().shared;
        assert_eq!([0, 1, 2, 3].map(shared), [0, 29, 29, 0]);
    }

    #[test]
    fn a_conversation_is_continued_in_place() {
        let (mut lanes, mut cache) = (Lanes::new(3, 1, true, false), cache(3));
        let mut places = Vec::new();
        for id in 0..3 {
            lanes.queue.push_back(waiting(id, [7, 7, 7, id as u32], None));
            lanes.admit(&mut cache).unwrap();
            places.push(compute(&mut lanes, id));
            lanes.release(places[id as usize]);
        }
        for id in [1, 0, 2] {
            lanes.queue.push_back(waiting(id + 10, [7, 7, 7, id as u32, 5, 5], None));
            assert_eq!(lanes.admit(&mut cache).unwrap(), 4);
            let index = compute(&mut lanes, id + 10);
            assert_eq!(index, places[id as usize]);
            lanes.release(index);
        }
    }

    #[test]
    fn a_prefix_is_copied_into_the_lane_least_useful_and_its_source_is_kept() {
        let (mut lanes, mut cache) = (Lanes::new(2, 1, true, false), cache(2));
        for (id, tokens) in [(0, [9, 9, 9, 9]), (1, [1, 2, 3, 4]), (2, [1, 2, 8, 8])] {
            lanes.queue.push_back(waiting(id, tokens, None));
            lanes.admit(&mut cache).unwrap();
            let index = compute(&mut lanes, id);
            lanes.release(index);
        }
        let kept: Vec<_> = lanes.lanes.iter().map(|l| l.computed.clone()).collect();
        assert_eq!(kept, [vec![1, 2, 8, 8], vec![1, 2, 3, 4]]);
    }

    #[test]
    fn without_sharing_nothing_is_taken_over() {
        let (mut lanes, mut cache) = (Lanes::new(4, 4, false, false), cache(4));
        for id in 0..4 {
            lanes.queue.push_back(waiting(id, 0..30, None));
        }
        assert_eq!(lanes.admit(&mut cache).unwrap(), 0);
        assert_eq!(lanes.running(), 4);
    }
}
