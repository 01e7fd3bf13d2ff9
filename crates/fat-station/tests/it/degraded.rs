//! An origin that cannot be reached, with a knot that carries a sketch: off by default, never silent,
//! for outages alone, and over as soon as the origin answers again.

use crate::server::Station;
use crate::station::{Finished, Origin, binary, packed, run, text_of};
use range_testkit::{Fault, FaultServer, Object, Script};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const RUN: [&str; 5] = ["--raw", "--ignore-eos", "--max-tokens", "4", "abc"];

/// A URL that nothing listens at: the port was free a moment ago.
fn dead(name: &str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/{name}", listener.local_addr().unwrap())
}

/// Runs with a dead origin of rows.
fn without_origin(model: &str, more: &[&str]) -> Finished {
    let knot = packed(&format!("{model}.gkq"));
    let rows = dead(&format!("{model}.rows"));
    let flags = ["--knot", &knot, "--columnar-embed", &rows];
    run(&[&flags[..], more].concat(), &RUN)
}

fn exactly(model: &str) -> Finished {
    let rows = packed(&format!("{model}.rows"));
    run(&["--columnar-embed", &rows], &RUN).succeeded()
}

#[test]
fn it_is_off_unless_asked_for() {
    let finished = without_origin("sketched", &[]);
    assert_eq!(finished.code, 65, "{}", finished.stderr);
    assert_eq!(finished.text, "");
}

#[test]
fn an_outage_is_bridged_counted_and_told() {
    let finished = without_origin("sketched", &["--embed-on-failure", "sketch"]).succeeded();
    // Three of the prompt, three fed back.
    assert_eq!(finished.number("/embedding/rows_asked"), 6);
    assert_eq!(finished.number("/embedding/approximated"), 6);
    assert_eq!(finished.number("/embedding/cached_rows"), 0, "none is kept");
    assert_eq!(finished.number("/bytes/rows/received"), 0);
    for part in ["APPROXIMATED", "DEGRADED: 6 rows", "relative_error"] {
        assert!(
            finished.stderr.contains(part),
            "{part}: {}",
            finished.stderr
        );
    }
    let exact = exactly("sketched");
    assert_eq!(exact.number("/embedding/approximated"), 0);
    assert!(!exact.stderr.contains("DEGRADED"), "{}", exact.stderr);
    assert_eq!(finished.logits.len(), exact.logits.len());
    assert!(
        finished.logits != exact.logits,
        "half of the components are missing"
    );
}

/// Logits of the first step.
fn first_logits(finished: &Finished) -> Vec<f64> {
    let (values, _) = finished.logits.as_chunks::<4>();
    let first = values.iter().take(crate::tiny_model::VOCABULARY);
    first
        .map(|value| f64::from(f32::from_le_bytes(*value)))
        .collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn the_more_components_the_nearer_the_answer() {
    let exact = first_logits(&exactly("sketched"));
    let near = |model: &str| {
        let finished = without_origin(model, &["--embed-on-failure", "sketch"]).succeeded();
        cosine(&first_logits(&finished), &exact)
    };
    let (half, all) = (near("sketched"), near("sketched-whole"));
    // All 32 components: what is left is the rounding to a byte, after two layers.
    assert!(all > 0.99, "{all}");
    assert!(half < all && half.is_finite(), "{half} {all}");
}

#[test]
fn where_the_knot_has_the_rows_nothing_is_approximated() {
    let expected = run(&["--knot", &packed("sketched-tied.gkq")], &RUN).succeeded();
    let finished = without_origin("sketched-tied", &["--embed-on-failure", "sketch"]).succeeded();
    assert!(finished.logits == expected.logits);
    assert_eq!(finished.number("/embedding/approximated"), 0);
    assert_eq!(finished.number("/embedding/resident"), 6);
    let always = ["--embed-on-failure", "sketch", "--embed-always-remote"];
    let finished = without_origin("sketched-tied", &always).succeeded();
    assert_eq!(finished.number("/embedding/approximated"), 6);
    assert_eq!(finished.number("/embedding/resident"), 0);
}

#[test]
fn a_flag_that_can_do_nothing_is_refused() {
    let sketch = ["--embed-on-failure", "sketch"];
    let rows = packed("untied.rows");
    for (flags, part) in [
        (
            vec!["--columnar-embed", &rows],
            "pack it with --embed-sketch",
        ),
        (vec!["--knot", &rows], "--columnar-embed"),
    ] {
        let finished = run(&[&flags[..], &sketch].concat(), &RUN);
        assert_eq!(finished.code, 64, "{}", finished.stderr);
        assert!(finished.stderr.contains(part), "{}", finished.stderr);
    }
}

/// An origin of `sketched.rows` at an address of its own.
struct Rows {
    server: FaultServer,
    runtime: tokio::runtime::Runtime,
}

impl Rows {
    fn start(script: Script) -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap(), script)
    }

    fn start_on(address: SocketAddr, script: Script) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let rows = Object::bytes(std::fs::read(packed("sketched.rows")).unwrap());
        let server = FaultServer::start_on(address, "/sketched.rows", rows, script);
        let server = runtime.block_on(server).unwrap();
        Self { server, runtime }
    }

    fn url(&self) -> String {
        self.server.url("/sketched.rows")
    }

    /// Ends it, connections and all, and gives back its address.
    fn stop(self) -> SocketAddr {
        let address = self.server.address();
        drop(self.server);
        self.runtime.shutdown_timeout(Duration::from_secs(10));
        address
    }
}

