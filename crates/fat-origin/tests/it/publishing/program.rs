//! The program against a service that refuses, fails or says nothing: exit codes, and no secret in
//! any of its words.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

use super::*;

const SECRETS: [&str; 2] = ["SECRET-ACCESS-KEY", "SECRET-SESSION-TOKEN"];

/// Answers every request with `reply`.
fn service(reply: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else {
                break;
            };
            let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
            while lines
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            let _ = connection.write_all(reply.as_bytes());
        }
    });
    address
}

fn command(knot: &Path, destination: &str, endpoint: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fat-origin"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
        .args(["publish", knot.to_str().unwrap(), destination])
        .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .env("AWS_SECRET_ACCESS_KEY", SECRETS[0])
        .env("AWS_SESSION_TOKEN", SECRETS[1])
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ALLOW_HTTP", "true")
        .env("RUST_LOG", "trace");
    command
}

#[track_caller]
fn assert_ends(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(code), "{last}");
    for part in parts {
        assert!(last.contains(part), "{part}: {last}");
    }
    let all = format!("{said}{}", String::from_utf8_lossy(&output.stdout));
    for secret in SECRETS {
        let at = all.find(secret).map(|at| &all[at.saturating_sub(200)..at]);
        assert!(!all.contains(secret), "a secret after: {at:?}");
    }
}

fn reply(status: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")
}

#[test]
fn refusals_have_codes_and_words_of_their_own() {
    let model = model(1);
    let signature = "<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>\
        <StringToSign>AWS4-HMAC-SHA256</StringToSign></Error>";
    let bucket = "<Error><Code>NoSuchBucket</Code><Message>No such bucket</Message></Error>";
    for (reply, code, parts) in [
        (
            reply("403 Forbidden", signature),
            67,
            &["s3://bucket/m", "SignatureDoesNotMatch: Check your key."][..],
        ),
        (reply("401 Unauthorized", ""), 67, &["401"]),
        (
            reply("404 Not Found", bucket),
            65,
            &["NoSuchBucket: No such bucket"],
        ),
        (reply("503 Slow Down", ""), 65, &["503"]),
        (reply("301 Moved Permanently", ""), 64, &["AWS_REGION"]),
        ("this is no HTTP\r\n\r\n".to_owned(), 65, &["s3://bucket/m"]),
    ] {
        let endpoint = format!("http://{}", service(reply));
        let output = command(&model.knot_path(), "s3://bucket/m", &endpoint)
            .output()
            .unwrap();
        assert_ends(&output, code, parts);
    }
}

#[test]
fn an_endpoint_that_is_down_and_missing_keys_are_told_apart() {
    let model = model(1);
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let endpoint = format!("http://{closed}");
    let output = command(&model.knot_path(), "s3://bucket/m", &endpoint)
        .output()
        .unwrap();
    assert_ends(&output, 65, &["refused"]);
    let mut without = command(&model.knot_path(), "s3://bucket/m", &endpoint);
    let output = without
        .env_remove("AWS_SECRET_ACCESS_KEY")
        .output()
        .unwrap();
    assert_ends(&output, 67, &["AWS_SECRET_ACCESS_KEY is not set"]);
    let mut plain = command(&model.knot_path(), "s3://bucket/m", &endpoint);
    let output = plain.env_remove("AWS_ALLOW_HTTP").output().unwrap();
    assert_ends(&output, 64, &["AWS_ALLOW_HTTP"]);
}

#[test]
fn a_signal_ends_a_publisher_that_waits() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let model = model(1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let mut child = command(&model.knot_path(), "s3://bucket/m", &endpoint)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It has asked and waits for an answer that does not come.
        let (connection, _) = listener.accept().unwrap();
        let kill = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{said}");
        assert!(
            said.contains("the same command goes on from here"),
            "{said}"
        );
        drop(connection);
    }
}

#[test]
fn the_report_is_json_where_it_is_asked_for() {
    let (model, site) = (model(1), tempfile::tempdir().unwrap());
    let output = command(&model.knot_path(), site.path().to_str().unwrap(), "")
        .args(["--json", "--seed", "7", "--name", "a model"])
        .output()
        .unwrap();
    assert_ends(&output, 0, &[]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["objects"][0]["outcome"], "sent");
    assert_eq!(report["objects"][0]["kind"], "rows");
    assert_eq!(report["read_back"]["seed"], 7);
    assert_eq!(report["manifest_written"], true);
    let manifest = std::fs::read(site.path().join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["name"], "a model");
}
