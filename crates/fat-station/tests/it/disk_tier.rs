//! Rows kept on disk: a warm start moves none, several stations share them, and a disk that is full,
//! read-only or damaged costs a transfer, never an answer.

use crate::disk_room::{Room, in_room};
use crate::station::{Finished, Origin, binary, packed, run};
use crate::tiny_model::{HIDDEN, VOCABULARY, models};
use std::path::{Path, PathBuf};

const ROW_BYTES: usize = 2 * HIDDEN;
const PROMPT: &str = "Rows that were fetched once.";
const RUN: [&str; 5] = ["--raw", "--ignore-eos", "--max-tokens", "12", PROMPT];

/// Runs with a tier, every row asked of the store.
fn with_tier(rows: &str, tier: &Path, more: &[&str], prompt: &[&str]) -> Finished {
    let tier = tier.to_str().unwrap();
    let flags = [
        "--columnar-embed",
        rows,
        "--embed-cache-dir",
        tier,
        "--embed-always-remote",
    ];
    run(&[&flags, more].concat(), prompt)
}

fn dense() -> Finished {
    run(&["--knot", &packed("tied.gkq")], &RUN).succeeded()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn file(directory: &Path, ending: &str) -> PathBuf {
    let mut found = names(directory)
        .into_iter()
        .filter(|name| name.ends_with(ending));
    let name = found.next().unwrap_or_else(|| panic!("no {ending}"));
    assert_eq!(found.next(), None);
    directory.join(name)
}

#[test]
fn a_warm_start_moves_no_row_and_no_path() {
    let tier = tempfile::tempdir().unwrap();
    let expected = dense();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let cold = with_tier(&rows, tier.path(), &[], &RUN).succeeded();
    assert!(cold.number("/bytes/rows/received") > 0 && cold.number("/bytes/paths/received") > 0);
    assert_eq!(cold.number("/embedding/disk"), 0);
    let log = origin.stop();
    assert_eq!(log.of(".rows").1, cold.number("/bytes/rows/received"));

    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let warm = with_tier(&rows, tier.path(), &[], &RUN).succeeded();
    let log = origin.stop();
    assert_eq!(log.of(".rows"), (0, 0), "the origin was asked for no row");
    for kind in ["rows", "paths"] {
        for what in ["requests", "received", "round_trips"] {
            assert_eq!(warm.number(&format!("/bytes/{kind}/{what}")), 0, "{kind}");
        }
    }
    let distinct = warm.number("/embedding/distinct_rows");
    assert!(distinct >= 15, "{distinct}");
    assert_eq!(warm.number("/embedding/disk"), distinct);
    assert_eq!(warm.number("/embedding/missed"), 0);
    assert!(
        warm.stderr.contains(&format!("{distinct} from disk")),
        "{}",
        warm.stderr
    );
    for finished in [&cold, &warm] {
        assert!(finished.logits == expected.logits && finished.tokens == expected.tokens);
    }
}

#[test]
fn stations_that_run_at_once_share_one_directory() {
    let tier = tempfile::tempdir().unwrap();
    let expected = dense();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| with_tier(&rows, tier.path(), &[], &RUN)))
            .collect();
        for start in starts {
            let finished = start.join().unwrap().succeeded();
            assert!(finished.logits == expected.logits);
            assert!(
                !finished.stderr.contains("row cache"),
                "{}",
                finished.stderr
            );
        }
    });
    let left = names(tier.path());
    assert_eq!(left.len(), 2, "{left:?}");
    let last = with_tier(&rows, tier.path(), &[], &RUN).succeeded();
    assert_eq!(last.number("/bytes/rows/received"), 0);
}