#[test]
fn what_an_origin_says_or_sends_is_no_outage() {
    let status = |code| Fault::Status {
        code,
        retry_after: None,
    };
    let knot = packed("sketched.gkq");
    for (fault, code, approximates) in [
        (status(401), 67, false),
        (status(403), 67, false),
        (status(404), 65, false),
        (Fault::Shift(64), 66, false),
        (Fault::HangUp, 0, true),
        (status(503), 0, true),
    ] {
        let origin = Rows::start(Script::always(fault.clone()));
        let rows = origin.url();
        let flags = ["--knot", &knot, "--columnar-embed", &rows];
        let flags = [&flags[..], &["--embed-on-failure", "sketch"]].concat();
        let finished = run(&flags, &RUN);
        assert_eq!(finished.code, code, "{fault:?}: {}", finished.stderr);
        let told = finished.stderr.contains("DEGRADED");
        assert_eq!(told, approximates, "{fault:?}: {}", finished.stderr);
    }
}

/// The answer of a server to `prompt`: one token, so the prompt's rows alone are asked.
fn ask(station: &Station, prompt: &str) -> (String, Option<u64>) {
    let body = json!({ "prompt": prompt, "max_tokens": 1, "temperature": 0 });
    let (status, reply) = station.complete(&body.to_string());
    assert_eq!(status, 200, "{reply}");
    let text = reply["choices"][0]["text"].as_str().unwrap().to_owned();
    match &reply["degraded"] {
        Value::Null => (text, None),
        degraded => (text, Some(degraded["approximated_rows"].as_u64().unwrap())),
    }
}

#[test]
fn a_server_says_so_in_every_reply_and_recovers() {
    let origin = Rows::start(Script::honest());
    let rows = origin.url();
    let station = Station::start(&[
        "--knot",
        &packed("sketched.gkq"),
        "--columnar-embed",
        &rows,
        "--embed-on-failure",
        "sketch",
        // A warning a batch would fill the pipe that nobody reads.
        "--log",
        "error",
    ]);
    let known = ask(&station, "abc");
    assert_eq!(known.1, None);
    let address = origin.stop();
    assert_eq!(
        ask(&station, "abc"),
        known,
        "rows that are cached are exact"
    );
    let (_, approximated) = ask(&station, "abcxyxz");
    assert_eq!(approximated, Some(4), "x, y, x and z are missing");
    let (_, approximated) = ask(&station, "xyz");
    assert_eq!(approximated, Some(3), "an approximation is not kept");

    let origin = Rows::start_on(address, Script::honest());
    let begun = Instant::now();
    // Until the station asks again: a second at most after the failed read.
    while ask(&station, "xyz").1.is_some() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "exact rows do not come back"
        );
    }
    let exact = run(
        &["--columnar-embed", &packed("sketched.rows")],
        &["--raw", "--max-tokens", "1", "abcxyxz"],
    )
    .succeeded();
    let (text, approximated) = ask(&station, "abcxyxz");
    assert_eq!(approximated, None);
    assert_eq!(text, exact.text.trim_end_matches('\n'));
    drop(station);
    origin.stop();
}

#[test]
fn a_remote_sketch_is_fetched_only_where_it_is_asked_for() {
    let origin = Origin::start();
    let knot = origin.url("sketched.gkq");
    let rows = packed("sketched.rows");
    let flags = ["--knot", &knot, "--columnar-embed", &rows];
    let without = run(&flags, &RUN).succeeded();
    let with = [&flags[..], &["--embed-on-failure", "sketch"]].concat();
    let with = run(&with, &RUN).succeeded();
    let useful = |finished: &Finished| finished.number("/bytes/blocks/useful");
    // 16 components of 32 f32; 10,000 rows of a scale and 16 bytes.
    let sketch_bytes = 64 + 16 * 32 * 4 + 10_000 * 20;
    assert_eq!(useful(&with), useful(&without) + sketch_bytes);
    assert!(with.logits == without.logits);
    assert_eq!(with.number("/embedding/approximated"), 0);
}

#[test]
fn a_damaged_sketch_is_refused_at_the_start() {
    let mut bytes = std::fs::read(packed("sketched.gkq")).unwrap();
    let knot = gkq_v2::Knot::parse(&bytes, bytes.len() as u64).unwrap();
    let block = knot.block("model.embed_tokens.weight").unwrap();
    let sketch = block.columnar.as_ref().unwrap().sketch.clone().unwrap();
    bytes[usize::try_from(sketch.end).unwrap() - 1] ^= 1;
    let directory = tempfile::tempdir().unwrap();
    let knot = directory.path().join("sketched.gkq");
    std::fs::write(&knot, bytes).unwrap();
    let rows = dead("sketched.rows");
    let flags = ["--knot", knot.to_str().unwrap(), "--columnar-embed", &rows];
    let finished = run(
        &[&flags[..], &["--embed-on-failure", "sketch"]].concat(),
        &RUN,
    );
    assert_eq!(finished.code, 66, "{}", finished.stderr);
    assert!(finished.stderr.contains("sketch"), "{}", finished.stderr);
}

#[test]
fn a_perplexity_that_is_not_the_models_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    std::fs::write(&text, "abcdefghijklmnop".repeat(4)).unwrap();
    let measure = |rows: &str| -> Value {
        let mut command = binary();
        command.args(["--knot", &packed("sketched.gkq"), "--columnar-embed", rows]);
        command.args([
            "--embed-on-failure",
            "sketch",
            "perplexity",
            "--context",
            "32",
            "--file",
        ]);
        let output = command.arg(&text).output().unwrap();
        serde_json::from_str(text_of(&output)).unwrap()
    };
    let exact = measure(&packed("sketched.rows"));
    let near = measure(&dead("sketched.rows"));
    assert_eq!(exact["approximated_rows"], 0);
    assert_eq!(near["approximated_rows"], 64);
    assert!(exact["perplexity"] != near["perplexity"]);
}
