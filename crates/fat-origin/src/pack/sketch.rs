//! A sketch of the vocabulary matrix: its leading components, found from the Gram matrix `W^T W`, and
//! each row's coefficients in them, with the error of the result measured over all rows. What the
//! bytes mean is `docs/format/embed-sketch.md`; when a station may use them, its own matter.
//!
//! Only `rank` coefficients a row are held at once, never the matrix. Sums run in an order that does
//! not depend on the number of threads.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par, Side};
use gkq_v2::{EmbedSketch, SketchError, SketchHeader, push_sketch_row};
use low_bit_kernels::dequantise_row;
use rayon::prelude::*;

use super::convert::weight_type;
use super::selection::Selected;
use crate::Error;

/// Columns of the Gram matrix that one thread sums: fixed, so that the sums are.
const GRAM_COLUMNS: usize = 64;

/// Hands out the matrix, in whole rows as they are stored, some at a time.
pub(super) type Pass<'a> =
    dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> + 'a;

/// What the knot declares of a sketch before it is made.
///
/// # Errors
/// [`Error::Option`] for a rank that the matrix has not.
pub(super) fn declare(selected: &Selected, rank: u32) -> Result<SketchHeader, Error> {
    let refused = |reason: String| Error::Option {
        option: "--embed-sketch",
        reason,
    };
    let &[rows, cols] = selected.shape.as_slice() else {
        return Err(refused(format!("`{}` is no matrix", selected.name)));
    };
    let cols = u32::try_from(cols)
        .map_err(|_too_large| refused(format!("{cols} columns are beyond 32 bits")))?;
    if rank == 0 || rank > cols {
        return Err(refused(format!(
            "the rank is {rank}, `{}` has {cols} columns: give 1 to {cols}",
            selected.name
        )));
    }
    if weight_type(selected.target).is_none() {
        return Err(refused(format!(
            "`{}` is stored as {}, which this program cannot widen",
            selected.name, selected.target
        )));
    }
    Ok(SketchHeader {
        rows,
        cols,
        rank,
        error: SketchError {
            relative: 0.0,
            mean_cosine: 1.0,
            worst_cosine: 1.0,
            worst_row: 0,
        },
    })
}

/// Makes the body of a sketch in three passes over the matrix.
///
/// # Errors
/// Those of `pass`, [`Error::NotFinite`] for a value that no sum may hold, [`Error::Option`] where the
/// components cannot be computed.
pub(super) fn build(
    selected: &Selected,
    declared: &SketchHeader,
    pass: &mut Pass<'_>,
) -> Result<(Vec<u8>, SketchError), Error> {
    let rows = Widened::new(selected, declared)?;
    let mut gram = Gram::new(rows.cols);
    let mut next_row = 0;
    pass(&mut |bytes| {
        let values = rows.widen(bytes, &mut next_row)?;
        gram.add(&values);
        Ok(())
    })?;
    let components = gram
        .components(size(declared.rank))
        .map_err(|reason| Error::Option {
            option: "--embed-sketch",
            reason: format!("`{}`: {reason}", selected.name),
        })?;
    let knot_error = Error::knot(std::path::Path::new(&selected.name));
    let mut body = declared.encode().map_err(&knot_error)?.to_vec();
    body.extend(components.iter().flat_map(|value| value.to_le_bytes()));
    next_row = 0;
    pass(&mut |bytes| {
        let values = rows.widen(bytes, &mut next_row)?;
        let coefficients = values
            .par_chunks_exact(rows.cols)
            .map(|row| coefficients(row, &components));
        for row in coefficients.collect::<Vec<_>>() {
            push_sketch_row(&row, &mut body);
        }
        Ok(())
    })?;
    // Measured by the reader's own arithmetic, on the bytes that it will read.
    let sketch = EmbedSketch::parse(&body, declared.rows, u64::from(declared.cols));
    let error = measure(&sketch.map_err(&knot_error)?, &rows, pass)?;
    let header = SketchHeader { error, ..*declared }
        .encode()
        .map_err(&knot_error)?;
    if let Some(front) = body.first_chunk_mut() {
        *front = header;
    }
    Ok((body, error))
}

