//! Fetches payloads of a remote object: from the block cache where they are, else streamed in
//! groups, hashed on the way, kept. Retries of the wire are the transport's; a wrong digest is
//! tried once more, as another copy of a mirrored object may be sound. What stations that start at
//! once do to share the work is `job`'s matter; whose turn it is to stream, `streams`'.

mod arriving;
mod job;
mod landing;

use super::arrivals::Purpose;
use super::block_cache::BlockCache;
use super::groups::{GROUP_BYTES, Group, group};
use super::streams::{Place, STREAMS, Streams};
use crate::error::Error;
use crate::progress::Progress;
use crate::telemetry;
use crate::traffic::Traffic;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use helix_transport::RangeSource;
use job::Job;
use landing::Landing;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    streams: Streams,
}

impl PayloadFetcher {
    /// A fetcher of `source` that keeps what it fetched in `cache` and takes its turns of `streams`.
    #[must_use]
    pub fn new(source: Arc<dyn RangeSource>, cache: BlockCache, streams: Streams) -> Self {
        Self {
            source,
            cache,
            streams,
        }
    }

    /// The object's source.
    #[must_use]
    pub fn source(&self) -> Arc<dyn RangeSource> {
        Arc::clone(&self.source)
    }

    /// Payloads in the order asked. Equal ones are fetched once. Each is told as soon as it is here.
    ///
    /// # Errors
    /// [`Error::Origin`] or [`Error::Digest`] of the first that could not be had. What had arrived
    /// by then is in the cache, for the next try.
    pub async fn fetch(
        &self,
        wanted: &[WantedPayload],
        purpose: impl Into<Purpose>,
        traffic: &Traffic,
    ) -> Result<Vec<Bytes>, Error> {
        let purpose = purpose.into();
        let cached = self.cached(wanted).await?;
        for payload in wanted.iter().filter(|payload| payload.bytes() == 0) {
            payload.check(blake3::hash(&[]), self.source.name())?;
        }
        let landing = Landing::new(wanted, cached, Arc::clone(&purpose.arrivals));
        let missing = landing.missing();
        if missing.is_empty() {
            purpose.arrivals.in_line();
        } else {
            self.load(&landing, &missing, &purpose, traffic).await?;
        }
        landing.payloads()
    }

    /// Fetches the payloads at `missing`.
    async fn load(
        &self,
        landing: &Landing<'_>,
        missing: &[usize],
        purpose: &Purpose,
        traffic: &Traffic,
    ) -> Result<(), Error> {
        let wanted = landing.wanted();
        let ranges: Vec<Range<u64>> = missing.iter().map(|&at| wanted[at].range.clone()).collect();
        let mut groups = group(&ranges, GROUP_BYTES);
        let members = groups.iter_mut().flat_map(|group| &mut group.members);
        members.for_each(|member| *member = missing[*member]);
        let total_bytes = ranges.iter().map(|range| range.end - range.start).sum();
        let cache = self.cache.clone();
        let room = super::incoming::blocking(move || Ok(cache.make_room(total_bytes))).await?;
        let options = traffic.streaming(purpose.kind);
        let progress = Progress::start(self.source.name(), total_bytes);
        let job = Job {
            fetcher: self,
            landing,
            rank: purpose.rank,
            options: &options,
            progress: &progress,
            room: Arc::new(room),
            streams: AtomicU64::new(0),
            turn: tokio::sync::Mutex::new(()),
        };
        let streams = &self.streams;
        let places = groups
            .into_iter()
            .map(|group| (group, streams.stand(purpose.rank)));
        let places: Vec<_> = places.collect();
        purpose.arrivals.in_line();
        let loaded = progress.while_shown(carry_out(&job, places)).await;
        let begun = job.streams.load(Ordering::Relaxed);
        let together = STREAMS.min(self.source.parallelism()).max(1) as u64;
        options.meter.add_waves(begun.div_ceil(together));
        loaded
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
async fn carry_out(job: &Job<'_>, places: Vec<(Group, Place)>) -> Result<(), Error> {
    let most = job.fetcher.source.parallelism().max(1);
    // Who stands in line must be there when the turn comes.
    let awake = if most < STREAMS { most } else { places.len() };
    let mut elsewhere: Vec<usize> = futures::stream::iter(places)
        .map(|(group, place)| job.group(group, place))
        .buffer_unordered(awake.max(1))
        .try_concat()
        .await?;
    elsewhere.sort_unstable_by_key(|&at| job.landing.wanted()[at].range.start);
    futures::stream::iter(elsewhere)
        .map(|at| job.elsewhere(at))
        .buffer_unordered(STREAMS.min(most))
        .try_collect()
        .await
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
