//! What became of the batches, and of those that met a fault. The server says which request met what and when, the
//! reader which rows each batch asked for and when: a fault belongs to the batches that waited for its bytes then.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What became of all batches.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Batches {
    pub(super) right: u64,
    pub(super) wrong: u64,
    /// Batches that ended in an error, by its kind.
    pub(super) errors_by_kind: BTreeMap<String, u64>,
    /// Batches beyond the deadline, however they ended.
    pub(super) late: u64,
    /// Errors of batches that no fault explains: none hit their rows or paths, or those of a batch they shared a row
    /// with, while they waited.
    pub(super) unexplained: u64,
    pub(super) median_us: u64,
    pub(super) p99_us: u64,
    pub(super) longest_us: u64,
}

impl Batches {
    pub(super) fn errors(&self) -> u64 {
        self.errors_by_kind.values().sum()
    }

    pub(super) fn line(&self) -> String {
        format!(
            "{} batches right, {} wrong, {} with an error, {} late, the longest {:.1} s",
            self.right,
            self.wrong,
            self.errors(),
            self.late,
            self.longest_us as f64 / 1e6
        )
    }
}

/// What the reader counted over the run.
#[derive(Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) requests: u64,
    pub(super) waves: u64,
    pub(super) retries: u64,
    pub(super) received_bytes: u64,
    pub(super) framing_bytes: u64,
    pub(super) useful_bytes: u64,
    pub(super) integrity_failures: u64,
}

/// One kind of fault, and what became of the batches that met it.
#[derive(Serialize, Deserialize)]
pub(super) struct FaultTally {
    pub(super) fault: String,
    pub(super) injected: u64,
    /// Faults whose batches all came out right.
    pub(super) right: u64,
    /// Faults with a batch that ended in an error of this kind.
    pub(super) errors: BTreeMap<String, u64>,
    /// Faults that no batch waited for: a probe, or a request whose batch had given up.
    pub(super) unattended: u64,
}

#[derive(Deserialize)]
struct BatchLine {
    began_us: u64,
    took_us: u64,
    outcome: String,
    fetches_paths: bool,
    rows: Vec<u64>,
}

/// A server's log, and what a row has in its object: the row itself, or its path.
pub(super) struct FaultLog<'a> {
    pub(super) path: &'a Path,
    pub(super) bytes_per_row: u64,
    pub(super) is_of_paths: bool,
}

#[derive(Deserialize)]
struct FaultLine {
    arrived_us: u64,
    fault: String,
    range: String,
}

