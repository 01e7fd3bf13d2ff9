//! `cargo xtask kill-tier`: stations that fill one row cache on disk together are killed at random moments. After
//! each kill every row that the cache says it has must be the row of the row file, read here without the product's
//! code, and the next station must open it.

mod presence;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde::Serialize;

use crate::models::PackedModel;
use crate::origin::Origin;
use crate::repository;
use crate::synthetic::{self, Geometry};

/// Wide enough that a station is at work for a while, small enough that all of it is read after each kill.
const GEOMETRY: Geometry = Geometry {
    vocab_size: 40_000,
    hidden_size: 96,
    intermediate_size: 32,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
};

/// Rows that a station is asked to fetch.
const ROWS_OF_A_RUN: usize = 3_000;

/// One kill in so many meets an empty directory: the making of the files is interrupted too.
const FRESH_ONE_IN: u32 = 6;

const NO_FILES: &str =
    "a station came to its end in the directory, and the cache's files are not there";

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Stations that are killed.
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Decides which rows are asked for and when stations are killed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object on stdout instead of a few lines.
    #[arg(long)]
    json: bool,
    /// Also writes the JSON object to a file.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What was done and found.
#[derive(Debug, Default, Serialize)]
struct Results {
    commit: String,
    seed: u64,
    kills: u32,
    /// Stations that were still at work when they were killed; the others had just ended.
    killed_at_work: u32,
    /// Stations that worked on the same directory meanwhile, or after a kill, and ended by themselves.
    survivors: u32,
    /// Kills that met an empty directory.
    kills_while_empty: u32,
    /// Rows that were read and compared with the row file, over all checks.
    rows_compared: u64,
    rows_wrong: u64,
    /// Entries whose row is not what they were written for: rows that a station refuses and fetches again.
    rows_refused: u64,
    /// Stations that could not open the directory, or warned about it.
    failed_opens: u32,
    /// Whether the rows, once all had come, were the row file byte for byte.
    complete_equals_row_file: bool,
}

/// Kills, checks, and at the end lets one station fetch the rest.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let commit = repository::commit()?;
    if let Some(path) = &arguments.out {
        repository::check_publishable(path, &commit)?;
    }
    repository::build_binaries()?;
    let results = kill(arguments.kills, arguments.seed, commit)?;
    let json = serde_json::to_string_pretty(&results)?;
    if arguments.json {
        println!("{json}");
    } else {
        println!(
            "kill-tier: seed {}: {} kills ({} at work, {} in an empty directory), {} stations ended by themselves; \
             {} rows compared, {} wrong, {} refused; {} failed opens; complete file equal: {}",
            results.seed,
            results.kills,
            results.killed_at_work,
            results.kills_while_empty,
            results.survivors,
            results.rows_compared,
            results.rows_wrong,
            results.rows_refused,
            results.failed_opens,
            results.complete_equals_row_file,
        );
    }
    results.check()?;
    if let Some(path) = &arguments.out {
        std::fs::write(path, format!("{json}\n"))?;
    }
    Ok(())
}

/// A short run for `cargo xtask test`.
pub(crate) fn check() -> Result<()> {
    run(&Arguments {
        kills: 10,
        seed: 1,
        json: false,
        out: None,
    })
}

fn kill(kills: u32, seed: u64, commit: String) -> Result<Results> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let work = repository::models_dir().join("kill-tier");
    let packed = pack(&work)?;
    let origin = Origin::start(&packed.dir)?;
    let place = Place {
        url: origin.url(&packed.rows()),
        tier: work.join("tier"),
        work,
    };
    let table = presence::Table::open(&packed.rows(), GEOMETRY.vocab_size)?;
    place.empty()?;
    let whole_run = place.time_one(&mut random)?;
    let mut results = Results {
        commit,
        seed,
        kills,
        ..Results::default()
    };
    for kill in 0..kills {
        eprint!("\rkill-tier: {}/{kills}", kill + 1);
        // Once a station has come to its end here, the files are there whatever becomes of others.
        let mut is_made = true;
        if random.random_range(0..FRESH_ONE_IN) == 0 {
            place.empty()?;
            is_made = false;
            results.kills_while_empty += 1;
        }
        let (mut victim, neighbour) = (place.start(&mut random, 0)?, place.start(&mut random, 1)?);
        let longest = u64::try_from(whole_run.as_micros())
            .unwrap_or(u64::MAX)
            .max(1);
        let moment = Duration::from_micros(random.random_range(0..longest));
        std::thread::sleep(moment);
        if victim.try_wait()?.is_none() {
            results.killed_at_work += 1;
        }
        victim.kill()?;
        victim.wait()?;
        let found = table.compare(&place.tier)?;
        ensure!(found.is_some() || !is_made, NO_FILES);
        results.add(&found.unwrap_or_default());
        results.expect_well(neighbour)?;
        results.add(&table.compare(&place.tier)?.context(NO_FILES)?);
    }
    eprintln!();
    results.expect_well(place.start(&mut random, 0)?)?;
    let mut all = place.station();
    all.args(["prefetch", "--all", "--json"]);
    repository::output(&mut all)?;
    let complete = place.tier.join(format!("{}.rows", table.digest_hex()));
    let bytes = std::fs::read(&complete)
        .with_context(|| format!("no complete file at {}", complete.display()))?;
    results.complete_equals_row_file = table.is(&bytes);
    Ok(results)
}

