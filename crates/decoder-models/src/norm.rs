//! RMS norm as an operation of its own: candle's sums a row in an order that is its own affair,
//! ours is fixed, so that a row has the same bits in every batch. Reference:
//! `LlamaRMSNorm` and `Gemma3RMSNorm` of transformers.

use candle_core::{CpuStorage, CustomOp1, Layout, Result as CandleResult, Shape, Tensor};

use crate::slices::{contiguous_f32, for_rows};
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

    /// Norms each run of `width` values of `[rows, n * width]`: the whole row, or every head of it.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<Tensor, Error> {
        Ok(input.apply_op1_no_bwd(self)?)
    }

    fn norm_row(&self, input: &[f32], output: &mut [f32]) {
        #[allow(clippy::cast_precision_loss, reason = "a width is at most 2^20")]
        let mean = sum_of_squares(input) / input.len() as f32;
        let scale = 1.0 / (mean + self.eps).sqrt();
        for ((out, value), weight) in output.iter_mut().zip(input).zip(&self.weight) {
            *out = value * scale * weight;
        }
    }
}

impl CustomOp1 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> CandleResult<(CpuStorage, Shape)> {
        let input = contiguous_f32(storage, layout, self.name())?;
        let width = self.weight.len();
        if !layout
            .dims()
            .last()
            .is_some_and(|last| last.is_multiple_of(width))
        {
            candle_core::bail!(
                "rms-norm: {width} weights don't divide rows of {:?}",
                layout.dims()
            );
        }
        let mut output = vec![0.0; input.len()];
        for_rows(&mut output, width, |index, row| {
            self.norm_row(&input[index * width..][..width], row)
        });
        Ok((CpuStorage::F32(output), layout.shape().clone()))
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
