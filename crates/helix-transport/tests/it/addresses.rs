//! IPv6 literals, and hosts with several addresses of which some are dead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use helix_transport::{ErrorKind, HttpBackend, HttpConfig, RangeSource};
use range_testkit::{FaultServer, Script};
use tokio::net::{TcpSocket, TcpStream};

use crate::setup::{PATH, batch, object, quick, range};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

async fn serve_on(address: IpAddr) -> FaultServer {
    let listen = SocketAddr::new(address, 0);
    FaultServer::start_on(listen, PATH, object(), Script::honest())
        .await
        .unwrap()
}

fn named(addresses: &[IpAddr]) -> HttpConfig {
    HttpConfig {
        addresses: [("rows.example".to_owned(), addresses.to_vec())].into(),
        ..quick()
    }
}

async fn read_by_name(server: &FaultServer, addresses: &[IpAddr]) {
    let url = format!("http://rows.example:{}{PATH}", server.address().port());
    let backend = HttpBackend::new(&url, named(addresses)).unwrap();
    let bytes = backend.read(range(10, 20), &batch()).await.unwrap();
    assert_eq!(&bytes[..], object().slice(10, 20));
}

#[tokio::test]
async fn an_ipv6_literal_is_reached_and_named_with_its_brackets() {
    let server = serve_on(V6).await;
    let url = server.url(PATH);
    assert!(url.starts_with("http://[::1]:"), "{url}");
    let backend = HttpBackend::new(&url, quick()).unwrap();
    backend.read(range(0, 10), &batch()).await.unwrap();
    let host = format!("[::1]:{}", server.address().port());
    assert_eq!(
        server.log().entries()[0].host.as_deref(),
        Some(host.as_str())
    );
    assert_eq!(backend.name(), url);
}

#[tokio::test]
async fn where_one_family_is_refused_the_other_serves() {
    for (listening, addresses) in [(V4, [V6, V4]), (V6, [V6, V4]), (V6, [V4, V6])] {
        let server = serve_on(listening).await;
        read_by_name(&server, &addresses).await;
    }
}

/// An address that takes no more connections and says nothing: its queue is full.
#[tokio::test]
async fn where_one_family_is_silent_the_other_is_tried_beside_it() {
    let server = serve_on(V4).await;
    let silent = SocketAddr::new(V6, server.address().port());
    let socket = TcpSocket::new_v6().unwrap();
    socket.bind(silent).unwrap();
    let _listener = socket.listen(1).unwrap();
    // Fill the queue until one more finds no room.
    let mut held = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(silent)).await
    {
        held.push(stream);
        assert!(held.len() < 200, "this system's queue does not fill");
    }
    let started = Instant::now();
    read_by_name(&server, &[V6, V4]).await;
    // Within the 5 s of one connect: the second family starts 300 ms behind the first.
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_host_without_a_live_address_is_an_error_that_may_pass() {
    let server = serve_on(V4).await;
    let port = server.address().port();
    drop(server);
    let url = format!("http://rows.example:{port}{PATH}");
    let backend = HttpBackend::new(&url, named(&[V6, V4])).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Transient, 3));
    let backend = HttpBackend::new(&url, named(&[])).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
}
