//! One reply to one ask: sends the request, follows redirects, repeats at once what met a socket
//! that had closed while idle, and hands back a body only if the head was accepted. Where to ask is
//! kept in `route`; waiting and trying again belong to `retry`; whether the body is whole, to
//! `transfer`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderValue, IF_MATCH, PROXY_AUTHORIZATION, RANGE,
    USER_AGENT,
};
use hyper::{Request, Response};
use tokio::time::Instant;
use url::{Position, Url};

use super::body::Body;
use super::connection::{NoBody, SendFailure};
use super::origin::{Lease, Origin, Protocol, Reuse};
use super::redirect;
use super::response::{Ask, Extent, Head, Verdict};
use super::route::{Place, Route, Since, Start};
use super::{AGENT, HttpClient, head_bytes};
use crate::error::{SignedBy, TimeoutPhase};
use crate::redact::redacted;
use crate::validator::PinnedVersion;
use crate::{ByteRange, Error, ErrorKind, ObjectVersion, ReadOptions};

/// A head must come within that time even while replies to others keep a shared connection busy.
const HEAD_LIMIT: Duration = Duration::from_secs(60);

/// Both heads of one HTTP/1.1 exchange and their TLS records.
const HTTP1_REQUEST_BYTES: u64 = 620;
/// The same on HTTP/2, where repeated fields shrink to an index.
const HTTP2_REQUEST_BYTES: u64 = 100;
/// Requests worth having in flight on HTTP/2; an origin that admits fewer at once says so.
const HTTP2_IN_FLIGHT: usize = 1024;

/// Where one object is fetched from, and as which version.
pub(super) struct Target {
    pub(super) client: HttpClient,
    pub(super) name: String,
    pub(super) url: Url,
    pub(super) pinned: PinnedVersion,
    pub(super) route: Route,
}

impl fmt::Debug for Target {
    /// Without the URL, whose query may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("pinned", &self.pinned)
            .finish_non_exhaustive()
    }
}

/// An accepted reply.
#[derive(Debug)]
pub(super) struct Reply {
    /// What the body holds.
    pub(super) range: ByteRange,
    /// Where the body is multipart: what its head says of the parts.
    pub(super) parts: Option<PartsHead>,
    pub(super) body: Body,
}

/// What the head of a multipart reply says. Whether the parts are of the pinned version is still to
/// be checked, part by part.
#[derive(Debug)]
pub(super) struct PartsHead {
    pub(super) boundary: String,
    /// Its length is each part's to tell.
    pub(super) version: ObjectVersion,
}

