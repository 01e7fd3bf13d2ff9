//! [`CacheValue`]: the types in which a cache may hold keys and values, and how a value gets in and
//! out of them. Widening is exact, so that attention over rounded values is the f32 attention over
//! what they were rounded to; the products are the same text for all types.

use super::sealed::Sealed;
use crate::half_bits::{f16_to_f32, narrow_f16};
use crate::matrix::expect_length;
use crate::{Error, InstructionSet, WeightType};

/// A type of cached keys and values: `f32`, or `u16` for the bits of an IEEE half. A bare integer
/// rather than a type of its own, because a zeroed buffer of integers comes from the system
/// untouched and takes memory only as it is written.
pub trait CacheValue: Copy + Send + Sync + Sealed {
    /// The stored form.
    const STORED: WeightType;

    /// The value in f32, exactly.
    fn widen(self) -> f32;

    /// Rounds `values` to the nearest stored ones, ties to even.
    ///
    /// In f16 a finite magnitude beyond 65504 becomes 65504: as an infinity it would make a NaN of
    /// every later token's softmax, where a cut one is a single key or value that is off. Infinities
    /// and NaNs stay what they are, so that trouble upstream shows.
    ///
    /// # Errors
    /// [`Error::Length`] if the two are not equally long.
    fn store(values: &[f32], stored: &mut [Self]) -> Result<(), Error>;
}

impl CacheValue for f32 {
    const STORED: WeightType = WeightType::F32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    fn store(values: &[f32], stored: &mut [Self]) -> Result<(), Error> {
        expect_length("stored values", (1, values.len()), stored.len())?;
        stored.copy_from_slice(values);
        Ok(())
    }
}

impl CacheValue for u16 {
    const STORED: WeightType = WeightType::F16;

    #[inline(always)]
    fn widen(self) -> f32 {
        f16_to_f32(self)
    }

    fn store(values: &[f32], stored: &mut [Self]) -> Result<(), Error> {
        expect_length("stored values", (1, values.len()), stored.len())?;
        store_f16(InstructionSet::current(), values, stored);
        Ok(())
    }
}

fn store_f16(set: InstructionSet, values: &[f32], stored: &mut [u16]) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 | InstructionSet::AvxVnni => {
            crate::simd::store_f16_avx2(values, stored);
        }
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => crate::simd::store_f16_avx512(values, stored),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => crate::simd::store_f16_neon(values, stored),
        _ => {
            for (stored, value) in stored.iter_mut().zip(values) {
                *stored = narrow_f16(*value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CacheValue, store_f16};
    use crate::InstructionSet;

    /// What each instruction set stores for `values`.
    fn stored_by_all(values: &[f32]) -> Vec<(InstructionSet, Vec<u16>)> {
        let sets = InstructionSet::ALL.into_iter();
        sets.filter(|set| set.is_available())
            .map(|set| {
                let mut stored = vec![0; values.len()];
                store_f16(set, values, &mut stored);
                (set, stored)
            })
            .collect()
    }

    /// Every half, both of its neighbours in f32, and the points half way to the next half: 19 of
    /// a block's places for the tail of every vector width.
    #[test]
    fn values_round_to_the_nearest_half_and_ties_to_even() {
        for sign in [0.0_f32, -0.0] {
            let mut values = Vec::new();
            for bits in 0..0x7bff_u16 {
                let (this, next) = (bits.widen(), (bits + 1).widen());
                let tie = this + (next - this) / 2.0;
                let near = [tie.next_down(), tie, tie.next_up(), this];
                values.extend(near.map(|value| value.copysign(sign)));
            }
            values.truncate(values.len() / 19 * 19);
            for (set, stored) in stored_by_all(&values) {
                for (value, stored) in values.iter().zip(stored) {
                    let expected = half::f16::from_f32_const(*value).to_bits();
                    assert_eq!(stored, expected, "{set}: {value:e}");
                }
            }
        }
    }

    #[test]
    fn values_beyond_the_range_are_cut_and_trouble_stays() {
        let values = [
            65_503.9,
            65_504.0,
            65_519.99,
            65_520.0,
            1e6,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
            1e-30,
        ];
        let largest = 0x7bff;
        let expected = [
            largest, largest, largest, largest, largest, largest, 0x7c00, 0x7e00, 0,
        ];
        for repeats in [1, 4] {
            let values = values.repeat(repeats);
            let negative: Vec<f32> = values.iter().map(|value| -value).collect();
            for (set, stored) in stored_by_all(&values) {
                assert_eq!(stored, expected.repeat(repeats), "{set}");
            }
            for (set, stored) in stored_by_all(&negative) {
                let expected: Vec<u16> = expected.iter().map(|bits| bits | 0x8000).collect();
                assert_eq!(stored, expected.repeat(repeats), "{set}, negative");
            }
        }
    }

    #[test]
    fn buffers_of_unlike_lengths_are_refused() {
        assert!(<u16 as CacheValue>::store(&[1.0; 3], &mut [0; 4]).is_err());
        assert!(<f32 as CacheValue>::store(&[1.0; 3], &mut [0.0; 2]).is_err());
    }
}
