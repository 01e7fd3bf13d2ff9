//! Block types as one shape: unsigned levels in groups that share a scale and perhaps a minimum.
//!
//! Every GGML block type says `value = scale * (level - ZERO_POINT) + minimum`, with level an
//! unsigned number of up to 8 bits. Unpacking to that shape is all that differs between types; the
//! products know no type. The layouts are those of `ggml-common.h` and `dequantize_row_*` in
//! `ggml-quants.c`.

mod k;
mod legacy;

pub(crate) use k::{Q2K, Q3K, Q4K, Q5K, Q6K};
pub(crate) use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

/// One block type. All slices have exactly the lengths that the constants say.
pub(crate) trait BlockFormat {
    /// Values per block.
    const VALUES: usize;
    /// Bytes per block.
    const BYTES: usize;
    /// Values that share a scale: 16 or 32.
    const GROUP: usize;
    /// Subtracted from each level.
    const ZERO_POINT: i32;
    /// Whether groups have a minimum.
    const HAS_MINIMA: bool;
    /// Values that share one activation scale: 32 (Q8_0, Q8_1) or 256 (Q8_K).
    const ACTIVATION_BLOCK: usize = if Self::VALUES == 256 { 256 } else { 32 };

    /// Unpacks the levels of one block: `levels[VALUES]`.
    fn unpack_levels(block: &[u8], levels: &mut [u8]);

    /// Unpacks `scales[VALUES / GROUP]` of one block and, if `HAS_MINIMA`, `minima[VALUES / GROUP]`
    /// (else `minima` is left alone).
    fn unpack_scales(block: &[u8], scales: &mut [f32], minima: &mut [f32]);
}

/// One row in the common shape.
#[derive(Debug, Default)]
pub(crate) struct UnpackedRow {
    /// One level per column.
    pub(crate) levels: Vec<u8>,
    /// One scale per group.
    pub(crate) scales: Vec<f32>,
    /// One minimum per group; meaningless unless the format has minima.
    pub(crate) minima: Vec<f32>,
}

impl UnpackedRow {
    /// Grows the buffers to `cols` columns in groups of `group`; keeps them if they fit already.
    pub(crate) fn resize(&mut self, cols: usize, group: usize) {
        self.levels.resize(cols, 0);
        self.scales.resize(cols / group, 0.0);
        self.minima.resize(cols / group, 0.0);
    }

    /// Unpacks a whole row; the buffers must have been resized for its columns.
    #[inline(always)]
    pub(crate) fn fill<F: BlockFormat>(&mut self, row: &[u8]) {
        unpack_row::<F>(row, &mut self.levels, &mut self.scales, &mut self.minima);
    }
}

/// Unpacks a row of whole blocks into slices of `cols`, `cols / GROUP` and `cols / GROUP` values.
#[inline(always)]
pub(crate) fn unpack_row<F: BlockFormat>(
    row: &[u8],
    levels: &mut [u8],
    scales: &mut [f32],
    minima: &mut [f32],
) {
    let groups = F::VALUES / F::GROUP;
    let blocks = row.chunks_exact(F::BYTES);
    let levels = levels.chunks_exact_mut(F::VALUES);
    let scales = scales.chunks_exact_mut(groups);
    let minima = minima.chunks_exact_mut(groups);
    for (((block, levels), scales), minima) in blocks.zip(levels).zip(scales).zip(minima) {
        F::unpack_levels(block, levels);
        F::unpack_scales(block, scales, minima);
    }
}

/// Runs `$body` with `$format` bound to the block format of `$weight_type`; floating-point types
/// go to `$float`.
macro_rules! with_block_format {
    ($weight_type:expr, $format:ident => $body:expr, float => $float:expr) => {
        match $weight_type {
            $crate::WeightType::F32 | $crate::WeightType::F16 | $crate::WeightType::Bf16 => $float,
            $crate::WeightType::Q4_0 => {
                type $format = $crate::block::Q4_0;
                $body
            }
            $crate::WeightType::Q4_1 => {
                type $format = $crate::block::Q4_1;
                $body
            }
            $crate::WeightType::Q5_0 => {
                type $format = $crate::block::Q5_0;
                $body
            }
            $crate::WeightType::Q5_1 => {
                type $format = $crate::block::Q5_1;
                $body
            }
            $crate::WeightType::Q8_0 => {
                type $format = $crate::block::Q8_0;
                $body
            }
            $crate::WeightType::Q2K => {
                type $format = $crate::block::Q2K;
                $body
            }
            $crate::WeightType::Q3K => {
                type $format = $crate::block::Q3K;
                $body
            }
            $crate::WeightType::Q4K => {
                type $format = $crate::block::Q4K;
                $body
            }
            $crate::WeightType::Q5K => {
                type $format = $crate::block::Q5K;
                $body
            }
            $crate::WeightType::Q6K => {
                type $format = $crate::block::Q6K;
                $body
            }
        }
    };
}
pub(crate) use with_block_format;
