//! Rows found by content: each container, what finding them costs, and one hostile file per rule.

mod gguf;
mod hostile;
mod sharded;

use std::sync::Arc;

use columnar_embed::Error;
use columnar_embed::locate::{
    Container, Evidence, Found, LocateOptions, Located, LocationHint, Wanted, assume, locate,
};
use helix_transport::{
    ByteRange, MemorySource, Meter, MeterSnapshot, Patience, RangeSource, ReadOptions,
};
use serde_json::{Map, Value, json};

const ROWS: u64 = 10;
const ROW_BYTES: u32 = 64;
const TABLE_BYTES: usize = 640;
const NAME: &str = "model.embed_tokens.weight";

fn wanted() -> Wanted {
    Wanted::vocabulary(ROWS, ROW_BYTES, "bf16")
}

/// Rows that are recognised: byte `k` of the table is `k % 251`.
fn table() -> Vec<u8> {
    (0..TABLE_BYTES).map(|at| (at % 251) as u8).collect()
}

/// A search in an object without shards or hint, and what it moved.
fn search(bytes: Vec<u8>) -> (Result<Found, Error>, MeterSnapshot) {
    search_with(bytes, &wanted(), None)
}

fn search_with(
    bytes: Vec<u8>,
    wanted: &Wanted,
    hint: Option<&LocationHint>,
) -> (Result<Found, Error>, MeterSnapshot) {
    let source: Arc<dyn RangeSource> = Arc::new(MemorySource::new("object", bytes));
    let read = ReadOptions::new(Arc::new(Meter::default()), Patience::Batch);
    let open_shard = |name: &str| -> Result<Arc<dyn RangeSource>, helix_transport::Error> {
        Ok(Arc::new(MemorySource::new(name, Vec::new())))
    };
    let options = LocateOptions {
        read: &read,
        hint,
        open_shard: &open_shard,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let found = runtime.block_on(locate(&source, wanted, &options));
    (found, read.meter.snapshot())
}

#[track_caller]
fn rows(found: Result<Found, Error>) -> Located {
    match found.unwrap() {
        Found::Rows(located) => located,
        other => panic!("{other:?}"),
    }
}

/// The table, read where it was located.
fn read_table(located: &Located) -> Vec<u8> {
    let range = ByteRange {
        start: located.layout.base_bytes(),
        end: located.layout.end_bytes(),
    };
    let read = ReadOptions::new(Arc::new(Meter::default()), Patience::Batch);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let bytes = runtime.block_on(located.source.read(range, &read));
    bytes.unwrap().to_vec()
}

/// A safetensors file with this header text.
fn with_header(text: &str, data: &[u8]) -> Vec<u8> {
    [
        &(text.len() as u64).to_le_bytes()[..],
        text.as_bytes(),
        data,
    ]
    .concat()
}

/// A safetensors file: a norm, then the matrix under `name`; its header is padded to `header_bytes`.
fn safetensors(name: &str, header_bytes: Option<usize>) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    header.insert(
        "norm".into(),
        json!({ "dtype": "F32", "shape": [4], "data_offsets": [0, 16] }),
    );
    header.insert(
        name.into(),
        json!({ "dtype": "BF16", "shape": [10, 32], "data_offsets": [16, 656] }),
    );
    let mut text = Value::Object(header).to_string();
    if let Some(bytes) = header_bytes {
        text.push_str(&" ".repeat(bytes - text.len()));
    }
    with_header(&text, &[&[7; 16][..], &table()].concat())
}

#[test]
fn a_bare_file_is_known_by_its_length_and_costs_nothing() {
    let (found, cost) = search(table());
    let located = rows(found);
    assert_eq!(
        (located.container, located.evidence),
        (Container::Bare, Evidence::Length)
    );
    assert_eq!(located.layout.base_bytes(), 0);
    assert_eq!(cost.requests, 0);
}

#[test]
fn bare_rows_that_begin_like_a_container_are_still_bare() {
    for beginning in [
        &b"GGUF\x03\0\0\0"[..],
        b"\x40\0\0\0\0\0\0\0{\"a\":",
        b"\x89GKQ\r\n\x1a\n",
        b"{\"weight_map\":{}}",
    ] {
        let mut table = table();
        table[..beginning.len()].copy_from_slice(beginning);
        let (found, cost) = search(table);
        assert_eq!(rows(found).container, Container::Bare);
        assert_eq!(cost.requests, 0);
    }
}

#[test]
fn a_safetensors_file_under_each_usual_name() {
    for name in columnar_embed::locate::EMBEDDING_NAMES {
        let file = safetensors(name, None);
        let base = file.len() - TABLE_BYTES;
        let (found, cost) = search(file);
        let located = rows(found);
        assert_eq!(
            (located.container, located.evidence),
            (Container::Safetensors, Evidence::Header)
        );
        assert_eq!(located.layout.base_bytes(), base as u64);
        assert_eq!(read_table(&located), table(), "{name}");
        assert_eq!(cost.requests, 1);
    }
}

