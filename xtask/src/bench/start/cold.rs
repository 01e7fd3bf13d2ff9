//! The cold start: knot and rows on a server behind a link, empty caches.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::super::Model;
use super::super::median::median;
use super::first_byte::{first_byte_s, peer};
use crate::child::Server;
use crate::origin::Origin;
use crate::repository;

/// How much slower than its link or its processor a start may be.
const OVERHEAD: f64 = 1.04;

/// What the link is like.
pub(super) struct LinkShape {
    pub(super) rtt_ms: u32,
    pub(super) rate_bytes_per_s: u64,
}

/// What a station tells of its start.
#[derive(Deserialize)]
struct Told {
    start: Start,
    bytes: Bytes,
}

/// Moments in seconds after the process began, and `compute_s`, a duration.
#[derive(Deserialize)]
struct Start {
    table_s: f64,
    tokenizer_s: f64,
    rows_s: f64,
    blocks_s: f64,
    head_s: f64,
    compute_s: f64,
}

#[derive(Deserialize)]
struct Bytes {
    rows: Kind,
    blocks: Kind,
    head: Kind,
    probe: Kind,
}

#[derive(Deserialize)]
struct Kind {
    useful: u64,
}

impl Bytes {
    /// Table, tokenizer, prompt rows, layers and head; neither paths nor what was fetched too much.
    fn needed(&self) -> u64 {
        self.rows.useful + self.blocks.useful + self.head.useful + self.probe.useful
    }
}

pub(super) fn print_head() {
    println!(
        "| cold start | needed bytes | table | tokenizer | rows | blocks | head | first byte | computing | bound | of it | \
         download, then llama.cpp | of it |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
}

/// Both sides in turn; what was too slow.
pub(super) fn measure(
    model: &Model,
    program: &Path,
    prompt: &str,
    link: &LinkShape,
    pairs: u32,
) -> Result<Vec<String>> {
    let (mut ours_s, mut theirs_s, mut bounds_s) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for round in 0..pairs {
        let ours = || station(model, prompt, link);
        let theirs = || download_and_run(model, program, prompt, link);
        let (ours, theirs) = if round % 2 == 0 {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        };
        let (seconds, told) = ours;
        let transfer_s = told.bytes.needed() as f64 / link.rate_bytes_per_s as f64;
        // One round trip: a TCP handshake.
        let connect_s = f64::from(link.rtt_ms) / 1e3;
        bounds_s.push(OVERHEAD * transfer_s.max(told.start.compute_s) + connect_s);
        ours_s.push(seconds);
        theirs_s.push(theirs);
        last = Some(told);
    }
    let told = last.context("no pair was asked for")?;
    let (ours, theirs, bound) = (median(&ours_s)?, median(&theirs_s)?, median(&bounds_s)?);
    let Start {
        table_s,
        tokenizer_s,
        rows_s,
        blocks_s,
        head_s,
        compute_s,
    } = told.start;
    let name = &model.packed.name;
    println!(
        "| {name} | {} | {table_s:.2} s | {tokenizer_s:.2} s | {rows_s:.2} s | {blocks_s:.2} s | {head_s:.2} s | \
         {ours:.2} s | {compute_s:.3} s | {bound:.2} s | {:.3} | {theirs:.2} s | {:.3} |",
        told.bytes.needed(),
        ours / bound,
        ours / theirs
    );
    let mut slow = Vec::new();
    if ours > bound {
        slow.push(format!("cold {name}: {ours:.2} s, at most {bound:.2} s"));
    }
    if ours >= theirs {
        slow.push(format!("cold {name}: {ours:.2} s, llama.cpp {theirs:.2} s"));
    }
    Ok(slow)
}

/// A server of `dir` behind the link, and the link; its log goes to `scratch`.
fn behind_a_link(dir: &Path, scratch: &Path, shape: &LinkShape) -> Result<(Origin, Server)> {
    let origin = Origin::start_logging(dir, scratch.join("access.jsonl"))?;
    let mut link = repository::binary("range-testkit");
    link.args(["link", "--listen", "127.0.0.1:0", "--upstream"]);
    link.arg(origin.address().to_string());
    link.args(["--rtt-ms", &shape.rtt_ms.to_string()]);
    link.args(["--rate-bytes-per-s", &shape.rate_bytes_per_s.to_string()]);
    Ok((origin, Server::start(&mut link)?))
}

fn station(model: &Model, prompt: &str, shape: &LinkShape) -> Result<(f64, Told)> {
    let scratch = tempfile::tempdir()?;
    let (_origin, link) = behind_a_link(&model.packed.dir, scratch.path(), shape)?;
    let summary = scratch.path().join("summary.json");
    let url = format!("http://{}/{}.rows", link.address(), model.packed.name);
    let mut station = repository::binary("fat-station");
    station.args(["--columnar-embed", &url, "--log", "warn"]);
    station.arg("--cache-dir").arg(scratch.path().join("cache"));
    station.arg("--summary-file").arg(&summary);
    station.args(["run", "--raw", "--ignore-eos", "--max-tokens", "1"]);
    let seconds = first_byte_s(station.args(["--", prompt]))?;
    let told = serde_json::from_slice(&std::fs::read(summary)?);
    Ok((seconds, told.context("the summary is another")?))
}

fn download_and_run(model: &Model, program: &Path, prompt: &str, shape: &LinkShape) -> Result<f64> {
    let dir = model.gguf.parent().context("the model lies nowhere")?;
    let name = model.gguf.file_name().context("the model has no name")?;
    let scratch = tempfile::tempdir()?;
    let (_origin, link) = behind_a_link(dir, scratch.path(), shape)?;
    let gguf = scratch.path().join(name);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--output"])
        .arg(&gguf);
    curl.arg(format!(
        "http://{}/{}",
        link.address(),
        name.to_string_lossy()
    ));
    let begun = std::time::Instant::now();
    repository::run(&mut curl)?;
    let downloaded_s = begun.elapsed().as_secs_f64();
    Ok(downloaded_s + first_byte_s(&mut peer(program, &gguf, prompt))?)
}
