//! Where a row lies: fixed stride in one object, checked arithmetic. Not I/O, not merging of
//! ranges (that is the transport's planner). Specification: docs/format/row-store.md, "Layout".

use std::fmt;

use helix_transport::ByteRange;

use crate::Error;

/// Index of a row in its matrix, from 0.
///
/// For a token embedding it is the token id; for an n-gram or per-layer table it is whatever the
/// model hashes to. Nothing here knows which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u32> for RowId {
    fn from(id: u32) -> Self {
        Self(u64::from(id))
    }
}

/// Rows of one matrix at a fixed stride: row `i` is `bytes[base + i * row_bytes, + row_bytes)`.
///
/// A bare row file has base 0; rows inside a safetensors file, a GGUF or a knot have the offset of
/// their tensor as base. A layout that was built cannot overflow: its end fits a `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowLayout {
    base_bytes: u64,
    rows: u64,
    row_bytes: u32,
    table_bytes: u64,
}

impl RowLayout {
    /// Describes `rows` rows of `row_bytes` bytes each, the first at `base_bytes` of its object.
    ///
    /// # Errors
    /// [`Error::EmptyTable`] without rows or with rows of no bytes, [`Error::TableOverflow`] where
    /// the end of the table does not fit 64 bits.
    pub fn new(base_bytes: u64, rows: u64, row_bytes: u32) -> Result<Self, Error> {
        if rows == 0 || row_bytes == 0 {
            return Err(Error::EmptyTable { rows, row_bytes });
        }
        let table_bytes = rows
            .checked_mul(u64::from(row_bytes))
            .filter(|table_bytes| base_bytes.checked_add(*table_bytes).is_some())
            .ok_or(Error::TableOverflow {
                base_bytes,
                rows,
                row_bytes,
            })?;
        Ok(Self {
            base_bytes,
            rows,
            row_bytes,
            table_bytes,
        })
    }

    /// Offset of row 0 in its object, in bytes.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Number of rows, at least 1.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of one row, at least 1; also the stride.
    #[must_use]
    pub fn row_bytes(&self) -> u32 {
        self.row_bytes
    }

    /// Bytes of all rows together: `rows * row_bytes`.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Offset behind the last row in its object, in bytes.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.base_bytes + self.table_bytes
    }

    /// The bytes of row `id` in its object.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] where `id` is not below [`RowLayout::rows`].
    pub fn range(&self, id: RowId) -> Result<ByteRange, Error> {
        self.check(id)?;
        Ok(self.checked_range(id))
    }

    /// The bytes of a row that passed [`RowLayout::check`]: nothing overflows then, for the end of
    /// the last row was checked in [`RowLayout::new`].
    pub(crate) fn checked_range(&self, id: RowId) -> ByteRange {
        let start = self.base_bytes + id.0 * u64::from(self.row_bytes);
        ByteRange {
            start,
            end: start + u64::from(self.row_bytes),
        }
    }

    /// Whether the matrix has a row `id`.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] where it has not.
    pub fn check(&self, id: RowId) -> Result<(), Error> {
        if id.0 < self.rows {
            Ok(())
        } else {
            Err(Error::RowOutsideMatrix {
                row: id,
                rows: self.rows,
            })
        }
    }

    /// Whether the whole table lies inside an object of `len_bytes` bytes named `object`.
    ///
    /// # Errors
    /// [`Error::ObjectTooShort`] where the object ends before the table.
    pub fn check_object(&self, object: &str, len_bytes: u64) -> Result<(), Error> {
        if self.end_bytes() <= len_bytes {
            return Ok(());
        }
        Err(Error::ObjectTooShort {
            object: object.to_owned(),
            expected_bytes: self.end_bytes(),
            found_bytes: len_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_at_a_fixed_stride_behind_the_base() {
        let layout = RowLayout::new(4096, 151_936, 1792).unwrap();
        assert_eq!(layout.table_bytes(), 272_269_312);
        assert_eq!(layout.end_bytes(), 272_273_408);
        assert_eq!(
            layout.range(RowId(0)).unwrap(),
            ByteRange {
                start: 4096,
                end: 5888
            }
        );
        let last = layout.range(RowId(151_935)).unwrap();
        assert_eq!(last.end, layout.end_bytes());
    }

    #[test]
    fn a_row_outside_the_matrix_is_named_with_the_number_of_rows() {
        let error = RowLayout::new(0, 9, 4)
            .unwrap()
            .range(RowId(9))
            .unwrap_err();
        assert_eq!(error.to_string(), "row 9 is outside the matrix of 9 rows");
        let far = RowLayout::new(0, 9, 4).unwrap().range(RowId(u64::MAX));
        assert!(matches!(far, Err(Error::RowOutsideMatrix { rows: 9, .. })));
    }

    #[test]
    fn empty_and_overflowing_tables_are_refused() {
        for (rows, row_bytes) in [(0, 4), (4, 0), (0, 0)] {
            assert!(matches!(
                RowLayout::new(0, rows, row_bytes),
                Err(Error::EmptyTable { .. })
            ));
        }
        for (base, rows, row_bytes) in [
            (0, u64::MAX, 2),
            (u64::MAX, 1, 1),
            (u64::MAX - 7, 2, 4),
            (1, u64::MAX, 1),
        ] {
            let refused = RowLayout::new(base, rows, row_bytes);
            assert!(
                matches!(refused, Err(Error::TableOverflow { .. })),
                "{base} {rows}"
            );
        }
        assert!(
            RowLayout::new(u64::MAX - 8, 2, 4).is_ok(),
            "the end may be the last offset"
        );
    }
}
