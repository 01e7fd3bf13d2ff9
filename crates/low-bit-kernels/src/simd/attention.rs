//! The products of attention on vectors. A lane is a key's position in `scores` and a place of the
//! head in `accumulate`, so that nothing is ever summed across a vector.
#![allow(
    unsafe_code,
    reason = "loads of keys and values through pointers that the loops keep inside their slices"
)]

use super::vector::{OnVectors, Vector};
use crate::WeightType;
use crate::attention::tile::Products;
use crate::attention::{CacheValue, KEY_BLOCK, key_index};
use crate::half_bits::narrow_f16;

/// Bytes that a prefetch brings.
const CACHE_LINE: usize = 64;

/// Steps of `of_keys` from a key's prefetch to its use, and positions from a value's. One decoded token
/// reads every key and value once, from memory where a model's weights have pushed them out of the
/// caches. The hardware prefetcher follows neither two key blocks of one page nor a strip of wide rows:
/// asked for in advance, a layer of SmolLM2 at 768 positions takes 19 us instead of 33, of Gemma-3-270M
/// 37 instead of 70. Keys at half of the distance and values at twice are as fast.
const KEY_STEPS_AHEAD: usize = 4;
const POSITIONS_AHEAD: usize = 8;

/// Vectors of a strip of places that a weighted sum keeps in registers.
const STRIP: usize = 4;

impl<V: Vector> Products for OnVectors<V> {
    const FUSED: bool = true;
    /// Sixteen registers hold two rows' strips beside a strip of values, thirty-two hold four.
    const VALUE_ROWS: usize = V::ROWS / 4;

    #[inline(always)]
    unsafe fn scores<E: CacheValue, const R: usize>(
        queries: [&[f32]; R],
        keys: &[E],
        scores: &mut [f32],
        stride: usize,
    ) {
        let head_dim = queries.first().map_or(1, |query| query.len());
        let positions = keys.len() / (head_dim * KEY_BLOCK) * KEY_BLOCK;
        // What every pointer below relies on.
        assert!(
            queries.iter().all(|query| query.len() == head_dim)
                && positions <= stride
                && (R - 1) * stride + positions <= scores.len()
                && KEY_BLOCK.is_multiple_of(V::ROWS)
        );
        let mut position = 0;
        // SAFETY: the caller's duty; the lengths have just been checked.
        unsafe {
            // A sum waits for its last addition, some four cycles: with few rows, several vectors of
            // keys go together, so that about eight sums are on their way.
            if R <= 2 {
                while position + 4 * V::ROWS <= positions {
                    of_keys::<V, E, R, 4>(&queries, keys, position, scores, stride);
                    position += 4 * V::ROWS;
                }
            } else if R <= 4 {
                while position + 2 * V::ROWS <= positions {
                    of_keys::<V, E, R, 2>(&queries, keys, position, scores, stride);
                    position += 2 * V::ROWS;
                }
            }
            while position < positions {
                of_keys::<V, E, R, 1>(&queries, keys, position, scores, stride);
                position += V::ROWS;
            }
        }
    }

    #[inline(always)]
    unsafe fn accumulate<E: CacheValue, const R: usize>(
        weights: [&[f32]; R],
        values: &[E],
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
                strip::<V, E, R, STRIP>(&weights, values.as_ptr().add(place), head_dim, {
                    outs.map(|at| out.as_mut_ptr().add(at + place))
                });
                place += STRIP * V::ROWS;
            }
            while place + V::ROWS <= head_dim {
                strip::<V, E, R, 1>(&weights, values.as_ptr().add(place), head_dim, {
                    outs.map(|at| out.as_mut_ptr().add(at + place))
                });
                place += V::ROWS;
            }
        }
        for (weights, at) in weights.iter().zip(outs) {
            for place in place..head_dim {
                let sum = &mut out[at + place];
                for (position, weight) in weights.iter().enumerate() {
                    *sum = weight.mul_add(values[position * head_dim + place].widen(), *sum);
                }
            }
        }
    }
}

