//! Attention against a plain f64 oracle, and its independence of the call it is part of.

use super::{Attention, AttentionShape, CacheValue, KEY_BLOCK, KeyValues, attend, key_index};
use crate::{Error, InstructionSet};
use proptest::prelude::*;

fn noise(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn run<E: CacheValue>(
    set: InstructionSet,
    shape: &AttentionShape,
    q: &[f32],
    cache: KeyValues<'_, E>,
    start: usize,
) -> Vec<f32> {
    let mut out = vec![f32::NAN; q.len()];
    Attention {
        shape,
        cache,
        start_position: start,
        instruction_set: set,
    }
    .run(q, &mut out)
    .expect("good shapes");
    out
}

/// The definition, in f64.
fn oracle(shape: &AttentionShape, q: &[f32], cache: KeyValues<'_, f32>, start: usize) -> Vec<f64> {
    let AttentionShape {
        heads,
        kv_heads,
        head_dim,
        capacity,
        ..
    } = *shape;
    let mut out = Vec::new();
    for (index, q) in q.chunks(head_dim).enumerate() {
        let (position, head) = (start + index / heads, index % heads);
        let of_head = head * kv_heads / heads * capacity * head_dim;
        let key_at = |p: usize, i: usize| of_head + key_index(head_dim, p, i);
        let value_at = |p: usize, i: usize| of_head + p * head_dim + i;
        let seen: Vec<usize> = (0..=position)
            .filter(|p| shape.window.is_none_or(|window| position - p < window))
            .collect();
        let scores: Vec<f64> = seen
            .iter()
            .map(|&p| {
                let dot: f64 = (0..head_dim)
                    .map(|i| f64::from(q[i]) * f64::from(cache.keys[key_at(p, i)]))
                    .sum();
                let score = dot * f64::from(shape.scale);
                shape.soft_cap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                })
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..head_dim).map(|i| {
            let terms = seen
                .iter()
                .zip(&weights)
                .map(|(&p, weight)| weight * f64::from(cache.values[value_at(p, i)]));
            terms.sum::<f64>() / sum
        }));
    }
    out
}

prop_compose! {
    fn shapes()(
        kv_heads in 1_usize..4, group in 1_usize..6, head_dim in prop_oneof![1_usize..40, Just(64), Just(80), Just(256)],
        capacity in (1_usize..6).prop_map(|blocks| blocks * KEY_BLOCK), window in proptest::option::of(1_usize..40), scale in 0.01_f32..3.0,
        soft_cap in proptest::option::of(0.5_f32..50.0),
    ) -> AttentionShape {
        AttentionShape { heads: kv_heads * group, kv_heads, head_dim, capacity, window, scale, soft_cap }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Values are averages of numbers in -1..1; f32 scores of magnitude up to 3 * 256 move weights
    /// by up to 1e-4 relative.
    #[test]
    fn agrees_with_the_definition(
        shape in shapes(), seed in any::<u32>(), percent in 0_usize..100, short in 0..KEY_BLOCK,
    ) {
        let start = shape.capacity * percent / 100;
        // The end need not be that of a key block.
        let tokens = (shape.capacity - start).saturating_sub(short);
        let cache_len = shape.kv_heads * shape.capacity * shape.head_dim;
        let (keys, values) = (noise(seed, cache_len), noise(seed ^ 1, cache_len));
        let q = noise(seed ^ 2, tokens * shape.heads * shape.head_dim);
        let cache = KeyValues { keys: &keys, values: &values };
        let expected = oracle(&shape, &q, cache, start);
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            let found = run(set, &shape, &q, cache, start);
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert!((f64::from(*found) - expected).abs() < 2e-4, "{set}: {found} instead of {expected}");
            }
        }
    }

    /// All queries at once, one by one, on one thread and on several: the same bits.
    #[test]
    fn a_query_does_not_feel_the_others(shape in shapes(), seed in any::<u32>()) {
        let cache_len = shape.kv_heads * shape.capacity * shape.head_dim;
        let (keys, values) = (noise(seed, cache_len), noise(seed ^ 1, cache_len));
        let row = shape.heads * shape.head_dim;
        let q = noise(seed ^ 2, shape.capacity * row);
        let cache = KeyValues { keys: &keys, values: &values };
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            let together = run(set, &shape, &q, cache, 0);
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                let pooled = pool.install(|| run(set, &shape, &q, cache, 0));
                prop_assert!(same_bits(&pooled, &together), "{set}, {threads} threads");
            }
            for (position, (q, together)) in q.chunks(row).zip(together.chunks(row)).enumerate() {
                prop_assert!(same_bits(&run(set, &shape, q, cache, position), together), "{set}, query {position}");
            }
        }
    }

    /// Widening is exact, so halves give the bits of the f32 values that they stand for, and with them
    /// everything that holds of those.
    #[test]
    fn halves_are_what_they_widen_to(shape in shapes(), seed in any::<u32>(), percent in 0_usize..100) {
        let cache_len = shape.kv_heads * shape.capacity * shape.head_dim;
        let halves = [seed, seed ^ 1].map(|seed| {
            let mut halves = vec![0_u16; cache_len];
            CacheValue::store(&noise(seed, cache_len), &mut halves).expect("equal lengths");
            halves
        });
        let widened = halves.each_ref().map(|halves| halves.iter().map(|half| half.widen()).collect::<Vec<f32>>());
        let start = shape.capacity * percent / 100;
        let q = noise(seed ^ 2, (shape.capacity - start) * shape.heads * shape.head_dim);
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            let expected = run(set, &shape, &q, KeyValues { keys: &widened[0], values: &widened[1] }, start);
            let found = run(set, &shape, &q, KeyValues { keys: &halves[0], values: &halves[1] }, start);
            prop_assert!(same_bits(&found, &expected), "{set}");
        }
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[test]
fn positions_outside_the_window_and_after_the_query_are_not_read() {
    let shape = AttentionShape {
        heads: 2,
        kv_heads: 1,
        head_dim: 8,
        capacity: 16,
        window: Some(3),
        scale: 1.0,
        soft_cap: None,
    };
    let (mut keys, mut values) = (noise(1, 128), noise(2, 128));
    let q = noise(3, 16);
    let clean = run(
        InstructionSet::current(),
        &shape,
        &q,
        KeyValues {
            keys: &keys,
            values: &values,
        },
        5,
    );
    for position in [0, 2, 6, 9] {
        (0..8).for_each(|place| keys[key_index(8, position, place)] = f32::NAN);
        values[position * 8..position * 8 + 8].fill(f32::NAN);
    }
    let poisoned = run(
        InstructionSet::current(),
        &shape,
        &q,
        KeyValues {
            keys: &keys,
            values: &values,
        },
        5,
    );
    assert!(same_bits(&clean, &poisoned));
}

