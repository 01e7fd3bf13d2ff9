//! How many bytes a head is on the wire. Exact for what we write on HTTP/1.1, and for a reply there
//! as long as its fields have one space after the colon and none at their end. On HTTP/2 an
//! estimate: the field tables of a connection (RFC 7541) are out of reach, so fields that a warm
//! connection has sent before count one byte, and those that change with every range their text.

use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderName, RANGE};
use hyper::http::response;
use hyper::{HeaderMap, Request};

/// Version, spaces, status code and line end of a status line: `HTTP/1.1 206 ` and CRLF.
const STATUS_LINE_BYTES: u64 = 15;
/// `HTTP/1.1`, two spaces and CRLF.
const REQUEST_LINE_BYTES: u64 = 12;
/// `: ` and CRLF.
const FIELD_BYTES: u64 = 4;
const LINE_END_BYTES: u64 = 2;
/// The head of an HTTP/2 frame.
const FRAME_HEAD_BYTES: u64 = 9;
/// A field, or pseudo-field, that the connection's table knows.
const INDEXED_BYTES: u64 = 1;
/// Name by index and the length of the value.
const LITERAL_BYTES: u64 = 2;

/// Bytes of a request's head.
pub(super) fn sent<B>(request: &Request<B>, http2: bool) -> u64 {
    if http2 {
        // Method, scheme, authority and path are four fields more.
        return FRAME_HEAD_BYTES + 4 * INDEXED_BYTES + http2_fields(request.headers());
    }
    let target = request.uri().to_string().len() as u64;
    let method = request.method().as_str().len() as u64;
    method + target + REQUEST_LINE_BYTES + http1_fields(request.headers())
}

/// Bytes of a reply's head.
pub(super) fn received(head: &response::Parts, http2: bool) -> u64 {
    if http2 {
        // The body's frame has a head too, one at least.
        return 2 * FRAME_HEAD_BYTES + INDEXED_BYTES + http2_fields(&head.headers);
    }
    let reason = head
        .extensions
        .get::<hyper::ext::ReasonPhrase>()
        .map(|reason| reason.as_bytes().len())
        .or_else(|| head.status.canonical_reason().map(str::len))
        .unwrap_or(0);
    STATUS_LINE_BYTES + reason as u64 + http1_fields(&head.headers)
}

fn http1_fields(fields: &HeaderMap) -> u64 {
    let bytes = |(name, value): (&HeaderName, &hyper::header::HeaderValue)| {
        (name.as_str().len() + value.len()) as u64 + FIELD_BYTES
    };
    fields.iter().map(bytes).sum::<u64>() + LINE_END_BYTES
}

fn http2_fields(fields: &HeaderMap) -> u64 {
    let bytes = |(name, value): (&HeaderName, &hyper::header::HeaderValue)| {
        if *name == RANGE || *name == CONTENT_RANGE || *name == CONTENT_LENGTH {
            // Huffman codes of digits and of `bytes` have 5 to 7 bits, 6 as a rule.
            LITERAL_BYTES + (value.len() as u64 * 6).div_ceil(8)
        } else {
            INDEXED_BYTES
        }
    };
    fields.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use hyper::Response;

    use super::*;

    #[test]
    fn http1_heads_are_counted_as_written() {
        let request = Request::get("/rows.bin?signature=1")
            .header("host", "example.org:8080")
            .header("range", "bytes=0-9")
            .body(())
            .unwrap();
        let written = "GET /rows.bin?signature=1 HTTP/1.1\r\nhost: example.org:8080\r\n\
                       range: bytes=0-9\r\n\r\n";
        assert_eq!(sent(&request, false), written.len() as u64);

        let head = |reason: Option<&'static [u8]>| {
            let mut response = Response::builder()
                .status(206)
                .header("content-range", "bytes 0-9/100")
                .body(())
                .unwrap();
            let reason = reason.map(hyper::ext::ReasonPhrase::from_static);
            if let Some(reason) = reason {
                response.extensions_mut().insert(reason);
            }
            response.into_parts().0
        };
        let written = "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-9/100\r\n\r\n";
        assert_eq!(received(&head(None), false), written.len() as u64);
        let written = "HTTP/1.1 206 Scripted\r\ncontent-range: bytes 0-9/100\r\n\r\n";
        assert_eq!(
            received(&head(Some(b"Scripted")), false),
            written.len() as u64
        );
    }

    #[test]
    fn http2_heads_shrink_to_what_changes() {
        let request = Request::get("https://example.org/rows.bin")
            .header("user-agent", "x".repeat(500))
            .header("range", "bytes=1000-1999")
            .body(())
            .unwrap();
        // Frame head, four pseudo-fields, the agent's index, and 15 characters of 6 bits.
        assert_eq!(sent(&request, true), 9 + 4 + 1 + 2 + 12);
    }
}
