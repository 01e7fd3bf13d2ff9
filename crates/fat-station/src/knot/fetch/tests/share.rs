//! Several starts on one directory, the order of the streams, and how many are in flight.

use super::*;
use helix_transport::ByteRange;
use std::path::Path;
use tokio::sync::Semaphore;

fn begin(
    source: Scripted,
    wanted: &[WantedPayload],
    cache: BlockCache,
) -> tokio::task::JoinHandle<(Result<Vec<Bytes>, Error>, Traffic)> {
    let wanted = wanted.to_vec();
    tokio::spawn(async move {
        let traffic = Traffic::default();
        let fetcher = PayloadFetcher::new(Arc::new(source), cache, Streams::default());
        let fetched = fetcher.fetch(&wanted, Kind::Blocks, &traffic).await;
        (fetched, traffic)
    })
}

/// Lets other tasks run until `reached`; fails instead of hanging.
async fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !reached() {
        assert!(begun.elapsed().as_secs() < 30, "{what}");
        tokio::task::yield_now().await;
    }
}

fn twelve_layers() -> Object {
    object(&[9_000_000; 12].map(|bytes: usize| bytes))
}

#[tokio::test]
async fn streams_begin_in_layer_order_and_several_are_in_flight() {
    let object = twelve_layers();
    let gate = Arc::new(Semaphore::new(0));
    let source = Scripted::new(&object.bytes).behind(&gate);
    let asked = source.asked();
    let mut shuffled = object.wanted.clone();
    shuffled.reverse();
    let load = begin(source, &shuffled, BlockCache::new(None));
    let streams = STREAMS;
    until("as many streams as may be", || {
        asked.lock().unwrap().len() == streams
    })
    .await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        asked.lock().unwrap().len(),
        streams,
        "and no more before one is done"
    );
    gate.add_permits(12);
    let (fetched, traffic) = load.await.unwrap();
    let mut payloads = fetched.unwrap();
    payloads.reverse();
    object.check(&payloads);
    let asked = asked.lock().unwrap().clone();
    let in_order: Vec<ByteRange> = object
        .wanted
        .iter()
        .map(|wanted| ByteRange::new(wanted.range.start, wanted.range.end).unwrap())
        .collect();
    assert_eq!(asked, in_order);
    assert_eq!(traffic.blocks.snapshot().waves, 2);
}

/// Bytes that all starts received together.
fn received(traffics: &[Traffic]) -> u64 {
    let received = traffics
        .iter()
        .map(|traffic| traffic.blocks.snapshot().received_bytes);
    received.sum()
}

#[tokio::test]
async fn two_starts_share_the_work_and_ask_for_each_block_once() {
    let object = twelve_layers();
    let directory = tempfile::tempdir().unwrap();
    let gates = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let sources = gates
        .each_ref()
        .map(|gate| Scripted::new(&object.bytes).behind(gate));
    let asked = sources.each_ref().map(Scripted::asked);
    let count = |at: usize| asked[at].lock().unwrap().len();
    let [first, second] = sources;
    let cache = || BlockCache::new(Some(directory.path()));
    let first = begin(first, &object.wanted, cache());
    until("the first holds six", || count(0) == 6).await;
    let second = begin(second, &object.wanted, cache());
    until("the second holds the other six", || count(1) == 6).await;
    // The second ends its half and waits for the first one's.
    gates[1].add_permits(100);
    gates[0].add_permits(100);
    let mut traffics = Vec::new();
    for start in [first, second] {
        let (fetched, traffic) = start.await.unwrap();
        object.check(&fetched.unwrap());
        traffics.push(traffic);
    }
    assert_eq!(received(&traffics), 12 * 9_000_000);
    assert_eq!((count(0), count(1)), (6, 6));
    assert_eq!(files(directory.path()).len(), 12);
}

