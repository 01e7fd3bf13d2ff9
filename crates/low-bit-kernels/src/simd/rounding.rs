//! The loops of quantising activations on vectors.
#![allow(
    unsafe_code,
    reason = "vector operations on arrays whose length the types say"
)]

use super::vector::{OnVectors, Vector};
use crate::activation::Rounding;

impl<V: Vector> Rounding for OnVectors<V> {
    #[inline(always)]
    fn largest_magnitude_bits(values: &[[f32; 16]]) -> u32 {
        // SAFETY: whoever named this type vouches for the CPU; each array holds 16 floats.
        unsafe {
            let mask = V::splat_int(0x7fff_ffff);
            let mut largest = V::splat_int(0);
            for values in values {
                let mut place = 0;
                while place < values.len() {
                    let bits = V::bits(V::load(values.as_ptr().add(place)));
                    largest = V::largest(largest, V::and_bits(bits, mask));
                    place += V::ROWS;
                }
            }
            V::largest_element(largest)
        }
    }

    #[inline(always)]
    fn round(values: &[f32; 16], factor: f32, levels: &mut [i8; 16]) -> i32 {
        // SAFETY: whoever named this type vouches for the CPU; both arrays hold 16.
        unsafe { V::round_16(values.as_ptr(), factor, levels.as_mut_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::OnVectors;
    use crate::activation::{PlainRounding, Rounding};

    /// Halves, both signs, zeros of both signs, the limits.
    fn values() -> Vec<[f32; 16]> {
        let all: Vec<f32> = (-254..=254_i16).map(|i| f32::from(i) / 2.0).collect();
        let mut all = all.as_chunks::<16>().0.to_vec();
        all.push([-0.0; 16]);
        all
    }

    fn agrees<R: Rounding>() {
        for values in values() {
            let (mut expected, mut found) = ([0; 16], [1; 16]);
            for factor in [1.0, -1.0, 0.999] {
                let sum = PlainRounding::round(&values, factor, &mut expected);
                assert_eq!(R::round(&values, factor, &mut found), sum);
                assert_eq!(found, expected);
            }
            let two = [[1.0; 16], values];
            let expected = PlainRounding::largest_magnitude_bits(&two);
            assert_eq!(R::largest_magnitude_bits(&two), expected);
        }
        let mut odd = [[2.0; 16]; 2];
        odd[1][11] = f32::NAN;
        let nan = PlainRounding::largest_magnitude_bits(&odd);
        assert_eq!(R::largest_magnitude_bits(&odd), nan);
    }

    #[test]
    fn every_instruction_set_rounds_as_plain_rust_does() {
        agrees::<PlainRounding>();
        on_vectors();
    }

    #[cfg(target_arch = "x86_64")]
    fn on_vectors() {
        use crate::simd::avx2::{Avx2, AvxVnni};
        use crate::simd::avx512::Avx512;
        use crate::simd::{has_avx_vnni, has_avx2, has_avx512_vnni};
        if has_avx2() {
            agrees::<OnVectors<Avx2>>();
        }
        if has_avx_vnni() {
            agrees::<OnVectors<AvxVnni>>();
        }
        if has_avx512_vnni() {
            agrees::<OnVectors<Avx512>>();
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn on_vectors() {
        if crate::simd::has_neon() {
            agrees::<OnVectors<crate::simd::neon::Neon>>();
        }
    }
}
