//! One read from first request to last byte: attempts, resumption, exact length, the total clock.
//! Pieces leave here in order and carry their offset; nothing is kept, so a transfer of any length
//! holds one piece at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::HttpConfig;
use super::body::Body;
use super::exchange::Target;
use super::origin::{Origin, Reuse};
use super::pace::Pace;
use super::response::{Ask, Extent};
use crate::error::{Cause, GaveUp, TimeoutPhase};
use crate::retry::Retries;
use crate::source::Connection;
use crate::{ByteRange, Error, Patience, ReadOptions};

/// What a transfer does with the bytes it has handed out when a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// They are gone to the caller: go on at the next byte.
    Always,
    /// The caller still holds them: go on only where a strong tag proves that the next reply is of
    /// the same object, else begin anew.
    IfTagged,
}

/// What all reads of one call have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) deadline: Option<Instant>,
    pub(super) reuse: Reuse,
}

impl Terms {
    /// Those of a call that begins now.
    pub(super) fn of(config: &HttpConfig, options: &ReadOptions) -> Self {
        let now = Instant::now();
        Self {
            deadline: match options.patience {
                Patience::Batch => Some(now + config.batch_timeout),
                Patience::Stream => None,
            },
            reuse: match options.connection {
                Connection::Any => Reuse::Allowed,
                Connection::Fresh => Reuse::Since(now),
            },
        }
    }
}

/// Room made for a body before any of it has come: a lying head costs no more than this.
const FIRST_ROOM_BYTES: u64 = 1 << 20;

/// Reads what is asked into one piece of memory.
pub(super) async fn collect(
    target: &Target,
    ask: Ask<'static>,
    options: &ReadOptions,
    terms: Terms,
) -> Result<Bytes, Error> {
    let room_bytes = ask.range.len().min(FIRST_ROOM_BYTES);
    let mut buffer = BytesMut::with_capacity(usize::try_from(room_bytes).unwrap_or(0));
    let mut transfer = Transfer::new(target, ask, Continuation::IfTagged, options, terms)?;
    while let Some(piece) = transfer.piece().await? {
        // Shorter than what is there only if the transfer has begun anew.
        let held = usize::try_from(piece.offset - ask.range.start).unwrap_or(usize::MAX);
        buffer.truncate(held);
        buffer.extend_from_slice(&piece.bytes);
    }
    Ok(buffer.freeze())
}

/// Bytes at an offset of the object.
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

