//! A line of each form, as the server wrote it; times, ports and key ids are made up.

use super::*;

fn reply(range: &str, status: u16, body_bytes: Option<u64>, protocol: &str) -> Reply {
    Reply {
        path: "/a.rows".to_owned(),
        range: range.to_owned(),
        status,
        body_bytes,
        protocol: protocol.to_owned(),
    }
}

#[test]
fn our_words() -> Result<()> {
    assert_eq!(
        one("GET /a.rows bytes=0-9,20-29 206 254 HTTP/1.1", Form::Words)?,
        reply("bytes=0-9,20-29", 206, Some(254), "HTTP/1.1")
    );
    assert_eq!(
        one("GET /a.rows bytes=0-9, 20-29 416 - HTTP/1.1", Form::Words)?,
        reply("bytes=0-9, 20-29", 416, Some(0), "HTTP/1.1"),
        "a range with a blank, a reply without a body"
    );
    assert_eq!(
        one("GET /a.rows - 200 7 HTTP/1.1", Form::Words)?,
        reply("", 200, Some(7), "HTTP/1.1")
    );
    assert!(one("GET /a.rows 200 7", Form::Words).is_err());
    Ok(())
}

#[test]
fn caddy_over_http2() -> Result<()> {
    let line = r#"{"level":"info","ts":1.5,"logger":"http.log.access.log0","msg":"handled request","request":{"proto":"HTTP/2.0","method":"GET","host":"localhost:1","uri":"/a.rows?x=1","headers":{"Range":["bytes=0-9"]}},"size":10,"status":206}"#;
    assert_eq!(
        one(line, Form::Caddy)?,
        reply("bytes=0-9", 206, Some(10), "HTTP/2.0")
    );
    let line =
        r#"{"request":{"proto":"HTTP/1.1","uri":"/a.rows","headers":{}},"size":7,"status":200}"#;
    assert_eq!(one(line, Form::Caddy)?, reply("", 200, Some(7), "HTTP/1.1"));
    Ok(())
}

#[test]
fn fat_origin_serve() -> Result<()> {
    let line = r#"{"time_ms":1,"method":"GET","path":"/a.rows","range":"bytes=0-9","status":206,"body_bytes_sent":10,"protocol":"HTTP/1.1"}"#;
    assert_eq!(
        one(line, Form::FatOrigin)?,
        reply("bytes=0-9", 206, Some(10), "HTTP/1.1")
    );
    Ok(())
}

#[test]
fn python_notes_are_no_replies() {
    assert_eq!(
        python("Serving HTTP on 127.0.0.1 port 1 (http://127.0.0.1:1/) ..."),
        None
    );
    assert_eq!(
        python(r#"127.0.0.1 - - [01/Dec/2026 03:13:52] "GET /a.rows?x=1 HTTP/1.1" 200 -"#),
        Some(reply("", 200, None, "HTTP/1.1"))
    );
}

/// Two requests at once, answered in the other order.
const S3S: &str = r#"
  2026-12-01T00:00:00.1Z DEBUG s3s::service: req: Request { method: GET, uri: /a.rows?X-Amz-Signature=0, version: HTTP/1.1, headers: {"host": "h", "range": "bytes=0-9"}, body: Body {} }
    at s3s-0.14.1/src/service.rs:615
    in s3s::service::call with start_time: 2026-12-01 0:00:00.1 +00:00:00

  2026-12-01T00:00:00.2Z DEBUG s3s::service: req: Request { method: GET, uri: /a.rows, version: HTTP/1.1, headers: {"host": "h"}, body: Body {} }
    at s3s-0.14.1/src/service.rs:615
    in s3s::service::call with start_time: 2026-12-01 0:00:00.2 +00:00:00

  2026-12-01T00:00:00.3Z DEBUG s3s::service: duration: 1ms, resp: Response { status: 403, version: HTTP/1.1, headers: {"content-type": "application/xml"}, body: Body { once: b"<Error/>" } }
    at s3s-0.14.1/src/service.rs:642
    in s3s::service::call with start_time: 2026-12-01 0:00:00.2 +00:00:00

  2026-12-01T00:00:00.4Z DEBUG s3s::service: duration: 2ms, resp: Response { status: 206, version: HTTP/1.1, headers: {"content-length": "10"}, body: Body { dyn_stream: "{..}" } }
    at s3s-0.14.1/src/service.rs:642
    in s3s::service::call with start_time: 2026-12-01 0:00:00.1 +00:00:00
"#;

#[test]
fn s3s_replies_find_their_requests() -> Result<()> {
    assert_eq!(
        s3s(S3S)?,
        [
            reply("", 403, None, "HTTP/1.1"),
            reply("bytes=0-9", 206, Some(10), "HTTP/1.1")
        ]
    );
    Ok(())
}
