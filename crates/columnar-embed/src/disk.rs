//! [`DiskTier`]: rows that were fetched once, kept in a sparse file of the row file's layout beside a
//! map of what is there. Shared by the stations of one machine, without locks. Not the cache in
//! memory, and not a store of its own: it can only answer with rows that it was given.
//! Specification: docs/format/row-cache.md.
//!
//! Nothing depends on the order in which bytes reach the disk. Each row that is read is hashed and
//! compared with its entry in the map, so a row or an entry that was cut short, a flipped bit, or
//! two processes that write at once can make a row absent, never wrong.

mod complete;
mod file;
mod layout;
mod load;
mod worker;

use std::{
    fmt,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

pub use complete::Completeness;
pub use layout::{CachedTable, Trust};
pub(crate) use load::load;

use crate::{Error, Row, layout::RowId, row_map::RowMap};
use worker::{Shared, work};

/// How long a batch waits for rows from disk before it asks the origin: a disk that hangs must not
/// hang the station.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(5);

/// How long dropping a tier waits for its last rows to be written.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The rows of one table on disk. All file work is done by one thread of its own; dropping the tier
/// waits until what is queued is written, at most ten seconds.
pub struct DiskTier {
    handle: TierHandle,
}

/// What a load uses of a tier: it does not keep the tier from ending, and afterwards finds and keeps
/// nothing.
#[derive(Debug, Clone)]
pub(crate) struct TierHandle {
    shared: Arc<Shared>,
}

/// What became of rows in a tier since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounts {
    /// Rows that were read.
    pub read_rows: u64,
    /// Rows that were there and were not what their entry says; they were fetched again.
    pub damaged_rows: u64,
    /// Rows that were written.
    pub written_rows: u64,
    /// Rows that were not written because more than 64 MiB of them waited.
    pub dropped_rows: u64,
}

impl DiskTier {
    /// Starts the tier of `table` in `directory`, which is made if it is not there; `rows` says where
    /// each row lies. At once: the files are opened by the tier's thread. Where that fails, one
    /// warning says why, nothing is found and nothing is kept; [`DiskTier::flush`] gives the error.
    ///
    /// The directory must be on a local file system, whose processes see each other's writes.
    #[must_use]
    pub fn start(directory: &Path, table: CachedTable, rows: RowMap) -> Self {
        let shared = Arc::new(Shared::new(directory.to_owned()));
        let of_thread = Arc::clone(&shared);
        let started = std::thread::Builder::new()
            .name("row-cache".to_owned())
            .spawn(move || work(&of_thread, table, rows));
        if let Err(error) = started {
            shared.close_reads(Error::disk(directory, "start a thread for", error));
            shared.end();
        }
        Self {
            handle: TierHandle { shared },
        }
    }

    /// Where the files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.handle.shared.directory()
    }

    pub(crate) fn handle(&self) -> TierHandle {
        self.handle.clone()
    }

    /// Waits until the rows handed over so far are written.
    ///
    /// # Errors
    /// [`Error::Disk`] or [`Error::DiskVersion`] where rows are no longer kept: the first reason.
    pub async fn flush(&self) -> Result<(), Error> {
        match self.handle.shared.flush().await {
            Ok(flushed) => flushed,
            Err(_ended) => Err(self.ended()),
        }
    }

    /// Writes what is queued and counts the rows that are there. Where all are, the file is hashed as
    /// a whole, and becomes a row file under the name `DIGEST.rows`. Dropping the tier does the same.
    ///
    /// # Errors
    /// [`Error::Disk`] where the files cannot be read or renamed.
    pub async fn complete(&self) -> Result<Completeness, Error> {
        match self.handle.shared.complete().await {
            Ok(complete) => complete,
            Err(_ended) => Err(self.ended()),
        }
    }

    /// What became of rows so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        let counters = &self.handle.shared.counters;
        DiskCounts {
            read_rows: counters.read.load(Ordering::Relaxed),
            damaged_rows: counters.damaged.load(Ordering::Relaxed),
            written_rows: counters.written.load(Ordering::Relaxed),
            dropped_rows: counters.dropped.load(Ordering::Relaxed),
        }
    }

    fn ended(&self) -> Error {
        let source = std::io::Error::other("its thread has ended");
        let ended = || Error::disk(self.directory(), "use", source);
        self.handle.shared.failure().unwrap_or_else(ended)
    }
}

impl TierHandle {
    /// The rows among `ids` that are on disk, in the order of `ids`, as they are stored. Must be
    /// called within a tokio runtime that has a timer.
    pub(crate) async fn look_up(&self, ids: &[RowId]) -> Vec<(RowId, Row)> {
        let Some(answer) = self.shared.look_up(ids.to_vec()) else {
            return Vec::new();
        };
        match tokio::time::timeout(LOOKUP_PATIENCE, answer).await {
            // A thread that has ended has said why.
            Ok(answer) => answer.unwrap_or_default(),
            Err(_elapsed) => {
                let source = std::io::ErrorKind::TimedOut.into();
                let error = Error::disk(self.shared.directory(), "read rows in time from", source);
                self.shared.close_reads(error);
                Vec::new()
            }
        }
    }

    /// Keeps stored `rows`, some time later.
    pub(crate) fn insert(&self, rows: impl IntoIterator<Item = (RowId, Row)>) {
        self.shared.insert(rows);
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        if !self.handle.shared.stop(STOP_PATIENCE) {
            tracing::warn!(
                "the row cache in {} is slow: its last rows were not written in {} s",
                self.directory().display(),
                STOP_PATIENCE.as_secs()
            );
        }
    }
}

impl fmt::Debug for DiskTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskTier")
            .field("directory", &self.directory())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the tables of the tests fit in memory"
)]
mod tests;
