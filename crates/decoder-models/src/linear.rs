//! [`Linear`]: `y = W x + b` with `W` in its stored form, dense (floating point or block-quantised)
//! or low-rank. Nothing is widened or copied at load; a low-rank weight is two products and is
//! never multiplied out. The arithmetic is `low-bit-kernels`', and with it its promise that a value
//! depends on its weight row and its activation row alone.

use std::cell::Cell;
use std::ops::Range;

use low_bit_kernels::{Product, WeightMatrix, matmul_together};

use crate::Error;
use crate::buffers::sized;
use crate::slices::for_rows;
use crate::weights::{StoredTensor, Weight, WeightSource, load_vector, load_weight, weight_type};

thread_local! {
    /// Between the two products of a low-rank weight, kept for its buffer.
    static INNER: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// A projection from `in_features` to `out_features`.
#[derive(Debug)]
pub struct Linear {
    weight: Projection,
    bias: Option<Vec<f32>>,
}

/// The matrix of a [`Linear`].
#[derive(Debug)]
pub enum Projection {
    /// `[out_features, in_features]` as stored.
    Dense(WeightMatrix),
    /// `u * diag(s) * vt`.
    LowRank {
        /// `[out_features, rank]`.
        u: WeightMatrix,
        /// `[rank]`.
        s: Vec<f32>,
        /// `[rank, in_features]`.
        vt: WeightMatrix,
    },
}

impl Linear {
    /// A projection without bias from a weight of shape `[out_features, in_features]`; `name` is
    /// for errors.
    ///
    /// # Errors
    /// [`Error::TensorShape`] and [`Error::TensorBytes`] where the weight is not of that shape,
    /// [`Error::Kernel`] where its rows are not whole blocks.
    pub fn new(
        name: &str,
        weight: Weight,
        out_features: usize,
        in_features: usize,
    ) -> Result<Self, Error> {
        let whole = 0..out_features;
        Ok(Self {
            weight: projection(name, weight, [out_features, in_features], whole)?,
            bias: None,
        })
    }

    /// Loads `{module}.weight`, and `{module}.bias` as `bias` says.
    pub(crate) fn load(
        source: &dyn WeightSource,
        module: &str,
        [out_features, in_features]: [usize; 2],
        bias: Bias,
    ) -> Result<Self, Error> {
        let name = format!("{module}.weight");
        let mut linear = Self::new(
            &name,
            load_weight(source, &name)?,
            out_features,
            in_features,
        )?;
        let bias_name = format!("{module}.bias");
        match bias {
            Bias::Required => linear.bias = Some(load_vector(source, &bias_name, out_features)?),
            // A bias left out silently would only show as a worse model.
            Bias::DeniedBy(field) if source.weight(&bias_name)?.is_some() => {
                return Err(Error::TensorUnexpected {
                    tensor: bias_name,
                    field,
                });
            }
            Bias::DeniedBy(_) | Bias::None => {}
        }
        Ok(linear)
    }

    /// Loads consecutive row groups of one fused matrix (`qkv_proj`, `gate_up_proj`) as projections
    /// of their own. Rows are contiguous in every stored type, so they share the fused bytes.
    pub(crate) fn load_fused<const N: usize>(
        source: &dyn WeightSource,
        module: &str,
        groups: [usize; N],
        in_features: usize,
    ) -> Result<[Self; N], Error> {
        let name = format!("{module}.weight");
        let weight = load_weight(source, &name)?;
        let out_features = groups.iter().sum();
        let mut start = 0;
        let mut linears = Vec::with_capacity(N);
        for rows in groups {
            let range = start..start + rows;
            start = range.end;
            let weight = projection(&name, weight.clone(), [out_features, in_features], range)?;
            linears.push(Self { weight, bias: None });
        }
        linears
            .try_into()
            .map_err(|left: Vec<Self>| Error::TensorShape {
                tensor: name,
                expected: vec![N],
                found: vec![left.len()],
            })
    }

    /// Width of an output row.
    #[must_use]
    pub fn out_features(&self) -> usize {
        match &self.weight {
            Projection::Dense(matrix) => matrix.rows(),
            Projection::LowRank { u, .. } => u.rows(),
        }
    }

    /// Width of an input row.
    #[must_use]
    pub fn in_features(&self) -> usize {
        match &self.weight {
            Projection::Dense(matrix) => matrix.cols(),
            Projection::LowRank { vt, .. } => vt.cols(),
        }
    }

    /// The matrix as stored.
    #[must_use]
    pub fn projection(&self) -> &Projection {
        &self.weight
    }

    /// `input[rows, in_features]` to `output[rows, out_features]`.
    ///
    /// # Errors
    /// [`Error::Kernel`] for a buffer of another length.
    pub fn apply(&self, input: &[f32], rows: usize, output: &mut [f32]) -> Result<(), Error> {
        self.apply_rows(0..self.out_features(), input, rows, output)
            .map_err(|source| Error::operation("linear", source))
    }

    /// Some output features of each row: `input` is `[rows, in_features]`, `output`
    /// `[rows, features.len()]`, each value the same bits as in the whole product.
    pub(crate) fn apply_rows(
        &self,
        features: Range<usize>,
        input: &[f32],
        rows: usize,
        output: &mut [f32],
    ) -> Result<(), low_bit_kernels::Error> {
        match &self.weight {
            Projection::Dense(matrix) => {
                matrix.matmul_rows(features.clone(), input, rows, output)?
            }
            Projection::LowRank { u, s, vt } => {
                // Taken rather than borrowed: the pool may run another product on this thread
                // while this one waits for its chunks.
                let mut buffer = INNER.take();
                let inner = sized(&mut buffer, rows * s.len());
                vt.matmul(input, rows, inner)?;
                for_rows(inner, s.len(), |_, row| {
                    row.iter_mut().zip(s).for_each(|(x, s)| *x *= s)
                });
                u.matmul_rows(features.clone(), inner, rows, output)?;
                INNER.set(buffer);
            }
        }
        self.add_bias(features, output);
        Ok(())
    }

    /// Adds the bias of some output features to `output[rows, features.len()]`.
    fn add_bias(&self, features: Range<usize>, output: &mut [f32]) {
        if let Some(bias) = &self.bias {
            let bias = &bias[features];
            for_rows(output, bias.len(), |_, row| {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += b)
            });
        }
    }

    /// [`apply`](Self::apply) of several projections, each beside its output, to one input, whose activations are quantised
    /// once and whose rows go to the threads together.
    pub(crate) fn apply_together<const N: usize>(
        mut parts: [(&Self, &mut [f32]); N],
        input: &[f32],
        rows: usize,
    ) -> Result<(), Error> {
        let mut products = parts
            .each_mut()
            .map(|(linear, output)| match &linear.weight {
                Projection::Dense(matrix) => Product {
                    matrix,
                    rows: 0..matrix.rows(),
                    output,
                },
                // Two products, which come alone: here it takes part with no rows.
                Projection::LowRank { vt, .. } => Product {
                    matrix: vt,
                    rows: 0..0,
                    output: &mut [],
                },
            });
        matmul_together(&mut products, input, rows)
            .map_err(|source| Error::operation("linear", source))?;
        for (linear, output) in parts {
            match linear.weight {
                Projection::Dense(_) => linear.add_bias(0..linear.out_features(), output),
                Projection::LowRank { .. } => linear.apply(input, rows, output)?,
            }
        }
        Ok(())
    }
}

