//! Checks fetched rows against their tree, with the path table at hand or by range. Not the hashes
//! themselves (`row_tree`) and not the fetching (`fetch`), which asks for remote paths in the same
//! wave as the rows. Specification: docs/format/row-store.md, "Checking a row".

use std::sync::Arc;

use bytes::Bytes;
use helix_transport::RangeSource;

use crate::{
    Error,
    gather::check_object,
    layout::{RowId, RowLayout},
    row_tree::{PathMismatch, RowTree, TreeShape, verify_row},
};

/// Whether a store checks the rows it fetches.
#[derive(Debug)]
pub enum Verification {
    /// Rows are taken as they arrive: only for objects that nobody published a tree of.
    Off,
    /// Every row is checked before it is cached or handed out.
    Tree(RowTreeVerifier),
}

/// Where the path table lies.
#[derive(Debug)]
pub enum PathSource {
    /// The whole table at hand, typically mapped from a local knot.
    Local(Bytes),
    /// In an object that is read by range; its `base_bytes` is the table's offset there.
    Remote {
        /// The object that holds the table.
        source: Arc<dyn RangeSource>,
        /// Offset of the table in the object, in bytes.
        base_bytes: u64,
    },
}

/// A pinned row tree and its path table: what it takes to check any row of one matrix.
#[derive(Debug)]
pub struct RowTreeVerifier {
    shape: TreeShape,
    pinned_nodes: Bytes,
    paths: Paths,
}

#[derive(Debug)]
enum Paths {
    /// The tree is pinned at its leaves: paths are empty.
    Empty,
    Local(Bytes),
    Remote {
        source: Arc<dyn RangeSource>,
        layout: RowLayout,
    },
}

impl RowTreeVerifier {
    /// Takes a tree after checking that its pinned nodes hash to its root and that the path table
    /// has the size its rows ask for. `paths` is ignored where paths are empty (up to 8,192 rows).
    ///
    /// # Errors
    /// As [`RowTree::check`]; [`Error::TreeShape`] for a local path table of another length,
    /// [`Error::TableOverflow`] or [`Error::ObjectTooShort`] for a remote one that cannot be there.
    pub fn new(tree: RowTree, paths: PathSource) -> Result<Self, Error> {
        let shape = tree.check()?;
        let paths = match paths {
            _ if shape.path_bytes() == 0 => Paths::Empty,
            PathSource::Local(table) => {
                let (expected, found) = (shape.path_table_bytes(), table.len() as u64);
                if expected != found {
                    let part = "bytes of the path table";
                    return Err(Error::TreeShape {
                        rows: tree.rows,
                        part,
                        expected,
                        found,
                    });
                }
                Paths::Local(table)
            }
            PathSource::Remote { source, base_bytes } => {
                let layout = RowLayout::new(base_bytes, tree.rows, shape.path_bytes())?;
                check_object(source.as_ref(), &layout.into())?;
                Paths::Remote { source, layout }
            }
        };
        Ok(Self {
            shape,
            pinned_nodes: tree.pinned_nodes,
            paths,
        })
    }

    /// The tree's numbers.
    #[must_use]
    pub fn shape(&self) -> TreeShape {
        self.shape
    }

    /// Where paths must be fetched from, or `None` where they are at hand.
    pub(crate) fn remote_paths(&self) -> Option<(&dyn RangeSource, &RowLayout)> {
        match &self.paths {
            Paths::Remote { source, layout } => Some((source.as_ref(), layout)),
            Paths::Empty | Paths::Local(_) => None,
        }
    }

    /// The path of row `id` where it is at hand; empty where the tree or the table has no such row,
    /// which then does not verify.
    pub(crate) fn local_path(&self, id: RowId) -> &[u8] {
        let Paths::Local(table) = &self.paths else {
            return &[];
        };
        let path_bytes = self.shape.path_bytes() as usize;
        usize::try_from(id.0)
            .ok()
            .and_then(|row| row.checked_mul(path_bytes))
            .and_then(|start| table.get(start..start.checked_add(path_bytes)?))
            .unwrap_or_default()
    }

    /// Checks the bytes of row `id` against the tree through `path`, its siblings from the leaf
    /// upward.
    ///
    /// # Errors
    /// [`PathMismatch`] with the pinned node and the one found.
    pub fn verify(&self, id: RowId, row: &[u8], path: &[u8]) -> Result<(), PathMismatch> {
        verify_row(self.shape, id, row, path, &self.pinned_nodes)
    }
}
