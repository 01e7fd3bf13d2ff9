//! Prefill and decode beside a packaged llama.cpp: same weights, same prompt, same threads, in pairs that alternate who
//! goes first, so that a busy machine slows both. The median of the ratios of the pairs is the figure.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::Model;
use super::median::median;
use crate::repository;
use crate::workload::{WORKLOADS, Workload};

/// Flags of the question.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A `llama-bench` built natively, or the folder in which `npm install node-llama-cpp@3.21.1` was run.
    #[arg(long)]
    peer: PathBuf,
    /// Pairs of each measurement.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(6..))]
    pub(super) pairs: u32,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_values_t = [1_u32, 2])]
    pub(super) threads: Vec<u32>,
    /// Tokens decoded in each run beside the folder's llama.cpp; `llama-bench` is asked for 64 and 256.
    #[arg(long, default_value_t = 64)]
    decode: u32,
    /// Prints the measurements beside `llama-bench` as JSON, too.
    #[arg(long)]
    pub(super) json: bool,
}

/// Tokens per second.
#[derive(Clone, Copy)]
struct Speed {
    prompt_tokens: u64,
    prefill: f64,
    decode: f64,
}

#[derive(Deserialize)]
struct PeerSpeed {
    prompt_tokens: u64,
    picks: u64,
    prefill_s: f64,
    decode_s: f64,
}

/// Both models on `long_context`, at each number of threads.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.peer.is_file() {
        return super::llama_bench::run(&arguments.peer, arguments);
    }
    let models = super::models()?;
    let mut workloads = WORKLOADS.iter().copied();
    let workload = workloads
        .find(|it| it.name == "long_context")
        .context("no workload long_context")?;
    println!(
        "{:<32} {:>7} {:>7} | {:>9} {:>9} {:>7} {:<13} | {:>9} {:>9} {:>7} {:<13}",
        "model, tokens/s",
        "threads",
        "prompt",
        "prefill",
        "llama.cpp",
        "ratio",
        "(of pairs)",
        "decode",
        "llama.cpp",
        "ratio",
        "(of pairs)"
    );
    for model in &models {
        for &threads in &arguments.threads {
            let mut pairs = Vec::new();
            // The first round warms the page cache and is not counted.
            for round in 0..=arguments.pairs {
                let prompt = workload.prompt()?;
                let ours = || {
                    let timed = station(model, &prompt, threads, arguments.decode)?;
                    Ok::<_, anyhow::Error>(Speed::of(&timed))
                };
                let theirs = || peer(&arguments.peer, model, workload, threads, arguments.decode);
                let pair = if round % 2 == 0 {
                    let ours = ours()?;
                    (ours, theirs()?)
                } else {
                    let theirs = theirs()?;
                    (ours()?, theirs)
                };
                ensure!(
                    pair.0.prompt_tokens == pair.1.prompt_tokens,
                    "the prompt has {} tokens here and {} there",
                    pair.0.prompt_tokens,
                    pair.1.prompt_tokens
                );
                if round > 0 {
                    pairs.push(pair);
                }
            }
            print(&model.packed.name, threads, &pairs)?;
        }
    }
    Ok(())
}

fn print(name: &str, threads: u32, pairs: &[(Speed, Speed)]) -> Result<()> {
    let prompt_tokens = pairs.first().map_or(0, |(ours, _)| ours.prompt_tokens);
    let mut line = format!("{name:<32} {threads:>7} {prompt_tokens:>7}");
    let phases: [fn(&Speed) -> f64; 2] = [|speed| speed.prefill, |speed| speed.decode];
    for phase in phases {
        let of = |pick: fn(&(Speed, Speed)) -> &Speed| -> Vec<f64> {
            pairs.iter().map(|pair| phase(pick(pair))).collect()
        };
        let (ours, theirs) = (of(|pair| &pair.0), of(|pair| &pair.1));
        let mut ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let span = ratios.first().zip(ratios.last());
        let (least, most) = span.context("no pair was measured")?;
        line += &format!(
            " | {:>9.1} {:>9.1} {:>7.2} ({least:.2} - {most:.2})",
            median(&ours)?,
            median(&theirs)?,
            median(&ratios)?
        );
    }
    println!("{line}");
    Ok(())
}

/// Times that a station's spans tell.
pub(super) struct Timed {
    pub(super) prompt_tokens: u64,
    /// Layers of the whole prompt.
    pub(super) prefill_s: f64,
    /// Tokens chosen.
    pub(super) picks: f64,
    /// Head and choice of every pick, layers of every pick but the last.
    pub(super) decode_s: f64,
}

impl Speed {
    fn of(timed: &Timed) -> Self {
        // The first pick's logits belong to the prompt on the other side: one pick's share moves over.
        let pick_s = timed.decode_s / timed.picks;
        Self {
            prompt_tokens: timed.prompt_tokens,
            prefill: timed.prompt_tokens as f64 / (timed.prefill_s + pick_s),
            decode: 1.0 / pick_s,
        }
    }
}

/// Runs the station dense, as the peer does, and reads the times from its spans.
pub(super) fn station(model: &Model, prompt: &str, threads: u32, picks: u32) -> Result<Timed> {
    let mut station = repository::binary("fat-station");
    station
        .env("RAYON_NUM_THREADS", threads.to_string())
        .arg("--knot")
        .arg(model.packed.knot())
        .args(["--log-format", "json", "run", "--raw", "--ignore-eos"])
        .args(["--max-tokens", &picks.to_string(), "--", prompt]);
    let output = station.output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{station:?} ended with {}:\n{log}",
        output.status
    );
    let field = |name: &str, field: &str| {
        let value = span(&log, name).and_then(|span| span[field].as_f64());
        value.with_context(|| format!("the log has no span {name} with {field}"))
    };
    let prompt_tokens = span(&log, "prefill").and_then(|span| span["prompt_tokens"].as_u64());
    Ok(Timed {
        prompt_tokens: prompt_tokens.context("the log has no prompt_tokens")?,
        prefill_s: field("prefill", "seconds")?,
        picks: field("decode", "generated_tokens")?,
        decode_s: field("decode", "seconds")?,
    })
}

/// The last closed span of this name in a log of JSON lines.
fn span(log: &str, name: &str) -> Option<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|event| event["span"].clone())
        .rfind(|span| span["name"] == name)
}

fn peer(
    folder: &Path,
    model: &Model,
    workload: Workload,
    threads: u32,
    decode: u32,
) -> Result<Speed> {
    let mut node = peer_command(folder);
    node.arg("speed").arg(&model.gguf).arg(workload.path());
    node.args([decode.to_string(), threads.to_string()]);
    let measured: PeerSpeed = serde_json::from_slice(&repository::output(&mut node)?)
        .context("the peer printed something else")?;
    Ok(Speed {
        prompt_tokens: measured.prompt_tokens,
        prefill: measured.prompt_tokens as f64 / measured.prefill_s,
        decode: (measured.picks - 1) as f64 / measured.decode_s,
    })
}

/// The peer's script, run where its package is installed.
pub(super) fn peer_command(folder: &Path) -> Command {
    let mut node = Command::new("node");
    node.current_dir(folder);
    node.arg(repository::root().join("fixtures/peers/llama_cpp.mjs"));
    node
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_span_is_found_among_other_lines() {
        let log = "text\n{\"span\":{\"name\":\"prefill\",\"seconds\":1.5}}\n{\"fields\":{}}\n";
        assert_eq!(span(log, "prefill").unwrap()["seconds"], 1.5);
        assert!(span(log, "decode").is_none());
    }
}
