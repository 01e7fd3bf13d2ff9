//! `cargo xtask fuzz`: the fuzz target of the knot reader, for a bounded time, on the stable toolchain.

use anyhow::Result;

use crate::repository;

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long to run, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Needs `cargo install cargo-fuzz`; sanitizers want a nightly compiler, so none is asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut cargo = repository::cargo();
    cargo.current_dir(repository::root().join("crates/gkq-v2"));
    cargo.args(["fuzz", "run", "--sanitizer", "none", "open", "--"]);
    repository::run(cargo.arg(format!("-max_total_time={}", arguments.seconds)))
}
