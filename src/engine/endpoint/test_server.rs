//! For tests: a small HTTP server on this machine that lists two models and answers chat completions
//! with whatever bytes it is told to. Unit tests and end-to-end tests share it; how it misbehaves is
//! theirs to say.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// What a chat completion was asked with.
pub struct Asked {
    /// Request line and headers.
    pub head: String,
    /// The body; null where it is no JSON.
    pub body: Value,
}

/// What becomes of a request.
pub struct Reply {
    /// All that is sent before the connection is closed.
    pub bytes: Vec<u8>,
    /// Time until then.
    pub delay: Duration,
}

impl Reply {
    /// A JSON answer.
    pub fn json(value: &Value) -> Reply {
        Reply::status(200, "", &value.to_string())
    }

    /// An answer of this status, with one header line (or none) and a body.
    pub fn status(status: u16, header: &str, body: &str) -> Reply {
        let line = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n{line}\r\n"
        );
        Reply { bytes: (head + body).into_bytes(), delay: Duration::ZERO }
    }
}

/// A good answer that counts the words of the prompt as its tokens.
pub fn good(asked: &Asked, text: &str) -> Value {
    let body = &asked.body;
    let words: usize = body["messages"].as_array().map_or(0, |m| {
        m.iter().map(|m| m["content"].as_str().unwrap_or("").split_whitespace().count()).sum()
    });
    json!({
        "id": "x", "object": "chat.completion", "model": body["model"], "system_fingerprint": "build-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": words, "completion_tokens": text.len(), "total_tokens": words + text.len()},
    })
}

type Answer = dyn Fn(usize, &Asked) -> Reply + Send + Sync;

/// A running server; it ends with the test.
pub struct TestServer {
    /// Its address, `/v1` included.
    pub url: String,
    stop: Arc<AtomicBool>,
}

impl TestServer {
    /// `answer(n, asked)` says what becomes of the n-th chat completion, counted from 0.
    pub fn start(answer: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let (answer, count): (Arc<Answer>, _) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, count) = (answer.clone(), count.clone());
                std::thread::spawn(move || stream.map(|stream| serve(stream, &*answer, &count)));
            }
        });
        TestServer { url, stop }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://").trim_end_matches("/v1"));
    }
}

/// Reads a request; `None` where the client left.
fn read(stream: &TcpStream) -> std::io::Result<Option<Asked>> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let length = |line: &str| -> Option<usize> {
        line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
    };
    let mut body = vec![0; head.lines().find_map(length).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some(Asked { head, body: serde_json::from_slice(&body).unwrap_or_default() }))
}

fn serve(mut stream: TcpStream, answer: &Answer, count: &AtomicUsize) -> std::io::Result<()> {
    let Some(asked) = read(&stream)? else { return Ok(()) };
    let reply = if asked.head.starts_with("GET /v1/models") {
        Reply::json(&json!({"object": "list", "data": [
            {"id": "small", "object": "model", "created": std::process::id(), "owned_by": "test", "meta": {"n_params": 7}},
            {"id": "small-tuned", "object": "model", "created": 1, "owned_by": "test", "meta": null},
        ]}))
    } else if asked.head.starts_with("POST /v1/chat/completions") {
        answer(count.fetch_add(1, Ordering::SeqCst), &asked)
    } else {
        Reply::status(404, "", "no such page")
    };
    std::thread::sleep(reply.delay);
    stream.write_all(&reply.bytes)?;
    stream.flush()
}