/// Products of `R` queries with the keys of `N` vectors of positions from `position` on.
///
/// # Safety
/// The CPU has `V`; `keys` are whole blocks and hold these positions, `scores` a place for each of
/// them, `stride` apart for every query.
#[inline(always)]
unsafe fn of_keys<V: Vector, E: CacheValue, const R: usize, const N: usize>(
    queries: &[&[f32]; R],
    keys: &[E],
    position: usize,
    scores: &mut [f32],
    stride: usize,
) {
    let head_dim = queries[0].len();
    // SAFETY: the caller's duty.
    unsafe {
        let mut columns = [keys.as_ptr(); N];
        for (n, column) in columns.iter_mut().enumerate() {
            let first = position + n * V::ROWS;
            *column = column.add(key_index(head_dim, first, 0));
        }
        let ahead = KEY_STEPS_AHEAD * N * V::ROWS * head_dim;
        let mut sums = [[V::zero(); R]; N];
        for place in 0..head_dim {
            let mut keys = [V::zero(); N];
            for (key, column) in keys.iter_mut().zip(columns) {
                let at = column.add(place * KEY_BLOCK);
                *key = load::<V, E>(at);
                // Several vectors go together where rows are few, that is, in a decoded token: a
                // prompt's tiles find their keys in the cache.
                if N > 1 {
                    V::prefetch(at.wrapping_add(ahead).cast());
                }
            }
            for r in 0..R {
                let x = V::splat(*queries[r].as_ptr().add(place));
                for (sums, key) in sums.iter_mut().zip(keys) {
                    sums[r] = V::multiply_add(x, key, sums[r]);
                }
            }
        }
        let scores = scores.as_mut_ptr();
        for (n, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                V::store(sum, scores.add(r * stride + position + n * V::ROWS));
            }
        }
    }
}

/// A vector of cached values, widened.
///
/// # Safety
/// The CPU has `V`; at `from` there are `V::ROWS` values.
#[inline(always)]
unsafe fn load<V: Vector, E: CacheValue>(from: *const E) -> V::Float {
    // SAFETY: the caller's duty; a value of `E` is stored as it says.
    unsafe {
        match E::STORED {
            WeightType::F16 => V::load_f16(from.cast()),
            _ => V::load(from.cast()),
        }
    }
}

/// Rounds `values` to f16; the two are equally long.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
pub(super) unsafe fn store_f16<V: Vector>(values: &[f32], stored: &mut [u16]) {
    let (whole, stored_whole) = (
        values.chunks_exact(V::ROWS),
        stored.chunks_exact_mut(V::ROWS),
    );
    let rest = whole.remainder();
    for (values, stored) in whole.zip(stored_whole) {
        // SAFETY: the caller's duty; both pieces hold a vector.
        unsafe { V::store_f16(V::load(values.as_ptr()), stored.as_mut_ptr().cast()) };
    }
    let begun = values.len() - rest.len();
    for (value, stored) in rest.iter().zip(&mut stored[begun..]) {
        *stored = narrow_f16(*value);
    }
}

/// `N` vectors of places from `values` on, of `R` rows.
///
/// # Safety
/// The CPU has `V`; at `values` and each of `outs` there are `N` vectors, at `values` for every
/// position, `head_dim` apart; weights are equally long.
#[inline(always)]
unsafe fn strip<V: Vector, E: CacheValue, const R: usize, const N: usize>(
    weights: &[&[f32]; R],
    values: *const E,
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
        // Where a vector is a whole line a prefetch for each load costs a fifth of a prompt's attention,
        // and the hardware follows f32 well enough.
        let per_line = CACHE_LINE / (V::ROWS * size_of::<E>());
        for position in 0..weights[0].len() {
            let mut row = [V::zero(); N];
            for (n, value) in row.iter_mut().enumerate() {
                let at = values.add(position * head_dim + n * V::ROWS);
                *value = load::<V, E>(at);
                if per_line > 1 && n.is_multiple_of(per_line) {
                    V::prefetch(at.wrapping_add(POSITIONS_AHEAD * head_dim).cast());
                }
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
