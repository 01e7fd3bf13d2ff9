//! `cargo xtask bandwidth-report`: what the workloads touch of each vocabulary matrix, and what a hundred sessions
//! share. Counts go to docs/results/bandwidth.json, which `fixtures/validate-columnar-embed.py` recomputes with a
//! tokenizer package alone; the page for people is rendered from that file and from the acceptance results.

mod corpus;
mod counts;
mod mixes;
mod page;
mod sessions;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::repository;
use counts::Counts;

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Compares the committed report with a new measurement instead of writing it.
    #[arg(long)]
    check: bool,
}

/// Measures, then writes both files, or compares them with what is committed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.check { check() } else { write() }
}

fn write() -> Result<()> {
    let (counts, page) = measure()?;
    std::fs::create_dir_all(repository::root().join("docs/results"))?;
    std::fs::write(counts_path(), counts)?;
    std::fs::write(page_path(), page)?;
    Ok(())
}

/// Fails if the committed report is not what a new measurement gives.
pub(crate) fn check() -> Result<()> {
    let (counts, page) = measure()?;
    for (path, measured) in [(counts_path(), counts), (page_path(), page)] {
        let committed =
            std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        ensure!(
            committed == measured,
            "{} no longer matches the measurement; run `cargo xtask bandwidth-report` and read the difference",
            path.display()
        );
    }
    Ok(())
}

fn measure() -> Result<(String, String)> {
    repository::build_binaries()?;
    let counts = Counts::measure()?;
    let json = serde_json::to_string_pretty(&counts)? + "\n";
    let page = page::render(&counts)?;
    Ok((json, page))
}

fn counts_path() -> PathBuf {
    repository::root().join("docs/results/bandwidth.json")
}

fn page_path() -> PathBuf {
    repository::root().join("docs/COLUMNAR_BANDWIDTH_REPORT.md")
}
