//! A reply's body with the connection it comes on: piece by piece, counted, given back at its end.
//! Whether it is whole is for `transfer`; clocks are the caller's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};

use super::origin::Lease;
use crate::Meter;

/// A body with its connection. Dropped unread, it takes an HTTP/1.1 connection with it and resets
/// an HTTP/2 stream.
#[derive(Debug)]
pub(super) struct Body {
    incoming: Option<(Incoming, Lease)>,
    meter: Arc<Meter>,
}

impl Body {
    pub(super) fn new(incoming: Incoming, lease: Lease, meter: &Arc<Meter>) -> Self {
        Self {
            incoming: Some((incoming, lease)),
            meter: Arc::clone(meter),
        }
    }

    /// No body at all.
    pub(super) fn none(meter: &Arc<Meter>) -> Self {
        Self {
            incoming: None,
            meter: Arc::clone(meter),
        }
    }

    /// The next piece, counted as received.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        let piece = self.next_raw().await?;
        if let Some(piece) = &piece {
            self.meter.add_received(piece.len() as u64);
        }
        Ok(piece)
    }

    /// The next piece, never empty and not counted; `None` at the end, when the connection has been
    /// given back.
    pub(super) async fn next_raw(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        while let Some((incoming, lease)) = &mut self.incoming {
            match incoming.frame().await {
                Some(Ok(frame)) => {
                    lease.touch();
                    // Trailers say nothing that a range needs.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    if data.is_empty() {
                        continue;
                    }
                    if incoming.is_end_stream() {
                        self.give_back();
                    }
                    return Ok(Some(data));
                }
                Some(Err(error)) => {
                    self.incoming = None;
                    return Err(error);
                }
                None => self.give_back(),
            }
        }
        Ok(None)
    }

    /// Gives up the body after a stall. A connection that has been as silent for everyone is taken
    /// out of service, so that the next attempt does not wait on it again.
    pub(super) fn condemn_if_silent(&mut self, limit: Duration) {
        if let Some((_, lease)) = self.incoming.take()
            && lease.progress().last().elapsed() >= limit
        {
            lease.condemn();
        }
    }

    fn give_back(&mut self) {
        if let Some((incoming, lease)) = self.incoming.take() {
            drop(incoming);
            lease.give_back();
        }
    }

    /// Ends a reply that is no content. The short text of a redirect, an error or an empty object is
    /// read, so that its connection can be kept; one that is long, or does not come, is not.
    pub(super) async fn discard(mut self, status: StatusCode) {
        const SHORT_BYTES: u64 = 4 << 10;
        const PATIENCE: Duration = Duration::from_millis(200);
        let Some((incoming, _)) = &self.incoming else {
            return;
        };
        let short = incoming
            .size_hint()
            .exact()
            .is_some_and(|bytes| bytes <= SHORT_BYTES);
        if incoming.is_end_stream() {
            self.give_back();
        } else if short && !status.is_success() {
            let rest = async { while matches!(self.next().await, Ok(Some(_))) {} };
            // Whoever is slower loses its connection, nothing else.
            let _ = tokio::time::timeout(PATIENCE, rest).await;
        }
    }
}