/// Rows of one tensor, widened.
struct Widened<'a> {
    selected: &'a Selected,
    cols: usize,
    row_bytes: usize,
}

impl<'a> Widened<'a> {
    fn new(selected: &'a Selected, declared: &SketchHeader) -> Result<Self, Error> {
        let bytes = selected.target.row_bytes(u64::from(declared.cols));
        let row_bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        Ok(Self {
            selected,
            cols: size(declared.cols),
            row_bytes: row_bytes
                .filter(|&bytes| bytes > 0)
                .ok_or_else(|| Error::Option {
                    option: "--embed-sketch",
                    reason: format!("a row of `{}` has no whole bytes", selected.name),
                })?,
        })
    }

    /// Whole rows as f32, `[rows, cols]`; `next_row` counts them, for errors.
    fn widen(&self, bytes: &[u8], next_row: &mut u64) -> Result<Vec<f32>, Error> {
        let count = bytes.len() / self.row_bytes;
        let mut values = vec![0.0; count * self.cols];
        let dtype = weight_type(self.selected.target).ok_or_else(|| Error::Option {
            option: "--embed-sketch",
            reason: format!("{} cannot be widened", self.selected.target),
        })?;
        let rows = bytes.par_chunks_exact(self.row_bytes);
        let widened = rows.zip(values.par_chunks_exact_mut(self.cols));
        widened
            .try_for_each(|(row, values)| dequantise_row(dtype, row, values))
            .map_err(|error| Error::Option {
                option: "--embed-sketch",
                reason: format!("`{}`: {error}", self.selected.name),
            })?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::NotFinite {
                tensor: self.selected.name.clone(),
                row: *next_row + (at / self.cols) as u64,
                column: (at % self.cols) as u64,
                value: values.get(at).copied().unwrap_or(f32::NAN),
            });
        }
        *next_row += count as u64;
        Ok(values)
    }
}

/// `W^T W`, `[cols, cols]`, summed in f64; of each block of columns what lies on or below its first
/// diagonal element, as the rest is the same.
struct Gram {
    cols: usize,
    blocks: Vec<Mat<f64>>,
}

impl Gram {
    fn new(cols: usize) -> Self {
        let starts = (0..cols).step_by(GRAM_COLUMNS);
        let block = |start: usize| Mat::zeros(cols - start, GRAM_COLUMNS.min(cols - start));
        Self {
            cols,
            blocks: starts.map(block).collect(),
        }
    }

    /// Adds rows, `[rows, cols]` row-major.
    fn add(&mut self, values: &[f32]) {
        let rows = values.len() / self.cols;
        let values: Vec<f64> = values.iter().copied().map(f64::from).collect();
        let rows = MatRef::from_row_major_slice(&values, rows, self.cols);
        let blocks = self.blocks.par_iter_mut().enumerate();
        blocks.for_each(|(index, block)| {
            let (start, width) = (index * GRAM_COLUMNS, block.ncols());
            let below = rows.subcols(start, self.cols - start).transpose();
            let right = rows.subcols(start, width);
            matmul(block.as_mut(), Accum::Add, below, right, 1.0, Par::Seq);
        });
    }

    /// The eigenvectors of the largest eigenvalues, largest first, `[rank, cols]` row-major; the
    /// greatest entry of each is positive, so that its sign is no accident.
    fn components(&self, rank: usize) -> Result<Vec<f32>, String> {
        let mut whole = Mat::<f64>::zeros(self.cols, self.cols);
        for (index, block) in self.blocks.iter().enumerate() {
            let start = index * GRAM_COLUMNS;
            for col in 0..block.ncols() {
                for row in col..block.nrows() {
                    let value = block[(row, col)];
                    whole[(start + row, start + col)] = value;
                    whole[(start + col, start + row)] = value;
                }
            }
        }
        let eigen = whole
            .self_adjoint_eigen(Side::Lower)
            .map_err(|error| format!("no eigenvectors: {error:?}"))?;
        let mut components = Vec::with_capacity(rank * self.cols);
        for component in 0..rank {
            // Eigenvalues ascend.
            let vector = eigen.U().col(self.cols - 1 - component);
            let greatest = vector.iter().fold(0.0_f64, |greatest, &value| {
                if value.abs() > greatest.abs() {
                    value
                } else {
                    greatest
                }
            });
            let sign = if greatest < 0.0 { -1.0 } else { 1.0 };
            components.extend(vector.iter().map(|&value| narrow(sign * value)));
        }
        Ok(components)
    }
}

