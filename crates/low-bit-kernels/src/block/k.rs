//! The five types of 256 values per block ("K quants"). Scales and minima are themselves small
//! integers under an f16 factor. Specification: `ggml-common.h`, `dequantize_row_q*_K`.

use super::BlockFormat;
use crate::half_bits::read_f16;

/// The eight 6-bit (scale, minimum) pairs of Q4_K and Q5_K in 12 bytes, multiplied out.
///
/// Four bytes at a time: the first four pairs are the low six bits of words 0 and 1; the last four
/// have their low nibbles in word 2 and their upper two bits on top of words 0 and 1.
#[inline(always)]
fn six_bit_pairs(packed: &[u8], factors: (f32, f32), scales: &mut [f32], minima: &mut [f32]) {
    let word = |at: usize| {
        u32::from_le_bytes([packed[at], packed[at + 1], packed[at + 2], packed[at + 3]])
    };
    let (a, b, c) = (word(0), word(4), word(8));
    let top = |word: u32| ((word >> 6) & 0x0303_0303) << 4;
    let join = |low: u32, high: u32| (u64::from(low) | (u64::from(high) << 32)).to_le_bytes();
    let small_scales = join(a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | top(a));
    let small_minima = join(b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | top(b));
    for (scale, small) in scales.iter_mut().zip(small_scales) {
        *scale = factors.0 * f32::from(small);
    }
    for (minimum, small) in minima.iter_mut().zip(small_minima) {
        *minimum = -(factors.1 * f32::from(small));
    }
}

/// Scale and minimum factor (f16), 12 bytes of 6-bit pairs, 128 bytes of nibbles.
pub(crate) struct Q4K;

impl BlockFormat for Q4K {
    const VALUES: usize = 256;
    const BYTES: usize = 144;
    const GROUP: usize = 32;
    const ZERO_POINT: i32 = 0;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        for (packed, levels) in block[16..144]
            .chunks_exact(32)
            .zip(levels.chunks_exact_mut(64))
        {
            let (low, high) = levels.split_at_mut(32);
            for ((&byte, low), high) in packed.iter().zip(low).zip(high) {
                *low = byte & 0x0f;
                *high = byte >> 4;
            }
        }
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], minima: &mut [f32]) {
        six_bit_pairs(
            &block[4..16],
            (read_f16(block, 0), read_f16(block, 2)),
            scales,
            minima,
        );
    }
}

/// As [`Q4K`] with 32 bytes of fifth bits before the nibbles: bit `i` of byte `l` belongs to value
/// `32 * i + l`.
pub(crate) struct Q5K;

impl BlockFormat for Q5K {
    const VALUES: usize = 256;
    const BYTES: usize = 176;
    const GROUP: usize = 32;
    const ZERO_POINT: i32 = 0;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        let fifth = &block[16..48];
        for (pair, levels) in levels.chunks_exact_mut(64).enumerate() {
            let packed = &block[48 + 32 * pair..80 + 32 * pair];
            let (low, high) = levels.split_at_mut(32);
            for (((&byte, &fifth), low), high) in packed.iter().zip(fifth).zip(low).zip(high) {
                *low = (byte & 0x0f) | (((fifth >> (2 * pair)) & 1) << 4);
                *high = (byte >> 4) | (((fifth >> (2 * pair + 1)) & 1) << 4);
            }
        }
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], minima: &mut [f32]) {
        six_bit_pairs(
            &block[4..16],
            (read_f16(block, 0), read_f16(block, 2)),
            scales,
            minima,
        );
    }
}

/// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, f16 factor; value =
/// scale * (level - 32).
pub(crate) struct Q6K;

impl BlockFormat for Q6K {
    const VALUES: usize = 256;
    const BYTES: usize = 210;
    const GROUP: usize = 16;
    const ZERO_POINT: i32 = 32;
    const HAS_MINIMA: bool = false;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        for (half, levels) in levels.chunks_exact_mut(128).enumerate() {
            let low = &block[64 * half..64 * half + 64];
            let high = &block[128 + 32 * half..160 + 32 * half];
            for l in 0..32 {
                levels[l] = (low[l] & 0x0f) | ((high[l] & 3) << 4);
                levels[l + 32] = (low[l + 32] & 0x0f) | (((high[l] >> 2) & 3) << 4);
                levels[l + 64] = (low[l] >> 4) | (((high[l] >> 4) & 3) << 4);
                levels[l + 96] = (low[l + 32] >> 4) | ((high[l] >> 6) << 4);
            }
        }
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], _minima: &mut [f32]) {
        let factor = read_f16(block, 208);
        for (scale, &byte) in scales.iter_mut().zip(&block[192..208]) {
            *scale = factor * f32::from(byte.cast_signed());
        }
    }
}

/// 16 bytes of 4-bit (scale, minimum) pairs, 64 bytes of bit pairs, scale and minimum factor (f16).
pub(crate) struct Q2K;

impl BlockFormat for Q2K {
    const VALUES: usize = 256;
    const BYTES: usize = 84;
    const GROUP: usize = 16;
    const ZERO_POINT: i32 = 0;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        for (packed, levels) in block[16..80]
            .chunks_exact(32)
            .zip(levels.chunks_exact_mut(128))
        {
            for (plane, levels) in levels.chunks_exact_mut(32).enumerate() {
                for (&byte, level) in packed.iter().zip(levels) {
                    *level = (byte >> (2 * plane)) & 3;
                }
            }
        }
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], minima: &mut [f32]) {
        let (factor, minimum_factor) = (read_f16(block, 80), read_f16(block, 82));
        for ((&byte, scale), minimum) in block[..16].iter().zip(scales).zip(minima) {
            *scale = factor * f32::from(byte & 0x0f);
            *minimum = -(minimum_factor * f32::from(byte >> 4));
        }
    }
}

/// 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales, f16 factor; value =
/// scale * (level - 4).
pub(crate) struct Q3K;

impl BlockFormat for Q3K {
    const VALUES: usize = 256;
    const BYTES: usize = 110;
    const GROUP: usize = 16;
    const ZERO_POINT: i32 = 4;
    const HAS_MINIMA: bool = false;

    #[inline(always)]
    fn unpack_levels(block: &[u8], levels: &mut [u8]) {
        let third = &block[..32];
        for (half, levels) in levels.chunks_exact_mut(128).enumerate() {
            let packed = &block[32 + 32 * half..64 + 32 * half];
            for (plane, levels) in levels.chunks_exact_mut(32).enumerate() {
                for ((&byte, &third), level) in packed.iter().zip(third).zip(levels) {
                    *level =
                        ((byte >> (2 * plane)) & 3) | (((third >> (4 * half + plane)) & 1) << 2);
                }
            }
        }
    }

    #[inline(always)]
    fn unpack_scales(block: &[u8], scales: &mut [f32], _minima: &mut [f32]) {
        let factor = read_f16(block, 108);
        let packed_scales = &block[96..108];
        for (i, scale) in scales.iter_mut().enumerate() {
            let low = if i < 8 {
                packed_scales[i] & 0x0f
            } else {
                packed_scales[i - 8] >> 4
            };
            let high = (packed_scales[8 + i % 4] >> (2 * (i / 4))) & 3;
            *scale = factor * (f32::from(low | (high << 4)) - 32.0);
        }
    }
}
