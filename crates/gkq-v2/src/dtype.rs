//! Element types and the bytes a row of them takes. No arithmetic on values: blocks are kept byte
//! for byte. Specification: `docs/format/gkq-v2.md`, element types.

use std::fmt;

use crate::layout::dtype as code;

/// The element type of a block as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// GGML `Q4_0`: 32 values in 18 bytes.
    Q4_0,
    /// GGML `Q4_1`: 32 values in 20 bytes.
    Q4_1,
    /// GGML `Q5_0`: 32 values in 22 bytes.
    Q5_0,
    /// GGML `Q5_1`: 32 values in 24 bytes.
    Q5_1,
    /// GGML `Q8_0`: 32 values in 34 bytes.
    Q8_0,
    /// GGML `Q2_K`: 256 values in 84 bytes.
    Q2K,
    /// GGML `Q3_K`: 256 values in 110 bytes.
    Q3K,
    /// GGML `Q4_K`: 256 values in 144 bytes.
    Q4K,
    /// GGML `Q5_K`: 256 values in 176 bytes.
    Q5K,
    /// GGML `Q6_K`: 256 values in 210 bytes.
    Q6K,
}

impl Dtype {
    /// Every element type, in the order of their codes.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Bf16,
    ];

    /// The number that stands for this type in a knot, and in GGML.
    pub const fn code(self) -> u32 {
        match self {
            Self::F32 => code::F32,
            Self::F16 => code::F16,
            Self::Bf16 => code::BF16,
            Self::Q4_0 => code::Q4_0,
            Self::Q4_1 => code::Q4_1,
            Self::Q5_0 => code::Q5_0,
            Self::Q5_1 => code::Q5_1,
            Self::Q8_0 => code::Q8_0,
            Self::Q2K => code::Q2_K,
            Self::Q3K => code::Q3_K,
            Self::Q4K => code::Q4_K,
            Self::Q5K => code::Q5_K,
            Self::Q6K => code::Q6_K,
        }
    }

    /// The type with this code, or `None` for a code that a knot may not use.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.code() == code)
    }

    /// The name in lower case, as flags and reports write it: `bf16`, `q4_k`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// The type with this [`name`](Self::name), in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name().eq_ignore_ascii_case(name))
    }

    /// Values that are stored together; 1 for plain floating point.
    pub const fn values_per_block(self) -> u64 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes that [`values_per_block`](Self::values_per_block) values take.
    pub const fn bytes_per_block(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a row of `cols` values, or `None` if the row is not a whole number of blocks or its
    /// length overflows.
    pub fn row_bytes(self, cols: u64) -> Option<u64> {
        let values = self.values_per_block();
        if !cols.is_multiple_of(values) {
            return None;
        }
        cols.checked_div(values)?
            .checked_mul(self.bytes_per_block())
    }

    /// Bytes of a whole tensor of this shape (row-major, last dimension contiguous), or `None` as in
    /// [`row_bytes`](Self::row_bytes). A shape without dimensions has no bytes to speak of: `None`.
    pub fn tensor_bytes(self, shape: &[u64]) -> Option<u64> {
        let (&cols, outer) = shape.split_last()?;
        outer
            .iter()
            .try_fold(self.row_bytes(cols)?, |bytes, &dim| bytes.checked_mul(dim))
    }

    /// Whether each value stands alone: the types that spectral factors may have.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Dtype;

    #[test]
    fn codes_and_names_find_their_type_again() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_code(dtype.code()), Some(dtype));
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
            assert_eq!(Dtype::from_name(&dtype.name().to_uppercase()), Some(dtype));
        }
        assert_eq!(Dtype::from_code(9), None, "Q8_1 is no storage type");
        assert_eq!(Dtype::from_name("int8"), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(Dtype::Bf16.row_bytes(896), Some(1_792));
        assert_eq!(Dtype::Q8_0.row_bytes(640), Some(680));
        assert_eq!(
            Dtype::Q4K.row_bytes(640),
            None,
            "640 is two and a half super-blocks"
        );
        assert_eq!(Dtype::Q6K.row_bytes(2_048), Some(1_680));
        assert_eq!(Dtype::F32.row_bytes(u64::MAX), None);
    }

    #[test]
    fn tensors_multiply_without_overflow() {
        assert_eq!(Dtype::F32.tensor_bytes(&[151_936, 896]), Some(544_538_624));
        assert_eq!(Dtype::F32.tensor_bytes(&[1 << 40, 1 << 30]), None);
        assert_eq!(Dtype::F32.tensor_bytes(&[]), None);
    }
}