const GOOD: AttentionShape = AttentionShape {
    heads: 4,
    kv_heads: 2,
    head_dim: 8,
    capacity: 16,
    window: None,
    scale: 1.0,
    soft_cap: None,
};

/// `tokens` queries of a good length, against a cache of the given length.
fn call(
    shape: AttentionShape,
    tokens: usize,
    start: usize,
    cache_len: usize,
) -> Result<(), String> {
    let (q, mut out) = (vec![0.0; tokens * 32], vec![0.0; tokens * 32]);
    let cache = vec![0.0_f32; cache_len];
    let cache = KeyValues {
        keys: &cache,
        values: &cache,
    };
    attend(&shape, &q, cache, start, &mut out).map_err(|error| error.to_string())
}

#[test]
fn positions_beyond_the_capacity_are_refused() {
    assert_eq!(call(GOOD, 4, 12, 256), Ok(()));
    assert_eq!(call(GOOD, 0, 16, 256), Ok(()));
    let text = "attention shape: end position is 17, expected at most the cache's capacity";
    assert_eq!(call(GOOD, 2, 15, 256), Err(text.to_owned()));
    assert!(call(GOOD, 1, usize::MAX, 256).is_err());
}

#[test]
fn contradictory_shapes_are_refused_by_name() {
    assert_eq!(
        call(GOOD, 1, 0, 255),
        Err("keys (values) is 255 long, expected 256".to_owned())
    );
    let odd = AttentionShape {
        capacity: 15,
        ..GOOD
    };
    let text = "attention shape: cache's capacity is 15, expected a multiple of 16";
    assert_eq!(call(odd, 1, 0, 240), Err(text.to_owned()));
    let changes: [fn(&mut AttentionShape); 4] = [
        |shape| shape.kv_heads = 3,
        |shape| shape.kv_heads = 0,
        |shape| shape.head_dim = 0,
        |shape| shape.window = Some(0),
    ];
    for change in changes {
        let mut shape = GOOD;
        change(&mut shape);
        assert!(call(shape, 1, 0, 256).is_err(), "{shape:?}");
    }
    let (q, mut out, cache) = ([0.0; 33], [0.0; 32], [0.0_f32; 256]);
    let refused = attend(
        &GOOD,
        &q,
        KeyValues {
            keys: &cache,
            values: &cache,
        },
        0,
        &mut out,
    );
    let expected = Error::Length {
        what: "queries (values)",
        expected: 32,
        found: 33,
    };
    assert_eq!(refused, Err(expected));
}
