//! A directory as destination: names that appear whole, publishers that were killed for real.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use fat_origin::publish::Outcome;

use super::super::packed::files;
use super::*;

fn open(path: &Path) -> Result<Destination, Error> {
    Destination::open(path.to_str().unwrap(), |_| None)
}

#[track_caller]
fn assert_directory_is_whole(site: &Path) -> [String; 2] {
    let manifest = std::fs::read(site.join("manifest.json")).unwrap();
    assert_whole(&manifest, |name| std::fs::read(site.join(name)).ok())
}

#[tokio::test]
async fn a_directory_gets_objects_and_manifest_and_nothing_else() {
    let (model, parent) = (model(1), tempfile::tempdir().unwrap());
    let site = parent.path().join("new/site");
    let report = publish(&options(&model), &open(&site).unwrap())
        .await
        .unwrap();
    let [rows, knot] = assert_directory_is_whole(&site);
    assert_eq!(files(&site), [knot, "manifest.json".to_owned(), rows]);
    assert_eq!(report.read_back.through, "directory");
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);

    let again = publish(&options(&model), &open(&site).unwrap())
        .await
        .unwrap();
    assert!(
        again
            .objects
            .iter()
            .all(|object| object.outcome == Outcome::Present)
    );
    assert_eq!(again.sent_bytes, 0);
}

#[tokio::test]
async fn a_destination_that_takes_nothing_is_named() {
    let model = model(1);
    let file = model.out.path().join("a file");
    std::fs::write(&file, b"x").unwrap();
    for place in [
        &*file,
        Path::new("/sys/fat-origin"),
        Path::new("/proc/fat-origin/site"),
    ] {
        let error = open(place).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(
            error.to_string().contains(place.to_str().unwrap()),
            "{error}"
        );
    }
}

fn start(model: &Packed, site: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fat-origin"))
        .arg("publish")
        .arg(model.knot_path())
        .arg(site)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Bytes of all files of `site`, staged ones included.
fn bytes_in(site: &Path) -> u64 {
    let entries = std::fs::read_dir(site).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

#[tokio::test]
async fn a_process_killed_at_any_amount_leaves_the_old_version_whole() {
    let (old, new, parent) = (model(1), model(2), tempfile::tempdir().unwrap());
    let site = parent.path().join("site");
    publish(&options(&old), &open(&site).unwrap())
        .await
        .unwrap();
    let before = assert_directory_is_whole(&site);
    let base = bytes_in(&site);
    let total = (new.rows.len() + new.bytes.len()) as u64;
    let mut killed = 0;
    for step in 0..16 {
        let mut child = start(&new, &site);
        // The moment is an amount that has arrived; a machine that is quicker finishes, which is fine.
        while bytes_in(&site) < base + total * step / 16 && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        let now = assert_directory_is_whole(&site);
        if now != before {
            // It was done: back to the old version for the next round.
            publish(&options(&old), &open(&site).unwrap())
                .await
                .unwrap();
        }
        assert_eq!(assert_directory_is_whole(&site), before);
        for name in files(&site) {
            let whole = name == "manifest.json" || name.contains('#') || before.contains(&name);
            if !whole {
                std::fs::remove_file(site.join(name)).unwrap();
            }
        }
    }
    assert!(killed > 0, "no round was cut");
    let mut last = start(&new, &site);
    let mut said = String::new();
    last.stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(last.wait().unwrap().success(), "{said}");
    assert_ne!(assert_directory_is_whole(&site), before);
    assert!(
        files(&site).iter().all(|name| !name.contains('#')),
        "left-overs go"
    );
}
