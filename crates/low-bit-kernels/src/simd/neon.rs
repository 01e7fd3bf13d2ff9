//! [`Vector`] on AArch64: tiles of 4 rows. The dot products and the conversions of halves are written as
//! instructions, since their intrinsics are not stable yet.
#![allow(
    unsafe_code,
    reason = "the trait's contract: callers have checked the CPU and the pointers"
)]

use super::vector::Vector;
use crate::half_bits::MOST_F16;
use std::arch::aarch64::*;
use std::arch::asm;

/// Advanced SIMD with the dot products of Armv8.2 (`dotprod`).
pub(crate) struct Neon;

const BIT_OF_BYTE: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Each element of `sum` plus the products of its four signed bytes.
///
/// # Safety
/// The CPU has `dotprod`.
#[inline(always)]
unsafe fn sdot(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: the caller's duty; registers only.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Four halves, widened.
///
/// # Safety
/// The CPU has Advanced SIMD, as all of the architecture have.
#[inline(always)]
unsafe fn widen(halves: uint16x4_t) -> float32x4_t {
    let wide;
    // SAFETY: registers only.
    unsafe {
        asm!(
            "fcvtl {wide:v}.4s, {halves:v}.4h",
            wide = out(vreg) wide,
            halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    wide
}

/// Four floats as the nearest halves, ties to even.
///
/// # Safety
/// The CPU has Advanced SIMD, as all of the architecture have.
#[inline(always)]
unsafe fn narrow(floats: float32x4_t) -> uint16x4_t {
    let halves;
    // SAFETY: registers only.
    unsafe {
        asm!(
            "fcvtn {halves:v}.4h, {floats:v}.4s",
            halves = out(vreg) halves,
            floats = in(vreg) floats,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    halves
}

// SAFETY: `dot` is exact for levels up to 127, which as signed bytes are what they are. The duties of
// the methods are the trait's.
unsafe impl Vector for Neon {
    type Int = int32x4_t;
    type Float = float32x4_t;
    const ROWS: usize = 4;
    const FULL_RANGE: bool = false;

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vdupq_n_s32(value) }
    }
    #[inline(always)]
    unsafe fn load_int(from: *const u8) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vreinterpretq_s32_u8(vld1q_u8(from)) }
    }
    #[inline(always)]
    unsafe fn store_int(value: int32x4_t, to: *mut u8) {
        // SAFETY: the trait's duties.
        unsafe { vst1q_u8(to, vreinterpretq_u8_s32(value)) }
    }
    #[inline(always)]
    unsafe fn load_lanes(from: *const u8, _stride: usize) -> int32x4_t {
        // SAFETY: the trait's duties. There is one lane.
        unsafe { Self::load_int(from) }
    }
    #[inline(always)]
    unsafe fn splat_16(from: *const i8) -> int32x4_t {
        // SAFETY: the trait's duties. There is one lane.
        unsafe { Self::load_int(from.cast()) }
    }
    #[inline(always)]
    unsafe fn splat_4(from: *const i8) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vdupq_n_s32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn gather_4(from: *const u8, stride: usize) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe {
            let row = |row: usize| from.add(row * stride).cast::<i32>().read_unaligned();
            let rows = [row(0), row(1), row(2), row(3)];
            vld1q_s32(rows.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn dot(sum: int32x4_t, unsigned: int32x4_t, signed: int32x4_t) -> int32x4_t {
        // SAFETY: the trait's duties; levels are within 127.
        unsafe { sdot(sum, unsigned, signed) }
    }
    #[inline(always)]
    unsafe fn dot_signed(sum: int32x4_t, weights: int32x4_t, activations: int32x4_t) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { sdot(sum, weights, activations) }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a hint; it never faults.
        unsafe {
            asm!(
                "prfm pldl1keep, [{at}]",
                at = in(reg) at,
                options(nomem, nostack, preserves_flags)
            );
        }
    }
    #[inline(always)]
    unsafe fn add(a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vaddq_s32(a, b) }
    }
    #[inline(always)]
    unsafe fn and(a: int32x4_t, mask: u8) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { Self::and_bits(a, vreinterpretq_s32_u8(vdupq_n_u8(mask))) }
    }
    #[inline(always)]
    unsafe fn and_bits(a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vandq_s32(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vorrq_s32(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: int32x4_t, mask: u8) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { veorq_s32(a, vreinterpretq_s32_u8(vdupq_n_u8(mask))) }
    }
    #[inline(always)]
    unsafe fn shift_right(a: int32x4_t, bits: i32) -> int32x4_t {
        // SAFETY: the trait's duties. A shift to the left by less than nothing is one to the right.
        unsafe { Self::shift_left(a, -bits) }
    }
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "bit positions within 16 bits"
    )]
    unsafe fn shift_left(a: int32x4_t, bits: i32) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe {
            let shifted = vshlq_u16(vreinterpretq_u16_s32(a), vdupq_n_s16(bits as i16));
            vreinterpretq_s32_u16(shifted)
        }
    }
    #[inline(always)]
    unsafe fn field(a: int32x4_t, from: i32, mask: i32) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe {
            let shifted = vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-from));
            vandq_s32(vreinterpretq_s32_u32(shifted), vdupq_n_s32(mask))
        }
    }
    #[inline(always)]
    unsafe fn signed_byte(a: int32x4_t, index: i32) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vshrq_n_s32::<24>(vshlq_s32(a, vdupq_n_s32(24 - 8 * index))) }
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a place within 16 bytes")]
    unsafe fn spread_bits(a: int32x4_t, first: usize) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe {
            let from = vcombine_u8(vdup_n_u8(first as u8), vdup_n_u8(first as u8 + 1));
            let bit = vld1q_u8(BIT_OF_BYTE.as_ptr());
            let set = vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_s32(a), from), bit);
            vreinterpretq_s32_u8(vandq_u8(set, vdupq_n_u8(16)))
        }
    }
    #[inline(always)]
    unsafe fn add_across(z: [int32x4_t; 4]) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vpaddq_s32(vpaddq_s32(z[0], z[1]), vpaddq_s32(z[2], z[3])) }
    }
    #[inline(always)]
    unsafe fn transpose(z: [int32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: the trait's duties.
        unsafe {
            let pairs = |a, b| {
                let (even, odd) = (vtrn1q_s32(a, b), vtrn2q_s32(a, b));
                (vreinterpretq_s64_s32(even), vreinterpretq_s64_s32(odd))
            };
            let ((a, b), (c, d)) = (pairs(z[0], z[1]), pairs(z[2], z[3]));
            [
                vreinterpretq_s32_s64(vtrn1q_s64(a, c)),
                vreinterpretq_s32_s64(vtrn1q_s64(b, d)),
                vreinterpretq_s32_s64(vtrn2q_s64(a, c)),
                vreinterpretq_s32_s64(vtrn2q_s64(b, d)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn largest(a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe {
            let largest = vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b));
            vreinterpretq_s32_u32(largest)
        }
    }
    #[inline(always)]
    unsafe fn largest_element(a: int32x4_t) -> u32 {
        // SAFETY: the trait's duties.
        unsafe { vmaxvq_u32(vreinterpretq_u32_s32(a)) }
    }
    #[inline(always)]
    unsafe fn bits(a: float32x4_t) -> int32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vreinterpretq_s32_f32(a) }
    }
    #[inline(always)]
    unsafe fn round_16(from: *const f32, factor: f32, to: *mut i8) -> i32 {
        // SAFETY: the trait's duties.
        unsafe {
            let nearest = |at: usize| vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(from.add(at)), factor));
            let (a, b, c, d) = (nearest(0), nearest(4), nearest(8), nearest(12));
            let words = |low, high| vcombine_s16(vqmovn_s32(low), vqmovn_s32(high));
            let bytes = vcombine_s8(vqmovn_s16(words(a, b)), vqmovn_s16(words(c, d)));
            vst1q_s8(to, bytes);
            vaddvq_s32(vaddq_s32(vaddq_s32(a, b), vaddq_s32(c, d)))
        }
    }

    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vdupq_n_f32(0.0) }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vdupq_n_f32(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { widen(vreinterpret_u16_u8(vld1_u8(from))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(from)))) }
    }
    #[inline(always)]
    unsafe fn store(value: float32x4_t, to: *mut f32) {
        // SAFETY: the trait's duties.
        unsafe { vst1q_f32(to, value) }
    }
    #[inline(always)]
    unsafe fn store_f16(value: float32x4_t, to: *mut u8) {
        // SAFETY: the trait's duties.
        unsafe {
            // Minimum and maximum of a NaN are NaN.
            let cut = vminq_f32(value, vdupq_n_f32(MOST_F16));
            let cut = vmaxq_f32(cut, vdupq_n_f32(-MOST_F16));
            let infinite = vceqq_f32(vabsq_f32(value), vdupq_n_f32(f32::INFINITY));
            let kept = vbslq_f32(infinite, value, cut);
            vst1_u8(to, vreinterpret_u8_u16(narrow(kept)));
        }
    }
    #[inline(always)]
    unsafe fn convert(a: int32x4_t) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vcvtq_f32_s32(a) }
    }
    #[inline(always)]
    unsafe fn widen_low_half(a: int32x4_t) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { widen(vmovn_u32(vreinterpretq_u32_s32(a))) }
    }
    #[inline(always)]
    unsafe fn widen_high_half(a: int32x4_t) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { widen(vshrn_n_u32::<16>(vreinterpretq_u32_s32(a))) }
    }
    #[inline(always)]
    unsafe fn multiply(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn multiply_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: the trait's duties.
        unsafe { vfmaq_f32(c, a, b) }
    }
}
