//! The store against the simplest thing it could be: a `Vec` of rows.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
};

use columnar_embed::{
    ColumnarEmbedBackend, Error, FetchReport, PathSource, RowBatch, RowId, Verification,
};
use proptest::prelude::*;

use crate::table::{Table, config, ids};

/// Where a store of the property below has its paths.
#[derive(Debug, Clone, Copy)]
enum Paths {
    Unchecked,
    Local,
    Remote,
}

fn check_batch(table: &Table, asked: &[RowId], batch: &RowBatch) {
    assert_eq!(batch.rows.len(), asked.len());
    for (id, row) in asked.iter().zip(&batch.rows) {
        assert_eq!(row[..], table.rows[id.0 as usize], "row {id}");
    }
    let report = batch.report;
    let distinct = asked.iter().collect::<BTreeSet<_>>().len() as u64;
    assert_eq!(
        (report.asked, report.distinct),
        (asked.len() as u64, distinct)
    );
    assert_eq!(report.hit + report.missed + report.coalesced, distinct);
    assert_eq!(
        report.useful_bytes,
        report.missed * u64::from(table.row_bytes)
    );
    // The overfetch budget of 5 %, exactly.
    assert!(report.received_bytes <= report.useful_bytes + report.useful_bytes / 20);
    assert_eq!(report.requests == 0, report.missed == 0);
    assert_eq!(report.round_trips == 0, report.missed == 0);
}

