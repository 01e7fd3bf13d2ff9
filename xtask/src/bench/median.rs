//! What several measurements of one thing say together.

use anyhow::{Result, ensure};

/// The middle value, the lower one of two.
pub(super) fn median(values: &[f64]) -> Result<f64> {
    ensure!(!values.is_empty(), "nothing was measured");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted[(sorted.len() - 1) / 2])
}

/// The order statistics between which the median lies with at least 95 %: each value falls on either side of it with
/// one half (the sign test).
pub(super) fn median_interval(sorted: &[f64]) -> Result<[f64; 2]> {
    let count = sorted.len();
    let mut tail = 0.0;
    let mut outcomes = 1.0;
    let mut left_out = 0;
    for below in 0..count / 2 {
        tail += outcomes / 2.0_f64.powi(i32::try_from(count)?);
        if 2.0 * tail > 0.05 {
            break;
        }
        left_out = below + 1;
        outcomes *= (count - below) as f64 / (below + 1) as f64;
    }
    ensure!(
        left_out > 0,
        "{count} pairs are too few for an interval of 95 %; 6 are the least"
    );
    Ok([sorted[left_out - 1], sorted[count - left_out]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert!((median(&[3.0, 1.0, 2.0]).unwrap() - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]).unwrap() - 2.0).abs() < f64::EPSILON);
        assert!(median(&[]).is_err());
    }

    #[test]
    fn nine_pairs_leave_out_one_at_either_end() {
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(median_interval(&nine).unwrap(), [2.0, 8.0]);
        // Twelve: P(at most two below) = 79 / 4096, twice that is 3.9 %.
        let twelve: Vec<f64> = (1..=12).map(f64::from).collect();
        assert_eq!(median_interval(&twelve).unwrap(), [3.0, 10.0]);
        let six: Vec<f64> = (1..=6).map(f64::from).collect();
        assert_eq!(median_interval(&six).unwrap(), [1.0, 6.0]);
        assert!(median_interval(&six[..5]).is_err());
    }
}
