//! Indexes of sharded checkpoints: the one shard that matters, and names that lead elsewhere.

use super::{NAME, read_table, rows, safetensors, table, wanted};
use columnar_embed::Error;
use columnar_embed::locate::{Container, Evidence, Found, LocateOptions, LocationHint, locate};
use helix_transport::{MemorySource, Meter, Patience, RangeSource, ReadOptions};
use std::sync::{Arc, Mutex};

/// A search in an index whose shards all hold `shard`; gives back which were opened.
fn search(
    index: &str,
    shard: Option<Vec<u8>>,
    hint: Option<&LocationHint>,
) -> (Result<Found, Error>, Vec<String>, u64) {
    let source: Arc<dyn RangeSource> = Arc::new(MemorySource::new("index.json", index.to_owned()));
    let read = ReadOptions::new(Arc::new(Meter::default()), Patience::Batch);
    let opened = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&opened);
    let open_shard = move |name: &str| -> Result<Arc<dyn RangeSource>, helix_transport::Error> {
        note.lock().unwrap().push(name.to_owned());
        match &shard {
            Some(bytes) => Ok(Arc::new(MemorySource::new(name, bytes.clone()))),
            None => Err(helix_transport::Error::Io {
                object: name.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
        }
    };
    let options = LocateOptions {
        read: &read,
        hint,
        open_shard: &open_shard,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let found = runtime.block_on(locate(&source, &wanted(), &options));
    let opened = opened.lock().unwrap().clone();
    (found, opened, read.meter.snapshot().requests)
}

fn index(shard: &str) -> String {
    let map = serde_json::json!({
        "metadata": { "total_size": 9 },
        "weight_map": { "other": "model-00001.safetensors", NAME: shard },
    });
    map.to_string()
}

#[test]
fn the_shard_of_the_matrix_alone_is_opened() {
    let (found, opened, requests) = search(
        &index("sub/model-00002.safetensors"),
        Some(safetensors(NAME, None)),
        None,
    );
    let located = rows(found);
    assert_eq!(located.container, Container::ShardedIndex);
    assert_eq!(read_table(&located), table());
    assert_eq!(opened, ["sub/model-00002.safetensors"]);
    assert_eq!(requests, 2, "index and header");
}

#[test]
fn a_hint_saves_the_header_of_the_shard() {
    let shard = safetensors(NAME, None);
    let hint = LocationHint {
        file: "model-00002.safetensors".into(),
        object_bytes: shard.len() as u64,
        base_bytes: (shard.len() - table().len()) as u64,
    };
    let (found, _, requests) = search(&index("model-00002.safetensors"), Some(shard), Some(&hint));
    let located = rows(found);
    assert_eq!(located.evidence, Evidence::Assumed);
    assert_eq!(read_table(&located), table());
    assert_eq!(requests, 1, "the index");
}

/// huggingface_hub#4728, mlx-vlm#1464, transformers#47996, diffusers#14175.
#[test]
fn names_that_lead_out_of_the_folder_are_never_opened() {
    let long = "x".repeat(2_000);
    for shard in [
        "../model.safetensors",
        "a/../../b",
        "/etc/passwd",
        "//host/x",
        "",
        ".",
        "a//b",
        "a\\b",
        "C:\\x",
        "http://elsewhere/x",
        "x?sig=1",
        "x#y",
        "%2e%2e/x",
        "a\0b",
        &long,
    ] {
        let (found, opened, _) = search(&index(shard), Some(safetensors(NAME, None)), None);
        let error = found.unwrap_err();
        assert!(
            matches!(error, Error::ShardName { .. }),
            "{shard:?}: {error}"
        );
        assert!(error.to_string().len() < 600, "{error}");
        assert!(opened.is_empty(), "{opened:?}");
    }
}

#[test]
fn indexes_and_shards_that_do_not_fit_are_refused() {
    let sound = || Some(safetensors(NAME, None));
    let map = |entries: &str| format!(r#"{{"weight_map":{{{entries}}}}}"#);
    let entry = format!(r#""{NAME}":"s""#);
    for (index, shard, part) in [
        (map(r#""other":"s""#), sound(), "no tensor named"),
        (map(&format!("{entry},{entry}")), sound(), "is there twice"),
        (map(&format!(r#""{NAME}":7"#)), sound(), "weight_map"),
        ("{}".to_owned(), sound(), "weight_map"),
        (r#"{"weight_map":[]}"#.to_owned(), sound(), "weight_map"),
        (format!("{{{}", "[".repeat(100_000)), sound(), "weight_map"),
        (map(&entry)[..30].to_owned(), sound(), "weight_map"),
        // The shard lacks what the index says it has.
        (
            map(&entry),
            Some(safetensors("other", None)),
            "no tensor named model.embed_tokens.weight",
        ),
        (map(&entry), Some(b"<html>".to_vec()), "header within"),
        (map(&entry), Some(Vec::new()), "header within"),
        (map(&entry), None, "could not be read"),
    ] {
        let error = search(&index, shard, None).0.unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// What a shard holds beyond the index is not part of the checkpoint.
#[test]
fn the_shard_is_asked_for_the_name_of_the_index() {
    let text = r#"{"weight_map":{"wte.weight":"s"}}"#;
    let error = search(text, Some(safetensors(NAME, None)), None)
        .0
        .unwrap_err();
    assert!(
        error.to_string().contains("no tensor named wte.weight"),
        "{error}"
    );
}
