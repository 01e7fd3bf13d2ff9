//! Files as `Bytes` without a copy. The only unsafe code of this crate; it neither reads formats
//! nor decides which files are opened.
#![allow(
    unsafe_code,
    reason = "a memory map has no safe constructor; see the safety comment"
)]

use crate::error::Error;
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::{File, Metadata};
use std::path::Path;

/// Maps the whole file at `path`. The map lives as long as any slice of the returned bytes; until
/// then the file may be renamed or removed, but must not be overwritten in place.
///
/// # Errors
/// [`Error::File`] where it is no regular file, or cannot be opened or mapped.
pub fn map(path: &Path) -> Result<Bytes, Error> {
    // Before it is opened: a FIFO would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(Error::file(path))?;
    regular(&metadata, path)?;
    map_open(&File::open(path).map_err(Error::file(path))?, path)
}

/// Maps the whole of `file`, which was opened at `path`. What [`map`] says holds here too.
///
/// # Errors
/// [`Error::File`] where it is no regular file or cannot be mapped.
pub fn map_open(file: &File, path: &Path) -> Result<Bytes, Error> {
    let metadata = file.metadata().map_err(Error::file(path))?;
    regular(&metadata, path)?;
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this process. Undefined behaviour would need the
    // file to be changed in place while it is mapped:
    // - blocks in the cache directory are written to a temporary name and renamed, never changed;
    // - knots are written by `fat-origin pack` in the same way;
    // - an operator must not overwrite a knot in place while a station runs, as `map` documents;
    //   whoever does may see wrong numbers or SIGBUS. Offsets are checked once, on the front.
    let mapped = unsafe { Mmap::map(file) }.map_err(Error::file(path))?;
    Ok(Bytes::from_owner(mapped))
}

fn regular(metadata: &Metadata, path: &Path) -> Result<(), Error> {
    if metadata.is_file() {
        return Ok(());
    }
    let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
    Err(Error::file(path)(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_seen_as_it_is_and_outlives_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("block");
        std::fs::write(&path, b"0123456789").unwrap();
        let bytes = map(&path).unwrap().slice(3..6);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&bytes[..], b"345");
    }

    #[test]
    fn empty_missing_and_odd_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        assert!(map(&path).unwrap().is_empty());
        let missing = map(&directory.path().join("missing"))
            .unwrap_err()
            .to_string();
        assert!(missing.ends_with("missing"), "{missing}");
        assert!(map(directory.path()).is_err(), "a directory is no file");
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let refused = map(&fifo).unwrap_err().chain();
        assert!(refused.contains("not a regular file"), "{refused}");
    }
}
