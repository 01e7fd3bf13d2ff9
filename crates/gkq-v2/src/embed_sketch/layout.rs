//! Every position and number of a sketch's body. Not here: what the values mean and which are valid.
//! Specification: `docs/format/embed-sketch.md`, which carries the digest of this file.

use crate::layout::Field;

/// First bytes of a sketch.
pub(super) const MAGIC: [u8; 8] = *b"gkqsktch";
/// The one version that is read and written.
pub(super) const VERSION: u32 = 1;
/// The one form of the factors: components f32, coefficients i8 with a f32 scale a row.
pub(super) const FORM_F32_I8: u32 = 1;

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const MAGIC_AT: Field<0, 8> = Field;
pub(super) const VERSION_AT: Field<8, 4> = Field;
pub(super) const FORM: Field<12, 4> = Field;
pub(super) const ROWS: Field<16, 8> = Field;
pub(super) const COLS: Field<24, 4> = Field;
pub(super) const RANK: Field<28, 4> = Field;
pub(super) const RELATIVE_ERROR: Field<32, 8> = Field;
pub(super) const MEAN_COSINE: Field<40, 8> = Field;
pub(super) const WORST_COSINE: Field<48, 4> = Field;
pub(super) const WORST_ROW: Field<52, 4> = Field;
pub(super) const RESERVED: Field<56, 8> = Field;

/// Bytes of one value of a component.
pub(super) const COMPONENT_BYTES: u64 = 4;
/// Bytes of a row's scale.
pub(super) const SCALE_BYTES: usize = 4;
