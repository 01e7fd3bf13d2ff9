//! Ten stations of one site, cold and at once, behind a cache, and then ten more: the origin sends each byte once.
//!
//! What crosses the line to the origin is read from the origin's own log, and every station's rows are compared.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::access_log::Reply;
use super::catalogue::{Role, ServerUnderTest};
use super::material::{self, Material};
use super::measure::started;
use super::reader::{Batch, Outcome, Reader, Source, Wanted};
use super::running::Running;
use crate::workload::WORKLOADS;

/// More than there are prompts: some stations have the same one, all have some rows in common.
const STATIONS: usize = 10;
/// Bytes that a cache by slices may bring for each byte of a distinct row: a row touches one or two slices of 4 KiB.
pub(super) const MOST_SLICED: u64 = 5;
/// The stations of the second round are as cold as those of the first; the cache is not.
const ROUNDS: usize = 2;

/// What ten stations asked for, and what the origin sent for it.
pub(super) struct SiteCache {
    pub(super) title: &'static str,
    /// Bytes of distinct rows that the stations used, summed over the stations.
    pub(super) used_bytes: u64,
    /// Bytes of the rows that any station used.
    pub(super) distinct_bytes: u64,
    pub(super) origin_requests: usize,
    pub(super) origin_bytes: u64,
}

/// Starts the cache and ten cold stations, and lets all of them ask at once.
///
/// # Errors
/// If a row is wrong, or the origin sent a byte twice or not at all; the text names the server and its logs.
pub(super) fn measure(server: &ServerUnderTest, material: &Material) -> Result<SiteCache> {
    let dir = material.base.join(format!("{}-ten-stations", server.key));
    ten_stations(server, material, &dir).with_context(|| {
        format!(
            "ten stations behind {} (its logs are in {})",
            server.title,
            dir.display()
        )
    })
}

fn ten_stations(server: &ServerUnderTest, material: &Material, dir: &Path) -> Result<SiteCache> {
    ensure!(server.role == Role::Cache, "it is no cache");
    let running = started(server, material, dir)?;
    let mut batches = Vec::new();
    for round in 1..=ROUNDS {
        let read = read_at_once(&running, material, dir);
        batches.extend(read.with_context(|| format!("round {round}"))?);
    }
    let logged = running.stop()?;
    let row_bytes = batches.first().context("no station")?.row_bytes as u64;
    let mut rows: Vec<u32> = batches.iter().flat_map(|batch| batch.ids.clone()).collect();
    rows.sort_unstable();
    rows.dedup();
    let sent = sent(
        &logged.upstream,
        std::fs::metadata(material.full.table.rows())?.len(),
    )?;
    for id in &rows {
        let start = u64::from(*id) * row_bytes;
        let whole = |&(from, to): &(u64, u64)| from <= start && start + row_bytes <= to;
        ensure!(
            sent.iter().any(whole),
            "row {id} reached a station, but the origin's log does not have it"
        );
    }
    let origin_bytes: u64 = sent.iter().map(|(from, to)| to - from).sum();
    let distinct_bytes = rows.len() as u64 * row_bytes;
    ensure!(
        logged.upstream.len() == 1 || origin_bytes < MOST_SLICED * distinct_bytes,
        "the origin sent {origin_bytes} bytes for {distinct_bytes} bytes of distinct rows"
    );
    Ok(SiteCache {
        title: server.title,
        used_bytes: batches.iter().map(|batch| batch.useful_bytes).sum(),
        distinct_bytes,
        origin_requests: logged.upstream.len(),
        origin_bytes,
    })
}

/// Ten cold stations that all ask before the first one is waited for; their rows are compared.
fn read_at_once(running: &Running, material: &Material, dir: &Path) -> Result<Vec<Batch>> {
    let table = &material.full.table;
    let (url, knot) = (running.url(material::NATURAL)?, table.knot());
    let source = Source {
        url: &url,
        knot: &knot,
        verify: "require",
        root_certificate: None,
    };
    let out = |station: usize| dir.join(format!("station-{station}.read"));
    let mut readers = Vec::new();
    for station in 0..STATIONS {
        readers.push(Reader::start(
            source,
            &dir.join(format!("station-{station}")),
        )?);
    }
    for (station, reader) in readers.iter_mut().enumerate() {
        let prompt = WORKLOADS
            .get(station % WORKLOADS.len())
            .context("no workload")?;
        reader.ask(&Wanted::Text(prompt.path()), &out(station))?;
    }
    let mut batches = Vec::new();
    for (station, reader) in readers.iter_mut().enumerate() {
        let batch = match reader.answer()? {
            Outcome::Rows(batch) => batch,
            Outcome::Refused(refusal) => bail!(
                "station {station} ended with exit code {}: {}",
                refusal.code,
                refusal.text
            ),
        };
        material::compare(&out(station), &batch.ids, batch.row_bytes, &table.rows())
            .with_context(|| format!("station {station}"))?;
        batches.push(batch);
    }
    Ok(batches)
}

/// The extents that the origin sent, joined; an error where two of them share a byte, or one was cut short.
fn sent(replies: &[Reply], len_bytes: u64) -> Result<Vec<(u64, u64)>> {
    let mut extents = Vec::new();
    for reply in replies {
        let (from, to) = match (reply.status, reply.range.strip_prefix("bytes=")) {
            (200, _) => (0, len_bytes),
            (206, Some(range)) => {
                let (first, last) = range.split_once('-').context("a range without an end")?;
                (first.parse()?, (last.parse::<u64>()? + 1).min(len_bytes))
            }
            _ => bail!("the origin answered {} to {:?}", reply.status, reply.range),
        };
        ensure!(
            reply.body_bytes == Some(to - from),
            "the origin logged {:?} bytes for {from}-{to}: a request of the cache was cut short",
            reply.body_bytes
        );
        extents.push((from, to));
    }
    extents.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in extents {
        match joined.last_mut() {
            Some((_, end)) if *end > from => {
                bail!("the origin sent bytes {from}-{} twice", to.min(*end))
            }
            Some((_, end)) if *end == from => *end = to,
            _ => joined.push((from, to)),
        }
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(range: &str, bytes: u64) -> Reply {
        Reply {
            range: range.to_owned(),
            status: if range.is_empty() { 200 } else { 206 },
            body_bytes: Some(bytes),
            ..Reply::default()
        }
    }

    #[test]
    fn neighbours_are_joined_and_the_last_slice_ends_with_the_object() -> Result<()> {
        let replies = [
            reply("bytes=20-29", 5),
            reply("bytes=0-9", 10),
            reply("bytes=10-19", 10),
        ];
        assert_eq!(sent(&replies, 25)?, [(0, 25)]);
        Ok(())
    }

    #[test]
    fn a_byte_sent_twice_is_found() {
        let twice = sent(&[reply("bytes=0-9", 10), reply("bytes=5-14", 10)], 100);
        assert_eq!(
            twice.map_err(|error| error.to_string()),
            Err("the origin sent bytes 5-10 twice".to_owned())
        );
    }

    #[test]
    fn a_reply_cut_short_is_found() {
        let cut = sent(&[reply("", 99)], 100).map_err(|error| error.to_string());
        assert!(cut.is_err_and(|text| text.contains("cut short")));
    }
}
