//! Several ranges by one request: the request, its repetitions, and what its reply was worth. What
//! did not come is left to be asked one by one; a row is never lost to a server's ideas about
//! multipart. Which ranges go together is decided in `many`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::body::Body;
use super::capability::Seen;
use super::exchange::{PartsHead, Reply, Target};
use super::multipart::{Limits, MultipartReader, Part};
use super::pace::Pace;
use super::response::{Answerer, Ask, MERGED_BYTES, hull};
use super::transfer::Terms;
use crate::error::{Cause, GaveUp, TimeoutPhase};
use crate::retry::Retries;
use crate::{ByteRange, Error, ErrorKind, ObjectVersion, ReadOptions};

/// Framing of a whole reply apart from its parts: preamble, epilogue.
const FRAMING_BYTES: u64 = 4 << 10;
/// Framing of one part; real ones take about 120 bytes.
const PART_FRAMING_BYTES: u64 = 512;
/// A canary that takes longer is answered by single ranges: some servers hang on several.
const CANARY_LIMIT: Duration = Duration::from_secs(2);

/// What all requests of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) target: &'a Target,
    pub(super) options: &'a ReadOptions,
    pub(super) terms: Terms,
}

/// Whether the origin has answered several ranges before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Never: this request is to find out.
    Canary,
    Proved,
}

/// What came of a group.
#[derive(Debug)]
pub(super) struct GroupRead {
    /// The bytes of each range, as far as they came.
    pub(super) pieces: Vec<Option<Bytes>>,
    /// Why the others cannot be had; `None` if they are to be asked one by one.
    pub(super) failure: Option<Arc<Error>>,
}

/// One group while it is being read.
pub(super) struct Group<'a> {
    target: &'a Target,
    options: &'a ReadOptions,
    terms: Terms,
    trust: Trust,
    ranges: Vec<ByteRange>,
    pieces: Vec<Option<Bytes>>,
    answerer: Answerer,
    pace: Pace,
}

/// What follows a failed attempt.
enum Next {
    Singly,
    Again,
    Fail(Error),
}

impl<'a> Group<'a> {
    /// `ranges` are ascending, disjoint and not empty.
    pub(super) fn new(call: Call<'a>, trust: Trust, ranges: Vec<ByteRange>) -> Self {
        Self {
            target: call.target,
            options: call.options,
            terms: call.terms,
            trust,
            pieces: vec![None; ranges.len()],
            ranges,
            answerer: Answerer::default(),
            pace: Pace::new(call.target.client.config()),
        }
    }

    pub(super) async fn read(mut self) -> GroupRead {
        let mut retries = Retries::new(self.target.client.config().retry);
        let failure = loop {
            let missing = self.missing();
            if missing.is_empty() || (missing.len() == 1 && self.ranges.len() > 1) {
                break None;
            }
            let error = match self.attempt_in_time(&missing).await {
                Ok(seen) => {
                    if let Some(seen) = seen {
                        self.saw(seen).await;
                    }
                    break None;
                }
                Err(error) => error,
            };
            match self.after(error, missing.len(), &mut retries).await {
                Next::Again => {}
                Next::Singly => break None,
                Next::Fail(error) => break Some(Arc::new(error)),
            }
        };
        GroupRead {
            pieces: self.pieces,
            failure,
        }
    }

    fn missing(&self) -> Vec<ByteRange> {
        let ranges = self.ranges.iter().zip(&self.pieces);
        ranges
            .filter(|(_, piece)| piece.is_none())
            .map(|(range, _)| *range)
            .collect()
    }

    /// Learns of the origin that answered; where none did, of the one that was asked.
    async fn saw(&self, seen: Seen) {
        let answerer = self.answerer.take();
        let origin = answerer.unwrap_or_else(|| self.target.asked_origin_name());
        let capabilities = self.target.client.capabilities();
        capabilities.saw(&origin, seen).await;
    }

