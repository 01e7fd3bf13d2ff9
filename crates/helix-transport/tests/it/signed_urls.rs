//! Locations that expire and places that go down in the middle of a batch: the object's own URL is asked
//! again, once for all.

use helix_transport::error::SignedBy;
use helix_transport::{Error, ErrorKind, HttpBackend, RangeSource};
use range_testkit::{Fault, FaultServer, Script};

use crate::setup::{PATH, batch, chain, object, quick, range};

fn refused(code: u16) -> Fault {
    Fault::Status {
        code,
        retry_after: None,
    }
}

async fn store() -> FaultServer {
    FaultServer::start("/store", object(), Script::honest())
        .await
        .unwrap()
}

/// A front that leads to these places, one after the other.
async fn front(locations: Vec<String>) -> FaultServer {
    let faults: Vec<_> = locations.into_iter().map(Fault::Redirect).collect();
    FaultServer::start(PATH, object(), Script::list(faults))
        .await
        .unwrap()
}

/// Reads 40 ranges at once.
async fn read_40(backend: &HttpBackend) -> Vec<Result<(), Error>> {
    let options = batch();
    let reads = (0..40).map(|n| backend.read(range(n * 90, n * 90 + 90), &options));
    let outcomes = futures::future::join_all(reads).await;
    let check = |(n, outcome): (usize, Result<bytes::Bytes, Error>)| {
        let start = n as u64 * 90;
        outcome.map(|bytes| assert_eq!(&bytes[..], object().slice(start, start + 90)))
    };
    outcomes.into_iter().enumerate().map(check).collect()
}

#[tokio::test]
async fn a_location_that_expires_mid_batch_is_renewed_once_for_the_whole_batch() {
    let store = store().await;
    let front = front(
        (1..=2)
            .map(|n| format!("{}?sig={n}", store.url("/store")))
            .collect(),
    )
    .await;
    let backend = HttpBackend::new(&front.url(PATH), quick()).unwrap();
    backend.read(range(0, 10), &batch()).await.unwrap();
    assert_eq!((front.log().len(), store.log().len()), (1, 1));

    store.set_script(Script::where_target("sig=1", refused(403)));
    for outcome in read_40(&backend).await {
        outcome.unwrap();
    }
    assert_eq!(front.log().len(), 2, "one renewal for the batch");
    let log = store.log().entries();
    let with = |sig| log.iter().filter(|entry| entry.path.ends_with(sig)).count();
    assert_eq!((with("?sig=1"), with("?sig=2")), (1 + 40, 40));
}

#[tokio::test]
async fn a_location_that_is_refused_again_is_a_clear_error_after_one_renewal() {
    let store = store().await;
    let location = format!("{}?X-Amz-Signature=s3cret", store.url("/store"));
    let front = front(vec![location; 100]).await;
    let backend = HttpBackend::new(&front.url(PATH), quick()).unwrap();
    backend.read(range(0, 10), &batch()).await.unwrap();
    store.set_script(Script::always(refused(403)));
    let asked_before = front.log().len();
    for outcome in read_40(&backend).await {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Auth, 1));
        assert!(
            matches!(
                error,
                Error::Signature {
                    status: 403,
                    signed_by: SignedBy::Origin,
                    ..
                }
            ),
            "{error:?}"
        );
        let text = format!("{} {error:?} {backend:?}", chain(&error));
        assert!(text.contains("signature seems to have expired"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert_eq!(
        front.log().len() - asked_before,
        1,
        "one renewal for the batch"
    );
}

#[tokio::test]
async fn an_expired_url_of_the_callers_says_what_to_do() {
    let server = FaultServer::start(PATH, object(), Script::always(refused(403)))
        .await
        .unwrap();
    let url = format!(
        "{}?X-Amz-Expires=60&X-Amz-Signature=s3cret",
        server.url(PATH)
    );
    let backend = HttpBackend::new(&url, quick()).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: range 0..10: status 403 for a signed URL, whose signature seems to have expired: give a \
             freshly signed URL, or one that needs no signature",
            server.url(PATH)
        )
    );
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(!format!("{error:?} {backend:?}").contains("s3cret"));
    assert_eq!(server.log().len(), 1);

    // Without a signature it is a plain refusal.
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert!(
        matches!(error, Error::Status { status: 403, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_403_for_what_was_served_before_is_asked_once_more_and_not_twice() {
    let server = FaultServer::start(PATH, object(), Script::list([Fault::None, refused(403)]))
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    let options = batch();
    for n in 0..3 {
        backend.read(range(n, n + 10), &options).await.unwrap();
    }
    assert_eq!(
        (server.log().len(), options.meter.snapshot().retries),
        (4, 1)
    );

    server.set_script(Script::always(refused(403)));
    let before = server.log().len();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert_eq!(
        (error.kind(), server.log().len() - before),
        (ErrorKind::Auth, 2)
    );
}

#[tokio::test]
async fn a_place_that_fails_in_any_way_is_left_for_the_objects_own_url() {
    for (name, fault) in [
        ("hang up", Fault::HangUp),
        (
            "reset",
            Fault::Reset {
                after_body_bytes: 0,
            },
        ),
        ("silence", Fault::Silence),
        ("busy", refused(503)),
        ("gone", refused(404)),
        (
            "cut body",
            Fault::Truncate {
                after_body_bytes: 3,
            },
        ),
        (
            "stalled body",
            Fault::Stall {
                after_body_bytes: 3,
            },
        ),
    ] {
        let (first, second) = (store().await, store().await);
        let front = front(vec![first.url("/store"), second.url("/store")]).await;
        let backend = HttpBackend::new(&front.url(PATH), quick()).unwrap();
        backend.read(range(0, 10), &batch()).await.unwrap();
        first.set_script(Script::always(fault));
        let bytes = backend.read(range(20, 40), &batch()).await.unwrap();
        assert_eq!(&bytes[..], object().slice(20, 40), "{name}");
        assert_eq!((front.log().len(), second.log().len()), (2, 1), "{name}");
    }
}

#[tokio::test]
async fn a_place_that_nobody_listens_at_any_more_is_left() {
    let (first, second) = (store().await, store().await);
    let front = front(vec![first.url("/store"), second.url("/store")]).await;
    let backend = HttpBackend::new(&front.url(PATH), quick()).unwrap();
    backend.read(range(0, 10), &batch()).await.unwrap();
    drop(first);
    for n in 0..3 {
        let bytes = backend.read(range(n, n + 20), &batch()).await.unwrap();
        assert_eq!(&bytes[..], object().slice(n, n + 20));
    }
    assert_eq!((front.log().len(), second.log().len()), (2, 3));
}
