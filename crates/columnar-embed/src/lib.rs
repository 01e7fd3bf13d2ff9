//! Embedding rows by byte range: row layout, shared row cache, verified rows. Not a model, not a
//! container format and not a transport. Specification: docs/format/row-store.md.
//!
//! A *row store* is one matrix whose rows lie in one object: at a fixed stride, or where a sidecar says,
//! if they are of several kinds. A decoder that is about to embed 600 tokens needs about 109 distinct
//! rows of it, not the matrix:
//!
//! ```
//! use std::sync::Arc;
//! use columnar_embed::{
//!     ColumnarEmbedBackend, RowId, RowLayout, RowStoreConfig, StoreMeters, Verification,
//! };
//! use helix_transport::MemorySource;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let table: Vec<u8> = (0..=255).collect();
//! let digest = *blake3::hash(&table).as_bytes();
//! let source = Arc::new(MemorySource::new("tiny.rows", table));
//! let embed = ColumnarEmbedBackend::new(
//!     source,
//!     RowLayout::new(0, 64, 4)?, // 64 rows of 4 bytes from offset 0
//!     digest,
//!     Verification::Off,
//!     RowStoreConfig::default(),
//!     StoreMeters::default(),
//! )?;
//! let batch = embed.rows(&[RowId(9), RowId(2), RowId(9)]).await?;
//! assert_eq!(&batch.rows[0][..], [36, 37, 38, 39]);
//! assert_eq!(batch.rows[0], batch.rows[2]);
//! assert_eq!((batch.report.asked, batch.report.distinct, batch.report.missed), (3, 2, 2));
//! # Ok::<(), columnar_embed::Error>(()) }).unwrap();
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`layout`] | id to byte range, pure |
//! | [`locate`] | finds the rows in safetensors files, sharded or not, GGUFs and bare files |
//! | [`row_kind`] | element types of stored rows, with their arithmetic, pure |
//! | [`sidecar`] | which kind each row has and where it lies, pure |
//! | [`row_map`] | stored rows: one stride, or several kinds of rows |
//! | [`row_tree`] | hash tree over rows: builder, check of one row, pure |
//! | [`verify`] | a pinned tree with its path table, at hand or by range |
//! | [`backend`] | the store: cache, single flight, one plan a batch |
//! | [`disk`] | rows kept on disk, shared by stations and restarts |
//! | [`writer`] | row files, of one kind of rows or several, written atomically |

pub mod backend;
mod batch;
pub mod cache;
pub mod config;
pub mod disk;
pub mod error;
mod fetch;
mod gather;
pub mod layout;
pub mod locate;
pub mod meters;
pub mod row_kind;
pub mod row_map;
pub mod row_tree;
pub mod sidecar;
mod single_flight;
pub mod verify;
pub mod writer;

use std::sync::Arc;

pub use backend::ColumnarEmbedBackend;
pub use cache::RowCache;
pub use config::RowStoreConfig;
pub use disk::{CachedTable, Completeness, DiskCounts, DiskTier, Trust};
pub use error::Error;
pub use layout::{RowId, RowLayout};
pub use meters::{FetchReport, RowOutcomes, StoreMeters};
pub use row_kind::{FloatKind, RowKind, Unrepresentable};
pub use row_map::RowMap;
pub use row_tree::{RowTree, RowTreeBuilder, TreeShape};
pub use sidecar::{KindError, PaletteEntry, Sidecar, SidecarBuilder};
pub use verify::{PathSource, RowTreeVerifier, Verification};
pub use writer::{MixedRowFileWriter, MixedRows, RowFileWriter, WrittenRows};

/// The bytes of one row, shared with the cache. They are the row's own: nothing larger is kept
/// alive by them.
pub type Row = Arc<[u8]>;

/// The answer to one batch.
#[derive(Debug, Clone)]
pub struct RowBatch {
    /// One row for each id, in the order they were asked, repetitions included.
    pub rows: Vec<Row>,
    /// What the batch took.
    pub report: FetchReport,
}

/// The answer to one batch of which some rows may be missing.
#[derive(Debug, Clone)]
pub struct PartialBatch {
    /// For each id, in the order they were asked, its row or why there is none.
    pub rows: Vec<Result<Row, Error>>,
    /// What the batch took.
    pub report: FetchReport,
}