#[test]
fn a_damaged_row_is_fetched_again_alone() {
    let tier = tempfile::tempdir().unwrap();
    let expected = dense();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    with_tier(&rows, tier.path(), &[], &RUN).succeeded();
    // `R`, the first letter of the prompt, is token 49: one bit of its row flips.
    let part = file(tier.path(), ".rows.part");
    let mut bytes = std::fs::read(&part).unwrap();
    assert_eq!(bytes.len(), VOCABULARY * ROW_BYTES);
    bytes[49 * ROW_BYTES + 7] ^= 0x20;
    std::fs::write(&part, bytes).unwrap();
    for missed in [1, 0] {
        let finished = with_tier(&rows, tier.path(), &[], &RUN).succeeded();
        assert_eq!(finished.number("/embedding/missed"), missed);
        let received = finished.number("/bytes/rows/received");
        assert_eq!(received, missed * ROW_BYTES as u64);
        assert!(finished.logits == expected.logits);
    }
}

#[test]
fn unchecked_rows_are_kept_apart() {
    let tier = tempfile::tempdir().unwrap();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let off = ["--verify", "off"];
    let unchecked = with_tier(&rows, tier.path(), &off, &RUN).succeeded();
    assert!(unchecked.number("/embedding/missed") > 0);
    let checked = with_tier(&rows, tier.path(), &[], &RUN).succeeded();
    assert_eq!(checked.number("/embedding/disk"), 0);
    let again = with_tier(&rows, tier.path(), &off, &RUN).succeeded();
    assert_eq!(again.number("/embedding/missed"), 0);
    assert_eq!(names(tier.path()).len(), 4);
}

#[test]
fn a_tier_with_every_row_is_the_row_file_and_serves() {
    let tier = tempfile::tempdir().unwrap();
    let directory = tier.path().to_str().unwrap();
    let expected = dense();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let prefetch = |more: &[&str]| {
        let mut command = binary();
        command.args(["--columnar-embed", &rows, "--embed-cache-dir", directory]);
        let output = command.args(["prefetch", "--json"]).args(more).output();
        let output = output.unwrap();
        let text = crate::station::text_of(&output);
        serde_json::from_str::<serde_json::Value>(text).unwrap()
    };
    let some = prefetch(&["--warm", "500"]);
    assert_eq!(
        (some["rows_asked"].as_u64(), some["rows_fetched"].as_u64()),
        (Some(257), Some(257))
    );
    assert_eq!(some["row_file"], serde_json::Value::Null);
    let all = prefetch(&["--all"]);
    let fetched = VOCABULARY as u64 - 257;
    assert_eq!(all["rows_present"], 257);
    assert_eq!(all["rows_fetched"], fetched);
    assert_eq!(all["rows_on_disk"], VOCABULARY as u64);
    let row_file = file(tier.path(), ".rows");
    assert_eq!(all["row_file"], row_file.to_str().unwrap());
    assert!(std::fs::read(&row_file).unwrap() == std::fs::read(packed("tied.rows")).unwrap());
    let again = prefetch(&["--all"]);
    assert_eq!(
        (again["requests"].as_u64(), again["rows_fetched"].as_u64()),
        (Some(0), Some(0))
    );

    // As a path, and from an origin over the directory, for a neighbour.
    let knot = packed("tied.gkq");
    let neighbour = Origin::over(tier.path());
    let name = row_file.file_name().unwrap().to_str().unwrap();
    for place in [row_file.to_str().unwrap(), &neighbour.url(name)] {
        let flags = [
            "--columnar-embed",
            place,
            "--knot",
            &knot,
            "--embed-always-remote",
        ];
        let finished = run(&flags, &RUN).succeeded();
        assert_eq!(finished.summary["embedding"]["source"], "columnar");
        assert!(finished.logits == expected.logits);
    }
    let through = with_tier(&rows, tier.path(), &[], &RUN).succeeded();
    assert_eq!(through.number("/bytes/rows/received"), 0);
}

