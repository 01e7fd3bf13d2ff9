//! How long a local knot takes to open, its tokenizer apart; `open_knot`, an example of the station, measures.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::median::median;
use crate::repository;
use crate::workload::dir;

#[derive(Deserialize)]
struct Measured {
    open_s: Vec<f64>,
    tokenizer_s: Vec<f64>,
    ready_s: Vec<f64>,
    tokenizer_entries: u64,
    tokenizer_used_bytes: u64,
}

/// Opens both models; the first time in a process is printed beside the median.
pub(super) fn run() -> Result<()> {
    let models = super::models()?;
    super::build_examples()?;
    println!(
        "{:<32} {:>16} {:>16} {:>16} {:>9} {:>12}",
        "model, ms: first / median", "open", "tokenizer", "ready", "entries", "resident MB"
    );
    for model in &models {
        let mut example = repository::example("open_knot");
        example.arg("--knot").arg(model.packed.knot());
        example.arg("--text").arg(dir().join("multilingual.txt"));
        let measured: Measured = serde_json::from_slice(&repository::output(&mut example)?)
            .context("open_knot printed something else")?;
        let times = |seconds: &[f64]| -> Result<String> {
            let first = seconds.first().context("nothing was measured")?;
            Ok(format!(
                "{:.1} / {:.1}",
                first * 1e3,
                median(seconds)? * 1e3
            ))
        };
        println!(
            "{:<32} {:>16} {:>16} {:>16} {:>9} {:>12.1}",
            model.packed.name,
            times(&measured.open_s)?,
            times(&measured.tokenizer_s)?,
            times(&measured.ready_s)?,
            measured.tokenizer_entries,
            measured.tokenizer_used_bytes as f64 / 1e6
        );
    }
    Ok(())
}
