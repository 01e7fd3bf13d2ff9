//! Makes a sidecar while rows are written in order. Holds the kinds of the rows seen so far, nothing
//! of the rows themselves. Specification: docs/format/sidecar.md.

use super::{
    KindError, Sidecar,
    layout::{
        BLOCK_ROWS, BLOCK_TABLE_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, MAX_KINDS, PLANE_WORDS,
        VERSION, entry as entry_at, header as at,
    },
    planes_for,
    reader::{digest, row_bytes, sidecar_bytes},
};
use crate::{
    Error,
    row_kind::{FloatKind, RowKind},
    row_tree::MAX_ROWS,
};

/// A sidecar under way: tell it the kind of each row, in order.
#[derive(Debug)]
pub struct SidecarBuilder {
    matrix: FloatKind,
    rows: u64,
    cols: u64,
    /// Kind, bytes of a row, rows so far.
    palette: Vec<(RowKind, u32, u64)>,
    pushed: u64,
    table_bytes: u64,
    offsets: Vec<u64>,
    words: Vec<u64>,
}

impl SidecarBuilder {
    /// Begins the sidecar of `rows` rows of `cols` values of a matrix of `matrix`, stored in
    /// `kinds`. The palette has these kinds in this order.
    ///
    /// # Errors
    /// [`Error::TreeRows`] for no rows or too many, [`Error::RowKinds`] for kinds that no sidecar
    /// can have: none, more than 8, one twice, one that does not fit the matrix, or the matrix's
    /// own alone.
    pub fn new(matrix: FloatKind, rows: u64, cols: u64, kinds: &[RowKind]) -> Result<Self, Error> {
        if rows == 0 || rows > MAX_ROWS {
            return Err(Error::TreeRows { rows });
        }
        let refuse = |reason| Error::RowKinds {
            kinds: kinds.iter().map(|kind| kind.name()).collect(),
            matrix: matrix.name(),
            reason,
        };
        if kinds.is_empty() || kinds.len() > MAX_KINDS {
            return Err(refuse("a store has 1 to 8 kinds of rows"));
        }
        let twice = |(index, kind): (usize, &RowKind)| kinds[..index].contains(kind);
        if kinds.iter().enumerate().any(twice) {
            return Err(refuse("a kind stands there twice"));
        }
        if !kinds.iter().all(|kind| kind.fits(matrix)) {
            return Err(refuse("a kind is not smaller than the matrix's own"));
        }
        if kinds == [matrix.kind()] {
            return Err(refuse("rows of the matrix's own kind need no sidecar"));
        }
        let palette: Result<Vec<_>, Error> = kinds
            .iter()
            .map(|kind| Ok((*kind, row_bytes(*kind, cols)?, 0)))
            .collect();
        Ok(Self {
            matrix,
            rows,
            cols,
            palette: palette?,
            pushed: 0,
            table_bytes: 0,
            offsets: Vec::new(),
            words: Vec::new(),
        })
    }

    /// Bytes that a stored row of `kind` has.
    ///
    /// # Errors
    /// [`Error::RowKinds`] for a kind that is not in the palette.
    pub fn row_bytes(&self, kind: RowKind) -> Result<u32, Error> {
        let index = self.index(kind)?;
        Ok(self.palette[index].1)
    }

    /// Rows that the sidecar will have.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes that the sidecar will have.
    #[must_use]
    pub fn sidecar_bytes(&self) -> u64 {
        sidecar_bytes(self.rows, self.palette.len())
    }

