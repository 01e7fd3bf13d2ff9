//! The file is whole and named, or there is none.

use std::io;

use super::*;

fn folder_listing(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_finished_file_is_its_rows_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rows");
    fs::write(&path, b"what was there before").unwrap();
    let rows: Vec<Vec<u8>> = (0..9000_u32)
        .map(|row| row.to_le_bytes().to_vec())
        .collect();
    let mut writer = RowFileWriter::create(&path, 9000, 4, Vec::new()).unwrap();
    for row in &rows {
        writer.push(row).unwrap();
    }
    assert_eq!(
        fs::read(&path).unwrap(),
        b"what was there before",
        "not before it is whole"
    );
    let written = writer.finish().unwrap();

    assert_eq!(fs::read(&path).unwrap(), rows.concat());
    assert_eq!(written.blake3, *blake3::hash(&rows.concat()).as_bytes());
    let shape = written.tree.check().unwrap();
    assert_eq!(written.paths.len() as u64, shape.path_table_bytes());
    assert_eq!(folder_listing(folder.path()), ["model.rows"]);
}

#[test]
fn a_writer_dropped_half_way_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rows");
    let mut writer = RowFileWriter::create(&path, 3, 4, io::sink()).unwrap();
    writer.push(b"rows").unwrap();
    assert_eq!(folder_listing(folder.path()).len(), 1);
    drop(writer);
    assert_eq!(folder_listing(folder.path()), [""; 0]);
}

#[test]
fn rows_too_few_too_many_or_of_another_length_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rows");
    let mut writer = RowFileWriter::create(&path, 2, 4, io::sink()).unwrap();
    let error = writer.push(b"longer").unwrap_err();
    assert_eq!(error.to_string(), "row 0 has 6 bytes, expected 4");
    writer.push(b"row0").unwrap();
    assert!(matches!(
        writer.finish(),
        Err(Error::RowCount {
            expected: 2,
            found: 1
        })
    ));

    let mut writer = RowFileWriter::create(&path, 1, 4, io::sink()).unwrap();
    writer.push(b"row0").unwrap();
    assert!(matches!(
        writer.push(b"row1"),
        Err(Error::RowCount {
            expected: 1,
            found: 2
        })
    ));
    drop(writer);
    assert_eq!(folder_listing(folder.path()), [""; 0]);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent/model.rows");
    let error = RowFileWriter::create(&path, 1, 4, io::sink()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} could not be written", path.display())
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn two_writers_of_one_name_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rows");
    let mut first = RowFileWriter::create(&path, 1, 4, io::sink()).unwrap();
    let mut second = RowFileWriter::create(&path, 1, 4, io::sink()).unwrap();
    first.push(b"aaaa").unwrap();
    second.push(b"bbbb").unwrap();
    second.finish().unwrap();
    first.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"aaaa");
    assert_eq!(folder_listing(folder.path()), ["model.rows"]);
}
