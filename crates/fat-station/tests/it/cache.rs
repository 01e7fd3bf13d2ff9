//! Blocks of a remote knot are kept by digest: a second start moves none of them.

use crate::station::{Origin, binary, packed, run, text_of};

const RUN: [&str; 4] = ["--raw", "--max-tokens", "4", "abc"];

#[test]
fn a_second_start_moves_no_block() {
    let cache = tempfile::tempdir().unwrap();
    let cache_dir = cache.path().to_str().unwrap();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let flags = ["--columnar-embed", &rows, "--cache-dir", cache_dir];
    let first = run(&flags, &RUN).succeeded();
    let second = run(&flags, &RUN).succeeded();
    assert!(first.number("/bytes/blocks/received") > 0);
    assert!(first.number("/bytes/head/received") > 0);
    for path in [
        "/bytes/blocks/received",
        "/bytes/blocks/requests",
        "/bytes/head/received",
    ] {
        assert_eq!(second.number(path), 0, "{path}");
    }
    assert!(
        second.number("/bytes/rows/received") > 0,
        "rows are not blocks"
    );
    assert_eq!(first.tokens, second.tokens);
    assert!(first.logits == second.logits);

    // A model with the same blocks finds them, whatever its name.
    let external = origin.url("external.rows");
    let third = run(
        &["--columnar-embed", &external, "--cache-dir", cache_dir],
        &RUN,
    )
    .succeeded();
    assert_eq!(
        third.number("/bytes/blocks/received") + third.number("/bytes/head/received"),
        0
    );
}

#[test]
fn a_damaged_block_is_fetched_again() {
    let cache = tempfile::tempdir().unwrap();
    let cache_dir = cache.path().to_str().unwrap();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let flags = ["--columnar-embed", &rows, "--cache-dir", cache_dir];
    let first = run(&flags, &RUN).succeeded();
    let blocks = cache.path().join("blocks");
    let largest = std::fs::read_dir(&blocks).unwrap().map(Result::unwrap);
    let largest = largest
        .max_by_key(|entry| entry.metadata().unwrap().len())
        .unwrap()
        .path();
    let mut bytes = std::fs::read(&largest).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&largest, bytes).unwrap();
    let second = run(&flags, &RUN).succeeded();
    assert_eq!(
        second.number("/bytes/head/received"),
        first.number("/bytes/head/received")
    );
    assert!(second.stderr.contains("damaged"), "{}", second.stderr);
    assert!(first.logits == second.logits);
}

#[test]
fn concurrent_starts_share_one_directory() {
    let cache = tempfile::tempdir().unwrap();
    let cache_dir = cache.path().to_str().unwrap();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| run(&["--columnar-embed", &rows, "--cache-dir", cache_dir], &RUN))
            })
            .collect();
        for start in starts {
            assert!(start.join().unwrap().succeeded().logits == expected.logits);
        }
    });
    let left_over = std::fs::read_dir(cache.path().join("blocks")).unwrap();
    let left_over = left_over.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("incoming")
    });
    assert_eq!(left_over.count(), 0);
}

#[test]
fn a_cache_that_cannot_be_used_costs_a_transfer_not_the_start() {
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    let file = tempfile::NamedTempFile::new().unwrap();
    let unusable = file.path().to_str().unwrap();
    for _ in 0..2 {
        let flags = ["--columnar-embed", &rows, "--cache-dir", unusable];
        let finished = run(&flags, &RUN).succeeded();
        assert!(finished.logits == expected.logits);
        assert!(finished.number("/bytes/blocks/received") > 0);
        let warnings = finished.stderr.matches("--cache-dir").count();
        assert_eq!(warnings, 1, "{}", finished.stderr);
    }
}

#[test]
fn a_local_knot_needs_no_home_and_a_remote_one_does_without() {
    let origin = Origin::start();
    for (knot, warnings) in [(packed("tied.gkq"), 0), (origin.url("tied.gkq"), 1)] {
        let mut command = binary();
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
        let output = command.args(["--knot", &knot, "run"]).args(RUN).output();
        let output = output.unwrap();
        text_of(&output);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.matches("--cache-dir").count(), warnings, "{stderr}");
    }
}
