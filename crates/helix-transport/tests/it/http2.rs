//! HTTP/2: one connection, all ranges in flight at once.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures::StreamExt;
use helix_transport::{
    Error, HttpBackend, HttpClient, HttpConfig, Patience, RangeSource, ReadOptions,
};
use range_testkit::Object;

use crate::origin::{Origin, WHOLE};
use crate::setup::{LEN_BYTES, batch, object, options, quick, range};

fn prior_knowledge() -> HttpConfig {
    HttpConfig {
        http2_prior_knowledge: true,
        ..quick()
    }
}

async fn read_109(backend: &HttpBackend, options: &ReadOptions) {
    let reads = (0..109).map(|n| backend.read(range(n * 90, n * 90 + 90), options));
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
async fn a_batch_of_109_is_one_wave_on_a_warm_connection() {
    let origin = Origin::start(object(), 1, None).await;
    let url = format!("http://{}/x", origin.address);
    let backend = HttpBackend::new(&url, prior_knowledge()).unwrap();
    assert!(backend.parallelism() >= 109);
    backend.read(range(0, 1), &batch()).await.unwrap();
    assert_eq!(backend.request_cost_bytes(), 100);
    assert_eq!(origin.seen.connections.load(SeqCst), 1);

    // This one answers only when 109 requests are in flight together.
    let origin = Origin::start(object(), 109, None).await;
    let url = format!("http://{}/x", origin.address);
    let backend = HttpBackend::new(&url, prior_knowledge()).unwrap();
    let options = batch();
    for _ in 0..3 {
        read_109(&backend, &options).await;
    }
    assert_eq!(origin.seen.connections.load(SeqCst), 1);
    assert_eq!(origin.seen.http2_requests.load(SeqCst), 327);
    let meter = options.meter.snapshot();
    assert_eq!(
        (meter.requests, meter.received_bytes, meter.retries),
        (327, 3 * 9810, 0)
    );
    assert!(backend.parallelism() >= 109);
}

#[tokio::test]
async fn a_large_body_streams_through_the_windows() {
    let large = Object::pattern(9, 40 << 20);
    let origin = Origin::start(large.clone(), 1, None).await;
    let url = format!("http://{}/x", origin.address);
    // The origin makes 40 MiB before its head goes out.
    let config = HttpConfig {
        first_byte_timeout: HttpConfig::default().first_byte_timeout * 5,
        ..prior_knowledge()
    };
    let backend = HttpBackend::new(&url, config).unwrap();
    let options = options(Patience::Stream);
    let mut stream = backend.stream(range(5, 40 << 20), &options);
    let mut at = 5;
    while let Some(piece) = stream.next().await {
        let piece = piece.unwrap();
        let end = at + piece.len() as u64;
        assert!(piece == large.slice(at, end), "bytes {at}..{end} differ");
        at = end;
    }
    assert_eq!(at, 40 << 20);
    assert_eq!(options.meter.snapshot().received_bytes, (40 << 20) - 5);
}

#[tokio::test]
async fn a_connection_that_ended_is_replaced_without_an_error() {
    let origin = Origin::start(object(), 1, None).await;
    let url = format!("http://{}/x", origin.address);
    let config = HttpConfig {
        pool_idle: Duration::ZERO,
        ..prior_knowledge()
    };
    let backend = HttpBackend::new(&url, config).unwrap();
    for _ in 0..3 {
        backend.read(range(0, LEN_BYTES), &batch()).await.unwrap();
    }
    assert_eq!(origin.seen.connections.load(SeqCst), 3);
}

#[tokio::test]
async fn a_connection_that_died_is_replaced_by_one_for_the_whole_batch() {
    let origin = Origin::start(object(), 1, None).await;
    let url = format!("http://{}/x", origin.address);
    let backend = HttpBackend::new(&url, prior_knowledge()).unwrap();
    for round in 1..=3 {
        read_109(&backend, &batch()).await;
        assert_eq!(origin.seen.connections.load(SeqCst), round);
        origin.kill_connections();
    }
}

#[tokio::test]
async fn the_whole_object_instead_of_a_range_costs_a_stream_and_not_the_connection() {
    let origin = Origin::start(Object::pattern(9, 8 << 20), 1, None).await;
    let client = HttpClient::new(prior_knowledge()).unwrap();
    let at = |path| {
        HttpBackend::with_client(&format!("http://{}{path}", origin.address), &client).unwrap()
    };
    let options = batch();
    let error = at(WHOLE).read(range(5, 10), &options).await.unwrap_err();
    assert!(matches!(error, Error::RangeIgnored { .. }), "{error}");
    assert_eq!(options.meter.snapshot().received_bytes, 0);
    at("/x").read(range(5, 10), &options).await.unwrap();
    assert_eq!(origin.seen.connections.load(SeqCst), 1);
}

#[tokio::test]
async fn an_origin_that_speaks_no_http2_is_an_error_not_a_hang() {
    let server = range_testkit::FaultServer::start("/x", object(), range_testkit::Script::honest())
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url("/x"), prior_knowledge()).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert_eq!(error.attempts(), 3);
}
