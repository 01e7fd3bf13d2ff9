//! [`Vector`] on AVX2, with and without the dot products of AVX-VNNI: tiles of 8 rows.
#![allow(
    unsafe_code,
    reason = "the trait's contract: callers have checked the CPU and the pointers"
)]

use super::vector::Vector;
use crate::half_bits::MOST_F16;
use std::arch::x86_64::*;

/// AVX2, FMA and F16C.
pub(crate) struct Avx2;
/// AVX2, FMA, F16C and AVX-VNNI.
pub(crate) struct AvxVnni;

const BIT_OF_BYTE: i64 = 0x8040_2010_0804_0201_u64.cast_signed();
const EIGHT_ONES: i64 = 0x0101_0101_0101_0101;

/// Four products per element. `vpmaddubsw` adds pairs in 16 bits with saturation, so one side's
/// magnitude must stay within 128 and the other's within 127: 2 * 128 * 127 < 2^15.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn dot_by_pairs(sum: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
    // SAFETY: the caller's duty.
    unsafe {
        let pairs = _mm256_maddubs_epi16(unsigned, signed);
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// The f16 in the lower half of each element.
///
/// # Safety
/// The CPU has AVX2 and F16C.
#[inline(always)]
unsafe fn widen(a: __m256i) -> __m256 {
    // SAFETY: the caller's duty.
    unsafe {
        let low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
        let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(low, low));
        _mm256_cvtph_ps(_mm256_castsi256_si128(packed))
    }
}

