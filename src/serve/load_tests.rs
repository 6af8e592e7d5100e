//! The server under load and at its end: a full queue, requests that take too long, an orderly stop, and a thousand
//! requests of which many are broken off.

use super::*;
use std::sync::atomic::AtomicUsize;

/// Asks for an answer that goes on until the context is full, and waits for its first token.
fn long(server: &Server) -> TcpStream {
    let body = json!({"prompt": [9, 9], "max_tokens": 250, "stream": true, "temperature": 0, "seed": 1, "stop": ["\u{1}\u{1}"]});
    let stream = send(server, "POST", "/v1/completions", "", body.to_string().as_bytes());
    let mut first = [0; 512];
    assert!((&stream).read(&mut first).unwrap() > 0);
    stream
}

#[test]
fn a_full_queue_is_refused_and_a_client_that_leaves_makes_room() {
    let server = server_with(1, None, Limits { queue: 0, ..Limits::default() });
    let stream = long(&server);
    let (status, head, body) =
        read(send(&server, "POST", CHAT, "", ask("x", json!({})).to_string().as_bytes()));
    // A tiny model may be done before the second request arrives; then there is nothing to refuse.
    if status != 200 {
        assert!(
            status == 429 && head.contains("retry-after: 1") && body.contains("rate_limit"),
            "{head}\n{body}"
        );
    }
    drop(stream);
    idle(&server);
    let two = post(&server, CHAT, &ask("x", json!({"n": 2})));
    assert_eq!(
        (two.0, &two.1["error"]["param"]),
        (400, &json!("n")),
        "more than there will ever be room for"
    );
    assert_eq!(post(&server, CHAT, &ask("x", json!({}))).0, 200);
}

#[test]
fn a_request_that_takes_too_long_is_given_up() {
    let limits = Limits { request_time: Duration::from_millis(3), ..Limits::default() };
    let server = server_with(1, None, limits);
    let body = ask("x", json!({"max_tokens": 250, "n": 8}));
    let (status, head, text) = read(send(&server, "POST", CHAT, "", body.to_string().as_bytes()));
    assert!(status == 504 && head.contains("x-should-retry: false"), "{head}\n{text}");
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let (_, _, text) = read(send(&server, "POST", CHAT, "", streamed.to_string().as_bytes()));
    assert!(text.contains("timeout_error") && !text.contains("[DONE]"), "{text}");
    idle(&server);
}

#[test]
fn stopping_lets_running_requests_finish_within_the_grace() {
    let server = server();
    let stream = long(&server);
    let ended = server.stop(Duration::from_secs(60));
    assert_eq!(ended.cut, 0);
    let (text, mut rest) = (&mut String::new(), stream);
    rest.read_to_string(text).unwrap();
    assert!(text.contains("data: [DONE]"), "{text}");

    let server = server_with(1, None, Limits::default());
    let listen = server.listen().clone();
    let streams: Vec<TcpStream> = (0..8)
        .map(|_| {
            send(
                &server,
                "POST",
                CHAT,
                "",
                ask("x", json!({"max_tokens": 200, "n": 8})).to_string().as_bytes(),
            )
        })
        .collect();
    std::thread::sleep(Duration::from_millis(5));
    let began = Instant::now();
    server.stop(Duration::ZERO);
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(streams);
    let Listen::Tcp(address) = listen else { panic!("on TCP") };
    let until = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < until, "the port is still open");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_engine_that_cannot_be_made_or_bound_is_an_error() {
    let free = ([127, 0, 0, 1], 0).into();
    assert!(
        Server::start(|| Err(Error::invalid("no weights")), options(free))
            .err()
            .unwrap()
            .to_string()
            .contains("no weights")
    );
    let server = server();
    let Listen::Tcp(taken) = *server.listen() else { panic!("on TCP") };
    let error = Server::start(|| engine(model(), 1), options(taken)).err().unwrap().to_string();
    assert!(error.contains("cannot listen") && error.contains("--port"), "{error}");
    let same = Options { name: "red".into(), ..options(free) };
    assert!(Server::start(|| engine(model(), 1), same).is_err());
}

/// Resident memory of this process in bytes, where the system tells.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

/// What 64 clients at once do with requests `from..to`; every fifth leaves at once, every fifth in the middle.
fn storm(server: &Server, from: usize, to: usize, calls: &AtomicUsize, refused: &AtomicUsize) {
    let next = AtomicUsize::new(from);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= to {
                        return;
                    }
                    let mut random = Philox::named(&format!("storm/{number}"));
                    let n = 1 + random.below(3) as usize;
                    let model = ["tiny", "red", "blue"][random.below(3) as usize];
                    let content: String =
                        (0..random.below(60)).map(|_| if random.below(4) == 0 { 'é' } else { 'x' }).collect();
                    let stream = random.below(2) == 0;
                    let body = ask(
                        &content,
                        json!({"model": model, "n": n, "seed": number, "stream": stream, "temperature": 1.0,
                    "max_tokens": 1 + random.below(40), "stop": ["zz"], "logprobs": random.below(2) == 0}),
                    );
                    let mut connection = send(server, "POST", CHAT, "", body.to_string().as_bytes());
                    match random.below(5) {
                        0 => {}
                        1 => {
                            let mut some = vec![0; 1 + random.below(400) as usize];
                            let _ = connection.read(&mut some);
                        }
                        _ => {
                            let (status, head, text) = read(connection);
                            if status == 429 {
                                refused.fetch_add(1, Relaxed);
                                continue;
                            }
                            assert_eq!(status, 200, "{head}\n{text}");
                            calls.fetch_add(n, Relaxed);
                            assert!(!stream || text.ends_with("data: [DONE]\n\n"), "{text}");
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn a_thousand_requests_with_broken_off_ones_leave_nothing_behind() {
    let server = server_with(16, None, Limits::default());
    let (calls, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    storm(&server, 0, 500, &calls, &refused);
    idle(&server);
    let before = resident();
    storm(&server, 500, 1000, &calls, &refused);
    let counts = idle(&server);
    let after = resident();
    // 64 clients with at most 3 choices each fit into 16 slots and a queue of 256.
    assert_eq!((counts.failed, refused.load(Relaxed)), (0, 0), "{counts:?}");
    assert!(counts.completed >= calls.load(Relaxed) as u64, "{counts:?}");
    assert!(counts.cancelled > 50, "{counts:?}");
    if let (Some(before), Some(after)) = (before, after) {
        let grown = after.saturating_sub(before) >> 20;
        assert!(grown < 24, "resident memory grew by {grown} MiB in the second half");
        println!("{counts:?}; resident {} MiB, then {} MiB", before >> 20, after >> 20);
    }
    // What was answered under load is answered the same alone.
    let body = ask("after", json!({"temperature": 1.0, "seed": 77}));
    let busy = std::thread::scope(|scope| {
        let storm = scope.spawn(|| storm(&server, 1000, 1100, &calls, &refused));
        let busy = post(&server, CHAT, &body).1;
        storm.join().unwrap();
        busy
    });
    idle(&server);
    assert_eq!(post(&server, CHAT, &body).1["choices"], busy["choices"]);
    assert_eq!(server.stop(Duration::from_secs(10)).cut, 0);
}
