//! Rows that no prompt has asked for yet, fetched in the background in small batches, hottest first.
//! A convenience: what keeps it from its work is said once and fails nothing.

use crate::embedding::Embedding;
use crate::error::Error;
use crate::hot_ids::hot_ids;
use crate::knot::OpenKnot;
use crate::traffic::Traffic;
use columnar_embed::RowId;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Rows of one batch: small, so that a prompt that comes meanwhile waits for little.
const BATCH_ROWS: usize = 256;

/// Rows on their way. Dropping it ends the work; rows that have arrived stay.
#[derive(Debug, Default)]
pub struct Warming {
    // Ends its task when dropped.
    task: JoinSet<()>,
}

impl Warming {
    /// Starts to fetch the `rows` hottest rows; with 0, or without a row store, nothing.
    #[must_use]
    pub fn start(
        rows: u64,
        knot: Arc<OpenKnot>,
        embedding: Arc<Embedding>,
        traffic: Arc<Traffic>,
    ) -> Self {
        let mut task = JoinSet::new();
        if rows > 0 {
            task.spawn(async move {
                match warm(rows, &knot, &embedding, &traffic).await {
                    Ok(rows) => tracing::debug!(rows, "hot rows are at hand"),
                    Err(error) => {
                        tracing::warn!("hot rows are not fetched ahead: {}", error.chain());
                    }
                }
            });
        }
        Self { task }
    }

    /// Waits until the rows are there, or cannot be had.
    pub async fn finished(mut self) {
        while self.task.join_next().await.is_some() {}
    }
}

async fn warm(
    rows: u64,
    knot: &OpenKnot,
    embedding: &Embedding,
    traffic: &Traffic,
) -> Result<usize, Error> {
    let Embedding::Columnar(columnar) = embedding else {
        return Ok(0);
    };
    let ids = hot_ids(knot, rows, traffic).await?;
    let store = columnar.store();
    for batch in ids.chunks(BATCH_ROWS) {
        let wanted: Vec<RowId> = batch.iter().copied().map(RowId::from).collect();
        let read = store.rows(&wanted).await;
        read.map_err(|source| Error::rows(store.object(), source))?;
    }
    Ok(ids.len())
}