/// A row's coefficient in each component, `[rank]`.
fn coefficients(row: &[f32], components: &[f32]) -> Vec<f32> {
    let components = components.chunks_exact(row.len());
    let dot = |component: &[f32]| {
        let products = row.iter().zip(component);
        let sum: f64 = products
            .map(|(&value, &part)| f64::from(value) * f64::from(part))
            .sum();
        narrow(sum)
    };
    components.map(dot).collect()
}

/// Sums over one row: squares of the row, of the difference and of the approximation, and the
/// product of row and approximation.
#[derive(Clone, Copy, Default)]
struct RowSums {
    row: f64,
    difference: f64,
    approximation: f64,
    product: f64,
}

impl RowSums {
    fn of(row: &[f32], approximation: &[f32]) -> Self {
        let mut sums = Self::default();
        for (&value, &near) in row.iter().zip(approximation) {
            let (value, near) = (f64::from(value), f64::from(near));
            sums.row += value * value;
            sums.difference += (value - near) * (value - near);
            sums.approximation += near * near;
            sums.product += value * near;
        }
        sums
    }

    fn cosine(&self) -> f64 {
        match (self.row == 0.0, self.approximation == 0.0) {
            (true, true) => 1.0,
            (false, false) => {
                (self.product / (self.row.sqrt() * self.approximation.sqrt())).clamp(-1.0, 1.0)
            }
            _ => 0.0,
        }
    }
}

