//! A batch of 109 rows through a link of 40 ms, in round trips, on warm connections.

use std::time::{Duration, Instant};

use helix_transport::{HttpBackend, HttpConfig, RangeSource};
use range_testkit::{FaultServer, Link, LinkOptions, Object, Script};

use crate::origin::Origin;
use crate::setup::{batch, range};

const RTT: Duration = Duration::from_millis(40);
const ROW_BYTES: u64 = 1792;
const ROWS: u64 = 109;

async fn link_to(upstream: std::net::SocketAddr) -> Link {
    Link::start(LinkOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        upstream,
        rtt: RTT,
        rate_bytes_per_s: None,
    })
    .await
    .unwrap()
}

/// Round trips of a batch, on connections that an earlier one has warmed. Printed, and held from below only: a
/// busy machine makes a batch slower, never faster. How many waves it takes is counted elsewhere, without a clock.
async fn round_trips(backend: &HttpBackend) -> f64 {
    let mut warm = Duration::ZERO;
    for _ in 0..2 {
        let options = batch();
        let started = Instant::now();
        let reads = (0..ROWS).map(|n| {
            let start = n * 7 * ROW_BYTES;
            backend.read(range(start, start + ROW_BYTES), &options)
        });
        let outcomes = futures::future::join_all(reads).await;
        assert!(outcomes.iter().all(Result::is_ok));
        assert_eq!(options.meter.snapshot().requests, ROWS);
        warm = started.elapsed();
    }
    let trips = warm.as_secs_f64() / RTT.as_secs_f64();
    println!("{ROWS} rows in {trips:.2} round trips");
    trips
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_http2_a_batch_shares_one_connection() {
    let origin = Origin::start(Object::pattern(4, 4 << 20), 1, None).await;
    let link = link_to(origin.address).await;
    let url = format!("http://{}/x", link.address());
    let config = HttpConfig {
        http2_prior_knowledge: true,
        ..HttpConfig::default()
    };
    let backend = HttpBackend::new(&url, config).unwrap();
    let trips = round_trips(&backend).await;
    assert!(trips >= 1.0, "{trips} round trips");
    assert_eq!(link.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_http1_a_batch_takes_sixteen_connections_and_no_less_than_seven_trips() {
    let object = Object::pattern(4, 4 << 20);
    let server = FaultServer::start("/x", object, Script::honest())
        .await
        .unwrap();
    let link = link_to(server.address()).await;
    let url = format!("http://{}/x", link.address());
    let backend = HttpBackend::new(&url, HttpConfig::default()).unwrap();
    let trips = round_trips(&backend).await;
    assert!(trips >= 7.0, "{trips} round trips");
    assert_eq!(link.connections(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_thin_link_waiting_in_line_is_not_silence() {
    // 109 rows of 4 kB at 600 kB/s take 0.7 s, more than twice the first-byte limit; each reply
    // comes while the connection is busy with others, so none is asked again.
    let origin = Origin::start(Object::pattern(4, 4 << 20), 1, None).await;
    let link = Link::start(LinkOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        upstream: origin.address,
        rtt: RTT,
        rate_bytes_per_s: Some(600_000),
    })
    .await
    .unwrap();
    let url = format!("http://{}/x", link.address());
    let config = HttpConfig {
        http2_prior_knowledge: true,
        first_byte_timeout: Duration::from_millis(300),
        ..HttpConfig::default()
    };
    let backend = HttpBackend::new(&url, config).unwrap();
    let options = batch();
    let started = Instant::now();
    let reads = (0..ROWS).map(|n| backend.read(range(n * 4000, n * 4000 + 4000), &options));
    let outcomes = futures::future::join_all(reads).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert!(started.elapsed() > Duration::from_millis(700));
    assert_eq!(options.meter.snapshot().retries, 0);
}