impl Target {
    /// Sends `ask` and returns the reply whose head passed every check.
    pub(super) async fn exchange(
        &self,
        ask: Ask<'_>,
        options: &ReadOptions,
        reuse: Reuse,
    ) -> Result<Reply, Error> {
        let mut start = self.route.start();
        // Twice where another request's renewal was refused by the time this one came to use it.
        for _ in 0..2 {
            let error = match Box::pin(self.follow(start.place.clone(), ask, options, reuse)).await
            {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            self.route.forget(&start);
            if !self.is_renewable(&start, &error) {
                return Err(error);
            }
            options.meter.add_retry();
            match Box::pin(self.renew(start, ask, options, reuse)).await {
                Renewal::Done(outcome) => return outcome,
                Renewal::Refused => return Err(error),
                Renewal::StartFrom(newer) => start = newer,
            }
        }
        Box::pin(self.follow(None, ask, options, reuse)).await
    }

    /// The origin of the object's own URL; it answers for the retries, wherever they end.
    pub(super) fn origin(&self) -> Result<Arc<Origin>, Error> {
        self.client.origin(&self.url)
    }

    /// The origin that is asked now: where the redirects ended, as far as they are known.
    fn asked_origin(&self) -> Result<Arc<Origin>, Error> {
        match self.route.start().place {
            Some(place) => self.client.origin(&place.url),
            None => self.origin(),
        }
    }

    /// The name of that origin, for what is known of it.
    pub(super) fn asked_origin_name(&self) -> String {
        let place = self.route.start().place;
        let url = place.as_ref().map_or(&self.url, |place| &place.url);
        url.origin().ascii_serialization()
    }

    /// Requests worth having in flight at once.
    pub(super) fn parallelism(&self) -> usize {
        let Ok(origin) = self.asked_origin() else {
            return 1;
        };
        match origin.protocol() {
            Some(Protocol::Http1) => self.client.config().connections,
            _ => {
                let admitted = origin.max_streams().unwrap_or(HTTP2_IN_FLIGHT);
                admitted.clamp(1, HTTP2_IN_FLIGHT)
            }
        }
    }

    /// What one more request costs.
    pub(super) fn request_cost_bytes(&self) -> u64 {
        match self
            .asked_origin()
            .ok()
            .and_then(|origin| origin.protocol())
        {
            Some(Protocol::Http2) => HTTP2_REQUEST_BYTES,
            _ => HTTP1_REQUEST_BYTES,
        }
    }

    /// Connects where it is not known yet what the origin speaks: until then nobody can tell how
    /// many requests to start. It costs no time, since all would wait for that connection. A failure
    /// is left to those requests, which have attempts and clocks.
    pub(super) async fn settle_protocol(&self, reuse: Reuse) {
        if let Ok(origin) = self.asked_origin()
            && origin.protocol().is_none()
            && let Ok(lease) = origin.lease(reuse).await
        {
            lease.give_back();
        }
    }

    /// A body broke off: the next attempt asks the object's own URL.
    pub(super) fn forget_place(&self) {
        self.route.forget(&self.route.start());
    }

    /// Whether the refusal may be one of a place that has expired, rather than of the object: a
    /// redirect's end, or a URL that was served before.
    fn is_renewable(&self, start: &Start, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Auth => start.place.is_some() || self.pinned.get().is_some(),
            ErrorKind::NotFound => start.place.is_some(),
            _ => false,
        }
    }

    /// Asks the object's own URL again, once for all requests that were refused together.
    async fn renew(
        &self,
        start: Start,
        ask: Ask<'_>,
        options: &ReadOptions,
        reuse: Reuse,
    ) -> Renewal {
        let turn = self.route.turn.lock().await;
        match self.route.since(&start) {
            Since::Answered(newer) => return Renewal::StartFrom(newer),
            Since::Refused => return Renewal::Refused,
            Since::Unanswered => {
                drop(turn);
                return Renewal::Done(self.follow(None, ask, options, reuse).await);
            }
            Since::Nothing => {}
        }
        let outcome = self.follow(None, ask, options, reuse).await;
        match &outcome {
            Ok(_) => self.route.renewed(&start),
            Err(error) => {
                let refused = matches!(error.kind(), ErrorKind::Auth | ErrorKind::NotFound);
                self.route.not_renewed(&start, refused);
            }
        }
        Renewal::Done(outcome)
    }

