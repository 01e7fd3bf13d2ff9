//! [`Meter`]: what moved, counted where it happens. Not a metrics exporter; names and labels are
//! the station's business, and its spans are derived from these counters, never the reverse.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Classes of status codes, 1xx to 5xx.
const STATUS_CLASSES: usize = 5;

/// Counters of one kind of traffic (rows, paths, head, blocks, probe), shared by `Arc`.
///
/// Sources add to `requests`, `retries`, the statuses and the bytes that moved; callers, who alone
/// know which bytes they used and which requests went out together, add to the others.
///
/// ```text
///  what crosses the wire, TCP and TLS aside
///  ├── bodies: received_bytes + framing_bytes    equal to the origin's log, to the byte
///  └── heads:  head_bytes_sent, head_bytes_received
/// ```
#[derive(Debug, Default)]
pub struct Meter {
    requests: AtomicU64,
    statuses: [AtomicU64; STATUS_CLASSES],
    head_bytes_sent: AtomicU64,
    head_bytes_received: AtomicU64,
    received_bytes: AtomicU64,
    framing_bytes: AtomicU64,
    useful_bytes: AtomicU64,
    retries: AtomicU64,
    waves: AtomicU64,
    integrity_failures: AtomicU64,
    connection_wait_ns: AtomicU64,
}

/// The values of a [`Meter`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterSnapshot {
    /// Requests sent, repeated and redirected ones included. A read of a file or of memory counts
    /// as one request.
    pub requests: u64,
    /// Replies by class of their status code: `[1xx, 2xx, 3xx, 4xx, 5xx]`. What is missing to
    /// `requests` got no reply, or was no HTTP.
    pub statuses: [u64; STATUS_CLASSES],
    /// Bytes of request heads. On HTTP/1.1 as they were written; on HTTP/2 an estimate, see the
    /// `http` module.
    pub head_bytes_sent: u64,
    /// Bytes of reply heads, those of refused replies included; the same reservation.
    pub head_bytes_received: u64,
    /// Body bytes that arrived, those of failed attempts included, but for `framing_bytes`.
    pub received_bytes: u64,
    /// Body bytes that are no content of any object: what separates and names the parts of a reply
    /// to several ranges. Overhead like a head, though it crosses the wire in the body.
    pub framing_bytes: u64,
    /// Bytes the caller asked for and used.
    pub useful_bytes: u64,
    /// Requests that were a repetition of an earlier one.
    pub retries: u64,
    /// Rounds of requests in flight together, on warm connections one round trip each.
    pub waves: u64,
    /// Replies whose bytes failed the caller's digest.
    pub integrity_failures: u64,
    /// Nanoseconds that requests waited for a connection: for its handshakes, or for a free one.
    pub connection_wait_ns: u64,
}

impl Meter {
    /// The current values. Counters are read one after the other: exact once traffic has ceased.
    #[must_use]
    pub fn snapshot(&self) -> MeterSnapshot {
        MeterSnapshot {
            requests: self.requests.load(Relaxed),
            statuses: std::array::from_fn(|class| self.statuses[class].load(Relaxed)),
            head_bytes_sent: self.head_bytes_sent.load(Relaxed),
            head_bytes_received: self.head_bytes_received.load(Relaxed),
            framing_bytes: self.framing_bytes.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            useful_bytes: self.useful_bytes.load(Relaxed),
            retries: self.retries.load(Relaxed),
            waves: self.waves.load(Relaxed),
            integrity_failures: self.integrity_failures.load(Relaxed),
            connection_wait_ns: self.connection_wait_ns.load(Relaxed),
        }
    }

    /// Adds bytes the caller made use of.
    pub fn add_useful(&self, bytes: u64) {
        self.useful_bytes.fetch_add(bytes, Relaxed);
    }

    /// Adds request waves.
    pub fn add_waves(&self, waves: u64) {
        self.waves.fetch_add(waves, Relaxed);
    }

    /// Counts one reply whose bytes failed a digest.
    pub fn add_integrity_failure(&self) {
        self.integrity_failures.fetch_add(1, Relaxed);
    }

    /// Adds time that a request waited for its connection. For implementors of
    /// [`RangeSource`](crate::RangeSource).
    pub fn add_connection_wait(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.connection_wait_ns.fetch_add(nanos, Relaxed);
    }

    /// Counts one request that was sent. For implementors of [`RangeSource`](crate::RangeSource).
    pub fn add_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Counts one reply by its status code. For implementors of [`RangeSource`](crate::RangeSource).
    pub fn add_status(&self, code: u16) {
        let class = usize::from(code / 100).checked_sub(1);
        if let Some(count) = class.and_then(|class| self.statuses.get(class)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Adds bytes of a request's head. For implementors of [`RangeSource`](crate::RangeSource).
    pub fn add_head_sent(&self, bytes: u64) {
        self.head_bytes_sent.fetch_add(bytes, Relaxed);
    }

    /// Adds bytes of a reply's head. For implementors of [`RangeSource`](crate::RangeSource).
    pub fn add_head_received(&self, bytes: u64) {
        self.head_bytes_received.fetch_add(bytes, Relaxed);
    }

    /// Adds body bytes that are no content. For implementors of
    /// [`RangeSource`](crate::RangeSource).
    pub fn add_framing(&self, bytes: u64) {
        self.framing_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts one repetition. For implementors of [`RangeSource`](crate::RangeSource).
    pub fn add_retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// Adds body bytes that arrived. For implementors of [`RangeSource`](crate::RangeSource).
    pub fn add_received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Relaxed);
    }
}

impl MeterSnapshot {
    /// Body bytes that crossed the wire: what an origin's log has.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.received_bytes.saturating_add(self.framing_bytes)
    }

    /// Bytes of heads in both directions.
    #[must_use]
    pub fn head_bytes(&self) -> u64 {
        self.head_bytes_sent
            .saturating_add(self.head_bytes_received)
    }
}

impl std::ops::Sub for MeterSnapshot {
    type Output = MeterSnapshot;

    /// What was added between an earlier snapshot (`rhs`) and this one.
    fn sub(self, rhs: MeterSnapshot) -> MeterSnapshot {
        MeterSnapshot {
            requests: self.requests.saturating_sub(rhs.requests),
            statuses: std::array::from_fn(|class| {
                self.statuses[class].saturating_sub(rhs.statuses[class])
            }),
            head_bytes_sent: self.head_bytes_sent.saturating_sub(rhs.head_bytes_sent),
            head_bytes_received: self
                .head_bytes_received
                .saturating_sub(rhs.head_bytes_received),
            framing_bytes: self.framing_bytes.saturating_sub(rhs.framing_bytes),
            received_bytes: self.received_bytes.saturating_sub(rhs.received_bytes),
            useful_bytes: self.useful_bytes.saturating_sub(rhs.useful_bytes),
            retries: self.retries.saturating_sub(rhs.retries),
            waves: self.waves.saturating_sub(rhs.waves),
            integrity_failures: self
                .integrity_failures
                .saturating_sub(rhs.integrity_failures),
            connection_wait_ns: self
                .connection_wait_ns
                .saturating_sub(rhs.connection_wait_ns),
        }
    }
}
