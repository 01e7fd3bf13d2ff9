//! Making one connection: resolution, TCP with happy eyeballs (RFC 8305), the proxy where there is one,
//! TLS with ALPN, the HTTP handshake; the whole of it under one clock. Who dials when is decided in
//! `origin`.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::Uri;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::Instant;
use tower_service::Service;

use super::HttpConfig;
use super::connection::{Connection, Driver, Http1, Http2, Progress};
use super::names::Names;
use super::proxy::{ProxyRefusal, Via};
use super::roots;
use super::tunnel::{Reach, TunnelError};
use crate::error::{Cause, TimeoutPhase};
use crate::{ByteRange, Error};

/// HTTP/1.1 read buffer, which also bounds a head. An aborted 200 can have filled it.
const HTTP1_BUFFER_BYTES: usize = 64 << 10;
/// HTTP/2 window of one stream: the planner's span cap, and the most an aborted 200 can send.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// HTTP/2 window of the connection: a batch of 109 rows fits without waiting for an update.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const HEADER_LIST_BYTES: u32 = 64 << 10;

/// Why there is no connection. Everyone who waited for it gets a copy.
#[derive(Clone, Debug)]
pub(super) enum DialFailure {
    Timeout(TimeoutPhase, Duration),
    Tls(SharedCause),
    Network(SharedCause),
    /// The proxy's status.
    Refused {
        proxy: String,
        status: u16,
    },
    /// A variable that names no proxy.
    Proxy(ProxyRefusal),
    Roots(String),
}

/// One cause in several errors.
#[derive(Clone, Debug)]
pub(super) struct SharedCause(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for SharedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedCause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl DialFailure {
    fn from_cause(cause: Cause) -> Self {
        if let Some(TunnelError::Refused { proxy, status }) = cause.downcast_ref() {
            return Self::Refused {
                proxy: proxy.clone(),
                status: *status,
            };
        }
        let tls = is_tls(cause.as_ref());
        let shared = SharedCause(Arc::from(cause));
        if tls {
            Self::Tls(shared)
        } else {
            Self::Network(shared)
        }
    }

    pub(super) fn into_error(self, object: &str, range: ByteRange) -> Error {
        let object = object.to_owned();
        match self {
            Self::Timeout(phase, limit) => Error::Timeout {
                object,
                range,
                phase,
                limit,
            },
            Self::Refused { proxy, status } => Error::Proxy {
                object,
                proxy,
                status,
            },
            Self::Proxy(refusal) => Error::Setting {
                setting: refusal.variable,
                reason: refusal.reason.to_owned(),
            },
            Self::Tls(cause) => Error::Tls {
                object,
                source: Box::new(cause),
            },
            Self::Network(cause) => Error::Connect {
                object,
                source: Box::new(cause),
            },
            Self::Roots(reason) => Error::Setting {
                setting: "trust anchors",
                reason,
            },
        }
    }
}

/// Whether rustls refused, rather than the network failed. `io::Error` hides the error it wraps
/// from `source()`, hence the look inside.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let wrapped = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>()
        || wrapped.is_some_and(|inner| is_tls(inner))
        || error.source().is_some_and(is_tls)
}

/// Makes connections to any origin, with one set of trust anchors.
#[derive(Debug)]
pub(super) struct Dialer {
    config: Arc<HttpConfig>,
    plain: HttpConnector<Names>,
    /// Made when TLS is first needed: a plain origin need not pay for it.
    tls: OnceLock<Result<ClientConfig, String>>,
    extra_roots: Vec<CertificateDer<'static>>,
}

impl Dialer {
    pub(super) fn new(config: Arc<HttpConfig>) -> Result<Self, Error> {
        let extra_roots = CertificateDer::pem_slice_iter(&config.extra_roots_pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Error::Setting {
                setting: "extra_roots_pem",
                reason: error.to_string(),
            })?;
        let mut plain = HttpConnector::new_with_resolver(Names::new(&config.addresses));
        plain.set_nodelay(true);
        plain.enforce_http(false);
        Ok(Self {
            config,
            plain,
            tls: OnceLock::new(),
            extra_roots,
        })
    }

    /// A new connection to the origin of `uri`, through `via` where it is given.
    pub(super) async fn dial(
        &self,
        uri: &Uri,
        via: Option<&Arc<Via>>,
    ) -> Result<Connection, DialFailure> {
        let limit = self.config.connect_timeout;
        let made = tokio::time::timeout(limit, self.dial_unbounded(uri.clone(), via)).await;
        made.unwrap_or(Err(DialFailure::Timeout(TimeoutPhase::Connect, limit)))
    }

    async fn dial_unbounded(
        &self,
        uri: Uri,
        via: Option<&Arc<Via>>,
    ) -> Result<Connection, DialFailure> {
        let proxy_tls = match via {
            Some(via) if via.uri.scheme_str() == Some("https") => Some(self.tls()?),
            _ => None,
        };
        let reach = Reach::new(self.plain.clone(), via.cloned(), proxy_tls);
        if uri.scheme_str() != Some("https") {
            let io = reach.connect(uri).await;
            let io = io.map_err(DialFailure::from_cause)?;
            // Upgrading without asking is an agreement with the origin, not with its proxy.
            let http2 = self.config.http2_prior_knowledge && via.is_none();
            return handshake(io, http2).await;
        }
        let mut connector = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls()?)
            .https_only()
            .enable_all_versions()
            .wrap_connector(reach);
        let io = connector.call(uri).await;
        let io = io.map_err(DialFailure::from_cause)?;
        let http2 = io.connected().is_negotiated_h2();
        handshake(io, http2).await
    }

    /// Clones share the cache of TLS sessions.
    fn tls(&self) -> Result<ClientConfig, DialFailure> {
        let made = self
            .tls
            .get_or_init(|| roots::tls_config(&self.extra_roots));
        made.clone().map_err(DialFailure::Roots)
    }
}

async fn handshake<Io>(io: Io, http2: bool) -> Result<Connection, DialFailure>
where
    Io: Read + Write + Unpin + Send + 'static,
{
    let refused = |error: hyper::Error| DialFailure::from_cause(error.into());
    let progress = Arc::new(Progress::new());
    if http2 {
        let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADER_LIST_BYTES)
            .handshake(io)
            .await
            .map_err(refused)?;
        let max_streams = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
        let seen = Arc::clone(&max_streams);
        // Only the driver learns what the origin's settings say, so it passes them on.
        let driver = Driver::spawn(std::future::poll_fn(move |context| {
            let outcome = Pin::new(&mut connection).poll(context);
            seen.store(connection.current_max_send_streams(), Relaxed);
            outcome
        }));
        return Ok(Connection::Http2(Http2 {
            sender,
            progress,
            max_streams,
            used: AtomicBool::new(false),
            made_at: Instant::now(),
            _driver: driver,
        }));
    }
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(HTTP1_BUFFER_BYTES)
        .handshake(io)
        .await
        .map_err(refused)?;
    let driver = Driver::spawn(connection);
    Ok(Connection::Http1(Http1 {
        sender,
        progress,
        used: false,
        made_at: Instant::now(),
        keep: None,
        _driver: driver,
    }))
}
