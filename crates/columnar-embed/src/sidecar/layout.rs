//! Every position and number of the sidecar: nothing outside this file knows where a field lies.
//! Not here: what the values mean and which are valid. Specification: docs/format/sidecar.md, which
//! carries the digest of this file.

/// First bytes of a sidecar. The high bit and the line ends make a transfer that mangles text
/// visible.
pub(crate) const MAGIC: [u8; 8] = *b"\x89RIX\r\n\x1a\n";
/// The one version that this crate reads and writes.
pub(crate) const VERSION: u32 = 1;
/// The half of the `flags` word whose bits a reader must know.
pub(crate) const REQUIRED_FLAGS: u32 = 0xffff_0000;

/// Rows of a block: the block table has one offset for each, so a row's place is found from that
/// offset and the kinds of at most 511 rows before it.
pub(crate) const BLOCK_ROWS: u64 = 512;
/// 64-bit words of one bit plane of a block.
pub(crate) const PLANE_WORDS: usize = 8;
/// Bytes of one bit plane of a block.
pub(crate) const PLANE_BYTES: u64 = 64;
/// Most kinds of rows: three bit planes name eight.
pub(crate) const MAX_KINDS: usize = 8;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 128;
/// Bytes of one entry of the palette, which follows the header and always has eight.
pub(crate) const ENTRY_BYTES: usize = 32;
/// Offset of the block table, behind header and palette.
pub(crate) const BLOCK_TABLE_AT: usize = HEADER_BYTES + MAX_KINDS * ENTRY_BYTES;
/// Bytes of one entry of the block table.
pub(crate) const OFFSET_BYTES: usize = 8;

/// Offsets of the header's fields.
pub(crate) mod header {
    /// 8 bytes.
    pub(crate) const MAGIC: usize = 0;
    /// u32.
    pub(crate) const VERSION: usize = 8;
    /// u32.
    pub(crate) const FLAGS: usize = 12;
    /// u64: length of the sidecar.
    pub(crate) const SIDECAR_BYTES: usize = 16;
    /// u64.
    pub(crate) const ROWS: usize = 24;
    /// u64: values of one row.
    pub(crate) const COLS: usize = 32;
    /// u64: length of all stored rows.
    pub(crate) const TABLE_BYTES: usize = 40;
    /// u32: element type that rows are widened to.
    pub(crate) const MATRIX_KIND: usize = 48;
    /// u32: used entries of the palette.
    pub(crate) const KINDS: usize = 52;
    /// 8 bytes.
    pub(crate) const RESERVED: usize = 56;
    /// 32 bytes: BLAKE3 of all stored rows.
    pub(crate) const TABLE_BLAKE3: usize = 64;
    /// 32 bytes: BLAKE3 of the sidecar without this field.
    pub(crate) const SIDECAR_BLAKE3: usize = 96;
}

/// Offsets of the fields of a palette entry.
pub(crate) mod entry {
    /// u32: a code of [`super::kind`].
    pub(crate) const KIND: usize = 0;
    /// u32: bytes of a stored row of this kind.
    pub(crate) const ROW_BYTES: usize = 4;
    /// u64: rows of this kind.
    pub(crate) const ROWS: usize = 8;
    /// f64: largest absolute difference to the checkpoint.
    pub(crate) const LARGEST_ERROR: usize = 16;
    /// f64: Frobenius norm of the difference over that of the checkpoint's rows.
    pub(crate) const RELATIVE_ERROR: usize = 24;
}

/// Codes of row kinds; below 256 they are GGML's numbers.
pub(crate) mod kind {
    pub(crate) const F32: u32 = 0;
    pub(crate) const F16: u32 = 1;
    pub(crate) const BF16: u32 = 30;
    pub(crate) const FP8_E4M3: u32 = 256;
    pub(crate) const FP8_E5M2: u32 = 257;
    pub(crate) const INT8: u32 = 258;
    pub(crate) const INT8_ZP: u32 = 259;
    pub(crate) const INT4: u32 = 260;
    pub(crate) const INT4_ZP: u32 = 261;
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_TABLE_AT, ENTRY_BYTES, HEADER_BYTES, entry, header};

    #[track_caller]
    fn assert_tiles(record_bytes: usize, fields: &[(usize, usize)]) {
        let mut cursor = 0;
        for (offset, bytes) in fields {
            assert_eq!(
                *offset, cursor,
                "a field starts where the one before it ends"
            );
            cursor += bytes;
        }
        assert_eq!(cursor, record_bytes, "the fields fill the record");
    }

    #[test]
    fn fields_tile_header_and_entry() {
        use header::*;
        let fields = [
            (MAGIC, 8),
            (VERSION, 4),
            (FLAGS, 4),
            (SIDECAR_BYTES, 8),
            (ROWS, 8),
            (COLS, 8),
            (TABLE_BYTES, 8),
            (MATRIX_KIND, 4),
            (KINDS, 4),
            (RESERVED, 8),
            (TABLE_BLAKE3, 32),
            (SIDECAR_BLAKE3, 32),
        ];
        assert_tiles(HEADER_BYTES, &fields);
        let fields = [
            (entry::KIND, 4),
            (entry::ROW_BYTES, 4),
            (entry::ROWS, 8),
            (entry::LARGEST_ERROR, 8),
            (entry::RELATIVE_ERROR, 8),
        ];
        assert_tiles(ENTRY_BYTES, &fields);
        assert_eq!(BLOCK_TABLE_AT, 384);
    }
}
