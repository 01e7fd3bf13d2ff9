//! The promise itself: rows by range give the bits of the dense matrix, and every byte is accounted for.

use crate::station::{Finished, Origin, packed, run};
use crate::tiny_model::{HIDDEN, VOCABULARY};

const PROMPT: &str = "Rows of a table, read one by one: \u{1F600} naïve.";
const RUN: [&str; 5] = ["--raw", "--ignore-eos", "--max-tokens", "24", PROMPT];

fn assert_same(columnar: &Finished, dense: &Finished) {
    assert_eq!(columnar.tokens.len(), 24);
    assert_eq!(columnar.tokens, dense.tokens);
    assert_eq!(columnar.text, dense.text);
    assert_eq!(columnar.logits.len(), 24 * VOCABULARY * 4);
    assert!(columnar.logits == dense.logits, "logits differ");
    assert_eq!(columnar.summary["embedding"]["source"], "columnar");
    assert_eq!(dense.summary["embedding"]["source"], "dense");
    assert_eq!(
        dense.number("/total_received_bytes"),
        0,
        "a local dense run reads no wire"
    );
}

#[test]
fn columnar_and_dense_agree_to_the_bit_and_the_counters_with_the_origin() {
    for name in ["tied", "untied"] {
        let origin = Origin::start();
        let rows = origin.url(&format!("{name}.rows"));
        // No --knot: it is found beside the rows.
        let columnar = run(&["--columnar-embed", &rows, "--embed-always-remote"], &RUN).succeeded();
        let log = origin.stop();
        let dense = run(&["--knot", &packed(&format!("{name}.gkq"))], &RUN).succeeded();
        assert_same(&columnar, &dense);

        let row_bytes = 2 * HIDDEN as u64;
        let distinct = columnar.number("/embedding/distinct_rows");
        assert!(distinct >= 20, "{distinct}");
        assert_eq!(columnar.number("/bytes/rows/useful"), distinct * row_bytes);
        let kind = |kind: &str, what: &str| columnar.number(&format!("/bytes/{kind}/{what}"));
        assert_eq!(log.of(".rows"), columnar.moved(&["rows"]));
        let of_knot = ["paths", "head", "blocks", "probe"];
        assert_eq!(log.of(".gkq"), columnar.moved(&of_knot));
        assert_eq!(log.of(""), columnar.moved_in_all());
        assert!(
            kind("paths", "received") > 0,
            "10,000 rows have paths below the pinned level"
        );
        assert_eq!(kind("head", "useful"), VOCABULARY as u64 * row_bytes);
        assert_eq!(
            columnar.number("/embedding/full_table_bytes"),
            VOCABULARY as u64 * row_bytes
        );
        assert_eq!(columnar.number("/embedding/resident"), 0);
        assert_eq!(columnar.number("/integrity_failures"), 0);
        assert_eq!(
            columnar.number("/embedding/rows_asked"),
            columnar.number("/prompt_tokens") + 23
        );
    }
}

#[test]
fn http2_moves_the_same_bytes() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let flags = [
        "--columnar-embed",
        &rows,
        "--embed-always-remote",
        "--http2-prior-knowledge",
    ];
    let columnar = run(&flags, &RUN).succeeded();
    let log = origin.stop();
    let dense = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    assert_same(&columnar, &dense);
    assert_eq!(log.of(""), columnar.moved_in_all());
}

#[test]
fn a_tied_head_takes_over_the_rows_once_it_is_resident() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let columnar = run(&["--columnar-embed", &rows], &RUN).succeeded();
    let dense = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    assert_same(&columnar, &dense);
    assert_eq!(
        columnar.number("/embedding/resident"),
        23,
        "decode reads the resident matrix"
    );
    assert!(
        columnar.number("/embedding/missed") > 0,
        "the prompt came from the store"
    );
    let untied = origin.url("untied.rows");
    let untied = run(&["--columnar-embed", &untied], &RUN).succeeded();
    assert_eq!(
        untied.number("/embedding/resident"),
        0,
        "an untied head has no rows"
    );
}

#[test]
fn a_long_prompt_is_read_in_chunks_and_a_tiny_cache_changes_nothing() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let prompt: String = (0..700_u32)
        .map(|at| char::from(b' ' + (at * at % 90) as u8))
        .collect();
    let flags = ["--raw", "--ignore-eos", "--max-tokens", "24", &prompt];
    let columnar = run(
        &[
            "--columnar-embed",
            &rows,
            "--embed-always-remote",
            "--embed-cache-rows",
            "4",
        ],
        &flags,
    )
    .succeeded();
    let dense = run(&["--knot", &packed("tied.gkq")], &flags).succeeded();
    assert_same(&columnar, &dense);
    assert_eq!(columnar.number("/prompt_tokens"), 700);
    assert!(columnar.number("/embedding/cached_rows") <= 4);
}

#[test]
fn a_knot_without_its_matrix_takes_the_head_from_the_rows() {
    let origin = Origin::start();
    let rows = origin.url("external.rows");
    let remote = run(&["--columnar-embed", &rows, "--embed-always-remote"], &RUN).succeeded();
    let local = run(
        &[
            "--columnar-embed",
            &packed("external.rows"),
            "--embed-always-remote",
        ],
        &RUN,
    )
    .succeeded();
    let dense = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    assert_same(&remote, &dense);
    assert_eq!(local.tokens, dense.tokens);
    assert!(local.logits == dense.logits);
    assert_eq!(
        remote.number("/bytes/head/useful"),
        (VOCABULARY * HIDDEN * 2) as u64
    );
}

#[test]
fn a_forced_continuation_is_fed_and_the_models_own_choice_reported() {
    let directory = tempfile::tempdir().unwrap();
    let forced = directory.path().join("forced.json");
    let ids: Vec<u32> = (40..72).collect();
    std::fs::write(&forced, serde_json::to_string(&ids).unwrap()).unwrap();
    let flags = [
        "--raw",
        "--ignore-eos",
        "--force-continuation",
        forced.to_str().unwrap(),
        PROMPT,
    ];
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let columnar = run(
        &["--columnar-embed", &rows, "--embed-always-remote"],
        &flags,
    )
    .succeeded();
    let dense = run(&["--knot", &packed("tied.gkq")], &flags).succeeded();
    assert_eq!(columnar.number("/generated_tokens"), 32);
    assert_eq!(
        columnar.number("/embedding/decode_distinct_rows"),
        31,
        "the last one is not fed"
    );
    assert_eq!(columnar.tokens, dense.tokens);
    assert_ne!(
        columnar.tokens, ids,
        "a random model would not have said that"
    );
    assert!(columnar.logits == dense.logits);
}
