//! Causal attention of grouped heads over a key/value cache.
//!
//! `softmax(scale * q . k) * v` in two passes, in f32 over keys and values of either [`CacheValue`];
//! no mask is built and no key is repeated for the heads that share it. Up to eight (query, head) rows that read the same
//! key/value head go through its keys and values together, but each is computed from its own
//! query and its own stretch of the cache in one fixed order, so its value does not depend on the
//! other queries of the call or on the threads. What this deliberately is not: a cache (the caller
//! owns it) and rotary embedding (already applied to `q` and the keys).

use crate::matrix::expect_length;
use crate::{Error, InstructionSet};
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;

mod cache_value;
pub(crate) mod softmax;
#[cfg(test)]
mod tests;
pub(crate) mod tile;

pub use cache_value::CacheValue;

/// Keeps [`CacheValue`] to the types that the kernels know how to load.
mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u16 {}
}

/// Positions whose keys lie interleaved: a vector of 16 keys' values at one place of the head takes
/// one multiply-add per query, and no sum ever goes across a vector.
pub const KEY_BLOCK: usize = 16;

/// Queries that one piece of work takes: with as many, every number of heads per key/value head
/// fills whole tiles.
const QUERIES_PER_PIECE: usize = tile::MOST_ROWS;

/// Multiply-adds below which a call stays on its thread; as for products, not tuned by measurement.
const LEAST_PARALLEL_WORK: usize = 1 << 17;

/// The shape of one layer's attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`. Query head `h` reads key/value head
    /// `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Positions that the cache has room for, a multiple of [`KEY_BLOCK`].
    pub capacity: usize,
    /// Sliding window: a query at position `p` sees `p - window + 1 ..= p`. `None`: all up to `p`.
    pub window: Option<usize>,
    /// Multiplies each score, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)` where given.
    pub soft_cap: Option<f32>,
}

/// One layer's cache, in values of `E`.
#[derive(Debug, Clone, Copy)]
pub struct KeyValues<'a, E> {
    /// Keys, rotary embedding applied: `[kv_heads, capacity / KEY_BLOCK, head_dim, KEY_BLOCK]`, so
    /// that position `p` of a head is at [`key_index`].
    pub keys: &'a [E],
    /// Values, `[kv_heads, capacity, head_dim]`.
    pub values: &'a [E],
}

/// Where value `place` of the key of `position` is among a head's keys, `[capacity / KEY_BLOCK,
/// head_dim, KEY_BLOCK]`.
#[must_use]
#[inline]
pub fn key_index(head_dim: usize, position: usize, place: usize) -> usize {
    (position / KEY_BLOCK * head_dim + place) * KEY_BLOCK + position % KEY_BLOCK
}

thread_local! {
    /// Scores of one tile, kept for its buffer.
    static SCORES: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Attention of `q[tokens, heads, head_dim]` over the cache into `out[tokens, heads, head_dim]`.
///
/// Query `t` stands at `start_position + t`; the cache must already hold the keys and values up to
/// the last query's position.
///
/// # Errors
/// [`Error::AttentionShape`] if the shape contradicts itself or the positions exceed the capacity,
/// [`Error::Length`] if a buffer does not have its shape's length.
pub fn attend<E: CacheValue>(
    shape: &AttentionShape,
    q: &[f32],
    cache: KeyValues<'_, E>,
    start_position: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    let attention = Attention {
        shape,
        cache,
        start_position,
        instruction_set: InstructionSet::current(),
    };
    attention.run(q, out)
}

/// One call: what every (query, head) of it reads.
struct Attention<'a, E> {
    shape: &'a AttentionShape,
    cache: KeyValues<'a, E>,
    start_position: usize,
    instruction_set: InstructionSet,
}

