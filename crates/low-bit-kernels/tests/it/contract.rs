//! Products against the oracle, and the arithmetic contract bit for bit.

use crate::stored::{Noise, available, random_rows, same_bits};
use bytes::Bytes;
use low_bit_kernels::{InstructionSet, Product, WeightMatrix, WeightType, matmul_together, naive};
use proptest::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::LazyLock;

static POOLS: LazyLock<[ThreadPool; 2]> = LazyLock::new(|| {
    [1, 3].map(|threads| {
        ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads")
    })
});

fn product(matrix: &WeightMatrix, activations: &[f32], tokens: usize) -> Vec<f32> {
    let mut output = vec![f32::NAN; tokens * matrix.rows()];
    matrix
        .matmul(activations, tokens, &mut output)
        .expect("good shapes");
    output
}

fn matrix(
    set: InstructionSet,
    weight_type: WeightType,
    rows: usize,
    cols: usize,
    bytes: &Bytes,
) -> WeightMatrix {
    let matrix = WeightMatrix::new(weight_type, rows, cols, bytes.clone()).expect("good shapes");
    matrix.with_instruction_set(set).expect("available")
}

#[derive(Debug, Clone)]
struct Case {
    weight_type: WeightType,
    rows: usize,
    cols: usize,
    tokens: usize,
    seed: u64,
}

prop_compose! {
    fn cases()(
        weight_type in prop::sample::select(&WeightType::ALL[..]),
        rows in prop_oneof![1_usize..40, Just(16), Just(64)],
        blocks in 1_usize..7, odd in 1_usize..70, tokens in 1_usize..22, seed in any::<u64>(),
    ) -> Case {
        let cols = match weight_type.values_per_block() {
            1 => odd,
            32 => 32 * blocks,
            size => size * blocks.div_ceil(2),
        };
        Case { weight_type, rows, cols, tokens, seed }
    }
}

/// Weights at an odd address and activations whose magnitudes differ from block to block.
fn operands(case: &Case) -> (Bytes, Vec<f32>) {
    let mut noise = Noise::new(case.seed);
    let mut shifted = vec![0_u8];
    shifted.extend(random_rows(
        case.weight_type,
        case.rows,
        case.cols,
        &mut noise,
    ));
    let mut activations = noise.floats(case.tokens * case.cols);
    for block in activations.chunks_mut(32) {
        let magnitude = noise.unit().exp2()
            * if noise.bits().is_multiple_of(16) {
                0.0
            } else {
                4.0
            };
        block.iter_mut().for_each(|value| *value *= magnitude);
    }
    (Bytes::from(shifted).slice(1..), activations)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// With the same rounded activations, only f32 rounding separates kernel and oracle: each
    /// of n additions costs at most 2^-24 of the sum of magnitudes.
    #[test]
    fn products_agree_with_the_oracle(case in cases()) {
        let (bytes, activations) = operands(&case);
        let row_bytes = bytes.len() / case.rows;
        let rounded: Vec<Vec<f64>> =
            activations.chunks(case.cols).map(|row| naive::rounded_activations(case.weight_type, row)).collect();
        for set in available() {
            let found = product(&matrix(set, case.weight_type, case.rows, case.cols, &bytes), &activations, case.tokens);
            for (index, found) in found.iter().enumerate() {
                let (token, row) = (index / case.rows, index % case.rows);
                let stored = &bytes[row * row_bytes..(row + 1) * row_bytes];
                let (expected, magnitude) = naive::product(case.weight_type, stored, &rounded[token]);
                // A group's zero point and minimum cancel against its levels, which are up to 16
                // times larger than what is left: allow for that.
                let tolerance = magnitude * 16.0 * 6e-8 * (case.cols as f64 / 16.0 + 8.0) + 1e-30;
                prop_assert!((f64::from(*found) - expected).abs() <= tolerance,
                    "{set}, token {token}, row {row}: {found} instead of {expected} +- {tolerance}");
            }
        }
    }

    /// A product is the same alone, in a batch, in any row chunk, gathered, on one thread or more.
    #[test]
    fn a_product_depends_only_on_its_two_rows(case in cases(), cut in any::<prop::sample::Index>()) {
        let (bytes, activations) = operands(&case);
        let row_bytes = bytes.len() / case.rows;
        for set in available() {
            let whole = matrix(set, case.weight_type, case.rows, case.cols, &bytes);
            let together = product(&whole, &activations, case.tokens);
            for (activation, together) in activations.chunks(case.cols).zip(together.chunks(case.rows)) {
                prop_assert!(same_bits(&product(&whole, activation, 1), together), "{set}: one token alone");
            }
            let cut = cut.index(case.rows + 1);
            for rows in [0..cut, cut..case.rows] {
                let mut part = vec![f32::NAN; case.tokens * rows.len()];
                whole.matmul_rows(rows.clone(), &activations, case.tokens, &mut part).expect("rows within");
                for token in 0..case.tokens {
                    let expected = &together[token * case.rows..][rows.clone()];
                    prop_assert!(same_bits(&part[token * rows.len()..][..rows.len()], expected), "{set}: {rows:?}");
                }
            }
            let row = cut.min(case.rows - 1);
            let gathered = bytes.slice(row * row_bytes..(row + 1) * row_bytes);
            let alone = product(&matrix(set, case.weight_type, 1, case.cols, &gathered), &activations, case.tokens);
            let expected: Vec<f32> = together.chunks(case.rows).map(|token| token[row]).collect();
            prop_assert!(same_bits(&alone, &expected), "{set}: row {row} gathered");
        }
    }
}

