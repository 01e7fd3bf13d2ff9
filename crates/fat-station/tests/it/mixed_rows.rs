//! Rows of several kinds: fewer bytes on the wire, and the bits of the knot's own dense block.

use columnar_embed::{RowId, Sidecar};

use crate::station::{Origin, packed, run};
use crate::tiny_model::{HIDDEN, VOCABULARY};

/// Letters of four kinds and of the matrix's own.
const PROMPT: &str = "Zebras jump over 64 lazy dogs, \u{1F600} naïve; row by row.";
const RUN: [&str; 5] = ["--raw", "--ignore-eos", "--max-tokens", "24", PROMPT];

fn sidecar(name: &str) -> Sidecar {
    let bytes = std::fs::read(packed(&format!("{name}.embed-rows.idx"))).unwrap();
    Sidecar::parse(&bytes).unwrap()
}

#[test]
fn rows_of_several_kinds_give_the_bits_of_the_dense_block_and_fewer_bytes() {
    let dense = run(&["--knot", &packed("mixed.gkq")], &RUN).succeeded();
    let exact = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    assert!(dense.logits != exact.logits, "the mix changes the matrix");
    for name in ["mixed", "mixed-external"] {
        let origin = Origin::start();
        let rows = origin.url(&format!("{name}.rows"));
        let columnar = run(&["--columnar-embed", &rows, "--embed-always-remote"], &RUN).succeeded();
        let log = origin.stop();
        assert_eq!(columnar.tokens.len(), 24);
        assert_eq!(columnar.tokens, dense.tokens);
        assert!(columnar.logits == dense.logits, "{name}: logits differ");
        assert_eq!(columnar.summary["embedding"]["source"], "columnar");
        assert_eq!(columnar.number("/integrity_failures"), 0);

        // Every row that was asked for counts as many bytes as it is stored in, once.
        let sidecar = sidecar(name);
        let prompt = PROMPT.len() as u64;
        assert_eq!(columnar.number("/prompt_tokens"), prompt);
        let distinct = columnar.number("/embedding/distinct_rows");
        let useful = columnar.number("/bytes/rows/useful");
        assert!(
            useful < distinct * 2 * HIDDEN as u64,
            "{useful} for {distinct} rows"
        );
        let generated = columnar.tokens.iter().take(23).map(|id| RowId::from(*id));
        let mut stored: u64 = 0;
        let mut counted = std::collections::BTreeSet::new();
        for id in generated.chain(prompt_ids(name)) {
            if counted.insert(id) {
                stored += sidecar.range(id).unwrap().len();
            }
        }
        assert_eq!(counted.len() as u64, distinct);
        assert_eq!(useful, stored);
        // The sidecar came with the knot's front.
        assert_eq!(log.of(".idx"), (0, 0));
        if name == "mixed" {
            let moved = |what: &str| columnar.number(&format!("/bytes/rows/{what}"));
            assert_eq!(log.of(".rows").1, moved("received") + moved("framing"));
        } else {
            // A head without a block is read from the rows as they are stored.
            assert_eq!(columnar.number("/bytes/head/useful"), sidecar.table_bytes());
        }
    }
}

/// The ids of the prompt, as the station itself tells them.
fn prompt_ids(name: &str) -> Vec<RowId> {
    let output = crate::station::binary()
        .args([
            "--knot",
            &packed(&format!("{name}.gkq")),
            "tokenize",
            "--raw",
            PROMPT,
        ])
        .output()
        .unwrap();
    let text = crate::station::text_of(&output);
    let ids: Vec<u32> = serde_json::from_str(text).unwrap();
    ids.into_iter().map(RowId::from).collect()
}

#[test]
fn a_table_of_one_kind_is_no_row_file_of_a_knot_with_several() {
    let origin = Origin::start();
    let knot = packed("mixed.gkq");
    let dense = run(&["--knot", &knot], &RUN).succeeded();
    for (rows, reason) in [
        // Another length: found out by the first reply.
        (origin.url("tied.rows"), "are of several kinds"),
        (packed("tied.rows"), "are of several kinds"),
        // Its own block has rows as the matrix has them, which the tree does not prove.
        (knot.clone(), "all of one kind"),
    ] {
        let station = ["--columnar-embed", &rows, "--knot", &knot];
        let found = run(&station, &RUN).succeeded();
        assert_eq!(found.summary["embedding"]["source"], "dense", "{rows}");
        assert!(found.stderr.contains(reason), "{rows}: {}", found.stderr);
        assert!(found.logits == dense.logits);
    }
    // Without a block there is no other way, and the error says both.
    let external = packed("mixed-external.gkq");
    let refused = run(
        &[
            "--columnar-embed",
            &packed("tied.rows"),
            "--knot",
            &external,
        ],
        &RUN,
    );
    assert_ne!(refused.code, 0);
    let table = (VOCABULARY * HIDDEN * 2).to_string();
    for part in [table.as_str(), "of several kinds", "packed without"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    drop(origin);
}
