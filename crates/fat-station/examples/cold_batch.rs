//! Answers: what does a cold batch of rows cost on warm connections? `cold_batch --columnar-embed URL
//! --knot KNOT [--http2-prior-knowledge]` reads it the station's way (planner, verification, meters)
//! with a fresh cache each time over the same connections, and prints one JSON object.
#![allow(clippy::print_stdout, reason = "an example's result goes to stdout")]

use std::error::Error;
use std::time::{Duration, Instant};

use clap::Parser;
use fat_station::cli::StationArgs;
use fat_station::config::Config;
use fat_station::language::{Language, PromptForm};
use fat_station::matrix::Matrix;
use fat_station::traffic::{Phase, Traffic};
use helix_transport::MeterSnapshot;
use serde_json::{Value, json};

/// Ids a prime apart: hardly two rows lie near enough to be merged, the planner's worst case.
const STRIDE: u64 = 7919;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    station: StationArgs,
    /// Distinct rows of a batch.
    #[arg(long, default_value_t = 109)]
    rows: u64,
    /// Batches on warm connections.
    #[arg(long, default_value_t = 20)]
    batches: usize,
    /// Read the rows of this text's tokens instead of scattered ones.
    #[arg(long)]
    text: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let config = Config::resolve(&arguments.station, |name| std::env::var_os(name))?;
    let traffic = Traffic::default();
    let (knot, decoder_config) = fat_station::model::open(&config, &traffic).await?;
    let matrix = Matrix::open(std::sync::Arc::clone(&knot), &config)?;
    matrix.locate(&traffic).await?;
    let ids = match &arguments.text {
        Some(path) => {
            let language = Language::load(&knot, &decoder_config, None, &traffic).await?;
            language.tokens(std::fs::read_to_string(path)?.trim_end(), PromptForm::Raw)?
        }
        None => scattered(arguments.rows, matrix.block()?.shape[0])?,
    };
    let cold_connect = batch(&matrix, &ids, &traffic).await?;
    let mut single_row_s = Vec::new();
    for _ in 0..arguments.batches {
        let (took, _) = timed(&matrix, &ids[..1], &traffic).await?;
        single_row_s.push(took.as_secs_f64());
    }
    let mut batches = Vec::new();
    for _ in 0..arguments.batches {
        batches.push(batch(&matrix, &ids, &traffic).await?);
    }
    let result = json!({
        "distinct_rows": ids.iter().collect::<std::collections::HashSet<_>>().len(),
        "single_row_s": single_row_s,
        "cold_connect": cold_connect,
        "batches": batches,
    });
    println!("{result}");
    Ok(())
}

fn scattered(rows: u64, vocabulary: u64) -> Result<Vec<u32>, Box<dyn Error>> {
    if rows == 0 || rows > vocabulary {
        return Err(format!("--rows must be 1 to {vocabulary}, found {rows}").into());
    }
    let ids = (1..=rows).map(|index| u32::try_from(index * STRIDE % vocabulary));
    Ok(ids.collect::<Result<_, _>>()?)
}

async fn batch(matrix: &Matrix, ids: &[u32], traffic: &Traffic) -> Result<Value, Box<dyn Error>> {
    let (took, [rows, paths]) = timed(matrix, ids, traffic).await?;
    Ok(json!({
        "seconds": took.as_secs_f64(),
        "requests": rows.requests,
        "waves": rows.waves,
        "received_bytes": rows.received_bytes,
        "useful_bytes": rows.useful_bytes,
        "path_requests": paths.requests,
        "path_received_bytes": paths.received_bytes,
        "retries": rows.retries + paths.retries,
    }))
}

/// Time and traffic of one batch through a fresh cache.
async fn timed(
    matrix: &Matrix,
    ids: &[u32],
    traffic: &Traffic,
) -> Result<(Duration, [MeterSnapshot; 2]), Box<dyn Error>> {
    let store = matrix.columnar(traffic)?;
    let meters = || [traffic.rows.snapshot(), traffic.paths.snapshot()];
    let before = meters();
    let started = Instant::now();
    store.rows(ids, Phase::Prefill, traffic).await?;
    let took = started.elapsed();
    let after = meters();
    Ok((took, [after[0] - before[0], after[1] - before[1]]))
}
