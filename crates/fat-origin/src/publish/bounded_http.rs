//! The HTTP client under the object store, with limits: a service that never stops answering, or never
//! begins, is refused. Replies are held in memory whole, so none may be longer than what was asked for.
//! It knows nothing of the service's protocol but which requests may take long.

use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt as _;
use hyper::Method;
use hyper::header::RANGE;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

/// Longest reply to a request that asks for no range: a page of 1000 keys of 1024 bytes, which the
/// service may write as three each.
const REPLY_BYTES: u64 = 4 << 20;
/// Longest wait for the beginning of the reply to a request that carries little.
const FIRST_REPLY: Duration = Duration::from_secs(10);
/// A request with a longer body takes as long as its body does.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// Longest silence within a reply.
const SILENCE: Duration = Duration::from_secs(30);

/// A reply that goes on after it should have ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the reply has more than {limit_bytes} bytes: look at the endpoint")]
pub(super) struct ReplyTooLong {
    limit_bytes: u64,
}

/// A reply that does not begin or does not go on.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{what} within {seconds} s")]
struct Silent {
    what: &'static str,
    seconds: u64,
}

impl Silent {
    fn error(what: &'static str, limit: Duration) -> HttpError {
        let seconds = limit.as_secs();
        HttpError::new(HttpErrorKind::Timeout, Self { what, seconds })
    }
}

/// Makes clients with limits.
#[derive(Debug, Default)]
pub(super) struct BoundedConnector;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Bounded {
            inner,
            first_reply: FIRST_REPLY,
        }))
    }
}

#[derive(Debug)]
struct Bounded {
    inner: HttpClient,
    first_reply: Duration,
}

impl HttpService for Bounded {
    // As `async_trait` writes it.
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.exchange(request))
    }
}

impl Bounded {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let limit_bytes = limit_bytes(&request);
        let reply = if may_take_long(&request) {
            self.inner.execute(request).await?
        } else {
            tokio::time::timeout(self.first_reply, self.inner.execute(request))
                .await
                .map_err(|_elapsed| Silent::error("no reply", self.first_reply))??
        };
        let (head, body) = reply.into_parts();
        let mut body = body.bytes_stream();
        let mut whole = Vec::new();
        loop {
            let next = tokio::time::timeout(SILENCE, body.next()).await;
            let Some(bytes) =
                next.map_err(|_elapsed| Silent::error("nothing more of the reply", SILENCE))?
            else {
                break;
            };
            let bytes = bytes?;
            if (whole.len() as u64).saturating_add(bytes.len() as u64) > limit_bytes {
                // Not a kind that is tried again.
                let too_long = ReplyTooLong { limit_bytes };
                return Err(HttpError::new(HttpErrorKind::Unknown, too_long));
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(HttpResponse::from_parts(
            head,
            HttpResponseBody::from(whole),
        ))
    }
}

/// The bytes that a reply may have: the range that was asked for, and room for a refusal beside.
fn limit_bytes(request: &HttpRequest) -> u64 {
    let range = request.headers().get(RANGE);
    let asked = range
        .and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-'))
        .and_then(|(first, last)| Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?)))
        .map_or(0, |(first, last)| {
            last.saturating_sub(first).saturating_add(1)
        });
    asked.max(REPLY_BYTES)
}

/// A part takes as long as the link does; a service that puts parts together may answer when it has.
fn may_take_long(request: &HttpRequest) -> bool {
    let completes = request.method() == Method::POST
        && request
            .uri()
            .query()
            .is_some_and(|query| query.contains("uploadId="));
    completes || request.body().content_length() > SMALL_BODY_BYTES
}

/// Whether `error` is of a reply that went on after it should have ended.
pub(super) fn is_too_long(error: &object_store::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<ReplyTooLong>() {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use object_store::client::HttpRequestBody;

    use super::*;

    fn request(method: Method, uri: &str, range: Option<&str>, body: usize) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::from(vec![0; body]));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        if let Some(range) = range {
            request.headers_mut().insert(RANGE, range.parse().unwrap());
        }
        request
    }

    #[test]
    fn a_reply_may_have_what_was_asked_for() {
        let limit = |range| limit_bytes(&request(Method::GET, "/a", range, 0));
        assert_eq!(limit(None), REPLY_BYTES);
        assert_eq!(limit(Some("bytes=0-15")), REPLY_BYTES, "or a refusal");
        assert_eq!(limit(Some("bytes=10-8388617")), 8 << 20);
        assert_eq!(limit(Some("bytes=10-")), REPLY_BYTES);
    }

    #[test]
    fn only_parts_and_their_putting_together_may_take_long() {
        for (long, method, uri, body) in [
            (false, Method::GET, "/a?list-type=2", 0),
            (false, Method::POST, "/a?uploads", 0),
            (false, Method::PUT, "/manifest.json", 900),
            (true, Method::PUT, "/a?partNumber=1&uploadId=u", 8 << 20),
            (true, Method::POST, "/a?uploadId=u", 900),
            (false, Method::DELETE, "/a?uploadId=u", 0),
        ] {
            assert_eq!(
                may_take_long(&request(method, uri, None, body)),
                long,
                "{uri}"
            );
        }
    }

    /// A service that says `head`, then `x` for ever if `endless`, else nothing.
    fn service(head: &'static str, endless: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            // A reply before its request is no reply.
            let _ = connection.read(&mut [0; 4096]);
            connection.write_all(head.as_bytes()).unwrap();
            while endless && connection.write_all(&[b'x'; 65_536]).is_ok() {}
            let _ = connection.read_to_end(&mut Vec::new());
        });
        format!("http://{address}/a")
    }

    fn bounded() -> Bounded {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = ClientOptions::new().with_allow_http(true);
        Bounded {
            inner: ReqwestConnector::default().connect(&options).unwrap(),
            first_reply: Duration::from_millis(200),
        }
    }

    #[tokio::test]
    async fn endless_replies_end_whatever_their_status() {
        for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 404 Not Found\r\n\r\n"] {
            let request = request(Method::GET, &service(head, true), None, 0);
            let error = bounded().exchange(request).await.unwrap_err();
            let error = object_store::Error::Generic {
                store: "S3",
                source: Box::new(error),
            };
            assert!(is_too_long(&error), "{error:?}");
            let (_, text) = super::super::failure::explain(&error);
            assert_eq!(
                text,
                "the reply has more than 4194304 bytes: look at the endpoint"
            );
        }
    }

    #[tokio::test]
    async fn a_reply_that_does_not_begin_is_not_waited_for() {
        let request = request(Method::GET, &service("", false), None, 0);
        let error = bounded().exchange(request).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
    }
}
