//! Single rows: dequantising to the last bit, quantising as the reference.

use crate::stored::{Noise, random_rows};
use low_bit_kernels::{Error, WeightType, dequantise_row, naive, quantise_rows};
use proptest::prelude::*;

proptest! {
    /// Without a minimum a weight is one f32 product of exact factors (two for K types), so it is
    /// the exact value rounded once (twice); with one, a sum is rounded on top.
    #[test]
    fn a_dequantised_row_is_the_exact_row_rounded(
        weight_type in prop::sample::select(&WeightType::ALL[..]), seed in any::<u64>(), blocks in 1_usize..4,
    ) {
        let cols = blocks * weight_type.values_per_block();
        let bytes = random_rows(weight_type, 1, cols, &mut Noise::new(seed));
        let mut found = vec![f32::NAN; cols];
        dequantise_row(weight_type, &bytes, &mut found).expect("good shapes");
        for (col, &found) in found.iter().enumerate() {
            let exact = naive::weight(weight_type, &bytes, col);
            let once = matches!(weight_type,
                WeightType::F32 | WeightType::F16 | WeightType::Bf16 | WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0);
            if once {
                prop_assert_eq!(found.to_bits(), (exact as f32).to_bits(), "{} column {}", weight_type, col);
            } else {
                prop_assert!((f64::from(found) - exact).abs() <= 3e-7 * (exact.abs() + 1.0), "{weight_type} column {col}");
            }
        }
    }

    /// As the reference: the scale is the largest magnitude over 127, kept as f16, and levels are
    /// rounded half away from zero with the unrounded scale.
    #[test]
    fn q8_0_is_written_as_the_reference_does(seed in any::<u64>(), magnitude in -20_i32..10) {
        let mut noise = Noise::new(seed);
        let values: Vec<f32> = noise.floats(64).into_iter().map(|value| value * 2.0_f32.powi(magnitude)).collect();
        let bytes = quantise_rows(WeightType::Q8_0, &values, 64).expect("good shapes");
        prop_assert_eq!(bytes.len(), 68);
        for (block, values) in bytes.chunks(34).zip(values.chunks(32)) {
            let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            let scale = largest / 127.0;
            prop_assert_eq!(&block[..2], half::f16::from_f32(scale).to_le_bytes());
            let inverse = 1.0 / scale;
            for (&byte, value) in block[2..].iter().zip(values) {
                prop_assert_eq!(f32::from(byte.cast_signed()), (value * inverse).round());
            }
        }
    }
}

/// One block per type, worked out by hand from the layout: level 5 at value 1 and level 9 at
/// value 17 (or the nearest that the type's planes allow), scale 0.5.
#[test]
fn known_blocks_decode_to_known_values() {
    let half = 0x3800_u16.to_le_bytes();
    let minus_one = 0xbc00_u16.to_le_bytes();
    let mut nibbles = [0_u8; 16];
    nibbles[1] = 0x95;
    let decode = |weight_type: WeightType, bytes: &[u8]| {
        let mut out = vec![0.0; weight_type.values_per_block()];
        dequantise_row(weight_type, bytes, &mut out).expect("one block");
        out
    };
    let q4_0 = decode(WeightType::Q4_0, &[&half[..], &nibbles].concat());
    assert_eq!((q4_0[0], q4_0[1], q4_0[17]), (-4.0, -1.5, 0.5));
    let q4_1 = decode(
        WeightType::Q4_1,
        &[&half[..], &minus_one, &nibbles].concat(),
    );
    assert_eq!((q4_1[0], q4_1[1], q4_1[17]), (-1.0, 1.5, 3.5));
    let q5_0 = decode(
        WeightType::Q5_0,
        &[&half[..], &[2, 0, 0, 0], &nibbles].concat(),
    );
    assert_eq!((q5_0[0], q5_0[1], q5_0[17]), (-8.0, 2.5, -3.5));
    let q5_1 = decode(
        WeightType::Q5_1,
        &[&half[..], &minus_one, &[0, 0, 2, 0], &nibbles].concat(),
    );
    assert_eq!((q5_1[0], q5_1[1], q5_1[17]), (-1.0, 1.5, 11.5));
    let mut q8_0 = [&half[..], &[0; 32]].concat();
    q8_0[3] = 0x80;
    assert_eq!(decode(WeightType::Q8_0, &q8_0)[1], -64.0);
}

#[test]
fn a_zero_block_is_written_as_zeros() {
    assert_eq!(
        quantise_rows(WeightType::Q8_0, &[0.0; 32], 32),
        Ok(vec![0; 34])
    );
    assert_eq!(quantise_rows(WeightType::Q8_0, &[], 32), Ok(vec![]));
}

#[test]
fn floats_are_rounded_to_nearest_even() {
    let bytes = quantise_rows(WeightType::Bf16, &[1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0], 2)
        .expect("good shapes");
    assert_eq!(bytes, [0x80, 0x3f, 0x82, 0x3f]);
    let bytes = quantise_rows(WeightType::F16, &[1.0, 1e6], 2).expect("good shapes");
    assert_eq!(bytes, [0x00, 0x3c, 0x00, 0x7c]);
}

#[test]
fn types_that_only_arrive_are_not_written() {
    let refused = quantise_rows(WeightType::Q4K, &[0.0; 256], 256);
    assert_eq!(
        refused,
        Err(Error::CannotQuantise {
            weight_type: WeightType::Q4K
        })
    );
}
