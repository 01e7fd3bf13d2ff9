//! How fast are products on each instruction set: bytes of weights per second with one activation
//! row (decode), multiply-adds per second with 64 (prefill)?
//!
//! Rows are as many as make 8 Mi weights, more than the second-level cache holds at any type. One
//! thread; criterion's throughput is the figure. `cargo bench -p low-bit-kernels -- q8_0/k=576`
//! narrows it down.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use low_bit_kernels::attention::{AttentionShape, CacheValue, KeyValues, attend};
use low_bit_kernels::{InstructionSet, WeightMatrix, WeightType};
use std::hint::black_box;
use std::time::Duration;

const WEIGHTS: usize = 8 << 20;

/// Bits that are a finite f16 wherever a block keeps a scale, and vary elsewhere.
fn bytes(len: usize) -> Bytes {
    (0..len)
        .map(|i| {
            if i % 2 == 0 {
                (i * 37 % 251).to_le_bytes()[0]
            } else {
                0x21
            }
        })
        .collect()
}

fn products(criterion: &mut Criterion) {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("a thread");
    let sets: Vec<_> = InstructionSet::ALL
        .into_iter()
        .filter(|set| set.is_available())
        .collect();
    for weight_type in WeightType::ALL {
        for cols in [576, 640, 1536, 2048] {
            let Some(row_bytes) = weight_type.row_bytes(cols) else {
                continue;
            };
            let rows = WEIGHTS / cols;
            let stored = bytes(rows * row_bytes);
            let activations: Vec<f32> = (0..64 * cols).map(|i| (i as f32 * 0.37).sin()).collect();
            let mut output = vec![0.0; 64 * rows];
            for tokens in [1, 64] {
                let mut group =
                    criterion.benchmark_group(format!("{weight_type}/k={cols}/tokens={tokens}"));
                group
                    .sample_size(10)
                    .warm_up_time(Duration::from_millis(100));
                group.measurement_time(Duration::from_millis(400));
                group.throughput(match tokens {
                    1 => Throughput::Bytes((rows * row_bytes) as u64),
                    _ => Throughput::Elements((rows * cols * tokens) as u64),
                });
                for &set in &sets {
                    let matrix = WeightMatrix::new(weight_type, rows, cols, stored.clone())
                        .expect("good shapes");
                    let matrix = matrix.with_instruction_set(set).expect("available");
                    group.bench_function(BenchmarkId::from_parameter(set), |bencher| {
                        let (x, out) =
                            (&activations[..tokens * cols], &mut output[..tokens * rows]);
                        pool.install(|| bencher.iter(|| matrix.matmul(black_box(x), tokens, out)));
                    });
                }
                group.finish();
            }
        }
    }
}

/// One layer's attention, 9 query heads on 3 key/value heads of 64, in multiply-adds per second, over
/// keys and values of either type.
fn attention(criterion: &mut Criterion) {
    let cache: Vec<f32> = (0..3 * 512 * 64).map(|i| (i as f32 * 0.11).sin()).collect();
    let mut halves = vec![0_u16; cache.len()];
    CacheValue::store(&cache, &mut halves).expect("equal lengths");
    attention_over(criterion, "f32", &cache);
    attention_over(criterion, "f16", &halves);
}

fn attention_over<E: CacheValue>(criterion: &mut Criterion, stored: &str, cache: &[E]) {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("a thread");
    let shape = AttentionShape {
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        capacity: 512,
        window: None,
        scale: 0.125,
        soft_cap: None,
    };
    let cache = KeyValues {
        keys: cache,
        values: cache,
    };
    let q: Vec<f32> = (0..512 * 9 * 64).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut out = vec![0.0; q.len()];
    let mut group = criterion.benchmark_group(format!("attention {stored}"));
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    for (name, tokens, pairs) in [
        ("decode at 512", 1, 512),
        ("prefill 512", 512, 512 * 513 / 2),
    ] {
        group.throughput(Throughput::Elements(pairs * 9 * 64 * 2));
        group.bench_function(name, |bencher| {
            let (q, out) = (&q[..tokens * 576], &mut out[..tokens * 576]);
            pool.install(|| {
                bencher.iter(|| attend(&shape, black_box(q), cache, 512 - tokens, out))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, products, attention);
criterion_main!(benches);
