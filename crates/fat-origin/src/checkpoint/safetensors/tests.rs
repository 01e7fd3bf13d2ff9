//! One hostile file per rule of the header, and a good one.

use std::io::Write as _;

use super::{Listed, list};
use crate::checkpoint::{DataFile, StoredDtype};
use gkq_v2::Dtype;

/// A file of this header and so many data bytes.
fn read(header: &str, data_bytes: usize) -> Result<Vec<Listed>, String> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(vec![7; data_bytes]);
    read_bytes(&bytes)
}

fn read_bytes(bytes: &[u8]) -> Result<Vec<Listed>, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let opened = DataFile::open(file.path()).unwrap();
    list(&opened).map_err(|error| error.to_string())
}

#[track_caller]
fn rejects(header: &str, data_bytes: usize, parts: &[&str]) {
    let error = read(header, data_bytes).expect_err(header);
    for part in parts {
        assert!(error.contains(part), "`{error}` does not name `{part}`");
    }
}

#[test]
fn a_good_header_lists_tensors_by_range() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},
        "a":{"dtype":"I64","shape":[0],"data_offsets":[12,12]},
        "c":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
    let listed = read(header, 12).unwrap();
    let start = 8 + header.len() as u64;
    let names: Vec<_> = listed.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["c", "b", "a"]);
    assert_eq!(listed[1].range, start + 4..start + 12);
    assert_eq!(listed[1].dtype, StoredDtype::Known(Dtype::Bf16));
    assert_eq!(listed[2].dtype, StoredDtype::Other("I64".to_owned()));
}

#[test]
fn each_rule_refuses_by_name() {
    let one = |offsets: &str| {
        format!(r#"{{"w":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}"#)
    };
    rejects(&one("[0,8]"), 7, &["tensor `w`", "7 data bytes", "0..8"]);
    rejects(&one("[8,0]"), 8, &["tensor `w`", "8..0"]);
    rejects(
        &one("[0,4]"),
        4,
        &["tensor `w`", "8 bytes", "found 4 bytes"],
    );
    rejects(
        &one("[4,12]"),
        12,
        &["tensor `w`", "leaves a hole after the header"],
    );
    rejects(&one("[0,8]"), 9, &["file length"]);
    rejects(&one("[0,-8]"), 8, &["header"]);
    rejects(&one("[0,8,9]"), 9, &["header"]);
    rejects("{", 0, &["header"]);
    rejects("[]", 0, &["header"]);
    rejects(
        r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}}"#,
        0,
        &["tensor `w`", "fit 64 bits"],
    );
    rejects(
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#,
        6,
        &["tensor `b`", "overlaps tensor `a`"],
    );
    rejects(
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
        8,
        &["tensor `a`", "two of that name"],
    );
}

#[test]
fn every_prefix_of_a_good_file_is_an_error() {
    let header = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([1; 8]);
    assert!(read_bytes(&bytes).is_ok());
    for len in 0..bytes.len() {
        assert!(
            read_bytes(&bytes[..len]).is_err(),
            "{len} bytes were accepted"
        );
    }
}

#[test]
fn a_header_longer_than_the_file_is_not_allocated() {
    let error = read_bytes(&[255; 16]).unwrap_err();
    assert!(
        error.contains("header length") && error.contains("18446744073709551615"),
        "{error}"
    );
}
