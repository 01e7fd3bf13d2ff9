//! Payloads through a source in memory: grouping, padding, digests, the cache.

mod resume;
mod share;
mod source;

use super::*;
use crate::traffic::Kind;
use helix_transport::MemorySource;
use source::Scripted;

struct Object {
    bytes: Vec<u8>,
    wanted: Vec<WantedPayload>,
}

impl Object {
    #[track_caller]
    fn check(&self, payloads: &[Bytes]) {
        assert_eq!(payloads.len(), self.wanted.len());
        for (payload, wanted) in payloads.iter().zip(&self.wanted) {
            assert!(*payload == self.payload(wanted), "{}", wanted.name);
        }
    }

    fn payload(&self, wanted: &WantedPayload) -> &[u8] {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        &self.bytes[at(wanted.range.start)..at(wanted.range.end)]
    }
}

/// Names of the cache's files but for its bookkeeping.
fn files(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory.join("blocks")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| !name.starts_with("station-") && name != "eviction.lock")
        .collect()
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
    let fetcher = PayloadFetcher::new(source, BlockCache::new(Some(directory)), Streams::default());
    (fetcher.fetch(wanted, Kind::Blocks, &traffic).await, traffic)
}

#[tokio::test]
async fn payloads_come_in_the_order_asked_and_a_second_start_moves_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut object = object(&[100, 0, 1, 5_000, 64]);
    object.wanted.reverse();
    let (payloads, traffic) = fetch(&object.bytes, &object.wanted, directory.path()).await;
    object.check(&payloads.unwrap());
    let snapshot = traffic.blocks.snapshot();
    assert_eq!(snapshot.useful_bytes, 5_165);
    assert_eq!(snapshot.requests, 1, "neighbours share a request");
    assert_eq!(
        snapshot.received_bytes,
        object.bytes.len() as u64 - 64,
        "padding is counted as received"
    );

    let (payloads, traffic) = fetch(&object.bytes, &object.wanted, directory.path()).await;
    object.check(&payloads.unwrap());
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
    assert_eq!(
        files(directory.path()).len(),
        2,
        "nothing temporary is left"
    );
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
    assert_eq!(files(directory.path()), [""; 0]);
}

#[tokio::test]
async fn a_stream_that_ends_early_is_an_error_not_an_empty_payload() {
    let object = object(&[100, 200]);
    // Before the first payload, at its end, within the second.
    for end in [64, 164, 300] {
        let source = Scripted::new(&object.bytes).ending_at(end);
        let fetcher =
            PayloadFetcher::new(Arc::new(source), BlockCache::new(None), Streams::default());
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

/// Remembers what it was told.
#[derive(Debug, Default)]
struct Told {
    arrived: std::sync::Mutex<Vec<usize>>,
    pieces: std::sync::Mutex<Vec<(usize, u64, usize)>>,
}

impl crate::knot::Arrivals for Told {
    fn piece(&self, at: usize, offset: u64, piece: &Bytes) {
        self.pieces.lock().unwrap().push((at, offset, piece.len()));
    }

    fn arrived(&self, at: usize, _payload: &Bytes) {
        self.arrived.lock().unwrap().push(at);
    }
}

/// Norms of a model may all be ones.
#[tokio::test]
async fn every_payload_is_told_once_and_equal_ones_travel_once() {
    let mut object = object(&[5_000, 100, 0, 5_000]);
    let twin = object.payload(&object.wanted[0]).to_vec();
    let last = usize::try_from(object.wanted[3].range.start).unwrap();
    object.bytes[last..].copy_from_slice(&twin);
    object.wanted[3].blake3 = object.wanted[0].blake3;
    let directory = tempfile::tempdir().unwrap();
    for moved in [5_100, 0] {
        let source = Scripted::new(&object.bytes);
        let cache = BlockCache::new(Some(directory.path()));
        let fetcher = PayloadFetcher::new(Arc::new(source), cache, Streams::default());
        let (told, traffic) = (Arc::new(Told::default()), Traffic::default());
        let told_of = Arc::clone(&told) as Arc<dyn crate::knot::Arrivals>;
        let purpose = Purpose::from(Kind::Blocks).telling(told_of);
        let fetched = fetcher.fetch(&object.wanted, purpose, &traffic).await;
        object.check(&fetched.unwrap());
        let mut arrived = told.arrived.lock().unwrap().clone();
        arrived.sort_unstable();
        assert_eq!(arrived, [0, 1, 2, 3]);
        assert_eq!(traffic.blocks.snapshot().useful_bytes, moved);
        let pieces = told.pieces.lock().unwrap();
        let mut next = [0; 4];
        for &(at, offset, len) in &*pieces {
            assert_eq!(offset, next[at], "in order");
            next[at] += len as u64;
        }
        assert_eq!(next.iter().sum::<u64>(), moved);
        assert_eq!(next[3], 0, "the twin has no pieces");
    }
}
