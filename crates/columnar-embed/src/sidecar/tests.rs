//! The sidecar against a linear scan, its size at real vocabularies, and its golden bytes.

mod hostile;

use helix_transport::ByteRange;
use proptest::prelude::*;

use super::{
    KindError, Sidecar, SidecarBuilder,
    naive::{RowList, palette_index},
    planes_for,
};
use crate::{
    Error,
    layout::RowId,
    row_kind::{FloatKind, RowKind},
};

/// A sidecar of these rows; the palette has the kinds in the order they are met.
fn build(matrix: FloatKind, cols: u64, kinds: &[RowKind]) -> Vec<u8> {
    let palette = met(kinds);
    let mut builder = SidecarBuilder::new(matrix, kinds.len() as u64, cols, &palette).unwrap();
    for kind in kinds {
        builder.push(*kind).unwrap();
    }
    let error = KindError {
        largest: 0.5,
        relative: 0.25,
    };
    builder
        .finish([7; 32], &vec![error; palette.len()])
        .unwrap()
}

fn met(kinds: &[RowKind]) -> Vec<RowKind> {
    let mut palette = Vec::new();
    for kind in kinds {
        if !palette.contains(kind) {
            palette.push(*kind);
        }
    }
    palette
}

/// Compares every row of a sidecar with the scan of its list.
#[track_caller]
fn assert_like_the_scan(list: &RowList, bytes: &[u8]) {
    let sidecar = Sidecar::parse(bytes).unwrap();
    let rows = list.kinds.len() as u64;
    let palette = met(&list.kinds);
    assert_eq!(sidecar.rows(), rows);
    assert_eq!(sidecar.table_bytes(), list.table_bytes());
    let planes = planes_for(palette.len()) as u64;
    for (row, kind) in list.kinds.iter().enumerate() {
        let id = RowId(row as u64);
        assert_eq!(sidecar.range(id).unwrap(), list.range(row), "row {row}");
        assert_eq!(sidecar.kind(id).unwrap(), *kind, "row {row}");
        let index = palette_index(bytes, rows, planes, row as u64);
        assert_eq!(palette[index], *kind, "row {row}");
    }
    let outside = sidecar.range(RowId(rows));
    assert!(matches!(outside, Err(Error::RowOutsideMatrix { .. })));
}

/// Eight kinds of rows of an f32 matrix.
const EIGHT: [RowKind; 8] = [
    RowKind::F32,
    RowKind::F16,
    RowKind::Bf16,
    RowKind::Fp8E4m3,
    RowKind::Fp8E5m2,
    RowKind::Int8,
    RowKind::Int8Zp,
    RowKind::Int4,
];

#[test]
fn a_vocabulary_of_151_936_rows_of_eight_kinds_takes_less_than_64_kib() {
    let kinds: Vec<RowKind> = (0..151_936).map(|row| EIGHT[row * 7 % 8]).collect();
    let bytes = build(FloatKind::F32, 896, &kinds);
    // 384 bytes in front, 297 offsets of 8 bytes, 297 blocks of three planes of 64 bytes.
    assert_eq!(bytes.len(), 384 + 297 * 8 + 297 * 3 * 64);
    assert_eq!(bytes.len(), 59_784);
    assert!(bytes.len() <= 64 << 10);
    let sidecar = Sidecar::parse(&bytes).unwrap();
    let last = sidecar.range(RowId(151_935)).unwrap();
    assert_eq!(last.end, sidecar.table_bytes());
}

#[test]
fn rows_around_the_edges_of_words_and_blocks_are_where_a_scan_finds_them() {
    for rows in [1, 2, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 1600] {
        let kinds: Vec<RowKind> = (0..rows).map(|row| EIGHT[row * row % 8]).collect();
        let list = RowList { kinds, cols: 3 };
        if met(&list.kinds) == [RowKind::F32] {
            continue;
        }
        assert_like_the_scan(&list, &build(FloatKind::F32, 3, &list.kinds));
    }
}

#[test]
fn one_kind_smaller_than_the_matrix_needs_no_planes() {
    let list = RowList {
        kinds: vec![RowKind::Fp8E5m2; 1000],
        cols: 5,
    };
    let bytes = build(FloatKind::Bf16, 5, &list.kinds);
    assert_eq!(bytes.len(), 384 + 2 * 8);
    assert_like_the_scan(&list, &bytes);
}

/// The bytes that a commented hexdump stands for.
fn hexdump(dump: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_whitespace();
        let Some(offset) = words.next() else { continue };
        assert_eq!(
            usize::from_str_radix(offset, 16).unwrap(),
            bytes.len(),
            "{line}"
        );
        bytes.extend(words.map(|word| u8::from_str_radix(word, 16).unwrap()));
    }
    bytes
}

fn golden() -> Vec<u8> {
    hexdump(include_str!(
        "../../../../fixtures/sidecar/v1/three-kinds.hex"
    ))
}

