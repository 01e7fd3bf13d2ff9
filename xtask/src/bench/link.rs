//! A cold batch of rows over warm connections, behind `range-testkit link`: what it takes in waves, round trips,
//! requests and bytes. `cold_batch`, an example of the station, reads; the origin is a process of its own.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::median::median;
use crate::child::Server;
use crate::origin::Origin;
use crate::repository;
use crate::workload::dir;

/// Flags of the question.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Round trip of the link, in milliseconds.
    #[arg(long, default_value_t = 40)]
    rtt_ms: u32,
    /// Distinct rows of a batch.
    #[arg(long, default_value_t = 109)]
    rows: u32,
    /// Batches that are timed.
    #[arg(long, default_value_t = 20)]
    batches: u32,
}

#[derive(Deserialize)]
struct Measured {
    distinct_rows: u64,
    single_row_s: Vec<f64>,
    cold_connect: Batch,
    batches: Vec<Batch>,
}

#[derive(Deserialize)]
struct Batch {
    seconds: f64,
    requests: u64,
    waves: u64,
    received_bytes: u64,
    useful_bytes: u64,
    retries: u64,
}

/// Reads scattered rows and those of a natural text, over both protocols.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let models = super::models()?;
    super::build_examples()?;
    println!(
        "{:<32} {:<9} {:<9} {:>5} {:>8} {:>5} {:>13} {:>11} {:>15} {:>12} {:>7}",
        "model",
        "ids",
        "protocol",
        "rows",
        "requests",
        "waves",
        "amplification",
        "one row ms",
        "least / median",
        "round trips",
        "cold ms"
    );
    for model in &models {
        let origin = Origin::start(&model.packed.dir)?;
        let mut link = repository::binary("range-testkit");
        link.args(["link", "--listen", "127.0.0.1:0", "--upstream"])
            .arg(origin.address().to_string())
            .args(["--rtt-ms", &arguments.rtt_ms.to_string()]);
        let link = Server::start(&mut link)?;
        let name = &model.packed.name;
        let url = format!("http://{}/{name}.rows", link.address());
        for text in [None, Some(dir().join("long_context.txt"))] {
            for protocol in ["HTTP/1.1", "HTTP/2"] {
                let mut batch = repository::example("cold_batch");
                batch.args(["--columnar-embed", &url, "--knot"]);
                batch.arg(model.packed.knot());
                batch.args(["--rows", &arguments.rows.to_string()]);
                batch.args(["--batches", &arguments.batches.to_string()]);
                if protocol == "HTTP/2" {
                    batch.arg("--http2-prior-knowledge");
                }
                if let Some(text) = &text {
                    batch.arg("--text").arg(text);
                }
                let measured: Measured = serde_json::from_slice(&repository::output(&mut batch)?)
                    .context("cold_batch printed something else")?;
                let ids = if text.is_some() {
                    "natural"
                } else {
                    "scattered"
                };
                print(name, ids, protocol, &measured, arguments.rtt_ms)?;
            }
        }
    }
    Ok(())
}

fn print(name: &str, ids: &str, protocol: &str, measured: &Measured, rtt_ms: u32) -> Result<()> {
    let seconds: Vec<f64> = measured.batches.iter().map(|batch| batch.seconds).collect();
    let batch_ms = median(&seconds)? * 1e3;
    let most = |count: fn(&Batch) -> u64| measured.batches.iter().map(count).max().unwrap_or(0);
    let total = |count: fn(&Batch) -> u64| measured.batches.iter().map(count).sum::<u64>();
    let amplification =
        total(|batch| batch.received_bytes) as f64 / total(|batch| batch.useful_bytes) as f64;
    let least_ms = seconds.iter().copied().fold(f64::INFINITY, f64::min) * 1e3;
    println!(
        "{name:<32} {ids:<9} {protocol:<9} {:>5} {:>8} {:>5} {amplification:>13.3} {:>11.1} {:>15} {:>12.2} {:>7.1}",
        measured.distinct_rows,
        most(|batch| batch.requests),
        most(|batch| batch.waves),
        median(&measured.single_row_s)? * 1e3,
        format!("{least_ms:.1} / {batch_ms:.1}"),
        batch_ms / f64::from(rtt_ms),
        measured.cold_connect.seconds * 1e3,
    );
    let retries = total(|batch| batch.retries);
    if retries > 0 {
        println!("  {retries} requests were repeated: the times above are not of a healthy link");
    }
    Ok(())
}
