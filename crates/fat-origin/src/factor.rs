//! `W ~ U diag(s) V^T` within a tolerance: the smallest rank whose *measured* error, with the factors
//! as they will be stored, is within it. Pure; it chooses no tensors and writes no file. The singular
//! value decomposition is faer's.

use faer::{Mat, MatRef};
use gkq_v2::Dtype;
use low_bit_kernels::{WeightType, dequantise_row, quantise_rows};

/// Factors of one matrix, as bytes ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    pub(crate) rank: usize,
    /// `[rows, rank]`, row-major, in the asked dtype.
    pub(crate) u: Vec<u8>,
    /// `[rank]`, f32.
    pub(crate) s: Vec<u8>,
    /// `[rank, cols]`, row-major, in the asked dtype.
    pub(crate) vt: Vec<u8>,
    /// `|W - U diag(s) V^T| / |W|`, Frobenius, of the factors as stored.
    pub(crate) error: f64,
}

/// The outcome of an attempt.
#[derive(Clone, Debug)]
pub(crate) enum Attempt {
    /// Within the tolerance and at most the largest rank.
    Factored(Factors),
    /// The rank that the tolerance would take, above the largest one allowed.
    RankTooLarge {
        /// By the singular values alone.
        needed: usize,
    },
    /// The decomposition cannot be computed; the reason in words.
    NoDecomposition(String),
}

/// Factors `values`, `[rows, cols]` row-major and finite, into at most `largest_rank` components with
/// a relative error of at most `tolerance`.
pub(crate) fn factor(
    values: &[f32],
    cols: usize,
    dtype: FactorDtype,
    largest_rank: usize,
    tolerance: f64,
) -> Attempt {
    let rows = values.len().checked_div(cols).unwrap_or(0);
    let matrix = MatRef::from_row_major_slice(values, rows, cols);
    let norm = square_sum(values).sqrt();
    let svd = match matrix.thin_svd() {
        Ok(svd) => svd,
        Err(error) => {
            return Attempt::NoDecomposition(format!("no singular value decomposition: {error:?}"));
        }
    };
    let singular: Vec<f32> = svd.S().column_vector().iter().copied().collect();
    let mut rank = smallest_rank(&singular, tolerance * norm);
    // Rounding the factors adds a little error; a few more components pay for it.
    while rank <= largest_rank {
        let kept = singular.get(..rank).unwrap_or(&singular);
        let (u, stored_u) = dtype.store(svd.U().subcols(0, rank));
        // Rows of `vt` are columns of `v`, so `v^T` is stored row by row.
        let (vt, stored_vt) = dtype.store(svd.V().subcols(0, rank).transpose());
        let scaled = Mat::from_fn(rows, rank, |row, component| {
            stored_u[(row, component)] * kept.get(component).copied().unwrap_or(0.0)
        });
        let difference = matrix - scaled * stored_vt;
        let error = relative(difference.as_ref(), norm);
        if error <= tolerance {
            let s = kept.iter().flat_map(|value| value.to_le_bytes()).collect();
            return Attempt::Factored(Factors {
                rank,
                u,
                s,
                vt,
                error,
            });
        }
        rank += (rank / 16).max(1);
    }
    Attempt::RankTooLarge { needed: rank }
}

/// Element type of stored factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FactorDtype(WeightType);

impl FactorDtype {
    /// `None` unless the type is a floating-point one.
    pub(crate) fn new(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self(WeightType::F32)),
            Dtype::F16 => Some(Self(WeightType::F16)),
            Dtype::Bf16 => Some(Self(WeightType::Bf16)),
            _ => None,
        }
    }

    /// The matrix as bytes, row-major, and as those bytes read back.
    fn store(self, matrix: MatRef<'_, f32>) -> (Vec<u8>, Mat<f32>) {
        let values: Vec<f32> = matrix
            .row_iter()
            .flat_map(|row| row.iter().copied())
            .collect();
        // Singular vectors have entries of at most 1, which every floating type holds; rows of floats
        // are always whole. So neither call can refuse.
        let bytes = quantise_rows(self.0, &values, matrix.ncols()).unwrap_or_default();
        let mut back = vec![0.0; values.len()];
        let read = dequantise_row(self.0, &bytes, &mut back);
        debug_assert!(read.is_ok(), "floating rows are whole");
        let stored = MatRef::from_row_major_slice(&back, matrix.nrows(), matrix.ncols()).to_owned();
        (bytes, stored)
    }
}

