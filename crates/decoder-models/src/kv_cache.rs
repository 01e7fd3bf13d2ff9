//! Keys and values of the positions seen so far, one buffer pair per layer, written in place: no
//! concatenation per token. Buffers of short sequences are there from the start, those of longer
//! ones grow by half up to a fixed capacity; layers with a sliding window let old positions go, so
//! their size is bounded by the window. Eviction policy beyond that, and sharing between sessions,
//! are not here.

#[cfg(test)]
mod tests;

use std::ops::Range;

use low_bit_kernels::attention::{KEY_BLOCK, key_index};

use crate::Error;
use crate::buffers::Buffers;

/// Positions of a layer's first allocation.
const FIRST_POSITIONS: usize = 64;

/// Sequences of at most so many positions get their buffers before the first pass: fresh from the
/// system, they become resident as they are written. Taken between a prompt's activations, they
/// leave holes behind that nothing fits into (measured: 10 MB for Gemma-3-270M).
const AT_ONCE_POSITIONS: usize = 1024;

/// Longest pass whose buffers stay with the sequence.
const KEPT_ROWS: usize = 16;

/// Released positions are a multiple of this: whole key blocks, and not a move for every few.
const RELEASE_POSITIONS: usize = 4 * KEY_BLOCK;

/// The attention state of one sequence.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    capacity: usize,
    length: usize,
    /// Of the last pass, if it was a short one.
    buffers: Buffers,
}

impl KvCache {
    /// An empty cache; `windows` holds one entry per layer, some for a sliding one.
    pub(crate) fn new(
        capacity: usize,
        kv_heads: usize,
        head_dim: usize,
        windows: &[Option<usize>],
    ) -> Self {
        let layers = windows
            .iter()
            .map(|window| {
                let mut layer = LayerCache::new(kv_heads, head_dim, *window);
                if capacity <= AT_ONCE_POSITIONS {
                    layer.take_room(capacity);
                }
                layer
            })
            .collect();
        Self {
            layers,
            capacity,
            length: 0,
            buffers: Buffers::default(),
        }
    }

    /// Positions held; the next token stands at this position.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no position is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Positions the cache may come to hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes allocated for keys and values at present.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::allocated_bytes).sum()
    }

    /// Rolls back to the first `length` positions, to continue from there.
    ///
    /// # Errors
    /// [`Error::CacheRollback`] if the cache is shorter, or if a sliding layer has already let go a
    /// position that the next token would see.
    pub fn truncate(&mut self, length: usize) -> Result<(), Error> {
        let released = self
            .layers
            .iter()
            .map(|layer| layer.first)
            .max()
            .unwrap_or(0);
        let intact = self
            .layers
            .iter()
            .all(|layer| layer.first <= layer.first_needed(length));
        if length > self.length || !intact {
            return Err(Error::CacheRollback {
                asked: length,
                length: self.length,
                released,
            });
        }
        self.length = length;
        Ok(())
    }

    /// Refuses `added` positions that would not fit.
    pub(crate) fn check_room(&self, added: usize) -> Result<(), Error> {
        if added > self.capacity - self.length {
            let (capacity, length) = (self.capacity, self.length);
            return Err(Error::CacheFull {
                capacity,
                length,
                added,
            });
        }
        Ok(())
    }

    /// The layers, for one forward pass over the positions from [`len`](Self::len).
    pub(crate) fn layers_mut(&mut self) -> &mut [LayerCache] {
        &mut self.layers
    }

    /// Buffers for a pass.
    pub(crate) fn take_buffers(&mut self) -> Buffers {
        std::mem::take(&mut self.buffers)
    }

    /// Keeps a pass's buffers for the next one. A prompt's are let go: the tokens after it come one
    /// by one.
    pub(crate) fn keep_buffers(&mut self, buffers: Buffers, rows: usize) {
        if rows <= KEPT_ROWS {
            self.buffers = buffers;
        }
    }

    /// Counts positions that every layer has taken. Until then they are not there, so a pass that
    /// failed half way leaves the cache as it was.
    pub(crate) fn advance(&mut self, added: usize) {
        self.length += added;
    }

    /// Layers, key heads and head width, to compare with a decoder's.
    pub(crate) fn geometry(&self) -> [usize; 3] {
        let first = self.layers.first();
        [
            self.layers.len(),
            first.map_or(0, |layer| layer.kv_heads),
            first.map_or(0, |layer| layer.head_dim),
        ]
    }
}

