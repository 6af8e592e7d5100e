//! The engine's own thread. An engine stays on the thread that made it, as a GPU wants it; calls
//! come in over a channel, and each call's tokens go out over the channel that came with it.

use super::choice::Sampled;
use crate::engine::local::{Engine, MemoryPlan, Options, SoFar};
use crate::engine::{Backend, Finish, Identity, Request, Thought};
use crate::error::{Error, Result};
use crate::model::Model;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

/// What happens to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Tokens were sampled.
    Tokens(Sampled),
    /// It ended.
    Done(Outcome),
    /// It ended without an answer.
    Failed(String),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Why.
    pub finish: Finish,
    /// Tokens of its context that were taken over from another computation.
    pub shared_tokens: Option<usize>,
    /// Its thought, when it had a budget for one and opened it.
    pub thought: Option<Thought>,
}

/// A call for the engine.
pub struct Call {
    /// What is asked; its id is unique.
    pub request: Request,
    /// Which choice of its request it is; sent along with every event.
    pub choice: usize,
    /// Where its events go. They are at most as many as the tokens that it may sample.
    pub events: UnboundedSender<(usize, Event)>,
    /// Its place among the calls in flight, given back when it ends.
    pub permit: OwnedSemaphorePermit,
}

enum Command {
    Start(Box<Call>),
    Cancel(u64),
    Stop,
}

/// What goes on, for `/health`.
#[derive(Debug, Default)]
pub struct Counts {
    running: AtomicU64,
    queued: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

/// Numbers at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Calls that hold a slot.
    pub running: u64,
    /// Calls that wait for one.
    pub queued: u64,
    /// Calls that ended with an answer.
    pub completed: u64,
    /// Calls given up because their client left or the time was over.
    pub cancelled: u64,
    /// Calls that ended with an error.
    pub failed: u64,
    /// Tokens of context of the completed calls.
    pub prompt_tokens: u64,
    /// Tokens sampled for the completed calls.
    pub completion_tokens: u64,
}

impl Counts {
    /// The numbers now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            running: self.running.load(Relaxed),
            queued: self.queued.load(Relaxed),
            completed: self.completed.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            failed: self.failed.load(Relaxed),
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            completion_tokens: self.completion_tokens.load(Relaxed),
        }
    }
}

/// What is known of an engine once it stands.
pub struct About {
    /// The model that answers.
    pub model: Arc<Model>,
    /// Names of the adapters, by handle.
    pub adapters: Vec<String>,
    /// Its sizes.
    pub options: Options,
    /// Who answers.
    pub identity: Identity,
    /// The memory that it holds.
    pub memory: MemoryPlan,
    /// Bytes of the longest text that can fit its context.
    pub longest_text: usize,
}

/// Talks to the engine's thread.
pub struct Actor {
    commands: Sender<Command>,
    /// Numbers that the thread keeps up to date.
    pub counts: Arc<Counts>,
    ended: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Actor {
    /// Makes the engine on a thread of its own and waits until it stands.
    pub fn start(make: impl FnOnce() -> Result<Engine> + Send + 'static) -> Result<(Actor, About)> {
        let (commands, inbox) = channel();
        let (ready, made) = channel();
        let (counts, ended) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        let (counts_there, ended_there) = (counts.clone(), ended.clone());
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || {
            let _ended = EndMark(ended_there);
            let engine = match make() {
                Ok(engine) => engine,
                Err(e) => {
                    let _ = ready.send(Err(e));
                    return;
                }
            };
            let about = About {
                model: engine.model().clone(),
                adapters: engine.adapter_names(),
                options: engine.options(),
                identity: engine.identity().clone(),
                memory: engine.memory_plan(),
                longest_text: engine
                    .model()
                    .tokenizer
                    .as_ref()
                    .map_or(0, |tokenizer| tokenizer.longest().saturating_mul(engine.options().context)),
            };
            if ready.send(Ok(about)).is_ok() {
                Worker { engine, calls: HashMap::new(), counts: counts_there }.run(&inbox);
            }
        })?;
        let about =
            made.recv().map_err(|_| Error::invalid("the engine's thread ended while it was made"))??;
        Ok((Actor { commands, counts, ended, thread: Mutex::new(Some(thread)) }, about))
    }

    /// Hands a call over; whether the engine is there to take it.
    pub fn submit(&self, call: Call) -> bool {
        self.commands.send(Command::Start(Box::new(call))).is_ok()
    }

    /// Gives a call up; nothing happens when it has ended.
    pub fn cancel(&self, id: u64) {
        // Without an engine there is nothing to give up.
        let _ = self.commands.send(Command::Cancel(id));
    }

