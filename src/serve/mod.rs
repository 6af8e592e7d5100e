//! A server that speaks the OpenAI API (chat and raw completions, streamed or not, tools,
//! log-probabilities) for one model and its adapters. It owns the engine on a thread of its own,
//! bounds what it takes on, and leaves nothing behind when a client or the server itself goes.

mod actor;
mod answer;
mod ask;
mod choice;
mod conversation;
mod failure;
mod fields;
mod listen;
mod prepare;
mod reply;
mod routes;
mod split;
#[cfg(test)]
mod tests;
mod text;
mod tools;

pub use actor::Snapshot;
pub use listen::Listen;
pub use split::{Delta, Message, Splitter};
pub use tools::ToolCall;

use crate::engine::local::{Engine, MemoryPlan};
use crate::error::{Error, Result};
use listen::{Bound, Listener, SocketFile};
use routes::App;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// What a request may ask for, and how many may wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Calls that may wait for a slot; more are answered with 429.
    pub queue: usize,
    /// Most choices (`n`) of a request.
    pub choices: u32,
    /// Largest body in bytes.
    pub body_bytes: usize,
    /// How long a request may take, waiting included.
    pub request_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { queue: 256, choices: 64, body_bytes: 8 << 20, request_time: Duration::from_secs(600) }
    }
}

/// How to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where to listen.
    pub listen: Listen,
    /// Name of the base model; adapters go by the names they were registered under.
    pub name: String,
    /// The key that clients must send; an address beyond this machine needs one.
    pub api_key: Option<String>,
    /// What a request may ask for.
    pub limits: Limits,
}

/// A running server.
pub struct Server {
    app: Arc<App>,
    listen: Listen,
    _file: Option<SocketFile>,
    runtime: Option<tokio::runtime::Runtime>,
    /// Sent to when no more connections are to be taken.
    stop: Option<oneshot::Sender<()>>,
    /// Finished when the last connection has ended.
    serving: tokio::task::JoinHandle<()>,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Calls that were cut off because the time was over.
    pub cut: u64,
    /// What was done in all.
    pub counts: Snapshot,
}

impl Server {
    /// Makes the engine on a thread of its own, binds, and serves from then on. Blocks until clients are
    /// answered. Errors when the engine cannot be made, when the address is taken or open to others without
    /// a key, and when an adapter has the base model's name.
    pub fn start(
        engine: impl FnOnce() -> Result<Engine> + Send + 'static,
        options: Options,
    ) -> Result<Server> {
        let Options { listen, name, api_key, limits } = options;
        if api_key.as_deref().is_some_and(|key| key.trim() != key || key.is_empty()) {
            return Err(
                Error::invalid("the API key is empty, or begins or ends with white space").at("API key")
            );
        }
        listen.check(api_key.is_some())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(8)
            .thread_name("serve")
            .enable_all()
            .build()?;
        let (actor, about) = actor::Actor::start(engine)?;
        if about.adapters.contains(&name) {
            return Err(Error::invalid(format!("an adapter has the name of the base model, `{name}`"))
                .hint("give one of them another name"));
        }
        let places = about.options.slots.saturating_add(limits.queue).min(Semaphore::MAX_PERMITS);
        let bodies = (routes::BODIES * routes::kib(limits.body_bytes)).min(Semaphore::MAX_PERMITS);
        let app = Arc::new(App {
            actor,
            about,
            name,
            limits,
            key: api_key.as_deref().map(routes::hash_key),
            permits: Arc::new(Semaphore::new(places)),
            bodies: Arc::new(Semaphore::new(bodies)),
            stopping: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
            run: routes::fresh() as u32,
            started: routes::seconds(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound_sender, bound) = mpsc::channel();
        let router = routes::router(app.clone());
        let serving = runtime.spawn(async move {
            let listener = match Listener::bind(&listen).await {
                Ok(Bound { listener, listen, file }) => {
                    let _ = bound_sender.send(Ok((listen, file)));
                    listener
                }
                Err(e) => {
                    let _ = bound_sender.send(Err(e));
                    return;
                }
            };
            let stopped = async {
                // A server that was dropped without a word stops too.
                let _ = stopped.await;
            };
            // Errors of single connections end those; accepting goes on.
            let _ = match listener {
                Listener::Tcp(tcp) => {
                    use axum::serve::ListenerExt;
                    // Small pieces of a stream go out at once; without it they only come later.
                    let tcp = tcp.tap_io(|stream| drop(stream.set_nodelay(true)));
                    axum::serve(tcp, router).with_graceful_shutdown(stopped).await
                }
                #[cfg(unix)]
                Listener::Unix(unix) => axum::serve(unix, router).with_graceful_shutdown(stopped).await,
            };
        });
        let bound = bound.recv().map_err(|_| Error::invalid("the server's runtime ended at its start"));
        match bound.and_then(|bound| bound) {
            Ok((listen, file)) => {
                Ok(Server { app, listen, _file: file, runtime: Some(runtime), stop: Some(stop), serving })
            }
            Err(e) => {
                runtime.shutdown_background();
                app.actor.stop();
                Err(e)
            }
        }
    }

    /// Where it listens, with the real port.
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Names of the models served: the base model first.
    pub fn models(&self) -> Vec<String> {
        std::iter::once(&self.app.name).chain(&self.app.about.adapters).cloned().collect()
    }

    /// The memory that its engine holds.
    pub fn memory_plan(&self) -> MemoryPlan {
        self.app.about.memory
    }

    /// What goes on.
    pub fn counts(&self) -> Snapshot {
        self.app.actor.counts.snapshot()
    }

    /// Whether the engine broke; every request fails from then on.
    pub fn broken(&self) -> bool {
        self.app.actor.ended()
    }

    /// Takes no more requests, lets those that run finish within `grace`, then ends. Blocks until then.
    pub fn stop(mut self, grace: Duration) -> Ended {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> Ended {
        self.app.stopping.store(true, Relaxed);
        drop(self.stop.take());
        let until = Instant::now() + grace;
        // A broken engine finishes nothing.
        while !self.app.actor.ended() && !self.serving.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let counts = self.counts();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        self.app.actor.stop();
        Ended { cut: counts.running + counts.queued, counts }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.runtime.is_some() {
            self.end(Duration::ZERO);
        }
    }
}
