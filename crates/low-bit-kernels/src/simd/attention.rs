//! The products of attention on vectors. A lane is a key's position in `scores` and a place of the
//! head in `accumulate`, so that nothing is ever summed across a vector.
#![allow(
    unsafe_code,
    reason = "loads of keys and values through pointers that the loops keep inside their slices"
)]

use super::vector::{OnVectors, Vector};
use crate::attention::KEY_BLOCK;
use crate::attention::tile::Products;

/// Vectors of a strip of places that a weighted sum keeps in registers.
const STRIP: usize = 4;

impl<V: Vector> Products for OnVectors<V> {
    const FUSED: bool = true;
    /// Sixteen registers hold two rows' strips beside a strip of values, thirty-two hold four.
    const VALUE_ROWS: usize = V::ROWS / 4;

    #[inline(always)]
    unsafe fn scores<const R: usize>(
        queries: [&[f32]; R],
        keys: &[f32],
        scores: &mut [f32],
        stride: usize,
    ) {
        let head_dim = queries.first().map_or(1, |query| query.len());
        let blocks = keys.len() / (head_dim * KEY_BLOCK);
        // What every pointer below relies on.
        assert!(
            queries.iter().all(|query| query.len() == head_dim)
                && blocks * KEY_BLOCK <= stride
                && (R - 1) * stride + blocks * KEY_BLOCK <= scores.len()
                && KEY_BLOCK.is_multiple_of(V::ROWS)
        );
        let scores = scores.as_mut_ptr();
        // SAFETY: the caller's duty; the lengths have just been checked.
        unsafe {
            for block in 0..blocks {
                let keys = keys.as_ptr().add(block * head_dim * KEY_BLOCK);
                let mut part = 0;
                while part < KEY_BLOCK {
                    let mut sums = [V::zero(); R];
                    for place in 0..head_dim {
                        let key = V::load(keys.add(place * KEY_BLOCK + part));
                        for (sum, query) in sums.iter_mut().zip(&queries) {
                            let x = V::splat(*query.as_ptr().add(place));
                            *sum = V::multiply_add(x, key, *sum);
                        }
                    }
                    for (r, sum) in sums.into_iter().enumerate() {
                        V::store(sum, scores.add(r * stride + block * KEY_BLOCK + part));
                    }
                    part += V::ROWS;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn accumulate<const R: usize>(
        weights: [&[f32]; R],
        values: &[f32],
        head_dim: usize,
        out: &mut [f32],
        outs: [usize; R],
    ) {
        let positions = weights.first().map_or(0, |weights| weights.len());
        // What every pointer below relies on.
        assert!(
            weights.iter().all(|weights| weights.len() == positions)
                && values.len() == positions * head_dim
                && outs.iter().all(|at| at + head_dim <= out.len())
        );
        let mut place = 0;
        // SAFETY: the caller's duty; the lengths have just been checked.
        unsafe {
            while place + STRIP * V::ROWS <= head_dim {
                strip::<V, R, STRIP>(&weights, values.as_ptr().add(place), head_dim, {
                    outs.map(|at| out.as_mut_ptr().add(at + place))
                });
                place += STRIP * V::ROWS;
            }
            while place + V::ROWS <= head_dim {
                strip::<V, R, 1>(&weights, values.as_ptr().add(place), head_dim, {
                    outs.map(|at| out.as_mut_ptr().add(at + place))
                });
                place += V::ROWS;
            }
        }
        for (weights, at) in weights.iter().zip(outs) {
            for place in place..head_dim {
                let sum = &mut out[at + place];
                for (position, weight) in weights.iter().enumerate() {
                    *sum = weight.mul_add(values[position * head_dim + place], *sum);
                }
            }
        }
    }
}

/// `N` vectors of places from `values` on, of `R` rows.
///
/// # Safety
/// The CPU has `V`; at `values` and each of `outs` there are `N` vectors, at `values` for every
/// position, `head_dim` apart; weights are equally long.
#[inline(always)]
unsafe fn strip<V: Vector, const R: usize, const N: usize>(
    weights: &[&[f32]; R],
    values: *const f32,
    head_dim: usize,
    outs: [*mut f32; R],
) {
    // SAFETY: the caller's duty.
    unsafe {
        let mut sums = [[V::zero(); N]; R];
        for (sums, out) in sums.iter_mut().zip(outs) {
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(out.add(n * V::ROWS));
            }
        }
        for position in 0..weights[0].len() {
            let mut row = [V::zero(); N];
            for (n, value) in row.iter_mut().enumerate() {
                *value = V::load(values.add(position * head_dim + n * V::ROWS));
            }
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let weight = V::splat(*weights.as_ptr().add(position));
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum = V::multiply_add(weight, value, *sum);
                }
            }
        }
        for (sums, out) in sums.into_iter().zip(outs) {
            for (n, sum) in sums.into_iter().enumerate() {
                V::store(sum, out.add(n * V::ROWS));
            }
        }
    }
}