/// A read in progress.
pub(super) struct Transfer<'a> {
    target: &'a Target,
    origin: Arc<Origin>,
    options: &'a ReadOptions,
    continuation: Continuation,
    extent: Extent<'static>,
    range: ByteRange,
    /// Offset of the next byte to hand out.
    next: u64,
    /// The furthest that `next` has been.
    farthest: u64,
    body: Option<Body>,
    retries: Retries,
    pace: Pace,
    /// Whether the origin has answered an earlier read.
    answered_before: bool,
    terms: Terms,
    done: bool,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(
        target: &'a Target,
        ask: Ask<'static>,
        continuation: Continuation,
        options: &'a ReadOptions,
        terms: Terms,
    ) -> Result<Self, Error> {
        let config = target.client.config();
        Ok(Self {
            target,
            origin: target.origin()?,
            options,
            continuation,
            extent: ask.extent,
            range: ask.range,
            next: ask.range.start,
            farthest: ask.range.start,
            body: None,
            retries: Retries::new(config.retry),
            pace: Pace::new(config),
            answered_before: target.pinned.get().is_some(),
            terms,
            done: ask.range.is_empty(),
        })
    }

    /// The next piece, or `None` when the whole range has been handed out.
    pub(super) async fn piece(&mut self) -> Result<Option<Piece>, Error> {
        let limit = self.target.client.config().batch_timeout;
        match self.terms.deadline {
            None => self.piece_or_retry().await,
            Some(deadline) => {
                let piece = tokio::time::timeout_at(deadline, self.piece_or_retry()).await;
                piece.unwrap_or_else(|_elapsed| Err(self.timeout(TimeoutPhase::Total, limit)))
            }
        }
    }

    async fn piece_or_retry(&mut self) -> Result<Option<Piece>, Error> {
        loop {
            let error = match self.attempt().await {
                Ok(piece) => {
                    // A row batch has its attempts for the whole read: somebody waits for it.
                    // A stream's attempts are for the next new byte: one that started again has not got
                    // on before it passes where an earlier one broke off.
                    if self.options.patience == Patience::Stream && self.next > self.farthest {
                        self.farthest = self.next;
                        self.retries.progress();
                    }
                    return Ok(piece);
                }
                Err(error) => error,
            };
            if let Error::Timeout { phase, limit, .. } = &error
                && matches!(phase, TimeoutPhase::FirstByte | TimeoutPhase::Stall)
            {
                self.pace.add(0, *limit);
            }
            if let Some(attempts) = self.pace.given_up() {
                return Err(Error::GaveUp {
                    object: self.target.name.clone(),
                    attempts,
                    reason: GaveUp::Pace,
                    last: Box::new(error),
                });
            }
            self.body = None;
            // What broke or stalled here may do so again; the object's own URL may know better.
            self.target.forget_place();
            if self.continuation == Continuation::IfTagged && !self.is_tagged() {
                self.next = self.range.start;
            }
            if self.answered_before {
                self.retries.doubt(&error);
            }
            let name = &self.target.name;
            self.retries
                .wait_after(error, name, &self.origin.budget, self.terms.deadline)
                .await?;
            self.options.meter.add_retry();
        }
    }

    async fn attempt(&mut self) -> Result<Option<Piece>, Error> {
        if self.done {
            return Ok(None);
        }
        let mut body = match self.body.take() {
            Some(body) => body,
            None => self.open().await?,
        };
        let rest_bytes = self.range.end - self.next;
        let Some(bytes) = self.next_of(&mut body).await? else {
            if rest_bytes == 0 {
                self.done = true;
                return Ok(None);
            }
            return Err(self.interrupted(None));
        };
        let len_bytes = bytes.len() as u64;
        if len_bytes > rest_bytes {
            return Err(self.too_long(len_bytes));
        }
        if len_bytes == rest_bytes {
            // The last piece is handed out only when the body has ended behind it.
            if let Some(extra) = self.next_of(&mut body).await? {
                return Err(self.too_long(len_bytes + extra.len() as u64));
            }
            self.done = true;
        } else {
            self.body = Some(body);
        }
        let offset = self.next;
        self.next += len_bytes;
        Ok(Some(Piece { offset, bytes }))
    }

    async fn open(&mut self) -> Result<Body, Error> {
        let rest = ByteRange {
            start: self.next,
            end: self.range.end,
        };
        let ask = Ask {
            range: rest,
            extent: self.extent,
        };
        let reply = self.target.exchange(ask, self.options, self.terms.reuse);
        let reply = reply.await?;
        if matches!(self.extent, Extent::UpTo) {
            // The first reply has told how long the object is.
            self.range = reply.range;
            self.extent = Extent::Exact;
        }
        Ok(reply.body)
    }

    async fn next_of(&mut self, body: &mut Body) -> Result<Option<Bytes>, Error> {
        let limit = self.target.client.config().stall_timeout;
        let asked_at = Instant::now();
        match tokio::time::timeout(limit, body.next()).await {
            Ok(Ok(piece)) => {
                let len_bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
                if self.pace.add(len_bytes, asked_at.elapsed()) && piece.is_some() {
                    // The piece is lost with its connection: it is small, or this were not so slow.
                    return Err(self.timeout(TimeoutPhase::Pace, self.pace.window()));
                }
                Ok(piece)
            }
            Ok(Err(error)) => Err(self.interrupted(Some(Box::new(error)))),
            Err(_elapsed) => {
                body.condemn_if_silent(limit);
                Err(self.timeout(TimeoutPhase::Stall, limit))
            }
        }
    }

    fn is_tagged(&self) -> bool {
        self.target
            .pinned
            .get()
            .is_some_and(|version| version.etag.is_some())
    }

    fn interrupted(&self, source: Option<Cause>) -> Error {
        Error::Interrupted {
            object: self.target.name.clone(),
            range: self.range,
            received_bytes: self.next - self.range.start,
            source,
        }
    }

    fn timeout(&self, phase: TimeoutPhase, limit: Duration) -> Error {
        Error::Timeout {
            object: self.target.name.clone(),
            range: self.range,
            phase,
            limit,
        }
    }

    fn too_long(&self, len_bytes: u64) -> Error {
        Error::WrongLength {
            object: self.target.name.clone(),
            range: self.range,
            found_bytes: (self.next - self.range.start).saturating_add(len_bytes),
        }
    }
}
