//! HTTP/2 by ALPN and by prior knowledge, TLS, limits, shutdown; and this project's own reader against
//! this server, with both sides' counts equal.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fat_origin::Error;
use fat_origin::serve::{ServeOptions, Server, TlsFiles};
use helix_transport::http::{HttpBackend, HttpConfig};
use helix_transport::{ByteRange, Meter, Patience, RangeSource, ReadOptions};

use super::serve::{Site, content};

/// Reads three ranges as a station does; returns the body bytes that the reader counted.
async fn read_three(url: &str, config: HttpConfig) -> u64 {
    let backend = HttpBackend::new(url, config).unwrap();
    let meter = Arc::new(Meter::default());
    let options = ReadOptions::new(Arc::clone(&meter), Patience::Batch);
    let all = content(300_001);
    for (start, end) in [(0, 10), (65_530, 200_000), (300_000, 300_001)] {
        let bytes = backend
            .read(ByteRange::new(start, end).unwrap(), &options)
            .await
            .unwrap();
        assert_eq!(bytes, all[start as usize..end as usize]);
    }
    meter.snapshot().received_bytes
}

fn sent(site: &Site, protocol: &str) -> u64 {
    let log = site.log();
    assert_eq!(log.len(), 3);
    assert!(
        log.iter()
            .all(|line| line["protocol"] == protocol && line["status"] == 206),
        "{log:?}"
    );
    log.iter()
        .map(|line| line["body_bytes_sent"].as_u64().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_cleartext_protocols_serve_the_same_ranges() {
    for (http2, protocol) in [(false, "HTTP/1.1"), (true, "HTTP/2")] {
        let site = Site::start(|_| {}).await;
        let config = HttpConfig {
            http2_prior_knowledge: http2,
            ..HttpConfig::default()
        };
        let received = read_three(&format!("{}/big.bin", site.server.base_url()), config).await;
        assert_eq!(received, 10 + 134_470 + 1);
        assert_eq!(
            sent(&site, protocol),
            received,
            "the reader's count is the server's"
        );
        site.server.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_offers_http2_by_alpn() {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let files = TlsFiles {
        cert: dir.path().join("cert.pem"),
        key: dir.path().join("key.pem"),
    };
    std::fs::write(&files.cert, certified.cert.pem()).unwrap();
    std::fs::write(&files.key, certified.signing_key.serialize_pem()).unwrap();
    let site = Site::start(|options| options.tls = Some(files.clone())).await;
    let url = format!("{}/big.bin", site.server.base_url());
    assert!(url.starts_with("https://127.0.0.1:"));
    let config = HttpConfig {
        extra_roots_pem: certified.cert.pem().into_bytes(),
        ..HttpConfig::default()
    };
    let received = read_three(&url, config).await;
    assert_eq!(sent(&site, "HTTP/2"), received);

    let swapped = TlsFiles {
        cert: files.key.clone(),
        key: files.cert.clone(),
    };
    let refused = Server::start(ServeOptions {
        tls: Some(swapped),
        ..ServeOptions::new(dir.path())
    })
    .await;
    assert!(matches!(refused, Err(Error::Tls { .. })), "{refused:?}");
}

/// Waits for the server to close a connection; returns what it sent and how long it took.
async fn until_closed(mut stream: TcpStream) -> (Vec<u8>, Duration) {
    tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut bytes = Vec::new();
        // A reset is a way to close, too.
        let _ = stream.read_to_end(&mut bytes);
        (bytes, start.elapsed())
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let limit = Duration::from_millis(300);
    let site = Site::start(|options| options.header_read_timeout = limit).await;
    // Nothing at all; a part of the HTTP/2 preface; a part of an HTTP/1.1 head; a request, then none.
    for opening in [
        "",
        "PRI * HT",
        "GET /x.rows HT",
        "GET /x.rows HTTP/1.1\r\nhost: t\r\nrange: bytes=0-9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(site.server.local_addr()).unwrap();
        stream.write_all(opening.as_bytes()).unwrap();
        let (_, waited) = until_closed(stream).await;
        assert!(
            waited < Duration::from_secs(10),
            "{opening:?} was waited for {waited:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let site = Site::start(|options| options.max_connections = 1).await;
    let request =
        b"GET /x.rows HTTP/1.1\r\nhost: t\r\nconnection: close\r\nrange: bytes=0-9\r\n\r\n";
    let first = TcpStream::connect(site.server.local_addr()).unwrap();
    let mut second = TcpStream::connect(site.server.local_addr()).unwrap();
    second.write_all(request).unwrap();
    second
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(second.read(&mut [0; 1]).is_err(), "the only place is taken");
    drop(first);
    let (bytes, _) = until_closed(second).await;
    assert!(
        bytes.starts_with(b"HTTP/1.1 206"),
        "{}",
        String::from_utf8_lossy(&bytes)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_closes_idle_connections_and_the_port() {
    let site = Site::start(|_| {}).await;
    let address = site.server.local_addr();
    let silent = TcpStream::connect(address).unwrap();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.write_all(b"GET /x.rows HTTP/1.1\r\nhost: t\r\nrange: bytes=0-9\r\n\r\n")
        .unwrap();
    let mut head = [0; 12];
    idle.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 206");
    site.server.shutdown().await;
    assert!(until_closed(idle).await.1 < Duration::from_secs(10));
    assert!(until_closed(silent).await.1 < Duration::from_secs(10));
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn what_cannot_be_served_is_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    assert!(matches!(
        Server::start(ServeOptions::new(&file)).await,
        Err(Error::Io { .. })
    ));
    assert!(matches!(
        Server::start(ServeOptions::new(dir.path().join("none"))).await,
        Err(Error::Io { .. })
    ));
    let first = Server::start(ServeOptions::new(dir.path())).await.unwrap();
    let taken = ServeOptions {
        listen: first.local_addr(),
        ..ServeOptions::new(dir.path())
    };
    assert!(matches!(
        Server::start(taken).await,
        Err(Error::Listen { .. })
    ));
}
