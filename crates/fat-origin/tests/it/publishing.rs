//! Publishing: what is there afterwards, what is sent a second time, and what survives a cut at any
//! operation.

mod cut;
mod directory;
mod program;
mod public_url;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fat_origin::Error;
use fat_origin::pack::PackOptions;
use fat_origin::publish::{Destination, Outcome, PublishOptions, PublishReport, ReadBack, publish};
use object_store::memory::InMemory;
use serde_json::Value;

use super::huggingface_source::{ROWS, directory as source, tiny_tensors, values};
use super::packed::{Packed, packed};
use store::TestStore;

/// A part's length that cuts the tiny model into many; a library does not insist on what S3 wants.
const PART_BYTES: u64 = 4096;

/// A tiny model; another `version` has other rows of the same geometry.
pub(crate) fn model(version: u8) -> Packed {
    let mut tensors = tiny_tensors();
    for tensor in &mut tensors {
        if tensor.name == "model.embed_tokens.weight" {
            let elements = tensor.shape.iter().product();
            let name = format!("{} {version}", tensor.name);
            tensor.bytes = super::huggingface_source::bf16(&values(&name, elements));
        }
    }
    let options = PackOptions {
        name: Some("tiny".to_owned()),
        ..PackOptions::default()
    };
    packed(source(&tensors).path(), options)
}

fn options(model: &Packed) -> PublishOptions {
    PublishOptions {
        part_bytes: PART_BYTES,
        ..PublishOptions::new(model.knot_path())
    }
}

fn destination(store: &Arc<TestStore>) -> Destination {
    let parts = Arc::clone(store);
    Destination::over("s3://test", Arc::<TestStore>::clone(store), Some(parts))
}

async fn publish_to(model: &Packed, store: &Arc<TestStore>) -> Result<PublishReport, Error> {
    publish(&options(model), &destination(store)).await
}

fn blake3_name(kind: &str, bytes: &[u8], extension: &str) -> String {
    format!("{kind}-{}.{extension}", blake3::hash(bytes))
}

/// Follows a manifest as a station does: every object it names is there, whole and as named.
/// Returns the names of rows and knot.
#[track_caller]
fn assert_whole(manifest: &[u8], object: impl Fn(&str) -> Option<Vec<u8>>) -> [String; 2] {
    let manifest: Value = serde_json::from_slice(manifest).unwrap();
    ["rows", "knot"].map(|kind| {
        let entry = &manifest[kind];
        let name = entry["object"].as_str().unwrap();
        let bytes = object(name).unwrap_or_else(|| panic!("{name} is named and not there"));
        assert_eq!(entry["bytes"], bytes.len(), "{name}");
        let digest = blake3::hash(&bytes).to_string();
        assert_eq!(entry["blake3"], digest.as_str(), "{name}");
        assert!(name.contains(&digest), "{name}");
        name.to_owned()
    })
}

async fn assert_store_is_whole(inner: &Arc<InMemory>) -> [String; 2] {
    let store = TestStore::over(inner, None);
    let manifest = store.object("manifest.json").await.unwrap();
    let names: Value = serde_json::from_slice(&manifest).unwrap();
    let mut objects = Vec::new();
    for kind in ["rows", "knot"] {
        let name = names[kind]["object"].as_str().unwrap().to_owned();
        let bytes = store.object(&name).await.map(|bytes| bytes.to_vec());
        objects.push((name, bytes));
    }
    assert_whole(&manifest, |name| {
        let found = objects.iter().find(|(object, _)| object == name)?;
        found.1.clone()
    })
}

/// Journals beside a model's files.
fn journals(model: &Packed) -> Vec<PathBuf> {
    hidden(model.out.path())
}

fn hidden(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "upload"))
        .collect()
}

