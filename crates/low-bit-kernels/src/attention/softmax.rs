//! Scores of one query to weights, in plain Rust whose loops vectorise; wider instruction sets
//! compile the same text again (`simd/`).

/// Partial sums and maxima of a row of scores.
const LANES: usize = 16;

#[inline(always)]
pub(crate) fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn fold(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Scores to `exp(score - largest)`; the sum of those.
#[inline(always)]
pub(crate) fn exponentiate<const FUSED: bool>(scores: &mut [f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut largest = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = scores.as_chunks::<LANES>();
    for chunk in whole {
        for lane in 0..LANES {
            largest[lane] = larger(largest[lane], chunk[lane]);
        }
    }
    for (lane, &score) in rest.iter().enumerate() {
        largest[lane] = larger(largest[lane], score);
    }
    let largest = fold(largest, larger);
    let mut sums = [0.0_f32; LANES];
    let (whole, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in whole {
        for lane in 0..LANES {
            chunk[lane] = exp::<FUSED>(chunk[lane] - largest);
            sums[lane] += chunk[lane];
        }
    }
    for (lane, score) in rest.iter_mut().enumerate() {
        *score = exp::<FUSED>(*score - largest);
        sums[lane] += *score;
    }
    fold(sums, |a, b| a + b)
}

/// e to the `x` for `x <= 0`, to 2 units in the last place; 0 below -87 (where the result would be
/// subnormal and a softmax weight has long vanished), NaN for NaN.
///
/// Cephes' `expf`: x = n ln 2 + r with ln 2 in two parts, then a polynomial in r. libm's is a call
/// per value and does not vectorise.
#[inline(always)]
fn exp<const FUSED: bool>(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// Adding it leaves the rounded integer in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    let bounded = if x < -87.0 { -87.0 } else { x };
    let shifted = multiply_add::<FUSED>(bounded, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = multiply_add::<FUSED>(n, -LN_2_LOW, multiply_add::<FUSED>(n, -LN_2_HIGH, bounded));
    let mut series = 1.987_569_1e-4;
    for coefficient in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ] {
        series = multiply_add::<FUSED>(series, r, coefficient);
    }
    let fraction = multiply_add::<FUSED>(series, r * r, r) + 1.0;
    let exponent = shifted.to_bits().wrapping_add(127) << 23;
    let value = fraction * f32::from_bits(exponent);
    if x < -87.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for step in 0..2_000_000_u32 {
            let x = -(step as f32) * 4.4e-5;
            let exact = f64::from(x).exp();
            let found = f64::from(super::exp::<false>(x));
            if x < -87.0 {
                assert_eq!(found, 0.0);
            } else {
                assert!(
                    (found - exact).abs() <= 2.4e-7 * exact,
                    "exp({x}) = {found}, not {exact}"
                );
            }
        }
        assert_eq!(super::exp::<false>(0.0), 1.0);
        assert_eq!(super::exp::<false>(f32::NEG_INFINITY), 0.0);
        assert!(super::exp::<false>(f32::NAN).is_nan());
    }
}
