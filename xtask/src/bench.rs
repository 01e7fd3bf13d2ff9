//! `cargo xtask bench`: speed and memory, each question a subcommand with a small table. Ratios within one run count;
//! absolute times on a shared machine mean little. The figures that were measured are in docs/performance.md.

mod clients;
mod link;
mod llama_bench;
mod machine;
mod median;
mod memory;
mod open;
mod peer;
mod perplexity;
mod prompt;
mod start;

use anyhow::Result;
use clap::Subcommand;

use crate::models::{Package, PackedModel};
use crate::repository;

/// Flags of the task.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// Only criterion benchmarks whose name contains this.
    filter: Option<String>,
    #[command(subcommand)]
    question: Option<Question>,
}

#[derive(Subcommand)]
enum Question {
    /// Row lookup from a warm cache (criterion).
    Rows,
    /// A cold batch of rows behind a link: waves, round trips, requests, amplification.
    Link(link::Arguments),
    /// The same rows with our transport, `object_store` and curl: bytes, requests, waves, time.
    Clients(clients::Arguments),
    /// Opening a local knot, and its tokenizer apart.
    Open,
    /// Resident memory of a station beside what it may use.
    Memory,
    /// Prefill and decode beside llama.cpp or a fork of it, in alternating pairs.
    Peer(peer::Arguments),
    /// Cold start over a link, beside downloading the file and running llama.cpp; warm start beside llama.cpp.
    Start(start::Arguments),
    /// Perplexity, beside a packaged llama.cpp if one is given.
    Perplexity(perplexity::Arguments),
}

/// Answers one question, or runs all criterion benchmarks.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    println!("{}", machine::describe()?);
    match &arguments.question {
        None => criterion("--workspace", arguments.filter.as_deref()),
        Some(Question::Rows) => criterion("--package=columnar-embed", Some("warm_lookup")),
        Some(Question::Link(arguments)) => link::run(arguments),
        Some(Question::Clients(arguments)) => clients::run(arguments),
        Some(Question::Open) => open::run(),
        Some(Question::Memory) => memory::run(),
        Some(Question::Peer(arguments)) => peer::run(arguments),
        Some(Question::Start(arguments)) => start::run(arguments),
        Some(Question::Perplexity(arguments)) => perplexity::run(arguments),
    }
}

/// Criterion benchmarks under the profile of the tests, whose numeric crates are as optimised as a release's: a second
/// build of everything would tell little more.
fn criterion(packages: &str, filter: Option<&str>) -> Result<()> {
    let mut cargo = repository::cargo();
    cargo.args(["bench", packages, "--benches", "--profile", "dev", "--"]);
    repository::run(cargo.args(filter))
}

/// The real models that every question is asked about.
const MODELS: [Package; 2] = [Package::Smollm2, Package::Gemma3];

/// A packaged model and the knot and rows made from it.
struct Model {
    gguf: std::path::PathBuf,
    packed: PackedModel,
}

/// Builds the binaries and packs both models.
fn models() -> Result<Vec<Model>> {
    repository::build_binaries()?;
    MODELS
        .iter()
        .map(|package| {
            let gguf = package.fetch()?;
            let stem = gguf.file_stem().unwrap_or_default().to_string_lossy();
            let packed = PackedModel::pack(&gguf, &format!("bench-{stem}"), &[])?;
            Ok(Model { gguf, packed })
        })
        .collect()
}

/// Builds the station's examples: each answers one question with one JSON object.
fn build_examples() -> Result<()> {
    let mut cargo = repository::cargo();
    repository::run(cargo.args(["build", "-p", "fat-station", "--examples", "--quiet"]))
}
