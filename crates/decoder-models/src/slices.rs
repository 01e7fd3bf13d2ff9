//! From candle tensors, which a pass begins and ends with, to the plain slices that it works on, and
//! the row loop of the elementwise operations. Every operation here computes a row from that row alone, so its bits don't depend
//! on how many rows come along (held by `tests::rows_alone`).

#[cfg(test)]
mod tests;

use candle_core::{DType, Device, Storage, Tensor};
use rayon::prelude::*;

use crate::Error;

/// Values below which a loop is not worth handing to other threads: about 10 us of work.
pub(crate) const PARALLEL_VALUES: usize = 1 << 15;

/// Lends the values of a contiguous f32 tensor on the CPU.
pub(crate) fn with_f32<T>(
    tensor: &Tensor,
    read: impl FnOnce(&[f32]) -> Result<T, Error>,
) -> Result<T, Error> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        return Err(Error::Tensor(candle_core::Error::Msg(
            "tensor is not on the CPU".to_owned(),
        )));
    };
    let Some((start, end)) = layout.contiguous_offsets() else {
        return Err(Error::Tensor(candle_core::Error::Msg(format!(
            "tensor of shape {:?} is not contiguous",
            layout.dims()
        ))));
    };
    read(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `each(row_index, row)` on every row of `width` values, in parallel where it pays.
pub(crate) fn for_rows(values: &mut [f32], width: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
    if values.len() < PARALLEL_VALUES {
        values
            .chunks_exact_mut(width)
            .enumerate()
            .for_each(|(index, row)| each(index, row));
    } else {
        values
            .par_chunks_exact_mut(width)
            .enumerate()
            .for_each(|(index, row)| each(index, row));
    }
}

/// Rows of `width` values in a slice at the seam, at least one.
pub(crate) fn count_rows(
    values: &[f32],
    width: usize,
    argument: &'static str,
) -> Result<usize, Error> {
    if values.is_empty() || !values.len().is_multiple_of(width) {
        return Err(Error::Argument {
            argument,
            expected: format!("[rows >= 1, {width}] values"),
            found: format!("{} values", values.len()),
        });
    }
    Ok(values.len() / width)
}

/// Checks an argument at the seam: f32 on the CPU, `[rows, width]` with at least one row, which it
/// returns as a contiguous tensor with its row count.
pub(crate) fn check_rows(
    tensor: &Tensor,
    width: usize,
    argument: &'static str,
) -> Result<(Tensor, usize), Error> {
    let fits = matches!(tensor.dims(), [rows, found] if *rows > 0 && *found == width);
    if !fits || tensor.dtype() != DType::F32 || !matches!(tensor.device(), Device::Cpu) {
        return Err(Error::Argument {
            argument,
            expected: format!("[rows >= 1, {width}] f32 on the CPU"),
            found: format!(
                "{:?} {} on {:?}",
                tensor.dims(),
                tensor.dtype().as_str(),
                tensor.device().location()
            ),
        });
    }
    Ok((tensor.contiguous()?, tensor.dims()[0]))
}
