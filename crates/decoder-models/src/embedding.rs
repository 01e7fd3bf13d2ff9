//! From the bytes of embedding rows, wherever they came from, to the first hidden states. Which
//! rows, and how they were fetched, is the caller's affair.

use candle_core::{Device, Tensor};
use gkq_v2::Dtype;

use crate::weights::weight_type;
use crate::{DecoderConfig, Error};

/// Widens `rows` (bytes of `hidden_size` values of `dtype` each) to `[rows.len(), hidden_size]` f32
/// and applies the family's embedding scale.
///
/// # Errors
/// [`Error::RowBytes`] for a row of another length, naming its index; [`Error::Argument`] for no
/// rows at all.
pub fn embed_rows<R: AsRef<[u8]>>(
    dtype: Dtype,
    rows: &[R],
    config: &DecoderConfig,
) -> Result<Tensor, Error> {
    let width = config.hidden_size;
    if rows.is_empty() {
        return Err(Error::Argument {
            argument: "rows",
            expected: "at least one row".to_owned(),
            found: "none".to_owned(),
        });
    }
    let weight_type = weight_type(dtype, "embedding row")?;
    let expected = dtype.row_bytes(width as u64).unwrap_or(0);
    let mut hidden = vec![0.0; rows.len() * width];
    for (index, (row, values)) in rows.iter().zip(hidden.chunks_exact_mut(width)).enumerate() {
        let bytes = row.as_ref();
        low_bit_kernels::dequantise_row(weight_type, bytes, values).map_err(|source| {
            Error::RowBytes {
                row: index,
                dtype: dtype.name(),
                expected,
                found: bytes.len() as u64,
                source,
            }
        })?;
    }
    let scale = config.embedding_scale();
    if scale != 1.0 {
        hidden.iter_mut().for_each(|value| *value *= scale);
    }
    Ok(Tensor::from_vec(hidden, (rows.len(), width), &Device::Cpu)?)
}
