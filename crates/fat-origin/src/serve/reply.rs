//! One request in, one reply out: methods, preconditions, ranges, multipart framing.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderValue, RANGE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use super::Site;
use super::access_log::Record;
use super::body::{Piece, ReplyBody};
use super::conditional::{self, Outcome};
use super::object::{self, NoObject, Object};
use super::range::{self, Asked};

/// Answers a request. Every reply, refusals included, gets one line in the access log.
pub(super) async fn answer<B>(site: Arc<Site>, request: Request<B>) -> Response<ReplyBody> {
    let record = Record::new(site.log.clone(), &request);
    let head = match *request.method() {
        Method::GET => false,
        Method::HEAD => true,
        _ => {
            return refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "GET and HEAD only",
                Head(false),
                record,
            );
        }
    };
    let path = request.uri().path().to_owned();
    let opened = tokio::task::spawn_blocking(move || object::open(&site.root, &path)).await;
    match opened {
        Ok(Ok(object)) => serve(object, request.headers(), Head(head), record),
        Ok(Err(reason)) => {
            let (status, text) = match reason {
                NoObject::BadPath => (StatusCode::BAD_REQUEST, "bad path"),
                NoObject::NotFound => (StatusCode::NOT_FOUND, "no such object"),
                NoObject::Forbidden => (
                    StatusCode::FORBIDDEN,
                    "not readable, or a link that leaves the served directory",
                ),
                NoObject::Unavailable(error) => {
                    tracing::warn!(%error, "an object cannot be opened");
                    (
                        StatusCode::SERVICE_UNAVAILABLE,
                        "the object cannot be opened now",
                    )
                }
            };
            refuse(status, text, Head(head), record)
        }
        Err(error) => {
            tracing::error!(%error, "opening an object ended badly");
            refuse(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error",
                Head(head),
                record,
            )
        }
    }
}

/// Whether the request was HEAD: the same headers, no body.
#[derive(Clone, Copy)]
struct Head(bool);

fn serve(object: Object, headers: &HeaderMap, head: Head, record: Record) -> Response<ReplyBody> {
    let Object {
        file,
        len_bytes,
        etag,
    } = object;
    let outcome = conditional::evaluate(headers, &etag);
    // HEAD has no ranges (RFC 9110, section 14.2).
    let asked = match outcome {
        Outcome::Proceed if !head.0 => asked_ranges(headers, len_bytes),
        _ => Asked::Whole,
    };
    let file = Arc::new(file);
    let part = |range: Range<u64>| Piece::File(Arc::clone(&file), range);
    let mut reply = match (outcome, asked) {
        (Outcome::Failed, _) => refuse(
            StatusCode::PRECONDITION_FAILED,
            "the object has changed",
            head,
            record,
        ),
        (Outcome::NotModified, _) => respond(StatusCode::NOT_MODIFIED, None, [], record),
        (_, Asked::Unsatisfiable) => {
            let mut reply = refuse(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "range not satisfiable",
                head,
                record,
            );
            put(
                reply.headers_mut(),
                CONTENT_RANGE,
                &format!("bytes */{len_bytes}"),
            );
            reply
        }
        (_, Asked::Whole) => {
            let body = (!head.0).then(|| part(0..len_bytes));
            respond(StatusCode::OK, Some(len_bytes), body, record)
        }
        (_, Asked::Parts(parts)) => match parts.as_slice() {
            [only] => {
                let len = only.end - only.start;
                let mut reply = respond(
                    StatusCode::PARTIAL_CONTENT,
                    Some(len),
                    [part(only.clone())],
                    record,
                );
                put(
                    reply.headers_mut(),
                    CONTENT_RANGE,
                    &content_range(only, len_bytes),
                );
                reply
            }
            _ => multipart(&parts, len_bytes, &etag, &part, record),
        },
    };
    let headers = reply.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-transform"));
    put(headers, ETAG, &etag);
    headers
        .entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static(OCTETS));
    reply
}

const OCTETS: &str = "application/octet-stream";

/// Several `Range` lines in one request have no meaning the standard gives; they count as malformed.
fn asked_ranges(headers: &HeaderMap, len_bytes: u64) -> Asked {
    let mut lines = headers.get_all(RANGE).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Asked::Whole,
        (Some(line), None) => line.to_str().map_or(Asked::Unsatisfiable, |text| {
            range::parse(Some(text), len_bytes)
        }),
        (Some(_), Some(_)) => Asked::Unsatisfiable,
    }
}

/// `multipart/byteranges` (RFC 9110, section 14.6), parts in the order asked.
///
/// Beside a row of some hundred bytes a part's head is what a client pays for, so it holds
/// `Content-Range` alone: the standard would rather see the type repeated in every part (40 bytes),
/// but octets have none to tell.
fn multipart(
    parts: &[Range<u64>],
    len_bytes: u64,
    etag: &str,
    part: &dyn Fn(Range<u64>) -> Piece,
    record: Record,
) -> Response<ReplyBody> {
    // 32 bits that depend on tag and ranges: a file cannot have been written around them, and whoever
    // searches a reply for the delimiter meets it by chance once in 2^32 positions behind a `CRLF--`.
    let mut hasher = blake3::Hasher::new();
    hasher.update(etag.as_bytes());
    for range in parts {
        hasher.update(&range.start.to_le_bytes());
        hasher.update(&range.end.to_le_bytes());
    }
    let digest = hasher.finalize().to_hex();
    let boundary = digest.get(..8).unwrap_or_default();

    let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
    let mut total = 0_u64;
    for (index, range) in parts.iter().enumerate() {
        let line_end = if index == 0 { "" } else { "\r\n" };
        let head = format!(
            "{line_end}--{boundary}\r\nContent-Range: {}\r\n\r\n",
            content_range(range, len_bytes)
        );
        total += head.len() as u64 + (range.end - range.start);
        pieces.push(Piece::Memory(Bytes::from(head)));
        pieces.push(part(range.clone()));
    }
    let tail = format!("\r\n--{boundary}--\r\n");
    total += tail.len() as u64;
    pieces.push(Piece::Memory(Bytes::from(tail)));
    let mut reply = respond(StatusCode::PARTIAL_CONTENT, Some(total), pieces, record);
    put(
        reply.headers_mut(),
        CONTENT_TYPE,
        &format!("multipart/byteranges; boundary={boundary}"),
    );
    reply
}

/// A refusal in one line of plain text.
fn refuse(status: StatusCode, text: &str, head: Head, record: Record) -> Response<ReplyBody> {
    let body = Bytes::from(format!("{text}\n"));
    let len = body.len() as u64;
    let piece = (!head.0).then_some(Piece::Memory(body));
    let mut reply = respond(status, Some(len), piece, record);
    let headers = reply.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    reply
}

fn respond(
    status: StatusCode,
    content_length: Option<u64>,
    pieces: impl IntoIterator<Item = Piece>,
    mut record: Record,
) -> Response<ReplyBody> {
    record.set_status(status);
    let mut reply = Response::new(ReplyBody::new(pieces, record));
    *reply.status_mut() = status;
    if let Some(len) = content_length {
        reply
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    reply
}

fn content_range(range: &Range<u64>, len_bytes: u64) -> String {
    format!("bytes {}-{}/{len_bytes}", range.start, range.end - 1)
}

/// Sets a header from text made of ASCII digits, letters and punctuation.
fn put(headers: &mut HeaderMap, name: hyper::header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
