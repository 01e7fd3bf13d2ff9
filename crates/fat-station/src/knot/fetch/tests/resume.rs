//! A cut link, a killed station, bytes of another object: what is asked again, and what is not.

use super::super::super::incoming::WRITE_BYTES;
use super::*;
use helix_transport::ByteRange;
use std::path::Path;

/// Small neighbours, two blocks above the group's limit, and small ones again.
fn layers() -> Object {
    object(&[100, 700_000, 64, 9_000_000, 8_500_000, 100, 300_000])
}

/// One start; what it asked, whether it succeeded.
async fn start(
    source: Scripted,
    object: &Object,
    directory: &Path,
) -> (Vec<ByteRange>, Result<Vec<Bytes>, Error>, Traffic) {
    let asked = source.asked();
    let traffic = Traffic::default();
    let fetcher = PayloadFetcher::new(
        Arc::new(source),
        BlockCache::new(Some(directory)),
        Streams::default(),
    );
    let fetched = fetcher.fetch(&object.wanted, Kind::Blocks, &traffic).await;
    let asked = asked.lock().unwrap().clone();
    settle(directory);
    (asked, fetched, traffic)
}

/// Waits until no thread writes to the cache any more: a write that was begun when the load ended
/// goes on.
fn settle(directory: &Path) {
    for name in files(directory) {
        if !name.starts_with("partial-") {
            continue;
        }
        let path = directory.join("blocks").join(name);
        if let Ok(file) = std::fs::File::open(path) {
            file.lock().unwrap();
        }
    }
}

#[tokio::test]
async fn a_cut_link_loses_nothing_wherever_it_is_cut() {
    let object = layers();
    let ends: Vec<u64> = object
        .wanted
        .iter()
        .map(|wanted| wanted.range.end)
        .collect();
    let first = object.wanted[0].range.start;
    let cuts = [
        first,                 // before anything came
        first + 50,            // within a small block
        ends[0],               // in the padding between two
        ends[0] + 28,          // at the start of the next
        ends[1] - 1,           // one byte before an end
        ends[1] + 1,           // one byte behind it
        ends[2] + 100,         // soon in a large block
        ends[3] - 4_000_000,   // in its middle
        ends[4] - 1,           // at its very end
        ends[6] - 300_000 + 1, // one byte into the last
        ends[6] - 1,           // before the last byte of all
    ];
    let in_file_order = |asked: &[ByteRange]| asked.is_sorted_by_key(|range| range.start);
    for cut in cuts {
        let directory = tempfile::tempdir().unwrap();
        let source = Scripted::new(&object.bytes).cut_at([cut]);
        let (asked, failed, before) = start(source, &object, directory.path()).await;
        assert!(failed.unwrap_err().chain().contains("broke off"), "{cut}");
        assert!(in_file_order(&asked), "{asked:?}");
        let kept: u64 = files(directory.path())
            .iter()
            .map(|name| directory.path().join("blocks").join(name))
            .map(|path| std::fs::metadata(path).unwrap().len())
            .sum();

        let source = Scripted::new(&object.bytes);
        let (again, fetched, after) = start(source, &object, directory.path()).await;
        object.check(&fetched.unwrap());
        assert!(in_file_order(&again), "{again:?}");
        let payload_bytes: u64 = object.wanted.iter().map(WantedPayload::bytes).sum();
        let received = |traffic: &Traffic| traffic.blocks.snapshot().received_bytes;
        let padding = object.bytes.len() as u64 - first - payload_bytes;
        let in_all = received(&before) + received(&after);
        assert!(
            (payload_bytes..=payload_bytes + 2 * padding).contains(&in_all),
            "cut at {cut}: {in_all} bytes for {payload_bytes}"
        );
        assert!(
            (payload_bytes - kept..=payload_bytes - kept + padding).contains(&received(&after)),
            "cut at {cut}"
        );
        // Where the stream broke off, or at the start of the block that was to come there.
        let behind_padding = cut.next_multiple_of(64);
        assert!(
            again
                .iter()
                .any(|range| [cut, behind_padding].contains(&range.start)),
            "cut at {cut}: {again:?}"
        );
        assert_eq!(files(directory.path()).len(), object.wanted.len());
    }
}

#[tokio::test]
async fn a_block_in_flight_goes_on_at_its_next_byte() {
    let object = object(&[2_000_000]);
    let directory = tempfile::tempdir().unwrap();
    let begin = object.wanted[0].range.start;
    let mut expected = begin;
    for end in [1, 999, 300_000, 1_999_999] {
        let source = Scripted::new(&object.bytes).cut_at([begin + end]);
        let (asked, failed, traffic) = start(source, &object, directory.path()).await;
        assert!(failed.is_err());
        assert_eq!(
            asked,
            [ByteRange::new(expected, begin + 2_000_000).unwrap()]
        );
        assert_eq!(
            traffic.blocks.snapshot().received_bytes,
            begin + end - expected
        );
        expected = begin + end;
    }
    let (asked, fetched, traffic) =
        start(Scripted::new(&object.bytes), &object, directory.path()).await;
    object.check(&fetched.unwrap());
    assert_eq!(
        asked,
        [ByteRange::new(begin + 1_999_999, begin + 2_000_000).unwrap()]
    );
    assert_eq!(traffic.blocks.snapshot().useful_bytes, 1);
}

