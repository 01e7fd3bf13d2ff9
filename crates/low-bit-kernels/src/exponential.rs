//! The exponential function for activations: additions and multiplications only, none of them fused,
//! so that loops over it become vector code and every machine computes the same bits. libm's `tanhf`
//! alone took a quarter of Gemma's prefill. Attention has its own, which need not hold that.

/// Below this exp(x) would be subnormal, above it infinite.
const RANGE: [f32; 2] = [-87.0, 88.0];
/// 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits.
const ROUNDER: f32 = 12_582_912.0;
/// ln 2 in two parts, the first with so few bits that its product with an exponent is exact.
const LN_2: [f32; 2] = [0.693_359_4, -0.000_212_194_44];
/// 1/7!, 1/6!, ... 1/2!: on |r| <= ln(2)/2 the next term of the series is below 6e-9.
const SERIES: [f32; 6] = [
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
];

/// `exp(x)` within 2e-7 of itself, `x` first brought into [-87, 88].
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let x = x.clamp(RANGE[0], RANGE[1]);
    let rounded = x * std::f32::consts::LOG2_E + ROUNDER;
    let exponent = rounded - ROUNDER;
    let r = x - exponent * LN_2[0] - exponent * LN_2[1];
    let tail = SERIES
        .iter()
        .fold(0.0, |sum, coefficient| sum * r + coefficient);
    let power_bits = rounded
        .to_bits()
        .wrapping_sub(ROUNDER.to_bits())
        .wrapping_add(127)
        << 23;
    (tail * r * r + r + 1.0) * f32::from_bits(power_bits)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn exp_is_right_to_the_last_bits() {
        let mut worst = 0.0_f64;
        for step in -870_000..=880_000 {
            let x = step as f32 / 10_000.0;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2e-7, "{worst:e}");
    }

    #[test]
    fn the_ends_saturate() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
        assert_eq!(exp(f32::INFINITY), exp(88.0));
        assert!(exp(88.0).is_finite() && exp(-87.0) > 0.0);
    }
}
