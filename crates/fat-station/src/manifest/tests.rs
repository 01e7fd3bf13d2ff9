//! Tests of the manifest's reader: one hostile text a rule, and what a good one resolves to.

use super::*;
use serde_json::{Value, json};

fn digest_of(byte: &str) -> String {
    byte.repeat(32)
}

fn good() -> Value {
    json!({
        "format": "fat-station manifest",
        "version": 1,
        "name": "qwen2.5-0.5b",
        "later": {"fields": ["are ignored"]},
        "knot": {
            "object": "knot-ab.gkq",
            "bytes": 1000,
            "blake3": digest_of("ab"),
            "front_bytes": 100,
            "front_blake3": digest_of("cd"),
            "later": 1
        },
        "rows": {
            "object": "rows-ef.bin",
            "bytes": 640,
            "blake3": digest_of("ef"),
            "tensor": "model.embed_tokens.weight",
            "rows": 10,
            "row_bytes": 64,
            "dtype": "bf16"
        }
    })
}

fn parse_at(value: &Value, place: &str) -> Result<Manifest, Error> {
    Manifest::parse(
        &serde_json::to_vec(value).unwrap(),
        &Locator::parse(place).unwrap(),
    )
}

#[track_caller]
fn assert_rejects(value: &Value, parts: &[&str]) {
    let error = parse_at(value, "https://u:SECRET@h/m/manifest.json?sig=SECRET").unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    let shown = error.to_string();
    for part in parts.iter().chain(&["manifest https://h/m/manifest.json"]) {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("SECRET"), "{shown}");
}

/// `good()` with the value at `pointer` replaced, or removed where it is null.
fn with(pointer: &str, value: Value) -> Value {
    let mut text = good();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = text.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(field).unwrap();
    } else {
        parent.insert(field.to_owned(), value);
    }
    text
}

#[test]
fn objects_lie_in_the_manifests_folder() {
    for (place, knot, rows) in [
        (
            "https://h:8/m/manifest.json?sig=s",
            "https://h:8/m/knot-ab.gkq",
            "https://h:8/m/rows-ef.bin",
        ),
        (
            "https://h/manifest.json",
            "https://h/knot-ab.gkq",
            "https://h/rows-ef.bin",
        ),
        ("site/manifest.json", "site/knot-ab.gkq", "site/rows-ef.bin"),
        ("manifest.json", "knot-ab.gkq", "rows-ef.bin"),
    ] {
        let manifest = parse_at(&good(), place).unwrap();
        assert_eq!(manifest.knot.object.locator, Locator::parse(knot).unwrap());
        assert_eq!(*manifest.rows_locator(), Locator::parse(rows).unwrap());
        let Locator::Http(url) = &manifest.knot.object.locator else {
            continue;
        };
        assert_eq!(url.query(), None, "a signed query is for one object");
    }
    let manifest = parse_at(&good(), "https://h/m/manifest.json").unwrap();
    assert_eq!(manifest.name, "qwen2.5-0.5b");
    assert_eq!(manifest.knot.front_bytes, 100);
    assert_eq!(manifest.knot.front_blake3, [0xcd; 32]);
    let rows = manifest.rows.clone().unwrap();
    assert_eq!(
        (rows.rows, rows.row_bytes, rows.dtype.as_str()),
        (10, 64, "bf16")
    );
    assert_eq!((rows.object.bytes, rows.object.blake3), (640, [0xef; 32]));
    assert!(manifest.names_rows(&Locator::parse("https://other/x/rows-ef.bin").unwrap()));
    assert!(!manifest.names_rows(&Locator::parse("https://h/m/rows-00.bin").unwrap()));
    assert!(!manifest.names_rows(&Locator::parse("https://h/m/").unwrap()));
    assert!(manifest.names_knot(&Locator::parse("https://h/m/knot-ab.gkq").unwrap()));
}

