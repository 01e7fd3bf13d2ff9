//! Builds a row tree from rows in order, holding one subtree below the pinned level at a time, so
//! memory does not grow with the matrix. Not parallel: BLAKE3 outruns the disk the rows come from.
//! Specification: docs/format/row-store.md, "Row tree" and "Path table".

use std::io::Write;

use bytes::Bytes;

use super::{
    hash::{EMPTY_LEAF, RowHash, leaf_hash, node_hash},
    pinned::{RowTree, parents, root_of},
    shape::TreeShape,
};
use crate::{Error, layout::RowId};

/// Takes rows in order; gives the tree, and the path table to a writer as soon as it is known.
///
/// Memory: the pinned level (at most 128 KiB) and one subtree (64 leaves at 524,288 rows, 2^20 at
/// [`super::MAX_ROWS`]).
#[derive(Debug)]
pub struct RowTreeBuilder<W> {
    shape: TreeShape,
    pushed: u64,
    leaves: Vec<RowHash>,
    pinned: Vec<RowHash>,
    paths: W,
}

impl<W: Write> RowTreeBuilder<W> {
    /// A builder for exactly `rows` rows that writes the path table, [`TreeShape::path_table_bytes`]
    /// bytes, to `paths`.
    ///
    /// # Errors
    /// [`Error::TreeRows`] where a tree cannot have so many rows.
    pub fn new(rows: u64, paths: W) -> Result<Self, Error> {
        let shape = TreeShape::new(rows)?;
        Ok(Self {
            shape,
            pushed: 0,
            leaves: Vec::new(),
            pinned: Vec::new(),
            paths,
        })
    }

    /// Adds the next row.
    ///
    /// # Errors
    /// [`Error::RowCount`] behind the last row, [`Error::Write`] where the path table's writer
    /// refuses.
    pub fn push(&mut self, row: &[u8]) -> Result<(), Error> {
        if self.pushed == self.shape.rows() {
            return Err(Error::RowCount {
                expected: self.shape.rows(),
                found: self.pushed + 1,
            });
        }
        self.leaves.push(leaf_hash(RowId(self.pushed), row));
        self.pushed += 1;
        if self.leaves.len() == self.subtree_leaves() {
            self.close_subtree()?;
        }
        Ok(())
    }

    /// Ends the tree and gives the writer back, flushed.
    ///
    /// # Errors
    /// [`Error::RowCount`] where rows are missing, [`Error::Write`] as [`RowTreeBuilder::push`].
    pub fn finish(mut self) -> Result<(RowTree, W), Error> {
        if self.pushed != self.shape.rows() {
            return Err(Error::RowCount {
                expected: self.shape.rows(),
                found: self.pushed,
            });
        }
        if !self.leaves.is_empty() {
            self.close_subtree()?;
        }
        let padding =
            (0..self.shape.path_levels()).fold(EMPTY_LEAF, |below, _| node_hash(&below, &below));
        self.pinned.resize(1 << self.shape.pinned_level(), padding);
        self.paths
            .flush()
            .map_err(|source| Error::write("path table", source))?;
        let tree = RowTree {
            rows: self.shape.rows(),
            root: root_of(&self.pinned),
            pinned_level: self.shape.pinned_level(),
            pinned_nodes: Bytes::from(self.pinned.concat()),
        };
        Ok((tree, self.paths))
    }

    fn subtree_leaves(&self) -> usize {
        1 << self.shape.path_levels()
    }

    /// Hashes the held leaves up to their pinned node and writes the paths of their rows.
    fn close_subtree(&mut self) -> Result<(), Error> {
        let rows = self.leaves.len();
        let mut lowest = std::mem::take(&mut self.leaves);
        lowest.resize(self.subtree_leaves(), EMPTY_LEAF);
        let mut levels = vec![lowest];
        while let Some(level) = levels.last().filter(|level| level.len() > 1) {
            levels.push(parents(level));
        }
        let top = levels.pop().unwrap_or_default();
        for row in 0..rows {
            for (height, level) in levels.iter().enumerate() {
                self.paths
                    .write_all(&level[(row >> height) ^ 1])
                    .map_err(|source| Error::write("path table", source))?;
            }
        }
        self.pinned.extend(top);
        Ok(())
    }
}
