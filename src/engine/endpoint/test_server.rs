//! For tests: a small HTTP server on this machine that answers chat completions as it is told, and
//! misbehaves on demand. It keeps what it was asked.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What becomes of a request.
pub enum Reply {
    /// A JSON answer.
    Json(Value),
    /// An answer of this status, with one header line (or none) and a body.
    Status(u16, &'static str, &'static str),
    /// The connection is closed without a word.
    Drop,
    /// Half of an answer.
    Cut,
    /// No answer for this long.
    Hang(Duration),
}

/// What a request was.
#[derive(Clone)]
pub struct Asked {
    /// Header lines.
    pub head: String,
    /// The body.
    pub body: Value,
}

/// A running server; it ends with the test.
pub struct TestServer {
    /// Its address, `/v1` included.
    pub url: String,
    /// Every chat completion that was asked for, in order of arrival.
    pub asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
}

type Answer = dyn Fn(usize, &Value) -> Reply + Send + Sync;

/// A good answer that counts the words of the prompt as its tokens.
pub fn good(body: &Value, text: &str) -> Value {
    let words: usize = body["messages"].as_array().map_or(0, |m| {
        m.iter().map(|m| m["content"].as_str().unwrap_or("").split_whitespace().count()).sum()
    });
    json!({
        "id": "x", "object": "chat.completion", "model": body["model"], "system_fingerprint": "build-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": words, "completion_tokens": text.len(), "total_tokens": words + text.len()},
    })
}

impl TestServer {
    /// `answer(n, body)` says what becomes of the n-th chat completion, counted from 0.
    pub fn start(answer: impl Fn(usize, &Value) -> Reply + Send + Sync + 'static) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let (asked, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, stopping) = (asked.clone(), stop.clone());
        let (answer, count): (Arc<Answer>, _) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, count, kept) = (answer.clone(), count.clone(), kept.clone());
                std::thread::spawn(move || stream.map(|stream| serve(stream, &*answer, &count, &kept)));
            }
        });
        TestServer { url, asked, stop }
    }

    /// How often a completion was asked for.
    pub fn count(&self) -> usize {
        self.asked.lock().expect("no panic").len()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://").trim_end_matches("/v1"));
    }
}

fn serve(
    stream: TcpStream,
    answer: &Answer,
    count: &AtomicUsize,
    kept: &Mutex<Vec<Asked>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
        })
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let reply = if head.starts_with("GET /v1/models") {
        Reply::Json(json!({"object": "list", "data": [
            {"id": "small", "object": "model", "created": std::process::id(), "owned_by": "test", "meta": {"n_params": 7}},
            {"id": "small-tuned", "object": "model", "created": 1, "owned_by": "test", "meta": null},
        ]}))
    } else if head.starts_with("POST /v1/chat/completions") {
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        kept.lock().expect("no panic").push(Asked { head: head.clone(), body: body.clone() });
        answer(count.fetch_add(1, Ordering::SeqCst), &body)
    } else {
        Reply::Status(404, "", "no such page")
    };
    let mut stream = stream;
    match reply {
        Reply::Json(value) => write(&mut stream, 200, "", value.to_string().as_bytes(), 0),
        Reply::Status(status, header, body) => write(&mut stream, status, header, body.as_bytes(), 0),
        Reply::Drop => Ok(()),
        Reply::Cut => write(&mut stream, 200, "", b"{\"choices\": [{\"mess", 100),
        Reply::Hang(time) => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}

/// Writes an answer that promises `more` bytes than it has.
fn write(stream: &mut TcpStream, status: u16, header: &str, body: &[u8], more: usize) -> std::io::Result<()> {
    let line = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
    let length = body.len() + more;
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n{line}\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}
