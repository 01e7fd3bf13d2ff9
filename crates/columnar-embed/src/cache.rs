//! The row cache: least recently used, capacity in rows, rows own their bytes. Not a byte-range
//! cache, and it never holds an error or, for a verifying store, an unchecked row.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use moka::{notification::RemovalCause, policy::EvictionPolicy, sync::Cache};

use crate::{Row, fetch::RowLoad, layout::RowId, meters::RowOutcomes, single_flight::SingleFlight};

/// What names a row across objects. Equal digests mean equal bytes, so mirrors share rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowKey {
    /// BLAKE3 of the whole table.
    pub object: [u8; 32],
    pub row: RowId,
    /// Rows taken unchecked never answer a store that checks.
    pub verified: bool,
}

/// Rows of one store, or of several stores that share a capacity, with the loads that fill it.
/// Clones are the same cache; dropping the last one ends its loads.
///
/// Stores of equal digests share rows, so mirrors of one object do.
#[derive(Debug, Clone)]
pub struct RowCache {
    pub(crate) shelf: RowShelf,
    pub(crate) flights: Arc<SingleFlight<RowKey, RowLoad>>,
}

impl RowCache {
    /// A cache of at most `capacity_rows` rows that counts the rows it lets go in `outcomes`.
    /// With capacity 0 nothing is kept, and concurrent callers still share loads.
    #[must_use]
    pub fn new(capacity_rows: u64, outcomes: Arc<RowOutcomes>) -> Self {
        Self {
            shelf: RowShelf::new(capacity_rows, outcomes),
            flights: Arc::default(),
        }
    }

    /// Rows held now.
    #[must_use]
    pub fn len_rows(&self) -> u64 {
        self.shelf.rows.entry_count()
    }

    /// Bytes of the rows held now, without the cache's own bookkeeping.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.shelf.bytes.load(Ordering::Relaxed)
    }

    /// The most rows it holds between two batches.
    #[must_use]
    pub fn capacity_rows(&self) -> u64 {
        self.shelf.capacity_rows
    }
}

/// The rows of a cache without its loads: what a load may hold on to without keeping alive the
/// cache that owns it.
#[derive(Clone)]
pub(crate) struct RowShelf {
    rows: Cache<RowKey, Row>,
    bytes: Arc<AtomicU64>,
    capacity_rows: u64,
}

impl fmt::Debug for RowShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowShelf")
            .field("rows", &self.rows.entry_count())
            .field("capacity_rows", &self.capacity_rows)
            .finish_non_exhaustive()
    }
}

impl RowShelf {
    fn new(capacity_rows: u64, outcomes: Arc<RowOutcomes>) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let held = Arc::clone(&bytes);
        let rows = Cache::builder()
            .max_capacity(capacity_rows)
            // The default policy, TinyLFU, admits a row into a full cache only if it was asked for
            // more often than the row it would replace: new rows of a running session never are.
            .eviction_policy(EvictionPolicy::lru())
            .eviction_listener(move |_, row: Row, cause| {
                held.fetch_sub(row.len() as u64, Ordering::Relaxed);
                if cause == RemovalCause::Size {
                    RowOutcomes::add(&outcomes.evictions, 1);
                }
            })
            .build();
        Self {
            rows,
            bytes,
            capacity_rows,
        }
    }

    pub(crate) fn get(&self, key: &RowKey) -> Option<Row> {
        self.rows.get(key)
    }

    /// Takes the rows of one load and lets the least recently used ones go. Afterwards the cache
    /// is within its capacity: moka would see to it later, on its own schedule.
    pub(crate) fn insert_all(&self, loaded: impl IntoIterator<Item = (RowKey, Row)>) {
        if self.capacity_rows == 0 {
            return;
        }
        for (key, row) in loaded {
            self.bytes.fetch_add(row.len() as u64, Ordering::Relaxed);
            self.rows.insert(key, row);
        }
        self.rows.run_pending_tasks();
    }
}

#[cfg(test)]
mod tests;
