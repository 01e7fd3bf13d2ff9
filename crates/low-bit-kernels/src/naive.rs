//! The slow, obvious oracle: each weight decoded on its own from the layout's definition, each
//! product summed in f64. It shares no code with the kernels and exists for tests.

use crate::WeightType;

fn f16(bytes: &[u8], at: usize) -> f64 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f64()
}

fn bit(bytes: &[u8], index: usize) -> u8 {
    (bytes[index / 8] >> (index % 8)) & 1
}

/// Nibble `i` of 16 bytes in the order of the types of 32 values.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    if i < 16 {
        bytes[i] & 15
    } else {
        bytes[i - 16] >> 4
    }
}

/// Weight `col` of a stored row, exactly.
///
/// # Panics
/// If the row is shorter than `col` requires.
#[must_use]
pub fn weight(weight_type: WeightType, row: &[u8], col: usize) -> f64 {
    let (values, size) = (
        weight_type.values_per_block(),
        weight_type.bytes_per_block(),
    );
    let block = &row[col / values * size..(col / values + 1) * size];
    let i = col % values;
    match weight_type {
        WeightType::F32 => f64::from(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
        WeightType::F16 => f16(block, 0),
        WeightType::Bf16 => half::bf16::from_le_bytes([block[0], block[1]]).to_f64(),
        WeightType::Q4_0 => f16(block, 0) * (f64::from(nibble(&block[2..], i)) - 8.0),
        WeightType::Q4_1 => f16(block, 0) * f64::from(nibble(&block[4..], i)) + f16(block, 2),
        WeightType::Q5_0 => {
            let level = nibble(&block[6..], i) + 16 * bit(&block[2..6], i);
            f16(block, 0) * (f64::from(level) - 16.0)
        }
        WeightType::Q5_1 => {
            let level = nibble(&block[8..], i) + 16 * bit(&block[4..8], i);
            f16(block, 0) * f64::from(level) + f16(block, 2)
        }
        WeightType::Q8_0 => f16(block, 0) * f64::from(block[2 + i].cast_signed()),
        WeightType::Q2K => {
            let pair = (block[16 + 32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
            let scales = block[i / 16];
            f16(block, 80) * f64::from(scales & 15) * f64::from(pair)
                - f16(block, 82) * f64::from(scales >> 4)
        }
        WeightType::Q3K => {
            let pair = (block[32 + 32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
            let third = (block[i % 32] >> (i / 32)) & 1;
            let level = f64::from(pair) - if third == 1 { 0.0 } else { 4.0 };
            f16(block, 108) * (f64::from(q3_k_scale(&block[96..108], i / 16)) - 32.0) * level
        }
        WeightType::Q4K => {
            let (scale, minimum) = six_bit_pair(&block[4..16], i / 32);
            let byte = block[16 + 32 * (i / 64) + i % 32];
            let level = if i % 64 < 32 { byte & 15 } else { byte >> 4 };
            f16(block, 0) * f64::from(scale) * f64::from(level) - f16(block, 2) * f64::from(minimum)
        }
        WeightType::Q5K => {
            let (scale, minimum) = six_bit_pair(&block[4..16], i / 32);
            let byte = block[48 + 32 * (i / 64) + i % 32];
            let level = if i % 64 < 32 { byte & 15 } else { byte >> 4 };
            let level = level + 16 * ((block[16 + i % 32] >> (i / 32)) & 1);
            f16(block, 0) * f64::from(scale) * f64::from(level) - f16(block, 2) * f64::from(minimum)
        }
        WeightType::Q6K => {
            let byte = block[64 * (i / 128) + i % 64];
            let low = if i % 128 < 64 { byte & 15 } else { byte >> 4 };
            let high = (block[128 + 32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
            let scale = f64::from(block[192 + i / 16].cast_signed());
            f16(block, 208) * scale * (f64::from(low + 16 * high) - 32.0)
        }
    }
}

/// Scale `index` of 16, six bits: four in a nibble, two in the last four bytes.
fn q3_k_scale(packed: &[u8], index: usize) -> u8 {
    let low = if index < 8 {
        packed[index] & 15
    } else {
        packed[index - 8] >> 4
    };
    low + 16 * ((packed[8 + index % 4] >> (2 * (index / 4))) & 3)
}

/// Scale and minimum `index` of 8, six bits each.
fn six_bit_pair(packed: &[u8], index: usize) -> (u8, u8) {
    if index < 4 {
        return (packed[index] & 63, packed[index + 4] & 63);
    }
    let nibbles = packed[index + 4];
    (
        (nibbles & 15) + 16 * (packed[index - 4] >> 6),
        (nibbles >> 4) + 16 * (packed[index] >> 6),
    )
}

/// The activations as the product sees them: for block types rounded to 8 bits per 32 or 256
/// values, for floating-point types unchanged.
#[must_use]
pub fn rounded_activations(weight_type: WeightType, activations: &[f32]) -> Vec<f64> {
    let per_scale = match weight_type.values_per_block() {
        1 => return activations.iter().map(|&value| f64::from(value)).collect(),
        size => size,
    };
    let mut rounded = Vec::with_capacity(activations.len());
    for block in activations.chunks(per_scale) {
        let mut largest = 0.0_f32;
        for &value in block {
            if value.abs() > largest.abs() {
                largest = value;
            }
        }
        // In f32, because which way a value rounds depends on it.
        let factor = if per_scale == 32 {
            1.0 / (largest.abs() / 127.0)
        } else {
            -127.0 / largest
        };
        let scale = if per_scale == 32 {
            largest.abs() / 127.0
        } else {
            1.0 / factor
        };
        for &value in block {
            let level = (value * factor).round_ties_even();
            rounded.push(if largest == 0.0 {
                0.0
            } else {
                f64::from(scale) * f64::from(level)
            });
        }
    }
    rounded
}

/// One product: the sum and the sum of magnitudes, which scales the tolerance.
#[must_use]
pub fn product(weight_type: WeightType, row: &[u8], activations: &[f64]) -> (f64, f64) {
    activations
        .iter()
        .enumerate()
        .fold((0.0, 0.0), |(sum, magnitude), (col, activation)| {
            let term = weight(weight_type, row, col) * activation;
            (sum + term, magnitude + term.abs())
        })
}
