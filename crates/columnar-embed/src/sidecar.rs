//! The sidecar of a row store whose rows are of several kinds: which kind each row has, where it
//! lies, and what it is widened to. Not I/O: bytes in, ranges out. Stores of one kind, the matrix's
//! own, have none. Specification: docs/format/sidecar.md.
//!
//! ```
//! use columnar_embed::{FloatKind, KindError, RowId, RowKind, Sidecar, SidecarBuilder};
//!
//! // Three rows of 4 values: two as the bf16 matrix has them, the last one in fp8.
//! let kinds = [RowKind::Bf16, RowKind::Fp8E4m3];
//! let mut builder = SidecarBuilder::new(FloatKind::Bf16, 3, 4, &kinds)?;
//! for kind in [RowKind::Bf16, RowKind::Bf16, RowKind::Fp8E4m3] {
//!     builder.push(kind)?;
//! }
//! let exact = KindError::default();
//! let stored = [0_u8; 8 + 8 + 4];
//! let bytes = builder.finish(*blake3::hash(&stored).as_bytes(), &[exact, exact])?;
//!
//! let sidecar = Sidecar::parse(&bytes)?;
//! assert_eq!(sidecar.range(RowId(2))?, helix_transport::ByteRange { start: 16, end: 20 });
//! assert_eq!(sidecar.kind(RowId(2))?, RowKind::Fp8E4m3);
//! // 0x38 is 1.0 in E4M3, 0x3f80 is 1.0 in bf16.
//! assert_eq!(sidecar.widen(RowId(2), &[0x38; 4])?[..2], [0x80, 0x3f]);
//! # Ok::<(), columnar_embed::Error>(())
//! ```

pub(crate) mod layout;
#[cfg(test)]
mod naive;
mod reader;
mod writer;

use helix_transport::ByteRange;

use crate::{
    Error,
    layout::RowId,
    row_kind::{FloatKind, RowKind},
};
use layout::{BLOCK_ROWS, MAX_KINDS, PLANE_WORDS};

pub use writer::SidecarBuilder;

/// What encoding rows in one kind cost, against the values of the checkpoint; 0 where they were
/// kept as they are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KindError {
    /// Largest absolute difference of a value.
    pub largest: f64,
    /// Frobenius norm of the differences over that of the values, of the rows of this kind.
    pub relative: f64,
}

/// One kind of rows in a sidecar's palette.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PaletteEntry {
    /// How such rows are encoded.
    pub kind: RowKind,
    /// Bytes of one stored row.
    pub row_bytes: u32,
    /// Rows of this kind, at least 1.
    pub rows: u64,
    /// What the encoding cost.
    pub error: KindError,
}

/// A sidecar that was read and found good: every row has a kind, and every offset is the sum of the
/// rows before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sidecar {
    rows: u64,
    cols: usize,
    matrix: FloatKind,
    matrix_row_bytes: u32,
    table_bytes: u64,
    table_blake3: [u8; 32],
    blake3: [u8; 32],
    palette: Vec<PaletteEntry>,
    /// Bit planes of a block: as many as it takes to number the palette, 0 to 3.
    planes: usize,
    /// Offset of the first row of each block.
    offsets: Vec<u64>,
    /// For each block and plane, eight words; bit `i % 64` of word `i / 64` belongs to row `i` of
    /// the block.
    words: Vec<u64>,
}

/// A row's kind, by its place in the palette, and where its bytes start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    kind: usize,
    start: u64,
}

impl Sidecar {
    /// Number of rows, at least 1.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Values of one row, at least 1.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The element type that rows are widened to: the matrix's.
    #[must_use]
    pub fn matrix(&self) -> FloatKind {
        self.matrix
    }

    /// Bytes of a widened row; no stored row of a matrix's own or a smaller type is longer but for
    /// its scale.
    #[must_use]
    pub fn matrix_row_bytes(&self) -> u32 {
        self.matrix_row_bytes
    }

    /// Bytes of all stored rows, which is the length of the row file.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// BLAKE3 of all stored rows.
    #[must_use]
    pub fn table_blake3(&self) -> [u8; 32] {
        self.table_blake3
    }