    /// Whether to ask again, to fail, or to go over to single ranges; and what it tells.
    async fn after(&mut self, error: Error, asked: usize, retries: &mut Retries) -> Next {
        if let Error::Timeout { phase, limit, .. } = &error
            && matches!(phase, TimeoutPhase::FirstByte | TimeoutPhase::Stall)
        {
            self.pace.add(0, *limit);
        }
        if let Some(attempts) = self.pace.given_up() {
            return Next::Fail(Error::GaveUp {
                object: self.target.name.clone(),
                attempts,
                reason: GaveUp::Pace,
                last: Box::new(error),
            });
        }
        let canary = self.trust == Trust::Canary;
        let refused = Seen::Refused { asked };
        let hung =
            matches!(&error, Error::Timeout { phase, .. } if *phase == TimeoutPhase::FirstByte);
        match (error.kind(), &error) {
            (ErrorKind::Changed | ErrorKind::Config, _) => return Next::Fail(error),
            (_, Error::Timeout { phase, .. }) if *phase == TimeoutPhase::Total => {
                return Next::Fail(error);
            }
            // Means "too many ranges" as often as a moment's weakness; single ranges will tell.
            (_, Error::Status { status: 500, .. }) => {
                self.saw(refused).await;
                return Next::Singly;
            }
            (ErrorKind::Transient, _) if canary && hung => {
                self.saw(refused).await;
                return Next::Singly;
            }
            (ErrorKind::Transient, _) => {}
            // Somebody in between may dislike several ranges; a signed URL is one for single ones.
            (ErrorKind::Auth | ErrorKind::NotFound, other) => {
                if canary || matches!(other, Error::Signature { status: 400, .. }) {
                    self.saw(refused).await;
                    return Next::Singly;
                }
                return Next::Fail(error);
            }
            _ => {
                self.saw(refused).await;
                return Next::Singly;
            }
        }
        if canary {
            self.saw(Seen::Broken).await;
        }
        self.target.forget_place();
        let budget = match self.target.origin() {
            Ok(origin) => origin,
            Err(error) => return Next::Fail(error),
        };
        let waited = retries.wait_after(
            error,
            &self.target.name,
            &budget.budget,
            self.terms.deadline,
        );
        match waited.await {
            Err(error) => Next::Fail(error),
            Ok(()) if canary => Next::Singly,
            Ok(()) => {
                self.options.meter.add_retry();
                Next::Again
            }
        }
    }

    async fn attempt_in_time(&mut self, asked: &[ByteRange]) -> Result<Option<Seen>, Error> {
        let (name, config) = (self.target.name.clone(), self.target.client.config());
        let limit = CANARY_LIMIT.min(config.first_byte_timeout);
        let canary_end = (self.trust == Trust::Canary).then(|| Instant::now() + limit);
        let ends = [
            (canary_end, TimeoutPhase::FirstByte, limit),
            (
                self.terms.deadline,
                TimeoutPhase::Total,
                config.batch_timeout,
            ),
        ];
        let first = ends
            .into_iter()
            .filter_map(|(end, phase, limit)| Some((end?, phase, limit)))
            .min_by_key(|(end, ..)| *end);
        let range = hull(asked);
        let attempt = self.attempt(asked);
        let Some((end, phase, limit)) = first else {
            return attempt.await;
        };
        let outcome = tokio::time::timeout_at(end, attempt).await;
        outcome.unwrap_or_else(|_elapsed| {
            Err(Error::Timeout {
                object: name,
                range,
                phase,
                limit,
            })
        })
    }

    /// One request and its reply. What came is kept also if an error follows.
    async fn attempt(&mut self, asked: &[ByteRange]) -> Result<Option<Seen>, Error> {
        let ask = Ask::several(asked, &self.answerer);
        let reply = self.target.exchange(ask, self.options, self.terms.reuse);
        let reply = reply.await?;
        let Reply { range, parts, body } = reply;
        match parts {
            Some(head) => self.take_parts(asked, &head, body).await.map(Some),
            None => self.take_range(asked, range, body).await,
        }
    }

