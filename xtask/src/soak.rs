//! `cargo xtask soak`: thousands of row batches from a server that misbehaves by seed. Every row that comes is
//! compared with the file, every failure must be an error within the deadline, and the reader must not grow. The
//! full run is committed as docs/results/soak.json and docs/reliability.md; a short one is a step of `cargo xtask
//! test`. Faults of HTTP/2 and TLS are tests of helix-transport, not part of this run.

mod outcome;
mod page;
mod process;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::Server;
use crate::repository;
use outcome::{Batches, FaultLog, FaultTally, Totals};
use process::Growth;

/// Batches of the run that is published.
const FULL_BATCHES: u64 = 10_000;
/// Batches of the step of `cargo xtask test`.
const SHORT_BATCHES: u64 = 200;
const READERS: u64 = 8;
const ROWS: u64 = 32_768;
const ROW_BYTES: u64 = 1152;
/// Requests of a million that meet a fault.
const FAULTS_PER_MILLION: u64 = 10_000;
/// The least share of batches that must come out right, where one request of a hundred meets a fault: far below what is
/// measured (98 %), far above a reader that gives up.
const LEAST_RIGHT_PERCENT: u64 = 95;
/// Bytes of rows and paths received, of a thousand that were used; the gate of the acceptance runs.
const MOST_RECEIVED_PER_MILLE: u64 = 1050;
/// What a call may take: 10 s for a row batch, and as much again where rows were refused by their hashes and asked
/// for once more; the rest is for a busy machine's scheduler.
const DEADLINE_US: u64 = 21_000_000;

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Batches to read, 16 or 52 rows each. With 10,000 and more the result and its page are written.
    #[arg(long, default_value_t = FULL_BATCHES)]
    batches: u64,
    /// Seed of the faults and of the rows that are asked for.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Everything that is published of a run.
#[derive(Serialize, Deserialize)]
struct Soak {
    commit: String,
    seed: u64,
    batches: u64,
    readers: u64,
    rows: u64,
    row_bytes: u64,
    file_blake3: String,
    faults_per_million_requests: u64,
    deadline_s: f64,
    outcomes: Batches,
    traffic: Totals,
    growth: Growth,
    faults: Vec<FaultTally>,
}

/// Runs the soak, checks it, and publishes a full one.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let results = repository::root().join("docs/results/soak.json");
    if arguments.batches >= FULL_BATCHES {
        repository::check_publishable(&results, &repository::commit()?)?;
    }
    let soak = measure(arguments.batches, arguments.seed)?;
    let json = serde_json::to_string_pretty(&soak)? + "\n";
    if arguments.json {
        print!("{json}");
    }
    soak.check()?;
    if arguments.batches >= FULL_BATCHES {
        std::fs::write(&results, json)?;
        std::fs::write(
            repository::root().join("docs/reliability.md"),
            page::render(&soak),
        )?;
    }
    eprintln!("soak: {}", soak.outcomes.line());
    Ok(())
}

/// The short run, and that the committed page is what the committed result gives.
pub(crate) fn check() -> Result<()> {
    measure(SHORT_BATCHES, 1)?.check()?;
    let results = repository::root().join("docs/results/soak.json");
    let text = std::fs::read_to_string(&results).context("no docs/results/soak.json")?;
    let committed: Soak = serde_json::from_str(&text)?;
    let page = std::fs::read_to_string(repository::root().join("docs/reliability.md"))?;
    ensure!(
        page == page::render(&committed),
        "docs/reliability.md is not what docs/results/soak.json gives; run `cargo xtask soak`"
    );
    Ok(())
}

fn measure(batches: u64, seed: u64) -> Result<Soak> {
    // Before anything is built: what is built now is what the result speaks of.
    let commit = repository::commit()?;
    repository::run(repository::cargo().args(["build", "-q", "-p", "range-testkit", "--bins"]))?;
    let example = [
        "build",
        "-q",
        "-p",
        "columnar-embed",
        "--example",
        "soak_reader",
    ];
    repository::run(repository::cargo().args(example))?;
    let scratch = repository::target_dir().join("soak");
    std::fs::create_dir_all(&scratch)?;
    let file = scratch.join("rows.bin");
    let file_blake3 = make_rows(&file)?;
    let paths = scratch.join("paths.bin");
    let path_bytes = make_paths(&file, &paths)?;
    let batch_log = scratch.join("batches.jsonl");
    let (fault_log, path_fault_log) = (
        scratch.join("faults.jsonl"),
        scratch.join("path-faults.jsonl"),
    );
    let server = Server::start(faults(&file, ROW_BYTES, seed).arg("--log").arg(&fault_log))?;
    // Of one range a request: rounds of requests are met here, several ranges at the server of the rows.
    let mut command = faults(&paths, path_bytes, seed + 1);
    command
        .arg("--single-ranges")
        .arg("--log")
        .arg(&path_fault_log);
    let path_server = Server::start(&mut command)?;

    let mut reader = reader([&file, &batch_log], batches, seed, [&server, &path_server]);
    let (growth, output) = process::watch(&mut reader, &batch_log)?;
    let traffic: Totals = serde_json::from_slice(&output).context("the reader's last line")?;
    // The server writes its log out every 200 ms; what is missing by then met nobody.
    process::until_unchanged(&fault_log)?;
    process::until_unchanged(&path_fault_log)?;
    drop((server, path_server));
    let logs = [
        FaultLog {
            path: &fault_log,
            bytes_per_row: ROW_BYTES,
            is_of_paths: false,
        },
        FaultLog {
            path: &path_fault_log,
            bytes_per_row: path_bytes,
            is_of_paths: true,
        },
    ];
    let (outcomes, faults) = outcome::tally(&batch_log, &logs, DEADLINE_US)?;
    Ok(Soak {
        commit,
        seed,
        batches,
        readers: READERS,
        rows: ROWS,
        row_bytes: ROW_BYTES,
        file_blake3,
        faults_per_million_requests: FAULTS_PER_MILLION,
        deadline_s: DEADLINE_US as f64 / 1e6,
        outcomes,
        traffic,
        growth,
        faults,
    })
}