    /// Notes the kind of the next row.
    ///
    /// # Errors
    /// [`Error::RowKinds`] for a kind that is not in the palette, [`Error::RowCount`] behind the
    /// last row, [`Error::TableOverflow`] where the rows' bytes do not fit 64 bits.
    pub fn push(&mut self, kind: RowKind) -> Result<(), Error> {
        if self.pushed == self.rows {
            return Err(Error::RowCount {
                expected: self.rows,
                found: self.pushed + 1,
            });
        }
        let index = self.index(kind)?;
        let planes = planes_for(self.palette.len());
        let within = usize::try_from(self.pushed % BLOCK_ROWS).unwrap_or_default();
        if within == 0 {
            self.offsets.push(self.table_bytes);
            let words = self.words.len() + planes * PLANE_WORDS;
            self.words.resize(words, 0);
        }
        let block = self.words.len() - planes * PLANE_WORDS;
        for plane in 0..planes {
            let bit = (index as u64) >> plane & 1;
            self.words[block + plane * PLANE_WORDS + within / 64] |= bit << (within % 64);
        }
        let (_, row_bytes, rows) = &mut self.palette[index];
        *rows += 1;
        self.pushed += 1;
        self.table_bytes =
            self.table_bytes
                .checked_add(u64::from(*row_bytes))
                .ok_or(Error::TableOverflow {
                    base_bytes: self.table_bytes,
                    rows: 1,
                    row_bytes: *row_bytes,
                })?;
        Ok(())
    }

    /// Ends the sidecar: its bytes. `table_blake3` is the digest of the stored rows, `errors` what
    /// each kind cost, in the order of the palette.
    ///
    /// # Errors
    /// [`Error::RowCount`] where rows are missing; [`Error::Sidecar`] where a kind has no rows or
    /// a figure is not one: what could not be read is not written.
    pub fn finish(self, table_blake3: [u8; 32], errors: &[KindError]) -> Result<Vec<u8>, Error> {
        if self.pushed != self.rows {
            return Err(Error::RowCount {
                expected: self.rows,
                found: self.pushed,
            });
        }
        let mut bytes = vec![0; BLOCK_TABLE_AT];
        let sidecar_bytes = self.sidecar_bytes();
        let kinds = u32::try_from(self.palette.len()).unwrap_or(u32::MAX);
        put(&mut bytes, at::MAGIC, &MAGIC);
        put(&mut bytes, at::VERSION, &VERSION.to_le_bytes());
        put(&mut bytes, at::SIDECAR_BYTES, &sidecar_bytes.to_le_bytes());
        put(&mut bytes, at::ROWS, &self.rows.to_le_bytes());
        put(&mut bytes, at::COLS, &self.cols.to_le_bytes());
        put(&mut bytes, at::TABLE_BYTES, &self.table_bytes.to_le_bytes());
        let matrix = self.matrix.kind().code();
        put(&mut bytes, at::MATRIX_KIND, &matrix.to_le_bytes());
        put(&mut bytes, at::KINDS, &kinds.to_le_bytes());
        put(&mut bytes, at::TABLE_BLAKE3, &table_blake3);
        for (index, (kind, row_bytes, rows)) in self.palette.iter().enumerate() {
            let error = errors.get(index).copied().unwrap_or_default();
            let entry = HEADER_BYTES + index * ENTRY_BYTES;
            let mut field = |offset, value: &[u8]| put(&mut bytes, entry + offset, value);
            field(entry_at::KIND, &kind.code().to_le_bytes());
            field(entry_at::ROW_BYTES, &row_bytes.to_le_bytes());
            field(entry_at::ROWS, &rows.to_le_bytes());
            field(entry_at::LARGEST_ERROR, &error.largest.to_le_bytes());
            field(entry_at::RELATIVE_ERROR, &error.relative.to_le_bytes());
        }
        bytes.extend(self.offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        let digest = digest(&bytes);
        put(&mut bytes, at::SIDECAR_BLAKE3, &digest);
        Sidecar::parse(&bytes)?;
        Ok(bytes)
    }

    fn index(&self, kind: RowKind) -> Result<usize, Error> {
        let found = self.palette.iter().position(|(other, _, _)| *other == kind);
        found.ok_or_else(|| Error::RowKinds {
            kinds: vec![kind.name()],
            matrix: self.matrix.name(),
            reason: "the kind is not in the palette",
        })
    }
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}
