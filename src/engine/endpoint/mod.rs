//! Any OpenAI-compatible server as a backend: vLLM, llama.cpp, Ollama, or `rederive serve`. A few
//! threads send the calls; what goes wrong on the way is tried again and then stops the run, and is
//! never an answer; only a conversation that is too long for the server fails alone. What a server
//! does not promise (arithmetic, slots, token ids) stays unknown.

mod describe;
mod http;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
mod wire;

pub use http::Policy;

use super::{Backend, Completion, Identity, Request};
use crate::environment::Message;
use crate::error::{Error, Result};
use describe::Described;
use http::{Caller, Failure};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a step waits for an answer before it lets its caller look around.
const PATIENCE: Duration = Duration::from_millis(100);
/// Most calls that are sent at the same time.
const MOST_THREADS: usize = 256;

/// Counts the tokens of a conversation, the opening of the model's turn included.
pub type Count = Box<dyn Fn(&[Message]) -> Result<usize> + Send>;

/// Where a server is and how it is asked.
pub struct Options {
    /// Address of its API, such as `http://127.0.0.1:8080/v1`.
    pub url: String,
    /// The model to ask for, by the name that the server lists.
    pub model: String,
    /// A secret that is sent as a bearer token.
    pub api_key: Option<String>,
    /// Calls sent at the same time.
    pub width: usize,
    /// Further members of every request, such as `{"top_k": 0}`; part of the engine's identity.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// Whether the server must keep its `system_fingerprint`, where it tells one.
    pub fingerprint: bool,
    /// What is tried again, and for how long.
    pub policy: Policy,
    /// Our own count of a prompt's tokens, which the server's must equal.
    pub count: Option<Count>,
}

/// A connection to a server, with its threads.
pub struct Endpoint {
    identity: Identity,
    width: usize,
    shared: Arc<Shared>,
    count: Option<Count>,
    jobs: Option<Sender<Job>>,
    results: Receiver<(u64, Result<Completion, Failure>)>,
    /// Calls that were sent, by id, with their place for messages.
    waiting: VecDeque<(u64, String)>,
    /// Calls that turned out to be longer than the server's context, until somebody asks for them.
    turned_down: Vec<(u64, Error)>,
    /// An error that waits until the answers that came with it were handed out.
    broken: Option<Error>,
}

/// What every thread needs.
struct Shared {
    caller: Caller,
    url: String,
    described: Described,
    stop: AtomicBool,
}

struct Job {
    id: u64,
    body: Vec<u8>,
    expected_tokens: Option<usize>,
    submitted: Instant,
}

impl Endpoint {
    /// Asks the server what it is, and makes one short call. Refused where the model is not served, where the
    /// server counts a prompt's tokens otherwise than we do, and where it cannot be reached.
    pub fn connect(options: Options) -> Result<Endpoint> {
        let url = options.url.trim_end_matches('/').to_owned();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(Error::invalid(format!("`{url}` is no address of a server"))
                .hint("write one such as \"http://127.0.0.1:8080/v1\""));
        }
        let caller = Caller::new(&url, options.api_key, options.policy);
        let described = describe::describe(
            &caller,
            &url,
            &options.model,
            options.extra,
            options.fingerprint,
            options.count.as_deref(),
        )
        .map_err(|e| e.at(&url))?;
        let identity = described.identity()?;
        let width = options.width.clamp(1, MOST_THREADS);
        let shared = Arc::new(Shared { caller, url, described, stop: AtomicBool::new(false) });
        let (jobs, queue) = mpsc::channel::<Job>();
        let (answers, results) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..width {
            let (shared, queue, answers) = (shared.clone(), queue.clone(), answers.clone());
            std::thread::Builder::new().name(format!("endpoint-{number}")).spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    let id = job.id;
                    if answers.send((id, shared.work(job))).is_err() {
                        return;
                    }
                }
            })?;
        }
        Ok(Endpoint {
            identity,
            width,
            shared,
            count: options.count,
            jobs: Some(jobs),
            results,
            waiting: VecDeque::new(),
            turned_down: Vec::new(),
            broken: None,
        })
    }

    /// What the server said of itself when it was first asked, as JSON: what its identity is the hash of.
    pub fn description(&self) -> serde_json::Value {
        self.shared.described.as_json()
    }

    fn settle(&mut self, id: u64, result: Result<Completion, Failure>, done: &mut Vec<Completion>) {
        let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == id) else { return };
        let place = self.waiting.remove(at).map(|(_, place)| place).unwrap_or_default();
        match result {
            Ok(completion) => done.push(completion),
            Err(failure) if failure.too_long() => {
                self.turned_down.push((id, failure.into_input_error().at(place)));
            }
            Err(failure) => {
                self.broken.get_or_insert_with(|| failure.into_error(&self.shared.url).at(place));
            }
        }
    }
}

