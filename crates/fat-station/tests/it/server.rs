//! The server over a socket: answers, refusals, the queue's limits.

use crate::station::{Origin, binary, packed, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// A running server; killed when the test ends early.
pub(crate) struct Station {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) stderr: BufReader<std::process::ChildStderr>,
}

impl Station {
    /// Starts a station and waits until it can answer.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut station = Self::listening(flags);
        station.wait_for(|line| line.ends_with("is ready").then_some(()));
        station
    }

    /// Starts a station and waits until it listens.
    fn listening(flags: &[&str]) -> Self {
        let mut command = binary();
        command.args(flags).args(["--listen", "127.0.0.1:0"]);
        let mut child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut station = Self {
            child,
            address: String::new(),
            stderr,
        };
        station.address =
            station.wait_for(|line| line.strip_prefix("listening on http://").map(str::to_owned));
        station
    }

    fn wait_for<T>(&mut self, found: impl Fn(&str) -> Option<T>) -> T {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.stderr.read_line(&mut line).unwrap() > 0,
                "the station ended: {seen}"
            );
            if let Some(found) = found(line.trim()) {
                return found;
            }
            seen.push_str(&line);
        }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        exchange(
            &self.address,
            &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        )
    }

    pub(crate) fn complete(&self, body: &str) -> (u16, Value) {
        let length = body.len();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        exchange(&self.address, &(head + body))
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exchange(address: &str, request: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {reply}")),
    )
}

#[test]
fn a_completion_is_the_runs_answer() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let cache = tempfile::tempdir().unwrap();
    let flags = [
        "--columnar-embed",
        &rows,
        "--cache-dir",
        cache.path().to_str().unwrap(),
        "--embed-always-remote",
    ];
    let station = Station::start(&flags);
    assert_eq!(station.get("/health"), (200, json!({ "status": "ok" })));
    assert_eq!(station.get("/live"), (200, json!({ "status": "live" })));
    let body = json!({ "prompt": "Hello", "max_tokens": 8, "model": "any", "temperature": 0 });
    let (status, reply) = station.complete(&body.to_string());
    assert_eq!(status, 200, "{reply}");
    let run = run(
        &["--knot", &packed("tied.gkq")],
        &["--raw", "--max-tokens", "8", "Hello"],
    )
    .succeeded();
    assert_eq!(
        reply["choices"][0]["text"].as_str().unwrap(),
        run.text.trim_end_matches('\n')
    );
    assert_eq!(reply["object"], "text_completion");
    assert_eq!(reply["model"], "tied");
    assert!(["stop", "length"].contains(&reply["choices"][0]["finish_reason"].as_str().unwrap()));
    let usage = &reply["usage"];
    assert_eq!(usage["prompt_tokens"], 5);
    assert_eq!(
        usage["completion_tokens"].as_u64().unwrap(),
        run.tokens.len() as u64
    );
    assert_eq!(
        usage["total_tokens"].as_u64().unwrap(),
        5 + run.tokens.len() as u64
    );

    let seeded =
        json!({ "prompt": "Hello", "max_tokens": 8, "temperature": 1.5, "seed": 3 }).to_string();
    let text = |(_, reply): (u16, Value)| reply["choices"][0]["text"].clone();
    assert_eq!(
        text(station.complete(&seeded)),
        text(station.complete(&seeded))
    );
}

