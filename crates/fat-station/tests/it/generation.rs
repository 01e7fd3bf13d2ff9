//! Sampling, stop texts, templates, the log and the other commands.

use crate::station::{Origin, binary, packed, run, text_of};
use crate::tiny_model::{END, VOCABULARY};
use serde_json::Value;

#[test]
fn a_seed_repeats_an_answer_and_another_gives_another() {
    let knot = packed("tied.gkq");
    let sampled = |seed: &str| {
        let flags = [
            "--raw",
            "--ignore-eos",
            "--max-tokens",
            "12",
            "--temperature",
            "2",
            "--seed",
            seed,
            "abc",
        ];
        run(&["--knot", &knot], &flags).succeeded().tokens
    };
    assert_eq!(sampled("7"), sampled("7"));
    assert_ne!(sampled("7"), sampled("8"));
    let top_one = [
        "--raw",
        "--ignore-eos",
        "--max-tokens",
        "12",
        "--temperature",
        "2",
        "--top-k",
        "1",
        "abc",
    ];
    let greedy = ["--raw", "--ignore-eos", "--max-tokens", "12", "abc"];
    let tokens = |flags: &[&str]| run(&["--knot", &knot], flags).succeeded().tokens;
    assert_eq!(tokens(&top_one), tokens(&greedy));
}

#[test]
fn a_stop_text_ends_the_answer_before_it_and_eos_is_not_printed() {
    let directory = tempfile::tempdir().unwrap();
    let forced = directory.path().join("forced.json");
    let knot = packed("tied.gkq");
    let letters = |text: &str| -> Vec<u32> {
        let output = binary()
            .args(["--knot", &knot, "tokenize", "--raw", text])
            .output()
            .unwrap();
        serde_json::from_str(text_of(&output)).unwrap()
    };
    let mut ids = letters("one beta gamma two \u{1F600}");
    ids.push(END);
    ids.extend(letters(" never"));
    std::fs::write(&forced, serde_json::to_string(&ids).unwrap()).unwrap();
    let forced = forced.to_str().unwrap();
    let stopped = run(
        &["--knot", &knot],
        &[
            "--raw",
            "--force-continuation",
            forced,
            "--stop",
            "beta gamma",
            "x",
        ],
    );
    assert_eq!(stopped.succeeded().text, "one \n");
    let ended = run(
        &["--knot", &knot],
        &[
            "--raw",
            "--force-continuation",
            forced,
            "--stop",
            "beta x",
            "x",
        ],
    );
    assert_eq!(ended.succeeded().text, "one beta gamma two \u{1F600}\n");
    let ignored = run(
        &["--knot", &knot],
        &["--raw", "--ignore-eos", "--force-continuation", forced, "x"],
    );
    assert_eq!(
        ignored.succeeded().text,
        "one beta gamma two \u{1F600} never\n"
    );
}

#[test]
fn the_chat_template_is_applied_unless_raw() {
    let knot = packed("tied.gkq");
    let ids = |flags: &[&str]| -> Vec<u32> {
        let output = binary()
            .args(["--knot", &knot, "tokenize"])
            .args(flags)
            .output()
            .unwrap();
        serde_json::from_str(text_of(&output)).unwrap()
    };
    let mut expected = ids(&["--raw", "<user>Hi"]);
    expected.push(END);
    assert_eq!(ids(&["Hi"]), expected);
    assert_eq!(ids(&["--raw", "Hi"]).len(), 2);
    let chat = run(&["--knot", &knot], &["--max-tokens", "1", "Hi"]).succeeded();
    assert_eq!(chat.number("/prompt_tokens"), expected.len() as u64);
}

#[test]
fn perplexity_of_a_random_model_is_near_its_vocabularys_size() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("text.txt");
    std::fs::write(
        &file,
        "The quick brown fox jumps over the lazy dog. ".repeat(20),
    )
    .unwrap();
    let knot = packed("tied.gkq");
    let measure = |flags: &[&str]| -> Value {
        let output = binary()
            .args(flags)
            .args(["perplexity", "--context", "128", "--file"])
            .arg(&file)
            .output();
        serde_json::from_str(text_of(&output.unwrap())).unwrap()
    };
    let dense = measure(&["--knot", &knot]);
    // 900 tokens are 7 windows of 128; 63 of each are scored.
    assert_eq!(dense["chunks"], 7);
    assert_eq!(dense["tokens"], 7 * 63);
    let (nll, perplexity) = (
        dense["nll"].as_f64().unwrap(),
        dense["perplexity"].as_f64().unwrap(),
    );
    assert!((nll.exp() - perplexity).abs() < 1e-6 * perplexity);
    let vocabulary = (VOCABULARY as f64).ln();
    assert!((nll - vocabulary).abs() < 3.0, "{nll} against {vocabulary}");

    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let cache = directory.path().join("cache");
    let columnar = measure(&[
        "--columnar-embed",
        &rows,
        "--cache-dir",
        cache.to_str().unwrap(),
    ]);
    assert_eq!(columnar, dense);
}

#[test]
fn the_json_log_has_every_span_with_its_late_fields() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let mut flags = vec!["--columnar-embed", &rows, "--embed-always-remote"];
    flags.extend(["--log-format", "json", "--log", "debug"]);
    let finished = run(
        &flags,
        &["--raw", "--ignore-eos", "--max-tokens", "3", "abcabc"],
    )
    .succeeded();
    let lines = finished.stderr.lines();
    let lines: Vec<Value> = lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let closed = |name: &str| -> Vec<&Value> {
        let closed = lines
            .iter()
            .filter(|line| line["fields"]["message"] == "close");
        closed
            .map(|line| &line["span"])
            .filter(|span| span["name"] == name)
            .collect()
    };
    let fetches = closed("embed.fetch");
    assert_eq!(
        fetches.len(),
        3,
        "one for the prompt, two for the tokens fed back"
    );
    for field in [
        "hit",
        "bytes_received",
        "bytes_useful",
        "requests",
        "round_trips",
    ] {
        assert!(fetches[0][field].is_u64(), "{field}: {}", fetches[0]);
    }
    assert_eq!(
        (&fetches[0]["rows_asked"], &fetches[0]["missed"]),
        (&6.into(), &3.into())
    );
    let received: u64 = fetches
        .iter()
        .map(|span| span["bytes_received"].as_u64().unwrap())
        .sum();
    let kind = |kind: &str| finished.number(&format!("/bytes/{kind}/received"));
    assert_eq!(
        received,
        kind("rows") + kind("paths"),
        "spans repeat the meters"
    );
    assert!(closed("prefill")[0]["seconds"].is_f64());
    assert_eq!(closed("decode")[0]["generated_tokens"], 3);
    let blocks = closed("knot.block");
    assert!(blocks.len() > 10 && blocks.iter().all(|span| span["from"] == "origin"));
    assert!(
        lines
            .iter()
            .any(|line| line["fields"]["message"] == "resolved")
    );
}
