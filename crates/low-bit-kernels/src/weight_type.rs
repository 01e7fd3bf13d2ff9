//! The stored types of a weight row and their block geometry, as GGML defines them (`ggml-common.h`).
//! No decoding here: see `block.rs`.

use std::fmt;

/// How the values of a weight row are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// 4 bits, one f16 scale per 32 values.
    Q4_0,
    /// 4 bits, f16 scale and minimum per 32 values.
    Q4_1,
    /// 5 bits, one f16 scale per 32 values.
    Q5_0,
    /// 5 bits, f16 scale and minimum per 32 values.
    Q5_1,
    /// 8 bits, one f16 scale per 32 values.
    Q8_0,
    /// 2 bits, 4-bit scales and minima per 16 values, super-blocks of 256.
    Q2K,
    /// 3 bits, 6-bit scales per 16 values, super-blocks of 256.
    Q3K,
    /// 4 bits, 6-bit scales and minima per 32 values, super-blocks of 256.
    Q4K,
    /// 5 bits, 6-bit scales and minima per 32 values, super-blocks of 256.
    Q5K,
    /// 6 bits, 8-bit scales per 16 values, super-blocks of 256.
    Q6K,
}

impl WeightType {
    /// Every type, smallest GGML number first.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
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
    ];

    /// Values that are decoded together; 1 for the floating-point types.
    #[must_use]
    pub const fn values_per_block(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn bytes_per_block(self) -> usize {
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

    /// Bytes of a row of `cols` values; `None` unless `cols` is a whole number of blocks and the
    /// product fits.
    #[must_use]
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.values_per_block()) {
            return None;
        }
        (cols / self.values_per_block()).checked_mul(self.bytes_per_block())
    }

    /// Whether values are stored as floating-point numbers, without blocks.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// The type's lower-case name, such as `q4_k`.
    #[must_use]
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
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