/// A server of a file that misbehaves by seed.
fn faults(file: &Path, row_bytes: u64, seed: u64) -> Command {
    let mut command = repository::binary("range-testkit");
    command.arg("faults").arg("--file").arg(file);
    command.args(["--row-bytes", &row_bytes.to_string()]);
    command.args(["--seed", &seed.to_string()]);
    command.args(["--per-million", &FAULTS_PER_MILLION.to_string()]);
    command
}

/// The path table of the rows; bytes of one path.
fn make_paths(file: &Path, paths: &Path) -> Result<u64> {
    let mut make = repository::example("soak_reader");
    make.arg("paths").arg(file).arg(ROW_BYTES.to_string());
    let printed = repository::output(make.arg(paths))?;
    let printed = String::from_utf8_lossy(&printed);
    printed.trim().parse().context("the bytes of a path")
}

fn reader([file, log]: [&PathBuf; 2], batches: u64, seed: u64, servers: [&Server; 2]) -> Command {
    let mut reader = repository::example("soak_reader");
    reader
        .arg(file)
        .args(servers.map(|server| format!("http://{}/rows", server.address())))
        .arg(log)
        .args([ROW_BYTES, batches, READERS, seed].map(|number| number.to_string()))
        .stdout(Stdio::piped());
    reader
}

/// Rows that BLAKE3 makes of a fixed key: the same file on every machine. Its digest.
fn make_rows(file: &Path) -> Result<String> {
    let mut stream = blake3::Hasher::new_derive_key("fat-station soak rows v1").finalize_xof();
    let mut bytes = vec![0; usize::try_from(ROWS * ROW_BYTES)?];
    stream.fill(&mut bytes);
    std::fs::write(file, &bytes)?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

impl Soak {
    /// What must hold of any run.
    fn check(&self) -> Result<()> {
        let outcomes = &self.outcomes;
        ensure!(
            outcomes.wrong == 0,
            "{} batches had a wrong row",
            outcomes.wrong
        );
        ensure!(
            outcomes.right + outcomes.errors() == self.batches,
            "{} of {} batches were answered",
            outcomes.right + outcomes.errors(),
            self.batches
        );
        ensure!(
            outcomes.late == 0,
            "{} batches took longer than {} s",
            outcomes.late,
            self.deadline_s
        );
        ensure!(
            outcomes.right * 100 >= self.batches * LEAST_RIGHT_PERCENT,
            "only {} of {} batches were right",
            outcomes.right,
            self.batches
        );
        ensure!(
            outcomes.unexplained == 0,
            "{} batches failed and no fault explains it",
            outcomes.unexplained
        );
        let traffic = &self.traffic;
        ensure!(
            traffic.useful_bytes > 0
                && traffic.received_bytes * 1000 <= traffic.useful_bytes * MOST_RECEIVED_PER_MILLE,
            "{} bytes were received for {} of rows and paths",
            traffic.received_bytes,
            traffic.useful_bytes
        );
        let injected: u64 = self.faults.iter().map(|fault| fault.injected).sum();
        ensure!(injected > 0, "no fault was injected: nothing was shown");
        if self.batches >= FULL_BATCHES {
            for (kind, _) in page::KINDS {
                ensure!(
                    self.faults
                        .iter()
                        .any(|fault| fault.fault == kind && fault.injected > 0),
                    "no fault of the kind {kind} was injected"
                );
            }
        }
        self.growth.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_what_the_committed_result_gives() {
        let docs = repository::root().join("docs");
        let text = std::fs::read_to_string(docs.join("results/soak.json")).unwrap();
        let soak: Soak = serde_json::from_str(&text).unwrap();
        let page = std::fs::read_to_string(docs.join("reliability.md")).unwrap();
        assert_eq!(page, page::render(&soak));
        soak.check().unwrap();
        assert_eq!(soak.batches, FULL_BATCHES);
    }
}