impl Shared {
    fn work(&self, job: Job) -> Result<Completion, Failure> {
        let url = format!("{}/chat/completions", self.url);
        let answer = self.caller.call(&url, Some(&job.body), &self.stop, &wire::Answer::read)?;
        self.described.still_holds(&answer)?;
        if let (Some(ours), Some(theirs)) = (job.expected_tokens, answer.prompt_tokens)
            && ours != theirs
        {
            return Err(Failure::stop(
                format!("the server counts {theirs} tokens of context, and our rendering has {ours}"),
                "it cut or changed the prompt: give it a longer context, and the template of the model named as `source`",
            ));
        }
        Ok(Completion {
            id: job.id,
            tokens: answer.text.bytes().map(u32::from).collect(),
            text: answer.text,
            finish: answer.finish,
            prompt_tokens: answer.prompt_tokens,
            shared_tokens: None,
            completion_tokens: answer.completion_tokens,
            thought: None,
            top_logprobs: None,
            logprobs: None,
            wall_ms: job.submitted.elapsed().as_millis() as u64,
        })
    }
}

impl Backend for Endpoint {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The conversation itself: the server renders it.
    fn render(&self, messages: &[Message]) -> Result<Vec<u32>> {
        wire::pack(messages)
    }

    fn extend(&self, context: &[u32], sampled: &[u32], next: &Message) -> Result<Vec<u32>> {
        let mut messages = wire::unpack(context)?;
        messages.push(Message::assistant(wire::text_of(sampled)?));
        messages.push(next.clone());
        wire::pack(&messages)
    }

    fn submit(&mut self, request: Request) -> Result<()> {
        let place = format!("request {}", request.id);
        if request.adapter.is_some() || request.sampling.logprobs {
            return Err(
                Error::invalid("an endpoint has no adapters of ours, and no log-probabilities").at(place)
            );
        }
        if self.waiting.iter().any(|(id, _)| *id == request.id) {
            return Err(Error::invalid("another call of this id is in flight").at(place));
        }
        let messages = wire::unpack(&request.tokens).map_err(|e| e.at(&place))?;
        let expected_tokens = self.count.as_ref().map(|count| count(&messages)).transpose()?;
        let body = self.shared.described.body(&messages, &request.sampling, wire::seed(&request.stream))?;
        let stream = &request.stream;
        let place = format!("task {}, rollout {}, turn {}", stream.task_id, stream.rollout, stream.turn);
        let job = Job { id: request.id, body, expected_tokens, submitted: Instant::now() };
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if !sent {
            return Err(Error::refused("the threads that talk to the server have ended")
                .at(place)
                .hint("run again"));
        }
        self.waiting.push_back((request.id, place));
        Ok(())
    }

    /// Waits a moment for answers. A call that failed for good is an error of the next step, so that answers
    /// which came with it are kept.
    fn step(&mut self) -> Result<Vec<Completion>> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let mut done = Vec::new();
        if self.waiting.is_empty() {
            return Ok(done);
        }
        match self.results.recv_timeout(PATIENCE) {
            Ok((id, result)) => self.settle(id, result, &mut done),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(
                    Error::refused("the threads that talk to the server have ended").hint("run again")
                );
            }
        }
        while let Ok((id, result)) = self.results.try_recv() {
            self.settle(id, result, &mut done);
        }
        match self.broken.take() {
            Some(error) if done.is_empty() => Err(error),
            later => {
                self.broken = later;
                Ok(done)
            }
        }
    }

    fn turned_down(&mut self) -> Vec<(u64, Error)> {
        std::mem::take(&mut self.turned_down)
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn width(&self) -> usize {
        self.width
    }

    fn gives_token_ids(&self) -> bool {
        false
    }
}

impl Drop for Endpoint {
    /// Threads end after their call; nobody waits for a server that does not answer.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.jobs = None;
    }
}