#[test]
fn rows_of_a_file_of_ids_and_of_a_text_are_fetched_ahead() {
    let tier = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let expected = dense();
    let (ids, text) = (
        scratch.path().join("ids.json"),
        scratch.path().join("text.txt"),
    );
    std::fs::write(&ids, serde_json::to_string(&expected.tokens).unwrap()).unwrap();
    std::fs::write(&text, PROMPT).unwrap();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let mut command = binary();
    command.args(["--columnar-embed", &rows, "--embed-cache-dir"]);
    command.arg(tier.path()).arg("prefetch");
    command.arg("--ids-file").arg(&ids).arg("--text").arg(&text);
    let summary = scratch.path().join("summary.json");
    command.arg("--summary-file").arg(&summary);
    let output = command.output().unwrap();
    let said = crate::station::text_of(&output);
    assert!(said.contains("0 already present"), "{said}");
    assert!(
        said.contains(&format!(
            "of {VOCABULARY} rows are in {}",
            tier.path().display()
        )),
        "{said}"
    );
    let before = origin.stop();
    let moved: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    let moved = |field: &str| moved["bytes"]["rows"][field].as_u64().unwrap();
    assert_eq!(moved("received") % ROW_BYTES as u64, 0);
    assert_eq!(
        before.of(".rows").1,
        moved("received") + moved("framing"),
        "bodies of several ranges hold framing beside the rows"
    );

    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let finished = with_tier(&rows, tier.path(), &[], &RUN).succeeded();
    assert_eq!(origin.stop().of(".rows"), (0, 0));
    assert!(finished.logits == expected.logits);
}

/// `prefetch` with these flags before and after it fails with 64 and says `part`.
#[track_caller]
fn assert_refused(station: &[&str], prefetch: &[&str], part: &str) {
    let mut command = binary();
    let output = command
        .args(station)
        .arg("prefetch")
        .args(prefetch)
        .output();
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{part}: {stderr}");
    assert!(stderr.contains(part), "{part}: {stderr}");
}

#[test]
fn what_prefetch_cannot_do_is_said_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let tier = scratch.path().join("tier");
    let tier = ["--embed-cache-dir", tier.to_str().unwrap()];
    let rows = packed("tied.rows");
    let rows = ["--columnar-embed", &rows];
    let with_tier = [rows, tier].concat();
    assert_refused(&rows, &["--all"], "--embed-cache-dir");
    let no_rows = [&["--knot", "k.gkq"][..], &tier].concat();
    assert_refused(&no_rows, &["--all"], "--columnar-embed");
    assert_refused(&with_tier, &[], "no rows named");
    let no_array = write("a.json", "{}");
    let no_array = ["--ids-file", &no_array];
    assert_refused(&with_tier, &no_array, "expected a JSON array");
    let outside = write("b.json", "[1, 10000]");
    assert_refused(&with_tier, &["--ids-file", &outside], "token id 10000");
    let file = write("no-directory", "");
    let no_directory = [rows, ["--embed-cache-dir", &file]].concat();
    assert_refused(&no_directory, &["--warm", "9"], "no-directory");
}

#[test]
fn a_knot_without_hot_ids_says_how_to_have_them() {
    let scratch = tempfile::tempdir().unwrap();
    let source = models().parent().unwrap().join("tied-source");
    let options = fat_origin::pack::PackOptions {
        out: scratch.path().to_owned(),
        name: Some("bare".to_owned()),
        hot_ids: fat_origin::pack::HotIds::Off,
        ..Default::default()
    };
    fat_origin::pack::pack(&source, &options).unwrap();
    let (rows, tier) = (
        scratch.path().join("bare.rows"),
        scratch.path().join("tier"),
    );
    let station = [
        "--columnar-embed",
        rows.to_str().unwrap(),
        "--embed-cache-dir",
        tier.to_str().unwrap(),
    ];
    assert_refused(&station, &["--warm", "9"], "--hot-ids");
}

#[test]
fn a_directory_that_cannot_be_used_costs_a_transfer_not_the_answer() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let expected = dense();
    let file = tempfile::NamedTempFile::new().unwrap();
    let finished = with_tier(&rows, file.path(), &[], &RUN).succeeded();
    assert!(finished.logits == expected.logits);
    assert_one_warning(&finished.stderr, file.path());
}

