//! What is learned from what was seen, for how long, and what a file adds to it.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;

const ORIGIN: &str = "https://rows.example:8443";
const DAY_S: u64 = 86_400;

fn several(answered: u16, most: u16) -> MultiRange {
    MultiRange::Several { answered, most }
}

fn at(file: Option<PathBuf>, now: &Arc<AtomicU64>) -> Capabilities {
    let now = Arc::clone(now);
    Capabilities::with_clock(file, Arc::new(move || now.load(Relaxed)))
}

impl Capabilities {
    /// Learns and writes at once.
    fn note(&self, origin: &str, seen: Seen) {
        if let Some(note) = self.learn(origin, seen) {
            note.keep();
        }
    }
}

#[test]
fn a_canary_proves_and_each_full_answer_doubles_up_to_the_limit() {
    let known = Capabilities::new(None);
    assert_eq!(known.of(ORIGIN).most_ranges(), 1);
    known.note(ORIGIN, Seen::All { asked: 2 });
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let most = known.of(ORIGIN).most_ranges();
        sizes.push(most);
        known.note(ORIGIN, Seen::All { asked: most });
    }
    assert_eq!(sizes, [10, 20, 40, 64, 64]);
}

#[test]
fn what_is_seen_changes_what_is_asked() {
    let all = |asked| Seen::All { asked };
    let fewer = |asked, came| Seen::Fewer { asked, came };
    let refused = |asked| Seen::Refused { asked };
    for (before, seen, after) in [
        // Canaries.
        (MultiRange::Unknown, all(2), several(2, 64)),
        (MultiRange::Unknown, fewer(2, 1), MultiRange::Single),
        (MultiRange::Unknown, fewer(2, 0), MultiRange::Single),
        (MultiRange::Unknown, refused(2), MultiRange::Single),
        // lighttpd: ten of twenty, and never more.
        (several(10, 64), fewer(20, 10), several(10, 10)),
        // Too many: half, down to two, then one.
        (several(20, 64), refused(40), several(20, 20)),
        (several(20, 20), refused(5), several(2, 2)),
        (several(20, 20), refused(3), several(2, 2)),
        (several(2, 2), refused(2), MultiRange::Single),
        (several(40, 64), fewer(40, 1), MultiRange::Single),
        // A reply to a smaller request says nothing against a larger one.
        (several(40, 64), all(3), several(40, 64)),
        (MultiRange::Single, all(2), MultiRange::Single),
        (several(10, 64), Seen::Broken, several(10, 64)),
    ] {
        assert_eq!(before.after(seen), after, "{before:?} {seen:?}");
    }
    assert_eq!(several(10, 10).most_ranges(), 10);
    assert_eq!(MultiRange::Single.most_ranges(), 1);
}

#[test]
fn only_the_third_broken_canary_counts() {
    let known = Capabilities::new(None);
    for expected in [MultiRange::Unknown, MultiRange::Unknown, MultiRange::Single] {
        known.note(ORIGIN, Seen::Broken);
        assert_eq!(known.of(ORIGIN), expected);
    }
}

#[test]
fn one_canary_at_a_time_and_none_once_it_is_known() {
    let known = Capabilities::new(None);
    let canary = known.canary(ORIGIN).unwrap();
    assert!(known.canary(ORIGIN).is_none());
    assert!(known.canary("http://other").is_some());
    drop(canary);
    assert!(known.canary(ORIGIN).is_some());
    known.note(ORIGIN, Seen::Refused { asked: 2 });
    assert!(known.canary(ORIGIN).is_none());
}

