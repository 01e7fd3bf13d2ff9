//! Answers: how long does a local knot take to open, and what does its tokenizer cost in time and
//! memory? `open_knot --knot KNOT [--text FILE] [--times N]` prints one JSON object.
#![allow(clippy::print_stdout, reason = "an example's result goes to stdout")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use compact_tokenizer::AddSpecial;
use fat_station::cli::StationArgs;
use fat_station::config::Config;
use fat_station::language::Language;
use fat_station::model::{Model, open};
use fat_station::traffic::Traffic;
use serde_json::json;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    station: StationArgs,
    /// A text to encode after loading, so that pages the tokenizer works on are counted.
    #[arg(long)]
    text: Option<PathBuf>,
    /// How often each step is timed, at least once.
    #[arg(long, default_value_t = 11)]
    times: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let config = Config::resolve(&arguments.station, |name| std::env::var_os(name))?;
    let traffic = Arc::new(Traffic::default());

    let started = Instant::now();
    let (knot, decoder_config) = open(&config, &traffic).await?;
    let mut open_s = vec![started.elapsed().as_secs_f64()];

    let before = resident_bytes()?;
    let started = Instant::now();
    let language = Language::load(&knot, &decoder_config, None, &traffic).await?;
    let mut tokenizer_s = vec![started.elapsed().as_secs_f64()];
    let loaded = resident_bytes()?;
    let tokens = match &arguments.text {
        Some(path) => {
            let text = std::fs::read_to_string(path)?;
            language.tokenizer.encode(&text, AddSpecial::No).len()
        }
        None => 0,
    };
    let used = resident_bytes()?;
    let entries = language.tokenizer.vocabulary_len();

    let mut ready_s = Vec::new();
    for _ in 0..arguments.times.max(1) {
        let started = Instant::now();
        let (knot, decoder_config) = open(&config, &traffic).await?;
        open_s.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        Language::load(&knot, &decoder_config, None, &traffic).await?;
        tokenizer_s.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        let first_row = |_: &Language| Ok(vec![0]);
        let (model, _) = Model::load(&config, Arc::clone(&traffic), first_row).await?;
        model.head.get().await?;
        ready_s.push(started.elapsed().as_secs_f64());
    }
    let result = json!({
        "open_s": open_s,
        "tokenizer_s": tokenizer_s,
        "ready_s": ready_s,
        "tokenizer_entries": entries,
        "tokenizer_loaded_bytes": loaded.saturating_sub(before),
        "tokenizer_used_bytes": used.saturating_sub(before),
        "tokens": tokens,
    });
    println!("{result}");
    Ok(())
}

/// Resident memory of this process, as Linux tells it.
fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS in /proc/self/status")?.parse::<u64>()? * 1024)
}
