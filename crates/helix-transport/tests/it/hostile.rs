//! HTTP/1.1 servers at the edge of the specification and beyond it: what must be read all the same, and
//! what must end, soon and with a name.

use std::time::Duration;

use futures::StreamExt;
use helix_transport::error::{GaveUp, TimeoutPhase};
use helix_transport::{Error, ErrorKind, HttpBackend, HttpConfig, Patience, RangeSource};
use range_testkit::{Fault, FaultServer, Object, Script};

use crate::setup::{PATH, batch, chain, object, options, quick, range, serve};

fn fields(name: &str, value: &str) -> Fault {
    Fault::Fields(vec![(name.to_owned(), value.to_owned())])
}

#[tokio::test]
async fn what_the_specification_allows_is_read() {
    let cases = [
        (
            "103",
            Fault::Interim {
                code: 103,
                times: 3,
            },
        ),
        (
            "100",
            Fault::Interim {
                code: 100,
                times: 1,
            },
        ),
        (
            "102",
            Fault::Interim {
                code: 102,
                times: 2,
            },
        ),
        ("http/1.0", Fault::Http10),
        ("chunked", Fault::Chunked),
        ("trailers that contradict the head", Fault::Trailers),
        ("connection: close", fields("Connection", "close")),
        ("a server that closes", Fault::CloseWhenIdle),
        ("a server that resets", Fault::ResetWhenIdle),
        ("an unasked 408", Fault::RequestTimeout),
        ("late", Fault::Delay(Duration::from_millis(100))),
        (
            "head in pieces",
            Fault::SlowHead {
                piece_bytes: 20,
                pause: Duration::from_millis(5),
            },
        ),
        (
            "body in pieces",
            Fault::Drip {
                piece_bytes: 10,
                pause: Duration::from_millis(5),
            },
        ),
        (
            "chunked pieces",
            Fault::All(vec![
                Fault::Chunked,
                Fault::Drip {
                    piece_bytes: 7,
                    pause: Duration::from_millis(1),
                },
            ]),
        ),
    ];
    for (name, fault) in cases {
        let (_server, backend) = serve(Script::always(fault)).await;
        let options = batch();
        for n in 0..4 {
            let outcome = backend.read(range(n, n + 100), &options).await;
            let bytes = outcome.unwrap_or_else(|error| panic!("{name}: {}", chain(&error)));
            assert_eq!(&bytes[..], object().slice(n, n + 100), "{name}");
        }
    }
}

#[tokio::test]
async fn an_idle_connection_is_kept_as_long_as_the_server_says() {
    for (field, connections) in [
        (("Keep-Alive", "timeout=60, max=100"), 1),
        // Less than the margin: by the time of the next request it may be gone.
        (("Keep-Alive", "timeout=1"), 3),
        (("Keep-Alive", "timeout=60, max=0"), 3),
        (("Connection", "close"), 3),
    ] {
        let (server, backend) = serve(Script::always(fields(field.0, field.1))).await;
        for n in 0..3 {
            backend.read(range(n, n + 10), &batch()).await.unwrap();
        }
        assert_eq!(server.connections(), connections, "{field:?}");
        assert_eq!(server.log().len(), 3, "{field:?}");
    }
}

