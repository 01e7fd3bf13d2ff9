//! SIGINT and SIGTERM: clean ends with their exit codes, during an answer, a download and a drain.

use crate::server::Station;
use crate::station::{binary, packed};
use std::io::{Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn signal(child: &Child, name: &str) {
    assert!(
        Command::new("kill")
            .args([name, &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// Waits for the end; a station that does not end fails the test instead of stopping it.
fn exit_code(child: &mut Child) -> i32 {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap();
        }
        if begun.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            panic!("the station did not end");
        }
        std::thread::yield_now();
    }
}

#[test]
fn ctrl_c_ends_an_answer_cleanly() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let directory = tempfile::tempdir().unwrap();
        let summary = directory.path().join("summary.json");
        let mut child = binary()
            .args(["--knot", &packed("tied.gkq"), "--summary-file"])
            .arg(&summary)
            .args([
                "run",
                "--raw",
                "--ignore-eos",
                "--max-tokens",
                "1000",
                "--temperature",
                "3",
                "abc",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut first)
            .unwrap();
        signal(&child, name);
        let mut rest = Vec::new();
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_to_end(&mut rest)
            .unwrap();
        assert_eq!(exit_code(&mut child), code);
        assert_eq!(rest.last(), Some(&b'\n'), "the last line is ended");
        let summary: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&summary).unwrap()).unwrap();
        assert!(summary["generated_tokens"].as_u64().unwrap() >= 1);
        assert!(summary["time_to_first_token_s"].is_f64());
    }
}

#[test]
fn ctrl_c_ends_a_download() {
    // An origin that accepts and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rows = format!("http://{}/tied.rows", silent.local_addr().unwrap());
    let mut child = binary()
        .args(["--columnar-embed", &rows, "run", "--raw", "abc"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (_connection, _) = silent.accept().unwrap();
    signal(&child, "-INT");
    assert_eq!(exit_code(&mut child), 130);
}

#[test]
fn a_request_that_is_not_whole_does_not_hold_up_the_end() {
    let mut station = Station::start(&["--knot", &packed("tied.gkq")]);
    let half: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(&station.address).unwrap();
            stream
                .write_all(b"POST /v1/completions HTTP/1.1\r\n")
                .unwrap();
            stream
        })
        .collect();
    assert_eq!(
        station.get("/health").0,
        200,
        "more connections than there may be"
    );
    signal(&station.child, "-TERM");
    assert_eq!(exit_code(&mut station.child), 143);
    drop(half);
}

#[test]
fn a_server_drains_and_ends() {
    let mut station = Station::start(&["--knot", &packed("tied.gkq")]);
    let body = r#"{"prompt": "abc", "max_tokens": 2}"#;
    assert_eq!(station.complete(body).0, 200);
    signal(&station.child, "-TERM");
    assert_eq!(exit_code(&mut station.child), 143);
    let mut rest = String::new();
    station.stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("3 prompt + 2 generated tokens"), "{rest}");
}
