//! One hostile sidecar for each rule of the page, every prefix of a good one, and bytes that mean
//! nothing: an error with its reason, never a panic.

use proptest::prelude::*;

use super::{build, golden};
use crate::{
    Error,
    layout::RowId,
    row_kind::{FloatKind, RowKind},
    sidecar::{
        Sidecar,
        layout::{BLOCK_TABLE_AT, ENTRY_BYTES, HEADER_BYTES, entry, header},
        reader::digest,
    },
};

/// Three blocks: 1,100 rows of three kinds in turn.
fn good() -> Vec<u8> {
    use RowKind::{Bf16, Fp8E4m3, Int8};
    let kinds: Vec<RowKind> = [Bf16, Fp8E4m3, Int8]
        .into_iter()
        .cycle()
        .take(1100)
        .collect();
    build(FloatKind::Bf16, 4, &kinds)
}

/// Renews the digest, so that the rules behind it are reached.
fn seal(bytes: &mut [u8]) {
    let digest = digest(bytes);
    bytes[header::SIDECAR_BLAKE3..HEADER_BYTES].copy_from_slice(&digest);
}

/// Replaces bytes of a good sidecar, seals it, and gives the reader's words.
#[track_caller]
fn refusal(offset: usize, value: &[u8]) -> String {
    let mut bytes = good();
    bytes[offset..offset + value.len()].copy_from_slice(value);
    seal(&mut bytes);
    Sidecar::parse(&bytes).unwrap_err().to_string()
}

fn palette(index: usize, field: usize) -> usize {
    HEADER_BYTES + index * ENTRY_BYTES + field
}

/// Where the planes of the three blocks start.
const PLANES_AT: usize = BLOCK_TABLE_AT + 3 * 8;

#[test]
fn magic_version_and_required_flags_are_refused_by_name() {
    let error = refusal(header::MAGIC, b"\x89GKQ");
    assert_eq!(error, "no sidecar: it starts with 89474b510d0a1a0a");
    let error = refusal(header::VERSION, &[2]);
    assert_eq!(error, "sidecar: version 2 is not known to this program");
    let error = refusal(header::FLAGS + 2, &[4]);
    assert_eq!(
        error,
        "sidecar: required flags 262144 is not known to this program"
    );
    // Optional flags are for readers that know them.
    let mut bytes = good();
    bytes[header::FLAGS] = 0xff;
    seal(&mut bytes);
    assert!(Sidecar::parse(&bytes).is_ok());
}

#[test]
fn every_prefix_and_every_suffix_is_refused() {
    for bytes in [good(), golden()] {
        for length in 0..bytes.len() {
            assert!(Sidecar::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        let trailing = [&bytes[..], &[0]].concat();
        let error = Sidecar::parse(&trailing).unwrap_err().to_string();
        let (found, expected) = (trailing.len(), bytes.len());
        assert_eq!(
            error,
            format!("sidecar: length in bytes is {found}, expected {expected}")
        );
    }
}

#[test]
fn a_length_that_the_rows_do_not_ask_for_is_refused() {
    // A block more than the rows have, with its field and digest in order.
    let mut bytes = good();
    bytes.extend([0; 8 + 2 * 64]);
    let length = (bytes.len() as u64).to_le_bytes();
    bytes[header::SIDECAR_BYTES..header::SIDECAR_BYTES + 8].copy_from_slice(&length);
    seal(&mut bytes);
    let error = Sidecar::parse(&bytes).unwrap_err().to_string();
    assert_eq!(
        error,
        "sidecar: length in bytes, for 1100 rows of 3 kinds, is 928, expected 792"
    );
    // As many rows as still fit the same blocks, and one more block of rows.
    let error = refusal(header::ROWS, &1101_u64.to_le_bytes());
    assert!(error.contains("length of the row file"), "{error}");
    let error = refusal(header::ROWS, &1537_u64.to_le_bytes());
    assert!(
        error.contains("for 1537 rows of 3 kinds, is 792, expected 928"),
        "{error}"
    );
}

#[test]
fn any_changed_byte_is_seen() {
    let bytes = good();
    for offset in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[offset] ^= 0x10;
        assert!(Sidecar::parse(&changed).is_err(), "byte {offset}");
    }
    let mut changed = bytes;
    changed[PLANES_AT] ^= 1;
    assert!(matches!(
        Sidecar::parse(&changed),
        Err(Error::SidecarDigest { .. })
    ));
}

#[test]
fn numbers_without_sense_are_refused() {
    let check = |offset, value: u64, expected: &str| {
        let error = refusal(offset, &value.to_le_bytes());
        assert_eq!(error, format!("sidecar: {expected}"));
    };
    check(
        header::RESERVED,
        1 << 60,
        "reserved bytes of the header is 1152921504606846976, expected 0",
    );
    check(header::ROWS, 0, "rows is 0, expected 1 to 8589934592");
    check(
        header::ROWS,
        u64::MAX,
        "rows is 18446744073709551615, expected 1 to 8589934592",
    );
    check(header::COLS, 0, "values of a row is 0, expected at least 1");
    check(
        header::COLS,
        u64::MAX,
        "bytes of a row of 18446744073709551615 bf16 is more, expected 32 bits",
    );
    check(header::COLS, 5, "row_bytes of kind bf16 is 8, expected 10");
    check(
        header::TABLE_BYTES,
        1,
        "length of the row file is 1, expected 7332",
    );
}

#[test]
fn kinds_that_no_store_can_have_are_refused() {
    let check = |offset, value: u32, expected: &str| {
        let error = refusal(offset, &value.to_le_bytes());
        assert_eq!(error, format!("sidecar: {expected}"));
    };
    check(header::KINDS, 0, "kinds of rows is 0, expected 1 to 8");
    check(header::KINDS, 9, "kinds of rows is 9, expected 1 to 8");
    check(
        header::KINDS,
        2,
        "length in bytes, for 1100 rows of 2 kinds, is 792, expected 600",
    );
    check(
        header::MATRIX_KIND,
        8,
        "row kind 8 is not known to this program",
    );
    check(
        header::MATRIX_KIND,
        256,
        "element type of the matrix is fp8_e4m3, expected f32, f16 or bf16",
    );
    check(
        header::MATRIX_KIND,
        1,
        "kind of a row is bf16, expected f16 or fewer bits than f16 has",
    );
    check(
        palette(1, entry::KIND),
        99,
        "row kind 99 is not known to this program",
    );
    check(
        palette(1, entry::KIND),
        0,
        "kind of a row is f32, expected bf16 or fewer bits than bf16 has",
    );
    // fp8_e5m2 has the same length, so only the list tells it from e4m3 standing there twice.
    check(
        palette(2, entry::ROW_BYTES),
        9,
        "row_bytes of kind int8 is 9, expected 8",
    );
    check(
        palette(1, entry::ROWS),
        5,
        "rows of kind fp8_e4m3 is 5, expected 367",
    );
    check(
        palette(3, entry::ROW_BYTES),
        1,
        "palette entry 3 is other bytes, expected unused and zero",
    );
}

#[test]
fn a_kind_twice_and_the_matrix_kind_alone_are_refused() {
    let mut bytes = good();
    bytes.copy_within(palette(1, 0)..palette(2, 0), palette(2, 0));
    seal(&mut bytes);
    let error = Sidecar::parse(&bytes).unwrap_err().to_string();
    assert_eq!(
        error,
        "sidecar: palette is fp8_e4m3, expected each kind once"
    );

    let mut bytes = build(FloatKind::F32, 4, &[RowKind::Bf16; 3]);
    bytes[header::MATRIX_KIND..][..4].copy_from_slice(&30_u32.to_le_bytes());
    seal(&mut bytes);
    let error = Sidecar::parse(&bytes).unwrap_err().to_string();
    assert_eq!(
        error,
        "sidecar: palette is bf16, expected another kind than the matrix's, or no sidecar"
    );
}

#[test]
fn errors_that_are_no_figures_are_refused() {
    for (value, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-1.0, "-1")] {
        let error = refusal(palette(1, entry::LARGEST_ERROR), &value.to_le_bytes());
        assert_eq!(
            error,
            format!(
                "sidecar: largest error of kind fp8_e4m3 is {shown}, expected finite and not negative"
            )
        );
        let error = refusal(palette(2, entry::RELATIVE_ERROR), &value.to_le_bytes());
        assert!(error.contains("relative error of kind int8"), "{error}");
    }
}

