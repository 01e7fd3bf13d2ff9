//! How long a model takes from the start of a process to the first byte of its answer: *cold*, with everything on a
//! server behind a link and nothing on disk, and *warm*, from local files in the page cache.
//!
//! Beside it a `llama-completion` that somebody built from llama.cpp: cold it runs after curl has downloaded the GGUF
//! over the same link. Both are timed from outside, by the first byte on stdout, with the same prompt of 32 tokens.

mod cold;
mod first_byte;
mod warm;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::prompt::prompt_of;

/// Tokens of the prompt.
const PROMPT_TOKENS: u32 = 32;

/// Flags of the question.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A `llama-completion` built natively from llama.cpp.
    #[arg(long)]
    peer: PathBuf,
    /// Cold starts of each side.
    #[arg(long, default_value_t = 3)]
    cold_pairs: u32,
    /// Warm starts of each side.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(6..))]
    warm_pairs: u32,
    /// Round trip of the link, in milliseconds.
    #[arg(long, default_value_t = 40)]
    rtt_ms: u32,
    /// Rate of the link, in Mbit/s.
    #[arg(long, default_value_t = 100)]
    rate_mbit: u32,
}

/// Both starts of both models. An error where a start is slower than it has to be; the figures come first.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let peer = arguments.peer.canonicalize()?;
    let models = super::models()?;
    let mut slow = Vec::new();
    cold::print_head();
    let link = cold::LinkShape {
        rtt_ms: arguments.rtt_ms,
        rate_bytes_per_s: u64::from(arguments.rate_mbit) * 125_000,
    };
    for model in &models {
        let prompt = prompt_of(model, PROMPT_TOKENS)?;
        slow.extend(cold::measure(
            model,
            &peer,
            &prompt,
            &link,
            arguments.cold_pairs,
        )?);
    }
    warm::print_head();
    for model in &models {
        let prompt = prompt_of(model, PROMPT_TOKENS)?;
        slow.extend(warm::measure(model, &peer, &prompt, arguments.warm_pairs)?);
    }
    ensure!(slow.is_empty(), "too slow: {}", slow.join("; "));
    Ok(())
}
