//! Every elementwise operation of a forward pass: a row alone has the bits that it has among many,
//! enough of them to be cut over threads.

use crate::config::{Activation, RopeConfig, RopeLayout, RopeScaling};
use crate::layer::add;
use crate::norm::RmsNorm;
use crate::rope::Rope;

/// Not a multiple of any vector width; 600 rows are more than the parallel limit.
const WIDTH: usize = 90;
const ROWS: usize = 600;

fn matrix(seed: usize) -> Vec<f32> {
    let value = |i: usize| (((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5) * 12.0;
    (0..ROWS * WIDTH).map(value).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().copied().map(f32::to_bits).collect()
}

/// `operation(left, right, first_row)` changes `right`.
fn rows_alone(operation: impl Fn(&[f32], &mut [f32], usize)) {
    let (left, right) = (matrix(1), matrix(2));
    let mut whole = right.clone();
    operation(&left, &mut whole, 0);
    for (start, count) in [(0, 1), (1, 1), (7, 3), (299, 17), (599, 1)] {
        let values = start * WIDTH..(start + count) * WIDTH;
        let mut part = right[values.clone()].to_vec();
        operation(&left[values.clone()], &mut part, start);
        assert_eq!(
            bits(&part),
            bits(&whole[values]),
            "rows {start} and {count} on"
        );
    }
}

#[test]
fn sums_of_the_residual_stream() {
    rows_alone(|left, right, _| add(right, left, left.len() / WIDTH));
}

#[test]
fn norms_of_rows_and_of_heads() {
    for width in [WIDTH, WIDTH / 3] {
        let weight = (0..width).map(|i| 0.5 + i as f32 / 64.0).collect();
        let norm = RmsNorm::from_parts(weight, 1e-5);
        rows_alone(|left, right, _| norm.apply(left, right));
        rows_alone(|_, right, _| norm.apply_in_place(right));
        let (input, mut apart) = (matrix(1), matrix(2));
        norm.apply(&input, &mut apart);
        let mut in_place = input;
        norm.apply_in_place(&mut in_place);
        assert_eq!(bits(&in_place), bits(&apart));
    }
}

#[test]
fn gates() {
    for activation in [Activation::Silu, Activation::GeluTanh] {
        rows_alone(|left, right, _| activation.gate(left, right, WIDTH).unwrap());
    }
}

#[test]
fn rotations() {
    let config = RopeConfig {
        rope_theta: 10_000.0,
        rotary_dim: 18,
        scaling: RopeScaling::Default,
        freq_factors: None,
    };
    let rope = Rope::new(&config, RopeLayout::Half);
    rows_alone(|_, right, start| {
        let rows = right.len() / WIDTH;
        rope.angles(start, rows, 1000).rotate(right, WIDTH / 3);
    });
}

#[test]
fn a_norm_is_the_formula() {
    let norm = RmsNorm::from_parts(vec![1.5; WIDTH], 1e-6);
    let (input, mut output) = (matrix(3), matrix(4));
    norm.apply(&input, &mut output);
    for (row, found) in input.chunks(WIDTH).zip(output.chunks(WIDTH)) {
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / WIDTH as f64;
        for (x, y) in row.iter().zip(found) {
            let expected = f64::from(*x) / (mean + 1e-6).sqrt() * 1.5;
            assert!(
                (f64::from(*y) - expected).abs() < 1e-6,
                "{y} for {expected}"
            );
        }
    }
}
