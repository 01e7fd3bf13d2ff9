//! Concurrent callers: one request a row, nobody stranded, no error remembered.

use std::{collections::HashMap, sync::Arc, sync::atomic::Ordering};

use columnar_embed::{ColumnarEmbedBackend, Error, RowStoreConfig};
use helix_transport::ErrorKind;

use crate::{
    source::{Fault, ScriptedSource},
    table::{Table, config, ids},
};

/// No merging, so that each request is one row.
fn single_rows(cache_rows: u64) -> RowStoreConfig {
    RowStoreConfig {
        overfetch_ratio: 0.0,
        max_span_bytes: 1,
        ..config(cache_rows)
    }
}

fn held(table: &Table, cache_rows: u64) -> (Arc<ScriptedSource>, Arc<ColumnarEmbedBackend>) {
    let source = table.source();
    source.hold_replies();
    let store = Arc::new(table.store(&source, single_rows(cache_rows)));
    (source, store)
}

/// Lets tasks that can run do so until they wait; replies are held, so they stay waiting.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn concurrent_callers_make_one_request_a_row() {
    let table = Table::new(1000, 8);
    let (source, store) = held(&table, 100);
    let callers: Vec<_> = (0..20)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move { store.rows(&ids(caller..caller + 30)).await })
        })
        .collect();
    settle().await;
    source.release_replies();
    let (mut missed, mut coalesced) = (0, 0);
    for caller in callers {
        let report = caller.await.unwrap().unwrap().report;
        assert_eq!(report.hit + report.missed + report.coalesced, 30);
        missed += report.missed;
        coalesced += report.coalesced;
    }
    assert_eq!((missed, coalesced), (49, 20 * 30 - 49));
    assert_eq!(source.requests(), 49);
    let outcomes = &store.meters().outcomes;
    assert_eq!(outcomes.miss.load(Ordering::SeqCst), 49);
    assert_eq!(outcomes.coalesced.load(Ordering::SeqCst), coalesced);
}

