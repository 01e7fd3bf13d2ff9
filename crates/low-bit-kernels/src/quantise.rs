//! Writing weights: f32 rows to a stored type, as the reference quantisers do. Only the types that
//! packing offers; the others arrive already quantised.

use crate::dequantise::checked_row_bytes;
use crate::{Error, WeightType};

/// Stores rows of `cols` values as `weight_type`.
///
/// `q8_0` follows `quantize_row_q8_0_ref`: scale = largest magnitude / 127 kept as f16, levels
/// rounded half away from zero with the unrounded scale. f16 and bf16 round to nearest even.
///
/// # Errors
/// [`Error::CannotQuantise`] for the other types, [`Error::Columns`] if `cols` is not whole blocks,
/// [`Error::Length`] if `values` is not whole rows.
pub fn quantise_rows(
    weight_type: WeightType,
    values: &[f32],
    cols: usize,
) -> Result<Vec<u8>, Error> {
    let row_bytes = checked_row_bytes(weight_type, cols)?;
    let rows = values.len() / cols;
    if !values.len().is_multiple_of(cols) {
        let expected = (rows + 1).saturating_mul(cols);
        return Err(Error::Length {
            what: "values of whole rows",
            expected,
            found: values.len(),
        });
    }
    let total = rows.checked_mul(row_bytes).ok_or(Error::TooLarge {
        what: "quantised rows",
        rows,
        cols,
    })?;
    let mut out = Vec::with_capacity(total);
    match weight_type {
        WeightType::F32 => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        WeightType::F16 => out.extend(
            values
                .iter()
                .flat_map(|&value| half::f16::from_f32(value).to_le_bytes()),
        ),
        WeightType::Bf16 => out.extend(
            values
                .iter()
                .flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()),
        ),
        WeightType::Q8_0 => values
            .as_chunks::<32>()
            .0
            .iter()
            .for_each(|block| push_q8_0(block, &mut out)),
        _ => return Err(Error::CannotQuantise { weight_type }),
    }
    Ok(out)
}

fn push_q8_0(block: &[f32; 32], out: &mut Vec<u8>) {
    let largest = block
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    out.extend(half::f16::from_f32(scale).to_le_bytes());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "float to int saturates, and |value * inverse| <= 127"
    )]
    out.extend(
        block
            .iter()
            .map(|value| ((value * inverse).round() as i8).cast_unsigned()),
    );
}
