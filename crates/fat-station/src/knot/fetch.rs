//! Fetches payloads of a remote object: from the block cache where they are, else streamed in
//! groups, hashed on the way, kept. Retries of the wire are the transport's; a wrong digest is
//! tried once more, as another copy of a mirrored object may be sound. What stations that start at
//! once do to share the work is `job`'s matter.

mod arriving;
mod job;

use super::block_cache::BlockCache;
use super::groups::{GROUP_BYTES, group};
use crate::error::Error;
use crate::progress::Progress;
use crate::telemetry;
use crate::traffic::{Kind, Traffic};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use helix_transport::RangeSource;
use job::{Job, Landed};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Streams side by side. Bandwidth is shared by few streams as well as by many, and layers arrive
/// nearer to their order.
const STREAMS: usize = 6;

/// One payload to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPayload {
    /// Its name for people.
    pub name: String,
    /// Its bytes of the object.
    pub range: Range<u64>,
    /// Its digest.
    pub blake3: [u8; 32],
}

/// Payloads of one remote object.
#[derive(Debug, Clone)]
pub struct PayloadFetcher {
    source: Arc<dyn RangeSource>,
    cache: BlockCache,
}

impl PayloadFetcher {
    /// A fetcher of `source` that keeps what it fetched in `cache`.
    #[must_use]
    pub fn new(source: Arc<dyn RangeSource>, cache: BlockCache) -> Self {
        Self { source, cache }
    }

    /// The object's source.
    #[must_use]
    pub fn source(&self) -> Arc<dyn RangeSource> {
        Arc::clone(&self.source)
    }

    /// Payloads in the order asked. Equal ones are fetched once.
    ///
    /// # Errors
    /// [`Error::Origin`] or [`Error::Digest`] of the first that could not be had. What had arrived
    /// by then is in the cache, for the next try.
    pub async fn fetch(
        &self,
        wanted: &[WantedPayload],
        kind: Kind,
        traffic: &Traffic,
    ) -> Result<Vec<Bytes>, Error> {
        let mut found = self.cached(wanted).await?;
        let missing = distinct_missing(wanted, &found);
        if !missing.is_empty() {
            self.load(wanted, &missing, kind, traffic, &mut found)
                .await?;
        }
        let copies: HashMap<[u8; 32], Bytes> = wanted
            .iter()
            .zip(&found)
            .filter_map(|(wanted, bytes)| Some((wanted.blake3, bytes.clone()?)))
            .collect();
        let payloads = found.into_iter().zip(wanted).map(|(bytes, wanted)| {
            let copy = bytes.or_else(|| copies.get(&wanted.blake3).cloned());
            let copy = copy.filter(|copy| copy.len() as u64 == wanted.bytes());
            copy.map_or_else(|| self.empty(wanted), Ok)
        });
        payloads.collect()
    }

    /// Fetches the payloads at `missing`.
    #[expect(
        clippy::too_many_arguments,
        reason = "what is wanted, what is missing of it, how it is counted, where it goes"
    )]
    async fn load(
        &self,
        wanted: &[WantedPayload],
        missing: &[usize],
        kind: Kind,
        traffic: &Traffic,
        found: &mut [Option<Bytes>],
    ) -> Result<(), Error> {
        let ranges: Vec<Range<u64>> = missing.iter().map(|&at| wanted[at].range.clone()).collect();
        let mut groups = group(&ranges, GROUP_BYTES);
        let members = groups.iter_mut().flat_map(|group| &mut group.members);
        members.for_each(|member| *member = missing[*member]);
        let total_bytes = ranges.iter().map(|range| range.end - range.start).sum();
        let cache = self.cache.clone();
        let room = super::incoming::blocking(move || Ok(cache.make_room(total_bytes))).await?;
        let options = traffic.streaming(kind);
        let progress = Progress::start(self.source.name(), total_bytes);
        let job = Job {
            fetcher: self,
            wanted,
            options: &options,
            progress: &progress,
            room: Arc::new(room),
            streams: AtomicU64::new(0),
            turn: tokio::sync::Mutex::new(()),
        };
        let streams = STREAMS.min(self.source.parallelism()).max(1);
        let loaded = progress
            .while_shown(carry_out(&job, groups, streams, found))
            .await;
        let begun = job.streams.load(Ordering::Relaxed);
        options.meter.add_waves(begun.div_ceil(streams as u64));
        loaded
    }

    /// A payload that is in no group, as there is nothing to fetch of it.
    fn empty(&self, wanted: &WantedPayload) -> Result<Bytes, Error> {
        wanted.check(blake3::hash(&[]), self.source.name())?;
        Ok(Bytes::new())
    }

    /// Sound copies in the cache. Hashing them is work for all cores, away from the runtime.
    async fn cached(&self, wanted: &[WantedPayload]) -> Result<Vec<Option<Bytes>>, Error> {
        let (cache, wanted) = (self.cache.clone(), wanted.to_vec());
        let look = move || {
            let digests: Vec<[u8; 32]> = wanted.iter().map(|payload| payload.blake3).collect();
            cache.note_in_use(&digests);
            let look = |payload: &WantedPayload| {
                let bytes = payload.bytes();
                if bytes == 0 {
                    return None;
                }
                let found = cache.lookup(&payload.blake3, bytes);
                if found.is_some() {
                    telemetry::knot_block(&payload.name, bytes).record("from", "cache");
                }
                found
            };
            Ok(wanted.par_iter().map(look).collect())
        };
        super::incoming::blocking(look).await
    }
}

/// First what is ours to fetch, then what others were fetching meanwhile.
async fn carry_out(
    job: &Job<'_>,
    groups: Vec<super::groups::Group>,
    streams: usize,
    found: &mut [Option<Bytes>],
) -> Result<(), Error> {
    let mut elsewhere = Vec::new();
    let mut arriving = futures::stream::iter(groups)
        .map(|group| job.group(group))
        .buffer_unordered(streams);
    while let Some(payloads) = arriving.try_next().await? {
        for (at, landed) in payloads {
            match landed {
                Landed::Here(bytes) => found[at] = Some(bytes),
                Landed::Elsewhere => elsewhere.push(at),
            }
        }
    }
    drop(arriving);
    elsewhere.sort_unstable_by_key(|&at| job.wanted[at].range.start);
    let mut arriving = futures::stream::iter(elsewhere)
        .map(|at| job.elsewhere(at))
        .buffer_unordered(streams);
    while let Some((at, bytes)) = arriving.try_next().await? {
        found[at] = Some(bytes);
    }
    Ok(())
}

/// Places of the payloads that are missing, of equal ones the first.
fn distinct_missing(wanted: &[WantedPayload], found: &[Option<Bytes>]) -> Vec<usize> {
    let mut seen = std::collections::HashSet::new();
    let missing = (0..wanted.len()).filter(|&at| found[at].is_none());
    missing
        .filter(|&at| seen.insert((wanted[at].blake3, wanted[at].bytes())))
        .collect()
}

impl WantedPayload {
    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Checks that the digest `found` of what was read of `object` is the payload's.
    pub(crate) fn check(&self, found: blake3::Hash, object: &str) -> Result<(), Error> {
        let expected = blake3::Hash::from_bytes(self.blake3);
        if found == expected {
            return Ok(());
        }
        Err(Error::Digest {
            object: object.to_owned(),
            block: self.name.clone(),
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }
}

#[cfg(test)]
mod tests;
