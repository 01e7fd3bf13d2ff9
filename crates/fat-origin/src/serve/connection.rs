//! Accepting, telling the protocol, serving and draining connections, each under a limit.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Site;
use super::reply;
use super::stream::{GuardedStream, Protocol};

/// The largest request head. Range lists of 256 ranges fit; nothing else comes near.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Replies in flight on one HTTP/2 connection. A cold batch of a long prompt with its hash paths is
/// a few hundred ranges, and all of them are to fit one round trip.
const MAX_STREAMS: u32 = 1024;

/// What a connection buffers for a peer that reads slowly.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Pause after an accept that failed for want of resources (file descriptors), which pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) header_read: Duration,
    pub(super) write_stall: Duration,
    pub(super) drain: Duration,
}

/// Serves until `stop` is cancelled and the connections are drained.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    site: Arc<Site>,
    limits: Limits,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    loop {
        let taken = tokio::select! {
            () = stop.cancelled() => break,
            taken = take(&listener, &slots) => taken,
        };
        let (stream, slot) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, site, stop, abort) =
            (tls.clone(), Arc::clone(&site), stop.clone(), abort.clone());
        connections.spawn(async move {
            // On the heap: a connection's state, TLS included, is some 16 KiB.
            let connection = Box::pin(serve(stream, tls, site, limits, stop));
            let served = abort.run_until_cancelled(connection).await;
            if let Some(Err(error)) = served {
                tracing::debug!(%error, "connection ended");
            }
            drop(slot);
        });
    }
    drop(listener);
    connections.close();
    if timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "connections cut off after the drain timeout"
        );
        abort.cancel();
        connections.wait().await;
    }
}

/// Waits for a free slot first, so that connections beyond the limit stay in the listen queue.
async fn take(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, slot))
}

async fn serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    site: Arc<Site>,
    limits: Limits,
    stop: CancellationToken,
) -> io::Result<()> {
    let Some(tls) = tls else {
        let mut stream = GuardedStream::new(stream, limits.write_stall);
        // An idle connection that never spoke must not hold up a shutdown.
        let told = stop
            .run_until_cancelled(timeout(limits.header_read, stream.tell_protocol()))
            .await;
        return match told {
            Some(protocol) => drive(stream, protocol??, site, limits, stop).await,
            None => Ok(()),
        };
    };
    let handshake = stop
        .run_until_cancelled(timeout(limits.header_read, tls.accept(stream)))
        .await;
    let Some(handshake) = handshake else {
        return Ok(());
    };
    let stream = handshake??;
    let protocol = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    drive(
        GuardedStream::new(stream, limits.write_stall),
        protocol,
        site,
        limits,
        stop,
    )
    .await
}

/// Speaks HTTP on a stream until the peer is done or `stop` asks to finish what is running.
async fn drive<T>(
    stream: GuardedStream<T>,
    protocol: Protocol,
    site: Arc<Site>,
    limits: Limits,
    stop: CancellationToken,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(reply::answer(site, request).await) }
    });
    // The two connection types share no trait, hence the macro-free repetition.
    match protocol {
        Protocol::Http1 => {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.header_read)
                .max_header_size(MAX_HEAD_BYTES)
                .max_buf_size(SEND_BUFFER_BYTES)
                .serve_connection(io, service);
            let mut connection = pin!(connection);
            tokio::select! {
                done = connection.as_mut() => return done.map_err(io::Error::other),
                () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            connection.await.map_err(io::Error::other)
        }
        Protocol::Http2 => {
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(limits.header_read)
                .keep_alive_timeout(limits.header_read)
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
                .max_send_buf_size(SEND_BUFFER_BYTES)
                .serve_connection(io, service);
            let mut connection = pin!(connection);
            tokio::select! {
                done = connection.as_mut() => return done.map_err(io::Error::other),
                () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            connection.await.map_err(io::Error::other)
        }
    }
}