#[test]
fn a_knot_alone_is_its_own_row_table() {
    let manifest = parse_at(&with("/rows", Value::Null), "https://h/m/manifest.json").unwrap();
    assert_eq!(manifest.rows, None);
    assert_eq!(
        manifest.rows_locator().to_string(),
        "https://h/m/knot-ab.gkq"
    );
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    for name in [
        "",
        "..",
        "../rows.bin",
        "a/rows.bin",
        "/rows.bin",
        "\\\\host\\rows.bin",
        "https://elsewhere/rows.bin",
        "//elsewhere/rows.bin",
        "file:///etc/passwd",
        "rows.bin?x=SECRET",
        "rows.bin#f",
        "rows%2f..%2fx",
        ".hidden",
        "rows bin",
        "rows\n.bin",
        "röws.bin",
    ] {
        assert_rejects(&with("/rows/object", json!(name)), &["rows.object"]);
        assert_rejects(&with("/knot/object", json!(name)), &["knot.object"]);
    }
    let long = "r".repeat(256);
    assert_rejects(&with("/rows/object", json!(long)), &["255 bytes"]);
}

#[test]
fn each_field_that_cannot_be_is_named() {
    for (pointer, value, parts) in [
        (
            "/format",
            json!("web app manifest"),
            &["`web app manifest`"][..],
        ),
        ("/version", json!(2), &["version is 2", "reads 1"]),
        ("/version", Value::Null, &["version"]),
        ("/format", Value::Null, &["format"]),
        ("/knot", Value::Null, &["knot"]),
        ("/knot/object", Value::Null, &["object"]),
        ("/knot/bytes", json!(0), &["knot.bytes is 0"]),
        ("/knot/bytes", json!(-1), &["-1"]),
        ("/knot/bytes", json!("1000"), &["string"]),
        (
            "/knot/blake3",
            json!("abc"),
            &["knot.blake3", "64 hexadecimal"],
        ),
        ("/knot/front_blake3", json!(""), &["knot.front_blake3"]),
        (
            "/knot/front_bytes",
            json!(1001),
            &["knot.front_bytes is 1001", "1000"],
        ),
        ("/knot/front_bytes", json!(0), &["knot.front_bytes is 0"]),
        ("/rows/blake3", json!("zz".repeat(32)), &["rows.blake3"]),
        ("/rows/rows", json!(0), &["rows.rows is 0"]),
        ("/rows/row_bytes", json!(0), &["row_bytes 0"]),
        ("/rows/tensor", Value::Null, &["tensor"]),
        (
            "/rows/sidecar",
            json!({"object": "../x", "bytes": 1, "blake3": digest_of("00")}),
            &["rows.sidecar.object"],
        ),
        (
            "/rows/sidecar",
            json!({"object": "i.idx", "bytes": 1}),
            &["blake3"],
        ),
    ] {
        assert_rejects(&with(pointer, value), parts);
    }
}

#[test]
fn what_is_no_json_or_too_long_is_refused() {
    let place = Locator::parse("https://h/manifest.json").unwrap();
    let text = serde_json::to_vec(&good()).unwrap();
    for end in 0..text.len() {
        Manifest::parse(&text[..end], &place).unwrap_err();
        assert!(!Manifest::is_manifest(&text[..end]), "{end}");
    }
    let deep = "[".repeat(60_000);
    Manifest::parse(deep.as_bytes(), &place).unwrap_err();
    let mut long = text.clone();
    long.resize(64 * 1024, b' ');
    Manifest::parse(&long, &place).unwrap();
    long.push(b' ');
    let error = Manifest::parse(&long, &place).unwrap_err().to_string();
    assert!(error.contains("65537 bytes, at most 65536"), "{error}");
    assert!(!Manifest::is_manifest(&long));
}

#[test]
fn a_manifest_is_told_by_its_format_alone() {
    let text = |value: &Value| serde_json::to_vec(value).unwrap();
    assert!(Manifest::is_manifest(&text(&good())));
    assert!(Manifest::is_manifest(&text(&with("/version", json!(9)))));
    for other in [
        &b""[..],
        b"{}",
        b"{\"weight_map\": {}}",
        b"{\"format\": \"pt\"}",
        b"\x89GKQ",
    ] {
        assert!(!Manifest::is_manifest(other));
    }
}
