//! One reply to one ask: sends the request, follows redirects, repeats at once what met a socket
//! that had closed while idle, and hands back a body only if the head was accepted. Waiting and
//! trying again belong to `retry`; whether the body is whole, to `transfer`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderValue, IF_MATCH, RANGE, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use tokio::time::Instant;
use url::Url;

use super::HttpClient;
use super::connection::{NoBody, SendFailure};
use super::origin::{Lease, Origin, Reuse};
use super::response::{Ask, Head, Verdict};
use crate::error::TimeoutPhase;
use crate::redact::redacted;
use crate::validator::PinnedVersion;
use crate::{ByteRange, Error, ErrorKind, Meter};

const AGENT: &str = concat!("helix-transport/", env!("CARGO_PKG_VERSION"));

/// Where one object is fetched from, and as which version.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) client: HttpClient,
    pub(super) name: String,
    pub(super) url: Url,
    pub(super) pinned: PinnedVersion,
    /// Where the last redirects ended. Kept until the place refuses: a signed location expires.
    pub(super) moved_to: Mutex<Option<Url>>,
}

/// An accepted reply.
#[derive(Debug)]
pub(super) struct Reply {
    /// What the body holds.
    pub(super) range: ByteRange,
    pub(super) body: Body,
}

/// A body with its connection. Dropped unread, it takes an HTTP/1.1 connection with it and resets
/// an HTTP/2 stream.
#[derive(Debug)]
pub(super) struct Body {
    incoming: Option<(Incoming, Lease)>,
    meter: Arc<Meter>,
}

impl Target {
    /// Sends `ask` and returns the reply whose head passed every check.
    pub(super) async fn exchange(&self, ask: Ask, meter: &Arc<Meter>) -> Result<Reply, Error> {
        let moved_to = self.moved_to().clone();
        if let Some(place) = moved_to {
            match self.follow(place, ask, meter).await {
                Err(error) if matches!(error.kind(), ErrorKind::Auth | ErrorKind::NotFound) => {
                    *self.moved_to() = None;
                    meter.add_retry();
                }
                outcome => return outcome,
            }
        }
        self.follow(self.url.clone(), ask, meter).await
    }

    /// The origin of the object's own URL; it answers for the retries, wherever they end.
    pub(super) fn origin(&self) -> Result<Arc<Origin>, Error> {
        self.client.origin(&self.url)
    }

    fn moved_to(&self) -> std::sync::MutexGuard<'_, Option<Url>> {
        self.moved_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow(&self, mut url: Url, ask: Ask, meter: &Arc<Meter>) -> Result<Reply, Error> {
        let mut redirects = 0;
        loop {
            let (response, lease) = self.send(&url, ask, meter).await?;
            let (parts, incoming) = response.into_parts();
            let head = Head {
                object: &self.name,
                status: parts.status,
                headers: &parts.headers,
                pinned: self.pinned.get(),
            };
            let body = Body {
                incoming: Some((incoming, lease)),
                meter: Arc::clone(meter),
            };
            let (range, version) = match head.judge(ask) {
                Ok(Verdict::Content { range, version }) => (range, version),
                Ok(Verdict::Empty { version }) => (ByteRange { start: 0, end: 0 }, version),
                Ok(Verdict::Redirect { location }) => {
                    body.discard(parts.status).await;
                    url = self.redirected(&url, &location)?;
                    redirects += 1;
                    if redirects > self.client.config().max_redirects {
                        return Err(self.refuse_redirect("too many in a row".to_owned()));
                    }
                    continue;
                }
                Err(error) => {
                    body.discard(parts.status).await;
                    return Err(error);
                }
            };
            self.pinned.check(&self.name, ask.range, &version)?;
            self.origin()?.budget.reward();
            if redirects > 0 {
                *self.moved_to() = Some(url);
            }
            return Ok(Reply { range, body });
        }
    }

    fn redirected(&self, from: &Url, location: &str) -> Result<Url, Error> {
        let Ok(to) = from.join(location) else {
            return Err(self.refuse_redirect("Location is not a URL".to_owned()));
        };
        match (from.scheme(), to.scheme()) {
            ("http", "http" | "https") | ("https", "https") => Ok(to),
            (_, scheme) => {
                let to = redacted(&to);
                Err(self.refuse_redirect(format!("from {} to {scheme}: {to}", from.scheme())))
            }
        }
    }

    fn refuse_redirect(&self, reason: String) -> Error {
        Error::Redirect {
            object: self.name.clone(),
            reason,
        }
    }

