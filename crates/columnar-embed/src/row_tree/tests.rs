//! The tree against a slow recursive oracle, and against vectors made with another implementation
//! of BLAKE3 from the format page.

use proptest::prelude::*;

use super::*;
use crate::{Error, layout::RowId};

/// The tree as the format page defines it: one recursion, no levels kept, nothing streamed.
struct Oracle<'a> {
    rows: &'a [Vec<u8>],
    depth: u32,
}

impl<'a> Oracle<'a> {
    fn new(rows: &'a [Vec<u8>]) -> Self {
        let mut depth = 0;
        while 1 << depth < rows.len() {
            depth += 1;
        }
        Self { rows, depth }
    }

    fn node(&self, level: u32, index: usize) -> RowHash {
        if level < self.depth {
            return node_hash(
                &self.node(level + 1, 2 * index),
                &self.node(level + 1, 2 * index + 1),
            );
        }
        self.rows
            .get(index)
            .map_or(EMPTY_LEAF, |row| leaf_hash(RowId(index as u64), row))
    }

    fn path(&self, row: usize, pinned_level: u32) -> Vec<u8> {
        (pinned_level + 1..=self.depth)
            .rev()
            .flat_map(|level| self.node(level, (row >> (self.depth - level)) ^ 1))
            .collect()
    }
}

fn build(rows: &[Vec<u8>]) -> (RowTree, Vec<u8>) {
    let mut builder = RowTreeBuilder::new(rows.len() as u64, Vec::new()).unwrap();
    for row in rows {
        builder.push(row).unwrap();
    }
    builder.finish().unwrap()
}

