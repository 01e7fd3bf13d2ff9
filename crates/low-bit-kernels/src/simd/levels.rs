//! Unpacking levels straight into vectors, a tile of rows at a time.
//!
//! No closures here or in `tile.rs` where vectors are at hand: a closure is a function of its own
//! without the CPU features, and what is not inlined into the caller at once stays slow.
#![allow(
    unsafe_code,
    reason = "reads blocks of many rows through one pointer and a stride"
)]

use super::scales::ScaleFormat;
use super::vector::Vector;
use crate::block::{BlockFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};

/// A block format whose levels can be loaded a group at a time.
pub(crate) trait VectorFormat: ScaleFormat {
    /// The levels of `group` of the rows at `row`, `row + stride`, ..., one row per lane: values
    /// 0..16 and, if groups have 32, 16..32 (else the second is meaningless).
    ///
    /// # Safety
    /// The CPU has `V`, and there are whole rows with that group at each of the lanes' places.
    unsafe fn levels<V: Vector>(row: *const u8, stride: usize, group: usize) -> [V::Int; 2];
}

/// Nibbles of the 16 bytes at `from` of each row.
///
/// # Safety
/// As [`VectorFormat::levels`].
#[inline(always)]
unsafe fn nibbles<V: Vector>(from: *const u8, stride: usize) -> [V::Int; 2] {
    // SAFETY: the caller's duty.
    unsafe {
        let packed = V::load_lanes(from, stride);
        [
            V::and(packed, 0x0f),
            V::and(V::shift_right(packed, 4), 0x0f),
        ]
    }
}

/// Nibbles at `from + 4` with fifth bits in the four bytes at `from`. Reading 16 bytes at `from` is
/// within the block, since 20 belong to it.
///
/// # Safety
/// As [`VectorFormat::levels`].
#[inline(always)]
unsafe fn five_bits<V: Vector>(from: *const u8, stride: usize) -> [V::Int; 2] {
    // SAFETY: the caller's duty.
    unsafe {
        let fifth = V::load_lanes(from, stride);
        let [low, high] = nibbles::<V>(from.add(4), stride);
        [
            V::or(low, V::spread_bits(fifth, 0)),
            V::or(high, V::spread_bits(fifth, 2)),
        ]
    }
}

macro_rules! levels_of_32 {
    ($format:ident, $start:literal, $unpack:ident) => {
        impl VectorFormat for $format {
            #[inline(always)]
            unsafe fn levels<V: Vector>(
                row: *const u8,
                stride: usize,
                group: usize,
            ) -> [V::Int; 2] {
                // SAFETY: the caller's duty; a group is a block.
                unsafe { $unpack::<V>(row.add(group * Self::BYTES + $start), stride) }
            }
        }
    };
}
levels_of_32!(Q4_0, 2, nibbles);
levels_of_32!(Q4_1, 4, nibbles);
levels_of_32!(Q5_0, 2, five_bits);
levels_of_32!(Q5_1, 4, five_bits);

impl VectorFormat for Q8_0 {
    #[inline(always)]
    unsafe fn levels<V: Vector>(row: *const u8, stride: usize, group: usize) -> [V::Int; 2] {
        // SAFETY: the caller's duty.
        unsafe {
            let from = row.add(group * Self::BYTES + 2);
            let (low, high) = (
                V::load_lanes(from, stride),
                V::load_lanes(from.add(16), stride),
            );
            if V::FULL_RANGE {
                [V::xor(low, 0x80), V::xor(high, 0x80)]
            } else {
                [low, high]
            }
        }
    }
}

impl VectorFormat for Q4K {
    #[inline(always)]
    unsafe fn levels<V: Vector>(row: *const u8, stride: usize, group: usize) -> [V::Int; 2] {
        // SAFETY: the caller's duty.
        unsafe {
            let (block, group) = (row.add(group / 8 * Self::BYTES), group % 8);
            let from = block.add(16 + 32 * (group / 2));
            [
                half_byte::<V>(V::load_lanes(from, stride), group % 2),
                half_byte::<V>(V::load_lanes(from.add(16), stride), group % 2),
            ]
        }
    }
}

