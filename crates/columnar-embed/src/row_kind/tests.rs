//! Row kinds against slow formulas of their own: every fp8 code and every f16 value, and the
//! `float8` crate as a second opinion; integer rows value by value.

use float8::{F8E4M3, F8E5M2};
use proptest::prelude::*;

use super::{
    FloatKind, RowKind,
    fp8::{E4M3, E5M2, Format},
};

/// The value of a code by the formula of OCP OFP8, table 1, in f64.
fn by_formula(code: u8, exponent_bits: i32, mantissa_bits: i32, bias: i32) -> f64 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(code & 0x7f) >> mantissa_bits;
    let mantissa = f64::from(i32::from(code) & ((1 << mantissa_bits) - 1));
    let fraction = mantissa / 2_f64.powi(mantissa_bits);
    let e4m3 = exponent_bits == 4;
    if e4m3 && code & 0x7f == 0x7f {
        return f64::NAN;
    }
    if !e4m3 && exponent == 31 {
        return if mantissa == 0.0 {
            sign * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    match exponent {
        0 => sign * fraction * 2_f64.powi(1 - bias),
        _ => sign * (1.0 + fraction) * 2_f64.powi(exponent - bias),
    }
}

const FORMATS: [(Format, RowKind, [i32; 3]); 2] = [
    (E4M3, RowKind::Fp8E4m3, [4, 3, 7]),
    (E5M2, RowKind::Fp8E5m2, [5, 2, 15]),
];

/// The nearest finite code, ties to the even one, by looking at all of them: what is nearer to the
/// value that the next code would have, if there were one, has none.
fn nearest(value: f32, [exponent, mantissa, bias]: [i32; 3]) -> Option<u8> {
    let decode = |code| by_formula(code, exponent, mantissa, bias);
    let magnitude = f64::from(value.abs());
    let largest = (0..0x80)
        .rev()
        .find(|code| decode(*code).is_finite())
        .unwrap();
    // One quantum above the largest value, the binade's top excluded by both formats.
    let beyond = decode(largest) + (decode(largest) - decode(largest - 1));
    if magnitude >= beyond {
        // Far away all distances are equal in f64.
        return None;
    }
    let candidates = (0..=largest).map(|code| (decode(code), Some(code)));
    let distance = |candidate: f64| (candidate - magnitude).abs();
    let best = candidates
        .chain([(beyond, None)])
        .min_by(|(one, one_code), (other, other_code)| {
            let odd = |code: &Option<u8>| code.unwrap_or(largest + 1) & 1;
            let by_distance = distance(*one).total_cmp(&distance(*other));
            by_distance.then(odd(one_code).cmp(&odd(other_code)))
        });
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    best.unwrap().1.map(|code| code | sign)
}

#[test]
fn every_fp8_code_has_the_value_of_the_formula_and_of_the_float8_crate() {
    for (format, _, [exponent, mantissa, bias]) in FORMATS {
        for code in 0..=u8::MAX {
            let expected = by_formula(code, exponent, mantissa, bias);
            let found = format.decode(code);
            let second = match exponent {
                4 => F8E4M3::from_bits(code).to_f32(),
                _ => F8E5M2::from_bits(code).to_f32(),
            };
            if expected.is_nan() {
                assert_eq!(found.to_bits(), 0x7fc0_0000, "{code:#04x}");
                assert!(second.is_nan(), "{code:#04x}");
                continue;
            }
            assert_eq!(
                f64::from(found).to_bits(),
                expected.to_bits(),
                "{code:#04x}"
            );
            assert_eq!(second.to_bits(), found.to_bits(), "{code:#04x}");
        }
    }
}

#[test]
fn the_corners_of_the_two_formats_are_those_of_the_specification() {
    let value = |format: Format, code| format.decode(code);
    assert_eq!(value(E4M3, 0x7e), 448.0);
    assert_eq!(value(E4M3, 0x08), 2_f32.powi(-6));
    assert_eq!(value(E4M3, 0x01), 2_f32.powi(-9));
    assert!(value(E4M3, 0x7f).is_nan() && value(E4M3, 0xff).is_nan());
    assert_eq!(value(E5M2, 0x7b), 57_344.0);
    assert_eq!(value(E5M2, 0x04), 2_f32.powi(-14));
    assert_eq!(value(E5M2, 0x01), 2_f32.powi(-16));
    assert_eq!(value(E5M2, 0xfc), f32::NEG_INFINITY);
    assert!((0x7d..=0x7f).all(|code| value(E5M2, code).is_nan()));
    assert_eq!(value(E4M3, 0x80).to_bits(), (-0.0_f32).to_bits());
}

#[test]
fn a_finite_fp8_value_encodes_to_its_code_and_widens_exactly() {
    for (format, kind, _) in FORMATS {
        for code in 0..=u8::MAX {
            let value = format.decode(code);
            if !value.is_finite() {
                assert_eq!(format.encode(value), None);
                continue;
            }
            assert_eq!(format.encode(value), Some(code));
            for matrix in [FloatKind::F32, FloatKind::F16, FloatKind::Bf16] {
                let wide = kind.widen(&[code], matrix, 1);
                let mut back = [0.0];
                matrix.kind().decode(&wide, &mut back);
                assert_eq!(
                    back[0].to_bits(),
                    value.to_bits(),
                    "{code:#04x} to {matrix:?}"
                );
            }
        }
    }
}

#[test]
fn every_f16_value_goes_to_the_nearest_code_and_ties_to_the_even_one() {
    for (format, _, parts) in FORMATS {
        for bits in 0..=u16::MAX {
            let value = half::f16::from_bits(bits).to_f32();
            let expected = if value.is_finite() {
                nearest(value, parts)
            } else {
                None
            };
            assert_eq!(format.encode(value), expected, "{value}");
        }
    }
}

#[test]
fn what_rounds_beyond_the_largest_value_is_refused() {
    // Halfway between 448 and what the next code would be; 448 has the even code.
    assert_eq!(E4M3.encode(464.0), Some(0x7e));
    assert_eq!(E4M3.encode(464.0_f32.next_up()), None);
    // Halfway between 57,344 and 65,536; the even code is infinity's.
    assert_eq!(E5M2.encode(61_440.0_f32.next_down()), Some(0x7b));
    assert_eq!(E5M2.encode(61_440.0), None);
    let error = RowKind::Fp8E4m3.encode(&[1.0, 1000.0]).unwrap_err();
    assert_eq!((error.column, error.value), (1, 1000.0));
    let error = RowKind::F16.encode(&[65_520.0]).unwrap_err();
    assert_eq!((error.column, error.value), (0, 65_520.0));
    for kind in RowKind::ALL {
        for value in [f32::NAN, f32::INFINITY] {
            assert_eq!(kind.encode(&[0.0, value]).unwrap_err().column, 1, "{kind}");
        }
    }
    // The range of the row overflows, not a value of it.
    assert!(RowKind::Int8Zp.encode(&[f32::MAX, f32::MIN]).is_err());
}

#[test]
fn integer_rows_have_the_bytes_of_the_page() {
    // Largest magnitude 2.54: scale 0.02.
    let stored = RowKind::Int8.encode(&[2.54, -1.0, 0.0]).unwrap();
    let scale = 2.54_f32 / 127.0;
    assert_eq!(stored[..4], scale.to_le_bytes());
    assert_eq!(stored[4..], [127, 206, 0]);
    // Range -1 to 2: scale 3/255, zero point 85.
    let stored = RowKind::Int8Zp.encode(&[2.0, -1.0, 0.0]).unwrap();
    assert_eq!(stored[..4], (3.0_f32 / 255.0).to_le_bytes());
    assert_eq!(stored[4..], [85, 255, 0, 85]);
    // Three nibbles: the lower half of a byte first, the last upper half 0.
    let stored = RowKind::Int4.encode(&[7.0, -7.0, -1.0]).unwrap();
    assert_eq!(stored, [&1.0_f32.to_le_bytes()[..], &[0x97, 0x0f]].concat());
    let stored = RowKind::Int4Zp.encode(&[15.0, 0.0, 4.0]).unwrap();
    assert_eq!(
        stored,
        [&1.0_f32.to_le_bytes()[..], &[0, 0x0f, 0x04]].concat()
    );
    for kind in [
        RowKind::Int8,
        RowKind::Int8Zp,
        RowKind::Int4,
        RowKind::Int4Zp,
    ] {
        let zeros = kind.encode(&[0.0; 3]).unwrap();
        assert!(zeros.iter().all(|byte| *byte == 0), "{kind}");
        assert_eq!(zeros.len(), kind.row_bytes(3).unwrap() as usize);
    }
}

#[test]
fn kinds_fit_a_matrix_of_their_own_or_a_larger_type() {
    use RowKind::{Bf16, F16, F32, Int4};
    assert!(
        RowKind::ALL
            .into_iter()
            .all(|kind| kind.fits(FloatKind::F32))
    );
    assert!(F16.fits(FloatKind::F16) && !Bf16.fits(FloatKind::F16) && !F32.fits(FloatKind::F16));
    assert!(!F16.fits(FloatKind::Bf16) && Int4.fits(FloatKind::Bf16));
    for kind in RowKind::ALL {
        assert_eq!(RowKind::from_code(kind.code()), Some(kind));
        assert_eq!(RowKind::from_name(&kind.name().to_uppercase()), Some(kind));
    }
    assert_eq!(RowKind::from_code(2), None);
    assert_eq!(RowKind::Int8.row_bytes(u64::MAX), None);
    assert_eq!(RowKind::F32.row_bytes(1 << 30), None);
}

proptest! {
    #[test]
    fn any_f32_goes_to_the_nearest_code(bits: u32) {
        let value = f32::from_bits(bits);
        for (format, _, parts) in FORMATS {
            let expected = if value.is_finite() { nearest(value, parts) } else { None };
            prop_assert_eq!(format.encode(value), expected);
        }
    }

    #[test]
    fn integer_rows_err_by_half_a_step_at_most(
        values in prop::collection::vec(-1e3_f32..1e3, 1..40)
    ) {
        let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let low = values.iter().fold(0.0_f32, |least, value| least.min(*value));
        let high = values.iter().fold(0.0_f32, |most, value| most.max(*value));
        for (kind, step) in [
            (RowKind::Int8, most / 127.0),
            (RowKind::Int4, most / 7.0),
            (RowKind::Int8Zp, (high - low) / 255.0),
            (RowKind::Int4Zp, (high - low) / 15.0),
        ] {
            let stored = kind.encode(&values).unwrap();
            prop_assert_eq!(stored.len() as u64, u64::from(kind.row_bytes(values.len() as u64).unwrap()));
            let mut back = vec![0.0; values.len()];
            kind.decode(&stored, &mut back);
            for (value, back) in values.iter().zip(&back) {
                // The zero point is rounded too; the rest is f32's own rounding.
                let steps = if matches!(kind, RowKind::Int8 | RowKind::Int4) { 0.5 } else { 1.0 };
                prop_assert!((value - back).abs() <= steps * step * 1.0001, "{kind}: {value} {back}");
            }
        }
    }

    #[test]
    fn any_bytes_decode_to_the_same_bits_twice_and_never_to_a_strange_nan(
        stored in prop::collection::vec(any::<u8>(), 0..64), cols in 1_usize..20
    ) {
        for kind in RowKind::ALL {
            let mut values = vec![0.0; cols];
            kind.decode(&stored, &mut values);
            for value in values {
                prop_assert!(!value.is_nan() || value.to_bits() == 0x7fc0_0000);
            }
            let wide = kind.widen(&stored, FloatKind::Bf16, cols);
            prop_assert!(kind == RowKind::Bf16 || wide.len() == 2 * cols);
        }
    }
}
