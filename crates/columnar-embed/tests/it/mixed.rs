//! A store whose rows are of several kinds: rows come out as the matrix has them, whatever is stored;
//! the tree is over what is stored; and the bytes that move are those of the small rows.

use std::{io, sync::Arc};

use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, Completeness, DiskTier, Error, FloatKind, KindError, MixedRowFileWriter,
    PathSource, RowId, RowKind, RowMap, RowTreeVerifier, Sidecar, SidecarBuilder, StoreMeters,
    Verification,
};
use helix_transport::RangeSource;

use crate::{
    source::ScriptedSource,
    table::{config, ids},
};

const COLS: usize = 32;
const ROWS: u64 = 9_000;
const KINDS: [RowKind; 4] = [
    RowKind::Bf16,
    RowKind::Fp8E4m3,
    RowKind::Int8,
    RowKind::Int4Zp,
];

/// A matrix of bf16 whose rows are stored in four kinds.
struct MixedTable {
    /// Rows as the matrix has them.
    wide: Vec<Vec<u8>>,
    stored: Bytes,
    sidecar: Arc<Sidecar>,
    verifier: RowTreeVerifier,
}

/// The kind of a row: runs of many lengths.
fn kind_of(row: u64) -> RowKind {
    KINDS[(row * row / 7 % 4) as usize]
}

fn table() -> MixedTable {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rows");
    let builder = SidecarBuilder::new(FloatKind::Bf16, ROWS, COLS as u64, &KINDS).unwrap();
    let expected_bytes = builder.sidecar_bytes();
    let mut writer = MixedRowFileWriter::create(&path, builder, Vec::new()).unwrap();
    let mut wide = Vec::new();
    for row in 0..ROWS {
        let values: Vec<f32> = (0..COLS as u64)
            .map(|col| ((row * 31 + col * 17) % 97) as f32 * 0.01 - 0.4)
            .collect();
        let kind = kind_of(row);
        let stored = kind.encode(&values).unwrap();
        wide.push(kind.widen(&stored, FloatKind::Bf16, COLS));
        writer.push(kind, &stored).unwrap();
    }
    let mixed = writer.finish(&[KindError::default(); 4]).unwrap();
    assert_eq!(mixed.sidecar.len() as u64, expected_bytes);
    let sidecar = Arc::new(Sidecar::parse(&mixed.sidecar).unwrap());
    let paths = PathSource::Local(mixed.written.paths.into());
    MixedTable {
        wide,
        stored: std::fs::read(&path).unwrap().into(),
        sidecar,
        verifier: RowTreeVerifier::new(mixed.written.tree, paths).unwrap(),
    }
}

fn store(table: MixedTable, source: &Arc<ScriptedSource>) -> ColumnarEmbedBackend {
    let digest = table.sidecar.blake3();
    ColumnarEmbedBackend::new(
        Arc::clone(source) as Arc<dyn RangeSource>,
        table.sidecar,
        digest,
        Verification::Tree(table.verifier),
        config(100),
        StoreMeters::default(),
    )
    .unwrap()
}

#[tokio::test]
async fn rows_of_every_kind_come_out_as_the_matrix_has_them() {
    let table = table();
    assert_eq!(table.stored.len() as u64, table.sidecar.table_bytes());
    assert_eq!(
        table.sidecar.table_blake3(),
        *blake3::hash(&table.stored).as_bytes()
    );
    let source = Arc::new(ScriptedSource::new("model.rows", table.stored.clone()));
    let (wide, sidecar) = (table.wide.clone(), Arc::clone(&table.sidecar));
    let store = store(table, &source);
    assert_eq!(store.map().row_bytes(), 64);
    let asked = ids((0..ROWS).step_by(83).chain([511, 512, 0, ROWS - 1, 0]));
    let batch = store.rows(&asked).await.unwrap();
    for (id, row) in asked.iter().zip(&batch.rows) {
        assert_eq!(row[..], wide[id.0 as usize], "row {id}");
    }
    // The bytes that were useful are those of the stored rows, each once.
    let mut distinct = asked;
    distinct.sort();
    distinct.dedup();
    let stored: u64 = distinct
        .iter()
        .map(|id| sidecar.range(*id).unwrap().len())
        .sum();
    assert_eq!(batch.report.useful_bytes, stored);
    assert!(
        stored < distinct.len() as u64 * 64,
        "and fewer than the matrix's rows"
    );
}

