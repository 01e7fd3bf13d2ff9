//! `cargo xtask test`: what must be green before a change lands, cheapest first.

use anyhow::Result;

use crate::{bandwidth_report, repository, tidy};

/// Runs every check and every test; the first one that fails ends the run.
pub(crate) fn run() -> Result<()> {
    step("format", || repository::run(repository::cargo().args(["fmt", "--all", "--check"])))?;
    step("tidy", tidy::run)?;
    step("lints", || {
        let mut clippy = repository::cargo();
        repository::run(clippy.args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
    })?;
    step("documentation", || {
        let mut doc = repository::cargo();
        doc.env("RUSTDOCFLAGS", "-D warnings");
        repository::run(doc.args(["doc", "--workspace", "--no-deps", "--quiet"]))
    })?;
    step("unit and integration tests", || repository::run(repository::cargo().args(["test", "--workspace"])))?;
    step("bandwidth report", bandwidth_report::check)
}

fn step(name: &str, task: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("test: {name}");
    task()
}
