//! HTTP/2 origins that misbehave: GOAWAY, RST_STREAM, REFUSED_STREAM, one stream at a time, stalled
//! bodies, floods of PING. The origin is the h2 crate, which sends the frames it is told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use helix_transport::error::TimeoutPhase;
use helix_transport::{Error, HttpBackend, HttpConfig, RangeSource};
use hyper::http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::setup::{batch, object, quick, range};

#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The stream is reset instead of a reply.
    Reset(Reason),
    /// The stream is reset after that many body bytes.
    ResetBody(Reason, usize),
    /// The stream ends after that many body bytes.
    Short(usize),
    /// The body stops after that many bytes, on an open stream.
    Stall(usize),
    /// No reply.
    Silence,
    /// The connection is ended: what is in flight on it is not answered.
    GoAway,
    /// The connection takes no further streams: what is in flight is answered.
    LastCall,
}

struct Origin {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    accepting: tokio::task::AbortHandle,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The first requests meet these faults, in order of arrival.
async fn start(faults: impl IntoIterator<Item = Fault>, max_streams: u32) -> Origin {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, connections) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let script = Arc::new(Mutex::new(faults.into_iter().collect::<VecDeque<_>>()));
    let (counted, opened) = (Arc::clone(&requests), Arc::clone(&connections));
    let accepting = tokio::spawn(async move {
        let mut running = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            opened.fetch_add(1, SeqCst);
            running.spawn(serve(
                stream,
                Arc::clone(&script),
                Arc::clone(&counted),
                max_streams,
            ));
        }
    });
    Origin {
        address,
        requests,
        connections,
        accepting: accepting.abort_handle(),
    }
}

async fn serve(
    stream: TcpStream,
    script: Arc<Mutex<VecDeque<Fault>>>,
    requests: Arc<AtomicU64>,
    max_streams: u32,
) {
    stream.set_nodelay(true).unwrap();
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(max_streams);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    let mut replies = tokio::task::JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        requests.fetch_add(1, SeqCst);
        let fault = script.lock().unwrap().pop_front().unwrap_or(Fault::None);
        match fault {
            Fault::GoAway => connection.abrupt_shutdown(Reason::NO_ERROR),
            Fault::LastCall => {
                connection.graceful_shutdown();
                replies.spawn(reply(request, respond, Fault::None));
            }
            fault => {
                replies.spawn(reply(request, respond, fault));
            }
        }
    }
}

async fn reply(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>, fault: Fault) {
    let text = request.headers()["range"].to_str().unwrap();
    let (first, last) = text
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
    let object = object();
    let head = Response::builder()
        .status(206)
        .header(
            "content-range",
            format!("bytes {first}-{last}/{}", object.len_bytes()),
        )
        .header("etag", object.etag().unwrap())
        .body(())
        .unwrap();
    let body = Bytes::from(object.slice(first, last + 1));
    // A client that left has a right to.
    let Some(cut) = (match fault {
        Fault::Reset(reason) => {
            respond.send_reset(reason);
            return;
        }
        Fault::Silence => None,
        Fault::ResetBody(_, bytes) | Fault::Stall(bytes) | Fault::Short(bytes) => Some(bytes),
        _ => Some(body.len()),
    }) else {
        std::future::pending::<()>().await;
        return;
    };
    let Ok(mut stream) = respond.send_response(head, false) else {
        return;
    };
    let ends = matches!(fault, Fault::None | Fault::Short(_));
    let _ = stream.send_data(body.slice(..cut), ends);
    match fault {
        Fault::ResetBody(reason, _) => {
            // Behind the data, not in its place.
            tokio::task::yield_now().await;
            stream.send_reset(reason);
        }
        Fault::Stall(_) => std::future::pending().await,
        _ => {}
    }
}

fn backend(address: SocketAddr) -> HttpBackend {
    let config = HttpConfig {
        http2_prior_knowledge: true,
        ..quick()
    };
    HttpBackend::new(&format!("http://{address}/x"), config).unwrap()
}