macro_rules! implement {
    ($name:ident, full_range: $full_range:literal, dot: $dot:path) => {
        // SAFETY: `dot` is exact for levels up to 255 if `FULL_RANGE`, else up to 127. The duties of the
        // methods are the trait's.
        unsafe impl Vector for $name {
            type Int = __m256i;
            type Float = __m256;
            const ROWS: usize = 8;
            const FULL_RANGE: bool = $full_range;

            #[inline(always)]
            unsafe fn splat_int(value: i32) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_set1_epi32(value) }
            }
            #[inline(always)]
            unsafe fn load_int(from: *const u8) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_loadu_si256(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store_int(value: __m256i, to: *mut u8) {
                // SAFETY: the trait's duties.
                unsafe { _mm256_storeu_si256(to.cast(), value) }
            }
            #[inline(always)]
            unsafe fn load_lanes(from: *const u8, stride: usize) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe {
                    _mm256_inserti128_si256::<1>(
                        _mm256_castsi128_si256(_mm_loadu_si128(from.cast())),
                        _mm_loadu_si128(from.add(stride).cast()),
                    )
                }
            }
            #[inline(always)]
            unsafe fn splat_16(from: *const i8) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast())) }
            }
            #[inline(always)]
            unsafe fn splat_4(from: *const i8) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
            }
            #[inline(always)]
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                reason = "tiles are kept below 2 GiB"
            )]
            unsafe fn gather_4(from: *const u8, stride: usize) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe {
                    let rows = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                    _mm256_i32gather_epi32::<1>(
                        from.cast(),
                        _mm256_mullo_epi32(rows, _mm256_set1_epi32(stride as i32)),
                    )
                }
            }
            #[inline(always)]
            unsafe fn dot(sum: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { $dot(sum, unsigned, signed) }
            }
            #[inline(always)]
            unsafe fn dot_signed(sum: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
                // SAFETY: the trait's duties. The sign moves from the weight to the activation, which has
                // no -128; the magnitude of a weight of -128 is 128 as an unsigned byte.
                unsafe {
                    Self::dot(
                        sum,
                        _mm256_abs_epi8(weights),
                        _mm256_sign_epi8(activations, weights),
                    )
                }
            }
            #[inline(always)]
            unsafe fn prefetch(at: *const u8) {
                // SAFETY: a hint; it never faults.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
            }
            #[inline(always)]
            unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_add_epi32(a, b) }
            }
            #[inline(always)]
            unsafe fn and(a: __m256i, mask: u8) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_and_si256(a, _mm256_set1_epi8(mask.cast_signed())) }
            }
            #[inline(always)]
            unsafe fn and_bits(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_and_si256(a, b) }
            }
            #[inline(always)]
            unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_or_si256(a, b) }
            }
            #[inline(always)]
            unsafe fn xor(a: __m256i, mask: u8) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_xor_si256(a, _mm256_set1_epi8(mask.cast_signed())) }
            }
            #[inline(always)]
            unsafe fn shift_right(a: __m256i, bits: i32) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_srl_epi16(a, _mm_cvtsi32_si128(bits)) }
            }
            #[inline(always)]
            unsafe fn shift_left(a: __m256i, bits: i32) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_sll_epi16(a, _mm_cvtsi32_si128(bits)) }
            }
            #[inline(always)]
            unsafe fn field(a: __m256i, from: i32, mask: i32) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe {
                    let shifted = _mm256_srl_epi32(a, _mm_cvtsi32_si128(from));
                    _mm256_and_si256(shifted, _mm256_set1_epi32(mask))
                }
            }
            #[inline(always)]
            unsafe fn signed_byte(a: __m256i, index: i32) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe {
                    let top = _mm256_sll_epi32(a, _mm_cvtsi32_si128(24 - 8 * index));
                    _mm256_srai_epi32::<24>(top)
                }
            }
            #[inline(always)]
            unsafe fn spread_bits(a: __m256i, first: usize) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe {
                    let low = _mm_set_epi64x(EIGHT_ONES, 0);
                    let high = _mm_set_epi64x(3 * EIGHT_ONES, 2 * EIGHT_ONES);
                    let from = _mm256_broadcastsi128_si256(if first == 0 { low } else { high });
                    let bit = _mm256_set1_epi64x(BIT_OF_BYTE);
                    let set = _mm256_and_si256(_mm256_shuffle_epi8(a, from), bit);
                    _mm256_and_si256(_mm256_cmpeq_epi8(set, bit), _mm256_set1_epi8(16))
                }
            }
            #[inline(always)]
            unsafe fn add_across(z: [__m256i; 4]) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe {
                    let a = _mm256_add_epi32(
                        _mm256_unpacklo_epi32(z[0], z[1]),
                        _mm256_unpackhi_epi32(z[0], z[1]),
                    );
                    let b = _mm256_add_epi32(
                        _mm256_unpacklo_epi32(z[2], z[3]),
                        _mm256_unpackhi_epi32(z[2], z[3]),
                    );
                    _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))
                }
            }
            #[inline(always)]
            unsafe fn transpose(z: [__m256i; 4]) -> [__m256i; 4] {
                // SAFETY: the trait's duties.
                unsafe {
                    let (a, b) = (
                        _mm256_unpacklo_epi32(z[0], z[1]),
                        _mm256_unpackhi_epi32(z[0], z[1]),
                    );
                    let (c, d) = (
                        _mm256_unpacklo_epi32(z[2], z[3]),
                        _mm256_unpackhi_epi32(z[2], z[3]),
                    );
                    [
                        _mm256_unpacklo_epi64(a, c),
                        _mm256_unpackhi_epi64(a, c),
                        _mm256_unpacklo_epi64(b, d),
                        _mm256_unpackhi_epi64(b, d),
                    ]
                }
            }

            #[inline(always)]
            unsafe fn largest(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_max_epu32(a, b) }
            }
            #[inline(always)]
            unsafe fn largest_element(a: __m256i) -> u32 {
                // SAFETY: the trait's duties.
                unsafe {
                    let a =
                        _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
                    let a = _mm_max_epu32(a, _mm_shuffle_epi32::<0b1110>(a));
                    let a = _mm_max_epu32(a, _mm_shuffle_epi32::<0b01>(a));
                    _mm_cvtsi128_si32(a).cast_unsigned()
                }
            }
            #[inline(always)]
            unsafe fn bits(a: __m256) -> __m256i {
                // SAFETY: the trait's duties.
                unsafe { _mm256_castps_si256(a) }
            }
            #[inline(always)]
            unsafe fn round_16(from: *const f32, factor: f32, to: *mut i8) -> i32 {
                // SAFETY: the trait's duties.
                unsafe {
                    let factor = _mm256_set1_ps(factor);
                    let a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from), factor));
                    let b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from.add(8)), factor));
                    // Packing works within lanes: the middle quarters change places.
                    let words = _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_packs_epi32(a, b));
                    let bytes = _mm_packs_epi16(
                        _mm256_castsi256_si128(words),
                        _mm256_extracti128_si256::<1>(words),
                    );
                    _mm_storeu_si128(to.cast(), bytes);
                    let sums = _mm256_add_epi32(a, b);
                    let sums = _mm_add_epi32(
                        _mm256_castsi256_si128(sums),
                        _mm256_extracti128_si256::<1>(sums),
                    );
                    let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b1110>(sums));
                    let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b01>(sums));
                    _mm_cvtsi128_si32(sums)
                }
            }

            #[inline(always)]
            unsafe fn zero() -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { _mm256_setzero_ps() }
            }
            #[inline(always)]
            unsafe fn splat(value: f32) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { _mm256_set1_ps(value) }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { _mm256_loadu_ps(from) }
            }
            #[inline(always)]
            unsafe fn load_f16(from: *const u8) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
            }
            #[inline(always)]
            unsafe fn load_bf16(from: *const u8) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe {
                    let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                }
            }
            #[inline(always)]
            unsafe fn store(value: __m256, to: *mut f32) {
                // SAFETY: the trait's duties.
                unsafe { _mm256_storeu_ps(to, value) }
            }
            #[inline(always)]
            unsafe fn store_f16(value: __m256, to: *mut u8) {
                // SAFETY: the trait's duties.
                unsafe {
                    let most = _mm256_set1_ps(MOST_F16);
                    let sign = _mm256_set1_ps(-0.0);
                    // Minimum and maximum give their second operand where one is not a number.
                    let cut = _mm256_min_ps(most, value);
                    let cut = _mm256_max_ps(_mm256_xor_ps(most, sign), cut);
                    let infinite = _mm256_cmp_ps::<_CMP_EQ_OQ>(
                        _mm256_andnot_ps(sign, value),
                        _mm256_set1_ps(f32::INFINITY),
                    );
                    let kept = _mm256_blendv_ps(cut, value, infinite);
                    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(kept);
                    _mm_storeu_si128(to.cast(), halves);
                }
            }
            #[inline(always)]
            unsafe fn convert(a: __m256i) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { _mm256_cvtepi32_ps(a) }
            }
            #[inline(always)]
            unsafe fn widen_low_half(a: __m256i) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { widen(a) }
            }
            #[inline(always)]
            unsafe fn widen_high_half(a: __m256i) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { widen(_mm256_srli_epi32::<16>(a)) }
            }
            #[inline(always)]
            unsafe fn multiply(a: __m256, b: __m256) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { _mm256_mul_ps(a, b) }
            }
            #[inline(always)]
            unsafe fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
                // SAFETY: the trait's duties.
                unsafe { _mm256_fmadd_ps(a, b, c) }
            }
        }
    };
}

implement!(Avx2, full_range: false, dot: dot_by_pairs);
implement!(AvxVnni, full_range: true, dot: _mm256_dpbusd_avx_epi32);
