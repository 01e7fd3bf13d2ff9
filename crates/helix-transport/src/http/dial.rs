//! Making one connection: resolution, TCP with happy eyeballs, TLS with ALPN, the HTTP handshake;
//! the whole of it under one clock. Who dials when is decided in `origin`.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::Uri;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper::service::Service;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::TokioExecutor;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::HttpConfig;
use super::connection::{Connection, Driver, Http1, Http2, Progress};
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
    Timeout(Duration),
    Tls(SharedCause),
    Network(SharedCause),
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
            Self::Timeout(limit) => Error::Timeout {
                object,
                range,
                phase: TimeoutPhase::Connect,
                limit,
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
    plain: HttpConnector,
    /// Made when the first `https` origin is met: reading the system's certificates takes
    /// milliseconds that a plain origin need not pay.
    secure: OnceLock<Result<HttpsConnector<HttpConnector>, String>>,
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
        let mut plain = HttpConnector::new();
        plain.set_nodelay(true);
        plain.enforce_http(false);
        Ok(Self {
            config,
            plain,
            secure: OnceLock::new(),
            extra_roots,
        })
    }

    /// A new connection to the origin of `uri`.
    pub(super) async fn dial(&self, uri: &Uri) -> Result<Connection, DialFailure> {
        let limit = self.config.connect_timeout;
        let made = tokio::time::timeout(limit, self.dial_unbounded(uri.clone())).await;
        made.unwrap_or(Err(DialFailure::Timeout(limit)))
    }

    async fn dial_unbounded(&self, uri: Uri) -> Result<Connection, DialFailure> {
        if uri.scheme_str() != Some("https") {
            let connector = TowerToHyperService::new(self.plain.clone());
            let io = connector
                .call(uri)
                .await
                .map_err(|error| DialFailure::from_cause(error.into()))?;
            return handshake(io, self.config.http2_prior_knowledge).await;
        }
        let connector = self.secure.get_or_init(|| self.secure_connector());
        let connector = connector.clone().map_err(DialFailure::Roots)?;
        let io = TowerToHyperService::new(connector)
            .call(uri)
            .await
            .map_err(DialFailure::from_cause)?;
        let http2 = io.connected().is_negotiated_h2();
        handshake(io, http2).await
    }

    fn secure_connector(&self) -> Result<HttpsConnector<HttpConnector>, String> {
        let native = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _unusable) = roots
            .add_parsable_certificates(native.certs.into_iter().chain(self.extra_roots.clone()));
        if added == 0 {
            let reason = native.errors.first().map(ToString::to_string);
            return Err(reason.unwrap_or_else(|| {
                "no root certificate found; SSL_CERT_FILE can name a bundle".to_owned()
            }));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(self.plain.clone()))
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
        _driver: driver,
    }))
}
