//! The five types of 32 values per block. Levels 0..16 of a block are the low nibbles, 16..32 the
//! high ones; fifth bits lie in a 32-bit little-endian word. Specification: `ggml-common.h`.

use super::BlockFormat;
use crate::half_bits::read_f16;

#[inline(always)]
fn nibbles(packed: &[u8], levels: &mut [u8]) {
    let (low, high) = levels.split_at_mut(16);
    for ((&byte, low), high) in packed.iter().zip(low).zip(high) {
        *low = byte & 0x0f;
        *high = byte >> 4;
    }
}

#[inline(always)]
fn fifth_bits(packed: &[u8], levels: &mut [u8]) {
    for (byte, levels) in packed.iter().zip(levels.chunks_exact_mut(8)) {
        for (bit, level) in levels.iter_mut().enumerate() {
            *level |= ((byte >> bit) & 1) << 4;
        }
    }
}

/// f16 scale, 16 bytes of nibbles; value = scale * (level - 8).
pub(crate) struct Q4_0;

impl BlockFormat for Q4_0 {
    const VALUES: usize = 32;
    const BYTES: usize = 18;
    const GROUP: usize = 32;
    const ZERO_POINT: i32 = 8;
    const HAS_MINIMA: bool = false;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        nibbles(&block[2..18], levels);
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], _minima: &mut [f32]) {
        scales[0] = read_f16(block, 0);
    }
}

/// f16 scale, f16 minimum, 16 bytes of nibbles.
pub(crate) struct Q4_1;

impl BlockFormat for Q4_1 {
    const VALUES: usize = 32;
    const BYTES: usize = 20;
    const GROUP: usize = 32;
    const ZERO_POINT: i32 = 0;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        nibbles(&block[4..20], levels);
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], minima: &mut [f32]) {
        scales[0] = read_f16(block, 0);
        minima[0] = read_f16(block, 2);
    }
}

/// f16 scale, 4 bytes of fifth bits, 16 bytes of nibbles; value = scale * (level - 16).
pub(crate) struct Q5_0;

impl BlockFormat for Q5_0 {
    const VALUES: usize = 32;
    const BYTES: usize = 22;
    const GROUP: usize = 32;
    const ZERO_POINT: i32 = 16;
    const HAS_MINIMA: bool = false;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        nibbles(&block[6..22], levels);
        fifth_bits(&block[2..6], levels);
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], _minima: &mut [f32]) {
        scales[0] = read_f16(block, 0);
    }
}

/// f16 scale, f16 minimum, 4 bytes of fifth bits, 16 bytes of nibbles.
pub(crate) struct Q5_1;

impl BlockFormat for Q5_1 {
    const VALUES: usize = 32;
    const BYTES: usize = 24;
    const GROUP: usize = 32;
    const ZERO_POINT: i32 = 0;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        nibbles(&block[8..24], levels);
        fifth_bits(&block[4..8], levels);
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], minima: &mut [f32]) {
        scales[0] = read_f16(block, 0);
        minima[0] = read_f16(block, 2);
    }
}

/// f16 scale, 32 signed bytes; a level is the signed byte plus 128.
pub(crate) struct Q8_0;

impl BlockFormat for Q8_0 {
    const VALUES: usize = 32;
    const BYTES: usize = 34;
    const GROUP: usize = 32;
    const ZERO_POINT: i32 = 128;
    const HAS_MINIMA: bool = false;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        for (&byte, level) in block[2..34].iter().zip(levels) {
            *level = byte ^ 0x80;
        }
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], _minima: &mut [f32]) {
        scales[0] = read_f16(block, 0);
    }
}
