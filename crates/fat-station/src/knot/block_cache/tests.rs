//! What is found, what is a miss, and what is left behind.

use super::*;
use std::io::Write as _;
use std::os::unix::fs::symlink;

fn digest() -> [u8; 32] {
    *blake3::hash(b"block").as_bytes()
}

fn written(cache: &BlockCache) -> NamedTempFile {
    let mut file = cache.begin().unwrap();
    file.write_all(b"block").unwrap();
    file
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory.join("blocks")).unwrap().count()
}

#[test]
fn what_was_kept_is_found_and_what_was_dropped_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let cache = BlockCache::new(Some(directory.path()));
    assert!(cache.lookup(&digest(), 5).is_none());
    drop(cache.begin().unwrap());
    for _ in 0..2 {
        // The second start renames over the first one's file.
        assert_eq!(cache.keep(written(&cache), &digest()).unwrap(), "block");
    }
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
        assert!(cache.lookup(&digest(), 5).is_none(), "{parent:?}");
        assert!(cache.begin().is_none(), "{parent:?}");
    }
}

#[test]
fn what_killed_starts_left_is_swept_and_what_lives_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let blocks = directory.path().join("blocks");
    std::fs::create_dir(&blocks).unwrap();
    std::fs::write(blocks.join("incoming-dead"), b"half").unwrap();
    let live = BlockCache::new(Some(directory.path())).begin().unwrap();
    assert!(!blocks.join("incoming-dead").exists());
    let later = BlockCache::new(Some(directory.path()));
    assert!(later.lookup(&digest(), 5).is_none());
    assert!(live.path().exists(), "another start is writing it");
    drop(live);
    assert_eq!(files(directory.path()), 0);
}

#[test]
fn sweeps_and_writers_side_by_side_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let cache = BlockCache::new(Some(directory.path()));
                    assert_eq!(cache.keep(written(&cache), &digest()).unwrap(), "block");
                    assert!(cache.lookup(&digest(), 5).is_some());
                }
            });
        }
    });
    assert_eq!(files(directory.path()), 1);
}