#[tokio::test]
async fn what_a_start_that_died_was_writing_is_taken_over_at_its_next_byte() {
    let object = object(&[4_000_000]);
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Semaphore::new(1));
    let begin_byte = object.wanted[0].range.start;
    let source = Scripted::new(&object.bytes).cut_at([begin_byte + 1_000_000]);
    let dying = begin(
        source,
        &object.wanted,
        BlockCache::new(Some(directory.path())),
    );
    assert!(dying.await.unwrap().0.is_err());
    // One that holds the block and never gets a byte, until it is dropped as a process would be.
    let held = Scripted::new(&object.bytes).behind(&gate);
    gate.forget_permits(1);
    let held_asked = held.asked();
    let holder = begin(
        held,
        &object.wanted,
        BlockCache::new(Some(directory.path())),
    );
    until("it holds the block", || {
        held_asked.lock().unwrap().len() == 1
    })
    .await;
    let next = Scripted::new(&object.bytes);
    let asked = next.asked();
    let next = begin(
        next,
        &object.wanted,
        BlockCache::new(Some(directory.path())),
    );
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(asked.lock().unwrap().len(), 0, "it waits");
    holder.abort();
    let (fetched, _) = next.await.unwrap();
    object.check(&fetched.unwrap());
    let rest = ByteRange::new(begin_byte + 1_000_000, begin_byte + 4_000_000).unwrap();
    assert_eq!(*asked.lock().unwrap(), [rest]);
    assert_eq!(*held_asked.lock().unwrap(), [rest]);
}

/// Virtual time passes while everybody waits.
#[tokio::test(start_paused = true)]
async fn a_station_that_does_nothing_any_more_is_not_waited_for_without_end() {
    let object = object(&[4_000]);
    let directory = tempfile::tempdir().unwrap();
    let held = BlockCache::new(Some(directory.path()));
    let wanted = &object.wanted[0];
    let claim = held.claim(&wanted.blake3, wanted.bytes(), &held.make_room(0));
    assert!(matches!(
        claim,
        super::super::super::block_cache::Claim::Ours(_)
    ));
    let begun = tokio::time::Instant::now();
    let source = Scripted::new(&object.bytes);
    let (fetched, _) = begin(
        source,
        &object.wanted,
        BlockCache::new(Some(directory.path())),
    )
    .await
    .unwrap();
    object.check(&fetched.unwrap());
    assert!(begun.elapsed().as_secs() >= 15, "{:?}", begun.elapsed());
    drop(claim);
    assert_eq!(files(directory.path()).len(), 1);
}

/// A file system of `bytes` at `directory`, or `None` where this user may not mount one.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(directory: &'a Path, options: &str) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let mounted = mount.arg(directory).output();
        mounted
            .is_ok_and(|out| out.status.success())
            .then_some(Self(directory))
    }

    fn read_only(&self) {
        let mut mount = std::process::Command::new("mount");
        let mounted = mount.args(["-o", "remount,ro"]).arg(self.0).status();
        assert!(mounted.unwrap().success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0)
            .status();
    }
}

#[tokio::test]
async fn a_full_disk_costs_the_cache_not_the_start() {
    let object = object(&[200_000, 900_000, 700_000]);
    let directory = tempfile::tempdir().unwrap();
    // Without the right to mount, a directory that cannot be had at all stands in for a full one.
    let mounted = Mounted::new(directory.path(), "size=1m");
    let place = match &mounted {
        Some(_) => directory.path(),
        None => Path::new("/proc/none"),
    };
    let source = Scripted::new(&object.bytes);
    let (fetched, traffic) = begin(source, &object.wanted, BlockCache::new(Some(place)))
        .await
        .unwrap();
    object.check(&fetched.unwrap());
    let snapshot = traffic.blocks.snapshot();
    assert_eq!(snapshot.useful_bytes, 1_800_000);
    assert!(
        snapshot.received_bytes <= object.bytes.len() as u64,
        "no byte came twice"
    );
    if mounted.is_some() {
        let left = files(directory.path());
        assert!(left.iter().all(|name| name.len() == 64), "{left:?}");
        assert!(left.len() < 3, "not all of them fit: {left:?}");
    }
}

#[tokio::test]
async fn a_read_only_cache_is_read_and_not_written() {
    let object = object(&[1_000, 5_000, 2_000]);
    let directory = tempfile::tempdir().unwrap();
    let mounted = Mounted::new(directory.path(), "size=4m");
    let start = |wanted: &[WantedPayload]| {
        let cache = BlockCache::new(Some(directory.path()));
        begin(Scripted::new(&object.bytes), wanted, cache)
    };
    let (fetched, _) = start(&object.wanted[..2]).await.unwrap();
    assert_eq!(fetched.unwrap().len(), 2);
    match &mounted {
        Some(mounted) => mounted.read_only(),
        None => {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::Permissions::from_mode(0o555);
            std::fs::set_permissions(directory.path().join("blocks"), mode).unwrap();
        }
    }
    for _ in 0..2 {
        let (fetched, traffic) = start(&object.wanted).await.unwrap();
        object.check(&fetched.unwrap());
        assert_eq!(traffic.blocks.snapshot().received_bytes, 2_000);
    }
    assert_eq!(files(directory.path()).len(), 2);
}