#[test]
fn a_palette_index_beyond_the_palette_names_its_row() {
    // Row 0 of block 1 is row 512, of kind 2 (int8): its plane-0 bit makes that 3.
    let block = PLANES_AT + 2 * 64;
    let mut bytes = good();
    assert_eq!((bytes[block] & 1, bytes[block + 64] & 1), (0, 1));
    bytes[block] |= 1;
    seal(&mut bytes);
    assert_eq!(
        Sidecar::parse(&bytes).unwrap_err().to_string(),
        "sidecar: palette index of row 512 is 3, expected below 3"
    );
}

#[test]
fn offsets_must_be_the_sums_of_the_rows() {
    let check = |block: usize, value: u64, expected: &str| {
        let error = refusal(BLOCK_TABLE_AT + 8 * block, &value.to_le_bytes());
        assert_eq!(error, format!("sidecar: {expected}"));
    };
    check(0, 1, "offset of block 0 is 1, expected 0");
    check(1, 3411, "offset of block 1 is 3411, expected 3412");
    check(
        2,
        u64::MAX,
        "offset of block 2 is 18446744073709551615, expected 6828",
    );
    // A row that changes its kind moves the blocks behind it.
    let error = refusal(PLANES_AT, &[0]);
    assert!(
        error.contains("offset of block 1 is 3412, expected 3424"),
        "{error}"
    );
}

#[test]
fn bits_behind_the_last_row_are_reserved() {
    // 1,100 rows leave 436 bits of block 2; row 1,100 is its bit 76.
    let block = PLANES_AT + 2 * 2 * 64;
    for plane in 0..2 {
        let mut bytes = good();
        bytes[block + plane * 64 + 76 / 8] |= 1 << (76 % 8);
        seal(&mut bytes);
        assert_eq!(
            Sidecar::parse(&bytes).unwrap_err().to_string(),
            "sidecar: bits of row 1100, which is none is 1, expected 0"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        offset in 0_usize..792, value: u64, also in 0_usize..792, sealed: bool
    ) {
        let mut bytes = good();
        let value = value.to_le_bytes();
        for offset in [offset, also] {
            let end = (offset + 8).min(bytes.len());
            bytes[offset..end].copy_from_slice(&value[..end - offset]);
        }
        if sealed {
            seal(&mut bytes);
        }
        if let Ok(sidecar) = Sidecar::parse(&bytes) {
            for row in 0..sidecar.rows() {
                let range = sidecar.range(RowId(row)).unwrap();
                prop_assert!(range.start < range.end && range.end <= sidecar.table_bytes());
            }
        }
    }

    #[test]
    fn no_other_bytes_do_either(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(Sidecar::parse(&bytes).is_err());
        let with_magic = [&good()[..16], &bytes[..]].concat();
        prop_assert!(Sidecar::parse(&with_magic).is_err());
    }
}
