//! Loads rows through a tier: what is on disk first, the rest from the source, which is then kept.
//! Not a cache in memory, and no widening: rows are as stored.

use std::sync::Arc;

use super::TierHandle;
use crate::{
    Row,
    fetch::{RowFetcher, RowLoad},
    layout::RowId,
};

/// Loads `ids`, which must be ascending, distinct and inside the matrix.
pub(crate) async fn load(
    fetcher: &RowFetcher,
    tier: Option<&TierHandle>,
    ids: &[RowId],
) -> RowLoad {
    let Some(tier) = tier else {
        return fetcher.load(ids).await;
    };
    let mut on_disk = tier.look_up(ids).await;
    // Where paths are at hand a second check costs a few hashes, and holds also against whoever may
    // write the directory.
    on_disk.retain(|(id, row)| fetcher.accepts_at_hand(*id, row));
    let missing: Vec<RowId> = {
        let mut found = on_disk.iter().map(|(id, _)| *id).peekable();
        let is_missing = |id: &&RowId| found.next_if_eq(*id).is_none();
        ids.iter().filter(is_missing).copied().collect()
    };
    let mut load = match missing.as_slice() {
        [] => RowLoad::default(),
        missing => fetcher.load(missing).await,
    };
    let fetched = load.rows.iter().filter_map(|(id, row)| {
        let row: &Row = row.as_ref().ok()?;
        Some((*id, Arc::clone(row)))
    });
    tier.insert(fetched);
    load.disk_rows = on_disk.len() as u64;
    load.rows
        .extend(on_disk.into_iter().map(|(id, row)| (id, Ok(row))));
    load
}