    /// Whether the thread has ended, as it does after a fault or [`Actor::stop`].
    pub fn ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Ends the thread, and with it every call; waits for it.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Notes that the thread ended, however it ends.
struct EndMark(Arc<AtomicBool>);

impl Drop for EndMark {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

struct Running {
    choice: usize,
    events: UnboundedSender<(usize, Event)>,
    /// Tokens that were sent.
    sent: usize,
    _permit: OwnedSemaphorePermit,
}

struct Worker {
    engine: Engine,
    calls: HashMap<u64, Running>,
    counts: Arc<Counts>,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Command>) {
        loop {
            self.count();
            // With nothing to do it sleeps until something comes.
            let mut next =
                if self.engine.in_flight() == 0 { inbox.recv().ok() } else { inbox.try_recv().ok() };
            if next.is_none() && self.engine.in_flight() == 0 {
                return;
            }
            while let Some(command) = next {
                match command {
                    Command::Start(call) => self.start(*call),
                    Command::Cancel(id) => self.cancel(id),
                    Command::Stop => return,
                }
                next = inbox.try_recv().ok();
            }
            self.count();
            if self.engine.in_flight() > 0 {
                self.step();
            }
        }
    }

    fn count(&self) {
        let running = self.engine.running();
        self.counts.running.store(running as u64, Relaxed);
        self.counts.queued.store((self.engine.in_flight() - running) as u64, Relaxed);
    }

    fn start(&mut self, call: Call) {
        let Call { request, choice, events, permit } = call;
        let id = request.id;
        if events.is_closed() {
            self.counts.cancelled.fetch_add(1, Relaxed);
            return;
        }
        match self.engine.submit(request) {
            Ok(()) => {
                self.calls.insert(id, Running { choice, events, sent: 0, _permit: permit });
            }
            Err(e) => {
                self.counts.failed.fetch_add(1, Relaxed);
                let _ = events.send((choice, Event::Failed(e.to_string())));
            }
        }
    }

    fn cancel(&mut self, id: u64) {
        self.engine.cancel(id);
        if self.calls.remove(&id).is_some() {
            self.counts.cancelled.fetch_add(1, Relaxed);
        }
    }

    fn step(&mut self) {
        let done = match self.engine.step() {
            Ok(done) => done,
            Err(e) => return self.fail(&e),
        };
        let mut left = Vec::new();
        for (id, call) in &mut self.calls {
            let Some(so_far) = self.engine.sampled(*id) else { continue };
            if !call.send(so_far) {
                left.push(*id);
            }
        }
        left.into_iter().for_each(|id| self.cancel(id));
        for completion in done {
            let Some(mut call) = self.calls.remove(&completion.id) else { continue };
            call.send(SoFar {
                tokens: &completion.tokens,
                logprobs: completion.logprobs.as_deref().unwrap_or_default(),
                top_logprobs: completion.top_logprobs.as_deref().unwrap_or_default(),
            });
            let outcome = Outcome {
                finish: completion.finish,
                shared_tokens: completion.shared_tokens,
                thought: completion.thought,
            };
            let _ = call.events.send((call.choice, Event::Done(outcome)));
            self.counts.completed.fetch_add(1, Relaxed);
            self.counts.prompt_tokens.fetch_add(completion.prompt_tokens.unwrap_or(0) as u64, Relaxed);
            self.counts.completion_tokens.fetch_add(completion.tokens.len() as u64, Relaxed);
        }
    }

    /// A step that failed would fail again: the calls that took part in it end with its error.
    fn fail(&mut self, error: &Error) {
        let engine = &mut self.engine;
        let counts = &self.counts;
        self.calls.retain(|id, call| {
            let took_part = engine.sampled(*id).is_some();
            if took_part {
                engine.cancel(*id);
                counts.failed.fetch_add(1, Relaxed);
                let _ = call.events.send((call.choice, Event::Failed(error.to_string())));
            }
            !took_part
        });
    }
}

impl Running {
    /// Sends the tokens that were not sent yet; whether somebody still listens.
    fn send(&mut self, so_far: SoFar<'_>) -> bool {
        let fresh = so_far.tokens.get(self.sent..).unwrap_or_default();
        if fresh.is_empty() {
            return true;
        }
        let sampled = Sampled {
            ids: fresh.to_vec(),
            logprobs: so_far.logprobs.get(self.sent..).unwrap_or_default().to_vec(),
            top_logprobs: so_far.top_logprobs.get(self.sent..).unwrap_or_default().to_vec(),
        };
        self.sent = so_far.tokens.len();
        self.events.send((self.choice, Event::Tokens(sampled))).is_ok()
    }
}
