//! [`Link`]: a thin line between two loopback sockets, for every figure about latency and
//! bandwidth (this needs no kernel support such as netem).
//!
//! The model: bytes enter the line at the rate, one token bucket *per direction* shared by all
//! connections, and arrive half a round trip later. The delay is a line, not a pause: any number
//! of bytes are on their way at once, so it costs no throughput. TCP's own handshake would take one
//! round trip before a client may send: the first byte of a connection is held back as long, and
//! the far side is dialed when the handshake's last packet would reach it. Losses, slow start and
//! queues of limited length are not modelled; packet heads are not counted.
//!
//! ```text
//!  client ──► [bucket up] ──► rtt/2 ──► upstream
//!  client ◄── rtt/2 ◄── [bucket down] ◄── upstream
//! ```
//! Accuracy: no delay is ever shorter than asked. Arrival times come from a virtual clock and only
//! the last wait rounds up to the runtime's millisecond, so a round trip is late by 1 to 3 ms on a
//! quiet machine; bytes that waited while the task was late are credited, so the rate is kept.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

mod bucket;
mod pipe;

use bucket::Bucket;
use pipe::{Line, pump};

/// What a link is like.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where connections lead.
    pub upstream: SocketAddr,
    /// Round trip time.
    pub rtt: Duration,
    /// Bytes per second in each direction, all connections together; `None` is no limit.
    pub rate_bytes_per_s: Option<u64>,
}

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    counters: Arc<Counters>,
    accepting: AbortHandle,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
}

impl Link {
    /// Binds and starts to accept.
    ///
    /// # Errors
    /// If the address cannot be bound, or the rate is 0.
    pub async fn start(options: LinkOptions) -> io::Result<Self> {
        if options.rate_bytes_per_s == Some(0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a rate of 0 moves nothing",
            ));
        }
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let counters = Arc::new(Counters::default());
        let accepting = tokio::spawn(accept(listener, options, Arc::clone(&counters)));
        Ok(Self {
            address,
            counters,
            accepting: accepting.abort_handle(),
        })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Relaxed)
    }

    /// Bytes delivered to the upstream so far.
    #[must_use]
    pub fn up_bytes(&self) -> u64 {
        self.counters.up_bytes.load(Relaxed)
    }

    /// Bytes delivered to clients so far.
    #[must_use]
    pub fn down_bytes(&self) -> u64 {
        self.counters.down_bytes.load(Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Connections live in a set of this task, so they end with it.
async fn accept(listener: TcpListener, options: LinkOptions, counters: Arc<Counters>) {
    let up = Arc::new(Bucket::new(options.rate_bytes_per_s));
    let down = Arc::new(Bucket::new(options.rate_bytes_per_s));
    let mut connections = JoinSet::new();
    while let Ok((client, _peer)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        counters.connections.fetch_add(1, Relaxed);
        let (up, down) = (Arc::clone(&up), Arc::clone(&down));
        let counters = Arc::clone(&counters);
        let accepted = Instant::now();
        connections.spawn(async move {
            // An error is one side going away; the other side sees its connection end.
            let _ = connect(client, &options, accepted, &up, &down, &counters).await;
        });
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one connection's surroundings, in one place"
)]
async fn connect(
    client: TcpStream,
    options: &LinkOptions,
    accepted: Instant,
    up: &Bucket,
    down: &Bucket,
    counters: &Counters,
) -> io::Result<()> {
    let one_way = options.rtt / 2;
    // SYN, SYN-ACK, ACK: the client may send after two ways, the far side accepts after three.
    let may_send = accepted + options.rtt;
    client.set_nodelay(true)?;
    let (client_read, client_write) = client.into_split();
    let (connected, upstream_write) = oneshot::channel();
    let upward = Line {
        bucket: up,
        one_way,
        opens: may_send,
        delivered: &counters.up_bytes,
    };
    let downward = Line {
        bucket: down,
        one_way,
        opens: may_send,
        delivered: &counters.down_bytes,
    };
    let dial_and_return = async {
        // Meanwhile the client's first bytes are on their way; they arrive right behind.
        tokio::time::sleep_until(may_send + one_way).await;
        let upstream = TcpStream::connect(options.upstream).await?;
        upstream.set_nodelay(true)?;
        let (upstream_read, upstream_write) = upstream.into_split();
        // Refused only if the other direction has ended, and this one is about to.
        let _ = connected.send(upstream_write);
        pump(
            upstream_read,
            std::future::ready(Ok(client_write)),
            downward,
        )
        .await
    };
    tokio::try_join!(pump(client_read, upstream_write, upward), dial_and_return)?;
    Ok(())
}
