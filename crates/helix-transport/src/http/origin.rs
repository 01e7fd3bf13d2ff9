//! The connections of one origin: which are open, who gets which, and when a new one is made. At
//! most `connections` on HTTP/1.1, one on HTTP/2. Until the first handshake has said which it is,
//! one caller dials and the others wait: sixteen TLS handshakes for one HTTP/2 connection would be
//! fifteen too many.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response, Uri};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::HttpConfig;
use super::connection::{Connection, Http1, Http2, NoBody, Progress, SendFailure};
use super::dial::{DialFailure, Dialer};
use super::keep_alive;
use super::proxy::{ProxyRefusal, Via};
use crate::error::TimeoutPhase;
use crate::retry::RetryBudget;

/// Longer than every clock of a request by default (connect 5 s, first byte 2 s, stall 5 s): only a
/// connection whose reader does not read is held for so long without a byte from the origin.
const SLOT_QUIET: Duration = Duration::from_secs(30);
/// For hyper to notice that an idle connection is free.
const READY_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Whether a connection that has served before will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    Allowed,
    /// Only one made at or after that moment: a kept connection has just failed and the others may be
    /// as old, or the caller distrusts what came over them.
    Since(Instant),
}

impl Reuse {
    fn admits(self, made_at: Instant) -> bool {
        match self {
            Reuse::Allowed => true,
            Reuse::Since(moment) => made_at >= moment,
        }
    }
}

/// The right to use a connection. Dropping it closes an HTTP/1.1 connection, whose remaining body
/// nobody wants; [`Lease::give_back`] keeps it.
#[derive(Debug)]
pub(super) enum Lease {
    Http1 {
        connection: Http1,
        origin: Arc<Origin>,
        permit: OwnedSemaphorePermit,
    },
    Http2 {
        connection: Arc<Http2>,
        origin: Arc<Origin>,
    },
}

/// One scheme, host and port.
#[derive(Debug)]
pub(super) struct Origin {
    uri: Uri,
    /// Through whom it is reached.
    via: Result<Option<Arc<Via>>, ProxyRefusal>,
    /// When anything last came from it, over whichever connection.
    progress: Progress,
    dialer: Arc<Dialer>,
    config: Arc<HttpConfig>,
    slots: Arc<Semaphore>,
    /// Held while the connection that all wait for is made.
    gate: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    pub(super) budget: RetryBudget,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until a handshake has told.
    protocol: Option<Protocol>,
    idle: Vec<(Http1, Instant)>,
    shared: Option<(Arc<Http2>, Instant)>,
    /// How often dialing under the gate failed, and how it did last.
    failures: u64,
    last_failure: Option<DialFailure>,
}

impl Origin {
    pub(super) fn new(uri: Uri, dialer: Arc<Dialer>, config: Arc<HttpConfig>) -> Self {
        let via = config.proxy.via(&uri).map(|via| via.map(Arc::new));
        let proxied = !matches!(via, Ok(None));
        let protocol = match uri.scheme_str() {
            Some("https") => None,
            _ if config.http2_prior_knowledge && !proxied => Some(Protocol::Http2),
            _ => Some(Protocol::Http1),
        };
        let slots = Arc::new(Semaphore::new(config.connections));
        let state = Mutex::new(State {
            protocol,
            ..State::default()
        });
        let gate = tokio::sync::Mutex::new(());
        Self {
            uri,
            via,
            progress: Progress::new(),
            dialer,
            config,
            slots,
            gate,
            state,
            budget: RetryBudget::full(),
        }
    }

