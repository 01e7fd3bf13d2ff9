//! Memory and files keep the same promises as HTTP.

use std::io::Write;

use futures::StreamExt;
use helix_transport::{
    Error, ErrorKind, FileSource, MemorySource, Patience, RangeSource, ReadOptions, read_whole,
};

use crate::setup::{batch, options, range};

const LEN: usize = 3_000_000;

fn content() -> Vec<u8> {
    (0..LEN).map(|n| (n % 251) as u8).collect()
}

async fn stream(source: &dyn RangeSource, start: u64, end: u64, options: &ReadOptions) -> Vec<u8> {
    let mut stream = source.stream(range(start, end), options);
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    all
}

async fn keeps_the_promises(source: &dyn RangeSource) {
    let content = content();
    let batch = batch();
    assert_eq!(source.version().unwrap().len_bytes, LEN as u64);
    let bytes = source.read(range(100, 200), &batch).await.unwrap();
    assert_eq!(&bytes[..], &content[100..200]);
    assert_eq!(source.read(range(5, 5), &batch).await.unwrap().len(), 0);
    assert_eq!(
        &source.read_prefix(7, &batch).await.unwrap()[..],
        &content[..7]
    );
    assert_eq!(
        source.read_prefix(u64::MAX, &batch).await.unwrap().len(),
        LEN
    );
    let meter = batch.meter.snapshot();
    assert_eq!(
        (meter.requests, meter.received_bytes),
        (3, 100 + 7 + LEN as u64)
    );

    let streamed = stream(source, 1, LEN as u64, &options(Patience::Stream)).await;
    assert!(streamed == content[1..]);
    assert!(
        stream(source, 9, 9, &options(Patience::Stream))
            .await
            .is_empty()
    );

    let error = source
        .read(range(0, LEN as u64 + 1), &batch)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::OutsideObject { .. }), "{error}");
    let options = options(Patience::Stream);
    let mut outside = source.stream(range(10, LEN as u64 + 1), &options);
    assert!(matches!(
        outside.next().await,
        Some(Err(Error::OutsideObject { .. }))
    ));
    assert!(outside.next().await.is_none());

    assert_eq!(
        read_whole(source, LEN as u64, &batch).await.unwrap().len(),
        LEN
    );
    let error = read_whole(source, LEN as u64 - 1, &batch)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn memory() {
    keeps_the_promises(&MemorySource::new("m", content())).await;
}

#[tokio::test]
async fn a_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&content()).unwrap();
    let source = FileSource::open(file.path()).unwrap();
    assert_eq!(source.name(), file.path().display().to_string());
    keeps_the_promises(&source).await;
}

#[tokio::test]
async fn a_file_changed_in_place_is_noticed() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[1; 1000]).unwrap();
    let source = FileSource::open(file.path()).unwrap();
    file.as_file().set_len(500).unwrap();
    for asked in [range(0, 10), range(900, 1000)] {
        let error = source.read(asked, &batch()).await.unwrap_err();
        assert!(
            matches!(error, Error::Changed { fact: "length", .. }),
            "{error}"
        );
    }
    // The length is back, the time is not.
    file.as_file().set_len(1000).unwrap();
    file.as_file().set_modified(std::time::UNIX_EPOCH).unwrap();
    let error = source.read(range(0, 10), &batch()).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Changed {
                fact: "modification time",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_replaced_file_keeps_serving_what_was_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    std::fs::write(&path, [1; 100]).unwrap();
    let source = FileSource::open(&path).unwrap();
    let next = directory.path().join("next");
    std::fs::write(&next, [2; 100]).unwrap();
    std::fs::rename(&next, &path).unwrap();
    assert_eq!(
        &source.read(range(0, 100), &batch()).await.unwrap()[..],
        [1; 100]
    );
}

#[test]
fn what_cannot_be_opened_is_named() {
    let error = FileSource::open("/nowhere/rows").unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.kind()),
        ("/nowhere/rows", ErrorKind::NotFound)
    );
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(
        FileSource::open(directory.path()),
        Err(Error::Io { .. })
    ));
}
