//! Matrices of each type that models come in, times 1 (decode), 4 and 32 (prefill) rows of activations; and the
//! rounding of activations with next to no product.

use low_bit_kernels::{Error, WeightMatrix, WeightType};

use super::{Case, values};

/// Types of the models that are packed most.
const TYPES: [WeightType; 7] = [
    WeightType::Q4_1,
    WeightType::Q4K,
    WeightType::Q6K,
    WeightType::Q8_0,
    WeightType::Q5_0,
    WeightType::Bf16,
    WeightType::F16,
];

/// Row lengths of SmolLM2 (576, 1536) and Gemma 3 (640); only 1536 is whole blocks of the K types.
const COLS: [usize; 3] = [576, 640, 1536];

/// Rows of activations.
const TOKENS: [usize; 3] = [1, 4, 32];

/// Eight tiles of 16 rows: the rounding of a single row of activations is then a small part.
const ROWS: usize = 128;

/// What rounds activations in different ways: without sums, with sums of 32 values, and for blocks of 256.
const ROUNDED_FOR: [WeightType; 4] = [
    WeightType::Q8_0,
    WeightType::Q4_1,
    WeightType::Q4K,
    WeightType::Q6K,
];

pub(super) fn cases() -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    for weight_type in TYPES {
        for cols in COLS {
            if weight_type.row_bytes(cols).is_none() {
                continue;
            }
            let matrix = matrix(weight_type, cols)?;
            for tokens in TOKENS {
                let name = format!("product {weight_type} k={cols} x{tokens}");
                cases.push(case(name, matrix.clone(), ROWS, tokens));
            }
        }
    }
    for weight_type in ROUNDED_FOR {
        // Nothing is rounded for no rows: one row of weights comes along.
        let matrix = matrix(weight_type, 1536)?;
        let name = format!("rounding for {weight_type} k=1536 x32, and a row");
        cases.push(case(name, matrix, 1, 32));
    }
    Ok(cases)
}

/// [`ROWS`] rows of `weight_type`, if they can be that long.
fn matrix(weight_type: WeightType, cols: usize) -> Result<WeightMatrix, Error> {
    let row_bytes = weight_type.row_bytes(cols).unwrap_or(0);
    // Every other byte is one that makes a small finite number of whatever f16 or bf16 lies there.
    let pair = |i: usize| [(i * 37 % 251).to_le_bytes()[0], 0x21];
    let bytes: Vec<u8> = (0..ROWS * row_bytes / 2).flat_map(pair).collect();
    WeightMatrix::new(weight_type, ROWS, cols, bytes.into())
}

/// The first `rows` rows of `matrix` times `tokens` rows of activations.
fn case(name: String, matrix: WeightMatrix, rows: usize, tokens: usize) -> Case {
    let activations = values(tokens * matrix.cols());
    let mut output = vec![0.0; tokens * rows];
    let call = move || matrix.matmul_rows(0..rows, &activations, tokens, &mut output);
    Case {
        name,
        call: Box::new(call),
    }
}
