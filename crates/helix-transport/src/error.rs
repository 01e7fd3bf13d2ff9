//! [`Error`]: every way a read can fail, with the facts in fields and a [`kind`](Error::kind) that
//! says whose fault it is and what may be done next. No text here ever holds a query string.

use std::sync::Arc;
use std::time::Duration;

use crate::ByteRange;

/// The cause handed up from a library below.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Whose fault, and what next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The network or the origin, for now: a later try may succeed.
    Transient,
    /// The object is no longer the version that was pinned: open it anew.
    Changed,
    /// The origin answered with bytes that are not those asked.
    Corrupt,
    /// The origin cannot do what is needed, and will not tomorrow.
    Unsupported,
    /// There is no such object.
    NotFound,
    /// The origin wants credentials, or refuses the ones it got.
    Auth,
    /// The caller's request or configuration is wrong.
    Config,
}

/// The clock that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutPhase {
    /// Name resolution, TCP and TLS handshakes.
    Connect,
    /// From the request's dispatch to the reply's head.
    FirstByte,
    /// The whole read, all attempts together.
    Total,
    /// Between two pieces of a body.
    Stall,
    /// Over a whole window of a body: it came, but too slowly.
    Pace,
    /// For one of the origin's connections to become free.
    Slot,
}

/// Who made the URL whose signature was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignedBy {
    /// The caller gave it.
    Caller,
    /// The object's own URL redirects to it, and did so again after the refusal.
    Origin,
}

impl std::fmt::Display for SignedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SignedBy::Caller => "give a freshly signed URL, or one that needs no signature",
            SignedBy::Origin => "the origin was asked again and still redirects to a refused one",
        })
    }
}

impl std::fmt::Display for TimeoutPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TimeoutPhase::Connect => "no connection",
            TimeoutPhase::FirstByte => "no reply",
            TimeoutPhase::Total => "read not complete",
            TimeoutPhase::Stall => "body stalled",
            TimeoutPhase::Pace => "body too slow",
            TimeoutPhase::Slot => "no free connection",
        })
    }
}

/// Why a failed read was not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GaveUp {
    /// Every allowed attempt was made.
    Attempts,
    /// The origin's retry budget was spent by this and other reads.
    Budget,
    /// The wait before the next attempt would outlast the read, or exceeds what is tolerated.
    Wait,
    /// The body came too slowly, attempt after attempt.
    Pace,
}

impl std::fmt::Display for GaveUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            GaveUp::Attempts => "attempts used up",
            GaveUp::Budget => "retry budget of the origin spent",
            GaveUp::Wait => "asked to wait too long",
            GaveUp::Pace => "too slow every time",
        })
    }
}

/// A failed read. `object` is the redacted name of the source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A range whose end lies before its start.
    #[error("range {start}..{end} ends before it starts")]
    InvertedRange {
        /// Offset of the first byte.
        start: u64,
        /// Offset behind the last byte.
        end: u64,
    },
    /// A range whose end exceeds `u64`.
    #[error("{len_bytes} bytes from {start} on end beyond any object")]
    RangeOverflow {
        /// Offset of the first byte.
        start: u64,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// A range outside the object; found before any request.
    #[error("{object}: range {range} lies outside the object's {len_bytes} bytes")]
    OutsideObject {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// The object's length.
        len_bytes: u64,
    },
    /// A whole object was asked with a limit that it exceeds.
    #[error("{object}: {len_bytes} bytes exceed the limit of {limit_bytes}")]
    TooLarge {
        /// Name of the source.
        object: String,
        /// The object's length.
        len_bytes: u64,
        /// The caller's limit.
        limit_bytes: u64,
    },
    /// A URL that cannot be fetched.
    #[error("{url}: {reason}")]
    Url {
        /// The URL without query and userinfo, or a note where it can't be parsed at all.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting that cannot work.
    #[error("setting {setting}: {reason}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A local file could not be opened or read.
    #[error("{object}")]
    Io {
        /// The path.
        object: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// No connection to the origin.
    #[error("{object}: no connection")]
    Connect {
        /// Name of the source.
        object: String,
        /// What the network said.
        source: Cause,
    },
    /// The origin's identity or the handshake was refused; trying again cannot help.
    #[error("{object}: TLS handshake refused")]
    Tls {
        /// Name of the source.
        object: String,
        /// What rustls said.
        source: Cause,
    },
    /// The proxy that leads to the origin refused.
    #[error("{object}: proxy {proxy} refused with status {status}{}", proxy_hint(*status))]
    Proxy {
        /// Name of the source.
        object: String,
        /// The proxy, without credentials.
        proxy: String,
        /// Its HTTP status.
        status: u16,
    },
    /// What came is not HTTP, or a head beyond every bound.
    #[error("{object}: range {range}: reply is no usable HTTP")]
    Protocol {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// What hyper said.
        source: Cause,
    },
    /// A signed URL was refused.
    #[error(
        "{object}: range {range}: status {status} for a signed URL, whose signature seems to have \
         expired: {signed_by}"
    )]
    Signature {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// The HTTP status.
        status: u16,
        /// Whose URL it is.
        signed_by: SignedBy,
    },
    /// The connection broke before the reply was whole.
    #[error("{object}: range {range} broke off after {received_bytes} of {} bytes", range.len())]
    Interrupted {
        /// Name of the source.
        object: String,
        /// The range asked by this attempt.
        range: ByteRange,
        /// Body bytes that had arrived.
        received_bytes: u64,
        /// What hyper said; `None` where the body simply ended early.
        source: Option<Cause>,
    },
    /// A clock ran out.
    #[error("{object}: range {range}: {phase} within {limit:?}")]
    Timeout {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// Which clock.
        phase: TimeoutPhase,
        /// Its limit.
        limit: Duration,
    },
    /// A status that is neither the asked content nor a change of the object.
    #[error("{object}: range {range} answered with status {status}")]
    Status {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// The HTTP status.
        status: u16,
        /// The wait the origin asked for.
        retry_after: Option<Duration>,
    },
    /// The object is not the version that was pinned.
    #[error("{object}: range {range}: object changed: {fact} was {expected}, now {found}")]
    Changed {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// What differs.
        fact: &'static str,
        /// The pinned value.
        expected: String,
        /// The value seen.
        found: String,
    },
    /// The origin answered a range with the whole object; its body was not read.
    #[error(
        "{object}: range {range} ignored: the origin offers the whole object instead; serve it from \
         one that answers ranges with 206"
    )]
    RangeIgnored {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// Length of the body that was offered, where declared.
        offered_bytes: Option<u64>,
    },
    /// The origin answered with another range than the one asked.
    #[error("{object}: asked range {range}, got {found}")]
    WrongRange {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// The range in Content-Range.
        found: ByteRange,
    },
    /// A body whose length is not that of the range.
    #[error("{object}: range {range} of {} bytes came with {found_bytes}", range.len())]
    WrongLength {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// The length declared, or a lower bound of the bytes sent.
        found_bytes: u64,
    },
    /// A field the protocol needs is missing or malformed.
    #[error("{object}: range {range}: unusable {field}: {found}")]
    Field {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// The header field.
        field: &'static str,
        /// Its value, or `missing`.
        found: String,
    },
    /// A transformed body, though `identity` was asked.
    #[error("{object}: range {range}: content encoding {found} refused, identity was asked")]
    Encoded {
        /// Name of the source.
        object: String,
        /// The range asked.
        range: ByteRange,
        /// The coding.
        found: String,
    },
    /// A redirect that is not followed.
    #[error("{object}: redirect not followed: {reason}")]
    Redirect {
        /// Name of the source.
        object: String,
        /// Why.
        reason: String,
    },
    /// A transient failure that stayed; the last one is the source.
    #[error("{object}: gave up after {attempts} attempts: {reason}")]
    GaveUp {
        /// Name of the source.
        object: String,
        /// Attempts made.
        attempts: u32,
        /// Why there was no further one.
        reason: GaveUp,
        /// The last attempt's failure.
        #[source]
        last: Box<Error>,
    },
    /// One of several ranges that were asked by one request, which failed.
    #[error("{object}: range {range}, asked together with {others} more")]
    Together {
        /// Name of the source.
        object: String,
        /// The range.
        range: ByteRange,
        /// How many others the request asked for.
        others: usize,
        /// The request's failure.
        #[source]
        failure: Arc<Error>,
    },
    /// A mistake in this crate: a range of a batch was left without an answer.
    #[error("{object}: range {range} was left without an answer, by a mistake of the transport")]
    Unanswered {
        /// Name of the source.
        object: String,
        /// The range.
        range: ByteRange,
    },
}

