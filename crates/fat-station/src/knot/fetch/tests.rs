//! Payloads through a source in memory: grouping, padding, digests, the cache.

use super::*;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use helix_transport::{MemorySource, ObjectVersion};

struct Object {
    bytes: Vec<u8>,
    wanted: Vec<WantedPayload>,
}

/// Payloads of these lengths, aligned to 64 bytes as in a knot, after a front of 64 bytes.
fn object(lengths: &[usize]) -> Object {
    let mut object = Object {
        bytes: vec![0xFF; 64],
        wanted: Vec::new(),
    };
    for (at, &length) in lengths.iter().enumerate() {
        object
            .bytes
            .resize(object.bytes.len().next_multiple_of(64), 0);
        let start = object.bytes.len();
        object
            .bytes
            .extend((0..length).map(|byte| ((byte * 7 + at) % 251).to_le_bytes()[0]));
        object.wanted.push(WantedPayload {
            name: format!("block {at}"),
            range: start as u64..object.bytes.len() as u64,
            blake3: *blake3::hash(&object.bytes[start..]).as_bytes(),
        });
    }
    object
}

async fn fetch(
    bytes: &[u8],
    wanted: &[WantedPayload],
    directory: &std::path::Path,
) -> (Result<Vec<Bytes>, Error>, Traffic) {
    let traffic = Traffic::default();
    let source = Arc::new(MemorySource::new("knot", bytes.to_vec()));
    let fetcher = PayloadFetcher::new(source, BlockCache::new(Some(directory)));
    (fetcher.fetch(wanted, Kind::Blocks, &traffic).await, traffic)
}

#[tokio::test]
async fn payloads_come_in_the_order_asked_and_a_second_start_moves_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut object = object(&[100, 0, 1, 5_000, 64]);
    object.wanted.reverse();
    let check = |payloads: Vec<Bytes>| {
        for (payload, wanted) in payloads.iter().zip(&object.wanted) {
            let at = |offset: u64| usize::try_from(offset).unwrap();
            let range = at(wanted.range.start)..at(wanted.range.end);
            assert_eq!(payload, &object.bytes[range], "{}", wanted.name);
        }
    };
    let (payloads, traffic) = fetch(&object.bytes, &object.wanted, directory.path()).await;
    check(payloads.unwrap());
    let snapshot = traffic.blocks.snapshot();
    assert_eq!(snapshot.useful_bytes, 5_165);
    assert_eq!(snapshot.requests, 1, "neighbours share a request");
    assert_eq!(
        snapshot.received_bytes,
        object.bytes.len() as u64 - 64,
        "padding is counted as received"
    );

    let (payloads, traffic) = fetch(&object.bytes, &object.wanted, directory.path()).await;
    check(payloads.unwrap());
    assert_eq!(traffic.blocks.snapshot().requests, 0);
    assert_eq!(traffic.blocks.snapshot().received_bytes, 0);
}

#[tokio::test]
async fn concurrent_starts_share_a_cache() {
    let directory = tempfile::tempdir().unwrap();
    let object = object(&[4_000, 3_000]);
    let starts = (0..8).map(|_| fetch(&object.bytes, &object.wanted, directory.path()));
    for (payloads, _) in futures::future::join_all(starts).await {
        assert_eq!(payloads.unwrap()[1].len(), 3_000);
    }
    let files = std::fs::read_dir(directory.path().join("blocks"))
        .unwrap()
        .count();
    assert_eq!(files, 2, "nothing temporary is left");
}

#[tokio::test]
async fn wrong_bytes_are_named_counted_and_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let object = object(&[100, 200]);
    let mut shifted = object.bytes.clone();
    shifted[64..].rotate_left(4);
    let (payloads, traffic) = fetch(&shifted, &object.wanted, directory.path()).await;
    let error = payloads.unwrap_err();
    assert!(
        matches!(&error, Error::Digest { block, .. } if block == "block 0"),
        "{error}"
    );
    assert_eq!(error.class(), crate::error::FailureClass::Integrity);
    assert_eq!(traffic.blocks.snapshot().integrity_failures, 2);
    assert_eq!(
        std::fs::read_dir(directory.path().join("blocks"))
            .unwrap()
            .count(),
        0
    );
}

/// A source whose streams end after this many bytes of the object, without an error.
#[derive(Debug)]
struct ShortSource(MemorySource, u64);

impl RangeSource for ShortSource {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, helix_transport::Error>> {
        self.0.read(range, options)
    }

    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, helix_transport::Error>> {
        self.0.read_prefix(max_bytes, options)
    }

    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, helix_transport::Error>> {
        let end = range.end.min(self.1).max(range.start);
        self.0
            .stream(ByteRange::new(range.start, end).unwrap(), options)
    }

    fn version(&self) -> Option<ObjectVersion> {
        self.0.version()
    }

    fn parallelism(&self) -> usize {
        self.0.parallelism()
    }

    fn request_cost_bytes(&self) -> u64 {
        self.0.request_cost_bytes()
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_is_an_error_not_an_empty_payload() {
    let object = object(&[100, 200]);
    // Before the first payload, at its end, within the second.
    for end in [64, 164, 300] {
        let source = ShortSource(MemorySource::new("knot", object.bytes.clone()), end);
        let fetcher = PayloadFetcher::new(Arc::new(source), BlockCache::new(None));
        let traffic = Traffic::default();
        let fetched = fetcher.fetch(&object.wanted, Kind::Blocks, &traffic).await;
        let error = fetched.unwrap_err();
        assert_eq!(error.class(), crate::error::FailureClass::Unreachable);
        assert!(error.chain().contains("broke off"), "{}", error.chain());
    }
}

#[tokio::test]
async fn an_empty_payload_has_a_digest_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut object = object(&[0]);
    object.wanted[0].blake3 = [7; 32];
    let (payloads, _) = fetch(&object.bytes, &object.wanted, directory.path()).await;
    let error = payloads.unwrap_err();
    assert_eq!(error.class(), crate::error::FailureClass::Integrity);
}

#[tokio::test]
async fn without_a_cache_everything_is_had_and_fetched_again() {
    let object = object(&[100, 2_000_000]);
    let not_a_directory = tempfile::NamedTempFile::new().unwrap();
    for _ in 0..2 {
        let (payloads, traffic) =
            fetch(&object.bytes, &object.wanted, not_a_directory.path()).await;
        assert!(payloads.unwrap()[1] == object.bytes[192..]);
        assert_eq!(traffic.blocks.snapshot().useful_bytes, 2_000_100);
    }
}
