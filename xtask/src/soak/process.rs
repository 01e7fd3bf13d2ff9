//! A reader while it runs: its memory and descriptors, sampled from /proc, and that it gets on.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

const SAMPLE_PAUSE: Duration = Duration::from_millis(250);
/// Without a finished batch for that long the reader hangs: its deadline is 21 s.
const STUCK: Duration = Duration::from_secs(90);
/// What the last third of a run may hold beyond the middle one: allocator noise, not growth. A leak of 100 bytes a
/// batch would be 333 kB between the two in a full run, and shows in a longer one.
const RSS_TOLERANCE_PERCENT: u64 = 5;
const RSS_SLACK_KB: u64 = 2048;
const FD_TOLERANCE_PERCENT: u64 = 10;
const FD_SLACK: u64 = 2;

/// Memory and descriptors over a run. The first third is warm-up and not compared.
#[derive(Serialize, Deserialize)]
pub(super) struct Growth {
    pub(super) samples: usize,
    pub(super) seconds: f64,
    /// Medians of the middle and the last third.
    pub(super) rss_middle_kb: u64,
    pub(super) rss_last_kb: u64,
    pub(super) rss_max_kb: u64,
    pub(super) descriptors_middle: u64,
    pub(super) descriptors_last: u64,
    pub(super) descriptors_max: u64,
}

impl Growth {
    fn of(samples: &[(u64, u64)], seconds: f64) -> Self {
        let third = samples.len() / 3;
        let (middle, last) = (
            samples.get(third..2 * third).unwrap_or(&[]),
            samples.get(2 * third..).unwrap_or(&[]),
        );
        let rss = |part: &[(u64, u64)]| median(part.iter().map(|(rss, _)| *rss));
        let descriptors = |part: &[(u64, u64)]| median(part.iter().map(|(_, open)| *open));
        Self {
            samples: samples.len(),
            seconds,
            rss_middle_kb: rss(middle),
            rss_last_kb: rss(last),
            rss_max_kb: samples.iter().map(|(rss, _)| *rss).max().unwrap_or(0),
            descriptors_middle: descriptors(middle),
            descriptors_last: descriptors(last),
            descriptors_max: samples.iter().map(|(_, open)| *open).max().unwrap_or(0),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let rss_limit = self.rss_middle_kb * (100 + RSS_TOLERANCE_PERCENT) / 100 + RSS_SLACK_KB;
        ensure!(
            self.rss_last_kb <= rss_limit,
            "memory grew: {} kB in the middle third, {} kB in the last, {rss_limit} kB allowed",
            self.rss_middle_kb,
            self.rss_last_kb
        );
        // Each generation of clients opens its connections anew.
        let most = self.descriptors_middle * (100 + FD_TOLERANCE_PERCENT) / 100 + FD_SLACK;
        ensure!(
            self.descriptors_last <= most,
            "descriptors grew: {} in the middle third, {} in the last",
            self.descriptors_middle,
            self.descriptors_last
        );
        Ok(())
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Runs `reader` to its end; its growth and what it wrote to stdout.
///
/// # Errors
/// If it fails, or finishes no batch for a long time; it is killed then.
pub(super) fn watch(reader: &mut Command, batch_log: &Path) -> Result<(Growth, Vec<u8>)> {
    // The reader opens the log anew: an old one would look like progress.
    let _ = fs::remove_file(batch_log);
    let started = Instant::now();
    let mut child = reader
        .spawn()
        .with_context(|| format!("could not start {reader:?}"))?;
    let process = Path::new("/proc").join(child.id().to_string());
    let (mut samples, mut written, mut moved) = (Vec::new(), 0, Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Some(sample) = sample(&process) {
            samples.push(sample);
        }
        let length = fs::metadata(batch_log).map_or(0, |found| found.len());
        if length != written {
            (written, moved) = (length, Instant::now());
        }
        if moved.elapsed() > STUCK {
            child.kill()?;
            child.wait()?;
            bail!("the reader finished no batch for {STUCK:?}");
        }
        std::thread::sleep(SAMPLE_PAUSE);
    };
    ensure!(status.success(), "the reader ended with {status}");
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut output)?;
    }
    Ok((
        Growth::of(&samples, started.elapsed().as_secs_f64()),
        output,
    ))
}

/// Resident memory in kB and open descriptors; `None` once the process is gone.
fn sample(process: &Path) -> Option<(u64, u64)> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let rss_kb = line.split_whitespace().next()?.parse().ok()?;
    let descriptors = fs::read_dir(process.join("fd")).ok()?.count() as u64;
    Some((rss_kb, descriptors))
}

/// Waits until a file has not been written for a second.
pub(super) fn until_unchanged(file: &Path) -> Result<()> {
    loop {
        let modified = fs::metadata(file)?.modified()?;
        let age = SystemTime::now().duration_since(modified);
        if age.is_ok_and(|age| age >= Duration::from_secs(1)) {
            return Ok(());
        }
        std::thread::sleep(SAMPLE_PAUSE);
    }
}