/// On real threads, without gates: however callers interleave, a row is asked for once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_row_is_fetched_twice_under_contention() {
    let table = Arc::new(Table::new(3000, 8));
    let source = table.source();
    let store = Arc::new(table.store(&source, single_rows(3000)));
    let callers: Vec<_> = (0..16_u64)
        .map(|caller| {
            let (store, table) = (store.clone(), table.clone());
            tokio::spawn(async move {
                for round in 0..60 {
                    let first = (caller * 7 + round * 13) % 900;
                    let asked = ids((first..first + 40).rev());
                    let batch = store.rows(&asked).await.unwrap();
                    for (id, row) in asked.iter().zip(&batch.rows) {
                        assert_eq!(row[..], table.rows[id.0 as usize]);
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let mut times = HashMap::new();
    for range in source.asked() {
        *times.entry(range.start).or_insert(0) += 1;
    }
    assert!(times.values().all(|asked| *asked == 1), "{times:?}");
    assert_eq!(store.cached_rows() as usize, times.len());
}

#[tokio::test]
async fn a_cancelled_leader_strands_nobody() {
    let table = Table::new(1000, 8);
    let (source, store) = held(&table, 100);
    let leading = store.clone();
    let leader = tokio::spawn(async move { leading.rows(&ids([1, 2, 3])).await });
    source.arrived(3).await;
    let following = store.clone();
    let follower = tokio::spawn(async move { following.rows(&ids([2, 3, 4])).await });
    source.arrived(1).await;
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    source.release_replies();

    let batch = follower.await.unwrap().unwrap();
    assert_eq!(batch.rows[0][..], table.rows[2]);
    assert_eq!((batch.report.coalesced, batch.report.missed), (2, 1));
    assert_eq!(source.requests(), 4);
    // What the leader asked for alone was paid for, so it is kept.
    assert_eq!(store.rows(&ids([1])).await.unwrap().report.hit, 1);
    assert_eq!(store.meters().outcomes.miss.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_leader_cancelled_before_its_first_poll_leaves_no_trace() {
    let table = Table::new(10, 8);
    let source = table.source();
    let store = table.store(&source, config(10));
    let asked = ids([1]);
    drop(store.rows(&asked));
    assert_eq!(source.requests(), 0);
    assert_eq!(store.rows(&asked).await.unwrap().report.missed, 1);
}

#[tokio::test]
async fn an_error_wakes_everyone_and_is_not_remembered() {
    let table = Table::new(1000, 8);
    let (source, store) = held(&table, 100);
    source.fault(0, Fault::Broken);
    let leading = store.clone();
    let leader = tokio::spawn(async move { leading.rows(&ids([1, 2])).await });
    source.arrived(2).await;
    let following = store.clone();
    let follower = tokio::spawn(async move { following.rows(&ids([1])).await });
    settle().await;
    source.release_replies();

    for caller in [leader, follower] {
        let error = caller.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "table.rows could not be read");
        assert_eq!(error.kind(), ErrorKind::Transient);
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.to_string().contains("broke off"), "{source}");
    }
    assert_eq!(source.requests(), 2);
    assert_eq!(store.meters().outcomes.failed.load(Ordering::SeqCst), 2);
    // Row 2 came in another reply than row 1, so it is cached though its batch failed.
    assert_eq!(store.cached_rows(), 1);
    let again = store.rows(&ids([1, 2])).await.unwrap();
    assert_eq!((again.report.missed, again.report.hit), (1, 1));
    assert_eq!(source.requests(), 3);
}

#[tokio::test]
async fn a_load_that_panics_is_an_error_for_all_and_nothing_hangs() {
    let table = Table::new(1000, 8);
    let (source, store) = held(&table, 100);
    source.fault(0, Fault::Panic);
    let leading = store.clone();
    let leader = tokio::spawn(async move { leading.rows(&ids([1])).await });
    source.arrived(1).await;
    let following = store.clone();
    let follower = tokio::spawn(async move { following.rows(&ids([1])).await });
    settle().await;
    source.release_replies();
    for caller in [leader, follower] {
        let error = caller.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::LoadStopped { rows: 1, .. }),
            "{error}"
        );
    }
    assert_eq!(store.row(ids([1])[0]).await.unwrap()[..], table.rows[1]);
}

#[tokio::test]
async fn dropping_the_store_ends_its_loads() {
    let table = Table::new(1000, 8);
    let (source, store) = held(&table, 100);
    let leading = store.clone();
    let leader = tokio::spawn(async move { leading.rows(&ids([1])).await });
    source.arrived(1).await;
    leader.abort();
    leader.await.unwrap_err();
    drop(store);
    settle().await;
    // The load held the last other handle.
    assert_eq!(Arc::strong_count(&source), 1);
}

/// Two tables of one model under one capacity; equal ids are not equal rows.
#[tokio::test]
async fn stores_may_share_a_cache() {
    let (words, bigrams) = (Table::new(100, 8), Table::new(5000, 16));
    let (word_source, bigram_source) = (words.source(), bigrams.source());
    let first = words.store(&word_source, config(40));
    let second = bigrams
        .store(&bigram_source, config(0))
        .with_cache(first.cache().clone());
    for _ in 0..3 {
        let asked = ids(0..30);
        let (some, others) = (
            first.rows(&asked).await.unwrap(),
            second.rows(&asked).await.unwrap(),
        );
        assert_eq!(some.rows[7][..], words.rows[7]);
        assert_eq!(others.rows[7][..], bigrams.rows[7]);
        assert_eq!((first.cached_rows(), second.cached_rows()), (40, 40));
    }
    // A mirror of the first table finds its rows.
    let mirror_source = words.source();
    let mirror = words
        .store(&mirror_source, config(0))
        .with_cache(first.cache().clone());
    first.rows(&ids([99])).await.unwrap();
    assert_eq!(mirror.rows(&ids([99])).await.unwrap().report.hit, 1);
    assert_eq!(mirror_source.requests(), 0);
}
