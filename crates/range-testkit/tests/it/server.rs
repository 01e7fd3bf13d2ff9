//! The fault server does what its script says, byte for byte; asked over plain sockets.

use range_testkit::{Fault, FaultServer, Object, Script};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn start(script: Script) -> FaultServer {
    let object = Object::bytes((0..100_u8).collect::<Vec<_>>());
    FaultServer::start("/o", object, script).await.unwrap()
}

/// Everything the server sends for one request on a connection of its own.
async fn raw(server: &FaultServer, head: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    // A scripted reset ends it with an error, which is part of the script.
    let _ = stream.read_to_end(&mut all).await;
    match all.windows(4).position(|window| window == b"\r\n\r\n") {
        Some(end) => {
            let body = all.split_off(end + 4);
            (String::from_utf8(all).unwrap(), body)
        }
        None => (String::new(), all),
    }
}

const RANGE: &str = "GET /o?q=1 HTTP/1.1\r\nHost: x\r\nRange: bytes=10-19\r\n\r\n";

#[tokio::test]
async fn an_honest_range() {
    let server = start(Script::honest()).await;
    let (head, body) = raw(&server, RANGE).await;
    assert_eq!(
        head,
        "HTTP/1.1 206 Scripted\r\nContent-Length: 10\r\nContent-Range: bytes 10-19/100\r\n\
         ETag: \"v1\"\r\n\r\n"
    );
    assert_eq!(body, (10..20).collect::<Vec<u8>>());
    let log = server.log().finished(1).await;
    assert_eq!(
        (log[0].method.as_str(), log[0].path.as_str()),
        ("GET", "/o?q=1")
    );
    assert_eq!(
        (log[0].range.as_deref(), log[0].status),
        (Some("bytes=10-19"), Some(206))
    );
    assert_eq!(log[0].body_bytes, 10);
}

#[tokio::test]
async fn each_fault_shows_on_the_wire() {
    let cases: Vec<(Fault, &str, &str, Vec<u8>)> = vec![
        (Fault::HangUp, "", "", vec![]),
        (
            Fault::Truncate {
                after_body_bytes: 3,
            },
            "206",
            "Content-Length: 10",
            vec![10, 11, 12],
        ),
        (
            Fault::ContentLength(99),
            "206",
            "Content-Length: 99",
            (10..20).collect(),
        ),
        (
            Fault::WholeObject,
            "200",
            "Content-Length: 100",
            (0..100).collect(),
        ),
        (
            Fault::Status {
                code: 429,
                retry_after: Some("3".into()),
            },
            "429",
            "Retry-After: 3",
            b"scripted\n".to_vec(),
        ),
        (
            Fault::Etag("W/\"x\"".into()),
            "206",
            "ETag: W/\"x\"",
            (10..20).collect(),
        ),
        (
            Fault::Superset {
                before: 2,
                after: 1,
            },
            "206",
            "Content-Range: bytes 8-20/100",
            (8..21).collect(),
        ),
        (
            Fault::Shift(4),
            "206",
            "Content-Range: bytes 10-19/100",
            (14..24).collect(),
        ),
        (
            Fault::Encoding("gzip".into()),
            "206",
            "Content-Encoding: gzip",
            (10..20).collect(),
        ),
        (
            Fault::ChunkedWithExtra(2),
            "206",
            "Transfer-Encoding: chunked",
            [
                b"c\r\n".to_vec(),
                (10..22).collect(),
                b"\r\n0\r\n\r\n".to_vec(),
            ]
            .concat(),
        ),
        (
            Fault::Redirect("/p".into()),
            "302",
            "Location: /p",
            b"elsewhere\n".to_vec(),
        ),
        (
            Fault::Drip {
                piece_bytes: 4,
                pause: std::time::Duration::from_millis(1),
            },
            "206",
            "Content-Length: 10",
            (10..20).collect(),
        ),
    ];
    for (fault, status, field, expected) in cases {
        let server = start(Script::always(fault.clone())).await;
        let (head, body) = raw(&server, RANGE).await;
        if status.is_empty() {
            assert_eq!(head, "", "{fault:?}");
        } else {
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status} ")),
                "{fault:?}: {head}"
            );
            assert!(
                head.contains(&format!("\r\n{field}\r\n")),
                "{fault:?}: {head}"
            );
        }
        assert_eq!(body, expected, "{fault:?}");
    }
}

