//! Objects that are replaced while they are read: whatever the moment, the tags and the way it is
//! served, a row that is handed out or cached is a row of the published table.

use std::sync::Arc;

use columnar_embed::{ColumnarEmbedBackend, Error, PathSource, StoreMeters};
use helix_transport::retry::RetryPolicy;
use helix_transport::{ErrorKind, HttpBackend, HttpConfig};
use range_testkit::{Fault, FaultServer, Object, PartDefect, Parts, Script, Several};

use crate::table::{Table, config, ids};

const ROWS: &str = "/model.rows";
const PATHS: &str = "/model.gkq";
const ROW_BYTES: u32 = 128;

/// Few connections, so that a batch of 24 rows has several waves.
fn http(url: &str) -> Arc<HttpBackend> {
    let config = HttpConfig {
        connections: 4,
        retry: RetryPolicy {
            base_delay: std::time::Duration::from_millis(1),
            ..RetryPolicy::default()
        },
        ..HttpConfig::default()
    };
    Arc::new(HttpBackend::new(url, config).unwrap())
}

fn store(table: &Table, server: &FaultServer, paths: PathSource) -> ColumnarEmbedBackend {
    ColumnarEmbedBackend::new(
        http(&server.url(ROWS)),
        table.layout(),
        table.digest(),
        table.verification(paths),
        config(1000),
        StoreMeters::default(),
    )
    .unwrap()
}

fn local(table: &Table) -> PathSource {
    PathSource::Local(table.paths.clone())
}

/// How an origin tags its replies.
#[derive(Clone, Copy, Debug)]
enum Tags {
    Strong,
    Weak,
    /// Another one with every reply.
    Random,
    None,
}

fn tagged(object: Object, tags: Tags, version: u32, request: u32) -> Object {
    match tags {
        Tags::Strong => object.with_etag(&format!("\"v{version}\"")),
        Tags::Weak => object.with_etag(&format!("W/\"v{version}\"")),
        Tags::Random => object.with_etag(&format!("\"r{request}\"")),
        Tags::None => object.without_etag(),
    }
}

/// 24 rows of batch `number`, none near another.
fn batch_ids(number: u64) -> Vec<columnar_embed::RowId> {
    ids((0..24).map(|row| row * 400 + number * 7))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_of_another_version_is_handed_out_or_cached() {
    let table = Table::new(10_000, ROW_BYTES);
    // The same number of rows, all of them others: what a fine-tune of the model has.
    let other: Vec<u8> = table.bytes.iter().map(|byte| byte ^ 0x5a).collect();
    let mut longer = other.clone();
    longer.extend_from_slice(&[1; 128]);
    let shorter = other[..other.len() - 128].to_vec();
    let old = Object::bytes(&table.bytes[..]);
    for new in [other, longer, shorter].map(Object::bytes) {
        for tags in [Tags::Strong, Tags::Weak, Tags::Random, Tags::None] {
            for manner in [Several::honest(), Several::Status(200)] {
                // From the k-th request on the new one; a cache in front serves the old one now and
                // then (every `stale`-th request).
                for (from, stale) in [(0, 0), (1, 0), (3, 0), (9, 0), (30, 0), (5, 3), (2, 2)] {
                    let replies = |request: u32| {
                        let is_new =
                            request >= from && (stale == 0 || !request.is_multiple_of(stale));
                        let (object, version) = if is_new { (&new, 2) } else { (&old, 1) };
                        let object = tagged(object.clone(), tags, version, request);
                        Fault::Instead(object, manner.clone())
                    };
                    let script = Script::list((0..400).map(replies).collect::<Vec<_>>());
                    let server = FaultServer::start_ignoring_if_match(ROWS, old.clone(), script);
                    let server = server.await.unwrap();
                    let case = format!(
                        "{} bytes, {tags:?}, {manner:?}, {from}/{stale}",
                        new.len_bytes()
                    );
                    check(&table, &server, tags, &case).await;
                }
            }
        }
    }
}

async fn check(table: &Table, server: &FaultServer, tags: Tags, case: &str) {
    let store = store(table, server, local(table));
    for number in 0..3 {
        match store.rows(&batch_ids(number)).await {
            Ok(batch) => {
                for (id, row) in batch_ids(number).iter().zip(&batch.rows) {
                    assert_eq!(row[..], table.rows[id.0 as usize], "{case}");
                }
                // Every reply had another tag: nothing can be told, so nothing is taken.
                assert!(!matches!(tags, Tags::Random), "{case}");
            }
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt),
                    "{case}: {error}"
                );
                if let Error::Read { source, .. } = &error
                    && let helix_transport::Error::Changed {
                        expected, found, ..
                    } = source.last_attempt()
                {
                    assert_ne!(expected, found, "{case}");
                }
            }
        }
    }
    // What is cached is the published row, whatever was served: with the origin gone, a row can only
    // come from the cache.
    server.set_script(Script::always(Fault::HangUp));
    let cached = store.cached_rows();
    let mut found = 0;
    for id in (0..3).flat_map(batch_ids) {
        if found == cached {
            break;
        }
        if let Ok(batch) = store.rows(&[id]).await {
            found += 1;
            assert_eq!(batch.rows[0][..], table.rows[id.0 as usize], "{case}");
        }
    }
    assert_eq!(found, cached, "{case}");
}

