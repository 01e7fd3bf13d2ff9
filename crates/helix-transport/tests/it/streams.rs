//! Streams: in order, resumed at the next byte, without a byte twice, and without a total clock.

use std::time::Duration;

use futures::StreamExt;
use helix_transport::error::TimeoutPhase;
use helix_transport::{Error, ErrorKind, HttpBackend, Patience, RangeSource, ReadOptions};
use range_testkit::{Fault, FaultServer, Object, Script};

use crate::setup::{LEN_BYTES, PATH, batch, object, options, quick, range, serve};

async fn collect(
    backend: &HttpBackend,
    start: u64,
    end: u64,
    options: &ReadOptions,
) -> (Vec<u8>, Option<Error>) {
    let mut stream = backend.stream(range(start, end), options);
    let (mut bytes, mut error) = (Vec::new(), None);
    while let Some(piece) = stream.next().await {
        assert!(error.is_none(), "nothing follows an error");
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(found) => error = Some(found),
        }
    }
    (bytes, error)
}

#[tokio::test]
async fn a_stream_that_is_cut_again_and_again_has_every_byte_once() {
    let cut = |after_body_bytes| Fault::Truncate { after_body_bytes };
    let faults = [
        cut(1000),
        Fault::Reset {
            after_body_bytes: 0,
        },
        cut(1),
        Fault::Stall {
            after_body_bytes: 2000,
        },
        cut(500),
        Fault::Status {
            code: 503,
            retry_after: None,
        },
        cut(3000),
    ];
    let (server, backend) = serve(Script::list(faults)).await;
    let options = options(Patience::Stream);
    let (bytes, error) = collect(&backend, 100, LEN_BYTES, &options).await;
    assert!(error.is_none(), "{error:?}");
    assert!(bytes == object().slice(100, LEN_BYTES), "bytes differ");
    let log = server.log().finished(8).await;
    let asked: Vec<_> = log
        .iter()
        .map(|entry| entry.range.clone().unwrap())
        .collect();
    assert_eq!(
        asked,
        [100, 1100, 1100, 1101, 3101, 3601, 3601, 6601].map(|at| format!("bytes={at}-9999"))
    );
    assert!(
        log[1..]
            .iter()
            .all(|entry| entry.if_match.as_deref() == Some("\"v1\""))
    );
    let meter = options.meter.snapshot();
    assert_eq!((meter.requests, meter.retries), (8, 7));
    // Nothing was moved twice; the short text of the 503 is the only other body.
    assert_eq!(meter.received_bytes, LEN_BYTES - 100 + 9);
    assert_eq!(meter.received_bytes, server.log().body_bytes());
}

#[tokio::test]
async fn attempts_without_a_byte_are_bounded() {
    let faults = vec![Fault::HangUp; 10];
    let (server, backend) = serve(Script::list(
        [
            vec![Fault::Truncate {
                after_body_bytes: 10,
            }],
            faults,
        ]
        .concat(),
    ))
    .await;
    let (bytes, error) = collect(&backend, 0, 100, &options(Patience::Stream)).await;
    assert_eq!(bytes, object().slice(0, 10));
    let error = error.unwrap();
    assert_eq!((error.attempts(), error.kind()), (3, ErrorKind::Transient));
    assert_eq!(server.log().len(), 3);
}

#[tokio::test]
async fn an_origin_that_ignores_the_resumed_range_gives_no_byte_twice() {
    let faults = [
        Fault::Truncate {
            after_body_bytes: 4000,
        },
        Fault::WholeObject,
        Fault::WholeObject,
    ];
    let (_server, backend) = serve(Script::list(faults)).await;
    let (bytes, error) = collect(&backend, 0, LEN_BYTES, &options(Patience::Stream)).await;
    assert_eq!(bytes, object().slice(0, 4000));
    assert!(
        matches!(error, Some(Error::RangeIgnored { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_object_that_changes_under_a_stream_ends_it() {
    let faults = [Fault::Truncate {
        after_body_bytes: 4000,
    }];
    let server = FaultServer::start_ignoring_if_match(PATH, object(), Script::list(faults))
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let options = options(Patience::Stream);
    let mut stream = backend.stream(range(0, LEN_BYTES), &options);
    let mut bytes = stream.next().await.unwrap().unwrap().to_vec();
    server.put(PATH, Object::pattern(2, LEN_BYTES).with_etag("\"v2\""));
    let mut error = None;
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(found) => error = Some(found),
        }
    }
    assert_eq!(bytes, object().slice(0, 4000));
    assert_eq!(error.unwrap().kind(), ErrorKind::Changed);
}

#[tokio::test]
async fn a_slow_stream_outlasts_the_clock_of_a_batch() {
    let drip = Fault::Drip {
        piece_bytes: 100,
        pause: Duration::from_millis(50),
    };
    let server = FaultServer::start(PATH, object(), Script::always(drip))
        .await
        .unwrap();
    let config = helix_transport::HttpConfig {
        batch_timeout: Duration::from_millis(100),
        ..quick()
    };
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    let (bytes, error) = collect(&backend, 0, 1000, &options(Patience::Stream)).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(bytes, object().slice(0, 1000));
    assert_eq!(server.log().len(), 1);
}

#[tokio::test]
async fn a_stall_is_named() {
    let stall = Fault::Stall {
        after_body_bytes: 0,
    };
    let (_server, backend) = serve(Script::always(stall)).await;
    let (bytes, error) = collect(&backend, 0, 1000, &options(Patience::Stream)).await;
    assert!(bytes.is_empty());
    let error = error.unwrap();
    let last = error.last_attempt();
    assert!(
        matches!(
            last,
            Error::Timeout {
                phase: TimeoutPhase::Stall,
                ..
            }
        ),
        "{last}"
    );
}

#[tokio::test]
async fn a_range_outside_the_object_is_the_streams_only_item() {
    let (server, backend) = serve(Script::honest()).await;
    backend.read(range(0, 1), &batch()).await.unwrap();
    let (bytes, error) = collect(&backend, 0, LEN_BYTES + 1, &options(Patience::Stream)).await;
    assert!(bytes.is_empty());
    assert!(matches!(error, Some(Error::OutsideObject { .. })));
    assert_eq!(server.log().len(), 1);
}

#[tokio::test]
async fn a_dropped_stream_stops_the_transfer() {
    let huge = Object::pattern(1, 1 << 30);
    let server = FaultServer::start(PATH, huge, Script::honest())
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let options = options(Patience::Stream);
    let mut stream = backend.stream(range(0, 1 << 30), &options);
    stream.next().await.unwrap().unwrap();
    drop(stream);
    let sent = server.log().finished(1).await[0].body_bytes;
    assert!(sent < 64 << 20, "{sent} bytes were sent");
}
