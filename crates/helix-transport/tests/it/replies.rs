//! What one reply may be like, seen from the caller: bytes or an error by kind, and what was asked.

use helix_transport::{Error, ErrorKind, HttpBackend, RangeSource, read_whole};
use range_testkit::{Fault, FaultServer, Object, Script};

use crate::setup::{LEN_BYTES, PATH, batch, object, quick, range, serve};

#[tokio::test]
async fn an_honest_origin_gives_exactly_the_range() {
    let (server, backend) = serve(Script::honest()).await;
    let options = batch();
    assert_eq!(backend.version(), None);
    let bytes = backend.read(range(100, 1792), &options).await.unwrap();
    assert_eq!(&bytes[..], object().slice(100, 1792));
    let version = backend.version().unwrap();
    assert_eq!(version.len_bytes, LEN_BYTES);
    assert_eq!(version.etag.unwrap().as_str(), "\"v1\"");

    backend.read(range(0, 1), &options).await.unwrap();
    let log = server.log().finished(2).await;
    assert_eq!(log[0].range.as_deref(), Some("bytes=100-1791"));
    assert_eq!(
        (log[0].method.as_str(), log[0].if_match.as_deref()),
        ("GET", None)
    );
    assert_eq!(log[0].accept_encoding.as_deref(), Some("identity"));
    // Pinned now, so the origin is given the chance to say 412.
    assert_eq!(log[1].if_match.as_deref(), Some("\"v1\""));
    let meter = options.meter.snapshot();
    assert_eq!(
        (meter.requests, meter.received_bytes, meter.retries),
        (2, 1693, 0)
    );
    assert_eq!(meter.received_bytes, server.log().body_bytes());
}

#[tokio::test]
async fn an_empty_range_costs_no_request() {
    let (server, backend) = serve(Script::honest()).await;
    assert_eq!(backend.read(range(7, 7), &batch()).await.unwrap().len(), 0);
    assert_eq!(backend.read_prefix(0, &batch()).await.unwrap().len(), 0);
    assert!(server.log().is_empty());
}

