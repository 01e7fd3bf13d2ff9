//! What is read back from files that were cut short, flipped, mixed up or taken away: the row that
//! was written, or none.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    file::{Found, TableFiles, complete_path, partial_path},
    *,
};
use crate::RowLayout;

const ROWS: u64 = 37;
const ROW_BYTES: u32 = 24;

fn row(id: u64) -> Vec<u8> {
    (0..ROW_BYTES as u64)
        .map(|at| (id.wrapping_mul(31).wrapping_add(at) % 251) as u8 + 1)
        .collect()
}

fn whole() -> Vec<u8> {
    (0..ROWS).flat_map(row).collect()
}

fn table() -> CachedTable {
    CachedTable {
        digest: *blake3::hash(&whole()).as_bytes(),
        rows: ROWS,
        row_bytes: ROW_BYTES,
        table_bytes: ROWS * u64::from(ROW_BYTES),
        trust: Trust::Verified,
    }
}

fn map() -> RowMap {
    RowLayout::new(4096, ROWS, ROW_BYTES).unwrap().into()
}

fn open(directory: &Path) -> TableFiles {
    TableFiles::open(directory, table(), map()).unwrap()
}

fn start(directory: &Path) -> DiskTier {
    DiskTier::start(directory, table(), map())
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

fn ids(ids: impl IntoIterator<Item = u64>) -> Vec<RowId> {
    ids.into_iter().map(RowId).collect()
}

fn rows(of: impl IntoIterator<Item = u64>) -> Vec<(RowId, Row)> {
    of.into_iter()
        .map(|id| (RowId(id), Row::from(row(id))))
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn map_file(directory: &Path) -> PathBuf {
    directory.join(format!("{}.map", table().stem()))
}

#[test]
fn rows_lie_where_the_row_file_has_them_and_the_rest_is_absent() {
    let directory = TempDir::new().unwrap();
    let files = open(directory.path());
    files.write(RowId(3), &row(3)).unwrap();
    files.write(RowId(36), &row(36)).unwrap();
    assert_eq!(files.read(RowId(3)).unwrap(), Found::Row(Row::from(row(3))));
    assert_eq!(files.read(RowId(4)).unwrap(), Found::Absent);
    assert_eq!(files.read(RowId(ROWS)).unwrap(), Found::Absent);
    assert_eq!(files.present_rows().unwrap(), 2);
    let mut expected = vec![0; whole().len()];
    for id in [3, 36] {
        let start = id as usize * ROW_BYTES as usize;
        expected[start..start + ROW_BYTES as usize].copy_from_slice(&row(id));
    }
    let found = fs::read(partial_path(directory.path(), &table())).unwrap();
    assert!(found == expected);
    assert!(
        files.write(RowId(5), &row(5)[1..]).is_err(),
        "a short row is none"
    );
}

/// One thing that may happen to the files between two reads.
#[derive(Debug, Clone)]
enum Event {
    Write(u64),
    /// The row without its entry, or part of it: a writer that was killed.
    TornRow {
        id: u64,
        bytes: usize,
    },
    TornEntry {
        id: u64,
        bytes: usize,
    },
    FlipData(usize),
    FlipEntry(usize),
    Truncate(usize),
    Reopen,
}

fn event() -> impl Strategy<Value = Event> {
    let table_bytes = ROWS as usize * ROW_BYTES as usize;
    prop_oneof![
        6 => (0..ROWS).prop_map(Event::Write),
        1 => (0..ROWS, 0..ROW_BYTES as usize).prop_map(|(id, bytes)| Event::TornRow { id, bytes }),
        1 => (0..ROWS, 0..16_usize).prop_map(|(id, bytes)| Event::TornEntry { id, bytes }),
        1 => (0..table_bytes * 8).prop_map(Event::FlipData),
        1 => (0..ROWS as usize * 16 * 8).prop_map(Event::FlipEntry),
        1 => (0..table_bytes).prop_map(Event::Truncate),
        2 => Just(Event::Reopen),
    ]
}

fn flip(path: &Path, bit: usize, from: usize) {
    let mut bytes = fs::read(path).unwrap();
    if let Some(byte) = bytes.get_mut(from + bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever happens, a row that is read is the row that was written.
    #[test]
    fn damage_makes_rows_absent_and_never_wrong(events in prop::collection::vec(event(), 1..40)) {
        let directory = TempDir::new().unwrap();
        let path = partial_path(directory.path(), &table());
        let mut files = open(directory.path());
        let key = table().entry_key();
        for event in events {
            match event {
                Event::Write(id) => {
                    files.write(RowId(id), &row(id)).unwrap();
                    prop_assert_eq!(files.read(RowId(id)).unwrap(), Found::Row(Row::from(row(id))));
                }
                Event::TornRow { id, bytes } => {
                    let at = id * u64::from(ROW_BYTES);
                    files.data.write_all_at(&row(id)[..bytes], at).unwrap();
                }
                Event::TornEntry { id, bytes } => {
                    let map = fs::OpenOptions::new().write(true).open(map_file(directory.path()));
                    let entry = key.entry(RowId(id), &row(id));
                    map.unwrap().write_all_at(&entry[..bytes], 128 + id * 16).unwrap();
                }
                Event::FlipData(bit) => flip(&path, bit, 0),
                Event::FlipEntry(bit) => flip(&map_file(directory.path()), bit, 128),
                Event::Truncate(bytes) => files.data.set_len(bytes as u64).unwrap(),
                Event::Reopen => files = open(directory.path()),
            }
            for id in 0..ROWS {
                if let Found::Row(found) = files.read(RowId(id)).unwrap() {
                    prop_assert_eq!(&found[..], &row(id)[..]);
                }
            }
        }
    }
}

#[test]
fn files_that_are_not_what_their_name_says_are_set_aside_by_name() {
    let data = |directory: &Path| partial_path(directory, &table());
    let other = CachedTable {
        digest: [1; 32],
        ..table()
    };
    type Damage<'a> = &'a dyn Fn(&Path);
    let damages: [(&str, Damage<'_>); 5] = [
        ("rows.part", &|directory| {
            fs::write(data(directory), "short").unwrap()
        }),
        ("rows.part", &|directory| {
            fs::write(data(directory), [whole(), vec![0]].concat()).unwrap();
        }),
        ("map", &|directory| {
            fs::write(map_file(directory), "").unwrap()
        }),
        ("map", &|directory| flip(&map_file(directory), 0, 120)),
        ("map", &|directory| {
            let file = fs::OpenOptions::new().write(true).open(map_file(directory));
            file.unwrap().write_all_at(&other.header(), 0).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let directory = TempDir::new().unwrap();
        open(directory.path()).write(RowId(1), &row(1)).unwrap();
        damage(directory.path());
        let files = open(directory.path());
        assert_eq!(files.present_rows().unwrap(), u64::from(name != "map"));
        assert_ne!(
            files.read(RowId(1)).unwrap(),
            Found::Row(Row::from(row(1))),
            "{name}"
        );
        files.write(RowId(1), &row(1)).unwrap();
        assert_eq!(
            open(directory.path()).read(RowId(1)).unwrap(),
            Found::Row(Row::from(row(1)))
        );
        let refused = format!("{}.{name}.refused", table().stem());
        assert!(names(directory.path()).contains(&refused), "{name}");
    }
}

#[test]
fn a_map_of_another_release_is_left_alone() {
    let directory = TempDir::new().unwrap();
    drop(open(directory.path()));
    let mut map = fs::read(map_file(directory.path())).unwrap();
    map[8] = 2;
    fs::write(map_file(directory.path()), &map).unwrap();
    let error = TableFiles::open(directory.path(), table(), self::map()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("version 2, this release knows 1") && text.contains("name another"),
        "{text}"
    );
    assert!(fs::read(map_file(directory.path())).unwrap() == map);
}

#[test]
fn no_link_is_followed_and_what_it_leads_to_is_not_written() {
    let whole_file = vec![b'p'; whole().len()];
    let at = [partial_path, complete_path, |directory: &Path, _: &_| {
        map_file(directory)
    }];
    for place in at {
        for target in ["foreign", "nothing there"] {
            let directory = TempDir::new().unwrap();
            let foreign = directory.path().join("foreign");
            fs::write(&foreign, &whole_file).unwrap();
            let link = place(directory.path(), &table());
            std::os::unix::fs::symlink(directory.path().join(target), &link).unwrap();
            let error = TableFiles::open(directory.path(), table(), map()).unwrap_err();
            let Error::Disk { path, source, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(path, &link);
            assert!(source.to_string().contains("a symbolic link"), "{source}");
            assert!(fs::read(&foreign).unwrap() == whole_file);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
    }
}

#[test]
fn places_that_cannot_be_used_are_named_without_waiting() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = TableFiles::open(&file, table(), map()).unwrap_err();
    assert!(error.to_string().contains("could not create"), "{error}");
    let fifo = partial_path(directory.path(), &table());
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let error = TableFiles::open(directory.path(), table(), map()).unwrap_err();
    let Error::Disk { path, source, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(path, &fifo);
    assert!(
        source.to_string().starts_with("it is no regular file;"),
        "{source}"
    );
}

#[test]
fn a_table_that_no_file_can_hold_is_refused_before_anything_is_made() {
    let directory = TempDir::new().unwrap();
    let rows = 1 << 61;
    let huge = CachedTable {
        rows,
        row_bytes: 8,
        table_bytes: rows,
        ..table()
    };
    let refused = TableFiles::open(directory.path(), huge, map());
    assert!(matches!(refused, Err(Error::TableOverflow { .. })));
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn concurrent_openers_share_one_pair_of_files() {
    for _ in 0..20 {
        let directory = TempDir::new().unwrap();
        let start = std::sync::Barrier::new(4);
        let opened: Vec<TableFiles> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|id| {
                    let (start, directory) = (&start, directory.path());
                    scope.spawn(move || {
                        start.wait();
                        let files = open(directory);
                        files.write(RowId(id), &row(id)).unwrap();
                        files
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for files in &opened {
            for id in 0..4 {
                assert_eq!(
                    files.read(RowId(id)).unwrap(),
                    Found::Row(Row::from(row(id)))
                );
            }
        }
        assert_eq!(names(directory.path()).len(), 2, "no temporary file stays");
    }
}

#[test]
fn two_writers_of_other_bytes_leave_one_of_them_or_nothing() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (open(directory.path()), open(directory.path()));
    let other: Vec<u8> = row(9).iter().map(|byte| byte ^ 0xFF).collect();
    let write = |files: &TableFiles, row: &[u8]| {
        for _ in 0..2_000 {
            files.write(RowId(9), row).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&one, &row(9)));
        scope.spawn(|| write(&two, &other));
        for _ in 0..2_000 {
            if let Found::Row(found) = one.read(RowId(9)).unwrap() {
                assert!(found[..] == row(9)[..] || found[..] == other[..]);
            }
        }
    });
}

#[test]
fn files_that_are_taken_away_still_serve_and_the_next_start_begins_anew() {
    let directory = TempDir::new().unwrap();
    let files = open(directory.path());
    files.write(RowId(2), &row(2)).unwrap();
    fs::remove_file(partial_path(directory.path(), &table())).unwrap();
    assert_eq!(files.read(RowId(2)).unwrap(), Found::Row(Row::from(row(2))));
    let next = open(directory.path());
    assert_eq!(next.read(RowId(2)).unwrap(), Found::Damaged);
    fs::remove_dir_all(directory.path()).unwrap();
    files.write(RowId(3), &row(3)).unwrap();
    assert_eq!(open(directory.path()).present_rows().unwrap(), 0);
}

#[test]
fn left_behind_temporary_files_go_and_young_ones_stay() {
    let directory = TempDir::new().unwrap();
    let name = |what: &str| {
        directory
            .path()
            .join(format!(".{}.{what}.new", table().stem()))
    };
    for what in ["map.1-0", "map.2-0"] {
        fs::write(name(what), "").unwrap();
    }
    let hours_ago = std::time::SystemTime::now() - Duration::from_hours(2);
    let old = fs::File::options().write(true).open(name("map.1-0"));
    old.unwrap().set_modified(hours_ago).unwrap();
    drop(open(directory.path()));
    assert!(!name("map.1-0").exists() && name("map.2-0").exists());
}

#[test]
fn the_complete_file_is_the_row_file_under_its_final_name() {
    let directory = TempDir::new().unwrap();
    let (files, neighbour) = (open(directory.path()), open(directory.path()));
    for id in 0..ROWS - 1 {
        files.write(RowId(id), &row(id)).unwrap();
    }
    let partial = Completeness::Partial {
        present_rows: ROWS - 1,
        rows: ROWS,
    };
    assert_eq!(files.complete().unwrap(), partial);
    neighbour.write(RowId(ROWS - 1), &row(ROWS - 1)).unwrap();
    let path = complete_path(directory.path(), &table());
    let complete = Completeness::Complete { path: path.clone() };
    assert_eq!(files.complete().unwrap(), complete);
    assert!(fs::read(&path).unwrap() == whole());
    assert!(!partial_path(directory.path(), &table()).exists());
    // Whoever had it open goes on, and later starts find it.
    assert_eq!(neighbour.complete().unwrap(), complete);
    let next = open(directory.path());
    assert_eq!(next.read(RowId(7)).unwrap(), Found::Row(Row::from(row(7))));
    assert_eq!(next.complete().unwrap(), complete);
    assert_eq!(names(directory.path()).len(), 2);
}

#[test]
fn a_full_table_with_a_damaged_row_is_not_complete_and_forgets_that_row() {
    let directory = TempDir::new().unwrap();
    let files = open(directory.path());
    for id in 0..ROWS {
        files.write(RowId(id), &row(id)).unwrap();
    }
    flip(
        &partial_path(directory.path(), &table()),
        5,
        ROW_BYTES as usize * 11,
    );
    let partial = Completeness::Partial {
        present_rows: ROWS - 1,
        rows: ROWS,
    };
    assert_eq!(files.complete().unwrap(), partial);
    assert_eq!(files.read(RowId(11)).unwrap(), Found::Absent);
    files.write(RowId(11), &row(11)).unwrap();
    assert!(matches!(
        files.complete().unwrap(),
        Completeness::Complete { .. }
    ));
}

#[test]
fn unchecked_rows_never_become_a_row_file_and_never_pass_for_checked_ones() {
    let directory = TempDir::new().unwrap();
    let unchecked = CachedTable {
        trust: Trust::Unchecked,
        ..table()
    };
    let files = TableFiles::open(directory.path(), unchecked, map()).unwrap();
    for id in 0..ROWS {
        files.write(RowId(id), &row(id)).unwrap();
    }
    let partial = Completeness::Partial {
        present_rows: ROWS,
        rows: ROWS,
    };
    assert_eq!(files.complete().unwrap(), partial);
    assert_eq!(
        open(directory.path()).read(RowId(0)).unwrap(),
        Found::Absent
    );
}

#[test]
fn a_tier_that_is_dropped_has_written_its_rows() {
    let directory = TempDir::new().unwrap();
    let tier = start(directory.path());
    tier.handle().insert(rows(0..ROWS - 1));
    drop(tier);
    let tier = start(directory.path());
    let found = runtime().block_on(tier.handle().look_up(&ids([5, ROWS - 1, 30])));
    assert_eq!(found, rows([5, 30]));
    assert_eq!(tier.counts().read_rows, 2);
    tier.handle().insert(rows([ROWS - 1]));
    drop(tier);
    let path = complete_path(directory.path(), &table());
    assert!(fs::read(path).unwrap() == whole(), "complete by itself");
}

/// The files of a new table are made while look-ups are answered already; rows that are handed over
/// meanwhile are written when the files are there.
#[test]
fn rows_that_come_while_files_are_made_are_written() {
    let directory = TempDir::new().unwrap();
    let runtime = runtime();
    for round in 0..20 {
        let tier = start(&directory.path().join(round.to_string()));
        let found = runtime.block_on(tier.handle().look_up(&ids([1])));
        assert_eq!(found, []);
        tier.handle().insert(rows([1]));
        runtime.block_on(tier.flush()).unwrap();
        assert_eq!(
            runtime.block_on(tier.handle().look_up(&ids([1]))),
            rows([1])
        );
    }
}

#[test]
fn a_damaged_row_is_counted_and_heals_when_it_is_written_again() {
    let directory = TempDir::new().unwrap();
    let tier = start(directory.path());
    let runtime = runtime();
    tier.handle().insert(rows([4, 5]));
    runtime.block_on(tier.flush()).unwrap();
    flip(
        &partial_path(directory.path(), &table()),
        0,
        ROW_BYTES as usize * 4,
    );
    assert_eq!(
        runtime.block_on(tier.handle().look_up(&ids([4, 5]))),
        rows([5])
    );
    tier.handle().insert(rows([4]));
    runtime.block_on(tier.flush()).unwrap();
    assert_eq!(
        runtime.block_on(tier.handle().look_up(&ids([4, 5]))),
        rows([4, 5])
    );
    let counts = DiskCounts {
        read_rows: 3,
        damaged_rows: 1,
        written_rows: 3,
        dropped_rows: 0,
    };
    assert_eq!(tier.counts(), counts);
}

#[test]
fn a_place_that_cannot_be_used_finds_nothing_and_says_why() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let tier = start(&file);
    let runtime = runtime();
    assert_eq!(runtime.block_on(tier.handle().look_up(&ids([1]))), []);
    tier.handle().insert(rows([1]));
    let error = runtime.block_on(tier.flush()).unwrap_err();
    let Error::Disk { path, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(path, &file);
    assert!(runtime.block_on(tier.complete()).is_err());
    assert_eq!(tier.counts(), DiskCounts::default());
}

#[test]
fn rows_that_wait_to_be_written_are_bounded() {
    let directory = TempDir::new().unwrap();
    let row_bytes = 1 << 20;
    let big = CachedTable {
        rows: 70,
        row_bytes,
        table_bytes: 70 << 20,
        ..table()
    };
    let layout = RowLayout::new(0, 70, row_bytes).unwrap();
    let tier = DiskTier::start(directory.path(), big, layout.into());
    let row = Row::from(vec![1; row_bytes as usize]);
    // Handed over in one step: none is written before all are counted.
    tier.handle()
        .insert((0..70).map(|id| (RowId(id), Arc::clone(&row))));
    runtime().block_on(tier.flush()).unwrap();
    let counts = tier.counts();
    assert_eq!((counts.written_rows, counts.dropped_rows), (64, 6));
}
