//! One stored row to f32, by GGML's formula and in its order of operations. For row look-ups and
//! conversions; products never widen their weights this way.

use crate::block::{BlockFormat, UnpackedRow, with_block_format};
use crate::half_bits::{bf16_to_f32, f16_to_f32};
use crate::{Error, WeightType};
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<UnpackedRow> = RefCell::default();
}

/// Widens a row of `out.len()` values from `bytes`, exactly as `dequantize_row_*` of GGML does
/// (without fused multiply-adds).
///
/// # Errors
/// [`Error::Columns`] if `out` is empty or not whole blocks, [`Error::Length`] if `bytes` is not
/// exactly one such row.
pub fn dequantise_row(weight_type: WeightType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    let expected = checked_row_bytes(weight_type, out.len())?;
    if bytes.len() != expected {
        return Err(Error::Length {
            what: "weight row (bytes)",
            expected,
            found: bytes.len(),
        });
    }
    with_block_format!(weight_type, F => SCRATCH.with_borrow_mut(|row| widen::<F>(bytes, row, out)),
        float => widen_float(weight_type, bytes, out));
    Ok(())
}

/// Bytes of a row, or why there can be no such row.
pub(crate) fn checked_row_bytes(weight_type: WeightType, cols: usize) -> Result<usize, Error> {
    let multiple = weight_type.values_per_block();
    if cols == 0 || !cols.is_multiple_of(multiple) {
        return Err(Error::Columns {
            weight_type,
            multiple,
            cols,
        });
    }
    weight_type.row_bytes(cols).ok_or(Error::TooLarge {
        what: "weight row",
        rows: 1,
        cols,
    })
}

fn widen<F: BlockFormat>(bytes: &[u8], row: &mut UnpackedRow, out: &mut [f32]) {
    row.resize(out.len(), F::GROUP);
    row.fill::<F>(bytes);
    let groups = out
        .chunks_exact_mut(F::GROUP)
        .zip(row.levels.chunks_exact(F::GROUP));
    for ((out, levels), (&scale, &minimum)) in groups.zip(row.scales.iter().zip(&row.minima)) {
        for (value, &level) in out.iter_mut().zip(levels) {
            let product = scale * (i32::from(level) - F::ZERO_POINT) as f32;
            *value = if F::HAS_MINIMA {
                product + minimum
            } else {
                product
            };
        }
    }
}

/// Widens floating-point weights; `bytes` must hold exactly `out.len()` of them.
#[inline(always)]
pub(crate) fn widen_float(weight_type: WeightType, bytes: &[u8], out: &mut [f32]) {
    if weight_type == WeightType::F32 {
        for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
        }
    } else if weight_type == WeightType::F16 {
        for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *value = f16_to_f32(u16::from_le_bytes(*bytes));
        }
    } else {
        for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *value = bf16_to_f32(u16::from_le_bytes(*bytes));
        }
    }
}