#[tokio::test]
async fn a_range_outside_the_pinned_object_is_refused_before_any_request() {
    let (server, backend) = serve(Script::honest()).await;
    backend.read(range(0, 1), &batch()).await.unwrap();
    let error = backend
        .read(range(9_999, 10_001), &batch())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::OutsideObject {
                len_bytes: LEN_BYTES,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(server.log().len(), 1);
}

#[tokio::test]
async fn lies_are_refused_by_name_and_not_asked_again() {
    type Expect = fn(&Error) -> bool;
    let cases: Vec<(Fault, ErrorKind, Expect)> = vec![
        (Fault::WholeObject, ErrorKind::Unsupported, |e| {
            matches!(
                e,
                Error::RangeIgnored {
                    offered_bytes: Some(LEN_BYTES),
                    ..
                }
            )
        }),
        (
            Fault::Superset {
                before: 0,
                after: 1,
            },
            ErrorKind::Corrupt,
            |e| matches!(e, Error::WrongRange { .. }),
        ),
        (
            Fault::Superset {
                before: 5,
                after: 0,
            },
            ErrorKind::Corrupt,
            |e| matches!(e, Error::WrongRange { .. }),
        ),
        (Fault::ContentLength(101), ErrorKind::Corrupt, |e| {
            matches!(
                e,
                Error::WrongLength {
                    found_bytes: 101,
                    ..
                }
            )
        }),
        (Fault::ContentLength(99), ErrorKind::Corrupt, |e| {
            matches!(
                e,
                Error::WrongLength {
                    found_bytes: 99,
                    ..
                }
            )
        }),
        (Fault::ChunkedWithExtra(1), ErrorKind::Corrupt, |e| {
            matches!(e, Error::WrongLength { .. })
        }),
        (
            Fault::Encoding("gzip".into()),
            ErrorKind::Unsupported,
            |e| matches!(e, Error::Encoded { found, .. } if found == "gzip"),
        ),
        (Fault::ContentRange(None), ErrorKind::Unsupported, |e| {
            matches!(
                e,
                Error::Field {
                    field: "Content-Range",
                    ..
                }
            )
        }),
        (
            Fault::ContentRange(Some("bytes 50-149/*".into())),
            ErrorKind::Unsupported,
            |e| matches!(e, Error::Field { .. }),
        ),
        (
            Fault::Status {
                code: 404,
                retry_after: None,
            },
            ErrorKind::NotFound,
            |e| matches!(e, Error::Status { status: 404, .. }),
        ),
        (
            Fault::Status {
                code: 403,
                retry_after: None,
            },
            ErrorKind::Auth,
            |e| matches!(e, Error::Status { .. }),
        ),
        (
            Fault::Status {
                code: 501,
                retry_after: None,
            },
            ErrorKind::Unsupported,
            |e| matches!(e, Error::Status { .. }),
        ),
        (
            Fault::Status {
                code: 416,
                retry_after: None,
            },
            ErrorKind::Changed,
            |e| matches!(e, Error::Changed { .. }),
        ),
    ];
    for (fault, kind, expect) in cases {
        let (server, backend) = serve(Script::always(fault.clone())).await;
        let error = backend.read(range(50, 150), &batch()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        assert!(expect(&error), "{fault:?}: {error:?}");
        assert_eq!(server.log().len(), 1, "{fault:?}");
        if kind != ErrorKind::Changed {
            assert_eq!(error.attempts(), 1);
        }
    }
}

#[tokio::test]
async fn a_chunked_body_of_the_right_length_is_fine() {
    let (_server, backend) = serve(Script::always(Fault::ChunkedWithExtra(0))).await;
    let bytes = backend.read(range(50, 150), &batch()).await.unwrap();
    assert_eq!(&bytes[..], object().slice(50, 150));
    // The connection survives it.
    backend.read(range(50, 150), &batch()).await.unwrap();
    assert_eq!(_server.connections(), 1);
}

#[tokio::test]
async fn a_change_is_told_from_the_tag_whether_or_not_the_origin_heeds_if_match() {
    for heeds in [true, false] {
        let start = if heeds {
            FaultServer::start(PATH, object(), Script::honest()).await
        } else {
            FaultServer::start_ignoring_if_match(PATH, object(), Script::honest()).await
        };
        let server = start.unwrap();
        let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
        backend.read(range(0, 10), &batch()).await.unwrap();
        server.put(PATH, object().with_etag("\"v2\""));
        let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert!(
            matches!(
                error,
                Error::Changed {
                    fact: "entity tag",
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(server.log().finished(2).await.len(), 2);
    }
}

#[tokio::test]
async fn a_change_is_told_from_the_length_where_there_is_no_tag() {
    let plain = object().without_etag();
    let server = FaultServer::start(PATH, plain, Script::honest())
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    backend.read(range(0, 10), &batch()).await.unwrap();
    assert_eq!(backend.version().unwrap().etag, None);
    server.put(PATH, Object::pattern(1, LEN_BYTES + 1).without_etag());
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert!(
        matches!(error, Error::Changed { fact: "length", .. }),
        "{error}"
    );
    assert!(
        server
            .log()
            .entries()
            .iter()
            .all(|entry| entry.if_match.is_none())
    );
}

#[tokio::test]
async fn a_weak_tag_is_never_sent() {
    let weak = object().with_etag("W/\"v1\"");
    let server = FaultServer::start(PATH, weak, Script::honest())
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    for _ in 0..2 {
        backend.read(range(0, 10), &batch()).await.unwrap();
    }
    assert!(
        server
            .log()
            .entries()
            .iter()
            .all(|entry| entry.if_match.is_none())
    );
}

#[tokio::test]
async fn of_a_batch_in_flight_every_reply_is_checked_against_the_first_accepted() {
    let faults = [
        Fault::None,
        Fault::Etag("\"v2\"".into()),
        Fault::None,
        Fault::None,
    ];
    let (server, backend) = serve(Script::list(faults)).await;
    let options = batch();
    let reads = (0..4).map(|n| backend.read(range(n * 10, n * 10 + 10), &options));
    let outcomes = futures::future::join_all(reads).await;
    // Whichever came first is the version; the other is refused.
    let pinned = backend.version().unwrap().etag.unwrap().as_str().to_owned();
    let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(refused, if pinned == "\"v1\"" { 1 } else { 3 });
    for error in outcomes.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Changed);
    }
    assert_eq!(server.log().len(), 4);
}

#[tokio::test]
async fn a_200_is_taken_where_the_whole_object_was_asked() {
    let (_server, backend) = serve(Script::always(Fault::WholeObject)).await;
    let bytes = backend.read(range(0, LEN_BYTES), &batch()).await.unwrap();
    assert_eq!(&bytes[..], object().slice(0, LEN_BYTES));
}

#[tokio::test]
async fn read_whole_takes_one_request_and_respects_its_limit() {
    let (server, backend) = serve(Script::honest()).await;
    let bytes = read_whole(&backend, 1 << 20, &batch()).await.unwrap();
    assert_eq!(&bytes[..], object().slice(0, LEN_BYTES));
    assert_eq!(server.log().len(), 1);

    let (server, backend) = serve(Script::honest()).await;
    let error = read_whole(&backend, 9_999, &batch()).await.unwrap_err();
    assert!(matches!(
        error,
        Error::TooLarge {
            len_bytes: LEN_BYTES,
            limit_bytes: 9_999,
            ..
        }
    ));
    assert_eq!(server.log().finished(1).await[0].body_bytes, 9_999);
}

#[tokio::test]
async fn an_empty_object_is_read_as_nothing() {
    let server = FaultServer::start(PATH, Object::bytes([]), Script::honest())
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    assert_eq!(read_whole(&backend, 100, &batch()).await.unwrap().len(), 0);
    assert_eq!(backend.version().unwrap().len_bytes, 0);
}

#[tokio::test]
async fn no_text_shows_a_query() {
    for fault in [
        Fault::Status {
            code: 403,
            retry_after: None,
        },
        Fault::WholeObject,
        Fault::HangUp,
        Fault::Redirect("ftp://me:s3cret@elsewhere/x?sig=s3cret".into()),
    ] {
        let server = FaultServer::start(PATH, object(), Script::always(fault))
            .await
            .unwrap();
        let url = format!("{}?X-Amz-Signature=s3cret", server.url(PATH));
        let backend = HttpBackend::new(&url, quick()).unwrap();
        assert_eq!(backend.name(), server.url(PATH));
        let error = backend.read(range(50, 150), &batch()).await.unwrap_err();
        let mut text = format!("{error} {error:?}");
        let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        while let Some(error) = cause {
            text.push_str(&format!("{error} {error:?}"));
            cause = error.source();
        }
        assert!(!text.contains("s3cret"), "{text}");
        // The origin does get it.
        assert!(
            server.log().entries()[0]
                .path
                .ends_with("?X-Amz-Signature=s3cret")
        );
    }
}

#[test]
fn urls_that_cannot_be_read_are_refused_by_name() {
    for (url, text) in [
        (
            "ftp://host/x?sig=1",
            "ftp://host/x: only http and https URLs can be read",
        ),
        (
            "http://me:pw@host/x",
            "http://host/x: credentials in the URL are not sent",
        ),
        ("rows.bin?sig=1", "rows.bin: relative URL without a base"),
    ] {
        let error = HttpBackend::new(url, quick()).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
