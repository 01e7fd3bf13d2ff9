//! Rows from whatever holds the matrix: safetensors, a sharded index, a knot, bare rows under any
//! name. The answer is the dense one to the bit, and what finding the rows cost is counted.

use crate::station::{Finished, Origin, packed, run};
use crate::tiny_model::{HIDDEN, VOCABULARY, models};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const PROMPT: &str = "Rows of a table, read one by one: \u{1F600} naïve.";
const RUN: [&str; 5] = ["--raw", "--ignore-eos", "--max-tokens", "24", PROMPT];
const TABLE_BYTES: usize = VOCABULARY * HIDDEN * 2;

/// The checkpoint that the model `name` was packed from.
fn checkpoint(name: &str) -> PathBuf {
    let folder = models().parent().unwrap();
    folder
        .join(format!("{name}-source"))
        .join("model.safetensors")
}

/// A safetensors file taken apart: header and data.
fn parts(path: &Path) -> (Map<String, Value>, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    (header, bytes[8 + length..].to_vec())
}

fn safetensors(header: &Map<String, Value>, data: &[u8]) -> Vec<u8> {
    let text = serde_json::to_vec(header).unwrap();
    [&(text.len() as u64).to_le_bytes()[..], &text, data].concat()
}

/// The embedding in a second shard, everything else in the first, and the index of both.
fn write_shards(folder: &Path) {
    let (mut header, data) = parts(&checkpoint("tied"));
    let name = "model.embed_tokens.weight";
    let entry = header.remove(name).unwrap();
    let end = entry["data_offsets"][1].as_u64().unwrap();
    assert_eq!(end, TABLE_BYTES as u64, "the first tensor");
    for (_, other) in &mut header {
        for at in 0..2 {
            let offset = other["data_offsets"][at].as_u64().unwrap();
            other["data_offsets"][at] = json!(offset - end);
        }
    }
    let mut map: Map<String, Value> = header
        .keys()
        .map(|tensor| (tensor.clone(), json!("model-00001-of-00002.safetensors")))
        .collect();
    map.insert(name.into(), json!("model-00002-of-00002.safetensors"));
    let second = Map::from_iter([(name.to_owned(), entry)]);
    let write = |file: &str, bytes: Vec<u8>| std::fs::write(folder.join(file), bytes).unwrap();
    write(
        "model-00001-of-00002.safetensors",
        safetensors(&header, &data[TABLE_BYTES..]),
    );
    write(
        "model-00002-of-00002.safetensors",
        safetensors(&second, &data[..TABLE_BYTES]),
    );
    // A shard that the index does not know is not looked at.
    write("model-00003-of-00002.safetensors", b"stray".to_vec());
    let index = json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    write(
        "model.safetensors.index.json",
        serde_json::to_vec(&index).unwrap(),
    );
}