    /// Asks at `place`, or at the object's own URL, and wherever that leads.
    async fn follow(
        &self,
        place: Option<Place>,
        ask: Ask<'_>,
        options: &ReadOptions,
        reuse: Reuse,
    ) -> Result<Reply, Error> {
        let own = place.is_none();
        let mut place = place.unwrap_or_else(|| Place {
            url: self.url.clone(),
            credentials: true,
        });
        let mut visited = vec![place.url.clone()];
        loop {
            let (response, lease) = self.send(&place, ask, options, reuse).await?;
            if response.status() == 407
                && let Some(via) = lease.origin().asked_proxy()
            {
                return Err(Error::Proxy {
                    object: self.name.clone(),
                    proxy: via.name.clone(),
                    status: 407,
                });
            }
            if let Extent::Several(_, answerer) = ask.extent {
                answerer.is(place.url.origin().ascii_serialization());
            }
            let (parts, incoming) = response.into_parts();
            let head = Head {
                object: &self.name,
                status: parts.status,
                headers: &parts.headers,
                pinned: self.pinned.get(),
            };
            let mut body = Body::new(incoming, lease, &options.meter);
            let (range, version) = match head.judge(ask) {
                Ok(Verdict::Content { range, version }) => (range, version),
                Ok(Verdict::Parts { boundary, version }) => {
                    self.origin()?.budget.reward();
                    self.route.answered((visited.len() > 1).then_some(place));
                    return Ok(Reply {
                        range: ask.range,
                        parts: Some(PartsHead { boundary, version }),
                        body,
                    });
                }
                Ok(Verdict::Empty { version }) => {
                    body.discard(parts.status).await;
                    body = Body::none(&options.meter);
                    (ByteRange { start: 0, end: 0 }, version)
                }
                Ok(Verdict::Redirect { location }) => {
                    body.discard(parts.status).await;
                    let max = self.client.config().max_redirects;
                    let to = redirect::follow(&visited, &location, max);
                    let to = to.map_err(|reason| self.refuse_redirect(reason))?;
                    place = Place {
                        credentials: place.credentials && to.origin() == place.url.origin(),
                        url: to.clone(),
                    };
                    visited.push(to);
                    continue;
                }
                Err(error) => {
                    body.discard(parts.status).await;
                    return Err(signature_refused(error, &place, visited.len() > 1 || !own));
                }
            };
            self.pinned.check(&self.name, ask.range, &version)?;
            self.origin()?.budget.reward();
            self.route.answered((visited.len() > 1).then_some(place));
            let parts = None;
            return Ok(Reply { range, parts, body });
        }
    }

    fn refuse_redirect(&self, reason: String) -> Error {
        Error::Redirect {
            object: self.name.clone(),
            reason,
        }
    }

    /// The head of a reply from `place`, repeated once without a wait if a kept connection failed
    /// before any reply (servers close idle sockets just as we reach for them), or if the origin
    /// says that it has not begun with the request.
    async fn send(
        &self,
        place: &Place,
        ask: Ask<'_>,
        options: &ReadOptions,
        mut reuse: Reuse,
    ) -> Result<(Response<Incoming>, Lease), Error> {
        let origin = self.client.origin(&place.url)?;
        let mut repeated = false;
        loop {
            let asked = Instant::now();
            let lease = origin.lease(reuse).await;
            options.meter.add_connection_wait(asked.elapsed());
            let lease = lease.map_err(|failure| failure.into_error(&self.name, ask.range))?;
            let (was_used, newer) = (lease.used(), lease.newer());
            match self.first_byte(lease, place, ask, options).await? {
                Ok(reply) => return Ok(reply),
                Err(failure) if !repeated && (was_used || failure.unprocessed()) => {
                    tracing::debug!(object = self.name, error = %failure.error, "stale connection");
                    if failure.sent {
                        options.meter.add_retry();
                    }
                    if !failure.is_reset() {
                        reuse = newer;
                    }
                    repeated = true;
                }
                Err(failure) => return Err(self.no_head(failure, ask.range)),
            }
        }
    }

    fn no_head(&self, failure: SendFailure, range: ByteRange) -> Error {
        let object = self.name.clone();
        if failure.error.is_parse() {
            return Error::Protocol {
                object,
                range,
                source: Box::new(failure.error),
            };
        }
        Error::Interrupted {
            object,
            range,
            received_bytes: 0,
            source: Some(Box::new(failure.error)),
        }
    }

