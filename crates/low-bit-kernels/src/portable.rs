//! Products in plain Rust: one unpacked row at a time, for every machine. What each product adds up,
//! and in which order, is the same for any number of activation rows.

use crate::WeightType;
use crate::activation::{ActivationRow, QuantisedActivations};
use crate::block::{BlockFormat, UnpackedRow};
use crate::dequantise::widen_float;
use std::cell::RefCell;

thread_local! {
    static ROW: RefCell<UnpackedRow> = RefCell::default();
    static WIDE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Partial sums of a floating-point product, so that the additions do not wait for one another.
const LANES: usize = 16;

/// `outputs[t][r]` = row `r` of `bytes` times activation row `t`.
pub(crate) fn quantised_rows<F: BlockFormat>(
    bytes: &[u8],
    activations: &QuantisedActivations,
    outputs: &mut [&mut [f32]],
) {
    let row_bytes = activations.cols / F::VALUES * F::BYTES;
    ROW.with_borrow_mut(|row| {
        row.resize(activations.cols, F::GROUP);
        for (r, bytes) in bytes.chunks_exact(row_bytes).enumerate() {
            row.fill::<F>(bytes);
            for (t, output) in outputs.iter_mut().enumerate() {
                output[r] = quantised_dot::<F>(row, activations.row(t));
            }
        }
    });
}

fn quantised_dot<F: BlockFormat>(row: &UnpackedRow, activation: ActivationRow<'_>) -> f32 {
    let levels = row
        .levels
        .chunks_exact(F::GROUP)
        .zip(activation.levels.chunks_exact(F::GROUP));
    let mut sum = 0.0_f32;
    for (group, (weights, levels)) in levels.enumerate() {
        let mut product = activation.offsets[group];
        for (&weight, &level) in weights.iter().zip(levels) {
            product = product.wrapping_add(i32::from(weight).wrapping_mul(i32::from(level)));
        }
        sum += (row.scales[group] * activation.scales[group]) * product as f32;
        if F::HAS_MINIMA {
            sum += row.minima[group] * activation.scaled_sums[group];
        }
    }
    sum
}

/// `outputs[t][r]` = row `r` of `bytes` times `values[t, cols]`.
pub(crate) fn float_rows(
    (weight_type, cols): (WeightType, usize),
    bytes: &[u8],
    values: &[f32],
    outputs: &mut [&mut [f32]],
) {
    let row_bytes = weight_type.bytes_per_block() * cols;
    WIDE.with_borrow_mut(|row| {
        row.resize(cols, 0.0);
        for (r, bytes) in bytes.chunks_exact(row_bytes).enumerate() {
            widen_float(weight_type, bytes, row);
            for (output, values) in outputs.iter_mut().zip(values.chunks_exact(cols)) {
                output[r] = float_dot(row, values);
            }
        }
    });
}

fn float_dot(row: &[f32], values: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (row, row_rest) = row.as_chunks::<LANES>();
    let (values, values_rest) = values.as_chunks::<LANES>();
    for (weights, values) in row.iter().zip(values) {
        for lane in 0..LANES {
            sums[lane] += weights[lane] * values[lane];
        }
    }
    for (lane, (weight, value)) in row_rest.iter().zip(values_rest).enumerate() {
        sums[lane] += weight * value;
    }
    fold_lanes(sums)
}

/// The sum of all lanes, halves first.
#[inline(always)]
pub(crate) fn fold_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
