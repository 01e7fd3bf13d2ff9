//! A published tree and the check of one row against it. Not the fetching of paths: see `verify`.
//! Specification: docs/format/row-store.md, "Checking a row".

use bytes::Bytes;

use super::{
    hash::{HASH_BYTES, RowHash, leaf_hash, node_hash},
    shape::TreeShape,
};
use crate::{Error, layout::RowId};

/// What a knot pins of a row tree: its root and one level of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowTree {
    /// Number of rows.
    pub rows: u64,
    /// Level 0.
    pub root: RowHash,
    /// The pinned level; [`TreeShape::pinned_level`] of these rows.
    pub pinned_level: u32,
    /// All nodes of the pinned level in order, 16 bytes each, padding included.
    pub pinned_nodes: Bytes,
}

impl RowTree {
    /// Checks that the pinned nodes are as many as the rows ask for and hash to the root.
    ///
    /// # Errors
    /// [`Error::TreeRows`], [`Error::TreeShape`] or [`Error::TreeRoot`], by what is wrong.
    pub fn check(&self) -> Result<TreeShape, Error> {
        let shape = TreeShape::new(self.rows)?;
        let wrong = |part, expected, found| Error::TreeShape {
            rows: self.rows,
            part,
            expected,
            found,
        };
        if self.pinned_level != shape.pinned_level() {
            let (expected, found) = (shape.pinned_level(), self.pinned_level);
            return Err(wrong("pinned level", expected.into(), found.into()));
        }
        if self.pinned_nodes.len() as u64 != shape.pinned_bytes() {
            let found = self.pinned_nodes.len() as u64;
            return Err(wrong("bytes of pinned nodes", shape.pinned_bytes(), found));
        }
        let (nodes, _) = self.pinned_nodes.as_chunks::<HASH_BYTES>();
        let found = root_of(nodes);
        if found != self.root {
            return Err(Error::TreeRoot {
                expected: self.root,
                found,
            });
        }
        Ok(shape)
    }
}

/// The root above one whole level of nodes, whose number is a power of two.
pub(super) fn root_of(nodes: &[RowHash]) -> RowHash {
    let mut level = nodes.to_vec();
    while level.len() > 1 {
        level = parents(&level);
    }
    level.first().copied().unwrap_or_default()
}

/// The level above `level`, half as long.
pub(super) fn parents(level: &[RowHash]) -> Vec<RowHash> {
    let (pairs, _) = level.as_chunks::<2>();
    pairs
        .iter()
        .map(|[left, right]| node_hash(left, right))
        .collect()
}

/// A row and its path lead to another node than the pinned one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMismatch {
    /// The pinned node above the row; zeros where the tree has no such row.
    pub expected: RowHash,
    /// The node that the row and its path give.
    pub found: RowHash,
}

/// Checks `row` as row `id` of a tree: hashes it upward through `path` to its pinned node.
///
/// `path` is the row's entry of the path table: siblings from the leaf upward,
/// [`TreeShape::path_bytes`] bytes. `pinned_nodes` is the whole pinned level.
///
/// # Errors
/// [`PathMismatch`] where the node differs; a path or a pinned level of another length never
/// matches.
pub fn verify_row(
    shape: TreeShape,
    id: RowId,
    row: &[u8],
    path: &[u8],
    pinned_nodes: &[u8],
) -> Result<(), PathMismatch> {
    let (siblings, rest) = path.as_chunks::<HASH_BYTES>();
    let mut found = leaf_hash(id, row);
    for (level, sibling) in siblings.iter().enumerate() {
        let is_right = (id.0 >> level) & 1 == 1;
        found = if is_right {
            node_hash(sibling, &found)
        } else {
            node_hash(&found, sibling)
        };
    }
    let (nodes, _) = pinned_nodes.as_chunks::<HASH_BYTES>();
    let pinned = usize::try_from(shape.pinned_index(id))
        .ok()
        .and_then(|index| nodes.get(index));
    let whole_path = rest.is_empty() && path.len() as u64 == u64::from(shape.path_bytes());
    match pinned {
        Some(expected) if *expected == found && whole_path && id.0 < shape.rows() => Ok(()),
        pinned => Err(PathMismatch {
            expected: pinned.copied().unwrap_or_default(),
            found,
        }),
    }
}