#[tokio::test]
async fn large_objects_go_in_equal_parts_and_small_ones_in_one_request() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    let store = TestStore::over(&inner, None);
    let report = publish_to(&model, &store).await.unwrap();
    let rows_name = blake3_name("rows", &model.rows, "bin");
    let knot_name = blake3_name("knot", &model.bytes, "gkq");
    assert_eq!(
        assert_store_is_whole(&inner).await,
        [rows_name.clone(), knot_name.clone()]
    );
    for (name, len) in [
        (&rows_name, model.rows.len()),
        (&knot_name, model.bytes.len()),
    ] {
        let mut sizes: Vec<_> = store
            .of("part")
            .into_iter()
            .filter(|part| part.key == **name)
            .map(|part| part.bytes)
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes.len(), len.div_ceil(4096), "{name}");
        assert!(sizes[1..].iter().all(|&bytes| bytes == 4096), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), len);
    }
    let puts = store.of("put");
    assert_eq!(
        puts.iter().map(|put| put.key.as_str()).collect::<Vec<_>>(),
        ["manifest.json"]
    );
    assert_eq!(
        store.asked().last().unwrap().key,
        "manifest.json",
        "the manifest is last"
    );
    let manifest = puts[0].bytes as u64;
    assert_eq!(
        report.sent_bytes,
        model.rows.len() as u64 + model.bytes.len() as u64 + manifest
    );
    assert_eq!(
        (report.read_back.rows, report.read_back.through),
        (32, "store")
    );
    assert!(journals(&model).is_empty(), "nothing is left behind");

    let one = PublishOptions {
        part_bytes: 8 << 20,
        ..options(&model)
    };
    let small = TestStore::over(&Arc::new(InMemory::new()), None);
    publish(&one, &destination(&small)).await.unwrap();
    let puts: Vec<_> = small.of("put").into_iter().map(|put| put.key).collect();
    assert_eq!(puts, [rows_name, knot_name, "manifest.json".to_owned()]);
    assert!(small.of("part").is_empty());
}

#[tokio::test]
async fn what_is_there_is_not_sent_again() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    publish_to(&model, &TestStore::over(&inner, None))
        .await
        .unwrap();
    let store = TestStore::over(&inner, None);
    let report = publish_to(&model, &store).await.unwrap();
    assert_eq!(report.sent_bytes, 0);
    assert!(!report.manifest_written);
    for operation in ["put", "part", "stream", "create with attributes", "create"] {
        assert!(store.of(operation).is_empty(), "{operation}");
    }
}

#[tokio::test]
async fn bytes_that_are_not_what_their_name_says_are_replaced() {
    use object_store::ObjectStoreExt as _;
    let model = model(1);
    let name = blake3_name("rows", &model.rows, "bin");
    let mut flipped = model.rows.clone();
    flipped[0] ^= 1;
    for wrong in [model.rows[1..].to_vec(), flipped, Vec::new()] {
        let inner = Arc::new(InMemory::new());
        let key = object_store::path::Path::from(name.as_str());
        inner.put(&key, wrong.into()).await.unwrap();
        let report = publish_to(&model, &TestStore::over(&inner, None))
            .await
            .unwrap();
        assert_store_is_whole(&inner).await;
        assert!(report.warnings[0].contains(&name), "{:?}", report.warnings);
        assert_eq!(
            serde_json::to_value(report.objects[0].outcome).unwrap(),
            "replaced"
        );
    }
}

