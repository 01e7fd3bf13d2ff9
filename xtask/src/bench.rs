//! `cargo xtask bench`: speed, as ratios within one run. Absolute times on a shared machine mean little.

use anyhow::Result;

use crate::repository;

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only benchmarks whose name contains this.
    filter: Option<String>,
}

/// Runs the criterion benchmarks; each states the question it answers.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut cargo = repository::cargo();
    cargo.args(["bench", "--workspace", "--benches", "--"]);
    repository::run(cargo.args(arguments.filter.iter()))
}