    /// The head of a reply from `url`, repeated once without a wait if a kept connection failed
    /// before any reply: servers close idle sockets just as we reach for them.
    async fn send(
        &self,
        url: &Url,
        ask: Ask,
        meter: &Meter,
    ) -> Result<(Response<Incoming>, Lease), Error> {
        let origin = self.client.origin(url)?;
        let mut reuse = Reuse::Allowed;
        loop {
            let lease = origin.lease(reuse).await;
            let lease = lease.map_err(|failure| failure.into_error(&self.name, ask.range))?;
            let was_used = lease.used();
            match self.first_byte(lease, url, ask, meter).await? {
                Ok(reply) => return Ok(reply),
                Err(failure) if was_used && reuse == Reuse::Allowed => {
                    tracing::debug!(object = self.name, error = %failure.error, "stale connection");
                    if failure.sent {
                        meter.add_retry();
                    }
                    reuse = Reuse::Refused;
                }
                Err(failure) => {
                    return Err(Error::Interrupted {
                        object: self.name.clone(),
                        range: ask.range,
                        received_bytes: 0,
                        source: Some(Box::new(failure.error)),
                    });
                }
            }
        }
    }

    /// Waits for the head as long as the connection is not silent for the first-byte limit. The
    /// outer error is final for this attempt.
    async fn first_byte(
        &self,
        mut lease: Lease,
        url: &Url,
        ask: Ask,
        meter: &Meter,
    ) -> Result<Result<(Response<Incoming>, Lease), SendFailure>, Error> {
        let request = self.request(&lease, url, ask)?;
        let limit = self.client.config().first_byte_timeout;
        let sent_at = Instant::now();
        let mut counted = RequestSent { meter, sent: true };
        let outcome = {
            let (mut sending, progress) = lease.start(request);
            loop {
                let silent_since = progress.last().max(sent_at);
                tokio::select! {
                    biased;
                    outcome = &mut sending => break Some(outcome),
                    () = tokio::time::sleep_until(silent_since + limit) => {
                        if progress.last() <= silent_since {
                            break None;
                        }
                    }
                }
            }
        };
        match outcome {
            Some(Ok(response)) => {
                lease.replied();
                Ok(Ok((response, lease)))
            }
            Some(Err(failure)) => {
                counted.sent = failure.sent;
                lease.condemn();
                Ok(Err(failure))
            }
            None => {
                lease.condemn();
                let object = self.name.clone();
                Err(Error::Timeout {
                    object,
                    range: ask.range,
                    phase: TimeoutPhase::FirstByte,
                    limit,
                })
            }
        }
    }

    fn request(&self, lease: &Lease, url: &Url, ask: Ask) -> Result<Request<NoBody>, Error> {
        let refused = |error: hyper::http::Error| Error::Url {
            url: redacted(url),
            reason: error.to_string(),
        };
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let mut builder = match lease {
            Lease::Http1 { .. } => {
                let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
                Request::get(path).header(HOST, host)
            }
            // HTTP/2 carries the authority in the request's own fields.
            Lease::Http2 { .. } => {
                Request::get(&url[url::Position::BeforeScheme..url::Position::AfterQuery])
            }
        };
        builder = builder
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(
                RANGE,
                format!("bytes={}-{}", ask.range.start, ask.range.end - 1),
            );
        if let Some(etag) = self.pinned.get().and_then(|version| version.etag.as_ref()) {
            builder = builder.header(IF_MATCH, etag.as_str());
        }
        builder.body(NoBody::new()).map_err(refused)
    }
}

impl Body {
    /// The next piece, never empty; `None` at the end, when the connection has been given back.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        while let Some((incoming, lease)) = &mut self.incoming {
            match incoming.frame().await {
                Some(Ok(frame)) => {
                    lease.progress().touch();
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    if data.is_empty() {
                        continue;
                    }
                    self.meter.add_received(data.len() as u64);
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

    /// Ends a reply that is no content. The short text of a redirect or an error is read, so that
    /// its connection can be kept; a body that is long, or of a 416 (one server declares the whole
    /// object's length there and sends less), or of a refused 200 or 206, is not.
    async fn discard(mut self, status: StatusCode) {
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
        } else if short && !status.is_success() && status != StatusCode::RANGE_NOT_SATISFIABLE {
            let rest = async { while matches!(self.next().await, Ok(Some(_))) {} };
            // Whoever is slower loses its connection, nothing else.
            let _ = tokio::time::timeout(PATIENCE, rest).await;
        }
    }
}

/// Counts the request when it is over, however it ends, unless it was provably never sent.
struct RequestSent<'a> {
    meter: &'a Meter,
    sent: bool,
}

impl Drop for RequestSent<'_> {
    fn drop(&mut self) {
        if self.sent {
            self.meter.add_request();
        }
    }
}
