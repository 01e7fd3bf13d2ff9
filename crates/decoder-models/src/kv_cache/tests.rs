//! The cache against the obvious model: all rows in a list.

use low_bit_kernels::attention::{CacheValue, KEY_BLOCK};
use proptest::prelude::*;

use super::{KvCache, KvPrecision};

const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 3;
const ROW: usize = KV_HEADS * HEAD_DIM;

fn new_cache(capacity: usize, precision: KvPrecision, windows: &[Option<usize>]) -> KvCache {
    KvCache::new(capacity, precision, [KV_HEADS, HEAD_DIM], windows)
}

/// What a cache gives back for `value`.
fn stored(precision: KvPrecision, value: f32) -> f32 {
    let mut half = [0_u16];
    match precision {
        KvPrecision::F32 => value,
        KvPrecision::F16 => {
            CacheValue::store(&[value], &mut half).unwrap();
            half[0].widen()
        }
    }
}

/// Appends rows whose values tell layer, position and place; returns what `layer` now holds.
fn append(cache: &mut KvCache, added: usize) {
    let (start, capacity) = (cache.len(), cache.capacity());
    for layer in cache.layers_mut() {
        let rows: Vec<f32> = (start * ROW..(start + added) * ROW)
            .map(|i| i as f32)
            .collect();
        let negated: Vec<f32> = rows.iter().map(|value| -value).collect();
        layer.append(start, &rows, &negated, capacity).unwrap();
    }
    cache.advance(added);
}

/// Checks every position that the next token, or the last one appended, may see.
fn assert_holds(cache: &mut KvCache, precision: KvPrecision, seen_from: usize) {
    let length = cache.len();
    for layer in cache.layers_mut() {
        let oldest = layer.first_needed(seen_from);
        assert!(
            layer.first <= oldest,
            "released {} although {oldest} is needed",
            layer.first
        );
        for position in oldest..length {
            for head in 0..KV_HEADS {
                for place in 0..HEAD_DIM {
                    let written = (position * ROW + head * HEAD_DIM + place) as f32;
                    let expected = stored(precision, written);
                    assert_eq!(layer.at(head, position, place), [expected, -expected]);
                }
            }
        }
    }
}

fn precisions() -> impl Strategy<Value = KvPrecision> {
    prop::sample::select(vec![KvPrecision::F16, KvPrecision::F32])
}

proptest! {
    #[test]
    fn every_visible_position_is_there(
        precision in precisions(),
        window in 1_usize..200,
        capacity in prop::sample::select(vec![300_usize, 1500]),
        steps in prop::collection::vec(1_usize..120, 1..40),
    ) {
        let mut cache = new_cache(capacity, precision, &[None, Some(window)]);
        for added in steps {
            if cache.check_room(added).is_err() {
                prop_assert!(cache.len() + added > capacity);
                break;
            }
            let first_query = cache.len();
            append(&mut cache, added);
            assert_holds(&mut cache, precision, first_query);
            let [full, sliding] = cache.layers_mut() else { panic!("two layers") };
            prop_assert!(full.slots <= capacity.next_multiple_of(KEY_BLOCK));
            prop_assert!(sliding.slots <= 2 * (window + 120 + 64), "{} slots", sliding.slots);
        }
    }

    #[test]
    fn a_rollback_is_refused_or_continues_rightly(
        precision in precisions(),
        window in 1_usize..100,
        lengths in prop::collection::vec((1_usize..90, 0_usize..90), 1..12),
    ) {
        let mut cache = new_cache(1500, precision, &[Some(window), None]);
        for (added, back) in lengths {
            append(&mut cache, added);
            let target = cache.len().saturating_sub(back);
            if cache.truncate(target).is_ok() {
                prop_assert_eq!(cache.len(), target);
                append(&mut cache, 1);
                assert_holds(&mut cache, precision, target);
            }
        }
        prop_assert!(cache.truncate(cache.len() + 1).is_err());
    }
}

#[test]
fn memory_is_taken_as_the_sequence_grows() {
    for (precision, bytes) in [(KvPrecision::F16, 2), (KvPrecision::F32, 4)] {
        let mut cache = new_cache(1 << 20, precision, &[None; 4]);
        assert_eq!(cache.allocated_bytes(), 0);
        append(&mut cache, 10);
        let position_bytes = 4 * 2 * ROW * bytes;
        // One row more per layer, on its way.
        let rows = position_bytes / 2;
        assert_eq!(cache.allocated_bytes(), 64 * position_bytes + rows);
        append(&mut cache, 990);
        assert!(cache.allocated_bytes() <= 1504 * position_bytes + rows);
    }
}

#[test]
fn a_short_sequence_never_moves_its_buffers() {
    let precision = KvPrecision::F16;
    let mut cache = new_cache(1000, precision, &[None]);
    let buffer = cache.layers_mut()[0].keys_at();
    for added in [1, 512, 400, 87] {
        append(&mut cache, added);
        assert_holds(&mut cache, precision, 0);
    }
    assert_eq!(cache.layers_mut()[0].keys_at(), buffer);
}

#[test]
fn a_pass_that_failed_half_way_leaves_no_trace() {
    let precision = KvPrecision::F16;
    let mut cache = new_cache(40, precision, &[None, Some(4)]);
    append(&mut cache, 30);
    // Only the first layer takes the rows, and nothing is counted.
    let first = &mut cache.layers_mut()[0];
    first
        .append(30, &[7.0; 5 * ROW], &[7.0; 5 * ROW], 40)
        .unwrap();
    assert_eq!(cache.len(), 30);
    append(&mut cache, 10);
    assert_holds(&mut cache, precision, 30);
    assert!(cache.check_room(1).is_err());
}