/// Reads both logs.
pub(super) fn tally(
    batch_log: &Path,
    fault_logs: &[FaultLog<'_>],
    deadline_us: u64,
) -> Result<(Batches, Vec<FaultTally>)> {
    let mut lines: Vec<BatchLine> = read(batch_log)?;
    lines.sort_by_key(|line| line.began_us);
    let mut batches = Batches::default();
    for line in &lines {
        match line.outcome.as_str() {
            "right" => batches.right += 1,
            "wrong" => batches.wrong += 1,
            kind => *batches.errors_by_kind.entry(kind.to_owned()).or_default() += 1,
        }
        batches.late += u64::from(line.took_us > deadline_us);
    }
    let mut took: Vec<u64> = lines.iter().map(|line| line.took_us).collect();
    took.sort_unstable();
    let at = |share: usize| took.get(took.len() * share / 100).or(took.last()).copied();
    batches.median_us = at(50).unwrap_or(0);
    batches.p99_us = at(99).unwrap_or(0);
    batches.longest_us = took.last().copied().unwrap_or(0);

    let mut by_kind: BTreeMap<String, FaultTally> = BTreeMap::new();
    let mut has_met = vec![false; lines.len()];
    for log in fault_logs {
        for fault in read::<FaultLine>(log.path)? {
            let name = fault.fault.clone();
            let tally = by_kind.entry(name.clone()).or_insert_with(|| FaultTally {
                fault: name,
                injected: 0,
                right: 0,
                errors: BTreeMap::new(),
                unattended: 0,
            });
            tally.injected += 1;
            let met = met(&lines, &fault, log);
            for index in &met {
                has_met[*index] = true;
            }
            let mut outcomes = met.iter().map(|index| &lines[*index].outcome);
            match outcomes.find(|outcome| *outcome != "right") {
                Some(kind) => *tally.errors.entry(kind.clone()).or_default() += 1,
                None if met.is_empty() => tally.unattended += 1,
                None => tally.right += 1,
            }
        }
    }
    batches.unexplained = unexplained(&lines, &has_met);
    Ok((batches, by_kind.into_values().collect()))
}

/// Errors of batches that met no fault, and shared no row with one that did while both waited: a row that two want is
/// fetched once.
fn unexplained(lines: &[BatchLine], has_met: &[bool]) -> u64 {
    let end_us = |line: &BatchLine| line.began_us + line.took_us;
    let mut count = 0;
    for (line, has_met_one) in lines.iter().zip(has_met) {
        if line.outcome == "right" || *has_met_one {
            continue;
        }
        let by_another = lines.iter().zip(has_met).any(|(other, has_met_one)| {
            *has_met_one
                && other.began_us <= end_us(line)
                && line.began_us <= end_us(other)
                && other.rows.iter().any(|row| line.rows.contains(row))
        });
        count += u64::from(!by_another);
    }
    count
}

/// The batches that waited for a row, or a path, of the faulty reply when its request arrived.
fn met(lines: &[BatchLine], fault: &FaultLine, log: &FaultLog<'_>) -> Vec<usize> {
    // The two clocks are one machine's; a request may arrive a moment before its batch is noted.
    const SLACK_US: u64 = 2000;
    let ranges: Vec<(u64, u64)> = fault
        .range
        .trim_start_matches("bytes=")
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect();
    let begun = lines.partition_point(|line| line.began_us <= fault.arrived_us + SLACK_US);
    lines[..begun]
        .iter()
        .enumerate()
        .filter(|(_, line)| line.fetches_paths || !log.is_of_paths)
        .filter(|(_, line)| line.began_us + line.took_us + SLACK_US >= fault.arrived_us)
        .filter(|(_, line)| {
            line.rows.iter().any(|row| {
                let (start, end) = (row * log.bytes_per_row, (row + 1) * log.bytes_per_row);
                ranges
                    .iter()
                    .any(|(first, last)| *first < end && start <= *last)
            })
        })
        .map(|(index, _)| index)
        .collect()
}

fn read<T: serde::de::DeserializeOwned>(log: &Path) -> Result<Vec<T>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("no {}", log.display()))?;
    text.lines()
        .map(|line| {
            serde_json::from_str(line).with_context(|| format!("{}: {line}", log.display()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(began_us: u64, took_us: u64, outcome: &str, rows: &[u64]) -> BatchLine {
        BatchLine {
            began_us,
            took_us,
            outcome: outcome.to_owned(),
            fetches_paths: false,
            rows: rows.to_vec(),
        }
    }

    #[test]
    fn a_fault_belongs_to_the_batches_that_waited_for_its_bytes() {
        let lines = [
            line(10_000, 5_000, "right", &[1, 2]),
            line(12_000, 9_000, "changed", &[2, 3]),
            line(50_000, 1_000, "right", &[2]),
        ];
        for (arrived_us, range, expected) in [
            (13_000, "bytes=20-29", vec![0, 1]),
            (13_000, "bytes=10-19", vec![0]),
            (20_000, "bytes=20-29", vec![1]),
            (30_000, "bytes=20-29", vec![]),
            (13_000, "bytes=40-49,30-31", vec![1]),
        ] {
            let log = |is_of_paths| FaultLog {
                path: Path::new("x"),
                bytes_per_row: 10,
                is_of_paths,
            };
            let fault = FaultLine {
                arrived_us,
                fault: "x".to_owned(),
                range: range.to_owned(),
            };
            assert_eq!(
                met(&lines, &fault, &log(false)),
                expected,
                "{arrived_us} {range}"
            );
            assert!(
                met(&lines, &fault, &log(true)).is_empty(),
                "nobody fetches paths"
            );
        }
    }

    #[test]
    fn an_error_is_explained_by_a_fault_of_its_own_or_of_a_row_that_is_shared() {
        let lines = [
            line(10_000, 5_000, "changed", &[1, 2]),
            line(12_000, 9_000, "changed", &[2, 3]),
            line(12_000, 9_000, "changed", &[4]),
            line(50_000, 1_000, "changed", &[2]),
            line(60_000, 1_000, "right", &[2]),
        ];
        assert_eq!(unexplained(&lines, &[true, false, false, false, false]), 2);
        assert_eq!(unexplained(&lines, &[true, true, true, true, false]), 0);
    }
}