impl Error {
    /// Whose fault it is and what may be done next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvertedRange { .. }
            | Error::RangeOverflow { .. }
            | Error::OutsideObject { .. }
            | Error::TooLarge { .. }
            | Error::Url { .. }
            | Error::Setting { .. }
            | Error::Tls { .. } => ErrorKind::Config,
            Error::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                std::io::ErrorKind::PermissionDenied => ErrorKind::Auth,
                // No regular file: another try finds the same.
                std::io::ErrorKind::InvalidInput => ErrorKind::Config,
                _ => ErrorKind::Transient,
            },
            Error::Connect { .. } | Error::Interrupted { .. } | Error::Timeout { .. } => {
                ErrorKind::Transient
            }
            Error::Status { status, .. } | Error::Proxy { status, .. } => status_kind(*status),
            Error::Signature { .. } => ErrorKind::Auth,
            Error::Changed { .. } => ErrorKind::Changed,
            Error::WrongRange { .. } | Error::WrongLength { .. } | Error::Protocol { .. } => {
                ErrorKind::Corrupt
            }
            Error::RangeIgnored { .. }
            | Error::Field { .. }
            | Error::Encoded { .. }
            | Error::Redirect { .. }
            | Error::Unanswered { .. } => ErrorKind::Unsupported,
            Error::GaveUp { last, .. } => last.kind(),
            Error::Together { failure, .. } => failure.kind(),
        }
    }

    /// Attempts made before this error was returned.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        match self {
            Error::GaveUp { attempts, .. } => *attempts,
            Error::Together { failure, .. } => failure.attempts(),
            _ => 1,
        }
    }

    /// The failure itself, without the account of the attempts around it.
    #[must_use]
    pub fn last_attempt(&self) -> &Error {
        match self {
            Error::GaveUp { last, .. } => last.last_attempt(),
            Error::Together { failure, .. } => failure.last_attempt(),
            other => other,
        }
    }
}

/// What to do about a proxy's refusal.
fn proxy_hint(status: u16) -> &'static str {
    match status {
        407 => ": it wants other credentials (user:password@ in the proxy variable)",
        403 | 405 => ": it does not let this origin through (NO_PROXY can name it)",
        _ => "",
    }
}

/// 501 and 505 are final though they are 5xx: they name a lack, not a moment.
fn status_kind(status: u16) -> ErrorKind {
    match status {
        401 | 403 | 407 => ErrorKind::Auth,
        404 | 410 => ErrorKind::NotFound,
        408 | 425 | 429 => ErrorKind::Transient,
        501 | 505 => ErrorKind::Unsupported,
        500..=599 => ErrorKind::Transient,
        _ => ErrorKind::Unsupported,
    }
}
