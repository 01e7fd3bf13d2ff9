//! A directory as destination: names that appear whole, publishers that were killed for real.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

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
    for place in ["/sys/fat-origin", "/proc/fat-origin/site"] {
        let error = open(Path::new(place)).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(error.to_string().contains(place), "{error}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("a file");
    std::fs::write(&file, b"x").unwrap();
    for (place, part) in [
        (file.to_str().unwrap(), "is not a directory"),
        ("/dev/null", "`/dev/null` is not a directory"),
        ("", "is empty"),
        ("file://", "is empty"),
    ] {
        let error = Destination::open(place, |_| None).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Option { option: "DEST", .. }),
            "{text}"
        );
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn what_is_no_file_under_an_objects_name_is_refused_and_left() {
    let model = model(1);
    for name in [
        "manifest.json".to_owned(),
        blake3_name("rows", &model.rows, "bin"),
    ] {
        let site = tempfile::tempdir().unwrap();
        let fifo = site.path().join(&name);
        let made = Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let error = publish(&options(&model), &open(site.path()).unwrap()).await;
        let error = error.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Option { option: "DEST", .. }),
            "{text}"
        );
        assert!(
            text.contains(&format!("{name}` is not a regular file")),
            "{text}"
        );
        assert!(fifo.exists());
    }
}

#[tokio::test]
async fn one_wrong_byte_anywhere_in_a_file_is_found_and_replaced() {
    let (model, site) = (model(1), tempfile::tempdir().unwrap());
    publish(&options(&model), &open(site.path()).unwrap())
        .await
        .unwrap();
    let [_, knot] = assert_directory_is_whole(site.path());
    let path = site.path().join(&knot);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let wrong = blake3::hash(&bytes).to_string();
    std::fs::write(&path, bytes).unwrap();
    let report = publish(&options(&model), &open(site.path()).unwrap())
        .await
        .unwrap();
    assert_eq!(report.objects[1].outcome, Outcome::Replaced);
    let warning = &report.warnings[0];
    assert!(
        warning.contains(&wrong) && warning.contains(&knot),
        "{warning}"
    );
    assert_directory_is_whole(site.path());
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
