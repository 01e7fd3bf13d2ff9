//! `--embed-mix`: the row file has rows of several kinds, the knot's block has them widened, and what it
//! cost is told exactly.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use columnar_embed::{FloatKind, RowId, RowKind, RowTreeBuilder, Sidecar};
use fat_origin::Error;
use fat_origin::inspect::inspect;
use fat_origin::pack::{EmbedDtype, Matrix, PackOptions, pack};
use fat_origin::verify::verify;
use gkq_v2::SectionKind;

use super::huggingface_source::{self, ROWS, directory, tiny_tensors};
use super::packed::{Packed, files, packed};

const EMBEDDING: &str = "model.embed_tokens.weight";
const HIDDEN: usize = huggingface_source::HIDDEN as usize;

fn mix(spec: &str) -> PackOptions {
    PackOptions {
        embed_mix: Some(spec.parse().unwrap()),
        ..PackOptions::default()
    }
}

fn sidecar_of(packed: &Packed) -> Sidecar {
    let columnar = packed.block(EMBEDDING).columnar.as_ref().unwrap();
    let range = columnar.row_sidecar.clone().unwrap();
    let body = packed.knot.front_slice(&range).unwrap();
    let published = std::fs::read(packed.out.path().join("tiny.embed-rows.idx")).unwrap();
    assert_eq!(body, published, "the knot has the sidecar byte for byte");
    Sidecar::parse(body).unwrap()
}

fn values(row: &[u8], kind: FloatKind) -> Vec<f32> {
    let mut values = vec![0.0; HIDDEN];
    kind.kind().decode(row, &mut values);
    values
}

#[test]
fn the_block_is_the_stored_rows_widened_and_the_tree_is_over_the_stored_ones() {
    let source = directory(&tiny_tensors());
    let plain = packed(source.path(), PackOptions::default());
    let packed = packed(source.path(), mix("int8=rarest:25%,fp8_e4m3=rarest:75%"));
    let sidecar = sidecar_of(&packed);
    assert_eq!(sidecar.rows(), ROWS);
    assert_eq!(sidecar.table_bytes(), packed.rows.len() as u64);
    assert_eq!(
        sidecar.table_blake3(),
        *blake3::hash(&packed.rows).as_bytes()
    );
    assert!(packed.rows.len() < plain.rows.len());
    let mut tree = RowTreeBuilder::new(ROWS, Vec::new()).unwrap();
    let (mut largest, mut squared, mut norm) = (0.0_f64, 0.0, 0.0);
    let mut converted = 0;
    let row_bytes = 2 * HIDDEN;
    for row in 0..ROWS {
        let range = sidecar.range(RowId(row)).unwrap();
        let stored = &packed.rows[range.start as usize..range.end as usize];
        tree.push(stored).unwrap();
        let wide = sidecar.widen(RowId(row), stored).unwrap();
        let at = row as usize * row_bytes..(row as usize + 1) * row_bytes;
        assert_eq!(packed.payload(EMBEDDING)[at.clone()], wide, "row {row}");
        if sidecar.kind(RowId(row)).unwrap() == RowKind::Bf16 {
            assert_eq!(plain.rows[at], wide, "row {row}");
            continue;
        }
        converted += 1;
        let source = values(&plain.rows[at], FloatKind::Bf16);
        for (source, wide) in source.iter().zip(values(&wide, FloatKind::Bf16)) {
            let error = (f64::from(*source) - f64::from(wide)).abs();
            largest = largest.max(error);
            squared += error * error;
            norm += f64::from(*source) * f64::from(*source);
        }
    }
    let (tree, _) = tree.finish().unwrap();
    let columnar = packed.block(EMBEDDING).columnar.as_ref().unwrap();
    assert_eq!(columnar.tree_root, tree.root);

    let report = packed.report.mix.as_ref().unwrap();
    assert_eq!(report.converted_rows, converted);
    assert_eq!(report.largest_error, largest);
    assert!((report.relative_error - (squared / norm).sqrt()).abs() < 1e-12);
    assert!(largest > 0.0 && packed.report.embed_error == largest);
    let quarter = ROWS / 4;
    let kinds: Vec<_> = report
        .kinds
        .iter()
        .map(|kind| (kind.kind, kind.rows))
        .collect();
    assert_eq!(kinds[0].0, "bf16");
    assert!(kinds.contains(&("int8", quarter)), "{kinds:?}");
    assert!(
        kinds.contains(&("fp8_e4m3", ROWS * 3 / 4 - quarter)),
        "{kinds:?}"
    );
    // Nothing but the matrix and what belongs to it differs from a plain knot.
    for name in plain.block_names() {
        if name != EMBEDDING {
            assert_eq!(plain.payload(name), packed.payload(name), "{name}");
        }
    }
    assert_eq!(
        packed.json(SectionKind::Provenance)["embed_mix"],
        "int8=rarest:25.00%,fp8_e4m3=rarest:75.00%"
    );
    let embedding = &packed.json(SectionKind::Provenance)["embedding"];
    assert!(embedding.is_null(), "the source's rows are not the store's");
}

