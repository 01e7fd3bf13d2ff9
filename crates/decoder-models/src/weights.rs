//! The seam through which weights come in: a source asked by Hugging Face tensor name. Where the
//! bytes lie (mapped file, network buffer, knot or checkpoint) is the source's affair; they are
//! never copied here, except for the few vectors (norms, biases) that are widened to f32.

use bytes::Bytes;
use gkq_v2::Dtype;
use low_bit_kernels::WeightType;

use crate::Error;

/// Hands out tensors by name.
pub trait WeightSource {
    /// The tensor of this Hugging Face name, or `None` if the model has none such.
    ///
    /// # Errors
    /// Whatever keeps the source from answering, as [`Error::Source`].
    fn weight(&self, name: &str) -> Result<Option<Weight>, Error>;
}

/// A tensor in the form it is stored in.
#[derive(Debug, Clone)]
pub enum Weight {
    /// The tensor itself, row-major.
    Dense {
        /// Stored type.
        dtype: Dtype,
        /// `[rows, cols]` for a matrix, `[width]` for a vector.
        shape: Vec<usize>,
        /// Row after row; any alignment.
        bytes: Bytes,
    },
    /// `u * diag(s) * vt`, a spectral block of a knot.
    LowRank {
        /// `[rows, rank]`.
        u: StoredTensor,
        /// `[rank]`, a floating-point type.
        s: StoredTensor,
        /// `[rank, cols]`.
        vt: StoredTensor,
    },
}

/// One factor of a low-rank weight.
#[derive(Debug, Clone)]
pub struct StoredTensor {
    /// Stored type.
    pub dtype: Dtype,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Row after row; any alignment.
    pub bytes: Bytes,
}

/// A weight that must be there.
pub(crate) fn load_weight(source: &dyn WeightSource, name: &str) -> Result<Weight, Error> {
    source.weight(name)?.ok_or_else(|| Error::TensorMissing {
        tensor: name.to_owned(),
    })
}

/// A dense `[width]` vector, widened to f32.
pub(crate) fn load_vector(
    source: &dyn WeightSource,
    name: &str,
    width: usize,
) -> Result<Vec<f32>, Error> {
    match load_weight(source, name)? {
        Weight::Dense {
            dtype,
            shape,
            bytes,
        } => StoredTensor {
            dtype,
            shape,
            bytes,
        }
        .into_vector(name, width),
        Weight::LowRank { u, vt, .. } => {
            let found = vec![
                u.shape.first().copied().unwrap_or(0),
                vt.shape.last().copied().unwrap_or(0),
            ];
            Err(Error::TensorShape {
                tensor: name.to_owned(),
                expected: vec![width],
                found,
            })
        }
    }
}

impl StoredTensor {
    pub(crate) fn into_vector(self, name: &str, width: usize) -> Result<Vec<f32>, Error> {
        self.check(name, &[width])?;
        let mut values = vec![0.0; width];
        low_bit_kernels::dequantise_row(weight_type(self.dtype, name)?, &self.bytes, &mut values)
            .map_err(|source| Error::kernel(name, source))?;
        Ok(values)
    }

    /// Shape as expected, and exactly the bytes that shape and dtype imply.
    pub(crate) fn check(&self, name: &str, expected: &[usize]) -> Result<(), Error> {
        if self.shape != expected {
            return Err(Error::TensorShape {
                tensor: name.to_owned(),
                expected: expected.to_vec(),
                found: self.shape.clone(),
            });
        }
        let dims: Vec<u64> = expected.iter().map(|dim| *dim as u64).collect();
        // Rows that aren't whole blocks have no length; the kernel names that fault better.
        match self.dtype.tensor_bytes(&dims) {
            Some(expected) if expected != self.bytes.len() as u64 => Err(Error::TensorBytes {
                tensor: name.to_owned(),
                expected,
                found: self.bytes.len() as u64,
            }),
            _ => Ok(()),
        }
    }
}

/// The kernels' name for a stored type; `tensor` is for the error.
pub(crate) fn weight_type(dtype: Dtype, tensor: &str) -> Result<WeightType, Error> {
    let same = |weight_type: &WeightType| weight_type.name() == dtype.name();
    let found = WeightType::ALL.into_iter().find(same);
    found.ok_or_else(|| Error::TensorDtype {
        tensor: tensor.to_owned(),
        dtype: dtype.name(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Dtype, weight_type};

    #[test]
    fn kernels_have_every_stored_type_at_its_size() {
        for dtype in Dtype::ALL {
            let weight_type = weight_type(dtype, "w").unwrap();
            assert_eq!(
                weight_type.row_bytes(512).map(|bytes| bytes as u64),
                dtype.row_bytes(512),
                "{dtype}"
            );
        }
    }
}