fn numbered_rows(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|row| row.to_le_bytes().to_vec()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The vectors of docs/format/row-store.md, computed with Python from the page alone.
#[test]
fn five_rows_of_four_bytes_have_the_published_hashes() {
    let rows: Vec<Vec<u8>> = (0..5).map(|row| vec![row; 4]).collect();
    assert_eq!(
        hex(&leaf_hash(RowId(0), &rows[0])),
        "329519d6ddbb5c00f87141de1509b96a"
    );
    assert_eq!(
        hex(&leaf_hash(RowId(4), &rows[4])),
        "edcf3cc0341742ddca17b17e1bb330b3"
    );
    assert_eq!(hex(&EMPTY_LEAF), "cdfb7226cc46da46c51a714f209b93e0");
    let (tree, paths) = build(&rows);
    assert_eq!(hex(&tree.root), "76c381572361f520494a209e91b49b90");
    assert_eq!(
        (tree.pinned_level, tree.pinned_nodes.len(), paths.len()),
        (3, 128, 0)
    );
}

/// A tree with paths, one row beyond a power of two.
#[test]
fn a_row_beyond_a_power_of_two_has_the_published_hashes() {
    let rows: Vec<Vec<u8>> = (0..8193_u32)
        .map(|row| row.to_le_bytes().to_vec())
        .collect();
    let (tree, paths) = build(&rows);
    let (nodes, _) = tree.pinned_nodes.as_chunks::<HASH_BYTES>();
    assert_eq!(hex(&paths[..16]), "aa873125339f8b3d7cf66117844dcbfb");
    assert_eq!(paths[8192 * 16..], EMPTY_LEAF);
    assert_eq!(hex(&nodes[0]), "156510e94d61d21de4eb0e78cdc6bc62");
    assert_eq!(hex(&nodes[4096]), "2e6368367a9a1ff51c611c8b35bb7edb");
    assert_eq!(hex(&nodes[8191]), "c6bf640e482188045402058f7668d005");
    assert_eq!(hex(&tree.root), "b9e2c5317ea998aebffd7335b8b77e3c");
}

#[test]
fn the_shape_of_known_vocabularies() {
    for (rows, depth, pinned_level, path_bytes) in [
        (1, 0, 0, 0),
        (2, 1, 1, 0),
        (8192, 13, 13, 0),
        (8193, 14, 13, 16),
        (49_152, 16, 13, 48),
        (151_936, 18, 13, 80),
        (262_144, 18, 13, 80),
        (262_145, 19, 13, 96),
        (384_000_000, 29, 13, 256),
    ] {
        let shape = TreeShape::new(rows).unwrap();
        assert_eq!(shape.depth(), depth, "{rows}");
        assert_eq!(shape.pinned_level(), pinned_level, "{rows}");
        assert_eq!(shape.path_bytes(), path_bytes, "{rows}");
        assert_eq!(shape.path_table_bytes(), rows * u64::from(path_bytes));
        assert_eq!(shape.pinned_bytes(), 16 << pinned_level);
        assert!(shape.pinned_bytes() <= 128 << 10);
    }
    for rows in [0, MAX_ROWS + 1, u64::MAX] {
        assert!(
            matches!(TreeShape::new(rows), Err(Error::TreeRows { .. })),
            "{rows}"
        );
    }
}

#[test]
fn one_row_is_its_own_root() {
    let (tree, paths) = build(&[b"only".to_vec()]);
    assert_eq!(tree.root, leaf_hash(RowId(0), b"only"));
    assert_eq!(tree.pinned_nodes[..], tree.root);
    assert!(paths.is_empty());
    let shape = tree.check().unwrap();
    verify_row(shape, RowId(0), b"only", &[], &tree.pinned_nodes).unwrap();
    verify_row(shape, RowId(0), b"other", &[], &tree.pinned_nodes).unwrap_err();
}

/// Row counts around powers of two, with and without paths, against the oracle node by node.
#[test]
fn the_streaming_builder_equals_the_oracle() {
    for count in [1, 2, 3, 5, 8, 100, 8191, 8192, 8193, 16_384, 20_011] {
        let rows = numbered_rows(count);
        let oracle = Oracle::new(&rows);
        let (tree, paths) = build(&rows);
        assert_eq!(tree.root, oracle.node(0, 0), "{count} rows");
        let shape = tree.check().unwrap();
        let (nodes, _) = tree.pinned_nodes.as_chunks::<HASH_BYTES>();
        for (index, node) in nodes.iter().enumerate() {
            assert_eq!(
                *node,
                oracle.node(tree.pinned_level, index),
                "{count} rows, node {index}"
            );
        }
        assert_eq!(paths.len() as u64, shape.path_table_bytes());
        let path_bytes = shape.path_bytes() as usize;
        for row in (0..count).step_by(97).chain([count - 1]) {
            let path = &paths[row * path_bytes..(row + 1) * path_bytes];
            assert_eq!(
                path,
                oracle.path(row, tree.pinned_level),
                "{count} rows, row {row}"
            );
            let id = RowId(row as u64);
            verify_row(shape, id, &rows[row], path, &tree.pinned_nodes).unwrap();
        }
    }
}

#[test]
fn a_builder_wants_exactly_the_rows_it_was_made_for() {
    let mut builder = RowTreeBuilder::new(2, Vec::new()).unwrap();
    builder.push(b"a").unwrap();
    assert!(matches!(
        RowTreeBuilder::new(2, Vec::new()).unwrap().finish(),
        Err(Error::RowCount {
            expected: 2,
            found: 0
        })
    ));
    builder.push(b"b").unwrap();
    assert!(matches!(
        builder.push(b"c"),
        Err(Error::RowCount {
            expected: 2,
            found: 3
        })
    ));
    builder.finish().unwrap();
}

#[test]
fn a_path_table_that_cannot_be_written_is_an_error() {
    let mut full: &mut [u8] = &mut [0; 40];
    let mut builder = RowTreeBuilder::new(8193, &mut full).unwrap();
    let error = numbered_rows(8193)
        .iter()
        .find_map(|row| builder.push(row).err())
        .unwrap();
    assert_eq!(error.to_string(), "path table could not be written");
}

#[test]
fn a_tree_that_is_not_what_it_claims_is_refused() {
    let (good, _) = build(&numbered_rows(100));
    let shorter = RowTree {
        pinned_nodes: good.pinned_nodes.slice(16..),
        ..good.clone()
    };
    assert_eq!(
        shorter.check().unwrap_err().to_string(),
        "row tree of 100 rows: bytes of pinned nodes is 2032, expected 2048"
    );
    let higher = RowTree {
        pinned_level: 6,
        ..good.clone()
    };
    assert_eq!(
        higher.check().unwrap_err().to_string(),
        "row tree of 100 rows: pinned level is 6, expected 7"
    );
    let mut nodes = good.pinned_nodes.to_vec();
    nodes[5] ^= 1;
    let forged = RowTree {
        pinned_nodes: nodes.into(),
        ..good.clone()
    };
    let error = forged.check().unwrap_err();
    assert!(matches!(error, Error::TreeRoot { expected, .. } if expected == good.root));
    assert!(error.to_string().contains(&hex(&good.root)));
    let empty = RowTree { rows: 0, ..good };
    assert!(matches!(empty.check(), Err(Error::TreeRows { rows: 0 })));
}

proptest! {
    /// Whatever single thing is changed - a byte of the row, of the path, the index, the lengths -
    /// the row is refused.
    #[test]
    fn a_row_that_differs_anywhere_is_refused(
        row in 0_usize..8300, byte in 0_usize..8, bit in 0_u8..8, other in 0_usize..8300,
    ) {
        use std::sync::LazyLock;
        static BUILT: LazyLock<(RowTree, Vec<u8>)> = LazyLock::new(|| build(&numbered_rows(8300)));
        let (tree, paths) = &*BUILT;
        let shape = tree.check().unwrap();
        let path = |row: usize| &paths[row * 16..(row + 1) * 16];
        let bytes = row.to_le_bytes();
        let id = RowId(row as u64);
        let check = |id, row: &[u8], path: &[u8]| verify_row(shape, id, row, path, &tree.pinned_nodes);

        prop_assert!(check(id, &bytes, path(row)).is_ok());
        let mut flipped = bytes;
        flipped[byte] ^= 1 << bit;
        prop_assert!(check(id, &flipped, path(row)).is_err());
        let mut bent = path(row).to_vec();
        bent[byte] ^= 1 << bit;
        prop_assert!(check(id, &bytes, &bent).is_err());
        prop_assert!(check(id, &bytes, &path(row)[..15]).is_err());
        prop_assert!(check(id, &bytes, &[]).is_err());
        prop_assert!(check(id, &bytes[..7], path(row)).is_err());
        prop_assert!(check(RowId(8300), &bytes, path(row)).is_err());
        prop_assert!(check(RowId(u64::MAX), &bytes, path(row)).is_err());
        if other != row {
            // A genuine row with its genuine path, served in place of another one.
            prop_assert!(check(id, &other.to_le_bytes(), path(other)).is_err());
        }
    }
}