    async fn take_parts(
        &mut self,
        asked: &[ByteRange],
        head: &PartsHead,
        mut body: Body,
    ) -> Result<Seen, Error> {
        let asked_bytes: u64 = asked.iter().map(ByteRange::len).sum();
        let limits = Limits {
            content_bytes: asked_bytes.saturating_add(MERGED_BYTES),
            framing_bytes: FRAMING_BYTES + PART_FRAMING_BYTES * asked.len() as u64,
        };
        let mut reader = MultipartReader::new(&head.boundary, limits);
        let mut parts = Vec::new();
        let count = asked.len();
        let mut readable = true;
        while readable {
            let so_far = reader.content_bytes();
            let Some(piece) = self.next_of(&mut body, asked, so_far).await? else {
                readable = reader.finish(&mut parts).is_ok();
                self.take(&mut parts, head)?;
                break;
            };
            let content_before = reader.content_bytes();
            readable = reader.push(&piece, &mut parts).is_ok();
            let content_bytes = reader.content_bytes() - content_before;
            self.options.meter.add_received(content_bytes);
            let framing_bytes = piece.len() as u64 - content_bytes;
            self.options.meter.add_framing(framing_bytes);
            self.take(&mut parts, head)?;
        }
        let left = self.missing().len();
        Ok(match (left, readable) {
            (0, _) => Seen::All { asked: count },
            (_, true) => Seen::Fewer {
                asked: count,
                came: count - left,
            },
            (_, false) => Seen::Refused { asked: count },
        })
    }

    /// Keeps what is of the pinned version, wherever in the reply it came.
    fn take(&mut self, parts: &mut Vec<Part>, head: &PartsHead) -> Result<(), Error> {
        for part in parts.drain(..) {
            let version = ObjectVersion {
                len_bytes: part.total_bytes,
                ..head.version.clone()
            };
            let target = self.target;
            target.pinned.check(&target.name, part.range, &version)?;
            self.place(part.range, &part.bytes);
        }
        Ok(())
    }

    /// A 206 that is no multipart: the first of the ranges, or all of them merged.
    async fn take_range(
        &mut self,
        asked: &[ByteRange],
        found: ByteRange,
        mut body: Body,
    ) -> Result<Option<Seen>, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next_of(&mut body, asked, bytes.len() as u64).await? {
            self.options.meter.add_received(piece.len() as u64);
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > found.len() {
                break;
            }
        }
        let found_bytes = bytes.len() as u64;
        if found_bytes < found.len() {
            return Err(self.interrupted(asked, found_bytes, None));
        }
        if found_bytes == found.len() {
            self.place(found, &Bytes::from(bytes));
        }
        // Merging shows nothing of what the origin does with ranges far apart.
        let all = self.missing().is_empty();
        Ok((!all).then_some(Seen::Refused { asked: asked.len() }))
    }

    /// Gives every range that lies in `found` its bytes. The first answer stands.
    fn place(&mut self, found: ByteRange, bytes: &Bytes) {
        for (range, piece) in self.ranges.iter().zip(&mut self.pieces) {
            if piece.is_some() || !found.contains(*range) {
                continue;
            }
            let at = |offset: u64| usize::try_from(offset - found.start).unwrap_or(usize::MAX);
            let (start, end) = (at(range.start), at(range.end));
            if end <= bytes.len() {
                *piece = Some(bytes.slice(start..end));
            }
        }
    }

    async fn next_of(
        &mut self,
        body: &mut Body,
        asked: &[ByteRange],
        received_bytes: u64,
    ) -> Result<Option<Bytes>, Error> {
        let limit = self.target.client.config().stall_timeout;
        let asked_at = Instant::now();
        match tokio::time::timeout(limit, body.next_raw()).await {
            Ok(Ok(piece)) => {
                let len_bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
                if self.pace.add(len_bytes, asked_at.elapsed()) && piece.is_some() {
                    // It came all the same, and is let go with its connection.
                    self.options.meter.add_received(len_bytes);
                    return Err(self.timeout(asked, TimeoutPhase::Pace, self.pace.window()));
                }
                Ok(piece)
            }
            Ok(Err(error)) => Err(self.interrupted(asked, received_bytes, Some(Box::new(error)))),
            Err(_elapsed) => {
                body.condemn_if_silent(limit);
                Err(self.timeout(asked, TimeoutPhase::Stall, limit))
            }
        }
    }

    fn timeout(&self, asked: &[ByteRange], phase: TimeoutPhase, limit: Duration) -> Error {
        Error::Timeout {
            object: self.target.name.clone(),
            range: hull(asked),
            phase,
            limit,
        }
    }

    fn interrupted(
        &self,
        asked: &[ByteRange],
        received_bytes: u64,
        source: Option<Cause>,
    ) -> Error {
        Error::Interrupted {
            object: self.target.name.clone(),
            range: hull(asked),
            received_bytes,
            source,
        }
    }
}
