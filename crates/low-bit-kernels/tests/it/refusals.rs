//! Every wrong shape is refused by name.

use bytes::Bytes;
use low_bit_kernels::{Error, WeightMatrix, WeightType, dequantise_row, quantise_rows};

fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("must be refused").to_string()
}

#[test]
fn a_matrix_must_be_whole_blocks_and_whole_bytes() {
    let new = |weight_type, rows, cols, len| {
        WeightMatrix::new(weight_type, rows, cols, Bytes::from(vec![0; len]))
    };
    assert_eq!(
        text(new(WeightType::Q4_1, 2, 33, 40)),
        "q4_1 rows need a positive multiple of 32 columns, found 33"
    );
    assert_eq!(
        text(new(WeightType::Q6K, 2, 0, 0)),
        "q6_k rows need a positive multiple of 256 columns, found 0"
    );
    assert_eq!(
        text(new(WeightType::Q8_0, 2, 32, 67)),
        "weight matrix (bytes) is 67 long, expected 68"
    );
    let too_large = "weight matrix of 18446744073709551615 x 32 is too large to address";
    assert_eq!(text(new(WeightType::Q8_0, usize::MAX, 32, 0)), too_large);
    assert!(new(WeightType::F32, 1, usize::MAX / 2, 0).is_err());
    let long = "weight row of 1 x 16777248 is too large to address";
    assert_eq!(text(new(WeightType::Q8_0, 0, (1 << 24) + 32, 0)), long);
    assert!(new(WeightType::Q8_0, 0, 32, 0).is_ok());
}

#[test]
fn a_product_must_fit_its_buffers_and_rows() {
    let matrix =
        WeightMatrix::new(WeightType::Q8_0, 4, 32, Bytes::from(vec![0; 136])).expect("good shapes");
    let mut output = [0.0; 8];
    assert_eq!(
        text(matrix.matmul(&[0.0; 63], 2, &mut output)),
        "activations (values) is 63 long, expected 64"
    );
    assert_eq!(
        text(matrix.matmul(&[0.0; 64], 2, &mut output[..7])),
        "output (values) is 7 long, expected 8"
    );
    assert_eq!(
        text(matrix.matmul_rows(3..5, &[0.0; 32], 1, &mut output[..2])),
        "rows 3..5 are outside a matrix of 4 rows"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "that is what must be refused")]
    let reversed = matrix.matmul_rows(3..2, &[0.0; 32], 1, &mut []);
    assert_eq!(text(reversed), "rows 3..2 are outside a matrix of 4 rows");
    assert!(matrix.matmul(&[], usize::MAX, &mut []).is_err());
    assert_eq!(matrix.matmul(&[], 0, &mut []), Ok(()));
    assert_eq!(matrix.matmul_rows(4..4, &[0.0; 32], 1, &mut []), Ok(()));
}

#[test]
fn rows_must_be_whole() {
    assert_eq!(
        text(dequantise_row(WeightType::Q4_0, &[0; 17], &mut [0.0; 32])),
        "weight row (bytes) is 17 long, expected 18"
    );
    assert!(dequantise_row(WeightType::F16, &[], &mut []).is_err());
    assert_eq!(
        text(quantise_rows(WeightType::Q8_0, &[0.0; 33], 32)),
        "values of whole rows is 33 long, expected 64"
    );
}
