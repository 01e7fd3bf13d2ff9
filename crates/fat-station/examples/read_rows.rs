//! Answers: does a server give the right rows, and what did they cost? `read_rows --columnar-embed URL --knot KNOT`
//! takes one batch a line on stdin, `{"ids": [..]}` or `{"text": "FILE"}`, with `"out": "FILE"` for the rows in the
//! order of the ids. It reads each the station's way through a fresh cache over the same connections, and prints one
//! JSON object a batch. Whoever feeds it decides what happens to the server between two batches.
//!
//! The first batch that fails ends it: `{"error": ..}` on stdout, and the station's exit code.
#![allow(clippy::print_stdout, reason = "an example's result goes to stdout")]

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use fat_station::cli::StationArgs;
use fat_station::config::Config;
use fat_station::error::Error;
use fat_station::language::{Language, PromptForm};
use fat_station::matrix::Matrix;
use fat_station::traffic::{Phase, Traffic};
use helix_transport::MeterSnapshot;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    station: StationArgs,
}

/// One line of stdin.
#[derive(Deserialize)]
struct Batch {
    /// Token ids.
    #[serde(default)]
    ids: Vec<u32>,
    /// The ids of this text's tokens instead.
    text: Option<PathBuf>,
    /// Gets the rows, one after the other.
    out: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.station).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let station = failure.downcast_ref::<Error>();
            let text = station.map_or_else(|| failure.to_string(), Error::chain);
            println!("{}", json!({ "error": text }));
            station.map_or(ExitCode::FAILURE, Error::exit_code)
        }
    }
}

async fn run(arguments: &StationArgs) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::resolve(arguments, |name| std::env::var_os(name))?;
    let traffic = Traffic::default();
    let (knot, decoder_config) = fat_station::model::open(&config, &traffic).await?;
    let matrix = Matrix::open(Arc::clone(&knot), &config)?;
    matrix.locate(&traffic).await?;
    for line in std::io::stdin().lock().lines() {
        let batch: Batch = serde_json::from_str(&line?)?;
        let ids = match &batch.text {
            None => batch.ids,
            Some(path) => {
                let language = Language::load(&knot, &decoder_config, None, &traffic).await?;
                language.tokens(std::fs::read_to_string(path)?.trim_end(), PromptForm::Raw)?
            }
        };
        let before = [traffic.rows.snapshot(), traffic.paths.snapshot()];
        let rows = matrix
            .columnar(&traffic)?
            .rows(&ids, Phase::Prefill, &traffic)
            .await?;
        let after = [traffic.rows.snapshot(), traffic.paths.snapshot()];
        let mut out = std::io::BufWriter::new(std::fs::File::create(&batch.out)?);
        for row in &rows {
            out.write_all(row.as_ref())?;
        }
        out.flush()?;
        println!(
            "{}",
            report(
                &ids,
                matrix.row_bytes,
                [after[0] - before[0], after[1] - before[1]]
            )
        );
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn report(ids: &[u32], row_bytes: usize, [rows, paths]: [MeterSnapshot; 2]) -> Value {
    json!({
        "ids": ids,
        "row_bytes": row_bytes,
        "distinct_rows": ids.iter().collect::<std::collections::HashSet<_>>().len(),
        "requests": rows.requests,
        "waves": rows.waves,
        "received_bytes": rows.received_bytes,
        "framing_bytes": rows.framing_bytes,
        "useful_bytes": rows.useful_bytes,
        "path_requests": paths.requests,
        "retries": rows.retries,
    })
}
