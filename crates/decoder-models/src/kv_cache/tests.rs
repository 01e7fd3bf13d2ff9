//! The cache against the obvious model: all rows in a list.

use low_bit_kernels::attention::{KEY_BLOCK, key_index};
use proptest::prelude::*;

use super::KvCache;

const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 3;
const ROW: usize = KV_HEADS * HEAD_DIM;

/// Appends rows whose values tell layer, position and place; returns what `layer` now holds.
fn append(cache: &mut KvCache, added: usize) {
    let (start, capacity) = (cache.len(), cache.capacity());
    for layer in cache.layers_mut() {
        let rows: Vec<f32> = (start * ROW..(start + added) * ROW)
            .map(|i| i as f32)
            .collect();
        let negated: Vec<f32> = rows.iter().map(|value| -value).collect();
        layer.append(start, &rows, &negated, capacity);
    }
    cache.advance(added);
}

/// Checks every position that the next token, or the last one appended, may see.
fn assert_holds(cache: &mut KvCache, seen_from: usize) {
    let length = cache.len();
    for layer in cache.layers_mut() {
        let oldest = layer.first_needed(seen_from);
        assert!(
            layer.first() <= oldest,
            "released {} although {oldest} is needed",
            layer.first()
        );
        for position in oldest..length {
            for head in 0..KV_HEADS {
                let of_head = head * layer.slots() * HEAD_DIM;
                let slot = position - layer.first();
                for place in 0..HEAD_DIM {
                    let expected = (position * ROW + head * HEAD_DIM + place) as f32;
                    let key = of_head + key_index(HEAD_DIM, slot, place);
                    assert_eq!(layer.keys()[key], expected);
                    assert_eq!(layer.values()[of_head + slot * HEAD_DIM + place], -expected);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn every_visible_position_is_there(
        window in 1_usize..200,
        capacity in prop::sample::select(vec![300_usize, 1500]),
        steps in prop::collection::vec(1_usize..120, 1..40),
    ) {
        let mut cache = KvCache::new(capacity, KV_HEADS, HEAD_DIM, &[None, Some(window)]);
        for added in steps {
            if cache.check_room(added).is_err() {
                prop_assert!(cache.len() + added > capacity);
                break;
            }
            let first_query = cache.len();
            append(&mut cache, added);
            assert_holds(&mut cache, first_query);
            let [full, sliding] = cache.layers_mut() else { panic!("two layers") };
            prop_assert!(full.slots() <= capacity.next_multiple_of(KEY_BLOCK));
            prop_assert!(sliding.slots() <= 2 * (window + 120 + 64), "{} slots", sliding.slots());
        }
    }

    #[test]
    fn a_rollback_is_refused_or_continues_rightly(
        window in 1_usize..100,
        lengths in prop::collection::vec((1_usize..90, 0_usize..90), 1..12),
    ) {
        let mut cache = KvCache::new(1500, KV_HEADS, HEAD_DIM, &[Some(window), None]);
        for (added, back) in lengths {
            append(&mut cache, added);
            let target = cache.len().saturating_sub(back);
            if cache.truncate(target).is_ok() {
                prop_assert_eq!(cache.len(), target);
                append(&mut cache, 1);
                assert_holds(&mut cache, target);
            }
        }
        prop_assert!(cache.truncate(cache.len() + 1).is_err());
    }
}

#[test]
fn memory_is_taken_as_the_sequence_grows() {
    let mut cache = KvCache::new(1 << 20, KV_HEADS, HEAD_DIM, &[None; 4]);
    assert_eq!(cache.allocated_bytes(), 0);
    append(&mut cache, 10);
    let position_bytes = 4 * 2 * ROW * size_of::<f32>();
    assert_eq!(cache.allocated_bytes(), 64 * position_bytes);
    append(&mut cache, 990);
    assert!(cache.allocated_bytes() <= 1504 * position_bytes);
}

#[test]
fn a_short_sequence_never_moves_its_buffers() {
    let mut cache = KvCache::new(1000, KV_HEADS, HEAD_DIM, &[None]);
    let buffer = cache.layers_mut()[0].keys().as_ptr();
    for added in [1, 512, 400, 87] {
        append(&mut cache, added);
        assert_holds(&mut cache, 0);
    }
    assert_eq!(cache.layers_mut()[0].keys().as_ptr(), buffer);
}

#[test]
fn a_pass_that_failed_half_way_leaves_no_trace() {
    let mut cache = KvCache::new(40, KV_HEADS, HEAD_DIM, &[None, Some(4)]);
    append(&mut cache, 30);
    // Only the first layer takes the rows, and nothing is counted.
    cache.layers_mut()[0].append(30, &[7.0; 5 * ROW], &[7.0; 5 * ROW], 40);
    assert_eq!(cache.len(), 30);
    append(&mut cache, 10);
    assert_holds(&mut cache, 30);
    assert!(cache.check_room(1).is_err());
}