#[tokio::test]
async fn every_byte_is_read_back_where_that_is_asked() {
    use object_store::ObjectStoreExt as _;
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    let all = PublishOptions {
        read_back: "all".parse().unwrap(),
        ..options(&model)
    };
    let store = TestStore::over(&inner, None);
    let report = publish(&all, &destination(&store)).await.unwrap();
    assert_eq!(
        (report.read_back.rows, report.read_back.whole_objects),
        (32, 2)
    );
    let name = blake3_name("knot", &model.bytes, "gkq");
    let mut refused = 0;
    for place in 1..16 {
        let mut wrong = model.bytes.clone();
        let offset = wrong.len() * place / 16;
        wrong[offset] ^= 1;
        let key = object_store::path::Path::from(name.as_str());
        inner.put(&key, wrong.into()).await.unwrap();
        let store = TestStore::over(&inner, None);
        match publish(&all, &destination(&store)).await {
            // A sample met it.
            Ok(report) => assert_eq!(report.objects[1].outcome, Outcome::Replaced, "{offset}"),
            Err(error) => {
                let text = error.to_string();
                assert!(matches!(error, Error::ReadBack { .. }), "{text}");
                assert!(
                    text.contains(&name) && text.contains("publish again"),
                    "{text}"
                );
                assert!(store.of("put").is_empty(), "the manifest stays as it was");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "samples met every wrong byte");
}

#[tokio::test]
async fn more_rows_than_there_are_are_all_rows() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    for (asked, found) in [(u64::MAX, ROWS), (ROWS, ROWS), (ROWS - 1, ROWS - 1), (0, 0)] {
        let options = PublishOptions {
            read_back: ReadBack::Rows(asked),
            ..options(&model)
        };
        let store = TestStore::over(&inner, None);
        let report = publish(&options, &destination(&store)).await.unwrap();
        assert_eq!(report.read_back.rows, found);
    }
    assert!("most".parse::<ReadBack>().is_err());
}

#[tokio::test]
async fn a_new_version_leaves_the_old_one_and_moves_the_manifest() {
    let (old, new, inner) = (model(1), model(2), Arc::new(InMemory::new()));
    publish_to(&old, &TestStore::over(&inner, None))
        .await
        .unwrap();
    let before = assert_store_is_whole(&inner).await;
    publish_to(&new, &TestStore::over(&inner, None))
        .await
        .unwrap();
    let after = assert_store_is_whole(&inner).await;
    assert_ne!(before, after);
    let store = TestStore::over(&inner, None);
    for name in before {
        assert!(
            store.object(&name).await.is_some(),
            "{name} stays for stations that read it"
        );
    }
}

#[tokio::test]
async fn two_publishers_at_once_leave_one_whole_version() {
    let (one, two, inner) = (model(1), model(2), Arc::new(InMemory::new()));
    let stores = [
        TestStore::over(&inner, None),
        TestStore::over(&inner, None),
        TestStore::over(&inner, None),
    ];
    let (first, second, third) = tokio::join!(
        publish_to(&one, &stores[0]),
        publish_to(&two, &stores[1]),
        // The very same files: the journal is the first one's.
        publish_to(&one, &stores[2]),
    );
    for report in [first, second, third] {
        assert_eq!(report.unwrap().read_back.rows, 32);
    }
    assert_store_is_whole(&inner).await;
    assert!(journals(&one).is_empty() && journals(&two).is_empty());
}

#[tokio::test]
async fn somebody_elses_manifest_is_left_alone() {
    use object_store::ObjectStoreExt as _;
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    let key = object_store::path::Path::from("manifest.json");
    let long = format!(
        "{{\"format\": \"fat-station manifest\"{}}}",
        " ".repeat(70_000)
    );
    for foreign in ["{\"name\": \"an app\", \"icons\": []}", "", long.as_str()] {
        inner.put(&key, foreign.to_owned().into()).await.unwrap();
        let store = TestStore::over(&inner, None);
        let error = publish_to(&model, &store).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Option {
                    option: "--manifest",
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(store.object("manifest.json").await.unwrap(), foreign);
        assert!(store.of("part").is_empty() && store.of("put").is_empty());
    }
    let beside = PublishOptions {
        manifest: "tiny.json".to_owned(),
        ..options(&model)
    };
    publish(&beside, &destination(&TestStore::over(&inner, None)))
        .await
        .unwrap();
    assert!(
        TestStore::over(&inner, None)
            .object("tiny.json")
            .await
            .is_some()
    );
}

#[tokio::test]
async fn files_that_do_not_go_together_are_refused_before_anything_is_sent() {
    let (one, two) = (model(1), model(2));
    let store = TestStore::over(&Arc::new(InMemory::new()), None);
    let swapped = PublishOptions {
        rows: Some(two.rows_path()),
        ..options(&one)
    };
    let error = publish(&swapped, &destination(&store)).await.unwrap_err();
    assert!(matches!(error, Error::Difference { .. }), "{error:?}");
    let mut knot = one.bytes.clone();
    let last = knot.len() - 1;
    knot[last] ^= 1;
    std::fs::write(one.knot_path(), &knot).unwrap();
    let error = publish_to(&one, &store).await.unwrap_err();
    assert!(matches!(error, Error::Difference { .. }), "{error:?}");
    assert!(store.of("part").is_empty() && store.of("put").is_empty());
}

#[tokio::test]
async fn a_knot_that_holds_its_matrix_is_published_alone() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    std::fs::remove_file(model.rows_path()).unwrap();
    let store = TestStore::over(&inner, None);
    let report = publish_to(&model, &store).await.unwrap();
    assert_eq!(report.objects.len(), 1);
    assert_eq!(
        report.read_back.rows, 32,
        "rows of the block, against the tree"
    );
    let manifest: Value =
        serde_json::from_slice(&store.object("manifest.json").await.unwrap()).unwrap();
    assert_eq!(manifest.get("rows"), None);

    let external = packed(
        source(&tiny_tensors()).path(),
        PackOptions {
            name: Some("tiny".to_owned()),
            matrix: fat_origin::pack::Matrix::External,
            ..PackOptions::default()
        },
    );
    std::fs::remove_file(external.rows_path()).unwrap();
    let error = publish_to(&external, &store).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Option {
                option: "--rows",
                ..
            }
        ),
        "{error:?}"
    );
}
