//! [`Vector`] on AVX-512 with VNNI: tiles of 16 rows.
#![allow(
    unsafe_code,
    reason = "the trait's contract: callers have checked the CPU and the pointers"
)]

use super::vector::Vector;
use crate::half_bits::MOST_F16;
use std::arch::x86_64::*;

/// AVX-512 F, BW, VL and VNNI.
pub(crate) struct Avx512;

const BIT_OF_BYTE: i64 = 0x8040_2010_0804_0201_u64.cast_signed();

// SAFETY: `vpdpbusd` does not saturate: four products of a byte and a signed byte are added in 32
// bits. The duties of the methods are the trait's.
unsafe impl Vector for Avx512 {
    type Int = __m512i;
    type Float = __m512;
    const ROWS: usize = 16;
    const FULL_RANGE: bool = true;

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_set1_epi32(value) }
    }
    #[inline(always)]
    unsafe fn load_int(from: *const u8) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_int(value: __m512i, to: *mut u8) {
        // SAFETY: the trait's duties.
        unsafe { _mm512_storeu_si512(to.cast(), value) }
    }
    #[inline(always)]
    unsafe fn load_lanes(from: *const u8, stride: usize) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe {
            let z = _mm512_castsi128_si512(_mm_loadu_si128(from.cast()));
            let z = _mm512_inserti32x4::<1>(z, _mm_loadu_si128(from.add(stride).cast()));
            let z = _mm512_inserti32x4::<2>(z, _mm_loadu_si128(from.add(2 * stride).cast()));
            _mm512_inserti32x4::<3>(z, _mm_loadu_si128(from.add(3 * stride).cast()))
        }
    }
    #[inline(always)]
    unsafe fn splat_16(from: *const i8) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn splat_4(from: *const i8) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "tiles are kept below 2 GiB"
    )]
    unsafe fn gather_4(from: *const u8, stride: usize) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe {
            let rows = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm512_i32gather_epi32::<1>(
                _mm512_mullo_epi32(rows, _mm512_set1_epi32(stride as i32)),
                from.cast(),
            )
        }
    }
    #[inline(always)]
    unsafe fn dot(sum: __m512i, unsigned: __m512i, signed: __m512i) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_dpbusd_epi32(sum, unsigned, signed) }
    }
    #[inline(always)]
    unsafe fn dot_signed(sum: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe {
            let biased = Self::dot(sum, Self::xor(weights, 0x80), activations);
            _mm512_sub_epi32(
                biased,
                Self::dot(Self::splat_int(0), _mm512_set1_epi8(i8::MIN), activations),
            )
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a hint; it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, mask: u8) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_and_si512(a, _mm512_set1_epi8(mask.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn and_bits(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, mask: u8) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_xor_si512(a, _mm512_set1_epi8(mask.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn shift_right(a: __m512i, bits: i32) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn shift_left(a: __m512i, bits: i32) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_sll_epi16(a, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn field(a: __m512i, from: i32, mask: i32) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe {
            let shifted = _mm512_srl_epi32(a, _mm_cvtsi32_si128(from));
            _mm512_and_si512(shifted, _mm512_set1_epi32(mask))
        }
    }
    #[inline(always)]
    unsafe fn signed_byte(a: __m512i, index: i32) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe {
            let top = _mm512_sll_epi32(a, _mm_cvtsi32_si128(24 - 8 * index));
            _mm512_srai_epi32::<24>(top)
        }
    }
    #[inline(always)]
    unsafe fn spread_bits(a: __m512i, first: usize) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe {
            let from = if first == 0 {
                _mm_set_epi64x(EIGHT_ONES, 0)
            } else {
                _mm_set_epi64x(3 * EIGHT_ONES, 2 * EIGHT_ONES)
            };
            let bytes = _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(from));
            let set = _mm512_test_epi8_mask(bytes, _mm512_set1_epi64(BIT_OF_BYTE));
            _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(16))
        }
    }
    #[inline(always)]
    unsafe fn add_across(z: [__m512i; 4]) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe {
            let a = _mm512_add_epi32(
                _mm512_unpacklo_epi32(z[0], z[1]),
                _mm512_unpackhi_epi32(z[0], z[1]),
            );
            let b = _mm512_add_epi32(
                _mm512_unpacklo_epi32(z[2], z[3]),
                _mm512_unpackhi_epi32(z[2], z[3]),
            );
            _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
        }
    }
    #[inline(always)]
    unsafe fn transpose(z: [__m512i; 4]) -> [__m512i; 4] {
        // SAFETY: the trait's duties.
        unsafe {
            let (a, b) = (
                _mm512_unpacklo_epi32(z[0], z[1]),
                _mm512_unpackhi_epi32(z[0], z[1]),
            );
            let (c, d) = (
                _mm512_unpacklo_epi32(z[2], z[3]),
                _mm512_unpackhi_epi32(z[2], z[3]),
            );
            [
                _mm512_unpacklo_epi64(a, c),
                _mm512_unpackhi_epi64(a, c),
                _mm512_unpacklo_epi64(b, d),
                _mm512_unpackhi_epi64(b, d),
            ]
        }
    }

    #[inline(always)]
    unsafe fn largest(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_max_epu32(a, b) }
    }
    #[inline(always)]
    unsafe fn largest_element(a: __m512i) -> u32 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_reduce_max_epu32(a) }
    }
    #[inline(always)]
    unsafe fn bits(a: __m512) -> __m512i {
        // SAFETY: the trait's duties.
        unsafe { _mm512_castps_si512(a) }
    }
    #[inline(always)]
    unsafe fn round_16(from: *const f32, factor: f32, to: *mut i8) -> i32 {
        // SAFETY: the trait's duties.
        unsafe {
            let scaled = _mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(factor));
            let rounded = _mm512_cvtps_epi32(scaled);
            _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(rounded));
            _mm512_reduce_add_epi32(rounded)
        }
    }

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(value: __m512, to: *mut f32) {
        // SAFETY: the trait's duties.
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn store_f16(value: __m512, to: *mut u8) {
        // SAFETY: the trait's duties.
        unsafe {
            // Minimum and maximum give their second operand where one is not a number.
            let cut = _mm512_min_ps(_mm512_set1_ps(MOST_F16), value);
            let cut = _mm512_max_ps(_mm512_set1_ps(-MOST_F16), cut);
            let infinite = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(
                _mm512_abs_ps(value),
                _mm512_set1_ps(f32::INFINITY),
            );
            let kept = _mm512_mask_mov_ps(cut, infinite, value);
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(kept);
            _mm256_storeu_si256(to.cast(), halves);
        }
    }
    #[inline(always)]
    unsafe fn convert(a: __m512i) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn widen_low_half(a: __m512i) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)) }
    }
    #[inline(always)]
    unsafe fn widen_high_half(a: __m512i) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(a))) }
    }
    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the trait's duties.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
}

const EIGHT_ONES: i64 = 0x0101_0101_0101_0101;