fn partial_of(wanted: &WantedPayload, directory: &Path) -> std::path::PathBuf {
    let digest = blake3::Hash::from_bytes(wanted.blake3);
    directory.join("blocks").join(format!("partial-{digest}"))
}

#[tokio::test]
async fn a_killed_start_that_had_all_but_the_name_asks_nothing() {
    let object = object(&[2_000]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("blocks")).unwrap();
    let path = partial_of(&object.wanted[0], directory.path());
    std::fs::write(&path, object.payload(&object.wanted[0])).unwrap();
    let (asked, fetched, traffic) =
        start(Scripted::new(&object.bytes), &object, directory.path()).await;
    object.check(&fetched.unwrap());
    assert_eq!(asked, []);
    assert_eq!(traffic.blocks.snapshot().waves, 0);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_partial_that_is_not_the_blocks_beginning_is_read_from_its_start() {
    let object = object(&[2_000, 3_000]);
    let (first, second) = (&object.wanted[0], &object.wanted[1]);
    // Damaged early, damaged at its end, of another object, longer than the block, whole but wrong.
    let mut early = object.payload(first)[..900].to_vec();
    early[0] ^= 1;
    let mut late = object.payload(first)[..900].to_vec();
    late[899] ^= 1;
    for (wrong, taken_up) in [
        (early, true),
        (late, true),
        (vec![7; 1_000], true),
        (vec![7; 2_001], false),
        (vec![7; 2_000], true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("blocks")).unwrap();
        std::fs::write(partial_of(first, directory.path()), &wrong).unwrap();
        let (asked, fetched, traffic) =
            start(Scripted::new(&object.bytes), &object, directory.path()).await;
        object.check(&fetched.unwrap());
        assert_eq!(
            asked.last(),
            Some(&ByteRange::new(first.range.start, second.range.end).unwrap())
        );
        let rest_was_asked = asked.len() > 1;
        assert_eq!(rest_was_asked, taken_up && wrong.len() < 2_000, "{asked:?}");
        let snapshot = traffic.blocks.snapshot();
        assert_eq!(snapshot.integrity_failures, 0, "the wire was right");
        assert_eq!(files(directory.path()).len(), 2);
    }
}

#[tokio::test]
async fn what_is_left_of_another_version_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let old = object(&[100, 2_000_000]);
    let begin = old.wanted[1].range.start;
    let source = Scripted::new(&old.bytes).cut_at([begin + 1_500_000]);
    let (_, failed, _) = start(source, &old, directory.path()).await;
    assert!(failed.is_err());
    // Replaced by one of the same length whose first block is the same and whose second is not.
    let mut new = object(&[100, 2_000_000]);
    let at = usize::try_from(begin).unwrap();
    new.bytes[at + 1_999_999] ^= 1;
    new.wanted[1].blake3 = *blake3::hash(&new.bytes[at..]).as_bytes();
    let (asked, fetched, traffic) = start(Scripted::new(&new.bytes), &new, directory.path()).await;
    new.check(&fetched.unwrap());
    assert_eq!(asked, [ByteRange::new(begin, begin + 2_000_000).unwrap()]);
    assert_eq!(traffic.blocks.snapshot().received_bytes, 2_000_000);
}

#[tokio::test]
async fn wrong_bytes_are_read_again_once_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let object = object(&[2_000, 2_000_000]);
    let mut damaged = object.bytes.clone();
    damaged[5_000] ^= 1;
    let (asked, failed, traffic) = start(Scripted::new(&damaged), &object, directory.path()).await;
    let error = failed.unwrap_err();
    assert!(
        matches!(&error, Error::Digest { block, .. } if block == "block 1"),
        "{error}"
    );
    // The first block was right, and is not asked again.
    let starts: Vec<u64> = asked.iter().map(|range| range.start).collect();
    let wanted = &object.wanted;
    assert_eq!(starts, [wanted[0].range.start, wanted[1].range.start]);
    assert_eq!(traffic.blocks.snapshot().integrity_failures, 2);
    assert_eq!(files(directory.path()).len(), 1);
}

#[tokio::test]
async fn a_dropped_load_keeps_what_came() {
    let object = object(&[3 * WRITE_BYTES]);
    let directory = tempfile::tempdir().unwrap();
    let wanted = &object.wanted[0];
    let reached = wanted.range.start + 2 * WRITE_BYTES as u64 + 17;
    let source = Scripted::new(&object.bytes).cut_at([reached]);
    let (_, failed, _) = start(source, &object, directory.path()).await;
    assert!(failed.is_err());
    let left = std::fs::read(partial_of(wanted, directory.path())).unwrap();
    assert!(left == object.payload(wanted)[..2 * WRITE_BYTES + 17]);
}

#[tokio::test]
async fn equal_blocks_are_fetched_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut object = object(&[1_000, 5_000, 1_000]);
    let (first, last) = (
        object.wanted[0].range.clone(),
        object.wanted[2].range.clone(),
    );
    let at = |offset: u64| usize::try_from(offset).unwrap();
    object
        .bytes
        .copy_within(at(first.start)..at(first.end), at(last.start));
    object.wanted[2].blake3 = object.wanted[0].blake3;
    let (asked, fetched, _) = start(Scripted::new(&object.bytes), &object, directory.path()).await;
    object.check(&fetched.unwrap());
    let end = object.wanted[1].range.end;
    assert_eq!(asked, [ByteRange::new(first.start, end).unwrap()]);
    assert_eq!(files(directory.path()).len(), 2);
}
