//! `pack --embed-sketch`: what the knot gets, what `inspect` says about it, what is refused.

use std::process::{Command, Output};

use fat_origin::Error;
use fat_origin::inspect::inspect;
use fat_origin::pack::{EmbedDtype, Matrix, PackOptions, pack};
use fat_origin::verify::verify;
use gkq_v2::{EmbedSketch, SketchHeader};

use super::huggingface_source::{HIDDEN, ROWS, directory, tiny_tensors};
use super::packed::{Packed, packed};

const EMBEDDING: &str = "model.embed_tokens.weight";

fn sketched(rank: u32, options: PackOptions) -> Packed {
    let options = PackOptions {
        embed_sketch: Some(rank),
        ..options
    };
    packed(directory(&tiny_tensors()).path(), options)
}

fn sketch(packed: &Packed) -> &[u8] {
    let columnar = packed.block(EMBEDDING).columnar.as_ref().unwrap();
    let range = columnar.sketch.clone().unwrap();
    &packed.bytes[range.start as usize..range.end as usize]
}

#[test]
fn a_sketch_is_in_the_knot_and_changes_nothing_else() {
    let plain = packed(directory(&tiny_tensors()).path(), PackOptions::default());
    assert!(
        plain
            .block(EMBEDDING)
            .columnar
            .as_ref()
            .unwrap()
            .sketch
            .is_none()
    );
    assert!(plain.report.sketch.is_none());
    for matrix in [Matrix::Inside, Matrix::External] {
        let options = PackOptions {
            matrix,
            ..PackOptions::default()
        };
        let packed = sketched(3, options);
        assert!(packed.rows == plain.rows);
        let body = EmbedSketch::parse(sketch(&packed), ROWS, HIDDEN).unwrap();
        assert_eq!(body.header().rank, 3);
        let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
        assert!(report.differences.is_empty(), "{:?}", report.differences);
        let again = sketched(
            3,
            PackOptions {
                matrix,
                ..PackOptions::default()
            },
        );
        assert!(again.bytes == packed.bytes, "the same bytes every time");
    }
}

#[test]
fn rows_come_back_from_all_components_but_for_rounding() {
    let options = PackOptions {
        embed_dtype: EmbedDtype::F32,
        ..PackOptions::default()
    };
    let packed = sketched(HIDDEN as u32, options);
    let body = EmbedSketch::parse(sketch(&packed), ROWS, HIDDEN).unwrap();
    let (values, _) = packed.rows.as_chunks::<4>();
    let values: Vec<f32> = values
        .iter()
        .map(|value| f32::from_le_bytes(*value))
        .collect();
    for (id, row) in values.chunks(HIDDEN as usize).enumerate() {
        let near = body.row(id as u64).unwrap();
        // A coefficient is at most the row's length, and off by half of 1/127 of the largest; 8 is
        // the root of 64 components.
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        for (value, near) in row.iter().zip(&near) {
            let most = length * 8.0 / 254.0 + 1e-6;
            assert!((value - near).abs() <= most, "row {id}: {value} {near}");
        }
    }
    assert!(
        body.header().error.relative < 0.02,
        "{:?}",
        body.header().error
    );
}

fn origin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fat-origin"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn its_error_is_printed_so_that_nobody_takes_it_for_the_rows() {
    let source = directory(&tiny_tensors());
    let out = tempfile::tempdir().unwrap();
    let knot = out.path().join("tiny.gkq");
    let packed = origin(&[
        "pack",
        source.path().to_str().unwrap(),
        "--out",
        out.path().to_str().unwrap(),
        "--name",
        "tiny",
        "--embed-sketch",
        "1",
    ]);
    assert!(
        packed.status.success(),
        "{}",
        String::from_utf8_lossy(&packed.stderr)
    );
    let summary = inspect(&knot).unwrap();
    let block = summary
        .blocks
        .iter()
        .find(|block| block.name == EMBEDDING)
        .unwrap();
    let sketch = block.columnar.as_ref().unwrap().sketch.clone().unwrap();
    assert_eq!(sketch.rank, 1);
    // Its values are a sine of row and column together: a matrix of rank 2, half of which one
    // component leaves out.
    assert!(
        sketch.relative_error > 0.1 && sketch.relative_error < 1.0,
        "{sketch:?}"
    );
    let line = format!(
        "rank 1, {} bytes, NOT the rows: relative error {:.3}, mean cosine {:.3}, worst {:.3} (row {})",
        sketch.bytes,
        sketch.relative_error,
        sketch.mean_cosine,
        sketch.worst_cosine,
        sketch.worst_row
    );
    let inspected = origin(&["inspect", knot.to_str().unwrap()]);
    for output in [&packed, &inspected] {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&line), "{line}: {text}");
    }
    let json = origin(&["inspect", "--json", knot.to_str().unwrap()]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let blocks = json["blocks"].as_array().unwrap();
    let block = blocks
        .iter()
        .find(|block| block["name"] == EMBEDDING)
        .unwrap();
    let found = &block["columnar"]["sketch"];
    assert_eq!(found["rank"], 1);
    assert_eq!(found["relative_error"], sketch.relative_error);
    assert_eq!(found["mean_cosine"], sketch.mean_cosine);
}

