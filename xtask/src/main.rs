//! Developer tasks, one file each: `cargo xtask <task>`. Nothing here is shipped, and nothing here links the
//! product's crates: a task starts the binaries, like a user.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task runner talks to the terminal: results on stdout, progress on stderr"
)]

mod bandwidth_report;
mod bench;
mod child;
mod demo;
mod e2e;
mod fuzz;
mod instructions;
mod kill_tier;
mod models;
mod neon;
mod origin;
mod publish_guide;
mod repository;
mod servers;
mod soak;
mod station;
mod synthetic;
mod test;
mod tidy;
mod tokenizer_ids;
mod workload;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Developer tasks of the fat-station workspace"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The main job on a real model: pack, serve behind a thin link, answer from a cold node.
    Demo(demo::Arguments),
    /// Every check and every test: format, lints, documentation, tidy, unit and integration tests, real servers.
    Test(test::Arguments),
    /// Cold stations against real servers on loopback; the table of docs/servers.md.
    Servers(servers::Arguments),
    /// docs/publish-to-r2.md, word for word, against an S3 service on loopback; publishers that are killed.
    PublishGuide(publish_guide::Arguments),
    /// Acceptance: cold columnar runs against dense runs, bytes against the origin's own log.
    E2e(e2e::Arguments),
    /// Measures what the workloads move and writes docs/COLUMNAR_BANDWIDTH_REPORT.md.
    BandwidthReport(bandwidth_report::Arguments),
    /// Checks crate arrows, file heads and lengths, and format pages against their layout files.
    Tidy,
    /// Speed, as ratios in one run: row lookup, products, decode beside a packaged llama.cpp.
    Bench(bench::Arguments),
    /// Instructions and allocations of kernels and decoded tokens, beside docs/results/instructions.json.
    Instructions(instructions::Arguments),
    /// The kernels' tests on AArch64, emulated.
    TestNeon(neon::Arguments),
    /// Thousands of batches from a server that misbehaves; writes docs/reliability.md.
    Soak(soak::Arguments),
    /// Kills stations that fill a row cache on disk, and checks after each kill that no row is wrong.
    KillTier(kill_tier::Arguments),
    /// Runs the fuzz target of the knot reader for a bounded time.
    Fuzz(fuzz::Arguments),
    /// Fetches the real models and tokenizers into .models/.
    Models,
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Servers(arguments) => servers::run(&arguments),
        Task::PublishGuide(arguments) => publish_guide::run(&arguments),
        Task::E2e(arguments) => e2e::run(&arguments),
        Task::BandwidthReport(arguments) => bandwidth_report::run(&arguments),
        Task::Tidy => tidy::run(),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Instructions(arguments) => instructions::run(&arguments),
        Task::TestNeon(arguments) => neon::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::KillTier(arguments) => kill_tier::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Models => models::fetch_all(),
    }
}
