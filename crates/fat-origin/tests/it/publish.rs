//! Both files appear or neither, and what a killed packer left goes away.

use std::path::Path;

use fat_origin::Error;
use fat_origin::pack::{PackOptions, PackReport, pack};

use super::huggingface_source::{directory, tiny_tensors};
use super::packed::files;

fn pack_into(out: &Path) -> Result<PackReport, Error> {
    let options = PackOptions {
        out: out.to_path_buf(),
        name: Some("tiny".to_owned()),
        ..PackOptions::default()
    };
    pack(directory(&tiny_tensors()).path(), &options)
}

#[test]
fn rows_without_their_knot_do_not_stay() {
    let out = tempfile::tempdir().unwrap();
    // A directory in the knot's place cannot be renamed over.
    std::fs::create_dir(out.path().join("tiny.gkq")).unwrap();
    let error = pack_into(out.path()).unwrap_err();
    assert!(error.to_string().contains("tiny.gkq"), "{error}");
    assert_eq!(files(out.path()), ["tiny.gkq"]);

    std::fs::write(out.path().join("tiny.rows"), b"of before").unwrap();
    pack_into(out.path()).unwrap_err();
    assert_eq!(files(out.path()), ["tiny.gkq", "tiny.rows"]);
    assert_eq!(
        std::fs::read(out.path().join("tiny.rows")).unwrap(),
        b"of before"
    );

    std::fs::remove_dir(out.path().join("tiny.gkq")).unwrap();
    let report = pack_into(out.path()).unwrap();
    let rows = std::fs::metadata(&report.rows).unwrap().len();
    assert_eq!(rows, report.rows_bytes, "replaced");
}

#[test]
fn left_overs_of_the_same_name_go_unless_they_are_in_use() {
    let out = tempfile::tempdir().unwrap();
    for name in [
        ".tiny.partial-dead",
        ".tiny.partial-live",
        ".other.partial-x",
    ] {
        std::fs::create_dir(out.path().join(name)).unwrap();
        std::fs::write(out.path().join(name).join("rows"), b"half").unwrap();
    }
    let live = std::fs::File::open(out.path().join(".tiny.partial-live")).unwrap();
    live.lock().unwrap();
    pack_into(out.path()).unwrap();
    assert_eq!(
        files(out.path()),
        [
            ".other.partial-x",
            ".tiny.partial-live",
            "tiny.gkq",
            "tiny.rows"
        ]
    );
}
