//! Bytes that are not the published ones: refused, counted, asked for once more, never cached.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, Error, PathSource, RowLayout, RowStoreConfig, RowTree, RowTreeVerifier,
    StoreMeters, Verification,
};
use helix_transport::{ErrorKind, MemorySource};

use crate::{
    source::Fault,
    table::{Table, config, ids},
};

#[tokio::test]
async fn shifted_bytes_are_refused_and_a_second_right_answer_is_taken() {
    let table = Table::deep();
    let source = table.source();
    source.fault(0, Fault::Shifted(12));
    let store = table.store(&source, config(100));
    let batch = store.rows(&ids([5000])).await.unwrap();
    assert_eq!(batch.rows[0][..], table.rows[5000]);
    // Both replies were received, one was of use, one after the other.
    assert_eq!(
        (batch.report.received_bytes, batch.report.useful_bytes),
        (24, 12)
    );
    assert_eq!((batch.report.requests, batch.report.round_trips), (2, 2));
    assert_eq!(store.meters().rows.snapshot().integrity_failures, 1);
    assert_eq!(store.rows(&ids([5000])).await.unwrap().report.hit, 1);
}

#[tokio::test]
async fn a_row_refused_twice_is_an_error_that_names_it_and_is_never_cached() {
    let table = Table::deep();
    let source = table.source();
    for request in [0, 1] {
        source.fault(request, Fault::Flipped);
    }
    let store = table.store(&source, config(100));
    let error = store.rows(&ids([5000])).await.unwrap_err();
    let Error::RowIntegrity {
        object,
        row,
        expected,
        found,
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((object.as_str(), row.0), ("table.rows", 5000));
    assert_eq!(
        expected[..],
        table.tree.pinned_nodes[(5000 >> 2) * 16..][..16]
    );
    assert_ne!(expected, found);
    assert!(
        error
            .to_string()
            .starts_with("row 5000 of table.rows does not verify: expected node ")
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(store.cached_rows(), 0);
    let meters = store.meters();
    assert_eq!(meters.rows.snapshot().integrity_failures, 2);
    assert_eq!(meters.rows.snapshot().useful_bytes, 0);
    assert_eq!(meters.outcomes.failed.load(Ordering::SeqCst), 1);
    // Asked twice and no more, until somebody asks again.
    assert_eq!(source.requests(), 2);
    assert_eq!(store.rows(&ids([5000])).await.unwrap().report.missed, 1);
}

/// Only the refused rows of a batch are asked for again; the others are kept.
#[tokio::test]
async fn one_bad_row_does_not_cost_its_neighbours() {
    let table = Table::new(9000, 700);
    let source = table.source();
    // Rows 10, 3000 and 8999 are too far apart to be merged: request 1 is row 3000.
    source.fault(1, Fault::Flipped);
    source.fault(3, Fault::Flipped);
    let store = table.store(&source, config(100));
    let asked = ids([8999, 3000, 10]);
    let error = store.rows(&asked).await.unwrap_err();
    assert!(
        matches!(error, Error::RowIntegrity { row, .. } if row.0 == 3000),
        "{error}"
    );
    assert_eq!(source.requests(), 4);
    assert_eq!(store.cached_rows(), 2);
    let report = store.rows(&asked).await.unwrap().report;
    assert_eq!((report.hit, report.missed), (2, 1));
}

/// A file with two rows exchanged: every byte is genuine, and each is in the wrong place.
#[tokio::test]
async fn swapped_rows_are_refused() {
    let table = Table::deep();
    let mut bytes = table.bytes.to_vec();
    let (left, right) = (20 * 12, 21 * 12);
    for offset in 0..12 {
        bytes.swap(left + offset, right + offset);
    }
    let source = Arc::new(MemorySource::new("swapped.rows", bytes));
    let (config, meters) = (config(100), StoreMeters::default());
    let verification = table.local_verification();
    let store = ColumnarEmbedBackend::new(
        source,
        table.layout(),
        table.digest(),
        verification,
        config,
        meters,
    )
    .unwrap();
    for row in [20, 21] {
        let error = store.rows(&ids([row])).await.unwrap_err();
        assert!(matches!(error, Error::RowIntegrity { row: named, .. } if named.0 == row));
    }
    store.rows(&ids([19, 22])).await.unwrap();
    assert_eq!(store.cached_rows(), 2);
}

#[tokio::test]
async fn remote_paths_are_fetched_with_the_rows_and_a_wrong_one_is_asked_again() {
    let table = Table::deep();
    let (source, paths) = (table.source(), table.path_source());
    paths.fault(0, Fault::Flipped);
    let remote = PathSource::Remote {
        source: paths.clone() as _,
        base_bytes: 0,
    };
    let store = table.store_with(&source, table.verification(remote), config(100));
    let batch = store.rows(&ids([77])).await.unwrap();
    assert_eq!(batch.rows[0][..], table.rows[77]);
    assert_eq!(
        (batch.report.path_received_bytes, batch.report.round_trips),
        (64, 2)
    );
    let snapshot = store.meters().paths.snapshot();
    assert_eq!(
        (
            snapshot.received_bytes,
            snapshot.useful_bytes,
            snapshot.waves
        ),
        (64, 32, 2)
    );
}

#[tokio::test]
async fn a_path_that_cannot_be_read_fails_the_row_and_names_the_path_object() {
    let table = Table::deep();
    let (source, paths) = (table.source(), table.path_source());
    paths.fault(0, Fault::Broken);
    let remote = PathSource::Remote {
        source: paths.clone() as _,
        base_bytes: 0,
    };
    let store = table.store_with(&source, table.verification(remote), config(100));
    let error = store.rows(&ids([77])).await.unwrap_err();
    assert_eq!(error.to_string(), "table.gkq could not be read");
    assert_eq!(store.cached_rows(), 0);
    store.rows(&ids([77])).await.unwrap();
}

/// A path table inside a knot starts at an offset, and paths of neighbouring rows merge.
#[tokio::test]
async fn a_path_table_may_lie_anywhere_in_its_object() {
    let table = Table::deep();
    let knot = [&[0xee; 333][..], &table.paths, &[0xee; 50]].concat();
    let paths = Arc::new(MemorySource::new("model.gkq", knot));
    let remote = PathSource::Remote {
        source: paths,
        base_bytes: 333,
    };
    let source = table.source();
    let store = table.store_with(&source, table.verification(remote), config(100));
    let batch = store.rows(&ids((100..140).chain([20_010]))).await.unwrap();
    assert_eq!(batch.rows[40][..], table.rows[20_010]);
    assert_eq!(batch.report.path_received_bytes, 41 * 32);
    assert_eq!(batch.report.requests, 4);
}

#[tokio::test]
async fn a_short_reply_is_an_error_and_not_a_short_row() {
    let table = Table::deep();
    let source = table.source();
    source.fault(0, Fault::Short);
    let store = table.store_with(&source, Verification::Off, config(100));
    let error = store.rows(&ids([1])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(store.cached_rows(), 0);
}

#[test]
fn parts_that_do_not_fit_together_are_refused_before_any_request() {
    let table = Table::deep();
    let verifier = |tree: &RowTree, paths: PathSource| RowTreeVerifier::new(tree.clone(), paths);
    let short = PathSource::Local(table.paths.slice(1..));
    assert_eq!(
        verifier(&table.tree, short).unwrap_err().to_string(),
        "row tree of 20011 rows: bytes of the path table is 640351, expected 640352"
    );
    let source = Arc::new(MemorySource::new("cut.gkq", table.paths.slice(1..)));
    let cut = PathSource::Remote {
        source,
        base_bytes: 0,
    };
    assert_eq!(
        verifier(&table.tree, cut).unwrap_err().to_string(),
        "cut.gkq has 640351 bytes, its rows end at 640352"
    );
    let forged = RowTree {
        root: [1; 16],
        ..table.tree.clone()
    };
    let error = verifier(&forged, PathSource::Local(Bytes::new())).unwrap_err();
    assert!(matches!(
        error,
        Error::TreeRoot {
            expected: [1, ..],
            ..
        }
    ));

    let open = |rows: u64, verification| {
        let layout = RowLayout::new(0, rows, 12).unwrap();
        let source = Arc::new(MemorySource::new("table.rows", table.bytes.clone()));
        let (config, meters) = (RowStoreConfig::default(), StoreMeters::default());
        ColumnarEmbedBackend::new(source, layout, [0; 32], verification, config, meters)
    };
    assert_eq!(
        open(20_000, table.local_verification())
            .unwrap_err()
            .to_string(),
        "row tree of 20011 rows: number of rows is 20011, expected 20000"
    );
    assert_eq!(
        open(20_012, Verification::Off).unwrap_err().to_string(),
        "table.rows has 240132 bytes, its rows end at 240144"
    );
}

/// Rows that nobody checked must not answer a store that checks, though they share a cache.
#[tokio::test]
async fn unchecked_rows_do_not_leak_through_a_shared_cache() {
    let table = Table::deep();
    let source = table.source();
    source.fault(0, Fault::Flipped);
    let unchecked = table.store_with(&source, Verification::Off, config(100));
    let wrong = unchecked.rows(&ids([5])).await.unwrap();
    assert_ne!(wrong.rows[0][..], table.rows[5]);
    let checked = table
        .store(&source, config(0))
        .with_cache(unchecked.cache().clone());
    let right = checked.rows(&ids([5])).await.unwrap();
    assert_eq!(right.rows[0][..], table.rows[5]);
    assert_eq!(right.report.missed, 1);
}
