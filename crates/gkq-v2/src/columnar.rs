//! What a row store of one tensor must have, and where the knot keeps the row tree that proves its
//! rows. Hashing rows is not done here. Specification: `docs/format/gkq-v2.md`, columnar section.

use std::ops::Range;

use crate::block::Block;
use crate::dtype::Dtype;
use crate::error::{Error, Place};
use crate::layout::{HOT_ID_BYTES, TREE_HASH_BYTES, columnar as at};
use crate::limits::{PINNED_NODES_MAX, TREE_ROWS_MAX};
use crate::num::length;
use crate::section::SectionKind;

/// The facts about a tensor's rows that let another object supply them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Columnar {
    /// Rows of the tensor, its outer dimension.
    pub rows: u64,
    /// Bytes of one row: without a sidecar, the stride of a row store.
    pub row_bytes: u32,
    /// Element type of a row.
    pub dtype: Dtype,
    /// BLAKE3 of the block. Without a sidecar it is that of the whole row file too.
    pub rows_blake3: [u8; 32],
    /// Root of the row tree, which is over the rows as a row store has them.
    pub tree_root: [u8; 16],
    /// Level of the pinned nodes; the root is level 0.
    pub pinned_level: u32,
    /// Bytes of one entry of the path table: 16 for each level below the pinned one.
    pub path_bytes_per_row: u32,
    /// The pinned nodes, 16 bytes each, in the front.
    pub pinned_nodes: Range<u64>,
    /// The path table, `rows * path_bytes_per_row` bytes; empty where that is 0.
    pub path_table: Range<u64>,
    /// The hot ids, u32 each, hottest first.
    pub hot_ids: Option<Range<u64>>,
    /// A sketch of the rows.
    pub sketch: Option<Range<u64>>,
    /// The sidecar of a row store whose rows are of several kinds, in the front. A store of such a
    /// tensor has the length and digest that the sidecar names.
    pub row_sidecar: Option<Range<u64>>,
}

/// The shape of a row tree, which follows from the number of rows alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowTreeShape {
    /// Level of the leaves; the root is level 0.
    pub depth: u32,
    /// The deepest level of at most 8,192 nodes.
    pub pinned_level: u32,
    /// Nodes of that level, padding included.
    pub pinned_nodes: u64,
    /// Bytes of the siblings between a leaf and its pinned node.
    pub path_bytes_per_row: u32,
}

impl RowTreeShape {
    /// The shape of the tree over `rows` rows, or `None` if there are none or more than
    /// [`TREE_ROWS_MAX`].
    pub fn new(rows: u64) -> Option<Self> {
        if rows == 0 || rows > TREE_ROWS_MAX {
            return None;
        }
        let depth = rows.checked_next_power_of_two()?.trailing_zeros();
        let pinned_level = depth.min(PINNED_NODES_MAX.trailing_zeros());
        Some(Self {
            depth,
            pinned_level,
            pinned_nodes: 1_u64.checked_shl(pinned_level)?,
            path_bytes_per_row: TREE_HASH_BYTES.checked_mul(depth.checked_sub(pinned_level)?)?,
        })
    }

    /// Bytes of the pinned nodes.
    pub fn pinned_bytes(&self) -> u64 {
        // At most 8,192 nodes.
        self.pinned_nodes.saturating_mul(TREE_HASH_BYTES.into())
    }
}

impl Columnar {
    /// The record that `block` must have, its digests and ranges still to be filled in.
    pub(crate) fn expected(block: &Block) -> Result<(Self, RowTreeShape), Error> {
        let refuse = |reason| Error::Shape {
            place: block.place(),
            shape: block.shape.clone(),
            dtype: block.dtype().name(),
            reason,
        };
        let &[rows, cols] = block.shape.as_slice() else {
            return Err(refuse("a columnar-eligible tensor has two dimensions"));
        };
        let row_bytes = block
            .dtype()
            .row_bytes(cols)
            .and_then(|bytes| u32::try_from(bytes).ok());
        let row_bytes = row_bytes.ok_or_else(|| refuse("a row takes more than 4 GiB"))?;
        let shape = RowTreeShape::new(rows).ok_or_else(|| refuse("too many rows for a tree"))?;
        let columnar = Self {
            rows,
            row_bytes,
            dtype: block.dtype(),
            rows_blake3: block.blake3,
            tree_root: [0; 16],
            pinned_level: shape.pinned_level,
            path_bytes_per_row: shape.path_bytes_per_row,
            pinned_nodes: 0..0,
            path_table: 0..0,
            hot_ids: None,
            sketch: None,
            row_sidecar: None,
        };
        Ok((columnar, shape))
    }

