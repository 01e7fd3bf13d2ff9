//! When all rows are there: the file is hashed as a whole and given the name of a row file. Not a
//! repair of rows; what is damaged is forgotten, and fetched again when it is asked for.
//! Specification: docs/format/row-cache.md, "The complete file".

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
};

use super::{
    file::{Access, Found, TableFiles, complete_path, partial_path},
    layout::Trust,
};
use crate::{Error, layout::RowId};

/// Bytes that are hashed between two reads.
const PIECE_BYTES: u64 = 1 << 20;

/// How much of a table is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// Some rows are missing, or nobody can tell whether the rows are the published ones.
    Partial {
        /// Rows that are there.
        present_rows: u64,
        /// Rows of the table.
        rows: u64,
    },
    /// Every row is there, and the file is the row file, byte for byte.
    Complete {
        /// The row file.
        path: PathBuf,
    },
}

impl TableFiles {
    /// Counts the rows; where all are there, checks the file and gives it its final name.
    pub(super) fn complete(&self) -> Result<Completeness, Error> {
        let (complete, partial) = (
            complete_path(&self.directory, &self.table),
            partial_path(&self.directory, &self.table),
        );
        let rows = self.table.rows;
        let map_failed = |error| Error::disk(&self.directory, "read a map of", error);
        let mut present_rows = self.present_rows().map_err(map_failed)?;
        // Unchecked rows may be replaced by others at any time, a file of them is never whole.
        if present_rows < rows || self.table.trust == Trust::Unchecked {
            return Ok(Completeness::Partial { present_rows, rows });
        }
        let has_name = self.is_at(&complete);
        let read_failed = |error| Error::disk(&partial, "read", error);
        if *self.hash().map_err(read_failed)?.as_bytes() != self.table.digest {
            present_rows = rows - self.forget_damaged().map_err(read_failed)?;
            return Ok(Completeness::Partial { present_rows, rows });
        }
        if has_name {
            return Ok(Completeness::Complete { path: complete });
        }
        // Read-only, or replaced under us: the rows are right, the name is not ours to give.
        if !matches!(self.access, Access::ReadWrite) || !self.is_at(&partial) {
            return Ok(Completeness::Partial { present_rows, rows });
        }
        let named = self.data.sync_all();
        let named = named.and_then(|()| fs::rename(&partial, &complete));
        named.map_err(|error| Error::disk(&complete, "rename to", error))?;
        // A name is durable once its directory is; where that cannot be asked for, the rows are
        // whole all the same.
        if let Ok(directory) = File::open(&self.directory) {
            let _ = directory.sync_all();
        }
        Ok(Completeness::Complete { path: complete })
    }

    /// Whether our rows are the file at `path`.
    fn is_at(&self, path: &std::path::Path) -> bool {
        match (self.data.metadata(), fs::symlink_metadata(path)) {
            (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
            _ => false,
        }
    }

    fn hash(&self) -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut piece = Vec::new();
        let mut at = 0;
        while at < self.table.table_bytes {
            let take = PIECE_BYTES.min(self.table.table_bytes - at);
            piece.resize(usize::try_from(take).unwrap_or(0), 0);
            match self.data.read_exact_at(&mut piece, at) {
                // Truncated under us: no row file has this hash.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                read => read?,
            }
            hasher.update(&piece);
            at += take;
        }
        Ok(hasher.finalize())
    }

    /// Forgets rows whose bytes are not those of their entries; how many.
    fn forget_damaged(&self) -> io::Result<u64> {
        let mut damaged = 0;
        for id in (0..self.table.rows).map(RowId) {
            if self.read(id)? == Found::Damaged {
                damaged += 1;
                if matches!(self.access, Access::ReadWrite) {
                    self.forget(id)?;
                }
            }
        }
        Ok(damaged)
    }
}
