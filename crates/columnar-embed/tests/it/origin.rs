//! The store against an HTTP origin: what its log says is what the store says.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use columnar_embed::{ColumnarEmbedBackend, Error, PathSource, StoreMeters};
use helix_transport::http::{HttpBackend, HttpConfig};
use range_testkit::{Fault, FaultServer, Link, LinkOptions, Object, Script, Several};

use crate::table::{Table, config, ids};

const ROWS: &str = "/model.rows";
const PATHS: &str = "/model.gkq";

async fn serve(table: &Table, script: Script) -> FaultServer {
    let server = FaultServer::start(ROWS, Object::bytes(&table.bytes[..]), script)
        .await
        .unwrap();
    server.put(PATHS, Object::bytes(&table.paths[..]));
    server
}

fn http(url: &str) -> Arc<HttpBackend> {
    Arc::new(HttpBackend::new(url, HttpConfig::default()).unwrap())
}

/// Rows and paths of `table` from two objects of `server`.
fn remote_store(table: &Table, server: &FaultServer, cache_rows: u64) -> ColumnarEmbedBackend {
    let paths = PathSource::Remote {
        source: http(&server.url(PATHS)),
        base_bytes: 0,
    };
    ColumnarEmbedBackend::new(
        http(&server.url(ROWS)),
        table.layout(),
        table.digest(),
        table.verification(paths),
        config(cache_rows),
        StoreMeters::default(),
    )
    .unwrap()
}

/// Sixteen callers with overlapping prompts: the origin sees each row once, and its log and our
/// meters agree to the byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_an_origin_shows_one_request_a_row() {
    let table = Table::new(12_000, 900);
    let several = Script::always(Fault::Several(Several::honest()));
    let server = serve(&table, several).await;
    let store = Arc::new(remote_store(&table, &server, 1000));
    let callers: Vec<_> = (0..16_u64)
        .map(|caller| {
            let store = store.clone();
            // Every third row, so that gaps are too wide to merge.
            let asked = ids((caller..caller + 20).map(|row| row * 3));
            tokio::spawn(async move { (asked.clone(), store.rows(&asked).await.unwrap()) })
        })
        .collect();
    for caller in callers {
        let (asked, batch) = caller.await.unwrap();
        for (id, row) in asked.iter().zip(&batch.rows) {
            assert_eq!(row[..], table.rows[id.0 as usize]);
        }
    }

    let entries = server.log().entries();
    let mut ranges = Vec::new();
    for entry in entries.iter().filter(|entry| entry.path == ROWS) {
        let value = entry.range.clone().unwrap();
        let asked = value.strip_prefix("bytes=").unwrap().split(',');
        ranges.extend(asked.map(str::to_owned));
    }
    let distinct: BTreeSet<_> = ranges.iter().collect();
    assert_eq!((ranges.len(), distinct.len()), (35, 35));
    let (rows, paths) = (
        store.meters().rows.snapshot(),
        store.meters().paths.snapshot(),
    );
    assert_eq!(rows.received_bytes, 35 * 900);
    assert_eq!(paths.useful_bytes, 35 * 16);
    assert_eq!(entries.len() as u64, rows.requests + paths.requests);
    server.log().finished(entries.len()).await;
    assert_eq!(
        server.log().body_bytes(),
        rows.body_bytes() + paths.body_bytes()
    );
}

/// Perfect headers around other bytes, as a real CDN sent them.
#[tokio::test]
async fn shifted_bytes_behind_perfect_headers_are_refused() {
    let table = Table::new(5000, 64);
    let server = serve(&table, Script::list([Fault::Shift(64), Fault::None])).await;
    let store = remote_store(&table, &server, 100);
    let batch = store.rows(&ids([40])).await.unwrap();
    assert_eq!(batch.rows[0][..], table.rows[40]);
    assert_eq!(store.meters().rows.snapshot().integrity_failures, 1);
    assert_eq!(server.log().len(), 2);

    let server = serve(&table, Script::always(Fault::Shift(1))).await;
    let store = remote_store(&table, &server, 100);
    let error = store.rows(&ids([40])).await.unwrap_err();
    assert!(
        matches!(error, Error::RowIntegrity { row, .. } if row.0 == 40),
        "{error}"
    );
    assert_eq!((server.log().len(), store.cached_rows()), (2, 0));
}

/// A replaced object with rows of the same size: nothing of the two is mixed.
#[tokio::test]
async fn an_object_that_changes_between_batches_is_an_error() {
    let table = Table::new(5000, 64);
    let server = serve(&table, Script::honest()).await;
    let store = remote_store(&table, &server, 100);
    store.rows(&ids([1])).await.unwrap();
    server.put(ROWS, Object::bytes(&table.bytes[..]).with_etag("\"v2\""));
    let error = store.rows(&ids([2])).await.unwrap_err();
    assert_eq!(error.kind(), helix_transport::ErrorKind::Changed);
    assert_eq!(store.cached_rows(), 1);
    // What was cached is still the row it was.
    assert_eq!(store.rows(&ids([1])).await.unwrap().report.hit, 1);
}

/// A long prompt over a link of 40 ms each way and back: 109 rows on 16 connections are 7 waves where
/// each row is a request, 2 on an origin that turns out to take several, 1 once that is known.
/// The time is checked from below, which a slow machine cannot fail, and printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_batch_of_109_rows_takes_seven_waves_or_two_or_one() {
    let table = Table::new(16_000, 1792);
    for (manner, waves) in [(Several::Status(416), [7, 7]), (Several::honest(), [2, 1])] {
        let several = manner == Several::honest();
        let server = serve(&table, Script::always(Fault::Several(manner))).await;
        let rtt = Duration::from_millis(40);
        let link = Link::start(LinkOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            upstream: server.address(),
            rtt,
            rate_bytes_per_s: None,
        });
        let link = link.await.unwrap();
        let store = ColumnarEmbedBackend::new(
            http(&format!("http://{}{ROWS}", link.address())),
            table.layout(),
            table.digest(),
            table.local_verification(),
            config(400),
            StoreMeters::default(),
        )
        .unwrap();

        // Warms the connections: other rows, as many requests in flight.
        let warm = ids((0..16).map(|index| index * 140 + 1));
        store.rows(&warm).await.unwrap();
        for (batch, waves) in waves.into_iter().enumerate() {
            let started = Instant::now();
            let asked = ids((0..109).map(|index| index * 140 + 2 + batch as u64 * 70));
            let report = store.rows(&asked).await.unwrap().report;
            let elapsed = started.elapsed();
            assert_eq!((report.missed, report.round_trips), (109, waves));
            match (several, batch) {
                // The canary, and its two rows by themselves.
                (false, 0) => assert_eq!(report.requests, 110),
                (false, _) => assert_eq!(report.requests, 109),
                (true, _) => assert!(report.requests <= 32, "{}", report.requests),
            }
            assert_eq!(report.received_bytes, report.useful_bytes);
            assert!(server.most_open_connections() <= 16);
            assert!(
                elapsed >= rtt * u32::try_from(waves).unwrap(),
                "{elapsed:?}"
            );
            println!(
                "109 rows, {waves} waves: {:.2} round trips",
                elapsed.as_secs_f64() / rtt.as_secs_f64()
            );
        }
        let rows = store.meters().rows.snapshot();
        if several {
            assert_eq!(rows.body_bytes(), server.log().body_bytes());
        }
    }
}
