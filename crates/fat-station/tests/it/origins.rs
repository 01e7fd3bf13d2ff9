//! What one station learns of an origin, the next one knows: `origins.json` in the cache directory.

use crate::station::{Origin, binary, packed, text_of};
use std::path::Path;

/// Rows so far apart that each is a range of its own: more than the 16 requests of one wave.
const SPANS: usize = 60;

/// A station without rows fetches them; the number of ranges in each of its requests for rows.
fn fetch(origin: &Origin, cache: &Path) -> Vec<usize> {
    let before = origin.ranges_of(".rows").len();
    let scratch = tempfile::tempdir().unwrap();
    let ids = scratch.path().join("ids.json");
    let apart: Vec<usize> = (0..SPANS).map(|span| span * 160).collect();
    std::fs::write(&ids, serde_json::to_string(&apart).unwrap()).unwrap();
    let mut command = binary();
    command.args(["--knot", &packed("tied.gkq")]);
    command.args(["--columnar-embed", &origin.url("tied.rows")]);
    command.arg("--cache-dir").arg(cache);
    let rows = scratch.path().join("rows");
    command.arg("--embed-cache-dir").arg(rows);
    command.arg("prefetch").arg("--ids-file").arg(&ids);
    let output = command.output().unwrap();
    let said = text_of(&output);
    assert!(said.contains(&format!("{SPANS} of 10000 rows")), "{said}");
    origin.ranges_of(".rows").split_off(before)
}

#[test]
fn a_second_station_asks_for_several_ranges_at_once() {
    let origin = Origin::start();
    let (cache, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = fetch(&origin, cache.path());
    assert!(cache.path().join("origins.json").is_file());
    let second = fetch(&origin, cache.path());
    let elsewhere = fetch(&origin, other.path());
    for asked in [&first, &second, &elsewhere] {
        assert_eq!(
            asked.iter().sum::<usize>(),
            SPANS,
            "{asked:?}: each row once"
        );
    }
    // Single ranges and the canary of two, before any larger request.
    for asked in [&first, &elsewhere] {
        assert!(asked.contains(&2), "{asked:?}");
        assert!(asked.contains(&1), "{asked:?}");
    }
    assert!(second.iter().all(|&ranges| ranges > 2), "{second:?}");
    assert!(second.len() < first.len(), "{second:?} after {first:?}");
}
