//! A small honest origin on hyper for what raw TCP cannot speak: HTTP/2 and TLS. It can hold its
//! replies until a number of requests is in flight at once, which proves a wave without a clock.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use range_testkit::Object;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// The path that answers every range with the whole object.
pub(crate) const WHOLE: &str = "/whole";

/// The tag of an object whose content is where every request is redirected to.
const REDIRECT: &str = "\"redirect\"";

pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    kill: watch::Sender<u64>,
    accepting: tokio::task::AbortHandle,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) http2_requests: AtomicU64,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Origin {
    /// Serves `object` at every path. Each reply waits until the number of requests that have
    /// arrived is a multiple of `wave`.
    pub(crate) async fn start(object: Object, wave: u64, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let state = Arc::new(State {
            object,
            wave,
            arrived: watch::Sender::new(0),
            seen: Arc::clone(&seen),
        });
        let kill = watch::Sender::new(0);
        let killed = kill.subscribe();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                state.seen.connections.fetch_add(1, SeqCst);
                let (state, tls) = (Arc::clone(&state), tls.clone());
                let mut killed = killed.clone();
                killed.mark_unchanged();
                connections.spawn(async move {
                    tokio::select! {
                        () = serve(stream, state, tls) => {}
                        _ = killed.changed() => {}
                    }
                });
            }
        });
        Self {
            address,
            seen,
            kill,
            accepting: accepting.abort_handle(),
        }
    }

    /// Answers everything with a redirect to `location`, over TLS.
    pub(crate) async fn start_redirecting(location: &str, tls: TlsAcceptor) -> Self {
        let redirect = Object::bytes(location.as_bytes());
        Self::start(redirect.with_etag(REDIRECT), 1, Some(tls)).await
    }

    /// Closes every open connection, without a farewell.
    pub(crate) fn kill_connections(&self) {
        self.kill.send_modify(|count| *count += 1);
    }
}

async fn serve(stream: TcpStream, state: Arc<State>, tls: Option<TlsAcceptor>) {
    let service = hyper::service::service_fn(move |request| reply(request, Arc::clone(&state)));
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http2().max_concurrent_streams(256);
    // An error is a client that left or refused us, which is its right.
    let _ = match tls {
        None => server.serve_connection(TokioIo::new(stream), service).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
            Err(_refused) => Ok(()),
        },
    };
}

struct State {
    object: Object,
    wave: u64,
    arrived: watch::Sender<u64>,
    seen: Arc<Seen>,
}

async fn reply(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let number = state.seen.requests.fetch_add(1, SeqCst) + 1;
    if request.version() == Version::HTTP_2 {
        state.seen.http2_requests.fetch_add(1, SeqCst);
    }
    let needed = number.div_ceil(state.wave) * state.wave;
    let mut arrived = state.arrived.subscribe();
    state.arrived.send_modify(|count| *count += 1);
    arrived.wait_for(|count| *count >= needed).await.unwrap();

    if state.object.etag() == Some(REDIRECT) {
        let location = state.object.slice(0, state.object.len_bytes());
        let response = Response::builder().status(302).header("location", location);
        return Ok(response.body(Full::default()).unwrap());
    }
    if request.uri().path() == WHOLE {
        let body = Full::from(state.object.slice(0, state.object.len_bytes()));
        return Ok(Response::new(body));
    }
    let range = request.headers()[hyper::header::RANGE].to_str().unwrap();
    let (first, last) = range
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
    let body = state.object.slice(first, last + 1);
    let response = Response::builder()
        .status(206)
        .header(
            "content-range",
            format!("bytes {first}-{last}/{}", state.object.len_bytes()),
        )
        .header("etag", state.object.etag().unwrap())
        .body(Full::from(body))
        .unwrap();
    Ok(response)
}
