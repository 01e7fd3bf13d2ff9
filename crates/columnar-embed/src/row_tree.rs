//! The hash tree over the rows of one matrix: any row can be checked alone, so any mirror may
//! serve it. Not a hash of a file: leaves are rows, not blocks, so that a check reads no more than
//! the row. Specification: docs/format/row-store.md, "Row tree".
//!
//! ```text
//! level 0 (root)                     o                  pinned in the knot
//!       ...                        /   \
//! level P = min(depth, 13)   o   o  ..  o   o           pinned in the knot, at most 8,192 nodes
//!       ...                 / \
//! level depth              r0 r1 r2 .. r(n-1) e e e     leaves; e = the empty leaf
//! ```
//! What lies between the leaves and level P is the *path table*: for each row the siblings from
//! its leaf upward, [`TreeShape::path_bytes`] bytes at a fixed stride.

mod builder;
mod hash;
mod pinned;
mod shape;
#[cfg(test)]
mod tests;

pub use builder::RowTreeBuilder;
pub use hash::{EMPTY_LEAF, HASH_BYTES, LEAF_CONTEXT, NODE_CONTEXT, RowHash, leaf_hash, node_hash};
pub use pinned::{PathMismatch, RowTree, verify_row};
pub use shape::{MAX_PINNED_LEVEL, MAX_ROWS, TreeShape};
