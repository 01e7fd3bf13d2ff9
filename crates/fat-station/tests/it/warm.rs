//! Hot rows that are fetched ahead: the knot's list, in its order, into memory and onto disk.

use crate::station::{packed, run};
use clap::Parser as _;
use fat_station::cli::Cli;
use fat_station::config::Config;
use fat_station::embedding::Embedding;
use fat_station::hot_ids::hot_ids;
use fat_station::matrix::Matrix;
use fat_station::model;
use fat_station::traffic::{Phase, Traffic};
use fat_station::warm::Warming;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Ids of the tiny model's tokenizer: printable bytes first, in the order of their codes.
const LETTER_E: u32 = b'e' as u32 - b'!' as u32;
/// The second of the bytes that print nothing, `\u{1}`, behind 188 that do.
const CONTROL_ONE: u32 = 189;

const RUN: [&str; 5] = ["--raw", "--ignore-eos", "--max-tokens", "4", "abc"];

#[tokio::test(flavor = "multi_thread")]
async fn the_hottest_rows_are_in_memory_and_on_disk() {
    let tier = tempfile::tempdir().unwrap();
    let (rows, knot) = (packed("tied.rows"), packed("tied.gkq"));
    let directory = tier.path().to_str().unwrap();
    let flags = ["fat-station", "--columnar-embed", &rows, "--knot", &knot];
    let cli = Cli::parse_from([&flags[..], &["--embed-cache-dir", directory]].concat());
    let config = Config::resolve(&cli.station, |_| None).unwrap();
    for (fetched, from_disk) in [(50, 0), (0, 50)] {
        let traffic = Arc::new(Traffic::default());
        let (knot, _) = model::open(&config, &traffic).await.unwrap();
        let matrix = Matrix::open(Arc::clone(&knot), &config).unwrap();
        matrix.locate(&traffic).await.unwrap();
        let embedding = Arc::new(matrix.columnar(&traffic).unwrap());
        let warming = Warming::start(
            50,
            Arc::clone(&knot),
            Arc::clone(&embedding),
            Arc::clone(&traffic),
        );
        warming.finished().await;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let outcomes = &traffic.outcomes;
        assert_eq!(
            (count(&outcomes.miss), count(&outcomes.disk)),
            (fetched, from_disk)
        );
        let hot = hot_ids(&knot, 50, &traffic).await.unwrap();
        assert_eq!(hot.len(), 50);
        // Letters of the counted text are hotter than bytes that no text has.
        let all = hot_ids(&knot, u64::MAX, &traffic).await.unwrap();
        assert_eq!(all[..50], hot);
        let place = |id: u32| all.iter().position(|hot| *hot == id).unwrap();
        assert!(place(LETTER_E) < 5, "{hot:?}");
        assert!(place(CONTROL_ONE) >= 50, "{hot:?}");
        let read = embedding
            .rows(&hot, Phase::Prefill, &traffic)
            .await
            .unwrap();
        assert_eq!(read.len(), 50);
        assert_eq!(count(&outcomes.hit), 50);
        assert!(matches!(*embedding, Embedding::Columnar(_)));
    }
}

#[test]
fn a_run_that_warms_gives_the_same_answer() {
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    let rows = packed("tied.rows");
    let finished = run(&["--columnar-embed", &rows, "--embed-warm", "64"], &RUN).succeeded();
    assert!(finished.logits == expected.logits);
    assert!(!finished.stderr.contains("WARN"), "{}", finished.stderr);
}
