//! What an object store's refusal means, in words that may be shown: whose fault it is, and the code
//! and message of the reply. The library's own texts carry request lines and whole reply bodies; they
//! stay out.

use std::error::Error as StdError;

use object_store::client::{HttpError, HttpErrorKind};

/// Whose fault a refusal of the destination is; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFault {
    /// The destination could not be reached, or failed beyond its retries.
    Unreachable,
    /// There is no such bucket or object.
    Missing,
    /// The credentials are missing, wrong or not allowed to do this.
    Credentials,
    /// The destination cannot do what was asked, or its settings cannot work.
    Settings,
    /// This machine's own file system refused: no room, no permission.
    FileSystem,
    /// Anything else.
    Other,
}

/// Longest text of a reply that is shown, in characters.
const REASON_CHARS: usize = 300;

/// The meaning of a failure, and what may be said about it.
pub(super) fn explain(error: &object_store::Error) -> (StoreFault, String) {
    use object_store::Error;
    if let Some(io) = cause::<std::io::Error>(error)
        && cause::<HttpError>(error).is_none()
    {
        return (StoreFault::FileSystem, io.to_string());
    }
    let text = error.to_string();
    if text.contains("redirect without LOCATION") {
        let reason = "the service sends requests for this bucket elsewhere without saying where: look \
                      at AWS_REGION and the endpoint";
        return (StoreFault::Settings, reason.to_owned());
    }
    let fault = match error {
        Error::NotFound { .. } => StoreFault::Missing,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreFault::Credentials,
        Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. } => StoreFault::Settings,
        _ => match cause::<HttpError>(error).map(HttpError::kind) {
            Some(HttpErrorKind::Decode) => StoreFault::Other,
            Some(_) => StoreFault::Unreachable,
            None => from_code(&text),
        },
    };
    (fault, reason(error, &text))
}

/// Whether the store does not know the condition or form that was asked for, so that it may be asked
/// without: 501, which is what S3 gateways answer.
pub(super) fn is_not_implemented(error: &object_store::Error) -> bool {
    use object_store::Error;
    match error {
        Error::NotImplemented { .. } | Error::NotSupported { .. } => true,
        Error::Generic { .. } => error.to_string().contains("501 Not Implemented"),
        _ => false,
    }
}

/// Some gateways refuse credentials with 400, and a failing one answers 5xx.
fn from_code(text: &str) -> StoreFault {
    match element(text, "Code") {
        Some(
            "AccessDenied"
            | "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "AuthorizationHeaderMalformed"
            | "RequestTimeTooSkewed"
            | "Unauthorized",
        ) => StoreFault::Credentials,
        Some("NoSuchBucket" | "NoSuchKey" | "NoSuchUpload") => StoreFault::Missing,
        Some(
            "InternalError" | "ServiceUnavailable" | "SlowDown" | "RequestTimeout"
            | "TooManyRequests",
        ) => StoreFault::Unreachable,
        Some("NotImplemented" | "InvalidPart" | "EntityTooSmall" | "InvalidBucketName") => {
            StoreFault::Settings
        }
        _ => from_status(text),
    }
}

/// For a reply without a code: HEAD has no body, and some gateways send none.
fn from_status(text: &str) -> StoreFault {
    match status(text).and_then(|status| status.split(' ').next()) {
        Some("401" | "403") => StoreFault::Credentials,
        Some("404") => StoreFault::Missing,
        Some(status) if status == "429" || status.starts_with('5') => StoreFault::Unreachable,
        _ => StoreFault::Other,
    }
}

/// Code and message of the reply, or else the innermost cause.
fn reason(error: &object_store::Error, text: &str) -> String {
    let said = match (element(text, "Code"), element(text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => match status(text) {
            Some(status) => format!("the reply was {status}"),
            None => {
                let mut innermost: &dyn StdError = error;
                while let Some(source) = innermost.source() {
                    innermost = source;
                }
                crate::publish::destination::without_query(&innermost.to_string())
            }
        },
    };
    said.chars()
        .filter(|character| !character.is_control())
        .take(REASON_CHARS)
        .collect()
}

/// The text of the first `<name>` element.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// The status of a reply without a body, as the library words it.
fn status(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("status code: ")?;
    let end = rest.find(": ").unwrap_or(rest.len());
    rest.get(..end)
        .map(|status| status.trim_end_matches(':').trim())
}

/// The first cause of type `T`.
fn cause<T: StdError + 'static>(error: &object_store::Error) -> Option<&T> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::Error;

    fn generic(text: &str) -> Error {
        Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn a_reply_is_told_by_code_and_message_alone() {
        let body = "Server returned non-2xx status code: 400 Bad Request: <Error><Code>InvalidToken</Code>\
            <Message>The provided token is malformed</Message><Token-0>SECRET</Token-0></Error>";
        let (fault, text) = explain(&generic(body));
        assert_eq!(fault, StoreFault::Credentials);
        assert_eq!(text, "InvalidToken: The provided token is malformed");
        let (fault, text) = explain(&generic(
            "Server returned non-2xx status code: 503 Service Unavailable: ",
        ));
        assert_eq!(
            (fault, text.as_str()),
            (
                StoreFault::Unreachable,
                "the reply was 503 Service Unavailable"
            )
        );
    }

    #[test]
    fn a_reply_without_a_code_is_told_by_its_status() {
        for (status, fault) in [
            ("401 Unauthorized", StoreFault::Credentials),
            ("403 Forbidden", StoreFault::Credentials),
            ("404 Not Found", StoreFault::Missing),
            ("429 Too Many Requests", StoreFault::Unreachable),
            ("502 Bad Gateway", StoreFault::Unreachable),
            ("418 I'm a teapot", StoreFault::Other),
        ] {
            let text = format!("Server returned non-2xx status code: {status}: ");
            assert_eq!(explain(&generic(&text)).0, fault, "{status}");
        }
    }

    #[test]
    fn the_kinds_of_the_library_keep_their_meaning() {
        let refused = Error::PermissionDenied {
            path: "k".to_owned(),
            source: "no".into(),
        };
        assert_eq!(explain(&refused).0, StoreFault::Credentials);
        let full = Error::Generic {
            store: "LocalFileSystem",
            source: Box::new(std::io::Error::from(std::io::ErrorKind::StorageFull)),
        };
        let (fault, text) = explain(&full);
        assert_eq!(fault, StoreFault::FileSystem);
        assert!(text.contains("no storage space"), "{text}");
        let connect = Error::Generic {
            store: "S3",
            source: Box::new(HttpError::new(HttpErrorKind::Connect, std::fmt::Error)),
        };
        assert_eq!(explain(&connect).0, StoreFault::Unreachable);
        assert!(is_not_implemented(&generic(
            "status code: 501 Not Implemented: x"
        )));
        assert!(!is_not_implemented(&generic("status code: 500")));
    }
}
