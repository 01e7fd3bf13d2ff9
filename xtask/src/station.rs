//! A `fat-station run` process: started cold, its summary, ids and logits read back.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::repository;

/// `--summary-file` of a run; only what the tasks read.
#[derive(Deserialize)]
pub(crate) struct Summary {
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) embedding: EmbeddingSummary,
    pub(crate) bytes: BytesByKind,
    pub(crate) total_received_bytes: u64,
    pub(crate) integrity_failures: u64,
    pub(crate) resolutions: Vec<Resolution>,
}

/// Which way a tensor went.
#[derive(Deserialize)]
pub(crate) struct Resolution {
    pub(crate) reason: String,
}

/// How the embedding rows came.
#[derive(Deserialize)]
pub(crate) struct EmbeddingSummary {
    pub(crate) source: String,
    pub(crate) distinct_rows: u64,
    pub(crate) decode_distinct_rows: u64,
    pub(crate) full_table_bytes: u64,
    pub(crate) prefill_received_bytes: u64,
    pub(crate) prefill_path_received_bytes: u64,
    pub(crate) prefill_round_trips: u64,
}

/// The meters, one per kind of bytes.
#[derive(Deserialize)]
pub(crate) struct BytesByKind {
    pub(crate) rows: Metered,
    pub(crate) paths: Metered,
    pub(crate) head: Metered,
    pub(crate) blocks: Metered,
    pub(crate) probe: Metered,
}

impl BytesByKind {
    /// Requests that were sent again, of every kind.
    pub(crate) fn retries(&self) -> u64 {
        self.all().iter().map(|meter| meter.retries).sum()
    }

    /// Body bytes between the parts of replies to several ranges, of every kind.
    pub(crate) fn framing(&self) -> u64 {
        self.all().iter().map(|meter| meter.framing).sum()
    }

    fn all(&self) -> [&Metered; 5] {
        [
            &self.rows,
            &self.paths,
            &self.head,
            &self.blocks,
            &self.probe,
        ]
    }
}

/// One meter.
#[derive(Deserialize)]
pub(crate) struct Metered {
    pub(crate) received: u64,
    /// Absent in summaries of stations that ask for one range a request.
    #[serde(default)]
    pub(crate) framing: u64,
    pub(crate) useful: u64,
    pub(crate) requests: u64,
    pub(crate) round_trips: u64,
    pub(crate) retries: u64,
}

/// What a station is started with.
pub(crate) struct Launch<'a> {
    /// URL of the row file; `None` runs dense from the knot.
    pub(crate) rows_url: Option<&'a str>,
    /// Path or URL of the knot; `None` leaves it to the station.
    pub(crate) knot: Option<&'a str>,
    pub(crate) prompt: &'a str,
    pub(crate) max_tokens: usize,
    /// Ids fed in place of the sampled ones.
    pub(crate) continuation: Option<&'a Path>,
    /// Folder of the run: caches and results; emptied first, so that every run is cold.
    pub(crate) scratch: PathBuf,
}

/// What a finished run left.
pub(crate) struct Finished {
    pub(crate) summary: Summary,
    pub(crate) tokens: Vec<u32>,
    pub(crate) logits: PathBuf,
}

impl Finished {
    /// The raw bytes: equal bytes are equal floats, also where a comparison of floats would say otherwise.
    pub(crate) fn logits(&self) -> Result<Vec<u8>> {
        let bytes = std::fs::read(&self.logits).context("no logits file")?;
        anyhow::ensure!(!bytes.is_empty(), "the logits file is empty");
        Ok(bytes)
    }
}

/// Runs a station to its end.
///
/// # Errors
/// If the station fails; the text carries its stderr.
pub(crate) fn run(launch: &Launch<'_>) -> Result<Finished> {
    run_with(launch, |_| {})
}

/// Runs a station to its end, started with what `settings` adds to its command, such as environment variables.
///
/// # Errors
/// If the station fails; the text carries its stderr.
pub(crate) fn run_with(
    launch: &Launch<'_>,
    settings: impl FnOnce(&mut std::process::Command),
) -> Result<Finished> {
    let scratch = &launch.scratch;
    if scratch.exists() {
        std::fs::remove_dir_all(scratch)?;
    }
    std::fs::create_dir_all(scratch)?;
    let (summary, tokens, logits) = (
        scratch.join("summary.json"),
        scratch.join("tokens.json"),
        scratch.join("logits.f32"),
    );
    let mut station = repository::binary("fat-station");
    if let Some(url) = launch.rows_url {
        station.args([
            "--columnar-embed",
            url,
            "--embed-cache-rows",
            "8192",
            "--embed-always-remote",
        ]);
    }
    if let Some(knot) = launch.knot {
        station.args(["--knot", knot]);
    }
    station
        .arg("--cache-dir")
        .arg(scratch.join("cache"))
        .arg("--summary-file")
        .arg(&summary);
    station.args([
        "run",
        "--raw",
        "--ignore-eos",
        "--max-tokens",
        &launch.max_tokens.to_string(),
    ]);
    station
        .arg("--tokens-file")
        .arg(&tokens)
        .arg("--logits-file")
        .arg(&logits);
    if let Some(continuation) = launch.continuation {
        station.arg("--force-continuation").arg(continuation);
    }
    settings(&mut station);
    repository::output(station.arg("--").arg(launch.prompt))?;
    Ok(Finished {
        summary: read_json(&summary)?,
        tokens: read_json(&tokens)?,
        logits,
    })
}

/// The token ids of `text` under the tokenizer of `knot`.
pub(crate) fn tokenize(knot: &Path, file: &Path) -> Result<Vec<u32>> {
    let mut station = repository::binary("fat-station");
    station
        .arg("--knot")
        .arg(knot)
        .args(["tokenize", "--raw", "--file"])
        .arg(file);
    serde_json::from_slice(&repository::output(&mut station)?)
        .context("tokenize printed no JSON list of ids")
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("no result at {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} does not hold what the station documents",
            path.display()
        )
    })
}
