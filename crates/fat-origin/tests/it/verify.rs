//! What differs is named with its offset.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use fat_origin::Error;
use fat_origin::pack::{Matrix, PackOptions};
use fat_origin::verify::{Difference, verify};
use gkq_v2::SectionKind;

use super::huggingface_source::{HIDDEN, ROWS, directory, tensor, tiny_tensors};
use super::packed::{Packed, packed};

const EMBEDDING: &str = "model.embed_tokens.weight";

fn tiny() -> Packed {
    packed(directory(&tiny_tensors()).path(), PackOptions::default())
}

fn flip(path: &Path, offset: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

fn parts(differences: &[Difference]) -> Vec<(&str, u64)> {
    differences
        .iter()
        .map(|difference| (difference.part.as_str(), difference.offset))
        .collect()
}

#[test]
fn a_flipped_byte_of_a_block_is_named() {
    let packed = tiny();
    let name = "model.layers.1.mlp.up_proj.weight";
    let start = packed.block(name).payload.start;
    flip(&packed.knot_path(), start + 77);
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    assert_eq!(
        parts(&report.differences),
        [("block `model.layers.1.mlp.up_proj.weight`", start)]
    );
    let difference = &report.differences[0];
    assert_ne!(difference.expected, difference.found);
    assert_eq!(difference.file, packed.knot_path());
}

#[test]
fn a_flipped_byte_of_the_matrix_shows_in_block_tree_and_rows() {
    let packed = tiny();
    let start = packed.block(EMBEDDING).payload.start;
    flip(&packed.knot_path(), start);
    let report = verify(&packed.knot_path(), None).unwrap();
    let found = parts(&report.differences);
    assert_eq!(found[0], (format!("block `{EMBEDDING}`").as_str(), start));
    assert!(
        found
            .iter()
            .any(|(part, _)| part.starts_with("row tree root")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|(part, _)| part.starts_with("pinned nodes")),
        "{found:?}"
    );
}

#[test]
fn a_flipped_byte_of_the_row_file_names_its_row() {
    let packed = tiny();
    flip(&packed.rows_path(), 5 * HIDDEN * 2 + 3);
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    let part = format!("rows of `{EMBEDDING}`, row 5");
    assert_eq!(
        parts(&report.differences),
        [(part.as_str(), 5 * HIDDEN * 2 + 3)]
    );
    assert_eq!(report.differences[0].file, packed.rows_path());
}

#[test]
fn a_row_file_of_another_length_or_model_is_told() {
    let packed = tiny();
    let rows = std::fs::read(packed.rows_path()).unwrap();
    std::fs::write(packed.rows_path(), &rows[..rows.len() - 1]).unwrap();
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    assert_eq!(
        report.differences[0].expected,
        format!("{} bytes ({ROWS} rows of {})", rows.len(), HIDDEN * 2)
    );
    assert_eq!(
        report.differences[0].found,
        format!("{} bytes", rows.len() - 1)
    );
    assert_eq!(report.trees, 1, "the knot's own matrix is still checked");
}

#[test]
fn a_path_table_of_other_rows_is_found_out() {
    // A path table appears above 8,192 rows.
    let mut tensors = tiny_tensors();
    tensors[1] = tensor(EMBEDDING, &[8_200, HIDDEN]);
    let packed = packed(directory(&tensors).path(), PackOptions::default());
    assert_eq!(
        verify(&packed.knot_path(), Some(&packed.rows_path()))
            .unwrap()
            .differences,
        []
    );
    let section = packed
        .knot
        .section_of(EMBEDDING, SectionKind::PathTable)
        .unwrap()
        .clone();
    assert_eq!(section.range.end - section.range.start, 8_200 * 16);
    flip(&packed.knot_path(), section.range.start);
    let report = verify(&packed.knot_path(), None).unwrap();
    assert_eq!(
        parts(&report.differences),
        [("section path-table", section.range.start)]
    );
}

#[test]
fn a_broken_front_is_an_error_not_a_report() {
    let packed = tiny();
    flip(&packed.knot_path(), packed.knot.front_bytes() - 1);
    let error = verify(&packed.knot_path(), None).unwrap_err();
    assert!(matches!(error, Error::Knot { .. }), "{error}");
    std::fs::write(packed.knot_path(), b"short").unwrap();
    assert!(matches!(
        verify(&packed.knot_path(), None),
        Err(Error::Knot { .. })
    ));
}

#[test]
fn a_byte_between_payloads_is_named() {
    let packed = tiny();
    let padding = packed.knot.padding();
    let range = padding.last().unwrap();
    let offset = range.end - 1;
    flip(&packed.knot_path(), offset);
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    let part = format!("padding {}..{}", range.start, range.end);
    assert_eq!(parts(&report.differences), [(part.as_str(), offset)]);
    let difference = &report.differences[0];
    assert_eq!(
        (difference.expected.as_str(), difference.found.as_str()),
        ("00", "01")
    );
}

#[test]
fn rows_that_are_not_in_the_knot_are_unchecked_without_a_row_file() {
    let options = PackOptions {
        matrix: Matrix::External,
        ..PackOptions::default()
    };
    let packed = packed(directory(&tiny_tensors()).path(), options);
    let report = verify(&packed.knot_path(), None).unwrap();
    assert_eq!(report.unchecked, [format!("rows of `{EMBEDDING}`")]);
    assert_eq!((report.differences.len(), report.trees), (0, 0));
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    assert_eq!(report.unchecked, Vec::<String>::new());
}

proptest::proptest! {
    /// The format and the row store each derive the tree's numbers from the row count.
    #[test]
    fn both_crates_give_a_tree_the_same_shape(rows in 0_u64..1 << 35, bits in 0_u32..36) {
        let near = 1_u64 << bits;
        for rows in [rows, rows >> bits, near - 1, near, near + 1] {
            let format = gkq_v2::RowTreeShape::new(rows).map(|shape| {
                let path = shape.path_bytes_per_row;
                (shape.depth, shape.pinned_level, shape.pinned_bytes(), path)
            });
            let store = columnar_embed::TreeShape::new(rows).ok().map(|shape| {
                let path = shape.path_bytes();
                (shape.depth(), shape.pinned_level(), shape.pinned_bytes(), path)
            });
            proptest::prop_assert_eq!(format, store, "{} rows", rows);
        }
    }
}
