//! Answers: what does a row of a batch cost when every row is in the cache? The goal is at most
//! one microsecond a row, so that a prompt of 600 tokens spends less than a millisecond here.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "criterion's macros make undocumented items, and a benchmark may stop at a fault"
)]

use std::{hint::black_box, sync::Arc};

use columnar_embed::{
    ColumnarEmbedBackend, RowId, RowLayout, RowStoreConfig, StoreMeters, Verification,
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use helix_transport::MemorySource;
use tokio::runtime::{Builder, Runtime};

/// Rows of Qwen2.5-0.5B in bf16: 896 values of 2 bytes.
const ROW_BYTES: u32 = 1792;
const ROWS: u64 = 16_384;

/// One row (a decode step), a long prompt's distinct rows, a prefill chunk.
const BATCHES: [usize; 3] = [1, 109, 2048];

fn store() -> ColumnarEmbedBackend {
    let layout = RowLayout::new(0, ROWS, ROW_BYTES).unwrap();
    let table = vec![7_u8; usize::try_from(layout.table_bytes()).unwrap()];
    let source = Arc::new(MemorySource::new("bench.rows", table));
    let (config, meters) = (RowStoreConfig::default(), StoreMeters::default());
    ColumnarEmbedBackend::new(source, layout, [1; 32], Verification::Off, config, meters).unwrap()
}

/// `count` distinct ids that lie apart, in an order that is not ascending.
fn scattered(count: usize) -> Vec<RowId> {
    (0..count as u64)
        .map(|index| RowId(index * 7919 % ROWS))
        .collect()
}

fn warm_lookup(criterion: &mut Criterion) {
    let runtime: Runtime = Builder::new_current_thread().build().unwrap();
    let mut group = criterion.benchmark_group("warm_lookup");
    for count in BATCHES {
        let (store, ids) = (store(), scattered(count));
        runtime.block_on(store.rows(&ids)).unwrap();
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                let batch = runtime.block_on(store.rows(black_box(&ids))).unwrap();
                assert_eq!(batch.report.hit, count as u64);
                batch
            });
        });
    }
    group.finish();
}

criterion_group!(benches, warm_lookup);
criterion_main!(benches);
