//! Redirects: followed a bounded number of times, remembered, never down from TLS.

use helix_transport::{Error, ErrorKind, HttpBackend, RangeSource};
use range_testkit::{Fault, FaultServer, Script};

use crate::setup::{PATH, batch, object, quick, range};

#[tokio::test]
async fn a_redirect_is_followed_once_and_remembered_until_it_is_refused() {
    let store = FaultServer::start("/store", object(), Script::honest())
        .await
        .unwrap();
    let signed = |signature| Fault::Redirect(format!("{}?sig={signature}", store.url("/store")));
    let front = FaultServer::start(PATH, object(), Script::list([signed(1), signed(2)]))
        .await
        .unwrap();
    let backend = HttpBackend::new(&front.url(PATH), quick()).unwrap();
    let options = batch();
    for n in 0..3 {
        let bytes = backend.read(range(n, n + 10), &options).await.unwrap();
        assert_eq!(&bytes[..], object().slice(n, n + 10));
    }
    assert_eq!((front.log().len(), store.log().len()), (1, 3));

    // The signature expires: the front is asked again, and its new place is used.
    store.set_script(Script::list(
        [
            vec![Fault::None; 3],
            vec![Fault::Status {
                code: 403,
                retry_after: None,
            }],
        ]
        .concat(),
    ));
    backend.read(range(0, 10), &options).await.unwrap();
    assert_eq!((front.log().len(), store.log().len()), (2, 5));
    assert_eq!(store.log().entries()[4].path, "/store?sig=2");
    let meter = options.meter.snapshot();
    assert_eq!((meter.requests, meter.retries), (7, 1));
    assert_eq!(
        meter.received_bytes,
        front.log().body_bytes() + store.log().body_bytes()
    );
}

#[tokio::test]
async fn a_relative_location_is_resolved() {
    let server = FaultServer::start(
        PATH,
        object(),
        Script::list([Fault::Redirect("other".into())]),
    )
    .await
    .unwrap();
    server.put("/other", object());
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    backend.read(range(0, 10), &batch()).await.unwrap();
    assert_eq!(server.log().entries()[1].path, "/other");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_loop_ends_where_it_closes() {
    let server = FaultServer::start(PATH, object(), Script::always(Fault::Redirect(PATH.into())))
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    let looped = format!("loop back to {}", server.url(PATH));
    assert!(
        matches!(&error, Error::Redirect { reason, .. } if *reason == looped),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(server.log().len(), 1);

    // A chain that never comes back is cut after five.
    let hop = |n: u64| Fault::Redirect(format!("/hop?{n}"));
    let server = FaultServer::start(
        PATH,
        object(),
        Script::list((0..9).map(hop).collect::<Vec<_>>()),
    )
    .await
    .unwrap();
    server.put("/hop", object());
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert!(matches!(&error, Error::Redirect { reason, .. } if reason == "more than 5 in a row"));
    assert_eq!(server.log().len(), 6);
}

#[tokio::test]
async fn other_schemes_are_not_followed() {
    for location in ["file:///etc/passwd", "ftp://host/x", "data:,x"] {
        let fault = Fault::Redirect(location.into());
        let server = FaultServer::start(PATH, object(), Script::always(fault))
            .await
            .unwrap();
        let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
        let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
        assert!(matches!(error, Error::Redirect { .. }), "{error}");
        assert_eq!(server.log().len(), 1);
    }
}