/// One line about the tier, which names the place and says what to do.
#[track_caller]
fn assert_one_warning(stderr: &str, place: &Path) {
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("row cache"))
        .collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    for part in [place.to_str().unwrap(), "Make room", "another directory"] {
        assert!(lines[0].contains(part), "{stderr}");
    }
}

/// A disk that fills up while rows are on it: the rows that are there are used, the others are
/// fetched, and the answer is the same.
#[test]
fn a_full_disk_degrades_to_memory_with_one_warning() {
    let origin = Origin::start();
    let expected = dense();
    let fill = "(head -c 8M /dev/zero > \"$ROOM/fill\") 2>/dev/null || true";
    let room = Room::new("size=1m");
    // The prompt of the first run leaves its rows, the second one's rows find no room.
    let outcomes = in_room(
        &room,
        &origin.url("tied.rows"),
        &["0123456789", fill, PROMPT],
    );
    let Some([first, second]) = outcomes.as_deref() else {
        return;
    };
    assert!(!first.stderr.contains("row cache"), "{}", first.stderr);
    assert_eq!(second.text, expected.text);
    assert!(second.number("/embedding/missed") > 0);
    assert_one_warning(&second.stderr, &room.path);
    assert!(second.stderr.contains("No space left"), "{}", second.stderr);
}

#[test]
fn a_disk_that_was_full_from_the_start_degrades_too() {
    let origin = Origin::start();
    let expected = dense();
    let fill = "(head -c 8M /dev/zero > \"$ROOM/fill\") 2>/dev/null || true";
    let room = Room::new("size=1m");
    let outcomes = in_room(&room, &origin.url("tied.rows"), &[fill, PROMPT]);
    let Some([only]) = outcomes.as_deref() else {
        return;
    };
    assert_eq!(only.text, expected.text);
    assert_one_warning(&only.stderr, &room.path);
    assert!(only.stderr.contains("No space left"), "{}", only.stderr);
}

#[test]
fn a_read_only_disk_is_read_and_says_once_that_it_keeps_nothing() {
    let origin = Origin::start();
    let expected = dense();
    let read_only = "mount -o remount,ro \"$ROOM\"";
    let room = Room::new("size=4m");
    let outcomes = in_room(
        &room,
        &origin.url("tied.rows"),
        &[PROMPT, read_only, PROMPT, "0123456789"],
    );
    let Some([cold, warm, other]) = outcomes.as_deref() else {
        return;
    };
    assert_eq!(cold.text, expected.text);
    assert_eq!(warm.text, expected.text);
    assert_eq!(
        warm.number("/bytes/rows/received"),
        0,
        "rows that are there are used"
    );
    assert!(other.number("/embedding/missed") > 0);
    for finished in [warm, other] {
        assert_one_warning(&finished.stderr, &room.path);
    }
}

#[test]
fn an_empty_read_only_disk_costs_a_transfer() {
    let origin = Origin::start();
    let expected = dense();
    let read_only = "mount -o remount,ro \"$ROOM\"";
    let room = Room::new("size=4m");
    let outcomes = in_room(&room, &origin.url("tied.rows"), &[read_only, PROMPT]);
    let Some([only]) = outcomes.as_deref() else {
        return;
    };
    assert_eq!(only.text, expected.text);
    assert_one_warning(&only.stderr, &room.path);
}

#[test]
fn a_limit_on_file_sizes_costs_a_transfer_and_not_the_process() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let expected = dense();
    let tier = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    // 600 blocks of 512 or 1,024 bytes: less than the table, and than the head in the block cache.
    command.args([
        "-c",
        "ulimit -f 600 && exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_fat-station"),
    ]);
    command.args(["--columnar-embed", &rows, "--embed-always-remote"]);
    command.arg("--embed-cache-dir").arg(tier.path());
    command
        .arg("--cache-dir")
        .arg(cache.path())
        .arg("run")
        .args(RUN);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        crate::station::text_of(&output).trim_end(),
        expected.text.trim_end()
    );
    assert_one_warning(&stderr, tier.path());
    assert!(stderr.contains("ulimit -f"), "{stderr}");
}