/// A folder with the tied model's knot and the object that `write` puts beside it.
fn folder(write: impl FnOnce(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(packed("tied.gkq"), folder.path().join("tied.gkq")).unwrap();
    write(folder.path());
    folder
}

fn columnar(rows: &str, knot: &str, more: &[&str]) -> Finished {
    let flags = [
        &[
            "--columnar-embed",
            rows,
            "--knot",
            knot,
            "--embed-always-remote",
        ],
        more,
    ]
    .concat();
    run(&flags, &RUN).succeeded()
}

fn dense() -> Finished {
    run(&["--knot", &packed("tied.gkq")], &RUN).succeeded()
}

#[track_caller]
fn assert_rows_of_the_store(finished: &Finished, dense: &Finished, container: &str) {
    assert_eq!(finished.tokens, dense.tokens);
    assert!(finished.logits == dense.logits, "logits differ");
    assert_eq!(finished.summary["embedding"]["source"], "columnar");
    let reason = finished.summary["resolutions"][0]["reason"]
        .as_str()
        .unwrap();
    assert!(
        reason.contains(&format!("({container}) has exactly")),
        "{reason}"
    );
    assert_eq!(finished.number("/integrity_failures"), 0);
}

#[test]
fn every_container_gives_the_rows_of_the_matrix() {
    let dense = dense();
    let at = folder(|at| {
        write_shards(at);
        std::fs::copy(checkpoint("tied"), at.join("model.safetensors")).unwrap();
        // Content decides: neither name tells what it is.
        std::fs::copy(checkpoint("tied"), at.join("weights.bin")).unwrap();
        std::fs::copy(packed("tied.rows"), at.join("table.safetensors")).unwrap();
    });
    let origin = Origin::over(at.path());
    for (name, container) in [
        ("model.safetensors", "safetensors"),
        ("weights.bin", "safetensors"),
        ("table.safetensors", "bare rows"),
        ("model.safetensors.index.json", "sharded safetensors"),
        ("tied.gkq", "knot"),
    ] {
        let local = at.path().join(name).to_str().unwrap().to_owned();
        let file_url = format!("file://{local}");
        for rows in [origin.url(name), local, file_url] {
            for verify in ["require", "off"] {
                let knot = packed("tied.gkq");
                let finished = columnar(&rows, &knot, &["--verify", verify]);
                assert_rows_of_the_store(&finished, &dense, container);
            }
        }
    }
}

#[test]
fn the_file_that_was_packed_costs_no_probe() {
    let at = folder(|at| {
        std::fs::copy(checkpoint("tied"), at.join("model.safetensors")).unwrap();
    });
    let origin = Origin::over(at.path());
    let rows = origin.url("model.safetensors");
    let finished = columnar(&rows, &packed("tied.gkq"), &[]);
    let log = origin.stop();
    assert_rows_of_the_store(&finished, &dense(), "safetensors");
    assert_eq!(finished.number("/bytes/probe/requests"), 0);
    assert_eq!(log.of("model.safetensors"), finished.moved(&["rows"]));
}

#[test]
fn a_header_is_read_once_and_counted_as_probe() {
    let at = folder(|at| {
        std::fs::copy(checkpoint("tied"), at.join("other-name.safetensors")).unwrap();
    });
    // Rows of another checkpoint's knot have no hint of this name: the header has to be read.
    let origin = Origin::over(at.path());
    let rows = origin.url("other-name.safetensors");
    let finished = columnar(&rows, &packed("tied.gkq"), &["--verify", "off"]);
    let log = origin.stop();
    assert_rows_of_the_store(&finished, &dense(), "safetensors");
    assert_eq!(finished.number("/bytes/probe/requests"), 1);
    assert_eq!(finished.number("/bytes/probe/received"), 64 * 1024);
    let moved = finished.moved(&["rows", "probe"]);
    assert_eq!(log.of("other-name.safetensors"), moved);
}

#[test]
fn a_knot_is_its_own_row_store_and_needs_no_second_front() {
    let dense = dense();
    let origin = Origin::start();
    let rows = origin.url("tied.gkq");
    let finished = run(&["--columnar-embed", &rows, "--embed-always-remote"], &RUN).succeeded();
    let log = origin.stop();
    assert_rows_of_the_store(&finished, &dense, "knot");
    assert_eq!(finished.number("/bytes/probe/requests"), 1, "one front");
    assert_eq!(log.of(""), finished.moved_in_all());
    let local = run(&["--columnar-embed", &packed("tied.gkq")], &RUN).succeeded();
    assert_rows_of_the_store(&local, &dense, "knot");
}

#[test]
fn a_checkpoint_of_the_same_shapes_is_found_out_by_its_rows() {
    // The hint fits to the byte; only the row tree can tell.
    let at = folder(|at| {
        std::fs::copy(checkpoint("other"), at.join("model.safetensors")).unwrap();
    });
    let origin = Origin::over(at.path());
    let rows = origin.url("model.safetensors");
    let knot = packed("tied.gkq");
    let finished = run(&["--columnar-embed", &rows, "--knot", &knot], &RUN);
    assert_eq!(finished.code, 66, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("does not verify"),
        "{}",
        finished.stderr
    );
    assert!(finished.number("/integrity_failures") > 0);
}

#[test]
fn a_hint_that_moved_is_looked_into() {
    // The same length, the matrix elsewhere: another tensor comes first now.
    let (mut header, data) = parts(&checkpoint("tied"));
    let table = TABLE_BYTES as u64;
    for (name, entry) in &mut header {
        for at in 0..2 {
            let offset = entry["data_offsets"][at].as_u64().unwrap();
            let moved = if name == "model.embed_tokens.weight" {
                offset + data.len() as u64 - table
            } else {
                offset - table
            };
            entry["data_offsets"][at] = json!(moved);
        }
    }
    let rotated = [&data[TABLE_BYTES..], &data[..TABLE_BYTES]].concat();
    let mut file = safetensors(&header, &rotated);
    // Offsets of other widths change the header: pad it with spaces, or the data would not fit.
    let original = std::fs::metadata(checkpoint("tied")).unwrap().len() as usize;
    let text_bytes = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let padding = original.checked_sub(file.len()).expect("a shorter header");
    file.splice(8 + text_bytes..8 + text_bytes, vec![b' '; padding]);
    file[..8].copy_from_slice(&((text_bytes + padding) as u64).to_le_bytes());
    let at = folder(|at| std::fs::write(at.join("model.safetensors"), &file).unwrap());
    let origin = Origin::over(at.path());
    let rows = origin.url("model.safetensors");
    let finished = columnar(&rows, &packed("tied.gkq"), &[]);
    let dense = dense();
    assert!(finished.logits == dense.logits);
    assert_eq!(finished.summary["embedding"]["source"], "columnar");
    assert_eq!(finished.number("/bytes/probe/requests"), 1);
}

#[test]
fn an_external_payload_comes_out_of_a_container() {
    let dense = dense();
    let at = folder(|at| {
        std::fs::copy(checkpoint("external"), at.join("model.safetensors")).unwrap();
        write_shards(at);
    });
    let origin = Origin::over(at.path());
    for name in ["model.safetensors", "model.safetensors.index.json"] {
        let local = at.path().join(name).to_str().unwrap().to_owned();
        for rows in [origin.url(name), local] {
            let finished = columnar(&rows, &packed("external.gkq"), &[]);
            assert!(finished.logits == dense.logits, "{rows}");
            assert_eq!(finished.summary["embedding"]["source"], "columnar");
        }
    }
}

#[test]
fn what_is_no_row_source_of_the_model_is_said_with_numbers() {
    let at = folder(|at| {
        let (mut header, data) = parts(&checkpoint("tied"));
        header.insert(
            "pad".into(),
            json!({ "dtype": "U8", "shape": [1], "data_offsets": [data.len(), data.len() + 1] }),
        );
        let entry = header["model.embed_tokens.weight"].clone();
        let renamed: Map<String, Value> = header
            .iter()
            .map(|(name, entry)| (name.replace("embed_tokens", "table"), entry.clone()))
            .collect();
        let longer = [&data[..], b"x"].concat();
        std::fs::write(
            at.join("renamed.safetensors"),
            safetensors(&renamed, &longer),
        )
        .unwrap();
        let mut other = header.clone();
        let shape = json!([VOCABULARY / 2, HIDDEN * 2]);
        other["model.embed_tokens.weight"]["shape"] = shape;
        std::fs::write(at.join("shape.safetensors"), safetensors(&other, &longer)).unwrap();
        let mut other = header.clone();
        other["model.embed_tokens.weight"] = entry;
        other["model.embed_tokens.weight"]["dtype"] = json!("F16");
        std::fs::write(at.join("dtype.safetensors"), safetensors(&other, &longer)).unwrap();
        std::fs::write(at.join("page.html"), "<!doctype html><p>sign in").unwrap();
        let index = |shard: &str| {
            let map = json!({ "weight_map": { "model.embed_tokens.weight": shard } });
            serde_json::to_vec(&map).unwrap()
        };
        std::fs::write(at.join("up.json"), index("../../etc/passwd")).unwrap();
        std::fs::write(at.join("root.json"), index("/etc/passwd")).unwrap();
        std::fs::write(at.join("none.json"), index("absent.safetensors")).unwrap();
    });
    let origin = Origin::over(at.path());
    for (name, parts) in [
        (
            "renamed.safetensors",
            &[
                "no tensor named model.embed_tokens.weight",
                "token_embd.weight",
            ][..],
        ),
        (
            "shape.safetensors",
            &["[5000, 64] bf16", "[10000, 32] bf16"][..],
        ),
        (
            "dtype.safetensors",
            &["[10000, 32] f16", "[10000, 32] bf16"][..],
        ),
        ("page.html", &["640000", "25 bytes", "<!doctype html>"][..]),
        ("up.json", &["../../etc/passwd", "no relative path"][..]),
        ("root.json", &["/etc/passwd", "no relative path"][..]),
    ] {
        let local = at.path().join(name).to_str().unwrap().to_owned();
        for rows in [origin.url(name), local] {
            let knot = packed("external.gkq");
            let finished = run(&["--columnar-embed", &rows, "--knot", &knot], &RUN);
            assert_eq!(finished.code, 64, "{}", finished.stderr);
            for part in parts.iter().chain(&["10000 rows of 64 bytes bf16"]) {
                assert!(
                    finished.stderr.contains(part),
                    "{part}: {}",
                    finished.stderr
                );
            }
            // With the block in the knot the model runs, and the summary says why.
            let finished = run(
                &["--columnar-embed", &rows, "--knot", &packed("tied.gkq")],
                &RUN,
            );
            assert_eq!(finished.succeeded().summary["embedding"]["source"], "dense");
        }
    }
    // A shard that is not there is an origin's fault, not a table of another kind.
    let rows = origin.url("none.json");
    let finished = run(
        &["--columnar-embed", &rows, "--knot", &packed("tied.gkq")],
        &RUN,
    );
    assert_eq!(finished.code, 65, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("absent.safetensors"),
        "{}",
        finished.stderr
    );
}

/// A published folder: content-addressed names, and the manifest of them.
fn publish(at: &Path, change: impl FnOnce(&mut Value)) {
    let (knot, rows) = (
        std::fs::read(packed("tied.gkq")).unwrap(),
        std::fs::read(packed("tied.rows")).unwrap(),
    );
    let hex = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let front = gkq_v2::Knot::parse(&knot, knot.len() as u64).unwrap();
    let (knot_name, rows_name) = (
        format!("knot-{}.gkq", hex(&knot)),
        format!("rows-{}.bin", hex(&rows)),
    );
    let mut manifest = json!({
        "format": "fat-station manifest", "version": 1, "name": "tied",
        "knot": {
            "object": knot_name, "bytes": knot.len(), "blake3": hex(&knot),
            "front_bytes": front.front_bytes(),
            "front_blake3": blake3::Hash::from_bytes(front.front_blake3()).to_hex().to_string(),
        },
        "rows": {
            "object": rows_name, "bytes": rows.len(), "blake3": hex(&rows),
            "tensor": "model.embed_tokens.weight", "rows": VOCABULARY, "row_bytes": 2 * HIDDEN,
            "dtype": "bf16",
        },
    });
    change(&mut manifest);
    std::fs::write(at.join(&knot_name), knot).unwrap();
    std::fs::write(at.join(&rows_name), rows).unwrap();
    for name in ["manifest.json", "latest"] {
        std::fs::write(at.join(name), manifest.to_string()).unwrap();
    }
}

fn rows_name(at: &Path) -> String {
    let names = std::fs::read_dir(at).unwrap().flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| name.starts_with("rows-")).unwrap()
}

