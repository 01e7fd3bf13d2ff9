//! Numbers that follow from the number of rows: depth, pinned level, bytes of a path. Not hashes.
//! Specification: docs/format/row-store.md, "Shape".

use super::hash::HASH_BYTES;
use crate::{Error, layout::RowId};

/// The deepest level that may be pinned: 2^13 = 8,192 nodes, 128 KiB in the knot.
pub const MAX_PINNED_LEVEL: u32 = 13;

/// Most rows of one tree, 2^33. The builder holds one subtree below the pinned level in memory:
/// at this many rows 2^20 leaves, 32 MiB with its inner nodes.
pub const MAX_ROWS: u64 = 1 << 33;

/// The shape of the tree over a number of rows; nothing about it is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeShape {
    rows: u64,
    depth: u32,
}

impl TreeShape {
    /// Shape of the tree over `rows` rows.
    ///
    /// # Errors
    /// [`Error::TreeRows`] unless `rows` is from 1 to [`MAX_ROWS`].
    pub fn new(rows: u64) -> Result<Self, Error> {
        if rows == 0 || rows > MAX_ROWS {
            return Err(Error::TreeRows { rows });
        }
        Ok(Self {
            rows,
            depth: rows.next_power_of_two().trailing_zeros(),
        })
    }

    /// Number of rows, from 1 to [`MAX_ROWS`].
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Level of the leaves; the root is level 0, level `l` has `2^l` nodes.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The pinned level: the deepest one with at most 8,192 nodes.
    #[must_use]
    pub fn pinned_level(&self) -> u32 {
        self.depth.min(MAX_PINNED_LEVEL)
    }

    /// Bytes of all pinned nodes: `2^pinned_level * 16`, at most 128 KiB.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        (HASH_BYTES as u64) << self.pinned_level()
    }

    /// Levels between a leaf and the pinned node above it, from 0 to 20.
    #[must_use]
    pub fn path_levels(&self) -> u32 {
        self.depth - self.pinned_level()
    }

    /// Bytes of one row's path: 16 for each level below the pinned one, 0 up to 8,192 rows.
    #[must_use]
    pub fn path_bytes(&self) -> u32 {
        self.path_levels() * 16
    }

    /// Bytes of the path table: `rows * path_bytes`.
    #[must_use]
    pub fn path_table_bytes(&self) -> u64 {
        self.rows * u64::from(self.path_bytes())
    }

    /// Index of the pinned node above row `id`, from 0 to 8,191 for rows of the tree.
    #[must_use]
    pub fn pinned_index(&self, id: RowId) -> u64 {
        id.0 >> self.path_levels()
    }
}
