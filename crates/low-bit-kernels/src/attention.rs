//! Causal attention of grouped heads over a key/value cache.
//!
//! `softmax(scale * q . k) * v` in two passes per (query, head), f32 throughout; no mask is built
//! and no key is repeated for the heads that share it. A (query, head) is computed from its own
//! query and its own stretch of the cache in one fixed order, so its value does not depend on the
//! other queries of the call or on the threads. What this deliberately is not: a cache (the caller
//! owns it) and rotary embedding (already applied to `q` and the keys).

use crate::matrix::expect_length;
use crate::{Error, InstructionSet};
use rayon::prelude::*;
use std::cell::Cell;

pub(crate) mod row;
#[cfg(test)]
mod tests;

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
    /// Positions that the cache has room for.
    pub capacity: usize,
    /// Sliding window: a query at position `p` sees `p - window + 1 ..= p`. `None`: all up to `p`.
    pub window: Option<usize>,
    /// Multiplies each score, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)` where given.
    pub soft_cap: Option<f32>,
}

/// One layer's cache, `[kv_heads, capacity, head_dim]` each.
#[derive(Debug, Clone, Copy)]
pub struct KeyValues<'a> {
    /// Keys, rotary embedding applied.
    pub keys: &'a [f32],
    /// Values.
    pub values: &'a [f32],
}

thread_local! {
    /// Scores of one query, kept for its buffer.
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
pub fn attend(
    shape: &AttentionShape,
    q: &[f32],
    cache: KeyValues<'_>,
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
struct Attention<'a> {
    shape: &'a AttentionShape,
    cache: KeyValues<'a>,
    start_position: usize,
    instruction_set: InstructionSet,
}

impl Attention<'_> {
    fn run(&self, q: &[f32], out: &mut [f32]) -> Result<(), Error> {
        let head_dim = self.shape.head_dim;
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
        if work < LEAST_PARALLEL_WORK || rayon::current_num_threads() == 1 {
            for (index, (q, out)) in q
                .chunks_exact(head_dim)
                .zip(out.chunks_exact_mut(head_dim))
                .enumerate()
            {
                self.row(index, q, out);
            }
        } else {
            // Late queries see more than early ones: rayon splits down to single rows and lets
            // idle threads steal, which evens that out.
            let rows = q
                .par_chunks_exact(head_dim)
                .zip(out.par_chunks_exact_mut(head_dim));
            rows.enumerate()
                .for_each(|(index, (q, out))| self.row(index, q, out));
        }
        Ok(())
    }

    /// Row `index` of `[tokens * heads]`.
    fn row(&self, index: usize, q: &[f32], out: &mut [f32]) {
        let AttentionShape {
            heads,
            kv_heads,
            head_dim,
            capacity,
            window,
            ..
        } = *self.shape;
        let (token, head) = (index / heads, index % heads);
        let kv_head = head / (heads / kv_heads);
        let end = self.start_position + token + 1;
        let first = end.saturating_sub(window.unwrap_or(usize::MAX));
        let range = (kv_head * capacity + first) * head_dim..(kv_head * capacity + end) * head_dim;
        let mut scores = SCORES.take();
        scores.resize(end - first, 0.0);
        let operands = row::Operands {
            q,
            keys: &self.cache.keys[range.clone()],
            values: &self.cache.values[range],
            scale: self.shape.scale,
            soft_cap: self.shape.soft_cap,
        };
        row::attend_row(self.instruction_set, &operands, &mut scores, out);
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