    /// What the origin speaks, once known.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.state().protocol
    }

    /// Streams the origin admits at once on the open HTTP/2 connection.
    pub(super) fn max_streams(&self) -> Option<usize> {
        let state = self.state();
        state
            .shared
            .as_ref()
            .map(|(shared, _)| shared.max_streams.load(Relaxed))
    }

    /// The proxy that is asked in the origin's place: for `http` it sees the request itself.
    pub(super) fn asked_proxy(&self) -> Option<&Via> {
        match &self.via {
            Ok(Some(via)) if self.uri.scheme_str() == Some("http") => Some(via),
            _ => None,
        }
    }

    async fn dial(&self) -> Result<Connection, DialFailure> {
        match &self.via {
            Ok(via) => self.dialer.dial(&self.uri, via.as_ref()).await,
            Err(refusal) => Err(DialFailure::Proxy(*refusal)),
        }
    }

    /// A slot for one HTTP/1.1 connection. The wait may be long, on a thin link with many blocks to
    /// fetch, but not while nothing comes from the origin at all: its connections are then held by
    /// readers who don't read, since every other clock of a request has run out by that time.
    async fn slot(&self) -> Result<OwnedSemaphorePermit, DialFailure> {
        let since = Instant::now();
        let acquired = Arc::clone(&self.slots).acquire_owned();
        tokio::pin!(acquired);
        loop {
            let quiet_since = self.progress.last().max(since);
            tokio::select! {
                biased;
                permit = &mut acquired => {
                    // The semaphore is never closed.
                    return permit.map_err(|_closed| DialFailure::Timeout(TimeoutPhase::Slot, SLOT_QUIET));
                }
                () = tokio::time::sleep_until(quiet_since + SLOT_QUIET) => {
                    if self.progress.last() <= quiet_since {
                        return Err(DialFailure::Timeout(TimeoutPhase::Slot, SLOT_QUIET));
                    }
                }
            }
        }
    }

    /// A connection to send one request on; waits for a slot where all are taken.
    pub(super) async fn lease(self: &Arc<Self>, reuse: Reuse) -> Result<Lease, DialFailure> {
        loop {
            if self.protocol() == Some(Protocol::Http1) {
                if let Some(lease) = self.lease_http1(reuse).await? {
                    return Ok(lease);
                }
            } else if let Some(lease) = self.lease_shared(reuse).await? {
                return Ok(lease);
            }
        }
    }

    /// `None` if the origin has come to speak HTTP/2.
    async fn lease_http1(self: &Arc<Self>, reuse: Reuse) -> Result<Option<Lease>, DialFailure> {
        let permit = self.slot().await?;
        while let Some(mut connection) = self.take_idle(reuse) {
            // Resolves at once, as a rule: the last body was read to its end, or the socket has closed.
            let ready = tokio::time::timeout(READY_LIMIT, connection.sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                let origin = Arc::clone(self);
                return Ok(Some(Lease::Http1 {
                    connection,
                    origin,
                    permit,
                }));
            }
        }
        match self.dial().await? {
            Connection::Http1(connection) => {
                let origin = Arc::clone(self);
                Ok(Some(Lease::Http1 {
                    connection,
                    origin,
                    permit,
                }))
            }
            Connection::Http2(connection) => {
                self.share(connection);
                Ok(None)
            }
        }
    }

    /// `None` if the origin turned out to speak HTTP/1.1.
    async fn lease_shared(self: &Arc<Self>, reuse: Reuse) -> Result<Option<Lease>, DialFailure> {
        let lease = |connection| Lease::Http2 {
            connection,
            origin: Arc::clone(self),
        };
        let failures_before = self.state().failures;
        if let Some(connection) = self.take_shared(reuse) {
            return Ok(Some(lease(connection)));
        }
        let _gate = self.gate.lock().await;
        if let Some(connection) = self.take_shared(reuse) {
            return Ok(Some(lease(connection)));
        }
        {
            let state = self.state();
            if state.protocol == Some(Protocol::Http1) {
                return Ok(None);
            }
            // Who waited for a handshake that failed has waited enough: a hundred callers in a
            // row would each wait for the next one.
            if let Some(failure) = &state.last_failure
                && state.failures > failures_before
            {
                return Err(failure.clone());
            }
        }
        match self.dial().await {
            Ok(Connection::Http2(connection)) => Ok(Some(lease(self.share(connection)))),
            Ok(Connection::Http1(connection)) => {
                let mut state = self.state();
                state.protocol = Some(Protocol::Http1);
                state.idle.push((connection, Instant::now()));
                Ok(None)
            }
            Err(failure) => {
                let mut state = self.state();
                state.failures += 1;
                state.last_failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    fn share(&self, connection: Http2) -> Arc<Http2> {
        let connection = Arc::new(connection);
        let mut state = self.state();
        state.protocol = Some(Protocol::Http2);
        state.shared = Some((Arc::clone(&connection), Instant::now()));
        connection
    }

    fn take_shared(&self, reuse: Reuse) -> Option<Arc<Http2>> {
        let mut state = self.state();
        let (connection, last_used) = state.shared.as_mut()?;
        // Two owners: a request is in flight, so the connection is not idle.
        let idle = Arc::strong_count(connection) == 1;
        let too_old = idle && last_used.elapsed() > self.config.pool_idle;
        if connection.sender.is_closed() || too_old || !reuse.admits(connection.made_at) {
            state.shared = None;
            return None;
        }
        *last_used = Instant::now();
        Some(Arc::clone(connection))
    }

    /// The connection used last that will do: it is the least likely to have been closed.
    fn take_idle(&self, reuse: Reuse) -> Option<Http1> {
        let mut state = self.state();
        let limit = self.config.pool_idle;
        state.idle.retain(|(connection, since)| {
            let keep = connection.keep.map_or(limit, |keep| keep.min(limit));
            since.elapsed() <= keep && !connection.sender.is_closed()
        });
        let found = state
            .idle
            .iter()
            .rposition(|(connection, _)| reuse.admits(connection.made_at))?;
        Some(state.idle.remove(found).0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Whether a reply has come over this connection before.
    pub(super) fn used(&self) -> bool {
        match self {
            Lease::Http1 { connection, .. } => connection.used,
            Lease::Http2 { connection, .. } => connection.used.load(Relaxed),
        }
    }

    /// What to ask for after this connection has failed: on HTTP/1.1 a new one, for the other idle
    /// ones may be as old; on HTTP/2 one that was made later, which all who failed with it share.
    pub(super) fn newer(&self) -> Reuse {
        match self {
            Lease::Http1 { .. } => Reuse::Since(Instant::now()),
            Lease::Http2 { connection, .. } => {
                Reuse::Since(connection.made_at + Duration::from_nanos(1))
            }
        }
    }

    /// Records that the head of a reply has come.
    pub(super) fn replied(&mut self, fields: &HeaderMap) {
        match self {
            Lease::Http1 { connection, .. } => {
                connection.used = true;
                connection.keep = keep_alive::parse(fields);
            }
            Lease::Http2 { connection, .. } => connection.used.store(true, Relaxed),
        }
        self.touch();
    }

    /// Records that something has come.
    pub(super) fn touch(&self) {
        self.progress().touch();
        self.origin().progress.touch();
    }

    pub(super) fn origin(&self) -> &Origin {
        match self {
            Lease::Http1 { origin, .. } | Lease::Http2 { origin, .. } => origin,
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self, Lease::Http2 { .. })
    }

    /// Begins to send; the reply's head is awaited by the caller, who watches the progress.
    pub(super) fn start(
        &mut self,
        request: Request<NoBody>,
    ) -> (
        BoxFuture<'_, Result<Response<Incoming>, SendFailure>>,
        Arc<Progress>,
    ) {
        match self {
            Lease::Http1 { connection, .. } => {
                let progress = Arc::clone(&connection.progress);
                (connection.send(request).boxed(), progress)
            }
            Lease::Http2 { connection, .. } => {
                let progress = Arc::clone(&connection.progress);
                (connection.send(request).boxed(), progress)
            }
        }
    }

    pub(super) fn progress(&self) -> &Progress {
        match self {
            Lease::Http1 { connection, .. } => &connection.progress,
            Lease::Http2 { connection, .. } => &connection.progress,
        }
    }

    /// Returns the connection after a body that was read to its end.
    pub(super) fn give_back(self) {
        match self {
            Lease::Http1 {
                connection,
                origin,
                permit,
            } => {
                {
                    let mut state = origin.state();
                    // Readers who wanted fresh ones can leave more than there are slots.
                    if state.idle.len() >= origin.config.connections {
                        state.idle.remove(0);
                    }
                    state.idle.push((connection, Instant::now()));
                }
                // Only now may the next caller look: it shall find the connection.
                drop(permit);
            }
            Lease::Http2 { connection, origin } => {
                if let Some((shared, last_used)) = &mut origin.state().shared
                    && Arc::ptr_eq(shared, &connection)
                {
                    *last_used = Instant::now();
                }
            }
        }
    }

    /// Takes the connection out of service. On HTTP/1.1 that is what dropping does.
    pub(super) fn condemn(self) {
        if let Lease::Http2 { connection, origin } = self {
            let mut state = origin.state();
            if state
                .shared
                .as_ref()
                .is_some_and(|(shared, _)| Arc::ptr_eq(shared, &connection))
            {
                state.shared = None;
            }
        }
    }
}