#[test]
fn a_manifest_leads_to_knot_and_rows_by_whichever_of_them_is_named() {
    let dense = dense();
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path(), |_| ());
    let rows = rows_name(folder.path());
    let origin = Origin::over(folder.path());
    // The manifest, the same under a name that tells nothing, and the rows that it names.
    for name in ["manifest.json", "latest", &rows] {
        let local = folder.path().join(name).to_str().unwrap().to_owned();
        for place in [origin.url(name), local] {
            let flags = ["--columnar-embed", &place, "--embed-always-remote"];
            let finished = run(&flags, &RUN).succeeded();
            assert_rows_of_the_store(&finished, &dense, "bare rows");
        }
    }
    // With a knot of the user's own, the rows are the manifest's.
    let place = origin.url("manifest.json");
    assert_rows_of_the_store(
        &columnar(&place, &packed("tied.gkq"), &[]),
        &dense,
        "bare rows",
    );
}

#[test]
fn a_manifest_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path(), |manifest| {
        manifest["knot"]["front_blake3"] = json!("00".repeat(32));
    });
    let rows = rows_name(folder.path());
    let origin = Origin::over(folder.path());
    for name in ["manifest.json", &rows] {
        let finished = run(&["--columnar-embed", &origin.url(name)], &RUN);
        assert_eq!(finished.code, 66, "{}", finished.stderr);
        assert!(
            finished.stderr.contains("BLAKE3 of its front"),
            "{}",
            finished.stderr
        );
    }
    // Rows that no manifest names, without a knot beside them: all that was tried is listed.
    std::fs::write(folder.path().join("stray.bin"), b"x").unwrap();
    let finished = run(&["--columnar-embed", &origin.url("stray.bin")], &RUN);
    assert_eq!(finished.code, 64, "{}", finished.stderr);
    for part in [
        "stray.gkq",
        "manifest.json: no manifest that names these rows",
        "stray.bin",
        "--knot",
    ] {
        assert!(
            finished.stderr.contains(part),
            "{part}: {}",
            finished.stderr
        );
    }
}

#[test]
fn a_wrong_guess_costs_a_row_and_not_a_batch() {
    let at = folder(|at| {
        std::fs::copy(checkpoint("tied"), at.join("weights.bin")).unwrap();
    });
    let origin = Origin::over(at.path());
    let rows = origin.url("weights.bin");
    let finished = columnar(&rows, &packed("tied.gkq"), &[]);
    let log = origin.stop();
    assert_rows_of_the_store(&finished, &dense(), "safetensors");
    let moved = |what: &str| finished.number(&format!("/bytes/rows/{what}"));
    let lost = moved("received") - moved("useful");
    // One span of the first plan: a row, or a few that are neighbours.
    assert!(
        (64..=256).contains(&lost),
        "{lost} bytes of {}",
        moved("received")
    );
    assert_eq!(moved("retries"), 0);
    assert_eq!(
        finished.number("/bytes/probe/requests"),
        0,
        "the length is the hint's"
    );
    assert_eq!(log.of("weights.bin"), finished.moved(&["rows"]));
}