/// Shapes large enough to be cut over threads, with row counts that fill no last tile.
#[test]
fn threads_do_not_show() {
    for weight_type in WeightType::ALL {
        let case = Case {
            weight_type,
            rows: 1003,
            cols: 768,
            tokens: 5,
            seed: 7,
        };
        let (bytes, activations) = operands(&case);
        for set in available() {
            let matrix = matrix(set, weight_type, case.rows, case.cols, &bytes);
            let [one, three] = [&POOLS[0], &POOLS[1]]
                .map(|pool| pool.install(|| product(&matrix, &activations, case.tokens)));
            assert!(same_bits(&one, &three), "{weight_type}, {set}");
            let first = POOLS[1].install(|| product(&matrix, &activations[..case.cols], 1));
            assert!(
                same_bits(&first, &one[..case.rows]),
                "{weight_type}, {set}, one token"
            );
        }
    }
}

/// Widening the vectors changes no rounding of block products: every SIMD set adds the same
/// exact group products in the same order.
#[test]
fn block_products_are_the_same_on_every_simd_set() {
    for weight_type in WeightType::ALL
        .into_iter()
        .filter(|weight_type| !weight_type.is_float())
    {
        let case = Case {
            weight_type,
            rows: 37,
            cols: 512,
            tokens: 11,
            seed: 11,
        };
        let (bytes, activations) = operands(&case);
        let products: Vec<_> = available()
            .filter(|set| *set != InstructionSet::Portable)
            .map(|set| {
                product(
                    &matrix(set, weight_type, case.rows, case.cols, &bytes),
                    &activations,
                    case.tokens,
                )
            })
            .collect();
        for pair in products.windows(2) {
            assert!(same_bits(&pair[0], &pair[1]), "{weight_type}");
        }
    }
}