fn check_totals(store: &ColumnarEmbedBackend, reports: &[FetchReport]) {
    let sum = |field: fn(&FetchReport) -> u64| reports.iter().map(field).sum::<u64>();
    let (rows, paths) = (
        store.meters().rows.snapshot(),
        store.meters().paths.snapshot(),
    );
    assert_eq!(rows.received_bytes, sum(|report| report.received_bytes));
    assert_eq!(rows.useful_bytes, sum(|report| report.useful_bytes));
    assert_eq!(
        paths.received_bytes,
        sum(|report| report.path_received_bytes)
    );
    assert_eq!(
        rows.requests + paths.requests,
        sum(|report| report.requests)
    );
    let outcomes = &store.meters().outcomes;
    assert_eq!(
        outcomes.hit.load(Ordering::SeqCst),
        sum(|report| report.hit)
    );
    assert_eq!(
        outcomes.miss.load(Ordering::SeqCst),
        sum(|report| report.missed)
    );
    assert_eq!(outcomes.coalesced.load(Ordering::SeqCst), 0);
    assert_eq!(outcomes.failed.load(Ordering::SeqCst), 0);
    let held = outcomes.miss.load(Ordering::SeqCst) - outcomes.evictions.load(Ordering::SeqCst);
    if store.cache().capacity_rows() > 0 {
        assert_eq!(store.cached_rows(), held);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_those_of_the_table_whatever_is_asked(
        batches in prop::collection::vec(prop::collection::vec(0_u64..20_011, 0..40), 1..8),
        near in prop::collection::vec(0_u64..60, 0..80),
        cache_rows in 0_u64..50,
        paths in prop::sample::select(&[Paths::Unchecked, Paths::Local, Paths::Remote][..]),
    ) {
        let table = Table::deep();
        let (source, path_source) = (table.source(), table.path_source());
        let verification = match paths {
            Paths::Unchecked => Verification::Off,
            Paths::Local => table.local_verification(),
            Paths::Remote => {
                let source = Arc::clone(&path_source) as _;
                table.verification(PathSource::Remote { source, base_bytes: 0 })
            }
        };
        let store = table.store_with(&source, verification, config(cache_rows));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut reports = Vec::new();
        // Ids far apart, then a dense batch whose rows merge, then everything once more.
        for batch in batches.iter().chain([&near]).chain(&batches) {
            let asked = ids(batch.iter().copied());
            let answer = runtime.block_on(store.rows(&asked)).unwrap();
            check_batch(table, &asked, &answer);
            prop_assert!(store.cached_rows() <= cache_rows);
            prop_assert_eq!(store.cache().len_bytes(), store.cached_rows() * 12);
            let remote = matches!(paths, Paths::Remote) && answer.report.missed > 0;
            prop_assert_eq!(answer.report.path_received_bytes > 0, remote);
            reports.push(answer.report);
        }
        check_totals(&store, &reports);
        let requests = source.requests() + path_source.requests();
        prop_assert_eq!(requests as u64, reports.iter().map(|report| report.requests).sum::<u64>());
    }
}

#[tokio::test]
async fn tables_of_any_size_from_one_row_on() {
    for rows in [1, 2, 3, 7, 8, 9, 1000, 8192, 8193] {
        let table = Table::new(rows, 6);
        let source = table.source();
        let store = table.store(&source, config(4));
        let asked = ids([0, rows - 1, rows / 2, 0]);
        check_batch(&table, &asked, &store.rows(&asked).await.unwrap());
        assert_eq!(
            store.row(RowId(rows - 1)).await.unwrap()[..],
            table.rows[rows as usize - 1]
        );
    }
}

#[tokio::test]
async fn an_id_outside_the_matrix_is_refused_before_any_request() {
    let table = Table::new(100, 8);
    let source = table.source();
    let store = table.store(&source, config(10));
    for outside in [100, u64::MAX] {
        let error = store.rows(&ids([3, outside, 4])).await.unwrap_err();
        assert!(matches!(error, Error::RowOutsideMatrix { row, rows: 100 } if row.0 == outside));
    }
    assert_eq!(source.requests(), 0);
    assert_eq!(store.meters().outcomes.hit.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_empty_batch_asks_nothing() {
    let table = Table::new(100, 8);
    let source = table.source();
    let batch = table.store(&source, config(10)).rows(&[]).await.unwrap();
    assert!(batch.rows.is_empty());
    assert_eq!(batch.report, FetchReport::default());
    assert_eq!(source.requests(), 0);
}

/// A row read once into a full cache is there at its second reading.
#[tokio::test]
async fn a_full_cache_keeps_the_row_it_read_last() {
    let table = Table::new(1000, 8);
    let source = table.source();
    let store = table.store(&source, config(64));
    for _ in 0..5 {
        store.rows(&ids(0..64)).await.unwrap();
    }
    assert_eq!(store.cached_rows(), 64);
    assert_eq!(store.rows(&ids([900])).await.unwrap().report.missed, 1);
    assert_eq!(store.rows(&ids([900])).await.unwrap().report.hit, 1);
}

/// 109 scattered rows: 7 waves with 16 requests in flight, one where all can be.
#[tokio::test]
async fn round_trips_are_requests_over_what_the_source_keeps_in_flight() {
    let table = Table::new(40_000, 700);
    let asked = ids((0..109).map(|index| index * 300));
    for (parallelism, round_trips) in [(16, 7), (1, 109), (100_000, 1)] {
        let (source, paths) = (table.source(), table.path_source());
        source.set_parallelism(parallelism);
        paths.set_parallelism(parallelism);
        let remote = PathSource::Remote {
            source: paths.clone() as _,
            base_bytes: 0,
        };
        let store = table.store_with(&source, table.verification(remote), config(200));
        let report = store.rows(&asked).await.unwrap().report;
        // Rows and their paths are asked in the same wave.
        assert_eq!((report.requests, report.round_trips), (218, round_trips));
        assert_eq!(store.meters().rows.snapshot().waves, round_trips);
        assert_eq!(store.meters().paths.snapshot().waves, round_trips);
    }
}

#[tokio::test]
async fn a_batch_beyond_the_in_flight_limit_is_answered_alone() {
    let table = Table::new(5000, 64);
    let source = table.source();
    let limits = columnar_embed::RowStoreConfig {
        max_in_flight_bytes: 1,
        ..config(100)
    };
    let store = Arc::new(table.store(&source, limits));
    let batches: Vec<_> = (0..8_u64)
        .map(|batch| {
            let store = store.clone();
            tokio::spawn(async move { store.rows(&ids(batch * 500..batch * 500 + 500)).await })
        })
        .collect();
    for (batch, answer) in batches.into_iter().enumerate() {
        let first = batch as u64 * 500;
        check_batch(
            &table,
            &ids(first..first + 500),
            &answer.await.unwrap().unwrap(),
        );
    }
}

#[test]
fn a_store_outside_a_runtime_says_so() {
    let table = Table::new(10, 8);
    let store = table.store(&table.source(), config(10));
    let asked = ids([1]);
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(answer) = pin!(store.rows(&asked)).poll(&mut context) else {
        panic!("nothing can wake it here");
    };
    let error = answer.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rows of table.rows can only be loaded within a tokio runtime"
    );
}
