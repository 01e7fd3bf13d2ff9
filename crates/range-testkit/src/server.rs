//! [`FaultServer`]: a range server on raw TCP, on loopback, that does what its script says. Single
//! ranges, strong tags, `If-Match`; several ranges where the script says how; no TLS, no HTTP/2.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::{Object, RequestLog, Script, Several};

mod answer;
mod head;
mod reply;
mod request;

pub(crate) use request::RequestHead;

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct FaultServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    objects: Mutex<HashMap<String, Object>>,
    script: Mutex<Script>,
    several: Mutex<Option<Several>>,
    log: RequestLog,
    requests: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
    most_open: AtomicU64,
    heeds_if_match: bool,
}

impl FaultServer {
    /// Serves `object` at `path` by `script`.
    ///
    /// # Errors
    /// If no loopback port can be bound.
    pub async fn start(path: &str, object: Object, script: Script) -> std::io::Result<Self> {
        Self::start_on(LOOPBACK, path, object, script).await
    }

    /// The same server on an address of choice, an IPv6 one for example; port 0 picks a free one.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start_on(
        listen: SocketAddr,
        path: &str,
        object: Object,
        script: Script,
    ) -> std::io::Result<Self> {
        Self::start_with(listen, path, object, script, true).await
    }

    /// The same server, but it ignores `If-Match`, as several real ones do.
    ///
    /// # Errors
    /// If no loopback port can be bound.
    pub async fn start_ignoring_if_match(
        path: &str,
        object: Object,
        script: Script,
    ) -> std::io::Result<Self> {
        Self::start_with(LOOPBACK, path, object, script, false).await
    }

    async fn start_with(
        listen: SocketAddr,
        path: &str,
        object: Object,
        script: Script,
        heeds_if_match: bool,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            objects: Mutex::new(HashMap::from([(path.to_owned(), object)])),
            script: Mutex::new(script),
            several: Mutex::new(None),
            log: RequestLog::default(),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            most_open: AtomicU64::new(0),
            heeds_if_match,
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            address,
            shared,
            accepting,
        })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path that starts with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What was asked.
    #[must_use]
    pub fn log(&self) -> &RequestLog {
        &self.shared.log
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Relaxed)
    }

    /// Most connections open at one time.
    #[must_use]
    pub fn most_open_connections(&self) -> u64 {
        self.shared.most_open.load(Relaxed)
    }

    /// Adds or replaces an object.
    pub fn put(&self, path: &str, object: Object) {
        let mut objects = self
            .shared
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        objects.insert(path.to_owned(), object);
    }

    /// From now on a request for several ranges is answered in this manner where the script says no other; faults of
    /// one range show in its first part, or in the body as a whole.
    pub fn answer_several(&self, manner: Several) {
        *self
            .shared
            .several
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(manner);
    }

    /// Replaces the script; requests keep counting.
    pub fn set_script(&self, script: Script) {
        *self
            .shared
            .script
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = script;
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Connections live in a set of this task, so they end with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _peer)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let number = shared.connections.fetch_add(1, Relaxed);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let open = shared.open.fetch_add(1, Relaxed) + 1;
            shared.most_open.fetch_max(open, Relaxed);
            // An error is the peer going away, which is its right.
            let _ = reply::serve(stream, &shared, number).await;
            shared.open.fetch_sub(1, Relaxed);
        });
    }
}
