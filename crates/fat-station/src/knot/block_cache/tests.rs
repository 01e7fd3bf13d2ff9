//! What is found, what is a miss, and what is left behind.

use super::*;
use std::fs::FileTimes;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::time::Duration;

fn digest() -> [u8; 32] {
    *blake3::hash(b"block").as_bytes()
}

fn claim(cache: &BlockCache, digest: &[u8; 32], len_bytes: u64) -> Claim {
    cache.claim(digest, len_bytes, &cache.make_room(len_bytes))
}

fn begun(cache: &BlockCache) -> Option<Partial> {
    match claim(cache, &digest(), 5) {
        Claim::Ours(partial) => Some(partial),
        _ => None,
    }
}

fn written(cache: &BlockCache) -> Partial {
    let mut partial = begun(cache).unwrap();
    partial.reset().unwrap();
    partial.append(b"block").unwrap();
    partial
}

/// Files of the cache but for its bookkeeping.
fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory.join("blocks"))
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            !name.to_string_lossy().starts_with("station-") && name != "eviction.lock"
        })
        .count()
}

#[test]
fn what_was_kept_is_found_and_what_was_dropped_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let cache = BlockCache::new(Some(directory.path()));
    assert!(cache.lookup(&digest(), 5).is_none());
    drop(begun(&cache).unwrap());
    assert_eq!(files(directory.path()), 0, "an empty partial is of no use");
    assert_eq!(cache.keep(written(&cache), &digest()).unwrap(), "block");
    assert!(
        matches!(claim(&cache, &digest(), 5), Claim::Found(bytes) if bytes == "block"),
        "who comes late finds it"
    );
    assert_eq!(cache.lookup(&digest(), 5).unwrap(), "block");
    assert_eq!(files(directory.path()), 1);
    let mode = std::fs::metadata(cache.path(&digest()).unwrap())
        .unwrap()
        .mode();
    assert_eq!(mode & 0o600, 0o600);
    assert_eq!(mode & 0o133, 0, "no more than 0644: {mode:o}");
}

#[test]
fn a_damaged_file_is_removed_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let cache = BlockCache::new(Some(directory.path()));
    let path = cache.path(&digest()).unwrap();
    for damaged in [&b"bl0ck"[..], b"bloc", b""] {
        std::fs::write(&path, damaged).unwrap();
        assert!(cache.lookup(&digest(), 5).is_none(), "{damaged:?}");
        assert!(!path.exists());
    }
}

#[test]
fn whatever_stands_in_place_of_a_block_is_a_miss() {
    let check = |make: fn(&Path), replaced: bool| {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::new(Some(directory.path()));
        let path = cache.path(&digest()).unwrap();
        make(&path);
        assert!(cache.lookup(&digest(), 5).is_none());
        assert_eq!(cache.keep(written(&cache), &digest()).unwrap(), "block");
        assert_eq!(cache.lookup(&digest(), 5).is_some(), replaced);
        assert_eq!(files(directory.path()), 1, "nothing temporary is left");
    };
    check(|path| std::fs::create_dir(path).unwrap(), false);
    check(|path| symlink(path, path).unwrap(), true);
    let fifo = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    check(fifo, true);
}

#[test]
fn without_a_directory_nothing_is_kept_and_nothing_fails() {
    let scratch = tempfile::NamedTempFile::new().unwrap();
    for parent in [None, Some(scratch.path()), Some(Path::new("/proc/none"))] {
        let cache = BlockCache::new(parent);
        cache.note_in_use(&[digest()]);
        assert!(cache.lookup(&digest(), 5).is_none(), "{parent:?}");
        assert!(begun(&cache).is_none(), "{parent:?}");
    }
}

#[test]
fn what_another_start_left_is_taken_up_and_what_it_writes_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| BlockCache::new(Some(directory.path())));
    let mut partial = begun(&first).unwrap();
    partial.append(b"blo").unwrap();
    assert!(matches!(claim(&second, &digest(), 5), Claim::Theirs));
    drop(partial);
    let mut partial = begun(&second).unwrap();
    assert_eq!(partial.written(), 3);
    partial.append(b"ck").unwrap();
    assert_eq!(second.keep(partial, &digest()).unwrap(), "block");
    assert_eq!(files(directory.path()), 1);

    // Longer than the block: not its beginning.
    let other = *blake3::hash(b"other").as_bytes();
    let Claim::Ours(mut partial) = claim(&first, &other, 6) else {
        panic!("nobody else wants it")
    };
    partial.append(b"longer").unwrap();
    drop(partial);
    match claim(&first, &other, 5) {
        Claim::Ours(partial) => assert_eq!(partial.written(), 0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_stands_in_place_of_a_partial_costs_its_resume_alone() {
    let check = |make: fn(&Path)| {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::new(Some(directory.path()));
        let path = cache.path(&digest()).unwrap();
        make(&path.with_file_name(format!("partial-{}", blake3::Hash::from_bytes(digest()))));
        assert_eq!(cache.keep(written(&cache), &digest()).unwrap(), "block");
        assert_eq!(cache.lookup(&digest(), 5).unwrap(), "block");
    };
    check(|path| std::fs::create_dir(path).unwrap());
    check(|path| symlink("elsewhere", path).unwrap());
    check(|path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    });
}

fn age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(then)).unwrap();
}