    /// Waits for the head as long as the connection is not silent for the first-byte limit. The
    /// outer error is final for this attempt.
    async fn first_byte(
        &self,
        mut lease: Lease,
        place: &Place,
        ask: Ask<'_>,
        options: &ReadOptions,
    ) -> Result<Result<(Response<Incoming>, Lease), SendFailure>, Error> {
        let request = self.request(&lease, place, ask)?;
        let meter = &options.meter;
        let head_sent = head_bytes::sent(&request, lease.is_http2());
        let limit = self.client.config().first_byte_timeout;
        let sent_at = Instant::now();
        let mut counted = RequestSent {
            options,
            head_sent,
            sent: true,
        };
        let outcome = {
            let (mut sending, progress) = lease.start(request);
            loop {
                let silent_since = progress.last().max(sent_at);
                let until = (silent_since + limit).min(sent_at + HEAD_LIMIT.max(limit));
                tokio::select! {
                    biased;
                    outcome = &mut sending => break Some(outcome),
                    () = tokio::time::sleep_until(until) => {
                        if progress.last() <= silent_since || sent_at.elapsed() >= HEAD_LIMIT {
                            break None;
                        }
                    }
                }
            }
        };
        match outcome {
            Some(Ok(response)) => {
                lease.replied(response.headers());
                let (parts, incoming) = response.into_parts();
                meter.add_head_received(head_bytes::received(&parts, lease.is_http2()));
                meter.add_status(parts.status.as_u16());
                Ok(Ok((Response::from_parts(parts, incoming), lease)))
            }
            Some(Err(failure)) => {
                counted.sent = failure.sent;
                // A reset is one stream's; the others on its connection go on.
                if !failure.is_reset() {
                    lease.condemn();
                }
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

    fn request(
        &self,
        lease: &Lease,
        place: &Place,
        ask: Ask<'_>,
    ) -> Result<Request<NoBody>, Error> {
        let url = &place.url;
        let refused = |error: hyper::http::Error| Error::Url {
            url: redacted(url),
            reason: error.to_string(),
        };
        let mut range = HeaderValue::try_from(ask.range_value())
            .map_err(|error| refused(hyper::http::Error::from(error)))?;
        // Never the same twice: in HTTP/2's field table it would only push out what is.
        range.set_sensitive(true);
        let proxy = lease.origin().asked_proxy();
        // HTTP/2 carries the authority in the request's own fields, and a proxy is asked in
        // absolute form (RFC 9112 section 3.2.2).
        let whole = lease.is_http2() || proxy.is_some();
        let mut builder = Request::get(if whole {
            &url[Position::BeforeScheme..Position::AfterQuery]
        } else {
            &url[Position::BeforePath..Position::AfterQuery]
        });
        if !lease.is_http2() {
            builder = builder.header(HOST, &url[Position::BeforeHost..Position::AfterPort]);
        }
        if let Some(authorization) = proxy.and_then(|via| via.authorization.as_ref()) {
            builder = builder.header(PROXY_AUTHORIZATION, authorization);
        }
        let credentials = self.client.config().credentials.as_ref();
        if let Some(authorization) = credentials.and_then(|found| found.for_url(url))
            && place.credentials
        {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        builder = builder
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(RANGE, range);
        if let Some(etag) = self.pinned.get().and_then(|version| version.etag.as_ref()) {
            builder = builder.header(IF_MATCH, etag.as_str());
        }
        builder.body(NoBody::new()).map_err(refused)
    }
}

/// What came of asking the object's own URL again.
enum Renewal {
    Done(Result<Reply, Error>),
    /// Another request did, and was refused as this one was.
    Refused,
    StartFrom(Start),
}

/// A refused signed URL says more than its status does.
fn signature_refused(error: Error, place: &Place, redirected: bool) -> Error {
    match error {
        Error::Status {
            object,
            range,
            status: status @ (400 | 401 | 403),
            ..
        } if redirect::is_signed(&place.url) && (status != 400 || redirected) => Error::Signature {
            object,
            range,
            status,
            signed_by: if redirected {
                SignedBy::Origin
            } else {
                SignedBy::Caller
            },
        },
        error => error,
    }
}

/// Counts the request when it is over, however it ends, unless it was provably never sent.
struct RequestSent<'a> {
    options: &'a ReadOptions,
    head_sent: u64,
    sent: bool,
}

impl Drop for RequestSent<'_> {
    fn drop(&mut self) {
        if self.sent {
            self.options.meter.add_request();
            self.options.meter.add_head_sent(self.head_sent);
        }
    }
}
