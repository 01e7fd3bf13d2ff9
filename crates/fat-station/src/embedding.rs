//! Rows of the vocabulary matrix by token id: from the row store, from the resident matrix of a
//! tied head, or from the knot's dense block. It hands out stored bytes; widening them is the
//! model's work, so that every way gives the same bits.

use crate::config::Residency;
use crate::error::Error;
use crate::telemetry;
use crate::traffic::{Phase, RowsRead, Traffic};
use bytes::Bytes;
use columnar_embed::{ColumnarEmbedBackend, Row, RowId};
use std::sync::{Arc, OnceLock};
use tracing::Instrument as _;

/// Where rows come from.
#[derive(Debug)]
pub enum Embedding {
    /// The row store, until a resident matrix takes over.
    Columnar(Columnar),
    /// The knot's dense block.
    Dense(DenseTable),
}

/// Rows of a row store.
#[derive(Debug)]
pub struct Columnar {
    store: ColumnarEmbedBackend,
    residency: Residency,
    resident: OnceLock<DenseTable>,
}

/// A whole matrix in its stored form, row after row.
#[derive(Debug, Clone)]
pub struct DenseTable {
    bytes: Bytes,
    row_bytes: usize,
}

/// One row, held by whoever owns it.
#[derive(Debug, Clone)]
pub enum HeldRow {
    /// A row of the store's cache.
    Cached(Row),
    /// A piece of a matrix.
    Slice(Bytes),
}

impl AsRef<[u8]> for HeldRow {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Cached(row) => row,
            Self::Slice(row) => row,
        }
    }
}

impl DenseTable {
    /// A matrix of rows of `row_bytes` bytes.
    #[must_use]
    pub fn new(bytes: Bytes, row_bytes: usize) -> Self {
        Self { bytes, row_bytes }
    }

    fn rows(&self, ids: &[u32]) -> Result<Vec<HeldRow>, Error> {
        ids.iter()
            .map(|&id| self.row(id).map(HeldRow::Slice))
            .collect()
    }

    fn row(&self, id: u32) -> Result<Bytes, Error> {
        let outside = || Error::TokenId {
            id,
            vocabulary: (self.bytes.len() / self.row_bytes.max(1)) as u64,
        };
        let start = usize::try_from(id)
            .ok()
            .and_then(|id| id.checked_mul(self.row_bytes));
        let start = start.ok_or_else(outside)?;
        let end = start.checked_add(self.row_bytes).ok_or_else(outside)?;
        if end > self.bytes.len() {
            return Err(outside());
        }
        Ok(self.bytes.slice(start..end))
    }
}

impl Columnar {
    /// Rows of `store`.
    #[must_use]
    pub fn new(store: ColumnarEmbedBackend, residency: Residency) -> Self {
        Self {
            store,
            residency,
            resident: OnceLock::new(),
        }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &ColumnarEmbedBackend {
        &self.store
    }
}

impl Embedding {
    /// From now on rows are read from `table`, a tied head's matrix, unless the operator wants them
    /// from the store.
    pub fn make_resident(&self, table: DenseTable) {
        if let Self::Columnar(columnar) = self
            && columnar.residency == Residency::ReadResident
        {
            // A second head cannot come; if it did, the first one is as good.
            let _ = columnar.resident.set(table);
        }
    }

    /// The whole matrix, where rows are read from it anyway.
    #[must_use]
    pub fn dense_bytes(&self) -> Option<Bytes> {
        match self {
            Self::Columnar(_) => None,
            Self::Dense(table) => Some(table.bytes.clone()),
        }
    }

    /// Rows in the cache.
    #[must_use]
    pub fn cached_rows(&self) -> u64 {
        match self {
            Self::Columnar(columnar) => columnar.store.cached_rows(),
            Self::Dense(_) => 0,
        }
    }