#[test]
fn what_is_wrong_with_a_request_is_said_in_openais_form() {
    let knot = packed("tied.gkq");
    let station = Station::start(&["--knot", &knot, "--max-context", "32"]);
    for (body, status, param, part) in [
        ("{", 400, Value::Null, "not JSON"),
        ("[]", 400, Value::Null, "object"),
        ("{}", 400, json!("prompt"), "missing"),
        (r#"{"prompt": 5}"#, 400, json!("prompt"), "a string"),
        (
            r#"{"prompt": "a", "max_tokens": "x"}"#,
            400,
            json!("max_tokens"),
            "a whole number",
        ),
        (
            r#"{"prompt": "a", "top_p": 7}"#,
            400,
            json!("top_p"),
            "at most 1",
        ),
        (
            r#"{"prompt": "a", "stream": true}"#,
            400,
            json!("stream"),
            "not served",
        ),
    ] {
        let (found, reply) = station.complete(body);
        assert_eq!(found, status, "{body}: {reply}");
        let error = &reply["error"];
        assert_eq!(error["type"], "invalid_request_error", "{body}");
        assert_eq!(error["param"], param, "{body}");
        assert!(
            error["message"].as_str().unwrap().contains(part),
            "{body}: {error}"
        );
    }
    let long = json!({ "prompt": "x".repeat(40) }).to_string();
    let (status, reply) = station.complete(&long);
    assert_eq!(status, 400);
    assert_eq!(
        (&reply["error"]["n_prompt_tokens"], &reply["error"]["n_ctx"]),
        (&json!(40), &json!(32))
    );
    assert_eq!(reply["error"]["code"], "context_length_exceeded");
    let longer = json!({ "prompt": "x".repeat(32 * 256 + 1) }).to_string();
    let (status, reply) = station.complete(&longer);
    assert_eq!((status, &reply["error"]["n_ctx"]), (400, &json!(32)));
    assert_eq!(reply["error"]["code"], "context_length_exceeded");
    assert_eq!(station.get("/nowhere").0, 404);
    assert_eq!(station.get("/v1/completions").0, 405);
    let huge = json!({ "prompt": "x".repeat(3 << 20) }).to_string();
    assert_eq!(station.complete(&huge).0, 413);
    assert_eq!(
        station.complete(r#"{"prompt": "a", "max_tokens": 1}"#).0,
        200,
        "and it still answers"
    );
}

#[test]
fn concurrent_requests_take_turns_and_the_queue_is_bounded() {
    let knot = packed("tied.gkq");
    let station = Station::start(&["--knot", &knot, "--queue", "1"]);
    let body = json!({ "prompt": "Hello", "max_tokens": 200 }).to_string();
    let replies: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let requests: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| station.complete(&body)))
            .collect();
        requests
            .into_iter()
            .map(|request| request.join().unwrap())
            .collect()
    });
    let answered: Vec<&Value> = replies
        .iter()
        .filter(|(status, _)| *status == 200)
        .map(|(_, reply)| &reply["choices"])
        .collect();
    assert!(!answered.is_empty());
    assert!(
        answered.iter().all(|choices| *choices == answered[0]),
        "the same text alone or in a crowd"
    );
    for (status, reply) in &replies {
        assert!([200, 503].contains(status), "{status}: {reply}");
    }
    assert_eq!(
        station.complete(r#"{"prompt": "a", "max_tokens": 1}"#).0,
        200,
        "every place is free again"
    );
}

#[test]
fn a_model_that_cannot_be_loaded_ends_the_server() {
    let output = binary()
        .args(["--knot", "/no/such.gkq", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = binary()
        .args(["--knot", "/no/such.gkq", "--listen", &address])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
}

#[test]
fn while_it_loads_it_lives_and_says_so() {
    // An origin that accepts and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rows = format!("http://{}/tied.rows", silent.local_addr().unwrap());
    let station = Station::listening(&["--columnar-embed", &rows]);
    assert_eq!(station.get("/live").0, 200);
    assert_eq!(
        station.get("/health"),
        (503, json!({ "status": "loading" }))
    );
    let (status, reply) = station.complete(r#"{"prompt": "a"}"#);
    assert_eq!(
        (status, &reply["error"]["type"]),
        (503, &json!("unavailable_error"))
    );
}

#[test]
fn a_client_that_goes_away_ends_its_session() {
    let knot = packed("tied.gkq");
    let mut station = Station::start(&["--knot", &knot, "--queue", "0"]);
    let body = r#"{"prompt": "abc", "max_tokens": 1000, "temperature": 4}"#;
    let mut gone = TcpStream::connect(&station.address).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length:";
    write!(gone, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
    drop(gone);
    // The place is free as soon as the session has noticed.
    let begun = std::time::Instant::now();
    while station.complete(r#"{"prompt": "abc", "max_tokens": 1}"#).0 != 200 {
        assert!(begun.elapsed().as_secs() < 20, "the place is still taken");
    }
    let term = ["-TERM", &station.child.id().to_string()].map(str::to_owned);
    assert!(
        std::process::Command::new("kill")
            .args(term)
            .status()
            .unwrap()
            .success()
    );
    let generated = station.wait_for(|line| {
        let (_, rest) = line.split_once(" prompt + ")?;
        rest.split(' ').next()?.parse::<u64>().ok()
    });
    assert!(generated < 1_000, "{generated} tokens for nobody");
}
