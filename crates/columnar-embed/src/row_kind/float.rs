//! The floating-point types that a matrix may have: f32, f16, bf16, little-endian. The arithmetic
//! is the `half` crate's. Specification: docs/format/sidecar.md, "Row kinds".

use half::{bf16, f16};

use super::{RowKind, canonical};

/// The element type of a matrix that rows are widened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatKind {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
}

impl FloatKind {
    /// The same type as the kind of a row.
    #[must_use]
    pub const fn kind(self) -> RowKind {
        match self {
            Self::F32 => RowKind::F32,
            Self::F16 => RowKind::F16,
            Self::Bf16 => RowKind::Bf16,
        }
    }

    /// The type that is `kind`, where a matrix may have it.
    #[must_use]
    pub const fn from_kind(kind: RowKind) -> Option<Self> {
        match kind {
            RowKind::F32 => Some(Self::F32),
            RowKind::F16 => Some(Self::F16),
            RowKind::Bf16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.kind().name()
    }

    /// Values to bytes, to nearest, ties to even; what is too large becomes infinite.
    pub(super) fn encode(self, values: &[f32]) -> Vec<u8> {
        let values = values.iter();
        match self {
            Self::F32 => values.flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values
                .flat_map(|value| f16::from_f32(*value).to_le_bytes())
                .collect(),
            Self::Bf16 => values
                .flat_map(|value| bf16::from_f32(*value).to_le_bytes())
                .collect(),
        }
    }

    pub(super) fn decode(self, stored: &[u8], values: &mut [f32]) {
        match self {
            Self::F32 => {
                for (value, bytes) in values.iter_mut().zip(stored.as_chunks::<4>().0) {
                    *value = canonical(f32::from_le_bytes(*bytes));
                }
            }
            Self::F16 => {
                for (value, bytes) in values.iter_mut().zip(stored.as_chunks::<2>().0) {
                    *value = canonical(f16::from_le_bytes(*bytes).to_f32());
                }
            }
            Self::Bf16 => {
                for (value, bytes) in values.iter_mut().zip(stored.as_chunks::<2>().0) {
                    *value = canonical(bf16::from_le_bytes(*bytes).to_f32());
                }
            }
        }
    }
}
