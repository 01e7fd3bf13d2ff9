//! A few (query, head) rows over the keys and values of one head: scores, softmax, weighted sum.
//! The two products are an instruction set's own ([`Products`]); the order of everything else is
//! here.
//!
//! Where rows see different positions, scores are computed for the positions that any of them sees
//! and each row takes its own; values are summed over the positions that all of them see together,
//! and before and after them row by row. A sum goes through its positions in order, through memory
//! between the stretches, which rounds nothing: the cut into stretches leaves no trace.
#![allow(
    unsafe_code,
    reason = "the products are compiled for CPU features that their callers vouch for"
)]

use super::softmax::{exponentiate, multiply_add};
use super::{CacheValue, KEY_BLOCK};
use crate::InstructionSet;
use std::ops::Range;

/// Rows that share one pass over the keys: with their running scores in registers, each loaded key
/// serves all of them, and as many independent sums hide the latency of an addition.
pub(crate) const MOST_ROWS: usize = 8;

/// The keys and values of one head, and what becomes of a score.
pub(crate) struct Head<'a, E> {
    /// `[capacity / KEY_BLOCK, head_dim, KEY_BLOCK]`.
    pub(crate) keys: &'a [E],
    /// `[capacity, head_dim]`.
    pub(crate) values: &'a [E],
    pub(crate) head_dim: usize,
    pub(crate) scale: f32,
    pub(crate) soft_cap: Option<f32>,
}

/// One row: where its query and its output begin, and the positions it sees.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    pub(crate) query: usize,
    pub(crate) out: usize,
    pub(crate) first: usize,
    pub(crate) end: usize,
}

/// One to [`MOST_ROWS`] rows.
pub(crate) struct Tile<'a> {
    /// All queries of the call.
    q: &'a [f32],
    rows: [Row; MOST_ROWS],
    len: usize,
}

impl<'a> Tile<'a> {
    /// `len` rows that are still to be said, of queries in `q`.
    pub(crate) fn new(q: &'a [f32], len: usize) -> Self {
        assert!((1..=MOST_ROWS).contains(&len));
        Self {
            q,
            rows: [Row::default(); MOST_ROWS],
            len,
        }
    }

    pub(crate) fn rows_mut(&mut self) -> &mut [Row] {
        &mut self.rows[..self.len]
    }

    fn rows(&self) -> &[Row] {
        &self.rows[..self.len]
    }
}

/// The products of `R` rows with keys and values.
pub(crate) trait Products {
    /// Whether multiply-adds round once.
    const FUSED: bool;
    /// Rows whose weighted sums fit the registers together.
    const VALUE_ROWS: usize;

    /// `scores[r * stride + position]` = query `r` times the key of `position`, for the positions of
    /// `keys`, `[blocks, head_dim, KEY_BLOCK]`. Each is summed over the head's places in order.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn scores<E: CacheValue, const R: usize>(
        queries: [&[f32]; R],
        keys: &[E],
        scores: &mut [f32],
        stride: usize,
    );

    /// `out[outs[r]..][..head_dim]` += sum over positions of `weights[r][position] *
    /// values[position]`, `values` being `[positions, head_dim]`, in order of position.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn accumulate<E: CacheValue, const R: usize>(
        weights: [&[f32]; R],
        values: &[E],
        head_dim: usize,
        out: &mut [f32],
        outs: [usize; R],
    );
}

/// Plain Rust.
pub(crate) struct Plain;

impl Products for Plain {
    const FUSED: bool = false;
    const VALUE_ROWS: usize = 2;

