//! Where each row lies and what its bytes stand for: one stride for all rows, or a sidecar for rows
//! of several kinds. Not I/O. Specification: docs/format/row-store.md, "Layout".

use std::sync::Arc;

use helix_transport::ByteRange;

use crate::{
    Error, Row,
    layout::{RowId, RowLayout},
    sidecar::Sidecar,
};

/// From a row id to its bytes in an object, and from the bytes stored there to the row that is
/// handed out.
///
/// Stored bytes are what an object holds, what is fetched, what the row tree covers and what a disk
/// tier keeps. A row as handed out has [`RowMap::row_bytes`] bytes, those of the matrix, whatever
/// the kind it is stored in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RowMap {
    /// All rows at one stride; stored rows are the rows of the matrix.
    Fixed(RowLayout),
    /// Rows of several kinds, one after another from the start of the object.
    Indexed(Arc<Sidecar>),
}

impl From<RowLayout> for RowMap {
    fn from(layout: RowLayout) -> Self {
        Self::Fixed(layout)
    }
}

impl From<Arc<Sidecar>> for RowMap {
    fn from(sidecar: Arc<Sidecar>) -> Self {
        Self::Indexed(sidecar)
    }
}

impl RowMap {
    /// Number of rows, at least 1.
    #[must_use]
    pub fn rows(&self) -> u64 {
        match self {
            Self::Fixed(layout) => layout.rows(),
            Self::Indexed(sidecar) => sidecar.rows(),
        }
    }

    /// Bytes of a row as it is handed out. A stored row may have a few more, its scale, where rows
    /// are very short.
    #[must_use]
    pub fn row_bytes(&self) -> u32 {
        match self {
            Self::Fixed(layout) => layout.row_bytes(),
            Self::Indexed(sidecar) => sidecar.matrix_row_bytes(),
        }
    }

    /// Offset of row 0 in its object, in bytes.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        match self {
            Self::Fixed(layout) => layout.base_bytes(),
            Self::Indexed(_) => 0,
        }
    }

    /// Bytes of all stored rows together, which lie without gaps.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        match self {
            Self::Fixed(layout) => layout.table_bytes(),
            Self::Indexed(sidecar) => sidecar.table_bytes(),
        }
    }

    /// Offset behind the last row in its object, in bytes.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        match self {
            Self::Fixed(layout) => layout.end_bytes(),
            Self::Indexed(sidecar) => sidecar.table_bytes(),
        }
    }

    /// The stored bytes of row `id` in its object.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] where `id` is not below [`RowMap::rows`].
    pub fn range(&self, id: RowId) -> Result<ByteRange, Error> {
        self.check(id)?;
        Ok(self.checked_range(id))
    }

    /// Bytes that row `id` takes in its object, at least 1.
    ///
    /// # Errors
    /// As [`RowMap::range`].
    pub fn stored_bytes(&self, id: RowId) -> Result<u64, Error> {
        self.range(id).map(|range| range.len())
    }

    /// Whether the matrix has a row `id`.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] where it has not.
    pub fn check(&self, id: RowId) -> Result<(), Error> {
        match self {
            Self::Fixed(layout) => layout.check(id),
            Self::Indexed(sidecar) => sidecar.check(id),
        }
    }

    /// The stored bytes of a row that passed [`RowMap::check`].
    pub(crate) fn checked_range(&self, id: RowId) -> ByteRange {
        match self {
            Self::Fixed(layout) => layout.checked_range(id),
            Self::Indexed(sidecar) => sidecar.checked_range(id),
        }
    }

    /// The row of the matrix that `stored`, the stored bytes of row `id`, stands for: the same
    /// bytes where rows are stored as the matrix has them.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`], or [`Error::RowLength`] where `stored` has not the length of
    /// row `id`.
    pub fn widen(&self, id: RowId, stored: Row) -> Result<Row, Error> {
        let layout = match self {
            Self::Fixed(layout) => layout,
            Self::Indexed(sidecar) => return Ok(sidecar.widen(id, &stored)?.into()),
        };
        layout.check(id)?;
        if stored.len() as u64 == u64::from(layout.row_bytes()) {
            return Ok(stored);
        }
        Err(Error::RowLength {
            row: id,
            expected_bytes: layout.row_bytes().into(),
            found_bytes: stored.len() as u64,
        })
    }

    /// Whether all stored rows lie inside an object of `len_bytes` bytes named `object`.
    ///
    /// # Errors
    /// [`Error::ObjectTooShort`] where the object ends before them.
    pub fn check_object(&self, object: &str, len_bytes: u64) -> Result<(), Error> {
        match self {
            Self::Fixed(layout) => layout.check_object(object, len_bytes),
            Self::Indexed(sidecar) if sidecar.table_bytes() <= len_bytes => Ok(()),
            Self::Indexed(sidecar) => Err(Error::ObjectTooShort {
                object: object.to_owned(),
                expected_bytes: sidecar.table_bytes(),
                found_bytes: len_bytes,
            }),
        }
    }
}
