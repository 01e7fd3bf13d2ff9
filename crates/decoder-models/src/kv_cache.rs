//! Keys and values of the positions seen so far, one buffer pair per layer, written in place: no
//! concatenation per token. They are rounded to the cache's [`KvPrecision`] as they are written, and
//! every pass reads them back from here, its own included: whole or in pieces, the bits are the same.
//! Buffers of short sequences are there from the start, those of longer ones grow by half up to a
//! fixed capacity; layers with a sliding window let old positions go, so their size is bounded by the
//! window. Eviction policy beyond that, and sharing between sessions,
//! are not here.

mod planes;
#[cfg(test)]
mod tests;

use low_bit_kernels::attention::{AttentionShape, KEY_BLOCK};

use crate::Error;
use crate::buffers::PassBuffers;
use planes::{Geometry, Planes};

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

/// How a cache stores keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvPrecision {
    /// IEEE half: half the memory and half the traffic of a long context, for rounding each key and
    /// value to 11 bits. llama.cpp's default too.
    #[default]
    F16,
    /// As they were computed, for comparisons.
    F32,
}

/// The attention state of one sequence.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    capacity: usize,
    length: usize,
    /// Of the last pass, if it was a short one.
    buffers: PassBuffers,
}

impl KvCache {
    /// An empty cache; `windows` holds one entry per layer, some for a sliding one.
    pub(crate) fn new(
        capacity: usize,
        precision: KvPrecision,
        [kv_heads, head_dim]: [usize; 2],
        windows: &[Option<usize>],
    ) -> Self {
        let layers = windows
            .iter()
            .map(|window| {
                let mut layer = LayerCache::new(precision, [kv_heads, head_dim], *window);
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
            buffers: PassBuffers::default(),
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
    pub(crate) fn take_buffers(&mut self) -> PassBuffers {
        std::mem::take(&mut self.buffers)
    }

    /// Keeps a pass's buffers for the next one. A prompt's are let go: the tokens after it come one
    /// by one.
    pub(crate) fn keep_buffers(&mut self, buffers: PassBuffers, rows: usize) {
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
    stored: Stored,
    kv_heads: usize,
    head_dim: usize,
    slots: usize,
    first: usize,
    window: Option<usize>,
}

#[derive(Debug)]
enum Stored {
    F16(Planes<u16>),
    F32(Planes<f32>),
}

/// The same text for either type of planes.
macro_rules! with_planes {
    ($stored:expr, $planes:ident => $work:expr) => {
        match $stored {
            Stored::F16($planes) => $work,
            Stored::F32($planes) => $work,
        }
    };
}

impl LayerCache {
    fn new(
        precision: KvPrecision,
        [kv_heads, head_dim]: [usize; 2],
        window: Option<usize>,
    ) -> Self {
        let stored = match precision {
            KvPrecision::F16 => Stored::F16(Planes::default()),
            KvPrecision::F32 => Stored::F32(Planes::default()),
        };
        Self {
            stored,
            kv_heads,
            head_dim,
            slots: 0,
            first: 0,
            window,
        }
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            slots: self.slots,
        }
    }

    fn allocated_bytes(&self) -> usize {
        with_planes!(&self.stored, planes => planes.allocated_bytes())
    }

    /// The first position that a query at `position` sees.
    fn first_needed(&self, position: usize) -> usize {
        self.window
            .map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Writes `[added, kv_heads * head_dim]` keys and values at the positions from `start`; the
    /// buffers never outgrow `capacity` positions, rounded up to whole key blocks.
    pub(crate) fn append(
        &mut self,
        start: usize,
        keys: &[f32],
        values: &[f32],
        capacity: usize,
    ) -> Result<(), Error> {
        let end = start + keys.len() / (self.kv_heads * self.head_dim);
        if end - self.first > self.slots {
            self.make_room(start, end, capacity);
        }
        let (geometry, slot) = (self.geometry(), start - self.first);
        with_planes!(&mut self.stored, planes => planes.write(geometry, slot, keys, values))
            .map_err(|source| Error::operation("key/value cache", source))
    }

    /// Attention of `query`, `[rows, heads, head_dim]` at the positions from `start`, which have been
    /// appended; `shape` may leave its capacity open.
    pub(crate) fn attend(
        &self,
        shape: AttentionShape,
        query: &[f32],
        start: usize,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let shape = &AttentionShape {
            capacity: self.slots,
            ..shape
        };
        // Scores depend on distances only, so positions may be counted from the oldest one kept.
        let start_slot = start - self.first;
        with_planes!(&self.stored, planes => planes.attend(shape, query, start_slot, out))
            .map_err(|source| Error::operation("attention", source))
    }

    /// Room for `capacity` positions, or for as many as a window is grown to.
    fn take_room(&mut self, capacity: usize) {
        let slots = self.window.map_or(capacity, |window| {
            let roomy = window.saturating_add(window / 2);
            capacity.min(roomy.saturating_add(RELEASE_POSITIONS))
        });
        self.slots = slots.next_multiple_of(KEY_BLOCK);
        let geometry = self.geometry();
        with_planes!(&mut self.stored, planes => planes.take(geometry));
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
        let from = self.geometry();
        with_planes!(&mut self.stored, planes => planes.resize(from, slots, kept));
        self.slots = slots;
        self.first += released;
    }
}

#[cfg(test)]
impl LayerCache {
    /// The key and the value at one place of a head at `position`.
    fn at(&self, head: usize, position: usize, place: usize) -> [f32; 2] {
        let (geometry, slot) = (self.geometry(), position - self.first);
        with_planes!(&self.stored, planes => planes.at(geometry, head, slot, place))
    }

    fn keys_at(&self) -> *const () {
        with_planes!(&self.stored, planes => planes.keys_at())
    }
}