#[tokio::test]
async fn stall_holds_the_connection_until_the_peer_leaves() {
    let server = start(Script::always(Fault::Stall {
        after_body_bytes: 4,
    }))
    .await;
    let (_, body) = raw(&server, RANGE).await;
    assert_eq!(body, [10, 11, 12, 13]);
    assert_eq!(server.log().finished(1).await[0].body_bytes, 4);
}

#[tokio::test]
async fn preconditions_and_bounds() {
    let server = start(Script::honest()).await;
    for (fields, status) in [
        ("Range: bytes=100-100", "416"),
        ("Range: bytes=90-200", "206"),
        ("If-Match: \"v2\"\r\nRange: bytes=0-0", "412"),
        ("If-Match: \"v1\"\r\nRange: bytes=0-0", "206"),
        ("X-Nothing: 1", "200"),
    ] {
        let (head, _) = raw(&server, &format!("GET /o HTTP/1.1\r\n{fields}\r\n\r\n")).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{fields}: {head}"
        );
    }
    let (head, _) = raw(&server, "HEAD /o HTTP/1.1\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 405 "));
    let (head, _) = raw(&server, "GET /absent HTTP/1.1\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_pattern_tells_shifted_bytes_apart() {
    let object = Object::pattern(5, 1 << 40);
    assert_eq!(object.len_bytes(), 1 << 40);
    let here = object.slice(1 << 30, (1 << 30) + 64);
    for shift in 1..64 {
        assert_ne!(
            here,
            object.slice((1 << 30) + shift, (1 << 30) + shift + 64)
        );
    }
    assert_eq!(object.byte_at(1 << 40), None);
}

#[tokio::test]
async fn faults_of_the_head_show_on_the_wire() {
    let ms = std::time::Duration::from_millis;
    for (fault, begins, ends) in [
        (
            Fault::TruncateHead {
                after_head_bytes: 8,
            },
            "HTTP/1.1",
            "HTTP/1.1",
        ),
        (
            Fault::Interim {
                code: 103,
                times: 2,
            },
            "HTTP/1.1 103 Interim\r\n",
            "\r\n\r\n\n\u{b}\u{c}\r\u{e}\u{f}\u{10}\u{11}\u{12}\u{13}",
        ),
        (Fault::Http10, "HTTP/1.0 206", "\u{12}\u{13}"),
        (Fault::Garbage, "\u{16}\u{3}\u{1}", "\r\n\r\n"),
        (
            Fault::Fields(vec![("X-A".into(), "b".into())]),
            "HTTP/1.1 206",
            "\u{13}",
        ),
        (
            Fault::SlowHead {
                piece_bytes: 30,
                pause: ms(1),
            },
            "HTTP/1.1 206",
            "\u{13}",
        ),
        (Fault::Delay(ms(1)), "HTTP/1.1 206", "\u{13}"),
        (Fault::Chunked, "HTTP/1.1 206", "\r\n0\r\n\r\n"),
        (
            Fault::Trailers,
            "HTTP/1.1 206",
            "Content-Range: bytes 0-0/1\r\n\r\n",
        ),
        (
            Fault::RequestTimeout,
            "HTTP/1.1 206",
            "Connection: close\r\n\r\n",
        ),
        (
            Fault::All(vec![
                Fault::Chunked,
                Fault::Truncate {
                    after_body_bytes: 2,
                },
            ]),
            "HTTP/1.1 206",
            "\r\n\r\n2\r\n\n\u{b}\r\n",
        ),
    ] {
        let server = start(Script::always(fault.clone())).await;
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(RANGE.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        let text = String::from_utf8_lossy(&all);
        assert!(
            text.starts_with(begins) && text.ends_with(ends),
            "{fault:?}: {text:?}"
        );
        assert_eq!(server.log().finished(1).await[0].fault, fault.name());
    }
}

#[tokio::test]
async fn what_is_taken_out_of_the_log_is_still_counted() {
    let server = start(Script::honest()).await;
    for _ in 0..3 {
        raw(&server, RANGE).await;
    }
    server.log().finished(3).await;
    let taken = server.log().take_finished();
    assert_eq!(
        (
            taken.len(),
            server.log().len(),
            server.log().entries().len()
        ),
        (3, 3, 0)
    );
    assert!(taken[0].arrived_us > 0 && taken.iter().all(|entry| entry.body_bytes == 10));
    raw(&server, RANGE).await;
    server.log().finished(4).await;
    assert_eq!(
        (server.log().len(), server.log().take_finished().len()),
        (4, 1)
    );
}
