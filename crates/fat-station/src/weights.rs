//! A block of a knot as the model takes it: dense bytes or low-rank factors, without a copy.

use crate::error::Error;
use bytes::Bytes;
use decoder_models::{StoredTensor, Weight};
use gkq_v2::{Block, BlockBody, Dtype};
use std::ops::Range;

/// The payload of `block` as a weight.
///
/// # Errors
/// [`Error::Config`] for a shape that no weight has, or too large for this machine.
pub(crate) fn weight_of(block: &Block, bytes: Bytes) -> Result<Weight, Error> {
    let outside = || {
        Error::config(format!(
            "tensor {} of shape {:?} is too large for this machine",
            block.name, block.shape
        ))
    };
    let size = |size: u64| usize::try_from(size).map_err(|_overflow| outside());
    let shape = block
        .shape
        .iter()
        .map(|&dim| size(dim))
        .collect::<Result<Vec<_>, _>>()?;
    let BlockBody::Spectral {
        rank,
        dtype,
        u,
        s,
        vt,
    } = &block.body
    else {
        return Ok(Weight::Dense {
            dtype: block.dtype(),
            shape,
            bytes,
        });
    };
    let &[rows, cols] = shape.as_slice() else {
        return Err(Error::config(format!(
            "spectral tensor {} has shape {shape:?}, expected two dimensions",
            block.name
        )));
    };
    let rank = size(u64::from(*rank))?;
    let factor = |range: &Range<u64>, dtype: Dtype, shape: Vec<usize>| {
        let (start, end) = (size(range.start)?, size(range.end)?);
        if start > end || end > bytes.len() {
            return Err(outside());
        }
        Ok(StoredTensor {
            dtype,
            shape,
            bytes: bytes.slice(start..end),
        })
    };
    Ok(Weight::LowRank {
        u: factor(u, *dtype, vec![rows, rank])?,
        s: factor(s, Dtype::F32, vec![rank])?,
        vt: factor(vt, *dtype, vec![rank, cols])?,
    })
}
