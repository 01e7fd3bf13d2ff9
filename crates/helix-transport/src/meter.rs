//! [`Meter`]: what moved, counted where it happens. Not a metrics exporter; names and labels are
//! the station's business, and its spans are derived from these counters, never the reverse.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one kind of traffic (rows, paths, head, blocks, probe), shared by `Arc`.
///
/// Sources add to `requests`, `received_bytes` and `retries`; callers, who alone know which bytes
/// they used and which requests went out together, add to the others.
#[derive(Debug, Default)]
pub struct Meter {
    requests: AtomicU64,
    received_bytes: AtomicU64,
    useful_bytes: AtomicU64,
    retries: AtomicU64,
    waves: AtomicU64,
    integrity_failures: AtomicU64,
}

/// The values of a [`Meter`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterSnapshot {
    /// Requests sent, repeated and redirected ones included. A read of a file or of memory counts
    /// as one request.
    pub requests: u64,
    /// Body bytes that arrived, those of failed attempts included.
    pub received_bytes: u64,
    /// Bytes the caller asked for and used.
    pub useful_bytes: u64,
    /// Requests that were a repetition of an earlier one.
    pub retries: u64,
    /// Rounds of requests in flight together, on warm connections one round trip each.
    pub waves: u64,
    /// Replies whose bytes failed the caller's digest.
    pub integrity_failures: u64,
}

impl Meter {
    /// The current values. Counters are read one after the other: exact once traffic has ceased.
    #[must_use]
    pub fn snapshot(&self) -> MeterSnapshot {
        MeterSnapshot {
            requests: self.requests.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            useful_bytes: self.useful_bytes.load(Relaxed),
            retries: self.retries.load(Relaxed),
            waves: self.waves.load(Relaxed),
            integrity_failures: self.integrity_failures.load(Relaxed),
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

    /// Counts one request that was sent. For implementors of [`RangeSource`](crate::RangeSource).
    pub fn add_request(&self) {
        self.requests.fetch_add(1, Relaxed);
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

impl std::ops::Sub for MeterSnapshot {
    type Output = MeterSnapshot;

    /// What was added between an earlier snapshot (`rhs`) and this one.
    fn sub(self, rhs: MeterSnapshot) -> MeterSnapshot {
        MeterSnapshot {
            requests: self.requests.saturating_sub(rhs.requests),
            received_bytes: self.received_bytes.saturating_sub(rhs.received_bytes),
            useful_bytes: self.useful_bytes.saturating_sub(rhs.useful_bytes),
            retries: self.retries.saturating_sub(rhs.retries),
            waves: self.waves.saturating_sub(rhs.waves),
            integrity_failures: self
                .integrity_failures
                .saturating_sub(rhs.integrity_failures),
        }
    }
}
