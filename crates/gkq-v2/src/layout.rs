//! Every position and number of the wire: nothing outside this file knows where a field lies.
//! Not here: what the values mean and which are valid. Specification: `docs/format/gkq-v2.md`,
//! which carries the digest of this file.

/// First bytes of a knot. The high bit and the line ends make a transfer that mangles text visible.
pub(crate) const MAGIC: [u8; 8] = *b"\x89GKQ\r\n\x1a\n";
/// The one version of the container that this crate reads and writes.
pub(crate) const VERSION: u32 = 2;
/// Payloads start on multiples of this many bytes, and the front ends on one.
pub(crate) const PAYLOAD_ALIGN: u64 = 64;
/// The `block` field of a section that belongs to the file and to no block.
pub(crate) const NO_BLOCK: u32 = u32::MAX;
/// Bytes of one hash of the row tree.
pub(crate) const TREE_HASH_BYTES: u32 = 16;
/// Bytes of one entry of a hot-id list.
pub(crate) const HOT_ID_BYTES: usize = 4;

/// `BYTES` bytes at `OFFSET` of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<const OFFSET: usize, const BYTES: usize>;

impl<const OFFSET: usize, const BYTES: usize> Field<OFFSET, BYTES> {
    /// The bytes of the field.
    pub(crate) fn read<const RECORD: usize>(self, record: &[u8; RECORD]) -> [u8; BYTES] {
        const {
            assert!(
                OFFSET.saturating_add(BYTES) <= RECORD,
                "the field lies in its record"
            )
        };
        let (_, from_field) = record.split_at(OFFSET);
        // The assertion above decides at compile time that the chunk is there.
        from_field.first_chunk().copied().unwrap_or([0; BYTES])
    }

    /// Replaces the bytes of the field.
    pub(crate) fn write<const RECORD: usize>(self, record: &mut [u8; RECORD], value: [u8; BYTES]) {
        const {
            assert!(
                OFFSET.saturating_add(BYTES) <= RECORD,
                "the field lies in its record"
            )
        };
        let (_, from_field) = record.split_at_mut(OFFSET);
        if let Some(field) = from_field.first_chunk_mut() {
            *field = value;
        }
    }
}

impl<const OFFSET: usize> Field<OFFSET, 4> {
    pub(crate) fn u32<const RECORD: usize>(self, record: &[u8; RECORD]) -> u32 {
        u32::from_le_bytes(self.read(record))
    }
}

impl<const OFFSET: usize> Field<OFFSET, 8> {
    pub(crate) fn u64<const RECORD: usize>(self, record: &[u8; RECORD]) -> u64 {
        u64::from_le_bytes(self.read(record))
    }
}

/// The fixed header at offset 0.
pub(crate) mod header {
    use super::Field;

    pub(crate) const BYTES: usize = 128;
    pub(crate) const MAGIC: Field<0, 8> = Field;
    pub(crate) const VERSION: Field<8, 4> = Field;
    pub(crate) const FLAGS: Field<12, 4> = Field;
    pub(crate) const OBJECT_BYTES: Field<16, 8> = Field;
    pub(crate) const FRONT_BYTES: Field<24, 8> = Field;
    pub(crate) const BLOCK_COUNT: Field<32, 4> = Field;
    pub(crate) const SECTION_COUNT: Field<36, 4> = Field;
    pub(crate) const NAMES_BYTES: Field<40, 4> = Field;
    pub(crate) const RESERVED: Field<44, 52> = Field;
    /// The last field: it covers all of the front but itself.
    pub(crate) const FRONT_BLAKE3: Field<96, 32> = Field;
    pub(crate) const FRONT_BLAKE3_OFFSET: usize = 96;
}

/// One entry of the block table, which follows the header.
pub(crate) mod block {
    use super::Field;

