//! A store with rows on disk: what is there is not asked for, what is not is written behind the
//! batch, and nothing that lies there can be a wrong row.

use std::{os::unix::fs::FileExt, path::Path, sync::atomic::Ordering};

use columnar_embed::{
    CachedTable, ColumnarEmbedBackend, Completeness, DiskTier, PathSource, RowId, StoreMeters,
    Verification,
};

use crate::{
    source::Fault,
    table::{Table, config, ids},
};

/// A store with a tier in `directory`, and nothing in memory.
fn store(
    table: &Table,
    directory: &Path,
    verification: Verification,
) -> (
    ColumnarEmbedBackend,
    std::sync::Arc<crate::source::ScriptedSource>,
) {
    let source = table.source();
    let store = table.store_with(&source, verification, config(0));
    let tier = DiskTier::start(directory, store.cached_table(), store.map().clone());
    (store.with_tier(tier), source)
}

fn row_of(table: &Table, id: u64) -> &[u8] {
    &table.rows[id as usize]
}

/// The file of rows, and the map, of the only table in `directory`.
fn file(directory: &Path, ending: &str) -> std::fs::File {
    let mut names = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let entry = names.find(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    let path = entry.unwrap().path();
    std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

#[tokio::test]
async fn what_is_on_disk_is_not_asked_for() {
    let table = Table::deep();
    let directory = tempfile::tempdir().unwrap();
    let asked = ids([9, 20_010, 9, 4, 8_192]);
    let (cold, source) = store(table, directory.path(), table.local_verification());
    let batch = cold.rows(&asked).await.unwrap();
    assert_eq!((batch.report.disk, batch.report.missed), (0, 4));
    assert!(source.requests() > 0);
    drop(cold);

    let paths = table.path_source();
    let remote = table.verification(PathSource::Remote {
        source: paths.clone(),
        base_bytes: 0,
    });
    let (warm, source) = store(table, directory.path(), remote);
    let batch = warm.rows(&asked).await.unwrap();
    for (id, row) in asked.iter().zip(&batch.rows) {
        assert_eq!(&row[..], row_of(table, id.0));
    }
    assert_eq!((source.requests(), paths.requests()), (0, 0));
    let report = batch.report;
    assert_eq!((report.distinct, report.disk, report.missed), (4, 4, 0));
    assert_eq!((report.received_bytes, report.round_trips), (0, 0));
    let outcomes = &warm.meters().outcomes;
    assert_eq!(outcomes.disk.load(Ordering::Relaxed), 4);
    assert_eq!(outcomes.miss.load(Ordering::Relaxed), 0);

    // Half of a batch there, half of it not.
    let mixed = warm.rows(&ids([4, 5, 9, 10])).await.unwrap();
    assert_eq!((mixed.report.disk, mixed.report.missed), (2, 2));
    let useful = 2 * u64::from(table.row_bytes);
    assert_eq!(mixed.report.useful_bytes, useful);
    assert_eq!(&mixed.rows[1][..], row_of(table, 5));
}

#[tokio::test]
async fn a_row_that_could_not_be_had_is_not_kept() {
    let table = Table::deep();
    let directory = tempfile::tempdir().unwrap();
    let (cold, source) = store(table, directory.path(), table.local_verification());
    source.fault(0, Fault::Flipped);
    source.fault(1, Fault::Flipped);
    assert!(cold.rows(&ids([7])).await.is_err());
    cold.tier().unwrap().flush().await.unwrap();
    assert_eq!(cold.tier().unwrap().counts().written_rows, 0);
    let batch = cold.rows(&ids([7])).await.unwrap();
    assert_eq!((batch.report.disk, batch.report.missed), (0, 1));
    assert_eq!(&batch.rows[0][..], row_of(table, 7));
}

/// Whoever may write the directory can compute entries; with the paths at hand the tree is asked.
#[tokio::test]
async fn a_forged_row_with_a_matching_entry_is_refused_where_paths_are_at_hand() {
    let table = Table::deep();
    let directory = tempfile::tempdir().unwrap();
    let (cold, _) = store(table, directory.path(), table.local_verification());
    cold.rows(&ids([3])).await.unwrap();
    drop(cold);
    let forged = vec![0xEE; table.row_bytes as usize];
    let context = [&table.digest()[..], &1_u32.to_le_bytes()].concat();
    let key = blake3::derive_key("gkq row cache v1", &context);
    let input = [&3_u64.to_le_bytes()[..], &forged].concat();
    let hash = blake3::keyed_hash(&key, &input);
    let entry = &hash.as_bytes()[..16];
    let data = file(directory.path(), ".rows.part");
    data.write_all_at(&forged, 3 * u64::from(table.row_bytes))
        .unwrap();
    let map = file(directory.path(), ".map");
    map.write_all_at(entry, 128 + 3 * 16).unwrap();

    let (warm, source) = store(table, directory.path(), table.local_verification());
    let batch = warm.rows(&ids([3])).await.unwrap();
    assert_eq!(&batch.rows[0][..], row_of(table, 3));
    assert_eq!((batch.report.disk, batch.report.missed), (0, 1));
    assert_eq!(source.requests(), 1);
    drop(warm);
    let (healed, source) = store(table, directory.path(), table.local_verification());
    assert_eq!(healed.rows(&ids([3])).await.unwrap().report.disk, 1);
    assert_eq!(source.requests(), 0);
}

#[tokio::test]
async fn unchecked_rows_do_not_answer_a_store_that_checks() {
    let table = Table::deep();
    let directory = tempfile::tempdir().unwrap();
    let (unchecked, source) = store(table, directory.path(), Verification::Off);
    source.fault(0, Fault::Flipped);
    let wrong = unchecked.rows(&ids([11])).await.unwrap();
    assert_ne!(&wrong.rows[0][..], row_of(table, 11));
    drop(unchecked);
    let (checked, _) = store(table, directory.path(), table.local_verification());
    let batch = checked.rows(&ids([11])).await.unwrap();
    assert_eq!(&batch.rows[0][..], row_of(table, 11));
    assert_eq!(batch.report.disk, 0);
}

#[tokio::test]
async fn files_of_another_table_under_this_ones_names_hold_no_rows() {
    let (table, other) = (Table::new(300, 8), Table::new(300, 8));
    let directory = tempfile::tempdir().unwrap();
    let (cold, _) = store(&other, directory.path(), other.local_verification());
    let claimed = CachedTable {
        digest: [5; 32],
        ..cold.cached_table()
    };
    cold.rows(&ids(0..300)).await.unwrap();
    drop(cold);
    // The bytes of rows and entries are copied behind the header of another table.
    let mut entries = vec![0; 300 * 16];
    let map = file(directory.path(), ".map");
    map.read_exact_at(&mut entries, 128).unwrap();
    let second = tempfile::tempdir().unwrap();
    let source = table.source();
    let meters = StoreMeters::default();
    let digest = claimed.digest;
    let verification = Verification::Tree(
        columnar_embed::RowTreeVerifier::new(
            table.tree.clone(),
            PathSource::Local(table.paths.clone()),
        )
        .unwrap(),
    );
    let store = ColumnarEmbedBackend::new(
        source.clone(),
        table.layout(),
        digest,
        verification,
        config(0),
        meters,
    );
    let store = store.unwrap();
    let start = || DiskTier::start(second.path(), claimed, store.map().clone());
    start().flush().await.unwrap();
    file(second.path(), ".map")
        .write_all_at(&entries, 128)
        .unwrap();
    file(second.path(), ".part")
        .write_all_at(&table.bytes, 0)
        .unwrap();
    let tier = start();
    let store = store.with_tier(tier);
    let batch = store.rows(&ids([1, 2])).await.unwrap();
    assert_eq!((batch.report.disk, batch.report.missed), (0, 2));
    assert_eq!(store.tier().unwrap().counts().damaged_rows, 2);
}

#[tokio::test]
async fn a_tier_with_all_rows_becomes_the_row_file() {
    let table = Table::new(500, 12);
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = store(&table, directory.path(), table.local_verification());
    store.rows(&ids(0..499)).await.unwrap();
    let tier = store.tier().unwrap();
    let partial = Completeness::Partial {
        present_rows: 499,
        rows: 500,
    };
    assert_eq!(tier.complete().await.unwrap(), partial);
    store.row(RowId(499)).await.unwrap();
    let Completeness::Complete { path } = tier.complete().await.unwrap() else {
        panic!("not complete");
    };
    assert!(std::fs::read(path).unwrap() == table.bytes);
}

/// Loads outlive callers, not the store: what a load that is still running fetches later is not
/// waited for, and what was handed over before is there.
#[tokio::test]
async fn dropping_a_store_with_a_load_in_flight_keeps_what_had_arrived() {
    let table = Table::deep();
    let directory = tempfile::tempdir().unwrap();
    let (store, source) = self::store(table, directory.path(), table.local_verification());
    store.rows(&ids([1])).await.unwrap();
    source.hold_replies();
    let store = std::sync::Arc::new(store);
    let waiting = {
        let store = std::sync::Arc::clone(&store);
        tokio::spawn(async move { store.rows(&ids([2])).await.is_ok() })
    };
    source.arrived(2).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(store);
    let (next, _) = self::store(table, directory.path(), table.local_verification());
    let report = next.rows(&ids([1, 2])).await.unwrap().report;
    assert_eq!((report.disk, report.missed), (1, 1));
}
