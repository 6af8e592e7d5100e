//! The addresses of the server: who may ask, what is read, and which handler answers.

use super::Limits;
use super::actor::{About, Actor};
use super::answer::{Answer, stream, whole};
use super::failure::Failure;
use super::prepare::{Prepared, chat, raw};
use super::reply::{Head, json_body};
use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// What all handlers share.
pub struct App {
    /// The engine's thread.
    pub actor: Actor,
    /// What is known of the engine.
    pub about: About,
    /// Name of the base model.
    pub name: String,
    /// What a request may ask for.
    pub limits: Limits,
    /// SHA-256 of the API key, when one is needed.
    pub key: Option<[u8; 32]>,
    /// One permit for each call that may be in flight.
    pub permits: Arc<Semaphore>,
    /// KiB of bodies that may be held at the same time.
    pub bodies: Arc<Semaphore>,
    /// Set when the server is about to end.
    pub stopping: AtomicBool,
    /// Id of the next call.
    pub next_id: AtomicU64,
    /// Told apart from other runs of the server.
    pub run: u32,
    /// When the server started, in seconds since 1970.
    pub started: u64,
}

/// SHA-256 of a key: hashes are compared, so that the time tells nothing of the key.
pub fn hash_key(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Seconds since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A number that differs from run to run and call to call.
pub fn fresh() -> u64 {
    std::hash::RandomState::new().hash_one(SystemTime::now())
}

/// The router.
pub fn router(app: Arc<App>) -> axum::Router {
    axum::Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .layer(from_fn_with_state(app.clone(), admit))
        .route("/health", get(health))
        .fallback(|request: Request| async move {
            Failure::not_found(format!(
                "there is no `{}` here",
                super::failure::shorten(request.uri().path())
            ))
        })
        .method_not_allowed_fallback(|| async {
            let mut failure = Failure::not_found("this address does not take that method");
            failure.status = StatusCode::METHOD_NOT_ALLOWED;
            failure
        })
        .with_state(app)
}

/// Lets those in who may ask.
async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, Failure> {
    let headers = request.headers();
    match &app.key {
        Some(key) if !has_key(headers, key) => return Err(Failure::unauthorized()),
        None if foreign(headers) => return Err(Failure::foreign_origin()),
        _ => {}
    }
    if app.stopping.load(Relaxed) {
        return Err(Failure::stopping());
    }
    Ok(next.run(request).await)
}

fn has_key(headers: &HeaderMap, key: &[u8; 32]) -> bool {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = match sent.split_once(' ') {
        Some((scheme, sent)) if scheme.eq_ignore_ascii_case("bearer") => hash_key(sent.trim()),
        _ => return false,
    };
    sent.iter().zip(key).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Whether a browser asks on behalf of a page that does not come from this machine.
fn foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let Some((_, host)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return true;
    };
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => host,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let status = match (app.actor.ended(), app.stopping.load(Relaxed)) {
        (true, _) => "the engine has ended",
        (false, true) => "stopping",
        (false, false) => "ok",
    };
    let mut body = json!(app.actor.counts.snapshot());
    body["status"] = status.into();
    body["slots"] = app.about.options.slots.into();
    body["queue"] = app.limits.queue.into();
    let code = if status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, json_body(&body)).into_response()
}

fn card(app: &App, name: &str) -> Value {
    let parent = (name != app.name).then_some(app.name.as_str());
    json!({"id": name, "object": "model", "created": app.started, "owned_by": "rederive",
        "max_model_len": app.about.options.context, "parent": parent})
}

fn names(app: &App) -> impl Iterator<Item = &String> {
    std::iter::once(&app.name).chain(&app.about.adapters)
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let data: Vec<Value> = names(&app).map(|name| card(&app, name)).collect();
    json_body(&json!({"object": "list", "data": data}))
}

async fn model(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Failure> {
    let Path(name) = name.map_err(|e| Failure::invalid(format!("the address cannot be read: {e}")))?;
    if names(&app).any(|known| *known == name) {
        return Ok(json_body(&card(&app, &name)));
    }
    Err(Failure::unknown_model(&name, &names(&app).cloned().collect::<Vec<_>>()))
}

async fn chat_completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    let deadline = Instant::now() + app.limits.request_time;
    let held = read(&app, request).await?;
    let there = app.clone();
    serve(app, deadline, move || chat(&held.body, &there.about, &there.name, &there.limits)).await
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    let deadline = Instant::now() + app.limits.request_time;
    let held = read(&app, request).await?;
    let there = app.clone();
    serve(app, deadline, move || raw(&held.body, &there.about, &there.name, &there.limits)).await
}

