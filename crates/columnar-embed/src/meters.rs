//! What a store counts: totals as atomics for the process, and one report a batch. Not exported
//! metrics, whose names are the station's.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use helix_transport::Meter;

/// Where a store counts. Clones share their totals; several stores may share one.
#[derive(Debug, Clone, Default)]
pub struct StoreMeters {
    /// Requests and bytes for rows.
    pub rows: Arc<Meter>,
    /// Requests and bytes for paths of the row tree.
    pub paths: Arc<Meter>,
    /// What became of the rows that were asked for.
    pub outcomes: Arc<RowOutcomes>,
}

/// What became of rows, each distinct row of a batch counted once, under exactly one outcome.
#[derive(Debug, Default)]
pub struct RowOutcomes {
    /// Found in the cache.
    pub hit: AtomicU64,
    /// Found in the disk tier, also where the caller no longer waited.
    pub disk: AtomicU64,
    /// Fetched, verified and cached, also where the caller no longer waited.
    pub miss: AtomicU64,
    /// Fetched by a concurrent batch; this one waited for it.
    pub coalesced: AtomicU64,
    /// Not had: the read or the verification failed.
    pub failed: AtomicU64,
    /// Rows that left the cache for want of room.
    pub evictions: AtomicU64,
}

impl RowOutcomes {
    pub(crate) fn add(counter: &AtomicU64, rows: usize) {
        counter.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

/// What one batch asked for and what it took. `hit + disk + coalesced + missed == distinct` for
/// a batch that was answered; the requests of coalesced rows are in the report of the batch that made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FetchReport {
    /// Rows asked for, duplicates included.
    pub asked: u64,
    /// Distinct rows among them.
    pub distinct: u64,
    /// Distinct rows found in the cache.
    pub hit: u64,
    /// Distinct rows that a concurrent batch was already fetching.
    pub coalesced: u64,
    /// Distinct rows that this batch read from the disk tier.
    pub disk: u64,
    /// Distinct rows that this batch fetched.
    pub missed: u64,
    /// Body bytes of the row replies, gaps between merged rows included. A reply that broke off
    /// and was asked again is counted by the meter only.
    pub received_bytes: u64,
    /// Bytes of the rows among them that were accepted.
    pub useful_bytes: u64,
    /// Body bytes of the path replies.
    pub path_received_bytes: u64,
    /// Ranges asked for, rows and paths together.
    pub requests: u64,
    /// Round trips on warm connections: for each phase, requests divided by what the source keeps
    /// in flight, rounded up; rows and paths of one phase travel together.
    pub round_trips: u64,
}
