//! What the tests share: a backend on a fault server, options with a fresh meter.

use std::sync::Arc;
use std::time::Duration;

use helix_transport::retry::RetryPolicy;
use helix_transport::{ByteRange, HttpBackend, HttpConfig, Meter, Patience, ReadOptions};
use range_testkit::{FaultServer, Object, Script};

pub(crate) const PATH: &str = "/rows.bin";
pub(crate) const LEN_BYTES: u64 = 10_000;

pub(crate) fn object() -> Object {
    Object::pattern(1, LEN_BYTES)
}

pub(crate) fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

pub(crate) fn options(patience: Patience) -> ReadOptions {
    ReadOptions::new(Arc::new(Meter::default()), patience)
}

pub(crate) fn batch() -> ReadOptions {
    options(Patience::Batch)
}

/// The defaults, with waits that a test can afford.
pub(crate) fn quick() -> HttpConfig {
    HttpConfig {
        first_byte_timeout: Duration::from_millis(300),
        stall_timeout: Duration::from_millis(300),
        retry: RetryPolicy {
            base_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(2),
            ..RetryPolicy::default()
        },
        ..HttpConfig::default()
    }
}

/// An error with all its causes, as a user is shown it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

pub(crate) async fn serve(script: Script) -> (FaultServer, HttpBackend) {
    let server = FaultServer::start(PATH, object(), script).await.unwrap();
    let backend = HttpBackend::new(&server.url(PATH), quick()).unwrap();
    (server, backend)
}