fn measure(
    sketch: &EmbedSketch<&Vec<u8>>,
    rows: &Widened<'_>,
    pass: &mut Pass<'_>,
) -> Result<SketchError, Error> {
    let (mut next_row, mut whole) = (0, RowSums::default());
    let (mut cosines, mut worst) = (0.0, (f64::INFINITY, 0_u64));
    pass(&mut |bytes| {
        let first = next_row;
        let values = rows.widen(bytes, &mut next_row)?;
        let sums = values
            .par_chunks_exact(rows.cols)
            .enumerate()
            .map(|(at, row)| {
                let approximation = sketch.row(first + at as u64).unwrap_or_default();
                RowSums::of(row, &approximation)
            });
        for (at, sums) in sums.collect::<Vec<_>>().into_iter().enumerate() {
            whole.row += sums.row;
            whole.difference += sums.difference;
            let cosine = sums.cosine();
            cosines += cosine;
            if cosine < worst.0 {
                worst = (cosine, first + at as u64);
            }
        }
        Ok(())
    })?;
    let relative = if whole.difference == 0.0 {
        0.0
    } else {
        (whole.difference / whole.row).sqrt()
    };
    Ok(SketchError {
        relative,
        mean_cosine: cosines / (next_row.max(1)) as f64,
        worst_cosine: narrow(worst.0.min(1.0)),
        worst_row: u32::try_from(worst.1).unwrap_or(u32::MAX),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to the nearest f32 is what is meant"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{StoredDtype, Tensor};
    use gkq_v2::Dtype;

    fn selected(rows: u64, cols: u64) -> Selected {
        Selected {
            tensor: Tensor {
                name: "w".to_owned(),
                dtype: StoredDtype::Known(Dtype::F32),
                shape: vec![rows, cols],
                file: 0,
                range: 0..0,
            },
            name: "w".to_owned(),
            shape: vec![rows, cols],
            source: Dtype::F32,
            target: Dtype::F32,
        }
    }

    fn sketched(
        values: &[f32],
        cols: u64,
        rank: u32,
        rows_at_once: usize,
    ) -> (Vec<u8>, SketchError) {
        let rows = values.len() as u64 / cols;
        let selected = selected(rows, cols);
        let declared = declare(&selected, rank).unwrap();
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let chunk = rows_at_once * usize::try_from(cols).unwrap() * 4;
        build(&selected, &declared, &mut |sink| {
            bytes.chunks(chunk).try_for_each(&mut *sink)
        })
        .unwrap()
    }

    /// A matrix of exactly this rank.
    fn low_rank(rows: usize, cols: usize, rank: usize) -> Vec<f32> {
        let wave = |seed: usize, at: usize| ((seed * 37 + at * (seed + 3)) as f32 * 0.61).sin();
        let value = |row: usize, col: usize| {
            (0..rank)
                .map(|k| wave(k, row) * wave(k + 17, col))
                .sum::<f32>()
        };
        (0..rows * cols)
            .map(|at| value(at / cols, at % cols))
            .collect()
    }

    #[test]
    fn a_matrix_of_few_components_is_found_out() {
        let values = low_rank(200, 100, 3);
        let (body, error) = sketched(&values, 100, 3, 64);
        // A byte a coefficient: half a step of 1/127 of the largest.
        assert!(error.relative < 0.01, "{error:?}");
        assert!(error.mean_cosine > 0.9999, "{error:?}");
        let (_, less) = sketched(&values, 100, 2, 64);
        assert!(less.relative > 0.1 && less.relative < 1.0, "{less:?}");
        let sketch = EmbedSketch::parse(&body, 200, 100).unwrap();
        assert_eq!(
            sketch.header().error,
            error,
            "the header says what was measured"
        );
    }

    #[test]
    fn the_stated_error_is_the_real_one_and_the_worst_row_is_named() {
        let mut values = low_rank(50, 20, 8);
        // A row that no leading component has anything of.
        values[7 * 20..8 * 20].fill(0.0);
        values[7 * 20 + 3] = 1e-3;
        let (body, error) = sketched(&values, 20, 4, 7);
        let sketch = EmbedSketch::parse(&body, 50, 20).unwrap();
        let (mut rest, mut whole, mut cosines) = (0.0, 0.0, Vec::new());
        for (at, row) in values.chunks(20).enumerate() {
            let near = sketch.row(at as u64).unwrap();
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter()
                    .zip(b)
                    .map(|(&a, &b)| f64::from(a) * f64::from(b))
                    .sum()
            };
            let difference: Vec<f32> = row.iter().zip(&near).map(|(a, b)| a - b).collect();
            rest += dot(&difference, &difference);
            whole += dot(row, row);
            cosines.push(dot(row, &near) / (dot(row, row) * dot(&near, &near)).sqrt());
        }
        assert!((error.relative - f64::sqrt(rest / whole)).abs() < 1e-6);
        let mean = cosines.iter().sum::<f64>() / 50.0;
        assert!((error.mean_cosine - mean).abs() < 1e-9);
        let (worst, least) = cosines
            .iter()
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(b.1))
            .unwrap();
        assert_eq!(u64::from(error.worst_row), worst as u64);
        assert!((f64::from(error.worst_cosine) - least).abs() < 1e-6);
    }

    #[test]
    fn the_bytes_do_not_depend_on_how_the_rows_come_to_be_read_twice_or_by_how_many() {
        let values = low_rank(300, 130, 40);
        let (body, _) = sketched(&values, 130, 16, 300);
        assert!(body == sketched(&values, 130, 16, 300).0);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        assert!(body == pool.install(|| sketched(&values, 130, 16, 300)).0);
    }

    #[test]
    fn rows_without_length_and_a_matrix_of_zeros() {
        let (body, error) = sketched(&[0.0; 40], 4, 2, 3);
        assert_eq!(
            (error.relative, error.mean_cosine, error.worst_cosine),
            (0.0, 1.0, 1.0)
        );
        assert!(EmbedSketch::parse(&body, 10, 4).is_ok());
    }

    #[test]
    fn what_has_no_sketch_is_refused() {
        for (rank, part) in [(0, "rank is 0"), (5, "has 4 columns")] {
            let error = declare(&selected(10, 4), rank).unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("--embed-sketch"),
                "{error}"
            );
        }
        let selected = selected(2, 2);
        let declared = declare(&selected, 1).unwrap();
        let bytes: Vec<u8> = [1.0_f32, 2.0, 3.0, f32::NAN]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let built = build(&selected, &declared, &mut |sink| sink(&bytes));
        assert!(matches!(
            built,
            Err(Error::NotFinite {
                row: 1,
                column: 1,
                ..
            })
        ));
    }
}
