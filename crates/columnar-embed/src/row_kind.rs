//! The element types that stored rows may have, what a row of each takes, and the arithmetic
//! between them. Not a quantiser for weights of layers: a row is one embedding, read as a whole.
//! Specification: docs/format/sidecar.md, "Row kinds" and "Widening".

mod float;
mod fp8;
mod integer;

use std::fmt;

use crate::sidecar::layout::kind as code;

pub use float::FloatKind;

/// How the values of one stored row are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RowKind {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// OCP OFP8 E4M3: bias 7, largest value 448, no infinities.
    Fp8E4m3,
    /// OCP OFP8 E5M2: bias 15, largest value 57,344, infinities and NaNs as IEEE 754 has them.
    Fp8E5m2,
    /// A scale (f32), then one signed byte a value: `scale * q`.
    Int8,
    /// A scale (f32) and a zero point (u8), then one byte a value: `scale * (q - zero_point)`.
    Int8Zp,
    /// A scale (f32), then four signed bits a value, the lower half of a byte first.
    Int4,
    /// A scale (f32) and a zero point (u8), then four bits a value, the lower half first.
    Int4Zp,
}

/// A value that a kind cannot hold: it would become infinite, or is not finite itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unrepresentable {
    /// Position of the value in its row.
    pub column: usize,
    /// The value.
    pub value: f32,
}

impl RowKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Fp8E4m3,
        Self::Fp8E5m2,
        Self::Int8,
        Self::Int8Zp,
        Self::Int4,
        Self::Int4Zp,
    ];

    /// The number that stands for this kind in a sidecar; GGML's where GGML has the type.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::F32 => code::F32,
            Self::F16 => code::F16,
            Self::Bf16 => code::BF16,
            Self::Fp8E4m3 => code::FP8_E4M3,
            Self::Fp8E5m2 => code::FP8_E5M2,
            Self::Int8 => code::INT8,
            Self::Int8Zp => code::INT8_ZP,
            Self::Int4 => code::INT4,
            Self::Int4Zp => code::INT4_ZP,
        }
    }

    /// The kind with this code.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The name in lower case, as flags and reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Fp8E4m3 => "fp8_e4m3",
            Self::Fp8E5m2 => "fp8_e5m2",
            Self::Int8 => "int8",
            Self::Int8Zp => "int8_zp",
            Self::Int4 => "int4",
            Self::Int4Zp => "int4_zp",
        }
    }

    /// The kind with this [`name`](Self::name), in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a row of `cols` values, scale and zero point included, or `None` where they are
    /// more than 32 bits count.
    #[must_use]
    pub fn row_bytes(self, cols: u64) -> Option<u32> {
        let bytes = match self {
            Self::F32 => cols.checked_mul(4)?,
            Self::F16 | Self::Bf16 => cols.checked_mul(2)?,
            Self::Fp8E4m3 | Self::Fp8E5m2 => cols,
            Self::Int8 => cols.checked_add(4)?,
            Self::Int8Zp => cols.checked_add(5)?,
            Self::Int4 => cols.div_ceil(2).checked_add(4)?,
            Self::Int4Zp => cols.div_ceil(2).checked_add(5)?,
        };
        u32::try_from(bytes).ok()
    }

    /// Whether rows of a matrix of `matrix` may be stored in this kind: its own, or one with fewer
    /// bits a value. Others would cost bytes and give nothing.
    #[must_use]
    pub fn fits(self, matrix: FloatKind) -> bool {
        self == matrix.kind() || self.bits() < matrix.kind().bits()
    }

    /// Bits of one value.
    const fn bits(self) -> u32 {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::Fp8E4m3 | Self::Fp8E5m2 | Self::Int8 | Self::Int8Zp => 8,
            Self::Int4 | Self::Int4Zp => 4,
        }
    }

    /// Encodes one row: round to nearest, ties to even.
    ///
    /// The integer kinds spread their codes over the row's own range, so that the largest magnitude
    /// is met; with a zero point, the range from the smallest to the largest value, 0 included.
    ///
    /// # Errors
    /// [`Unrepresentable`] with the first value that is not finite or too large for the kind.
    pub fn encode(self, values: &[f32]) -> Result<Vec<u8>, Unrepresentable> {
        if let Some(column) = values.iter().position(|value| !value.is_finite()) {
            let value = values[column];
            return Err(Unrepresentable { column, value });
        }
        let stored = match self {
            Self::F32 => FloatKind::F32.encode(values),
            Self::F16 => FloatKind::F16.encode(values),
            Self::Bf16 => FloatKind::Bf16.encode(values),
            Self::Fp8E4m3 => return each_value(values, fp8::E4M3),
            Self::Fp8E5m2 => return each_value(values, fp8::E5M2),
            Self::Int8 => integer::encode_symmetric(values, integer::Width::Byte),
            Self::Int8Zp => integer::encode_affine(values, integer::Width::Byte),
            Self::Int4 => integer::encode_symmetric(values, integer::Width::Nibble),
            Self::Int4Zp => integer::encode_affine(values, integer::Width::Nibble),
        };
        // A float that became infinite, or a row whose range is too wide for its scale.
        let mut back = vec![0.0; values.len()];
        self.decode(&stored, &mut back);
        match back.iter().position(|value| !value.is_finite()) {
            None => Ok(stored),
            Some(column) => Err(Unrepresentable {
                column,
                value: values[column],
            }),
        }
    }

    /// The values of a stored row as f32; any bytes give some values, the same
    /// bits on every processor: a NaN is always `7fc00000`.
    ///
    /// `stored` has [`RowKind::row_bytes`] of `values.len()` bytes; of a shorter row only the
    /// values that are there are written.
    pub fn decode(self, stored: &[u8], values: &mut [f32]) {
        match self {
            Self::F32 => FloatKind::F32.decode(stored, values),
            Self::F16 => FloatKind::F16.decode(stored, values),
            Self::Bf16 => FloatKind::Bf16.decode(stored, values),
            Self::Fp8E4m3 => fp8::E4M3.decode_row(stored, values),
            Self::Fp8E5m2 => fp8::E5M2.decode_row(stored, values),
            Self::Int8 => integer::decode_symmetric(stored, integer::Width::Byte, values),
            Self::Int8Zp => integer::decode_affine(stored, integer::Width::Byte, values),
            Self::Int4 => integer::decode_symmetric(stored, integer::Width::Nibble, values),
            Self::Int4Zp => integer::decode_affine(stored, integer::Width::Nibble, values),
        }
    }

    /// The row of a matrix of `matrix`, `cols` values wide, that a stored row stands for. A row of
    /// the matrix's own kind is the same bytes; of any other the values are decoded to f32 and
    /// rounded to `matrix`, to nearest, ties to even.
    #[must_use]
    pub fn widen(self, stored: &[u8], matrix: FloatKind, cols: usize) -> Vec<u8> {
        if self == matrix.kind() {
            return stored.to_vec();
        }
        let mut values = vec![0.0; cols];
        self.decode(stored, &mut values);
        matrix.encode(&values)
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn each_value(values: &[f32], format: fp8::Format) -> Result<Vec<u8>, Unrepresentable> {
    let encoded = values.iter().enumerate().map(|(column, &value)| {
        format
            .encode(value)
            .ok_or(Unrepresentable { column, value })
    });
    encoded.collect()
}

/// The one NaN that decoding gives, or `value` itself. Which NaN a product of f32 makes, and with
/// which sign, differs between processors.
fn canonical(value: f32) -> f32 {
    if value.is_nan() {
        f32::from_bits(0x7fc0_0000)
    } else {
        value
    }
}

#[cfg(test)]
mod tests;
