//! The sidecar's oracle: the kind of every row in a list, offsets by adding up from row 0. It reads
//! the planes bit by bit from the bytes, with no help from the reader.

use helix_transport::ByteRange;

use super::layout::{BLOCK_ROWS, BLOCK_TABLE_AT, PLANE_BYTES};
use crate::row_kind::RowKind;

/// The kinds of a store's rows, one by one.
#[derive(Debug, Clone)]
pub(super) struct RowList {
    pub(super) kinds: Vec<RowKind>,
    pub(super) cols: u64,
}

impl RowList {
    /// The range of a row, by a scan of all rows before it.
    pub(super) fn range(&self, row: usize) -> ByteRange {
        let bytes = |kind: &RowKind| u64::from(kind.row_bytes(self.cols).unwrap());
        let start: u64 = self.kinds[..row].iter().map(bytes).sum();
        let end = start + bytes(&self.kinds[row]);
        ByteRange { start, end }
    }

    pub(super) fn table_bytes(&self) -> u64 {
        self.kinds
            .len()
            .checked_sub(1)
            .map_or(0, |last| self.range(last).end)
    }
}

/// The palette index of a row, from the bytes of a sidecar of `rows` rows and `planes` planes.
pub(super) fn palette_index(bytes: &[u8], rows: u64, planes: u64, row: u64) -> usize {
    let table = rows.div_ceil(BLOCK_ROWS) * 8;
    let block = BLOCK_TABLE_AT as u64 + table + row / BLOCK_ROWS * planes * PLANE_BYTES;
    let within = row % BLOCK_ROWS;
    (0..planes)
        .map(|plane| {
            let at = usize::try_from(block + plane * PLANE_BYTES + within / 8).unwrap();
            let byte = bytes[at];
            usize::from(byte >> (within % 8) & 1) << plane
        })
        .sum()
}
