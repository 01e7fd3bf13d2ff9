//! Activation rows quantised to signed bytes, as the reference does before a product with block
//! weights: per 32 values (`quantize_row_q8_0`, `q8_1`) or per 256 (`quantize_row_q8_K`).
//!
//! Two liberties: the scale stays f32 (the reference rounds it to f16 for the types of 32, which
//! overflows on large activations), and a block with a NaN or an infinity gets a NaN scale, so
//! that the trouble shows in every product instead of vanishing in a saturated cast.

use crate::block::BlockFormat;

/// `tokens` quantised rows with what the products need of them per group of weights.
///
/// Rows that are multiplied together lie together, a *run* of `R` rows: `[groups, R, GROUP]` levels
/// and `[groups, R]` of everything else, one run after the other, so that a kernel walks through all
/// of its rows with one pointer. A run of one is a plain row.
#[derive(Debug, Default)]
pub(crate) struct QuantisedActivations {
    /// Columns of a row.
    pub(crate) cols: usize,
    /// Groups of a row.
    pub(crate) groups: usize,
    /// `[tokens, cols]` values in all, each in -127..=127.
    pub(crate) levels: Vec<i8>,
    /// `[tokens, groups]`: the activation scale of each weight group.
    pub(crate) scales: Vec<f32>,
    /// `[tokens, groups]`: what to add to an integer product of unsigned weight levels so that
    /// the zero point is taken off: -zero point x sum of levels.
    pub(crate) offsets: Vec<i32>,
    /// `[tokens, groups]`: scale x sum of levels, which multiplies the group's minimum.
    pub(crate) scaled_sums: Vec<f32>,
}

/// Rows of a run from the widest on, so that any number of rows is cut into few of them.
pub(crate) const RUNS: [usize; 3] = [8, 2, 1];

/// The run that begins with row `first` of `tokens`, where rows go `together`.
#[inline(always)]
pub(crate) fn run_at(first: usize, tokens: usize, together: Together) -> usize {
    match together {
        Together::Never => 1,
        Together::InRuns => {
            let left = tokens - first;
            RUNS.into_iter().find(|run| *run <= left).unwrap_or(1)
        }
    }
}

/// Whether rows lie in runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Together {
    /// Row after row.
    Never,
    /// As [`RUNS`] cut them.
    InRuns,
}

/// The quantised rows of a run.
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
    pub(crate) fn fill<F: BlockFormat, R: Rounding>(
        &mut self,
        values: &[f32],
        cols: usize,
        together: Together,
    ) {
        self.cols = cols;
        self.groups = cols / F::GROUP;
        let total = values.len() / F::GROUP;
        self.levels.resize(values.len(), 0);
        self.scales.resize(total, 0.0);
        self.offsets.resize(total, 0);
        self.scaled_sums.resize(total, 0.0);
        let tokens = values.len() / cols;
        let mut first = 0;
        while first < tokens {
            let run = run_at(first, tokens, together);
            for place in 0..run {
                let values = &values[(first + place) * cols..(first + place + 1) * cols];
                self.fill_row::<F, R>(values, (first, run, place));
            }
            first += run;
        }
    }

    /// Quantises row `place` of the run of `run` rows from row `first` on.
    #[inline(always)]
    fn fill_row<F: BlockFormat, R: Rounding>(
        &mut self,
        values: &[f32],
        (first, run, place): (usize, usize, usize),
    ) {
        let per_block = F::ACTIVATION_BLOCK / F::GROUP;
        let mut levels = [[0_i8; 16]; 16];
        let mut sums = [0_i32; 16];
        let parts = F::ACTIVATION_BLOCK / 16;
        let block = &mut Block {
            levels: &mut levels[..parts],
            sums: &mut sums[..parts],
        };
        for (index, values) in values.chunks_exact(F::ACTIVATION_BLOCK).enumerate() {
            let values = values.as_chunks::<16>().0;
            let scale = if F::ACTIVATION_BLOCK == 256 {
                quantise_q8_k::<R>(values, block)
            } else {
                quantise_q8_0::<R>(values, block)
            };
            let parts = F::GROUP / 16;
            for group in 0..per_block {
                let of_group = group * parts..(group + 1) * parts;
                let sum = block.sums[of_group.clone()].iter().sum::<i32>();
                let at = (index * per_block + group) * run + place;
                let start = first * self.cols + at * F::GROUP;
                self.levels[start..start + F::GROUP]
                    .copy_from_slice(block.levels[of_group].as_flattened());
                let at = first * self.groups + at;
                self.scales[at] = scale;
                self.offsets[at] = -F::ZERO_POINT * sum;
                self.scaled_sums[at] = scale * sum as f32;
            }
        }
    }

    /// Row `token`, which no run holds together with others.
    #[inline(always)]
    pub(crate) fn row(&self, token: usize) -> ActivationRow<'_> {
        self.run(token, 1)
    }

    /// The run of `run` rows from row `first` on.
    #[inline(always)]
    pub(crate) fn run(&self, first: usize, run: usize) -> ActivationRow<'_> {
        let groups = first * self.groups..(first + run) * self.groups;
        ActivationRow {
            levels: &self.levels[first * self.cols..(first + run) * self.cols],
            scales: &self.scales[groups.clone()],
            offsets: &self.offsets[groups.clone()],
            scaled_sums: &self.scaled_sums[groups],
        }
    }
}

