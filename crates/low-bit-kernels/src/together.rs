//! Products of several matrices with the same activations, as the projections of a layer are: the
//! activations are quantised once for all matrices of a type, and the rows of all of them are cut
//! over the threads at once, so that threads meet once for all of them. A value is what it is in
//! the product of its matrix alone.

use crate::activation::QuantisedActivations;
use crate::block::with_block_format;
use crate::matrix::{Activations, WeightMatrix, expect_length};
use crate::{Error, WeightType, product};
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;

/// Multiply-adds below which a further thread is not asked: a few microseconds of work, the order of
/// what handing a job to a sleeping thread takes. Not tuned by measurement.
const LEAST_WORK_PER_CHUNK: usize = 1 << 17;
/// Chunks per thread, so that a thread that was held up does not hold up the rest.
const CHUNKS_PER_THREAD: usize = 4;
/// Rows that the fastest kernels take together; chunks are cut at multiples of it.
const TILE_ROWS: usize = 16;

thread_local! {
    /// Quantised activations of the last call on this thread, kept for their buffers.
    static ACTIVATIONS: Cell<Vec<QuantisedActivations>> = const { Cell::new(Vec::new()) };
}

/// Some rows of a matrix and where their products go.
#[derive(Debug)]
pub struct Product<'a> {
    /// The matrix.
    pub matrix: &'a WeightMatrix,
    /// Which of its rows.
    pub rows: Range<usize>,
    /// `[tokens, rows.len()]`.
    pub output: &'a mut [f32],
}

/// `output[t, r]` of each product = its row `r` times `activations[t]`, for
/// `activations[tokens, cols]`.
///
/// # Errors
/// [`Error::RowRange`] if rows are outside their matrix, [`Error::Length`] if a buffer does not have
/// its shape's length, which for the activations every matrix has its say in. Nothing is written
/// then.
pub fn matmul_together(
    products: &mut [Product<'_>],
    activations: &[f32],
    tokens: usize,
) -> Result<(), Error> {
    for product in products.iter() {
        let (matrix, rows) = (product.matrix, &product.rows);
        if rows.start > rows.end || rows.end > matrix.rows() {
            return Err(Error::RowRange {
                range: rows.clone(),
                rows: matrix.rows(),
            });
        }
        let shape = (tokens, matrix.cols());
        expect_length("activations (values)", shape, activations.len())?;
        let shape = (tokens, rows.len());
        expect_length("output (values)", shape, product.output.len())?;
    }
    if tokens == 0 {
        return Ok(());
    }
    // Taken rather than borrowed: the pool may run another product on this thread while this one
    // waits for its chunks.
    let mut buffers = ACTIVATIONS.take();
    let quantised = quantise(products, activations, &mut buffers);
    let jobs = products
        .iter_mut()
        .filter(|product| !product.rows.is_empty())
        .map(|product| Job {
            matrix: product.matrix,
            activations: match quantised.iter().find(|of| of.0.suits(product.matrix)) {
                Some((_, index)) => Activations::Quantised(&buffers[*index]),
                None => Activations::Float {
                    values: activations,
                    cols: product.matrix.cols(),
                },
            },
            first_row: product.rows.start,
            output: &mut *product.output,
        });
    run(jobs.collect(), tokens);
    ACTIVATIONS.set(buffers);
    Ok(())
}

/// What quantised activations are made for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    weight_type: WeightType,
    set: crate::InstructionSet,
}

impl Form {
    fn of(matrix: &WeightMatrix) -> Self {
        Self {
            weight_type: matrix.weight_type(),
            set: matrix.instruction_set(),
        }
    }

    fn suits(self, matrix: &WeightMatrix) -> bool {
        self == Self::of(matrix)
    }
}

/// Quantises for every form that the products ask for, each into the buffer of the index beside it.
fn quantise(
    products: &[Product<'_>],
    activations: &[f32],
    buffers: &mut Vec<QuantisedActivations>,
) -> Vec<(Form, usize)> {
    let mut forms: Vec<(Form, usize)> = Vec::new();
    for product in products {
        let (matrix, form) = (product.matrix, Form::of(product.matrix));
        if matrix.weight_type().is_float() || forms.iter().any(|known| known.0 == form) {
            continue;
        }
        let index = forms.len();
        if buffers.len() == index {
            buffers.push(QuantisedActivations::default());
        }
        with_block_format!(form.weight_type, F =>
            product::quantise::<F>(form.set, activations, matrix.cols(), &mut buffers[index]), float => ());
        forms.push((form, index));
    }
    forms
}

/// One product on its way to the threads.
struct Job<'a> {
    matrix: &'a WeightMatrix,
    activations: Activations<'a>,
    first_row: usize,
    /// `[tokens, rows]`.
    output: &'a mut [f32],
}

/// Cuts the rows of all jobs over the threads of the pool.
fn run(mut jobs: Vec<Job<'_>>, tokens: usize) {
    let work = jobs.iter().fold(0_usize, |work, job| {
        work.saturating_add(job.output.len().saturating_mul(job.matrix.cols()))
    });
    let threads = rayon::current_num_threads();
    let chunks = match threads {
        1 => 1,
        _ => (work / LEAST_WORK_PER_CHUNK).clamp(1, threads.saturating_mul(CHUNKS_PER_THREAD)),
    };
    if chunks == 1 {
        for job in &mut jobs {
            let rows = job.output.len() / tokens;
            let mut outputs: Vec<&mut [f32]> = Vec::new();
            if tokens == 1 {
                job.matrix
                    .chunk(job.first_row, &job.activations, &mut [job.output]);
            } else {
                outputs.extend(job.output.chunks_exact_mut(rows));
                job.matrix
                    .chunk(job.first_row, &job.activations, &mut outputs);
            }
        }
        return;
    }
    let chunk_rows = |job: &Job<'_>| {
        let rows = (work / chunks).div_ceil(job.matrix.cols().saturating_mul(tokens));
        rows.max(1).next_multiple_of(TILE_ROWS)
    };
    if tokens == 1 {
        let mut pieces = Vec::with_capacity(chunks + jobs.len());
        for job in &mut jobs {
            let rows = chunk_rows(job);
            let (matrix, activations, first_row) = (job.matrix, &job.activations, job.first_row);
            for (index, output) in job.output.chunks_mut(rows).enumerate() {
                pieces.push((matrix, activations, first_row + index * rows, output));
            }
        }
        pieces
            .into_par_iter()
            .for_each(|(matrix, activations, start, output)| {
                matrix.chunk(start, activations, &mut [output]);
            });
        return;
    }
    let mut pieces = Vec::with_capacity(chunks + jobs.len());
    for job in &mut jobs {
        let (rows, count) = (chunk_rows(job), job.output.len() / tokens);
        let (matrix, activations, first_row) = (job.matrix, &job.activations, job.first_row);
        let of_job = pieces.len();
        for start in (0..count).step_by(rows) {
            let outputs: Vec<&mut [f32]> = Vec::with_capacity(tokens);
            pieces.push((matrix, activations, first_row + start, outputs));
        }
        for row in job.output.chunks_exact_mut(count) {
            for (piece, output) in pieces[of_job..].iter_mut().zip(row.chunks_mut(rows)) {
                piece.3.push(output);
            }
        }
    }
    pieces
        .into_par_iter()
        .for_each(|(matrix, activations, start, mut outputs)| {
            matrix.chunk(start, activations, &mut outputs);
        });
}
