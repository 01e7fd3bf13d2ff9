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
    static ACTIVATIONS: Cell<Vec<Prepared>> = const { Cell::new(Vec::new()) };
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
    let forms = quantise(products, activations, &mut buffers);
    let call = Call {
        values: activations,
        tokens,
        quantised: &buffers[..forms],
    };
    call.run(products);
    ACTIVATIONS.set(buffers);
    Ok(())
}

/// What quantised activations are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// Activations quantised for one form.
#[derive(Debug)]
struct Prepared {
    form: Form,
    activations: QuantisedActivations,
}

/// Quantises for every form that the products ask for, into the first of `buffers`; how many those
/// are.
fn quantise(products: &[Product<'_>], activations: &[f32], buffers: &mut Vec<Prepared>) -> usize {
    let mut forms = 0;
    for product in products {
        let (matrix, form) = (product.matrix, Form::of(product.matrix));
        let known = buffers[..forms].iter().any(|known| known.form == form);
        if matrix.weight_type().is_float() || product.rows.is_empty() || known {
            continue;
        }
        if buffers.len() == forms {
            buffers.push(Prepared {
                form,
                activations: QuantisedActivations::default(),
            });
        }
        let prepared = &mut buffers[forms];
        prepared.form = form;
        with_block_format!(form.weight_type, F =>
            product::quantise::<F>(form.set, activations, matrix.cols(), &mut prepared.activations), float => ());
        forms += 1;
    }
    forms
}

/// What all products of a call multiply with.
struct Call<'a> {
    /// `[tokens, cols]`.
    values: &'a [f32],
    tokens: usize,
    quantised: &'a [Prepared],
}

impl Call<'_> {
    /// Cuts the rows of all products over the threads of the pool.
    fn run(&self, products: &mut [Product<'_>]) {
        let work = products.iter().fold(0_usize, |work, product| {
            let cols = product.matrix.cols();
            work.saturating_add(product.output.len().saturating_mul(cols))
        });
        let threads = rayon::current_num_threads();
        let chunks = match threads {
            1 => 1,
            _ => (work / LEAST_WORK_PER_CHUNK).clamp(1, threads.saturating_mul(CHUNKS_PER_THREAD)),
        };
        match (chunks, self.tokens) {
            (1, _) => products.iter_mut().for_each(|product| self.whole(product)),
            (_, 1) => self.split(products, work / chunks),
            _ => self.rows(products, work / chunks),
        }
    }

    /// Products of one row, halved until a part is a chunk of `work`. Nothing is allocated for it:
    /// this is what a decoded token goes through, hundreds of times.
    fn split(&self, products: &mut [Product<'_>], work: usize) {
        match products {
            [] => {}
            [product] => {
                let rows = self.chunk_rows(product, work);
                let chunks = product.rows.len().div_ceil(rows);
                if chunks <= 1 {
                    return self.whole(product);
                }
                let (left, right) = product.split_at(chunks / 2 * rows);
                rayon::join(
                    || self.split(&mut [left], work),
                    || self.split(&mut [right], work),
                );
            }
            several => {
                let (left, right) = several.split_at_mut(several.len() / 2);
                rayon::join(|| self.split(left, work), || self.split(right, work));
            }
        }
    }

    /// Products of several rows, in chunks of `work`.
    fn rows(&self, products: &mut [Product<'_>], work: usize) {
        let mut pieces = Vec::new();
        for product in products.iter_mut().filter(|it| !it.rows.is_empty()) {
            let (matrix, first_row, count) =
                (product.matrix, product.rows.start, product.rows.len());
            let rows = self.chunk_rows(product, work);
            let of_product = pieces.len();
            for start in (0..count).step_by(rows) {
                let outputs: Vec<&mut [f32]> = Vec::with_capacity(self.tokens);
                pieces.push((matrix, first_row + start, outputs));
            }
            for row in product.output.chunks_exact_mut(count) {
                let pieces = pieces[of_product..].iter_mut();
                for (piece, output) in pieces.zip(row.chunks_mut(rows)) {
                    piece.2.push(output);
                }
            }
        }
        pieces
            .into_par_iter()
            .for_each(|(matrix, start, mut outputs)| {
                matrix.chunk(start, &self.activations(matrix), &mut outputs);
            });
    }

    /// A product on this thread.
    fn whole(&self, product: &mut Product<'_>) {
        let (matrix, start, count) = (product.matrix, product.rows.start, product.rows.len());
        if count == 0 {
            return;
        }
        let activations = self.activations(matrix);
        if self.tokens == 1 {
            return matrix.chunk(start, &activations, &mut [product.output]);
        }
        let mut outputs: Vec<&mut [f32]> = product.output.chunks_exact_mut(count).collect();
        matrix.chunk(start, &activations, &mut outputs);
    }

    /// Rows of a chunk of `work` multiply-adds, whole tiles.
    fn chunk_rows(&self, product: &Product<'_>, work: usize) -> usize {
        let per_row = product.matrix.cols().saturating_mul(self.tokens);
        work.div_ceil(per_row).max(1).next_multiple_of(TILE_ROWS)
    }

    fn activations(&self, matrix: &WeightMatrix) -> Activations<'_> {
        let form = Form::of(matrix);
        match self.quantised.iter().find(|known| known.form == form) {
            Some(prepared) => Activations::Quantised(&prepared.activations),
            None => Activations::Float {
                values: self.values,
                cols: matrix.cols(),
            },
        }
    }
}

impl Product<'_> {
    /// The first `middle` rows, and those after them, of a product with one activation row.
    fn split_at(&mut self, middle: usize) -> (Product<'_>, Product<'_>) {
        let (left, right) = self.output.split_at_mut(middle);
        let at = self.rows.start + middle;
        let part = |rows, output| Product {
            matrix: self.matrix,
            rows,
            output,
        };
        (
            part(self.rows.start..at, left),
            part(at..self.rows.end, right),
        )
    }
}