#[tokio::test]
async fn a_forged_stored_row_of_any_kind_is_refused() {
    let table = table();
    let rows: Vec<u64> = KINDS
        .iter()
        .map(|kind| (600..ROWS).find(|row| kind_of(*row) == *kind).unwrap())
        .collect();
    let mut forged = table.stored.to_vec();
    for row in &rows {
        let range = table.sidecar.range(RowId(*row)).unwrap();
        forged[range.start as usize] ^= 1;
    }
    let source = Arc::new(ScriptedSource::new("model.rows", forged.into()));
    let store = store(table, &source);
    for row in rows {
        let error = store.row(RowId(row)).await.unwrap_err();
        assert!(matches!(error, Error::RowIntegrity { row: refused, .. } if refused.0 == row));
    }
}

/// The disk keeps rows as they are stored; what comes from there is widened like what is fetched.
#[tokio::test]
async fn rows_of_every_kind_come_from_disk_as_the_matrix_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = table().stored;
    let source = Arc::new(ScriptedSource::new("model.rows", bytes.clone()));
    let tiered = || {
        let store = store(table(), &source);
        let (cached, map) = (store.cached_table(), store.map().clone());
        assert_eq!(cached.digest, *blake3::hash(&bytes).as_bytes());
        store.with_tier(DiskTier::start(directory.path(), cached, map))
    };
    let asked = ids((0..ROWS).step_by(97));
    let cold = tiered();
    let fetched = cold.rows(&asked).await.unwrap();
    drop(cold);
    let requests = source.requests();
    let warm = tiered();
    let read = warm.rows(&asked).await.unwrap();
    assert_eq!(source.requests(), requests);
    assert_eq!(read.report.disk, asked.len() as u64);
    assert_eq!(read.rows, fetched.rows);
    // Once all are there, the file is the row file with its rows of several lengths.
    warm.rows(&ids(0..ROWS)).await.unwrap();
    let complete = warm.tier().unwrap().complete().await.unwrap();
    let Completeness::Complete { path } = complete else {
        panic!("{complete:?}");
    };
    assert!(std::fs::read(path).unwrap() == bytes);
}

#[test]
fn a_map_of_several_kinds_knows_its_object() {
    let table = table();
    let map = RowMap::from(Arc::clone(&table.sidecar));
    let whole = map.table_bytes();
    assert_eq!(
        (map.rows(), map.base_bytes(), map.end_bytes()),
        (ROWS, 0, whole)
    );
    assert!(map.check_object("model.rows", whole).is_ok());
    let short = map.check_object("model.rows", whole - 1).unwrap_err();
    assert!(matches!(short, Error::ObjectTooShort { .. }));
    for row in [0, 1, ROWS - 1] {
        let stored = map.stored_bytes(RowId(row)).unwrap();
        assert_eq!(
            stored,
            u64::from(kind_of(row).row_bytes(COLS as u64).unwrap())
        );
        let wrong = map.widen(RowId(row), vec![0; stored as usize + 1].into());
        assert!(matches!(wrong, Err(Error::RowLength { .. })), "row {row}");
    }
    assert!(map.range(RowId(ROWS)).is_err());
}

#[test]
fn a_writer_refuses_a_row_that_has_not_the_length_of_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rows");
    let kinds = [RowKind::Bf16, RowKind::Int8];
    let builder = SidecarBuilder::new(FloatKind::Bf16, 2, 4, &kinds).unwrap();
    let mut writer = MixedRowFileWriter::create(&path, builder, io::sink()).unwrap();
    writer.push(RowKind::Int8, &[0; 8]).unwrap();
    let error = writer.push(RowKind::Bf16, &[0; 7]).unwrap_err();
    assert_eq!(error.to_string(), "row 1 has 7 bytes, expected 8");
    let error = writer.push(RowKind::F16, &[0; 8]).unwrap_err();
    assert!(matches!(error, Error::RowKinds { .. }), "{error}");
    let error = writer.finish(&[KindError::default(); 2]).unwrap_err();
    assert!(matches!(
        error,
        Error::RowCount {
            expected: 2,
            found: 1
        }
    ));
    assert!(!path.exists());
}
