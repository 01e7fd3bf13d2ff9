//! The two 8-bit floating-point formats of OCP OFP8 (revision 1.0): codes to f32, exactly, and f32
//! to the nearest code, ties to even. Nothing is saturated: what is too large has no code.
//! Specification: docs/format/sidecar.md, "fp8".

use super::canonical;

/// E4M3: 1 sign, 4 exponent, 3 mantissa bits, bias 7. `S.1111.111` is NaN, there are no infinities.
pub(super) const E4M3: Format = Format {
    mantissa_bits: 3,
    bias: 7,
    largest_code: 0x7e,
};

/// E5M2: 1 sign, 5 exponent, 2 mantissa bits, bias 15. Exponent 31 is infinity and NaN.
pub(super) const E5M2: Format = Format {
    mantissa_bits: 2,
    bias: 15,
    largest_code: 0x7b,
};

const SIGN: u8 = 0x80;

/// One of the two formats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    mantissa_bits: u8,
    bias: i16,
    /// The code of the largest finite value; codes above it are infinity or NaN.
    largest_code: u8,
}

impl Format {
    pub(super) fn decode_row(self, stored: &[u8], values: &mut [f32]) {
        for (value, code) in values.iter_mut().zip(stored) {
            *value = self.decode(*code);
        }
    }

    /// The value of a code. Every finite one fits f16, bf16 and f32 exactly.
    pub(super) fn decode(self, code: u8) -> f32 {
        let magnitude = code & !SIGN;
        let value = if magnitude > self.largest_code {
            // Only E5M2 has infinities: at exponent 31 with mantissa 0.
            let is_infinite = self.mantissa_bits == 2 && magnitude == 0x7c;
            if is_infinite { f32::INFINITY } else { f32::NAN }
        } else {
            let exponent = i16::from(magnitude >> self.mantissa_bits);
            let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
            let (significand, exponent) = match exponent {
                0 => (mantissa, 1),
                _ => (mantissa | (1 << self.mantissa_bits), exponent),
            };
            let scale = exponent - self.bias - i16::from(self.mantissa_bits);
            f32::from(significand) * power_of_two(scale)
        };
        canonical(if code & SIGN == 0 { value } else { -value })
    }

    /// The code nearest to a value, `None` where that would be no finite one.
    pub(super) fn encode(self, value: f32) -> Option<u8> {
        if !value.is_finite() {
            return None;
        }
        let bits = value.to_bits();
        let fraction = bits & 0x007f_ffff;
        // |value| = significand * 2^(exponent - 23), subnormal values of f32 included.
        let (significand, exponent) = match (bits >> 23) & 0xff {
            0 => (fraction, -126),
            biased => (fraction | 0x0080_0000, i16::try_from(biased).ok()? - 127),
        };
        // The target's quantum is 2^(quantum exponent - mantissa bits); below its smallest normal
        // exponent it no longer shrinks.
        let quantum = exponent.max(1 - self.bias);
        let dropped_bits =
            u32::try_from(quantum - exponent).ok()? + 23 - u32::from(self.mantissa_bits);
        let quanta = round_to_even(significand, dropped_bits);
        // Where rounding carries, the sum of exponent and mantissa carries with it.
        let hidden = 1_u32 << self.mantissa_bits;
        let field = u32::try_from(quantum + self.bias).ok()?;
        let code = (field * hidden + quanta).checked_sub(hidden)?;
        let code = u8::try_from(code).ok()?;
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        (code <= self.largest_code).then_some(code | sign)
    }
}

/// `significand / 2^dropped_bits`, to nearest, ties to even. A significand has 24 bits.
fn round_to_even(significand: u32, dropped_bits: u32) -> u32 {
    if dropped_bits > 25 {
        // Less than half a quantum, whatever the bits are.
        return 0;
    }
    let kept = significand >> dropped_bits;
    let rest = significand & ((1 << dropped_bits) - 1);
    let half = 1 << (dropped_bits - 1);
    let up = rest > half || (rest == half && kept & 1 == 1);
    kept + u32::from(up)
}

/// `2^exponent` for the exponents of the two formats, all normal in f32.
fn power_of_two(exponent: i16) -> f32 {
    let field = u32::try_from(127 + exponent).unwrap_or_default();
    f32::from_bits(field << 23)
}
