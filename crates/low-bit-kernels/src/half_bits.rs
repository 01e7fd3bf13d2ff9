//! Reading f16 and bf16 from little-endian bytes without alignment. Widening is exact, so it is a
//! few integer operations; narrowing, which rounds, is left to the `half` crate.

/// The largest finite half.
pub(crate) const MOST_F16: f32 = 65_504.0;

/// Widens an IEEE half, subnormals, infinities and NaNs included.
///
/// Written with selects rather than branches so that loops over it vectorise; `half` asks for the
/// CPU's features on each call instead.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = (u32::from(bits) & 0x8000) << 16;
    let magnitude = u32::from(bits) & 0x7fff;
    // Exponents are biased by 15 there and by 127 here: a product with 2^112 moves them, and makes
    // subnormals normal, exactly.
    let finite = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    // Infinities and NaNs keep their mantissa under the highest exponent.
    let special = if magnitude >= 0x7c00 { 0xff << 23 } else { 0 };
    f32::from_bits(finite.to_bits() | special | sign)
}

/// The nearest half, ties to even; a finite value beyond [`MOST_F16`] becomes that one.
#[inline(always)]
pub(crate) fn narrow_f16(value: f32) -> u16 {
    let cut = if value.is_finite() {
        value.clamp(-MOST_F16, MOST_F16)
    } else {
        value
    };
    half::f16::from_f32_const(cut).to_bits()
}

/// Widens a bf16.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The f16 at `bytes[at..at + 2]`, widened.
#[inline(always)]
pub(crate) fn read_f16(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[cfg(test)]
mod tests {
    use super::f16_to_f32;

    #[test]
    fn every_half_widens_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32();
            let found = f16_to_f32(bits);
            assert!(
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()),
                "{bits:#06x}: {found} instead of {expected}"
            );
        }
    }
}