/// Keys and values of one layer; slot 0 is position `first`, and slots are whole key blocks.
#[derive(Debug)]
pub(crate) struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
    kv_heads: usize,
    head_dim: usize,
    slots: usize,
    first: usize,
    window: Option<usize>,
}

impl LayerCache {
    fn new(kv_heads: usize, head_dim: usize, window: Option<usize>) -> Self {
        Self {
            keys: Vec::new(),
            values: Vec::new(),
            kv_heads,
            head_dim,
            slots: 0,
            first: 0,
            window,
        }
    }

    /// Keys, `[kv_heads, slots / KEY_BLOCK, head_dim, KEY_BLOCK]`.
    pub(crate) fn keys(&self) -> &[f32] {
        &self.keys
    }

    /// Values, `[kv_heads, slots, head_dim]`.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Positions that the buffers have room for.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Position of slot 0.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    fn allocated_bytes(&self) -> usize {
        (self.keys.capacity() + self.values.capacity()) * size_of::<f32>()
    }

    /// The first position that a query at `position` sees.
    fn first_needed(&self, position: usize) -> usize {
        self.window
            .map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Writes `[added, kv_heads * head_dim]` keys and values at the positions from `start`; the
    /// buffers never outgrow `capacity` positions, rounded up to whole key blocks.
    pub(crate) fn append(&mut self, start: usize, keys: &[f32], values: &[f32], capacity: usize) {
        let row = self.kv_heads * self.head_dim;
        let end = start + keys.len() / row;
        if end - self.first > self.slots {
            self.make_room(start, end, capacity);
        }
        let (heads, width, slots) = (self.kv_heads, self.head_dim, self.slots);
        let slot = start - self.first;
        for (index, (keys, values)) in keys
            .chunks_exact(row)
            .zip(values.chunks_exact(row))
            .enumerate()
        {
            for head in 0..heads {
                let of_head = head * width..(head + 1) * width;
                let target = head * slots * width;
                let stored = &mut self.keys[target..target + slots * width];
                for (place, key) in keys[of_head.clone()].iter().enumerate() {
                    stored[key_index(width, slot + index, place)] = *key;
                }
                let target = target + (slot + index) * width;
                self.values[target..target + width].copy_from_slice(&values[of_head]);
            }
        }
    }

    /// Room for `capacity` positions, or for as many as a window is grown to.
    fn take_room(&mut self, capacity: usize) {
        let slots = self.window.map_or(capacity, |window| {
            let roomy = window.saturating_add(window / 2);
            capacity.min(roomy.saturating_add(RELEASE_POSITIONS))
        });
        self.slots = slots.next_multiple_of(KEY_BLOCK);
        let values = self.kv_heads * self.slots * self.head_dim;
        (self.keys, self.values) = (vec![0.0; values], vec![0.0; values]);
    }

    /// Lets go what no position from `start` on can see, then grows if that was not enough.
    fn make_room(&mut self, start: usize, end: usize, capacity: usize) {
        let unneeded = self.first_needed(start).saturating_sub(self.first);
        let released = unneeded - unneeded % RELEASE_POSITIONS;
        let kept = released..start - self.first;
        let needed = end - self.first - released;
        // Half of the slots free after the move, so that a window is moved once per window.
        let grown = needed
            .saturating_add(needed / 2)
            .max(FIRST_POSITIONS)
            .max(self.slots);
        let roomy = if needed.saturating_mul(4) > self.slots.saturating_mul(3) {
            grown
        } else {
            self.slots
        };
        let slots = roomy.min(capacity - self.first - released).max(needed);
        let slots = slots.next_multiple_of(KEY_BLOCK);
        // Whole key blocks, for the keys' sake; released positions are some already.
        let kept = kept.start..kept.end.next_multiple_of(KEY_BLOCK);
        for buffer in [&mut self.keys, &mut self.values] {
            *buffer = moved(
                buffer,
                self.slots,
                slots,
                kept.clone(),
                [self.kv_heads, self.head_dim],
            );
        }
        self.slots = slots;
        self.first += released;
    }
}

/// `[heads, old_slots, width]` as `[heads, slots, width]`, the slots `kept` first. Within whole key
/// blocks it makes no difference how keys lie.
fn moved(
    buffer: &[f32],
    old_slots: usize,
    slots: usize,
    kept: Range<usize>,
    [heads, width]: [usize; 2],
) -> Vec<f32> {
    let mut target = vec![0.0; heads * slots * width];
    for head in 0..heads {
        let from =
            &buffer[(head * old_slots + kept.start) * width..(head * old_slots + kept.end) * width];
        target[head * slots * width..][..from.len()].copy_from_slice(from);
    }
    target
}
