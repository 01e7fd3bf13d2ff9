//! The connections of one origin: which are open, who gets which, and when a new one is made. At
//! most `connections` on HTTP/1.1, one on HTTP/2. Until the first handshake has said which it is,
//! one caller dials and the others wait: sixteen TLS handshakes for one HTTP/2 connection would be
//! fifteen too many.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::HttpConfig;
use super::connection::{Connection, Http1, Http2, NoBody, Progress, SendFailure};
use super::dial::{DialFailure, Dialer};
use crate::retry::RetryBudget;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Whether a connection that has served before will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    Allowed,
    /// A kept connection has just failed: the others may be as old.
    Refused,
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
        let protocol = match uri.scheme_str() {
            Some("https") => None,
            _ if config.http2_prior_knowledge => Some(Protocol::Http2),
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

    /// A connection to send one request on; waits for a slot where all are taken.
    pub(super) async fn lease(self: &Arc<Self>, reuse: Reuse) -> Result<Lease, DialFailure> {
        loop {
            if self.protocol() == Some(Protocol::Http1) {
                if let Some(lease) = self.lease_http1(reuse).await? {
                    return Ok(lease);
                }
            } else if let Some(lease) = self.lease_shared().await? {
                return Ok(lease);
            }
        }
    }

    /// `None` if the origin has come to speak HTTP/2.
    async fn lease_http1(self: &Arc<Self>, reuse: Reuse) -> Result<Option<Lease>, DialFailure> {
        // The semaphore is never closed; a closed one would only send us to dial again.
        let Ok(permit) = Arc::clone(&self.slots).acquire_owned().await else {
            return Ok(None);
        };
        while reuse == Reuse::Allowed
            && let Some(mut connection) = self.take_idle()
        {
            // Resolves at once: the last body was read to its end, or the socket has closed.
            if connection.sender.ready().await.is_ok() {
                let origin = Arc::clone(self);
                return Ok(Some(Lease::Http1 {
                    connection,
                    origin,
                    permit,
                }));
            }
        }
        match self.dialer.dial(&self.uri).await? {
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
    async fn lease_shared(self: &Arc<Self>) -> Result<Option<Lease>, DialFailure> {
        let lease = |connection| Lease::Http2 {
            connection,
            origin: Arc::clone(self),
        };
        let failures_before = self.state().failures;
        if let Some(connection) = self.take_shared() {
            return Ok(Some(lease(connection)));
        }
        let _gate = self.gate.lock().await;
        if let Some(connection) = self.take_shared() {
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
        match self.dialer.dial(&self.uri).await {
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

    fn take_shared(&self) -> Option<Arc<Http2>> {
        let mut state = self.state();
        let (connection, last_used) = state.shared.as_mut()?;
        // Two owners: a request is in flight, so the connection is not idle.
        let idle = Arc::strong_count(connection) == 1;
        let too_old = idle && last_used.elapsed() > self.config.pool_idle;
        if connection.sender.is_closed() || too_old {
            state.shared = None;
            return None;
        }
        *last_used = Instant::now();
        Some(Arc::clone(connection))
    }

    /// The connection used last: it is the least likely to have been closed.
    fn take_idle(&self) -> Option<Http1> {
        let mut state = self.state();
        let limit = self.config.pool_idle;
        state.idle.retain(|(connection, since)| {
            since.elapsed() <= limit && !connection.sender.is_closed()
        });
        state.idle.pop().map(|(connection, _)| connection)
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

    /// Records that the head of a reply has come.
    pub(super) fn replied(&mut self) {
        match self {
            Lease::Http1 { connection, .. } => connection.used = true,
            Lease::Http2 { connection, .. } => connection.used.store(true, Relaxed),
        }
        self.progress().touch();
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
                origin.state().idle.push((connection, Instant::now()));
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