    pub(crate) const BYTES: usize = 128;
    pub(crate) const NAME_BYTES: Field<0, 4> = Field;
    pub(crate) const KIND: Field<4, 4> = Field;
    pub(crate) const DTYPE: Field<8, 4> = Field;
    pub(crate) const FLAGS: Field<12, 4> = Field;
    pub(crate) const DIMS: Field<16, 4> = Field;
    pub(crate) const RANK: Field<20, 4> = Field;
    pub(crate) const SOURCE_DTYPE: Field<24, 4> = Field;
    pub(crate) const RESERVED_WORD: Field<28, 4> = Field;
    pub(crate) const DIM_0: Field<32, 8> = Field;
    pub(crate) const DIM_1: Field<40, 8> = Field;
    pub(crate) const DIM_2: Field<48, 8> = Field;
    pub(crate) const DIM_3: Field<56, 8> = Field;
    pub(crate) const PAYLOAD_OFFSET: Field<64, 8> = Field;
    pub(crate) const PAYLOAD_BYTES: Field<72, 8> = Field;
    pub(crate) const ERROR: Field<80, 8> = Field;
    pub(crate) const RESERVED_TAIL: Field<88, 8> = Field;
    pub(crate) const BLAKE3: Field<96, 32> = Field;

    /// `kind` of a tensor as stored.
    pub(crate) const KIND_DENSE: u32 = 1;
    /// `kind` of a tensor as `U diag(s) V^T`.
    pub(crate) const KIND_SPECTRAL: u32 = 2;
}

/// One entry of the section table, which follows the block table.
pub(crate) mod section {
    use super::Field;

    pub(crate) const BYTES: usize = 64;
    pub(crate) const KIND: Field<0, 4> = Field;
    pub(crate) const FLAGS: Field<4, 4> = Field;
    pub(crate) const BLOCK: Field<8, 4> = Field;
    pub(crate) const RESERVED: Field<12, 4> = Field;
    pub(crate) const BODY_OFFSET: Field<16, 8> = Field;
    pub(crate) const BODY_BYTES: Field<24, 8> = Field;
    pub(crate) const BLAKE3: Field<32, 32> = Field;

    pub(crate) const KIND_MODEL_CONFIG: u32 = 1;
    pub(crate) const KIND_TOKENIZER: u32 = 2;
    pub(crate) const KIND_TOKENIZER_CONFIG: u32 = 3;
    pub(crate) const KIND_CHAT_TEMPLATE: u32 = 4;
    pub(crate) const KIND_GENERATION_CONFIG: u32 = 5;
    pub(crate) const KIND_PROVENANCE: u32 = 6;
    pub(crate) const KIND_COLUMNAR: u32 = 16;
    pub(crate) const KIND_PINNED_NODES: u32 = 17;
    pub(crate) const KIND_PATH_TABLE: u32 = 18;
    pub(crate) const KIND_HOT_IDS: u32 = 19;
    pub(crate) const KIND_SKETCH: u32 = 20;
    pub(crate) const KIND_ROW_SIDECAR: u32 = 21;
}

/// The body of a columnar section.
pub(crate) mod columnar {
    use super::Field;

    pub(crate) const BYTES: usize = 80;
    pub(crate) const ROWS: Field<0, 8> = Field;
    pub(crate) const ROW_BYTES: Field<8, 4> = Field;
    pub(crate) const DTYPE: Field<12, 4> = Field;
    pub(crate) const ROWS_BLAKE3: Field<16, 32> = Field;
    pub(crate) const TREE_ROOT: Field<48, 16> = Field;
    pub(crate) const PINNED_LEVEL: Field<64, 4> = Field;
    pub(crate) const PATH_BYTES_PER_ROW: Field<68, 4> = Field;
    pub(crate) const RESERVED: Field<72, 8> = Field;
}

/// Bits of the `flags` words. A reader ignores optional bits it does not know and refuses the file
/// for required ones.
pub(crate) mod flags {
    /// The half of every `flags` word whose bits are required.
    pub(crate) const REQUIRED: u32 = 0xFFFF_0000;
    /// Block, optional: the rows of this tensor may be had from a row store.
    pub(crate) const COLUMNAR_ELIGIBLE: u32 = 1 << 0;
    /// Block, required: the payload is not in this object.
    pub(crate) const EXTERNAL_PAYLOAD: u32 = 1 << 16;
}

