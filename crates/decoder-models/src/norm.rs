//! RMS norm, a row's sum in a fixed order, so that it has the same bits in every batch. Reference:
//! `LlamaRMSNorm` and `Gemma3RMSNorm` of transformers.

use crate::slices::for_rows;
use crate::weights::{WeightSource, load_vector};
use crate::{DecoderConfig, Error};

/// Partial sums of a row, enough for the widest vector registers to work in parallel.
const LANES: usize = 16;

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    weight: Vec<f32>,
    eps: f32,
}

impl RmsNorm {
    /// Loads `[width]` weights; a family that stores them less one gets its one back here.
    pub(crate) fn load(
        config: &DecoderConfig,
        source: &dyn WeightSource,
        name: &str,
        width: usize,
    ) -> Result<Self, Error> {
        let mut weight = load_vector(source, name, width)?;
        let offset = config.norm_weight_offset();
        if offset != 0.0 {
            weight.iter_mut().for_each(|value| *value += offset);
        }
        Ok(Self {
            weight,
            eps: config.rms_norm_eps,
        })
    }

    /// A norm of weights already at hand.
    #[cfg(test)]
    pub(crate) fn from_parts(weight: Vec<f32>, eps: f32) -> Self {
        Self { weight, eps }
    }

    /// Norms each row of `input` into `output`, `[rows, width]` both.
    pub(crate) fn apply(&self, input: &[f32], output: &mut [f32]) {
        let width = self.weight.len();
        for_rows(output, width, |index, output| {
            let input = &input[index * width..][..width];
            let scale = self.scale(input);
            for ((out, value), weight) in output.iter_mut().zip(input).zip(&self.weight) {
                *out = value * scale * weight;
            }
        });
    }

    /// Norms each run of `width` values where it is: whole rows, or every head of them.
    pub(crate) fn apply_in_place(&self, values: &mut [f32]) {
        for_rows(values, self.weight.len(), |_, row| {
            let scale = self.scale(row);
            for (value, weight) in row.iter_mut().zip(&self.weight) {
                *value = *value * scale * weight;
            }
        });
    }

    fn scale(&self, row: &[f32]) -> f32 {
        #[allow(clippy::cast_precision_loss, reason = "a width is at most 2^20")]
        let mean = sum_of_squares(row) / row.len() as f32;
        1.0 / (mean + self.eps).sqrt()
    }
}

/// Sum of squares in a fixed order: lane by lane, then the lanes pairwise.
fn sum_of_squares(values: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += value * value;
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}
