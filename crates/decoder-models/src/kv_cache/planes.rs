//! A layer's keys and values in one element type: where a position's numbers lie, and how they move
//! to larger buffers. How many positions there are, and which may go, is decided in `kv_cache.rs`.

use std::ops::Range;

use low_bit_kernels::attention::{AttentionShape, CacheValue, KeyValues, attend, key_index};

/// Keys and values of one layer.
#[derive(Debug, Default)]
pub(crate) struct Planes<E> {
    /// `[kv_heads, slots / KEY_BLOCK, head_dim, KEY_BLOCK]`.
    keys: Vec<E>,
    /// `[kv_heads, slots, head_dim]`.
    values: Vec<E>,
    /// One key row in its stored form, on its way to its places.
    row: Vec<E>,
}

/// How the planes of a layer are cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Positions that there is room for.
    pub(crate) slots: usize,
}

impl Geometry {
    fn values(self) -> usize {
        self.kv_heads * self.slots * self.head_dim
    }
}

impl<E: CacheValue + Default> Planes<E> {
    pub(crate) fn allocated_bytes(&self) -> usize {
        (self.keys.capacity() + self.values.capacity() + self.row.capacity()) * size_of::<E>()
    }

    /// Fresh planes, untouched until they are written.
    pub(crate) fn take(&mut self, geometry: Geometry) {
        self.keys = vec![E::default(); geometry.values()];
        self.values = vec![E::default(); geometry.values()];
    }

    /// Rounds `[added, kv_heads * head_dim]` keys and values into the slots from `slot` on.
    pub(crate) fn write(
        &mut self,
        geometry: Geometry,
        slot: usize,
        keys: &[f32],
        values: &[f32],
    ) -> Result<(), low_bit_kernels::Error> {
        let Geometry {
            kv_heads,
            head_dim: width,
            slots,
        } = geometry;
        let row = kv_heads * width;
        self.row.resize(row, E::default());
        let rows = keys.chunks_exact(row).zip(values.chunks_exact(row));
        for (slot, (keys, values)) in (slot..).zip(rows) {
            E::store(keys, &mut self.row)?;
            for (head, values) in values.chunks_exact(width).enumerate() {
                let of_head = head * slots * width;
                let stored = &mut self.keys[of_head..of_head + slots * width];
                for (place, key) in self.row[head * width..(head + 1) * width]
                    .iter()
                    .enumerate()
                {
                    stored[key_index(width, slot, place)] = *key;
                }
                let target = of_head + slot * width;
                E::store(values, &mut self.values[target..target + width])?;
            }
        }
        Ok(())
    }

    /// Room for `slots`, with the slots `kept` of the present ones, whole key blocks, first. Planes
    /// that do not grow are kept, so that a window which moves on takes no memory.
    pub(crate) fn resize(&mut self, from: Geometry, slots: usize, kept: Range<usize>) {
        for plane in [&mut self.keys, &mut self.values] {
            if slots == from.slots {
                move_within(plane, from, kept.clone());
            } else {
                *plane = moved(plane, from, slots, kept.clone());
            }
        }
    }

    /// Attention of `query` over the slots up to `start_slot` and its own rows.
    pub(crate) fn attend(
        &self,
        shape: &AttentionShape,
        query: &[f32],
        start_slot: usize,
        out: &mut [f32],
    ) -> Result<(), low_bit_kernels::Error> {
        let cache = KeyValues {
            keys: &self.keys,
            values: &self.values,
        };
        attend(shape, query, cache, start_slot, out)
    }
}

#[cfg(test)]
impl<E: CacheValue> Planes<E> {
    /// The key and the value at one place of a head, widened.
    pub(crate) fn at(
        &self,
        geometry: Geometry,
        head: usize,
        slot: usize,
        place: usize,
    ) -> [f32; 2] {
        let width = geometry.head_dim;
        let of_head = head * geometry.slots * width;
        let key = self.keys[of_head + key_index(width, slot, place)];
        let value = self.values[of_head + slot * width + place];
        [key.widen(), value.widen()]
    }

    pub(crate) fn keys_at(&self) -> *const () {
        self.keys.as_ptr().cast()
    }
}

/// The slots `kept` of each head to its first ones. What lies after them is stale, and nothing reads it
/// before it is written.
fn move_within<E: CacheValue>(plane: &mut [E], geometry: Geometry, kept: Range<usize>) {
    let width = geometry.head_dim;
    for of_head in plane.chunks_exact_mut(geometry.slots * width) {
        of_head.copy_within(kept.start * width..kept.end * width, 0);
    }
}

/// `[heads, from.slots, width]` as `[heads, slots, width]`, the slots `kept` first. Within whole key
/// blocks it makes no difference how keys lie.
fn moved<E: CacheValue + Default>(
    plane: &[E],
    from: Geometry,
    slots: usize,
    kept: Range<usize>,
) -> Vec<E> {
    let width = from.head_dim;
    let mut target = vec![E::default(); Geometry { slots, ..from }.values()];
    for head in 0..from.kv_heads {
        let first = (head * from.slots + kept.start) * width;
        let kept = &plane[first..first + kept.len() * width];
        target[head * slots * width..][..kept.len()].copy_from_slice(kept);
    }
    target
}
