//! Fetches payloads of a remote object: from the block cache where they are, else streamed in
//! groups, hashed on the way, kept. Retries of the wire are the transport's; a wrong digest is
//! tried once more here, as another copy of a mirrored object may be sound.

use super::block_cache::BlockCache;
use super::groups::{GROUP_BYTES, Group, group};
use super::incoming::Incoming;
use crate::error::Error;
use crate::progress::Progress;
use crate::telemetry;
use crate::traffic::{Kind, Traffic};
use bytes::{Buf as _, Bytes};
use futures::{StreamExt as _, TryStreamExt as _};
use helix_transport::{ByteRange, RangeSource, ReadOptions};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Streams side by side. Bandwidth is shared by few streams as well as by many, and layers arrive
/// nearer to their order.
const STREAMS: usize = 6;

/// Reads of a group whose bytes do not match their digests.
const DIGEST_ATTEMPTS: u32 = 2;

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

/// What a group's stream needs beside the group.
struct Transfer<'a> {
    wanted: &'a [WantedPayload],
    options: &'a ReadOptions,
    progress: &'a Progress,
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

    /// Payloads in the order asked.
    ///
    /// # Errors
    /// [`Error::Origin`] or [`Error::Digest`] of the first that could not be had.
    pub async fn fetch(
        &self,
        wanted: &[WantedPayload],
        kind: Kind,
        traffic: &Traffic,
    ) -> Result<Vec<Bytes>, Error> {
        let mut found = self.cached(wanted).await?;
        let missing: Vec<usize> = (0..wanted.len())
            .filter(|&at| found[at].is_none())
            .collect();
        let ranges: Vec<Range<u64>> = missing.iter().map(|&at| wanted[at].range.clone()).collect();
        let mut groups = group(&ranges, GROUP_BYTES);
        for group in &mut groups {
            group
                .members
                .iter_mut()
                .for_each(|member| *member = missing[*member]);
        }
        let options = traffic.streaming(kind);
        let total = groups
            .iter()
            .map(|group| group.range.end - group.range.start)
            .sum();
        let progress = Progress::start(self.source.name(), total);
        let streams = STREAMS.min(self.source.parallelism()).max(1);
        options
            .meter
            .add_waves(groups.len().div_ceil(streams) as u64);
        let transfer = Transfer {
            wanted,
            options: &options,
            progress: &progress,
        };
        let mut arriving = futures::stream::iter(groups)
            .map(|group| self.group(group, &transfer))
            .buffer_unordered(streams);
        while let Some(payloads) = arriving.try_next().await? {
            for (at, bytes) in payloads {
                found[at] = Some(bytes);
            }
        }
        drop(arriving);
        found
            .into_iter()
            .zip(wanted)
            .map(|(bytes, wanted)| bytes.map_or_else(|| self.empty(wanted), Ok))
            .collect()
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
            let look = |payload: &WantedPayload| {
                let bytes = payload.range.end - payload.range.start;
                if bytes == 0 {
                    return None;
                }
                let found = cache.lookup(&payload.blake3, bytes);
                if found.is_some() {
                    telemetry::knot_block(&payload.name, bytes).record("from", "cache");
                }
                found
            };
            wanted.par_iter().map(look).collect()
        };
        tokio::task::spawn_blocking(look)
            .await
            .map_err(|_panicked| Error::Lost {
                what: "the block cache",
            })
    }

    async fn group(
        &self,
        group: Group,
        transfer: &Transfer<'_>,
    ) -> Result<Vec<(usize, Bytes)>, Error> {
        let mut attempt = 1;
        loop {
            match self.stream(&group, transfer).await {
                Err(error @ Error::Digest { .. }) => {
                    transfer.options.meter.add_integrity_failure();
                    if attempt == DIGEST_ATTEMPTS {
                        return Err(error);
                    }
                    tracing::warn!(attempt, "{error}; reading it again");
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn stream(
        &self,
        group: &Group,
        transfer: &Transfer<'_>,
    ) -> Result<Vec<(usize, Bytes)>, Error> {
        let failed = |source| Error::origin(self.source.name(), source);
        let range = ByteRange::new(group.range.start, group.range.end).map_err(failed)?;
        let mut pieces = self.source.stream(range, transfer.options);
        let mut payloads = Vec::with_capacity(group.members.len());
        let mut members = group.members.iter().copied();
        let mut open: Option<Arriving> = None;
        let mut offset = group.range.start;
        while let Some(piece) = pieces.try_next().await.map_err(failed)? {
            let mut piece = piece;
            transfer.progress.add(piece.len() as u64);
            while !piece.is_empty() {
                let mut arriving = match open.take() {
                    Some(arriving) => arriving,
                    None => match members.next() {
                        Some(at) => Arriving::begin(at, &transfer.wanted[at], &self.cache),
                        None => break,
                    },
                };
                offset += arriving.take(&mut piece, offset).await?;
                if offset == arriving.wanted.range.end {
                    payloads.push(self.accept(arriving, transfer.options).await?);
                } else {
                    open = Some(arriving);
                }
            }
        }
        if offset == range.end {
            return Ok(payloads);
        }
        // Sources promise the whole range or an error: this one has broken its promise.
        Err(failed(helix_transport::Error::Interrupted {
            object: self.source.name().to_owned(),
            range,
            received_bytes: offset - range.start,
            source: None,
        }))
    }

    async fn accept(
        &self,
        arriving: Arriving<'_>,
        options: &ReadOptions,
    ) -> Result<(usize, Bytes), Error> {
        let wanted = arriving.wanted;
        wanted.check(arriving.hasher.finalize(), self.source.name())?;
        options
            .meter
            .add_useful(wanted.range.end - wanted.range.start);
        arriving.span.record("from", "origin");
        Ok((arriving.at, arriving.incoming.keep(wanted.blake3).await?))
    }
}

impl WantedPayload {
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

/// A payload that is being streamed.
struct Arriving<'a> {
    at: usize,
    wanted: &'a WantedPayload,
    incoming: Incoming,
    hasher: blake3::Hasher,
    /// From the first byte to the digest.
    span: tracing::Span,
}

impl<'a> Arriving<'a> {
    fn begin(at: usize, wanted: &'a WantedPayload, cache: &BlockCache) -> Self {
        Self {
            at,
            wanted,
            incoming: Incoming::new(cache.clone()),
            hasher: blake3::Hasher::new(),
            span: telemetry::knot_block(&wanted.name, wanted.range.end - wanted.range.start),
        }
    }

    /// Takes what belongs to this payload from the front of `piece`, which lies at `offset` of the
    /// object; padding before the payload is dropped. Returns the bytes consumed.
    async fn take(&mut self, piece: &mut Bytes, offset: u64) -> Result<u64, Error> {
        let within = |bytes: u64| {
            usize::try_from(bytes)
                .unwrap_or(usize::MAX)
                .min(piece.len())
        };
        let padding = within(self.wanted.range.start.saturating_sub(offset));
        let body = within(self.wanted.range.end.saturating_sub(offset)) - padding;
        piece.advance(padding);
        let body = piece.split_to(body);
        self.hasher.update(&body);
        self.incoming.push(&body).await?;
        Ok((padding + body.len()) as u64)
    }
}

#[cfg(test)]
mod tests;