#[test]
fn the_golden_sidecar_is_read_and_written_byte_for_byte() {
    use RowKind::{Bf16, Fp8E4m3, Int8};
    let bytes = golden();
    let sidecar = Sidecar::parse(&bytes).unwrap();
    assert_eq!(sidecar.matrix(), FloatKind::Bf16);
    assert_eq!((sidecar.rows(), sidecar.cols()), (5, 2));
    let stored: [&[u8]; 5] = [
        &[0x80, 0x3f, 0x00, 0xc0],
        &[0x38, 0x7e],
        &[0x00, 0x00, 0x00, 0x3f, 0x02, 0xfd],
        &[0x01, 0xb0],
        &[0x00, 0x00, 0x40, 0x41],
    ];
    let wide = [
        [0x3f80, 0xc000],
        [0x3f80, 0x43e0], // 1.0, 448.0
        [0x3f80, 0xbfc0], // 1.0, -1.5
        [0x3b00, 0xbf00], // 2^-9, -0.5
        [0x0000, 0x4140],
    ];
    let mut start = 0;
    for (row, (stored, wide)) in stored.into_iter().zip(wide).enumerate() {
        let id = RowId(row as u64);
        let end = start + stored.len() as u64;
        assert_eq!(sidecar.range(id).unwrap(), ByteRange { start, end });
        let expected: Vec<u8> = wide.into_iter().flat_map(u16::to_le_bytes).collect();
        assert_eq!(sidecar.widen(id, stored).unwrap(), expected, "row {row}");
        let short = sidecar.widen(id, &stored[1..]);
        assert!(matches!(short, Err(Error::RowLength { .. })));
        start = end;
    }
    assert_eq!(
        sidecar.table_blake3(),
        *blake3::hash(&stored.concat()).as_bytes()
    );

    let palette = [Bf16, Fp8E4m3, Int8];
    let mut builder = SidecarBuilder::new(FloatKind::Bf16, 5, 2, &palette).unwrap();
    for kind in [Bf16, Fp8E4m3, Int8, Fp8E4m3, Bf16] {
        builder.push(kind).unwrap();
    }
    let errors: Vec<KindError> = sidecar.palette().iter().map(|entry| entry.error).collect();
    assert_eq!((errors[1].largest, errors[1].relative), (0.25, 0.0625));
    assert_eq!(
        builder.finish(sidecar.table_blake3(), &errors).unwrap(),
        bytes
    );
}

#[test]
fn a_builder_refuses_what_no_sidecar_can_have() {
    use RowKind::{Bf16, F16, Fp8E4m3, Int4, Int8};
    let refused = |kinds: &[RowKind]| {
        let error = SidecarBuilder::new(FloatKind::Bf16, 9, 4, kinds).unwrap_err();
        assert!(matches!(error, Error::RowKinds { .. }));
        error.to_string()
    };
    assert!(refused(&[]).contains("1 to 8 kinds"));
    assert!(refused(&[Int8, Int4, Int8]).contains("stands there twice"));
    assert!(refused(&[F16, Bf16]).contains("not smaller"));
    assert!(refused(&[Bf16]).contains("need no sidecar"));
    let builder = |rows| SidecarBuilder::new(FloatKind::Bf16, rows, 4, &[Bf16, Fp8E4m3]);
    assert!(matches!(builder(0), Err(Error::TreeRows { rows: 0 })));
    assert!(matches!(
        builder((1 << 33) + 1),
        Err(Error::TreeRows { .. })
    ));
    let mut one = builder(1).unwrap();
    assert!(matches!(one.push(Int8), Err(Error::RowKinds { .. })));
    one.push(Bf16).unwrap();
    let more = one.push(Bf16);
    assert!(matches!(
        more,
        Err(Error::RowCount {
            expected: 1,
            found: 2
        })
    ));
    // A kind of the palette without rows, and an error that is none.
    let error = one.finish([0; 32], &[KindError::default(); 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sidecar: rows of kind fp8_e4m3 is 0, expected at least 1"
    );
    let missing = builder(2).unwrap().finish([0; 32], &[]);
    assert!(matches!(
        missing,
        Err(Error::RowCount {
            expected: 2,
            found: 0
        })
    ));
}

proptest! {
    #[test]
    fn any_mix_is_found_where_a_scan_finds_it(
        indexes in prop::collection::vec(0_usize..8, 1..1400), kinds in 1_usize..=8, cols in 1_u64..40
    ) {
        let kinds: Vec<RowKind> = indexes.into_iter().map(|index| EIGHT[index % kinds]).collect();
        prop_assume!(met(&kinds) != [RowKind::F32]);
        let list = RowList { kinds, cols };
        assert_like_the_scan(&list, &build(FloatKind::F32, cols, &list.kinds));
    }
}