/// Whether a projection has a bias.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bias {
    /// The model cannot do without.
    Required,
    /// This config field says that there is none; one that exists is an error.
    DeniedBy(&'static str),
    /// The family has none.
    None,
}

impl Bias {
    /// As the config field of this name states.
    pub(crate) fn stated(present: bool, field: &'static str) -> Self {
        if present {
            Self::Required
        } else {
            Self::DeniedBy(field)
        }
    }
}

/// Rows `range` of a weight of the given whole shape.
fn projection(
    name: &str,
    weight: Weight,
    [out_features, in_features]: [usize; 2],
    range: Range<usize>,
) -> Result<Projection, Error> {
    match weight {
        Weight::Dense {
            dtype,
            shape,
            bytes,
        } => {
            let stored = StoredTensor {
                dtype,
                shape,
                bytes,
            };
            stored.check(name, &[out_features, in_features])?;
            matrix(name, &stored, in_features, range).map(Projection::Dense)
        }
        Weight::LowRank { u, s, vt } => {
            let rank = s.shape.first().copied().unwrap_or(0);
            u.check(name, &[out_features, rank])?;
            vt.check(name, &[rank, in_features])?;
            Ok(Projection::LowRank {
                u: matrix(name, &u, rank, range)?,
                s: s.into_vector(name, rank)?,
                vt: matrix(name, &vt, in_features, 0..rank)?,
            })
        }
    }
}

/// Rows `range` of a checked matrix, without copying.
fn matrix(
    name: &str,
    stored: &StoredTensor,
    cols: usize,
    range: Range<usize>,
) -> Result<WeightMatrix, Error> {
    let weight_type = weight_type(stored.dtype, name)?;
    // Where rows aren't whole blocks the kernel is given all bytes and names the fault.
    let bytes = match weight_type.row_bytes(cols) {
        Some(row_bytes) => stored
            .bytes
            .slice(range.start * row_bytes..range.end * row_bytes),
        None => stored.bytes.clone(),
    };
    WeightMatrix::new(weight_type, range.len(), cols, bytes)
        .map_err(|source| Error::kernel(name, source))
}
