//! One connection, driven by a task that dies with it. Sends one request and hands back the reply's
//! head; who may use which connection is decided in `origin`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Ranges are asked with GET, which has no body.
pub(super) type NoBody = Empty<Bytes>;

/// When something last arrived on a connection, whichever request it was for.
#[derive(Debug)]
pub(super) struct Progress {
    epoch: Instant,
    last_ms: AtomicU64,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    pub(super) fn touch(&self) {
        let elapsed_ms = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(elapsed_ms, Relaxed);
    }

    pub(super) fn last(&self) -> Instant {
        self.epoch + Duration::from_millis(self.last_ms.load(Relaxed))
    }
}

/// Aborts the task that drives a connection, which closes its socket.
#[derive(Debug)]
pub(super) struct Driver(AbortHandle);

impl Driver {
    /// Drives `connection` until it ends or the value is dropped. Its error reaches the request in
    /// flight as well, so the task's outcome says nothing new.
    pub(super) fn spawn<F>(connection: F) -> Self
    where
        F: Future<Output = hyper::Result<()>> + Send + 'static,
    {
        Self(tokio::spawn(connection).abort_handle())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An HTTP/1.1 connection: one request at a time, owned by whoever uses it.
#[derive(Debug)]
pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<NoBody>,
    pub(super) progress: Arc<Progress>,
    /// Whether a reply has come over it: only then can a closed socket mean *idle too long*.
    pub(super) used: bool,
    pub(super) made_at: Instant,
    /// How long the origin said it keeps an idle connection.
    pub(super) keep: Option<Duration>,
    pub(super) _driver: Driver,
}

/// An HTTP/2 connection, shared by every request to its origin.
#[derive(Debug)]
pub(super) struct Http2 {
    pub(super) sender: http2::SendRequest<NoBody>,
    pub(super) progress: Arc<Progress>,
    pub(super) used: AtomicBool,
    pub(super) made_at: Instant,
    /// Requests the origin admits at once.
    pub(super) max_streams: Arc<AtomicUsize>,
    pub(super) _driver: Driver,
}

/// A connection just made.
#[derive(Debug)]
pub(super) enum Connection {
    Http1(Http1),
    Http2(Http2),
}

/// A request that got no reply's head.
#[derive(Debug)]
pub(super) struct SendFailure {
    pub(super) error: hyper::Error,
    /// Whether any byte of the request can have reached the origin.
    pub(super) sent: bool,
}

impl SendFailure {
    /// Whether the origin cannot have begun with the request: it said so, or it was never sent.
    pub(super) fn unprocessed(&self) -> bool {
        !self.sent || self.http2_reason() == Some(h2::Reason::REFUSED_STREAM)
    }

    /// Whether one HTTP/2 stream was reset, on a connection that goes on.
    pub(super) fn is_reset(&self) -> bool {
        self.http2().is_some_and(h2::Error::is_reset)
    }

    fn http2_reason(&self) -> Option<h2::Reason> {
        self.http2().and_then(h2::Error::reason)
    }

    fn http2(&self) -> Option<&h2::Error> {
        std::error::Error::source(&self.error)?.downcast_ref()
    }
}

impl Http1 {
    pub(super) async fn send(
        &mut self,
        request: Request<NoBody>,
    ) -> Result<Response<Incoming>, SendFailure> {
        self.sender.try_send_request(request).await.map_err(failure)
    }
}

impl Http2 {
    pub(super) async fn send(
        &self,
        request: Request<NoBody>,
    ) -> Result<Response<Incoming>, SendFailure> {
        self.sender
            .clone()
            .try_send_request(request)
            .await
            .map_err(failure)
    }
}

fn failure(mut failed: hyper::client::conn::TrySendError<Request<NoBody>>) -> SendFailure {
    let sent = failed.take_message().is_none();
    SendFailure {
        error: failed.into_error(),
        sent,
    }
}
