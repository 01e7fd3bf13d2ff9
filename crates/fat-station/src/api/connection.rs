//! Connections under limits: how many there are, how long one may take to ask, and how long they
//! hold up the end. HTTP/1.1 without TLS, for a station behind a proxy or on loopback. What is asked
//! and answered is the router's matter.

use super::error::ApiError;
use super::{BODY_BYTES, router};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest as _};
use axum::http::Request;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Largest head of a request.
const HEAD_BYTES: usize = 16 * 1024;

/// Pause after an accept that failed for want of file descriptors, which pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of the server's connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections at once, at least 1. Where one more comes, the oldest that has not asked for
    /// anything is closed; where all are being answered, it waits.
    pub connections: usize,
    /// Longest time a peer may spend on each of these: a request's head, its body, taking the
    /// answer and asking again.
    pub silence: Duration,
    /// The same once the server ends.
    pub silence_at_end: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            // With the largest body each, a quarter of a gibibyte.
            connections: 128,
            // 2 MiB of body in this time is some 70 kB/s.
            silence: Duration::from_secs(30),
            silence_at_end: Duration::from_secs(1),
        }
    }
}

/// Who has to act next on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The peer: a request is not there, or not whole, or its answer not yet taken.
    Peer,
    /// The station: the request is whole.
    Station,
}

/// A connection as the accept loop sees it.
#[derive(Debug)]
struct Open {
    turn: watch::Receiver<Turn>,
    close: CancellationToken,
}

/// Answers connections of `listener` until `stop` is cancelled and every whole request has its
/// answer. Dropping the future closes all connections.
pub async fn serve_connections(
    listener: TcpListener,
    service: Arc<super::Service>,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let router = router(service);
    let abort = CancellationToken::new();
    let _dropped = abort.clone().drop_guard();
    let tasks = TaskTracker::new();
    let mut open: Vec<Open> = Vec::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = make_room(&mut open, limits.connections) => {}
        }
        let (turn, watched) = watch::channel(Turn::Peer);
        let close = abort.child_token();
        open.push(Open {
            turn: watched.clone(),
            close: close.clone(),
        });
        let (router, stop) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            let connection = Box::pin(serve(stream, router, (turn, watched), limits, stop));
            if let Some(Err(error)) = close.run_until_cancelled(connection).await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Returns when there are fewer than `most` connections: the oldest that waits for its peer gives
/// way at once, those that are being answered only when they are done.
async fn make_room(open: &mut Vec<Open>, most: usize) {
    loop {
        // The sender is gone with the connection.
        open.retain(|connection| connection.turn.has_changed().is_ok());
        if open.len() < most {
            return;
        }
        // Marks what it sees, so that a change after the look ends the wait below.
        let idle = open
            .iter_mut()
            .position(|connection| *connection.turn.borrow_and_update() == Turn::Peer);
        if let Some(idle) = idle {
            open.remove(idle).close.cancel();
            return;
        }
        let changes = open
            .iter_mut()
            .map(|connection| Box::pin(connection.turn.changed()));
        let _ = futures::future::select_all(changes).await;
    }
}

async fn serve(
    stream: TcpStream,
    router: Router,
    (turn, watched): (watch::Sender<Turn>, watch::Receiver<Turn>),
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> Result<(), hyper::Error> {
    let turn = Arc::new(turn);
    let service = service_fn(move |request| answer(router.clone(), Arc::clone(&turn), request));
    let connection = http1::Builder::new()
        // Without a timer hyper's own limit of the head is silently none.
        .timer(TokioTimer::new())
        .header_read_timeout(limits.silence)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return done,
        () = silent(watched.clone(), limits.silence) => return Ok(()),
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        done = connection => done,
        () = silent(watched, limits.silence_at_end) => Ok(()),
    }
}

/// Returns when the peer had the turn for `limit` without anything happening.
async fn silent(mut turn: watch::Receiver<Turn>, limit: Duration) {
    loop {
        let changed = if *turn.borrow_and_update() == Turn::Peer {
            let Ok(changed) = timeout(limit, turn.changed()).await else {
                return;
            };
            changed
        } else {
            turn.changed().await
        };
        if changed.is_err() {
            // The connection is over; its own future says how.
            std::future::pending::<()>().await;
        }
    }
}

/// Gives the turn back to the peer, also when the answer is dropped.
struct PeersTurn(Arc<watch::Sender<Turn>>);

impl Drop for PeersTurn {
    fn drop(&mut self) {
        self.0.send_replace(Turn::Peer);
    }
}

/// Reads the request whole, on the peer's time, and then has it answered.
async fn answer(
    router: Router,
    turn: Arc<watch::Sender<Turn>>,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    // The head is there: the body has a time of its own.
    turn.send_replace(Turn::Peer);
    let _peers_turn = PeersTurn(Arc::clone(&turn));
    let (head, body) = request.into_parts();
    let mut body = Request::new(Body::new(body));
    DefaultBodyLimit::max(BODY_BYTES).apply(&mut body);
    match Bytes::from_request(body, &()).await {
        Ok(bytes) => {
            turn.send_replace(Turn::Station);
            let request = Request::from_parts(head, Body::from(bytes));
            TowerToHyperService::new(router).call(request).await
        }
        Err(rejection) => Ok(ApiError::unread(&rejection).into_response()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Admission, Service};
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;

    const LIVE: &[u8] = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n";
    const HALF_BODY: &[u8] =
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{";

    async fn start(limits: ConnectionLimits) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = Arc::new(Service::new(Admission::new(1), CancellationToken::new()));
        let stop = CancellationToken::new();
        let server = serve_connections(listener, service, limits, stop.clone());
        (address, stop, tokio::spawn(server))
    }

    async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    async fn status(stream: &mut TcpStream) -> String {
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        String::from_utf8(head.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn half_open_connections_beyond_the_limit_do_not_block_others() {
        // Nothing here ends by time.
        let limits = ConnectionLimits {
            connections: 4,
            silence: Duration::from_secs(3_600),
            ..ConnectionLimits::default()
        };
        let (address, ..) = start(limits).await;
        let mut half = Vec::new();
        for bytes in [&LIVE[..9], b"", HALF_BODY].repeat(5) {
            half.push(send(address, bytes).await);
        }
        let mut whole = send(address, LIVE).await;
        assert_eq!(status(&mut whole).await, "HTTP/1.1 200");
        let mut rest = Vec::new();
        // The oldest was closed; how a close with unread bytes shows is the system's choice.
        let _ = half[0].read_to_end(&mut rest).await;
        assert!(rest.is_empty());
    }

    #[tokio::test]
    async fn a_peer_that_never_finishes_asking_is_left() {
        let limits = ConnectionLimits {
            silence: Duration::from_millis(50),
            ..ConnectionLimits::default()
        };
        let (address, ..) = start(limits).await;
        for bytes in [&LIVE[..9], b"", HALF_BODY] {
            let mut stream = send(address, bytes).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        assert_eq!(status(&mut send(address, LIVE).await).await, "HTTP/1.1 200");
    }

    #[tokio::test]
    async fn the_end_does_not_wait_for_requests_that_are_not_whole() {
        let limits = ConnectionLimits {
            silence: Duration::from_secs(3_600),
            silence_at_end: Duration::from_millis(50),
            ..ConnectionLimits::default()
        };
        let (address, stop, server) = start(limits).await;
        let _head = send(address, &LIVE[..9]).await;
        let _body = send(address, HALF_BODY).await;
        let mut idle = send(address, LIVE).await;
        assert_eq!(status(&mut idle).await, "HTTP/1.1 200");
        stop.cancel();
        server.await.unwrap();
    }
}