    /// Rows of `ids` in order, through one batched read.
    ///
    /// # Errors
    /// [`Error::TokenId`] for an id outside the matrix, [`Error::Rows`] where the store fails.
    pub async fn rows(
        &self,
        ids: &[u32],
        phase: Phase,
        traffic: &Traffic,
    ) -> Result<Vec<HeldRow>, Error> {
        let (rows, read) = match self {
            Self::Dense(table) => (table.rows(ids)?, RowsRead::default()),
            Self::Columnar(columnar) => match columnar.resident.get() {
                Some(table) => {
                    let _span = telemetry::resident_rows(phase.name(), ids.len()).entered();
                    let resident = ids.len() as u64;
                    (
                        table.rows(ids)?,
                        RowsRead {
                            resident,
                            ..RowsRead::default()
                        },
                    )
                }
                None => columnar.fetch(ids).await?,
            },
        };
        traffic.note_rows(ids, phase, read);
        Ok(rows)
    }
}

impl Columnar {
    async fn fetch(&self, ids: &[u32]) -> Result<(Vec<HeldRow>, RowsRead), Error> {
        let wanted: Vec<RowId> = ids.iter().copied().map(RowId::from).collect();
        let batch = self
            .store
            .rows(&wanted)
            .in_current_span()
            .await
            .map_err(|source| Error::rows(self.store.object(), source))?;
        let read = RowsRead {
            resident: 0,
            received_bytes: batch.report.received_bytes,
            path_received_bytes: batch.report.path_received_bytes,
            round_trips: batch.report.round_trips,
        };
        Ok((batch.rows.into_iter().map(HeldRow::Cached).collect(), read))
    }
}

/// Tokens of one prefill chunk.
pub const CHUNK_TOKENS: usize = 512;

/// A prompt whose rows are at hand.
#[derive(Debug, Clone)]
pub struct EmbeddedPrompt {
    /// The prompt's tokens.
    pub tokens: Vec<u32>,
    /// Rows of each chunk of at most [`CHUNK_TOKENS`] tokens, in order.
    pub chunks: Vec<Vec<HeldRow>>,
}

impl EmbeddedPrompt {
    /// Reads the rows of `tokens`, one batch a chunk. Rows are shared, so what is held is bounded
    /// by the distinct tokens of one context, less than the context's keys and values.
    ///
    /// # Errors
    /// Those of [`Embedding::rows`].
    pub async fn read(
        tokens: Vec<u32>,
        embedding: &Arc<Embedding>,
        traffic: &Traffic,
    ) -> Result<Self, Error> {
        let mut chunks = Vec::with_capacity(tokens.len().div_ceil(CHUNK_TOKENS));
        for chunk in tokens.chunks(CHUNK_TOKENS) {
            chunks.push(embedding.rows(chunk, Phase::Prefill, traffic).await?);
        }
        Ok(Self { tokens, chunks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dense_rows_are_views_and_ids_are_checked() {
        let bytes = Bytes::from((0_u8..12).collect::<Vec<_>>());
        let embedding = Embedding::Dense(DenseTable::new(bytes.clone(), 4));
        let traffic = Traffic::default();
        let rows = embedding
            .rows(&[2, 0, 2], Phase::Prefill, &traffic)
            .await
            .unwrap();
        assert_eq!(rows[0].as_ref(), [8, 9, 10, 11]);
        assert_eq!(rows[1].as_ref(), [0, 1, 2, 3]);
        assert_eq!(rows[0].as_ref().as_ptr(), bytes[8..].as_ptr(), "no copy");
        assert_eq!(traffic.ledger().distinct_rows, 2);
        let error = embedding
            .rows(&[3], Phase::Decode, &traffic)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("token id 3") && error.contains("3 tokens"),
            "{error}"
        );
        assert_eq!(
            traffic.ledger().rows_asked,
            3,
            "a refused read is not counted"
        );
    }

    #[tokio::test]
    async fn a_prompt_is_read_in_chunks() {
        let embedding = Arc::new(Embedding::Dense(DenseTable::new(
            Bytes::from(vec![0; 4]),
            4,
        )));
        let prompt = EmbeddedPrompt::read(vec![0; 1_025], &embedding, &Traffic::default())
            .await
            .unwrap();
        assert_eq!(
            prompt.chunks.iter().map(Vec::len).collect::<Vec<_>>(),
            [512, 512, 1]
        );
    }
}
