//! Activation rows quantised to signed bytes, as the reference does before a product with block
//! weights: per 32 values (`quantize_row_q8_0`, `q8_1`) or per 256 (`quantize_row_q8_K`).
//!
//! Two liberties: the scale stays f32 (the reference rounds it to f16 for the types of 32, which
//! overflows on large activations), and a block with a NaN or an infinity gets a NaN scale, so
//! that the trouble shows in every product instead of vanishing in a saturated cast.

use crate::block::BlockFormat;

/// `tokens` quantised rows with what the products need of them per group of weights.
#[derive(Debug, Default)]
pub(crate) struct QuantisedActivations {
    /// Columns of a row.
    pub(crate) cols: usize,
    /// Groups of a row.
    pub(crate) groups: usize,
    /// `[tokens, cols]`, each in -127..=127.
    pub(crate) levels: Vec<i8>,
    /// `[tokens, groups]`: the activation scale of each weight group.
    pub(crate) scales: Vec<f32>,
    /// `[tokens, groups]`: what to add to an integer product of unsigned weight levels so that
    /// the zero point is taken off: -zero point x sum of levels.
    pub(crate) offsets: Vec<i32>,
    /// `[tokens, groups]`: scale x sum of levels, which multiplies the group's minimum.
    pub(crate) scaled_sums: Vec<f32>,
}

/// One quantised row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivationRow<'a> {
    pub(crate) levels: &'a [i8],
    pub(crate) scales: &'a [f32],
    pub(crate) offsets: &'a [i32],
    pub(crate) scaled_sums: &'a [f32],
}

impl QuantisedActivations {
    /// Quantises `values[tokens, cols]` for weights of format `F`; keeps its buffers.
    #[inline(always)]
    pub(crate) fn fill<F: BlockFormat>(&mut self, values: &[f32], cols: usize) {
        self.cols = cols;
        self.groups = cols / F::GROUP;
        let total = values.len() / F::GROUP;
        self.levels.resize(values.len(), 0);
        self.scales.resize(total, 0.0);
        self.offsets.resize(total, 0);
        self.scaled_sums.resize(total, 0.0);
        let per_block = F::ACTIVATION_BLOCK / F::GROUP;
        let blocks = values
            .chunks_exact(F::ACTIVATION_BLOCK)
            .zip(self.levels.chunks_exact_mut(F::ACTIVATION_BLOCK));
        for (index, (values, levels)) in blocks.enumerate() {
            let scale = if F::ACTIVATION_BLOCK == 256 {
                quantise_q8_k(values, levels)
            } else {
                quantise_q8_0(values, levels)
            };
            for (group, levels) in levels.chunks_exact(F::GROUP).enumerate() {
                let at = index * per_block + group;
                let sum = levels
                    .iter()
                    .fold(0_i32, |sum, &level| sum.wrapping_add(i32::from(level)));
                self.scales[at] = scale;
                self.offsets[at] = -F::ZERO_POINT * sum;
                self.scaled_sums[at] = scale * sum as f32;
            }
        }
    }

    /// Row `token`.
    #[inline(always)]
    pub(crate) fn row(&self, token: usize) -> ActivationRow<'_> {
        let groups = token * self.groups..(token + 1) * self.groups;
        ActivationRow {
            levels: &self.levels[token * self.cols..(token + 1) * self.cols],
            scales: &self.scales[groups.clone()],
            offsets: &self.offsets[groups.clone()],
            scaled_sums: &self.scaled_sums[groups],
        }
    }
}

/// The bits of the largest magnitude. Compared as integers: the order of finite magnitudes is the
/// same, and NaNs come out on top instead of being dropped.
#[inline(always)]
fn largest_magnitude_bits(values: &[f32]) -> u32 {
    values.iter().fold(0_u32, |largest, value| {
        largest.max(value.to_bits() & 0x7fff_ffff)
    })
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "within -127..=127 by construction; the cast saturates"
)]
fn round_to_levels(values: &[f32], factor: f32, levels: &mut [i8]) {
    for (value, level) in values.iter().zip(levels) {
        *level = (value * factor).round_ties_even() as i8;
    }
}

/// Scale of 32 values: largest magnitude / 127.
#[inline(always)]
fn quantise_q8_0(values: &[f32], levels: &mut [i8]) -> f32 {
    let largest = f32::from_bits(largest_magnitude_bits(values));
    let scale = largest / 127.0;
    settle(scale, 1.0 / scale, largest, values, levels)
}

/// Scale of 256 values: the value of largest magnitude becomes -127, as the reference has it.
#[inline(always)]
fn quantise_q8_k(values: &[f32], levels: &mut [i8]) -> f32 {
    let bits = largest_magnitude_bits(values);
    let first = values
        .iter()
        .find(|value| value.to_bits() & 0x7fff_ffff == bits)
        .copied()
        .unwrap_or(0.0);
    let factor = -127.0 / first;
    settle(1.0 / factor, factor, f32::from_bits(bits), values, levels)
}

/// Applies the factor, with the blocks apart that have no usable one.
#[inline(always)]
fn settle(scale: f32, factor: f32, largest: f32, values: &[f32], levels: &mut [i8]) -> f32 {
    if !largest.is_finite() {
        levels.fill(0);
        return f32::NAN;
    }
    // Zero, or so small that the inverse overflows: nothing of it would survive the product.
    if !factor.is_finite() {
        levels.fill(0);
        return 0.0;
    }
    round_to_levels(values, factor, levels);
    scale
}

#[cfg(test)]
mod tests {
    use super::QuantisedActivations;
    use crate::block::{Q4_0, Q6K};

    #[test]
    fn a_block_of_32_scales_its_largest_magnitude_to_127() {
        let values: Vec<f32> = (0..64_i16)
            .map(|i| if i < 32 { f32::from(i) - 20.0 } else { 0.0 })
            .collect();
        let mut quantised = QuantisedActivations::default();
        quantised.fill::<Q4_0>(&values, 64);
        assert_eq!(quantised.levels[0], -127);
        assert_eq!(quantised.scales, [20.0 / 127.0, 0.0]);
        let sum: i32 = quantised.levels[..32]
            .iter()
            .map(|&level| i32::from(level))
            .sum();
        assert_eq!(quantised.offsets, [-8 * sum, 0]);
    }

    #[test]
    fn a_block_of_256_turns_its_largest_value_into_minus_127() {
        let values: Vec<f32> = (0..256_i16).map(f32::from).collect();
        let mut quantised = QuantisedActivations::default();
        quantised.fill::<Q6K>(&values, 256);
        assert_eq!(quantised.levels[255], -127);
        assert!((quantised.scales[15] + 255.0 / 127.0).abs() < 1e-6);
    }

    #[test]
    fn trouble_stays_in_its_block_and_tiny_values_vanish() {
        let mut values = vec![1.0_f32; 128];
        values[3] = f32::NAN;
        values[40] = f32::INFINITY;
        values[64..96].fill(1e-44);
        let mut quantised = QuantisedActivations::default();
        quantised.fill::<Q4_0>(&values, 128);
        assert!(quantised.scales[0].is_nan() && quantised.scales[1].is_nan());
        assert_eq!(quantised.scales[2], 0.0);
        assert!((quantised.scales[3] - 1.0 / 127.0).abs() < 1e-9);
    }
}
