//! Rows of integers with their scale, and where asked a zero point, in front: `scale * q` or
//! `scale * (q - zero_point)`, one f32 product a value. Specification: docs/format/sidecar.md,
//! "Integer rows".

/// Bits of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// Eight: one byte a code.
    Byte,
    /// Four: two codes a byte, the lower half first.
    Nibble,
}

impl Width {
    /// Largest magnitude of a signed code; the most negative one is not written, so that a row and
    /// its negative have equal errors.
    const fn largest_signed(self) -> f32 {
        match self {
            Self::Byte => 127.0,
            Self::Nibble => 7.0,
        }
    }

    /// Largest unsigned code.
    const fn largest_unsigned(self) -> f32 {
        match self {
            Self::Byte => 255.0,
            Self::Nibble => 15.0,
        }
    }

    /// Codes as bytes; of an odd number of nibbles the last half is 0.
    fn pack(self, codes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Byte => out.extend_from_slice(codes),
            Self::Nibble => out.extend(codes.chunks(2).map(|pair| match *pair {
                [low, high] => (low & 0x0f) | (high << 4),
                [low] => low & 0x0f,
                _ => 0,
            })),
        }
    }

    /// Code `index` of `packed`, 0 behind its end.
    fn code(self, packed: &[u8], index: usize) -> u8 {
        let byte = |at: usize| packed.get(at).copied().unwrap_or_default();
        match self {
            Self::Byte => byte(index),
            Self::Nibble => (byte(index / 2) >> (4 * (index % 2))) & 0x0f,
        }
    }
}

pub(super) fn encode_symmetric(values: &[f32], width: Width) -> Vec<u8> {
    let largest = values
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let scale = largest / width.largest_signed();
    let codes: Vec<u8> = values
        .iter()
        .map(|value| {
            let code = nearest(*value, scale);
            let bound = width.largest_signed();
            signed_byte(code.clamp(-bound, bound))
        })
        .collect();
    let mut stored = scale.to_le_bytes().to_vec();
    width.pack(&codes, &mut stored);
    stored
}

pub(super) fn encode_affine(values: &[f32], width: Width) -> Vec<u8> {
    // 0 is part of the range, so that it has a code of its own.
    let low = values
        .iter()
        .fold(0.0_f32, |least, value| least.min(*value));
    let high = values.iter().fold(0.0_f32, |most, value| most.max(*value));
    let bound = width.largest_unsigned();
    let scale = (high - low) / bound;
    let zero_point = nearest(-low, scale).clamp(0.0, bound);
    let codes: Vec<u8> = values
        .iter()
        .map(|value| unsigned_byte((nearest(*value, scale) + zero_point).clamp(0.0, bound)))
        .collect();
    let mut stored = scale.to_le_bytes().to_vec();
    stored.push(unsigned_byte(zero_point));
    width.pack(&codes, &mut stored);
    stored
}

pub(super) fn decode_symmetric(stored: &[u8], width: Width, values: &mut [f32]) {
    let Some((scale, packed)) = stored.split_first_chunk::<4>() else {
        return;
    };
    let scale = f32::from_le_bytes(*scale);
    for (index, value) in values.iter_mut().enumerate() {
        let code = width.code(packed, index).cast_signed();
        let code = match width {
            Width::Byte => code,
            // The sign of four bits is their highest one.
            Width::Nibble => (code << 4) >> 4,
        };
        *value = super::canonical(scale * f32::from(code));
    }
}

pub(super) fn decode_affine(stored: &[u8], width: Width, values: &mut [f32]) {
    let Some((scale, [zero_point, packed @ ..])) = stored.split_first_chunk::<4>() else {
        return;
    };
    let scale = f32::from_le_bytes(*scale);
    for (index, value) in values.iter_mut().enumerate() {
        let code = i16::from(width.code(packed, index)) - i16::from(*zero_point);
        *value = super::canonical(scale * f32::from(code));
    }
}

/// `value / scale` to the nearest integer, ties to even; 0 where the row has no range.
fn nearest(value: f32, scale: f32) -> f32 {
    if scale == 0.0 {
        return 0.0;
    }
    (value / scale).round_ties_even()
}

fn signed_byte(code: f32) -> u8 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "clamped to 127 and its negative by the caller; a NaN becomes 0"
    )]
    let code = code as i8;
    code.cast_unsigned()
}

fn unsigned_byte(code: f32) -> u8 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=255 by the caller; a NaN becomes 0"
    )]
    let code = code as u8;
    code
}