impl VectorFormat for Q5K {
    #[inline(always)]
    unsafe fn levels<V: Vector>(row: *const u8, stride: usize, group: usize) -> [V::Int; 2] {
        // SAFETY: the caller's duty.
        unsafe {
            let (block, group) = (row.add(group / 8 * Self::BYTES), group % 8);
            let from = block.add(48 + 32 * (group / 2));
            let low = half_byte::<V>(V::load_lanes(from, stride), group % 2);
            let high = half_byte::<V>(V::load_lanes(from.add(16), stride), group % 2);
            [
                V::or(
                    low,
                    bits::<V>(V::load_lanes(block.add(16), stride), group, 1, 4),
                ),
                V::or(
                    high,
                    bits::<V>(V::load_lanes(block.add(32), stride), group, 1, 4),
                ),
            ]
        }
    }
}

impl VectorFormat for Q6K {
    #[inline(always)]
    unsafe fn levels<V: Vector>(row: *const u8, stride: usize, group: usize) -> [V::Int; 2] {
        // SAFETY: the caller's duty.
        unsafe {
            let block = row.add(group / 16 * Self::BYTES);
            let (half, plane, part) = of_128(group);
            let low = V::load_lanes(block.add(64 * half + 32 * (plane % 2) + 16 * part), stride);
            let high = V::load_lanes(block.add(128 + 32 * half + 16 * part), stride);
            let level = V::or(
                half_byte::<V>(low, plane / 2),
                bits::<V>(high, 2 * plane, 3, 4),
            );
            [level, level]
        }
    }
}

impl VectorFormat for Q2K {
    #[inline(always)]
    unsafe fn levels<V: Vector>(row: *const u8, stride: usize, group: usize) -> [V::Int; 2] {
        // SAFETY: the caller's duty.
        unsafe {
            let block = row.add(group / 16 * Self::BYTES);
            let (half, plane, part) = of_128(group);
            let packed = V::load_lanes(block.add(16 + 32 * half + 16 * part), stride);
            let level = bits::<V>(packed, 2 * plane, 3, 0);
            [level, level]
        }
    }
}

impl VectorFormat for Q3K {
    #[inline(always)]
    unsafe fn levels<V: Vector>(row: *const u8, stride: usize, group: usize) -> [V::Int; 2] {
        // SAFETY: the caller's duty.
        unsafe {
            let block = row.add(group / 16 * Self::BYTES);
            let (half, plane, part) = of_128(group);
            let packed = V::load_lanes(block.add(32 + 32 * half + 16 * part), stride);
            let third = V::load_lanes(block.add(16 * part), stride);
            let level = V::or(
                bits::<V>(packed, 2 * plane, 3, 0),
                bits::<V>(third, 4 * half + plane, 1, 2),
            );
            [level, level]
        }
    }
}

/// Half of 128 values, plane of 32 within it, part of 16 within that, of a group of 16.
#[inline(always)]
fn of_128(group: usize) -> (usize, usize, usize) {
    (group % 16 / 8, group % 8 / 2, group % 2)
}

/// The low (0) or high (1) nibbles.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn half_byte<V: Vector>(packed: V::Int, which: usize) -> V::Int {
    // SAFETY: the caller's duty.
    unsafe { bits::<V>(packed, 4 * which, 0x0f, 0) }
}

/// `((byte >> from) & mask) << to` for each byte; `mask << to` fits a byte.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "bit positions within a byte"
)]
unsafe fn bits<V: Vector>(packed: V::Int, from: usize, mask: u8, to: usize) -> V::Int {
    // SAFETY: the caller's duty.
    unsafe { V::shift_left(V::and(V::shift_right(packed, from as i32), mask), to as i32) }
}
