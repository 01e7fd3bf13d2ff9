//! Resident memory of `fat-station run`, as Linux reports it while the process lives, beside what it may use:
//! 1.25 x blocks + cached rows + keys and values + tokenizer. Where there is no /proc, there is no answer.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Model;
use crate::repository;
use crate::workload::WORKLOADS;

/// Between two looks; the kernel keeps the peak, so a look late in the run is enough for that.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const DECODED_TOKENS: u64 = 64;
/// Blocks may be held once, and a quarter more for everything that is not counted apart.
const ALLOWANCE: f64 = 1.25;

#[derive(Deserialize)]
struct Inspected {
    sections: Vec<Section>,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Section {
    kind: String,
    offset: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Block {
    bytes: u64,
    columnar: Option<Columnar>,
}

#[derive(Deserialize)]
struct Columnar {
    row_bytes: u64,
}

#[derive(Deserialize)]
struct ModelConfig {
    num_hidden_layers: u64,
    num_key_value_heads: u64,
    head_dim: u64,
    sliding_window: Option<u64>,
    sliding_window_pattern: Option<u64>,
}

#[derive(Deserialize)]
struct Summary {
    prompt_tokens: u64,
    embedding: Embedding,
}

#[derive(Deserialize)]
struct Embedding {
    cached_rows: u64,
}

/// Highest values seen, in bytes.
#[derive(Default)]
struct Peak {
    resident: u64,
    anonymous: u64,
    file: u64,
}

/// What the station may use, in bytes.
struct Parts {
    blocks: u64,
    rows: u64,
    keys_and_values: u64,
    tokenizer: u64,
}

/// Runs both models, dense and columnar.
pub(super) fn run() -> Result<()> {
    let models = super::models()?;
    println!(
        "{:<32} {:<9} {:>9} {:>9} {:>9} | {:>8} {:>7} {:>7} {:>9} {:>9} {:>6}",
        "model, MB",
        "rows from",
        "peak",
        "anonymous",
        "mapped",
        "blocks",
        "rows",
        "KV",
        "tokenizer",
        "allowed",
        "holds"
    );
    let mut all_hold = true;
    for model in &models {
        for columnar in [false, true] {
            all_hold &= one(model, columnar)?;
        }
    }
    ensure!(all_hold, "a station holds more than it may");
    Ok(())
}

fn one(model: &Model, columnar: bool) -> Result<bool> {
    let knot = model.packed.knot();
    let summary_file = repository::models_dir().join("bench-memory.json");
    let mut station = repository::binary("fat-station");
    station.arg("--knot").arg(&knot);
    if columnar {
        let rows = model.packed.rows();
        station.arg("--columnar-embed").arg(rows);
        station.arg("--embed-always-remote");
    }
    station.arg("--summary-file").arg(&summary_file);
    station.args(["run", "--raw", "--ignore-eos", "--max-tokens"]);
    station.args([&DECODED_TOKENS.to_string(), "--"]);
    let long_context = WORKLOADS.iter().find(|it| it.name == "long_context");
    station.arg(long_context.context("no workload long_context")?.prompt()?);
    station.stdout(Stdio::null()).stderr(Stdio::null());
    let peak = watch(station.spawn()?)?;
    let summary: Summary = serde_json::from_str(&std::fs::read_to_string(&summary_file)?)?;
    let parts = parts(&knot, &summary)?;
    let allowed = ALLOWANCE * parts.blocks as f64
        + (parts.rows + parts.keys_and_values + parts.tokenizer) as f64;
    let holds = peak.resident as f64 <= allowed;
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{:<32} {:<9} {:>9.1} {:>9.1} {:>9.1} | {:>8.1} {:>7.1} {:>7.1} {:>9.1} {:>9.1} {:>6}",
        model.packed.name,
        if columnar { "row store" } else { "knot" },
        mb(peak.resident),
        mb(peak.anonymous),
        mb(peak.file),
        mb(parts.blocks),
        mb(parts.rows),
        mb(parts.keys_and_values),
        mb(parts.tokenizer),
        allowed / 1e6,
        if holds { "yes" } else { "NO" }
    );
    Ok(holds)
}

/// Looks at the process until it ends.
fn watch(mut child: Child) -> Result<Peak> {
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = Peak::default();
    let status = loop {
        let text = std::fs::read_to_string(&status_file)
            .context("resident memory is read from /proc, which only Linux has")?;
        for (name, value) in [
            ("VmHWM:", &mut peak.resident),
            ("RssAnon:", &mut peak.anonymous),
            ("RssFile:", &mut peak.file),
        ] {
            *value = (*value).max(kib(&text, name).unwrap_or(0) * 1024);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    ensure!(status.success(), "fat-station ended with {status}");
    ensure!(peak.resident > 0, "the station ended before it was seen");
    Ok(peak)
}

fn kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn parts(knot: &Path, summary: &Summary) -> Result<Parts> {
    let mut origin = repository::binary("fat-origin");
    let printed = repository::output(origin.arg("inspect").arg(knot).arg("--json"))?;
    let inspected: Inspected =
        serde_json::from_slice(&printed).context("inspect --json printed something else")?;
    let section = |kind: &str| {
        let mut sections = inspected.sections.iter();
        let found = sections.find(|section| section.kind == kind);
        found.with_context(|| format!("{} has no {kind} section", knot.display()))
    };
    let row_bytes = inspected
        .blocks
        .iter()
        .find_map(|block| Some(block.columnar.as_ref()?.row_bytes));
    Ok(Parts {
        blocks: inspected.blocks.iter().map(|block| block.bytes).sum(),
        rows: summary.embedding.cached_rows * row_bytes.unwrap_or(0),
        keys_and_values: keys_and_values(
            &model_config(knot, section("model-config")?)?,
            summary.prompt_tokens + DECODED_TOKENS,
        ),
        tokenizer: section("tokenizer")?.bytes,
    })
}

fn model_config(knot: &Path, section: &Section) -> Result<ModelConfig> {
    let mut file = std::fs::File::open(knot)?;
    file.seek(SeekFrom::Start(section.offset))?;
    let mut text = String::new();
    file.take(section.bytes).read_to_string(&mut text)?;
    serde_json::from_str(&text).context("the knot's model config lacks a field")
}

/// f16 keys and values of `positions`, two bytes each; layers with a window hold no more than the window.
fn keys_and_values(config: &ModelConfig, positions: u64) -> u64 {
    let pattern = config.sliding_window_pattern.unwrap_or(1).max(1);
    let window = config.sliding_window.filter(|_| pattern > 1);
    (1..=config.num_hidden_layers)
        .map(|layer| match window {
            Some(window) if layer % pattern != 0 => positions.min(window),
            _ => positions,
        })
        .map(|held| held * 2 * config.num_key_value_heads * config.head_dim * 2)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sliding_layer_holds_its_window_and_every_sixth_layer_all() {
        let config = ModelConfig {
            num_hidden_layers: 6,
            num_key_value_heads: 1,
            head_dim: 8,
            sliding_window: Some(10),
            sliding_window_pattern: Some(6),
        };
        assert_eq!(keys_and_values(&config, 100), (5 * 10 + 100) * 2 * 8 * 2);
        assert_eq!(keys_and_values(&config, 7), 6 * 7 * 2 * 8 * 2);
    }

    #[test]
    fn memory_is_read_by_name() {
        let status = "VmHWM:\t    1204 kB\nRssAnon:\t     200 kB\n";
        assert_eq!(kib(status, "RssAnon:"), Some(200));
        assert_eq!(kib(status, "RssFile:"), None);
    }
}