/// Reads `count` ranges at once, all of which must come out right.
async fn read(backend: &HttpBackend, count: u64) {
    let options = batch();
    let reads = (0..count).map(|n| backend.read(range(n * 90, n * 90 + 90), &options));
    for (n, outcome) in futures::future::join_all(reads)
        .await
        .into_iter()
        .enumerate()
    {
        let start = n as u64 * 90;
        assert_eq!(&outcome.unwrap()[..], object().slice(start, start + 90));
    }
}

#[tokio::test]
async fn streams_that_are_reset_are_asked_again_on_the_same_connection() {
    for fault in [
        Fault::Reset(Reason::REFUSED_STREAM),
        Fault::Reset(Reason::INTERNAL_ERROR),
        Fault::Reset(Reason::CANCEL),
        Fault::Reset(Reason::ENHANCE_YOUR_CALM),
        Fault::ResetBody(Reason::INTERNAL_ERROR, 40),
        Fault::ResetBody(Reason::NO_ERROR, 0),
        Fault::Short(40),
    ] {
        let origin = start([Fault::None, fault, fault], 100).await;
        let backend = backend(origin.address);
        read(&backend, 1).await;
        read(&backend, 20).await;
        assert_eq!(origin.connections.load(SeqCst), 1, "{fault:?}");
        assert_eq!(origin.requests.load(SeqCst), 1 + 20 + 2, "{fault:?}");
    }
}

#[tokio::test]
async fn goaway_in_the_middle_of_a_batch_costs_one_new_connection() {
    for fault in [Fault::GoAway, Fault::LastCall] {
        let faults = [vec![Fault::None; 10], vec![fault]].concat();
        let origin = start(faults, 100).await;
        let backend = backend(origin.address);
        read(&backend, 1).await;
        read(&backend, 40).await;
        // What was in flight at a last call is answered; the next request goes elsewhere.
        read(&backend, 1).await;
        assert_eq!(origin.connections.load(SeqCst), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn one_stream_at_a_time_is_enough() {
    let origin = start([], 1).await;
    let backend = backend(origin.address);
    // Cold: what was sent before the origin's settings came is refused, and asked again.
    read(&backend, 40).await;
    assert_eq!(backend.parallelism(), 1);
    read(&backend, 40).await;
    assert_eq!(origin.connections.load(SeqCst), 1);
}

#[tokio::test]
async fn a_stalled_body_and_a_silent_stream_end_with_their_limits_and_are_asked_again() {
    for fault in [Fault::Stall(0), Fault::Stall(40), Fault::Silence] {
        let origin = start([fault, fault], 100).await;
        read(&backend(origin.address), 1).await;
        assert_eq!(origin.requests.load(SeqCst), 3, "{fault:?}");
    }
}

/// SETTINGS, then PING for ever and never a reply.
#[tokio::test]
async fn a_flood_of_pings_is_no_reply() {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let flood = tokio::spawn(async move {
        let mut running = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            running.spawn(async move {
                let (mut reading, mut writing) = stream.into_split();
                writing.write_all(&SETTINGS).await.unwrap();
                let pings = PING.repeat(100);
                let mut scrap = [0; 4096];
                // Ends when the client has had enough.
                tokio::join!(
                    async { while writing.write_all(&pings).await.is_ok() {} },
                    async {
                        while matches!(reading.read(&mut scrap).await, Ok(read) if read > 0) {}
                    },
                );
            });
        }
    });
    let error = backend(address)
        .read(range(0, 10), &batch())
        .await
        .unwrap_err();
    let last = error.last_attempt();
    assert!(
        matches!(
            last,
            Error::Timeout {
                phase: TimeoutPhase::FirstByte,
                ..
            } | Error::Interrupted { .. }
        ),
        "{last:?}"
    );
    assert_eq!(error.attempts(), 3);
    flood.abort();
}