/// How long a body may take to arrive.
const BODY_SECONDS: u64 = 30;

/// Bodies of the largest size that may be held at the same time, smaller ones in proportion.
pub const BODIES: usize = 16;

/// A body, and its part of the memory for bodies, which it holds until it is read.
struct Held {
    body: axum::body::Bytes,
    _room: OwnedSemaphorePermit,
}

/// KiB that a body of so many bytes takes.
pub fn kib(bytes: usize) -> usize {
    bytes / 1024 + 1
}

/// Reads a body of bounded size in bounded time.
async fn read(app: &App, request: Request<Body>) -> Result<Held, Failure> {
    if app.permits.available_permits() == 0 {
        return Err(Failure::busy());
    }
    let limit = app.limits.body_bytes;
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse().ok());
    let most = declared.unwrap_or(limit);
    if most > limit {
        return Err(Failure::too_large(limit));
    }
    let room = u32::try_from(kib(most)).unwrap_or(u32::MAX);
    let room = app.bodies.clone().try_acquire_many_owned(room).map_err(|_| Failure::busy())?;
    let until = Instant::now() + Duration::from_secs(BODY_SECONDS);
    match timeout_at(until, to_bytes(request.into_body(), limit)).await {
        Err(_) => Err(Failure::slow_body(BODY_SECONDS)),
        Ok(Ok(body)) => Ok(Held { body, _room: room }),
        Ok(Err(e))
            if std::error::Error::source(&e).is_some_and(|e| e.is::<http_body_util::LengthLimitError>()) =>
        {
            Err(Failure::too_large(limit))
        }
        Ok(Err(e)) => Err(Failure::invalid(format!("the request body cannot be read: {e}"))),
    }
}

/// Prepares a request away from the threads that serve connections, hands its calls to the engine and answers.
async fn serve(
    app: Arc<App>,
    deadline: Instant,
    prepare: impl FnOnce() -> Result<Prepared, Failure> + Send + 'static,
) -> Result<Response, Failure> {
    let prepared = tokio::task::spawn_blocking(prepare)
        .await
        .map_err(|_| Failure::internal("reading the request broke"))??;
    // Few enough bits that a client's numbers hold them.
    let seed = prepared.ask.seed.unwrap_or_else(|| (fresh() >> 11) as i64);
    let id = app.next_id.fetch_add(prepared.choices() as u64, Relaxed);
    let kind = if prepared.chat { "chatcmpl" } else { "cmpl" };
    let head = Head {
        id: format!("{kind}-{:08x}{id}", app.run),
        chat: prepared.chat,
        created: seconds(),
        model: prepared.model.clone(),
        fingerprint: app.about.identity.engine_sha256.chars().take(16).collect(),
        seed,
        logprobs: prepared.ask.sampling.logprobs,
        token_ids: prepared.ask.token_ids,
    };
    let streamed = prepared.ask.stream;
    let answer = Answer::start(app, prepared, head, id, deadline)?;
    let mut response = if streamed { stream(answer) } else { whole(answer).await? };
    response.headers_mut().insert("x-rederive-seed", seed.into());
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn a_key_is_the_whole_key() {
        let key = hash_key("secret");
        let sent = |value: &str| has_key(&headers(header::AUTHORIZATION, value), &key);
        assert!(sent("Bearer secret") && sent("bearer  secret "));
        for wrong in ["secret", "Bearer secre", "Bearer secrets", "Basic secret", "Bearer", ""] {
            assert!(!sent(wrong), "{wrong}");
        }
        assert!(!has_key(&HeaderMap::new(), &key));
    }

    #[test]
    fn pages_of_other_sites_are_told_from_those_of_this_machine() {
        let of = |origin: &str| foreign(&headers(header::ORIGIN, origin));
        for own in ["http://localhost", "http://localhost:3000", "http://127.0.0.1:8080", "http://[::1]:80"] {
            assert!(!of(own), "{own}");
        }
        for other in
            ["https://example.org", "null", "http://localhost.example.org", "http://127.0.0.1.example.org:80"]
        {
            assert!(of(other), "{other}");
        }
        assert!(!foreign(&HeaderMap::new()));
    }
}