#[test]
fn a_mix_goes_with_another_dtype_and_without_the_matrix() {
    let source = directory(&tiny_tensors());
    let inside = packed(
        source.path(),
        PackOptions {
            embed_dtype: EmbedDtype::F32,
            ..mix("int4_zp=rest")
        },
    );
    let sidecar = sidecar_of(&inside);
    assert_eq!(sidecar.matrix(), FloatKind::F32);
    assert_eq!(sidecar.palette().len(), 1);
    assert_eq!(inside.report.row_bytes, 4 * HIDDEN as u32);
    assert_eq!(inside.block(EMBEDDING).error, inside.report.embed_error);
    let external = packed(
        source.path(),
        PackOptions {
            embed_dtype: EmbedDtype::F32,
            matrix: Matrix::External,
            ..mix("int4_zp=rest")
        },
    );
    assert_eq!(external.rows, inside.rows);
    assert_eq!(
        external.block(EMBEDDING).blake3,
        inside.block(EMBEDDING).blake3
    );
    for packed in [&inside, &external] {
        let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
        assert_eq!(report.differences, []);
        assert_eq!((report.trees, report.unchecked.len()), (1, 0));
        let report = verify(&packed.knot_path(), None).unwrap();
        assert_eq!(report.unchecked, [format!("stored rows of `{EMBEDDING}`")]);
    }
}

#[test]
fn packing_a_mix_twice_gives_the_same_bytes_and_a_plain_pack_takes_the_sidecar_away() {
    let source = directory(&tiny_tensors());
    let once = packed(source.path(), mix("fp8_e5m2=rarest:50%"));
    let twice = packed(source.path(), mix("fp8_e5m2=rarest:50%"));
    assert_eq!((&once.bytes, &once.rows), (&twice.bytes, &twice.rows));
    let options = PackOptions {
        out: once.out.path().to_path_buf(),
        name: Some("tiny".to_owned()),
        ..PackOptions::default()
    };
    pack(source.path(), &options).unwrap();
    assert_eq!(files(once.out.path()), ["tiny.gkq", "tiny.rows"]);
}

fn flip(path: &Path, offset: u64) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

#[test]
fn verify_names_the_row_that_differs_and_a_sidecar_of_other_rows() {
    let packed = packed(
        directory(&tiny_tensors()).path(),
        mix("fp8_e4m3=rarest:50%"),
    );
    let sidecar = sidecar_of(&packed);
    let row = RowId(ROWS - 2);
    let start = sidecar.range(row).unwrap().start;
    flip(&packed.rows_path(), start);
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    let parts: Vec<_> = report
        .differences
        .iter()
        .map(|difference| (difference.part.clone(), difference.offset))
        .collect();
    assert!(
        parts.contains(&(format!("rows of `{EMBEDDING}`"), 0)),
        "{parts:?}"
    );
    let widened = format!("widened rows of `{EMBEDDING}`, row {row}");
    assert!(parts.contains(&(widened, start)), "{parts:?}");
    assert!(
        parts
            .iter()
            .any(|(part, _)| part.starts_with("row tree root")),
        "{parts:?}"
    );
    flip(&packed.rows_path(), start);

    let idx = packed.out.path().join("tiny.embed-rows.idx");
    flip(&idx, 200);
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    assert_eq!(report.differences.len(), 1);
    assert_eq!(
        (
            &report.differences[0].file,
            report.differences[0].part.as_str()
        ),
        (&idx, "sidecar")
    );
    flip(&idx, 200);

    let file = std::fs::File::options()
        .write(true)
        .open(packed.rows_path())
        .unwrap();
    file.set_len(sidecar.table_bytes() - 1).unwrap();
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    assert_eq!(report.differences.len(), 1);
    let found = &report.differences[0];
    assert!(
        found.expected.contains(&sidecar.table_bytes().to_string()),
        "{found:?}"
    );
}

#[test]
fn inspect_shows_the_kinds_and_their_errors() {
    let packed = packed(
        directory(&tiny_tensors()).path(),
        mix("fp8_e4m3=rarest:50%"),
    );
    let summary = inspect(&packed.knot_path()).unwrap();
    let block = summary
        .blocks
        .iter()
        .find(|block| block.name == EMBEDDING)
        .unwrap();
    let shown = block.columnar.as_ref().unwrap().sidecar.as_ref().unwrap();
    assert_eq!(shown.table_bytes, packed.rows.len() as u64);
    assert_eq!(shown.kinds.len(), 2);
    let text = summary.to_string();
    for part in [
        "row-sidecar",
        "stored in several kinds",
        "fp8_e4m3",
        "relative error",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn what_a_kind_cannot_hold_is_refused_and_leaves_no_file() {
    let mut tensors = tiny_tensors();
    let embedding = tensors
        .iter_mut()
        .find(|tensor| tensor.name == EMBEDDING)
        .unwrap();
    // Value 3 of the last row becomes 1,024 (bf16 0x4480), beyond E4M3's 448.
    let at = embedding.bytes.len() - 2 * HIDDEN + 6;
    embedding.bytes[at..at + 2].copy_from_slice(&[0x80, 0x44]);
    let out = tempfile::tempdir().unwrap();
    let options = PackOptions {
        out: out.path().to_path_buf(),
        name: Some("tiny".to_owned()),
        ..mix("fp8_e4m3=rest")
    };
    match pack(directory(&tensors).path(), &options) {
        Err(Error::ConversionOverflow {
            row,
            column: 3,
            value: 1024.0,
            dtype: "fp8_e4m3",
            ..
        }) => assert_eq!(row, ROWS - 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(files(out.path()), [""; 0]);
    let options = PackOptions {
        embed_mix: Some("f16=rest".parse().unwrap()),
        ..options
    };
    let refused = pack(directory(&tensors).path(), &options);
    assert_eq!(files(out.path()), [""; 0]);
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("--embed-mix") && error.contains("save nothing"),
        "{error}"
    );
}