    #[inline(always)]
    unsafe fn scores<E: CacheValue, const R: usize>(
        queries: [&[f32]; R],
        keys: &[E],
        scores: &mut [f32],
        stride: usize,
    ) {
        let head_dim = queries.first().map_or(1, |query| query.len());
        for (row, query) in queries.iter().enumerate() {
            let scores = &mut scores[row * stride..];
            let blocks = keys.chunks_exact(head_dim * KEY_BLOCK);
            for (block, scores) in blocks.zip(scores.chunks_exact_mut(KEY_BLOCK)) {
                let mut sums = [0.0_f32; KEY_BLOCK];
                for (x, keys) in query.iter().zip(block.as_chunks::<KEY_BLOCK>().0) {
                    for lane in 0..KEY_BLOCK {
                        sums[lane] = multiply_add::<false>(*x, keys[lane].widen(), sums[lane]);
                    }
                }
                scores.copy_from_slice(&sums);
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
        for (weights, at) in weights.iter().zip(outs) {
            let out = &mut out[at..at + head_dim];
            for (weight, values) in weights.iter().zip(values.chunks_exact(head_dim)) {
                for (sum, value) in out.iter_mut().zip(values) {
                    *sum = multiply_add::<false>(*weight, value.widen(), *sum);
                }
            }
        }
    }
}

/// Writes the attention of a tile's rows; `scores` is scratch.
pub(crate) fn attend<E: CacheValue>(
    set: InstructionSet,
    head: &Head<'_, E>,
    tile: &Tile<'_>,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 | InstructionSet::AvxVnni => {
            crate::simd::attend_avx2(head, tile, scores, out)
        }
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => crate::simd::attend_avx512(head, tile, scores, out),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => crate::simd::attend_neon(head, tile, scores, out),
        _ => {
            // SAFETY: plain Rust asks nothing of the CPU.
            unsafe { attend_in::<Plain, E>(head, tile, scores, out) }
        }
    }
}

/// The text of every path.
///
/// # Safety
/// The CPU has the instruction set of `P`.
#[inline(always)]
pub(crate) unsafe fn attend_in<P: Products, E: CacheValue>(
    head: &Head<'_, E>,
    tile: &Tile<'_>,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let rows = tile.rows();
    let (mut first, mut last, mut end) = (usize::MAX, 0, 0);
    let mut common_end = usize::MAX;
    for row in rows {
        first = first.min(row.first);
        last = last.max(row.first);
        end = end.max(row.end);
        common_end = common_end.min(row.end);
    }
    let origin = first / KEY_BLOCK * KEY_BLOCK;
    let stride = end.next_multiple_of(KEY_BLOCK) - origin;
    if scores.len() < rows.len() * stride {
        scores.resize(rows.len() * stride, 0.0);
    }
    let width = head.head_dim;
    let keys = &head.keys[origin * width..(origin + stride) * width];
    // SAFETY: the caller's duty.
    unsafe { all_scores::<P, E>(tile, width, keys, scores, stride) };
    let mut sums = [0.0_f32; MOST_ROWS];
    for (index, (row, sum)) in rows.iter().zip(&mut sums).enumerate() {
        let seen = index * stride + row.first - origin..index * stride + row.end - origin;
        *sum = weigh::<P, E>(head, &mut scores[seen]);
        out[row.out..row.out + width].fill(0.0);
    }
    let weighted = Weighted {
        rows,
        scores,
        stride,
        origin,
        values: head.values,
        width,
    };
    // SAFETY: the caller's duty.
    unsafe {
        if last < common_end {
            for (index, row) in rows.iter().enumerate() {
                weighted.alone::<P>(index, row.first..last, out);
            }
            weighted.together::<P>(last..common_end, out);
            for (index, row) in rows.iter().enumerate() {
                weighted.alone::<P>(index, common_end..row.end, out);
            }
        } else {
            for (index, row) in rows.iter().enumerate() {
                weighted.alone::<P>(index, row.first..row.end, out);
            }
        }
    }
    for (row, sum) in rows.iter().zip(sums) {
        let inverse = 1.0 / sum;
        for value in &mut out[row.out..row.out + width] {
            *value *= inverse;
        }
    }
}

