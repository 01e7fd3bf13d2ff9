//! Tables whose every byte is known, with their trees.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, PathSource, RowId, RowLayout, RowStoreConfig, RowTree, RowTreeBuilder,
    RowTreeVerifier, StoreMeters, Verification,
};

use crate::source::ScriptedSource;

/// A matrix with what is published about it.
pub(crate) struct Table {
    pub row_bytes: u32,
    pub rows: Vec<Vec<u8>>,
    pub bytes: Bytes,
    pub tree: RowTree,
    pub paths: Bytes,
}

impl Table {
    /// `rows` rows that differ from each other, of `row_bytes` bytes (at least 4).
    pub(crate) fn new(rows: u64, row_bytes: u32) -> Self {
        let rows: Vec<Vec<u8>> = (0..rows as u32)
            .map(|row| {
                row.to_le_bytes()
                    .into_iter()
                    .cycle()
                    .take(row_bytes as usize)
                    .collect()
            })
            .collect();
        let mut builder = RowTreeBuilder::new(rows.len() as u64, Vec::new()).unwrap();
        for row in &rows {
            builder.push(row).unwrap();
        }
        let (tree, paths) = builder.finish().unwrap();
        Self {
            row_bytes,
            bytes: rows.concat().into(),
            rows,
            tree,
            paths: paths.into(),
        }
    }

    /// Deep enough for paths of two levels, not a power of two.
    pub(crate) fn deep() -> &'static Self {
        static DEEP: LazyLock<Table> = LazyLock::new(|| Table::new(20_011, 12));
        &DEEP
    }

    pub(crate) fn layout(&self) -> RowLayout {
        RowLayout::new(0, self.rows.len() as u64, self.row_bytes).unwrap()
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.bytes).as_bytes()
    }

    pub(crate) fn source(&self) -> Arc<ScriptedSource> {
        Arc::new(ScriptedSource::new("table.rows", self.bytes.clone()))
    }

    pub(crate) fn path_source(&self) -> Arc<ScriptedSource> {
        Arc::new(ScriptedSource::new("table.gkq", self.paths.clone()))
    }

    pub(crate) fn verification(&self, paths: PathSource) -> Verification {
        Verification::Tree(RowTreeVerifier::new(self.tree.clone(), paths).unwrap())
    }

    pub(crate) fn local_verification(&self) -> Verification {
        self.verification(PathSource::Local(self.paths.clone()))
    }

    /// A store that checks rows with the path table at hand.
    pub(crate) fn store(
        &self,
        source: &Arc<ScriptedSource>,
        config: RowStoreConfig,
    ) -> ColumnarEmbedBackend {
        self.store_with(source, self.local_verification(), config)
    }

    pub(crate) fn store_with(
        &self,
        source: &Arc<ScriptedSource>,
        verification: Verification,
        config: RowStoreConfig,
    ) -> ColumnarEmbedBackend {
        let (layout, digest) = (self.layout(), self.digest());
        let source = source.clone();
        let meters = StoreMeters::default();
        ColumnarEmbedBackend::new(source, layout, digest, verification, config, meters).unwrap()
    }
}

pub(crate) fn ids(ids: impl IntoIterator<Item = u64>) -> Vec<RowId> {
    ids.into_iter().map(RowId).collect()
}

pub(crate) fn config(cache_rows: u64) -> RowStoreConfig {
    RowStoreConfig {
        cache_rows,
        ..RowStoreConfig::default()
    }
}
