//! Commented hexdumps: `offset  bytes  # what they are`. A line without bytes is a comment; the
//! offset must be that of the first byte, so that an edited dump can't shift unnoticed.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use gkq_v2::Dtype;

use crate::fields::spans;

/// `fixtures/gkq-v2`.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gkq-v2")
}

/// Reads a fixture file, or says which one is not there.
#[track_caller]
pub(crate) fn read_fixture(name: &str) -> String {
    let path = fixtures().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The bytes of a golden knot.
#[track_caller]
pub(crate) fn golden(name: &str) -> Vec<u8> {
    parse(&read_fixture(&format!("v2/{name}")))
}

/// The bytes that a dump stands for.
#[track_caller]
pub(crate) fn parse(dump: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_whitespace();
        let Some(offset) = words.next() else { continue };
        let offset = usize::from_str_radix(offset, 16).expect("a hexadecimal offset");
        assert_eq!(offset, bytes.len(), "offset of line {line:?}");
        bytes.extend(words.map(|word| u8::from_str_radix(word, 16).expect("a hexadecimal byte")));
    }
    bytes
}

/// The dump of a good knot, each field with its name and, where it is short, its value.
pub(crate) fn print(title: &str, file: &[u8]) -> String {
    let mut dump = String::new();
    for line in title.lines() {
        writeln!(dump, "# {line}").unwrap();
    }
    for span in spans(file) {
        let bytes = &file[span.range.clone()];
        for (index, row) in bytes.chunks(16).enumerate() {
            let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            let offset = span.range.start + 16 * index;
            let comment = match index {
                0 => format!("{}{}", span.name, meaning(&span.name, bytes)),
                _ => String::new(),
            };
            let text: String = row.iter().map(|&byte| printable(byte)).collect();
            let text = if is_text(bytes) {
                format!("|{text}|")
            } else {
                String::new()
            };
            let comment = [comment, text].join(" ");
            let line = format!("{offset:08x}  {:<47}  # {comment}", hex.join(" "));
            writeln!(dump, "{}", line.trim_end().trim_end_matches('#').trim_end()).unwrap();
        }
    }
    dump
}

/// The value of a field that holds a number, and what it stands for.
fn meaning(name: &str, bytes: &[u8]) -> String {
    let (record, field) = name.rsplit_once('.').unwrap_or_default();
    let sections = record.starts_with("section");
    match *bytes {
        [a, b, c, d] => {
            let number = u32::from_le_bytes([a, b, c, d]);
            let word = match field {
                "dtype" | "source_dtype" => Dtype::from_code(number).map(Dtype::name),
                "kind" if sections => section_kind(number),
                "kind" => ["dense", "spectral"].get(number as usize - 1).copied(),
                "block" if number == u32::MAX => Some("the file"),
                _ => None,
            };
            format!(
                " = {number}{}",
                word.map(|word| format!(" ({word})")).unwrap_or_default()
            )
        }
        [a, b, c, d, e, f, g, h] => match field {
            "error" => format!(" = {}", f64::from_le_bytes([a, b, c, d, e, f, g, h])),
            "" | "magic" => String::new(),
            _ => format!(" = {}", u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        },
        _ => String::new(),
    }
}

fn section_kind(code: u32) -> Option<&'static str> {
    Some(match code {
        1 => "model-config",
        2 => "tokenizer",
        4 => "chat-template",
        16 => "columnar",
        17 => "pinned-nodes",
        19 => "hot-ids",
        _ => return None,
    })
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.len() > 8 && bytes.iter().all(|&byte| matches!(byte, b' '..=b'~'))
}

fn printable(byte: u8) -> char {
    if byte == b'#' { '.' } else { char::from(byte) }
}

#[test]
fn a_dump_reads_back() {
    assert_eq!(
        parse("# title\n00000000  01 ff  # two\n\n00000002  7f\n"),
        [1, 255, 127]
    );
}

#[test]
#[should_panic(expected = "offset of line")]
fn a_shifted_dump_is_refused() {
    parse("00000000  01 ff\n00000003  7f\n");
}