/// A model without anything but its matrix to speak of.
fn pack(work: &Path) -> Result<PackedModel> {
    let source = work.join("source");
    std::fs::create_dir_all(&source)?;
    let tokenizer = synthetic::write_byte_tokenizer(&work.join("tokenizer.json"))?;
    synthetic::write(&source, GEOMETRY, &tokenizer)?;
    PackedModel::pack(&source, "kill-tier", &["--embed-dtype", "bf16"])
}

struct Place {
    url: String,
    tier: PathBuf,
    work: PathBuf,
}

impl Place {
    fn empty(&self) -> Result<()> {
        if self.tier.exists() {
            std::fs::remove_dir_all(&self.tier)?;
        }
        Ok(())
    }

    fn station(&self) -> Command {
        let mut station = repository::binary("fat-station");
        station.args(["--columnar-embed", &self.url]);
        station.arg("--embed-cache-dir").arg(&self.tier);
        station.arg("--cache-dir").arg(self.work.join("blocks"));
        station
    }

    /// A station that fetches random rows.
    fn start(&self, random: &mut ChaCha8Rng, number: usize) -> Result<Child> {
        let ids: Vec<usize> = (0..ROWS_OF_A_RUN)
            .map(|_| random.random_range(0..GEOMETRY.vocab_size))
            .collect();
        let file = self.work.join(format!("ids-{number}.json"));
        std::fs::write(&file, serde_json::to_string(&ids)?)?;
        let mut station = self.station();
        station.arg("prefetch").arg("--ids-file").arg(&file);
        let station = station.stdout(Stdio::null()).stderr(Stdio::piped());
        station.spawn().context("could not start fat-station")
    }

    /// How long one station takes: kills come at any moment within.
    fn time_one(&self, random: &mut ChaCha8Rng) -> Result<Duration> {
        let started = Instant::now();
        let status = self.start(random, 0)?.wait()?;
        ensure!(status.success(), "a station alone ended with {status}");
        Ok(started.elapsed())
    }
}

impl Results {
    /// Waits for a station that nobody kills: it must find the directory good.
    fn expect_well(&mut self, station: Child) -> Result<()> {
        let output = station.wait_with_output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && !stderr.contains("row cache") {
            self.survivors += 1;
        } else {
            self.failed_opens += 1;
            eprintln!(
                "\nkill-tier: a station ended with {}:\n{stderr}",
                output.status
            );
        }
        Ok(())
    }

    fn add(&mut self, found: &presence::Found) {
        self.rows_compared += found.compared;
        self.rows_wrong += found.wrong;
        self.rows_refused += found.refused;
    }

    /// What must hold of any run; one that killed nobody at work, or found no row to compare, shows nothing.
    fn check(&self) -> Result<()> {
        ensure!(
            self.killed_at_work > 0,
            "none of {} stations was at work when it was killed: nothing was shown",
            self.kills
        );
        ensure!(
            self.rows_compared > 0,
            "no row was compared: nothing was shown"
        );
        ensure!(self.rows_wrong == 0, "{} rows were wrong", self.rows_wrong);
        ensure!(
            self.failed_opens == 0,
            "{} stations could not use the directory",
            self.failed_opens
        );
        ensure!(
            self.complete_equals_row_file,
            "the complete file is not the row file"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_shows_nothing_does_not_pass() {
        let good = || Results {
            kills: 10,
            killed_at_work: 5,
            rows_compared: 1000,
            complete_equals_row_file: true,
            ..Results::default()
        };
        assert!(good().check().is_ok());
        let spoil: [fn(&mut Results); 5] = [
            |results| results.killed_at_work = 0,
            |results| results.rows_compared = 0,
            |results| results.rows_wrong = 1,
            |results| results.failed_opens = 1,
            |results| results.complete_equals_row_file = false,
        ];
        for (number, spoil) in spoil.iter().enumerate() {
            let mut results = good();
            spoil(&mut results);
            assert!(results.check().is_err(), "{number}");
        }
    }
}