/// Scores of all rows with all keys.
///
/// # Safety
/// The CPU has the instruction set of `P`.
#[inline(always)]
unsafe fn all_scores<P: Products, E: CacheValue>(
    tile: &Tile<'_>,
    width: usize,
    keys: &[E],
    scores: &mut [f32],
    stride: usize,
) {
    let (q, all) = (tile.q, tile.rows());
    let mut done = 0;
    while done < all.len() {
        let (rows, scores) = (&all[done..], &mut scores[done * stride..]);
        let left = rows.len();
        // SAFETY: the caller's duty.
        unsafe {
            if left >= 8 {
                P::scores::<E, 8>(queries(rows, q, width), keys, scores, stride);
                done += 8;
            } else if left >= 4 {
                P::scores::<E, 4>(queries(rows, q, width), keys, scores, stride);
                done += 4;
            } else if left == 3 {
                P::scores::<E, 3>(queries(rows, q, width), keys, scores, stride);
                done += 3;
            } else if left == 2 {
                P::scores::<E, 2>(queries(rows, q, width), keys, scores, stride);
                done += 2;
            } else {
                P::scores::<E, 1>(queries(rows, q, width), keys, scores, stride);
                done += 1;
            }
        }
    }
}

#[inline(always)]
fn queries<'a, const R: usize>(rows: &[Row], q: &'a [f32], width: usize) -> [&'a [f32]; R] {
    let mut queries = [&q[..0]; R];
    for (query, row) in queries.iter_mut().zip(rows) {
        *query = &q[row.query..row.query + width];
    }
    queries
}

/// A row's products to weights; the sum of those.
#[inline(always)]
fn weigh<P: Products, E>(head: &Head<'_, E>, scores: &mut [f32]) -> f32 {
    for score in scores.iter_mut() {
        *score *= head.scale;
    }
    if let Some(cap) = head.soft_cap {
        for score in scores.iter_mut() {
            *score = cap * (*score / cap).tanh();
        }
    }
    if P::FUSED {
        exponentiate::<true>(scores)
    } else {
        exponentiate::<false>(scores)
    }
}

/// Weights of all rows beside the values they belong to.
struct Weighted<'a, E> {
    rows: &'a [Row],
    /// `[rows, stride]`; a row's weights begin with that of position `origin`.
    scores: &'a [f32],
    stride: usize,
    origin: usize,
    values: &'a [E],
    width: usize,
}

impl<E: CacheValue> Weighted<'_, E> {
    /// Adds `positions` to one row.
    ///
    /// # Safety
    /// The CPU has the instruction set of `P`.
    #[inline(always)]
    unsafe fn alone<P: Products>(&self, index: usize, positions: Range<usize>, out: &mut [f32]) {
        if positions.start < positions.end {
            // SAFETY: the caller's duty.
            unsafe { self.add::<P, 1>(index, positions, out) };
        }
    }

    /// Adds `positions` to every row.
    ///
    /// # Safety
    /// The CPU has the instruction set of `P`.
    #[inline(always)]
    unsafe fn together<P: Products>(&self, positions: Range<usize>, out: &mut [f32]) {
        let mut done = 0;
        while done < self.rows.len() {
            let left = self.rows.len() - done;
            // SAFETY: the caller's duty.
            unsafe {
                if left >= 4 && P::VALUE_ROWS >= 4 {
                    self.add::<P, 4>(done, positions.clone(), out);
                    done += 4;
                } else if left == 3 && P::VALUE_ROWS >= 4 {
                    self.add::<P, 3>(done, positions.clone(), out);
                    done += 3;
                } else if left >= 2 {
                    self.add::<P, 2>(done, positions.clone(), out);
                    done += 2;
                } else {
                    self.add::<P, 1>(done, positions.clone(), out);
                    done += 1;
                }
            }
        }
    }

    /// Adds `positions` to `R` rows from `first` on.
    ///
    /// # Safety
    /// The CPU has the instruction set of `P`.
    #[inline(always)]
    unsafe fn add<P: Products, const R: usize>(
        &self,
        first: usize,
        positions: Range<usize>,
        out: &mut [f32],
    ) {
        let mut weights = [&self.scores[..0]; R];
        let mut outs = [0; R];
        for index in 0..R {
            let row = (first + index) * self.stride;
            weights[index] = &self.scores
                [row + positions.start - self.origin..row + positions.end - self.origin];
            outs[index] = self.rows[first + index].out;
        }
        let values = &self.values[positions.start * self.width..positions.end * self.width];
        // SAFETY: the caller's duty.
        unsafe { P::accumulate::<E, R>(weights, values, self.width, out, outs) };
    }
}