#[test]
fn what_killed_starts_left_is_swept_and_what_lives_or_is_of_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let blocks = directory.path().join("blocks");
    std::fs::create_dir(&blocks).unwrap();
    for (name, content, days) in [
        ("incoming-dead", "half", 0),
        ("station-dead", "list", 0),
        ("partial-empty", "", 0),
        ("partial-old", "half", 8),
        ("partial-young", "half", 6),
    ] {
        std::fs::write(blocks.join(name), content).unwrap();
        age(&blocks.join(name), days);
    }
    let live = BlockCache::new(Some(directory.path()));
    live.note_in_use(&[digest()]);
    let partial = begun(&live).unwrap();
    let later = BlockCache::new(Some(directory.path()));
    assert!(later.lookup(&digest(), 5).is_none());
    let mut left: Vec<String> = std::fs::read_dir(&blocks)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left.len(), 4, "{left:?}");
    assert_eq!(left[0], "eviction.lock");
    assert_eq!(
        left[1],
        format!("partial-{}", blake3::Hash::from_bytes(digest()))
    );
    assert_eq!(left[2], "partial-young");
    assert!(left[3].starts_with("station-"), "{left:?}");
    drop((partial, live));
    assert_eq!(files(directory.path()), 1);
}

#[test]
fn sweeps_and_writers_side_by_side_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let cache = BlockCache::new(Some(directory.path()));
                    cache.note_in_use(&[digest()]);
                    match claim(&cache, &digest(), 5) {
                        Claim::Ours(mut partial) => {
                            partial.reset().unwrap();
                            partial.append(b"block").unwrap();
                            assert_eq!(cache.keep(partial, &digest()).unwrap(), "block");
                        }
                        Claim::Found(bytes) => assert_eq!(bytes, "block"),
                        Claim::Theirs => continue,
                        Claim::Nowhere => panic!("the cache was given up"),
                    }
                    assert!(cache.lookup(&digest(), 5).is_some());
                }
            });
        }
    });
    assert_eq!(files(directory.path()), 1);
}

/// Blocks of 10 bytes whose content is their number, used that many days ago.
fn aged(cache: &BlockCache, days: impl IntoIterator<Item = u64>) -> Vec<[u8; 32]> {
    let blocks = days.into_iter().map(|days| {
        let content = format!("{days:>10}");
        let digest = *blake3::hash(content.as_bytes()).as_bytes();
        let path = cache.path(&digest).unwrap();
        std::fs::write(&path, content).unwrap();
        age(&path, days);
        digest
    });
    blocks.collect()
}

fn present(cache: &BlockCache, digests: &[[u8; 32]]) -> Vec<bool> {
    let present = digests
        .iter()
        .map(|digest| cache.path(digest).unwrap().exists());
    present.collect()
}

#[test]
fn a_full_cache_lets_the_longest_unused_go_first() {
    let directory = tempfile::tempdir().unwrap();
    let cache = BlockCache::with_limit(Some(directory.path()), Some(40));
    let blocks = aged(&cache, [4, 3, 2, 1]);
    assert!(cache.lookup(&blocks[0], 10).is_some(), "used again now");
    let room = cache.make_room(20);
    assert_eq!(present(&cache, &blocks), [true, false, false, true]);
    assert!(room.take(20) && !room.take(1), "exactly what was made");
    let _ = cache.make_room(0);
    assert_eq!(present(&cache, &blocks), [true, false, false, true]);
    let unlimited = BlockCache::new(Some(directory.path()));
    let _ = unlimited.make_room(u64::MAX);
    assert_eq!(present(&cache, &blocks), [true, false, false, true]);
}

#[test]
fn what_a_running_station_uses_stays_and_what_does_not_fit_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let running = BlockCache::new(Some(directory.path()));
    let blocks = aged(&running, [3, 2, 1]);
    running.note_in_use(&blocks[..2]);
    let cache = BlockCache::with_limit(Some(directory.path()), Some(30));
    let room = cache.make_room(25);
    assert_eq!(present(&cache, &blocks), [true, true, false]);
    let other = *blake3::hash(b"other").as_bytes();
    assert!(matches!(cache.claim(&other, 25, &room), Claim::Nowhere));
    assert!(matches!(cache.claim(&other, 10, &room), Claim::Ours(_)));
    assert!(matches!(cache.claim_private(1, &room), Claim::Nowhere));
    // The other station has ended.
    drop((running, room));
    let room = cache.make_room(25);
    assert_eq!(present(&cache, &blocks), [false, false, false]);
    assert!(matches!(cache.claim(&other, 25, &room), Claim::Ours(_)));
}

#[test]
fn rooms_of_one_station_share_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let cache = BlockCache::with_limit(Some(directory.path()), Some(30));
    let blocks = cache.make_room(25);
    let tokenizer = cache.clone().make_room(10);
    assert!(blocks.take(25) && tokenizer.take(5), "the whole limit");
    assert!(!blocks.take(1) && !tokenizer.take(1), "and no more");
    drop(blocks);
    assert!(!cache.make_room(1).take(1), "one of them is still there");
    drop(tokenizer);
    assert!(cache.make_room(30).take(30), "nothing was written");
}

#[test]
fn abandoned_partials_make_room_and_those_being_written_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let cache = BlockCache::with_limit(Some(directory.path()), Some(8));
    drop(written(&cache));
    let other = *blake3::hash(b"other").as_bytes();
    let Claim::Ours(mut live) = claim(&cache, &other, 3) else {
        panic!("nobody else wants it")
    };
    live.append(b"oth").unwrap();
    let room = cache.make_room(8);
    assert!(room.take(5) && !room.take(1), "the live one is still there");
    assert_eq!(files(directory.path()), 1);
}
