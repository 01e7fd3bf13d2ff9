//! Writes a row file whose rows are of several kinds, and the sidecar that finds them again. What
//! the rows are encoded from is the caller's business. Specification: docs/format/sidecar.md.

use std::{io::Write, path::Path};

use super::{RowSink, WrittenRows};
use crate::{
    Error,
    row_kind::RowKind,
    sidecar::{KindError, SidecarBuilder},
};

/// A row file of several kinds under way. Dropped before [`MixedRowFileWriter::finish`], it leaves
/// nothing behind.
#[derive(Debug)]
pub struct MixedRowFileWriter<P> {
    sidecar: SidecarBuilder,
    sink: RowSink<P>,
}

/// What a finished row file of several kinds is known by.
#[derive(Debug)]
pub struct MixedRows<P> {
    /// Digest and tree of the stored rows, and the writer of their paths.
    pub written: WrittenRows<P>,
    /// The sidecar, as it is published.
    pub sidecar: Vec<u8>,
}

impl<P: Write> MixedRowFileWriter<P> {
    /// Begins a file of `rows` rows, those that `sidecar` was made for, that will appear at `path`.
    /// The path table goes to `paths` meanwhile.
    ///
    /// # Errors
    /// [`Error::TreeRows`], or [`Error::Write`] where the sibling of `path` cannot be created.
    pub fn create(path: &Path, sidecar: SidecarBuilder, paths: P) -> Result<Self, Error> {
        let sink = RowSink::create(path, sidecar.rows(), paths)?;
        Ok(Self { sidecar, sink })
    }

    /// Adds the next row as it is stored.
    ///
    /// # Errors
    /// As [`SidecarBuilder::push`] and [`RowFileWriter::push`](crate::RowFileWriter::push).
    pub fn push(&mut self, kind: RowKind, stored: &[u8]) -> Result<(), Error> {
        let row_bytes = self.sidecar.row_bytes(kind)?;
        self.sink.push(stored, row_bytes)?;
        self.sidecar.push(kind)
    }

    /// Ends the file; `errors` are those of [`SidecarBuilder::finish`].
    ///
    /// # Errors
    /// As [`SidecarBuilder::finish`] and [`RowFileWriter::finish`](crate::RowFileWriter::finish).
    pub fn finish(self, errors: &[KindError]) -> Result<MixedRows<P>, Error> {
        let written = self.sink.finish()?;
        let sidecar = self.sidecar.finish(written.blake3, errors)?;
        Ok(MixedRows { written, sidecar })
    }
}