/// The extremes of levels: all bits set in weights, activations at their largest.
#[test]
fn extreme_levels_do_not_saturate() {
    for weight_type in WeightType::ALL
        .into_iter()
        .filter(|weight_type| !weight_type.is_float())
    {
        for byte in [0x00_u8, 0x7f, 0x80, 0xff] {
            let mut noise = Noise::new(3);
            let mut bytes = random_rows(weight_type, 3, 512, &mut noise);
            let clean = bytes.clone();
            bytes.fill(byte);
            // Scales from the random rows, levels all alike.
            for (block, clean) in bytes
                .chunks_exact_mut(weight_type.bytes_per_block())
                .zip(clean.chunks_exact(weight_type.bytes_per_block()))
            {
                for at in (0..block.len()).filter(|at| scale_bytes(weight_type).contains(at)) {
                    block[at] = clean[at];
                }
            }
            let bytes = Bytes::from(bytes);
            for value in [-1.0_f32, 1.0] {
                let activations = vec![value; 512 * 3];
                let rounded = naive::rounded_activations(weight_type, &activations[..512]);
                for set in available() {
                    let found = product(&matrix(set, weight_type, 3, 512, &bytes), &activations, 3);
                    for (row, found) in found[..3].iter().enumerate() {
                        let stored = &bytes[row * bytes.len() / 3..(row + 1) * bytes.len() / 3];
                        let (expected, magnitude) = naive::product(weight_type, stored, &rounded);
                        assert!(
                            (f64::from(*found) - expected).abs() <= 1e-4 * magnitude + 1e-30,
                            "{weight_type}, {set}, levels {byte:#x}: {found} instead of {expected}"
                        );
                    }
                }
            }
        }
    }
}

fn scale_bytes(weight_type: WeightType) -> std::ops::Range<usize> {
    match weight_type {
        WeightType::Q2K => 80..84,
        WeightType::Q3K => 108..110,
        WeightType::Q6K => 208..210,
        WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0 => 0..2,
        _ => 0..4,
    }
}

#[test]
fn trouble_in_an_activation_shows_in_every_product() {
    for weight_type in WeightType::ALL {
        let case = Case {
            weight_type,
            rows: 20,
            cols: 256,
            tokens: 3,
            seed: 5,
        };
        let (bytes, mut activations) = operands(&case);
        activations[256 + 17] = f32::NAN;
        activations[512 + 200] = f32::INFINITY;
        for set in available() {
            let found = product(
                &matrix(set, weight_type, case.rows, case.cols, &bytes),
                &activations,
                case.tokens,
            );
            assert!(
                found[..20].iter().all(|value| value.is_finite()),
                "{weight_type}, {set}"
            );
            assert!(
                found[20..].iter().all(|value| !value.is_finite()),
                "{weight_type}, {set}"
            );
        }
    }
}

/// Matrices of different types and heights, one of them in part, with the same activations.
#[test]
fn products_together_have_the_bits_of_each_alone() {
    let cols = 256;
    let mut noise = Noise::new(11);
    let types = [
        WeightType::Q4_1,
        WeightType::Q6K,
        WeightType::F16,
        WeightType::Q4_1,
    ];
    for set in available() {
        let matrices: Vec<_> = types
            .into_iter()
            .zip([192, 70, 33, 1200])
            .map(|(weight_type, rows)| {
                let bytes = random_rows(weight_type, rows, cols, &mut noise).into();
                matrix(set, weight_type, rows, cols, &bytes)
            })
            .collect();
        for tokens in [1, 2, 11, 40] {
            let activations = noise.floats(tokens * cols);
            let alone: Vec<Vec<f32>> = matrices
                .iter()
                .map(|matrix| product(matrix, &activations, tokens))
                .collect();
            let part = 5..69;
            for pool in POOLS.iter() {
                let mut outputs: Vec<Vec<f32>> = alone
                    .iter()
                    .map(|output| vec![f32::NAN; output.len()])
                    .collect();
                let mut some = vec![f32::NAN; tokens * part.len()];
                let mut products: Vec<_> = matrices
                    .iter()
                    .zip(&mut outputs)
                    .map(|(matrix, output)| Product {
                        matrix,
                        rows: 0..matrix.rows(),
                        output,
                    })
                    .collect();
                products.push(Product {
                    matrix: &matrices[1],
                    rows: part.clone(),
                    output: &mut some,
                });
                pool.install(|| matmul_together(&mut products, &activations, tokens))
                    .expect("good shapes");
                for (found, expected) in outputs.iter().zip(&alone) {
                    assert!(same_bits(found, expected), "{set}, {tokens} tokens");
                }
                let expected: Vec<f32> = alone[1]
                    .chunks(70)
                    .flat_map(|row| row[part.clone()].to_vec())
                    .collect();
                assert!(
                    same_bits(&some, &expected),
                    "{set}, {tokens} tokens, in part"
                );
            }
        }
    }
}