/// What a block is quantised into, sixteen values by sixteen.
struct Block<'a> {
    levels: &'a mut [[i8; 16]],
    /// Of each sixteen levels.
    sums: &'a mut [i32],
}

/// The two loops over a block's values, which an instruction set may have its own way of.
pub(crate) trait Rounding {
    /// The bits of the largest magnitude. Compared as integers: the order of finite magnitudes is
    /// the same, and NaNs come out on top instead of being dropped.
    fn largest_magnitude_bits(values: &[[f32; 16]]) -> u32;

    /// `values * factor`, each within -127.5..127.5, rounded to nearest, ties to even; their sum.
    fn round(values: &[f32; 16], factor: f32, levels: &mut [i8; 16]) -> i32;
}

/// Plain Rust.
pub(crate) struct PlainRounding;

impl Rounding for PlainRounding {
    #[inline(always)]
    fn largest_magnitude_bits(values: &[[f32; 16]]) -> u32 {
        let magnitudes = values.as_flattened().iter();
        magnitudes.fold(0, |largest, value| {
            largest.max(value.to_bits() & 0x7fff_ffff)
        })
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "within -127..=127 by construction; the cast saturates"
    )]
    fn round(values: &[f32; 16], factor: f32, levels: &mut [i8; 16]) -> i32 {
        let mut sum = 0;
        for (value, level) in values.iter().zip(levels) {
            *level = (value * factor).round_ties_even() as i8;
            sum += i32::from(*level);
        }
        sum
    }
}

/// Scale of 32 values: largest magnitude / 127.
#[inline(always)]
fn quantise_q8_0<R: Rounding>(values: &[[f32; 16]], block: &mut Block<'_>) -> f32 {
    let largest = f32::from_bits(R::largest_magnitude_bits(values));
    let scale = largest / 127.0;
    settle::<R>(scale, 1.0 / scale, largest, values, block)
}

/// Scale of 256 values: the value of largest magnitude becomes -127, as the reference has it.
#[inline(always)]
fn quantise_q8_k<R: Rounding>(values: &[[f32; 16]], block: &mut Block<'_>) -> f32 {
    let bits = R::largest_magnitude_bits(values);
    let first = values
        .as_flattened()
        .iter()
        .find(|value| value.to_bits() & 0x7fff_ffff == bits)
        .copied()
        .unwrap_or(0.0);
    let factor = -127.0 / first;
    settle::<R>(1.0 / factor, factor, f32::from_bits(bits), values, block)
}

/// Applies the factor, with the blocks apart that have no usable one.
#[inline(always)]
fn settle<R: Rounding>(
    scale: f32,
    factor: f32,
    largest: f32,
    values: &[[f32; 16]],
    block: &mut Block<'_>,
) -> f32 {
    // Zero, or so small that the inverse overflows: nothing of it would survive the product.
    if !largest.is_finite() || !factor.is_finite() {
        block.levels.fill([0; 16]);
        block.sums.fill(0);
        return if largest.is_finite() { 0.0 } else { f32::NAN };
    }
    let parts = block.levels.iter_mut().zip(block.sums.iter_mut());
    for (values, (levels, sum)) in values.iter().zip(parts) {
        *sum = R::round(values, factor, levels);
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::{PlainRounding, QuantisedActivations, Together};
    use crate::block::{Q4_0, Q6K};

    #[test]
    fn a_block_of_32_scales_its_largest_magnitude_to_127() {
        let values: Vec<f32> = (0..64_i16)
            .map(|i| if i < 32 { f32::from(i) - 20.0 } else { 0.0 })
            .collect();
        let mut quantised = QuantisedActivations::default();
        quantised.fill::<Q4_0, PlainRounding>(&values, 64, Together::Never);
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
        quantised.fill::<Q6K, PlainRounding>(&values, 256, Together::Never);
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
        quantised.fill::<Q4_0, PlainRounding>(&values, 128, Together::Never);
        assert!(quantised.scales[0].is_nan() && quantised.scales[1].is_nan());
        assert_eq!(quantised.scales[2], 0.0);
        assert!((quantised.scales[3] - 1.0 / 127.0).abs() < 1e-9);
    }

    #[test]
    fn rows_of_a_run_lie_group_by_group() {
        let values: Vec<f32> = (0..11 * 64_i16).map(|i| f32::from(i % 97) - 40.0).collect();
        let (mut apart, mut in_runs) = (
            QuantisedActivations::default(),
            QuantisedActivations::default(),
        );
        apart.fill::<Q4_0, PlainRounding>(&values, 64, Together::Never);
        in_runs.fill::<Q4_0, PlainRounding>(&values, 64, Together::InRuns);
        for (first, run) in [(0, 8), (8, 2), (10, 1)] {
            let found = in_runs.run(first, run);
            for place in 0..run {
                let expected = apart.row(first + place);
                for group in 0..2 {
                    let at = group * run + place;
                    assert_eq!(
                        found.levels[at * 32..][..32],
                        expected.levels[group * 32..][..32]
                    );
                    assert_eq!(found.scales[at], expected.scales[group]);
                    assert_eq!(found.offsets[at], expected.offsets[group]);
                    assert_eq!(found.scaled_sums[at], expected.scaled_sums[group]);
                }
            }
        }
    }
}