/// huggingface_hub#4602: headers that end around the end of the first read.
#[test]
fn a_header_around_the_end_of_the_first_read_is_read_whole_and_not_further() {
    const PREFIX: usize = 64 * 1024;
    for end in [
        PREFIX - 8,
        PREFIX - 7,
        PREFIX - 1,
        PREFIX,
        PREFIX + 1,
        PREFIX + 7,
        PREFIX + 8,
        3 * PREFIX,
    ] {
        let file = safetensors(NAME, Some(end - 8));
        let (found, cost) = search(file.clone());
        let located = rows(found);
        assert_eq!(read_table(&located), table(), "{end}");
        let (requests, received) = if end <= PREFIX {
            (1, PREFIX.min(file.len()))
        } else {
            (2, end)
        };
        assert_eq!(
            (cost.requests, cost.received_bytes),
            (requests, received as u64),
            "{end}"
        );
        assert_eq!(cost.useful_bytes, end as u64);
        assert_eq!(cost.waves, requests);
    }
}

#[test]
fn a_hint_is_taken_where_the_length_is_its_own() {
    let file = safetensors(NAME, None);
    let base = (file.len() - TABLE_BYTES) as u64;
    let hint = |object_bytes: u64, base_bytes: u64| LocationHint {
        file: "model.safetensors".into(),
        object_bytes,
        base_bytes,
    };
    let own = hint(file.len() as u64, base);
    let (found, cost) = search_with(file.clone(), &wanted(), Some(&own));
    let located = rows(found);
    assert_eq!(located.evidence, Evidence::Assumed);
    assert_eq!(read_table(&located), table());
    assert_eq!(cost.requests, 0);
    let other = hint(file.len() as u64 + 1, base);
    let (found, cost) = search_with(file.clone(), &wanted(), Some(&other));
    assert_eq!(rows(found).evidence, Evidence::Header);
    assert_eq!(cost.requests, 1);
    // A hint beyond the object's end is refused, not read.
    let beyond = hint(file.len() as u64, base + 1);
    let (found, _) = search_with(file, &wanted(), Some(&beyond));
    assert!(matches!(found, Err(Error::ObjectTooShort { .. })));
}

#[test]
fn a_name_decides_what_is_assumed_and_the_first_reply_whether_it_holds() {
    let hint = LocationHint {
        file: "weights.safetensors".into(),
        object_bytes: 4_000,
        base_bytes: 1_000,
    };
    let file = safetensors(NAME, None);
    let source: Arc<dyn RangeSource> = Arc::new(MemorySource::new("object", file));
    let assumed = |name: &str| assume(&source, name, &wanted(), Some(&hint)).unwrap();
    for container in ["a.safetensors", "a.GGUF", "a.json", "a.gkq"] {
        assert!(assumed(container).is_none(), "{container}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let read = ReadOptions::new(Arc::new(Meter::default()), Patience::Batch);
    for (name, base, expected) in [
        ("rows-1a2b.bin", 0, "640"),
        ("weights.safetensors", 1_000, "4000"),
    ] {
        let located = assumed(name).unwrap();
        assert_eq!(located.layout.base_bytes(), base);
        let range = ByteRange { start: 0, end: 64 };
        // Another length than assumed: no byte is handed out, by no way of reading.
        let one = runtime
            .block_on(located.source.read(range, &read))
            .unwrap_err();
        let many = runtime.block_on(located.source.read_many(&[range, range], &read));
        let prefix = runtime
            .block_on(located.source.read_prefix(64, &read))
            .unwrap_err();
        let mut errors = vec![one.to_string(), prefix.to_string()];
        errors.extend(
            many.replies
                .into_iter()
                .map(|reply| reply.unwrap_err().to_string()),
        );
        assert_eq!(errors.len(), 4);
        for error in errors {
            assert!(
                error.contains("length was") && error.contains(expected),
                "{error}"
            );
        }
    }
    assert_eq!(
        read.meter.snapshot().requests,
        0,
        "the length was known before"
    );
}

#[test]
fn knots_and_manifests_are_handed_back() {
    let knot = [b"\x89GKQ\r\n\x1a\n".as_slice(), &[0; 100]].concat();
    assert!(matches!(search(knot).0, Ok(Found::Knot)));
    let text = br#" {"version":1,"format":"fat-station manifest","rows":{}}"#.to_vec();
    match search(text.clone()).0 {
        Ok(Found::Manifest(bytes)) => assert_eq!(bytes, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_nothing_known_is_said_with_its_beginning() {
    for (bytes, shown) in [
        (b"<html>sign in".to_vec(), "<html>sign in"),
        (vec![0xFF; 32], "ff, ff"),
        (Vec::new(), "has 0 bytes"),
        (b"PK\x03\x04".to_vec(), "PK"),
    ] {
        let error = search(bytes).0.unwrap_err().to_string();
        assert!(error.contains(shown) && error.contains("640"), "{error}");
    }
}
