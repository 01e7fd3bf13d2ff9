//! The two hashes of the row tree, 16 bytes each. Not a general hash interface.
//! Specification: docs/format/row-store.md, "Hashes".

use std::sync::LazyLock;

use blake3::{
    Hasher,
    hazmat::{ContextKey, HasherExt, hash_derive_key_context},
};

use crate::layout::RowId;

/// Bytes of a hash in the tree. The publisher is trusted, so second preimages are what matters and
/// 128 bits are enough; 32 bytes would double every path.
pub const HASH_BYTES: usize = 16;

/// A leaf or node of the tree: the first 16 bytes of a BLAKE3 output.
pub type RowHash = [u8; HASH_BYTES];

/// BLAKE3 `derive_key` context of leaves.
pub const LEAF_CONTEXT: &str = "gkq row leaf v1";
/// BLAKE3 `derive_key` context of nodes.
pub const NODE_CONTEXT: &str = "gkq row node v1";

/// The leaf that pads the tree to a power of two: the leaf hash of no input at all, which no row
/// can have, for a row's input is never shorter than its index.
pub const EMPTY_LEAF: RowHash = [
    0xcd, 0xfb, 0x72, 0x26, 0xcc, 0x46, 0xda, 0x46, 0xc5, 0x1a, 0x71, 0x4f, 0x20, 0x9b, 0x93, 0xe0,
];

// Hashing the context costs as much as hashing a short row, so each is hashed once.
static LEAF_KEY: LazyLock<ContextKey> = LazyLock::new(|| hash_derive_key_context(LEAF_CONTEXT));
static NODE_KEY: LazyLock<ContextKey> = LazyLock::new(|| hash_derive_key_context(NODE_CONTEXT));

/// Hash of row `id`: its index as 8 bytes little-endian, then its bytes.
///
/// The index is hashed so that a row served in place of another one is refused.
#[must_use]
pub fn leaf_hash(id: RowId, row: &[u8]) -> RowHash {
    let mut hasher = Hasher::new_from_context_key(&LEAF_KEY);
    hasher.update(&id.0.to_le_bytes());
    hasher.update(row);
    truncated(&hasher)
}

/// Hash of the node above `left` and `right`.
#[must_use]
pub fn node_hash(left: &RowHash, right: &RowHash) -> RowHash {
    let mut hasher = Hasher::new_from_context_key(&NODE_KEY);
    hasher.update(left);
    hasher.update(right);
    truncated(&hasher)
}

fn truncated(hasher: &Hasher) -> RowHash {
    let mut hash = RowHash::default();
    hasher.finalize_xof().fill(&mut hash);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, word for word, without the cached contexts.
    fn derived(context: &str, input: &[u8]) -> RowHash {
        let whole = blake3::derive_key(context, input);
        whole[..HASH_BYTES].try_into().unwrap()
    }

    #[test]
    fn hashes_are_truncated_derive_key_outputs() {
        let row: Vec<u8> = (0..=255).cycle().take(3000).collect();
        let input = [&7_u64.to_le_bytes()[..], &row].concat();
        assert_eq!(
            leaf_hash(RowId(7), &row),
            derived("gkq row leaf v1", &input)
        );
        let (left, right) = ([1; 16], [2; 16]);
        let input = [left, right].concat();
        assert_eq!(node_hash(&left, &right), derived("gkq row node v1", &input));
        assert_ne!(node_hash(&left, &right), node_hash(&right, &left));
    }

    #[test]
    fn the_empty_leaf_is_the_leaf_hash_of_nothing() {
        assert_eq!(EMPTY_LEAF, derived(LEAF_CONTEXT, b""));
    }
}
