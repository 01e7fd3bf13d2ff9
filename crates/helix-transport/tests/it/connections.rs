//! HTTP/1.1 connections: how many, which are kept, what happens to one that has closed, and how
//! little of an unwanted body crosses the wire.

use std::time::Duration;

use helix_transport::{Error, HttpBackend, HttpClient, HttpConfig, RangeSource};
use range_testkit::{Fault, FaultServer, Object, Script};

use crate::setup::{PATH, batch, object, quick, range, serve};

#[tokio::test]
async fn a_batch_uses_sixteen_connections_and_keeps_them() {
    let (server, backend) = serve(Script::honest()).await;
    assert_eq!(backend.parallelism(), 16);
    assert_eq!(backend.request_cost_bytes(), 620);
    let options = batch();
    for _ in 0..2 {
        let reads = (0..109).map(|n| backend.read(range(n * 90, n * 90 + 90), &options));
        for (n, outcome) in futures::future::join_all(reads)
            .await
            .into_iter()
            .enumerate()
        {
            let start = n as u64 * 90;
            assert_eq!(&outcome.unwrap()[..], object().slice(start, start + 90));
        }
    }
    assert!(server.most_open_connections() <= 16);
    assert!(
        server.connections() <= 16,
        "{} were made",
        server.connections()
    );
    assert_eq!(server.log().len(), 218);
    assert_eq!(options.meter.snapshot().retries, 0);
}

#[tokio::test]
async fn objects_of_one_client_share_connections() {
    let server = FaultServer::start(PATH, object(), Script::honest())
        .await
        .unwrap();
    server.put("/other", Object::pattern(2, 500));
    let client = HttpClient::new(quick()).unwrap();
    for path in [PATH, "/other", PATH] {
        let backend = HttpBackend::with_client(&server.url(path), &client).unwrap();
        backend.read(range(0, 10), &batch()).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_socket_closed_while_idle_costs_one_repetition_and_no_error() {
    // Closed behind the first reply, noticed or not before the next request.
    let (server, backend) = serve(Script::list([Fault::CloseWhenIdle])).await;
    let options = batch();
    for n in 0..3 {
        backend.read(range(n, n + 10), &options).await.unwrap();
    }
    assert_eq!(server.connections(), 2);
    assert_eq!(server.log().len(), 3);

    // Closed just as the request arrives: sent once in vain.
    let (server, backend) = serve(Script::list([Fault::None, Fault::HangUp])).await;
    let options = batch();
    for n in 0..2 {
        backend.read(range(n, n + 10), &options).await.unwrap();
    }
    let meter = options.meter.snapshot();
    assert_eq!((meter.requests, meter.retries), (3, 1));
    assert_eq!((server.log().len(), server.connections()), (3, 2));

    // A reset, too; and it takes nothing from the attempts, of which there is one here.
    let server = FaultServer::start(
        PATH,
        object(),
        Script::list([
            Fault::None,
            Fault::Reset {
                after_body_bytes: 0,
            },
        ]),
    )
    .await
    .unwrap();
    let mut config = quick();
    config.retry.attempts = 1;
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    for n in 0..2 {
        backend.read(range(n, n + 10), &batch()).await.unwrap();
    }
    // On a fresh connection the same failure is a failure.
    server.set_script(Script::always(Fault::HangUp));
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert!(
        matches!(error.last_attempt(), Error::Interrupted { .. }),
        "{error:?}"
    );
    assert_eq!(server.log().len(), 5);
}

#[tokio::test]
async fn a_connection_idle_for_too_long_is_not_used() {
    let server = FaultServer::start(PATH, object(), Script::honest())
        .await
        .unwrap();
    let config = HttpConfig {
        pool_idle: Duration::ZERO,
        ..quick()
    };
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    for n in 0..3 {
        backend.read(range(n, n + 10), &batch()).await.unwrap();
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn the_whole_object_instead_of_a_range_is_aborted_unread() {
    let huge = Object::pattern(3, 1 << 30);
    let server = FaultServer::start(PATH, huge, Script::always(Fault::WholeObject))
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let options = batch();
    let error = backend.read(range(500, 600), &options).await.unwrap_err();
    assert!(matches!(error, Error::RangeIgnored { offered_bytes: Some(n), .. } if n == 1 << 30));
    let log = server.log().finished(1).await;
    assert_eq!(log.len(), 1, "no silent second try");
    // What the sockets' buffers hold, of a gibibyte.
    assert!(
        log[0].body_bytes < 16 << 20,
        "{} bytes were sent",
        log[0].body_bytes
    );
    assert_eq!(options.meter.snapshot().received_bytes, 0);
}

#[tokio::test]
async fn a_refusal_with_a_short_text_keeps_its_connection() {
    let refusal = Fault::Status {
        code: 503,
        retry_after: None,
    };
    let (server, backend) = serve(Script::list([refusal])).await;
    let options = batch();
    backend.read(range(0, 10), &options).await.unwrap();
    assert_eq!(server.connections(), 1);
    assert_eq!(
        options.meter.snapshot().received_bytes,
        server.log().body_bytes()
    );
}

#[tokio::test]
async fn a_dropped_read_gives_its_slot_back() {
    let server = FaultServer::start(PATH, object(), Script::always(Fault::Silence))
        .await
        .unwrap();
    let config = HttpConfig {
        connections: 1,
        ..HttpConfig::default()
    };
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    let options = batch();
    {
        let read = backend.read(range(0, 10), &options);
        let arrived = async {
            while server.log().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        futures::future::select(read, std::pin::pin!(arrived)).await;
    }
    server.log().finished(1).await;
    server.set_script(Script::honest());
    backend.read(range(0, 10), &options).await.unwrap();
    assert_eq!(options.meter.snapshot().requests, 2);
}
