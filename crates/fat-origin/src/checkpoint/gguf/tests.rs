//! A good file, and one hostile file per rule.

use std::path::Path;

use proptest::prelude::*;

use super::{GgufArray, GgufFile, GgufValue};
use crate::Error;
use gkq_v2::Dtype;

/// A file under construction: counts are filled in at the end.
#[derive(Clone, Default)]
pub(crate) struct Builder {
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl Builder {
    pub(crate) fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries
            .push([&text(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let mut entry = text(name);
        entry.extend(u32::try_from(dims.len()).unwrap().to_le_bytes());
        dims.iter().for_each(|dim| entry.extend(dim.to_le_bytes()));
        entry.extend(kind.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        self.tensors.push(entry);
        self
    }

    fn data(mut self, bytes: usize) -> Self {
        self.data = (0..=255).cycle().take(bytes).collect();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        self.entries
            .iter()
            .chain(&self.tensors)
            .for_each(|entry| out.extend(entry));
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }
}

fn good() -> Builder {
    let strings = [
        &8_u32.to_le_bytes()[..],
        &2_u64.to_le_bytes(),
        &text("one"),
        &text("two"),
    ]
    .concat();
    let floats = [
        &6_u32.to_le_bytes()[..],
        &1_u64.to_le_bytes(),
        &2.5_f32.to_le_bytes(),
    ]
    .concat();
    Builder::default()
        .entry("general.name", 8, &text("small"))
        .entry("a.u32", 4, &7_u32.to_le_bytes())
        .entry("a.i64", 11, &(-7_i64).to_le_bytes())
        .entry("a.f32", 6, &0.5_f32.to_le_bytes())
        .entry("a.bool", 7, &[1])
        .entry("a.strings", 9, &strings)
        .entry("a.floats", 9, &floats)
        .tensor("first", &[2, 3], 0, 0)
        .tensor("second", &[32], 8, 32)
        .data(32 + 34)
}

pub(crate) fn open(bytes: &[u8]) -> Result<GgufFile, Error> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    GgufFile::open(file.path())
}

#[track_caller]
fn assert_rejects(bytes: &[u8], message: &str) {
    let error = open(bytes).unwrap_err().to_string();
    assert!(error.contains(message), "{error:?} should hold {message:?}");
}

#[test]
fn a_good_file_is_read() {
    let file = open(&good().bytes()).unwrap();
    assert_eq!((file.version(), file.alignment()), (3, 32));
    assert_eq!(file.string("general.name").unwrap(), Some("small"));
    assert_eq!(file.unsigned("a.u32").unwrap(), Some(7));
    assert_eq!(file.get("a.i64"), Some(&GgufValue::I64(-7)));
    assert_eq!(file.float("a.f32").unwrap(), Some(0.5));
    assert_eq!(file.bool("a.bool").unwrap(), Some(true));
    assert_eq!(file.bool("absent").unwrap(), None);
    assert_eq!(
        file.array("a.strings").unwrap(),
        Some(&GgufArray::String(vec!["one".into(), "two".into()]))
    );
    assert_eq!(
        file.array("a.floats").unwrap(),
        Some(&GgufArray::F32(vec![2.5]))
    );
    let error = file.bool("a.u32").unwrap_err().to_string();
    assert!(
        error.contains("metadata key `a.u32`: expected a bool, found U32(7)"),
        "{error}"
    );

    let first = file.tensor("first").unwrap();
    assert_eq!(
        (first.dtype, first.shape.as_slice(), first.bytes),
        (Dtype::F32, &[3, 2][..], 24)
    );
    assert_eq!(
        file.read_tensor(first).unwrap(),
        (0..24).collect::<Vec<u8>>()
    );
    let second = file.tensor("second").unwrap();
    assert_eq!((second.dtype, second.bytes), (Dtype::Q8_0, 34));
    let mut middle = [0; 3];
    file.read_at(second, 2, &mut middle).unwrap();
    assert_eq!(middle, [34, 35, 36]);
    let error = file
        .read_at(second, 32, &mut middle)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tensor `second`: expected a read within its 34 bytes, found 3 bytes at 32"),
        "{error}"
    );
}

#[test]
fn other_formats_and_versions_are_refused() {
    let with = |at: usize, word: u32| {
        let mut bytes = good().bytes();
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        bytes
    };
    assert_rejects(&with(0, 0), "magic: expected `GGUF`");
    assert_rejects(
        &with(4, 1),
        "GGUF version: `1` is not supported (supported: 2, 3)",
    );
    assert_rejects(&with(4, 3_u32.swap_bytes()), "(big-endian)");
    assert!(
        open(&with(4, 2)).is_ok(),
        "version 2 differs in nothing that is read"
    );
    assert!(matches!(
        GgufFile::open(Path::new("/nonexistent.gguf")),
        Err(Error::Io { .. })
    ));
}

#[test]
fn counts_and_lengths_are_compared_with_the_file() {
    let with = |at: usize, word: u64| {
        let mut bytes = good().bytes();
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        bytes
    };
    for huge in [1_000, u64::MAX, 1 << 40] {
        assert_rejects(&with(8, huge), "tensor count at byte 8: expected at most");
        assert_rejects(
            &with(16, huge),
            "metadata count at byte 16: expected at most",
        );
        assert_rejects(
            &with(24, huge),
            "key of metadata entry 0 at byte 24: expected at most",
        );
    }
    let array = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    for kind in [0, 6, 8, 12] {
        let file = good().entry("long", 9, &array(kind, 1 << 61)).bytes();
        assert_rejects(&file, "array length of metadata key `long`");
    }
}

#[test]
fn metadata_is_checked() {
    let check = |builder: Builder, message| assert_rejects(&builder.bytes(), message);
    let u32_of = |value: u32| value.to_le_bytes();
    check(
        good().entry("odd", 13, &[0; 8]),
        "metadata key `odd`: expected a value type from 0 to 12, found 13",
    );
    check(
        good().entry("odd", 7, &[2]),
        "metadata key `odd`: expected a bool, 0 or 1, found 2",
    );
    check(
        good().entry("odd", 8, &[&1_u64.to_le_bytes()[..], &[0xff]].concat()),
        "expected UTF-8",
    );
    check(
        good().entry("odd", 9, &[&9_u32.to_le_bytes()[..], &[0; 16]].concat()),
        "element type from 0 to 8",
    );
    check(
        good().entry("a.u32", 4, &u32_of(1)),
        "metadata key `a.u32`: expected to be there once",
    );
    let alignment = |value| good().entry("general.alignment", 4, &u32_of(value));
    check(
        alignment(0),
        "`general.alignment`: expected a u32 that is a power of two, found U32(0)",
    );
    check(alignment(33), "found U32(33)");
    check(
        good().entry("general.alignment", 10, &[0; 8]),
        "found U64(0)",
    );
    check(
        alignment(64),
        "offset of tensor `second`: expected a multiple of the alignment 64, found 32",
    );
}

#[test]
fn tensors_are_checked() {
    let check = |builder: Builder, message| assert_rejects(&builder.bytes(), message);
    check(
        good().tensor("odd", &[], 0, 0),
        "dimension count of tensor `odd`: expected 1 to 4, found 0",
    );
    check(
        good().tensor("odd", &[1; 5], 0, 0),
        "expected 1 to 4, found 5",
    );
    check(
        good().tensor("odd", &[4, 0], 0, 0),
        "shape of tensor `odd`: expected no dimension of 0, found [0, 4]",
    );
    check(
        good().tensor("odd", &[1 << 33, 1 << 33], 0, 0),
        "fewer than 2^64 bytes",
    );
    check(
        good().tensor("odd", &[u64::MAX; 4], 0, 0),
        "fewer than 2^64 bytes",
    );
    check(
        good().tensor("odd", &[33], 8, 0),
        "whole blocks of 32 values in a row",
    );
    check(
        good().tensor("odd", &[32], 23, 0),
        "dtype of tensor `odd`: `iq4_xs` is not supported (supported: f32, f16",
    );
    check(
        good().tensor("odd", &[32], 999, 0),
        "`ggml type 999` is not supported",
    );
    check(
        good().tensor("odd", &[1], 0, 4),
        "offset of tensor `odd`: expected a multiple of the alignment 32, found 4",
    );
    check(
        good().tensor("odd", &[1], 0, 1 << 20),
        "bytes that end by the file's end",
    );
    check(
        good().tensor("odd", &[1], 0, u64::MAX - 31),
        "bytes that end by the file's end",
    );
    check(
        good().tensor("odd", &[1], 0, 0),
        "the end of tensor `first`, found 384",
    );
    check(
        good().tensor("first", &[1], 0, 96).data(128),
        "tensor `first`: expected to be there once",
    );
}

#[test]
fn every_prefix_is_refused() {
    let whole = good().bytes();
    for len in 0..whole.len() {
        assert!(open(&whole[..len]).is_err(), "prefix of {len} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn damage_never_panics(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let mut bytes = good().bytes();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(file) = open(&bytes) {
            for tensor in file.tensors() {
                prop_assert!(tensor.offset + tensor.bytes <= file.len_bytes());
            }
        }
    }
}
