//! Loads distinct rows: one plan, rows and their paths in the same wave, every row checked, a
//! refused one asked for once more. Not a cache; knows nobody who waits.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures::future::join;
use helix_transport::{Connection, Meter, Patience, RangeSource, ReadOptions};

use crate::{
    Error, Row,
    gather::{Gathered, MergeLimits, gather},
    layout::RowId,
    meters::{FetchReport, StoreMeters},
    row_map::RowMap,
    row_tree::PathMismatch,
    verify::{RowTreeVerifier, Verification},
};

/// Fetches rows of one table from one source.
#[derive(Debug)]
pub(crate) struct RowFetcher {
    pub source: Arc<dyn RangeSource>,
    pub map: RowMap,
    pub verification: Verification,
    pub limits: MergeLimits,
    pub meters: StoreMeters,
}

/// What one load gave: a row or an error for each id, and what it took. Rows are as stored until
/// [`RowLoad::widen`].
#[derive(Debug, Default)]
pub(crate) struct RowLoad {
    pub rows: HashMap<RowId, Result<Row, Error>>,
    /// Rows among them that came from the disk tier.
    pub disk_rows: u64,
    received_bytes: u64,
    useful_bytes: u64,
    path_received_bytes: u64,
    requests: u64,
    round_trips: u64,
}

impl RowLoad {
    /// Turns stored rows into rows of the matrix; where `map` stores those, nothing changes.
    pub(crate) fn widen(&mut self, map: &RowMap) {
        for (id, row) in &mut self.rows {
            if let Ok(stored) = row {
                *row = map.widen(*id, Arc::clone(stored));
            }
        }
    }

    /// Writes what the load took into the report of the batch that led it.
    pub(crate) fn charge(&self, report: &mut FetchReport) {
        // The batch took all rows it led for missed, until it knew what the disk had.
        report.disk += self.disk_rows;
        report.missed = report.missed.saturating_sub(self.disk_rows);
        report.received_bytes += self.received_bytes;
        report.useful_bytes += self.useful_bytes;
        report.path_received_bytes += self.path_received_bytes;
        report.requests += self.requests;
        report.round_trips += self.round_trips;
    }
}

/// A row whose bytes are not the published ones.
type Refused = (RowId, PathMismatch);

impl RowFetcher {
    /// Loads `ids`, which must be ascending, distinct and inside the matrix.
    pub(crate) async fn load(&self, ids: &[RowId]) -> RowLoad {
        let mut load = RowLoad::default();
        let refused = self.phase(ids, Connection::Any, &mut load).await;
        if refused.is_empty() {
            return load;
        }
        let again: Vec<RowId> = refused.into_iter().map(|(id, _)| id).collect();
        let refused = self.phase(&again, Connection::Fresh, &mut load).await;
        for (row, PathMismatch { expected, found }) in refused {
            let object = self.source.name().to_owned();
            load.rows.insert(
                row,
                Err(Error::RowIntegrity {
                    object,
                    row,
                    expected,
                    found,
                }),
            );
        }
        load
    }

    /// One round of requests. Answers all `ids` in `load` but those it gives back as refused.
    async fn phase(
        &self,
        ids: &[RowId],
        connection: Connection,
        load: &mut RowLoad,
    ) -> Vec<Refused> {
        let (rows, paths) = join(
            self.gather_rows(ids, connection),
            self.gather_paths(ids, connection),
        )
        .await;
        self.count(&rows, paths.as_ref(), load);
        let mut refused = Vec::new();
        for (index, (id, row)) in ids.iter().copied().zip(rows.pieces).enumerate() {
            let path = paths.as_ref().and_then(|paths| paths.pieces.get(index));
            match self.check(id, row, path) {
                Ok(Ok(row)) => {
                    load.useful_bytes += row.len() as u64;
                    load.rows.insert(id, Ok(row));
                }
                Ok(Err(mismatch)) => refused.push((id, mismatch)),
                Err(error) => {
                    load.rows.insert(id, Err(error));
                }
            }
        }
        refused
    }

    async fn gather_rows(&self, ids: &[RowId], connection: Connection) -> Gathered {
        let ranges: Vec<_> = ids.iter().map(|id| self.map.checked_range(*id)).collect();
        let options = options(&self.meters.rows, connection);
        gather(self.source.as_ref(), &ranges, self.limits, &options).await
    }

    /// The paths of `ids`, or `None` where they are at hand or not needed.
    async fn gather_paths(&self, ids: &[RowId], connection: Connection) -> Option<Gathered> {
        let (source, layout) = self.verifier()?.remote_paths()?;
        let ranges: Vec<_> = ids.iter().map(|id| layout.checked_range(*id)).collect();
        let options = options(&self.meters.paths, connection);
        Some(gather(source, &ranges, self.limits, &options).await)
    }

    /// Whether a row that was not fetched is the published one, as far as that can be told without a
    /// request: where paths are at hand, by the tree.
    pub(crate) fn accepts_at_hand(&self, id: RowId, row: &[u8]) -> bool {
        match self.verifier() {
            Some(verifier) if verifier.remote_paths().is_none() => {
                verifier.verify(id, row, verifier.local_path(id)).is_ok()
            }
            _ => true,
        }
    }

    fn verifier(&self) -> Option<&RowTreeVerifier> {
        match &self.verification {
            Verification::Off => None,
            Verification::Tree(verifier) => Some(verifier),
        }
    }

    fn count(&self, rows: &Gathered, paths: Option<&Gathered>, load: &mut RowLoad) {
        self.meters.rows.add_waves(rows.round_trips);
        load.received_bytes += rows.received_bytes;
        load.requests += rows.requests;
        let mut round_trips = rows.round_trips;
        if let Some(paths) = paths {
            self.meters.paths.add_waves(paths.round_trips);
            load.path_received_bytes += paths.received_bytes;
            load.requests += paths.requests;
            round_trips = round_trips.max(paths.round_trips);
        }
        load.round_trips += round_trips;
    }

    /// The outer error is a read that failed, the inner one a row that does not verify.
    fn check(
        &self,
        id: RowId,
        row: Result<Bytes, Arc<helix_transport::Error>>,
        remote_path: Option<&Result<Bytes, Arc<helix_transport::Error>>>,
    ) -> Result<Result<Row, PathMismatch>, Error> {
        let row = row.map_err(|source| read_error(self.source.as_ref(), source))?;
        if let Some(verifier) = self.verifier() {
            let path = match (remote_path, verifier.remote_paths()) {
                (Some(Ok(path)), _) => path,
                (Some(Err(error)), Some((source, _))) => {
                    return Err(read_error(source, Arc::clone(error)));
                }
                _ => verifier.local_path(id),
            };
            if let Err(mismatch) = verifier.verify(id, &row, path) {
                self.meters.rows.add_integrity_failure();
                tracing::warn!(
                    object = self.source.name(),
                    row = id.0,
                    "row does not verify"
                );
                return Ok(Err(mismatch));
            }
            if remote_path.is_some() {
                self.meters.paths.add_useful(path.len() as u64);
            }
        }
        self.meters.rows.add_useful(row.len() as u64);
        // Copied out: a view would keep the whole reply alive for one row.
        Ok(Ok(Row::from(&row[..])))
    }
}

fn options(meter: &Arc<Meter>, connection: Connection) -> ReadOptions {
    ReadOptions::new(Arc::clone(meter), Patience::Batch).over(connection)
}

fn read_error(source: &dyn RangeSource, error: Arc<helix_transport::Error>) -> Error {
    Error::Read {
        object: source.name().to_owned(),
        source: error,
    }
}
