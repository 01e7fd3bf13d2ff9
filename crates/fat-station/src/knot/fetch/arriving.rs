//! A payload that is being streamed: where it is, what of it is there, and the hash of that. It asks
//! for nothing itself.

use super::WantedPayload;
use super::landing::Landing;
use crate::error::Error;
use crate::knot::block_cache::{BlockCache, Partial};
use crate::knot::incoming::Incoming;
use crate::telemetry;
use bytes::{Buf as _, Bytes};
use std::ops::Range;

/// A payload on its way.
pub(super) struct Arriving<'a> {
    /// Its place in the list of payloads wanted.
    pub(super) at: usize,
    pub(super) wanted: &'a WantedPayload,
    /// Reads that gave other bytes than the table's.
    pub(super) refused: u32,
    /// Bytes that an earlier start had left; they have not been seen on the wire by this one.
    pub(super) resumed_bytes: u64,
    have_bytes: u64,
    incoming: Incoming,
    hasher: blake3::Hasher,
    /// From the first byte to the digest.
    span: tracing::Span,
}

/// What an earlier start left of a payload, with the hash of it.
#[derive(Debug)]
pub(super) struct Begun {
    partial: Partial,
    hasher: blake3::Hasher,
}

impl Begun {
    /// Hashes what `partial` holds; a file that cannot be read begins anew.
    pub(super) fn read(mut partial: Partial) -> std::io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        if partial.hash(&mut hasher).is_err() {
            hasher = blake3::Hasher::new();
            partial.reset()?;
        }
        Ok(Self { partial, hasher })
    }
}

impl<'a> Arriving<'a> {
    /// `wanted`, from where `begun` ends; in memory where there is no file.
    pub(super) fn begin(
        at: usize,
        wanted: &'a WantedPayload,
        begun: Option<Begun>,
        cache: &BlockCache,
    ) -> Self {
        let (partial, hasher) = match begun {
            Some(begun) => (Some(begun.partial), begun.hasher),
            None => (None, blake3::Hasher::new()),
        };
        let have_bytes = partial.as_ref().map_or(0, Partial::written);
        Self {
            at,
            wanted,
            refused: 0,
            resumed_bytes: have_bytes,
            have_bytes,
            incoming: Incoming::new(cache.clone(), partial),
            hasher,
            span: telemetry::knot_block(&wanted.name, wanted.bytes()),
        }
    }

    /// Bytes of the object that are still to come.
    pub(super) fn rest(&self) -> Range<u64> {
        self.wanted.range.start + self.have_bytes..self.wanted.range.end
    }

    /// Takes what belongs to this payload from the front of `piece`, which lies at `offset` of the
    /// object, and tells of it; padding before the payload is dropped. Returns the bytes consumed.
    pub(super) async fn take(
        &mut self,
        piece: &mut Bytes,
        offset: u64,
        landing: &Landing<'_>,
    ) -> Result<u64, Error> {
        let within = |bytes: u64| {
            usize::try_from(bytes)
                .unwrap_or(usize::MAX)
                .min(piece.len())
        };
        let rest = self.rest();
        let padding = within(rest.start.saturating_sub(offset));
        let body = within(rest.end.saturating_sub(offset)) - padding;
        piece.advance(padding);
        let body = piece.split_to(body);
        self.hasher.update(&body);
        landing.piece(self.at, self.have_bytes, &body);
        self.have_bytes += body.len() as u64;
        self.incoming.push(&body).await?;
        Ok((padding + body.len()) as u64)
    }

    /// Writes what has arrived, as no more will come for now.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.incoming.flush().await
    }

    /// Checks the digest of the whole.
    pub(super) fn check(&self, object: &str) -> Result<(), Error> {
        self.wanted.check(self.hasher.finalize(), object)
    }

    /// Begins anew: what is there is not the payload.
    pub(super) fn reset(&mut self) {
        self.incoming.reset();
        self.hasher.reset();
        self.have_bytes = 0;
        self.resumed_bytes = 0;
    }

    /// The checked payload, kept.
    pub(super) async fn keep(self) -> Result<(usize, Bytes), Error> {
        let from = if self.resumed_bytes > 0 {
            "origin and an earlier start"
        } else {
            "origin"
        };
        self.span.record("from", from);
        Ok((self.at, self.incoming.keep(self.wanted.blake3).await?))
    }
}