impl<E: CacheValue> Attention<'_, E> {
    fn run(&self, q: &[f32], out: &mut [f32]) -> Result<(), Error> {
        let AttentionShape {
            heads, head_dim, ..
        } = *self.shape;
        let row = heads * head_dim;
        let tokens = self.check(q, out)?;
        if tokens == 0 {
            return Ok(());
        }
        let span = self
            .shape
            .window
            .unwrap_or(usize::MAX)
            .min(self.start_position + tokens);
        let work = out.len().saturating_mul(span).saturating_mul(2);
        let threads = rayon::current_num_threads();
        if work < LEAST_PARALLEL_WORK || threads == 1 {
            let piece = QUERIES_PER_PIECE * row;
            for (index, out) in out.chunks_mut(piece).enumerate() {
                let first = index * QUERIES_PER_PIECE;
                self.piece(first..first + out.len() / row, 0..heads, q, out);
            }
        } else if tokens == 1 {
            let share = heads.div_ceil(threads);
            let pieces = out.par_chunks_mut(share * head_dim).enumerate();
            pieces.for_each(|(index, out)| {
                let first = index * share;
                self.piece(0..1, first..first + out.len() / head_dim, q, out);
            });
        } else {
            // Late queries see more than early ones: rayon splits down to single pieces and lets
            // idle threads steal, which evens that out.
            let most = tokens.div_ceil(threads).min(QUERIES_PER_PIECE);
            let pieces = out.par_chunks_mut(most * row).enumerate();
            pieces.for_each(|(index, out)| {
                let first = index * most;
                self.piece(first..first + out.len() / row, 0..heads, q, out);
            });
        }
        Ok(())
    }

    /// Some heads of some queries: `out` is `[queries.len(), query_heads.len(), head_dim]`, and `q`
    /// holds all of the call.
    fn piece(&self, queries: Range<usize>, query_heads: Range<usize>, q: &[f32], out: &mut [f32]) {
        let AttentionShape {
            heads,
            kv_heads,
            head_dim,
            capacity,
            window,
            ..
        } = *self.shape;
        let per_kv_head = heads / kv_heads;
        let head_len = capacity * head_dim;
        let mut scores = SCORES.take();
        for kv_head in query_heads.start / per_kv_head..query_heads.end.div_ceil(per_kv_head) {
            let of_kv_head = kv_head * per_kv_head..(kv_head + 1) * per_kv_head;
            let first_head = of_kv_head.start.max(query_heads.start);
            let count = of_kv_head.end.min(query_heads.end) - first_head;
            let stretch = kv_head * head_len..(kv_head + 1) * head_len;
            let head = tile::Head {
                keys: &self.cache.keys[stretch.clone()],
                values: &self.cache.values[stretch],
                head_dim,
                scale: self.shape.scale,
                soft_cap: self.shape.soft_cap,
            };
            let rows = queries.len() * count;
            for first_row in (0..rows).step_by(tile::MOST_ROWS) {
                let len = tile::MOST_ROWS.min(rows - first_row);
                let mut tile = tile::Tile::new(q, len);
                for (index, row) in tile.rows_mut().iter_mut().enumerate() {
                    let (query, head) = ((first_row + index) / count, (first_row + index) % count);
                    let end = self.start_position + queries.start + query + 1;
                    let head = first_head + head;
                    let place = query * query_heads.len() + head - query_heads.start;
                    *row = tile::Row {
                        query: ((queries.start + query) * heads + head) * head_dim,
                        out: place * head_dim,
                        first: end.saturating_sub(window.unwrap_or(usize::MAX)),
                        end,
                    };
                }
                tile::attend(self.instruction_set, &head, &tile, &mut scores, out);
            }
        }
        SCORES.set(scores);
    }

    /// The number of queries, if everything fits together.
    fn check(&self, q: &[f32], out: &[f32]) -> Result<usize, Error> {
        let AttentionShape {
            heads,
            kv_heads,
            head_dim,
            capacity,
            window,
            ..
        } = *self.shape;
        let refuse = |what, expected, found| {
            Err(Error::AttentionShape {
                what,
                expected,
                found,
            })
        };
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
            return refuse(
                "number of query heads",
                "a positive multiple of the key/value heads",
                heads,
            );
        }
        if head_dim == 0 {
            return refuse("head dimension", "positive", head_dim);
        }
        if !capacity.is_multiple_of(KEY_BLOCK) {
            return refuse("cache's capacity", "a multiple of 16", capacity);
        }
        if window == Some(0) {
            return refuse("sliding window", "at least one position", 0);
        }
        let Some(row) = heads.checked_mul(head_dim) else {
            return Err(Error::TooLarge {
                what: "query",
                rows: heads,
                cols: head_dim,
            });
        };
        let tokens = q.len() / row;
        expect_length("queries (values)", (tokens, row), q.len())?;
        expect_length("attention output (values)", (tokens, row), out.len())?;
        let Some(positions) = kv_heads.checked_mul(capacity) else {
            return Err(Error::TooLarge {
                what: "cache",
                rows: kv_heads,
                cols: capacity,
            });
        };
        expect_length(
            "keys (values)",
            (positions, head_dim),
            self.cache.keys.len(),
        )?;
        expect_length(
            "values (values)",
            (positions, head_dim),
            self.cache.values.len(),
        )?;
        match self.start_position.checked_add(tokens) {
            Some(end) if end <= capacity => Ok(tokens),
            end => refuse(
                "end position",
                "at most the cache's capacity",
                end.unwrap_or(usize::MAX),
            ),
        }
    }
}
