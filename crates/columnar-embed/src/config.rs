//! What an operator may choose about a store, with defaults and their reasons.

/// Settings of one [`crate::ColumnarEmbedBackend`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowStoreConfig {
    /// Capacity of the cache in rows; 0 keeps nothing. 8,192 rows of 896 bf16 values are 14 MiB,
    /// several long sessions' worth of distinct tokens.
    pub cache_rows: u64,
    /// Bytes of gaps between rows that merging may fetch, as a share of the wanted bytes.
    pub overfetch_ratio: f64,
    /// Longest merged range in bytes: beyond it one slow reply would hold up too many rows.
    pub max_span_bytes: u64,
    /// Bytes of rows that loads may have in flight together; further batches wait, and one that is
    /// larger than this runs alone. 256 MiB is a prompt of 8,192 rows of 32 KiB.
    pub max_in_flight_bytes: u64,
}

impl Default for RowStoreConfig {
    fn default() -> Self {
        Self {
            cache_rows: 8192,
            overfetch_ratio: 0.05,
            max_span_bytes: 1 << 20,
            max_in_flight_bytes: 256 << 20,
        }
    }
}