#[tokio::test]
async fn a_replaced_path_table_refuses_rows_and_hands_out_none() {
    let table = Table::new(10_000, ROW_BYTES);
    let other = Table::new(9_999, ROW_BYTES + 1);
    let server = FaultServer::start(ROWS, Object::bytes(&table.bytes[..]), Script::honest())
        .await
        .unwrap();
    let mut paths = table.paths.to_vec();
    let len = paths.len().min(other.paths.len());
    paths[..len].copy_from_slice(&other.paths[..len]);
    server.put(PATHS, Object::bytes(paths));
    let remote = PathSource::Remote {
        source: http(&server.url(PATHS)),
        base_bytes: 0,
    };
    let store = store(&table, &server, remote);
    let error = store.rows(&batch_ids(0)).await.unwrap_err();
    assert!(matches!(error, Error::RowIntegrity { .. }), "{error}");
    assert_eq!(store.cached_rows(), 0);
}

/// The log names the connections: the second answer did not come over the one of the first.
#[tokio::test]
async fn a_refused_row_is_asked_again_over_another_connection() {
    let table = Table::new(10_000, ROW_BYTES);
    let object = Object::bytes(&table.bytes[..]);
    let server = FaultServer::start(ROWS, object, Script::list([Fault::None, Fault::Shift(128)]))
        .await
        .unwrap();
    let store = store(&table, &server, local(&table));
    store.rows(&ids([1])).await.unwrap();
    let batch = store.rows(&ids([5000])).await.unwrap();
    assert_eq!(batch.rows[0][..], table.rows[5000]);
    let entries = server.log().entries();
    let connections: Vec<_> = entries.iter().map(|entry| entry.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    assert_eq!(entries[1].range, entries[2].range);
}

/// An origin that puts several ranges together wrongly, every time, but answers one rightly.
#[tokio::test]
async fn rows_refused_in_several_replies_are_asked_again_one_range_a_request() {
    let table = Table::new(10_000, ROW_BYTES);
    let object = Object::bytes(&table.bytes[..]);
    let wrong = Fault::Several(Several::Parts(Parts {
        defect: Some((0, PartDefect::Shift(4))),
        ..Parts::default()
    }));
    let server = FaultServer::start(ROWS, object, Script::always(wrong))
        .await
        .unwrap();
    let store = store(&table, &server, local(&table));
    // More refused rows than connections: they would go together again if they might.
    let asked = ids((0..600).map(|row| row * 16));
    let batch = store.rows(&asked).await.unwrap();
    for (id, row) in asked.iter().zip(&batch.rows) {
        assert_eq!(row[..], table.rows[id.0 as usize]);
    }
    let refused = store.meters().rows.snapshot().integrity_failures;
    assert!(refused > 4, "{refused}");
    let entries = server.log().entries();
    let last_several = entries
        .iter()
        .rposition(|entry| entry.range.as_deref().unwrap().contains(','))
        .unwrap();
    let before = &entries[..=last_several];
    let newest = before.iter().map(|entry| entry.connection).max().unwrap();
    let again = entries.iter().filter(|entry| entry.connection > newest);
    assert_eq!(again.count() as u64, refused);
}

/// The same where the wrong bytes came as one part of many: only that row is asked again.
#[tokio::test]
async fn a_refused_part_is_asked_again_alone_over_another_connection() {
    let table = Table::new(10_000, ROW_BYTES);
    let object = Object::bytes(&table.bytes[..]);
    let honest = Fault::Several(Several::honest());
    let server = FaultServer::start(ROWS, object, Script::always(honest.clone()))
        .await
        .unwrap();
    let store = store(&table, &server, local(&table));
    store.rows(&batch_ids(0)).await.unwrap();
    let before = server.log().len();
    let mut faults = vec![honest.clone(); before];
    faults.push(Fault::Several(Several::Parts(Parts {
        defect: Some((2, PartDefect::Shift(4))),
        ..Parts::default()
    })));
    faults.extend(vec![honest; 20]);
    server.set_script(Script::list(faults));
    let asked = batch_ids(1);
    let batch = store.rows(&asked).await.unwrap();
    for (id, row) in asked.iter().zip(&batch.rows) {
        assert_eq!(row[..], table.rows[id.0 as usize]);
    }
    let rows = store.meters().rows.snapshot();
    assert_eq!(rows.integrity_failures, 1);
    let entries = server.log().entries();
    let (first, again) = (&entries[..entries.len() - 1], &entries[entries.len() - 1]);
    assert!(!again.range.as_deref().unwrap().contains(','));
    assert!(
        first
            .iter()
            .all(|entry| entry.connection < again.connection)
    );
    // What the origin sent, in bodies, is what was counted.
    assert_eq!(rows.body_bytes(), server.log().body_bytes());
}
