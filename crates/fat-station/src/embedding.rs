//! Rows of the vocabulary matrix by token id: from the row store, from the resident matrix of a
//! tied head, or from the knot's dense block. It hands out stored bytes; widening them is the
//! model's work, so that every way gives the same bits.

use crate::config::Residency;
use crate::error::Error;
use crate::stand_in::{StandIn, is_outage};
use crate::telemetry;
use crate::traffic::{Phase, RowsRead, Traffic};
use bytes::Bytes;
use columnar_embed::{ColumnarEmbedBackend, Row, RowId};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
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
    stand_in: Option<Arc<StandIn>>,
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
    /// No row of the matrix but an approximation, as little-endian f32: whoever uses it must say so.
    Approximated(Bytes),
}

impl HeldRow {
    /// Whether it is not a row of the matrix but an approximation of one.
    #[must_use]
    pub fn is_approximated(&self) -> bool {
        matches!(self, Self::Approximated(_))
    }
}

impl AsRef<[u8]> for HeldRow {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Cached(row) => row,
            Self::Slice(row) | Self::Approximated(row) => row,
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

    pub(crate) fn row(&self, id: u32) -> Result<Bytes, Error> {
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
            stand_in: None,
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

    /// The same rows, with something to stand in for them while their origin cannot be reached.
    #[must_use]
    pub fn with_stand_in(self, stand_in: Option<Arc<StandIn>>) -> Self {
        match self {
            Self::Columnar(columnar) => Self::Columnar(Columnar {
                stand_in,
                ..columnar
            }),
            Self::Dense(table) => Self::Dense(table),
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

    /// Waits until the rows that are kept on disk are there. What keeps them from it was said when it
    /// happened.
    pub async fn settle(&self) {
        if let Self::Columnar(columnar) = self
            && let Some(tier) = columnar.store.tier()
        {
            let _ = tier.flush().await;
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

    /// The row of `id`, where the whole matrix is at hand; else it has to be read by
    /// [`rows`](Self::rows). Nothing is copied or waited for.
    ///
    /// # Errors
    /// [`Error::TokenId`] for an id outside the matrix.
    pub fn row_at_hand(
        &self,
        id: u32,
        phase: Phase,
        traffic: &Traffic,
    ) -> Result<Option<HeldRow>, Error> {
        let (row, resident) = match self {
            Self::Dense(table) => (table.row(id)?, 0),
            Self::Columnar(columnar) => {
                let Some(table) = columnar.resident.get() else {
                    return Ok(None);
                };
                let _span = telemetry::resident_rows(phase.name(), 1).entered();
                (table.row(id)?, 1)
            }
        };
        let read = RowsRead {
            resident,
            ..RowsRead::default()
        };
        traffic.note_rows(&[id], phase, read);
        Ok(Some(HeldRow::Slice(row)))
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
                None => columnar.fetch(ids, traffic).await?,
            },
        };
        traffic.note_rows(ids, phase, read);
        Ok(rows)
    }
}

impl Columnar {
    async fn fetch(
        &self,
        ids: &[u32],
        traffic: &Traffic,
    ) -> Result<(Vec<HeldRow>, RowsRead), Error> {
        let wanted: Vec<RowId> = ids.iter().copied().map(RowId::from).collect();
        if let Some(stand_in) = &self.stand_in {
            let (found, read) = self.found(&wanted, stand_in).await?;
            let completed = stand_in.complete(ids, found, traffic).await?;
            let read = RowsRead {
                resident: completed.resident,
                approximated: completed.approximated,
                ..read
            };
            return Ok((completed.rows, read));
        }
        let batch = self
            .store
            .rows(&wanted)
            .in_current_span()
            .await
            .map_err(|source| Error::rows(self.store.object(), source))?;
        let read = RowsRead::of(&batch.report);
        Ok((batch.rows.into_iter().map(HeldRow::Cached).collect(), read))
    }

    /// The rows of `wanted` as far as they can be had: all of them, but for those whose origin cannot
    /// be reached.
    async fn found(
        &self,
        wanted: &[RowId],
        stand_in: &StandIn,
    ) -> Result<(Vec<Option<Row>>, RowsRead), Error> {
        let failed = |source| Error::rows(self.store.object(), source);
        if stand_in.outage().holds() {
            let found = self.store.rows_at_hand(wanted).await.map_err(failed)?;
            return Ok((found, RowsRead::default()));
        }
        let begun = Instant::now();
        let batch = self.store.rows_each(wanted).in_current_span().await;
        let batch = batch.map_err(failed)?;
        let mut outage = None;
        let mut found = Vec::with_capacity(batch.rows.len());
        for row in batch.rows {
            found.push(match row {
                Ok(row) => Some(row),
                Err(error) if is_outage(&error) => {
                    outage.get_or_insert(error);
                    None
                }
                Err(error) => return Err(failed(error)),
            });
        }
        match outage {
            Some(error) => {
                tracing::warn!("{}", failed(error).chain());
                stand_in.outage().begin(begun.elapsed());
            }
            // A batch that asked the origin nothing says nothing about it.
            None if batch.report.missed > 0 => stand_in.outage().end(),
            None => {}
        }
        Ok((found, RowsRead::of(&batch.report)))
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

    /// Positions whose row is an approximation.
    #[must_use]
    pub fn approximated_rows(&self) -> u64 {
        let rows = self.chunks.iter().flatten();
        rows.filter(|row| row.is_approximated()).count() as u64
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
        let row = embedding.row_at_hand(2, Phase::Decode, &traffic).unwrap();
        assert_eq!(row.unwrap().as_ref().as_ptr(), bytes[8..].as_ptr());
        assert!(embedding.row_at_hand(3, Phase::Decode, &traffic).is_err());
        assert_eq!(traffic.ledger().rows_asked, 4);
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
            4,
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