#[test]
fn what_is_damaged_is_named() {
    let packed = sketched(2, PackOptions::default());
    let columnar = packed.block(EMBEDDING).columnar.as_ref().unwrap();
    let range = columnar.sketch.clone().unwrap();
    let flipped = |offset: u64| {
        let mut bytes = packed.bytes.clone();
        bytes[offset as usize] ^= 0xFF;
        let path = packed.out.path().join("damaged.gkq");
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let report = verify(&flipped(range.end - 1), None).unwrap();
    let parts: Vec<&str> = report
        .differences
        .iter()
        .map(|found| found.part.as_str())
        .collect();
    assert_eq!(parts, ["section sketch"]);
    let header_bytes = SketchHeader::BYTES as u64;
    assert!(
        inspect(&flipped(range.start + header_bytes)).is_ok(),
        "the header is whole"
    );
    let error = inspect(&flipped(range.start)).unwrap_err();
    assert!(matches!(error, Error::Knot { .. }), "{error}");
}

/// Gives the sketch's body other bytes, with digests that fit.
fn resealed(packed: &Packed, offset: u64, bytes: &[u8]) -> std::path::PathBuf {
    let columnar = packed.block(EMBEDDING).columnar.as_ref().unwrap();
    let range = columnar.sketch.clone().unwrap();
    let range = range.start as usize..range.end as usize;
    let mut knot = packed.bytes.clone();
    let old = *blake3::hash(&knot[range.clone()]).as_bytes();
    let place = range.start + offset as usize;
    knot[place..place + bytes.len()].copy_from_slice(bytes);
    let new = *blake3::hash(&knot[range]).as_bytes();
    let front_bytes = u64::from_le_bytes(knot[24..32].try_into().unwrap()) as usize;
    let record = knot[..front_bytes]
        .windows(32)
        .position(|found| found == old);
    let record = record.unwrap();
    knot[record..record + 32].copy_from_slice(&new);
    let digest = *blake3::Hasher::new()
        .update(&knot[..96])
        .update(&knot[128..front_bytes])
        .finalize()
        .as_bytes();
    knot[96..128].copy_from_slice(&digest);
    let path = packed.out.path().join("resealed.gkq");
    std::fs::write(&path, knot).unwrap();
    path
}

#[test]
fn a_sketch_that_no_station_takes_is_a_difference_though_its_digest_fits() {
    let packed = sketched(2, PackOptions::default());
    let nan = f32::NAN.to_le_bytes();
    let first_scale = 64 + 2 * HIDDEN * 4;
    for (offset, bytes, part) in [
        (8, &[2_u8][..], "unknown version 2"),
        (
            40,
            &2.0_f64.to_le_bytes()[..],
            "mean_cosine is 2, expected -1 to 1",
        ),
        (64, &nan[..], "not finite"),
        (first_scale + 6, &nan[..], "the scale of row 1 is NaN"),
    ] {
        let report = verify(&resealed(&packed, offset, bytes), None).unwrap();
        let [found] = report.differences.as_slice() else {
            panic!("{part}: {:?}", report.differences)
        };
        assert_eq!(found.part, "section sketch");
        assert!(found.found.contains(part), "{}", found.found);
    }
    let good = resealed(&packed, 8, &[1]);
    assert_eq!(verify(&good, None).unwrap().differences, []);
}

#[test]
fn a_rank_that_the_matrix_has_not_is_refused() {
    let source = directory(&tiny_tensors());
    for rank in [0, HIDDEN as u32 + 1] {
        let out = tempfile::tempdir().unwrap();
        let options = PackOptions {
            out: out.path().to_path_buf(),
            embed_sketch: Some(rank),
            name: Some("tiny".to_owned()),
            ..PackOptions::default()
        };
        let error = pack(source.path(), &options).unwrap_err();
        assert!(
            matches!(&error, Error::Option { option: "--embed-sketch", reason } if reason.contains(&rank.to_string())),
            "{error}"
        );
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
    }
}
