//! From the bytes of embedding rows, wherever they came from, to the first hidden states. Which
//! rows, and how they were fetched, is the caller's affair.

use candle_core::{Device, Tensor};
use gkq_v2::Dtype;

use crate::slices::count_rows;
use crate::weights::weight_type;
use crate::{DecoderConfig, Error};

/// Widens `rows` (bytes of `hidden_size` values of `dtype` each) into `hidden`, `[rows.len(),
/// hidden_size]`, and applies the family's embedding scale.
///
/// # Errors
/// [`Error::RowBytes`] for a row of another length, naming its index; [`Error::Argument`] for no
/// rows at all, or for hidden states of another number of rows.
pub fn embed_rows_into<R: AsRef<[u8]>>(
    dtype: Dtype,
    rows: &[R],
    config: &DecoderConfig,
    hidden: &mut [f32],
) -> Result<(), Error> {
    let width = config.hidden_size;
    let found = count_rows(hidden, width, "hidden")?;
    if found != rows.len() {
        return Err(Error::Argument {
            argument: "hidden",
            expected: format!("[{}, {width}], a row for each one stored", rows.len()),
            found: format!("[{found}, {width}]"),
        });
    }
    let weight_type = weight_type(dtype, "embedding row")?;
    let scale = config.embedding_scale();
    for (index, (row, values)) in rows.iter().zip(hidden.chunks_exact_mut(width)).enumerate() {
        let bytes = row.as_ref();
        low_bit_kernels::dequantise_row(weight_type, bytes, values).map_err(|source| {
            Error::RowBytes {
                row: index,
                dtype: dtype.name(),
                expected: dtype.row_bytes(width as u64).unwrap_or(0),
                found: bytes.len() as u64,
                source,
            }
        })?;
        if scale != 1.0 {
            values.iter_mut().for_each(|value| *value *= scale);
        }
    }
    Ok(())
}

/// [`embed_rows_into`] a new tensor, `[rows.len(), hidden_size]` f32.
///
/// # Errors
/// Those of [`embed_rows_into`].
pub fn embed_rows<R: AsRef<[u8]>>(
    dtype: Dtype,
    rows: &[R],
    config: &DecoderConfig,
) -> Result<Tensor, Error> {
    let shape = (rows.len(), config.hidden_size);
    let mut hidden = vec![0.0; shape.0 * shape.1];
    embed_rows_into(dtype, rows, config, &mut hidden)?;
    Ok(Tensor::from_vec(hidden, shape, &Device::Cpu)?)
}