#[tokio::test]
async fn breaking_off_within_the_head_is_ridden_out_wherever_it_is() {
    for after_head_bytes in [0, 1, 8, 9, 12, 17, 40, 80] {
        for fault in [
            Fault::TruncateHead { after_head_bytes },
            Fault::ResetHead { after_head_bytes },
        ] {
            let (server, backend) = serve(Script::list([fault.clone(), fault.clone()])).await;
            let bytes = backend.read(range(50, 150), &batch()).await;
            let bytes = bytes.unwrap_or_else(|error| panic!("{fault:?}: {}", chain(&error)));
            assert_eq!(&bytes[..], object().slice(50, 150), "{fault:?}");
            assert_eq!(server.log().len(), 3, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn breaking_off_within_the_body_is_ridden_out_wherever_it_is() {
    for after_body_bytes in [0, 1, 49, 50, 51, 99, 100] {
        for fault in [
            Fault::Truncate { after_body_bytes },
            Fault::Reset { after_body_bytes },
            Fault::All(vec![Fault::Chunked, Fault::Truncate { after_body_bytes }]),
            Fault::All(vec![Fault::Chunked, Fault::Reset { after_body_bytes }]),
            Fault::All(vec![Fault::Http10, Fault::Truncate { after_body_bytes }]),
        ] {
            let (_server, backend) = serve(Script::list([fault.clone(), fault.clone()])).await;
            let bytes = backend.read(range(50, 150), &batch()).await;
            let bytes = bytes.unwrap_or_else(|error| panic!("{fault:?}: {}", chain(&error)));
            assert_eq!(&bytes[..], object().slice(50, 150), "{fault:?}");
        }
    }
}

#[tokio::test]
async fn what_is_no_http_is_named_and_not_waited_for() {
    let long = "x".repeat(1_000_000);
    for fault in [Fault::Garbage, fields("X-Long", &long)] {
        let (server, backend) = serve(Script::always(fault.clone())).await;
        let options = batch();
        let error = backend.read(range(0, 10), &options).await.unwrap_err();
        assert!(
            matches!(error.last_attempt(), Error::Protocol { .. }),
            "{fault:?}: {error:?}"
        );
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(
            chain(&error).contains("no usable HTTP"),
            "{}",
            chain(&error)
        );
        assert!(server.log().len() <= 3);
        assert_eq!(options.meter.snapshot().received_bytes, 0);
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_ended_by_the_first_byte_limit() {
    let slow = Fault::SlowHead {
        piece_bytes: 1,
        pause: Duration::from_millis(100),
    };
    let flood = Fault::Interim {
        code: 103,
        times: 20_000,
    };
    let after_a_flood = Fault::All(vec![flood, slow.clone()]);
    for fault in [slow, after_a_flood] {
        let (server, backend) = serve(Script::always(fault)).await;
        let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
        let last = error.last_attempt();
        assert!(
            matches!(
                last,
                Error::Timeout {
                    phase: TimeoutPhase::FirstByte,
                    ..
                }
            ),
            "{last:?}"
        );
        assert_eq!((error.attempts(), server.log().len()), (3, 3));
    }
}

/// Fields that would write into a log line or into our next request, if they were taken as they are.
#[tokio::test]
async fn what_a_head_holds_reaches_no_request_and_no_line_of_its_own() {
    for value in [
        "\"v1\"\r\n X-Folded: y",
        "\"v1\"\tX: y",
        "\"v\u{1b}[31m1\"",
        "\"v\u{7f}1\"",
        "\"v\u{e9}1\"",
    ] {
        let fault = Fault::Etag(value.to_owned());
        let (server, backend) = serve(Script::always(fault)).await;
        for n in 0..2 {
            match backend.read(range(n, n + 10), &batch()).await {
                Ok(bytes) => assert_eq!(&bytes[..], object().slice(n, n + 10)),
                Err(error) => {
                    let text = chain(&error);
                    assert!(text.chars().all(|letter| !letter.is_control()), "{text:?}");
                }
            }
        }
        for entry in server.log().entries() {
            assert_eq!(entry.if_match, None, "{value:?}");
        }
    }
}

#[tokio::test]
async fn an_empty_object_is_empty_whatever_text_its_416_carries() {
    let server = FaultServer::start(PATH, Object::bytes(Vec::new()), Script::honest())
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let options = batch();
    for _ in 0..2 {
        let bytes = backend.read_prefix(100, &options).await.unwrap();
        assert!(bytes.is_empty());
        assert_eq!(backend.version().unwrap().len_bytes, 0);
    }
    let log = server.log().finished(1).await;
    assert_eq!(log[0].status, Some(416));
    assert!(log[0].body_bytes > 0, "the refusal has a text");
    assert_eq!(server.connections(), 1);
}

/// A byte now and then passes every limit on silence; the least pace ends it.
#[tokio::test]
async fn a_stream_that_drips_for_ever_is_given_up() {
    let drip = Fault::Drip {
        piece_bytes: 1,
        pause: Duration::from_millis(20),
    };
    let server = FaultServer::start(PATH, object(), Script::always(drip))
        .await
        .unwrap();
    let config = HttpConfig {
        pace_bytes_per_s: 1000,
        pace_window: Duration::from_millis(200),
        ..quick()
    };
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    let options = options(Patience::Stream);
    let mut stream = backend.stream(range(0, 10_000), &options);
    let (mut bytes, mut error) = (Vec::new(), None);
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(found) => error = Some(found),
        }
    }
    // What came before is right, and the three slow windows were three connections.
    assert_eq!(bytes, object().slice(0, bytes.len() as u64));
    let error = error.unwrap();
    assert!(
        matches!(
            error,
            Error::GaveUp {
                reason: GaveUp::Pace,
                attempts: 3,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        matches!(
            error.last_attempt(),
            Error::Timeout {
                phase: TimeoutPhase::Pace,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        (error.kind(), server.log().len()),
        (ErrorKind::Transient, 3)
    );
}

/// Each attempt brings a byte, so none is the third in vain: without the pace it would go on for as
/// many stalls as the range has bytes.
#[tokio::test]
async fn an_origin_that_gives_one_byte_an_attempt_is_given_up() {
    let stall = Fault::Stall {
        after_body_bytes: 1,
    };
    let server = FaultServer::start(PATH, object(), Script::always(stall))
        .await
        .unwrap();
    let config = HttpConfig {
        pace_bytes_per_s: 1000,
        pace_window: Duration::from_millis(300),
        stall_timeout: Duration::from_millis(100),
        ..quick()
    };
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    let outcome = backend
        .read(range(0, 10_000), &options(Patience::Stream))
        .await;
    let error = outcome.unwrap_err();
    assert!(
        matches!(
            error,
            Error::GaveUp {
                reason: GaveUp::Pace,
                ..
            }
        ),
        "{error:?}"
    );
    let requests = server.log().len();
    assert!((6..=10).contains(&requests), "{requests} requests");
}

/// All connections are held by a reader who does not read: who waits for one is told.
#[tokio::test]
async fn a_connection_that_nobody_frees_is_not_waited_for_for_ever() {
    let large = Object::pattern(1, 64 << 20);
    let server = FaultServer::start(PATH, large, Script::honest())
        .await
        .unwrap();
    let config = HttpConfig {
        connections: 1,
        ..quick()
    };
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    let options = options(Patience::Stream);
    let mut held = backend.stream(range(0, 64 << 20), &options);
    held.next().await.unwrap().unwrap();
    tokio::time::pause();
    let error = backend.read(range(0, 10), &options).await.unwrap_err();
    assert!(
        matches!(
            error.last_attempt(),
            Error::Timeout {
                phase: TimeoutPhase::Slot,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        chain(&error).contains("no free connection"),
        "{}",
        chain(&error)
    );
}
