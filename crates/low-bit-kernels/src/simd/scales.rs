//! Scales and minima of one block of each row of a tile, one row per vector element: small
//! integers are cut out of gathered words side by side, in the order of operations that
//! `BlockFormat::unpack_scales` has, so that the same bits come out.
#![allow(
    unsafe_code,
    reason = "reads blocks of many rows through one pointer and a stride"
)]

use super::vector::Vector;
use crate::block::{BlockFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};

/// A block format whose scales can be unpacked a tile at a time.
pub(crate) trait ScaleFormat: BlockFormat {
    /// Writes `[VALUES / GROUP, ROWS]` scales and, if `HAS_MINIMA`, as many minima, of the blocks at
    /// `block`, `block + stride`, ...
    ///
    /// # Safety
    /// The CPU has `V`, there are `ROWS` such blocks, and both targets have room.
    unsafe fn unpack<V: Vector>(
        block: *const u8,
        stride: usize,
        scales: *mut f32,
        minima: *mut f32,
    );
}

macro_rules! one_f16_scale {
    ($($format:ident),*) => {$(
        impl ScaleFormat for $format {
            #[inline(always)]
            unsafe fn unpack<V: Vector>(block: *const u8, stride: usize, scales: *mut f32, minima: *mut f32) {
                // SAFETY: the caller's duty. A block begins with an f16 scale and an f16 minimum
                // (or two bytes of something else).
                unsafe {
                    let pairs = V::gather_4(block, stride);
                    V::store(V::widen_low_half(pairs), scales);
                    if Self::HAS_MINIMA {
                        V::store(V::widen_high_half(pairs), minima);
                    }
                }
            }
        }
    )*};
}
one_f16_scale!(Q4_0, Q4_1, Q5_0, Q5_1, Q8_0);

/// `factor * small` to place `group`.
///
/// # Safety
/// The CPU has `V`, and `to` has room for that group.
#[inline(always)]
unsafe fn put<V: Vector>(factor: V::Float, small: V::Int, to: *mut f32, group: usize) {
    // SAFETY: the caller's duty.
    unsafe {
        V::store(
            V::multiply(factor, V::convert(small)),
            to.add(group * V::ROWS),
        )
    }
}

/// The 6-bit pairs of Q4_K and Q5_K.
///
/// # Safety
/// As [`ScaleFormat::unpack`].
#[inline(always)]
unsafe fn six_bit_pairs<V: Vector>(
    block: *const u8,
    stride: usize,
    scales: *mut f32,
    minima: *mut f32,
) {
    // SAFETY: the caller's duty; the factors and the twelve bytes begin the block.
    unsafe {
        let factors = V::gather_4(block, stride);
        let scale = V::widen_low_half(factors);
        let minimum = V::multiply(V::widen_high_half(factors), V::splat(-1.0));
        let a = V::gather_4(block.add(4), stride);
        let b = V::gather_4(block.add(8), stride);
        let c = V::gather_4(block.add(12), stride);
        let mut group = 0;
        let mut bit = 0;
        while group < 4 {
            put::<V>(scale, V::field(a, bit, 0x3f), scales, group);
            put::<V>(minimum, V::field(b, bit, 0x3f), minima, group);
            let top = V::shift_left(V::field(a, bit + 6, 3), 4);
            put::<V>(scale, V::or(V::field(c, bit, 0x0f), top), scales, group + 4);
            let top = V::shift_left(V::field(b, bit + 6, 3), 4);
            put::<V>(
                minimum,
                V::or(V::field(c, bit + 4, 0x0f), top),
                minima,
                group + 4,
            );
            group += 1;
            bit += 8;
        }
    }
}

macro_rules! six_bit_scales {
    ($($format:ident),*) => {$(
        impl ScaleFormat for $format {
            #[inline(always)]
            unsafe fn unpack<V: Vector>(block: *const u8, stride: usize, scales: *mut f32, minima: *mut f32) {
                // SAFETY: the caller's duty.
                unsafe { six_bit_pairs::<V>(block, stride, scales, minima) }
            }
        }
    )*};
}
six_bit_scales!(Q4K, Q5K);

impl ScaleFormat for Q6K {
    #[inline(always)]
    unsafe fn unpack<V: Vector>(
        block: *const u8,
        stride: usize,
        scales: *mut f32,
        _minima: *mut f32,
    ) {
        // SAFETY: the caller's duty; the factor is the last two bytes of the block.
        unsafe {
            let factor = V::widen_high_half(V::gather_4(block.add(206), stride));
            let mut word = 0;
            while word < 4 {
                let four = V::gather_4(block.add(192 + 4 * word), stride);
                put::<V>(factor, V::signed_byte(four, 0), scales, 4 * word);
                put::<V>(factor, V::signed_byte(four, 1), scales, 4 * word + 1);
                put::<V>(factor, V::signed_byte(four, 2), scales, 4 * word + 2);
                put::<V>(factor, V::signed_byte(four, 3), scales, 4 * word + 3);
                word += 1;
            }
        }
    }
}

impl ScaleFormat for Q2K {
    #[inline(always)]
    unsafe fn unpack<V: Vector>(
        block: *const u8,
        stride: usize,
        scales: *mut f32,
        minima: *mut f32,
    ) {
        // SAFETY: the caller's duty; the factors are the last four bytes of the block.
        unsafe {
            let factors = V::gather_4(block.add(80), stride);
            let scale = V::widen_low_half(factors);
            let minimum = V::multiply(V::widen_high_half(factors), V::splat(-1.0));
            let mut group = 0;
            while group < 16 {
                let four = V::gather_4(block.add(group), stride);
                let mut bit = 0;
                while bit < 32 {
                    put::<V>(scale, V::field(four, bit, 0x0f), scales, group);
                    put::<V>(minimum, V::field(four, bit + 4, 0x0f), minima, group);
                    group += 1;
                    bit += 8;
                }
            }
        }
    }
}

impl ScaleFormat for Q3K {
    #[inline(always)]
    unsafe fn unpack<V: Vector>(
        block: *const u8,
        stride: usize,
        scales: *mut f32,
        _minima: *mut f32,
    ) {
        // SAFETY: the caller's duty; twelve bytes of scales and the factor end the block.
        unsafe {
            let factor = V::widen_high_half(V::gather_4(block.add(106), stride));
            let low = [
                V::gather_4(block.add(96), stride),
                V::gather_4(block.add(100), stride),
            ];
            let high = V::gather_4(block.add(104), stride);
            let mut bit = 0;
            let mut column = 0;
            while column < 4 {
                let mut quarter = 0;
                let mut shift = 0;
                while quarter < 4 {
                    let nibble = V::field(
                        low[quarter % 2],
                        bit + if quarter < 2 { 0 } else { 4 },
                        0x0f,
                    );
                    let top = V::shift_left(V::field(high, bit + shift, 3), 4);
                    let small = V::add(V::or(nibble, top), V::splat_int(-32));
                    put::<V>(factor, small, scales, 4 * quarter + column);
                    quarter += 1;
                    shift += 2;
                }
                column += 1;
                bit += 8;
            }
        }
    }
}
