//! One call to a server, until it succeeds or there is no hope: refused connections, time-outs, cut
//! answers, 429 and 5xx are tried again after a pause that doubles, or that the server asked for.

use super::wire::short;
use crate::error::Error;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::{Response, StatusCode};

/// Largest answer that is read.
const MOST_BYTES: u64 = 32 << 20;
/// Longest pause that is kept, whatever a server asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How often a pause looks whether it is still wanted.
const GLANCE: Duration = Duration::from_millis(50);

/// What is tried again, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How often a call is tried again after it failed.
    pub retries: u32,
    /// Pause before the first of these; each further one is twice as long.
    pub pause: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
}

/// What a failure means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The same call may succeed later.
    Again,
    /// It will not, nor will others.
    Stop,
    /// This one asks for more than the server's context holds.
    TooLong,
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    what: String,
    remedy: Option<&'static str>,
    kind: Kind,
    /// The pause that the server asked for.
    pause: Option<Duration>,
}

impl Failure {
    /// One that may pass.
    pub fn again(what: String) -> Failure {
        Failure { what, remedy: None, kind: Kind::Again, pause: None }
    }

    /// One that will not.
    pub fn stop(what: String, remedy: &'static str) -> Failure {
        Failure { what, remedy: Some(remedy), kind: Kind::Stop, pause: None }
    }

    /// Whether the conversation is too long for the server: the failure of one call, not of the run.
    pub fn too_long(&self) -> bool {
        self.kind == Kind::TooLong
    }

    /// The error of a call that is too long, as one of its input.
    pub fn into_input_error(self) -> Error {
        Error::invalid(self.what).hint(self.remedy.unwrap_or_default())
    }

    /// The error that ends the run.
    pub fn into_error(self, url: &str) -> Error {
        let remedy = self.remedy.map_or_else(
            || format!("is the server at {url} well? The same command goes on from what is finished"),
            str::to_owned,
        );
        Error::refused(self.what).hint(remedy)
    }
}

/// A client of one server.
pub struct Caller {
    agent: Agent,
    key: Option<String>,
    policy: Policy,
}

impl Caller {
    /// A client that keeps its connections. A server on this machine is reached without a proxy.
    pub fn new(url: &str, key: Option<String>, policy: Policy) -> Caller {
        let host = url.split("://").nth(1).unwrap_or_default().split(['/', ':']).next().unwrap_or_default();
        let here = host == "localhost" || host.starts_with("127.") || url.contains("://[::1]");
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(policy.timeout))
            .timeout_connect(Some(policy.timeout.min(Duration::from_secs(20))))
            .user_agent(concat!("rederive/", env!("CARGO_PKG_VERSION")));
        if here {
            config = config.proxy(None);
        }
        Caller { agent: config.build().new_agent(), key, policy }
    }

    /// Sends `body` by POST (without one: GET) until `read` accepts the answer. Ends early when `stop` is set.
    pub fn call<T>(
        &self,
        url: &str,
        body: Option<&[u8]>,
        stop: &AtomicBool,
        read: &dyn Fn(&[u8]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut pause = self.policy.pause;
        for attempt in 0..=self.policy.retries {
            let failure = match self.once(url, body).and_then(|bytes| read(&bytes)) {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            if failure.kind != Kind::Again {
                return Err(failure);
            }
            if attempt == self.policy.retries {
                let times = self.policy.retries + 1;
                let what =
                    if times == 1 { failure.what } else { format!("{} (tried {times} times)", failure.what) };
                return Err(Failure { what, ..failure });
            }
            sleep(failure.pause.unwrap_or(pause).min(LONGEST_PAUSE), stop)?;
            pause = pause.saturating_mul(2);
        }
        Err(Failure::again("the server was not asked".into()))
    }

    /// The body of a good answer.
    fn once(&self, url: &str, body: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
        let key = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let answer = match body {
            Some(body) => {
                let mut request = self.agent.post(url).content_type("application/json");
                if let Some(key) = &key {
                    request = request.header("Authorization", key);
                }
                request.send(body)
            }
            None => {
                let mut request = self.agent.get(url);
                if let Some(key) = &key {
                    request = request.header("Authorization", key);
                }
                request.call()
            }
        };
        let mut answer = answer.map_err(transport)?;
        let bytes = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
        let status = answer.status();
        if status.is_success() {
            return bytes.map_err(transport);
        }
        Err(refusal(&answer, status, &bytes.unwrap_or_default()))
    }
}

fn transport(error: ureq::Error) -> Failure {
    match error {
        ureq::Error::Timeout(_) => Failure::again("the server did not answer in time".into()),
        ureq::Error::BodyExceedsLimit(most) => Failure::stop(
            format!("the answer is larger than {most} bytes"),
            "is this an OpenAI-compatible server?",
        ),
        ureq::Error::BadUri(why) => Failure::stop(
            format!("the address cannot be used: {}", short(&why)),
            "write one such as \"http://127.0.0.1:8080/v1\"",
        ),
        other => Failure::again(format!("the connection failed: {}", short(&other.to_string()))),
    }
}

/// What an answer with an error's status means.
fn refusal(answer: &Response<ureq::Body>, status: StatusCode, body: &[u8]) -> Failure {
    let said = short(String::from_utf8_lossy(body).trim());
    let what = format!("the server answered {}: {said}", status.as_u16());
    match status.as_u16() {
        408 | 425 | 429 | 500..=599 => {
            let seconds =
                answer.headers().get("retry-after").and_then(|v| v.to_str().ok()?.trim().parse::<f64>().ok());
            let pause = seconds.filter(|s| (0.0..=86_400.0).contains(s)).map(Duration::from_secs_f64);
            Failure { pause, ..Failure::again(what) }
        }
        401 | 403 => {
            Failure::stop(what, "name the environment variable that holds the key with `api_key_env`")
        }
        404 => Failure::stop(what, "does the address end in `/v1`, and does the server list this model?"),
        400 | 413 | 422 if speaks_of_context(body) => {
            let remedy =
                "give the server a longer context, or ask for fewer worked examples, answer tokens or turns";
            Failure { kind: Kind::TooLong, ..Failure::stop(what, remedy) }
        }
        400 | 413 | 422 => Failure::stop(
            what,
            "the server takes no such request: is a member of `extra` unknown to it, or a setting of the harness?",
        ),
        _ => Failure::stop(what, "this is not an OpenAI-compatible server, or it is misconfigured"),
    }
}

/// Whether a refusal says that the context is too short: by the code of the OpenAI API, llama.cpp's type, or the
/// words of vLLM, SGLang and older builds of llama.cpp, which have no code for it.
fn speaks_of_context(body: &[u8]) -> bool {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = said.get("error").unwrap_or(&said);
    let is = |key: &str, word: &str| error.get(key).and_then(Value::as_str) == Some(word);
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    is("code", "context_length_exceeded")
        || is("type", "exceed_context_size_error")
        || ["maximum context length", "maximum model length", "available context size"]
            .iter()
            .any(|words| message.contains(words))
}

fn sleep(pause: Duration, stop: &AtomicBool) -> Result<(), Failure> {
    let end = Instant::now() + pause;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::again("stopped".into()));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(GLANCE));
    }
}
