//! The weight matrix as callers see it: checked shapes, the choice of kernels. The cut over rows is
//! in `together.rs`, arithmetic behind `product.rs`.

use crate::activation::QuantisedActivations;
use crate::block::with_block_format;
use crate::dequantise::checked_row_bytes;
use crate::together::{Product, matmul_together};
use crate::{Error, InstructionSet, WeightType, product};
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Longest row: 16 rows of the widest type then stay within the 2 GiB that a 32-bit gather offset
/// reaches. No model comes near it.
const MOST_COLUMNS: usize = 1 << 24;

/// A matrix of `[rows, cols]` weights in stored form.
#[derive(Clone)]
pub struct WeightMatrix {
    weight_type: WeightType,
    rows: usize,
    cols: usize,
    row_bytes: usize,
    bytes: Bytes,
    instruction_set: InstructionSet,
}

/// What a kernel multiplies with.
pub(crate) enum Activations<'a> {
    /// `[tokens, cols]` as they came, for floating-point weights.
    Float {
        /// The values.
        values: &'a [f32],
        /// Columns of a row.
        cols: usize,
    },
    /// Quantised, for block weights.
    Quantised(&'a QuantisedActivations),
}

impl WeightMatrix {
    /// Takes `rows` rows of `cols` weights, row after row without gaps, at any alignment. Nothing
    /// is copied.
    ///
    /// # Errors
    /// [`Error::Columns`] if a row is empty or not whole blocks, [`Error::TooLarge`] if it has more
    /// than 2^24 columns or the size overflows, [`Error::Length`] if `bytes` is not exactly the
    /// matrix.
    pub fn new(
        weight_type: WeightType,
        rows: usize,
        cols: usize,
        bytes: Bytes,
    ) -> Result<Self, Error> {
        let row_bytes = checked_row_bytes(weight_type, cols)?;
        if cols > MOST_COLUMNS {
            return Err(Error::TooLarge {
                what: "weight row",
                rows: 1,
                cols,
            });
        }
        let expected = rows.checked_mul(row_bytes).ok_or(Error::TooLarge {
            what: "weight matrix",
            rows,
            cols,
        })?;
        if bytes.len() != expected {
            return Err(Error::Length {
                what: "weight matrix (bytes)",
                expected,
                found: bytes.len(),
            });
        }
        Ok(Self {
            weight_type,
            rows,
            cols,
            row_bytes,
            bytes,
            instruction_set: InstructionSet::current(),
        })
    }

    /// The same matrix, multiplied by the kernels of `instruction_set`: for comparisons and tests.
    ///
    /// # Errors
    /// [`Error::NoInstructionSet`] if this machine lacks it.
    pub fn with_instruction_set(self, instruction_set: InstructionSet) -> Result<Self, Error> {
        Ok(Self {
            instruction_set: instruction_set.require()?,
            ..self
        })
    }

    /// Number of rows (outputs).
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns (inputs).
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// How the weights are stored.
    #[must_use]
    pub fn weight_type(&self) -> WeightType {
        self.weight_type
    }

    /// The stored bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The kernels that products run on.
    #[must_use]
    pub fn instruction_set(&self) -> InstructionSet {
        self.instruction_set
    }

    /// `output[t, r]` = row `r` times `activations[t]`, for `activations[tokens, cols]` and
    /// `output[tokens, rows]`.
    ///
    /// # Errors
    /// [`Error::Length`] if a buffer does not have its shape's length.
    pub fn matmul(
        &self,
        activations: &[f32],
        tokens: usize,
        output: &mut [f32],
    ) -> Result<(), Error> {
        self.matmul_rows(0..self.rows, activations, tokens, output)
    }

    /// As [`matmul`](Self::matmul) for some rows only: `output[tokens, rows.len()]`.
    ///
    /// # Errors
    /// [`Error::RowRange`] if the rows are outside the matrix, [`Error::Length`] if a buffer does
    /// not have its shape's length.
    pub fn matmul_rows(
        &self,
        rows: Range<usize>,
        activations: &[f32],
        tokens: usize,
        output: &mut [f32],
    ) -> Result<(), Error> {
        let product = Product {
            matrix: self,
            rows,
            output,
        };
        matmul_together(&mut [product], activations, tokens)
    }

    /// Rows from `start` on, as many as each of `outputs` (one per token) is long.
    pub(crate) fn chunk(
        &self,
        start: usize,
        activations: &Activations<'_>,
        outputs: &mut [&mut [f32]],
    ) {
        let count = outputs.first().map_or(0, |output| output.len());
        let bytes = &self.bytes[start * self.row_bytes..(start + count) * self.row_bytes];
        match activations {
            Activations::Float { values, cols } => {
                product::float_rows(
                    self.instruction_set,
                    (self.weight_type, *cols),
                    bytes,
                    values,
                    outputs,
                );
            }
            Activations::Quantised(activations) => with_block_format!(self.weight_type, F =>
                product::quantised_rows::<F>(self.instruction_set, bytes, activations, outputs), float => ()),
        }
    }
}

impl fmt::Debug for WeightMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightMatrix")
            .field("weight_type", &self.weight_type)
            .field("rows", &self.rows)
            .field("cols", &self.cols)
            .field("instruction_set", &self.instruction_set)
            .finish_non_exhaustive()
    }
}

/// Checks a buffer against its shape.
pub(crate) fn expect_length(
    what: &'static str,
    shape: (usize, usize),
    found: usize,
) -> Result<(), Error> {
    let (rows, cols) = shape;
    let expected = rows
        .checked_mul(cols)
        .ok_or(Error::TooLarge { what, rows, cols })?;
    if found == expected {
        Ok(())
    } else {
        Err(Error::Length {
            what,
            expected,
            found,
        })
    }
}