/// Element type codes, which are the numbers GGML gives these types.
pub(crate) mod dtype {
    pub(crate) const F32: u32 = 0;
    pub(crate) const F16: u32 = 1;
    pub(crate) const Q4_0: u32 = 2;
    pub(crate) const Q4_1: u32 = 3;
    pub(crate) const Q5_0: u32 = 6;
    pub(crate) const Q5_1: u32 = 7;
    pub(crate) const Q8_0: u32 = 8;
    pub(crate) const Q2_K: u32 = 10;
    pub(crate) const Q3_K: u32 = 11;
    pub(crate) const Q4_K: u32 = 12;
    pub(crate) const Q5_K: u32 = 13;
    pub(crate) const Q6_K: u32 = 14;
    pub(crate) const BF16: u32 = 30;
}

#[cfg(test)]
mod tests {
    use super::Field;

    /// The place of a field, forgotten by its type.
    trait Span {
        fn span(&self) -> (usize, usize);
    }
    impl<const OFFSET: usize, const BYTES: usize> Span for Field<OFFSET, BYTES> {
        fn span(&self) -> (usize, usize) {
            (OFFSET, OFFSET.saturating_add(BYTES))
        }
    }

    #[track_caller]
    fn assert_tiles(record_bytes: usize, fields: &[&dyn Span]) {
        let mut cursor = 0;
        for field in fields {
            let (start, end) = field.span();
            assert_eq!(
                start, cursor,
                "a field must start where the one before it ends"
            );
            cursor = end;
        }
        assert_eq!(cursor, record_bytes, "the fields must fill the record");
    }

    #[test]
    fn fields_tile_the_header() {
        use super::header::*;
        let fields: [&dyn Span; 10] = [
            &MAGIC,
            &VERSION,
            &FLAGS,
            &OBJECT_BYTES,
            &FRONT_BYTES,
            &BLOCK_COUNT,
            &SECTION_COUNT,
            &NAMES_BYTES,
            &RESERVED,
            &FRONT_BLAKE3,
        ];
        assert_tiles(BYTES, &fields);
        assert_eq!(FRONT_BLAKE3.span(), (FRONT_BLAKE3_OFFSET, BYTES));
    }

    #[test]
    fn fields_tile_the_entries() {
        {
            use super::block::*;
            let fields: [&dyn Span; 17] = [
                &NAME_BYTES,
                &KIND,
                &DTYPE,
                &FLAGS,
                &DIMS,
                &RANK,
                &SOURCE_DTYPE,
                &RESERVED_WORD,
                &DIM_0,
                &DIM_1,
                &DIM_2,
                &DIM_3,
                &PAYLOAD_OFFSET,
                &PAYLOAD_BYTES,
                &ERROR,
                &RESERVED_TAIL,
                &BLAKE3,
            ];
            assert_tiles(BYTES, &fields);
        }
        {
            use super::section::*;
            let fields: [&dyn Span; 7] = [
                &KIND,
                &FLAGS,
                &BLOCK,
                &RESERVED,
                &BODY_OFFSET,
                &BODY_BYTES,
                &BLAKE3,
            ];
            assert_tiles(BYTES, &fields);
        }
        {
            use super::columnar::*;
            let fields: [&dyn Span; 8] = [
                &ROWS,
                &ROW_BYTES,
                &DTYPE,
                &ROWS_BLAKE3,
                &TREE_ROOT,
                &PINNED_LEVEL,
                &PATH_BYTES_PER_ROW,
                &RESERVED,
            ];
            assert_tiles(BYTES, &fields);
        }
    }

    #[test]
    fn a_field_is_read_where_it_was_written() {
        let mut record = [0_u8; 16];
        let field: Field<4, 4> = Field;
        field.write(&mut record, 0xA1B2_C3D4_u32.to_le_bytes());
        assert_eq!(record[4..8], [0xD4, 0xC3, 0xB2, 0xA1]);
        assert_eq!(field.u32(&record), 0xA1B2_C3D4);
    }
}
