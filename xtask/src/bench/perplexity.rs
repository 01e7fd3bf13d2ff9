//! Perplexity of the committed text, in windows as llama.cpp's perplexity takes them, beside the packaged peer.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::peer::peer_command;
use crate::repository;

/// Flags of the question.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Folder in which `npm install node-llama-cpp@3.21.1` was run; absent, ours alone is measured.
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Windows in tokens; the second half of each is scored.
    #[arg(long, value_delimiter = ',', default_values_t = [256_u32])]
    context: Vec<u32>,
}

#[derive(Deserialize)]
struct Measured {
    #[serde(alias = "scored")]
    tokens: u64,
    perplexity: f64,
}

/// Both models at each window.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let text = repository::root().join("fixtures/perplexity/text.txt");
    println!(
        "{:<32} {:>7} {:>7} {:>10} {:>10} {:>8}",
        "model", "window", "scored", "perplexity", "llama.cpp", "percent"
    );
    for model in &super::models()? {
        for context in &arguments.context {
            let mut station = repository::binary("fat-station");
            station.arg("--knot").arg(model.packed.knot());
            station.arg("perplexity").arg("--file").arg(&text);
            let ours = measured(station.args(["--context", &context.to_string()]))?;
            print!(
                "{:<32} {context:>7} {:>7} {:>10.3}",
                model.packed.name, ours.tokens, ours.perplexity
            );
            if let Some(folder) = &arguments.peer {
                let mut node = peer_command(folder);
                node.arg("perplexity").arg(&model.gguf).arg(&text);
                let theirs = measured(node.arg(context.to_string()))?;
                let percent = 100.0 * (ours.perplexity / theirs.perplexity - 1.0);
                print!(" {:>10.3} {percent:>+8.2}", theirs.perplexity);
            }
            println!();
        }
    }
    Ok(())
}

fn measured(command: &mut std::process::Command) -> Result<Measured> {
    serde_json::from_slice(&repository::output(command)?)
        .with_context(|| format!("{command:?} printed something else"))
}
