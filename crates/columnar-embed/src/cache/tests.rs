//! The policy (new rows are let in), the bound, and what the cache says about itself.

use super::*;

fn cache(capacity_rows: u64) -> (RowCache, Arc<RowOutcomes>) {
    let outcomes = Arc::new(RowOutcomes::default());
    (
        RowCache::new(capacity_rows, Arc::clone(&outcomes)),
        outcomes,
    )
}

fn key(row: u64) -> RowKey {
    RowKey {
        object: [7; 32],
        row: RowId(row),
        verified: true,
    }
}

fn row(value: u64) -> Row {
    Row::from(&value.to_le_bytes()[..])
}

fn fill(cache: &RowCache, rows: std::ops::Range<u64>) {
    cache.shelf.insert_all(rows.map(|id| (key(id), row(id))));
}

#[test]
fn a_full_cache_takes_a_new_row_at_its_first_reading() {
    let (cache, _) = cache(64);
    fill(&cache, 0..64);
    // The old rows are popular, which is where a frequency-based policy turns new ones away.
    for _ in 0..20 {
        for id in 0..64 {
            assert!(cache.shelf.get(&key(id)).is_some());
        }
    }
    fill(&cache, 1000..1001);
    assert_eq!(cache.shelf.get(&key(1000)), Some(row(1000)));
}

#[test]
fn the_least_recently_used_row_goes_first() {
    let (cache, outcomes) = cache(3);
    fill(&cache, 0..3);
    assert!(cache.shelf.get(&key(0)).is_some());
    fill(&cache, 3..4);
    let held: Vec<u64> = (0..4)
        .filter(|id| cache.shelf.get(&key(*id)).is_some())
        .collect();
    assert_eq!(held, [0, 2, 3]);
    assert_eq!(outcomes.evictions.load(Ordering::Relaxed), 1);
}

#[test]
fn capacity_holds_after_every_load_and_bytes_are_those_of_the_rows_held() {
    let (cache, outcomes) = cache(10);
    for load in 0..50 {
        fill(&cache, load * 7..load * 7 + 25);
        assert!(cache.len_rows() <= 10, "{} rows", cache.len_rows());
        assert_eq!(cache.len_bytes(), cache.len_rows() * 8);
    }
    assert!(outcomes.evictions.load(Ordering::Relaxed) >= 300);
}

#[test]
fn a_row_replaced_is_neither_counted_twice_nor_called_evicted() {
    let (cache, outcomes) = cache(10);
    fill(&cache, 0..4);
    fill(&cache, 0..4);
    assert_eq!((cache.len_rows(), cache.len_bytes()), (4, 32));
    assert_eq!(outcomes.evictions.load(Ordering::Relaxed), 0);
}

#[test]
fn a_cache_without_room_keeps_nothing_and_evicts_nothing() {
    let (cache, outcomes) = cache(0);
    fill(&cache, 0..5);
    assert_eq!((cache.len_rows(), cache.len_bytes()), (0, 0));
    assert_eq!(cache.shelf.get(&key(0)), None);
    assert_eq!(outcomes.evictions.load(Ordering::Relaxed), 0);
}

#[test]
fn other_objects_and_unchecked_rows_are_other_rows() {
    let (cache, _) = cache(10);
    fill(&cache, 0..1);
    let other = RowKey {
        object: [8; 32],
        ..key(0)
    };
    let unchecked = RowKey {
        verified: false,
        ..key(0)
    };
    assert!(cache.shelf.get(&key(0)).is_some());
    assert!(cache.shelf.get(&other).is_none());
    assert!(cache.shelf.get(&unchecked).is_none());
}
