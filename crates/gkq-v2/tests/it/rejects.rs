//! One defect per file of `fixtures/gkq-v2/bad`, each refused with exactly the error the file names.
//! A file is a list of `key = value` lines; `fixtures/gkq-v2/README.md` explains them.

use gkq_v2::{Error, Knot};

use crate::fields::find;
use crate::hexdump::{fixtures, golden};

/// What of the damaged knot gets its digests back, so that the defect itself is what is found.
#[derive(Clone, Copy, PartialEq)]
enum Seal {
    /// Nothing.
    Nothing,
    /// The digest of the front.
    Front,
    /// The digests of the sections in the front, then that of the front.
    All,
}

/// A damaged knot and the error it must give.
struct Defect {
    file: Vec<u8>,
    object_bytes: u64,
    expect: String,
}

/// Writes the digest of the front of a knot whose header is whole.
pub(crate) fn seal_front(file: &mut [u8]) {
    let front_bytes = u64::from_le_bytes(file[24..32].try_into().unwrap());
    let Ok(end) = usize::try_from(front_bytes) else {
        return;
    };
    if end < 128 || end > file.len() {
        return;
    }
    let digest = *blake3::Hasher::new()
        .update(&file[..96])
        .update(&file[128..end])
        .finalize()
        .as_bytes();
    file[96..128].copy_from_slice(&digest);
}

/// Writes the digests of the sections that lie in the front.
fn seal_sections(file: &mut [u8]) {
    let number = |file: &[u8], offset: usize| {
        u64::from_le_bytes(file[offset..offset + 8].try_into().unwrap()) as usize
    };
    let front_bytes = number(file, 24);
    let count = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let entries = 128 + 128 * count(32);
    for entry in (0..count(36)).map(|index| entries + 64 * index) {
        let Some(fields) = file.get(entry..entry + 64) else {
            return;
        };
        let (start, bytes) = (number(fields, 16), number(fields, 24));
        let end = start.saturating_add(bytes);
        if start < front_bytes && end <= file.len() {
            let digest = *blake3::hash(&file[start..end]).as_bytes();
            file[entry + 32..entry + 64].copy_from_slice(&digest);
        }
    }
}

#[track_caller]
fn read_defect(text: &str) -> Defect {
    let mut original = Vec::new();
    let mut file = Vec::new();
    let (mut seal, mut keep, mut object_bytes, mut expect) = (Seal::All, None, None, None);
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (key, value) = line.split_once(" = ").expect("key = value");
        match key.split_once(' ') {
            Some(("set", field)) => set(&original, &mut file, field, value),
            _ => match key {
                "base" => {
                    original = golden(value);
                    file.clone_from(&original);
                }
                "seal" => {
                    seal = match value {
                        "nothing" => Seal::Nothing,
                        "front" => Seal::Front,
                        other => panic!("seal {other:?}"),
                    }
                }
                "keep_bytes" => keep = Some(value.parse::<usize>().unwrap()),
                "object_bytes" => object_bytes = Some(value.parse::<u64>().unwrap()),
                "expect" => expect = Some(value.to_owned()),
                other => panic!("unknown key {other:?}"),
            },
        }
    }
    if seal == Seal::All {
        seal_sections(&mut file);
    }
    if seal != Seal::Nothing {
        seal_front(&mut file);
    }
    let object_bytes = object_bytes.unwrap_or(file.len() as u64);
    file.truncate(keep.unwrap_or(file.len()));
    Defect {
        file,
        object_bytes,
        expect: expect.expect("an `expect` line"),
    }
}

/// `FIELD` or `FIELD+SKIP`, set to a decimal number as wide as the field, or to `hex` bytes.
#[track_caller]
fn set(original: &[u8], file: &mut [u8], field: &str, value: &str) {
    let (name, skip) = match field.split_once('+') {
        Some((name, skip)) => (name, skip.parse::<usize>().unwrap()),
        None => (field, 0),
    };
    let mut range = find(original, name);
    range.start += skip;
    let bytes: Vec<u8> = match value.strip_prefix("hex ") {
        Some(hex) => hex
            .split(' ')
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect(),
        None => {
            let number: u64 = value.parse().unwrap();
            number.to_le_bytes().into_iter().take(range.len()).collect()
        }
    };
    assert!(
        bytes.len() <= range.len(),
        "{value:?} does not fit into {field}"
    );
    file[range.start..range.start + bytes.len()].copy_from_slice(&bytes);
}

#[track_caller]
fn assert_rejects(name: &str, defect: &Defect) -> Error {
    match Knot::parse(&defect.file, defect.object_bytes) {
        Ok(_) => panic!("{name} was accepted, expected: {}", defect.expect),
        Err(error) => {
            assert_eq!(error.to_string(), defect.expect, "{name}");
            error
        }
    }
}

/// The variant of an error, without its facts.
fn variant(error: &Error) -> String {
    let debug = format!("{error:?}");
    debug
        .split([' ', '{'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn every_defect_is_refused_by_name() {
    let mut names: Vec<String> = std::fs::read_dir(fixtures().join("bad"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut seen = std::collections::BTreeSet::new();
    for name in &names {
        let text = crate::hexdump::read_fixture(&format!("bad/{name}"));
        let defect = read_defect(&text);
        seen.insert(variant(&assert_rejects(name, &defect)));
    }
    let all = [
        "Contradiction",
        "Digest",
        "DuplicateName",
        "DuplicateSection",
        "Empty",
        "ErrorFigure",
        "Gap",
        "Limit",
        "Misaligned",
        "Mismatch",
        "MissingSection",
        "NotAKnot",
        "NotUtf8",
        "ObjectLength",
        "OutOfBounds",
        "OutOfOrder",
        "Overlap",
        "RangeOverflow",
        "ReservedNotZero",
        "RowsDiffer",
        "SectionOwner",
        "Shape",
        "Truncated",
        "UnknownCode",
        "UnknownRequiredFlags",
        "UnsupportedVersion",
    ];
    assert_eq!(
        seen.iter().map(String::as_str).collect::<Vec<_>>(),
        all,
        "every error that reading can give has a defect that gives it"
    );
}

#[test]
fn an_unknown_optional_bit_is_ignored_and_kept() {
    let mut file = golden(crate::golden::SET);
    for field in ["header.flags", "block[2].flags", "section[0].flags"] {
        let start = find(&file, field).start;
        file[start + 1] = 0x80;
    }
    seal_front(&mut file);
    let knot = Knot::parse(&file, file.len() as u64).unwrap();
    assert_eq!(knot.blocks()[2].flags, 0x8000);
    assert_eq!(knot.sections()[0].flags, 0x8000);
}

#[test]
fn an_unknown_section_is_ignored_and_kept() {
    let mut file = golden(crate::golden::SET);
    let start = find(&file, "section[1].kind").start;
    file[start..start + 2].copy_from_slice(&[0xE7, 0x03]);
    seal_front(&mut file);
    let knot = Knot::parse(&file, file.len() as u64).unwrap();
    assert_eq!(knot.sections()[1].kind, gkq_v2::SectionKind::Unknown(999));
    assert_eq!(knot.text(gkq_v2::SectionKind::ChatTemplate), None);
}