#[test]
fn knowledge_lasts_a_day_in_memory_and_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache/origins.json");
    let now = Arc::new(AtomicU64::new(1_000_000));
    let first = at(Some(path.clone()), &now);
    first.note(ORIGIN, Seen::All { asked: 2 });
    first.note("http://single", Seen::Refused { asked: 2 });

    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(ORIGIN), "{text}");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

    now.store(1_000_000 + DAY_S - 1, Relaxed);
    let second = at(Some(path.clone()), &now);
    assert_eq!(second.of(ORIGIN), several(2, 64));
    assert_eq!(second.of("http://single"), MultiRange::Single);
    now.store(1_000_000 + DAY_S, Relaxed);
    for known in [&first, &second, &at(Some(path.clone()), &now)] {
        assert_eq!(known.of(ORIGIN), MultiRange::Unknown);
    }
    // A clock that was set back does not make old knowledge last.
    now.store(999_999, Relaxed);
    assert_eq!(at(Some(path), &now).of(ORIGIN), MultiRange::Unknown);
}

#[test]
fn writers_keep_each_others_origins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("origins.json");
    let (one, two) = (
        Capabilities::new(Some(path.clone())),
        Capabilities::new(Some(path.clone())),
    );
    one.of("http://a");
    two.of("http://a");
    one.note("http://a", Seen::All { asked: 2 });
    two.note("http://b", Seen::Refused { asked: 2 });
    let third = Capabilities::new(Some(path));
    assert_eq!(third.of("http://a"), several(2, 64));
    assert_eq!(third.of("http://b"), MultiRange::Single);
}

#[test]
fn a_file_that_is_not_ours_is_nothing_known_and_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("origins.json");
    let valid = |inner: &str| {
        format!("{{\"format\":\"helix-transport origins\",\"version\":1,\"origins\":{{{inner}}}}}")
    };
    let now = Arc::new(AtomicU64::new(100));
    let entry = "{\"learned_unix_s\":100,\"multi_range\":\"single\"}";
    let good = valid(&format!("\"{ORIGIN}\":{entry}"));
    fs::write(&path, &good).unwrap();
    assert_eq!(at(Some(path.clone()), &now).of(ORIGIN), MultiRange::Single);
    for bad in [
        String::new(),
        "no json".to_owned(),
        "[".repeat(100_000),
        good.replace("\"version\":1", "\"version\":2"),
        good.replace("helix-transport", "other"),
        good.replace("\"single\"", "\"double\""),
        valid(&format!("\"http://{}\":{entry}", "x".repeat(400))),
        format!("{good}{}", " ".repeat(300 << 10)),
        good[..good.len() - 1].to_owned(),
    ] {
        fs::write(&path, &bad).unwrap();
        let known = at(Some(path.clone()), &now);
        assert_eq!(known.of(ORIGIN), MultiRange::Unknown, "{:.80}", bad);
        known.note(ORIGIN, Seen::All { asked: 2 });
        assert_eq!(at(Some(path.clone()), &now).of(ORIGIN), several(2, 64));
    }
    // Numbers from a file are limits all the same.
    let huge = "{\"learned_unix_s\":100,\"multi_range\":{\"several\":{\"answered\":65535,\"most\":65535}}}";
    fs::write(&path, valid(&format!("\"{ORIGIN}\":{huge}"))).unwrap();
    assert_eq!(at(Some(path), &now).of(ORIGIN).most_ranges(), MAX_RANGES);
}

#[test]
fn the_file_and_the_memory_are_bounded_and_an_unwritable_place_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("origins.json");
    let now = Arc::new(AtomicU64::new(0));
    let known = at(Some(path.clone()), &now);
    for number in 0..300 {
        now.store(number, Relaxed);
        known.note(&format!("http://host-{number}"), Seen::All { asked: 2 });
    }
    assert_eq!(known.state().known.len(), MAX_ORIGINS);
    assert_eq!(known.of("http://host-0"), MultiRange::Unknown);
    assert_eq!(file::read(&path, 300).len(), MAX_ORIGINS);
    assert!(fs::metadata(&path).unwrap().len() < 64 << 10);

    let nowhere = at(Some(path.join("below-a-file")), &now);
    nowhere.note(ORIGIN, Seen::All { asked: 2 });
    assert_eq!(nowhere.of(ORIGIN), several(2, 64));
}
