//! What can be wrong with a caller's shapes and bytes. Numeric trouble is not an error: a NaN or an
//! infinity in a weight or an activation travels into the products that read it.

use crate::{InstructionSet, WeightType};
use std::ops::Range;

/// A request that cannot be computed; every variant is the caller's (or the file's) fault and a
/// retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The row length does not fill whole blocks of the weight type, or is zero.
    #[error("{weight_type} rows need a positive multiple of {multiple} columns, found {cols}")]
    Columns {
        /// The type of the weights.
        weight_type: WeightType,
        /// Values per block.
        multiple: usize,
        /// The row length that was given.
        cols: usize,
    },
    /// A shape beyond what can be addressed.
    #[error("{what} of {rows} x {cols} is too large to address")]
    TooLarge {
        /// Which operand.
        what: &'static str,
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
    },
    /// A buffer that is not exactly as long as its shape says.
    #[error("{what} is {found} long, expected {expected}")]
    Length {
        /// Which buffer, with its unit.
        what: &'static str,
        /// The length that follows from the shape.
        expected: usize,
        /// The length that was given.
        found: usize,
    },
    /// Rows outside the matrix.
    #[error("rows {}..{} are outside a matrix of {rows} rows", range.start, range.end)]
    RowRange {
        /// The rows asked for.
        range: Range<usize>,
        /// The rows there are.
        rows: usize,
    },
    /// Quantising to this type is not offered.
    #[error("cannot quantise to {weight_type}: only f32, f16, bf16 and q8_0 are written")]
    CannotQuantise {
        /// The type asked for.
        weight_type: WeightType,
    },
    /// An attention shape that contradicts itself.
    #[error("attention shape: {what} is {found}, expected {expected}")]
    AttentionShape {
        /// The field, in words.
        what: &'static str,
        /// What it must be, in words.
        expected: &'static str,
        /// What was given.
        found: usize,
    },
    /// This machine lacks the instruction set asked for.
    #[error("this machine has no {instruction_set}")]
    NoInstructionSet {
        /// The set asked for.
        instruction_set: InstructionSet,
    },
}
