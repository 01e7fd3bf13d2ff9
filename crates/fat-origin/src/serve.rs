//! A static range server for one directory: the embedded origin of the demo and the tests, and good
//! enough to stand behind a cache. Rules are those of RFC 9110 (conditional and range requests).
//!
//! It deliberately has no listing, no compression (a knot is served `identity`, always), no
//! authorization and no write methods.
//!
//! The entity tag is strong and made of device, inode, length, modification and change time of the
//! *opened* file, hashed: a file replaced by rename or rewritten in place gets another tag, and no
//! request ever waits for a digest of gigabytes. Two replicas of one object therefore carry
//! different tags; readers that need more than a version pin have the knot's digests.

mod access_log;
mod body;
mod conditional;
mod connection;
mod object;
mod range;
mod reply;
mod stream;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::Error;
use access_log::AccessLog;

/// How a [`Server`] serves.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The directory whose files are served; nothing outside it is, not through symbolic links
    /// either.
    pub root: PathBuf,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A file that gets one JSON object per reply, appended and flushed line by line.
    pub access_log: Option<PathBuf>,
    /// Certificate and key; without them the server speaks cleartext.
    pub tls: Option<TlsFiles>,
    /// Connections at once; further ones wait in the listen queue. 512: a station takes one on
    /// HTTP/2 and 16 on HTTP/1.1.
    pub max_connections: usize,
    /// The longest wait for a request's head, a TLS handshake or the next request on an idle
    /// connection. 30 s: above the 15 s after which a station drops idle connections itself, so
    /// that the two never race.
    pub header_read_timeout: Duration,
    /// The longest time a client may take no byte of a reply. 60 s.
    pub write_stall_timeout: Duration,
    /// How long running replies may take to end after a shutdown was asked for. 10 s.
    pub drain_timeout: Duration,
}

impl ServeOptions {
    /// The defaults for a directory: loopback, a free port, cleartext, no access log.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            access_log: None,
            tls: None,
            max_connections: 512,
            header_read_timeout: Duration::from_secs(30),
            write_stall_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// PEM files of a TLS server.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain, leaf first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What every connection shares.
#[derive(Debug)]
struct Site {
    root: PathBuf,
    log: Option<Arc<AccessLog>>,
}

/// A running server; it stops when it is dropped, cleanly when it is [shut down](Self::shutdown).
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    scheme: &'static str,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Binds the address and starts to serve. Runs on the current tokio runtime.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory or the access log cannot be opened, [`Error::Tls`] if
    /// certificate and key do not fit, [`Error::Listen`] if the address is taken.
    pub async fn start(options: ServeOptions) -> Result<Self, Error> {
        let root = directory(&options.root)?;
        let log = match &options.access_log {
            Some(path) => Some(Arc::new(AccessLog::open(path)?)),
            None => None,
        };
        let acceptor = match &options.tls {
            Some(files) => Some(TlsAcceptor::from(Arc::new(tls::config(files)?))),
            None => None,
        };
        let listen_error = |source| Error::Listen {
            address: options.listen.to_string(),
            source,
        };
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(listen_error)?;
        let local_addr = listener.local_addr().map_err(listen_error)?;
        let stop = CancellationToken::new();
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let site = Arc::new(Site { root, log });
        let accepting = tokio::spawn(connection::accept(
            listener,
            acceptor,
            site,
            connection::Limits {
                connections: options.max_connections,
                header_read: options.header_read_timeout,
                write_stall: options.write_stall_timeout,
                drain: options.drain_timeout,
            },
            stop.clone(),
        ));
        Ok(Self {
            local_addr,
            scheme,
            stop,
            accepting,
        })
    }

    /// The bound address, with the port that was taken.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// `http://127.0.0.1:PORT`, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}://{}", self.scheme, self.local_addr)
    }

    /// Takes no new connection, lets running replies end within the drain timeout, and returns when
    /// all connections are closed.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.accepting).await {
            tracing::error!(%error, "the accept task ended badly");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The directory by its canonical path, so that escapes through links can be told.
fn directory(root: &Path) -> Result<PathBuf, Error> {
    let canonical = root.canonicalize().map_err(Error::io(root, "open"))?;
    if canonical.is_dir() {
        Ok(canonical)
    } else {
        Err(Error::Io {
            path: root.to_path_buf(),
            action: "serve",
            source: std::io::Error::from(std::io::ErrorKind::NotADirectory),
        })
    }
}