    /// Reads the record of `block`: all but the root must be what the block implies.
    pub(crate) fn decode(body: &[u8], block: &Block) -> Result<(Self, RowTreeShape), Error> {
        let place = || Place::Section {
            kind: SectionKind::Columnar,
            tensor: Some(block.name.clone()),
        };
        let same = |field, expected: u64, found: u64| {
            if expected == found {
                return Ok(());
            }
            Err(Error::Mismatch {
                place: place(),
                field,
                expected,
                found,
            })
        };
        same("body_bytes", length(at::BYTES), length(body.len()))?;
        let record = body
            .first_chunk::<{ at::BYTES }>()
            .unwrap_or(&[0; at::BYTES]);
        let (mut columnar, shape) = Self::expected(block)?;
        let number = |field: u32| u64::from(field);
        same("rows", columnar.rows, at::ROWS.u64(record))?;
        same(
            "row_bytes",
            number(columnar.row_bytes),
            number(at::ROW_BYTES.u32(record)),
        )?;
        same(
            "dtype",
            number(columnar.dtype.code()),
            number(at::DTYPE.u32(record)),
        )?;
        same(
            "pinned_level",
            number(columnar.pinned_level),
            number(at::PINNED_LEVEL.u32(record)),
        )?;
        let path_bytes = number(at::PATH_BYTES_PER_ROW.u32(record));
        same(
            "path_bytes_per_row",
            number(columnar.path_bytes_per_row),
            path_bytes,
        )?;
        if at::RESERVED.u64(record) != 0 {
            return Err(Error::ReservedNotZero {
                place: place(),
                field: "reserved",
            });
        }
        let rows = at::ROWS_BLAKE3.read(record);
        if rows != block.blake3 {
            return Err(Error::RowsDiffer {
                place: place(),
                rows,
                block: block.blake3,
            });
        }
        columnar.tree_root = at::TREE_ROOT.read(record);
        Ok((columnar, shape))
    }

    /// Bytes of the path table, or `None` on overflow.
    pub(crate) fn path_table_bytes(&self) -> Option<u64> {
        self.rows.checked_mul(self.path_bytes_per_row.into())
    }

    /// The body of the columnar section.
    pub(crate) fn encode(&self) -> [u8; at::BYTES] {
        let mut record = [0; at::BYTES];
        at::ROWS.write(&mut record, self.rows.to_le_bytes());
        at::ROW_BYTES.write(&mut record, self.row_bytes.to_le_bytes());
        at::DTYPE.write(&mut record, self.dtype.code().to_le_bytes());
        at::ROWS_BLAKE3.write(&mut record, self.rows_blake3);
        at::TREE_ROOT.write(&mut record, self.tree_root);
        at::PINNED_LEVEL.write(&mut record, self.pinned_level.to_le_bytes());
        at::PATH_BYTES_PER_ROW.write(&mut record, self.path_bytes_per_row.to_le_bytes());
        record
    }

    /// Reads the body of the hot-id section, whose digest the caller has checked.
    ///
    /// # Errors
    /// [`Error::HotId`] for an id that is no row or comes twice, [`Error::Mismatch`] for a body that
    /// is not a whole number of ids.
    pub fn parse_hot_ids(&self, body: &[u8]) -> Result<Vec<u32>, Error> {
        let (ids, rest) = body.as_chunks::<HOT_ID_BYTES>();
        if !rest.is_empty() {
            return Err(Error::Mismatch {
                place: Place::Section {
                    kind: SectionKind::HotIds,
                    tensor: None,
                },
                field: "bytes after the last id",
                expected: 0,
                found: length(rest.len()),
            });
        }
        let mut seen = std::collections::HashSet::with_capacity(ids.len());
        let checked = ids.iter().enumerate().map(|(position, bytes)| {
            let id = u32::from_le_bytes(*bytes);
            if u64::from(id) >= self.rows {
                return Err(Error::HotId {
                    id,
                    position,
                    reason: "is no row of its tensor",
                });
            }
            if !seen.insert(id) {
                return Err(Error::HotId {
                    id,
                    position,
                    reason: "stands in the list twice",
                });
            }
            Ok(id)
        });
        checked.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::RowTreeShape;

    #[track_caller]
    fn check(rows: u64, depth: u32, pinned_level: u32, pinned_nodes: u64, path_bytes: u32) {
        let shape = RowTreeShape::new(rows).expect("a tree");
        let path_bytes_per_row = path_bytes;
        assert_eq!(
            shape,
            RowTreeShape {
                depth,
                pinned_level,
                pinned_nodes,
                path_bytes_per_row
            }
        );
    }

    #[test]
    fn the_tree_follows_from_the_rows() {
        check(1, 0, 0, 1, 0);
        check(3, 2, 2, 4, 0);
        check(8_192, 13, 13, 8_192, 0);
        check(8_193, 14, 13, 8_192, 16);
        check(49_152, 16, 13, 8_192, 48); // SmolLM2
        check(151_936, 18, 13, 8_192, 80); // Qwen2.5
        check(262_144, 18, 13, 8_192, 80); // Gemma 3
        assert_eq!(RowTreeShape::new(0), None);
        assert_eq!(RowTreeShape::new(u64::MAX), None);
    }
}
