//! Every elementwise operation of a forward pass, candle's and ours: a row alone has the bits that
//! it has among many, enough of them to be cut over threads.

use candle_core::{Device, Tensor};

use crate::config::{Activation, RopeConfig, RopeLayout, RopeScaling};
use crate::mlp::Gate;
use crate::norm::RmsNorm;
use crate::rope::Rope;

/// Not a multiple of any vector width; 600 rows are more than the parallel limit.
const WIDTH: usize = 90;
const ROWS: usize = 600;

fn matrix(seed: usize) -> Tensor {
    let value = |i: usize| (((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5) * 12.0;
    let values: Vec<f32> = (0..ROWS * WIDTH).map(value).collect();
    Tensor::from_vec(values, (ROWS, WIDTH), &Device::Cpu).unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

fn rows_alone(operation: impl Fn(&Tensor, &Tensor, usize) -> Tensor) {
    let (left, right) = (matrix(1), matrix(2));
    let whole = bits(&operation(&left, &right, 0));
    for (start, count) in [(0, 1), (1, 1), (7, 3), (299, 17), (599, 1)] {
        let cut = |tensor: &Tensor| {
            tensor
                .narrow(0, start, count)
                .unwrap()
                .contiguous()
                .unwrap()
        };
        let part = bits(&operation(&cut(&left), &cut(&right), start));
        assert_eq!(
            part,
            whole[start * WIDTH..(start + count) * WIDTH],
            "rows {start} and {count} on"
        );
    }
}

#[test]
fn sums_of_the_residual_stream() {
    rows_alone(|left, right, _| (left + right).unwrap());
}

#[test]
fn norms_of_rows_and_of_heads() {
    for width in [WIDTH, WIDTH / 3] {
        let weight = (0..width).map(|i| 0.5 + i as f32 / 64.0).collect();
        let norm = RmsNorm::from_parts(weight, 1e-5);
        rows_alone(|left, _, _| norm.forward(left).unwrap());
    }
}

#[test]
fn gates() {
    for activation in [Activation::Silu, Activation::GeluTanh] {
        rows_alone(|left, right, _| {
            let out = right.copy().unwrap();
            out.inplace_op2(left, &Gate(activation)).unwrap();
            out
        });
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
    rows_alone(|left, _, start| {
        rope.angles(start, left.dims()[0], 1000)
            .rotate(left, WIDTH / 3)
            .unwrap()
    });
}

#[test]
fn a_norm_is_the_formula() {
    let norm = RmsNorm::from_parts(vec![1.5; WIDTH], 1e-6);
    let input = matrix(3);
    let rows = input.to_vec2::<f32>().unwrap();
    for (row, found) in rows
        .iter()
        .zip(norm.forward(&input).unwrap().to_vec2::<f32>().unwrap())
    {
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / WIDTH as f64;
        for (x, y) in row.iter().zip(found) {
            let expected = f64::from(*x) / (mean + 1e-6).sqrt() * 1.5;
            assert!((f64::from(y) - expected).abs() < 1e-6, "{y} for {expected}");
        }
    }
}

#[test]
fn activations_are_their_formulas_and_saturate() {
    let column =
        |values: &[f32]| Tensor::from_slice(values, (1, values.len()), &Device::Cpu).unwrap();
    let inputs = [-200.0_f32, -20.0, -3.0, -0.5, 0.0, 0.25, 1.0, 4.0, 90.0];
    let run = |activation| {
        let out = column(&[1.0; 9]);
        out.inplace_op2(&column(&inputs), &Gate(activation))
            .unwrap();
        out.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    let (silu, gelu) = (run(Activation::Silu), run(Activation::GeluTanh));
    for ((x, silu), gelu) in inputs.iter().map(|x| f64::from(*x)).zip(silu).zip(gelu) {
        let expected = x / (1.0 + (-x).exp());
        assert!(
            (f64::from(silu) - expected).abs() < 1e-6 * (1.0 + expected.abs()),
            "silu of {x}: {silu}"
        );
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        let expected = 0.5 * x * (1.0 + inner.tanh());
        assert!(
            (f64::from(gelu) - expected).abs() < 1e-6 * (1.0 + expected.abs()),
            "gelu of {x}: {gelu}"
        );
    }
}
