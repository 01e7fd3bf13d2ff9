//! One (query, head): scores, softmax, weighted sum of values. Written once in plain Rust whose
//! loops vectorise; wider instruction sets compile the same text again (`simd/`).

use crate::InstructionSet;

/// What one (query, head) reads; `keys` and `values` are `[positions, head_dim]`.
pub(crate) struct Operands<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) keys: &'a [f32],
    pub(crate) values: &'a [f32],
    pub(crate) scale: f32,
    pub(crate) soft_cap: Option<f32>,
}

/// Partial sums of a dot product.
const LANES: usize = 16;
/// Output values that stay in registers while the positions go by.
const STRIP: usize = 64;

/// Writes the attention of one query into `out[head_dim]`; `scores[positions]` is scratch.
pub(crate) fn attend_row(
    set: InstructionSet,
    operands: &Operands<'_>,
    scores: &mut [f32],
    out: &mut [f32],
) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 | InstructionSet::AvxVnni => {
            crate::simd::attend_row_avx2(operands, scores, out)
        }
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => crate::simd::attend_row_avx512(operands, scores, out),
        _ => attend_row_in::<false>(operands, scores, out),
    }
}

/// The text of every path; `FUSED` where the instruction set has fused multiply-adds.
#[inline(always)]
pub(crate) fn attend_row_in<const FUSED: bool>(
    operands: &Operands<'_>,
    scores: &mut [f32],
    out: &mut [f32],
) {
    let Operands {
        q,
        keys,
        values,
        scale,
        soft_cap,
    } = *operands;
    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
        *score = dot::<FUSED>(q, key) * scale;
    }
    if let Some(cap) = soft_cap {
        for score in scores.iter_mut() {
            *score = cap * (*score / cap).tanh();
        }
    }
    let sum = exponentiate::<FUSED>(scores);
    for (strip, out) in out.chunks_mut(STRIP).enumerate() {
        if out.len() == STRIP {
            accumulate::<FUSED, STRIP>(scores, &values[strip * STRIP..], q.len(), out);
        } else {
            for (at, out) in out.chunks_mut(1).enumerate() {
                accumulate::<FUSED, 1>(scores, &values[strip * STRIP + at..], q.len(), out);
            }
        }
    }
    let inverse = 1.0 / sum;
    for value in out {
        *value *= inverse;
    }
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
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

#[inline(always)]
fn dot<const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] = multiply_add::<FUSED>(a[lane], b[lane], sums[lane]);
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] = multiply_add::<FUSED>(*a, *b, sums[lane]);
    }
    fold(sums, |a, b| a + b)
}

/// Scores to `exp(score - largest)`; the sum of those.
#[inline(always)]
fn exponentiate<const FUSED: bool>(scores: &mut [f32]) -> f32 {
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

/// `out[i]` = sum over positions of weight x `values[position * stride + i]`, in order of position.
#[inline(always)]
fn accumulate<const FUSED: bool, const WIDTH: usize>(
    weights: &[f32],
    values: &[f32],
    stride: usize,
    out: &mut [f32],
) {
    let mut sums = [0.0_f32; WIDTH];
    for (weight, values) in weights.iter().zip(values.chunks(stride)) {
        let Some(values) = values.first_chunk::<WIDTH>() else {
            break;
        };
        for lane in 0..WIDTH {
            sums[lane] = multiply_add::<FUSED>(*weight, values[lane], sums[lane]);
        }
    }
    out.copy_from_slice(&sums);
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