/// The least number of leading singular values whose rest has a norm of at most `allowed`; at least 1.
fn smallest_rank(singular: &[f32], allowed: f64) -> usize {
    let mut tail = 0.0;
    for (index, &value) in singular.iter().enumerate().rev() {
        tail += f64::from(value).powi(2);
        if tail.sqrt() > allowed {
            return index + 1;
        }
    }
    1
}

fn square_sum(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum()
}

/// The norm of a difference over the norm of the whole; an all-zero matrix is met exactly or not.
fn relative(difference: MatRef<'_, f32>, norm: f64) -> f64 {
    let rest = difference.col_iter().map(|column| {
        column
            .iter()
            .map(|&value| f64::from(value).powi(2))
            .sum::<f64>()
    });
    let rest = rest.sum::<f64>().sqrt();
    if rest == 0.0 { 0.0 } else { rest / norm }
}

#[cfg(test)]
mod tests {
    use super::{Attempt, FactorDtype, factor};
    use gkq_v2::Dtype;

    /// A matrix of exactly this rank, and its values.
    fn low_rank(rows: usize, cols: usize, rank: usize) -> Vec<f32> {
        let wave =
            |seed: usize, index: usize| ((seed * 37 + index * (seed + 3)) as f32 * 0.61).sin();
        let mut values = vec![0.0; rows * cols];
        for component in 0..rank {
            for row in 0..rows {
                for col in 0..cols {
                    values[row * cols + col] += wave(component, row) * wave(component + 17, col);
                }
            }
        }
        values
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|chunk| f32::from_le_bytes(*chunk))
            .collect()
    }

    #[test]
    fn a_low_rank_matrix_is_found_out_and_rebuilt() {
        let (rows, cols) = (24, 40);
        let values = low_rank(rows, cols, 3);
        let dtype = FactorDtype::new(Dtype::F32).unwrap();
        let Attempt::Factored(factors) = factor(&values, cols, dtype, 8, 1e-4) else {
            panic!("not factored")
        };
        assert_eq!(factors.rank, 3);
        let (u, s, vt) = (floats(&factors.u), floats(&factors.s), floats(&factors.vt));
        let (mut rest, mut whole) = (0.0_f64, 0.0_f64);
        for row in 0..rows {
            for col in 0..cols {
                let value: f32 = (0..3)
                    .map(|k| u[row * 3 + k] * s[k] * vt[k * cols + col])
                    .sum();
                rest += f64::from(value - values[row * cols + col]).powi(2);
                whole += f64::from(values[row * cols + col]).powi(2);
            }
        }
        assert!((rest / whole).sqrt() <= 1e-4);
        assert!(
            (factors.error - (rest / whole).sqrt()).abs() < 1e-5,
            "the stated error is the real one"
        );
    }

    #[test]
    fn rounded_factors_are_measured_as_they_are_stored() {
        let values = low_rank(32, 32, 2);
        let dtype = FactorDtype::new(Dtype::Bf16).unwrap();
        // bf16 has 8 bits: a relative error of a few thousandths is there and is stated.
        let Attempt::Factored(factors) = factor(&values, 32, dtype, 8, 2e-2) else {
            panic!("not factored")
        };
        assert!(
            factors.error > 1e-4 && factors.error <= 2e-2,
            "{}",
            factors.error
        );
        assert!(matches!(
            factor(&values, 32, dtype, 2, 1e-5),
            Attempt::RankTooLarge { .. }
        ));
    }

    #[test]
    fn a_full_rank_matrix_is_left_alone() {
        let values = low_rank(16, 16, 16);
        let dtype = FactorDtype::new(Dtype::F32).unwrap();
        assert!(
            matches!(factor(&values, 16, dtype, 7, 1e-6), Attempt::RankTooLarge { needed } if needed > 7)
        );
    }
}