    /// BLAKE3 of the sidecar: it covers the digest of the rows, their kinds and what they are
    /// widened to, so it names the widened rows.
    #[must_use]
    pub fn blake3(&self) -> [u8; 32] {
        self.blake3
    }

    /// The kinds of rows, each at most once, 1 to 8.
    #[must_use]
    pub fn palette(&self) -> &[PaletteEntry] {
        &self.palette
    }

    /// The stored bytes of row `id` in the row file. Takes the same time for every row.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] where `id` is not below [`Sidecar::rows`].
    pub fn range(&self, id: RowId) -> Result<ByteRange, Error> {
        self.check(id)?;
        Ok(self.checked_range(id))
    }

    /// The kind of row `id`.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] as [`Sidecar::range`].
    pub fn kind(&self, id: RowId) -> Result<RowKind, Error> {
        self.check(id)?;
        Ok(self.palette[self.find(id).kind].kind)
    }

    /// The row of the matrix, [`Sidecar::matrix_row_bytes`] long, that `stored` stands for.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`], or [`Error::RowLength`] where `stored` has not the length of a
    /// row of its kind.
    pub fn widen(&self, id: RowId, stored: &[u8]) -> Result<Vec<u8>, Error> {
        self.check(id)?;
        let entry = &self.palette[self.find(id).kind];
        if stored.len() as u64 != u64::from(entry.row_bytes) {
            return Err(Error::RowLength {
                row: id,
                expected_bytes: entry.row_bytes.into(),
                found_bytes: stored.len() as u64,
            });
        }
        Ok(entry.kind.widen(stored, self.matrix, self.cols))
    }

    /// Whether there is a row `id`.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] where there is none.
    pub fn check(&self, id: RowId) -> Result<(), Error> {
        if id.0 < self.rows {
            return Ok(());
        }
        Err(Error::RowOutsideMatrix {
            row: id,
            rows: self.rows,
        })
    }

    /// The stored bytes of a row that passed [`Sidecar::check`].
    pub(crate) fn checked_range(&self, id: RowId) -> ByteRange {
        let Found { kind, start } = self.find(id);
        let end = start + u64::from(self.palette[kind].row_bytes);
        ByteRange { start, end }
    }

    /// Looks a row up: the offset of its block, and for each kind the rows of that kind before it,
    /// counted a word at a time. Sums were checked against overflow when the sidecar was read.
    fn find(&self, id: RowId) -> Found {
        let block = usize::try_from(id.0 / BLOCK_ROWS).unwrap_or(usize::MAX);
        let within = usize::try_from(id.0 % BLOCK_ROWS).unwrap_or_default();
        let words = self.block_words(block);
        let mut start = self.offsets[block];
        for word in 0..=within / 64 {
            let before = match within - 64 * word {
                bits @ 0..64 => (1_u64 << bits) - 1,
                _ => u64::MAX,
            };
            for (index, entry) in self.palette.iter().enumerate() {
                let rows = rows_of_kind(words, self.planes, word, index) & before;
                start += u64::from(rows.count_ones()) * u64::from(entry.row_bytes);
            }
        }
        let (word, bit) = (within / 64, within % 64);
        let kind = (0..self.planes)
            .map(|plane| usize::from(words[plane * PLANE_WORDS + word] >> bit & 1 == 1) << plane)
            .sum();
        Found { kind, start }
    }

    fn block_words(&self, block: usize) -> &[u64] {
        let length = self.planes * PLANE_WORDS;
        &self.words[block * length..(block + 1) * length]
    }
}

/// The rows among the 64 of `word` that have palette index `index`, as bits.
fn rows_of_kind(block_words: &[u64], planes: usize, word: usize, index: usize) -> u64 {
    (0..planes).fold(u64::MAX, |rows, plane| {
        let bits = block_words[plane * PLANE_WORDS + word];
        rows & if index >> plane & 1 == 1 { bits } else { !bits }
    })
}

/// Bit planes that number `kinds` kinds: 0 for one, 3 for eight.
fn planes_for(kinds: usize) -> usize {
    debug_assert!((1..=MAX_KINDS).contains(&kinds), "{kinds} kinds");
    kinds.next_power_of_two().trailing_zeros() as usize
}

#[cfg(test)]
mod tests;
