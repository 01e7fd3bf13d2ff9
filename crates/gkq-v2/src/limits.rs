//! Upper bounds that hold before anything is allocated, each with its reason. They bound the front
//! only: payloads are never read by this crate. Specification: `docs/format/gkq-v2.md`.

/// Longest front, in bytes: the largest block table (8 MiB), its names, and row trees beside it.
pub const FRONT_MAX_BYTES: u64 = 32 << 20;
/// Most blocks: a mixture of 256 experts in 60 layers of three matrices each has 46,080 tensors.
pub const BLOCKS_MAX: u32 = 65_536;
/// Most sections: a row store needs five, and a model may have one per layer.
pub const SECTIONS_MAX: u32 = 4_096;
/// Longest tensor name in bytes; names in public checkpoints stay below 128.
pub const NAME_MAX_BYTES: u32 = 512;
/// Most dimensions of a tensor, as in GGML.
pub const DIMS_MAX: usize = 4;
/// Most nodes of a row tree kept in the front: 128 KiB of hashes.
pub const PINNED_NODES_MAX: u64 = 8_192;
/// Most rows of a row tree: at this many, one subtree below the pinned level is still only 32 MiB.
pub const TREE_ROWS_MAX: u64 = 1 << 33;
